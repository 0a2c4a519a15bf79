"""Defaults of Jobs, Deployments and the other workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import pods

if TYPE_CHECKING:
    from ..values import Object


def job(obj: Object) -> None:
    """Set the defaults of a Job."""
    job_spec(obj.setdefault("spec", {}))


def job_spec(spec: Object) -> None:
    """Set the defaults of a JobSpec."""
    spec.setdefault("completionMode", "NonIndexed")
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
        spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    if "backoffLimit" not in spec:
        # With a limit for each index the total is unlimited (math.MaxInt32).
        spec["backoffLimit"] = 2147483647 if spec.get("backoffLimitPerIndex") is not None else 6
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    policy = spec.get("podFailurePolicy")
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if policy is None else "Failed")
    for rule in (policy or {}).get("rules") or []:
        for pattern in rule.get("onPodConditions") or []:
            pattern.setdefault("status", "True")
    pods.template(spec.setdefault("template", {}))


def cron_job(obj: Object) -> None:
    """Set the defaults of a CronJob."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    inner = template.setdefault("spec", {})
    pods.template(inner.setdefault("template", {}))


def deployment(obj: Object) -> None:
    """Set the defaults of a Deployment."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    pods.template(spec.setdefault("template", {}))


def replica_set(obj: Object) -> None:
    """Set the defaults of a ReplicaSet."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    pods.template(spec.setdefault("template", {}))


def replication_controller(obj: Object) -> None:
    """Set the defaults of a ReplicationController."""
    replica_set(obj)
    labels = obj["spec"]["template"]["metadata"].get("labels")
    if labels:
        obj["spec"].setdefault("selector", dict(labels))


def daemon_set(obj: Object) -> None:
    """Set the defaults of a DaemonSet."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    pods.template(spec.setdefault("template", {}))
