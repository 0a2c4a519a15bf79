"""Mutation rules: what a mutating webhook or policy changed in the pod that was asked for.

Rule: what is added is the cluster's business (sidecars, labels, defaults, a mirror's image); what training asked for
and would not get is a fault. Less CPU or memory requested is told and not judged: it moves pods, and breaks none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobs.cluster.quantity import quantity
from jobs.cluster.redact import MASK, secret_name
from jobs.cluster.unstructured import Unstructured
from reports.record import Finding

from .findings import failed

SHARED = ("cpu", "memory", "ephemeral-storage")
"""Resources that a request reserves and a limit bounds; of all others both are the number of devices."""
PLAIN = ("hostname", "subdomain", "hostNetwork", "runtimeClassName")
"""Fields of a pod without which it is another one: who finds it, which network and runtime it has."""
NOTED = ("schedulerName", "priorityClassName", "serviceAccountName", "dnsPolicy")
"""Fields that clusters set for good reasons (a gang scheduler, a queue): told, since training gets the same."""

LOG = "NCCL_DEBUG"
"""How the variables of NCCL's log begin: training may want it quiet; the trial's collectives set them."""


def mutation_findings(asked: Unstructured, admitted: Unstructured) -> Iterator[Finding]:
    """Compare a pod with what the server made of it in a dry run; one finding for each thing that was taken away."""
    for subject, asked_value, got in _losses(asked, admitted):
        yield failed(
            subject,
            f"{got} in the pod that the server would run",
            f"{asked_value}, as the profile has the pod ask",
            "admission.changed",
        )


def mutation_notes(asked: Unstructured, admitted: Unstructured) -> Iterator[str]:
    """Say what was changed and harms nothing by itself."""
    before, after = asked.get("spec") or {}, admitted.get("spec") or {}
    for key in NOTED:
        if key in before and before[key] != after.get(key):
            yield f"the server would run the pod with {key} {after.get(key)}, not {before[key]}"
    for name, mine, theirs in _containers(before, after):
        if theirs and mine.get("image") != theirs.get("image"):
            yield f"the server would run container {name} of {theirs.get('image')}, not {mine.get('image')}"
        for resource, asked_value, got in _less(_resources(mine, "requests"), _resources(theirs, "requests")):
            if resource in SHARED:
                yield f"the server would reserve {got} {resource} for container {name}, not {asked_value}"


def _losses(asked: Unstructured, admitted: Unstructured) -> Iterator[tuple[str, str, str]]:
    """Yield what was taken away: where, what was asked for, what is there."""
    before, after = asked.get("spec") or {}, admitted.get("spec") or {}
    yield from _values("annotation", _of(asked, "metadata", "annotations"), _of(admitted, "metadata", "annotations"))
    yield from _values("nodeSelector", before.get("nodeSelector") or {}, after.get("nodeSelector") or {})
    yield from _values("pod", {key: before[key] for key in PLAIN if before.get(key)}, after)
    yield from _members("toleration of", before.get("tolerations"), after.get("tolerations"), "key")
    yield from _members("volume", before.get("volumes"), after.get("volumes"), "name")
    sizes = {str(each.get("name")): _of(each, "emptyDir") for each in after.get("volumes") or []}
    for each in before.get("volumes") or []:
        mine, theirs = _of(each, "emptyDir").get("sizeLimit"), sizes.get(str(each.get("name")), {}).get("sizeLimit")
        if mine and theirs and (quantity(theirs) or 0) < (quantity(mine) or 0):
            yield f"volume {each.get('name')} sizeLimit", str(mine), str(theirs)
    yield from _members("claim", before.get("resourceClaims"), after.get("resourceClaims"), "name")
    for name, mine, theirs in _containers(before, after):
        if not theirs:
            yield f"container {name}", "there", "not"
        else:
            yield from _of_container(name, mine, theirs)


def _of_container(name: str, mine: Unstructured, theirs: Unstructured) -> Iterator[tuple[str, str, str]]:
    for kind in ("limits", "requests"):
        for resource, asked_amount, got in _less(_resources(mine, kind), _resources(theirs, kind)):
            if kind == "limits" or (resource not in SHARED and resource not in _resources(mine, "limits")):
                yield f"{name} {resource}", asked_amount, got
    wanted_caps = _of(mine, "securityContext", "capabilities").get("add") or []
    had = _of(theirs, "securityContext", "capabilities").get("add") or []
    for capability in wanted_caps:
        if capability not in had and "ALL" not in had:
            yield f"{name} capability {capability}", "added", "not added"
    if (_of(mine, "securityContext").get("privileged")) and not _of(theirs, "securityContext").get("privileged"):
        yield f"{name} privileged", "true", "false"
    yield from _members(f"{name} mount", mine.get("volumeMounts"), theirs.get("volumeMounts"), "mountPath")
    env_after = {str(each.get("name")): each for each in theirs.get("env") or []}
    for each in mine.get("env") or []:
        variable, got = str(each.get("name")), env_after.get(str(each.get("name")), {})
        if variable.startswith(LOG):
            continue
        if "value" in each and each["value"] != got.get("value", ""):
            hidden = secret_name(variable)
            asked, there = (MASK, "another value") if hidden else (each["value"], str(got.get("value", "not set")))
            yield f"{name} variable {variable}", asked, there
        elif variable not in env_after:
            yield f"{name} variable {variable}", "set", "not set"


def _containers(before: Unstructured, after: Unstructured) -> Iterator[tuple[str, Unstructured, Unstructured]]:
    """Pair each container that was asked for with what became of it."""
    for part in ("containers", "initContainers"):
        admitted = {str(each.get("name")): each for each in after.get(part) or []}
        for mine in before.get(part) or []:
            yield str(mine.get("name")), mine, admitted.get(str(mine.get("name")), {})


def _values(what: str, asked: Unstructured, got: Unstructured) -> Iterator[tuple[str, str, str]]:
    for key, value in asked.items():
        if got.get(key) != value:
            yield f"{what} {key}", str(value), str(got.get(key, "not there"))


def _members(
    what: str, asked: Iterable[Unstructured] | None, got: Iterable[Unstructured] | None, key: str
) -> Iterator[tuple[str, str, str]]:
    have = {str(each.get(key)) for each in got or []}
    for each in asked or []:
        if str(each.get(key)) not in have:
            yield f"{what} {each.get(key)}", "there", "not there"


def _less(before: Unstructured, after: Unstructured) -> Iterator[tuple[str, str, str]]:
    """Yield each resource of which there is less than was asked for, and no limit where none is there any more."""
    for resource, amount in before.items():
        asked, there = quantity(amount), quantity(after.get(resource, 0))
        if resource in SHARED and resource not in after:
            continue  # no limit bounds nothing
        if asked is not None and there is not None and there < asked:
            yield resource, str(amount), str(after.get(resource, "none"))


def _resources(container: Unstructured, kind: str) -> Unstructured:
    return _of(container, "resources", kind)


def _of(obj: Unstructured, *keys: str) -> Unstructured:
    for key in keys:
        obj = obj.get(key) or {}
    return obj
