"""The capacity guard: whether a job fits the visible nodes, checked before any object is created.

A job that fits in part would start in part: its first ranks hold GPUs and wait for the last. Each node is judged by the
common rule of jobs/trial/rooms.py. A queue waits until other jobs have ended: for its jobs the offered amount counts,
not the free one. The guard does not know cpu and memory, nor nodes that an autoscaler would add.
"""

from __future__ import annotations

import time
from dataclasses import replace

from ..cluster.client.errors import Forbidden
from ..cluster.client.kube import Kube
from ..cluster.facts.inventory import Inventory, Node
from ..cluster.redact import safe
from ..diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis
from ..listing import first_of
from ..trial.job_spec import JobSpec
from ..trial.rooms import IN_USE, Room, room_on, selected

SETTLES_S = 10.0
"""Seconds that our own terminated pods may take to end (jobs/trial/pod.py, GRACE_S)."""
_AGAIN_S = 1.0
_SHOWN = 3


def no_room(kube: Kube, spec: JobSpec) -> FailureAnalysis | None:
    """Describe a shortage; for GPUs in use only after a delay, because a job that has just ended still has its pods."""
    end = time.monotonic() + SETTLES_S
    while (short := shortage(seen(kube), spec)) is not None and short.err_class is None and time.monotonic() < end:
        time.sleep(_AGAIN_S)
    return short


def seen(kube: Kube) -> Inventory:
    """Read nodes and pods if permitted; a tenant sees none, and only the scheduler knows whether a job fits."""
    try:
        for resource in ("nodes", "pods"):
            kube.require("list", resource, namespace="")
    except Forbidden:
        return Inventory.of_tenant()
    cluster = Inventory.read_settled(kube)
    # A terminating pod of another workload is gone before the job's pods have their images, unless its node is lost,
    # which is reported.
    return replace(cluster, pods=tuple(pod for pod in cluster.pods if not pod.leaving))


def shortage(cluster: Inventory, spec: JobSpec) -> FailureAnalysis | None:
    """Describe a shortage; None if the job fits, or it is unknown."""
    if "nodes" in cluster.not_seen:
        return None
    chosen = ",".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
    nodes = [node for node in cluster.nodes if selected(node, spec.node_selector)]
    if not nodes and chosen and cluster.nodes:
        none = f"of {len(cluster.nodes)} nodes none has {_misses(cluster, spec)}"
        return _analysis(none, "Correct the node selector.", ERR_PROGRAM)
    rooms = [_room(cluster, node, spec) for node in nodes]
    free = sum(_pods(room, spec, {name: cluster.free(room.node, name) for name in spec.extended}) for room in rooms)
    later = sum(_pods(room, spec, dict(node.allocatable), IN_USE) for node, room in zip(nodes, rooms, strict=True))
    if max(free, later if spec.queue else 0) >= spec.nodes:
        return None
    whole = sum(_pods(Room(node=node.name, free=0, observed=""), spec, dict(node.capacity)) for node in nodes)
    observed = f"{spec.nodes} x {_asked(spec)} were requested, and there is room for {free}"
    if held := [f"{room.node}: {room.observed}" for room in rooms if room.fault]:
        observed += f" ({first_of(held, _SHOWN)})"
    elif whole < spec.nodes:
        observed += f", with all {len(nodes)} nodes{f' that have {chosen}' if chosen else ''} taken together"
    if later >= spec.nodes:
        return _analysis(observed, "Wait until other workloads end, request less, or submit it to a queue.", None)
    if whole >= spec.nodes:
        return _analysis(observed, "Repair or uncordon the named nodes, or request less.", ERR_INFRA)
    return _analysis(observed, "Request fewer nodes, or less of each: these nodes do not have it.", ERR_PROGRAM)


def _room(cluster: Inventory, node: Node, spec: JobSpec) -> Room:
    """Judge a node: first its readiness, then the common rule, then its other devices."""
    if not node.ready:
        return Room(node=node.name, free=0, observed=f"not Ready ({node.ready_reason})", fault="node.not-ready")
    room = room_on(cluster, node, spec)
    if room.fault:
        return room
    for name, amount in spec.resources.items():
        free, offered = cluster.free(node, name), node.allocatable.get(name, 0)
        if free < amount:
            fault = "rdma.missing" if offered < amount else IN_USE[0]
            return Room(node=node.name, free=room.free, observed=f"{free} of {offered} {name} free", fault=fault)
    return room


def _pods(room: Room, spec: JobSpec, amounts: dict[str, int], but: tuple[str, ...] = ()) -> int:
    """Count the pods of the job that fit into these amounts; 0 if the node has an obstacle not in `but`."""
    if room.fault and room.fault not in but:
        return 0
    most = 1 if spec.anti_affinity else spec.nodes
    return min([most, *(amounts.get(name, 0) // amount for name, amount in spec.extended.items())])


def _asked(spec: JobSpec) -> str:
    return " and ".join(f"{amount} {name}" for name, amount in spec.extended.items()) or "no device"


def _misses(cluster: Inventory, spec: JobSpec) -> str:
    """Name the labels of the selector that no node has, each with the existing values."""
    missing = []
    for key, value in sorted(spec.node_selector.items()):
        values = sorted({safe(node.labels[key], 63) for node in cluster.nodes if key in node.labels})
        if value not in values:
            present = f"there is {first_of(values, _SHOWN)}" if values else "no node has that label"
            missing.append(f"{key}={value} ({present})")
    return ", ".join(missing) or ",".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))


def _analysis(observed: str, suggestion: str, err_class: str | None) -> FailureAnalysis:
    return FailureAnalysis(
        fault="job.unschedulable",
        subject="cluster",
        observed=observed,
        expected="room for all pods of the job at once",
        suggestion=suggestion,
        err_class=err_class,
    )
