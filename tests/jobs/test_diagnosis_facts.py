"""Facts of pods, nodes and events for a diagnosis: each from its own field, and none from missing data."""

import pytest

from jobs.diagnosis.around import from_pod
from jobs.diagnosis.history import ended as has_ended
from jobs.diagnosis.history import failed as has_failed
from jobs.diagnosis.podfacts import pod_facts
from jobs.diagnosis.verdict import diagnose
from tests.jobs.objects import RUNS, condition, ended, event, failed, job, node, pod, waits
from tests.table import table

ENDED_WELL = {"state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:40Z"}}}


@table(
    "made, over, bad",
    [
        (pod(0), False, False),
        (pod(0, main=RUNS), False, False),
        (pod(0, main=waits("ContainerCreating")), False, False),
        (pod(0, main=ended(1)), True, True),
        (pod(0, main=ENDED_WELL), True, False),
        (pod(0, "Succeeded", main=ENDED_WELL), True, False),
        (pod(0, "Failed"), True, True),
        (pod(0, "Failed", main=RUNS), True, True),
        (pod(0, "Failed", main=ENDED_WELL), True, True),
    ],
)
def test_a_pod_has_failed_by_its_phase_or_by_a_container(made, over, bad):
    """An evicted pod has no container status; a container with exit code 0 is not a failure."""
    assert (has_ended(made), has_failed(made)) == (over, bad)


def described(**status):
    made = pod(0, main={**RUNS, "image": "mirror/img:1", "imageID": "sha256:9"})
    made["status"] |= status
    return pod_facts([made], [], lambda _: 3)[0]


def test_a_pod_is_described_by_what_the_cluster_wrote_of_it():
    """A container without an image id has none; the pod's spec precedes the runtime's text."""
    facts = described()
    assert (facts.index, facts.name, facts.node, facts.uid) == (3, "t-0-abcde", "n0", "0")
    assert facts.images == {"trial": ("img:1", "sha256:9")}
    bare = described(containerStatuses=[{"name": "trial"}, {"name": "injected", "image": "side:2", "imageID": None}])
    assert bare.images == {"trial": ("img:1", ""), "injected": ("side:2", "")}


NODE_EVENTS = [
    event("Node", "n0", "SystemOOM", "victim python", at="2026-01-01T00:00:20Z"),
    event("Node", "n0", "NodeHasDiskPressure", "before the job", at="2025-12-31T23:00:00Z"),
    event("Node", "n0", "Starting", "no trouble", warning=False, at="2026-01-01T00:00:21Z"),
    event("Node", "n7", "KernelOops", "on another node", at="2026-01-01T00:00:22Z"),
    event("Pod", "n0", "TaskHung", "of a pod that is called so", at="2026-01-01T00:00:23Z"),
]


def test_what_happened_on_the_nodes_of_what_failed_is_reported_with_it():
    """Problems of those nodes since the job's start; no other nodes, and none if the program is at fault."""
    killed = pod(0, "Failed", main=ended(137, "OOMKilled"))
    _, _, analysis = diagnose(
        job(conditions=failed(), startTime="2026-01-01T00:00:00Z"), [killed, pod(1, main=RUNS, node="n1")], NODE_EVENTS
    )
    told = [(each["node_event_name"], each["node"], each["pod"]) for each in analysis.job_failure_by_node_event]
    assert told == [("OOMKilled", "n0", "t-0-abcde"), ("SystemOOM", "n0", "")]
    assert analysis.job_failure_by_node_event[1]["message"] == "victim python"
    _, _, analysis = diagnose(job(conditions=failed()), [pod(0, "Failed", main=ended(1))], NODE_EVENTS)
    assert analysis.job_failure_by_node_event == ()


@pytest.mark.parametrize(
    ("reason", "message", "said"),
    [
        ("EvictionByEvictionAPI", "Eviction API: evicting", "EvictionByEvictionAPI: Eviction API: evicting"),
        ("TerminationByKubelet", None, "TerminationByKubelet"),
        (None, "the node shuts down", "DisruptionTarget: the node shuts down"),
        (None, None, "DisruptionTarget"),
    ],
)
def test_a_disruption_is_reported_with_what_the_cluster_said_of_it(reason, message, said):
    made = pod(0, main=RUNS, conditions=[condition("DisruptionTarget", reason=reason, message=message)])
    (moment,) = from_pod(made)
    assert (moment.kind, moment.pod, moment.node, moment.text) == ("eviction", "t-0-abcde", "n0", said)


