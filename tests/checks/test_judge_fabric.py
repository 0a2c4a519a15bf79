"""RDMA devices and their ports: states, GIDs, partitions, firmware, errors while data flows."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from checks.profiles.loader import load_profile
from checks.rules.network import mtu_findings, port_findings, rate_findings
from checks.rules.rdma import device_findings, firmware_note
from checks.rules.rdma_counters import error_findings, idle_note
from checks.rules.topology import affinity_findings, likeness_findings
from jobs.pod.stages.rdma import lets_through
from tests.checks.fabric import MULTUS, faults, port, stage, unclear


def test_a_healthy_fabric_raises_nothing(world, spec, h100):
    """No rule of the three layers raises a finding, and each has evaluated its subjects."""
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
        raised = list(findings)
        assert raised
        assert all(f.ok for f in raised)


@pytest.mark.parametrize("name", ["network", "rdma", "topology"])
def test_evidence_that_never_came_is_no_pass(world, spec, h100, name):
    """A missing stage is undetermined for every rule that needs it."""
    del world.evidence[1].stages[name]
    judged = {
        "network": [port_findings(world, spec), mtu_findings(world, spec, h100)],
        "rdma": [device_findings(world, spec, h100)],
        "topology": [affinity_findings(world, spec, h100), likeness_findings(world, spec)],
    }[name]
    assert all(unclear(findings) for findings in judged)


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
    """One port of one node is faulty: only that port is reported, with that fault."""
    stage(world, 1, "rdma")["devices"][3].update(change)
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-1 mlx5_3", fault)]


def test_a_spare_port_may_be_down(world, spec, h100):
    """Two storage ports without a cable on both nodes: the eight required ports are good."""
    for rank in (0, 1):
        stage(world, rank, "rdma")["devices"] += [dict(port(n), state="DOWN") for n in (8, 9)]
    assert faults(device_findings(world, spec, h100)) == []


def test_a_port_that_is_up_on_the_other_node_may_not_be_down(world, spec, h100):
    """Ten ports on both nodes, eight required, and one is down on one node only: it may be one of the job's rails."""
    for rank in (0, 1):
        stage(world, rank, "rdma")["devices"] += [port(8), port(9)]
    stage(world, 0, "rdma")["devices"][2].update(state="DOWN")
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-0 mlx5_2", "rdma.port-down")]


def test_ethernet_with_infiniband_is_no_ones_fault(world, spec, h100):
    """A management card among eight InfiniBand ones is not a fault."""
    for rank in (0, 1):
        stage(world, rank, "rdma")["devices"].insert(0, dict(port(8), link_layer="Ethernet", rate_gbps=25.0))
    assert faults(device_findings(world, spec, h100)) == []


def test_too_few_devices_are_distinguished_from_none_and_from_closed_ones(world, spec, h100):
    """Seven of eight, none, or all without /dev/infiniband: the node is at fault."""
    healthy = copy.deepcopy(stage(world, 1, "rdma"))
    stage(world, 1, "rdma")["devices"].pop()
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-1", "rdma.no-device")]
    stage(world, 1, "rdma").update(devices=[])
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-1", "rdma.no-device")]
    stage(world, 1, "rdma").update(healthy, uverbs=[])
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-1", "rdma.not-mounted")]


def test_a_network_that_is_not_attached_comes_first(world, spec):
    """The pod lacks interface and device, and the network is the cause."""
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
    """NCCL_IB_PKEY=1 selects the second entry: a limited first one does not matter, an empty second does."""
    tenant = replace(spec, env={**spec.env, "NCCL_IB_PKEY": "0x1"})
    for rank in (0, 1):
        for each in stage(world, rank, "rdma")["devices"]:
            each["pkeys"] = ["0x7fff", "0x8012"]
    assert faults(device_findings(world, tenant, h100)) == []
    stage(world, 0, "rdma")["devices"][0]["pkeys"] = ["0x7fff"]
    assert faults(device_findings(world, tenant, h100)) == [("gpu-node-0 mlx5_0", "rdma.pkey-empty")]


