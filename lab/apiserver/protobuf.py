"""Protobuf bodies: the part of Kubernetes' protobuf encoding that kubectl sends instead of JSON.

kubectl's typed commands (`auth can-i`, `create job`, `create token`, drain) encode requests as protobuf and accept JSON
responses. Field numbers are those of generated.proto in k8s.io/api; a field that the table lacks is rejected, and never
dropped.
"""

from __future__ import annotations

import base64
import functools
from typing import TYPE_CHECKING, Any

from . import podwire
from .schema import types
from .schema.errors import ApiError
from .schema.values import rfc3339, rfc3339_micro

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .schema.types import Field
    from .schema.values import Object

MEDIA = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# Fields in the order of their numbers; `name=N` if a number is not the next one.
NUMBERS = {
    **podwire.NUMBERS,
    "meta.v1.ObjectMeta": "name generateName namespace selfLink uid resourceVersion generation creationTimestamp "
    "deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers managedFields=17",
    "meta.v1.OwnerReference": "kind name=3 uid apiVersion controller blockOwnerDeletion",
    "meta.v1.LabelSelector": "matchLabels matchExpressions",
    "meta.v1.LabelSelectorRequirement": "key operator values",
    "meta.v1.DeleteOptions": "gracePeriodSeconds preconditions orphanDependents propagationPolicy dryRun",
    "meta.v1.Preconditions": "uid resourceVersion",
    "core.v1.ConfigMap": "metadata data binaryData immutable",
    "core.v1.Secret": "metadata data type stringData immutable",
    "core.v1.Namespace": "metadata spec status",
    "core.v1.NamespaceSpec": "finalizers",
    "core.v1.NamespaceStatus": "phase conditions",
    "core.v1.ServiceAccount": "metadata secrets imagePullSecrets automountServiceAccountToken",
    "core.v1.ObjectReference": "kind namespace name uid apiVersion resourceVersion fieldPath",
    "core.v1.LocalObjectReference": "name",
    "core.v1.Service": "metadata spec status",
    "core.v1.ServiceSpec": "ports selector clusterIP type externalIPs sessionAffinity=7 loadBalancerIP "
    "loadBalancerSourceRanges externalName externalTrafficPolicy healthCheckNodePort publishNotReadyAddresses "
    "sessionAffinityConfig ipFamilyPolicy=17 clusterIPs ipFamilies allocateLoadBalancerNodePorts loadBalancerClass "
    "internalTrafficPolicy trafficDistribution",
    "core.v1.ServicePort": "name protocol port targetPort nodePort appProtocol",
    "core.v1.ServiceStatus": "loadBalancer conditions",
    "core.v1.LoadBalancerStatus": "ingress",
    "core.v1.ResourceQuota": "metadata spec status",
    "core.v1.ResourceQuotaSpec": "hard scopes scopeSelector",
    "core.v1.ResourceQuotaStatus": "hard used",
    "core.v1.Binding": "metadata target",
    "core.v1.Pod": "metadata spec status",
    "core.v1.PodTemplateSpec": "metadata spec",
    "core.v1.PodSpec": "volumes containers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy "
    "nodeSelector serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC securityContext "
    "imagePullSecrets hostname subdomain affinity schedulerName initContainers automountServiceAccountToken "
    "tolerations hostAliases priorityClassName priority dnsConfig shareProcessNamespace readinessGates "
    "runtimeClassName enableServiceLinks preemptionPolicy overhead topologySpreadConstraints ephemeralContainers "
    "setHostnameAsFQDN os hostUsers schedulingGates resourceClaims resources",
    "core.v1.Container": "name image command args workingDir ports env resources volumeMounts livenessProbe "
    "readinessProbe lifecycle terminationMessagePath imagePullPolicy securityContext stdin stdinOnce tty envFrom "
    "terminationMessagePolicy volumeDevices startupProbe resizePolicy restartPolicy restartPolicyRules",
    "core.v1.ContainerPort": "name hostPort containerPort protocol hostIP",
    "core.v1.EnvVar": "name value valueFrom",
    "core.v1.ResourceRequirements": "limits requests claims",
    "core.v1.VolumeMount": "name readOnly mountPath subPath mountPropagation subPathExpr recursiveReadOnly",
    "core.v1.Toleration": "key operator value effect tolerationSeconds",
    "batch.v1.Job": "metadata spec status",
    "batch.v1.JobSpec": "parallelism completions activeDeadlineSeconds selector manualSelector template backoffLimit "
    "ttlSecondsAfterFinished completionMode suspend podFailurePolicy backoffLimitPerIndex maxFailedIndexes "
    "podReplacementPolicy managedBy successPolicy",
    "batch.v1.CronJob": "metadata spec status",
    "batch.v1.CronJobSpec": "schedule startingDeadlineSeconds concurrencyPolicy suspend jobTemplate "
    "successfulJobsHistoryLimit failedJobsHistoryLimit timeZone",
    "batch.v1.JobTemplateSpec": "metadata spec",
    "batch.v1.JobStatus": "",
    "batch.v1.CronJobStatus": "",
    "apps.v1.Deployment": "metadata spec status",
    "apps.v1.DeploymentSpec": "replicas selector template strategy minReadySeconds revisionHistoryLimit paused "
    "progressDeadlineSeconds=9",
    "apps.v1.DeploymentStrategy": "type rollingUpdate",
    "apps.v1.RollingUpdateDeployment": "maxUnavailable maxSurge",
    "rbac.v1.Role": "metadata rules",
    "rbac.v1.ClusterRole": "metadata rules aggregationRule",
    "rbac.v1.AggregationRule": "clusterRoleSelectors",
    "rbac.v1.PolicyRule": "verbs apiGroups resources resourceNames nonResourceURLs",
    "rbac.v1.RoleBinding": "metadata subjects roleRef",
    "rbac.v1.ClusterRoleBinding": "metadata subjects roleRef",
    "rbac.v1.Subject": "kind apiGroup name namespace",
    "rbac.v1.RoleRef": "apiGroup kind name",
    "policy.v1.Eviction": "metadata deleteOptions",
    "policy.v1.PodDisruptionBudget": "metadata spec status",
    "policy.v1.PodDisruptionBudgetSpec": "minAvailable selector maxUnavailable unhealthyPodEvictionPolicy",
    "scheduling.v1.PriorityClass": "metadata value globalDefault description preemptionPolicy",
    "authentication.v1.TokenRequest": "metadata spec status",
    "authentication.v1.TokenRequestSpec": "audiences boundObjectRef=3 expirationSeconds",
    "authentication.v1.BoundObjectReference": "kind apiVersion name uid",
    "authentication.v1.SelfSubjectReview": "metadata status",
    "authentication.v1.TokenReview": "metadata spec status",
    "authentication.v1.TokenReviewSpec": "token audiences",
    "authorization.v1.SelfSubjectAccessReview": "metadata spec status",
    "authorization.v1.SelfSubjectAccessReviewSpec": "resourceAttributes nonResourceAttributes",
    "authorization.v1.SubjectAccessReview": "metadata spec status",
    "authorization.v1.LocalSubjectAccessReview": "metadata spec status",
    "authorization.v1.SubjectAccessReviewSpec": "resourceAttributes nonResourceAttributes user groups extra uid",
    "authorization.v1.SelfSubjectRulesReview": "metadata spec status",
    "authorization.v1.SelfSubjectRulesReviewSpec": "namespace",
    "authorization.v1.ResourceAttributes": "namespace verb group version resource subresource name",
    "authorization.v1.NonResourceAttributes": "path verb",
    "autoscaling.v1.Scale": "metadata spec status",
    "autoscaling.v1.ScaleSpec": "replicas",
    "autoscaling.v1.ScaleStatus": "replicas selector",
    "coordination.v1.Lease": "metadata spec",
    "coordination.v1.LeaseSpec": "holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions",
}


