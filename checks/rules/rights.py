"""The permissions of a run and of training, reviewed one by one.

Derived from the API requests in the code: the launcher (create a suspended Job, then its ConfigMap and Service, resume
it, watch it and its pods, follow the logs, read the events of a failure) and the clean-up (list and delete by label).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from jobs.cluster.client.kube import Allowed, Kube
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from ..profiles.loader import Profile
from .findings import compared
from .rdma_offer import GKE, MULTUS

AT_ONCE = 8
"""Number of concurrent reviews: enough to hide the latency of a remote cluster, few enough for a small API server."""


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource; ``scope`` is 'namespace' or 'cluster'."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    scope: str = "namespace"
    name: str = ""  # name of the one object; OWN: the namespace itself

    def subject(self, namespace: str) -> str:
        """Name the permission as kubectl would: 'create jobs.batch in ns', 'get pods/log in ns', 'list nodes'."""
        resource = ".".join(p for p in (self.resource, self.group) if p)
        resource = "/".join(p for p in (resource, self.subresource) if p)
        if self.name:
            resource += f" {namespace if self.name == OWN else self.name}"
        return f"{self.verb} {resource}" + (f" in {namespace}" if self.scope == "namespace" else "")


OWN = "{namespace}"
"""Placeholder for the namespace of the run."""


def rights(verbs: str, resource: str, group: str = "", subresource: str = "", scope: str = "namespace") -> list[Right]:
    """Return several verbs on one resource as permissions."""
    return [Right(verb, resource, group, subresource, scope) for verb in verbs.split()]


RUN: tuple[Right, ...] = (
    *rights("create get list watch patch delete", "jobs", "batch"),
    *rights("list watch", "pods"),
    *rights("get", "pods", subresource="log"),
    *rights("create get list delete", "configmaps"),
    *rights("create get list delete", "services"),
    *rights("list", "events"),
)
"""Permissions without which the trial cannot run, or could not be cleaned up."""
_CHANGE_JOBS = Right("patch", "jobs", "batch")
LEASE, STATE, RESULTS = "seatrial-cron", "seatrial-state", "seatrial-results"
"""The objects of scheduled runs: lease, history and results."""
CRON: tuple[Right, ...] = (
    *rights("create", "leases", "coordination.k8s.io"),
    *(Right(verb, "leases", "coordination.k8s.io", name=LEASE) for verb in ("get", "patch")),
    *(Right("patch", "configmaps", name=name) for name in (STATE, RESULTS)),
    *rights("create", "events"),
)
"""Additional permissions of a scheduled run; it creates the two ConfigMaps and reads them with the trial's permissions.
"""
LABELLING = Right("patch", "nodes", scope="cluster")
CONDITIONING = Right("patch", "nodes", subresource="status", scope="cluster")
"""Permissions of `seatrial cron --label-nodes` and `--node-condition`, off by default."""


def new_node_rights(key: str | None) -> tuple[Right, ...]:
    """Return the permissions of `seatrial cron --new-nodes [KEY]`: its condition, and with KEY a taint or label."""
    return () if key is None else (CONDITIONING, LABELLING) if key else (CONDITIONING,)


CONFIGZ = Right("get", "nodes", subresource="proxy", scope="cluster")
"""Permission to read a kubelet's configuration; it also grants the rest of the kubelet's API, so no printed Role has
it."""
HANG: tuple[Right, ...] = (
    *rights("get list", "pods"),
    *rights("get", "pods", subresource="log"),
    *rights("get create", "pods", subresource="exec"),
    *rights("list", "events"),
    *rights("get", "nodes", scope="cluster"),
)
"""Permissions that `seatrial explain job/NAME` can use on a job that hangs; no run needs them. An exec over WebSocket
is a get, and since Kubernetes 1.35 also a create."""

TRAINING: tuple[Right, ...] = (
    # Actions of a submitting tool (NVIDIA TAO on Kubernetes: Indexed Job and headless Service, logs of all pods,
    # failure analysis from pods and events, cancelling by deletion), and those to inspect and replace a stuck rank.
    *rights("create get list watch delete", "jobs", "batch"),
    *rights("get list watch delete", "pods"),
    *rights("get", "pods", subresource="log"),
    *rights("create get delete", "services"),
    *rights("create get delete", "configmaps"),
    *rights("list", "events"),
)
"""Permissions without which the usual tools cannot submit, watch or cancel a training job in this namespace."""

KINDS: Mapping[str, tuple[Right, ...]] = {
    # Permissions to submit, watch and cancel a job of each kind; the plurals are those of the CRDs.
    "mpijob": tuple(rights("create get list watch patch delete", "mpijobs", "kubeflow.org")),
    "pytorchjob": tuple(rights("create get list watch patch delete", "pytorchjobs", "kubeflow.org")),
    "trainjob": tuple(rights("create get list watch patch delete", "trainjobs", "trainer.kubeflow.org")),
    "kueue": (*rights("get", "localqueues", "kueue.x-k8s.io"), *rights("list", "workloads", "kueue.x-k8s.io")),
    "volcano": tuple(rights("create get list delete", "podgroups", "scheduling.volcano.sh")),
    "claims": tuple(rights("create get list delete", "resourceclaimtemplates", "resource.k8s.io")),
}

NEEDS: Mapping[str, tuple[Right, ...]] = {
    "run": RUN,
    "training": TRAINING,
    "namespace": (Right("get", "namespaces", name=OWN),),
    "dry-run": (Right("create", "pods"),),
    "quotas": (Right("list", "resourcequotas"),),
    "nodes": (Right("list", "nodes", scope="cluster"),),
    "pods": (Right("list", "pods", scope="cluster"),),
    "node-events": (Right("list", "events", scope="cluster"),),
    "clusterpolicies": (Right("list", "clusterpolicies", "nvidia.com", scope="cluster"),),
    "deviceclasses": (Right("list", "deviceclasses", "resource.k8s.io", scope="cluster"),),
    "resourceslices": (Right("list", "resourceslices", "resource.k8s.io", scope="cluster"),),
    "drains": (
        Right("list", "poddisruptionbudgets", "policy", scope="cluster"),
        Right("list", "daemonsets", "apps", scope="cluster"),
    ),
    "servicemonitors": (Right("list", "servicemonitors", "monitoring.coreos.com", scope="cluster"),),
    "topologies": (Right("list", "noderesourcetopologies", "topology.node.k8s.io", scope="cluster"),),
    "networks": (Right("get", "network-attachment-definitions", "k8s.cni.cncf.io"),),
    "gke-networks": (Right("get", "networks", "networking.gke.io", scope="cluster"),),
    "storage": (
        Right("get", "persistentvolumeclaims"),
        Right("get", "storageclasses", "storage.k8s.io", scope="cluster"),
    ),
    "clusterqueues": (
        Right("get", "clusterqueues", "kueue.x-k8s.io", scope="cluster"),
        Right("get", "resourceflavors", "kueue.x-k8s.io", scope="cluster"),
        Right("get", "topologies", "kueue.x-k8s.io", scope="cluster"),
    ),
    "volcano-queues": (Right("get", "queues", "scheduling.volcano.sh", scope="cluster"),),
    "runtimes": (Right("get", "clustertrainingruntimes", "trainer.kubeflow.org", scope="cluster"),),
}
"""API resources that a check may declare. The permission checks before a run and `seatrial rbac` read this table."""

EXCESSIVE: tuple[Right, ...] = (
    # An account with one of these is not a tenant's: it can read other tenants' credentials, or change all machines.
    *rights("get list", "secrets", scope="cluster"),
    *rights("create", "pods", subresource="exec", scope="cluster"),
    *rights("patch delete", "nodes", scope="cluster"),
    *rights("create", "clusterrolebindings", "rbac.authorization.k8s.io", scope="cluster"),
)
"""Permissions that a tenant must not have."""


def beyond_namespace(needs: Iterable[str]) -> str:
    """Name those of the needs that no namespaced Role can grant: 'list nodes, list pods'; '' if there are none."""
    cluster_rights = (right for need in needs for right in NEEDS[need] if right.scope == "cluster")
    return ", ".join(dict.fromkeys(right.subject("") for right in cluster_rights))


def wanted_by(needs: Iterable[str], *, spec: TrialSpec | None = None, tenant: bool = False) -> tuple[Right, ...]:
    """Return the permissions for these needs, each once, adapted to the trial's launcher and queue."""
    needed = [right for need in NEEDS if need in set(needs) for right in NEEDS[need]]
    if spec is not None and {"run", "training"} & set(needs):
        needed += launching(spec)
        # Training tools submit, watch and cancel Jobs with any launcher of the trial; only the trial's own one modifies
        # them.
        needed = [right for right in needed if right != _CHANGE_JOBS or spec.launcher == "indexed"]
    return tuple(dict.fromkeys(right for right in needed if not (tenant and right.scope == "cluster")))


