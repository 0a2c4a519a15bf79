"""The diagnosis where order decides: deletion requests, earlier ends, and outdated events."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from jobs.diagnosis.history import History
from jobs.diagnosis.refusals import read_refusal
from jobs.diagnosis.state import FailureAnalysis, JobState, Replica
from jobs.diagnosis.verdict import diagnose
from jobs.run import watcher
from jobs.run.launcher import after, interruption
from jobs.run.result import TrialResult
from tests.jobs.objects import RUNS, ended, event, failed, job, pod

COMPLETE = ({"type": "Complete", "status": "True"},)
TAKEN = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempted"}


def test_pods_that_the_deadline_deletes_in_the_same_second_are_not_deleted_by_others():
    """Deletion, FailureTarget and SuccessfulDelete fall into one second, in this order; the last is read too late."""
    late = failed("DeadlineExceeded", "Job was active longer than specified deadline", at="2026-01-01T00:01:00Z")
    pods = [
        pod(index, "Failed", deleted="2026-01-01T00:01:10Z", main=ended(143, at="2026-01-01T00:01:00Z"))
        for index in (0, 1)
    ]
    _, _, analysis = diagnose(job(conditions=late), pods, [])
    assert (analysis.fault, analysis.disrupted) == ("job.deadline", False)


@pytest.mark.parametrize("code", [137, 143])
def test_what_was_seen_on_its_way_out_did_not_fail_by_itself(code):
    """A forced deletion: deletionTimestamp and the container's end within one second, with a slow node clock."""
    running = pod(1, deleted="2026-01-01T00:00:40Z", main=RUNS)
    gone = pod(1, "Failed", deleted="2026-01-01T00:00:40Z", main=ended(code, at="2026-01-01T00:00:28Z"))
    history = History()
    history.enter(job(), [running])
    history.enter(job(), [gone])
    _, _, analysis = diagnose(job(conditions=failed(at="2026-01-01T00:00:31Z")), [gone], [], history=history)
    assert (analysis.fault, analysis.subject, analysis.disrupted) == ("job.disrupted", "t-1-abcde", True)


def test_what_was_seen_ended_before_it_was_deleted_failed_by_itself():
    """The objects are the same in the other order: the pod had ended before it was deleted."""
    first = pod(1, "Failed", main=ended(137, at="2026-01-01T00:00:30Z"))
    then = pod(1, "Failed", deleted="2026-01-01T00:00:40Z", main=ended(137, at="2026-01-01T00:00:30Z"))
    history = History()
    history.enter(job(), [first])
    history.enter(job(), [then])
    _, _, analysis = diagnose(job(conditions=failed(at="2026-01-01T00:00:31Z")), [then], [], history=history)
    assert analysis.fault == "job.failed"


def test_a_pod_that_is_gone_is_remembered():
    """A force-deleted pod no longer exists when the Job fails, but its last state counts."""
    gone = pod(1, "Failed", deleted="2026-01-01T00:00:30Z", main=ended(137, at="2026-01-01T00:00:31Z"))
    history = History()
    history.enter(job(), [pod(0, main=RUNS)], [gone])
    state, _, analysis = diagnose(
        job(conditions=failed(at="2026-01-01T00:00:32Z")), [pod(0, main=RUNS)], [], history=history
    )
    assert (str(state), analysis.fault, analysis.subject) == ("Error", "job.disrupted", "t-1-abcde")


@pytest.mark.parametrize("how", ["condition", "deletion", "event"])
def test_an_interrupted_pod_that_succeeded_is_an_interruption_all_the_same(how):
    """The program ended with 0 after SIGTERM; the Job is Complete, and podFailurePolicy did not match."""
    main = ended(0, "Completed", at="2026-01-01T00:00:30Z")
    more = {"condition": {"conditions": [TAKEN]}, "deletion": {"deleted": "2026-01-01T00:00:35Z"}, "event": {}}[how]
    events = [event("Pod", "t-1-abcde", "Evicted", "The node was low on resource: memory.")] if how == "event" else []
    pods = [pod(0, "Succeeded", main=main), pod(1, "Succeeded", main=main, **more)]
    state, _, analysis = diagnose(job(conditions=COMPLETE), pods, events)
    assert (str(state), analysis.fault, analysis.subject, analysis.disrupted) == (
        "Complete",
        "job.disrupted",
        "t-1-abcde",
        True,
    )
    history = History(finished=frozenset({"t-1-abcde"}))
    assert diagnose(job(conditions=COMPLETE), pods, events, history=history)[2] is None


def test_pods_deleted_after_they_succeeded_are_no_interruption():
    """A TTL or a namespace deletion removes completed pods."""
    pods = [pod(0, "Succeeded", deleted="2026-01-01T00:01:10Z", main=ended(0, "Completed", at="2026-01-01T00:00:30Z"))]
    assert diagnose(job(1, COMPLETE), pods, [])[2] is None


