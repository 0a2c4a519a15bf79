"""Results of rdma.bandwidth for RDMA writes between neighbours: the end at fault, and missing measurements."""

from dataclasses import replace

import pytest

from checks.profiles.loader import Profile, load_profile
from checks.profiles.schema import FabricSection
from checks.profiles.trial import spec_of
from checks.rules import perftest
from jobs.trial.parts import Deadlines
from seatrial.faults.catalogue import formed
from tests.by_hand import Stages
from tests.checks.fabric import port

GOOD, BAD = 392.0, 196.4
ERROR = "Failed to modify QP 297 to RTR; Unable to Connect the HCA's through the link"


def wrote(trial, nodes=2, rails=8, **changes):
    """Return writes of every neighbour at the rate; ``changes``: "0>1 mlx5_3" -> Gb/s, or a write's fields."""
    for rank in range(nodes):
        if rank not in trial.evidence:
            trial.evidence[rank] = replace(trial.evidence[1], stages=Stages(trial.evidence[1].stages))
            trial.replicas += (replace(trial.replicas[1], index=rank, node=f"gpu-node-{rank}"),)
        writes = []
        for peer in (rank - 1, rank + 1):
            for nic in (f"mlx5_{n}" for n in range(rails if 0 <= peer < nodes else 0)):
                write = {"peer": peer, "nic": nic, "peer_nic": nic, "memory": "host", "gbit_s": GOOD, "error": None}
                changed = changes.get(f"{rank}>{peer} {nic}", changes.get(f"{rank}>{peer}", {}))
                writes.append({**write, **(changed if isinstance(changed, dict) else {"gbit_s": changed})})
        stage = {"tool": "ib_write_bw", "found": True, "gpu_memory": False, "left_out": [], "error": None}
        nics = [f"mlx5_{n}" for n in range(rails)]
        trial.evidence[rank].stages["perftest"] = {**stage, "nics": nics, "writes": writes}
        trial.evidence[rank].stages["rdma"] = {"devices": [port(n, rank) for n in range(rails)]}
    return trial


def both(edge, nic, value):
    """Return a link with this value in both directions."""
    low, high = edge
    name = f" {nic}" if nic else ""
    return {f"{low}>{high}{name}": value, f"{high}>{low}{name}": value}


@pytest.fixture
def judged(trial, spec, h100):
    """Return the findings of such writes, as (subject, ok, fault)."""

    def judge(nodes=2, **changes):
        found = perftest.findings(wrote(trial, nodes, **changes), replace(spec, nodes=nodes), h100)
        return [(f.subject, f.ok, f.fault) for f in found]

    return judge


def test_links_at_their_rate_are_good(trial, spec, h100):
    (finding,) = perftest.findings(wrote(trial), spec, h100)
    assert (finding.subject, finding.ok) == ("gpu-node-0 - gpu-node-1", True)
    assert finding.observed == "8 NICs, 392 to 392 Gb/s each way, host memory"
    assert finding.expected == "at least 360 Gb/s each way (90% of 400)"


@pytest.mark.parametrize("way", ["0>1 mlx5_3", "1>0 mlx5_3"])
def test_on_two_nodes_a_slow_link_is_the_pairs(judged, way):
    """One slow direction is enough; the end at fault cannot be determined."""
    (slow, good) = judged(**{way: BAD})
    assert slow == ("gpu-node-0 - gpu-node-1 rail mlx5_3", False, "rdma.low-bandwidth")
    assert good == ("gpu-node-0 - gpu-node-1", True, "")
    assert judged(**{way: 361.0}) == [("gpu-node-0 - gpu-node-1", True, "")]


def test_another_partner_shows_whose_nic_it_is(judged):
    at_1 = judged(4, **both((0, 1), "mlx5_3", BAD), **both((1, 2), "mlx5_3", BAD))
    assert [each for each in at_1 if each[1] is False] == [("gpu-node-1 rail mlx5_3", False, "rdma.low-bandwidth")]
    at_the_end = judged(4, **both((0, 1), "mlx5_3", BAD))
    assert [each[0] for each in at_the_end if each[1] is False] == ["gpu-node-0 rail mlx5_3"]


