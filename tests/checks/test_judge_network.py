"""The pod network and the fabric's resources: path MTU, throughput, RDMA resources, attached networks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from checks.profiles.loader import Profile, load_profile
from checks.profiles.yaml_schema import ProfileError
from checks.rules.network import endpoint_findings, mtu_findings, port_findings, rate_findings, secondary_findings
from checks.rules.rdma_offer import attached_names, definition_findings, named_networks, offer_findings, selections
from jobs.cluster.facts.inventory import PodUse
from jobs.trial.parts import Endpoint
from tests.checks.fabric import MULTUS, RDMA, faults, stage, unclear


def test_a_closed_port_is_a_fault_of_its_direction(world, spec):
    """A port that NCCL would use does not answer: only that direction is at fault."""
    stage(world, 0, "network")["peers"][0]["ports"][1].update(ok=False, error="no answer within 2 s")
    assert faults(port_findings(world, spec)) == [("gpu-node-0 -> gpu-node-1", "network.ports-blocked")]


def test_a_silent_hole_is_distinguished_from_a_narrow_path(world, spec, h100):
    """Silently dropped large packets are a fault; a path that reports its MTU is only narrower."""
    one = stage(world, 0, "network")["peers"][0]
    one.update(df_ok=False, path_mtu=1400, learned_mtu=1400)
    assert faults(mtu_findings(world, spec, h100)) == []
    one.update(learned_mtu=1500)
    assert faults(mtu_findings(world, spec, h100)) == [("gpu-node-0 -> gpu-node-1", "network.mtu-blackhole")]
    one.update(learned_mtu=None)
    assert [f.ok for f in mtu_findings(world, spec, h100) if f.subject == "gpu-node-0 -> gpu-node-1"] == [None]


def test_packets_smaller_than_the_profile_wants_are_a_fault(world, spec, h100):
    """The profile sets the size: 1500 bytes are too few for 8900."""
    wants = replace(h100, network=replace(h100.network, mtu=8900))
    assert {fault for _, fault in faults(mtu_findings(world, spec, wants))} == {"network.mtu-mismatch"}


def test_nodes_whose_pods_have_unlike_mtus_are_named(world, spec, h100):
    """With two different MTUs, either may be wrong, so both are shown."""
    stage(world, 1, "network")["interfaces"][0]["mtu"] = 1450
    assert faults(mtu_findings(world, spec, h100)) == [("MTU", "network.mtu-mismatch")]
    (finding,) = [f for f in mtu_findings(world, spec, h100) if not f.ok]
    assert finding.observed == "MTU differs: 1500 on gpu-node-0; 1450 on gpu-node-1"


def test_filtered_udp_is_no_fault_where_tcp_carries(world, spec, h100):
    """Without an echo the size is unknown; TCP traffic shows that full segments pass."""
    one = stage(world, 0, "network")["peers"][0]
    one.update(df_ok=None, path_mtu=None, learned_mtu=None, mtu_error="no answer to UDP on port 40000")
    assert faults(mtu_findings(world, spec, h100)) == unclear(mtu_findings(world, spec, h100)) == []
    one.update(bytes=0)
    assert unclear(mtu_findings(world, spec, h100)) == ["gpu-node-0 -> gpu-node-1"]


def test_the_best_moment_is_held_against_the_floor(world, spec, h100):
    """A slow mean with a fast peak is a busy machine; a slow peak is a slow link or a stall."""
    one = stage(world, 1, "network")["peers"][0]
    one.update(throughput_gbit_s=0.2, peak_gbit_s=2.0)
    assert faults(rate_findings(world, spec, h100)) == []
    one.update(peak_gbit_s=0.09, throughput_gbit_s=0.09)
    assert faults(rate_findings(world, spec, h100)) == [("gpu-node-1 -> gpu-node-0", "network.slow")]
    one.update(peak_gbit_s=None, throughput_gbit_s=None, error="the connection stalled after 65536 bytes")
    assert faults(rate_findings(world, spec, h100)) == [("gpu-node-1 -> gpu-node-0", "network.slow")]
    one.update(error="it did not report its ports")
    assert unclear(rate_findings(world, spec, h100)) == ["gpu-node-1 -> gpu-node-0"]


def test_a_rate_that_a_busy_cpu_explains_is_not_the_networks(world, spec, h100):
    """0.95 Gb/s with pods waiting for CPU nearly all the time is undetermined; a tenth of that is slow."""
    one = stage(world, 1, "network")["peers"][0]
    one.update(throughput_gbit_s=0.9, peak_gbit_s=0.95, cpu_wait=0.8)
    assert faults(rate_findings(world, spec, h100)) == []
    assert unclear(rate_findings(world, spec, h100)) == ["gpu-node-1 -> gpu-node-0"]
    one.update(throughput_gbit_s=0.9, peak_gbit_s=1.2, cpu_wait=1.0)
    assert faults(rate_findings(world, spec, h100)) == unclear(rate_findings(world, spec, h100)) == []
    for mean, wait in ((0.09, 0.8), (0.9, 0.05), (0.9, None)):  # too slow for any wait, no wait, unknown wait
        one.update(throughput_gbit_s=mean, peak_gbit_s=0.95, cpu_wait=wait)
        assert faults(rate_findings(world, spec, h100)) == [("gpu-node-1 -> gpu-node-0", "network.slow")]
    one.update(throughput_gbit_s=0.9, peak_gbit_s=0.95, cpu_wait=0.8, error="the connection was lost: reset")
    assert unclear(rate_findings(world, spec, h100)) == ["gpu-node-1 -> gpu-node-0"]


def test_attached_interfaces_must_carry_jumbo_frames(world, spec):
    """Attached interfaces with 1500 bytes fail; the pod's own interface is not judged."""
    roce = load_profile("h200-roce")
    for rank in (0, 1):
        more = [{"name": f"net{n}", "mtu": 9000, "addresses": [f"192.168.{n}.5"]} for n in (1, 2)]
        stage(world, rank, "network")["interfaces"] += more
    assert faults(secondary_findings(world, spec, roce)) == []
    stage(world, 0, "network")["interfaces"][2]["mtu"] = 1500
    assert faults(secondary_findings(world, spec, roce)) == [("gpu-node-0 net2", "network.secondary-mtu")]
    stage(world, 1, "network")["interfaces"][0]["addresses"] = []  # unreadable: eth0 is still the pod's own
    assert faults(secondary_findings(world, spec, roce)) == [("gpu-node-0 net2", "network.secondary-mtu")]


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
    """Missing, too few, or withdrawn because the plugin is down are different faults; more than enough passes."""
    one = node("a")
    if capacity is not None:
        one = replace(one, capacity={RDMA: capacity}, allocatable={RDMA: allocatable})
    requests = {RDMA: 8 if fault == "rdma.resource-short" else 1}
    findings = list(offer_findings([one], requests, {"a": [plugin("a", ready=ready)]}))
    assert [f.fault for f in findings if f.ok is False] == ([fault] if fault else [])