def test_suspend_is_the_spec_and_not_the_condition():
    """The spec decides: the condition is written only after pods were created on resume, and before they are deleted on
    suspend."""
    stale = [{"type": "Suspended", "status": "True", "message": "Job suspended"}]
    created = event("Job", "t", "SuccessfulCreate", "Created pod: t-0-abcde", warning=False)
    resumed = job(1, stale)
    resumed["spec"]["suspend"] = False
    assert diagnose(resumed, [pod(0, main=RUNS)], [created], history=History(resumed=True, ran=True))[2] is None
    again = job(1)
    again["spec"]["suspend"] = True
    assert diagnose(again, [pod(0, main=RUNS)], [created])[2] is None  # read late: it was created suspended
    state, _, analysis = diagnose(again, [pod(0, main=RUNS)], [created], history=History(resumed=True, ran=True))
    assert (str(state), analysis.fault) == ("Pending", "job.disrupted")


def test_the_crash_is_the_cause_and_not_the_peer_that_still_waited():
    """The Job failed by another rank, not by the one without a node."""
    unbound = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/2 nodes are available: 2 Insufficient cpu.",
        }
    ]
    pods = [pod(0, "Failed", main=ended(1)), pod(1, "Pending", node="", conditions=unbound)]
    _, _, analysis = diagnose(job(conditions=failed()), pods, [])
    assert (analysis.fault, analysis.subject) == ("job.failed", "t-0-abcde")


def test_a_restarting_api_server_refuses_everybody_for_a_moment():
    """One FailedCreate by RBAC proves nothing; the earlier refusal counts, and RBAC's only if repeated."""
    policy = event(
        "Job",
        "t",
        "FailedCreate",
        "Error creating: pods \"t-0-x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied",
    )
    away = event(
        "Job",
        "t",
        "FailedCreate",
        'Error creating: Post "https://10.0.0.1:6443/api": dial tcp 10.0.0.1:6443: connect: connection refused',
        at="2026-01-01T00:00:40Z",
    )
    rbac = [
        event(
            "Job",
            "t",
            "FailedCreate",
            f'Error creating: pods is forbidden: User "system:x" cannot create resource "pods" in API group "" in the namespace "ns-{n}"',
            at=at,
        )
        for n, at in enumerate(("2026-01-01T00:00:50Z", "2026-01-01T00:00:58Z"))
    ]
    _, _, analysis = diagnose(job(), [], [policy, away, rbac[0]])
    assert analysis.fault == "admission.denied" and analysis.hopeless
    assert not diagnose(job(), [], [rbac[0]])[2].hopeless
    _, _, analysis = diagnose(job(), [], [policy, away, *rbac])
    assert analysis.fault == "rights.missing" and analysis.hopeless
    assert (
        read_refusal('Post "https://10.0.0.1:6443/api": dial tcp 10.0.0.1:6443: connect: connection refused').fault
        == "job.start-timeout"
    )


