"""`seatrial profile detect` and `capture`: profiles proposed from a cluster and from an accepted run."""

from __future__ import annotations

from typing import Any

import pytest

from checks.profiles.baseline import NotABaselineError, baseline
from checks.profiles.loader import load_profile, profile_names
from checks.profiles.proposal import pools, propose
from jobs.cluster.facts.inventory import Inventory, Node, Taint
from jobs.cluster.facts.stack import Listing
from reports.schema import completed
from tests.table import table

MACHINE = "node.kubernetes.io/instance-type"
PROFILES = {name: load_profile(name) for name in profile_names()}


def node(name: str, product: str = "NVIDIA-H100-80GB-HBM3", count: int = 8, **changes: Any) -> Node:
    """Return a GPU node as the inventory reads it."""
    labels = {"nvidia.com/gpu.product": product, **changes.pop("labels", {})}
    offered = {"nvidia.com/gpu": count, **changes.pop("offered", {"rdma/hca_shared_devices_a": 63})}
    plain = {
        "ready": True,
        "ready_reason": "",
        "unschedulable": False,
        "taints": (),
        "pressures": (),
        "kernel": "",
        "runtime": "",
        "kubelet": "",
    }
    return Node(name=name, labels=labels, capacity=offered, allocatable=offered, **{**plain, **changes})


def cluster(*nodes: Node) -> Inventory:
    """Return a cluster of these nodes."""
    return Inventory(nodes, ())


def test_the_profile_that_fits_gpus_and_fabric_is_proposed() -> None:
    """Product and fabric resource decide; inherited values are not repeated."""
    proposal = propose(cluster(node("a"), node("b")), PROFILES)
    assert proposal is not None
    assert proposal.document == {
        "title": "NVIDIA-H100-80GB-HBM3, 8 GPUs a node",
        "extends": "h100-ib",
        "gpu": {"resource": "nvidia.com/gpu", "per_node": 8},
    }
    assert proposal.open == []


@table(
    "changes, networks, parent",
    [
        ({"offered": {"vpc.amazonaws.com/efa": 32}}, (), "p5-efa"),
        ({"product": "NVIDIA-H200", "offered": {"nvidia.com/sriov-rdma-vf": 8}}, ("rdma-0", "rdma-1"), "h200-roce"),
        ({"product": "NVIDIA-H200", "offered": {}, "labels": {"cloud.google.com/gke-nodepool": "p"}}, (), "a3-ultra"),
        ({"product": "NVIDIA-A100-SXM4-80GB"}, (), "a100-ib"),
        ({"product": "NVIDIA-L4"}, (), None),
        ({"offered": {}}, (), "h100-ib"),  # no sign of a cloud's shape
        ({"offered": {"nvidia.com/sriov-rdma-vf": 8}}, (), "h100-roce"),
        ({"offered": {"nvidia.com/rdma-vf": 16}, "labels": {MACHINE: "BM.GPU.H100.8"}}, ("rdma-vf",), "oke-h100"),
        ({"offered": {"rdma/shared_ib": 63}, "labels": {MACHINE: "Standard_ND96isr_H100_v5"}}, (), "aks-h100"),
        ({"offered": {}, "labels": {MACHINE: "Standard_ND96isr_H100_v5"}}, (), "aks-h100"),
        ({"labels": {MACHINE: "BM.GPU.H100.8"}}, (), "oke-h100"),
        ({"labels": {MACHINE: "BM.GPU.H100T.8"}}, (), "h100-ib"),
        ({"product": "NVIDIA-B200"}, (), "b200-ib"),
        ({"product": "NVIDIA-B200", "offered": {"rdma/rdma_shared_device_a": 63}}, (), "b200-mpi-slinky"),
        (
            {
                "product": "NVIDIA-B200",
                "offered": {"vpc.amazonaws.com/efa": 8},
                "labels": {MACHINE: "p6-b200.48xlarge"},
            },
            (),
            "p6-efa",
        ),
        ({"product": "NVIDIA-B200", "offered": {"vpc.amazonaws.com/efa": 8}}, (), "p6-efa"),
        ({"product": "NVIDIA-H200", "offered": {"vpc.amazonaws.com/efa": 16}}, (), "p5en-efa"),
        ({"product": "NVIDIA-B300-SXM6-AC"}, (), "b300-ib"),
        ({"product": "NVIDIA-L40S", "count": 4, "offered": {}}, (), "l40s"),
        ({"product": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "offered": {}}, (), "rtx-pro"),
    ],
)
def test_each_fabric_has_its_profile(changes: dict[str, Any], networks: tuple[str, ...], parent: str | None) -> None:
    """GPUs on another fabric have another profile; unknown GPUs have none, which is reported."""
    proposal = propose(cluster(node("a", **changes), node("b", **changes)), PROFILES, networks)
    assert proposal is not None
    assert proposal.document.get("extends") == parent
    assert (parent is None) == any("no shipped profile fits" in text for text in proposal.open)


