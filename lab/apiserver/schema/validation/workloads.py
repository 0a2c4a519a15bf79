"""Validation of Deployments and the other workloads, on creation and on update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import selectors
from ..errors import Cause, forbidden_field, invalid_value, required, unsupported
from . import metadata, pods

if TYPE_CHECKING:
    from ..values import Object

NOT_NEGATIVE = "must be greater than or equal to 0"


def _common(obj: Object, word: str) -> list[Cause]:
    spec = obj.get("spec", {})
    causes: list[Cause] = []
    for name in ("replicas", "minReadySeconds", "revisionHistoryLimit"):
        if isinstance(spec.get(name), int) and spec[name] < 0:
            causes.append(invalid_value(f"spec.{name}", spec[name], NOT_NEGATIVE))
    selector = spec.get("selector")
    template = spec.get("template", {})
    if selector is None:
        causes.append(required("spec.selector"))
    else:
        causes += metadata.selector(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            causes.append(invalid_value("spec.selector", selector, f"empty selector is invalid for {word}"))
    labels = template.get("metadata", {}).get("labels") or {}
    if selector is not None and not any(c.field.startswith("spec.selector") for c in causes):
        if not selectors.labels(selector)(labels):
            text = "`selector` does not match template `labels`"
            causes.append(invalid_value("spec.template.metadata.labels", labels, text))
    elif selector is None:
        text = "`selector` does not match template `labels`"
        causes.append(invalid_value("spec.template.metadata.labels", labels, text))
    causes += pods.template(template, "spec.template")
    policy = template.get("spec", {}).get("restartPolicy")
    if policy in ("OnFailure", "Never"):
        causes.append(unsupported("spec.template.spec.restartPolicy", policy, ["Always"]))
    if template.get("spec", {}).get("activeDeadlineSeconds") is not None:
        text = "activeDeadlineSeconds in ReplicaSet is not Supported"
        causes.append(forbidden_field("spec.template.spec.activeDeadlineSeconds", text))
    return causes


def deployment(obj: Object) -> list[Cause]:
    """Validate a Deployment."""
    causes = _common(obj, "deployment")
    strategy = obj.get("spec", {}).get("strategy", {})
    if strategy.get("type") not in ("Recreate", "RollingUpdate"):
        causes.append(unsupported("spec.strategy.type", strategy.get("type"), ["Recreate", "RollingUpdate"]))
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate"):
        text = "may not be specified when strategy `type` is 'Recreate'"
        causes.append(forbidden_field("spec.strategy.rollingUpdate", text))
    return causes


def replica_set(obj: Object) -> list[Cause]:
    """Validate a ReplicaSet."""
    return _common(obj, "deployment")


def daemon_set(obj: Object) -> list[Cause]:
    """Validate a DaemonSet."""
    return _common(obj, "daemonset")


def selector_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a workload with a fixed selector."""
    before, after = old.get("spec", {}).get("selector"), new.get("spec", {}).get("selector")
    return [] if before == after else [invalid_value("spec.selector", after, "field is immutable")]


def disruption_budget(obj: Object) -> list[Cause]:
    """Validate a PodDisruptionBudget."""
    spec = obj.get("spec", {})
    causes = metadata.selector(spec.get("selector"), "spec.selector")
    for name in ("minAvailable", "maxUnavailable"):
        if isinstance(spec.get(name), int) and spec[name] < 0:
            causes.append(invalid_value(f"spec.{name}", spec[name], NOT_NEGATIVE))
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.append(invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    return causes
