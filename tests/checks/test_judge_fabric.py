"""What network.*, rdma.* and topology.* say of the API and of a trial's evidence: each fault, and what must stay quiet."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from checks.profiles.loader import Profile, load_profile
from checks.profiles.yaml_schema import ProfileError
from checks.rules.network import mtu_findings, port_findings, rate_findings, secondary_findings
from checks.rules.rdma import device_findings, firmware_note, lets_through
from checks.rules.rdma_counters import error_findings, idle_note
from checks.rules.rdma_offer import attached_names, definition_findings, named_networks, offer_findings, selections
from checks.rules.topology import (
    acs_findings,
    affinity_findings,
    likeness_findings,
    policy_findings,
    read_zones,
    refused,
)
from jobs.cluster.facts.inventory import PodUse

RDMA = "rdma/hca_shared_devices_a"
MULTUS = "k8s.v1.cni.cncf.io/networks"


def peer(index):
    return {
        "index": index,
        "address": f"10.0.{index}.5",
        "first_mtu": 1500,
        "path_mtu": 1500,
        "learned_mtu": 1500,
        "df_ok": True,
        "mtu_error": None,
        "throughput_gbit_s": 8.1,
        "peak_gbit_s": 9.4,
        "bytes": 10**9,
        "ports": [{"port": 40001, "ok": True, "error": None}, {"port": 50001, "ok": True, "error": None}],
        "error": None,
    }


def port(rail, node=0):
    return {
        "name": f"mlx5_{rail}",
        "port": 1,
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbps": 400.0,
        "link_layer": "InfiniBand",
        "gid": True,
        "gids": [{"index": 0, "gid": f"fe80::{node}{rail}", "type": None}],
        "pkeys": ["0xffff"],
        "lid": rail,
        "sm_lid": 1,
        "fw": "28.43.2026",
        "board": "MT_0000000838",
        "counters": 20,
        "errors": {"link_downed": 3},
        "usable": True,
    }


@pytest.fixture
def world(trial):
    """The healthy trial, with what the probe's fabric stages found."""
    for rank, told in trial.evidence.items():
        address = f"10.0.{rank}.5"
        told.stages["network"] = {
            "interfaces": [{"name": "eth0", "mtu": 1500, "addresses": [address], "up": True}],
            "port_range": [32768, 60999],
            "peers": [peer(1 - rank)],
            "error": None,
        }
        told.stages["rdma"] = {
            "devices": [port(rail, rank) for rail in range(8)],
            "source": "sysfs",
            "error": None,
            "uverbs": [f"uverbs{n}" for n in range(8)],
        }
        paths = [
            {"gpu": g, "nic": f"mlx5_{n}", "path": "PIX" if g == n else "NODE"} for g in range(8) for n in range(8)
        ]
        told.stages["topology"] = {"paths": paths, "rows": [f"GPU{g} NUMA 0 | | PIX" for g in range(8)], "acs": None}
        moved = {f"mlx5_{n}/1/port_xmit_data": 10**9 for n in range(8)}
        for name in ("ring", "default", "sendrecv", "alltoall", "node"):
            some = {} if name == "node" else {"mlx5_0/1/port_xmit_data": 10**9}
            told.stages["collective." + name]["rdma_counters"] = moved if name == "ring" else some
    return trial


def stage(world, rank, name):
    return world.evidence[rank].stages[name]


def faults(findings):
    return [(f.subject, f.fault) for f in findings if f.ok is False]


def unclear(findings):
    return [f.subject for f in findings if f.ok is None]


def test_a_healthy_fabric_raises_nothing(world, spec, h100):
    """Every judgement of the three layers is quiet, and has looked."""
    judged = [
        port_findings(world, spec),
        mtu_findings(world, spec, h100),
        rate_findings(world, spec, h100),
        device_findings(world, spec, h100),
        error_findings(world, spec),
        affinity_findings(world, spec, h100),
        likeness_findings(world, spec),
    ]
    for findings in judged:
        found = list(findings)
        assert found
        assert all(f.ok for f in found)


