"""Results of job.started, runtime.* and rendezvous.* for a trial's evidence."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from checks.framework.evidence import CannotTell
from checks.profiles.schema import RuntimeSection
from checks.rules import ranks
from checks.rules.job import start_findings
from checks.rules.rendezvous import dns_findings, largest_skew_s, port_findings
from checks.rules.runtime import can_lock, gpu_findings, limit_findings, limit_notes, version_at_least
from jobs.diagnosis.podfacts import pod_facts
from jobs.diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis, JobState, PodFacts
from jobs.trial.launchers import KINDS
from tests import recordings
from tests.checks.gpus import every_ailment, runtime

RECORDINGS = Path(__file__).parents[1] / "real/recordings"


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
def test_ranks_that_ran_one_after_another_are_reported(trial, spec, nodes, ended, began, fault):
    """On one node or two, the Job is Complete and each pod sent evidence, but the pods never met."""
    day = "2026-11-22T"
    first = PodFacts(index=0, name="p-0", began=f"{day}10:00:00Z", ended=ended and day + ended)
    second = PodFacts(index=1, name="p-1", began=began and day + began, ended=f"{day}10:01:00Z")
    trial.pods = (first, second)
    trial.replicas = tuple(replace(r, node=node) for r, node in zip(trial.replicas, nodes, strict=True))
    for evidence in trial.evidence.values():
        evidence.stages["port"]["peers"] = []
    findings = [f for f in start_findings(trial, spec) if f.fault]
    assert [(f.ok, f.fault) for f in findings] == [(None, "job.one-after-another")] * fault
    if fault:
        assert "rank 1 on" in findings[0].observed
        assert "had ended at 2026-11-22T10:00:30Z" in findings[0].observed
    trial.pods = (
        first,
        second,
        replace(second, name="p-1-again", began=f"{day}10:00:05Z"),
    )  # it is unknown which of them
    assert not [f for f in start_findings(trial, spec) if f.fault]


@pytest.mark.parametrize("way", ["outbound", "inbound"])
def test_ranks_that_met_within_one_second_ran_at_the_same_time(trial, spec, way):
    """Container times are whole seconds; if the ranks did not connect, the second one began after the first ended."""
    before, second = "2026-11-22T10:00:29Z", "2026-11-22T10:00:30Z"
    trial.pods = tuple(PodFacts(index=i, name=f"p-{i}", began=(before, second)[i], ended=second) for i in range(2))
    for evidence in trial.evidence.values():
        evidence.stages["port"]["peers"] = [{"index": 1, "outbound": False, "inbound": False, way: True}]
    assert not [f for f in start_findings(trial, spec) if f.fault]
    for evidence in trial.evidence.values():
        evidence.stages["port"]["peers"][0][way] = False
    assert [f.fault for f in start_findings(trial, spec) if f.fault] == ["job.one-after-another"]


@pytest.mark.parametrize(
    ("name", "flagged"),
    [("02c-ranks-one-after-another", 1), ("11c-quota-one-after-another", 1), ("01-healthy-a", 0), ("29-two-jobs", 0)],
)
def test_real_ranks_that_ran_one_after_another_are_reported(trial, spec, name, flagged):
    """Recorded pods of a real cluster whose Job was Complete each time."""
    pods = {}
    for line in recordings.read(RECORDINGS / f"{name}.jsonl.gz").lines:
        if recordings.is_change(line) and line.kind == "Pod" and line.type != "DELETED":
            pods[line.object["metadata"]["uid"]] = line.object
    job = yaml.safe_load((RECORDINGS / f"{name}.yaml").read_text())["job"]
    own = [pod for pod in pods.values() if pod["metadata"]["name"].startswith(job)]
    trial.pods = pod_facts(own, [], KINDS["indexed"].index)
    assert len(trial.pods) == 2
    assert [f.fault for f in start_findings(trial, spec) if f.fault] == ["job.one-after-another"] * flagged


def test_a_healthy_trial_raises_nothing(trial, spec, h100, bad):
    """No rule raises a finding for a healthy trial."""
    judged = [
        start_findings(trial, spec),
        gpu_findings(trial, spec, h100),
        every_ailment(trial, spec),
        limit_findings(trial, spec, h100),
        dns_findings(trial, spec),
        port_findings(trial, spec),
    ]
    assert [bad(findings) for findings in judged] == [[]] * 6
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
    "admission.webhook-down",
    "pod-security.denied",
    "rights.missing",
    "node.lost",
    "topology.affinity",
    "volume.mount",
    "runtimeclass.missing",
    "priorityclass.missing",
)


def test_evidence_that_contradicts_itself_is_not_believed(trial, spec):
    """More lines than a probe prints, or parts that do not join, have an unknown origin."""
    trial.evidence[1] = replace(trial.evidence[1], problem="stage runtime: its parts do not join to JSON")
    findings = [f for f in start_findings(trial, spec) if f.ok is not True]
    assert [(f.ok, f.subject, f.fault) for f in findings] == [(None, "gpu-node-1", "job.no-evidence")]


@pytest.mark.parametrize("fault", ["container.config", "volume.mount"])
@pytest.mark.parametrize("disrupted", [False, True])
def test_an_object_that_the_profile_names_and_the_namespace_lacks_fails_the_start(trial, spec, fault, disrupted):
    """The cluster does not have what the profile requires, although the profile's author may have to act."""
    trial.analysis, trial.state = failure(fault, err_class=ERR_PROGRAM, disrupted=disrupted), JobState.ERROR
    (finding,) = start_findings(trial, spec)
    assert (finding.ok, finding.fault) == (None if disrupted else False, fault)
    trial.analysis = failure(fault, err_class=None)
    assert [f.ok for f in start_findings(trial, spec)] == [None], "an unknown cause proves nothing"


