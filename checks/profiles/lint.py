"""The profile linter: errors in a profile's floors, found without a cluster.

A floor above what the links carry fails every cluster; one far below passes a cluster that lost half of its network.
Units are GB/s (1e9 bytes per second).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reports.plain import format_size
from seatrial.logs.bandwidth.physics import intra_node_limit_gbps, links_gbps, wire_limit_gbps

from .profile import Profile
from .schema import BenchSection, Floor

BLIND_SHARE = 0.5
"""The least share of the link rate for a floor: one below it passes with half of the rails lost. Published healthy runs
reach 0.81 (RoCE 8 x 400 Gb/s, all_gather, Google Cloud documentation of A3 Ultra) to 0.97 (InfiniBand,
coreweave/nccl-tests) of the link rate."""
BANDWIDTH_BOUND = 1 << 30
"""Message size in bytes below which latency dominates, so that a floor cannot be compared with the link rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """An error at one place of a profile; ``fatal``: no run can be judged by this profile."""

    path: str
    text: str
    fatal: bool

    def __str__(self) -> str:
        return f"{self.path} {self.text}".strip()


def _error(path: str, text: str) -> Objection:
    return Objection(path=path, text=text, fatal=True)


def _warning(path: str, text: str) -> Objection:
    return Objection(path=path, text=text, fatal=False)


def objections(profile: Profile) -> Iterator[Objection]:
    """Yield everything in the profile that contradicts itself, cannot be met, or would detect no fault."""
    yield from _contradictions(profile)
    yield from _unmeasured(profile)
    for index, floor in enumerate(profile.floors):
        path = f"floors[{index}]"
        if floor.nodes > 1 and floor.collective == "all_reduce" and not _in_sweep(floor.size, profile.bench):
            yield _error(
                f"{path}.size",
                f"{format_size(floor.size)} is not a row of the sweep from {format_size(profile.bench.min)} to "
                f"{format_size(profile.bench.max)} by {profile.bench.factor}: it would never be measured",
            )
        yield from _of_wires(profile, floor, f"{path}.busbw_gbps")
    yield from _double(profile)


def _contradictions(profile: Profile) -> Iterator[Objection]:
    fabric = profile.fabric
    if fabric.kind == "socket" and fabric.gdr:
        yield _error("fabric.gdr", "cannot be true on sockets: GPUDirect RDMA needs RDMA")
    if fabric.node_gbit_s and fabric.rails and fabric.rail_gbit_s:
        rails = fabric.rails * fabric.rail_gbit_s
        if fabric.node_gbit_s > rails * 1.01:
            yield _error(
                "fabric.node_gbit_s",
                f"{fabric.node_gbit_s:g} is more than {fabric.rails} rails of {fabric.rail_gbit_s:g} carry",
            )
    env = profile.pod.env
    off = [
        f"{name}={env[name]}"
        for name, value in (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "socket"))
        if env.get(name, "").lower() == value
    ]
    if fabric.verbs and off:
        yield _warning(
            "pod.env", f"says {', '.join(off)}, and fabric.kind {fabric.kind}: no run over it can be accepted"
        )
    if fabric.kind not in (None, "socket") and not profile.floors and not profile.unjudged:
        yield _warning("floors", "are missing: every run is inconclusive on bandwidth")


def _unmeasured(profile: Profile) -> Iterator[Objection]:
    """Yield the reasons why no run is ever compared with a floor."""
    for index, floor in enumerate(profile.floors):
        if floor.nodes == 1 and floor.algorithm == "ring":
            yield _warning(
                f"floors[{index}].algorithm", "is never measured: inside a node NCCL chooses by itself; write default"
            )
    if profile.floors and not profile.floor("all_reduce", "ring", profile.nodes):
        sizes = ", ".join(sorted({str(f.nodes) for f in profile.floors if f.nodes > 1})) or "none"
        yield _warning(
            "floors",
            f"name no row of all_reduce with ring on {profile.nodes} nodes, which the trial spans "
            f"(there are some for: {sizes}): every run is inconclusive on bandwidth",
        )


def _in_sweep(size: int, bench: BenchSection) -> bool:
    row: int = bench.min
    while row < size and row <= bench.max:
        row *= bench.factor
    return row == size and size <= bench.max


