"""Kubernetes' own Indexed Job: no operator, one pod per node, its index is its rank."""

from __future__ import annotations

from ...cluster.unstructured import Unstructured, labels_of
from .. import pod
from ..spec import TrialSpec
from .kind import Kind
from .queues import pod_annotations, queue_allowance, scheduler


class IndexedJob(Kind):
    """batch/v1 Job with completionMode Indexed (https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/)."""

    name = "indexed"
    group, version, resource, kind = "batch", "v1", "jobs", "Job"

    def job(self, spec: TrialSpec) -> Unstructured:
        """One pod per node, no retry, a deadline, a TTL."""
        shape = pod.PodShape(annotations=pod_annotations(spec), scheduler=scheduler(spec))
        # Of a trial one lost pod ends all. A sweep goes on with the rest: what others take away does not count, and a
        # pod that fails may come back, as long as the coordinator lasts.
        action = "Ignore" if spec.sweep else "FailJob"
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self.meta(spec),
            "spec": {
                "suspend": True,
                "completionMode": "Indexed",
                "completions": spec.nodes,
                "parallelism": spec.nodes,
                "backoffLimit": 2 * spec.nodes if spec.sweep else 0,
                "activeDeadlineSeconds": int(spec.deadlines.job_s + queue_allowance(spec)),
                "ttlSecondsAfterFinished": int(spec.deadlines.ttl_s),
                # Ends the Job at once and names the pod when others take one away, instead of blaming its exit code.
                "podFailurePolicy": {
                    "rules": [{"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
                },
                "template": pod.template(spec, shape),
            },
        }

    def service_selector(self, spec: TrialSpec) -> dict[str, str]:
        """The Job's own pods."""
        return {"batch.kubernetes.io/job-name": spec.job_name}

    def selector(self, name: str) -> str:
        """The label that the Job controller sets."""
        return f"batch.kubernetes.io/job-name={name}"

    def as_job(self, raw: Unstructured) -> Unstructured:
        """It is one."""
        return dict(raw)

    def belongs(self, pod: Unstructured, name: str) -> bool:
        """By the label, also in its form without a prefix."""
        pod_labels = labels_of(pod)
        return bool(name) and name in (pod_labels.get("batch.kubernetes.io/job-name"), pod_labels.get("job-name"))