@pytest.mark.parametrize("fault", LAUNCHER)
def test_what_the_cluster_did_wrong_fails_the_start(trial, spec, fault):
    """ERR_INFRA yields exactly one failed finding, on the launcher's subject."""
    trial.analysis, trial.state = failure(fault), JobState.ERROR
    (finding,) = start_findings(trial, spec)
    assert (finding.ok, finding.fault, finding.subject) == (False, fault, "gpu-node-1")


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("job.disrupted", {"err_class": None, "disrupted": True}),
        ("image.no-python", {"err_class": ERR_PROGRAM}),
        ("container.oom", {"disrupted": True}),
        ("node.simulated", {"err_class": None}),
        ("lab.machine", {"err_class": None}),
        ("job.log-unreachable", {"err_class": None}),
    ],
)
def test_what_others_did_is_not_judged(trial, spec, fault, changes):
    """A disruption or a program fault is undetermined, never a failure of the cluster."""
    trial.analysis = failure(fault, **changes)
    assert [(f.ok, f.fault) for f in start_findings(trial, spec)] == [(None, fault)]


def test_a_silent_rank_is_not_a_pass(trial, spec, bad):
    """A rank without evidence is an error, with the reason."""
    del trial.evidence[1]
    assert bad(start_findings(trial, spec)) == [("gpu-node-1", "job.no-evidence")]
    assert bad(dns_findings(trial, spec))[-1] == ("gpu-node-1", "")
    assert all(f.ok is not False for f in dns_findings(trial, spec))


def test_two_pods_on_one_node_prove_nothing(trial, spec, bad):
    """The trial tests the network between nodes."""
    trial.replicas = tuple(replace(r, node="gpu-node-0") for r in trial.replicas)
    assert bad(start_findings(trial, spec)) == [("seatrial-abc", "")]


@pytest.mark.parametrize(("code", "ok"), [(0, True), (2, None), (15, False)])
def test_a_bare_list_of_gpus_is_reported_as_that(trial, spec, h100, code, ok):
    """GPUs that only `nvidia-smi -L` shows are present; another tool failure is not a pass, and a lost GPU is still
    missing."""
    error = "Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost" if code == 15 else "Unknown option"
    runtime(trial, nvidia_smi={"found": True, "exit": code, "error": error, "listed": True})
    (finding,) = [f for f in gpu_findings(trial, spec, h100) if f.subject == "gpu-node-1"]
    assert finding.ok is ok
    assert finding.fault == ("gpu.off-bus" if ok is False else "")
    assert ("bare list" in finding.observed) is (ok is not False)


def test_a_tool_that_did_not_end_is_a_fault(trial, spec, h100, bad):
    """nvidia-smi hangs with the driver: it has no exit code, and the finding says so."""
    runtime(trial, nvidia_smi={"found": True, "exit": None, "error": "no answer within 60 s"}, gpus=[])
    assert bad(gpu_findings(trial, spec, h100)) == [("gpu-node-1", "runtime.nvidia-smi")]


