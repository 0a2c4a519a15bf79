"""Devices for claims: dynamic resource allocation (resource.k8s.io/v1) in the scheduler.

Supported are a number of devices of a class, or all of a node, and the CEL selectors that `matches` can evaluate. Other
expressions are rejected with an explicit message: a wrong guess would be worse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...apiserver.schema.quantity import value as parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...apiserver.store import Store

Object = dict[str, Any]
CLAIMS, TEMPLATES = "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"
CLASSES, SLICES = "deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io"
FINALIZER = "resource.kubernetes.io/delete-protection"
_PLACE = r"device\.(?:(driver)|(attributes|capacity)\[(?:'|\")([^'\"]+)(?:'|\")\]\.(\w+))"
_TERM = re.compile(rf"{_PLACE}\s*(==|!=|>=|<=|>|<)\s*(.+)")
_CALL = re.compile(rf"{_PLACE}\.(compareTo|contains|startsWith|endsWith|matches)\((.+?)\)(?:\s*(==|!=|>=|<=|>|<)\s*0)?")
_BARE = re.compile(rf"(!?)\s*{_PLACE}")
_HAS = re.compile(rf"(!?)\s*has\({_PLACE}\)")


class Unreadable(Exception):  # noqa: N818 - a state of the expression
    """An unsupported expression; str() names the unsupported part."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a pool."""

    driver: str
    pool: str
    name: str
    attributes: Mapping[str, Any]
    capacity: Mapping[str, str]

    @property
    def identity(self) -> tuple[str, str, str]:
        """The unique id."""
        return self.driver, self.pool, self.name

    def attribute(self, domain: str, name: str) -> Any:
        """Return the value of an attribute; a name without a domain is the driver's. None if it is missing."""
        held = self.attributes.get(f"{domain}/{name}", self.attributes.get(name) if domain == self.driver else None)
        return next(iter(held.values())) if held else None

    def amount(self, domain: str, name: str) -> Any:
        """Return a capacity as a number."""
        text = self.capacity.get(f"{domain}/{name}", self.capacity.get(name) if domain == self.driver else None)
        return None if text is None else parse(text)


def of_node(slices: Iterable[Object], node: Object) -> list[Device]:
    """Return the devices that a node offers, in the order of its slices."""
    devices = []
    for each in slices:
        spec = each["spec"]
        if spec.get("nodeName") != node["metadata"]["name"] and not spec.get("allNodes"):
            continue
        for device in spec.get("devices") or []:
            body = device.get("basic") or device
            capacity = {name: part["value"] for name, part in (body.get("capacity") or {}).items()}
            attributes = body.get("attributes") or {}
            devices.append(Device(spec["driver"], spec["pool"]["name"], device["name"], attributes, capacity))
    return devices


def taken(claims: Iterable[Object]) -> set[tuple[str, str, str]]:
    """Return the devices that are allocated to claims."""
    every = [result for claim in claims for result in results(claim) if not result.get("adminAccess")]
    return {(result["driver"], result["pool"], result["device"]) for result in every}


def results(claim: Object) -> list[Object]:
    """Return the devices allocated to a claim."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or [])


def of_pod(store: Store, pod: Object) -> list[tuple[str, str, Object | None]]:
    """Return (name in the pod, claim name, claim) of each of a pod's claims; "" before it is created."""
    made = {
        s["name"]: s.get("resourceClaimName", "") for s in (pod.get("status") or {}).get("resourceClaimStatuses") or []
    }
    claims = []
    for pod_claim in pod["spec"].get("resourceClaims") or []:
        name = pod_claim.get("resourceClaimName") or made.get(pod_claim["name"], "")
        claim = store.get(CLAIMS, pod["metadata"]["namespace"], name) if name else None
        claims.append((pod_claim["name"], name, claim))
    return claims


def held(store: Store, pod: Object, driver: str, node: str) -> list[str]:
    """Return the names of a driver's devices on a node that the containers of a pod may use."""
    every = [*pod["spec"].get("containers", []), *(pod["spec"].get("initContainers") or [])]
    used = {each["name"] for container in every for each in (container.get("resources") or {}).get("claims") or []}
    return [
        r["device"]
        for name, _, claim in of_pod(store, pod)
        if claim is not None and name in used
        for r in results(claim)
        if r["driver"] == driver and r["pool"] == node
    ]