def test_two_nics_that_are_good_with_others_are_a_pair(judged):
    """NICs that are good with other partners are not at fault, so the path between them is."""
    found = judged(4, **both((1, 2), "mlx5_3", BAD))
    assert [each[0] for each in found if each[1] is False] == ["gpu-node-1 - gpu-node-2 rail mlx5_3"]


def test_what_is_slow_on_all_nics_is_no_cable(judged):
    rails = ", ".join(f"mlx5_{n}" for n in range(8))
    assert judged(**both((0, 1), "", BAD)) == [
        (f"gpu-node-0 - gpu-node-1 rail {rails}", False, "rdma.low-bandwidth-all")
    ]
    ((subject, _, fault), *_) = judged(4, **both((0, 1), "", BAD), **both((1, 2), "", BAD))
    assert (subject, fault) == (f"gpu-node-1 rail {rails}", "rdma.low-bandwidth-all")


def test_one_nic_of_a_node_with_one_is_a_link(trial, spec, h100):
    world = wrote(trial, rails=1, **both((0, 1), "mlx5_0", BAD))
    assert [f.fault for f in perftest.findings(world, spec, h100)] == ["rdma.low-bandwidth"]


def test_a_known_error_fails_and_any_other_has_measured_nothing(judged, trial, spec, h100):
    failing = {"gbit_s": None, "error": ERROR}
    assert judged(**{"0>1 mlx5_3": failing})[0] == ("gpu-node-0 - gpu-node-1 rail mlx5_3", False, "rdma.write-failed")
    wrote(trial, **{"0>1 mlx5_3": failing})
    assert "two NICs" not in str(perftest.advice(trial, h100))
    assert "NCCL_IB_GID_INDEX" in str(perftest.advice(trial, h100))
    other = {"gbit_s": None, "error": "Couldn't connect to 10.0.1.5:41234; Unable to init the socket connection"}
    assert judged(**{"0>1 mlx5_3": other})[0] == ("gpu-node-0 - gpu-node-1 rail mlx5_3", None, "")


@pytest.mark.parametrize(
    "changed", [{"gbit_s": None}, {"gbit_s": float("nan")}, {"gbit_s": -1.0}, {"peer_nic": "mlx5_9"}, {"peer": 7}]
)
def test_a_way_that_was_not_measured_is_no_pass(judged, changed):
    found = judged(**{"0>1 mlx5_3": changed})
    assert None in [ok for _, ok, _ in found]
    assert False not in [ok for _, ok, _ in found]


def test_gpu_memory_is_judged_where_host_memory_is_good(trial, spec, h100):
    """A good rate with GPU memory clears a link with slow host memory."""
    wrote(trial)
    for rank in (0, 1):
        data = trial.evidence[rank].stages["perftest"]
        data["writes"] += [{**each, "memory": "gpu", "gbit_s": BAD} for each in data["writes"][:1]]
    (slow, good) = perftest.findings(trial, spec, h100)
    assert (slow.subject, slow.fault) == ("gpu-node-0 - gpu-node-1 rail mlx5_0", "rdma.low-bandwidth-gpu")
    assert good.ok is True
    for rank in (0, 1):
        first, *_, last = trial.evidence[rank].stages["perftest"]["writes"]
        first["gbit_s"], last["gbit_s"] = BAD, GOOD
    assert [(f.ok, f.observed) for f in perftest.findings(trial, spec, h100)] == [
        (True, "7 NICs, 392 to 392 Gb/s each way, host memory; 1 NICs, 392 to 392 Gb/s each way, GPU memory")
    ]
    for rank in (0, 1):
        trial.evidence[rank].stages["perftest"]["writes"][-1]["gbit_s"] = BAD
    assert [f.fault for f in perftest.findings(trial, spec, h100) if f.ok is False] == ["rdma.low-bandwidth"]


