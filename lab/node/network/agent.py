"""The agent in the pod network's namespaces: creates sandboxes and containers on request.

It is the first process of a user, pid, mount and network namespace. Requests and responses are JSON messages on a
SOCK_SEQPACKET socket, together with file descriptors.
"""

# ruff: noqa: PTH115, PTH123
# (importing pathlib would double the time in which the agent starts)
from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from typing import TYPE_CHECKING, Any

from .family import kill_descendants, processes, resident
from .netlink import PASS, Netlink
from .process import Child, fresh_process
from .syscalls import NEWIPC, NEWNET, NEWPID, NEWUTS, NODEV, NOSUID, call, mount, receive

if TYPE_CHECKING:
    from collections.abc import Callable

GATEWAY, SERVICES, PODS = "169.254.1.1", ("10.96.0.0", 12), ("10.244.0.0", 14)
FIRST_CABLE = 10
FIRST_WIRE, MOST_WIRES = 1 << 20, 128
"""Additional interfaces of pods: their first index, far above those of veth pairs, and their maximum for each pod."""
SMALL_WINDOW = 600


class Agent:
    """Poll loop over the control socket and the containers' descriptors."""

    def __init__(self, control: socket.socket, keep: list[str], bound: list[str]) -> None:
        self.control, self.keep, self.bound = control, keep, bound
        self.poll = select.poll()
        self.handlers: dict[int, Callable[[], None]] = {}
        self.containers: dict[int, tuple[int, int]] = {}  # id -> pid, pidfd
        self.sandboxes: dict[int, list[int]] = {}  # id -> descriptors of its namespaces
        self.own_network = False
        self.watch(control.fileno(), self.receive)

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        """Call `handler` when `fd` is readable."""
        self.handlers[fd] = handler
        self.poll.register(fd, select.POLLIN)

    def forget(self, fd: int) -> None:
        """Close a watched descriptor."""
        del self.handlers[fd]
        self.poll.unregister(fd)
        os.close(fd)

    def send(self, fds: list[int] | None = None, **message: Any) -> None:
        """Send a response, with or without descriptors."""
        with contextlib.suppress(BrokenPipeError):  # receive() handles the end of the outside process
            socket.send_fds(self.control, [json.dumps(message).encode()], fds or [])

    def run(self) -> None:
        """Report that the agent is ready, then serve until the outside process has ended."""
        self.send(ready=True, own_network=self.own_network)
        while True:
            for fd, _ in self.poll.poll():
                if fd in self.handlers:
                    self.handlers[fd]()

    def receive(self) -> None:
        """Execute one request."""
        data, fds = receive(self.control)
        if not data:
            self.end()
        message = json.loads(data)
        try:
            getattr(self, "do_" + message["op"])(message, fds)
        except OSError as error:
            self.send(id=message["id"], stage=message["op"], errno=error.errno, error=str(error))
        finally:
            for fd in fds:
                os.close(fd)

    def end(self) -> None:
        """End this first process of the namespace, and thereby all others, since the outside process has ended."""
        os._exit(0)

    def do_socket(self, message: dict[str, Any], _: list[int]) -> None:
        """Create a socket inside, for use outside."""
        kind = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}[message["kind"]]
        with socket.socket(socket.AF_INET, kind) as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.bound or message["bind"]:
                made.bind(tuple(message["bind"] or (GATEWAY, 0)))  # all routing rules allow the node's own address
            if message["bind"] and message["kind"] == "tcp":
                made.listen(256)
            self.send([made.fileno()], id=message["id"])

    def do_signal(self, message: dict[str, Any], _: list[int]) -> None:
        """Signal the first process of a container, if it still runs."""
        if message["container"] in self.containers:
            os.kill(self.containers[message["container"]][0], message["signal"])
        self.send(id=message["id"])

    def do_memory(self, message: dict[str, Any], _: list[int]) -> None:
        """Add up the resident memory of a container's processes."""
        pid = self.containers.get(message["container"], (0, 0))[0]
        total = sum(resident(member) for member in self.members(pid)) if pid else 0
        self.send(id=message["id"], bytes=total)

    def members(self, pid: int) -> list[int]:
        """Return the processes in the container of this first process."""
        return [other for other, _, session in processes() if session == pid]

    def supervise(self, number: int, pid: int, status: int) -> None:
        """Report the start and the end of a child: exec closes the status pipe, the pidfd shows the end."""
        pidfd = os.pidfd_open(pid)
        self.containers[number] = (pid, pidfd)

        def started() -> None:
            report = os.read(status, 65536)
            self.forget(status)
            self.send(id=number, **(json.loads(report) if report else {"pid": pid}))

        def exited() -> None:
            if self.handlers.get(status) is started:
                started()
            self.forget(pidfd)
            del self.containers[number]
            self.collect(number, pid)

        self.watch(status, started)
        self.watch(pidfd, exited)

    def collect(self, number: int, pid: int) -> None:
        """Reap an ended container and report its exit code; negative: ended by that signal."""
        self.send(exited=number, code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


class NamespaceAgent(Agent):
    """Containers in namespaces; pods with their own veth pair if the kernel allows it."""

    def __init__(self, control: socket.socket, keep: list[str], bound: list[str]) -> None:
        super().__init__(control, keep, bound)
        self.own = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("net", "uts", "ipc")]
        self.own_pid = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self.net = Netlink()
        self.net.up(1)
        self.net.address(GATEWAY, 1)
        self.net.route(*SERVICES, 1, local=True)  # every service address can be bound, or refuses connections
        try:  # the veth pair is kept: removing a link waits for an RCU grace period
            self.net.veth(9, "probe0", "probe1")
            self.net.forward(9)
            self.net.rule(True, 1, PASS, src=GATEWAY)
            self.own_network = True
        except OSError:
            self.net.route(*PODS, 1, local=True)
        with contextlib.suppress(OSError), open("/proc/sys/net/ipv4/icmp_ratelimit", "w") as file:
            file.write("0")  # ICMP errors are sent at once; with a read-only /proc/sys some are delayed by a second

    def try_out(self) -> None:
        """Build a container's file systems once; OSError if this machine does not allow it."""
        reading, status = os.pipe()
        call("unshare", NEWPID)
        pid = os.fork()
        if pid == 0:
            child = Child({"mounts": [], "cwd": "/"}, [], status)
            try:
                child.contain(self.own, self.keep, self.bound)
            except OSError as error:
                child.fail(error)
            finally:
                os._exit(0)
        call("setns", self.own_pid, NEWPID)
        os.close(status)
        with open(reading, "rb") as file:
            report = file.read()
        os.waitpid(pid, 0)
        if report:
            failed = json.loads(report)
            raise OSError(failed["errno"], f"{failed['stage']}: {failed['error']}")

    def do_rule(self, message: dict[str, Any], _: list[int]) -> None:
        """Add or remove a routing rule."""
        self.net.rule(*message["rule"])
        self.send(id=message["id"])

    def do_sandbox(self, message: dict[str, Any], _: list[int]) -> None:
        """Create the shared parts of a pod's containers: address, host name, /dev/shm and volumes in memory."""
        number = message["id"]
        call("unshare", NEWUTS | NEWIPC | (NEWNET if self.own_network else 0))
        try:
            names = ("net", "uts", "ipc") if self.own_network else ("uts", "ipc")
            made = [os.open(f"/proc/thread-self/ns/{name}", os.O_RDONLY) for name in names]
            self.sandboxes[number] = made
            socket.sethostname(message["hostname"])
            if self.own_network:
                self.cable(number, message["ip"], made[0], message.get("wires") or {})
        finally:
            for fd in self.own if self.own_network else self.own[1:]:
                call("setns", fd, 0)
        for folder, size in message["tmpfs"].items():
            mount("tmpfs", self.here(folder), "tmpfs", NOSUID | NODEV, f"mode=1777,size={size}")
        self.send(id=number)

    def here(self, path: str) -> str:
        """Return the agent's path of a file in the kubelet's folder, which is the first kept folder."""
        return "/.keep/0" + path[len(self.keep[0]) :]

    def cable(self, number: int, ip: str, netns: int, wires: dict[str, Any]) -> None:
        """Create a veth pair into the network namespace of this thread, and route the pod's address to it.

        A veth pair with different MTUs at its ends silently drops packets that are too large for the receiving end.
        """
        index, mtu = number + FIRST_CABLE, wires.get("mtu", 0)
        self.net.veth(index, f"pod{number}", "eth0", netns, mtu=wires.get("hole") or mtu, peer_mtu=mtu)
        self.net.route(ip, 32, index, mtu=wires.get("path_mtu", 0))
        self.net.forward(index)
        pod = Netlink()
        pod.up(1)
        pod.up(2)
        pod.address(ip, 2)
        pod.route("0.0.0.0", 0, 2, gateway=GATEWAY)  # noqa: S104 - the default route
        if wires.get("mbit_s"):
            self.throttle(index, ip, pod, wires["mbit_s"])
        for place, each in enumerate(wires.get("more") or []):
            self.net.veth(
                FIRST_WIRE + number * MOST_WIRES + place,
                f"p{number}n{place}",
                each["name"],
                netns,
                peer_index=3 + place,
                mtu=each["mtu"],
                peer_mtu=each["mtu"],
            )
            pod.up(3 + place)
            pod.address(each["address"], 3 + place)
        pod.close()
        self.net.wait_running(index)

    def throttle(self, index: int, ip: str, pod: Netlink, mbit_s: int) -> None:
        """Limit a pod's send and receive rate; without the kernel's shaper, by a tiny TCP window."""
        try:
            self.net.shape(index, mbit_s)
            pod.shape(2, mbit_s)
        except OSError:
            self.net.route(ip, 32, index, window=SMALL_WINDOW)
            pod.route("0.0.0.0", 0, 2, gateway=GATEWAY, window=SMALL_WINDOW)  # noqa: S104 - the default route

    def do_remove(self, message: dict[str, Any], _: list[int]) -> None:
        """Release a sandbox; its network namespace ends with the last descriptor."""
        for fd in self.sandboxes.pop(message["sandbox"], []):
            os.close(fd)
        for folder in message["tmpfs"]:
            with contextlib.suppress(OSError):  # never mounted
                call("umount2", self.here(folder), 2)
        self.send(id=message["id"])

    def members(self, pid: int) -> list[int]:
        """Return the processes in the same pid namespace."""

        def namespace(process: int) -> str:
            with contextlib.suppress(OSError):
                return os.readlink(f"/proc/{process}/ns/pid")
            return ""

        own = namespace(pid)
        return [other for other, _, _ in processes() if own and namespace(other) == own]

    def do_start(self, spec: dict[str, Any], stdio: list[int]) -> None:
        """Start a container in its sandbox."""
        namespaces = self.sandboxes.get(spec["sandbox"])
        if namespaces is None:
            raise OSError(2, "the sandbox is gone")
        self.spawn(spec, stdio, lambda child: child.contain(namespaces, self.keep, self.bound))

    def do_exec(self, spec: dict[str, Any], stdio: list[int]) -> None:
        """Run an additional command in a container."""
        if spec["container"] not in self.containers:
            raise OSError(3, "the container does not run")
        pidfd = self.containers[spec["container"]][1]
        self.spawn(spec, stdio, lambda child: child.join(pidfd), pidfd)

    def spawn(
        self, spec: dict[str, Any], stdio: list[int], enter: Callable[[Child], None], pidns_of: int | None = None
    ) -> None:
        """Fork the next child into a new pid namespace, or into that of a container."""
        reading, status = os.pipe()
        if pidns_of is None:
            call("unshare", NEWPID)  # for the next child only ...
        else:
            call("setns", pidns_of, NEWPID)
        try:
            pid = os.fork()
            if pid == 0:
                _become(Child(spec, stdio, status), enter, contained=True)
        finally:
            call("setns", self.own_pid, NEWPID)  # ... and this undoes it
            os.close(status)
        self.supervise(spec["id"], pid, reading)


