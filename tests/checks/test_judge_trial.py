"""What job.started, runtime.* and rendezvous.* say of a trial's evidence."""

from dataclasses import replace

import pytest

from checks.evidence import CannotTell
from checks.judgement.node_runtime import (
    can_lock,
    gpu_findings,
    health_findings,
    limit_findings,
    skip_if_managed,
    version_at_least,
)
from checks.judgement.rendezvous import dns_findings, largest_skew_s, port_findings
from checks.judgement.start import start_findings
from checks.profile import Profile, Runtime
from jobs.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, JobState


def test_a_healthy_trial_raises_nothing(trial, spec, h100, bad):
    """Every judgement is quiet about a healthy trial."""
    judged = [start_findings(trial, spec), gpu_findings(trial, spec, h100), health_findings(trial, spec),
              limit_findings(trial, spec, h100), dns_findings(trial, spec), port_findings(trial, spec)]  # fmt: skip
    assert [bad(found) for found in judged] == [[]] * 6
    assert largest_skew_s(trial, spec) == pytest.approx(0.01)


def failure(fault, **changes):
    return FailureAnalysis(fault=fault, subject="gpu-node-1", observed="o", expected="e", suggestion="s",
                           **{"err_class": ERR_INFRA, **changes})  # fmt: skip


LAUNCHER = (
    "job.unschedulable", "job.start-timeout", "job.deadline", "job.failed", "image.pull", "container.config",
    "container.oom", "container.start", "quota.exceeded", "limitrange.denied", "admission.denied",
    "pod-security.denied", "rights.missing", "node.lost", "volume.mount", "runtimeclass.missing", "priorityclass.missing",
)  # fmt: skip


def test_evidence_that_contradicts_itself_is_not_believed(trial, spec):
    """More lines than a probe prints, or parts that do not join: whose they are is not known."""
    trial.evidence[1] = replace(trial.evidence[1], problem="stage runtime: its parts do not join to JSON")
    found = [f for f in start_findings(trial, spec) if f.ok is not True]
    assert [(f.ok, f.subject, f.fault) for f in found] == [(None, "gpu-node-1", "job.no-evidence")]


@pytest.mark.parametrize("fault", LAUNCHER)
def test_what_the_cluster_did_wrong_fails_the_start(trial, spec, fault):
    """ERR_INFRA is one failed finding on the launcher's subject, and nothing else is told."""
    trial.analysis, trial.state = failure(fault), JobState.ERROR
    (found,) = start_findings(trial, spec)
    assert (found.ok, found.fault, found.subject) == (False, fault, "gpu-node-1")


@pytest.mark.parametrize(
    ("fault", "changes"),
    [("job.disrupted", {"err_class": None, "disrupted": True}), ("image.no-python", {"err_class": ERR_PROGRAM}),
     ("container.oom", {"disrupted": True})],
)  # fmt: skip
def test_what_others_did_is_not_judged(trial, spec, fault, changes):
    """A disruption or the program's own fault is 'could not tell', never a failure of the cluster."""
    trial.analysis = failure(fault, **changes)
    assert [(f.ok, f.fault) for f in start_findings(trial, spec)] == [(None, fault)]


def test_a_silent_rank_is_not_a_pass(trial, spec, bad):
    """A rank without evidence is an error, with the reason."""
    del trial.evidence[1]
    assert bad(start_findings(trial, spec)) == [("gpu-node-1", "job.no-evidence")]
    assert bad(dns_findings(trial, spec))[-1] == ("gpu-node-1", "")
    assert all(f.ok is not False for f in dns_findings(trial, spec))


def test_two_pods_on_one_node_prove_nothing(trial, spec, bad):
    """The trial is about the network between nodes."""
    trial.replicas = tuple(replace(r, node="gpu-node-0") for r in trial.replicas)
    assert bad(start_findings(trial, spec)) == [("seatrial-abc", "")]


def runtime(trial, **changes):
    trial.evidence[1].stages["runtime"].update(changes)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [({"nvidia_smi": {"found": False, "exit": None, "error": "not in this pod"}}, "runtime.nvidia-smi"),
     ({"nvidia_smi": {"found": True, "exit": 9, "error": "driver mismatch"}}, "runtime.nvidia-smi"),
     ({"gpus": []}, "runtime.gpu-count"), ({"driver": "570.86.15"}, "runtime.driver-old")],
)  # fmt: skip
def test_a_broken_runtime_is_one_fault_on_its_node(trial, spec, h100, bad, changes, fault):
    """The first thing that is wrong is told, on the node."""
    runtime(trial, **changes)
    assert bad(gpu_findings(trial, spec, h100)) == [("gpu-node-1", fault)]


