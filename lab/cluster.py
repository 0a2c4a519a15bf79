"""A cluster that runs a scenario: its start, and its end without leftovers.

One event loop runs everything: store, API server, controllers, scheduler, kubelet, DNS. Pods are processes of the pod
network's agent, which ends together with this process in every case.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from . import operators
from .apiserver.server import ADMIN, NOBODY, SERVICE_ADDRESS, kubeconfig, serve
from .apiserver.store import ApiError, Store
from .chaos.injection import FaultInjection
from .chaos.node_events import NodeEvents
from .controlplane import Controllers
from .controlplane.scheduler.scheduler import Scheduler
from .hardware.pods import Hardware
from .node import Kubelet
from .node.dns import Behaviour, DnsServer
from .node.images import Images
from .node.network import open_network
from .scenario import ScenarioError
from .world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from .chaos.injection import Handler
    from .node.network import Network
from .scenario import Scenario

NAMESPACE = "default"
HTTPS = 443


@dataclass(slots=True)
class Cluster:
    """A running cluster."""

    scenario: Scenario
    server: str
    kubeconfig: str
    nobody_kubeconfig: str
    network: str = "none"
    lost: tuple[str, ...] = ()
    store: Store | None = None  # None if nothing listens
    kubelet: Kubelet | None = None
    happened: Mapping[str, int] = field(default_factory=dict)  # number of API faults by kind
    _ends: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack, repr=False)

    @classmethod
    async def start(cls, scenario: Scenario, *, network: str = "auto") -> Self:
        """Start a cluster and return it when it responds.

        `network`: auto (the best that this machine supports), namespaces or plain. Raises `ScenarioError` for an
        invalid world.
        """
        if not scenario.world.get("api", {}).get("listens", True):
            return cls(scenario, *_nowhere())
        async with contextlib.AsyncExitStack() as ends:
            pods = await open_network(network)
            ends.push_async_callback(pods.close)
            store = Store()
            hardware = Hardware(
                store, scenario.world, scenario.platform, Path(pods.root) / "hardware", contained=pods.mode != "plain"
            )
            hardware.own_network = pods.mode == "namespaces"
            kubelet = Kubelet(
                store,
                pods,
                Images(scenario.world.get("registry", {})),
                hardware,
                reached=scenario.world.get("api", {}).get("reaches_kubelets", True),
            )
            _furnish(store, scenario, pods)
            await _services(store, scenario, pods, kubelet, ends)
            injected = FaultInjection(scenario.api_faults, lambda: store.revision) if scenario.api_faults else None
            server = await serve(
                store,
                kubelet=kubelet,
                version=scenario.world["version"],
                sockets=await _api_sockets(pods),
                around=_around(scenario, injected),
            )
            ends.push_async_callback(server.stop)
            admin = _user(store, scenario, server.url) or server.kubeconfig
            return cls(
                scenario,
                server.url,
                admin,
                server.nobody_kubeconfig,
                pods.mode,
                tuple(pods.lost),
                store,
                kubelet,
                injected.happened if injected else {},
                ends.pop_all(),
            )
        raise AssertionError("unreachable: the stack passes on every error")

    async def stop(self) -> None:
        """Stop everything: listeners, pods, files."""
        await self._ends.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _furnish(store: Store, scenario: Scenario, pods: Network) -> None:
    try:
        World(store, scenario.world, pods.pod_address).furnish()
    except ApiError as error:
        raise ScenarioError(f"{scenario.name}: the API server refuses this world: {error.message}") from None


async def _services(
    store: Store, scenario: Scenario, pods: Network, kubelet: Kubelet, ends: contextlib.AsyncExitStack
) -> None:
    """Start the controllers, the kubelet and all else that acts on the store."""
    behaviour = scenario.world.get("dns", {})
    dns = DnsServer(store, Behaviour(**behaviour))
    await dns.start(pods)
    ends.callback(dns.close)
    controllers = Controllers(store, operators.start(store, scenario.world))
    scheduler, node_events = Scheduler(store), NodeEvents(store, kubelet, scenario.world)
    for part in (controllers, scheduler, kubelet, node_events):
        part.start()
    ends.callback(node_events.close)
    ends.callback(controllers.close)
    ends.callback(scheduler.close)
    ends.push_async_callback(kubelet.close)


def _around(scenario: Scenario, injected: FaultInjection | None) -> Callable[[Handler], Handler] | None:
    """Return the wrapper around the API server: API faults, and a wrong clock or network."""
    api = scenario.world.get("api", {})
    skew, latency = api.get("clock_skew_s"), api.get("latency_s")
    if not skew and not latency:
        return injected.over if injected else None

    def around(handler: Handler) -> Handler:
        inner = injected.over(handler) if injected else handler

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            await asyncio.sleep(latency or 0)
            given = await inner(request)
            if skew and not given.prepared:
                given.headers["Date"] = email.utils.formatdate(time.time() + skew, usegmt=True)
            return given

        return answer

    return around


async def _api_sockets(pods: Network) -> list[socket.socket]:
    """The API server's address for pods."""
    return [] if pods.mode == "plain" else [await pods.socket("tcp", (SERVICE_ADDRESS, HTTPS))]


def _user(store: Store, scenario: Scenario, url: str) -> str | None:
    """Grant the scenario's user exactly the permissions it names; return its kubeconfig."""
    user: dict[str, Any] | None = scenario.world.get("user")
    if not user:
        return None
    name = user.get("name", "user")
    subject = [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}]
    for kind, rules, namespace in (
        ("Role", user.get("rules", []), NAMESPACE),
        ("ClusterRole", user.get("cluster_rules", []), None),
    ):
        key = f"{kind.lower()}s.rbac.authorization.k8s.io"
        reference = {"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        store.create(key, {"metadata": {"name": name}, "rules": rules}, namespace)
        binding = {"metadata": {"name": name}, "subjects": subject, "roleRef": reference}
        store.create(f"{kind.lower()}bindings.rbac.authorization.k8s.io", binding, namespace)
    token = user.get("token") or store.authority.static_token(name)  # other tokens are unknown
    return kubeconfig(store.authority, url, name, token, NAMESPACE)


def _nowhere() -> tuple[str, str, str]:
    """Return a kubeconfig for a port without a listener, with credentials of a former cluster."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{free.getsockname()[1]}"
    authority = Store().authority
    admin, nobody = (kubeconfig(authority, url, name, authority.static_token(name)) for name in (ADMIN, NOBODY))
    return url, admin, nobody