@pytest.mark.parametrize("name", ["network", "rdma", "topology"])
def test_evidence_that_never_came_is_no_pass(world, spec, h100, name):
    """A stage that is missing is unclear, for every judgement that needs it."""
    del world.evidence[1].stages[name]
    judged = {
        "network": [port_findings(world, spec), mtu_findings(world, spec, h100)],
        "rdma": [device_findings(world, spec, h100)],
        "topology": [affinity_findings(world, spec, h100), likeness_findings(world, spec)],
    }[name]
    assert all(unclear(found) for found in judged)


# -- layer 8


def test_a_closed_port_accuses_its_direction(world, spec):
    """One of the ports that NCCL would take does not answer: that direction, and not the other."""
    stage(world, 0, "network")["peers"][0]["ports"][1].update(ok=False, error="no answer within 2 s")
    assert faults(port_findings(world, spec)) == [("gpu-node-0 -> gpu-node-1", "network.ports-blocked")]


def test_a_silent_hole_is_told_from_a_narrow_path(world, spec, h100):
    """Large packets that vanish are a fault; a path that says what fits is only narrower."""
    one = stage(world, 0, "network")["peers"][0]
    one.update(df_ok=False, path_mtu=1400, learned_mtu=1400)
    assert faults(mtu_findings(world, spec, h100)) == []
    one.update(learned_mtu=1500)
    assert faults(mtu_findings(world, spec, h100)) == [("gpu-node-0 -> gpu-node-1", "network.mtu-blackhole")]
    one.update(learned_mtu=None)
    assert [f.ok for f in mtu_findings(world, spec, h100) if f.subject == "gpu-node-0 -> gpu-node-1"] == [None]


def test_packets_smaller_than_the_profile_wants_are_a_fault(world, spec, h100):
    """The number is the profile's: 1500 bytes are few where it names 8900."""
    wants = replace(h100, network=replace(h100.network, mtu=8900))
    assert {fault for _, fault in faults(mtu_findings(world, spec, wants))} == {"network.mtu-mismatch"}


def test_nodes_whose_pods_have_unlike_mtus_are_named(world, spec, h100):
    """Of two that differ it cannot be told whose MTU is wrong: both are shown."""
    stage(world, 1, "network")["interfaces"][0]["mtu"] = 1450
    assert faults(mtu_findings(world, spec, h100)) == [("MTU", "network.mtu-mismatch")]
    (told,) = [f for f in mtu_findings(world, spec, h100) if not f.ok]
    assert told.observed == "MTU differs: 1500 on gpu-node-0; 1450 on gpu-node-1"


def test_filtered_udp_is_no_fault_where_tcp_carries(world, spec, h100):
    """Without an echo the size is not known; what TCP carried shows that full segments pass."""
    one = stage(world, 0, "network")["peers"][0]
    one.update(df_ok=None, path_mtu=None, learned_mtu=None, mtu_error="no answer to UDP on port 40000")
    assert faults(mtu_findings(world, spec, h100)) == unclear(mtu_findings(world, spec, h100)) == []
    one.update(bytes=0)
    assert unclear(mtu_findings(world, spec, h100)) == ["gpu-node-0 -> gpu-node-1"]


def test_the_best_moment_is_held_against_the_floor(world, spec, h100):
    """A slow mean with a good moment is a busy machine; a link that never gets there is slow, or stalls."""
    one = stage(world, 1, "network")["peers"][0]
    one.update(throughput_gbit_s=0.2, peak_gbit_s=2.0)
    assert faults(rate_findings(world, spec, h100)) == []
    one.update(peak_gbit_s=0.09, throughput_gbit_s=0.09)
    assert faults(rate_findings(world, spec, h100)) == [("gpu-node-1 -> gpu-node-0", "network.slow")]
    one.update(peak_gbit_s=None, throughput_gbit_s=None, error="the connection stalled after 65536 bytes")
    assert faults(rate_findings(world, spec, h100)) == [("gpu-node-1 -> gpu-node-0", "network.slow")]
    one.update(error="it did not say where it listens")
    assert unclear(rate_findings(world, spec, h100)) == ["gpu-node-1 -> gpu-node-0"]


