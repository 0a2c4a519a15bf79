"""Node rules: readiness, the number of GPUs of each node, and its software compared with the pool's.

Kernel, system, runtime, kubelet and driver are compared with the majority. Machines of different kinds (ARM and x86, or
different GPUs if no profile names the pool) are compared with their own kind.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from jobs.cluster.facts.conditions import Report
from jobs.cluster.facts.inventory import Inventory, Node, PodUse, driver
from jobs.diagnosis.around import only_of_programs
from jobs.trial.spec import TrialSpec
from reports.record import Finding
from seatrial.faults.actions import heaviest
from seatrial.faults.catalogue import catalogue
from seatrial.faults.xid import action_in

from ..profiles.loader import Profile
from .api import major_minor
from .findings import compared, failed, majority, passed, unknown, unlike
from .pool import LEFT_OUT, Pool, product, resource_of, sharing_fault

NO_PROFILE = "no profile: the expected number of GPUs per node is not known (pass --profile NAME)"

MOST_GPUS = 16
"""Maximum number of GPUs in one machine (NVIDIA HGX-2, AWS p2.16xlarge): a node with more shares its GPUs."""


def node_findings(
    cluster: Inventory, pool: Pool, profile: Profile, selector: str = "", named: tuple[str, ...] = ()
) -> Iterator[Finding]:
    """Judge the number of GPU nodes of the profile's pool, then the readiness of each.

    ``selector``, ``named``: the nodes that the user chose (--nodes, --on). A mismatch with these is not a fault of the
    cluster.
    """
    nodes = pool.nodes
    chosen = f" (--nodes {selector})" if selector else ""
    kind = "nodes" if profile.gpu.none else "GPU nodes"
    having = "for pods: all are of the control plane" if profile.gpu.none else f"with {profile.gpu.resource}"
    expected = f"at least {profile.nodes} {kind}"
    outside = {name: why for name, why in pool.outside.items() if why != LEFT_OUT}
    narrowed = None if selector or len(outside) < len(pool.outside) else False  # other nodes may exist
    known = {node.name for node in cluster.nodes}
    for name in [name for name in dict.fromkeys(named) if name not in known]:
        among = f" among those that --nodes {selector} chooses" if selector else ""
        observed = f"no node has this name{among}"
        yield _other_kind(observed, "the name of a node, as --on has it", subject=name)
    if selector and not cluster.nodes:
        yield _other_kind(f"no node matches --nodes {selector}", expected)
        return
    if outside and not nodes:
        reasons = "; ".join(f"{name} is {why}" for name, why in list(outside.items())[:3])
        observed = f"no {kind.removesuffix('s')} is of this profile's kind: {reasons}"
        yield _other_kind(observed, f"{expected} as {profile.name} describes them")
        return
    if pool.instead:
        observed = f"no {resource_of(profile)}, but {pool.instead}"
        yield _other_kind(observed, f"{expected}; for other accelerators, pass a profile that names them")
        return
    if not cluster.nodes:
        yield failed("cluster", "no node", expected, "nodes.none")
    elif not nodes:
        fault = "nodes.too-few" if profile.gpu.none else "nodes.no-gpu"
        observed = f"{len(cluster.nodes)} nodes{chosen}, none {having}"
        yield Finding(subject="cluster", ok=narrowed, observed=observed, expected=expected, fault=fault)
    elif len(nodes) < profile.nodes:
        with_gpus = "" if profile.gpu.none else f" with {profile.gpu.resource}"
        observed = f"{len(nodes)} of {len(cluster.nodes)} nodes{chosen}{with_gpus}"
        yield Finding(subject="cluster", ok=narrowed, observed=observed, expected=expected, fault="nodes.too-few")
    for node in nodes:
        yield _readiness(node)


def _other_kind(observed: str, expected: str, subject: str = "cluster") -> Finding:
    return unknown(subject, observed, expected, fault="nodes.other-kind")


def _readiness(node: Node) -> Finding:
    state = "Ready" if node.ready else f"not Ready ({node.ready_reason})"
    observed = ", ".join([state, *map(str, node.pressures)])
    fault = "" if node.ready else "nodes.not-ready"
    if node.ready and node.pressures:
        fault = "nodes.pressure"
    return Finding(subject=node.name, ok=not fault, observed=observed, expected="Ready, without pressure", fault=fault)


_HARDWARE = re.compile(r"(?i)\bxid|gpu|nvlink|nvswitch|dcgm|infiniband|\bib[ _]?(?:port|link)|iblink|accelerat|\becc\b")
"""Conditions about the hardware of a training job: XidError, GPUMissing, GpuUnhealthy, IBLinkFlapping,
AcceleratedHardwareReady (node-problem-detector on AKS, NVSentinel, gpud, the node monitoring agent of EKS)."""


def report_findings(nodes: Iterable[Node], events: Iterable[Report]) -> Iterator[Finding]:
    """Judge the agents' reports of each node: a condition about its GPUs or links fails, any other is inconclusive.

    An event may be about a problem that was fixed since, a condition is Unknown if its agent is gone, and the Xid of a
    program's own error is not a broken GPU: these are inconclusive. The caller reports events of other kinds.
    """
    warned: dict[str, list[Report]] = {}
    for event in events:
        if _HARDWARE.search(event.about):
            warned.setdefault(event.node, []).append(event)
    expected = "no condition or event that reports a problem"
    for node in nodes:
        reports = [*node.reports, *warned.get(node.name, ())]
        broken = [each for each in node.reports if _is_broken(each)]
        observed = "; ".join(each.text for each in (broken or reports)[:4])
        if broken:
            asked = catalogue()["nodes.unhealthy"].action_for  # separately: NONE for one text is for that text only
            action = heaviest(word for each in broken for word in (action_in(each.about) or "", asked(each.text)))
            yield failed(node.name, observed, expected, "nodes.unhealthy", action=action or "")
        elif reports:
            yield unknown(node.name, observed, expected, fault="nodes.unhealthy")
        else:
            yield passed(node.name, "none", expected)


_IDLE_IMEX = {"DCGM_FR_IMEX_UNHEALTHY", "DCGMHealthCode122"}
"""DCGM reports this if no IMEX daemon runs: on a node without a compute domain, or without NVLink between nodes
(NVIDIA/DCGM#308, NVIDIA/NVSentinel#1471, aws/eks-node-monitoring-agent#63)."""


def other_events(nodes: Iterable[Node], events: Iterable[Report]) -> Iterator[str]:
    """Name the Warning events of nodes that are not about GPUs or links."""
    names = {node.name for node in nodes}
    for event in events:
        if event.node in names and not _HARDWARE.search(event.about):
            yield f"{event.node}: {event.text}"


def _is_broken(report: Report) -> bool:
    codes = set(re.findall(r"\bDCGM_FR_\w+|\bDCGMHealthCode\d+", report.about))
    certain = report.certain and not only_of_programs(report.text) and not (codes and codes <= _IDLE_IMEX)
    return certain and _HARDWARE.search(report.about) is not None


def offers(
    pool: Pool, profile: Profile, nodes_needed: int, plugins: Mapping[str, Sequence[PodUse]] | None = None
) -> Iterator[Finding]:
    """Compare each node's devices with the profile; nodes with GPU partitions count only if too few have whole GPUs.

    ``plugins``: the device plugin's pods by node.
    """
    for node in pool.whole:
        yield offer(node, profile, (plugins or {}).get(node.name, ()))
    if len(pool.whole) >= nodes_needed:
        return
    for name, why in pool.parts.items():
        yield failed(name, why, "whole GPUs, each offered once", sharing_fault(why))


def offer(node: Node, profile: Profile, plugins: Sequence[PodUse] = ()) -> Finding:
    """Compare a node's devices with the profile, or, without one, with its own capacity."""
    resource = profile.gpu.resource
    offered, capacity = node.allocatable.get(resource, 0), node.capacity.get(resource, 0)
    expected = profile.gpu.per_node or capacity
    observed = f"{offered} allocatable" + (f" of {capacity} in capacity" if capacity != offered else "")
    fault = ""
    if offered == 0:
        fault = "gpu.none-allocatable"
        observed = _none_offered(node, resource, observed, next((pod for pod in plugins if pod.ready), None))
    elif offered < expected:
        fault = "gpu.missing"
    elif offered > expected:
        # Feature discovery counts physical GPUs, even if the plugin shares them: then this machine simply has more
        # GPUs.
        count = node.labels.get(f"{resource.partition('/')[0]}/gpu.count", "")
        physical = count == str(capacity)
        observed += f"; feature discovery counts {count}" if count else "; no label reports the machine's number"
        fault = "nodes.other-kind" if physical else "gpu.oversubscribed"
        ok = None if physical or not (count or offered > MOST_GPUS) else False
        return Finding(
            subject=node.name,
            ok=ok,
            observed=observed,
            fault=fault,
            expected=f"{expected} (profile {profile.name}, gpu.per_node)",
        )
    return compared(node.name, not fault, observed, f"{expected} allocatable" if expected else "GPUs", fault)


def offered_before(cluster: Inventory, profile: Profile, spec: TrialSpec, *, begun: bool) -> dict[str, tuple[int, str]]:
    """Return each node's number of GPUs before the trial, and the source of the number.

    It is the profile's number, or preflight's if that is lower (a waived fault) or the profile has none. ``begun``:
    another process started the trial, and ``cluster`` was read after it: then only the profile's number is valid. Nodes
    do not count claimed GPUs.
    """
    asked, found = profile.gpu.per_node or 0, {}
    for node in cluster.nodes:
        seen = node.allocatable.get(spec.gpu_resource, 0)
        count = (asked if spec.gpu_resource else 0) if begun else min(asked or seen, seen)
        by_profile = bool(asked) and count == asked
        found[node.name] = (count, "as in the profile (gpu.per_node)" if by_profile else "as before the trial")
    return found


def kept(
    tried: Iterable[str], now: Inventory, resource: str, before: Mapping[str, tuple[int, str]]
) -> Iterator[Finding]:
    """Compare the devices of the trial's nodes with those before it (``offered_before``).

    A go must describe the nodes as they were tested: the kubelet removes an unhealthy device from the node's
    allocatable, while its pod keeps running.
    """
    nodes = {node.name: node for node in now.nodes}
    for name in sorted(tried):
        node = nodes.get(name)
        if node is None:
            yield unknown(name, "no longer a node of the cluster", "the node that was tried", fault="job.disrupted")
            continue
        offered, (count, source) = node.allocatable.get(resource, 0), before.get(name, (0, ""))
        observed = f"{offered} {resource} allocatable after the trial" if resource else "Ready after the trial"
        if not node.ready:
            yield failed(name, f"not Ready ({node.ready_reason}) after the trial", "Ready", "nodes.not-ready")
        elif offered < count:
            yield failed(name, observed, f"{count}, {source}", "gpu.missing" if offered else "gpu.none-allocatable")
        else:
            yield passed(name, observed, f"{count}, {source}" if count else "Ready")


def _none_offered(node: Node, resource: str, observed: str, ready: PodUse | None) -> str:
    """Describe the device plugin on a node without GPUs: its pod, and the labels that exclude it."""
    if resource not in node.capacity:
        observed = f"no {resource} at all: no device plugin has registered with its kubelet"
    elif node.capacity[resource] == 0:
        observed = "0 allocatable, 0 in capacity"
        observed += ": a device plugin existed before and is gone" if ready is None else ""
    if ready is not None:
        return f"{observed}; its pod {ready.namespace}/{ready.name} is Ready: it found no GPU, or its kubelet lost it"
    note = away(node)
    return f"{observed}; {note}" if note else observed


def away(node: Node) -> str:
    """Name the labels with which the GPU operator keeps the device plugin off a node; '' if none does.

    MIG manager removes the plugin while it changes the GPUs' partitions, and restores it with a state other than
    pending (NVIDIA/mig-parted, deployments/k8s-mig-manager; NVIDIA/gpu-operator#2833).
    """
    placed, state = node.labels.get(_PLACED, "true"), node.labels.get(_MIG_STATE, "")
    note = [f"{_PLACED}={placed}"] if placed != "true" else []
    return ", ".join([*note, f"{_MIG_STATE}={state}"] if state in ("pending", "rebooting", "failed") else note)


_PLACED, _MIG_STATE = "nvidia.com/gpu.deploy.device-plugin", "nvidia.com/mig.config.state"


def refusals(
    cluster: Inventory, nodes: Iterable[Node], resources: Collection[str], tried: Collection[str] = ()
) -> Iterator[Finding]:
    """List nodes whose kubelet rejected pods with these resources, and has admitted none with them since.

    The node offered the devices, or the pod would not have been bound to it. A plugin that was just restarting rejects
    pods once: only a later pod can show that it works. ``tried``: the nodes where a pod of the trial ran.
    """
    expected = "pods get the devices that the node offers"
    wanted = frozenset(resources)
    of_nodes: dict[str, list[PodUse]] = {}
    for pod in cluster.refused:
        if pod.node not in tried and pod.requests.keys() & wanted and _recent(pod.since):
            of_nodes.setdefault(pod.node, []).append(pod)
    for node in nodes:
        refused = of_nodes.get(node.name) and [
            pod for pod in of_nodes[node.name] if not _made_up_for(pod, cluster.on(node.name), wanted)
        ]
        if not refused:
            yield passed(node.name, "no rejected pod without a later admitted one", expected)
            continue
        first = refused[0]
        count = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        observed = f"refused {first.namespace}/{first.name}{count}, and admitted none like it since: {first.trouble}"
        yield unknown(node.name, observed, expected, fault="nodes.devices-refused")


def _made_up_for(refused: PodUse, neighbours: Iterable[PodUse], resources: frozenset[str]) -> bool:
    """Return whether a pod that requests the same devices has started on the node since."""
    asked = refused.requests.keys() & resources
    running = (pod for pod in neighbours if pod.phase == "Running")
    return any(asked <= pod.requests.keys() and pod.since > refused.since for pod in running)


def _recent(since: str) -> bool:
    try:
        age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(since)
    except (ValueError, TypeError):
        return True
    return age < REFUSED_FOR


REFUSED_FOR = datetime.timedelta(days=1)
"""After a day a node may have another driver, or be another machine; Failed pods stay until they are deleted."""
Machine = tuple[str, str, str]
ARCH, TYPE = "kubernetes.io/arch", "node.kubernetes.io/instance-type"
OLDER_NODES = 3
"""Minor versions by which a kubelet may be older than the API server, from Kubernetes 1.28 on; it must never be newer
(https://kubernetes.io/releases/version-skew-policy/#kubelet)."""


FACTS: dict[str, Callable[[Node], str]] = {
    "kernel": lambda node: node.kernel,
    "os": lambda node: node.os,
    "runtime": lambda node: node.runtime,
    "kubelet": lambda node: node.kubelet,
    "driver": driver,
}


def unlike_nodes(nodes: Iterable[Node], may_differ: Iterable[str] = ()) -> Iterator[Finding]:
    """Compare each node with its kind of machine: name a node that differs from most, or a tie."""
    nodes, allowed = list(nodes), set(may_differ)
    kinds = machines(nodes)
    by_kind: dict[Machine, list[Node]] = {}
    for node in nodes:
        by_kind.setdefault(kinds[node.name], []).append(node)
    for same_kind in by_kind.values():
        yield from unlike(
            {
                node.name: {fact: read(node) for fact, read in FACTS.items() if fact not in allowed}
                for node in same_kind
            },
            "nodes.drift",
            _line,
        )


def machines(nodes: Iterable[Node]) -> dict[str, Machine]:
    """Group nodes by kind of machine: architecture, instance type, GPU. Each kind has its own node image.

    A node that feature discovery has not labelled is grouped by its instance type.
    """
    kinds = {node.name: (node.labels.get(ARCH, ""), node.labels.get(TYPE, ""), product(node)) for node in nodes}
    labelled: dict[tuple[str, str], list[str]] = {}
    for arch, kind, gpu in kinds.values():
        labelled.setdefault((arch, kind), []).extend(filter(None, [gpu]))
    usual = {of_type: most[0] if (most := majority(gpus)) else "" for of_type, gpus in labelled.items()}
    return {name: (arch, kind, gpu or usual[arch, kind]) for name, (arch, kind, gpu) in kinds.items()}


def _line(fact: str, value: str) -> str:
    """Return the part that must be equal: a kubelet's minor version, a system's release, else the whole value.

    Patch releases of a kubelet may be mixed at any time (Kubernetes' version skew policy), and are mixed during every
    roll-out of a managed node pool. Drivers are built for the kernel.
    """
    if fact == "kubelet" and (version := major_minor(value)):
        return "{}.{}".format(*version)
    if fact == "os" and (release := re.match(r"\D*\d+(?:\.\d+)?", value)):
        return release[0]
    return value


def kubelet_skew(nodes: Iterable[Node], server: str) -> Iterator[Finding]:
    """Compare each kubelet with the API server by Kubernetes' own rule."""
    own = major_minor(server)
    for node in nodes:
        theirs = major_minor(node.kubelet)
        if own is None or theirs is None:
            observed = f"kubelet {node.kubelet or 'unknown'}, API server {server}"
            yield unknown(node.name, observed, "versions that can be compared")
            continue
        ok = theirs[0] == own[0] and 0 <= own[1] - theirs[1] <= OLDER_NODES
        expected = f"not newer, and at most {OLDER_NODES} minor versions older (Kubernetes' skew policy)"
        yield compared(node.name, ok, f"kubelet {node.kubelet}, API server {server}", expected, "nodes.kubelet-skew")
