"""The launch stack between the trial and its pods: served kinds, the job's kind, its runtime, its queue.

Objects that this account may not read (a tenant may not read queues of the whole cluster) are reported as not seen,
never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from ..cluster.client.errors import ApiError, ClusterError, NotFound
from ..cluster.client.kube import Kube, path
from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, as_texts, name_of, quantity
from .launchers import kind_of
from .launchers.kind import Kind
from .launchers.queues import KUEUE_GROUP, KUEUE_VERSIONS
from .spec import TrialSpec


@dataclass(frozen=True, slots=True)
class Serving:
    """The served versions of a resource; `not_seen` explains why they are unknown."""

    versions: tuple[str, ...] = ()
    not_seen: str = ""


def serving(kube: Kube, group: str, resource: str) -> Serving:
    """Query discovery for every version of the group."""
    try:
        api_group = as_map(kube.get(f"/apis/{group}"))
        known = [str(item.get("version")) for item in as_list(api_group.get("versions"))]
        versions = [version for version in known if _has(kube, group, version, resource)]
    except NotFound:
        return Serving()
    except ClusterError as error:
        return Serving(not_seen=str(error))
    return Serving(tuple(versions))


def as_served(kube: Kube, kind: Kind, job: Unstructured) -> tuple[Unstructured, str]:
    """Return an operator's object with the fields of its OpenAPI document, and why that is unknown, or ''.

    Every account may read the document (ClusterRole system:discovery).
    """
    try:
        document = as_map(kube.get(f"/openapi/v3/apis/{kind.group}/{kind.version}", deadline_s=OPENAPI_S))
    except ClusterError as error:
        return job, str(error)
    meant = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    schemas = map(as_map, as_map(as_map(document.get("components")).get("schemas")).values())
    schema = next((each for each in schemas if meant in as_list(each.get("x-kubernetes-group-version-kind"))), {})
    fields = as_map(as_map(as_map(schema.get("properties")).get("spec")).get("properties"))
    if not fields:
        return job, f"its OpenAPI document does not describe the spec of a {kind.kind}"
    unknown = ", ".join(f'unknown field "spec.{name}"' for name in job["spec"] if name not in fields)
    return kind.for_other_version(job, unknown) or job, ""


def missing_fault(kind: Kind, serving_now: Serving) -> str:
    """Return the fault of a kind that is not served in the required version; '' if it is."""
    if kind.version in serving_now.versions:
        return ""
    # The Training Operator installs a CRD of the MPI Operator's name that serves v1 only; the last applied one is
    # active (kubeflow/mpi-operator README, "Training Operator").
    return "mpi.wrong-version" if serving_now.versions and kind.name == "mpijob" else "launcher.missing"


def _has(kube: Kube, group: str, version: str, resource: str) -> bool:
    try:
        listing = as_map(kube.get(f"/apis/{group}/{version}"))
    except NotFound:
        return False
    return any(item.get("name") == resource for item in as_list(listing.get("resources")))


OPENAPI_S = 5.0
"""Seconds for the schemas of one group: they only affect the form of printed objects."""
VOLCANO_GROUP = "scheduling.volcano.sh"
TOPOLOGY_VERSIONS = (*KUEUE_VERSIONS, "v1alpha1")
MOST_FLAVORS = 16
"""Per resource group (Kueue's own limit on flavors); each one takes a request."""


@dataclass(frozen=True, slots=True)
class FlavorTopology:
    """The topology by which Kueue places workloads of a flavor; ``levels`` None: it does not exist."""

    flavor: str
    labels: Mapping[str, str]  # the labels of the flavor's nodes
    name: str
    levels: tuple[str, ...] | None  # node labels, the widest domain first


@dataclass(frozen=True, slots=True)
class Flavor:
    """A kind of nodes of a ClusterQueue: the labels by which Kueue selects them, and the tolerations of its pods."""

    name: str
    labels: Mapping[str, str]
    tolerations: tuple[Unstructured, ...]
    covers: tuple[str, ...]  # resources of its group


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStack:
    """The objects found; None: does not exist. `not_seen` has the reason for each one that could not be read."""

    served: Serving = field(default_factory=Serving)
    queue_served: Serving = field(default_factory=Serving)
    runtime: Unstructured | None = None
    local: Unstructured | None = None
    cluster: Unstructured | None = None
    topologies: tuple[FlavorTopology, ...] = ()  # of the ClusterQueue's flavors
    flavors: tuple[Flavor, ...] = ()
    volcano: Unstructured | None = None
    not_seen: Mapping[str, str] = field(default_factory=dict)

    @property
    def cluster_name(self) -> str:
        """The ClusterQueue behind the LocalQueue."""
        return safe(as_map((self.local or {}).get("spec")).get("clusterQueue") or "", 253)


def read_launch_stack(kube: Kube, spec: TrialSpec) -> LaunchStack:
    """Read the objects that this trial's launcher and queue need, and no others."""
    kind = kind_of(spec.launcher)
    hidden: dict[str, str] = {}

    def get(word: str, url_path: str) -> Unstructured | None:
        try:
            return as_map(kube.get(url_path)) or None
        except NotFound:
            return None
        except ApiError as error:
            hidden[word] = error.message or error.reason
            return None

    objects: dict[str, Any] = {}
    if kind.operator:
        objects["served"] = serving(kube, kind.group, kind.resource)
    if spec.launcher == "trainjob" and kind.version in objects["served"].versions:
        group = "trainer.kubeflow.org"
        url_path = path("clustertrainingruntimes", spec.runtime, group=group, version="v1alpha1")
        objects["runtime"] = get("runtime", url_path)
    if spec.queue is not None and spec.queue.kind == "kueue":
        served = serving(kube, KUEUE_GROUP, "localqueues")
        objects["queue_served"] = served
        version = next((v for v in KUEUE_VERSIONS if v in served.versions), "")
        if version:
            where = {"group": KUEUE_GROUP, "version": version}
            objects["local"] = get("local", path("localqueues", spec.queue.name, namespace=spec.namespace, **where))
            name = str(as_map(as_map(objects["local"]).get("spec")).get("clusterQueue") or "")
            if name:
                objects["cluster"] = get("cluster", path("clusterqueues", name, **where))
            asked = flavors_of(objects.get("cluster"))
            flavors = [f for name in asked if (f := get("flavors", path("resourceflavors", name, **where)))]
            objects["flavors"] = tuple(_flavor(each, objects["cluster"]) for each in flavors)
            placed = [(f, str(as_map(f.get("spec")).get("topologyName") or "")) for f in flavors]
            if any(name for _, name in placed):
                served = serving(kube, KUEUE_GROUP, "topologies")
                version = next((v for v in TOPOLOGY_VERSIONS if v in served.versions), KUEUE_VERSIONS[0])
                where = {"group": KUEUE_GROUP, "version": version}
                read = [(f, name, get("topologies", path("topologies", name, **where))) for f, name in placed if name]
                if "topologies" not in hidden:
                    objects["topologies"] = tuple(_topology(*each) for each in read)
    if spec.queue is not None and spec.queue.kind == "volcano":
        objects["queue_served"] = serving(kube, VOLCANO_GROUP, "podgroups")
        if "v1beta1" in objects["queue_served"].versions:
            name = spec.queue.name or "default"
            objects["volcano"] = get("volcano", path("queues", name, group=VOLCANO_GROUP, version="v1beta1"))
    return LaunchStack(not_seen=hidden, **objects)


def flavors_of(cluster: Unstructured | None) -> list[str]:
    """Return the names of a ClusterQueue's flavors, each once."""
    groups = as_list(as_map((cluster or {}).get("spec")).get("resourceGroups"))
    names = (str(flavor.get("name") or "") for group in groups for flavor in as_list(group.get("flavors")))
    return list(dict.fromkeys(filter(None, names)))[:MOST_FLAVORS]


def _flavor(flavor: Unstructured, cluster: Unstructured | None) -> Flavor:
    spec, name = as_map(flavor.get("spec")), name_of(flavor)
    groups = as_list(as_map((cluster or {}).get("spec")).get("resourceGroups"))
    own = [group for group in groups if any(each.get("name") == name for each in as_list(group.get("flavors")))]
    return Flavor(
        safe(name, 253),
        _labels(spec),
        tuple(map(as_map, as_list(spec.get("tolerations")))),
        tuple(resource for group in own for resource in as_texts(group.get("coveredResources"))),
    )


def _labels(spec: Unstructured) -> dict[str, str]:
    return {str(key): str(value) for key, value in as_map(spec.get("nodeLabels")).items()}


def _topology(flavor: Unstructured, name: str, topology: Unstructured | None) -> FlavorTopology:
    spec = as_map(flavor.get("spec"))
    levels = None
    if topology is not None:
        found = (str(level.get("nodeLabel") or "") for level in as_list(as_map(topology.get("spec")).get("levels")))
        levels = tuple(safe(label, 317) for label in found if label)
    return FlavorTopology(safe(name_of(flavor), 253), _labels(spec), safe(name, 253), levels)


@dataclass(frozen=True, slots=True)
class Share:
    """The largest amount of a resource that one flavor of a ClusterQueue offers.

    `most` is None without a bound (a cohort lends).
    """

    nominal: Decimal
    most: Decimal | None


def shares(cluster: Unstructured) -> dict[str, list[Share]]:
    """Read a ClusterQueue's quotas by resource: its own, and the amount it may borrow from its cohort."""
    spec = as_map(cluster.get("spec"))
    lends = bool(spec.get("cohort") or spec.get("cohortName"))
    by_resource: dict[str, list[Share]] = {}
    for group in as_list(spec.get("resourceGroups")):
        for name in as_texts(group.get("coveredResources")):
            by_resource.setdefault(name, [])
        for flavor in as_list(group.get("flavors")):
            for item in as_list(flavor.get("resources")):
                nominal = quantity(str(item.get("nominalQuota") or "0")) or quantity("0")
                limit = quantity(str(item["borrowingLimit"])) if item.get("borrowingLimit") is not None else None
                if nominal is None:
                    continue
                most = nominal if not lends else (nominal + limit if limit is not None else None)
                by_resource.setdefault(str(item.get("name")), []).append(Share(nominal, most))
    return by_resource
