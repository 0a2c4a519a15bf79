"""Kubernetes' own Indexed Job: no operator, one pod per node, and its index is its rank."""

from __future__ import annotations

from ...cluster.unstructured import Unstructured, labels_of
from .. import pod
from ..job_spec import JobSpec
from .kind import Kind
from .queues import pod_annotations, scheduler


class IndexedJob(Kind):
    """batch/v1 Job with completionMode Indexed (https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/)."""

    name = "indexed"
    group, version, resource, kind = "batch", "v1", "jobs", "Job"

    def job(self, spec: JobSpec) -> Unstructured:
        """Build it: one pod per node, no retry, a TTL, and a deadline if the spec has one."""
        shape = pod.PodShape(annotations=pod_annotations(spec), scheduler=scheduler(spec))
        # One lost pod ends all. A sweep continues with the rest: external disruptions do not count, and failed pods may
        # be replaced while the coordinator runs.
        action = "Ignore" if spec.outlives_pods else "FailJob"
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self.meta(spec),
            "spec": ({"activeDeadlineSeconds": spec.active_s} if spec.active_s else {})
            | {
                "suspend": True,
                "completionMode": "Indexed",
                "completions": spec.nodes,
                "parallelism": spec.nodes,
                "backoffLimit": 2 * spec.nodes if spec.outlives_pods else 0,
                "ttlSecondsAfterFinished": spec.kept_s,
                # Ends the Job at once after an external deletion of a pod, and names the pod instead of its exit code.
                "podFailurePolicy": {
                    "rules": [{"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
                },
                "template": pod.template(spec, shape),
            },
        }

    def service_selector(self, spec: JobSpec) -> dict[str, str]:
        """Return a selector of the Job's own pods."""
        return {"batch.kubernetes.io/job-name": spec.job_name}

    def selector(self, name: str) -> str:
        """Return the label that the Job controller sets."""
        return f"batch.kubernetes.io/job-name={name}"

    def as_job(self, raw: Unstructured) -> Unstructured:
        """Return the Job unchanged."""
        return dict(raw)

    def belongs(self, pod: Unstructured, name: str) -> bool:
        """Compare the label, also in its older form without a prefix."""
        pod_labels = labels_of(pod)
        return bool(name) and name in (pod_labels.get("batch.kubernetes.io/job-name"), pod_labels.get("job-name"))