def test_a_rate_that_a_busy_cpu_explains_is_not_the_networks(world, spec, h100):
    """0.95 Gb/s while pods waited for a CPU nearly all the time may be any network; at a tenth of that it is slow."""
    one = stage(world, 1, "network")["peers"][0]
    one.update(throughput_gbit_s=0.9, peak_gbit_s=0.95, cpu_wait=0.8)
    assert faults(rate_findings(world, spec, h100)) == []
    assert unclear(rate_findings(world, spec, h100)) == ["gpu-node-1 -> gpu-node-0"]
    one.update(throughput_gbit_s=0.9, peak_gbit_s=1.2, cpu_wait=1.0)
    assert faults(rate_findings(world, spec, h100)) == unclear(rate_findings(world, spec, h100)) == []
    for mean, wait in ((0.09, 0.8), (0.9, 0.05), (0.9, None)):  # too little for any wait, no wait, no word of it
        one.update(throughput_gbit_s=mean, peak_gbit_s=0.95, cpu_wait=wait)
        assert faults(rate_findings(world, spec, h100)) == [("gpu-node-1 -> gpu-node-0", "network.slow")]
    one.update(throughput_gbit_s=0.9, peak_gbit_s=0.95, cpu_wait=0.8, error="the connection was lost: reset")
    assert unclear(rate_findings(world, spec, h100)) == ["gpu-node-1 -> gpu-node-0"]


def test_attached_interfaces_must_carry_jumbo_frames(world, spec):
    """The pod's own interface is not meant; one that was attached and has 1500 bytes is."""
    roce = load_profile("h200-roce")
    for rank in (0, 1):
        more = [{"name": f"net{n}", "mtu": 9000, "addresses": [f"192.168.{n}.5"]} for n in (1, 2)]
        stage(world, rank, "network")["interfaces"] += more
    assert faults(secondary_findings(world, spec, roce)) == []
    stage(world, 0, "network")["interfaces"][2]["mtu"] = 1500
    assert faults(secondary_findings(world, spec, roce)) == [("gpu-node-0 net2", "network.secondary-mtu")]
    stage(world, 1, "network")["interfaces"][0]["addresses"] = []  # not readable: eth0 is the pod's own all the same
    assert faults(secondary_findings(world, spec, roce)) == [("gpu-node-0 net2", "network.secondary-mtu")]


# -- layer 9, the API


def plugin(node, *, ready=True):
    return PodUse(
        namespace="nvidia-network-operator",
        name=f"rdma-shared-dp-ds-{node}",
        node=node,
        requests={},
        owner="",
        phase="Running",
        ready=ready,
        trouble="" if ready else "CrashLoopBackOff: back-off",
    )


@pytest.mark.parametrize(
    ("capacity", "allocatable", "ready", "fault"),
    [
        (63, 63, True, None),
        (1, 1, True, None),
        (63, 63, False, None),
        (None, None, True, "rdma.resource-missing"),
        (8, 6, True, "rdma.resource-short"),
        (63, 0, False, "rdma.plugin-down"),
        (None, None, False, "rdma.plugin-down"),
    ],
)
def test_every_node_must_offer_the_resource(node, capacity, allocatable, ready, fault):
    """Missing, too few, or withdrawn because the plugin is down: each has its name; more than enough is quiet."""
    one = node("a")
    if capacity is not None:
        one = replace(one, capacity={RDMA: capacity}, allocatable={RDMA: allocatable})
    wanted = {RDMA: 8 if fault == "rdma.resource-short" else 1}
    found = list(offer_findings([one], wanted, {"a": [plugin("a", ready=ready)]}))
    assert [f.fault for f in found if f.ok is False] == ([fault] if fault else [])


def test_a_node_without_a_plugin_is_told(node):
    """Where others run the plugin and this node does not, that is said."""
    (found,) = offer_findings([node("b")], {RDMA: 1}, {"a": [plugin("a")]})
    assert "no RDMA device plugin runs on this node" in found.observed


