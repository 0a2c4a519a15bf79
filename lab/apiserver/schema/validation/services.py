"""Validation of Services and NetworkPolicies, on creation and on update."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from ..errors import Cause, duplicate, forbidden_field, invalid_value, required, unsupported
from . import containers, metadata

if TYPE_CHECKING:
    from ..values import Object

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")


def service(obj: Object) -> list[Cause]:
    """Validate a Service."""
    spec = obj.get("spec", {})
    kind, ports = spec.get("type", ""), spec.get("ports") or []
    causes: list[Cause] = []
    if not ports and spec.get("clusterIP") != "None" and kind != "ExternalName":
        causes.append(required("spec.ports"))
    causes += _ports(ports)
    causes += metadata.labels(spec.get("selector"), "spec.selector")
    affinity = spec.get("sessionAffinity", "")
    if affinity not in ("ClientIP", "None"):
        causes.append(unsupported("spec.sessionAffinity", affinity, ["ClientIP", "None"]))
    if kind not in TYPES:
        causes.append(unsupported("spec.type", kind, TYPES))
    if kind == "ExternalName":
        name = spec.get("externalName", "")
        if not name:
            causes.append(required("spec.externalName"))
        else:
            wrong = metadata.dns_subdomain(name.rstrip("."))
            causes += [invalid_value("spec.externalName", name, text) for text in wrong]
        if spec.get("clusterIP"):
            causes.append(forbidden_field("spec.clusterIPs", "may not be set for ExternalName services"))
    causes += _addresses(spec)
    return causes


def _addresses(spec: Object) -> list[Cause]:
    first, all_ = spec.get("clusterIP"), spec.get("clusterIPs") or []
    if spec.get("type") in ("LoadBalancer", "NodePort") and first == "None":
        text = f"may not be set to 'None' for {spec['type']} services"
        return [invalid_value("spec.clusterIPs[0]", "None", text)]
    if first and all_ and all_[0] != first:
        return [invalid_value("spec.clusterIPs", all_, "first value must match `clusterIP`")]
    causes = []
    for index, address in enumerate(all_):
        if address != "None" and not _is_address(address):
            text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            causes.append(invalid_value(f"spec.clusterIPs[{index}]", address, text))
    return causes


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _ports(ports: list[Any]) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        name = port.get("name", "")
        if not name and len(ports) > 1:
            causes.append(required(f"{at}.name"))
        elif name:
            causes += [invalid_value(f"{at}.name", name, text) for text in metadata.dns_label(name)]
            if name in names:
                causes.append(duplicate(f"{at}.name", name))
            names.add(name)
        number = port.get("port", 0)
        if wrong := containers.port_range(number):
            causes.append(invalid_value(f"{at}.port", number, wrong))
        protocol = port.get("protocol", "")
        if protocol not in PROTOCOLS:
            causes.append(unsupported(f"{at}.protocol", protocol, PROTOCOLS))
        target = port.get("targetPort", number)
        if isinstance(target, int) and (wrong := containers.port_range(target)):
            causes.append(invalid_value(f"{at}.targetPort", target, wrong))
        elif isinstance(target, str):
            causes += [invalid_value(f"{at}.targetPort", target, text) for text in containers.port_name(target)]
    pairs: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        pair = (port.get("protocol"), port.get("port"))
        if pair in pairs:
            causes.append(duplicate(f"spec.ports[{index}]", {"port": pair[1], "protocol": pair[0]}))
        pairs.add(pair)
    return causes


def service_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a Service."""
    before, after = old.get("spec", {}), new.get("spec", {})
    if before.get("type") == "ExternalName" or after.get("type") == "ExternalName":
        return []
    was, now = before.get("clusterIPs") or [], after.get("clusterIPs") or []
    if was and was[:1] != now[:1]:
        return [invalid_value("spec.clusterIPs[0]", now, "may not change once set")]
    return []


def network_policy(obj: Object) -> list[Cause]:
    """Validate a NetworkPolicy."""
    spec = obj.get("spec", {})
    causes = metadata.selector(spec.get("podSelector"), "spec.podSelector")
    for direction in ("ingress", "egress"):
        for index, rule in enumerate(spec.get(direction) or []):
            for at, port in enumerate(rule.get("ports") or []):
                number = port.get("port")
                where = f"spec.{direction}[{index}].ports[{at}].port"
                if isinstance(number, int) and (wrong := containers.port_range(number)):
                    causes.append(invalid_value(where, number, wrong))
    for index, kind in enumerate(spec.get("policyTypes") or []):
        if kind not in ("Ingress", "Egress"):
            causes.append(unsupported(f"spec.policyTypes[{index}]", kind, ["Egress", "Ingress"]))
    return causes
