"""Interrupted jobs: deletion, disruption, preemption, and their consequences."""

import pytest

from jobs.diagnosis.grace_periods import DELETED_S
from jobs.diagnosis.history import History
from jobs.diagnosis.verdict import diagnose
from tests.jobs.objects import RUNS, condition, ended, event, failed, job, node, pod


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"),
        ("EvictionByEvictionAPI", "Eviction API: evicting"),
        ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
        ("TerminationByKubelet", "The node was low on resource: memory."),
        ("DeletionByPodGC", "PodGC: node no longer exists"),
    ],
)
def test_a_disruption_is_never_the_clusters_fault(reason, message):
    """Preemption, drain and eviction are disruptions without err_class; the peer's error is a consequence."""
    pods = [
        pod(0, "Failed", conditions=[condition("DisruptionTarget", reason=reason, message=message)], main=ended(137)),
        pod(1, "Failed", main=ended(1, at="2026-01-01T00:00:10Z")),
    ]
    state, replicas, analysis = diagnose(job(conditions=failed()), pods, [])
    assert state == "Error"
    assert analysis.disrupted and analysis.fault == "job.disrupted" and analysis.err_class is None
    assert analysis.subject == "t-0-abcde"
    assert replicas[0].readiness_issue.reason == reason


def test_a_pod_deleted_by_someone_is_a_disruption():
    """kubectl delete pod: no condition shows it, but the Job controller did not delete it either."""
    gone = pod(1, "Running", deleted="2026-01-01T00:00:30Z", main=RUNS)
    events = [event("Pod", "t-1-abcde", "Killing", "Stopping container trial", warning=False)]
    _, _, analysis = diagnose(job(active=2), [pod(0, main=RUNS), gone], events)
    assert analysis.disrupted and analysis.subject == "t-1-abcde"


def test_a_pod_deleted_by_its_failing_job_is_a_consequence():
    """One rank ends with an error and the controller deletes the others: the error is the cause."""
    pods = [
        pod(0, "Failed", main=ended(1, at="2026-01-01T00:00:50Z")),
        pod(1, "Running", deleted="2026-01-01T00:01:12Z", main=RUNS),
    ]
    for events in ([], [event("Job", "t", "SuccessfulDelete", "Deleted pod: t-1-abcde", warning=False)]):
        _, _, analysis = diagnose(job(conditions=failed()[:1]), pods, events)
        assert analysis.fault == "job.failed" and analysis.subject == "t-0-abcde"


def test_a_pod_that_vanished_was_taken_by_someone():
    """After a forced deletion no object or event remains, but a failed pod would still exist."""
    events = [
        event("Job", "t", "SuccessfulCreate", f"Created pod: t-{i}-abcde", warning=False, at="2026-01-01T00:00:01Z")
        for i in (0, 1)
    ] + [event("Job", "t", "SuccessfulDelete", "Deleted pod: t-1-abcde", warning=False)]
    _, _, analysis = diagnose(job(conditions=failed()), [], events)
    assert analysis.disrupted and analysis.subject == "t-0-abcde"


def test_podfailurepolicy_names_a_disruption_that_left_nothing_else():
    """The pod is gone and its peer ended with an error; the Job's own message still has the cause."""
    message = "Pod ns/t-0-abcde has condition DisruptionTarget matching FailJob rule at index 0"
    _, _, analysis = diagnose(
        job(conditions=failed("PodFailurePolicy", message)), [pod(1, "Failed", main=ended(1))], []
    )
    assert analysis.disrupted


