"""A ValidatingAdmissionPolicy from the accepted trial's own pod: what training jobs must ask for, too.

A pod that takes all GPUs of a node and forgets the NIC is admitted by Kubernetes, starts, and trains at the
speed of sockets. The policy refuses it in one namespace, in CEL that the API server evaluates itself (Kubernetes 1.30
and later); it says what is missing and why. Smaller pods are none of its business.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..cluster.unstructured import Unstructured
from .spec import TrialSpec

NETWORKS = ("k8s.v1.cni.cncf.io/networks", "networking.gke.io/interfaces")
"""Annotations by which a pod asks for secondary networks: Multus, and GKE's multi-networking."""
QUEUE = "kueue.x-k8s.io/queue-name"
API = "admissionregistration.k8s.io/v1"
JOBS = (
    ("batch", "v1", "jobs", "object.spec.template.spec"),
    ("kubeflow.org", "v2beta1", "mpijobs", ""),
    ("kubeflow.org", "v1", "pytorchjobs", ""),
    ("trainer.kubeflow.org", "v1alpha1", "trainjobs", ""),
)
"""What a queue admits whole: group, version, resource, and where its pods' spec stands if its type is known to CEL."""


def policies(spec: TrialSpec, *, enforce: bool = True) -> list[Unstructured]:
    """Return policies and bindings for the spec's namespace; without ``enforce`` they warn and are audited only.

    None where the GPUs are claimed and not counted: a pod names its claim, and not how many devices that asks for.
    """
    if not spec.gpu_resource:
        return []
    made = _policy(
        f"seatrial-pods-{spec.namespace}",
        ("", "v1", "pods"),
        _whole_node("object.spec", spec),
        list(_of_pod(spec)),
        spec,
        enforce,
    )
    if spec.queue is not None and spec.queue.kind == "kueue":
        for group, version, resource, pod in JOBS:
            rule = {
                "expression": f"has(object.metadata.labels) && {_text(QUEUE)} in object.metadata.labels",
                "message": f"a training job must name its queue (label {QUEUE}): else it takes GPUs past the quota, or "
                "waits for pods that never start together",
            }
            condition = _whole_node(pod, spec) if pod else "true"
            name = f"seatrial-{resource}-{spec.namespace}"
            made += _policy(name, (group, version, resource), condition, [rule], spec, enforce)
    return made


# A sidecar runs beside the containers; another init container is over when they start, and trains nothing.
_SIDECAR = "has(c.restartPolicy) && c.restartPolicy == 'Always'"


def _whole_node(pod: str, spec: TrialSpec) -> str:
    """CEL: containers and sidecars ask for as many GPUs together as the trial's pods did, which are all of a node."""
    gpus = _amount(spec.gpu_resource)
    sidecars = f"{pod}.initContainers.map(c, {_SIDECAR} ? ({gpus}) : 0).sum()"
    return (
        f"{pod}.containers.map(c, {gpus}).sum() + (has({pod}.initContainers) ? {sidecars} : 0) >= {spec.gpus_per_node}"
    )


def _amount(resource: str) -> str:
    """CEL: how many of a resource container c asks for.

    The type checker leaves out fields whose values are quantities (their OpenAPI type is a oneOf): "undefined field
    'limits'". dyn() takes them as they are at run time. Of 1000 the API server makes 1k, which quantity() reads.
    """
    limits = "dyn(c.resources).limits"
    return (
        f"has(c.resources) && has({limits}) && {_text(resource)} in {limits} ? "
        f"quantity({limits}[{_text(resource)}]).asInteger() : 0"
    )


def _each(condition: str) -> str:
    """CEL: a condition holds for every container, and every sidecar, c of the pod."""
    return (
        f"object.spec.containers.all(c, {condition}) && (!has(object.spec.initContainers) || "
        f"object.spec.initContainers.all(c, !({_SIDECAR}) || ({condition})))"
    )


def _of_pod(spec: TrialSpec) -> Iterator[dict[str, str]]:
    whole = f"a pod with all {spec.gpus_per_node} {spec.gpu_resource} of a node"
    gpus = f"({_amount(spec.gpu_resource)})"
    for resource, amount in sorted(spec.resources.items()):
        given = f"({_amount(resource)})"
        # Containers that share the GPUs share the NICs alike; more than the trial had is never asked for.
        enough = f"{gpus} == 0 || {given} >= {amount} || {given} * {spec.gpus_per_node} >= {gpus} * {amount}"
        yield {
            "expression": _each(enough),
            "message": (
                f"{whole} must ask for {amount} {resource} in the containers that have the GPUs, as the accepted "
                "trial did: without it NCCL lacks NICs, and falls back to sockets or to fewer rails"
            ),
        }
    for key in NETWORKS:
        if key in spec.annotations:
            yield {
                "expression": f"has(object.metadata.annotations) && {_text(key)} in object.metadata.annotations",
                "message": f"{whole} must attach the training networks (annotation {key} of the pod)",
            }
    if "IPC_LOCK" in spec.capabilities:
        added = (
            "has(c.securityContext) && has(c.securityContext.capabilities) && "
            "has(c.securityContext.capabilities.add) && "
            "c.securityContext.capabilities.add.exists(n, n in ['IPC_LOCK', 'CAP_IPC_LOCK', 'ALL'])"
        )
        free = "has(c.securityContext) && has(c.securityContext.privileged) && c.securityContext.privileged"
        yield {
            "expression": _each(f"{gpus} == 0 || ({added}) || ({free})"),
            "message": f"{whole} must have the capability IPC_LOCK: RDMA locks the memory that it registers",
        }


def _policy(
    name: str, kind: tuple[str, str, str], condition: str, rules: list[dict[str, str]], spec: TrialSpec, enforce: bool
) -> list[Unstructured]:
    if not rules:
        return []
    group, version, resource = kind
    labels = {"app.kubernetes.io/name": "seatrial", "app.kubernetes.io/component": "policy"}
    matching = {"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": [resource]}
    policy = {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [matching]},
            "matchConditions": [{"name": "all-gpus-of-a-node", "expression": condition}],
            "validations": [{**rule, "reason": "Invalid"} for rule in rules],
        },
    }
    binding = {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"] if enforce else ["Warn", "Audit"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": spec.namespace}}},
        },
    }
    return [policy, binding]


def _text(value: str) -> str:
    """A CEL string literal; names of resources and labels have no quotes, which trial.py sees to."""
    return f"'{value}'"
