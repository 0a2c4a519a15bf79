"""Distances between GPUs and NICs: NUMA policies, PCIe paths, ACS."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks.profiles.schema import TopologySection
from checks.rules.topology import (
    acs_findings,
    affinity_findings,
    demand_findings,
    likeness_findings,
    policy_findings,
    read_zones,
    refused,
    undecided,
    with_kubelets,
)
from jobs.cluster.client.errors import ApiError
from jobs.cluster.facts.kubelets import TopologyManager, topology_managers
from tests.checks.fabric import faults, stage, unclear
from tests.table import table


def topology_object(policy, *gpus, version=2):
    zones = [
        {
            "name": f"node-{n}",
            "type": "Node",
            "resources": [
                {"name": "nvidia.com/gpu", "capacity": str(count), "allocatable": str(count), "available": "0"}
            ],
        }
        for n, count in enumerate(gpus)
    ]
    item = {"metadata": {"name": "gpu-node-0"}, "zones": zones}
    if version == 1:
        return {**item, "topologyPolicies": [policy]}
    return {**item, "attributes": [{"name": "topologyManagerPolicy", "value": policy}]}


@table(
    "policy, zones, gpus, admitted",
    [
        ("single-numa-node", (4, 4), 4, True),
        ("single-numa-node", (4, 4), 6, False),
        ("single-numa-node", (4, 4), 8, False),
        ("single-numa-node", (8,), 8, True),
        ("restricted", (4, 4), 8, True),
        ("restricted", (4, 4), 6, True),
        ("restricted", (4, 4), 9, False),
        ("best-effort", (4, 4), 9, True),
        ("none", (4, 4), 6, True),
        ("single-numa-node", (), 8, True),
        ("single-numa-node", (2, 2, 2, 2), 2, True),
        ("single-numa-node", (2, 2, 2, 2), 4, False),
        ("single-numa-node", (0, 1), 1, True),
        ("single-numa-node", (0, 7), 8, False),  # resources missing in a zone do not count
        ("restricted", (0, 7), 8, False),
    ],
)
def test_which_requests_a_topology_policy_admits(policy, zones, gpus, admitted):
    """Six GPUs on two NUMA nodes of four are never admitted under single-numa-node, and always under restricted."""
    known = read_zones([topology_object(policy, *zones)])["gpu-node-0"]
    assert (refused(known, {"nvidia.com/gpu": gpus}) == "") is admitted


def test_two_kinds_of_devices_must_share_their_best_set():
    """GPUs on one NUMA node and NICs on the other have no common set under restricted."""
    item = {
        "metadata": {"name": "a"},
        "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}],
        "zones": [
            {
                "type": "Node",
                "resources": [{"name": "nvidia.com/gpu", "allocatable": "4"}, {"name": "x/nic", "allocatable": "0"}],
            },
            {
                "type": "Node",
                "resources": [{"name": "nvidia.com/gpu", "allocatable": "0"}, {"name": "x/nic", "allocatable": 4}],
            },
        ],
    }
    known = read_zones([item])["a"]
    assert "no set of NUMA nodes" in refused(known, {"nvidia.com/gpu": 2, "x/nic": 2})
    assert refused(known, {"nvidia.com/gpu": 2, "rdma/unlisted": 1}) == ""


@pytest.mark.parametrize("none", [[], [{"name": "nvidia.com/gpu"}], [{"name": "nvidia.com/gpu", "allocatable": "0"}]])
def test_a_zone_that_offers_no_gpu_is_not_the_best_one(none):
    """A zone without the GPU resource, or without its number, is not the best one."""
    card = {"name": "x/nic", "allocatable": "1"}
    zones = [[*none, card], [{"name": "nvidia.com/gpu", "allocatable": "1"}]]
    item = {
        "metadata": {"name": "a"},
        "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}],
        "zones": [{"type": "Node", "resources": resources} for resources in zones],
    }
    assert "no set of NUMA nodes" in refused(read_zones([item])["a"], {"nvidia.com/gpu": 1, "x/nic": 1})


def test_old_and_new_topology_objects_say_the_same(spec):
    """v1alpha1 has topologyPolicies, v1alpha2 attributes; without either the policy is unknown."""
    for item in (topology_object("SingleNUMANodePodLevel", 4, 4, version=1), topology_object("single-numa-node", 4, 4)):
        findings = list(policy_findings(["gpu-node-0"], read_zones([item]), spec))
        assert faults(findings) == [("gpu-node-0", "topology.inadmissible")]
    assert unclear(policy_findings(["gpu-node-0"], read_zones([{"metadata": {"name": "gpu-node-0"}}]), spec))


def test_what_is_no_numa_node_of_a_topology_object_is_not_read():
    """Zones may be sockets or caches, and objects of other exporters may have any content."""
    item = topology_object("restricted", 4, 4)
    known = read_zones([item])
    item["zones"] += [{"name": "socket-0", "type": "Socket", "resources": item["zones"][0]["resources"]}, None, "x"]
    assert read_zones([item]) == known


def test_a_gpu_far_from_its_card_is_named(world, spec, h100):
    """The nearest NIC is on the other socket; PXB still counts as near."""
    for path in stage(world, 1, "topology")["paths"]:
        if path["gpu"] == 3:
            path["path"] = "PXB" if path["nic"] == "mlx5_3" else "SYS"
    assert faults(affinity_findings(world, spec, h100)) == []
    for path in stage(world, 1, "topology")["paths"]:
        if path["gpu"] == 3:
            path["path"] = "SYS"
    assert faults(affinity_findings(world, spec, h100)) == [("gpu-node-1 GPU 3", "topology.gpu-nic-far")]


def test_fewer_cards_than_gpus_cannot_all_be_near(world, spec, h100):
    """Four rails for eight GPUs: four GPUs have a near NIC, which is the intended design."""
    for rank in (0, 1):
        paths = stage(world, rank, "topology")["paths"]
        stage(world, rank, "topology")["paths"] = [p for p in paths if int(p["nic"][-1]) % 2 == 0]
    assert len(faults(affinity_findings(world, spec, h100))) == 8
    four = replace(h100, fabric=replace(h100.fabric, rails=4))
    assert faults(affinity_findings(world, spec, four)) == []


def test_nodes_that_are_built_otherwise_are_named(world, spec):
    """GPUs are compared one by one; for two nodes both topologies are shown, and neither is at fault."""
    stage(world, 1, "topology")["rows"][2] = "GPU2 NUMA 1 | | SYS"
    (finding,) = [f for f in likeness_findings(world, spec) if f.ok is False]
    assert (finding.subject, finding.fault) == ("GPU topology", "topology.differs")
    assert "GPU2 NUMA 1 | | SYS on gpu-node-1" in finding.observed
    assert "on gpu-node-0" in finding.observed


def test_acs_is_judged_where_it_can_be_read(world, spec):
    """Redirecting bridges are a fault; an unreadable register is not."""
    assert list(acs_findings(world, spec)) == []
    stage(world, 0, "topology")["acs"] = [{"bus_id": "0000:16:00.0", "enabled": False}]
    assert faults(acs_findings(world, spec)) == []
    stage(world, 0, "topology")["acs"].append({"bus_id": "0000:17:00.0", "enabled": True})
    assert faults(acs_findings(world, spec)) == [("gpu-node-0", "topology.acs")]


DEMAND = TopologySection(policy="single-numa-node", scope="pod")


def demanded(item, h100, demand=DEMAND, why=None):
    found = demand_findings(["gpu-node-0"], read_zones([item]), replace(h100, topology=demand), why or {})
    return [(each.ok, each.fault, each.observed) for each in found]


@pytest.mark.parametrize(
    ("attributes", "ok"),
    [
        ({"Policy": "single-numa-node", "Scope": "pod"}, True),
        ({"Policy": "single-numa-node", "Scope": "container"}, False),
        ({"Policy": "best-effort", "Scope": "pod"}, False),
        ({"Policy": "single-numa-node"}, None),  # an incomplete policy is not a pass
        ({"Policy": "none"}, False),  # enough for a fault
        ({}, None),
    ],
)
def test_a_policy_and_its_scope_can_be_demanded(h100, attributes, ok):
    given = [{"name": f"topologyManager{key}", "value": value} for key, value in attributes.items()]
    ((found, fault, _),) = demanded({"metadata": {"name": "gpu-node-0"}, "attributes": given}, h100)
    assert (found, fault) == (ok, "topology.policy-differs" if ok is False else "")


@pytest.mark.parametrize(
    ("name", "ok"),
    [
        ("SingleNUMANodePodLevel", True),
        ("SingleNUMANodeContainerLevel", False),
        ("Restricted", False),
        ("SingleNUMANode", None),
    ],
)
def test_the_older_objects_tell_a_scope_too(h100, name, ok):
    assert [each[0] for each in demanded(topology_object(name, version=1), h100)] == [ok]


def test_what_is_not_demanded_is_not_asked_for(h100):
    item = topology_object("none", 4, 4)
    assert undecided(["gpu-node-0", "b"], read_zones([item]), TopologySection(policy="none")) == ["b"]
    assert [each[0] for each in demanded(item, h100, TopologySection(policy="none"))] == [True]
    for wrong in ({"policy": "single-numa"}, {"scope": "node"}):
        with pytest.raises(ValueError, match="unknown"):
            TopologySection(**wrong)


def test_kubelets_say_what_no_object_shows(h100):
    """Kubelets are asked if the account has permission; one that does not respond is undetermined, with the reason."""
    config = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}

    def request(_, url_path, **__):
        if "gpu-node-1" in url_path:
            raise ApiError(url_path, status=502, message="no answer")
        return SimpleNamespace(body={"kubeletconfig": {} if "gpu-node-2" in url_path else config})

    nodes = ["gpu-node-0", "gpu-node-1", "gpu-node-2"]
    told = topology_managers(SimpleNamespace(request=request), nodes)
    assert told["gpu-node-0"] == TopologyManager("single-numa-node", "pod")
    zones = with_kubelets({}, told)
    why = {node: each.problem for node, each in told.items()}
    found = list(demand_findings(nodes, zones, replace(h100, topology=DEMAND), why))
    assert [each.ok for each in found] == [True, None, None]
    assert "no answer" in found[1].observed
    assert found[2].observed == "its /configz does not report it"
