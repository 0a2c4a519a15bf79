"""Admission rules: server-side dry runs of the trial's pods, and the changes in them; nothing is created.

Rule: the pod is tried as a Pod. A Job is accepted even if its pods violate a policy, with a `Warning:` header at most;
its pods are rejected later, in events.

Additions by a mutating webhook or policy are the cluster's choice (sidecars, labels, defaults, a mirror's image).
Removing or replacing what training requests is a fault. A lower CPU or memory request is reported but not judged: it
changes scheduling, and breaks no pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jobs.cluster.client.errors import ApiError, Forbidden, NotFound
from jobs.cluster.client.kube import Kube, path
from jobs.cluster.redact import MASK, secret_name
from jobs.cluster.unstructured import Unstructured, as_map, quantity
from jobs.diagnosis.refusals import is_policys, read_refusal
from jobs.run.creation import roles_known
from reports.record import Finding

from .findings import failed
from .quota import Shortage, shortages

QUOTA_FAULTS = ("quota.exceeded", "quota.in-use")
GATES = (
    "admission.webhook-down",
    "pod-security.denied",
    *QUOTA_FAULTS,
    "limitrange.denied",
    "runtimeclass.missing",
    "priorityclass.missing",
    "serviceaccount.missing",
)
NO_RIGHT = re.compile(r"User \".*\" cannot create resource")
NO_DRY_RUN = re.compile(r"does not support dry run", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The result of the dry run. ``ok`` None: it could not be determined."""

    ok: bool | None
    observed: str
    fault: str = ""
    subject: str = ""  # the quota, webhook, policy or class that rejected the pod, if the server names it
    notes: tuple[str, ...] = ()
    confirm: str = ""  # specific to the rejection, if its text says more than the fault
    remedy: str = ""
    shortages: tuple[Shortage, ...] = ()
    changes: tuple[Finding, ...] = ()  # items of the requested pod that the admitted one lacks
    granted: frozenset[str] = frozenset()  # the resources, as a pod names them, that quotas grant
    pod: Unstructured | None = None  # as the cluster would run it: with additions by webhooks and defaults


def try_pods(kube: Kube, pod: Unstructured, job: Unstructured, pods: int) -> Admission:
    """Dry-run one pod of the trial, and compare the quotas with all pods; without that permission, try its Job."""
    try:
        answer = kube.create(path("pods", namespace=kube.namespace), pod, dry_run=True)
    except ApiError as error:
        if isinstance(error, Forbidden) and NO_RIGHT.search(error.message):
            return _try_job(kube, job)
        refused = refusal(error, pods)
        if refused.fault in QUOTA_FAULTS:  # the server checks only one pod's share of the quota
            short, notes, granted = shortages(kube, pod, pods)
            refused = _short(short, notes, granted, None) if short else refused
        return refused
    short, notes, granted = shortages(kube, answer.body, pods)
    if short:
        return _short(short, notes, granted, answer.body)
    notes = (*answer.warnings, *notes, *mutation_notes(pod, answer.body))
    if changes := tuple(mutation_findings(pod, answer.body)):
        return Admission(
            ok=False,
            observed="admitted as another pod",
            fault="admission.changed",
            changes=changes,
            notes=notes,
            granted=granted,
            pod=answer.body,
        )
    return Admission(ok=True, observed="admitted (dry run)", notes=notes, granted=granted, pod=answer.body)


def _short(
    short: tuple[Shortage, ...], notes: tuple[str, ...], granted: frozenset[str], pod: Unstructured | None
) -> Admission:
    return Admission(
        ok=None if all(each.in_use for each in short) else False,
        observed="quota exceeded",
        fault="quota.exceeded",
        shortages=short,
        notes=notes,
        granted=granted,
        pod=pod,
    )


