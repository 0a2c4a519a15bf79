"""Table cells of Services, endpoints and network policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cells import NONE, age_of, name_of, pairs, selector

if TYPE_CHECKING:
    from .schema.values import Object


def service(obj: Object, now: float) -> list[Any]:
    """Format a table row of services."""
    spec = obj["spec"]
    outside = ",".join(spec.get("externalIPs") or [])
    if spec.get("type") == "ExternalName":
        outside = spec.get("externalName", "")
    elif spec.get("type") == "LoadBalancer":
        given = [
            i.get("ip") or i.get("hostname")
            for i in (obj.get("status", {}).get("loadBalancer") or {}).get("ingress") or []
        ]
        outside = ",".join([*given, *(spec.get("externalIPs") or [])]) or "<pending>"
    address = spec.get("clusterIP") or NONE
    return [
        name_of(obj),
        spec.get("type", ""),
        address,
        outside or NONE,
        _ports(spec.get("ports")),
        age_of(obj, now),
        pairs(spec.get("selector")),
    ]


def _ports(ports: Any) -> str:
    shown = []
    for port in ports or []:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port['port']}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


def endpoints(obj: Object, now: float) -> list[Any]:
    """Format a table row of Endpoints."""
    entries: list[str] = []
    for subset in obj.get("subsets") or []:
        addresses = [a["ip"] for a in subset.get("addresses") or []]
        ports = subset.get("ports") or []
        entries += [f"{ip}:{port['port']}" for port in ports for ip in addresses] if ports else addresses
    more = f" + {len(entries) - 3} more..." if len(entries) > 3 else ""
    return [name_of(obj), (",".join(entries[:3]) + more) or NONE, age_of(obj, now)]


def endpoint_slice(obj: Object, now: float) -> list[Any]:
    """Format a table row of endpoint slices."""
    ports = [str(port.get("port", "*")) for port in obj.get("ports") or []]
    addresses = [address for endpoint in obj.get("endpoints") or [] for address in endpoint.get("addresses") or []]
    shown = [
        ",".join(items[:3]) + (f" + {len(items) - 3} more..." if len(items) > 3 else "") or "<unset>"
        for items in (ports, addresses)
    ]
    return [name_of(obj), obj.get("addressType", ""), *shown, age_of(obj, now)]


def network_policy(obj: Object, now: float) -> list[Any]:
    """Format a table row of network policies."""
    return [name_of(obj), selector(obj["spec"].get("podSelector")), age_of(obj, now)]