def test_what_the_taint_manager_took_back_evicted_no_one():
    """Eviction and cancellation have one reason; NodeNotReady remains among the events when the pod is Ready again."""
    events = [
        event("Pod", "t-0-abcde", "NodeNotReady", "Node is not ready"),
        event("Pod", "t-0-abcde", "TaintManagerEviction", "Marking for deletion Pod ns/t-0-abcde"),
        event("Pod", "t-0-abcde", "TaintManagerEviction", "Cancelling deletion of Pod ns/t-0-abcde"),
    ]
    ready = pod(0, main=RUNS, conditions=[{"type": "Ready", "status": "True"}])
    tainted = {
        "metadata": {"name": "n0"},
        "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert diagnose(job(1), [ready], events)[2] is None
    assert diagnose(job(1), [ready], events, [tainted])[2] is None


def test_a_sidecars_exit_code_is_not_the_ranks():
    """A native sidecar is killed when the trial has ended; the rank's container ended with 0."""
    side = {"name": "daemon"} | ended(137, "ContainerStatusUnknown")
    _, replicas, analysis = diagnose(
        job(1, COMPLETE), [pod(0, "Succeeded", sidecars=[side], main=ended(0, "Completed"))], []
    )
    assert (replicas[0].exit_code, analysis) == (0, None)


def attempt(fault, nodes=("n0", "n1"), *, disrupted=False, observed="o", state=JobState.PENDING):
    """Return the result of an attempt whose two pods had these nodes."""
    analysis = FailureAnalysis(
        fault=fault, subject="s", observed=observed, expected="e", suggestion="s", disrupted=disrupted
    )
    replicas = tuple(Replica(index=index, pod=f"t-{index}", node=node) for index, node in enumerate(nodes))
    return TrialResult(job="t", state=state, analysis=analysis if fault else None, replicas=replicas)


@pytest.mark.parametrize(
    ("nodes", "later", "disrupted", "cause"),
    [
        (("n0", "n1"), "job.unschedulable", False, "job.disrupted"),
        (("", ""), "job.unschedulable", False, "job.unschedulable"),
        (("n0", ""), "job.unschedulable", False, "job.unschedulable"),  # a node was already missing before
        (("", ""), "job.disrupted", True, "job.disrupted"),
        (("n0", "n1"), "job.failed", False, "job.failed"),  # it ran, and failed independently
        (("n0", "n1"), "node.lost", False, "node.lost"),
        (("n0", "n1"), "", False, None),
    ],
    ids=["had nodes", "never had", "one had none", "interrupted again", "failed", "lost its node", "well"],
)
def test_a_further_attempts_own_cause_stands_unless_the_interruption_explains_it(nodes, later, disrupted, cause):
    """A drain leaves no room for the next attempt; an attempt that never had a node explains nothing."""
    first = attempt("job.disrupted", nodes, disrupted=True)
    result = after(first, attempt(later, ("", ""), disrupted=disrupted), 2)
    assert (result.analysis and result.analysis.fault, result.attempts) == (cause, 2)


@pytest.mark.parametrize(("scheduled", "cause"), [(2, "job.disrupted"), (1, "job.unschedulable")])
def test_events_say_that_pods_which_are_gone_had_a_node(scheduled, cause):
    events = tuple(f"Scheduled pod/t-{index}: Successfully assigned team/t-{index} to n{index}" for index in (0, 1))
    first = replace(attempt("job.disrupted", ("", "")), events=(*events[:scheduled], "Killing pod/t-0: Stopping"))
    assert after(first, attempt("job.unschedulable", ("", "")), 2).analysis.fault == cause


@pytest.mark.parametrize(
    ("result", "again"),
    [
        (attempt("job.disrupted", disrupted=True), True),
        (attempt("job.disrupted", disrupted=True, state=JobState.CANCELED), False),
        (attempt("container.start", observed="pod t-0: OutOfcpu: Node didn't have enough resource: cpu"), True),
        (attempt("container.start", observed="pod t-0: OutOfnvidia.com/gpu: Node didn't have enough"), True),
        (attempt("container.start", observed="pod t-0: CreateContainerConfigError"), False),
        (attempt("job.failed", observed="CUDA error: OutOfmemory"), False),
        (attempt("", state=JobState.COMPLETE), False),
    ],
    ids=["drained", "canceled by us", "no room for CPUs", "no room for GPUs", "another start", "failed", "well"],
)
def test_only_what_others_interrupted_is_tried_again(result, again):
    """Retrying a cluster failure until it disappears would be a wrong go."""
    assert (interruption(result) is not None) is again


def test_a_namespace_that_goes_takes_the_pods_first_and_makes_the_job_complete():
    """The pods end with 0 after SIGTERM, the Job counts them, and then it is deleted."""
    main = ended(0, "Completed", at="2026-01-01T00:00:31Z")
    pods = [pod(index, "Succeeded", deleted="2026-01-01T00:00:40Z", main=main) for index in (0, 1)]
    leaving = job(conditions=COMPLETE)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:32Z"
    _, _, analysis = diagnose(leaving, pods, [])
    assert (analysis.fault, analysis.disrupted) == ("job.disrupted", True)


def test_a_peer_that_was_asked_to_go_after_the_crash_was_seen_follows_from_it():
    """All within one second, before the controller's SuccessfulDelete was read: the watch order decides."""
    crash = pod(0, main=ended(1, at="2026-01-01T00:00:30Z"))
    peer = pod(1, deleted="2026-01-01T00:00:40Z", main=RUNS)
    history = History()
    for pods in ([pod(0, main=RUNS), pod(1, main=RUNS)], [crash, pod(1, main=RUNS)], [crash, peer]):
        history.enter(job(), pods)
    _, _, analysis = diagnose(
        job(conditions=failed(at="2026-01-01T00:00:30Z")),
        [pod(0, "Failed", main=ended(1, at="2026-01-01T00:00:30Z")), peer],
        [],
        history=history,
    )
    assert (analysis.fault, analysis.subject) == ("job.failed", "t-0-abcde")


def test_a_deadline_that_ends_the_wait_for_a_node_is_reported_as_that_wait():
    """The Job's deadline deletes the waiting pod; the cause is the missing node."""
    unbound = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/2 nodes are available: 2 Insufficient cpu.",
        }
    ]
    late = failed("DeadlineExceeded", "Job was active longer than specified deadline", at="2026-01-01T00:01:00Z")
    waits = pod(0, "Pending", node="", deleted="2026-01-01T00:01:10Z", conditions=unbound)
    assert diagnose(job(1, late), [waits], [])[2].fault == "job.unschedulable"


def test_one_trouble_of_several_pods_is_one_whichever_of_them_is_named(monkeypatch):
    """Events of two pods alternate, so the subject changes, but the problem's duration continues."""
    now = [0.0]
    monkeypatch.setattr(watcher, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watch = watcher.Watcher.__new__(watcher.Watcher)
    watch._hopeless_since = None
    for second in range(0, 71, 2):
        now[0] = float(second)
        cause = FailureAnalysis(
            fault="volume.mount",
            subject=f"t-{second // 2 % 2}",
            observed="o",
            expected="e",
            suggestion="s",
            grace_s=70.0,
        )
        assert watch._given_up(watcher.WatchOutcome(analysis=cause), second) == (second >= 70)