def unused(spec: TrialSpec, profile: Profile) -> set[str]:
    """Return the needs that this trial does not have, such as those for claims and networks."""
    kinds = set() if spec.claims else {"deviceclasses", "resourceslices"}
    kinds |= set() if MULTUS in spec.annotations else {"networks"}
    kinds |= set() if GKE in spec.annotations else {"gke-networks"}
    stored = profile.storage.classes or any(item.claim for item in spec.storage)
    kinds |= set() if stored else {"storage"}
    queue = spec.queue.kind if spec.queue else ""
    kinds |= set() if queue == "kueue" else {"clusterqueues"}
    kinds |= set() if queue == "volcano" else {"volcano-queues"}
    kinds |= set() if spec.launcher == "trainjob" else {"runtimes"}
    return kinds if profile.observability.service_monitor else kinds | {"servicemonitors"}


def launching(spec: TrialSpec) -> list[Right]:
    """Return the permissions for this trial's kind of job, queue and device claims, in addition to RUN."""
    kinds = [spec.launcher, spec.queue.kind if spec.queue else "", "claims" if spec.claims else ""]
    return [right for kind in kinds for right in KINDS.get(kind, ())]


def ask(kube: Kube, rights: Iterable[Right]) -> list[tuple[Right, Allowed]]:
    """Review each permission with the API server (SelfSubjectAccessReview), in the order given."""
    rights = list(rights)

    def one(right: Right) -> Allowed:
        namespace = kube.namespace if right.scope == "namespace" else ""
        name = kube.namespace if right.name == OWN else right.name
        return kube.can(
            right.verb, right.resource, group=right.group, subresource=right.subresource, namespace=namespace, name=name
        )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(zip(rights, pool.map(one, rights), strict=True))


