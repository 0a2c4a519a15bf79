"""The interface of a pod network.

`Network` is implemented by namespaces if the kernel allows them, else by plain processes; `lost` lists the features
that the current one lacks.

    NetworkError
    ├── Unavailable    this machine does not let this user build it; the text names step, error and sysctl
    └── StartError     a container's command never ran: .stage, .errno
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # the agent also imports this module and must start fast
    import asyncio
    import socket as sockets

TCP = 6
RULES = "rules.json"
"""The file below a plain network's root with the network rules for its Python programs."""

DEFAULT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
"""Default capabilities of a container in containerd (numbers of <linux/capability.h>)."""


class NetworkError(RuntimeError):
    """Root of this package's errors."""


class Unavailable(NetworkError):  # noqa: N818 - the state that it reports
    """The network cannot be built by this user on this machine; str() says why."""


class StartError(NetworkError):
    """A command that never ran: .stage is one of namespaces, mounts, cwd, limits, user, exec, or the request's name."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__(f"{reply['stage']}: {reply['error']}")
        self.stage: str = reply["stage"]
        self.errno: int | None = reply["errno"]


class Process(Protocol):
    """A container's first process."""

    pid: int
    exited: asyncio.Future[int]
    """Return the exit code, negative for a signal."""

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens after its end."""


class Sandbox(Protocol):
    """The shared parts of a pod's containers."""

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
        """Start a container; StartError if its command never ran. `stdio`: output, errors, and optionally input."""

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
        """Run an additional command in a running container; `terminal`: its input is a terminal, which controls it."""

    def remove(self) -> None:
        """Release address and namespaces."""


class Network(Protocol):
    """The pod network of a whole cluster."""

    mode: str
    """The mode: namespaces | shared | plain."""
    lost: tuple[str, ...]
    root: str
    """The folder for volumes and logs; it is removed with the network, however this process ends."""
    services: dict[str, list[Any]]
    """In a plain network: "address:port" of the cluster -> its real address and port."""

    async def sandbox(
        self, ip: str, hostname: str, tmpfs: dict[str, int] | None = None, wires: dict[str, Any] | None = None
    ) -> Sandbox:
        """Create a pod's sandbox; `tmpfs`: folders below `root` -> size in bytes of their file system in memory.

        `wires`: the properties of its veth pair. mtu: of the pod's own interface; hole: larger packets are dropped on
        the way out; path_mtu: larger packets are rejected on the way in; mbit_s; more: additional interfaces (name,
        address, mtu). They apply only to pods with their own network.
        """

    def pod_address(self, node: int, number: int) -> str:
        """Return the address of a node's n-th pod."""

    async def socket(self, kind: str = "tcp", bind: tuple[str, int] | None = None) -> sockets.socket:
        """Return a socket of the inside network for use outside: tcp with `bind` listens, without it can connect."""

    async def memory(self, process: Process) -> int:
        """Return the resident bytes of a container."""

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