@pytest.mark.parametrize(
    ("resource", "count", "devices", "offered", "ok"),
    [
        ("vpc.amazonaws.com/efa", 32, 32, 34, None),
        ("vpc.amazonaws.com/efa", 32, 32, 64, None),
        ("vpc.amazonaws.com/efa", 32, 32, 32, True),
        ("vpc.amazonaws.com/efa", 16, 32, 32, True),
        ("vpc.amazonaws.com/efa", 32, None, 34, None),
        ("nvidia.com/hostdev", 8, 8, 9, None),
        ("nvidia.com/hostdev", 8, 8, 8, True),
        ("openshift.io/vfs", 8, 8, 64, True),  # eight virtual functions of each
        (RDMA, 1, 8, 63, True),  # shared by up to 63 pods
    ],
)
def test_more_devices_than_the_profile_says_are_another_machine(node, resource, count, devices, offered, ok):
    """More devices are neither a pass nor a cluster fault, since the profile is for other nodes. Shared devices have no
    maximum."""
    here = replace(node("a"), allocatable={resource: offered}, capacity={resource: offered})
    (finding,) = offer_findings([here], {resource: count}, {}, devices)
    assert (finding.ok, finding.fault) == (ok, "" if ok else "nodes.other-kind")


def test_a_node_without_a_plugin_is_reported(node):
    """A node without the plugin that other nodes run is reported."""
    (finding,) = offer_findings([node("b")], {RDMA: 1}, {"a": [plugin("a")]})
    assert "no RDMA device plugin runs on this node" in finding.observed


def test_networks_are_named_in_both_forms():
    """An annotation has the short form or JSON; interfaces count from net1; GKE maps interfaces explicitly."""
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
    """The last plugin with an MTU decides; without one the card's MTU applies."""
    roce = load_profile("h200-roce")
    asked = replace(spec, annotations={MULTUS: "default/rdma-0"})
    item = None if config is None else {"spec": {"config": json.dumps(config)}}
    findings = list(definition_findings(asked, {("default", "rdma-0"): item}, roce))
    assert [(f.subject, f.fault) for f in findings if f.ok is False] == ([("default/rdma-0", fault)] if fault else [])


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
    """Each refusal names the key; a number without a source is refused."""
    (tmp_path / "p.yaml").write_text(text + "\n")
    with pytest.raises(ProfileError, match=why.replace(".", r"\.")):
        load_profile(str(tmp_path / "p.yaml"))


