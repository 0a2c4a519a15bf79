"""The initial objects of a cluster: bootstrap roles and bindings, priority classes, the API's own Service.

The rules are those of plugin/pkg/auth/authorizer/rbac/bootstrappolicy, shortened to the kinds that exist here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .values import Object

RBAC = "rbac.authorization.k8s.io"
DEFAULTS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
READ = ["get", "list", "watch"]
WRITE = ["create", "delete", "deletecollection", "patch", "update"]
EVERYBODY = ["system:authenticated", "system:unauthenticated"]


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Object:
    return {"verbs": verbs, "apiGroups": groups, "resources": resources}


_VIEW = [
    _rule(
        [""],
        [
            "configmaps",
            "endpoints",
            "persistentvolumeclaims",
            "persistentvolumeclaims/status",
            "pods",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "serviceaccounts",
            "services",
            "services/status",
        ],
        READ,
    ),
    _rule(
        [""],
        [
            "bindings",
            "events",
            "limitranges",
            "namespaces/status",
            "pods/log",
            "pods/status",
            "replicationcontrollers/status",
            "resourcequotas",
            "resourcequotas/status",
        ],
        READ,
    ),
    _rule([""], ["namespaces"], READ),
    _rule(["discovery.k8s.io"], ["endpointslices"], READ),
    _rule(
        ["apps"],
        [
            "controllerrevisions",
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
        ],
        READ,
    ),
    _rule(["autoscaling"], ["horizontalpodautoscalers", "horizontalpodautoscalers/status"], READ),
    _rule(["batch"], ["cronjobs", "cronjobs/status", "jobs", "jobs/status"], READ),
    _rule(["policy"], ["poddisruptionbudgets", "poddisruptionbudgets/status"], READ),
    _rule(["networking.k8s.io"], ["ingresses", "ingresses/status", "networkpolicies"], READ),
]
_EDIT = [
    _rule([""], ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"], READ),
    _rule([""], ["serviceaccounts"], ["impersonate"]),
    _rule([""], ["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"], WRITE),
    _rule([""], ["pods/eviction"], ["create"]),
    _rule(
        [""],
        [
            "configmaps",
            "events",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "secrets",
            "serviceaccounts",
            "services",
            "services/proxy",
        ],
        WRITE,
    ),
    _rule([""], ["serviceaccounts/token"], ["create"]),
    _rule(
        ["apps"],
        ["daemonsets", "deployments", "deployments/rollback", "deployments/scale", "replicasets", "replicasets/scale"],
        WRITE,
    ),
    _rule(["autoscaling"], ["horizontalpodautoscalers"], WRITE),
    _rule(["batch"], ["cronjobs", "jobs"], WRITE),
    _rule(["policy"], ["poddisruptionbudgets"], WRITE),
    _rule(["networking.k8s.io"], ["ingresses", "networkpolicies"], WRITE),
    _rule(["coordination.k8s.io"], ["leases"], [*READ, *WRITE]),
]
_ADMIN = [
    _rule(["authorization.k8s.io"], ["localsubjectaccessreviews"], ["create"]),
    _rule(
        [RBAC],
        ["rolebindings", "roles"],
        ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    ),
]
_REVIEW = [
    _rule(["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
    _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
]
_ANY = [_rule(["*"], ["*"], ["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}]
_OPENID = [
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
]
_INFO = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
]

ROLES: dict[str, list[Object]] = {
    "cluster-admin": _ANY,
    "admin": [*_ADMIN, *_EDIT, *_VIEW],
    "edit": [*_EDIT, *_VIEW],
    "view": _VIEW,
    "system:basic-user": _REVIEW,
    "system:discovery": [{"verbs": ["get"], "nonResourceURLs": _DISCOVERY}],
    "system:public-info-viewer": [{"verbs": ["get"], "nonResourceURLs": _INFO}],
    "system:service-account-issuer-discovery": [{"verbs": ["get"], "nonResourceURLs": _OPENID}],
}
BINDINGS: dict[str, list[str]] = {
    "cluster-admin": ["system:masters"],
    "system:basic-user": ["system:authenticated"],
    "system:discovery": ["system:authenticated"],
    "system:public-info-viewer": EVERYBODY,
    "system:service-account-issuer-discovery": ["system:serviceaccounts"],
}
PRIORITIES = {
    "system-cluster-critical": (2_000_000_000, "run in the cluster, but can be moved to another node if necessary"),
    "system-node-critical": (2_000_001_000, "not be moved from their current node"),
}


def objects() -> Iterator[tuple[str, Object]]:
    """Yield (key, object) of all initial objects, except namespaces."""
    meta: dict[str, Any]
    for name, rules in ROLES.items():
        meta = {
            "name": name,
            "labels": dict(DEFAULTS),
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        }
        yield f"clusterroles.{RBAC}", {"metadata": meta, "rules": rules}
    for name, groups in BINDINGS.items():
        meta = {
            "name": name,
            "labels": dict(DEFAULTS),
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        }
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
        subjects = [{"kind": "Group", "apiGroup": RBAC, "name": group} for group in groups]
        yield f"clusterrolebindings.{RBAC}", {"metadata": meta, "roleRef": reference, "subjects": subjects}
    for name, (value, where) in PRIORITIES.items():
        text = f"Used for system critical pods that must {where}."
        yield (
            "priorityclasses.scheduling.k8s.io",
            {
                "metadata": {"name": name},
                "value": value,
                "description": text,
                "preemptionPolicy": "PreemptLowerPriority",
            },
        )
    labels = {"component": "apiserver", "provider": "kubernetes"}
    port = {"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}
    spec = {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "type": "ClusterIP", "ports": [port]}
    yield "services", {"metadata": {"name": "kubernetes", "namespace": "default", "labels": labels}, "spec": spec}
