"""The interface of a pod network.

`Network` is the seam: namespaces where the kernel grants them, plain processes where it does not; `lost` says in
words what the present one cannot do.

    NetworkError
    ├── Unavailable    this machine does not let this user build it; the text names step, error and sysctl
    └── StartError     a container's command never ran: .stage, .errno
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # the agent imports this too and must start fast
    import asyncio
    import socket as sockets

TCP = 6
RULES = "rules.json"
"""Below a plain network's root: the network rules that its Python programs follow."""

DEFAULT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
"""Capabilities that containerd leaves a container by default (numbers of <linux/capability.h>)."""


class NetworkError(RuntimeError):
    """Root of this package's errors."""


class Unavailable(NetworkError):  # noqa: N818 - the state that it reports
    """The network cannot be built by this user on this machine; str() says why."""


class StartError(NetworkError):
    """A command never ran: .stage is one of namespaces, mounts, cwd, limits, user, exec, or the order's name."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__(f"{reply['stage']}: {reply['error']}")
        self.stage: str = reply["stage"]
        self.errno: int | None = reply["errno"]


class Process(Protocol):
    """A container's first process."""

    pid: int
    exited: asyncio.Future[int]
    """The exit code, negative for a signal."""

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens once it has ended."""


class Sandbox(Protocol):
    """What the containers of a pod share."""

    ip: str

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
        """Start a container; StartError when its command never ran.  `stdio`: output, errors, and maybe input."""

    async def execute(
        self,
        process: Process,
        argv: list[str],
        env: dict[str, str],
        *,
        stdio: list[int],
        cwd: str = "/",
        uid: int | None = None,
        gid: int | None = None,
        terminal: bool = False,
    ) -> Process:
        """Run one more command in a running container; `terminal`: its input is one, and controls it."""

    def remove(self) -> None:
        """Let address and namespaces go."""


class Network(Protocol):
    """The pod network of a whole cluster."""

    mode: str
    """namespaces | shared | plain."""
    lost: tuple[str, ...]
    root: str
    """The folder for volumes and logs; it goes with the network, however this process ends."""
    services: dict[str, list[Any]]
    """In a plain network: "address:port" of the cluster -> where it really is."""

    async def sandbox(
        self, ip: str, hostname: str, tmpfs: dict[str, int] | None = None, wires: dict[str, Any] | None = None
    ) -> Sandbox:
        """Make a pod's sandbox; `tmpfs`: folders below `root` that get a file system in memory of so many bytes.

        `wires`: the properties of its cables. mtu of the pod's own; hole: larger packets are dropped on the way out;
        path_mtu: what is larger is refused on its way in; mbit_s; more: further interfaces (name, address, mtu). Only
        pods with a network of their own have any of it.
        """

    def pod_address(self, node: int, number: int) -> str:
        """The address of a node's n-th pod."""

    async def socket(self, kind: str = "tcp", bind: tuple[str, int] | None = None) -> sockets.socket:
        """A socket of the inside network for use out here: tcp with `bind` listens, without it can connect."""

    async def memory(self, process: Process) -> int:
        """Resident bytes of a container."""

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
        """Add or remove a routing rule; a network that cannot filter ignores it."""

    async def close(self) -> None:
        """End every process and remove every file."""