def _try_job(kube: Kube, job: Unstructured) -> Admission:
    """Try the Job if pods may not be created, and read the PodSecurity warnings in the response."""
    try:
        place = path("jobs", namespace=kube.namespace, group="batch")
        answer = roles_known(lambda: kube.create(place, job, dry_run=True))
    except ApiError as error:
        return refusal(error)
    note = (
        "no permission to create pods: only the Job was tried, so a quota or webhook that refuses its pods is not seen"
    )
    if said := [w for w in answer.warnings if "PodSecurity" in w]:
        enforced, warned = _enforced(kube), re.search(r'PodSecurity "(\w+)', said[0])
        if enforced != LEVELS[0]:
            known = enforced in LEVELS and warned is not None and warned[1] in LEVELS[: LEVELS.index(enforced) + 1]
            return Admission(ok=False if known else None, observed=said[0], fault="pod-security.denied", notes=(note,))
    return Admission(ok=True, observed="the Job is admitted (dry run)", notes=(note, *answer.warnings))


LEVELS = ("privileged", "baseline", "restricted")
"""Levels of the Pod Security Standards, from loosest to strictest: each rejects everything that a looser one rejects.
"""


def _enforced(kube: Kube) -> str | None:
    """Return the Pod Security level that the namespace's label enforces; None if it has none or is not visible.

    For a Job the API server evaluates only the warn label: whether its pods are rejected depends on enforce
    (https://kubernetes.io/docs/concepts/security/pod-security-admission/#workload-resources-and-pod-templates).
    """
    try:
        labels = as_map(as_map(kube.get(path("namespaces", kube.namespace)).get("metadata")).get("labels"))
    except ApiError:
        return None
    level = labels.get("pod-security.kubernetes.io/enforce")
    return str(level) if level else None


def refusal(error: ApiError, pods: int = 1) -> Admission:
    """Name the component that rejected the pod; '' for other errors (a webhook without dry run, a lost server)."""
    read = read_refusal(error.message, pods)
    known = read.fault in GATES or is_policys(error.message)
    if NO_DRY_RUN.search(error.message):
        return Admission(ok=None, observed=error.message, fault="admission.no-dry-run", subject=read.subject)
    if isinstance(error, NotFound) or not (known or isinstance(error, Forbidden)):
        return Admission(ok=None, observed=error.message or error.reason)
    fault = read.fault if read.fault in GATES or read.fault == "namespace.terminating" else "admission.denied"
    ok = None if read.in_use else False
    notes = (read.suggestion,) if read.suggestion else ()
    return Admission(
        ok=ok,
        observed=error.message,
        fault=fault,
        subject=read.subject,
        notes=notes,
        confirm=read.confirm,
        remedy=read.remedy,
    )


SHARED = ("cpu", "memory", "ephemeral-storage")
"""Resources that a request reserves and a limit bounds; for all others both are the number of devices."""
PLAIN = ("hostname", "subdomain", "hostNetwork", "runtimeClassName")
"""Fields of a pod that must not change: its DNS name, its network and its runtime."""
NOTED = ("schedulerName", "priorityClassName", "serviceAccountName", "dnsPolicy")
"""Fields that clusters set for good reasons (a gang scheduler, a queue): reported only, since training gets the same.
"""

LOG = "NCCL_DEBUG"
"""The prefix of NCCL's log variables: training may disable the log; the trial's collectives set them."""


def mutation_findings(asked: Unstructured, admitted: Unstructured) -> Iterator[Finding]:
    """Compare a pod with the server's version of it in a dry run; one finding for each removed item."""
    for subject, asked_value, got in _losses(asked, admitted):
        observed = f"{got} in the pod that the server would run"
        yield failed(subject, observed, f"{asked_value}, as requested by the profile's pod", "admission.changed")


def mutation_notes(asked: Unstructured, admitted: Unstructured) -> Iterator[str]:
    """List harmless changes."""
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
    """Yield each removed item: place, requested value, admitted value."""
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
    """Pair each requested container with its admitted version."""
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
    """Yield each resource with a lower amount than requested, except limits that were removed."""
    for resource, amount in before.items():
        asked, there = quantity(amount), quantity(after.get(resource, 0))
        if resource in SHARED and resource not in after:
            continue  # a removed limit restricts nothing
        if asked is not None and there is not None and there < asked:
            yield resource, str(amount), str(after.get(resource, "none"))


def _resources(container: Unstructured, kind: str) -> Unstructured:
    return _of(container, "resources", kind)


def _of(obj: Unstructured, *keys: str) -> Unstructured:
    for key in keys:
        obj = obj.get(key) or {}
    return obj
