"""Topology rules: GPUs and NICs are close to each other, uniform on all nodes, and can be aligned by the kubelet.

Rule: a node's own report is compared with the profile and with the other nodes; unreadable values are not faults.
Whether a kubelet admits a request is computed from the NUMA zones in NodeResourceTopology objects. The kubelet's own
configuration is read only if the profile requires a policy and the account has the permission (nodes/proxy).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest
from typing import Any, Final

from jobs.cluster.facts.kubelets import TopologyManager
from jobs.cluster.unstructured import Unstructured, name_of, whole
from jobs.run.result import TrialResult
from jobs.run.stages.hardware import TopologyStage
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from ..profiles.loader import Profile
from ..profiles.schema import LEVELS, SCOPES, VERBS, TopologySection
from .findings import compared, difference, failed, majority, passed, unknown
from .ranks import every_stage, missing_stage, place, rdma_ports, stages

STAGE: Final = "topology"
STRICT = ("single-numa-node", "restricted")
MOST_ZONES = 8
"""The Topology Manager does not support nodes with more NUMA nodes
(https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/#known-limitations)."""
OLD_NAMES = {
    "SingleNUMANodeContainerLevel": "single-numa-node",
    "SingleNUMANodePodLevel": "single-numa-node",
    "Restricted": "restricted",
    "RestrictedContainerLevel": "restricted",
    "RestrictedPodLevel": "restricted",
    "BestEffort": "best-effort",
    "BestEffortContainerLevel": "best-effort",
    "BestEffortPodLevel": "best-effort",
    "None": "none",
}
"""`topologyPolicies` of v1alpha1 (noderesourcetopology-api, v1alpha1/types.go), in the kubelet's terms."""


AskKubelets = Callable[[Sequence[str]], Mapping[str, TopologyManager] | None]


@dataclass(frozen=True, slots=True)
class Zones:
    """A node's NUMA zones in its NodeResourceTopology, and the kubelet's policy."""

    node: str
    policy: str  # '' if the object does not report it
    offers: tuple[Mapping[str, int], ...]  # allocatable of each zone
    scope: str = ""


def read_zones(items: Iterable[Unstructured]) -> dict[str, Zones]:
    """Parse NodeResourceTopology objects, v1alpha1 and v1alpha2, which are named after their nodes."""
    by_node = {}
    for item in items:
        name = name_of(item)
        given = [a for a in item.get("attributes") or [] if isinstance(a, dict)]
        attributes = {str(a.get("name")): str(a.get("value")) for a in given}
        old_name = next(map(str, item.get("topologyPolicies") or []), "")
        scope = next((s for s in SCOPES if old_name.endswith(f"{s.title()}Level")), "")
        zones = [z for z in item.get("zones") or [] if isinstance(z, dict) and z.get("type", "Node") == "Node"]
        offers = tuple(_offered(zone) for zone in zones)
        by_node[name] = Zones(
            name,
            attributes.get("topologyManagerPolicy") or OLD_NAMES.get(old_name, ""),
            offers,
            attributes.get("topologyManagerScope") or scope,
        )
    return by_node


def _offered(zone: Unstructured) -> dict[str, int]:
    given = [r for r in zone.get("resources") or [] if isinstance(r, dict)]
    return {str(r.get("name")): whole(r.get("allocatable") or 0) for r in given}


def undecided(nodes: Iterable[str], zones: Mapping[str, Zones], demand: TopologySection) -> list[str]:
    """Return the nodes without an object that shows the properties required by the profile."""
    asked = [key for key in ("policy", "scope") if getattr(demand, key)]
    return [node for node in nodes if node not in zones or not all(getattr(zones[node], key) for key in asked)]


def asked_for(
    nodes: Iterable[str], zones: Mapping[str, Zones], demand: TopologySection, ask: AskKubelets, hidden: str
) -> tuple[dict[str, Zones], dict[str, str]]:
    """Return the zones, with kubelets queried for values that no object shows, and node -> why they remain unknown.

    ``ask``: None if the account lacks the permission. ``hidden``: why the objects are not visible.
    """
    unreported = undecided(nodes, zones, demand)
    reported = ask(unreported) if unreported else {}
    if reported is None:
        objects = hidden or "no NodeResourceTopology object reports it"
        return {**zones}, dict.fromkeys(
            unreported, f"{objects}, and this account has no permission for kubelets' API (get nodes/proxy)"
        )
    return with_kubelets(zones, reported), {node: each.problem for node, each in reported.items()}


def with_kubelets(zones: Mapping[str, Zones], reported: Mapping[str, TopologyManager]) -> dict[str, Zones]:
    """Return the zones, with the kubelets' own configuration added."""
    known = {
        node: Zones(node, each.policy, zones[node].offers if node in zones else (), each.scope)
        for node, each in reported.items()
        if not each.problem
    }
    return {**zones, **known}


def demand_findings(
    nodes: Iterable[str], zones: Mapping[str, Zones], profile: Profile, why: Mapping[str, str]
) -> Iterator[Finding]:
    """Compare each kubelet's policy and scope with the profile's; ``why``: node -> why they are unknown."""
    asked = {key: value for key in ("policy", "scope") if (value := getattr(profile.topology, key))}
    expected = ", ".join(f"{key} {value}" for key, value in asked.items()) + f" (profile {profile.name}, topology)"
    for node in nodes:
        reported = {key: getattr(zones[node], key) if node in zones else "" for key in asked}
        observed = ", ".join(f"{key} {value or 'not reported'}" for key, value in reported.items())
        if any(value and value != asked[key] for key, value in reported.items()):
            yield failed(node, observed, expected, "topology.policy-differs")
        elif not all(reported.values()):
            yield unknown(node, why.get(node) or observed, expected)
        else:
            yield passed(node, observed, expected)


def policy_findings(nodes: Iterable[str], zones: Mapping[str, Zones], spec: TrialSpec) -> Iterator[Finding]:
    """Judge whether each node's kubelet could ever admit a pod of the trial on an empty node."""
    for node in nodes:
        known = zones.get(node)
        if known is None or not known.policy:
            yield unknown(node, "no NodeResourceTopology reports this node's policy")
            continue
        why = refused(known, spec.extended)
        shape = ", ".join(f"{count} {name}" for name, count in spec.extended.items())
        observed = f"policy {known.policy}" + (f": {why}" if why else "")
        yield compared(node, not why, observed, f"a pod with {shape} can be admitted", "topology.inadmissible")


def refused(node_zones: Zones, devices: Mapping[str, int]) -> str:
    """Explain why the Topology Manager could never admit a container with these devices; '' if it could.

    A device's best hint is the smallest set of NUMA nodes with enough of it. `restricted` requires one set that is best
    for all devices; `single-numa-node` requires that set to be one node (Kubernetes, Topology Manager policies).
    """
    if node_zones.policy not in STRICT or not node_zones.offers:
        return ""
    best: dict[str, set[frozenset[int]]] = {}
    for name, count in devices.items():
        if count and any(name in offer for offer in node_zones.offers):  # a device outside all zones has no hint
            best[name] = smallest(node_zones.offers, name, count)
    for name, sets in best.items():
        spread = " + ".join(str(offer.get(name, 0)) for offer in node_zones.offers)
        if not sets:
            return f"{devices[name]} {name} are more than the NUMA nodes have together ({spread})"
        if node_zones.policy == "single-numa-node" and all(len(each) > 1 for each in sets):
            return f"{devices[name]} {name} do not fit into one NUMA node ({spread})"
    if best and not set.intersection(*best.values()):
        return f"no set of NUMA nodes is the best one for all of {', '.join(best)}"
    return ""


def smallest(offers: tuple[Mapping[str, int], ...], name: str, count: int) -> set[frozenset[int]]:
    """Return the smallest sets of zones that together have this number of a device."""
    zones = range(min(len(offers), MOST_ZONES))
    for size in range(1, len(zones) + 1):
        sufficient = {
            frozenset(c) for c in combinations(zones, size) if sum(offers[z].get(name, 0) for z in c) >= count
        }
        if sufficient:
            return sufficient
    return set()


# -- the pods' view


def affinity_findings(trial: TrialResult, spec: TrialSpec, profile: Profile) -> Iterator[Finding]:
    """Judge the distance between each GPU and its nearest NIC."""
    farthest = profile.topology.gpu_nic_max or LEVELS[-1]
    expected = f"{farthest} or nearer (profile {profile.name})"
    for rank in range(spec.nodes):
        node, data = place(trial, rank), stages(trial, rank).get(STAGE)
        nearest = _nearest(data, trial, rank, profile) if data else {}
        if data is None or not nearest:
            why = missing_stage(trial, rank, STAGE) if data is None else data["error"]
            why = why or "neither nvidia-smi topo -m nor sysfs shows GPUs with NICs"
            yield unknown(node, str(why), expected)
            continue
        if lost := _unseen(data, len(nearest), spec.gpus_per_node):
            yield unknown(node, lost, expected)
            continue
        far = {gpu: way for gpu, way in nearest.items() if LEVELS.index(way[0]) > LEVELS.index(farthest)}
        if len(nearest) - len(far) >= (profile.fabric.rails or len(nearest)):
            far = {}  # fewer NICs than GPUs: each NIC has its own, and the other GPUs reach them over NVLink (PXN)
        for gpu, (level, nic) in far.items():
            yield failed(f"{node} GPU {gpu}", f"{level} to {nic}, its nearest card", expected, "topology.gpu-nic-far")
        if not far:
            counts = Counter(level for level, _ in nearest.values())
            shown = ", ".join(f"{count} x {level}" for level, count in sorted(counts.items()))
            yield passed(node, f"nearest NICs: {shown}", expected)


def _unseen(data: TopologyStage, gpus: int, gpus_of_pod: int) -> str:
    """Name the unknown paths between GPUs and NICs; '' if all are known."""
    paths = data["paths"]
    if broken := [p for p in paths if None in (p["gpu"], p["nic"], p["path"])]:
        return f"{len(broken)} of {len(paths)} paths between GPUs and NICs are incomplete"
    if gpus < gpus_of_pod:
        return f"the links of {gpus} GPUs are reported, but the pod has {gpus_of_pod}"
    ways = Counter(p["gpu"] for p in paths)
    fewer = [str(gpu) for gpu, count in ways.items() if count < max(ways.values())]
    return f"the links to some NICs are missing for GPU {', '.join(fewer)}" if fewer else ""


def _nearest(data: TopologyStage, trial: TrialResult, rank: int, profile: Profile) -> dict[Any, tuple[str, str]]:
    """Return each GPU's nearest NIC of the fabric, and its distance, independent of the NICs that NCCL selects."""
    ports = rdma_ports(trial, rank)
    layer = VERBS.get(profile.fabric.kind or "")
    allowed = {str(p["name"]) for p in ports if layer is None or p["link_layer"] in (layer, None)}
    allowed = set() if any(p["name"] is None for p in ports) else allowed
    best: dict[Any, tuple[str, str]] = {}
    for path in data["paths"]:
        level, nic = path["path"], str(path["nic"])
        if level not in LEVELS or (allowed and nic not in allowed):
            continue
        gpu = path["gpu"]
        if gpu not in best or LEVELS.index(level) < LEVELS.index(best[gpu][0]):
            best[gpu] = (level, nic)
    return best


def likeness_findings(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Compare the nodes GPU by GPU: NUMA node and links to every other GPU and NIC."""
    rows = {rank: _rows(trial, rank) for rank in sorted(range(spec.nodes), key=lambda rank: place(trial, rank))}
    whole = {rank: each for rank, each in rows.items() if len(each) >= spec.gpus_per_node}
    most = majority(tuple(each) for each in whole.values())
    usual = list(most[0]) if most else []
    if shown := {place(trial, rank): each for rank, each in whole.items() if not most}:
        yield difference("GPU topology", _apart(shown), "topology.differs")
    for rank, own in rows.items():
        node = place(trial, rank)
        if not own:
            silent = stages(trial, rank).get(STAGE) is None
            yield unknown(node, missing_stage(trial, rank, STAGE) if silent else "its topology was not read")
            continue
        if len(own) < spec.gpus_per_node:
            observed = f"{len(own)} GPUs are reported, but the pod has {spec.gpus_per_node}"
            yield unknown(node, observed, "every GPU's place")
            continue
        unlike = [(mine, theirs) for mine, theirs in zip(own, usual, strict=False) if mine != theirs]
        ok = own == usual or not most
        other = next((place(trial, r) for r, each in rows.items() if each == usual), "")
        observed = f"{len(own)} GPUs like the other nodes'" if most else f"{len(own)} GPUs"
        if not ok:
            first = f", first {unlike[0][0]}" if unlike else ""
            observed = f"{len(unlike) or len(own)} of {len(own)} GPUs are connected differently{first}"
        expected = f"as on {other}: {unlike[0][1]}" if unlike else "the same on all nodes"
        yield compared(node, ok, observed, expected, "topology.differs")


def _apart(rows: Mapping[str, list[str]]) -> dict[str, str]:
    """Return for each node the first row that differs between nodes, including rows that some nodes lack."""
    place_of = next((n for n, each in enumerate(zip_longest(*rows.values())) if len(set(each)) > 1), 0)
    return {node: each[place_of] if place_of < len(each) else f"only {len(each)} GPUs" for node, each in rows.items()}


def _rows(trial: TrialResult, rank: int) -> list[str]:
    rows = every_stage(trial, rank)[STAGE]["rows"]
    return [re.sub(r"\s+", " ", str(row)) for row in rows]


def acs_findings(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Judge ACS of the bridges above GPUs and NICs, on the nodes where pods can read it."""
    switches = {rank: every_stage(trial, rank)[STAGE]["acs"] for rank in range(spec.nodes)}
    for rank, bridges in switches.items() if any(switches.values()) else ():
        if not bridges or any(b["enabled"] is None for b in bridges):
            observed = "ACS is unknown for some bridges" if bridges else "ACS is not reported, unlike on other nodes"
            yield unknown(place(trial, rank), observed)
            continue
        on = [str(b["bus_id"]) for b in bridges if b["enabled"]]
        observed = f"ACS redirects on {len(on)} of {len(bridges)} bridges: {', '.join(on[:4])}" if on else "ACS is off"
        expected = "no bridge above a GPU or a NIC redirects peer-to-peer traffic"
        yield compared(place(trial, rank), not on, observed, expected, "topology.acs")
