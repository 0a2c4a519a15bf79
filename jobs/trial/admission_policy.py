"""A ValidatingAdmissionPolicy with the requests of the accepted trial's pod, as requirements on training jobs.

Kubernetes admits a pod that takes all GPUs of a node without a NIC; it starts, and trains at the speed of sockets. The
policy refuses it in one namespace, in CEL that the API server evaluates itself (Kubernetes 1.30 and later); its message
names the missing part and the reason. Smaller pods are not checked.
"""

from __future__ import annotations

from ..cluster.unstructured import Unstructured
from .needs import SIDECAR, Need, amount_cel, needs_of, queue_need
from .spec import TrialSpec

API = "admissionregistration.k8s.io/v1"
JOBS = (
    ("batch", "v1", "jobs", "object.spec.template.spec"),
    ("kubeflow.org", "v2beta1", "mpijobs", ""),
    ("kubeflow.org", "v1", "pytorchjobs", ""),
    ("trainer.kubeflow.org", "v1alpha1", "trainjobs", ""),
)
"""Kinds that a queue admits as a whole: group, version, resource, and the path of their pods' spec if CEL knows it."""


def policies(spec: TrialSpec, *, enforce: bool = True) -> list[Unstructured]:
    """Return policies and bindings for the spec's namespace; without ``enforce`` they only warn and audit.

    Returns [] if GPUs are claimed instead of counted: a pod names its claim, and not the number of devices.
    """
    if not spec.gpu_resource:
        return []
    made = _policy(
        f"seatrial-pods-{spec.namespace}",
        ("", "v1", "pods"),
        _whole_node("object.spec", spec),
        list(needs_of(spec)),
        spec,
        enforce,
    )
    if (need := queue_need(spec)) is not None:
        for group, version, resource, pod in JOBS:
            condition = _whole_node(pod, spec) if pod else "true"
            name = f"seatrial-{resource}-{spec.namespace}"
            made += _policy(name, (group, version, resource), condition, [need], spec, enforce)
    return made


def _whole_node(pod: str, spec: TrialSpec) -> str:
    """Return the CEL condition that containers and sidecars together request all GPUs of a node."""
    gpus = amount_cel(spec.gpu_resource)
    sidecars = f"{pod}.initContainers.map(c, {SIDECAR} ? ({gpus}) : 0).sum()"
    return (
        f"{pod}.containers.map(c, {gpus}).sum() + (has({pod}.initContainers) ? {sidecars} : 0) >= {spec.gpus_per_node}"
    )


def _policy(
    name: str, kind: tuple[str, str, str], condition: str, rules: list[Need], spec: TrialSpec, enforce: bool
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
            "validations": [{"expression": rule.cel, "message": rule.message, "reason": "Invalid"} for rule in rules],
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