@pytest.mark.parametrize("model", ["MI300X", "MI325X", "MI355X"])
def test_each_instinct_has_its_profile(model: str) -> None:
    """The product comes from the label of AMD's feature discovery."""
    offered = {"amd.com/gpu": 8, "rdma/rdma_shared_device_roce": 63}
    labels = {"amd.com/gpu.product-name": f"AMD_Instinct_{model}_OAM"}
    each = node("a", product="", count=0, offered=offered, labels=labels)
    proposal = propose(cluster(each), PROFILES)
    assert proposal is not None
    assert proposal.document["extends"] == model.lower()


@pytest.mark.parametrize(("product", "name"), [("NVIDIA-GB200", "gb200"), ("NVIDIA-GB300", "gb300")])
def test_a_rack_is_judged_by_nvlink_where_channels_can_be_claimed(product: str, name: str) -> None:
    """With the DeviceClass of IMEX channels it is the profile of NVLink between nodes, otherwise that of its NICs."""
    tray = node("a", product, 4)
    nvlink = {"gb200": "gb200-mnnvl", "gb300": "gb300-nvls"}[name]
    classes = [{"metadata": {"name": "compute-domain-default-channel.nvidia.com"}}]
    for items, parent in ((classes, nvlink), ([], f"{name}-net")):
        proposal = propose(cluster(tray), PROFILES, (), lambda _, items=items: Listing(tuple(items)))
        assert proposal is not None
        assert proposal.document["extends"] == parent


def test_two_pools_are_kept_apart() -> None:
    """The larger pool is proposed, selected by its product; the other one is listed as not covered."""
    proposal = propose(cluster(node("a"), node("b"), node("c", "NVIDIA-L4", 1)), PROFILES)
    assert proposal is not None
    assert proposal.document["pod"]["node_selector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert proposal.open == ["not covered, needs a separate profile: 1 nodes of 1 NVIDIA-L4"]


def test_a_taint_that_all_nodes_have_is_tolerated() -> None:
    """A pool reserved for GPU work is tainted on all nodes; taints of one node and temporary taints are excluded."""
    lasting, moment = Taint("dedicated", "gpu", "NoSchedule"), Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
    proposal = propose(cluster(node("a", taints=(lasting, moment)), node("b", taints=(lasting, moment))), PROFILES)
    assert proposal is not None
    assert proposal.document["pod"]["tolerations"] == [
        {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
    ]
    one = propose(cluster(node("a", taints=(lasting,)), node("b")), PROFILES)
    assert one is not None
    assert "pod" not in one.document


def test_no_gpu_is_no_proposal() -> None:
    """An empty observation never becomes a profile."""
    assert propose(cluster(), PROFILES) is None
    assert pools(cluster()) == ()


def record(**changes: Any) -> dict[str, Any]:
    """Return an accepted run with two measured rows."""

    def row(size: int, out: float, in_place: float) -> dict[str, Any]:
        return {"size_bytes": size, "out_of_place": {"busbw_gbps": out}, "in_place": {"busbw_gbps": in_place}}

    job = {
        "nodes": 2,
        "ranks": 16,
        "inter_node_transport": "ib",
        "tables": [{"collective": "all_reduce", "rows": [row(1 << 20, 9, 9), row(8 << 30, 380, 370)]}],
    }
    plain = {
        "verdict": "go",
        "scope": "full",
        "run_id": "abc",
        "started": "2026-01-02T03:04:05+00:00",
        "collectives": {"ring": job},
    }
    return {**plain, **changes}


def test_a_floor_is_the_worse_side_less_the_slack() -> None:
    """The slower side counts; small rows measure latency and get no floor; the source names the run."""
    (floor,) = baseline(completed(record()), slack=0.1)["floors"]
    assert (floor["collective"], floor["algorithm"], floor["nodes"], floor["size"]) == ("all_reduce", "ring", 2, "8G")
    assert floor["busbw_gbps"] == 333.0
    assert floor["source"] == "run abc of 2026-01-02: 370 GB/s, minus 10 %"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"verdict": "no-go"}, "only an accepted cluster"),
        ({"verdict": "inconclusive"}, "only an accepted cluster"),
        ({"scope": "partial", "selection": "-k nccl"}, "-k nccl"),
        ({"collectives": {}}, "no row"),
        ({"collectives": {"ring": None}}, "no row"),
    ],
)
def test_what_was_not_accepted_is_no_baseline(changes: dict[str, Any], why: str) -> None:
    """A baseline of a run that was not accepted would accept its failures."""
    with pytest.raises(NotABaselineError, match=why):
        baseline(completed(record(**changes)), slack=0.1)


