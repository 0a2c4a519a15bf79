"""NetworkPolicies as routing rules.

Rules are stateless and match addresses and ports. A denied pod loses packets to its ports below the ephemeral ones, and
packets from an ephemeral port to an ephemeral one: so programs that listen on a port that the kernel picked cannot be
reached either. Responses to connections that the pod opened come from a fixed port and arrive; only responses from a
peer's ephemeral port are lost as well. That is ingress only: egress policies are stored as objects and not enforced.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .interface import TCP, StartError
from .netlink import DROP, PASS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .interface import Network

Object = dict[str, Any]
ALLOW_AT, DENY_AT = 10, 20
"""Priorities of the rules: rules that allow come before rules that deny."""
LAST_FIXED_PORT = 32767
"""The last port below Linux' ephemeral ones (net.ipv4.ip_local_port_range)."""
MAX_PORT = 65534
"""The last port in a range: the kernel accepts no range that ends at 65535 (fib_rule_port_range_valid)."""
UDP = 17
POLICIES = "networkpolicies.networking.k8s.io"


class Objects(Protocol):
    """The store as this module uses it."""

    def list(self, key: str, ns: str | None = None, selector: Any = "") -> list[Object]:
        """Return objects."""

    def subscribe(self, key: str, callback: Callable[[str, Object, Object | None], object]) -> Callable[[], None]:
        """Call back after changes."""


class Rule(NamedTuple):
    """One routing rule."""

    priority: int
    action: int
    src: str | None
    dst: str
    ports: tuple[int, int]
    protocol: int
    source_ports: tuple[int, int] | None = None


def _peers(store: Objects, policy: Object, source: Object) -> list[Object]:
    """Return the pods that an ingress peer selects; address blocks match no pods."""
    if "podSelector" not in source and "namespaceSelector" not in source:
        return []
    spaces = [policy["metadata"]["namespace"]]
    if "namespaceSelector" in source:
        spaces = [n["metadata"]["name"] for n in store.list("namespaces", None, source["namespaceSelector"] or {})]
    return [p for ns in spaces for p in store.list("pods", ns, source.get("podSelector") or {})]


def _ranges(rule: Object, pod: Object) -> list[tuple[tuple[int, int], int]]:
    """Return ((first, last), protocol) of an ingress rule's ports; no ports means all."""
    if not rule.get("ports"):
        return [((1, MAX_PORT), TCP), ((1, MAX_PORT), UDP)]
    ranges = []
    named = {p.get("name"): p["containerPort"] for c in pod["spec"]["containers"] for p in c.get("ports") or []}
    for port in rule["ports"]:
        protocol = UDP if port.get("protocol") == "UDP" else TCP
        first = port.get("port", 1)
        first = named.get(first) if isinstance(first, str) else first
        if first:
            last = port.get("endPort") or (first if "port" in port else MAX_PORT)
            ranges.append(((min(first, MAX_PORT), min(last, MAX_PORT)), protocol))
    return ranges


def rules(store: Objects) -> set[Rule]:
    """Return the rules for all current policies."""
    result: set[Rule] = set()
    for policy in store.list(POLICIES):
        spec = policy["spec"]
        if "Ingress" not in (spec.get("policyTypes") or ["Ingress"]):
            continue
        for pod in store.list("pods", policy["metadata"]["namespace"], spec.get("podSelector") or {}):
            address = pod["status"].get("podIP")
            if not address or pod["spec"].get("hostNetwork"):
                continue
            result |= _denied(address)
            for rule in spec.get("ingress") or []:
                result |= _allowed(store, policy, rule, pod, address)
    return result


def _denied(address: str) -> set[Rule]:
    fixed, picked = (1, LAST_FIXED_PORT), (LAST_FIXED_PORT + 1, MAX_PORT)
    to_fixed = {Rule(DENY_AT, DROP, None, address, fixed, p) for p in (TCP, UDP)}
    return to_fixed | {Rule(DENY_AT, DROP, None, address, picked, p, picked) for p in (TCP, UDP)}


def _selects(policy: Object, pod: Object, store: Objects) -> bool:
    space = policy["metadata"]["namespace"]
    if space != pod["metadata"]["namespace"] or "Ingress" not in (policy["spec"].get("policyTypes") or ["Ingress"]):
        return False
    chosen = store.list("pods", space, policy["spec"].get("podSelector") or {})
    return any(p["metadata"]["uid"] == pod["metadata"]["uid"] for p in chosen)


def _allowed(store: Objects, policy: Object, rule: Object, pod: Object, address: str) -> set[Rule]:
    sources: set[str | None] = {None}
    if rule.get("from"):
        sources = {
            p["status"]["podIP"]
            for source in rule["from"]
            for p in _peers(store, policy, source)
            if p["status"].get("podIP")
        }
    return {
        Rule(ALLOW_AT, PASS, source, address, ports, protocol)
        for source in sources
        for ports, protocol in _ranges(rule, pod)
    }


class PolicyController:
    """The controller that keeps the network's rules in line with the policies."""

    def __init__(self, store: Objects, network: Network) -> None:
        self._store, self._network = store, network
        self._active: set[Rule] = set()
        self._early: set[Rule] = set()  # for pods without an address in the store yet
        self._ends: list[Callable[[], None]] = []
        self._due = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Watch policies and the objects that they select."""
        self._ends = [self._store.subscribe(key, self._changed) for key in (POLICIES, "pods", "namespaces")]
        self._changed("", {}, None)

    def close(self) -> None:
        """Stop; the rules are removed with the network."""
        for end in self._ends:
            end()

    async def isolate(self, pod: Object, address: str) -> None:
        """Deny the ports of a selected pod before its first process runs; allowed ports follow."""
        if pod["spec"].get("hostNetwork") or not any(_selects(p, pod, self._store) for p in self._store.list(POLICIES)):
            return
        early = _denied(address) - self._active
        self._early |= early
        self._active |= early
        await self._send([(True, rule) for rule in sorted(early, key=str)])

    def _changed(self, _: str, new: Object, old: Object | None) -> None:
        if self._due or (old is not None and _matters(old) == _matters(new)):
            return
        self._due = True
        asyncio.get_running_loop().call_soon(self._apply)

    def _apply(self) -> None:
        self._due = False
        desired = rules(self._store)
        self._early -= desired
        desired |= self._early
        changes = [(True, rule) for rule in sorted(desired - self._active, key=str)]
        changes += [(False, rule) for rule in sorted(self._active - desired, key=str)]
        self._active = desired
        if changes:
            task = asyncio.get_running_loop().create_task(self._send(changes))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, changes: list[tuple[bool, Rule]]) -> None:
        for add, rule in changes:
            with contextlib.suppress(StartError):  # refused, or the network has ended: the other rules still apply
                await self._network.rule(
                    add,
                    rule.priority,
                    rule.action,
                    src=rule.src,
                    dst=rule.dst,
                    ports=rule.ports,
                    protocol=rule.protocol,
                    source_ports=rule.source_ports,
                )


def _matters(obj: Object) -> tuple[Any, ...]:
    """Return the parts of a pod, a namespace or a policy that affect rules."""
    return (obj["metadata"].get("labels"), (obj.get("status") or {}).get("podIP"), obj.get("spec"))
