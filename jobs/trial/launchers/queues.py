"""The queue's requirements on a trial's objects: for Kueue a label (kind.py), for Volcano a PodGroup and its scheduler.

We create the PodGroup for every launcher: an operator creates one only if it was started with gang scheduling. Sources:
https://kueue.sigs.k8s.io/docs/tasks/run/, https://volcano.sh/en/docs/podgroup/.
"""

from __future__ import annotations

from ...cluster.unstructured import Unstructured, quantity
from ..job_spec import JobSpec
from ..pod import resources

VOLCANO = "volcano"
KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_VERSIONS = ("v1beta2", "v1beta1")
GROUP_NAME = "scheduling.k8s.io/group-name"
"""The annotation by which Volcano's scheduler finds a pod's group (volcano.sh/apis, scheduling/v1beta1/labels.go)."""


def scheduler(spec: JobSpec) -> str | None:
    """Return the scheduler of pods that belong to a group; None without a group."""
    return VOLCANO if spec.queue is not None and spec.queue.kind == VOLCANO else None


def pod_annotations(spec: JobSpec) -> dict[str, str]:
    """Return a pod's reference to its group."""
    return {GROUP_NAME: spec.job_name} if scheduler(spec) else {}


def pod_group(spec: JobSpec, meta: Unstructured) -> Unstructured:
    """Return the PodGroup of all ranks (scheduling.volcano.sh/v1beta1); an MPIJob's launcher is not in it."""
    queue = spec.queue
    group_spec: Unstructured = {"minMember": spec.nodes}
    if queue is not None and queue.name:
        group_spec["queue"] = queue.name
    if queue is not None and queue.priority_class:
        group_spec["priorityClassName"] = queue.priority_class
    if needed := _all(spec):
        group_spec["minResources"] = needed
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": meta, "spec": group_spec}


def _all(spec: JobSpec) -> dict[str, str]:
    """Return the sum of all ranks' requests: Volcano admits the group only if its queue has it."""
    asked = resources(spec).get("requests") or {}
    amounts = {name: quantity(text) for name, text in asked.items()}
    return {name: f"{(amount * spec.nodes).normalize():f}" for name, amount in amounts.items() if amount is not None}
