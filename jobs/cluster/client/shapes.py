"""The type of each field that is read of Kubernetes' objects, checked once, where an answer comes in.

The API server lets no object in whose fields have other types (OpenAPI, structural schemas): one that has is no answer
of a Kubernetes API. Unreadable names the object and the path in it. Fields that are not declared here are not read, or
are read where they are used; null is how Go writes what is absent. A field whose name ends in ! must be there.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from ..quantity import quantity
from ..redact import safe
from .errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Shape: TypeAlias = "dict[str, Shape] | list[Shape] | Callable[[Any], bool] | Each"


class Unreadable(Unreachable):
    """An object has a field of another type than Kubernetes gives it."""


class Each:
    """A mapping with any keys, whose values all have one shape."""

    def __init__(self, value: Shape) -> None:
        self.value = value


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _count(value: Any) -> bool:
    return _number(value) and value >= 0


def _amount(value: Any) -> bool:
    """A quantity that can be had: of nothing is there less than none."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    amount = quantity(value)
    return amount is not None and amount >= 0


def _moment(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.datetime.fromisoformat(value) is not None
    except ValueError:
        return False


_EXPECTED: dict[Callable[[Any], bool], str] = {
    _text: "text",
    _flag: "true or false",
    _number: "a whole number",
    _count: "a count",
    _amount: "a quantity",
    _moment: "a time",
}

_CONDITIONS: Shape = [
    {"type": _text, "status": _text, "reason": _text, "message": _text, "lastTransitionTime": _moment}
]
_META: dict[str, Shape] = {
    "name": _text,
    "namespace": _text,
    "uid": _text,
    "resourceVersion": _text,
    "labels": Each(_text),
    "annotations": Each(_text),
    "creationTimestamp": _moment,
    "deletionTimestamp": _moment,
    "deletionGracePeriodSeconds": _count,
    "finalizers": [_text],
    "ownerReferences": [{"kind": _text, "name": _text, "uid": _text, "controller": _flag}],
}
_CONTAINER: Shape = {
    "name": _text,
    "image": _text,
    "restartPolicy": _text,
    "resources": {"limits": Each(_amount), "requests": Each(_amount)},
    "env": [{"name": _text, "value": _text}],
    "securityContext": {"privileged": _flag, "capabilities": {"add": [_text]}},
    "volumeMounts": [{"mountPath": _text}],
}
_POD_SPEC: dict[str, Shape] = {
    "nodeName": _text,
    "schedulerName": _text,
    "priorityClassName": _text,
    "activeDeadlineSeconds": _count,
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "ephemeralContainers": [_CONTAINER],
    "tolerations": [{"key": _text, "operator": _text, "value": _text, "effect": _text}],
    "nodeSelector": Each(_text),
    "overhead": Each(_amount),
    "hostname": _text,
    "subdomain": _text,
    "hostNetwork": _flag,
    "runtimeClassName": _text,
    "serviceAccountName": _text,
    "dnsPolicy": _text,
    "resourceClaims": [{"name": _text}],
    "volumes": [{"name": _text, "emptyDir": {"sizeLimit": _amount}}],
}
_STATE: Shape = {
    "waiting": {"reason": _text, "message": _text},
    "running": {"startedAt": _moment},
    "terminated": {"exitCode": _number, "reason": _text, "message": _text, "startedAt": _moment, "finishedAt": _moment},
}
_STATUSES: Shape = [
    {
        "name": _text,
        "image": _text,
        "imageID": _text,
        "restartCount": _count,
        "ready": _flag,
        "state": _STATE,
        "lastState": _STATE,
    }
]
_JOB_SPEC: dict[str, Shape] = {
    "parallelism": _count,
    "completions": _count,
    "backoffLimit": _count,
    "completionMode": _text,
    "suspend": _flag,
    "activeDeadlineSeconds": _count,
    "template": {"spec": _POD_SPEC},
}
_TARGET: Shape = dict.fromkeys(("kind", "name", "uid", "fieldPath"), _text)
_KINDS: dict[str, dict[str, Shape]] = {
    "Node": {
        "spec": {"unschedulable": _flag, "taints": [{"key": _text, "value": _text, "effect": _text}]},
        "status": {
            "capacity": Each(_amount),
            "allocatable": Each(_amount),
            "conditions": _CONDITIONS,
            "nodeInfo": dict.fromkeys(("kernelVersion", "containerRuntimeVersion", "kubeletVersion", "osImage"), _text),
        },
    },
    "Pod": {
        "spec!": _POD_SPEC,
        "status": {
            "phase": _text,
            "reason": _text,
            "message": _text,
            "conditions": _CONDITIONS,
            "startTime": _moment,
            "initContainerStatuses": _STATUSES,
            "containerStatuses": _STATUSES,
            "podIPs": [{"ip": _text}],
        },
    },
    "Job": {
        "spec": _JOB_SPEC,
        "status": {
            "conditions": _CONDITIONS,
            "active": _count,
            "ready": _count,
            "succeeded": _count,
            "failed": _count,
            "startTime": _moment,
        },
    },
    "Event": {
        "reason": _text,
        "message": _text,
        "note": _text,
        "type": _text,
        "count": _count,
        "involvedObject": _TARGET,
        "regarding": _TARGET,
        "series": {"count": _count, "lastObservedTime": _moment},
        "source": {"host": _text},
        "firstTimestamp": _moment,
        "lastTimestamp": _moment,
        "eventTime": _moment,
    },
    "Namespace": {"status": {"phase": _text}},
    "ResourceQuota": {
        "spec": {
            "hard": Each(_amount),
            "scopes": [_text],
            "scopeSelector": {"matchExpressions": [{"scopeName": _text, "operator": _text, "values": [_text]}]},
        },
        "status": {"hard": Each(_amount), "used": Each(_amount)},
    },
    "PersistentVolumeClaim": {
        "spec": {"storageClassName": _text, "accessModes": [_text], "volumeName": _text},
        "status": {"phase": _text, "capacity": Each(_amount)},
    },
    "StorageClass": {"provisioner": _text, "volumeBindingMode": _text},
    "ConfigMap": {"data": Each(_text)},
    "SelfSubjectAccessReview": {
        "status": {"allowed": _flag, "denied": _flag, "reason": _text, "evaluationError": _text}
    },
    "SelfSubjectReview": {"status": {"userInfo": {"username": _text}}},
    "ResourceSlice": {
        "spec": {
            "driver": _text,
            "nodeName": _text,
            "pool": {"name": _text, "generation": _count},
            "devices": [{"name": _text}],
        }
    },
}
_ANY_KIND: dict[str, Shape] = {"metadata": _META, "spec": {}, "status": {"conditions": _CONDITIONS}}
"""Of any other kind, custom resources among them: what all have; their own fields are read leniently."""


def wrong(kind: str, item: Mapping[str, Any]) -> str:
    """Say which declared field of the object has which other type, as 'status.allocatable is text, ...'; '' if none."""
    return _COMPILED.get(kind, _OTHER)(item)


def check(kind: str, item: Mapping[str, Any], where: str) -> None:
    """Raise Unreadable, naming the object and the path in it, where a declared field has another type."""
    if mistake := wrong(kind, item):
        meta = item.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        whose = safe(name, 120) if isinstance(name, str) and name else "without a name"
        raise Unreadable(f"{where}: no answer of a Kubernetes API: {safe(kind or 'object', 60)} {whose}: {mistake}")


def _compile(shape: Shape) -> Callable[[Any], str]:  # noqa: C901 -- one small closure for each form
    if isinstance(shape, dict):
        fields = [(key.removesuffix("!"), _compile(value), key.endswith("!")) for key, value in shape.items()]

        def mapping(value: Any) -> str:
            if not isinstance(value, dict):
                return _is(value, "a mapping")
            for key, test, needed in fields:
                inner = value.get(key)
                if inner is None:
                    if needed:
                        return f"{key} is missing"
                elif mistake := test(inner):
                    return _in(key, mistake)
            return ""

        return mapping
    if isinstance(shape, list):
        entry = _compile(shape[0])

        def sequence(value: Any) -> str:
            if not isinstance(value, list):
                return _is(value, "a list")
            for number, inner in enumerate(value):
                if mistake := entry(inner):
                    return _in(f"[{number}]", mistake)
            return ""

        return sequence
    if isinstance(shape, Each):
        one = _compile(shape.value)

        def each(value: Any) -> str:
            if not isinstance(value, dict):
                return _is(value, "a mapping")
            for key, inner in value.items():
                if mistake := one(inner):
                    return _in(f"[{safe(key, 80)!r}]", mistake)
            return ""

        return each
    test: Callable[[Any], bool] = shape

    def single(value: Any) -> str:
        return "" if test(value) else _is(value, _EXPECTED[test])

    return single


def _in(key: str, problem: str) -> str:
    return f"{key}{'' if problem.startswith(('[', ' ')) else '.'}{problem}"


def _is(value: Any, expected: str) -> str:
    kinds = {
        dict: "a mapping",
        list: "a list",
        str: "the text",
        bool: "the flag",
        int: "the number",
        float: "the number",
    }
    shown = "" if value is None or isinstance(value, (dict, list)) else f" {safe(repr(value), 60)}"
    return f" is {kinds.get(type(value), 'null')}{shown}, not {expected}"


_OTHER = _compile(_ANY_KIND)
_COMPILED = {kind: _compile({"metadata": _META, **fields}) for kind, fields in _KINDS.items()}