ADVICE = "Grant it (seatrial rbac --cluster), or run as a tenant (--tenant)."
"""Advice about a missing permission without which less is visible."""


def findings(answers: Iterable[tuple[Right, Allowed]], namespace: str) -> Iterator[Finding]:
    """Judge the reviews: every permission must be granted."""
    for right, answer in answers:
        denied = f"denied: {answer.reason}" if answer.reason else "denied"
        observed = "allowed" if answer.allowed else denied
        yield compared(right.subject(namespace), answer.allowed, observed, "allowed", "rights.missing")


def excess(answers: Iterable[tuple[Right, Allowed]], *, held: bool) -> Iterator[Finding]:
    """Judge the reviews: none of these may be granted to a tenant if the profile requires it (``held``)."""
    for right, answer in answers:
        bad = answer.allowed and held
        why = f" ({answer.reason})" if answer.reason else ""
        observed = f"allowed{why}" if answer.allowed else "denied"
        expected = "denied" if held else "denied to a tenant (shown, not judged)"
        yield compared(f"{right.subject('')} in all namespaces", not bad, observed, expected, "rights.excessive")


class Answers:
    """The access reviews of this run: none is sent twice."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._known: dict[Right, Allowed] = {}

    def ask(self, rights_asked: Iterable[Right]) -> list[tuple[Right, Allowed]]:
        """Return the result for each permission, in the order given."""
        rights_asked = list(rights_asked)
        self._known |= dict(ask(self._kube, dict.fromkeys(r for r in rights_asked if r not in self._known)))
        return [(right, self._known[right]) for right in rights_asked]
