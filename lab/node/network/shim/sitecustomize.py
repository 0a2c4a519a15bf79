"""Python programs of pods without namespaces: their pod's files, names and addresses.

Python imports this before the program because it is on PYTHONPATH. It redirects everything that a namespace would:
paths of mounts, the host name, names of the cluster, `0.0.0.0` (the pod's own address), the addresses of services, and
packets that network policies drop. Other programs (shells, getent) see the machine itself: this is reported as lost.
"""
# ruff: noqa: PTH120, PTH123 - it replaces functions that pathlib calls

from __future__ import annotations

import _posixsubprocess
import builtins
import errno
import io
import json
import os
import socket
import struct
import sys
import time
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

with open(os.environ["SIM_PLAIN"], encoding="utf-8") as _file:
    POD: dict[str, Any] = json.load(_file)
PATHS: list[list[str]] = sorted(POD["paths"], key=lambda pair: -len(pair[0]))
OWN: tuple[str, ...] = tuple(POD["own"])
"""Folders of the cluster's files and of this Python: paths in them are never redirected, even below a pod's mounts."""
DROPPED_S = 130
"""Seconds until Linux gives up a connection attempt (tcp_syn_retries=6)."""
ANY = "0.0.0.0"  # noqa: S104 - what a program says that means all addresses

_execve, _listdir, _readlink, _socket, _getaddrinfo = (
    os.execve,
    os.listdir,
    os.readlink,
    socket.socket,
    socket.getaddrinfo,
)
_bind, _connect, _connect_ex = _socket.bind, _socket.connect, _socket.connect_ex


# -- files


def moved(path: Any) -> Any:
    """Return the path on this machine of a path in the pod."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if isinstance(text, str) and not f"{text}/".startswith(OWN):
        for target, source in PATHS:
            if text == target or text.startswith(target + "/"):
                return source + text[len(target) :]
    return path


def shown(path: Any) -> Any:
    """Return the path in the pod of a path on this machine."""
    for target, source in PATHS if isinstance(path, str) else ():
        if path == source or path.startswith(source + "/"):
            return target + path[len(source) :]
    return path


def redirect(owner: Any, name: str, paths: int = 1) -> None:
    """Let a function that takes one or two paths first accept the pod's paths."""
    real = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:
        return real(*map(moved, given[:paths]), *given[paths:], **named)

    setattr(owner, name, call)


def readlink(path: Any, **named: Any) -> Any:
    """Read a link; a target in a mount, as of an open file's link in /proc, is shown with the pod's path."""
    return shown(_readlink(moved(path), **named))


def listdir(path: Any = ".") -> list[Any]:
    """List a folder, including mount points in it that only the pod has."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    extra: set[str] = set()
    if isinstance(text, str):
        parent = text.rstrip("/") + "/"
        extra = {target[len(parent) :].split("/")[0] for target, _ in PATHS if target.startswith(parent)}
    try:
        names: list[Any] = _listdir(moved(path))
    except FileNotFoundError:
        if not extra:
            raise
        names = []
    return names + sorted(extra - set(names))


# -- programs


def placed(word: Any) -> bytes:
    """Return the path on this machine, for the kernel and for programs that start without this module."""
    return os.fsencode(moved(os.fsdecode(word)))


def environment() -> None:
    """Set the variables to the pod's paths; started programs get this machine's paths."""
    for name, value in os.environ.items():
        os.environ[name] = ":".join(map(shown, value.split(":")))


def started(args: Any, env: Any) -> tuple[list[bytes | str], list[bytes]]:
    """Return command line and variables with this machine's paths: those of the program and of the file that it runs.

    For an interpreter that file is the first argument which is not an option.
    """
    words = list(args)
    file = next((n for n, word in enumerate(words) if n and not os.fsencode(word).startswith(b"-")), 0)
    words[:] = [placed(word) if n in (0, file) else word for n, word in enumerate(words)]
    pairs = os.environb.items() if env is None else (each.split(b"=", 1) for each in env)
    return words, [name + b"=" + b":".join(map(placed, value.split(b":"))) for name, value in pairs]


def redirect_start(owner: Any, name: str) -> None:
    """Let a function start a program by its path on this machine."""
    real = getattr(owner, name)

    def call(args: Any, candidates: Any, close: Any, kept: Any, cwd: Any, env: Any, *more: Any) -> Any:
        words, env = started(args, env)
        return real(words, [*map(placed, candidates)], close, kept, moved(cwd), env, *more)

    setattr(owner, name, call)


def execve(path: Any, args: Any, env: Any = None) -> None:
    """Execute a program by its path on this machine."""
    pairs = None if env is None else [os.fsencode(key) + b"=" + os.fsencode(value) for key, value in env.items()]
    words, pairs = started(args, pairs)
    _execve(placed(path), words, dict(pair.split(b"=", 1) for pair in pairs))


# -- names


def ask(name: str) -> list[str] | None:
    """Return the IPv4 addresses of a full name from the cluster's DNS; None if it does not exist."""
    query = struct.pack("!HHHHHH", 1, 0x100, 1, 0, 0, 0)
    query += b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part) + b"\0\0\1\0\1"
    with _socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(5)
        _connect(line, tuple(POD["dns"]))
        line.send(query)
        answer = line.recv(4096)
    code, count = answer[3] & 15, struct.unpack_from("!H", answer, 6)[0]
    if code == 3:
        return None
    if code:
        raise OSError(f"DNS error {code}")
    at, addresses = len(query), []
    for _ in range(count):
        at += 2 if answer[at] & 0xC0 else answer.index(b"\0", at) + 1 - at
        kind, _, _, size = struct.unpack_from("!HHIH", answer, at)
        at += 10
        if kind == 1:
            addresses.append(socket.inet_ntoa(answer[at : at + 4]))
        at += size
    return addresses


