"""The table columns of each kind, as kubectl get prints them.

Names, order and priorities (1 is `-o wide`) follow k8s.io/kubernetes pkg/printers/internalversion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import clustercells, networkcells, podcells, storagecells, workloadcells
from .cells import Column, age, layout, simple, stamped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cells import Cells

COLUMNS: dict[str, tuple[Sequence[Column], Cells]] = {
    "pods": (layout("Name|Ready|Status|Restarts|Age", "IP|Node|Nominated Node|Readiness Gates"), podcells.cells(age)),
    "jobs.batch": (layout("Name|Status|Completions|Duration|Age", "Containers|Images|Selector"), workloadcells.job),
    "cronjobs.batch": (
        layout("Name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age", "Containers|Images|Selector"),
        workloadcells.cron_job,
    ),
    "deployments.apps": (
        layout("Name|Ready|Up-to-date|Available|Age", "Containers|Images|Selector"),
        workloadcells.deployment,
    ),
    "replicasets.apps": (
        layout("Name|Desired:integer|Current:integer|Ready:integer|Age", "Containers|Images|Selector"),
        workloadcells.replica_set,
    ),
    "replicationcontrollers": (
        layout("Name|Desired:integer|Current:integer|Ready:integer|Age", "Containers|Images|Selector"),
        workloadcells.replica_set,
    ),
    "daemonsets.apps": (
        layout(
            "Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector|Age",
            "Containers|Images|Selector",
        ),
        workloadcells.daemon_set,
    ),
    "nodes": (
        layout("Name|Status|Roles|Age|Version", "Internal-IP|External-IP|OS-Image|Kernel-Version|Container-Runtime"),
        clustercells.node,
    ),
    "namespaces": (layout("Name|Status|Age"), clustercells.namespace),
    "events": (
        [
            *layout("Last Seen|Type|Reason|Object"),
            *layout("", "Subobject|Source"),
            *layout("Message"),
            *layout("", "First Seen|Count|Name"),
        ],
        clustercells.event,
    ),
    "services": (layout("Name|Type|Cluster-IP|External-IP|Port(s)|Age", "Selector"), networkcells.service),
    "endpoints": (layout("Name|Endpoints|Age"), networkcells.endpoints),
    "endpointslices.discovery.k8s.io": (layout("Name|AddressType|Ports|Endpoints|Age"), networkcells.endpoint_slice),
    "configmaps": (layout("Name|Data|Age"), clustercells.config_map),
    "secrets": (layout("Name|Type|Data|Age"), clustercells.secret),
    "serviceaccounts": (layout("Name|Secrets|Age"), clustercells.service_account),
    "resourcequotas": (layout("Name|Request|Limit|Age"), clustercells.quota),
    "limitranges": (layout("Name|Created At"), stamped),
    "persistentvolumeclaims": (
        layout("Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age", "VolumeMode"),
        storagecells.claim,
    ),
    "persistentvolumes": (
        layout(
            "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age",
            "VolumeMode",
        ),
        storagecells.volume,
    ),
    "storageclasses.storage.k8s.io": (
        layout("Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age"),
        storagecells.storage_class,
    ),
    "roles.rbac.authorization.k8s.io": (layout("Name|Created At"), stamped),
    "clusterroles.rbac.authorization.k8s.io": (layout("Name|Created At"), stamped),
    "rolebindings.rbac.authorization.k8s.io": (
        layout("Name|Role|Age", "Users|Groups|ServiceAccounts"),
        clustercells.binding,
    ),
    "clusterrolebindings.rbac.authorization.k8s.io": (
        layout("Name|Role|Age", "Users|Groups|ServiceAccounts"),
        clustercells.binding,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (layout("Name|Created At"), stamped),
    "leases.coordination.k8s.io": (layout("Name|Holder|Age"), simple("spec.holderIdentity")),
    "runtimeclasses.node.k8s.io": (layout("Name|Handler|Age"), simple("handler")),
    "priorityclasses.scheduling.k8s.io": (
        [*layout("Name|Value:integer|Global-Default:boolean|Age"), Column("PreemptionPolicy")],
        clustercells.priority_class,
    ),
    "networkpolicies.networking.k8s.io": (layout("Name|Pod-Selector|Age"), networkcells.network_policy),
    "poddisruptionbudgets.policy": (
        layout("Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age"),
        clustercells.budget,
    ),
}
DEFAULT: tuple[Sequence[Column], Cells] = (layout("Name|Age"), simple())
