"""A client of NCCL RAS, sent as text into a running container; it leaves no files there.

Prints JSON objects, one a line: {"sample": text}, {"dump": path, "data": zlib in base64}, {"note": text}. It connects
only to NCCL's own address, and only if a socket listens there. It sends only the messages of NCCL's own client
(src/ras/client.cc): stray bytes on that port have crashed processes (NVIDIA/nccl#1718, #1996).
"""

import base64
import glob
import json
import os
import re
import socket
import sys
import time
import zlib
from typing import List, Optional, Tuple

PORT = 28028
MOST = 64 << 20
JSON_SINCE = (2, 28, 7)
_LEG_S = 5  # RAS_COLLECTIVE_LEG_TIMEOUT_SEC: NCCL's timeout for its peers
_ANSWER_S = 30.0


class NotRasError(Exception):
    """The server does not use the protocol of NCCL RAS."""


def say(**message: str) -> None:
    """Print one object."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def setting(name: str) -> str:
    """Return an NCCL setting: from the container's environment, then NCCL's two files (src/misc/param.cc)."""
    if os.environ.get(name):
        return os.environ[name]
    files = [os.environ.get("NCCL_CONF_FILE") or os.path.expanduser("~/.nccl.conf"), "/etc/nccl.conf"]
    for path in files:
        try:
            with open(path) as file:
                for line in file.read(65536).splitlines():
                    key, _, value = line.partition("=")
                    if key.strip() == name:
                        return value.strip()
        except (OSError, ValueError):
            continue
    return ""


def place(text: str) -> Tuple[str, int]:
    """Return (host, port) of NCCL_RAS_ADDR; a wildcard address is this machine."""
    host, _, port = (text or "localhost").rpartition(":") if ":" in (text or "") else (text or "localhost", "", "")
    host = host.strip("[]") or "localhost"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- where to connect to
    return host, int(port) if port.isdigit() and 0 < int(port) < 65536 else PORT


def listens(port: int) -> Optional[bool]:
    """Return whether a socket listens on a port of this network namespace; None if /proc does not show it."""
    listening: Optional[bool] = None
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as file:
                next(file)
                for line in file:
                    listening = False if listening is None else listening
                    columns = line.split()
                    if len(columns) > 3 and columns[3] == "0A" and int(columns[1].rpartition(":")[2], 16) == port:
                        return True
        except (OSError, ValueError, StopIteration):
            continue
    return listening


def line_of(connection: socket.socket, end: float) -> str:
    """Return a short answer up to its newline."""
    data = b""
    while not data.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0:
            raise NotRasError("no answer in time")
        connection.settimeout(left)
        try:
            more = connection.recv(1)
        except socket.timeout:
            raise NotRasError("no answer in time") from None
        if not more:
            raise NotRasError("it closed the connection" + (" after %r" % data[:80] if data else ""))
        data += more
        if len(data) > 1000:
            raise NotRasError("it answered %r, which is not NCCL RAS" % data[:80])
    return data.decode("utf-8", "replace").strip()


def ask(address: Tuple[str, int], as_json: bool) -> str:
    """Return one answer to VERBOSE STATUS, complete or partial; raise NotRasError for another protocol."""
    end = time.monotonic() + _ANSWER_S
    connection = socket.create_connection(address, 5)
    try:
        connection.sendall(b"CLIENT PROTOCOL 2\n")
        greeting = line_of(connection, min(end, time.monotonic() + 10))
        if not greeting.upper().startswith("SERVER PROTOCOL "):
            raise NotRasError("it answered %r to the handshake, which is not NCCL RAS" % greeting[:80])
        commands = ["TIMEOUT %d" % _LEG_S] + ["SET FORMAT json"] * int(as_json)
        for command in commands:
            connection.sendall(command.encode() + b"\n")
            answer = line_of(connection, end)
            if answer.upper() != "OK":
                raise NotRasError("it answered %r to %s" % (answer[:80], command))
        connection.sendall(b"VERBOSE STATUS\n")
        parts: List[bytes] = []
        size = 0
        while size < MOST:
            left = end - time.monotonic()
            if left <= 0:
                break
            connection.settimeout(left)
            try:
                data = connection.recv(65536)
            except socket.timeout:
                break
            if not data:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts).decode("utf-8", "replace")
    finally:
        connection.close()


def sample(samples: int, pause_s: float) -> None:
    """Take several samples: first as text, which all versions support, then as JSON if this version has it."""
    text = setting("NCCL_RAS_ADDR")
    address = place(text)
    shown = "%s:%d" % address
    say(address=shown)
    if setting("NCCL_RAS_ENABLE") == "0":
        say(note="NCCL_RAS_ENABLE=0: RAS is off in this container")
        return
    if listens(address[1]) is False:
        say(
            note="nothing listens on %s: NCCL before 2.24, no communicator yet, RAS off, or another NCCL_RAS_ADDR"
            % shown
        )
        return
    as_json = False
    number = 0
    while number < samples:
        try:
            answer = ask(address, as_json)
        except (OSError, NotRasError) as error:
            say(note="%s: %s" % (shown, error))
            return
        version = re.search(r"NCCL version (\d+)\.(\d+)\.(\d+)", answer[:4096])
        if not as_json and version and tuple(int(part) for part in version.groups()) >= JSON_SINCE:
            as_json = True
            continue
        say(sample=answer)
        number += 1
        if number < samples:
            time.sleep(pause_s)


def started() -> float:
    """Return the start time of this container's first process (epoch seconds); 0 if unknown."""
    try:
        with open("/proc/1/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/stat") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith("btime "))
        return boot + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return 0


def dumps(prefix: str, most: int) -> None:
    """Print PyTorch Flight Recorder dumps from the caller's paths, the environment's, or PyTorch's defaults."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    prefixes = [
        prefix or os.environ.get("TORCH_FR_DUMP_TEMP_FILE") or os.environ.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE") or ""
    ]
    if not prefix:
        prefixes += ["/tmp/nccl_trace_rank_", cache + "/torch/comm_lib_trace_rank_"]  # noqa: S108 -- PyTorch's defaults
    begin, sent = started() - 5, 0
    looked_at = set()
    for start in prefixes:
        for path in sorted(glob.glob(glob.escape(start) + "*") if start else [])[:4096]:
            if path in looked_at or not re.match(r"\d{1,7}(\.json)?$", path[len(start) :]) or not os.path.isfile(path):
                continue
            looked_at.add(path)
            try:
                if os.path.getmtime(path) < begin:
                    say(note="%s is older than this container: not read" % path)
                    continue
                with open(path, "rb") as file:
                    data = file.read(MOST + 1)
            except OSError as error:
                say(note="%s: %s" % (path, error.strerror))
                continue
            if len(data) > MOST or sent + len(data) > most:
                say(note="%s: larger than the limit" % path)
                continue
            sent += len(data)
            say(dump=path, data=base64.b64encode(zlib.compress(data, 1)).decode())


def main(samples: int, pause_s: float, prefix: str, most: int) -> None:
    """Print the samples and the dumps."""
    if samples:
        sample(samples, pause_s)
    dumps(prefix, most)
