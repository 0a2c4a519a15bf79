"""What job.started, runtime.* and rendezvous.* say of a trial's evidence."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from checks.framework.evidence import CannotTell
from checks.profiles.loader import Profile
from checks.profiles.schema.gpu import Runtime
from checks.rules import gpu_health, rendezvous
from checks.rules.job import start_findings
from checks.rules.rendezvous import dns_findings, largest_skew_s, port_findings
from checks.rules.runtime import (
    can_lock,
    drift_findings,
    gpu_findings,
    gpu_notes,
    limit_findings,
    limit_notes,
    skip_if_managed,
    toolkit_findings,
    version_at_least,
)
from jobs.diagnosis.podfacts import pod_facts
from jobs.diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, JobState, PodFacts
from jobs.run import recording
from jobs.trial.launchers import KINDS

RECORDINGS = Path(__file__).parents[1] / "real/recordings"


def every_ailment(trial, spec):
    """All that is said of single GPUs."""
    health = gpu_health
    for ailments in (health.memory_ailments, health.fabric_ailments, health.link_ailments(18), health.clock_ailments):
        found = health.each_gpu(trial, spec, ailments, ("name", *health.MEMORY), "")
        yield from (f for f in found if f.ok is not True)


@pytest.mark.parametrize(
    ("ended", "began", "fault"),
    [
        ("10:00:30Z", "10:00:31Z", True),
        ("10:00:30Z", "10:00:30Z", True),
        ("10:00:30Z", "10:00:29Z", False),
        ("", "10:00:31Z", False),
        ("10:00:30Z", "", False),
    ],
)
@pytest.mark.parametrize("nodes", [("gpu-node-0", "gpu-node-1"), ("gpu-node-0", "gpu-node-0")])
def test_ranks_that_ran_one_after_another_are_told(trial, spec, nodes, ended, began, fault):
    """On two nodes or on one: the Job is Complete, its pods never met, and each has sent its evidence."""
    day = "2026-11-22T"
    first = PodFacts(index=0, name="p-0", began=f"{day}10:00:00Z", ended=ended and day + ended)
    second = PodFacts(index=1, name="p-1", began=began and day + began, ended=f"{day}10:01:00Z")
    trial.pods = (first, second)
    trial.replicas = tuple(replace(r, node=node) for r, node in zip(trial.replicas, nodes, strict=True))
    found = [f for f in start_findings(trial, spec) if f.fault]
    assert [(f.ok, f.fault) for f in found] == [(None, "job.one-after-another")] * fault
    if fault:
        assert "rank 1 on" in found[0].observed
        assert "had ended at 2026-11-22T10:00:30Z" in found[0].observed
    trial.pods = (
        first,
        second,
        replace(second, name="p-1-again", began=f"{day}10:00:05Z"),
    )  # which of them, nobody knows
    assert not [f for f in start_findings(trial, spec) if f.fault]


@pytest.mark.parametrize(
    ("name", "told"),
    [("02c-ranks-one-after-another", 1), ("11c-quota-one-after-another", 1), ("01-healthy-a", 0), ("29-two-jobs", 0)],
)
def test_real_ranks_that_ran_one_after_another_are_told(trial, spec, name, told):
    """Pods of a real cluster, whose Job was Complete each time."""
    pods = {}
    for line in recording.read(RECORDINGS / f"{name}.jsonl.gz").lines:
        if line.is_change and line.kind == "Pod" and line.type != "DELETED":
            pods[line.object["metadata"]["uid"]] = line.object
    job = yaml.safe_load((RECORDINGS / f"{name}.yaml").read_text())["job"]
    own = [pod for pod in pods.values() if pod["metadata"]["name"].startswith(job)]
    trial.pods = pod_facts(own, [], KINDS["indexed"].index)
    assert len(trial.pods) == 2
    assert [f.fault for f in start_findings(trial, spec) if f.fault] == ["job.one-after-another"] * told


def test_a_healthy_trial_raises_nothing(trial, spec, h100, bad):
    """Every judgement is quiet about a healthy trial."""
    judged = [
        start_findings(trial, spec),
        gpu_findings(trial, spec, h100),
        every_ailment(trial, spec),
        limit_findings(trial, spec, h100),
        dns_findings(trial, spec),
        port_findings(trial, spec),
    ]
    assert [bad(found) for found in judged] == [[]] * 6
    assert largest_skew_s(trial, spec) == pytest.approx(0.01)


def failure(fault, **changes):
    return FailureAnalysis(
        fault=fault,
        subject="gpu-node-1",
        observed="o",
        expected="e",
        suggestion="s",
        **{"err_class": ERR_INFRA, **changes},
    )


LAUNCHER = (
    "job.unschedulable",
    "job.no-scheduler",
    "job.start-timeout",
    "job.deadline",
    "job.failed",
    "image.pull",
    "container.config",
    "container.oom",
    "container.start",
    "quota.exceeded",
    "limitrange.denied",
    "admission.denied",
    "pod-security.denied",
    "rights.missing",
    "node.lost",
    "topology.affinity",
    "volume.mount",
    "runtimeclass.missing",
    "priorityclass.missing",
)


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
    [
        ("job.disrupted", {"err_class": None, "disrupted": True}),
        ("image.no-python", {"err_class": ERR_PROGRAM}),
        ("container.oom", {"disrupted": True}),
        ("node.simulated", {"err_class": None}),
        ("job.log-unreachable", {"err_class": None}),
    ],
)
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


@pytest.mark.parametrize(("code", "ok"), [(0, True), (2, None), (15, False)])
def test_a_bare_list_of_gpus_is_told_as_that(trial, spec, h100, code, ok):
    """GPUs that only the list shows are there; a tool that fails otherwise is no pass, and a lost GPU stays lost."""
    error = "Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost" if code == 15 else "Unknown option"
    runtime(trial, nvidia_smi={"found": True, "exit": code, "error": error, "listed": True})
    (found,) = [f for f in gpu_findings(trial, spec, h100) if f.subject == "gpu-node-1"]
    assert found.ok is ok
    assert found.fault == ("gpu.off-bus" if ok is False else "")
    assert ("bare list" in found.observed) is (ok is not False)


def runtime(trial, **changes):
    trial.evidence[1].stages["runtime"].update(changes)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"nvidia_smi": {"found": False, "exit": None, "error": "not in this pod"}}, "runtime.nvidia-smi"),
        ({"nvidia_smi": {"found": True, "exit": 9, "error": "driver mismatch"}}, "runtime.nvidia-smi"),
        (
            {
                "nvidia_smi": {
                    "found": True,
                    "exit": 15,
                    "error": "Unable to determine the device handle for GPU 0000:9D:00.0: GPU is lost.",
                }
            },
            "gpu.off-bus",
        ),
        ({"assigned": ["GPU-0", "GPU-1"]}, "runtime.extra-gpus"),
        ({"gpus": []}, "runtime.gpu-count"),
        ({"driver": "570.86.15"}, "runtime.driver-old"),
    ],
)
def test_a_broken_runtime_is_one_fault_on_its_node(trial, spec, h100, bad, changes, fault):
    """The first thing that is wrong is told, on the node."""
    runtime(trial, **changes)
    assert bad(gpu_findings(trial, spec, h100)) == [("gpu-node-1", fault)]


def test_one_gpu_too_many_is_told_too(trial, spec, h100, bad):
    """A pod that sees its neighbour's GPU is not isolated."""
    gpus = trial.evidence[1].stages["runtime"]["gpus"]
    gpus.append(dict(gpus[0], index=8))
    assert bad(gpu_findings(trial, spec, h100)) == [("gpu-node-1", "runtime.extra-gpus")]


