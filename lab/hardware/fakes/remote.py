"""The fakes' remote shell: the protocol between ssh and sshd.

After the banners of SSH-2.0 the client sends one line of JSON (its public key and the commands), then each side sends
lines: output as it is written, exit codes. The key must be among the authorized keys of the target pod; nothing is
encrypted. A command gets the environment of a login, and not the container's: mpirun's -x exists for that reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

BANNER = b"SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.5\r\n"
PORT = 22
# Without network namespaces, the ports below 1024 are the machine's own.
SHIFT = 10_000 if os.environ.get("SIM_PLAIN") else 0
CONNECT_S = 10
LONGEST = 1 << 20


class RemoteError(Exception):
    """An error of the remote shell; str() is ssh's message."""


def folders() -> list[Path]:
    """Return the places of keys: the user's, and those of users with a home in an image."""
    homes = [Path(os.environ.get("HOME", "/root")), Path("/root"), *sorted(Path("/home").glob("*"))]
    ssh_folders = []
    for home in dict.fromkeys(homes):
        with contextlib.suppress(OSError):
            if (home / ".ssh").is_dir():
                ssh_folders.append(home / ".ssh")
    return ssh_folders


def public_key(identity: str = "") -> str:
    """Return the client's public key; empty without one."""
    names = [Path(identity + ".pub")] if identity else [folder / "id_rsa.pub" for folder in folders()]
    for name in names:
        with contextlib.suppress(OSError):
            return name.read_text(encoding="ascii").strip()
    return ""


def authorized(key: str) -> bool:
    """Return whether a key is authorized here."""
    for folder in folders():
        with contextlib.suppress(OSError):
            known = (folder / "authorized_keys").read_text(encoding="ascii").split("\n")
            if key and key in map(str.strip, known):
                return True
    return False


def lines(line: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield messages of the other side, until it closes."""
    buffer = b""
    while True:
        cut = buffer.find(b"\n")
        while cut >= 0:
            yield json.loads(buffer[:cut])
            buffer = buffer[cut + 1 :]
            cut = buffer.find(b"\n")
        piece = line.recv(65536)
        if not piece or len(buffer) > LONGEST:
            return
        buffer += piece


def say(line: socket.socket, message: dict[str, Any]) -> None:
    """Send one line."""
    line.sendall(json.dumps(message).encode() + b"\n")


def call(
    host: str,
    commands: list[dict[str, Any]],
    *,
    attempts: int = 1,
    port: int = PORT,
    identity: str = "",
    user: str = "root",
) -> socket.socket:
    """Connect, send the key and the commands; RemoteError with ssh's message."""
    for attempt in range(max(1, attempts)):
        if attempt:
            time.sleep(1)
        try:
            line = socket.create_connection((host, port + SHIFT), CONNECT_S)
            break
        except socket.gaierror:
            why = f"ssh: Could not resolve hostname {host}: Name or service not known"
        except TimeoutError:
            why = f"ssh: connect to host {host} port {port}: Connection timed out"
        except OSError as error:
            why = f"ssh: connect to host {host} port {port}: {os.strerror(error.errno or 0)}"
    else:
        raise RemoteError(why)
    line.sendall(BANNER)
    banner = b""
    while not banner.endswith(b"\n"):
        piece = line.recv(1)
        if not piece:
            raise RemoteError(
                f"kex_exchange_identification: Connection closed by remote host\nConnection closed by "
                f"{host} port {port}"
            )
        banner += piece
    line.settimeout(None)
    say(line, {"user": user, "key": public_key(identity), "commands": commands})
    return line