def test_a_deleted_job_is_canceled_and_a_finished_one_stays_what_it_was():
    """The documented state of a job deleted by a user is Canceled; after its end the state no longer changes."""
    going = job(active=1)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    assert diagnose(going, [pod(0, main=RUNS)], [])[0] == "Canceled"
    done = job(conditions=[condition("Complete")])
    done["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    assert diagnose(done, [], [])[0] == "Complete"


@pytest.mark.parametrize("code", [143, 137])
def test_a_deleted_pod_that_failed_by_that_is_an_interruption(code):
    """The probe ends with 143 after SIGTERM, and with 137 if the time is too short, which is not its failure."""
    asked, died, failing = "2026-01-01T00:00:30Z", "2026-01-01T00:00:21Z", failed(at="2026-01-01T00:00:22Z")
    pods = [pod(0, deleted=asked, phase="Failed", main=ended(code, at=died)), pod(1, main=RUNS)]
    state, _, analysis = diagnose(job(conditions=failing), pods, [])
    assert (str(state), analysis.fault, analysis.subject, analysis.disrupted) == (
        "Error",
        "job.disrupted",
        "t-0-abcde",
        True,
    )


def test_a_deleted_pod_that_had_failed_before_keeps_its_failure():
    """OOM kills, an earlier error, another container's error: the deletion does not hide them."""
    asked, failing = "2026-01-01T00:00:30Z", failed(at="2026-01-01T00:00:22Z")
    own = [
        ended(137, "OOMKilled", at="2026-01-01T00:00:21Z"),
        ended(1, at="2026-01-01T00:00:21Z"),
        ended(143, at="2026-01-01T00:00:19Z"),
    ]
    for fault, main in zip(("container.oom", "job.failed", "job.failed"), own, strict=True):
        _, _, analysis = diagnose(job(1, failing), [pod(0, "Failed", deleted=asked, main=main)], [])
        assert analysis.fault == fault
    side = {"name": "fetch"} | ended(3, at="2026-01-01T00:00:21Z")
    _, _, analysis = diagnose(
        job(1, failing), [pod(0, "Failed", deleted=asked, init=[side], main=ended(143, at="2026-01-01T00:00:21Z"))], []
    )
    assert analysis.fault == "job.failed" and "exit code 3" in analysis.observed


def test_peers_that_the_failing_job_ends_are_not_its_cause():
    """The Job controller deletes the remaining pods, so their 143 follows from the first pod's failure."""
    failing = failed(at="2026-01-01T00:00:22Z")
    own = pod(1, "Failed", main=ended(65, at="2026-01-01T00:00:21Z"))
    peer = pod(0, "Failed", deleted="2026-01-01T00:00:33Z", main=ended(143, at="2026-01-01T00:00:25Z"))
    _, _, analysis = diagnose(job(conditions=failing), [own, peer], [])
    assert (analysis.fault, analysis.subject) == ("job.failed", "t-1-abcde") and "exit code 65" in analysis.observed


def test_a_taint_of_the_admin_is_a_disruption_and_not_a_lost_node():
    """The taint manager evicts for both, but only an unreachable node is a cluster fault."""
    target = condition(
        "DisruptionTarget", reason="DeletionByTaintManager", message="Taint manager: deleting due to NoExecute taint"
    )
    pods = [pod(0, conditions=[target], deleted="2026-01-01T00:01:00Z", main=RUNS)]
    maintenance = node("n0", taints=[{"key": "maintenance", "effect": "NoExecute"}])
    assert diagnose(job(1), pods, [], [maintenance])[2].disrupted
    away = node("n0", taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}], ready="Unknown")
    assert diagnose(job(1), pods, [], [away])[2].fault == "node.lost"