class MalformedError(ValueError):
    """The bytes are not a message of the expected form."""


@functools.cache
def _numbered(type_name: str) -> dict[int, str]:
    names: dict[int, str] = {}
    number = 0
    for word in NUMBERS[type_name].split():
        name, _, given = word.partition("=")
        number = int(given) if given else number + 1
        names[number] = name
    return names


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(raw) or shift > 63:
            raise MalformedError("truncated varint")
        value |= (raw[at] & 0x7F) << shift
        at += 1
        if not raw[at - 1] & 0x80:
            return value, at
        shift += 7


def _entries(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (field number, integer or bytes)."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(raw, at)
            yield number, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(wire, -1)
        if wire == BYTES:
            size, at = _varint(raw, at)
        if size < 0 or at + size > len(raw):
            raise MalformedError("truncated field")
        yield number, raw[at : at + size]
        at += size


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def decode(raw: bytes) -> Object:
    """Decode a body: the envelope, then the object by its kind; 415 for an unknown kind."""
    if not raw.startswith(MAGIC):
        raise ApiError(
            400, "BadRequest", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        envelope = dict(_entries(raw[len(MAGIC) :]))
        header = {number: value.decode() for number, value in _entries(envelope.get(1, b""))}
        version, kind = header.get(1, ""), header.get(2, "")
        name = {"DeleteOptions": "meta.v1.DeleteOptions"}.get(kind) or types.of_kind(version, kind)
        if name not in NUMBERS:
            raise ApiError(
                415, "UnsupportedMediaType", f"the simulated server does not read {kind} in {version} as protobuf"
            )
        return {"apiVersion": version, "kind": kind, **_struct(envelope.get(2, b""), name)}
    except (MalformedError, UnicodeDecodeError, AttributeError) as error:
        raise ApiError(400, "BadRequest", f"unable to decode protobuf: {error}") from None


def _struct(raw: bytes, type_name: str) -> Object:
    if type_name not in NUMBERS:
        raise ApiError(415, "UnsupportedMediaType", f"the simulated server does not read {type_name} as protobuf")
    obj: Object = {}
    _take(raw, type_name, types.struct(type_name), obj)
    return _without_zeroes(obj)


def _take(raw: bytes, type_name: str, fields: Mapping[str, Field], obj: Object) -> None:
    """Read the entries of a message into `obj`; an embedded message fills the same object."""
    names = _numbered(type_name)
    for number, value in _entries(raw):
        name = names.get(number)
        if name is not None and name.startswith("+"):
            _take(value, name[1:], fields, obj)
            continue
        if name is None or name not in fields:
            text = f"the simulated server does not know field {number} of {type_name} in protobuf"
            raise ApiError(415, "UnsupportedMediaType", text)
        if name == "status":
            continue
        known = fields[name]
        if known.code == "[":
            obj.setdefault(name, []).append(_value(value, known.items or known))
        elif known.code == "{":
            key, item = _pair(value, known.items or known)
            obj.setdefault(name, {})[key] = item
        else:
            obj[name] = _value(value, known)


def _pair(raw: bytes, known: Field) -> tuple[str, Any]:
    parts = dict(_entries(raw))
    empty: Any = b""
    return parts.get(1, b"").decode(), _value(parts.get(2, empty), known)


def _value(value: Any, known: Field) -> Any:
    code = known.code
    if code == "@":
        return _struct(value, known.type_name)
    if code in "ib":
        return bool(value) if code == "b" else _signed(value)
    if code in "qxtT":
        return _special(dict(_entries(value)), code)
    if code == "[":  # the string lists of `extra` are separate messages
        return [item.decode() for _, item in _entries(value)]
    return base64.b64encode(value).decode() if code == "y" else value.decode()


def _special(parts: dict[int, Any], code: str) -> Any:
    if code == "q":
        return parts.get(1, b"0").decode() or "0"
    if code == "x":
        return parts.get(3, b"").decode() if parts.get(1) else _signed(parts.get(2, 0))
    if not parts:
        return None
    seconds = _signed(parts.get(1, 0))
    return rfc3339(seconds) if code == "t" else rfc3339_micro(seconds + parts.get(2, 0) / 1e9)


# Go encodes every field that is not a pointer, even if empty; JSON omits empty ones. Most numbers and booleans are
# pointers (an explicit 0 counts); these are not.
NO_POINTERS = {
    *("hostPort", "nodePort", "healthCheckNodePort", "minReadySeconds", "hostNetwork", "hostPID", "hostIPC", "stdin"),
    *("stdinOnce", "tty", "readOnly", "publishNotReadyAddresses", "paused", "globalDefault", "generation"),
    *("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
}


def _without_zeroes(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if not _is_zero(name, value)}


def _is_zero(name: str, value: Any) -> bool:
    return value is None or value == "" or (name in NO_POINTERS and not value)
