"""The needs of pods that train across nodes like the accepted trial: each rule once, as CEL and as a function.

An admission policy uses the CEL in the API server (admission_policy.py); a reader of a manifest calls the function
(checks/rules/contract.py). tests/jobs/test_needs.py compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..cluster.unstructured import Unstructured, as_list, as_map, labels_of, whole
from .job_spec import JobSpec

NETWORKS = ("k8s.v1.cni.cncf.io/networks", "networking.gke.io/interfaces")
"""Annotations by which a pod requests secondary networks: Multus, and GKE's multi-networking."""
QUEUE = "kueue.x-k8s.io/queue-name"
_LOCKS = ("IPC_LOCK", "CAP_IPC_LOCK", "ALL")
# A sidecar runs together with the containers; any other init container has ended before they start.
SIDECAR = "has(c.restartPolicy) && c.restartPolicy == 'Always'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One rule: the fault of a violation, the requirement, and the test of an object."""

    fault: str
    needed: str  # in a few words
    message: str  # shown to a refused account
    cel: str  # true for an `object` that meets it
    met: Callable[[Unstructured], bool]


def needs_of(spec: JobSpec) -> Iterator[Need]:
    """Yield the needs of a pod with GPUs, by the spec of a trial."""
    whole_node = f"a pod with all {spec.gpus_per_node} {spec.gpu_resource} of a node"
    gpus = f"({amount_cel(spec.gpu_resource)})"
    for resource, amount in sorted(spec.resources.items()):
        given = f"({amount_cel(resource)})"
        # Containers that share the GPUs share the NICs, too; more than the trial had is never required.
        enough = f"{gpus} == 0 || {given} >= {amount} || {given} * {spec.gpus_per_node} >= {gpus} * {amount}"
        yield Need(
            fault="manifest.no-rdma",
            needed=f"{amount} {resource} with {spec.gpus_per_node} {spec.gpu_resource}",
            message=(
                f"{whole_node} must request {amount} {resource} in the containers with the GPUs, as in the accepted "
                "trial did: without it NCCL lacks NICs, and falls back to sockets or to fewer rails"
            ),
            cel=_each(enough),
            met=_enough(spec, resource, amount),
        )
    for key in NETWORKS:
        if key in spec.annotations:
            yield Need(
                fault="manifest.no-network",
                needed=f"annotation {key}",
                message=f"{whole_node} must attach the training networks (annotation {key} of the pod)",
                cel=f"has(object.metadata.annotations) && {quoted(key)} in object.metadata.annotations",
                met=lambda pod, key=key: key in as_map(as_map(pod.get("metadata")).get("annotations")),  # type: ignore[misc]
            )
    if "IPC_LOCK" in spec.capabilities:
        added = (
            "has(c.securityContext) && has(c.securityContext.capabilities) && "
            "has(c.securityContext.capabilities.add) && "
            f"c.securityContext.capabilities.add.exists(n, n in {list(_LOCKS)})"
        )
        free = "has(c.securityContext) && has(c.securityContext.privileged) && c.securityContext.privileged"
        yield Need(
            fault="manifest.no-ipc-lock",
            needed="capability IPC_LOCK",
            message=f"{whole_node} must have the capability IPC_LOCK: RDMA locks the memory that it registers",
            cel=_each(f"{gpus} == 0 || ({added}) || ({free})"),
            met=lambda pod: all(may_lock(c) for c in working(pod) if amount_of(c, spec.gpu_resource)),
        )


def queue_need(spec: JobSpec) -> Need | None:
    """Return the label by which Kueue admits a job; None without a queue."""
    if spec.queue is None or spec.queue.kind != "kueue":
        return None
    return Need(
        fault="manifest.no-queue",
        needed=f"label {QUEUE}",
        message=f"a training job must name its queue (label {QUEUE}): else it uses GPUs beyond the quota, or "
        "waits for pods that never start together",
        cel=f"has(object.metadata.labels) && {quoted(QUEUE)} in object.metadata.labels",
        met=lambda job: QUEUE in labels_of(job),
    )


def working(pod: Unstructured) -> list[Unstructured]:
    """Return the containers that run as long as the pod does, including sidecars."""
    spec = as_map(pod.get("spec"))
    sidecars = [each for each in as_list(spec.get("initContainers")) if each.get("restartPolicy") == "Always"]
    return as_list(spec.get("containers")) + sidecars


def amount_of(container: Mapping[str, object], resource: str) -> int:
    """Return how many of an extended resource a container requests: its limit, which the API copies to the request."""
    return max(0, whole(as_map(as_map(container.get("resources")).get("limits")).get(resource, 0)))


def may_lock(container: Mapping[str, object]) -> bool:
    """Return whether a container may lock any amount of memory, as root."""
    security = as_map(container.get("securityContext"))
    added = as_map(security.get("capabilities")).get("add")
    return security.get("privileged") is True or any(
        name in _LOCKS for name in (added if isinstance(added, list) else ())
    )


def _enough(spec: JobSpec, resource: str, amount: int) -> Callable[[Unstructured], bool]:
    def met(pod: Unstructured) -> bool:
        asked = ((amount_of(c, spec.gpu_resource), amount_of(c, resource)) for c in working(pod))
        return all(not gpus or given >= amount or given * spec.gpus_per_node >= gpus * amount for gpus, given in asked)

    return met


def amount_cel(resource: str) -> str:
    """Return the CEL expression for the amount of a resource that container c requests.

    The type checker omits fields with quantities as values (their OpenAPI type is a oneOf): "undefined field 'limits'".
    dyn() defers the check to run time. The API server converts 1000 to 1k, which quantity() parses.
    """
    limits = "dyn(c.resources).limits"
    return (
        f"has(c.resources) && has({limits}) && {quoted(resource)} in {limits} ? "
        f"quantity({limits}[{quoted(resource)}]).asInteger() : 0"
    )


def _each(condition: str) -> str:
    """Return the CEL condition that every container and every sidecar c of the pod meets a condition."""
    return (
        f"object.spec.containers.all(c, {condition}) && (!has(object.spec.initContainers) || "
        f"object.spec.initContainers.all(c, !({SIDECAR}) || ({condition})))"
    )


def quoted(value: str) -> str:
    """Return a CEL string literal; job_spec.py ensures that names of resources and labels have no quotes."""
    return f"'{value}'"
