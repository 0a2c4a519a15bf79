"""Validation by kind; every error is a `Cause`.

Messages are those of k8s.io/kubernetes pkg/apis/*/validation in a 1.36 server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    cluster,
    config,
    custom,
    definitions,
    events,
    jobs,
    limits,
    metadata,
    pods,
    quotas,
    rbac,
    services,
    storage,
    workloads,
)

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
    "configmaps": config.config_map,
    "secrets": config.secret,
    "events": events.event,
    "nodes": cluster.node,
    "namespaces": cluster.namespace,
    "leases.coordination.k8s.io": cluster.lease,
    "persistentvolumeclaims": storage.claim,
    "resourcequotas": quotas.quota,
    "limitranges": limits.limit_range,
    "runtimeclasses.node.k8s.io": cluster.runtime_class,
    "priorityclasses.scheduling.k8s.io": cluster.priority_class,
    "storageclasses.storage.k8s.io": storage.storage_class,
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
    "configmaps": config.config_map_change,
    "secrets": config.secret_change,
    "persistentvolumeclaims": storage.claim_change,
    "resourcequotas": quotas.quota_change,
    "runtimeclasses.node.k8s.io": cluster.runtime_class_change,
    "priorityclasses.scheduling.k8s.io": cluster.priority_class_change,
    "storageclasses.storage.k8s.io": storage.storage_class_change,
    "rolebindings.rbac.authorization.k8s.io": rbac.binding_change,
    "clusterrolebindings.rbac.authorization.k8s.io": rbac.binding_change,
}


def check(kind: Kind, obj: Object) -> list[Cause]:
    """Return all errors of an object."""
    causes = metadata.check(kind.key, obj, namespaced=kind.namespaced)
    if kind.custom:
        return causes + custom.check(kind, obj)
    checker = CHECKS.get(kind.key)
    return causes + (checker(obj) if checker else [])


def check_change(key: str, old: Object, new: Object) -> list[Cause]:
    """Return all errors of an update."""
    changed = CHANGES.get(key)
    return changed(old, new) if changed else []