def test_the_gpus_that_were_assigned_are_its_own(trial, spec, h100, bad):
    """The device plugin's list names exactly what the pod sees; without a list nothing is said against it."""
    runtime(trial, assigned=[f"GPU-{i}" for i in range(8)])
    assert not bad(gpu_findings(trial, spec, h100))
    runtime(trial, assigned=None)
    assert not bad(gpu_findings(trial, spec, h100))


def test_parts_are_never_compared_with_whole_gpus(trial, spec, h100, bad):
    """MIG is its own fault, before any count: a part is no GPU."""
    trial.evidence[1].stages["runtime"]["gpus"][2].update(mig="Enabled", mig_devices=7)
    found = list(gpu_findings(trial, spec, h100))
    assert bad(found) == [("gpu-node-1", "gpu.mig-enabled")]
    assert "GPU 2" in found[1].observed


def test_an_unreadable_driver_version_is_not_judged(trial, spec, h100):
    """No version is 'could not tell', and without a minimum it is not asked for."""
    runtime(trial, driver=None)
    assert [f.ok for f in gpu_findings(trial, spec, h100)] == [True, None]
    assert [f.ok for f in gpu_findings(trial, spec, Profile())] == [True, True]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"ecc_uncorrected_volatile": 2}, "gpu.ecc"),
        ({"remap_pending": True}, "gpu.row-remap"),
        ({"remap_failure": True, "remap_pending": True}, "gpu.remap-failed"),
        ({"retired_pending": True}, "gpu.row-remap"),
        ({"remap_pending": True, "recovery_action": "Reset"}, "gpu.row-remap"),
        ({"remap_failure": True, "recovery_action": "Drain and Reset"}, "gpu.remap-failed"),
        ({"ecc_uncorrected_volatile": 2, "recovery_action": "Reset"}, "gpu.ecc"),
        ({"fabric_state": "In Progress"}, "gpu.fabric"),
        ({"fabric_status": "Unknown Error"}, "gpu.fabric"),
        ({"recovery_action": "Reset"}, "gpu.recovery-needed"),
        ({"nvlinks_active": 17}, "gpu.nvlink-down"),
        ({"fabric_health": {"summary": "Unhealthy", "bandwidth": "Degraded"}}, "gpu.fabric"),
        ({"throttle": ["hw_thermal_slowdown"]}, "gpu.throttled"),
    ],
)
def test_a_sick_gpu_is_named(trial, spec, bad, changes, fault):
    """One ailment is one fault on that GPU of that node."""
    trial.evidence[0].stages["runtime"]["gpus"][3].update(changes)
    assert bad(every_ailment(trial, spec)) == [("gpu-node-0 GPU 3", fault)]


