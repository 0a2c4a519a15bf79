"""The type of each field that is read from Kubernetes' objects, validated once, on receipt.

The API server admits no object with fields of other types (OpenAPI, structural schemas), so an object with such a field
does not come from a Kubernetes API. Unreadable names the object and the path in it. Fields that are not declared here
are not read, or are validated by their readers. Null is Go's notation of an absent value. A field name that ends in !
is required.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Any

from seatrial.logs.kinds import Kind

from ..json_types import Count, checker
from ..redact import safe
from ..unstructured import Unstructured, quantity
from .errors import Unreachable


class Unreadable(Unreachable):
    """A field of an object has another type than Kubernetes defines."""


def _amount(value: Any) -> bool:
    """Return whether a value is a quantity, and not negative."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    amount = quantity(value)
    return amount is not None and amount >= 0


def _moment(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.datetime.fromisoformat(value) is not None
    except ValueError:
        return False


Amount = Annotated[str, Kind("a quantity", _amount)]
Moment = Annotated[str, Kind("a time", _moment)]

_CONDITIONS: Any = [{"type": str, "status": str, "reason": str, "message": str, "lastTransitionTime": Moment}]
_META: Unstructured = {
    "name": str,
    "namespace": str,
    "uid": str,
    "resourceVersion": str,
    "labels": dict[str, str],
    "annotations": dict[str, str],
    "creationTimestamp": Moment,
    "deletionTimestamp": Moment,
    "deletionGracePeriodSeconds": Count,
    "finalizers": [str],
    "ownerReferences": [{"kind": str, "name": str, "uid": str, "controller": bool}],
}
_CONTAINER: Any = {
    "name": str,
    "image": str,
    "restartPolicy": str,
    "resources": {"limits": dict[str, Amount], "requests": dict[str, Amount]},
    "env": [{"name": str, "value": str}],
    "securityContext": {"privileged": bool, "capabilities": {"add": [str]}},
    "volumeMounts": [{"mountPath": str}],
}
_POD_SPEC: Unstructured = {
    "nodeName": str,
    "schedulerName": str,
    "priorityClassName": str,
    "activeDeadlineSeconds": Count,
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "ephemeralContainers": [_CONTAINER],
    "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
    "nodeSelector": dict[str, str],
    "overhead": dict[str, Amount],
    "hostname": str,
    "subdomain": str,
    "hostNetwork": bool,
    "runtimeClassName": str,
    "serviceAccountName": str,
    "dnsPolicy": str,
    "resourceClaims": [{"name": str}],
    "volumes": [{"name": str, "emptyDir": {"sizeLimit": Amount}}],
}
_STATE: Any = {
    "waiting": {"reason": str, "message": str},
    "running": {"startedAt": Moment},
    "terminated": {"exitCode": int, "reason": str, "message": str, "startedAt": Moment, "finishedAt": Moment},
}
_STATUSES: Any = [
    {
        "name": str,
        "image": str,
        "imageID": str,
        "restartCount": Count,
        "ready": bool,
        "state": _STATE,
        "lastState": _STATE,
    }
]
_JOB_SPEC: Unstructured = {
    "parallelism": Count,
    "completions": Count,
    "backoffLimit": Count,
    "completionMode": str,
    "suspend": bool,
    "activeDeadlineSeconds": Count,
    "template": {"spec": _POD_SPEC},
}
_TARGET: Any = dict.fromkeys(("kind", "name", "uid", "fieldPath"), str)
_KINDS: Unstructured = {
    "Node": {
        "spec": {"unschedulable": bool, "taints": [{"key": str, "value": str, "effect": str}]},
        "status": {
            "capacity": dict[str, Amount],
            "allocatable": dict[str, Amount],
            "conditions": _CONDITIONS,
            "nodeInfo": dict.fromkeys(("kernelVersion", "containerRuntimeVersion", "kubeletVersion", "osImage"), str),
        },
    },
    "Pod": {
        "spec!": _POD_SPEC,
        "status": {
            "phase": str,
            "reason": str,
            "message": str,
            "conditions": _CONDITIONS,
            "startTime": Moment,
            "initContainerStatuses": _STATUSES,
            "containerStatuses": _STATUSES,
            "podIPs": [{"ip": str}],
        },
    },
    "Job": {
        "spec": _JOB_SPEC,
        "status": {
            "conditions": _CONDITIONS,
            "active": Count,
            "ready": Count,
            "succeeded": Count,
            "failed": Count,
            "startTime": Moment,
        },
    },
    "Event": {
        "reason": str,
        "message": str,
        "note": str,
        "type": str,
        "count": Count,
        "involvedObject": _TARGET,
        "regarding": _TARGET,
        "series": {"count": Count, "lastObservedTime": Moment},
        "source": {"host": str},
        "firstTimestamp": Moment,
        "lastTimestamp": Moment,
        "eventTime": Moment,
    },
    "Namespace": {"status": {"phase": str}},
    "ResourceQuota": {
        "spec": {
            "hard": dict[str, Amount],
            "scopes": [str],
            "scopeSelector": {"matchExpressions": [{"scopeName": str, "operator": str, "values": [str]}]},
        },
        "status": {"hard": dict[str, Amount], "used": dict[str, Amount]},
    },
    "PersistentVolumeClaim": {
        "spec": {"storageClassName": str, "accessModes": [str], "volumeName": str},
        "status": {"phase": str, "capacity": dict[str, Amount]},
    },
    "StorageClass": {"provisioner": str, "volumeBindingMode": str},
    "ConfigMap": {"data": dict[str, str]},
    "SelfSubjectAccessReview": {"status": {"allowed": bool, "denied": bool, "reason": str, "evaluationError": str}},
    "SelfSubjectReview": {"status": {"userInfo": {"username": str}}},
    "ResourceSlice": {
        "spec": {"driver": str, "nodeName": str, "pool": {"name": str, "generation": Count}, "devices": [{"name": str}]}
    },
}
_ANY_KIND: Unstructured = {"metadata": _META, "spec": {}, "status": {"conditions": _CONDITIONS}}
"""All other kinds, including custom resources: only the common fields; their own fields are read leniently."""


def wrong(kind: str, item: Unstructured) -> str:
    """Describe a declared field with a wrong type, as 'status.allocatable is text, ...'; '' if none."""
    return _COMPILED.get(kind, _OTHER)(item)


def check(kind: str, item: Unstructured, where: str) -> None:
    """Raise Unreadable with the object and the path in it if a declared field has another type."""
    if mistake := wrong(kind, item):
        meta = item.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        label = safe(name, 120) if isinstance(name, str) and name else "without a name"
        raise Unreadable(f"{where}: not a Kubernetes API response: {safe(kind or 'object', 60)} {label}: {mistake}")


_OTHER = checker(_ANY_KIND)
_COMPILED = {kind: checker({"metadata": _META, **fields}) for kind, fields in _KINDS.items()}
