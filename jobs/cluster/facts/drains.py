"""Causes of drains and obstacles to them: PodDisruptionBudgets with their pods, and kured's DaemonSet."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ..client.errors import Forbidden, Unauthorized
from ..client.kube import Kube, path
from ..redact import safe
from ..unstructured import Unstructured, as_list, as_map, name_of

LOCK = "weave.works/kured-node-lock"
"""The DaemonSet's annotation with the node that kured currently drains (kubereboot/kured, pkg/daemonsetlock)."""
_WINDOW = ("reboot-days", "start-time", "end-time", "time-zone")
_BLOCKING, _ALERTS = "blocking-pod-selector", "prometheus-url"
MOST_BUDGETS = 500


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget: its limits, whether it can ever allow a disruption, and the names of its pods.

    `uncounted`: its controller cannot count the expected pods and allows no eviction (reason SyncFailed, kubernetes
    pkg/controller/disruption: failSafe). This applies to most budgets of a Job's pods.
    """

    namespace: str
    name: str
    asks: str
    never: bool
    pods: frozenset[str]
    uncounted: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.asks})"


@dataclass(frozen=True, slots=True)
class Rebooter:
    """kured: its reboot window, its blockers, and the nodes that it currently drains.

    `holding`: (namespace, name) of the pods that block the reboot of their node.
    """

    name: str
    window: str
    waits_for: tuple[str, ...]
    draining: frozenset[str]
    holding: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Drains:
    """Budgets and rebooters; `hidden` is the reason if they could not be read."""

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
        return Drains(hidden=f"{len(here)} budgets in namespaces of GPU pods, more than {MOST_BUDGETS}")
    rebooters = (rebooter for item in daemons if (rebooter := _rebooter(kube, item)))
    return Drains(tuple(_budget(kube, item) for item in here), tuple(rebooters))


def _budget(kube: Kube, item: Unstructured) -> Budget:
    meta, spec, status = (as_map(item.get(key)) for key in ("metadata", "spec", "status"))
    namespace, name = str(meta.get("namespace") or ""), safe(meta.get("name") or "", 253)
    key = "maxUnavailable" if spec.get("maxUnavailable") is not None else "minAvailable"
    asked, expected = spec.get(key), status.get("expectedPods")
    never = asked in (0, "0%") if key == "maxUnavailable" else asked == "100%"
    least = _of(asked, expected)
    if key == "minAvailable" and least is not None and type(expected) is int and expected > 0:
        never = least >= expected
    conditions = as_list(status.get("conditions"))
    uncounted = any(c.get("type") == "DisruptionAllowed" and c.get("reason") == "SyncFailed" for c in conditions)
    pods = _pods(kube, namespace, spec.get("selector"))
    return Budget(namespace, name, safe(f"{key} {asked}", 60), never, pods, uncounted)


def _of(asked: object, expected: object) -> int | None:
    """Return a number of pods, or a share of the expected ones, rounded up as in Kubernetes (policy/v1); else None."""
    share = re.fullmatch(r"(\d{1,3})%", asked) if isinstance(asked, str) else None
    if share and type(expected) is int:
        return math.ceil(int(share[1]) * expected / 100)
    return asked if type(asked) is int else None


def _pods(kube: Kube, namespace: str, selector: object) -> frozenset[str]:
    """Return the pods that a selector matches; a missing one matches none, an empty one all (policy/v1)."""
    if not isinstance(selector, dict):
        return frozenset()
    items, _ = kube.list(path("pods", namespace=namespace), labelSelector=",".join(_terms(selector)))
    return frozenset(name_of(item) for item in items)


def _terms(selector: Unstructured) -> Iterator[str]:
    """Format a selector as a request parameter."""
    for label, value in as_map(selector.get("matchLabels")).items():
        yield f"{label}={value}"
    for each in as_list(selector.get("matchExpressions")):
        key, operator, values = each.get("key"), each.get("operator"), as_list_of_text(each.get("values"))
        if operator in ("Exists", "DoesNotExist"):
            yield f"{'' if operator == 'Exists' else '!'}{key}"
        else:
            yield f"{key} {'in' if operator == 'In' else 'notin'} ({','.join(values)})"


def as_list_of_text(values: object) -> list[str]:
    """Return the texts of a list; nothing for any other value."""
    return [str(value) for value in values] if isinstance(values, list) else []


def _rebooter(kube: Kube, item: Unstructured) -> Rebooter | None:
    """Read a DaemonSet of kured, recognised by the image name of its manifest and chart; None for any other."""
    meta = as_map(item.get("metadata"))
    pod = as_map(as_map(as_map(item.get("spec")).get("template")).get("spec"))
    container = next(
        (c for c in as_list(pod.get("containers")) if re.search(r"/kured(?:[:@]|$)", str(c.get("image")))), None
    )
    if container is None:
        return None
    options, blocking = _options(container), _selectors(container)
    window = " ".join(f"{key} {options[key]}" for key in _WINDOW if options.get(key))
    return Rebooter(
        name=safe(f"{meta.get('namespace')}/{meta.get('name')}", 253),
        window=safe(window, 200) or "at any time",
        waits_for=tuple(safe(f"pods with {each}", 200) for each in blocking)
        + (("no alert in Prometheus",) if options.get(_ALERTS) else ()),
        draining=frozenset(_locked(as_map(meta.get("annotations")).get(LOCK))),
        holding=frozenset(pod for selector in blocking for pod in _chosen(kube, selector)),
    )


def _chosen(kube: Kube, selector: str) -> Iterator[tuple[str, str]]:
    """Return the pods of all namespaces that a selector matches."""
    for item in kube.list(path("pods"), labelSelector=selector)[0]:
        yield str(as_map(item.get("metadata")).get("namespace")), name_of(item)


def _options(container: Unstructured) -> dict[str, str]:
    """Return the options of the command line, `--name=value` or in two words, and of the variables KURED_NAME."""
    options = {
        str(each.get("name"))[6:].lower().replace("_", "-"): str(each.get("value") or "")
        for each in as_list(container.get("env"))
        if str(each.get("name")).startswith("KURED_")
    }
    return options | dict(_flags(container))


def _flags(container: Unstructured) -> Iterator[tuple[str, str]]:
    command = [*as_list_of_text(container.get("command")), *as_list_of_text(container.get("args"))]
    for word, after in itertools.pairwise([*command, ""]):
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            yield name, value if equals else after if not after.startswith("--") else "true"


def _selectors(container: Unstructured) -> list[str]:
    """Return the selectors of pods that block a reboot; one matching pod is enough."""
    given = [value for name, value in _flags(container) if name == _BLOCKING]
    return given or list(filter(None, [_options(container).get(_BLOCKING)]))


def _locked(text: object) -> Iterator[str]:
    """Return the nodes of a lock's holder, or of several holders (--concurrency)."""
    try:
        lock = as_map(json.loads(text)) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return
    for each in (lock, *as_list(lock.get("locks"))):
        if isinstance(each.get("nodeID"), str):
            yield each["nodeID"]
