"""Each rule exactly at its limit and one step beyond."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks.framework.evidence import Evidence
from checks.rules import bom, rights, stack
from checks.rules.capacity import shape_findings, shortage
from checks.rules.findings import majority, unlike
from checks.rules.gpu_health import left_out
from checks.rules.ranks import dns_seconds, facts, place
from checks.rules.rdma_counters import error_findings, growth
from checks.rules.rdma_offer import GKE, MULTUS, selections
from checks.rules.sweep import scale_findings
from checks.rules.sweep_reading import done_of
from checks.rules.training import completed
from checks.rules.training_evidence import contradiction
from checks.rules.visibility import require_listed
from jobs.cluster.client.kube import Allowed
from jobs.cluster.facts.stack import Listing
from jobs.cluster.json_types import filled
from jobs.run.evidence import taken
from jobs.run.stages.programs import TrainingRank
from jobs.trial.parts import ClaimSpec, Queue, StorageSpec
from seatrial.logs.intra_node import channels_by_path
from tests.checks.sweeps import PROFILE, printed, swept
from tests.checks.test_judge_shapes import numa, room, said

STRICT_COUNTERS = (
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "local_ack_timeout_err",
    "req_transport_retries_exceeded",
    "rnr_nak_retry_err",
    "rx_icrc_encapsulated",
)
"""The fatal counters of NVSentinel; a lost acknowledgement costs seconds."""
SOME = {"port_rcv_errors": 10, "symbol_error": 10, "port_xmit_discards": 100, "roce_slow_restart": 100}


@pytest.mark.parametrize(("counter", "limit"), [*dict.fromkeys(STRICT_COUNTERS, 0).items(), *SOME.items()])
def test_a_counter_is_an_error_from_one_beyond_its_limit_on(trial, spec, counter, limit):
    """rdma.errors: the counter and its increase are named; at the limit the port passes."""
    moved = trial.evidence[0].stages["collective.ring"]["rdma_counters"] = {"mlx5_6/1/port_xmit_data": 10**9}
    assert growth(trial, 0)["mlx5_6:1"] == {"port_xmit_data": 10**9 + 0}
    for value, wrong in ((limit, []), (limit + 1, [("gpu-node-0 mlx5_6", f"{counter} grew by {limit + 1}: ")])):
        moved[f"mlx5_6/1/{counter}"] = value
        found = [each for each in error_findings(trial, spec) if each.fault == "rdma.errors"]
        assert [(each.subject, each.observed[: len(wrong[0][1])]) for each in found] == wrong
        assert [f"{counter} by at most {limit} " in each.expected for each in found] == [True] * len(wrong)


@pytest.mark.parametrize(
    ("need", "change"),
    [
        ("deviceclasses", {"claims": (ClaimSpec(name="gpus", device_class="gpu.nvidia.com"),)}),
        ("resourceslices", {"claims": (ClaimSpec(name="gpus", device_class="gpu.nvidia.com"),)}),
        ("networks", {"annotations": {MULTUS: "net1"}}),
        ("gke-networks", {"annotations": {GKE: "[]"}}),
        ("storage", {"storage": (StorageSpec(name="data", path="/data", claim="data"),)}),
        ("clusterqueues", {"queue": Queue(kind="kueue", name="a")}),
        ("volcano-queues", {"queue": Queue(kind="volcano", name="a")}),
        ("runtimes", {"launcher": "trainjob"}),
    ],
)
def test_a_right_is_asked_for_where_the_trial_uses_it_and_nowhere_else(whole_spec, h100, need, change):
    """Only permissions that the trial uses are requested."""
    plain = {"claims": (), "annotations": {}, "storage": (), "queue": None, "launcher": "indexed"}
    spec, profile = replace(whole_spec, **plain), replace(h100, storage=replace(h100.storage, classes=()))
    every = rights.unused(spec, profile)
    assert need in every
    other = {"deviceclasses": "resourceslices", "resourceslices": "deviceclasses"}.get(need)
    assert rights.unused(replace(spec, **change), profile) == every - {need, other}
    in_pod = replace(spec, storage=(StorageSpec(name="data", path="/data"),))
    assert "storage" in rights.unused(in_pod, profile), "a path of the image claims nothing"
    assert "storage" not in rights.unused(spec, replace(profile, storage=replace(profile.storage, classes=("fast",))))


@pytest.mark.parametrize(
    ("allowed", "reason", "observed"),
    [
        (True, 'RBAC: allowed by "admin"', 'allowed (RBAC: allowed by "admin")'),
        (True, "", "allowed"),
        (False, "", "denied"),
    ],
)
@pytest.mark.parametrize("held", [True, False])
def test_what_a_tenant_may_do_is_reported_as_it_was_answered(allowed, reason, observed, held):
    """rights.excessive: with least privilege required, each extra permission is a finding."""
    (finding,) = rights.excess([(rights.EXCESSIVE[0], Allowed(allowed, reason))], held=held)
    assert (finding.observed, finding.ok) == (observed, not (allowed and held))


@pytest.mark.parametrize(
    ("values", "most"),
    [
        ([], None),
        (["a"], ("a", 1, 1)),
        (["a", "b"], None),
        (["a", "a", "b"], ("a", 2, 3)),
        (["a", "a", "b", "b"], None),
        (["a", "a", "b", "c"], None),
        ([None, None], None),
    ],
)
def test_a_majority_is_more_than_half(values, most):
    assert majority(values) == most


def test_a_node_that_reports_nothing_is_unclear_only_where_others_report_something():
    """If no node reports the value, there is nothing to compare."""
    found = {each.subject: (each.ok, each.observed) for each in unlike({"a": {"os": "x"}, "b": {"os": ""}}, "f")}
    assert found == {"a": (True, "os x"), "b": (None, "nothing reported")}
    found = {each.subject: (each.ok, each.observed) for each in unlike({"a": {"os": ""}, "b": {}}, "f")}
    assert found == {"a": (True, "nothing reported"), "b": (True, "nothing reported")}
    several = {"a": {"os": "x", "k": "1"}, "b": {"os": "x", "k": ""}, "c": {"os": "y", "k": "1"}}
    found = {each.subject: (each.ok, each.observed, each.expected) for each in unlike(several, "f")}
    assert found["b"] == (True, "os x", "as on most nodes")
    assert found["c"] == (False, "os y", "os x as on 2 of 3 nodes")


def test_one_channel_is_a_channel(jobs):
    """A single shared-memory channel proves the path."""
    inside = jobs["ring"]["intra_node"]
    inside |= {"p2p": 1, "shm": 0, "mnnvl": 0, "net": 1}
    assert channels_by_path(jobs["ring"]["intra_node"]) == {"p2p": 1, "net": 1}


def test_what_may_fit_fewer_times_says_at_most():
    """Multi-GPU pods with NUMA alignment get an upper bound; one GPU, a whole node, or zero is exact."""
    aligned = {"a": numa("a", 4, 4), "b": numa("b", 4, 4)}
    found = said([room("a", 8), room("b", 5)], aligned)
    fits = {subject.partition(" ")[0]: text.partition("fits ")[2] for subject, text in found.items() if "fits" in text}
    assert fits == {"1": "13 times now", "2": "at most 6 times now", "4": "at most 3 times now", "8": "0 times now"}
    loose = {"a": numa("a", 4, 4, policy="best-effort"), "b": numa("b", 4, 4, policy="none")}
    assert not [text for text in said([room("a", 8), room("b", 5)], loose).values() if "at most" in text]
    full = said([room("a", 0), room("b", 0)], aligned)
    assert not [text for text in full.values() if "at most" in text]
    assert list(shape_findings([], {}, "nvidia.com/gpu", 1))


def test_a_trial_without_a_counted_resource_claims_what_it_claims(spec, h100):
    """Without a counted resource in the spec no resource is looked up."""
    claims = (ClaimSpec(name="gpus", device_class="gpu.nvidia.com", count=8),)
    assert (
        stack.handed_out(SimpleNamespace(whole=()), h100, replace(spec, gpu_resource="", claims=claims), None) == claims
    )


def test_values_that_one_rank_leaves_out_are_named_where_others_tell_them(trial):
    """A value that one rank or GPU lacks is named if others report it; a value that no GPU reports is not supported."""
    runtimes = [trial.evidence[rank].stages["runtime"] for rank in (0, 1)]
    for runtime in runtimes:
        runtime["driver"] = "580.95.05"
        for gpu in runtime["gpus"]:
            gpu["throttle"] = []
    keys = ("driver", "throttle", "vbios")
    assert left_out(trial, 0, keys) == left_out(trial, 1, keys) == ""
    runtimes[1]["driver"] = None
    runtimes[1]["gpus"][2]["throttle"] = runtimes[1]["gpus"][5]["throttle"] = None
    assert left_out(trial, 0, keys) == ""
    assert left_out(trial, 1, keys) == "not reported, unlike on other nodes: driver; throttle of GPU 2, 5"
    for runtime in runtimes:
        runtime["driver"] = None
        for gpu in runtime["gpus"][1:]:
            gpu["throttle"] = None
    assert left_out(trial, 1, keys) == "", "one of sixteen reports it: an exception"


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        ("", []),
        ("a", [("team", "a", "net1")]),
        ("a, other/b@ib0", [("team", "a", "net1"), ("other", "b", "ib0")]),
        ("a,,b", [("team", "a", "net1"), ("team", "b", "net2")]),
        ("a@b@c, x", [("team", "x", "net1")]),
        ("two words", []),
        (json.dumps([{"name": "a"}, 7, {"name": "b", "namespace": "other", "interface": "ib0"}]), [("team", "a", "net1"), ("other", "b", "ib0")]),
        ("[{", []),
    ],
)  # fmt: skip
def test_networks_of_an_annotation_are_read_in_both_forms_and_nonsense_is_left_out(text, networks):
    assert selections({MULTUS: text}, "team") == networks


def test_every_version_that_a_pod_reported_is_in_the_list_of_what_is_installed(trial):
    """A version appears under its own name with its count; missing versions add no entry."""
    gpu = {"name": "H100", "vbios": "96.00", "inforom": "G520", "gsp": "580.95"}
    for rank, evidence in trial.evidence.items():
        evidence.stages["runtime"] = {
            "driver": "580.95.05",
            "cuda": "13.0",
            "toolkit": "1.18" if rank else "",
            "gpus": [gpu, gpu],
        }
        evidence.stages["rdma"] = {
            "devices": [{"board": "MT_838", "fw": "28.42"}, {"board": None, "fw": "1.0"}, {"board": "x", "fw": None}]
        }
    listed = bom.from_trial(trial, {"ring": {"nccl_version": "2.28.9"}, "default": None})
    listed.pop("images", None)
    assert listed == {
        "driver": {"580.95.05": 2}, "cuda": {"13.0": 2}, "toolkit": {"1.18": 1}, "gpu": {"H100": 4}, "vbios": {"96.00": 4},
        "inforom": {"G520": 4}, "gsp firmware": {"580.95": 4}, "nccl": {"2.28.9": 1},
        "firmware": {"MT_838 28.42": 2, "1.0": 2, "x": 2},
    }  # fmt: skip


def steps(rank, local, world=2, **more):
    return {"rank": rank, "local": local, "world": world, "device": "cuda", "bus_id": f"0000:{rank}", **more}


@pytest.mark.parametrize(
    ("reported", "said_of"),
    [
        ([steps(4, 0), steps(5, 1)], "its ranks do not agree in flops"),  # a valid shape
        ([steps(4, 0)], "none reports to be rank 5, number 1 here, of 2"),
        ([steps(4, 0), steps(5, 1), steps(9, 2)], "one reports to be rank 9, number 2 here, of 2"),
        ([steps(4, 0), steps(5, 1, 3)], "one reports to be rank 5, number 1 here, of 3"),
        ([steps(4, 0, bus_id="0000:AB"), steps(5, 1, bus_id="0000:ab")], "2 ranks name the GPU at 0000:ab as theirs"),
        ([steps(4, 0), steps(5, 1, device="cpu")], "its ranks ran on "),
    ],
)
def test_ranks_that_cannot_be_those_of_a_node_say_which_of_them(reported, said_of):
    assert said_of in contradiction([filled(TrainingRank, each)[0] for each in reported], 2, 4, 2)


@pytest.mark.parametrize(
    ("peers", "seconds"),
    [
        ([{"seconds_to_first_answer": 0.5}, {"seconds_to_first_answer": 2.0}], {"gpu-node-0": 2.0}),
        ([{"seconds_to_first_answer": 0.5}, {"seconds_to_first_answer": None}], {}),
        ([{}], {}),
        ([], {}),
        (None, {}),
    ],
)
def test_a_rank_has_resolved_its_peers_when_the_last_one_has_answered(trial, peers, seconds):
    trial.evidence[0].stages["dns"] = {"peers": peers}
    trial.evidence[1].stages["dns"] = {}
    assert dns_seconds(trial) == seconds


def test_what_may_not_be_listed_ends_the_check_as_unknown():
    evidence = Evidence()
    listing = Listing(items=({"metadata": {"name": "a"}},))
    assert require_listed(evidence, listing, "device classes") is listing
    with pytest.raises(BaseException, match=r"device classes cannot be read: forbidden: no list\. Grant it"):
        require_listed(evidence, Listing(hidden="forbidden: no list"), "device classes")


def test_a_round_is_read_with_all_that_its_tests_reported():
    """Rates of each rail, reporters, and nodes with log errors; an unknown word is not a measurement."""
    whole = {"nodes": ["a", "b"], "outcome": "measured", "busbw": 380.0, "rails": [47.5, None, "x"], "reported": ["a"]}
    row = {"number": 3, "stage": 2, "seconds": 4.5, "tests": [whole, {"nodes": ["c"], "outcome": "wrong sums", "at": ["c"]}, {"nodes": ["d"], "outcome": "fine"}]}  # fmt: skip
    done = done_of(taken("sweep.round.3", row)[0])
    assert (done.round.number, done.round.stage, done.seconds) == (3, 2, 4.5)
    results = {"".join(nodes): each for nodes, each in done.results.items()}
    assert results["ab"].rails == (47.5, None, None)
    assert (results["ab"].outcome, results["ab"].busbw, results["ab"].reported) == ("measured", 380.0, ("a",))
    assert (results["c"].outcome, results["c"].at, results["c"].reported) == ("wrong sums", ("c",), ("c",))
    assert (results["d"].outcome, results["d"].busbw) == ("nothing", None)


def test_a_slow_job_is_excused_by_a_bad_path_only():
    """A node at fault is outside the job, or in it for another reason, so the job itself is slow."""
    names, stages = printed(8, lambda pair: 200.0 if "node-2" in pair else 380.0)
    row = {"nodes": list(names), "outcome": "measured", "busbw": 200.0, "rows": [[2**30, 200.0, 0]]}
    (finding,) = scale_findings(swept(names, stages | {"sweep.job": row}), PROFILE)
    assert (finding.ok, finding.fault, "at fault by itself" in finding.observed) == (None, "sweep.scale", False)


def test_a_rank_whose_place_is_not_known_is_called_by_its_number(trial):
    assert place(trial, 0) == "gpu-node-0"
    assert place(trial, 17) == "rank 17"


@pytest.mark.parametrize(("seconds", "ok"), [(60.0, True), (59.0, False), (None, False)])
def test_a_soak_that_no_rank_timed_is_not_known_to_have_lasted(trained_trial, training_spec, seconds, ok):
    """training.completed: every rank's own time must reach the requested one; a rank without a time did not complete
    it."""
    asked = replace(training_spec, training=replace(training_spec.training, soak_s=60))
    for evidence in trained_trial.evidence.values():
        evidence.stages["training"]["seconds"] = 61.0
        for rank in evidence.stages["training"]["ranks"]:
            rank["modes"] = [{**mode, "seconds": 60.0} for mode in rank["modes"]]
    for mode in trained_trial.evidence[0].stages["training"]["ranks"][3]["modes"]:
        mode["seconds"] = seconds
    found = {each.subject: each.ok for each in completed(trained_trial, asked)}
    assert found["gpu-node-1"] is True
    assert (found["gpu-node-0"] is True) is ok


def test_nics_that_count_nothing_are_no_proof_that_there_were_no_errors(world, spec):
    """rdma.errors: traffic on other NICs does not hide it; an excluded NIC needs no counters."""
    assert [each.ok for each in error_findings(world, spec)] == [True, True]
    devices = world.evidence[0].stages["rdma"]["devices"]
    for device, counted in zip(devices, (0, 0, 5, 5, 5, 5, 5, 5), strict=False):
        device["counters"] = counted
    found = next(iter(error_findings(world, spec)))
    assert found.ok is None
    assert found.observed.endswith("; no counters of mlx5_0, mlx5_1")
    for device in devices[:2]:
        device["usable"] = False
    assert next(iter(error_findings(world, spec))).ok is True
    world.evidence[0].stages["rdma"]["devices"] = []
    found = next(iter(error_findings(world, spec)))
    assert (found.ok, found.observed.endswith("; the pod's NICs are unknown")) == (None, True)


@pytest.mark.parametrize(
    ("selector", "said"),
    [({}, "1 of 3 GPU nodes match the trial"), ({"pool": "a", "zone": "b"}, "1 of 3 GPU nodes match pool=a,zone=b")],
)
def test_too_few_nodes_are_reported_with_the_selector_that_chose_them(spec, selector, said):
    """nodes.too-few: only a selector that the user gave is quoted; enough nodes are no finding."""
    asked = replace(spec, node_selector=selector)
    pool = SimpleNamespace(nodes=("a", "b", "c"))
    (finding,) = shortage([room("a", 8)], pool, asked)
    assert (finding.observed, finding.expected, finding.fault) == (said, "at least 2", "nodes.too-few")
    assert list(shortage([room("a", 8), room("b", 0)], pool, asked)) == []
    assert list(shortage([], SimpleNamespace(nodes=()), asked)) == []


def test_what_a_program_left_with_its_table_is_that_of_this_rank(trial):
    trial.evidence[0].stages["collective.ring"]["facts"] = {"cycles": 1}
    trial.evidence[1].stages["collective.ring"]["facts"] = None
    assert facts(trial, 0, "ring")["cycles"] == 1
    assert facts(trial, 1, "ring") is None
    assert facts(trial, 0, "unknown") is facts(trial, 7, "ring") is None