def resolve(name: str) -> list[str]:
    """Search the domains of the pod's resolv.conf, as the C library does with ndots:5."""
    tries = [name] if name.endswith(".") else [*(name + "." + domain for domain in POD["search"]), name]
    for full in tries:
        try:
            addresses = ask(full)
        except OSError:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution") from None
        if addresses:
            return addresses
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def is_address(host: str) -> bool:
    """Return whether a host is a numeric address."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except OSError:
        return False
    return True


def getaddrinfo(host: Any, *more: Any, **named: Any) -> list[Any]:
    """Resolve a name as the pod would."""
    text = host.decode() if isinstance(host, bytes) else host
    if not text or is_address(text) or text == "localhost":
        return list(_getaddrinfo(host, *more, **named))
    if text in (POD["hostname"], POD["fqdn"]):
        return list(_getaddrinfo(POD["ip"], *more, **named))
    return [entry for address in resolve(text) for entry in _getaddrinfo(address, *more, **named)]


def gethostbyname(name: str) -> str:
    """Return the first address of a name."""
    return str(getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])


# -- addresses


def dropped(sock: socket.socket, address: tuple[Any, ...]) -> bool:
    """Return whether a network policy drops packets to that address."""
    try:
        with open(POD["rules"], encoding="utf-8") as file:
            rules = json.load(file)
    except (OSError, ValueError):
        return False
    protocol = 6 if sock.type == socket.SOCK_STREAM else 17
    for rule in rules:  # by priority: the first matching rule decides
        low, high = rule["ports"]
        if (
            rule["dst"] == address[0]
            and low <= address[1] <= high
            and rule["protocol"] == protocol
            and (rule["src"] in (None, POD["ip"]))
        ):
            return bool(rule["drop"])
    return False


def prepare(sock: socket.socket, address: Any) -> Any:
    """Translate a destination, and bind to the pod's own address as the source."""
    if sock.family != socket.AF_INET or not isinstance(address, tuple):
        return address
    if isinstance(address[0], str) and address[0] and not is_address(address[0]):
        address = (gethostbyname(address[0]), *address[1:])
    address = tuple(POD["services"].get(f"{address[0]}:{address[1]}", address))
    if address[0].startswith("127.") and address[0] != "127.0.0.1" and sock.getsockname()[1] == 0:
        _bind(sock, (POD["ip"], 0))
    return address


def bind(self: socket.socket, address: Any) -> None:
    """Bind to the pod's address instead of all addresses."""
    if self.family == socket.AF_INET and address[0] in ("", ANY):
        address = (POD["ip"], *address[1:])
    _bind(self, address)


def connect(self: socket.socket, address: Any) -> None:
    """Connect as from inside the pod."""
    address = prepare(self, address)
    if self.family == socket.AF_INET and self.type == socket.SOCK_STREAM and dropped(self, address):
        limit = self.gettimeout()
        time.sleep(DROPPED_S if limit is None else limit)
        raise TimeoutError("timed out")
    _connect(self, address)


def connect_ex(self: socket.socket, address: Any) -> int:
    """Connect as from inside the pod; return the error number."""
    address = prepare(self, address)
    if self.family == socket.AF_INET and self.type == socket.SOCK_STREAM and dropped(self, address):
        return errno.EINPROGRESS
    return _connect_ex(self, address)


def install() -> None:
    """Install all redirections."""
    for name in ("open", "stat", "lstat", "access", "scandir", "statvfs", "unlink", "remove", "mkdir"):
        redirect(os, name)
    for name in ("rmdir", "chdir", "chmod", "chown", "utime", "truncate"):
        redirect(os, name)
    for name in ("rename", "replace", "link", "symlink"):
        redirect(os, name, paths=2)
    vars(os).pop("posix_spawn", None)  # then subprocess does not use it
    redirect_start(_posixsubprocess, "fork_exec")
    if "subprocess" in sys.modules:
        redirect_start(sys.modules["subprocess"], "_fork_exec")
    redirect(io, "open")
    redirect(builtins, "open")
    machine = os.uname()
    replaced: dict[tuple[Any, str], Any] = {
        (os, "listdir"): listdir,
        (os, "readlink"): readlink,
        (os, "execv"): execve,
        (os, "execve"): execve,
        (os, "uname"): lambda: os.uname_result((machine[0], POD["hostname"], *machine[2:])),
        (socket, "getaddrinfo"): getaddrinfo,
        (socket, "gethostbyname"): gethostbyname,
        (socket, "gethostname"): lambda: POD["hostname"],
        (socket, "getfqdn"): lambda name="": POD["fqdn"] if name in ("", POD["hostname"]) else name,
        (_socket, "bind"): bind,
        (_socket, "connect"): connect,
        (_socket, "connect_ex"): connect_ex,
    }
    for (owner, name), function in replaced.items():
        setattr(owner, name, function)


def go_on() -> None:
    """Import the module of the same name on the pod's own PYTHONPATH, which this one hides."""
    own = [folder for folder in os.environ["PYTHONPATH"].split(":") if folder != os.path.dirname(__file__)]
    spec = PathFinder.find_spec(__name__, own) if any(own) else None
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


install()
go_on()
environment()
