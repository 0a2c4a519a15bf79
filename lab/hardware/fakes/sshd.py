"""Fake sshd at port 22 of a worker: it runs commands of clients with an authorized key.

Commands end together with the connection. `sshd -D` stays in the foreground, `-e` logs to standard error, `-p` sets the
port.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from . import remote

if TYPE_CHECKING:
    from collections.abc import Iterator

# The default PATH of an sshd session (_PATH_STDPATH of OpenSSH), after the image's own fakes.
PATH = "/run/sim/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Variables by which this process finds its pod without namespaces.
CARRIED = ("SIM_NODE_JSON", "SIM_PLAIN", "PYTHONPATH", "TMPDIR")


def main() -> int:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(prog="sshd", add_help=False)
    for flag in ("-D", "-e", "-d", "-q", "-t"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-p", type=int, default=remote.PORT)
    for flag in ("-f", "-o", "-E", "-h"):
        parser.add_argument(flag, action="append")
    options, _ = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    for option in options.o or []:
        name, _, value = option.partition("=")
        if name.strip().lower() == "port":
            options.p = int(value)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("0.0.0.0", options.p + remote.SHIFT))  # noqa: S104 - the pod's addresses
        except OSError as error:
            log(f"error: Bind to port {options.p} on 0.0.0.0 failed: {os.strerror(error.errno or 0)}.")
            log("fatal: Cannot bind any address.")
            return 255
        server.listen(64)
        log(f"Server listening on 0.0.0.0 port {options.p}.")
        while True:
            line, peer = server.accept()
            threading.Thread(target=_session, args=(line, peer), daemon=True).start()


def log(text: str) -> None:
    """Write to the log, with sshd's line endings."""
    print(text, end="\r\n", file=sys.stderr, flush=True)


def _session(line: socket.socket, peer: tuple[str, int]) -> None:
    with contextlib.suppress(OSError, ValueError), line:
        line.sendall(remote.BANNER)
        while (byte := line.recv(1)) != b"\n":
            if not byte:
                return
        said = remote.lines(line)
        request = next(said, None)
        if request is None:
            return
        if not remote.authorized(request["key"]):
            log(f"Connection closed by authenticating user {request['user']} {peer[0]} port {peer[1]} [preauth]")
            remote.say(line, {"refused": f"{request['user']}@{line.getsockname()[0]}: Permission denied (publickey)."})
            return
        log(f"Accepted publickey for {request['user']} from {peer[0]} port {peer[1]} ssh2")
        env = {
            "PATH": PATH,
            "HOME": os.environ.get("HOME", "/root"),
            "USER": "root",
            "SHELL": "/bin/sh",
            "SSH_CONNECTION": f"{peer[0]} {peer[1]} {line.getsockname()[0]} {remote.PORT}",
            **{name: os.environ[name] for name in CARRIED if name in os.environ},
        }
        serve(line, said, request["commands"], env)


def serve(
    line: socket.socket, said: Iterator[dict[str, Any]], commands: list[dict[str, Any]], env: dict[str, str]
) -> None:
    """Run commands for the client until it disconnects, then end running ones."""
    processes: list[subprocess.Popen[bytes]] = []
    lock = threading.Lock()
    try:
        for command in commands:
            _start(command, line, lock, processes, env)
        for _ in said:
            pass
    finally:
        for process in processes:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGTERM)


def _start(
    command: dict[str, Any],
    line: socket.socket,
    lock: threading.Lock,
    processes: list[subprocess.Popen[bytes]],
    env: dict[str, str],
) -> None:
    env = {**env, **command.get("env", {})}
    argv = command["argv"] if "argv" in command else ["/bin/sh", "-c", command["shell"]]
    number = command["id"]
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=command.get("cwd") or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        with lock:
            remote.say(line, {"id": number, "exit": 127, "lost": argv[0], "why": os.strerror(error.errno or 0)})
        return
    processes.append(process)
    pumps = [
        threading.Thread(target=_pump, args=(number, stream, pipe, line, lock), daemon=True)
        for stream, pipe in ((1, process.stdout), (2, process.stderr))
    ]
    for pump in pumps:
        pump.start()

    def watch() -> None:
        code = process.wait()
        for pump in pumps:
            pump.join(5)
        with lock, contextlib.suppress(OSError):
            remote.say(line, {"id": number, "exit": code})

    threading.Thread(target=watch, daemon=True).start()


def _pump(number: int, stream: int, pipe: Any, line: socket.socket, lock: threading.Lock) -> None:
    while data := os.read(pipe.fileno(), 32768):
        with lock, contextlib.suppress(OSError):
            remote.say(line, {"id": number, "stream": stream, "data": base64.b64encode(data).decode()})