def gpu(trial, value, rails=1):
    """Return links that write GPU memory at a rate in both directions, or with other fields."""
    for rank in (0, 1):
        writes = trial.evidence[rank].stages["perftest"]["writes"]
        changed = value if isinstance(value, dict) else {"gbit_s": value, "error": None}
        writes += [{**each, "memory": "gpu", **changed} for each in writes[:rails]]
    return trial


@pytest.mark.parametrize(
    ("host", "fault"),
    [
        ({"gbit_s": None, "error": "no result"}, "rdma.low-bandwidth"),  # nothing clears the link
        ({"gbit_s": BAD, "far": True}, "rdma.low-bandwidth"),
        (GOOD, "rdma.low-bandwidth-gpu"),
    ],
)
def test_slow_gpu_memory_is_said_where_host_memory_explains_nothing(trial, spec, h100, host, fault):
    world = gpu(wrote(trial, **both((0, 1), "mlx5_0", host)), {"gbit_s": BAD, "error": None, "far": True})
    found = [(f.subject, f.fault) for f in perftest.findings(world, spec, h100) if f.ok is False]
    assert found == [("gpu-node-0 - gpu-node-1 rail mlx5_0", fault)]


@pytest.mark.parametrize(("value", "fault"), [(200.0, "rdma.low-bandwidth-gpu"), (500.0, "rdma.low-bandwidth")])
def test_slow_gpu_memory_is_said_of_ports_that_no_host_fills(trial, spec, h100, value, fault):
    """The host memory rate clears the link only of slower results."""
    profile = replace(h100, fabric=replace(h100.fabric, rail_gbit_s=800.0))
    gpu(wrote(trial), value)
    for rank in (0, 1):
        for each in trial.evidence[rank].stages["rdma"]["devices"]:
            each["rate_gbps"] = 800.0
    assert [f.fault for f in perftest.findings(trial, spec, profile)] == [fault]


def test_what_no_port_carries_and_a_rate_that_is_none_are_no_pass(trial, spec, h100):
    for value in (1e17, float("inf")):
        found = list(perftest.findings(wrote(trial, **{"0>1 mlx5_3": value}), spec, h100))
        assert [f.ok for f in found] == [None, True]
        assert "is no result" in found[0].observed
    bonded = wrote(trial, **both((0, 1), "mlx5_3", 2 * GOOD))
    assert [f.ok for f in perftest.findings(bonded, spec, h100)] == [True]
    other = replace(h100, fabric=replace(h100.fabric, rail_gbit_s=None, device_gbit_s=None))
    for rate in (0.0, -400.0):
        for rank in (0, 1):
            wrote(trial).evidence[rank].stages["rdma"]["devices"][3]["rate_gbps"] = rate
        assert None in [f.ok for f in perftest.findings(trial, spec, other)]


def test_memory_that_cannot_be_registered_is_named_and_two_errors_have_no_common_advice(trial, h100):
    no_memory = {"gbit_s": None, "error": "Couldn't allocate MR; failed to create mr"}
    assert "memlock" in str(perftest.advice(wrote(trial, **{"0>1 mlx5_3": no_memory}), h100))
    assert "nvidia_peermem" in str(perftest.advice(gpu(wrote(trial), no_memory), h100))
    both_kinds = {"0>1 mlx5_3": no_memory, "0>1 mlx5_4": {"gbit_s": None, "error": ERROR}}
    assert perftest.advice(wrote(trial, **both_kinds), h100) is None