@pytest.mark.parametrize(
    "changes",
    [
        {"ecc_uncorrected_aggregate": 4},
        {"fabric_state": "N/A", "fabric_status": "N/A"},
        {"fabric_state": None, "fabric_status": None},
        {"throttle": ["sw_thermal_slowdown"]},
        {"ecc_uncorrected_volatile": None},
    ],
)
def test_history_and_absence_are_no_ailments(trial, spec, bad, changes):
    """Aggregate counters, a board without NVSwitch, a warm GPU and cards without ECC are healthy."""
    for told in trial.evidence.values():
        for gpu in told.stages["runtime"]["gpus"]:
            gpu.update(changes)
    assert not bad(every_ailment(trial, spec))


def test_a_gpu_that_leaves_out_what_most_tell_is_not_healthy(trial, spec, bad):
    """One without ECC among others that count errors: its own counter may be the one that is not 0."""
    trial.evidence[0].stages["runtime"]["gpus"][3].update(ecc_uncorrected_volatile=None)
    assert set(bad(every_ailment(trial, spec))) == {("gpu-node-0 GPU 3", "")}


def test_a_gpu_that_tells_nothing_is_not_healthy(trial, spec):
    """Nothing observed is never a pass."""
    nothing = dict.fromkeys(trial.evidence[0].stages["runtime"]["gpus"][3], None)
    trial.evidence[0].stages["runtime"]["gpus"][3] = {**nothing, "index": 3, "throttle": []}
    assert [f.ok for f in every_ailment(trial, spec)] == [None] * 4


def test_small_shared_memory_is_told(trial, spec, h100, bad):
    """64 MiB where 16 GiB were asked for; a page less than asked is no fault."""
    trial.evidence[0].stages["start"]["shm_bytes"] -= 4096
    assert not bad(limit_findings(trial, spec, h100))
    trial.evidence[0].stages["start"]["shm_bytes"] = 64 * 2**20
    assert bad(limit_findings(trial, spec, h100)) == [("gpu-node-0", "runtime.shm-small")]


@pytest.mark.parametrize(
    ("memlock", "cap_eff", "wanted", "fault"),
    [
        (65536, "0", -1, "runtime.memlock"),
        (65536, "4000", -1, ""),
        (-1, "0", -1, ""),
        (2**30, "0", 2**30, ""),
        (2**30, "0", -1, "runtime.memlock"),
    ],
)
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


