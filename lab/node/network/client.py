"""The cluster's side of the connection to the agent.

An ordinary process in the ordinary network, without privileges: it sends requests, awaits responses, and accepts,
connects or receives on sockets that the agent created inside (a socket stays in the network namespace where it was
created).
"""

from __future__ import annotations

import asyncio
import collections
import errno
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .interface import DEFAULT_CAPABILITIES, RULES, TCP, StartError, Unavailable
from .interface import Process as AnyProcess
from .netlink import DROP
from .syscalls import MAX_MESSAGE, receive

Reply = dict[str, Any]
FOLDER = Path(__file__).resolve().parent
START_S = 10
"""Start timeout in seconds. The agent needs 25 ms (measured); a swapping machine may need seconds."""
CODE = (
    "import sys; sys.path.append({path!r}); from {package}.launcher import main; main({fd}, {pid}, {mode!r}, {keep!r})"
)
SYSCTLS = (
    ("kernel.unprivileged_userns_clone", "0"),
    ("user.max_user_namespaces", "0"),
    ("user.max_net_namespaces", "0"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
)
LOST = {
    "namespaces": (),
    "shared": (
        "pods share one network: two of a node clash on a port of 0.0.0.0, a peer sees the address that "
        "it dialled, network policies do not act, nor does what a world says of MTU and rate of the pod network",
    ),
    "plain": (
        "pods are plain processes on 127.x.y.z: only their Python programs see mounts, cluster names, host "
        "name and network policies; shells and other programs see this machine and may write on it; no "
        "volume is read-only or has a size, and nothing acts that a world says of MTU and rate of the pod network",
    ),
}


class Process:
    """A container's first process."""

    def __init__(self, network: ProcessNetwork, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._network, self.number, self.pid = network, number, 0
        self.exited: asyncio.Future[int] = loop.create_future()

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens after its end."""
        if not self.exited.done():
            self._network.order("signal", container=self.number, signal=number)


class Sandbox:
    """The shared parts of a pod's containers."""

    def __init__(self, network: ProcessNetwork, number: int, ip: str, tmpfs: dict[str, int]) -> None:
        self._network, self._number, self.ip, self._tmpfs = network, number, ip, tmpfs

    async def start(
        self,
        argv: list[str],
        env: dict[str, str],
        *,
        stdio: list[int],
        cwd: str = "/",
        mounts: list[dict[str, Any]] | None = None,
        uid: int | None = None,
        gid: int | None = None,
        capabilities: frozenset[int] = DEFAULT_CAPABILITIES,
        no_new_privileges: bool = False,
    ) -> Process:
        """Start a container; StartError if its command never ran."""
        return await self._network.run(
            "start",
            stdio,
            sandbox=self._number,
            argv=argv,
            env=env,
            cwd=cwd,
            mounts=mounts or [],
            uid=uid,
            gid=gid,
            capabilities=sorted(capabilities),
            no_new_privileges=no_new_privileges,
        )

    async def execute(
        self,
        process: AnyProcess,
        argv: list[str],
        env: dict[str, str],
        *,
        stdio: list[int],
        cwd: str = "/",
        uid: int | None = None,
        gid: int | None = None,
        terminal: bool = False,
    ) -> Process:
        """Run an additional command in a running container."""
        number = process.number if isinstance(process, Process) else 0
        return await self._network.run(
            "exec",
            stdio,
            container=number,
            argv=argv,
            env=env,
            cwd=cwd,
            mounts=[],
            terminal=terminal,
            uid=uid,
            gid=gid,
            capabilities=sorted(DEFAULT_CAPABILITIES),
        )

    def remove(self) -> None:
        """Release address and namespaces."""
        self._network.order("remove", sandbox=self._number, tmpfs=sorted(self._tmpfs))


class ProcessNetwork:
    """The interface `Network`, implemented by an agent process."""

    def __init__(self, mode: str, control: socket.socket, launcher: subprocess.Popen[bytes], root: str) -> None:
        self.mode, self.lost, self.root = mode, LOST[mode], root
        self._control, self._launcher = control, launcher
        self._loop = asyncio.get_running_loop()
        self.services: dict[str, list[Any]] = {}
        self._numbers = itertools.count(1)
        self._rules: set[tuple[int, int, str | None, str | None, tuple[int, int] | None, int]] = set()
        self._replies: dict[int, asyncio.Future[Reply]] = {}
        self._running: dict[int, Process] = {}
        self._unsent: collections.deque[tuple[bytes, list[int]]] = collections.deque()
        control.setblocking(False)
        self._loop.add_reader(control.fileno(), self._read)

    def order(self, op: str, fds: list[int] | None = None, **arguments: Any) -> asyncio.Future[Reply]:
        """Send a request; the future returns the response with its descriptors, or StartError."""
        number = next(self._numbers)
        future: asyncio.Future[Reply] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # may stay unretrieved
        self._replies[number] = future
        data = json.dumps({**arguments, "op": op, "id": number}).encode()
        self._unsent.append((data, [os.dup(fd) for fd in fds or []]))
        self._write()
        return future

    def _write(self) -> None:
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                socket.send_fds(self._control, [data], fds)
            except BlockingIOError:
                self._loop.add_writer(self._control.fileno(), self._write)
                return
            except OSError as error:
                self._fail(json.loads(data)["id"], {"stage": "order", "errno": error.errno, "error": str(error)})
            self._unsent.popleft()
            for fd in fds:
                os.close(fd)
        self._loop.remove_writer(self._control.fileno())

    def _read(self) -> None:
        while True:
            try:
                data, fds = receive(self._control)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._ended()
                return
            self._take(json.loads(data), fds)

    def _take(self, message: dict[str, Any], fds: list[int]) -> None:
        if "exited" in message:
            process = self._running.pop(message["exited"], None)
            if process and not process.exited.done():
                process.exited.set_result(message["code"])
            return
        if "error" in message:
            self._fail(message["id"], message)
            return
        if message["id"] in self._running:
            self._running[message["id"]].pid = message["pid"]
        future = self._replies.pop(message["id"], None)
        if future and not future.done():
            future.set_result({**message, "fds": fds})

    def _fail(self, number: int, reply: dict[str, Any]) -> None:
        self._running.pop(number, None)
        future = self._replies.pop(number, None)
        if future and not future.done():
            future.set_exception(StartError(reply))

    def _ended(self) -> None:
        self._loop.remove_reader(self._control.fileno())
        for number in list(self._replies):
            self._fail(number, {"stage": "order", "errno": errno.EPIPE, "error": "the cluster network has ended"})
        for process in self._running.values():
            if not process.exited.done():
                process.exited.set_result(-9)
        self._running.clear()

    async def run(self, op: str, fds: list[int], **spec: Any) -> Process:
        """Start or execute a command."""
        future = self.order(op, fds, **spec)
        number = next(reversed(self._replies))
        process = Process(self, number, self._loop)
        self._running[number] = process
        await future
        return process

    async def sandbox(
        self, ip: str, hostname: str, tmpfs: dict[str, int] | None = None, wires: dict[str, Any] | None = None
    ) -> Sandbox:
        """Create a pod's sandbox."""
        future = self.order("sandbox", ip=ip, hostname=hostname, tmpfs=tmpfs or {}, wires=wires or {})
        number = next(reversed(self._replies))
        await future
        return Sandbox(self, number, ip, tmpfs or {})

    def pod_address(self, node: int, number: int) -> str:
        """Return the address of a node's n-th pod; plain processes have loopback addresses."""
        # Concurrent clusters have different loopback addresses; inside, 10.244.0.0/14 has room for 1,024 nodes.
        first = f"127.{100 + os.getpid() % 150}" if self.mode == "plain" else f"10.{244 + node // 256 % 4}"
        return f"{first}.{node % 256}.{2 + number % 253}"

    async def socket(self, kind: str = "tcp", bind: tuple[str, int] | None = None) -> socket.socket:
        """Return a socket of the inside network for use outside."""
        made = socket.socket(fileno=(await self.order("socket", kind=kind, bind=bind))["fds"][0])
        made.setblocking(False)
        return made

    async def memory(self, process: AnyProcess) -> int:
        """Return the resident bytes of a container."""
        number = process.number if isinstance(process, Process) else 0
        return int((await self.order("memory", container=number))["bytes"])

    async def rule(
        self,
        add: bool,
        priority: int,
        action: int,
        *,
        src: str | None = None,
        dst: str | None = None,
        ports: tuple[int, int] | None = None,
        protocol: int = TCP,
        source_ports: tuple[int, int] | None = None,
    ) -> None:
        """Add or remove a routing rule; it has no effect on pods that share a network."""
        if self.mode == "namespaces":
            await self.order("rule", rule=[add, priority, action, src, dst, ports, protocol, source_ports])
        elif self.mode == "plain":
            (self._rules.add if add else self._rules.discard)((priority, action, src, dst, ports, protocol))
            rules = [
                {"drop": r[1] == DROP, "src": r[2], "dst": r[3], "ports": r[4] or (1, 65535), "protocol": r[5]}
                for r in sorted(self._rules, key=lambda r: r[0])
            ]
            replace_text(Path(self.root, RULES), json.dumps(rules))

    async def close(self) -> None:
        """End every process and remove every file."""
        self._ended()
        with_shutdown(self._control)
        await asyncio.to_thread(self._launcher.wait)
        self._control.close()


def replace_text(path: Path, text: str) -> None:
    """Write a file atomically, since others may be reading it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def with_shutdown(control: socket.socket) -> None:
    """Shut the control socket down: no more requests follow."""
    try:
        control.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def why_refused(step: str, number: int | None, error: str) -> str:
    """Describe the step that the kernel refused, and the setting of this machine that is the likely reason."""

    def value(name: str) -> str | None:
        try:
            return Path("/proc/sys", *name.split(".", 1)).read_text().strip()
        except OSError:
            return None

    hints = [f"{name}={refusing}" for name, refusing in SYSCTLS if value(name) == refusing]
    if not hints and number in (errno.EPERM, errno.EACCES):
        hints = ["no sysctl forbids it: probably a container's seccomp filter or masked /proc, or a chroot"]
    return f"cannot build the cluster network, at {step!r}: {error}" + (f" ({'; '.join(hints)})" if hints else "")


MEMORY = "/dev/shm"  # noqa: S108 - mkdtemp makes a folder of its own there
ROOM_BYTES = 2 << 30


def visible_folders() -> list[str]:
    """Return folders that containers must see in their original place: this Python and this program, by all names."""
    names = [Path(sys.prefix), Path(sys.base_prefix), FOLDER.parents[2]]
    folders = {str(folder) for name in names for folder in (name, name.resolve())}
    return sorted(folders - {"/", "/usr"})


def in_memory() -> str | None:
    """Return a place in memory for the numerous small files of pods and nodes; None if it is not usable.

    Programs must be able to run from there, and a checkpoint burst must fit: containers usually have 64 MiB of it.
    """
    if os.environ.get("TMPDIR") or not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    there = os.statvfs(MEMORY)
    roomy = there.f_bavail * there.f_frsize >= ROOM_BYTES
    return MEMORY if roomy and not there.f_flag & os.ST_NOEXEC else None


def launch(control: int, mode: str, keep: list[str]) -> subprocess.Popen[bytes]:
    """Start the launcher with its end of the control socket."""
    code = CODE.format(path=str(FOLDER.parent), package=FOLDER.name, fd=control, pid=os.getpid(), mode=mode, keep=keep)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], pass_fds=[control], stdin=subprocess.DEVNULL, start_new_session=True
    )


async def start(mode: str) -> ProcessNetwork:
    """Start launcher and agent; `mode` is namespaces or plain. Unavailable explains why the kernel refused."""
    root = os.path.realpath(tempfile.mkdtemp(prefix="seatrial-sim-", dir=in_memory()))  # noqa: ASYNC240 - quick
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE)
    with theirs:
        launcher = launch(theirs.fileno(), mode, [root, *visible_folders()])
    ours.settimeout(START_S)
    try:
        answer = await asyncio.to_thread(ours.recv, 65536)
    except TimeoutError:
        answer = b""
    ready = json.loads(answer or b'{"step": "start", "errno": null, "error": "the agent died or did not answer"}')
    if not ready.pop("ready", False):
        with_shutdown(ours)
        ours.close()
        launcher.kill()
        launcher.wait()
        shutil.rmtree(root, ignore_errors=True)
        raise Unavailable(why_refused(ready["step"], ready["errno"], ready["error"]))
    effective = mode if mode == "plain" or ready["own_network"] else "shared"
    return ProcessNetwork(effective, ours, launcher, root)
