"""The diagnosis compared with a real Kubernetes 1.36 cluster in 28 scenarios."""

import json
import random
from pathlib import Path

import pytest

from jobs.diagnosis.verdict import diagnose
from seatrial.faults.advice import FAULTS

RECORDINGS = Path(__file__).parent / "data" / "recordings"

# scenario, moment: state, fault, err_class, disrupted, issue of each replica (reason, part of the message)
EXPECTED = {
    ("command-not-found", "01"): ("Error", "image.no-python", "ERR_PROGRAM", {0: ("StartError", "no-such-command")}),
    ("command-not-found-in-shell", "01"): ("Error", "job.failed", "ERR_PROGRAM", {0: ("Error", "exit code 127")}),
    ("config-map-missing", "01"): (
        "Pending",
        "container.config",
        "ERR_PROGRAM",
        {0: ("CreateContainerConfigError", 'configmap "no-such-map" not found')},
    ),
    ("crash-loop-back-off", "01"): ("Running", "job.failed", "ERR_PROGRAM", {0: ("CrashLoopBackOff", "exit code 7")}),
    ("crash-loop-back-off", "02"): ("Running", "job.failed", "ERR_PROGRAM", {0: ("CrashLoopBackOff", "back-off 40s")}),
    ("deleted-foreground-while-running", "01"): ("Running", None, None, {}),
    ("deleted-foreground-while-running", "02"): ("Canceled", "job.disrupted", None, {}),
    ("deleted-foreground-while-running", "03"): ("Canceled", "job.disrupted", None, {}),
    ("dns-nxdomain-then-found", "01"): ("Unknown", None, None, {}),
    ("dns-nxdomain-then-found", "02"): ("Running", None, None, {}),
    ("dns-nxdomain-then-found", "03"): ("Running", None, None, {}),
    ("exit-1-backoff-limit-0", "01"): ("Error", "job.failed", "ERR_PROGRAM", {0: ("Error", "exit code 1")}),
    ("gpu-unhealthy", "01"): (
        "Running",
        "job.unschedulable",
        "ERR_INFRA",
        {1: ("Unschedulable", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu")},
    ),
    ("gpu-unhealthy", "02"): ("Running", None, None, {}),
    ("happy-two-nodes", "01"): ("Pending", None, None, {}),
    ("happy-two-nodes", "02"): ("Running", None, None, {}),
    ("happy-two-nodes", "03"): ("Complete", None, None, {}),
    ("happy-two-nodes", "04"): ("Complete", None, None, {}),
    ("headless-not-ready-hidden", "01"): (
        "Running",
        None,
        None,
        {0: ("ContainersNotReady", "Readiness probe failed"), 1: ("ContainersNotReady", "")},
    ),
    ("headless-not-ready-hidden", "02"): ("Running", None, None, {}),
    ("headless-not-ready-hidden", "03"): ("Running", None, None, {}),
    ("image-missing", "01"): ("Pending", "image.pull", "ERR_INFRA", {0: ("ErrImagePull", "no-such-image:1.0")}),
    ("image-missing", "02"): (
        "Pending",
        "image.pull",
        "ERR_INFRA",
        {0: ("ImagePullBackOff", "Back-off pulling image")},
    ),
    ("image-pull-secret-missing", "01"): (
        "Pending",
        "image.pull",
        "ERR_INFRA",  # the registry does not answer
        {0: ("ImagePullBackOff", "private/image")},
    ),
    ("insufficient-gpus-partial", "01"): (
        "Running",
        "job.unschedulable",
        None,  # another tenant's pod uses half of the other node
        {1: ("Unschedulable", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu")},
    ),
    ("log-of-not-started", "01"): ("Pending", None, None, {}),
    ("log-of-not-started", "02"): ("Complete", None, None, {}),
    ("log-rotated", "01"): ("Running", None, None, {}),
    ("node-lost", "01"): ("Running", None, None, {}),
    ("node-lost", "02"): ("Running", None, None, {}),
    ("node-lost", "03"): (
        "Running",
        "node.lost",
        "ERR_INFRA",
        {0: ("NodeNotReady", "Kubelet stopped posting node status")},
    ),
    ("node-lost", "04"): ("Error", "node.lost", "ERR_INFRA", {0: ("DeletionByTaintManager", "NoExecute taint")}),
    ("node-lost", "05"): ("Error", "node.lost", "ERR_INFRA", {}),
    ("node-selector-matches-none", "01"): (
        "Pending",
        "job.unschedulable",
        "ERR_INFRA",
        {0: ("Unschedulable", "didn't match Pod's node affinity/selector")},
    ),
    ("oom-killed", "01"): ("Error", "container.oom", "ERR_PROGRAM", {0: ("OOMKilled", "exit code 137")}),
    ("pod-security-host-network", "01"): (
        "Pending",
        "pod-security.denied",
        "ERR_INFRA",
        {0: ("FailedCreate", 'violates PodSecurity "restricted:latest"')},
    ),
    ("pod-security-ipc-lock", "01"): ("Pending", "pod-security.denied", "ERR_INFRA", {0: ("FailedCreate", "IPC_LOCK")}),
    ("pvc-missing", "01"): (
        "Pending",
        "volume.mount",
        "ERR_PROGRAM",
        {0: ("Unschedulable", 'persistentvolumeclaim "no-such-claim" not found')},
    ),
    ("quota-exceeded", "01"): ("Running", "quota.exceeded", "ERR_INFRA", {1: ("FailedCreate", "exceeded quota: gpus")}),
    ("readiness-never", "01"): ("Running", None, None, {0: ("ContainersNotReady", "connection refused")}),
    ("runtime-class-missing", "01"): (
        "Pending",
        "runtimeclass.missing",
        "ERR_INFRA",
        {0: ("FailedCreate", 'RuntimeClass "nvidia" not found')},
    ),
    ("suspended-job", "01"): ("Pending", None, None, {0: ("Suspended", "Job suspended")}),
    ("suspended-job", "02"): ("Running", None, None, {}),
    ("suspended-job", "03"): ("Pending", "job.disrupted", None, {0: ("Suspended", "")}),
    ("taint-not-tolerated", "01"): (
        "Pending",
        "job.unschedulable",
        "ERR_INFRA",
        {0: ("Unschedulable", "0/2 nodes are available: 2 node(s) had untolerated taint")},
    ),
    ("termination-message", "01"): ("Complete", None, None, {}),
    ("ttl-cleanup", "01"): ("Complete", None, None, {}),
    ("ttl-cleanup", "02"): ("Complete", None, None, {}),
}


def judge(moment):
    jobs = moment["jobs"]
    return diagnose(jobs[0] if jobs else None, moment["pods"], moment["events"], moment["nodes"])


def check(diagnosis, expected):
    state, replicas, analysis = diagnosis
    expected_state, fault, blame, issues = expected
    assert state == expected_state
    assert (analysis.fault if analysis else None) == fault
    if analysis:
        assert analysis.err_class == blame
        assert analysis.disrupted == (fault == "job.disrupted")
        assert analysis.observed and analysis.expected and analysis.subject
        assert FAULTS[analysis.fault].remedy
    issue_of = {r.index: r.readiness_issue for r in replicas if r.readiness_issue}
    assert set(issue_of) == set(issues)
    for index, (reason, phrase) in issues.items():
        assert issue_of[index].reason == reason
        assert phrase in issue_of[index].message


@pytest.mark.parametrize(("scenario", "moment"), sorted(EXPECTED))
def test_a_recorded_moment_is_understood(recording, scenario, moment):
    """State, fault, err_class and each replica's readiness issue are given in Kubernetes' terms."""
    check(judge(recording(scenario, moment)), EXPECTED[scenario, moment])


def test_every_recorded_moment_is_in_the_table():
    """A recording without an expectation would prove nothing."""
    recorded = {
        (file.stem, name[:2]) for file in RECORDINGS.glob("*.json") for name in json.loads(file.read_text())["moments"]
    }
    assert recorded == set(EXPECTED)


@pytest.mark.parametrize(("scenario", "moment"), sorted(EXPECTED))
def test_the_order_of_events_and_pods_does_not_matter(recording, scenario, moment):
    """Events and objects arrive in any order with the same conclusion."""
    taken = recording(scenario, moment)
    for seed in range(3):
        mixed = {kind: random.Random(seed).sample(items, len(items)) for kind, items in taken.items()}
        check(judge(mixed), EXPECTED[scenario, moment])


@pytest.mark.parametrize(
    ("scenario", "moment"),
    sorted(
        key
        for key, (_, fault, _, _) in EXPECTED.items()
        if fault
        in {"image.no-python", "job.failed", "container.config", "image.pull", "job.unschedulable", "container.oom"}
    ),
)
def test_most_faults_are_found_without_any_event(recording, scenario, moment):
    """Events expire after an hour and need a separate permission; the objects must suffice where possible."""
    taken = recording(scenario, moment) | {"events": [], "nodes": []}
    _, _, analysis = judge(taken)
    assert analysis is not None
    assert analysis.fault == EXPECTED[scenario, moment][1]


def test_events_of_the_newer_api_group_mean_the_same(recording):
    """events.k8s.io/v1 has the fields regarding, note and deprecatedCount instead."""
    taken = recording("quota-exceeded", "01")
    renamed = {
        "involvedObject": "regarding",
        "message": "note",
        "count": "deprecatedCount",
        "source": "deprecatedSource",
    }
    events = [{renamed.get(key, key): value for key, value in event.items()} for event in taken["events"]]
    check(judge(taken | {"events": events}), EXPECTED["quota-exceeded", "01"])


def test_a_missing_pull_secret_is_named(recording):
    """The registry's response alone does not show that the secret is the cause."""
    _, _, analysis = judge(recording("image-pull-secret-missing", "01"))
    assert "no-such-secret" in analysis.suggestion


def test_an_unhealthy_gpu_is_distinguished_from_a_taken_one(recording):
    """The scheduler reports 'Insufficient' for both; waiting is pointless only for the unhealthy one."""
    _, _, broken = judge(recording("gpu-unhealthy", "01"))
    assert "node2 offers 6 of 8 nvidia.com/gpu" in broken.suggestion
    assert broken.hopeless
    _, _, taken = judge(recording("insufficient-gpus-partial", "01"))
    assert "nvidia.com/gpu is in use by other workloads" in taken.suggestion
    assert not taken.hopeless


def test_the_node_that_was_lost_is_the_subject(recording):
    """The pod on the other node is not: the Job controller deleted it as a consequence."""
    for moment in ("03", "04", "05"):
        _, replicas, analysis = judge(recording("node-lost", moment))
        assert analysis.subject == "node2"
        assert not any(r.fault for r in replicas if r.node == "node1")
        assert analysis.job_failure_by_node_event[0]["node"] == "node2"


def test_the_analysis_has_the_fields_of_the_users_document(recording):
    """err_class, suggestion and job_failure_by_node_event with node_event_name and message."""
    _, replicas, analysis = judge(recording("oom-killed", "01"))
    assert analysis.err_class == "ERR_PROGRAM"
    assert analysis.job_failure_by_node_event[0]["node_event_name"] == "OOMKilled"
    assert replicas[0].readiness_issue.reason == "OOMKilled"