def test_networks_of_googles_clusters_must_exist(spec):
    """Google's networks have no namespace, and the pod's own network is not looked up."""
    annotation = '[{"interfaceName":"eth0","network":"default"},{"interfaceName":"eth1","network":"gpu-nic0"}]'
    asked = replace(spec, annotations={"networking.gke.io/interfaces": annotation})
    assert named_networks(asked.annotations, "team") == {("", "gpu-nic0")}
    (finding,) = definition_findings(asked, {("", "gpu-nic0"): {"kind": "Network"}}, Profile())
    assert (finding.ok, finding.subject) == (True, "network/gpu-nic0")
    (finding,) = definition_findings(asked, {("", "gpu-nic0"): None}, Profile())
    assert (finding.ok, finding.fault) == (False, "rdma.nad-missing")
    assert named_networks({"networking.gke.io/interfaces": "no JSON"}, "team") == set()


@pytest.mark.parametrize(
    ("change", "ok"),
    [({"mtu": 9000}, True), ({"mtu": 8999}, False), ({"mtu": None}, None), ({"mtu": 9000, "name": None}, None), ({"mtu": 1500, "name": None}, None)],
)  # fmt: skip
def test_an_attached_interface_passes_at_the_mtu_that_the_profile_asks_for(world, spec, change, ok):
    """An interface without an MTU or a name is undetermined."""
    roce = load_profile("h200-roce")
    profile = replace(roce, network=replace(roce.network, secondary_mtu=9000))
    for rank in (0, 1):
        stage(world, rank, "network")["interfaces"].append({"name": "net1", "mtu": 9000, "addresses": ["10.9.0.1"]})
    stage(world, 0, "network")["interfaces"][-1].update(change)
    found = {each.subject: each.ok for each in secondary_findings(world, spec, profile)}
    assert found.pop("gpu-node-1 net1") is True
    assert list(found.values()) == [ok]
    if ok is None:
        assert {each.fault for each in secondary_findings(world, spec, profile) if each.ok is False} == set()


def test_why_a_direction_was_not_measured_is_what_the_pod_said(world, spec, h100):
    """The reason is the pod's error or, without one, that the direction was not tried."""
    ways = ("gpu-node-0 -> gpu-node-1", "gpu-node-1 -> gpu-node-0")
    for error, said in (("no peer answered", "no peer answered"), (None, "this direction was not tried")):
        stage(world, 0, "network").update(peers=[], error=error)
        found = {each.subject: (each.ok, each.observed) for each in rate_findings(world, spec, h100)}
        assert found[ways[0]] == (None, said)
        assert found[ways[1]][0] is True


def test_why_no_port_of_a_direction_was_tried_is_reported(world, spec):
    """The pod's error, the missing part, or that none was tried: never a pass."""
    way = "gpu-node-0 -> gpu-node-1"

    def told():
        return {each.subject: (each.ok, each.observed) for each in port_findings(world, spec)}[way]

    assert told()[0] is True
    one = stage(world, 0, "network")["peers"][0]
    one.update(ports=[], error="no route to host")
    assert told() == (None, "no route to host")
    one.update(error=None)
    assert told() == (None, "no port was tried")
    stage(world, 0, "network").update(peers=[], error="the stage was stopped")
    assert told() == (None, "the stage was stopped")


@pytest.mark.parametrize(
    ("forbidden", "reached", "ok"),
    [
        (False, True, True),
        (False, False, False),
        (True, True, False),
        (True, False, True),
        (False, None, None),  # a proxy that requires a password, an incomplete stage
        (True, None, None),
    ],
)
def test_endpoints_are_judged_by_what_was_tried(world, spec, forbidden, reached, ok):
    """An endpoint that was not tried is neither reachable nor blocked."""
    asked = replace(spec, endpoints=(Endpoint("mirror:443", forbidden),))
    assert [each.ok for each in endpoint_findings(world, asked)] == [None, None]
    for rank in (0, 1):
        record = {"endpoint": "mirror:443", "forbidden": forbidden, "reached": not forbidden, "by": "direct"}
        world.evidence[rank].stages["endpoints"] = {"tried": [record]}
    world.evidence[1].stages["endpoints"]["tried"][0].update(reached=reached, error="refused")
    first, second = endpoint_findings(world, asked)
    assert (first.ok, second.ok, second.subject) == (True, ok, "gpu-node-1 -> mirror:443")
    kind = "network.endpoint-open" if forbidden else "network.endpoint-unreachable"
    assert second.fault == (kind if ok is False else "")


@pytest.mark.parametrize(
    "section", ["{reachable: [mirror]}", "{forbidden: ['https://a:b@c']}", "{reachable: ['a:1'], forbidden: ['a:1']}"]
)
def test_endpoints_that_make_no_sense_are_refused_before_anything_starts(tmp_path, section):
    path = tmp_path / "mine.yaml"
    path.write_text(f"extends: h100-ib\nnetwork: {{endpoints: {section}}}\n")
    with pytest.raises(ProfileError, match=r"network\.endpoints"):
        load_profile(str(path))