def test_host_memory_does_not_judge_what_no_host_carries(trial, spec, h100):
    """PCIe 5.0 x16 is slower than 800 Gb/s: half of the port's rate is undetermined; GPU memory decides."""
    profile = replace(h100, fabric=replace(h100.fabric, rail_gbit_s=800.0))
    wrote(trial, **both((0, 1), "", 430.0))
    for rank in (0, 1):
        for each in trial.evidence[rank].stages["rdma"]["devices"]:
            each["rate_gbps"] = 800.0
    assert list(perftest.findings(trial, spec, profile)) == []
    assert "8 links at 430 to 430 Gb/s are measured, not judged" in perftest.unjudged(trial, profile)
    assert perftest.sentence("all_reduce", trial, spec, profile) == ""
    for rank in (0, 1):
        writes = trial.evidence[rank].stages["perftest"]["writes"]
        writes += [{**each, "memory": "gpu", "gbit_s": 780.0} for each in writes]
    assert [f.ok for f in perftest.findings(trial, spec, profile)] == [True]
    assert perftest.unjudged(trial, profile) == ""
    wrote(trial, **both((0, 1), "mlx5_3", 350.0))
    for rank in (0, 1):
        for each in trial.evidence[rank].stages["rdma"]["devices"]:
            each["rate_gbps"] = 800.0
    assert "rdma.low-bandwidth" in [f.fault for f in perftest.findings(trial, spec, profile)]


def test_memory_of_the_other_socket_raises_no_fault_and_passes_no_one(judged):
    found = judged(**{"0>1 mlx5_3": {"gbit_s": BAD, "far": True}})
    assert found[0] == ("gpu-node-0 - gpu-node-1 rail mlx5_3", None, "")
    assert judged(**{"0>1 mlx5_3": {"far": True}}) == [("gpu-node-0 - gpu-node-1", True, "")]


def test_the_rate_is_the_slower_ports_and_at_most_the_profiles(trial, spec, h100):
    """rdma.devices judges a port below the profile's rate: a storage NIC, or one with a degraded link."""
    wrote(trial, **both((0, 1), "mlx5_3", 190.0))
    trial.evidence[1].stages["rdma"]["devices"][3]["rate_gbps"] = 200.0
    assert [(f.ok, f.observed[:6]) for f in perftest.findings(trial, spec, h100)] == [(True, "7 NICs")]
    other = replace(h100, fabric=replace(h100.fabric, rail_gbit_s=None))
    assert [f.ok for f in perftest.findings(trial, spec, other)] == [True]
    half = replace(h100, fabric=replace(h100.fabric, rail_gbit_s=200.0))
    assert [f.ok for f in perftest.findings(wrote(trial, **both((0, 1), "", 185.0)), spec, half)] == [True]
    trial.evidence[0].stages["rdma"]["devices"][3]["rate_gbps"] = None
    assert None in [f.ok for f in perftest.findings(trial, spec, h100)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"found": False}, "no ib_write_bw in the pod of gpu-node-1"),
        ({"error": "timed out"}, "timed out"),
        ({"left_out": [{"peer": 0, "why": "the time for all writes was up"}]}, "the time for all writes was up"),
        ({"writes": []}, "the other way was not measured"),
        ({"nics": ["mlx5_7", "mlx5_8"]}, "of gpu-node-1: not tested: mlx5_8"),
    ],
)
def test_what_a_rank_has_not_done_is_unknown(trial, spec, h100, changes, words):
    wrote(trial).evidence[1].stages["perftest"].update(changes)
    found = [f for f in perftest.findings(trial, spec, h100) if f.ok is not True]
    assert {f.ok for f in found} == {None}
    assert any(words in f.observed for f in found)


def test_a_rank_without_the_stage_and_a_pair_without_a_nic_are_unknown(trial, spec, h100):
    wrote(trial)
    for rank in (0, 1):
        trial.evidence[rank].stages["perftest"]["writes"] = []
    found = list(perftest.findings(trial, spec, h100))
    assert {f.ok for f in found} == {None}
    assert found[-1].observed == "no NIC of this fabric was tested"
    del trial.evidence[1].stages["perftest"]
    assert None in [f.ok for f in perftest.findings(trial, spec, h100)]