@pytest.mark.parametrize(
    ("installed", "seen", "fault"),
    [
        ("v1.17.8", None, "runtime.toolkit-old"),
        ("", "1.16.2", "runtime.toolkit-old"),
        ("v1.19.0", None, ""),
        ("1.20", None, ""),
        ("", "1.19.1", ""),
    ],
)
def test_the_toolkit_is_judged_by_whichever_evidence_exists(trial, spec, bad, installed, seen, fault):
    """From the operator's image or from inside the pod; not seen is neither old nor new."""
    for rank in trial.evidence.values():
        rank.stages["runtime"]["toolkit"] = seen
    assert {f for _, f in bad(toolkit_findings(trial, spec, installed, "1.19.0"))} == ({fault} if fault else set())
    runtime(trial, toolkit=None)
    trial.evidence[0].stages["runtime"]["toolkit"] = None
    assert {f.ok for f in toolkit_findings(trial, spec, "", "1.19.0")} == {None}


@pytest.mark.parametrize("changes", [{"driver": "580.65.06"}, {"cuda": "12.9"}])
def test_two_nodes_that_differ_are_both_named_and_none_accused(trial, spec, bad, changes):
    """Of two nodes neither is accused: what differs is named, with both values and where they are."""
    runtime(trial, **changes)
    trial.evidence[0].stages["runtime"].setdefault("cuda", "13.0")
    found = list(drift_findings(trial, spec))
    (name,) = changes
    (told,) = [f for f in found if f.ok is False]
    assert (told.subject.lower(), told.fault) == (name, "runtime.drift")
    assert f"{changes[name]} on gpu-node-1" in told.observed
    assert "on gpu-node-0" in told.observed


def test_a_board_with_another_vbios_is_drift_and_equal_nodes_are_not(trial, spec, bad):
    """What no label shows: one replaced board; a value that nobody tells is no difference."""
    assert not bad(drift_findings(trial, spec))
    for rank, version in ((0, "96.00.99"), (1, "96.00.89")):
        for gpu in trial.evidence[rank].stages["runtime"]["gpus"]:
            gpu["vbios"] = version
    found = list(drift_findings(trial, spec))
    assert bad(found) == [("VBIOS", "runtime.drift")]
    assert "VBIOS differs: 96.00.99 on gpu-node-0; 96.00.89 on gpu-node-1" in found[0].observed


def test_serious_xids_are_faults_and_the_programs_own_are_notes(trial, spec, bad):
    """79 is the hardware's, 31 the program's; a pod that may not read the log says nothing either way."""
    assert not bad(gpu_health.xid_findings(trial, spec))
    runtime(
        trial, xid=[{"bus_id": "0000:1b:00", "xid": 79, "count": 1}, {"bus_id": "0000:1b:00", "xid": 31, "count": 4}]
    )
    assert bad(gpu_health.xid_findings(trial, spec)) == [("gpu-node-1 GPU 0000:1b:00", "gpu.xid")]
    assert "gpu-node-1: other Xids in the kernel's log: 31" in list(gpu_health.notes(trial, spec))


def test_persistence_is_a_note_and_a_fault_only_where_asked_for(trial, spec, bad):
    """Off is slow, not broken: the report says so, and the profile may insist."""
    trial.evidence[1].stages["runtime"]["gpus"][4]["persistence"] = False
    assert any("persistence mode is off on GPU 4" in text for text in gpu_health.notes(trial, spec))
    found = gpu_health.each_gpu(trial, spec, gpu_health.persistence_ailments, ("name",), "")
    assert bad(found) == [("gpu-node-1 GPU 4", "runtime.persistence-off")]


def test_the_cgroups_limits_are_told(trial, spec):
    """What explains much and is nobody's fault."""
    trial.evidence[0].stages["start"].update(cpu_max=8.0, memory_max=2**35)
    assert list(limit_notes(trial, spec)) == [
        "gpu-node-0: the container may use 8 CPUs, 32 GiB",
        "gpu-node-1: the container may use CPUs without limit, memory without limit",
    ]


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


def test_the_names_are_those_of_the_attempt_that_ran(trial, spec):
    """A second attempt's Service has another name: that of the first is expected by nobody any more."""
    trial.attempts = 2
    told = [finding.expected for finding in dns_findings(trial, spec)]
    assert all(f".{spec.job_name}-2 = " in each for each in told) and len(told) == 4


def test_a_slow_name_passes(trial, spec, bad):
    """NXDOMAIN at first is the window after a start: waited out and shown, not judged."""
    lookup(trial, 0, 1, first_error="NXDOMAIN", seconds_to_first_answer=3.4, attempts=6)
    assert not bad(dns_findings(trial, spec))
    assert any("first NXDOMAIN" in f.observed for f in dns_findings(trial, spec))
    assert not any("CoreDNS" in f.observed for f in dns_findings(trial, spec))
    lookup(trial, 0, 1, first_error="NXDOMAIN", seconds_to_first_answer=29.7, attempts=18)
    assert any(
        "stays denied for as long as a cache keeps that, CoreDNS 30 s" in f.observed for f in dns_findings(trial, spec)
    )