def test_small_shared_memory_is_reported(trial, spec, h100, bad):
    """64 MiB where 16 GiB were requested; one page less is not a fault."""
    trial.evidence[0].stages["start"]["shm_bytes"] -= 4096
    assert not bad(limit_findings(trial, spec, h100))
    trial.evidence[0].stages["start"]["shm_bytes"] = 64 * 2**20
    assert bad(limit_findings(trial, spec, h100)) == [("gpu-node-0", "runtime.shm-small")]
    trial.evidence[0].stages["start"]["shm_bytes"] = None
    assert [finding.ok for finding in limit_findings(trial, spec, h100)].count(None) == 1


@pytest.mark.parametrize(
    ("memlock", "cap_eff", "minimum", "fault"),
    [
        (65536, "0", -1, "runtime.memlock"),
        (65536, "4000", -1, ""),
        (-1, "0", -1, ""),
        (2**30, "0", 2**30, ""),
        (2**30 - 1, "0", 2**30, "runtime.memlock"),
        (2**30 + 1, "0", 2**30, ""),
        (2**30, "0", -1, "runtime.memlock"),
    ],
)
def test_lockable_memory_is_judged_where_the_profile_asks(trial, spec, h100, bad, memlock, cap_eff, minimum, fault):
    """IPC_LOCK or a high limit is enough; without the profile's requirement it is not judged."""
    for rank in trial.evidence.values():
        rank.stages["start"].update(memlock_bytes=memlock, cap_eff=cap_eff)
    profile = replace(h100, runtime=RuntimeSection(memlock_min=minimum))
    assert {f for _, f in bad(limit_findings(trial, spec, profile))} == ({fault} if fault else set())
    assert not bad(limit_findings(trial, spec, h100))


def test_the_cgroups_limits_are_reported(trial, spec):
    """A cgroup's limits are context and not a fault."""
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


def test_errors_end_the_check_as_an_error(trial, spec, evidence):
    """An undetermined finding makes the check an error, neither a pass nor a failure."""
    del trial.evidence[1]
    for f in start_findings(trial, spec):
        evidence.add(f.subject, ok=f.ok, observed=f.observed, fault=f.fault)
    with pytest.raises(CannotTell):
        evidence.verdict()


@pytest.mark.parametrize(
    ("limit", "told"),
    [(63 << 20, True), (64 << 20, True), (66 << 20, False), (2**40, False), (0, False), (None, False)],
)
def test_a_small_shm_is_reported_with_the_memory_limit_that_makes_it_so(trial, spec, h100, limit, told):
    """runtime.shm-small: a memory limit is named only if it equals the size of /dev/shm."""
    trial.evidence[0].stages["start"].update(shm_bytes=64 << 20, memory_max=limit)
    (finding,) = [each for each in limit_findings(trial, spec, h100) if each.fault == "runtime.shm-small"]
    assert finding.observed.startswith("0.06 GiB of /dev/shm")
    assert ("as much as the container's memory limit allows" in finding.observed) is told


@pytest.mark.parametrize(("names", "known"), [(("clone", "clone"), []), (("a", "b.site"), ["a", "b"])])
def test_pods_count_whatever_their_hosts_are_called(trial, names, known):
    """Two machines with one host name have both pods present, and NCCL's host name maps to neither node."""
    for rank, name in enumerate(names):
        trial.evidence[rank].stages["start"]["hostname"] = name
    assert sorted(ranks.hosts(trial)) == known
    assert sorted(ranks.pods(trial).values()) == ["gpu-node-0", "gpu-node-1"]
    trial.evidence[1].stages.clear()  # a pod without evidence proves nothing
    assert list(ranks.pods(trial).values()) == ["gpu-node-0"]


def test_a_rank_is_no_node_where_no_one_saw_its_node(trial):
    """Coverage counts nodes, but findings still need a subject."""
    assert sorted(ranks.pods(trial).values()) == sorted({*ranks.hosts(trial).values()}) == ["gpu-node-0", "gpu-node-1"]
    trial.replicas = trial.replicas[:1]
    assert {*ranks.pods(trial).values(), *ranks.hosts(trial).values()} == {"gpu-node-0"}
    assert ranks.place(trial, 1) == "rank 1"
