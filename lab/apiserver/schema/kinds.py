"""The kinds that the server serves: a table of the built-in ones; custom ones are added at run time.

Names, short names, categories and subresources are those in the discovery of a Kubernetes 1.36 server (api-contract,
case discovery-aggregated).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
NO_COLLECTION_DELETE = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
OBJECT_VERBS = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A part of an object with a separate path, such as `pods/log`."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""  # of the kind in the body, if it differs from the resource's own
    version: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One served version of one resource."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    stored_as: str = ""  # the storage key, if another version or group owns the objects
    singular: str = ""
    list_kind: str = ""
    schema: dict[str, Any] | None = None  # for a custom kind: its openAPIV3Schema
    columns: tuple[dict[str, Any], ...] = ()  # for a custom kind: additionalPrinterColumns
    custom: bool = False

    @property
    def key(self) -> str:
        """The name of the resource in the store and in error messages: `pods`, `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def store_key(self) -> str:
        """The storage key of the objects."""
        return self.stored_as or self.key

    @property
    def api_version(self) -> str:
        """The apiVersion: `v1`, `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def lists(self) -> str:
        """The kind of a list of these objects."""
        return self.list_kind or f"{self.kind}List"

    @property
    def singular_name(self) -> str:
        """The names that kubectl accepts for one object."""
        return self.singular or self.kind.lower()

    def sub(self, name: str) -> Subresource | None:
        """Return the subresource with this name."""
        return next((sub for sub in self.subresources if sub.name == name), None)


STATUS = ("status",)
SCALE = ("scale", "status")

# group/version: (plural, Kind, short names, categories, subresources, namespaced)
_TABLE: dict[str, list[tuple[str, str, str, str, tuple[str, ...], bool]]] = {
    "v1": [
        ("configmaps", "ConfigMap", "cm", "", (), True),
        ("endpoints", "Endpoints", "ep", "", (), True),
        ("events", "Event", "ev", "", (), True),
        ("limitranges", "LimitRange", "limits", "", (), True),
        ("namespaces", "Namespace", "ns", "", ("finalize", "status"), False),
        ("nodes", "Node", "no", "", ("proxy", "status"), False),
        ("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", "", STATUS, True),
        ("persistentvolumes", "PersistentVolume", "pv", "", STATUS, False),
        (
            "pods",
            "Pod",
            "po",
            "all",
            (
                "attach",
                "binding",
                "ephemeralcontainers",
                "eviction",
                "exec",
                "log",
                "portforward",
                "proxy",
                "resize",
                "status",
            ),
            True,
        ),
        ("podtemplates", "PodTemplate", "", "", (), True),
        ("replicationcontrollers", "ReplicationController", "rc", "all", SCALE, True),
        ("resourcequotas", "ResourceQuota", "quota", "", STATUS, True),
        ("secrets", "Secret", "", "", (), True),
        ("serviceaccounts", "ServiceAccount", "sa", "", ("token",), True),
        ("services", "Service", "svc", "all", ("proxy", "status"), True),
    ],
    "apiregistration.k8s.io/v1": [("apiservices", "APIService", "", "api-extensions", STATUS, False)],
    "apps/v1": [
        ("controllerrevisions", "ControllerRevision", "", "", (), True),
        ("daemonsets", "DaemonSet", "ds", "all", STATUS, True),
        ("deployments", "Deployment", "deploy", "all", SCALE, True),
        ("replicasets", "ReplicaSet", "rs", "all", SCALE, True),
    ],
    "events.k8s.io/v1": [("events", "Event", "ev", "", (), True)],
    "autoscaling/v2": [("horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa", "all", STATUS, True)],
    "autoscaling/v1": [("horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa", "all", STATUS, True)],
    "batch/v1": [("cronjobs", "CronJob", "cj", "all", STATUS, True), ("jobs", "Job", "", "all", STATUS, True)],
    "certificates.k8s.io/v1": [
        ("certificatesigningrequests", "CertificateSigningRequest", "csr", "", ("approval", "status"), False)
    ],
    "networking.k8s.io/v1": [
        ("ingressclasses", "IngressClass", "", "", (), False),
        ("ingresses", "Ingress", "ing", "", STATUS, True),
        ("networkpolicies", "NetworkPolicy", "netpol", "", (), True),
    ],
    "policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget", "pdb", "", STATUS, True)],
    "rbac.authorization.k8s.io/v1": [
        ("clusterrolebindings", "ClusterRoleBinding", "", "", (), False),
        ("clusterroles", "ClusterRole", "", "", (), False),
        ("rolebindings", "RoleBinding", "", "", (), True),
        ("roles", "Role", "", "", (), True),
    ],
    "storage.k8s.io/v1": [
        ("csidrivers", "CSIDriver", "", "", (), False),
        ("csinodes", "CSINode", "", "", (), False),
        ("storageclasses", "StorageClass", "sc", "", (), False),
        ("volumeattachments", "VolumeAttachment", "", "", STATUS, False),
    ],
    "admissionregistration.k8s.io/v1": [
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "", "api-extensions", (), False),
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "", "api-extensions", STATUS, False),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "", "api-extensions", (), False),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "", "api-extensions", (), False),
    ],
    "apiextensions.k8s.io/v1": [
        ("customresourcedefinitions", "CustomResourceDefinition", "crd,crds", "api-extensions", STATUS, False)
    ],
    "scheduling.k8s.io/v1": [("priorityclasses", "PriorityClass", "pc", "", (), False)],
    "coordination.k8s.io/v1": [("leases", "Lease", "", "", (), True)],
    "node.k8s.io/v1": [("runtimeclasses", "RuntimeClass", "", "", (), False)],
    "discovery.k8s.io/v1": [("endpointslices", "EndpointSlice", "", "", (), True)],
    "resource.k8s.io/v1": [
        ("deviceclasses", "DeviceClass", "", "", (), False),
        ("resourceclaims", "ResourceClaim", "", "", STATUS, True),
        ("resourceclaimtemplates", "ResourceClaimTemplate", "", "", (), True),
        ("resourceslices", "ResourceSlice", "", "", (), False),
    ],
}

