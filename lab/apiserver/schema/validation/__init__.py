"""Validation by kind; every finding is a `Cause`.

Messages are those of k8s.io/kubernetes pkg/apis/*/validation as a 1.36 server sends them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import custom, definitions, events, jobs, limits, metadata, others, pods, rbac, services, workloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..errors import Cause
    from ..kinds import Kind
    from ..values import Object

    Check = Callable[[Object], list[Cause]]
    Change = Callable[[Object, Object], list[Cause]]

CHECKS: dict[str, Check] = {
    "pods": pods.pod,
    "jobs.batch": jobs.job,
    "cronjobs.batch": jobs.cron_job,
    "deployments.apps": workloads.deployment,
    "replicasets.apps": workloads.replica_set,
    "daemonsets.apps": workloads.daemon_set,
    "services": services.service,
    "configmaps": others.config_map,
    "secrets": others.secret,
    "events": events.event,
    "nodes": others.node,
    "namespaces": others.namespace,
    "leases.coordination.k8s.io": others.lease,
    "persistentvolumeclaims": others.claim,
    "resourcequotas": others.quota,
    "limitranges": limits.limit_range,
    "runtimeclasses.node.k8s.io": others.runtime_class,
    "priorityclasses.scheduling.k8s.io": others.priority_class,
    "storageclasses.storage.k8s.io": others.storage_class,
    "roles.rbac.authorization.k8s.io": rbac.role,
    "clusterroles.rbac.authorization.k8s.io": rbac.cluster_role,
    "rolebindings.rbac.authorization.k8s.io": rbac.role_binding,
    "clusterrolebindings.rbac.authorization.k8s.io": rbac.cluster_role_binding,
    "customresourcedefinitions.apiextensions.k8s.io": definitions.definition,
    "poddisruptionbudgets.policy": workloads.disruption_budget,
    "networkpolicies.networking.k8s.io": services.network_policy,
}
CHANGES: dict[str, Change] = {
    "pods": pods.pod_change,
    "jobs.batch": jobs.job_change,
    "deployments.apps": workloads.selector_change,
    "replicasets.apps": workloads.selector_change,
    "daemonsets.apps": workloads.selector_change,
    "services": services.service_change,
    "configmaps": others.config_map_change,
    "secrets": others.secret_change,
    "persistentvolumeclaims": others.claim_change,
    "resourcequotas": others.quota_change,
    "runtimeclasses.node.k8s.io": others.runtime_class_change,
    "priorityclasses.scheduling.k8s.io": others.priority_class_change,
    "storageclasses.storage.k8s.io": others.storage_class_change,
    "rolebindings.rbac.authorization.k8s.io": rbac.binding_change,
    "clusterrolebindings.rbac.authorization.k8s.io": rbac.binding_change,
}


def check(kind: Kind, obj: Object) -> list[Cause]:
    """Return everything that is wrong with an object."""
    found = metadata.check(kind.key, obj, namespaced=kind.namespaced)
    if kind.custom:
        return found + custom.check(kind, obj)
    checker = CHECKS.get(kind.key)
    return found + (checker(obj) if checker else [])


def check_change(key: str, old: Object, new: Object) -> list[Cause]:
    """Return everything that is wrong with a change."""
    changed = CHANGES.get(key)
    return changed(old, new) if changed else []
