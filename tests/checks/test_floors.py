"""The lint of floors: impossible floors and floors that detect nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checks.profiles.lint import objections
from checks.profiles.loader import Profile, load_profile, profile_names
from checks.profiles.schema import BenchSection, FabricSection, Floor, GpuSection, PodSection
from checks.profiles.yaml_schema import Size
from seatrial.logs.bandwidth.physics import wire_limit_gbps
from tests.table import table

GI = Size(2**30)
FLOOR = Floor(
    collective="all_reduce",
    algorithm="ring",
    nodes=2,
    size=Size(8 * GI),
    busbw_gbps=350.0,
    topology="2 x 8",
    source="a test",
)
PROFILE = Profile(
    name="p", gpu=GpuSection(per_node=8), fabric=FabricSection(kind="ib", rails=8, rail_gbit_s=400.0), floors=(FLOOR,)
)


def objections_to(profile: Profile) -> list[tuple[str, bool]]:
    """Return each objection and whether it is fatal."""
    return [(o.path, o.fatal) for o in objections(profile)]


@table("name", profile_names())
def test_every_shipped_profile_passes_its_own_lint(name: str) -> None:
    """No shipped floor is impossible, ineffective or outside its sweep."""
    assert [str(o) for o in objections(load_profile(name)) if o.fatal or "blind" in o.text] == []


@table(
    "changes, objected",
    [
        ({}, []),
        ({"busbw_gbps": 400.0}, [("floors[0].busbw_gbps", True)]),  # the maximum of eight rails of 50 GB/s
        ({"busbw_gbps": 399.0}, []),
        ({"busbw_gbps": 199.0}, [("floors[0].busbw_gbps", False)]),  # four of eight rails reach it
        ({"busbw_gbps": 200.0}, []),
        ({"algorithm": "default", "busbw_gbps": 749.0}, []),  # Tree on two nodes: at most 15/8 of the link rate
        ({"algorithm": "default", "busbw_gbps": 750.0}, [("floors[0].busbw_gbps", True)]),
        ({"algorithm": "default", "busbw_gbps": 190.0}, [("floors[0].busbw_gbps", False)]),
        ({"size": Size(3 * GI)}, [("floors[0].size", True)]),  # between two rows of a sweep with factor 2
        ({"size": Size(64 * GI)}, [("floors[0].size", True)]),
        ({"size": Size(2**20), "busbw_gbps": 5.0}, [("floors[0].size", False)]),  # latency dominates there
        ({"collective": "all_to_all", "busbw_gbps": 93.0}, []),
        ({"collective": "all_to_all", "busbw_gbps": 94.0}, [("floors[0].busbw_gbps", True)]),
        ({"collective": "sendrecv", "busbw_gbps": 40.0}, []),
        ({"collective": "sendrecv", "busbw_gbps": 20.0}, [("floors[0].busbw_gbps", False)]),
        ({"nodes": 1, "algorithm": "default", "busbw_gbps": 9.0}, []),  # NVLink: not the network's link rate
    ],
)
def test_a_floor_is_held_against_the_links(changes: dict[str, object], objected: list[tuple[str, bool]]) -> None:
    """A floor above the link rate is fatal; a floor that half of the links meet detects nothing."""
    floor = replace(FLOOR, **changes)  # type: ignore[arg-type]
    assert [o for o in objections_to(replace(PROFILE, floors=(floor,))) if o[0] != "floors"] == objected


@pytest.mark.parametrize(
    ("product", "busbw", "objected"),
    [
        ("*H100*", 787.0, []),  # NVLink 4: 450 GB/s one way; NVLS counts 14/8 of it as bus bandwidth
        ("*H100*", 788.0, [True]),
        ("*H100*", 225.0, []),
        ("*H100*", 224.0, [False]),
        ("NVIDIA-B200*", 788.0, []),
        ("*A100*", 530.0, [True]),
        ("*L40S*", 5000.0, []),  # unknown: no objection
        ("*", 5000.0, []),
    ],
)
def test_a_floor_inside_a_node_is_held_against_its_links(product: str, busbw: float, objected: list[bool]) -> None:
    """The NVLink rate of one GPU bounds every collective inside a node."""
    floor = replace(FLOOR, nodes=1, algorithm="default", busbw_gbps=busbw)
    profile = replace(PROFILE, gpu=GpuSection(per_node=8, product=(product,)), floors=(floor,))
    assert [o.fatal for o in objections(profile) if o.path == "floors[0].busbw_gbps"] == objected


@pytest.mark.parametrize(
    ("algorithm", "busbw", "objected"),
    [("ring", 899.0, []), ("ring", 900.0, [True]), ("ring", 449.0, [False]), ("default", 932.0, [])],
)
def test_nvlink_between_nodes_is_held_against_one_gpu(algorithm: str, busbw: float, objected: list[bool]) -> None:
    """All hops of a ring use NVLink there, so the limit is one GPU's links, not the sum of a node's."""
    floor = replace(FLOOR, algorithm=algorithm, busbw_gbps=busbw)
    fabric = FabricSection(kind="mnnvl", node_gbit_s=28_800.0)
    profile = replace(PROFILE, gpu=GpuSection(per_node=4), fabric=fabric, floors=(floor,))
    assert [o.fatal for o in objections(profile) if o.path != "floors"] == objected


def test_what_is_not_known_of_the_links_is_said() -> None:
    """Without rails, the possible rate is unknown; the lint reports it as not fatal."""
    assert objections_to(replace(PROFILE, fabric=FabricSection(kind="mnnvl"))) == [("floors[0].busbw_gbps", False)]


@pytest.mark.parametrize(
    ("profile", "path"),
    [
        (replace(PROFILE, fabric=FabricSection(kind="socket", gdr=True), floors=()), "fabric.gdr"),
        (
            replace(PROFILE, fabric=FabricSection(kind="efa", rails=8, rail_gbit_s=400.0, node_gbit_s=6400.0)),
            "fabric.node_gbit_s",
        ),
        (replace(PROFILE, floors=(FLOOR, replace(FLOOR, busbw_gbps=300.0))), "floors[1]"),
        (replace(PROFILE, bench=BenchSection(max=Size(GI))), "floors[0].size"),
    ],
)
def test_a_profile_that_contradicts_itself_is_refused(profile: Profile, path: str) -> None:
    """Contradictory numbers are fatal, because one of them must be wrong."""
    assert (path, True) in objections_to(profile)


def test_the_limit_of_an_all_to_all_counts_what_leaves_the_node() -> None:
    """Of two nodes of eight, 64 of 240 messages per direction cross; 400 GB/s of links give 93.75 GB/s of bus
    bandwidth."""
    assert wire_limit_gbps("all_to_all", "default", 400.0, nodes=2, gpus_per_node=8) == pytest.approx(93.75)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"nodes": 4}, "floors"),
        ({"floors": (replace(FLOOR, algorithm="default", busbw_gbps=420.0),)}, "floors"),
        ({"floors": (FLOOR, replace(FLOOR, nodes=1))}, "floors[1].algorithm"),
        ({"pod": PodSection(env={"NCCL_IB_DISABLE": "1"})}, "pod.env"),
        ({"pod": PodSection(env={"NCCL_NET": "Socket"})}, "pod.env"),
    ],
)
def test_what_no_run_could_meet_or_would_measure_is_reported(changes: dict[str, object], path: str) -> None:
    """The lint reports floors for another number of nodes, for Ring inside a node, and for a fabric that the
    environment disables."""
    assert (path, False) in objections_to(replace(PROFILE, **changes))  # type: ignore[arg-type]
    assert (path, False) not in objections_to(PROFILE)


def test_a_floor_of_no_collective_is_refused() -> None:
    """No table would ever match a misspelt collective."""
    with pytest.raises(ValueError, match="did you mean all_reduce"):
        replace(FLOOR, collective="allreduce")