def test_networks_are_named_in_both_forms():
    """The short form and JSON; interfaces count from net1; GKE says which interface is which."""
    short = {MULTUS: "default/rdma-0, rdma-1@ib1"}
    assert selections(short, "team") == [("default", "rdma-0", "net1"), ("team", "rdma-1", "ib1")]
    long = {MULTUS: json.dumps([{"name": "rdma-0", "namespace": "x"}, {"name": "b", "interface": "net7"}])}
    assert selections(long, "team") == [("x", "rdma-0", "net1"), ("team", "b", "net7")]
    assert selections({MULTUS: "[{"}, "team") == selections({}, "team") == []
    gke = {
        "networking.gke.io/interfaces": '[{"interfaceName":"eth0","network":"default"},'
        '{"interfaceName":"eth2","network":"rdma-0"}]'
    }
    assert attached_names(gke, "team") == {"eth2": "rdma-0"}


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"plugins": [{"type": "sriov"}, {"type": "tuning", "mtu": 9000}]}, None),
        ({"type": "host-device"}, None),
        ({"type": "macvlan", "mtu": 1500}, "rdma.nad-mtu"),
        ({"plugins": [{"type": "sriov", "mtu": 9000}, {"type": "tuning", "mtu": 1500}]}, "rdma.nad-mtu"),
        (None, "rdma.nad-missing"),
    ],
)
def test_definitions_must_exist_and_not_shrink_packets(spec, config, fault):
    """The last plugin that names an MTU decides; one that names none leaves the card's own."""
    roce = load_profile("h200-roce")
    asked = replace(spec, annotations={MULTUS: "default/rdma-0"})
    item = None if config is None else {"spec": {"config": json.dumps(config)}}
    found = list(definition_findings(asked, {("default", "rdma-0"): item}, roce))
    assert [(f.subject, f.fault) for f in found if f.ok is False] == ([("default/rdma-0", fault)] if fault else [])


# -- layer 9, the pods

SICK = [
    ({"state": "INIT"}, "rdma.no-subnet-manager"),
    ({"state": "DOWN", "phys_state": "Disabled"}, "rdma.port-down"),
    ({"rate_gbps": 200.0}, "rdma.rate-low"),
    ({"gid": False, "gids": []}, "rdma.gid-missing"),
    ({"pkeys": []}, "rdma.pkey-empty"),
    ({"pkeys": ["0x7fff", "0x8012"]}, "rdma.pkey-limited"),
    ({"link_layer": "Ethernet"}, "rdma.wrong-link-layer"),
]


@pytest.mark.parametrize(("change", "fault"), SICK, ids=[fault for _, fault in SICK])
def test_each_thing_that_is_wrong_with_a_port_has_its_name(world, spec, h100, change, fault):
    """One port of one node is sick: exactly that port is accused, of exactly that."""
    stage(world, 1, "rdma")["devices"][3].update(change)
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-1 mlx5_3", fault)]


def test_a_spare_port_may_be_down(world, spec, h100):
    """Two storage ports without a cable on both nodes: eight others are good, and that is what was paid for."""
    for rank in (0, 1):
        stage(world, rank, "rdma")["devices"] += [dict(port(n), state="DOWN") for n in (8, 9)]
    assert faults(device_findings(world, spec, h100)) == []


def test_a_port_that_is_up_on_the_other_node_may_not_be_down(world, spec, h100):
    """Ten ports on both nodes, eight wanted, and one is down on one node only: it is one of the job's rails."""
    for rank in (0, 1):
        stage(world, rank, "rdma")["devices"] += [port(8), port(9)]
    stage(world, 0, "rdma")["devices"][2].update(state="DOWN")
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-0 mlx5_2", "rdma.port-down")]


def test_ethernet_beside_infiniband_is_nobodys_fault(world, spec, h100):
    """A management card among eight InfiniBand ones."""
    for rank in (0, 1):
        stage(world, rank, "rdma")["devices"].insert(0, dict(port(8), link_layer="Ethernet", rate_gbps=25.0))
    assert faults(device_findings(world, spec, h100)) == []


def test_too_few_devices_are_told_from_none_and_from_closed_ones(world, spec, h100):
    """Seven of eight, none, or all without /dev/infiniband: the node is accused."""
    healthy = copy.deepcopy(stage(world, 1, "rdma"))
    stage(world, 1, "rdma")["devices"].pop()
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-1", "rdma.no-device")]
    stage(world, 1, "rdma").update(devices=[])
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-1", "rdma.no-device")]
    stage(world, 1, "rdma").update(healthy, uverbs=[])
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-1", "rdma.not-mounted")]