def test_one_gpu_too_many_is_told_too(trial, spec, h100, bad):
    """A pod that sees its neighbour's GPU is not isolated."""
    gpus = trial.evidence[1].stages["runtime"]["gpus"]
    gpus.append(dict(gpus[0], index=8))
    assert bad(gpu_findings(trial, spec, h100)) == [("gpu-node-1", "runtime.gpu-count")]


def test_an_unreadable_driver_version_is_not_judged(trial, spec, h100):
    """No version is 'could not tell', and without a minimum it is not asked for."""
    runtime(trial, driver=None)
    assert [f.ok for f in gpu_findings(trial, spec, h100)] == [True, None]
    assert [f.ok for f in gpu_findings(trial, spec, Profile())] == [True, True]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [({"ecc_uncorrected_volatile": 2}, "gpu.ecc"), ({"remap_pending": True}, "gpu.row-remap"),
     ({"remap_failure": True, "remap_pending": True}, "gpu.row-remap"), ({"retired_pending": True}, "gpu.row-remap"),
     ({"fabric_state": "In Progress"}, "gpu.fabric"), ({"fabric_status": "Unknown Error"}, "gpu.fabric"),
     ({"throttle": ["hw_thermal_slowdown"]}, "gpu.throttled")],
)  # fmt: skip
def test_a_sick_gpu_is_named(trial, spec, bad, changes, fault):
    """One ailment is one fault on that GPU of that node."""
    trial.evidence[0].stages["runtime"]["gpus"][3].update(changes)
    assert bad(health_findings(trial, spec)) == [("gpu-node-0 GPU 3", fault)]


@pytest.mark.parametrize(
    "changes",
    [{"ecc_uncorrected_aggregate": 4}, {"fabric_state": "N/A", "fabric_status": "N/A"},
     {"fabric_state": None, "fabric_status": None}, {"throttle": ["sw_thermal_slowdown"]},
     {"ecc_uncorrected_volatile": None}],
)  # fmt: skip
def test_history_and_absence_are_no_ailments(trial, spec, bad, changes):
    """Aggregate counters, a board without NVSwitch, a warm GPU and a card without ECC are healthy."""
    trial.evidence[0].stages["runtime"]["gpus"][3].update(changes)
    assert not bad(health_findings(trial, spec))


def test_a_gpu_that_tells_nothing_is_not_healthy(trial, spec):
    """Nothing observed is never a pass."""
    nothing = dict.fromkeys(trial.evidence[0].stages["runtime"]["gpus"][3], None)
    trial.evidence[0].stages["runtime"]["gpus"][3] = {**nothing, "index": 3, "throttle": []}
    assert [f.ok for f in health_findings(trial, spec)].count(None) == 1


def test_small_shared_memory_is_told(trial, spec, h100, bad):
    """64 MiB where 16 GiB were asked for; a page less than asked is no fault."""
    trial.evidence[0].stages["start"]["shm_bytes"] -= 4096
    assert not bad(limit_findings(trial, spec, h100))
    trial.evidence[0].stages["start"]["shm_bytes"] = 64 * 2**20
    assert bad(limit_findings(trial, spec, h100)) == [("gpu-node-0", "runtime.shm-small")]


@pytest.mark.parametrize(
    ("memlock", "cap_eff", "wanted", "fault"),
    [(65536, "0", -1, "runtime.memlock"), (65536, "4000", -1, ""), (-1, "0", -1, ""), (2**30, "0", 2**30, ""),
     (2**30, "0", -1, "runtime.memlock")],
)  # fmt: skip
def test_lockable_memory_is_judged_where_the_profile_asks(trial, spec, h100, bad, memlock, cap_eff, wanted, fault):
    """IPC_LOCK or a high limit will do; without the profile's word it is not judged."""
    for rank in trial.evidence.values():
        rank.stages["start"].update(memlock_bytes=memlock, cap_eff=cap_eff)
    profile = replace(h100, runtime=Runtime(memlock_min=wanted))
    assert {f for _, f in bad(limit_findings(trial, spec, profile))} == ({fault} if fault else set())
    assert not bad(limit_findings(trial, spec, h100))


def test_managed_nodes_are_skipped_with_a_reason(evidence, h100):
    """The variable of the user's document and the profile's word skip the family and take the responsibility."""
    with pytest.raises(pytest.skip.Exception, match="TAO_K8S_SKIP_NODE_RUNTIME_CHECK"):
        skip_if_managed(h100, {"TAO_K8S_SKIP_NODE_RUNTIME_CHECK": "1"}, evidence)
    assert evidence.waived
    with pytest.raises(pytest.skip.Exception, match=r"runtime\.managed"):
        skip_if_managed(replace(h100, runtime=Runtime(managed=True)), {}, evidence)
    skip_if_managed(h100, {"TAO_K8S_SKIP_NODE_RUNTIME_CHECK": "0"}, evidence)