class PlainAgent(Agent):
    """Plain processes of this machine, without their own addresses or files. It adopts and ends every descendant."""

    def do_rule(self, message: dict[str, Any], _: list[int]) -> None:
        """Ignore the rule: nothing can filter packets here."""
        self.send(id=message["id"])

    do_sandbox = do_remove = do_rule

    def do_start(self, spec: dict[str, Any], stdio: list[int]) -> None:
        """Start a process in its own session."""
        reading, status = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become(Child(spec, stdio, status), lambda _: None, contained=False)
        os.close(status)
        self.supervise(spec["id"], pid, reading)

    do_exec = do_start

    def collect(self, number: int, pid: int) -> None:
        """End the processes that the container left running in its session, as the end of a pid namespace would."""
        for other, _, session in processes():
            if session == pid and other != pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
        super().collect(number, pid)
        ours = {known for known, _ in self.containers.values()}
        for other, parent, _ in processes():  # adopted processes that have ended
            if parent == os.getpid() and other not in ours:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(other, os.WNOHANG)

    def end(self) -> None:
        """End all descendants, then this process."""
        kill_descendants()
        os._exit(0)


def _become(child: Child, enter: Callable[[Child], None], *, contained: bool) -> None:
    try:
        fresh_process()
        enter(child)
        child.run(contained)
    except BaseException as error:  # noqa: BLE001 - nothing may return into the agent's loop
        child.fail(error)
    finally:
        os._exit(127)
