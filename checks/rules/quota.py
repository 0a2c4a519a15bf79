"""Quota rules: room for the whole trial in the namespace.

A dry run checks one pod against the current use; a partly started job holds its GPUs and waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from jobs.cluster.client.errors import Forbidden
from jobs.cluster.client.kube import Kube, path
from jobs.cluster.unstructured import Unstructured, as_list, as_map, as_texts, name_of, quantity

# A trial creates one Job, one ConfigMap and one Service.
_OBJECTS = ("count/jobs.batch", "count/configmaps", "configmaps", "count/services", "services")


@dataclass(frozen=True, slots=True)
class Shortage:
    """A quota that the trial would exceed."""

    quota: str
    resource: str
    needed: str  # "2 for 2 pods", "1 for the trial"
    left: str  # "0 of 1 left"
    in_use: bool = False  # the quota is large enough, but in use by other pods

    @property
    def fault(self) -> str:
        """The fault id of the shortage; a quota in use is not at fault."""
        return "quota.in-use" if self.in_use else "quota.exceeded"


def shortages(kube: Kube, pod: Unstructured, pods: int) -> tuple[tuple[Shortage, ...], tuple[str, ...], frozenset[str]]:
    """Compare the needs of ``pods`` identical pods with the remainder of each ResourceQuota.

    Return shortages, notes, and the extended resources that a quota grants.
    """
    try:
        quotas, _ = kube.list(path("resourcequotas", namespace=kube.namespace))
    except Forbidden:
        return (), ("no permission to list resourcequotas: only one pod was tried against them",), frozenset()
    needed = {key: amount * pods for key, amount in demand(as_map(pod.get("spec"))).items()}
    needed |= dict.fromkeys(_OBJECTS, Decimal(1))
    short: list[Shortage] = []
    notes: list[str] = []
    granted: set[str] = set()
    for quota in quotas:
        name = name_of(quota)
        spec = as_map(quota.get("spec"))
        applies = in_scope(spec, as_map(pod.get("spec")))
        if applies is False:
            continue
        if applies is None:
            notes.append(f"the quota {name} applies to some pods only (scopes); one pod was tried against it")
            continue
        status = as_map(quota.get("status"))
        hard = as_map(status.get("hard")) or as_map(spec.get("hard"))
        granted |= {key.removeprefix("requests.") for key, limit in hard.items() if "/" in key and quantity(limit)}
        short += _short(name, hard, as_map(status.get("used")), needed, pods)
    return tuple(short), tuple(notes), frozenset(granted)


def _short(
    name: str, limits: Unstructured, used: Unstructured, needed: dict[str, Decimal], pods: int
) -> Iterator[Shortage]:
    for resource, limit in limits.items():
        hard, taken = quantity(limit), quantity(used.get(resource, "0"))
        want = needed.get(resource)
        if want is None or hard is None or taken is None:
            continue
        room = max(hard - taken, Decimal(0))
        if want > room:
            over = f" ({_plain(taken)} used: more than that, since the quota was lowered)" if taken > hard else ""
            left = f"{_plain(room)} of {limit} left{over}"
            requester = "the trial" if resource in _OBJECTS else f"{pods} pods"
            in_use = want <= hard and resource not in _OBJECTS  # objects stay until they are deleted
            yield Shortage(name, resource, f"{_plain(want)} for {requester}", left, in_use)


def in_scope(quota: Unstructured, pod: Unstructured) -> bool | None:
    """Return whether a quota counts this pod; None for an unknown scope.

    https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes
    """
    answers = [_scope(scope, "Exists", [], pod) for scope in as_texts(quota.get("scopes"))]
    for term in as_list(as_map(quota.get("scopeSelector")).get("matchExpressions")):
        answers.append(_scope(term.get("scopeName"), term.get("operator"), as_texts(term.get("values")), pod))
    if False in answers:
        return False
    return None if None in answers else True


def _scope(name: Any, operator: Any, values: list[Any], pod: Unstructured) -> bool | None:
    ends = pod.get("activeDeadlineSeconds") is not None
    if name in ("Terminating", "NotTerminating"):
        return bool(ends == (name == "Terminating"))
    if name in ("BestEffort", "NotBestEffort"):
        resources = [as_map(c.get("resources")) for c in as_list(pod.get("containers"))]
        asks = any(each.get("requests") or each.get("limits") for each in resources)
        return bool(asks == (name == "NotBestEffort"))
    if name == "PriorityClass":
        own = pod.get("priorityClassName") or ""
        known = {"In": own in values, "NotIn": own not in values, "Exists": bool(own), "DoesNotExist": not own}
        return known.get(str(operator))
    return None


def demand(spec: Unstructured) -> dict[str, Decimal]:
    """Return one pod's amounts in a quota, by the quota's own keys.

    Containers and native sidecars add up; an ordinary init container counts if it requests more than their sum.
    """
    total: dict[str, Decimal] = {"pods": Decimal(1), "count/pods": Decimal(1)}
    inits = as_list(spec.get("initContainers"))
    sidecars = [c for c in inits if c.get("restartPolicy") == "Always"]
    for container in [*as_list(spec.get("containers")), *sidecars]:
        for key, amount in _container(container).items():
            total[key] = total.get(key, Decimal(0)) + amount
    for container in inits:
        if container not in sidecars:
            for key, amount in _container(container).items():
                total[key] = max(total.get(key, Decimal(0)), amount)
    return total


def _container(container: Unstructured) -> dict[str, Decimal]:
    resources = as_map(container.get("resources"))
    asked: dict[str, Decimal] = {}
    limits = as_map(resources.get("limits"))
    requests = {**limits, **as_map(resources.get("requests"))}  # a limit without a request also sets the request
    for kind, amounts in (("requests", requests), ("limits", limits)):
        for name, text in amounts.items():
            if (amount := quantity(text)) is None:
                continue
            asked[f"{kind}.{name}"] = amount
            if kind == "requests" and name in ("cpu", "memory", "ephemeral-storage"):
                asked[name] = amount  # quotas may use the bare name
    return asked


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}"