def test_a_gid_index_must_be_set_where_nccl_is_asked_to_use_it(world, spec):
    """NCCL_IB_GID_INDEX=3 on a RoCE port that has entries 0 and 1 only."""
    roce = load_profile("mi300x")
    with_env = replace(spec, env={"NCCL_IB_GID_INDEX": "3"})
    for rank in (0, 1):
        for each in stage(world, rank, "rdma")["devices"]:
            each.update(link_layer="Ethernet", gids=[{"index": i, "gid": "x", "type": "RoCE v2"} for i in (0, 1, 2, 3)])
    assert faults(device_findings(world, with_env, roce)) == []
    stage(world, 1, "rdma")["devices"][5]["gids"].pop()
    assert faults(device_findings(world, with_env, roce)) == [("gpu-node-1 mlx5_5", "rdma.gid-missing")]


@pytest.mark.parametrize(("shown", "missing"), [(range(8), False), ((0, 1, 2, 4, 5, 6, 7, 8), True)])
def test_of_a_long_gid_table_only_the_shown_part_is_judged(world, spec, shown, missing):
    """The probe sends the first eight set GIDs: a later one may be set, a gap between them is not."""
    index = "3" if missing else "9"
    with_env = replace(spec, env={"NCCL_IB_GID_INDEX": index})
    for rank in (0, 1):
        for each in stage(world, rank, "rdma")["devices"]:
            each.update(link_layer="Ethernet", gids=[{"index": i, "gid": "x", "type": "RoCE v2"} for i in shown])
    faults_raised = faults(device_findings(world, with_env, load_profile("mi300x")))
    assert {fault for _, fault in faults_raised} == ({"rdma.gid-missing"} if missing else set())


def test_gids_without_their_index_are_no_fault_of_a_port(world, spec):
    """Without their indexes it is unknown which GIDs are set: the one that NCCL uses may be among them."""
    with_env = replace(spec, env={"NCCL_IB_GID_INDEX": "3"})
    for rank in (0, 1):
        for each in stage(world, rank, "rdma")["devices"]:
            each.update(link_layer="Ethernet", gids=[{"index": None, "gid": "x"}, {"index": 5, "gid": "x"}])
    assert faults(device_findings(world, with_env, load_profile("mi300x"))) == []


@pytest.mark.parametrize(("index", "missing"), [("0", True), ("-1", False)])
def test_entry_0_of_the_gid_table_may_be_missing_and_minus_1_is_nccls_own_choice(world, spec, index, missing):
    with_env = replace(spec, env={"NCCL_IB_GID_INDEX": index})
    for rank in (0, 1):
        for each in stage(world, rank, "rdma")["devices"]:
            each.update(link_layer="Ethernet", gids=[{"index": 1, "gid": "x", "type": "RoCE v2"}])
    raised = {fault for _, fault in faults(device_findings(world, with_env, load_profile("mi300x")))}
    assert raised == ({"rdma.gid-missing"} if missing else set())


@pytest.mark.parametrize(("files", "usable", "ok"), [(8, None, True), (7, None, None), (7, True, True)])
def test_fewer_files_than_devices_prove_the_devices_only_where_each_is_reported_usable(
    world, spec, h100, files, usable, ok
):
    devices = stage(world, 1, "rdma")
    devices.update(uverbs=devices["uverbs"][:files])
    for each in devices["devices"]:
        each["usable"] = usable
    assert [f.ok for f in device_findings(world, spec, h100)] == [True, ok]


def test_a_filter_that_leaves_good_cards_out_is_not_the_cards_fault(world, spec, h100):
    """NCCL_IB_HCA excludes a card or matches none: NCCL's checks report it with the missing rail."""
    for value in ("^mlx5_3", "=mlx5_bond_0"):
        with_env = replace(spec, env={"NCCL_IB_HCA": value})
        assert faults(device_findings(world, with_env, h100)) == []


def test_a_card_that_the_filter_leaves_out_is_not_judged(world, spec, h100):
    """A ninth card for storage is down on one node: the job's eight are those in NCCL_IB_HCA."""
    for rank in (0, 1):
        stage(world, rank, "rdma")["devices"].append(port(8))
    stage(world, 0, "rdma")["devices"][8].update(state="DOWN")
    assert faults(device_findings(world, spec, h100)) == [("gpu-node-0 mlx5_8", "rdma.port-down")]
    assert faults(device_findings(world, replace(spec, env={"NCCL_IB_HCA": "^mlx5_8"}), h100)) == []


