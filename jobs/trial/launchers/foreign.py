"""Kinds of objects that launch foreign jobs: read and explained, never created.

Sources: kubernetes-sigs/jobset api/jobset/v1alpha2/jobset_types.go; ray-project/kuberay ray-operator/apis/ray/v1 and
controllers/ray/common/pod.go (labels), controllers/ray/utils (names); Kubernetes, StatefulSet (pod names and labels).
"""

from __future__ import annotations

import re

from ...cluster.unstructured import Unstructured, as_list, as_map, labels_of, name_of
from .kind import INDEX, MOST_REPLICAS, Kind, number, retold, whole

_ENDLESS = 1 << 30
"""The backoffLimit of a job that restarts its pods for ever."""


class JobSet(Kind):
    """jobset.x-k8s.io/v1alpha2 JobSet: several Jobs; if there is only one, its completion index is the rank."""

    name, operator = "jobset", "jobset-controller"
    group, version, resource, kind = "jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"

    def selector(self, name: str) -> str:
        """Return the label that its controller sets on all pods."""
        return f"jobset.sigs.k8s.io/jobset-name={name}"

    def as_job(self, raw: Unstructured) -> Unstructured:
        """Convert a JobSet; Completed becomes Complete, and its pods are those of all its Jobs."""
        spec = as_map(raw.get("spec"))
        pods = sum(
            whole(each.get("replicas"), 1)
            * whole(as_map(as_map(each.get("template")).get("spec")).get("parallelism"), 1)
            for each in as_list(spec.get("replicatedJobs"))
        )
        conditions = {"Completed": "Complete", "Failed": "Failed", "Suspended": "Suspended"}
        backoff = whole(as_map(spec.get("failurePolicy")).get("maxRestarts"), 0)
        return retold(raw, conditions, pods=pods or 1, suspended=spec.get("suspend"), backoff=backoff)

    def index(self, pod: Unstructured) -> int:
        """Return the completion index for the first of its Jobs; MOST_REPLICAS for others: their rank is unknown."""
        first = labels_of(pod).get("jobset.sigs.k8s.io/job-global-index", "0") == "0"
        return number(pod, INDEX) if first else MOST_REPLICAS

    def templates(self, raw: Unstructured) -> list[Unstructured]:
        """Return one for each of its Jobs."""
        jobs = as_list(as_map(raw.get("spec")).get("replicatedJobs"))
        return [as_map(as_map(as_map(each.get("template")).get("spec")).get("template")) for each in jobs]

    def children(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the usual names of the Job of a single replicated job."""
        return tuple(("Job", f"{name}-{each}-0") for each in ("node", "worker", "workers", "main"))


class RayJob(Kind):
    """ray.io/v1 RayJob; its pods are those of a RayCluster that it creates, whose name begins with its own."""

    name, operator, container = "rayjob", "kuberay-operator", "ray-head"
    group, version, resource, kind = "ray.io", "v1", "rayjobs", "RayJob"

    def selector(self, name: str) -> str:
        """Return a selector of every RayCluster's pods; `belongs` selects this job's by the cluster's name."""
        del name
        return "ray.io/cluster"

    def belongs(self, pod: Unstructured, name: str) -> bool:
        """Compare the cluster's name: NAME-xxxxx since KubeRay 1.4, NAME-raycluster-xxxxx before."""
        cluster = str(labels_of(pod).get("ray.io/cluster") or "")
        return cluster == name or bool(re.fullmatch(rf"{re.escape(name)}-(?:raycluster-)?[a-z0-9]{{5}}", cluster))

    def as_job(self, raw: Unstructured) -> Unstructured:
        """Convert a RayJob; its state is in jobStatus and jobDeploymentStatus."""
        spec, status = as_map(raw.get("spec")), as_map(raw.get("status"))
        groups = as_list(as_map(spec.get("rayClusterSpec")).get("workerGroupSpecs"))
        workers = sum(whole(each.get("replicas"), 1) * whole(each.get("numOfHosts"), 1) for each in groups)
        reached = {
            "Complete": status.get("jobStatus") == "SUCCEEDED" or status.get("jobDeploymentStatus") == "Complete",
            "Failed": status.get("jobStatus") in ("FAILED", "STOPPED") or status.get("jobDeploymentStatus") == "Failed",
        }
        state = "Failed" if reached["Failed"] else "Complete" if reached["Complete"] else ""
        condition = {"type": state, "status": "True", "reason": status.get("reason"), "message": status.get("message")}
        converted = {**raw, "status": {"conditions": [condition], "startTime": status.get("startTime")}}
        conditions = {"Complete": "Complete", "Failed": "Failed"}
        return retold(converted, conditions, pods=1 + workers, suspended=spec.get("suspend"), backoff=_ENDLESS)

    def not_known_yet(self, raw: Unstructured) -> bool:
        """Return whether its status is empty; its operator writes a state immediately."""
        return not as_map(raw.get("status"))

    def index(self, pod: Unstructured) -> int:
        """Return 0 for the head; MOST_REPLICAS for workers, whose rank is unknown."""
        return 0 if labels_of(pod).get("ray.io/node-type") == "head" else MOST_REPLICAS

    def templates(self, raw: Unstructured) -> list[Unstructured]:
        """Return those of the head and of each group of workers."""
        cluster = as_map(as_map(raw.get("spec")).get("rayClusterSpec"))
        groups = [as_map(cluster.get("headGroupSpec")), *as_list(cluster.get("workerGroupSpecs"))]
        return [as_map(each.get("template")) for each in groups]


class StatefulSet(Kind):
    """apps/v1 StatefulSet with workers as pods: it never completes, and restarts terminated pods."""

    name = "statefulset"
    group, version, resource, kind = "apps", "v1", "statefulsets", "StatefulSet"
    operator = "kube-controller-manager"

    def selector(self, name: str) -> str:
        """Return a selector of every StatefulSet's pods; `belongs` selects this one's by their names."""
        del name
        return "statefulset.kubernetes.io/pod-name"

    def belongs(self, pod: Unstructured, name: str) -> bool:
        """Match the names NAME-0, NAME-1, ..."""
        return bool(re.fullmatch(rf"{re.escape(name)}-\d{{1,6}}", name_of(pod)))

    def as_job(self, raw: Unstructured) -> Unstructured:
        """Convert a StatefulSet; no condition reports an end."""
        replicas = whole(as_map(raw.get("spec")).get("replicas"), 1)
        return retold(raw, {}, pods=replicas, suspended=False, backoff=_ENDLESS)

    def not_known_yet(self, raw: Unstructured) -> bool:
        """Return whether its status is empty; its controller writes the number of pods immediately."""
        return not as_map(raw.get("status"))

    def index(self, pod: Unstructured) -> int:
        """Return the number at the end of the pod's name."""
        return int(name_of(pod).rpartition("-")[2])


def unread(kind: Kind, name: str, pods: list[Unstructured]) -> Unstructured:
    """Describe a job from its pods, as a batch/v1 Job, if this account may not get its object."""
    phases = [str(as_map(pod.get("status")).get("phase")) for pod in pods]
    begun = min((str(as_map(pod.get("metadata")).get("creationTimestamp") or "") for pod in pods), default="")
    ended = {"type": "Complete", "status": "True"} if {*phases} == {"Succeeded"} else {}
    ranks = [index for pod in pods if (index := kind.index(pod)) < MOST_REPLICAS]
    size = max(len(pods), max(ranks, default=0) + 1)
    never = any(as_map(pod.get("spec")).get("restartPolicy") == "Never" for pod in pods)
    return {
        "apiVersion": "batch/v1",
        "metadata": {"name": name, "creationTimestamp": begun},
        "spec": {
            "parallelism": size,
            "completions": size,
            "completionMode": "Indexed",
            "backoffLimit": 0 if never else _ENDLESS,
        },
        "status": {"conditions": [ended] if ended else []},
    }
