"""Addresses and node ports of Services, allocated from the cluster's ranges."""

from __future__ import annotations

import ipaddress
import random
from typing import TYPE_CHECKING

from .errors import invalid, invalid_value
from .values import clone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .seams import Objects
    from .values import Object

RANGE = ipaddress.ip_network("10.96.0.0/16")  # kubeadm's default is 10.96.0.0/12
NODE_PORTS = range(30000, 32768)


def allocate(store: Objects, old: Object | None, new: Object) -> None:
    """Allocate the addresses and ports that a Service needs, and keep those that it has."""
    spec = new["spec"]
    kind = spec.get("type")
    if kind == "ExternalName":
        for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            spec.pop(name, None)
        if not spec.get("clusterIP"):
            spec.pop("clusterIP", None)
        return
    before = (old or {}).get("spec", {})
    if before.get("clusterIP") and before.get("type") != "ExternalName":
        # An update without the address keeps it (patchAllocatedValues).
        if not spec.get("clusterIP"):
            spec["clusterIP"] = before["clusterIP"]
        if not spec.get("clusterIPs"):
            spec["clusterIPs"] = clone(before["clusterIPs"])
    address = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or []), "")
    if not address:
        address = _free_address(store)
    elif address != "None" and old is None:
        _claim(store, new, address)
    spec["clusterIP"] = address
    spec["clusterIPs"] = spec.get("clusterIPs") or [address]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if kind in ("NodePort", "LoadBalancer"):
        _node_ports(store, before, new)
    else:
        for port in spec.get("ports") or []:
            port.pop("nodePort", None)
        spec.pop("externalTrafficPolicy", None)


def _services(store: Objects) -> Iterator[Object]:
    for service in store.list("services"):
        yield service["spec"]


def _free_address(store: Objects) -> str:
    taken = {spec.get("clusterIP") for spec in _services(store)}
    while True:
        candidate = str(RANGE[random.randrange(10, RANGE.num_addresses - 1)])  # noqa: S311 - an address, not a secret
        if candidate not in taken:
            return candidate


def _claim(store: Objects, new: Object, address: str) -> None:
    """Reject an address that is in use or outside the range."""
    name = new["metadata"].get("name", "")
    if any(spec.get("clusterIP") == address for spec in _services(store)):
        text = f"failed to allocate IP {address}: provided IP is already allocated"
        raise invalid("Service", "", name, [invalid_value("spec.clusterIPs", [address], text)])
    try:
        in_range = ipaddress.ip_address(address) in RANGE
    except ValueError:
        return  # validation reports the error
    if not in_range:
        why = f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {RANGE}"
        text = f"failed to allocate IP {address}: {why}"
        raise invalid("Service", "", name, [invalid_value("spec.clusterIPs", [address], text)])


def _node_ports(store: Objects, before: Object, new: Object) -> None:
    spec, name = new["spec"], new["metadata"].get("name", "")
    had = {port.get("port"): port.get("nodePort") for port in before.get("ports") or []}
    taken = {port.get("nodePort") for other in _services(store) for port in other.get("ports") or []} - {None}
    taken -= set(had.values())
    spec.setdefault("externalTrafficPolicy", "Cluster")
    for index, port in enumerate(spec.get("ports") or []):
        given = port.get("nodePort")
        text = ""
        if given in taken:
            text = "provided port is already allocated"
        elif given and given not in NODE_PORTS:
            text = "provided port is not in the valid range. The range of valid ports is 30000-32767"
        if text:
            raise invalid("Service", "", name, [invalid_value(f"spec.ports[{index}].nodePort", given, text)])
        number = given or had.get(port.get("port"))
        while not number or number in taken:
            number = random.choice(NODE_PORTS)  # noqa: S311 - a port, not a secret
        port["nodePort"] = number
        taken.add(number)