def test_a_pod_that_goes_before_its_job_is_heard_to_go_gets_a_moment():
    """Job and pods have separate watches: a deleted job must not be reported as a running one with a deleted pod."""
    job = {"metadata": {"name": "j", "uid": "u"}, "spec": {"parallelism": 1}, "status": {"active": 1}}
    pod = {
        "metadata": {"name": "j-0-x", "ownerReferences": [{"uid": "u"}], "deletionTimestamp": "2026-01-01T00:00:10Z"},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }
    state, _, analysis = diagnose(job, [pod], [], name="j")
    assert (state, analysis.disrupted, analysis.grace_s) == ("Running", True, DELETED_S)
    gone = job | {"metadata": job["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert diagnose(gone, [pod], [], name="j")[0] == "Canceled"


def looked(*specs, conditions=()):
    """Return a Job seen with these values in sequence, finally with these conditions, and its history."""
    history = History()
    for spec in specs:
        last = spec is specs[-1]
        seen = job(conditions=conditions if last else (), succeeded=spec.get("completions") if last else 0)
        seen["spec"] |= spec
        history.enter(seen, [])
    return seen, history


SIZES = [{"parallelism": 2, "completions": 2, "suspend": False}]
COMPLETE = [condition("Complete")]


@pytest.mark.parametrize(
    ("change", "conditions", "says"),
    [
        ({"parallelism": 0}, (), "parallelism from 2 to 0"),
        ({"parallelism": 1}, (), "parallelism from 2 to 1"),
        ({"parallelism": 4, "completions": 4}, (), "parallelism from 2 to 4, completions from 2 to 4"),
        ({"parallelism": 1, "completions": 1}, (), "parallelism from 2 to 1, completions from 2 to 1"),
        ({"parallelism": 1, "completions": 1}, COMPLETE, "completions from 2 to 1"),
    ],
)
def test_a_job_that_a_user_resizes_is_interrupted(change, conditions, says):
    """Pods that its controller deletes for it are not deleted by others; a scaled-down job is still Complete."""
    edited, history = looked(*SIZES, SIZES[0] | change, conditions=conditions)
    gone = pod(1, "Running", deleted="2026-01-01T00:00:30Z", main=RUNS)
    _, _, analysis = diagnose(edited, [pod(0, main=RUNS), gone], [], history=history)
    assert (analysis.fault, analysis.subject, analysis.disrupted, analysis.grace_s) == (
        "job.disrupted",
        "job/t",
        True,
        0.0,
    )
    assert says in analysis.observed


def test_a_job_of_no_pods_is_interrupted_also_where_no_one_saw_the_change():
    paused = job()
    paused["spec"] |= {"parallelism": 0}
    assert diagnose(paused, [], [])[2].subject == "job/t"


@pytest.mark.parametrize("change", [{"parallelism": 5}, {"ttlSecondsAfterFinished": 1}, {"backoffLimit": 6}])
def test_an_edit_that_takes_no_rank_away_is_none(change):
    """An Indexed Job never has more concurrent pods than completions."""
    edited, history = looked(*SIZES, SIZES[0] | change)
    assert diagnose(edited, [pod(0, main=RUNS), pod(1, main=RUNS)], [], history=history)[2] is None


def test_a_job_that_is_resized_after_all_ranks_have_succeeded_was_not_interrupted():
    _, history = looked(*SIZES)
    edited = job(conditions=COMPLETE)
    edited["spec"] |= SIZES[0] | {"parallelism": 0}
    edited["status"]["succeeded"] = 2
    history.enter(edited, [])
    done = [pod(rank, "Succeeded", main=ended(0, "Completed")) for rank in (0, 1)]
    assert diagnose(edited, done, [], history=history)[2] is None


@pytest.mark.parametrize(("seconds", "fault"), [(5, "job.disrupted"), (900, "job.deadline"), (1800, "job.deadline")])
def test_a_deadline_that_someone_has_shortened_is_an_interruption(seconds, fault):
    _, history = looked(SIZES[0] | {"activeDeadlineSeconds": 900})
    late = job(conditions=failed("DeadlineExceeded", "Job was active longer than specified deadline"))
    late["spec"] |= SIZES[0] | {"activeDeadlineSeconds": seconds}
    history.enter(late, [])
    assert diagnose(late, [], [], history=history)[2].fault == fault


def test_a_job_that_is_suspended_again_before_it_had_pods_is_interrupted_unless_its_queue_did():
    again, history = looked(*SIZES, SIZES[0] | {"suspend": True})
    assert diagnose(again, [], [], history=history)[2].fault == "job.disrupted"
    assert diagnose(again, [], [], history=history, gang=True)[2] is None
    fresh, history = looked(SIZES[0] | {"suspend": True})
    assert diagnose(fresh, [], [], history=history)[2] is None