def test_a_network_that_is_not_attached_comes_first(world, spec):
    """The pod lacks interface and device: the network is the cause."""
    asked = replace(spec, annotations={MULTUS: "default/rdma-0,default/rdma-1"})
    roce = load_profile("h200-roce")
    stage(world, 0, "rdma")["devices"] = []
    for rank in (0, 1):
        stage(world, rank, "network")["interfaces"] += [{"name": "net1", "mtu": 9000, "addresses": []}]
    assert set(faults(device_findings(world, asked, roce))) == {
        ("gpu-node-0", "rdma.not-attached"),
        ("gpu-node-1", "rdma.not-attached"),
    }


def test_the_partition_is_an_index(world, spec, h100):
    """NCCL_IB_PKEY=1 names the second entry: limited membership in the first does not matter then, emptiness does."""
    tenant = replace(spec, env={**spec.env, "NCCL_IB_PKEY": "0x1"})
    for rank in (0, 1):
        for each in stage(world, rank, "rdma")["devices"]:
            each["pkeys"] = ["0x7fff", "0x8012"]
    assert faults(device_findings(world, tenant, h100)) == []
    stage(world, 0, "rdma")["devices"][0]["pkeys"] = ["0x7fff"]
    assert faults(device_findings(world, tenant, h100)) == [("gpu-node-0 mlx5_0", "rdma.pkey-empty")]


def test_a_gid_index_must_be_set_where_nccl_is_told_to_use_it(world, spec):
    """NCCL_IB_GID_INDEX=3 on a RoCE port that has entries 0 and 1 only."""
    roce = load_profile("mi300x")
    told = replace(spec, env={"NCCL_IB_GID_INDEX": "3"})
    for rank in (0, 1):
        for each in stage(world, rank, "rdma")["devices"]:
            each.update(link_layer="Ethernet", gids=[{"index": i, "gid": "x", "type": "RoCE v2"} for i in (0, 1, 2, 3)])
    assert faults(device_findings(world, told, roce)) == []
    stage(world, 1, "rdma")["devices"][5]["gids"].pop()
    assert faults(device_findings(world, told, roce)) == [("gpu-node-1 mlx5_5", "rdma.gid-missing")]


@pytest.mark.parametrize(("shown", "missing"), [(range(8), False), ((0, 1, 2, 4, 5, 6, 7, 8), True)])
def test_of_a_long_gid_table_only_the_shown_part_is_judged(world, spec, shown, missing):
    """The probe sends the first eight GIDs that are set: one behind them may be set, one between them is not."""
    index = "3" if missing else "9"
    told = replace(spec, env={"NCCL_IB_GID_INDEX": index})
    for rank in (0, 1):
        for each in stage(world, rank, "rdma")["devices"]:
            each.update(link_layer="Ethernet", gids=[{"index": i, "gid": "x", "type": "RoCE v2"} for i in shown])
    found = faults(device_findings(world, told, load_profile("mi300x")))
    assert {fault for _, fault in found} == ({"rdma.gid-missing"} if missing else set())


def test_a_filter_that_leaves_good_cards_out_is_not_the_cards_fault(world, spec, h100):
    """NCCL_IB_HCA excludes a card or names none: NCCL's own checks say so, with the rail that is missing."""
    for value in ("^mlx5_3", "=mlx5_bond_0"):
        told = replace(spec, env={"NCCL_IB_HCA": value})
        assert faults(device_findings(world, told, h100)) == []


@pytest.mark.parametrize(
    ("spec_", "name", "through"),
    [
        ("^mlx5_0", "mlx5_0", False),
        ("^mlx5_0", "mlx5_1", True),
        ("mlx5", "mlx5_7", True),
        ("=mlx5_1", "mlx5_10", False),
        ("mlx5_1:2", "mlx5_1", False),
        ("mlx5_1:1", "mlx5_1", True),
        ("^=mlx5_1", "mlx5_10", True),
    ],
)
def test_nccls_list_of_cards_is_read_as_nccl_does(spec_, name, through):
    """'^' excludes, '=' wants whole names, a number is a port."""
    assert lets_through(spec_, name, 1) is through


