"""Plugin LimitRanger: default requests and limits, and the allowed range for a container, a pod or a PVC."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from .. import quantity
from ..errors import forbidden

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..kinds import Kind
    from ..seams import Objects
    from ..values import Object

ANNOTATION = "kubernetes.io/limit-ranger"


def _items(store: Objects, namespace: str) -> Iterator[Object]:
    for limits in store.list("limitranges", namespace):
        yield from limits.get("spec", {}).get("limits") or []


def apply(store: Objects, pod: Object) -> None:
    """Set the namespace's default requests and limits on containers."""
    set_: list[str] = []
    for item in _items(store, pod["metadata"]["namespace"]):
        if item.get("type") != "Container":
            continue
        for part, word in (("containers", "container"), ("initContainers", "init container")):
            for container in pod["spec"].get(part) or []:
                set_ += _defaults(container, item, word)
    if set_:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[ANNOTATION] = "LimitRanger plugin set: " + "; ".join(set_)


def _defaults(container: Object, item: Object, word: str) -> list[str]:
    resources = container.setdefault("resources", {})
    notes = []
    for part, source, verb in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
        given = resources.get(part) or {}
        # A limit set by the user is the default of the request, before the namespace's default.
        added = {name: amount for name, amount in (item.get(source) or {}).items() if name not in given}
        if added:
            resources[part] = {**given, **added}
            notes.append(f"{', '.join(sorted(added))} {verb} for {word} {container['name']}")
    return notes


def judge(store: Objects, kind: Kind, obj: Object) -> None:
    """Reject requests and limits outside the namespace's range."""
    meta = obj["metadata"]
    violations: list[str] = []
    for item in _items(store, meta["namespace"]):
        if kind.key == "persistentvolumeclaims":
            if item.get("type") == "PersistentVolumeClaim":
                asked = (obj["spec"].get("resources") or {}).get("requests") or {}
                violations += _bounds(item, asked, asked, storage=True)
        elif item.get("type") == "Container":
            for container in [*obj["spec"].get("containers", []), *(obj["spec"].get("initContainers") or [])]:
                resources = container.get("resources") or {}
                violations += _bounds(item, resources.get("requests") or {}, resources.get("limits") or {})
        elif item.get("type") == "Pod":
            violations += _bounds(item, total(obj["spec"], "requests"), total(obj["spec"], "limits"))
    if violations:
        why = violations[0] if len(violations) == 1 else f"[{', '.join(violations)}]"
        raise forbidden(kind.plural, kind.group, meta.get("name", ""), why)


def total(spec: Object, part: str) -> dict[str, str]:
    """Return a pod's requests: the sum of its containers, or an init container that requests more."""
    amounts: dict[str, str] = {}
    for container in spec.get("containers") or []:
        for name, amount in ((container.get("resources") or {}).get(part) or {}).items():
            amounts[name] = quantity.add(amounts[name], amount) if name in amounts else amount
    started: dict[str, str] = {}  # sidecars that already run during an init container
    for container in spec.get("initContainers") or []:
        for name, amount in ((container.get("resources") or {}).get(part) or {}).items():
            if container.get("restartPolicy") == "Always":
                started[name] = quantity.add(started[name], amount) if name in started else amount
                amounts[name] = quantity.add(amounts[name], amount) if name in amounts else amount
                continue
            needed = quantity.add(started[name], amount) if name in started else amount
            if name not in amounts or quantity.value(needed) > quantity.value(amounts[name]):
                amounts[name] = needed
    for name, amount in (spec.get("overhead") or {}).items():
        amounts[name] = quantity.add(amounts[name], amount) if name in amounts else amount
    return amounts


def _bounds(item: Object, requests: dict[str, str], limits: dict[str, str], *, storage: bool = False) -> list[str]:
    kind = item["type"]
    violations: list[str] = []
    for name, low in (item.get("min") or {}).items():
        if name not in requests:
            violations.append(f"minimum {name} usage per {kind} is {low}.  No request is specified")
        elif quantity.value(requests[name]) < quantity.value(low):
            violations.append(f"minimum {name} usage per {kind} is {low}, but request is {requests[name]}")
    word = "request" if storage else "limit"
    for name, high in (item.get("max") or {}).items():
        if name not in limits:
            violations.append(f"maximum {name} usage per {kind} is {high}.  No {word} is specified")
        elif quantity.value(limits[name]) > quantity.value(high):
            violations.append(f"maximum {name} usage per {kind} is {high}, but {word} is {limits[name]}")
    for name, most in (item.get("maxLimitRequestRatio") or {}).items():
        violations += _ratio(name, most, kind, requests, limits)
    return violations


def _ratio(name: str, most: str, kind: str, requests: dict[str, str], limits: dict[str, str]) -> list[str]:
    text = f"{name} max limit to request ratio per {kind} is {most}, but "
    if name not in requests or quantity.value(requests[name]) == 0:
        return [text + "no request is specified or request is 0"]
    if name not in limits or quantity.value(limits[name]) == 0:
        return [text + "no limit is specified or limit is 0"]
    ratio = Fraction(quantity.value(limits[name]), quantity.value(requests[name]))
    return [text + f"provided ratio is {float(ratio):f}"] if ratio > quantity.value(most) else []