def test_versions_and_capabilities_are_read_as_numbers():
    """'580.9' is older than '580.65', and IPC_LOCK is bit 14."""
    assert version_at_least("580.9", "580.65") is False
    assert version_at_least("580.65.06", "580") is True
    assert version_at_least("N/A", "580") is None
    assert can_lock("4000")
    assert not can_lock("3fff")
    assert not can_lock(None)


def lookup(trial, rank, peer, **changes):
    trial.evidence[rank].stages["dns"]["peers"][peer].update(changes)


def test_a_name_that_never_resolves_is_told_for_its_pair(trial, spec, bad):
    """The rank that asked and the rank that it asked for, by node."""
    lookup(trial, 0, 1, addresses=[], error="NXDOMAIN", first_error="NXDOMAIN", attempts=40)
    assert bad(dns_findings(trial, spec)) == [("gpu-node-0 -> gpu-node-1", "dns.unresolved")]


def test_a_slow_name_passes(trial, spec, bad):
    """NXDOMAIN at first is the window after a start: waited out and shown, not judged."""
    lookup(trial, 0, 1, first_error="NXDOMAIN", seconds_to_first_answer=3.4, attempts=6)
    assert not bad(dns_findings(trial, spec))
    assert any("first NXDOMAIN" in f.observed for f in dns_findings(trial, spec))


@pytest.mark.parametrize(
    ("addresses", "fault"),
    [(["10.9.9.9"], "dns.wrong-address"), (["10.0.1.5", "10.9.9.9"], "dns.wrong-address"),
     (["10.0.1.5", "fd00::5"], ""), (["fd00::5"], "dns.wrong-address")],
)  # fmt: skip
def test_the_address_must_be_the_peers_own(trial, spec, bad, addresses, fault):
    """A wildcard record or a stale one leads elsewhere; a second family of a dual-stack cluster does not."""
    lookup(trial, 0, 1, addresses=addresses)
    assert [f for _, f in bad(dns_findings(trial, spec))] == ([fault] if fault else [])


def test_a_name_that_was_not_asked_for_is_not_a_pass(trial, spec):
    """The probe was ended in the middle: could not tell."""
    trial.evidence[1].stages["dns"]["peers"].pop()
    assert [f.ok for f in dns_findings(trial, spec)] == [True, True, True, None]


def port(trial, rank, **changes):
    trial.evidence[rank].stages["port"]["peers"][0].update(changes)


def test_a_blocked_direction_is_told_alone(trial, spec, bad):
    """One way blocked is one finding, the way it was dialled."""
    port(trial, 0, outbound=False, outbound_error="no answer within 3 s")
    port(trial, 1, inbound=False)
    assert bad(port_findings(trial, spec)) == [("gpu-node-0 -> gpu-node-1", "port.blocked")]


def test_the_other_side_speaks_for_a_silent_rank(trial, spec):
    """Without rank 1's own word, rank 0 still knows who came in; what nobody saw is not a pass."""
    del trial.evidence[1].stages["port"]
    assert [f.ok for f in port_findings(trial, spec)] == [True, True]
    port(trial, 0, inbound=False)
    assert [f.ok for f in port_findings(trial, spec)] == [True, None]


def test_a_port_that_is_taken_is_one_fault(trial, spec, bad):
    """The pod that could not listen is told; that nobody reached it follows."""
    trial.evidence[1].stages["port"].update(listening=False, error="cannot listen on port 29500: Address already in use")
    port(trial, 0, outbound=False, outbound_error="connection refused")
    assert [(s, f) for s, f in bad(port_findings(trial, spec)) if f] == [("gpu-node-1", "port.in-use")]
    assert [f.ok for f in port_findings(trial, spec)] == [None, False, True]


def test_errors_end_the_check_as_an_error(trial, spec, evidence):
    """A finding that could not be told makes the check an error, not a pass and not a failure."""
    del trial.evidence[1]
    for f in start_findings(trial, spec):
        evidence.add(f.subject, ok=f.ok, observed=f.observed, fault=f.fault)
    with pytest.raises(CannotTell):
        evidence.verdict()


def test_what_nvidia_smi_garbled_is_not_a_missing_gpu(trial, spec, h100):
    """It ended well and its XML cannot be read: nobody knows how many GPUs there are."""
    trial.evidence[1].stages["runtime"].update(
        gpus=[], nvidia_smi={"found": True, "exit": 0, "error": "broken XML: line 5"})
    found = [f for f in gpu_findings(trial, spec, h100) if f.ok is not True]
    assert [(f.ok, f.subject, f.fault) for f in found] == [(None, "gpu-node-1", "")]
    assert "broken XML: line 5" in found[0].observed