def test_efa_has_no_link_layer(world, spec):
    """32 EFA cards of 100 Gb/s, link layer Unknown, are what p5 pods must see."""
    efa = load_profile("p5-efa")
    for rank in (0, 1):
        cards = [dict(port(n), link_layer="Unknown", rate_gbps=100.0) for n in range(32)]
        stage(world, rank, "rdma").update(devices=cards, uverbs=["uverbs0"])
    assert faults(device_findings(world, spec, efa)) == []
    stage(world, 0, "rdma")["devices"] = stage(world, 0, "rdma")["devices"][:16]
    assert faults(device_findings(world, spec, efa)) == [("gpu-node-0", "rdma.no-device")]


def test_unlike_firmware_is_named_and_accuses_nobody(world, spec, h100):
    """A replaced card with other firmware works; the report says which it is."""
    assert firmware_note(world, spec) == ""
    stage(world, 1, "rdma")["devices"][4]["fw"] = "28.39.3560"
    assert faults(device_findings(world, spec, h100)) == []
    assert "28.39.3560: gpu-node-1 mlx5_4" in firmware_note(world, spec)


def test_errors_while_data_flows_accuse_the_port(world, spec):
    """Broken symbols and lost packets do; what congestion control does, and history, does not."""
    moved = stage(world, 0, "collective.ring")["rdma_counters"]
    moved |= {"mlx5_6/1/np_cnp_sent": 80000, "mlx5_6/1/out_of_sequence": 41, "mlx5_6/1/symbol_error": 4}
    assert faults(error_findings(world, spec)) == []
    moved |= {"mlx5_6/1/symbol_error": 4000, "mlx5_6/1/local_ack_timeout_err": 1}
    assert faults(error_findings(world, spec)) == [("gpu-node-0 mlx5_6", "rdma.errors")]


def test_a_port_that_carried_nothing_is_named(world, spec):
    """ACTIVE, and idle while the others worked: worth a look, and the rails are judged elsewhere."""
    assert idle_note(world, spec) == ""
    del stage(world, 1, "collective.ring")["rdma_counters"]["mlx5_2/1/port_xmit_data"]
    assert idle_note(world, spec) == "ports that are up and carried nothing: gpu-node-1 mlx5_2"


def test_nothing_that_flowed_is_no_pass(world, spec):
    """Counters that did not move at all prove nothing."""
    for rank in (0, 1):
        stage(world, rank, "collective.ring")["rdma_counters"] = {}
    assert unclear(error_findings(world, spec)) == ["gpu-node-0", "gpu-node-1"]


# -- layer 10


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


@pytest.mark.parametrize(
    ("policy", "zones", "wanted", "admitted"),
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
    ],
)
def test_which_requests_a_topology_policy_admits(policy, zones, wanted, admitted):
    """Six GPUs on two NUMA nodes of four: never under single-numa-node, well under restricted."""
    known = read_zones([topology_object(policy, *zones)])["gpu-node-0"]
    assert (refused(known, {"nvidia.com/gpu": wanted}) == "") is admitted


def test_two_kinds_of_devices_must_share_their_best_set():
    """GPUs on one NUMA node and cards on the other have no set in common under restricted."""
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


def test_old_and_new_topology_objects_say_the_same(spec):
    """v1alpha1 has topologyPolicies, v1alpha2 attributes; without either nothing is told."""
    for item in (topology_object("SingleNUMANodePodLevel", 4, 4, version=1), topology_object("single-numa-node", 4, 4)):
        found = list(policy_findings(["gpu-node-0"], read_zones([item]), spec))
        assert faults(found) == [("gpu-node-0", "topology.inadmissible")]
    assert unclear(policy_findings(["gpu-node-0"], read_zones([{"metadata": {"name": "gpu-node-0"}}]), spec))


def test_a_gpu_far_from_its_card_is_named(world, spec, h100):
    """Its nearest card is on the other socket; PXB is still near."""
    for path in stage(world, 1, "topology")["paths"]:
        if path["gpu"] == 3:
            path["path"] = "PXB" if path["nic"] == "mlx5_3" else "SYS"
    assert faults(affinity_findings(world, spec, h100)) == []
    for path in stage(world, 1, "topology")["paths"]:
        if path["gpu"] == 3:
            path["path"] = "SYS"
    assert faults(affinity_findings(world, spec, h100)) == [("gpu-node-1 GPU 3", "topology.gpu-nic-far")]