TAINTED = event("Pod", "t-0-abcde", "TaintManagerEviction", "Marking for deletion Pod ns/t-0-abcde")
BACK = event(
    "Pod", "t-0-abcde", "TaintManagerEviction", "Cancelling deletion of Pod ns/t-0-abcde", warning=False, at="2026-01-01T00:00:25Z"
)  # fmt: skip


@pytest.mark.parametrize(("events", "disrupted"), [([TAINTED], True), ([TAINTED, BACK], False), ([BACK], False)])
def test_an_eviction_that_was_taken_back_took_no_one(events, disrupted):
    """A cancellation for another pod does not count."""
    gone = event("Job", "t", "SuccessfulCreate", "Created pod: t-0-abcde", warning=False)
    other = {**BACK, "involvedObject": {"kind": "Pod", "name": "t-1-abcde"}}
    for more in ([], [other]):
        _, _, analysis = diagnose(job(conditions=failed()), [pod(1, main=RUNS)], [gone, *events, *more])
        assert ("Marking for deletion" in analysis.observed) is disrupted


@pytest.mark.parametrize(
    ("ready", "events", "is_lost"),
    [
        ("", [], False),
        ("", ["NodeNotReady"], True),
        ("False", ["NodeNotReady"], True),
        ("True", ["NodeNotReady"], False),
        ("True", [], False),
    ],
)
def test_a_pod_whose_node_is_not_seen_is_lost_by_its_events_until_it_is_ready_again(ready, events, is_lost):
    """The event outlives the problem by an hour; the pod's condition shows that it is over."""
    conditions = [condition("Ready", ready)] if ready else []
    said = [event("Pod", "t-0-abcde", each, "Node is not ready") for each in events]
    _, replicas, _ = diagnose(job(1, active=1), [pod(0, main=RUNS, conditions=conditions)], said)
    assert (replicas[0].fault == "node.lost") is is_lost


@pytest.mark.parametrize(
    ("reasons", "fault"),
    [
        (["FailedScheduling"], "job.unschedulable"),
        (["FailedScheduling", "Scheduled"], None),
        (["Scheduled"], None),
        (["Scheduled", "FailedMount"], "volume.mount"),
    ],
)
def test_a_pod_that_is_gone_was_unschedulable_only_until_it_had_a_node(reasons, fault):
    events = [event("Job", "t", "SuccessfulCreate", "Created pod: t-0-abcde", warning=False)]
    for at, reason in enumerate(reasons):
        message = "0/2 nodes are available: 2 Insufficient rdma/hca." if reason == "FailedScheduling" else "on n0"
        events.append(
            event("Pod", "t-0-abcde", reason, message, warning=reason != "Scheduled", at=f"2026-01-01T00:00:2{at}Z")
        )
    late = failed("DeadlineExceeded", "Job was active longer than specified deadline")
    _, _, analysis = diagnose(job(1, late), [], events, [node("n0")])
    assert analysis.fault == (fault or "job.deadline")


@pytest.mark.parametrize(
    ("said", "fault", "reason"),
    [
        ('Failed to pull image "img:1": manifest unknown', "image.pull", "ErrImagePull"),
        ('Error: secret "token" not found', "container.config", "CreateContainerConfigError"),
        ("Error: couldn't find key a in ConfigMap ns/c", "container.config", "CreateContainerConfigError"),
        (
            "Error: container has runAsNonRoot and image will run as root",
            "container.config",
            "CreateContainerConfigError",
        ),
        ("Error: failed to create containerd task: nvidia-container-cli: no such device", "container.start", "Failed"),
    ],
)
def test_a_container_that_never_ran_is_judged_by_the_kubelets_words_when_its_pod_is_gone(said, fault, reason):
    """The last message counts, and a failed pull precedes all others."""
    events = [
        event("Job", "t", "SuccessfulCreate", "Created pod: t-0-abcde", warning=False),
        event("Pod", "t-0-abcde", "Scheduled", "Successfully assigned ns/t-0-abcde to n0", warning=False),
        event("Pod", "t-0-abcde", "Failed", said, at="2026-01-01T00:00:30Z"),
    ]
    _, _, analysis = diagnose(job(1, failed()), [], events)
    assert (analysis.fault, reason in analysis.observed) == (fault, True)
