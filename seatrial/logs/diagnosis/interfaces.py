"""Interfaces of a host that no other host reaches, and that NCCL selected for traffic between hosts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..reader.events.transports import TCP
from .causes import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .causes import Address
    from .judge import Judgement

# Bridges and tunnels of a host: the other host has one of the same name, but no route to it. Docker names a network's
# bridge by twelve digits of its id; a br-ex of OVN and the overlays of flannel and Calico reach other hosts.
_VIRTUAL = re.compile(r"docker|virbr|veth|br-[0-9a-f]{12}\b|cni|cali|lxc|podman|ip6tnl")


def virtual_interfaces(judgement: Judgement) -> list[str]:
    """Return the virtual interfaces if a process offers no others for the bootstrap, with several nodes in the job."""
    return [] if judgement.view.nodes == 1 else _only(judgement, lambda name, _: _is_virtual(name))


def link_local_interfaces(judgement: Judgement) -> list[str]:
    """Return the interfaces with a link-local address if a process offers no others for the bootstrap."""
    return _only(judgement, lambda _, address: address is not None and address.is_link_local)


def _only(judgement: Judgement, fits: Callable[[str, Address | None], bool]) -> list[str]:
    """Return the interfaces of processes that offer only matching ones for the bootstrap."""
    found = set()
    for proc in judgement.job.procs:
        offered = [text.partition(" ") for text in proc.facts.get("boot", ())]
        if offered and all(fits(name, address_of(said.partition("<")[0])) for name, _, said in offered):
            found |= {name for name, _, _ in offered}
    return sorted(found)


def _is_virtual(name: str) -> bool:
    """Return whether an interface of this name reaches no other host, or at most a bridge of the same name there."""
    return name == "lo" or _VIRTUAL.match(name) is not None


def virtual_sockets(judgement: Judgement, peer: Address | None = None) -> str | None:
    """Name the virtual interfaces that NCCL's sockets use next to a real one, for peers on other hosts.

    The address of an unreachable ``peer`` must be closest to theirs.
    """
    chosen = judgement.view.chosen
    if judgement.view.nodes == 1 or (chosen and not chosen & TCP) or not _of_virtual(judgement, peer):
        return None
    for proc in judgement.job.procs:
        listed = proc.facts.get("socket") or proc.facts.get("boot") or ()  # NCCL 2.2 and 2.3 print one list for both
        names = sorted({text.split(" ")[0] for text in listed})
        virtual = [name for name in names if _is_virtual(name)]
        if virtual and len(virtual) < len(names):
            few = ", ".join(virtual[:3]) + (", ..." if len(virtual) > 3 else "")
            real = next(name for name in names if name not in virtual)
            said = "NCCL's sockets use %s and %s: other hosts have an interface of the same kind that cannot reach it"
            return said % (few, real)
    return None


def _of_virtual(judgement: Judgement, peer: Address | None) -> bool:
    """Return whether a virtual interface's address has the longest common prefix with a peer's."""
    unlike: dict[str, int] = {}  # interface -> bits after the common prefix
    for text in judgement.job.facts["socket"] or judgement.job.facts["boot"]:
        name, _, said = text.partition(" ")
        address = address_of(said.partition("<")[0])
        if peer is not None and address is not None and address.version == peer.version:
            unlike[name] = min((int(address) ^ int(peer)).bit_length(), unlike.get(name, peer.max_prefixlen))
    return not unlike or _is_virtual(min(unlike, key=lambda name: (unlike[name], _is_virtual(name))))