def test_fewer_cards_than_gpus_cannot_all_be_near(world, spec, h100):
    """Four rails for eight GPUs: four of the GPUs have a card beside them, and that is what was built."""
    for rank in (0, 1):
        paths = stage(world, rank, "topology")["paths"]
        stage(world, rank, "topology")["paths"] = [p for p in paths if int(p["nic"][-1]) % 2 == 0]
    assert len(faults(affinity_findings(world, spec, h100))) == 8
    four = replace(h100, fabric=replace(h100.fabric, rails=4))
    assert faults(affinity_findings(world, spec, four)) == []


def test_nodes_that_are_built_otherwise_are_named(world, spec):
    """GPU by GPU; of two nodes neither is accused, and both ways are shown."""
    stage(world, 1, "topology")["rows"][2] = "GPU2 NUMA 1 | | SYS"
    (found,) = [f for f in likeness_findings(world, spec) if f.ok is False]
    assert (found.subject, found.fault) == ("GPU topology", "topology.differs")
    assert "GPU2 NUMA 1 | | SYS on gpu-node-1" in found.observed
    assert "on gpu-node-0" in found.observed


def test_acs_is_judged_where_it_can_be_read(world, spec):
    """Redirecting bridges are a fault; a register that is not shown is not."""
    assert list(acs_findings(world, spec)) == []
    stage(world, 0, "topology")["acs"] = [{"bus_id": "0000:16:00.0", "enabled": False}]
    assert faults(acs_findings(world, spec)) == []
    stage(world, 0, "topology")["acs"].append({"bus_id": "0000:17:00.0", "enabled": True})
    assert faults(acs_findings(world, spec)) == [("gpu-node-0", "topology.acs")]


# -- the profile


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("network: {mtu: 99999, source: x}", "network.mtu"),
        ("network: {tcp_gbit_s: 1}", "network.source"),
        ("topology: {gpu_nic_max: PBX, source: x}", "did you mean PXB"),
        ("topology: {acs_off: true}", "topology.source"),
        ("fabric: {devices: 0}", "fabric.devices"),
        ("network: {mut: 1500}", "did you mean mtu"),
    ],
)
def test_numbers_of_the_fabric_that_cannot_be_true_are_refused(tmp_path, text, why):
    """Each refusal names the key; a number without a source is nobody's."""
    (tmp_path / "p.yaml").write_text(text + "\n")
    with pytest.raises(ProfileError, match=why.replace(".", r"\.")):
        load_profile(str(tmp_path / "p.yaml"))


def test_ports_whose_state_nobody_could_read_are_not_active(world, spec, h100):
    """Devices without a readable state are devices, and nothing is known of their ports."""
    for port in world.evidence[1].stages["rdma"]["devices"]:
        port["state"] = None
    odd = [f for f in device_findings(world, spec, h100) if f.ok is not True]
    assert [(f.subject, f.ok, f.fault) for f in odd] == [("gpu-node-1", None, "")]
    assert "the state of 8 ports is not readable" in odd[0].observed


def test_networks_of_googles_clusters_must_exist(spec):
    """They have no namespace, and the pod's own network is none to look for."""
    told = '[{"interfaceName":"eth0","network":"default"},{"interfaceName":"eth1","network":"gpu-nic0"}]'
    asked = replace(spec, annotations={"networking.gke.io/interfaces": told})
    assert named_networks(asked.annotations, "team") == {("", "gpu-nic0")}
    (found,) = definition_findings(asked, {("", "gpu-nic0"): {"kind": "Network"}}, Profile())
    assert (found.ok, found.subject) == (True, "network/gpu-nic0")
    (found,) = definition_findings(asked, {("", "gpu-nic0"): None}, Profile())
    assert (found.ok, found.fault) == (False, "rdma.nad-missing")
    assert named_networks({"networking.gke.io/interfaces": "no JSON"}, "team") == set()