def allocate(
    claims: list[Object], offered: list[Device], busy: set[tuple[str, str, str]], classes: Mapping[str, Object]
) -> list[list[Object]] | None:
    """Return the results for each claim, or None if one of them cannot be allocated; raises Unreadable."""
    used, allocations = set(busy), []
    for claim in claims:
        got: list[Object] = []
        for request in (claim["spec"].get("devices") or {}).get("requests") or []:
            exact = request.get("exactly") or request
            chosen = _choose(exact, offered, used, classes[exact["deviceClassName"]])
            if chosen is None:
                return None
            used |= {device.identity for device in chosen}
            got += [
                {"request": request["name"], "driver": device.driver, "pool": device.pool, "device": device.name}
                for device in chosen
            ]
        allocations.append(got)
    return allocations


def _choose(exact: Object, offered: list[Device], used: set[tuple[str, str, str]], kind: Object) -> list[Device] | None:
    selectors = [*((kind.get("spec") or {}).get("selectors") or []), *(exact.get("selectors") or [])]
    matching = [device for device in offered if all(matches(s["cel"]["expression"], device) for s in selectors)]
    free = [device for device in matching if device.identity not in used]
    if exact.get("allocationMode") == "All":
        return free if matching and len(free) == len(matching) else None
    count = int(exact.get("count") or 1)
    return free[:count] if len(free) >= count else None


def unsupported(claim: Object) -> str:
    """Name an unsupported feature of a claim; '' if all are supported."""
    devices = claim["spec"].get("devices") or {}
    if devices.get("constraints"):
        return "constraints"
    return "firstAvailable" if any("firstAvailable" in request for request in devices.get("requests") or []) else ""


def matches(expression: str, device: Device) -> bool:
    """Return whether a CEL expression selects a device: comparisons joined by && or by ||."""
    text = " ".join(expression.split())
    if "||" in text:
        if "&&" in text or "(" in text.split("||")[0][:1]:
            raise Unreadable(text)
        return any(matches(part, device) for part in text.split("||"))
    return all(_term(part.strip(), device) for part in text.split("&&"))


def _term(text: str, device: Device) -> bool:
    while text.startswith("(") and text.endswith(")") and text.count("(") == 1:
        text = text[1:-1].strip()
    if text in ("true", "false"):
        return text == "true"
    call = _CALL.fullmatch(text)
    if call:
        return _called(_value(device, *call.groups()[:4]), call[5], _literal(call[6]), call[7])
    comparison = _TERM.fullmatch(text)
    if comparison:
        held = _value(device, *comparison.groups()[:4])
        return held is not None and _compare(held, comparison[5], _literal(comparison[6]))
    has = _HAS.fullmatch(text)
    if has:
        return (_value(device, *has.groups()[1:5]) is not None) != bool(has[1])
    bare = _BARE.fullmatch(text)
    if bare:
        held = _value(device, *bare.groups()[1:5])
        return held is not None and bool(held) != bool(bare[1])
    raise Unreadable(text)


def _value(device: Device, driver: str | None, kind: str | None, domain: str | None, name: str | None) -> Any:
    if driver:
        return device.driver
    if kind == "capacity":
        return device.amount(str(domain), str(name))
    return device.attribute(str(domain), str(name))


def _literal(text: str) -> Any:
    text = text.strip()
    typed = re.fullmatch(r"(?:quantity|semver)\(['\"](.+)['\"]\)", text)
    if typed and text.startswith("quantity"):
        return parse(typed[1])
    if typed:
        return typed[1]
    quoted = re.fullmatch(r"'([^']*)'|\"([^\"]*)\"", text)
    if quoted:
        return quoted[1] if quoted[1] is not None else quoted[2]
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    raise Unreadable(text)


def _called(held: Any, name: str, argument: Any, sign: str | None) -> bool:
    if held is None:
        return False
    if name == "compareTo":
        if sign is None:
            raise Unreadable("compareTo without a comparison")
        return _compare(held, sign, argument)
    text, part = str(held), str(argument)
    if name == "matches":
        return re.search(part, text) is not None
    if name == "contains":
        return part in text
    return text.startswith(part) if name == "startsWith" else text.endswith(part)


def _compare(held: Any, sign: str, literal: Any) -> bool:
    if isinstance(held, str) and isinstance(literal, str) and re.fullmatch(r"\d+(\.\d+)*", held):
        held, literal = ([int(part) for part in each.split(".")] for each in (held, literal))
    if sign in ("==", "!="):
        return bool((held == literal) == (sign == "=="))
    return bool({">=": held >= literal, "<=": held <= literal, ">": held > literal, "<": held < literal}[sign])