def _of_wires(profile: Profile, floor: Floor, path: str) -> Iterator[Objection]:
    node, gpus = profile.fabric.node_gbps, profile.gpu.per_node
    if floor.nodes < 2:
        yield from _of_links(profile, floor, path)
        return
    if gpus is None and floor.algorithm == "ring" and floor.collective == "all_reduce":
        gpus = 1  # a ring's bus bandwidth does not depend on the number of GPUs
    if node is None or gpus is None:
        yield _warning(
            path, "cannot be compared with the link rate: set fabric.rails, fabric.rail_gbit_s and gpu.per_node"
        )
        return
    limit, fair = _limits(profile, floor, node, gpus)
    if floor.busbw_gbps >= limit:
        yield _error(
            path,
            f"is above the link rate of a node ({limit:g} GB/s): no {floor.collective} "
            f"can reach {floor.busbw_gbps:g} with algorithm {floor.algorithm}",
        )
    least = BLIND_SHARE * fair
    if floor.size < BANDWIDTH_BOUND and floor.collective == "all_reduce" and not _bound(profile, floor):
        yield _warning(
            path.replace("busbw_gbps", "size"),
            f"is blind: latency decides at {format_size(floor.size)}, and no floor of {floor.collective} "
            f"{floor.algorithm} on {floor.nodes} nodes names a row of 1G or more",
        )
    if floor.busbw_gbps < least and floor.size >= BANDWIDTH_BOUND:
        yield _warning(
            path,
            f"is blind: {floor.busbw_gbps:g} GB/s is met with half of the links lost; at least {least:g} is needed "
            "to see more than a fallback",
        )


def _of_links(profile: Profile, floor: Floor, path: str) -> Iterator[Objection]:
    """Compare a floor inside a node with the rate of its GPUs' links."""
    links, gpus = links_gbps(profile.gpu.product), profile.gpu.per_node
    if links is None or gpus is None:
        return
    limit = intra_node_limit_gbps(links, gpus=gpus)
    if floor.busbw_gbps >= limit:
        yield _error(
            path,
            f"is above the rate of a GPU's links ({links:g} GB/s one way): no {floor.collective} inside a node "
            f"of {gpus} can reach {floor.busbw_gbps:g}",
        )
    if floor.busbw_gbps < BLIND_SHARE * links and floor.size >= BANDWIDTH_BOUND:
        yield _warning(
            path,
            f"is blind: {floor.busbw_gbps:g} GB/s is met with half of a GPU's links lost; at least "
            f"{BLIND_SHARE * links:g} is needed to see more than a fallback",
        )


def _bound(profile: Profile, floor: Floor) -> bool:
    """Return whether some floor of the same run is for a message size limited by the links."""
    same = profile.floor(floor.collective, floor.algorithm, floor.nodes)
    return any(other.size >= BANDWIDTH_BOUND for other in same)


def least_seeing(profile: Profile, floor: Floor) -> float:
    """Return the bandwidth that needs more than half of the links; 0 if the profile does not define them."""
    node, gpus = profile.fabric.node_gbps, profile.gpu.per_node
    if floor.nodes < 2 or node is None or gpus is None or floor.size < BANDWIDTH_BOUND:
        return 0.0
    return BLIND_SHARE * _limits(profile, floor, node, gpus)[1]


def _limits(profile: Profile, floor: Floor, node: float, gpus: int) -> tuple[float, float]:
    """Return the maximum rate of the links, and the typical bandwidth of a healthy fabric."""
    if profile.fabric.kind == "mnnvl":
        # All hops of a ring are NVLink, so its bus bandwidth is limited by one GPU's links. With reduction in the
        # switches (NVLS) at most half of the traffic remains: 932 GB/s are published where a GPU's links carry 900.
        gpu = node / gpus
        return (gpu if floor.algorithm == "ring" else 2 * gpu), gpu
    limit = wire_limit_gbps(floor.collective, floor.algorithm, node, nodes=floor.nodes, gpus_per_node=gpus)
    # In sendrecv one GPU of a node sends to the next node, through the NIC closest to it.
    return limit, node / gpus if floor.collective == "sendrecv" else min(limit, node)


def _double(profile: Profile) -> Iterator[Objection]:
    first_index: dict[tuple[str, str, int, int], int] = {}
    for index, floor in enumerate(profile.floors):
        key = (floor.collective, floor.algorithm, floor.nodes, floor.size)
        if key in first_index:
            yield _error(
                f"floors[{index}]", f"names the same row as floors[{first_index[key]}]: which of the two counts?"
            )
        first_index.setdefault(key, index)