# Objects that are created but not stored: reviews, and the binding of a pod to a node.
_ANSWERED: dict[str, list[tuple[str, str, bool]]] = {
    "v1": [("bindings", "Binding", True)],
    "authentication.k8s.io/v1": [
        ("selfsubjectreviews", "SelfSubjectReview", False),
        ("tokenreviews", "TokenReview", False),
    ],
    "authorization.k8s.io/v1": [
        ("localsubjectaccessreviews", "LocalSubjectAccessReview", True),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
        ("subjectaccessreviews", "SubjectAccessReview", False),
    ],
}

# Subresources of another kind than their parent.
_SPEAKS: dict[str, Subresource] = {
    "attach": Subresource("attach", "PodAttachOptions", ("create", "get")),
    "binding": Subresource("binding", "Binding", ("create",)),
    "eviction": Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
    "exec": Subresource("exec", "PodExecOptions", ("create", "get")),
    "portforward": Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
    "scale": Subresource("scale", "Scale", OBJECT_VERBS, "autoscaling", "v1"),
    "token": Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1"),
}

STORED_ELSEWHERE = {"events.k8s.io/v1/events": "events"}

# Kinds whose updates increment the generation: the strategies of k8s.io/kubernetes/pkg/registry that set it.
WITH_GENERATION = frozenset(
    {
        "pods",
        "replicationcontrollers",
        "daemonsets.apps",
        "deployments.apps",
        "replicasets.apps",
        "cronjobs.batch",
        "jobs.batch",
        "ingresses.networking.k8s.io",
        "ingressclasses.networking.k8s.io",
        "networkpolicies.networking.k8s.io",
        "poddisruptionbudgets.policy",
        "priorityclasses.scheduling.k8s.io",
        "endpointslices.discovery.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
    }
)


def _subresource(parent: str, parent_kind: str, name: str) -> Subresource:
    if name in _SPEAKS:
        return _SPEAKS[name]
    if name == "log":
        return Subresource("log", "Pod", ("get",))
    if name == "proxy":
        return Subresource("proxy", f"{parent_kind}ProxyOptions", ("create", "delete", "get", "patch", "update"))
    if parent == "namespaces" and name == "finalize":
        return Subresource("finalize", "Namespace", ("update",))
    return Subresource(name, parent_kind, OBJECT_VERBS)


def builtin() -> Iterator[Kind]:
    """Yield every built-in kind, groups in the order of the server."""
    for group_version in dict.fromkeys([*_TABLE, *_ANSWERED]):
        group, _, version = group_version.rpartition("/")
        for plural, kind, namespaced in _ANSWERED.get(group_version, []):
            yield Kind(group, version, kind, plural, namespaced, verbs=("create",))
        for plural, kind, shorts, categories, subs, namespaced in _TABLE.get(group_version, []):
            yield Kind(
                group,
                version,
                kind,
                plural,
                namespaced,
                short_names=tuple(shorts.split(",")) if shorts else (),
                categories=tuple(categories.split(",")) if categories else (),
                subresources=tuple(_subresource(plural, kind, name) for name in subs),
                verbs=NO_COLLECTION_DELETE if plural == "namespaces" else ALL_VERBS,
                stored_as=STORED_ELSEWHERE.get(f"{group_version}/{plural}", ""),
                singular="endpoints" if plural == "endpoints" else "",
            )


@dataclass(slots=True)
class Kinds:
    """The registry of kinds: lookup by key (`jobs.batch`), by path (group, version, plural) or by group and kind."""

    by_key: dict[str, Kind] = field(default_factory=dict)
    by_path: dict[tuple[str, str, str], Kind] = field(default_factory=dict)
    changed: int = 0  # incremented by additions and removals, so that discovery documents can be cached

    def add(self, kind: Kind) -> None:
        """Add a kind; the first served version of a resource owns its key."""
        self.by_key.setdefault(kind.key, kind)
        self.by_path[kind.group, kind.version, kind.plural] = kind
        self.changed += 1

    def remove(self, group: str, plural: str) -> None:
        """Remove every version of a resource."""
        for path in [path for path in self.by_path if path[0] == group and path[2] == plural]:
            del self.by_path[path]
        self.by_key.pop(f"{plural}.{group}" if group else plural, None)
        self.changed += 1

    def of(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind of an object's apiVersion and kind."""
        group, _, version = api_version.rpartition("/")
        for path, candidate in self.by_path.items():
            if path[0] == group and path[1] == version and candidate.kind == kind:
                return candidate
        return None

    def groups(self) -> dict[str, dict[str, list[Kind]]]:
        """Return group -> version -> kinds, in order of registration."""
        tree: dict[str, dict[str, list[Kind]]] = {}
        for (group, version, _), kind in self.by_path.items():
            tree.setdefault(group, {}).setdefault(version, []).append(kind)
        return tree


def registry() -> Kinds:
    """Return a new registry with the built-in kinds."""
    kinds = Kinds()
    for kind in builtin():
        kinds.add(kind)
    return kinds