def test_messages_over_efa_pass_without_a_bandwidth(trial, h100):
    efa = load_profile("p5-efa")
    spec = spec_of(efa, run_id="a", namespace="n")
    passed = {"gbit_s": None, "passed": True}
    world = wrote(trial, rails=2, **{"0>1": passed})
    world.evidence[1].stages["perftest"]["writes"] = []
    (finding,) = perftest.findings(world, spec, efa)
    assert (finding.ok, finding.observed) == (True, "messages pass on 2 NICs")
    hang = {"gbit_s": None, "passed": False, "error": "/opt/amazon/efa/bin/fi_pingpong did not end within 17 s"}
    world = wrote(trial, rails=2, **{"0>1": passed, "0>1 mlx5_1": hang})
    world.evidence[1].stages["perftest"]["writes"] = []
    (failure, good) = perftest.findings(world, spec, efa)
    assert (failure.subject, failure.fault, good.ok) == (
        "gpu-node-0 - gpu-node-1 rail mlx5_1",
        "rdma.write-failed",
        True,
    )


@pytest.mark.parametrize("operation", ["all_reduce", "sendrecv", "all_to_all"])
def test_a_slow_collective_over_fast_links_has_its_own_advice(trial, spec, h100, operation):
    said = perftest.sentence(operation, wrote(trial), spec, h100)
    assert said == f"{operation}: RDMA writes reach 392 of 400 Gb/s on every NIC, one at a time"
    name = {"all_reduce": "", "sendrecv": "-sendrecv", "all_to_all": "-alltoall"}[operation]
    known = formed(f"nccl.low-bandwidth{name}", said)
    assert known is not None
    assert known.variant is not None
    assert known.variant.remedy.endswith("Leave cables alone")


@pytest.mark.parametrize("changes", [both((0, 1), "mlx5_3", BAD), {"0>1 mlx5_3": {"gbit_s": None}}])
def test_cables_are_acquitted_only_where_all_were_measured(trial, spec, h100, changes):
    assert perftest.sentence("all_reduce", wrote(trial, **changes), spec, h100) == ""
    del trial.evidence[1].stages["perftest"]
    assert perftest.sentence("all_reduce", trial, spec, h100) == ""


def test_only_a_trial_where_no_pod_has_it_is_skipped(trial, spec):
    assert perftest.missing(trial, spec) == ""
    wrote(trial)
    for rank in (0, 1):
        trial.evidence[rank].stages["perftest"]["found"] = False
    assert perftest.missing(trial, spec) == "ib_write_bw"
    trial.evidence[0].stages["perftest"]["found"] = True
    assert perftest.missing(trial, spec) == ""


def test_the_cost_is_said_and_has_its_time(h100):
    """Eight NICs take about a minute; without RDMA devices, or if the profile disables it, nothing runs."""
    made = spec_of(h100, run_id="a", namespace="n")
    assert (made.perftest.usual_s, made.perftest.limit_s) == (64.0, 188.0)
    assert made.perftest.cost.startswith("If the image has ib_write_bw, ") and "; if not, nothing" in made.perftest.cost
    assert "about 64 s for 8 NICs, twice that if it uses GPU memory" in made.perftest.cost
    for changes in ({"gpu": False}, {"layer": ""}):
        assert "twice" not in replace(made.perftest, **changes).cost
    assert replace(made.perftest, nodes=1).cost == ""
    assert made.deadlines.probe_s >= Deadlines().probe_s + made.perftest.limit_s
    four = spec_of(replace(h100, nodes=4), run_id="a", namespace="n")
    assert four.perftest.usual_s == 128.0
    none = replace(h100, fabric=replace(h100.fabric, perftest_s=0))
    assert spec_of(none, run_id="a", namespace="n").perftest is None
    assert spec_of(Profile(), run_id="a", namespace="n").perftest is None
    assert spec_of(replace(h100, fabric=FabricSection(kind="tcpx")), run_id="a", namespace="n").perftest is None
