"""Whether the profile fits this cluster: determined before a requirement of the profile alone fails it.

Only evidence of another kind of cluster counts. An item that is merely absent is missing, and the cluster's fault.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from jobs.cluster.facts.claims import Definitions
from jobs.cluster.facts.inventory import Inventory
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec

from ..framework.evidence import Evidence
from ..profiles.loader import Profile
from ..profiles.proposal import FABRIC, GKE_NETWORK
from .pool import LEFT_OUT, Pool, resource_of
from .rdma_offer import gke_networks

OTHER_KIND = "nodes.other-kind"
UNSEEN = (
    "Either the profile describes other machines, or all of this is missing here: this account may not list nodes. "
    "An account with that permission can decide (labels and allocatable in kubectl get nodes -o yaml)"
)
GOOGLES = "cloud.google.com/"
"""Prefixes of the labels of every GKE node (cloud.google.com/gke-nodepool and others)."""
DEVICES = ".deviceclass.resource.k8s.io/devices"
"""The quota resource of a device class (kubernetes.io, Resource Quotas)."""
OF_NODES = re.compile(r"\b0/(\d+) nodes are available: (.*)", re.DOTALL)
INSUFFICIENT = re.compile(r"\b(\d+) Insufficient ([\w./-]+\w)")
TAINTED = re.compile(r"\b(\d+) node\(s\) had untolerated taint")
UNMATCHED = re.compile(r"\b(\d+) node\(s\) didn't match Pod's node affinity/selector")
NO_CLASS = re.compile(r"device class (\S+) does not exist")
NO_VOLUME = re.compile(r'MountVolume\.SetUp failed for volume "([^"]+)" : hostPath')
ALL_PODS = re.compile(r"\b(\d+) of \1 pods have not started")
"""Messages of the scheduler and the kubelet (kubernetes/kubernetes: pkg/scheduler/framework/types.go, FitError;
plugins/noderesources, nodeaffinity, dynamicresources; pkg/volume/hostpath)."""


def misfit(pool: Pool, profile: Profile) -> str:
    """Name the key of the profile that does not fit, and the actual value; '' if it fits, or is unknown.

    If every node has other NICs, and none has the profile's, the fabric is another one. Without any NIC, a device
    plugin is missing. Google's networks, each counted as a resource, exist on Google's nodes only.
    """
    outside = {name: why for name, why in pool.outside.items() if why != LEFT_OUT}
    if outside and not pool.nodes:
        node, why = next(iter(outside.items()))
        return _does_not_fit(profile, "gpu.product, pool", f"{node} is {why}")
    if pool.instead:
        why = f"no node has {resource_of(profile)}, and there are {pool.instead}"
        return _does_not_fit(profile, "gpu.resource", why)
    pod = profile.pod
    networks = sorted(set(gke_networks(pod.annotations).values()))
    google = [GKE_NETWORK + name for name in networks]
    for key, names in (("pod.resources", pod.resources), ("pod.annotations", google)):
        asked = sorted(name for name in names if name.startswith(FABRIC))
        if there := _instead([node.allocatable for node in pool.nodes], asked):
            return _does_not_fit(profile, key, f"no node offers {', '.join(asked[:4])}, and every node offers {there}")
    if networks and pool.nodes and not any(label.startswith(GOOGLES) for node in pool.nodes for label in node.labels):
        why = f"it names networks of Google's clusters ({', '.join(networks[:4])}), and no node has a label {GOOGLES}*"
        return _does_not_fit(profile, "pod.annotations", why)
    return ""


def _instead(offers: Collection[Mapping[str, int]], asked: Collection[str]) -> str:
    """Name the NICs that nodes offer, if each offers some and none of them is requested; '' otherwise."""
    nics = [{name for name, count in offer.items() if count > 0 and name.startswith(FABRIC)} for offer in offers]
    if not asked or not nics or any(not each or each & {*asked} for each in nics):
        return ""
    return ", ".join(sorted(set.union(*nics))[:4])


def fits(evidence: Evidence, pool: Pool, profile: Profile) -> None:
    """End the check as unknown if the profile does not describe this cluster."""
    doubt(evidence, misfit(pool, profile))


def doubt(evidence: Evidence, why: str) -> None:
    """End the check as unknown if there is a reason to assume that the profile is for another cluster."""
    if why:
        evidence.add("cluster", ok=None, observed=why, fault=OTHER_KIND)
        evidence.verdict()


def counted(pool: Pool, profile: Profile) -> str:
    """Report that every node counts its GPUs although the profile claims them; '' otherwise.

    A DRA driver for GPUs replaces the device plugin that counts them. Used if a DeviceClass is missing and no pod
    claims GPUs.
    """
    resource = resource_of(profile)
    counts = [node.capacity.get(resource, 0) for node in pool.nodes]
    if profile.gpu.resource or not profile.pod.claims or not counts or not all(counts):
        return ""
    why = (
        f"it claims GPUs, and every node counts them; for those a profile says gpu.resource {resource} and claims none"
    )
    return _does_not_fit(profile, "gpu.resource, pod.claims", why)


def undefined(definitions: Definitions, cluster: Inventory, profile: Profile) -> str:
    """Report that none of the profile's networks exists, if the nodes cannot be listed; '' otherwise.

    If one of them exists, the profile is for this cluster, and the others are missing.
    """
    if "nodes" not in cluster.not_seen or any(item is not None for item in definitions.values()):
        return ""
    names = [f"{space}/{name}" if space else name for space, name in sorted(definitions)]
    return _may_not_fit(profile, "pod.annotations", f"none of {', '.join(names[:4])} is defined here")


def unstarted(
    trial: TrialResult, spec: TrialSpec, cluster: Inventory, profile: Profile, here: Collection[str] = ()
) -> str:
    """Report that the trial did not start because of the profile's requests, if the nodes cannot be listed; else ''.

    Only properties that no node has count: a fabric's devices, a device class, a label, a folder of the host. Any job
    requests GPUs, CPUs and memory. ``here``: the resources that this cluster is known to have, as quotas count them
    (see ``known_here``): the cluster must offer those. A pod that was scheduled has found everything that it requests
    of a node.
    """
    failed = trial.analysis
    if "nodes" not in cluster.not_seen or failed is None or failed.disrupted:
        return ""
    texts = (failed.observed, *failed.events)
    placed = any(replica.node for replica in trial.replicas)
    reasons = {} if placed else {key: what for text in texts for key, what in _unplaced(text, spec, here)}
    if lost := next(filter(None, (_unmounted(text, spec) for text in texts)), ""):
        reasons["pod.volumes"] = lost
    return _may_not_fit(profile, next(iter(reasons)), "; ".join(reasons.values())) if reasons else ""


def known_here(cluster: Inventory, granted: Collection[str], networks: Definitions, spec: TrialSpec) -> frozenset[str]:
    """Return the resources of this cluster that a tenant can see: in use by pods, or granted by a quota.

    If a network exists that only the profile names, the profile is for this cluster, and so are its resources.
    """
    held = {name for pod in cluster.pods if pod.node for name, count in pod.requests.items() if count > 0}
    return frozenset(
        {*granted, *held, *(spec.resources if any(item is not None for item in networks.values()) else ())}
    )


def _unplaced(text: str, spec: TrialSpec, here: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each key of the profile that no node satisfies, by the scheduler's message."""
    match = OF_NODES.search(text)
    if match is None:
        return
    nodes, why = int(match[1]), match[2]
    unmatched = sum(map(int, UNMATCHED.findall(why)))
    rest = nodes - sum(map(int, TAINTED.findall(why)))  # control plane nodes, and others that users' pods cannot use
    if spec.node_selector and 0 < rest == unmatched:
        yield "pod.node_selector", f"none of {rest} nodes has its labels"
    short = {what: int(count) for count, what in INSUFFICIENT.findall(why)}
    rest -= unmatched
    whole = short.get(spec.gpu_resource, 0) < rest  # some node has the GPUs, but lacks other resources
    fabric = {name for name in spec.resources if name.startswith(FABRIC)} - {*here}
    if lacking := sorted(what for what in fabric if short.get(what, 0) == nodes or (whole and short.get(what) == rest)):
        yield "pod.resources", f"none of {short[lacking[0]]} nodes has {', '.join(lacking)} to give"
    missing = NO_CLASS.search(why)
    if missing and missing[1] + DEVICES not in here:
        yield "pod.claims", f"no device class {missing[1]}"


def _unmounted(text: str, spec: TrialSpec) -> str:
    """Report that no pod started because of a missing host path, by the kubelet's message; '' otherwise."""
    brought = {str(volume.get("name")): volume.get("hostPath") for volume in spec.volumes}
    lost = NO_VOLUME.search(text)
    if lost and brought.get(lost[1]) and ALL_PODS.search(text):
        return f"no node of a pod has the path that volume {lost[1]} mounts"
    return ""


def _does_not_fit(profile: Profile, key: str, why: str) -> str:
    return f"the profile {profile.name} ({key}) does not fit this cluster: {why}"


def _may_not_fit(profile: Profile, key: str, why: str) -> str:
    return f"the profile {profile.name} ({key}) may not fit this cluster: {why}. {UNSEEN}"