def test_a_good_card_that_the_filter_leaves_out_excuses_no_sick_one(world, spec, h100):
    """Eight cards on each node and seven in the job: the faulty one is among the seven."""
    for rank in (0, 1):
        stage(world, rank, "rdma")["devices"].append(port(8))
        stage(world, rank, "rdma")["devices"][3].update(state="DOWN")
    faults_raised = faults(device_findings(world, replace(spec, env={"NCCL_IB_HCA": "^mlx5_8"}), h100))
    assert faults_raised == [(f"gpu-node-{rank} mlx5_3", "rdma.port-down") for rank in (0, 1)]


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
    """'^' excludes, '=' requires exact names, a number is a port."""
    assert lets_through(spec_, name, 1) is through


def test_efa_has_no_link_layer(world, spec):
    """p5 pods must show 32 EFA cards of 100 Gb/s with link layer Unknown."""
    efa = load_profile("p5-efa")
    for rank in (0, 1):
        devices = [dict(port(n), link_layer="Unknown", rate_gbps=100.0) for n in range(32)]
        stage(world, rank, "rdma").update(devices=devices, uverbs=["uverbs0"])
    assert faults(device_findings(world, spec, efa)) == []
    stage(world, 0, "rdma")["devices"] = stage(world, 0, "rdma")["devices"][:16]
    assert faults(device_findings(world, spec, efa)) == [("gpu-node-0", "rdma.no-device")]


def test_unlike_firmware_is_named_and_raises_no_fault(world, spec, h100):
    """A replaced card with different firmware works; the report names it."""
    assert firmware_note(world, spec) == ""
    stage(world, 1, "rdma")["devices"][4]["fw"] = "28.39.3560"
    assert faults(device_findings(world, spec, h100)) == []
    assert "28.39.3560: gpu-node-1 mlx5_4" in firmware_note(world, spec)


def test_errors_while_data_flows_are_faults_of_the_port(world, spec):
    """Symbol errors and lost packets are faults; congestion control counters and past errors are not."""
    moved = stage(world, 0, "collective.ring")["rdma_counters"]
    moved |= {"mlx5_6/1/np_cnp_sent": 80000, "mlx5_6/1/out_of_sequence": 41, "mlx5_6/1/symbol_error": 4}
    assert faults(error_findings(world, spec)) == []
    moved |= {"mlx5_6/1/symbol_error": 4000, "mlx5_6/1/local_ack_timeout_err": 1}
    assert faults(error_findings(world, spec)) == [("gpu-node-0 mlx5_6", "rdma.errors")]


def test_a_port_that_carried_nothing_is_named(world, spec):
    """A port that is ACTIVE but idle while the others carried data is a note, since another check judges the rails."""
    assert idle_note(world, spec) == ""
    del stage(world, 1, "collective.ring")["rdma_counters"]["mlx5_2/1/port_xmit_data"]
    assert idle_note(world, spec) == "active ports without traffic: gpu-node-1 mlx5_2"


def test_nothing_that_flowed_is_no_pass(world, spec):
    """Unchanged counters prove nothing."""
    for rank in (0, 1):
        stage(world, rank, "collective.ring")["rdma_counters"] = {}
    assert unclear(error_findings(world, spec)) == ["gpu-node-0", "gpu-node-1"]


def test_ports_whose_state_no_one_could_read_are_not_active(world, spec, h100):
    """Devices without a readable state count as devices with unknown ports."""
    for device in world.evidence[1].stages["rdma"]["devices"]:
        device["state"] = None
    odd = [f for f in device_findings(world, spec, h100) if f.ok is not True]
    assert [(f.subject, f.ok, f.fault) for f in odd] == [("gpu-node-1", None, "")]
    assert "the state of 8 ports is not readable" in odd[0].observed


@pytest.mark.parametrize(
    ("index", "asked"), [("0", True), ("1", True), ("3", True), ("-1", False), ("x", False), (None, False)]
)
def test_a_gid_table_that_is_not_reported_is_no_pass_where_an_entry_of_it_is_used(world, spec, index, asked):
    """Whether the first entry is set is as unknown as for any other."""
    roce = load_profile("mi300x")
    for rank in (0, 1):
        for each in stage(world, rank, "rdma")["devices"]:
            each.update(link_layer="Ethernet", gids=[{"index": i, "gid": "x", "type": "RoCE v2"} for i in range(4)])
    with_env = replace(spec, env={} if index is None else {"NCCL_IB_GID_INDEX": index})
    assert unclear(device_findings(world, with_env, roce)) == []
    for each in stage(world, 0, "rdma")["devices"]:
        each["gids"] = None
    assert unclear(device_findings(world, with_env, roce)) == (["gpu-node-0"] if asked else [])
    assert faults(device_findings(world, with_env, roce)) == []