@pytest.mark.parametrize(("count", "parent"), [(8, "dra-only"), (4, None)])
def test_claimed_gpus_are_proposed_as_claims(count: int, parent: str | None) -> None:
    """No node counts GPUs, but slices publish them (DRA); floors for eight GPUs do not apply to four."""
    inventory = cluster(node("a", count=0), node("b", count=0))
    spec = {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]}
    slices = tuple(
        {
            "spec": {
                "driver": "gpu.nvidia.com",
                "nodeName": name,
                "pool": {"name": name, "generation": 1},
                "devices": [{"name": f"gpu-{i}"} for i in range(count)],
            }
        }
        for name in "ab"
    )
    classes = Listing(({"metadata": {"name": "gpu.nvidia.com"}, "spec": spec},))
    proposal = propose(
        inventory, PROFILES, (), {"deviceclasses": classes, "resourceslices": Listing(slices)}.__getitem__
    )
    assert proposal is not None
    assert proposal.document.get("extends") == parent
    assert proposal.document["gpu"] == {"resource": "", "per_node": count}
    claim = {"name": "gpus", "device_class": "gpu.nvidia.com", "count": count}
    assert proposal.document.get("pod", {}).get("claims") == (None if parent else [claim])


def test_gpus_that_no_one_offers_are_not_proposed_as_none() -> None:
    """With a failed device plugin the number of GPUs is left to the user, and is never 0."""
    proposal = propose(cluster(node("a", count=0), node("b", count=0)), PROFILES, (), lambda _: Listing())
    assert proposal is not None
    assert proposal.document["gpu"] == {"resource": "nvidia.com/gpu"}
    assert any("no GPU is offered" in text for text in proposal.open)


def test_the_floors_that_the_run_was_accepted_by_stay_where_they_ask_for_more() -> None:
    """A slack of ten percent must neither weaken a floor that detects a lost rail nor drop an unmeasured one."""
    shipped = {(f.collective, f.algorithm, f.nodes, f.size): f.busbw_gbps for f in PROFILES["h100-ib"].floors}
    rows = baseline(completed(record()), slack=0.1, floors=PROFILES["h100-ib"].floors)["floors"]
    floors = {(f["collective"], f["algorithm"], f["nodes"], f["size"]): f["busbw_gbps"] for f in rows}
    assert floors["all_reduce", "ring", 2, "8G"] == 350  # 333, as measured less slack, would pass with 7 of 8 rails
    assert floors["all_reduce", "default", 1, "8G"] == shipped["all_reduce", "default", 1, 8 << 30]
    assert len(floors) == len(shipped)


def test_what_every_node_ran_on_its_own_is_in_the_baseline() -> None:
    """The slowest node counts; a table without a collective belongs to its run's collective."""

    def job(busbw: float) -> dict[str, Any]:
        side = {"busbw_gbps": busbw}
        row = {"size_bytes": 8 << 30, "out_of_place": None, "in_place": side}
        return {"nodes": 1, "ranks": 8, "tables": [{"collective": None, "rows": [row]}]}

    taken = record(inside={"a": job(480), "b": job(470)}, collectives={"sendrecv": {**job(40), "nodes": 2}})
    made = baseline(completed(taken), slack=0.1)
    assert [(f["collective"], f["nodes"], f["busbw_gbps"]) for f in made["floors"]] == [
        ("sendrecv", 2, 36.0),
        ("all_reduce", 1, 423.0),
    ]


def test_cards_by_another_name_take_the_place_of_the_profiles() -> None:
    """Mappings are merged, so a resource that no node offers must be removed, or the pod cannot be scheduled."""
    proposal = propose(cluster(*(node(name, offered={"nvidia.com/hostdev": 8}) for name in "ab")), PROFILES)
    assert proposal is not None
    parent = PROFILES[proposal.document["extends"]].pod.resources
    assert proposal.document["pod"]["resources"] == {**dict.fromkeys(parent), "nvidia.com/hostdev": 8}
