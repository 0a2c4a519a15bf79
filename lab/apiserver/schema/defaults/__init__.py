"""Defaults by kind: the values of fields that the client did not set.

The values are those of the SetDefaults functions in k8s.io/kubernetes pkg/apis/*/v1/defaults.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import cluster, config, pods, services, storage, workloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..values import Object

DEFAULTS: dict[str, Callable[[Object], None]] = {
    "pods": pods.pod,
    "podtemplates": lambda obj: pods.template(obj.setdefault("template", {})),
    "replicationcontrollers": workloads.replication_controller,
    "jobs.batch": workloads.job,
    "cronjobs.batch": workloads.cron_job,
    "deployments.apps": workloads.deployment,
    "replicasets.apps": workloads.replica_set,
    "daemonsets.apps": workloads.daemon_set,
    "services": services.service,
    "endpoints": services.endpoints,
    "endpointslices.discovery.k8s.io": services.endpoint_slice,
    "networkpolicies.networking.k8s.io": services.network_policy,
    "configmaps": lambda _obj: None,
    "secrets": config.secret,
    "nodes": cluster.node,
    "persistentvolumeclaims": storage.claim,
    "persistentvolumes": storage.volume,
    "storageclasses.storage.k8s.io": storage.storage_class,
    "rolebindings.rbac.authorization.k8s.io": cluster.binding,
    "clusterrolebindings.rbac.authorization.k8s.io": cluster.binding,
    "limitranges": config.limit_range,
    "priorityclasses.scheduling.k8s.io": cluster.priority_class,
    "customresourcedefinitions.apiextensions.k8s.io": cluster.definition,
}


def fill(key: str, obj: Object) -> None:
    """Set the defaults of a kind, in place."""
    default = DEFAULTS.get(key)
    if default is not None:
        default(obj)