def test_a_second_attempt_is_held_against_its_own_names(trial, spec):
    """Each attempt's Job has a name of its own, and so have its pods."""
    (first, *_) = dns_findings(trial, spec)
    trial.attempts = 2
    (second, *_) = dns_findings(trial, spec)
    assert first.expected.startswith(f"{spec.job_name}-0.{spec.job_name} ")
    assert second.expected.startswith(f"{spec.job_name}-2-0.{spec.job_name}-2 ")


@pytest.mark.parametrize(
    ("addresses", "fault"),
    [
        (["10.9.9.9"], "dns.wrong-address"),
        (["10.0.1.5", "10.9.9.9"], "dns.wrong-address"),
        (["10.0.1.5", "fd00::5"], ""),
        (["fd00::5"], "dns.wrong-address"),
    ],
)
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
    trial.evidence[1].stages["port"].update(
        listening=False, error="cannot listen on port 29500: Address already in use"
    )
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
        gpus=[], nvidia_smi={"found": True, "exit": 0, "error": "broken XML: line 5"}
    )
    found = [f for f in gpu_findings(trial, spec, h100) if f.ok is not True]
    assert [(f.ok, f.subject, f.fault) for f in found] == [(None, "gpu-node-1", "")]
    assert "broken XML: line 5" in found[0].observed


def test_a_gpu_that_is_listed_twice_is_one_gpu(trial, spec, h100, bad):
    """Eight lines of nvidia-smi are not eight GPUs where two name the same UUID."""
    trial.evidence[1].stages["runtime"]["gpus"][1]["uuid"] = "GPU-0"
    assert bad(gpu_findings(trial, spec, h100)) == [("gpu-node-1", "runtime.gpu-count")]
    (found,) = (f for f in gpu_findings(trial, spec, h100) if not f.ok)
    assert "only 7 are different (GPU-0 is there twice)" in found.observed


def test_gpus_that_do_not_say_who_they_are_are_counted(trial, spec, h100, bad):
    """A driver that shows no UUIDs is no fault."""
    for gpu in trial.evidence[1].stages["runtime"]["gpus"]:
        gpu["uuid"] = None
    assert not bad(gpu_findings(trial, spec, h100))


def test_pods_that_show_the_same_gpus_are_named(trial, spec):
    """Nodes that share one machine (kind) are no two nodes: that is said, and held against nobody."""
    (said,) = gpu_notes(trial, spec)
    assert said.startswith("8 GPUs of rank 1 on gpu-node-1 have the UUIDs of rank 0 on gpu-node-0's")
    for gpu in trial.evidence[1].stages["runtime"]["gpus"]:
        gpu["uuid"] += "-other"
    assert not list(gpu_notes(trial, spec))


def test_gpus_of_another_kind_are_not_held_against_this_profile(trial, spec, h100):
    """Labels may be missing and a tenant sees none: what the driver calls the GPUs tells a profile of other machines."""
    for gpu in trial.evidence[1].stages["runtime"]["gpus"]:
        gpu["name"] = "NVIDIA H200"
    odd = [f for f in gpu_findings(trial, spec, h100) if f.ok is not True]
    assert [(f.subject, f.ok, f.fault) for f in odd] == [("gpu-node-1", None, "nodes.other-kind")]
    assert (odd[0].observed, odd[0].expected) == ("the GPUs are NVIDIA H200", "*H100* (profile h100-ib, gpu.product)")


def test_a_variable_that_was_taken_away_is_named(trial, spec):
    """Both conventions are set by the trial itself: what is missing in the pod was removed on the way."""
    whole = dict.fromkeys(rendezvous.CONVENTIONS, "1")
    for rank in range(2):
        trial.evidence[rank].stages["start"]["env"] = dict(whole)
    assert list(rendezvous.convention_notes(trial, spec)) == []
    del trial.evidence[1].stages["start"]["env"]["NODE_RANK"]
    assert list(rendezvous.convention_notes(trial, spec)) == [
        "gpu-node-1: NODE_RANK is not set in the pod; a launch script that reads them starts alone"
    ]
