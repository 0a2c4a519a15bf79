"""What may drain a node and what holds a drain up: PodDisruptionBudgets with their pods, and kured's DaemonSet."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..client.errors import Forbidden, Unauthorized
from ..client.kube import path
from ..redact import safe
from ..unstructured import as_list, as_map, name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ..client.kube import Kube

LOCK = "weave.works/kured-node-lock"
"""The DaemonSet's annotation that names the node which kured drains now (kubereboot/kured, pkg/daemonsetlock)."""
_WINDOW = ("reboot-days", "start-time", "end-time", "time-zone")
_GUARDS = ("blocking-pod-selector", "prometheus-url")
MOST_BUDGETS = 500


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget: what it asks for, whether it can ever let a pod go, and the names of its pods."""

    namespace: str
    name: str
    asks: str
    never: bool
    pods: frozenset[str]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.asks})"


@dataclass(frozen=True, slots=True)
class Rebooter:
    """kured: when it may reboot, what makes it wait, and the nodes that it drains at this moment."""

    name: str
    window: str
    waits_for: tuple[str, ...]
    draining: frozenset[str]


@dataclass(frozen=True, slots=True)
class Drains:
    """What was seen of both; `hidden` says why nothing was."""

    budgets: tuple[Budget, ...] = ()
    rebooters: tuple[Rebooter, ...] = ()
    hidden: str = ""


def read_drains(kube: Kube, namespaces: Collection[str]) -> Drains:
    """Read the budgets of these namespaces, with their pods, and kured. Raises ClusterError."""
    try:
        budgets, _ = kube.list(path("poddisruptionbudgets", group="policy"))
        daemons, _ = kube.list(path("daemonsets", group="apps"))
    except (Forbidden, Unauthorized) as error:
        return Drains(hidden=safe(error.message, 300))
    here = [item for item in budgets if as_map(item.get("metadata")).get("namespace") in namespaces]
    if len(here) > MOST_BUDGETS:
        return Drains(hidden=f"{len(here)} budgets beside pods of GPU nodes, more than {MOST_BUDGETS}")
    return Drains(tuple(_budget(kube, item) for item in here), tuple(filter(None, map(_rebooter, daemons))))


def _budget(kube: Kube, item: Mapping[str, Any]) -> Budget:
    meta, spec, status = (as_map(item.get(key)) for key in ("metadata", "spec", "status"))
    namespace, name = str(meta.get("namespace") or ""), safe(meta.get("name") or "", 253)
    key = "maxUnavailable" if spec.get("maxUnavailable") is not None else "minAvailable"
    asked, expected = spec.get(key), status.get("expectedPods")
    never = asked in (0, "0%") if key == "maxUnavailable" else asked == "100%"
    if key == "minAvailable" and type(asked) is int and type(expected) is int and expected > 0:
        never = asked >= expected
    return Budget(namespace, name, safe(f"{key} {asked}", 60), never, _pods(kube, namespace, spec.get("selector")))


def _pods(kube: Kube, namespace: str, selector: object) -> frozenset[str]:
    """The pods that a selector chooses; an absent one chooses none, an empty one all (policy/v1)."""
    if not isinstance(selector, dict):
        return frozenset()
    items, _ = kube.list(path("pods", namespace=namespace), labelSelector=",".join(_terms(selector)))
    return frozenset(name_of(item) for item in items)


def _terms(selector: Mapping[str, Any]) -> Iterator[str]:
    """Write a selector as a request's parameter takes it."""
    for label, value in as_map(selector.get("matchLabels")).items():
        yield f"{label}={value}"
    for each in as_list(selector.get("matchExpressions")):
        key, operator, values = each.get("key"), each.get("operator"), as_list_of_text(each.get("values"))
        if operator in ("Exists", "DoesNotExist"):
            yield f"{'' if operator == 'Exists' else '!'}{key}"
        else:
            yield f"{key} {'in' if operator == 'In' else 'notin'} ({','.join(values)})"


def as_list_of_text(values: object) -> list[str]:
    """The texts of a list; of anything else none."""
    return [str(value) for value in values] if isinstance(values, list) else []


def _rebooter(item: Mapping[str, Any]) -> Rebooter | None:
    """Read a DaemonSet of kured, by the image's name as its manifest and chart have it; None of any other."""
    meta = as_map(item.get("metadata"))
    pod = as_map(as_map(as_map(item.get("spec")).get("template")).get("spec"))
    container = next(
        (c for c in as_list(pod.get("containers")) if re.search(r"/kured(?:[:@]|$)", str(c.get("image")))), None
    )
    if container is None:
        return None
    options = _options(container)
    window = " ".join(f"{key} {options[key]}" for key in _WINDOW if options.get(key))
    return Rebooter(
        name=safe(f"{meta.get('namespace')}/{meta.get('name')}", 253),
        window=safe(window, 200) or "at any time",
        waits_for=tuple(safe(f"{key} {options[key]}", 200) for key in _GUARDS if options.get(key)),
        draining=frozenset(_locked(as_map(meta.get("annotations")).get(LOCK))),
    )


def _options(container: Mapping[str, Any]) -> dict[str, str]:
    """Options of the command line, `--name=value` or in two words, and their variables KURED_NAME."""
    options = {
        str(each.get("name"))[6:].lower().replace("_", "-"): str(each.get("value") or "")
        for each in as_list(container.get("env"))
        if str(each.get("name")).startswith("KURED_")
    }
    command = [*as_list_of_text(container.get("command")), *as_list_of_text(container.get("args"))]
    for word, after in itertools.pairwise([*command, ""]):
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            options[name] = value if equals else after if not after.startswith("--") else "true"
    return options


def _locked(text: object) -> Iterator[str]:
    """The nodes that a lock names: of one holder, or of several (--concurrency)."""
    try:
        lock = as_map(json.loads(text)) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return
    for each in (lock, *as_list(lock.get("locks"))):
        if isinstance(each.get("nodeID"), str):
            yield each["nodeID"]
