"""The origin of a trial's interruption, as far as the cluster reports it."""

from types import SimpleNamespace

import pytest

from jobs.cluster.client.errors import Forbidden
from jobs.diagnosis.history import History
from jobs.diagnosis.state import ERR_INFRA, FailureAnalysis, JobState, Replica, interrupted
from jobs.diagnosis.verdict import diagnose
from jobs.run.aftermath import after, deleted_by
from jobs.run.launcher import Launcher
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from tests.jobs.objects import RUNS, condition, job, node, pod

UID = "4f1d9b6e-0d4e-4b0c-9a35-1c1d6a4c2f11"


class Kube:
    """Answers lists of events and pods; other requests are forbidden."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def list(self, where, **_):
        self.asked.append(where)
        if (kind := where.rpartition("/")[2]) not in self.answers or (
            where == "/api/v1/pods" and "all" not in self.answers
        ):
            raise Forbidden("GET", status=403, message=f"cannot list {kind}")
        return self.answers[kind], "1"


def said(reason, message, source, name="t-1-abcde"):
    return {
        "involvedObject": {"kind": "Pod", "name": name},
        "reason": reason,
        "message": message,
        "source": {"component": source},
        "lastTimestamp": "2026-01-01T00:00:30Z",
    }


def lost(observed="pod t-1-abcde on n1: Deleted: the pod was deleted by others", **more):
    cause = interrupted("t-1-abcde", observed)
    replicas = (Replica(index=0, pod="t-0-abcde", node="n0"), Replica(index=1, pod="t-1-abcde", node="n1"))
    return TrialResult(job="t", state=JobState.ERROR, replicas=replicas, analysis=cause, **more)


def told(kube, result=None, *, sees_pods=True):
    return deleted_by(kube, "ns", result or lost(), sees_pods=sees_pods).analysis.observed


@pytest.mark.parametrize(
    ("event", "ends"),
    [
        (
            ("ScaleDown", "deleting pod for node scale down", "cluster-autoscaler"),
            "cluster-autoscaler: deleting pod for node scale down",
        ),
        (("Evicted", "Evicted pod: Drifted", "karpenter"), "karpenter: Evicted pod: Drifted"),
        (
            ("HighNodeUtilization", "pod eviction from n1", "sigs.k8s.io/descheduler"),
            "sigs.k8s.io/descheduler: pod eviction from n1",
        ),
        (("Killing", "Stopping container trial", "kubelet"), "no event names the user; the API server's audit log may"),
    ],
)
def test_who_spoke_of_the_pod_that_was_taken_is_named(event, ends):
    assert told(Kube(events=[said(*event)])).endswith(f"by others; {ends}")


@pytest.mark.parametrize(("all_pods", "sees"), [(True, True), (False, False)])
def test_the_pod_that_preempted_is_named_with_its_owner(all_pods, sees):
    """The scheduler reports the uid; a tenant looks for it in its own namespace."""
    owner = {"kind": "Job", "name": "urgent", "controller": True}
    urgent = {"metadata": {"name": "urgent-0", "namespace": "team", "uid": UID, "ownerReferences": [owner]}}
    events = [said("Preempted", f"Preempted by pod {UID} on node n1", "default-scheduler")]
    kube = Kube(events=events, pods=[urgent], **({"all": True} if all_pods else {}))
    assert told(kube, sees_pods=sees).endswith("Preempted by pod team/urgent-0 (Job/urgent) on node n1")
    assert kube.asked[-1] == ("/api/v1/pods" if sees else "/api/v1/namespaces/ns/pods")
    for blind in (Kube(events=events), Kube(events=events, pods=[], all=True)):
        assert told(blind).endswith(f"Preempted by pod {UID} on node n1")


def test_nothing_is_asked_of_a_trial_that_no_one_interrupted():
    """Neither an uninterrupted trial nor an interruption of the whole Job leads to requests."""
    kube = Kube(events=[said("Evicted", "x", "karpenter")])
    failure = FailureAnalysis(
        fault="container.oom", subject="t-1-abcde", observed="o", expected="", suggestion="", err_class=ERR_INFRA
    )
    for cause in (failure, None, interrupted("job/t", "job t: Edited: x")):
        result = TrialResult(job="t", state=JobState.ERROR, replicas=lost().replicas, analysis=cause)
        assert deleted_by(kube, "ns", result, sees_pods=True) is result
    assert kube.asked == []
    assert told(Kube()) == lost().analysis.observed  # events are denied


def test_each_interruption_is_kept_with_the_attempt_that_came_to_its_end():
    good = TrialResult(job="t-2", state=JobState.COMPLETE)
    assert after(lost(), good, 2).interrupted == (lost().analysis.observed,)
    assert good.interrupted == ()


def test_the_taints_of_the_node_are_reported_unless_the_pod_bears_them():
    taken = pod(1, node="n1", main=RUNS, conditions=[condition("DisruptionTarget", reason="EvictionByEvictionAPI")])
    taken["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    scaled = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    for taints, ends in (([gpu, scaled], "; n1 is tainted ToBeDeletedByClusterAutoscaler:NoSchedule"), ([gpu], "")):
        here = node("n1")
        here["spec"] = {"taints": taints}
        _, _, analysis = diagnose(job(), [pod(0, main=RUNS), taken], [], [node("n0"), here])
        assert analysis.observed.partition("EvictionByEvictionAPI")[2].endswith(ends)
        assert ("tainted" in analysis.observed) is bool(ends)


def written(manager, at, field):
    return {"manager": manager, "time": at, "fieldsV1": {"f:spec": {f"f:{field}": {}}}}


@pytest.mark.parametrize(
    ("change", "managed", "who"),
    [
        (
            {"parallelism": 0},
            [written("seatrial", "1", "parallelism"), written("kubectl-scale", "2", "parallelism")],
            "kubectl-scale changed",
        ),
        ({"parallelism": 0}, [written("kube-controller-manager", "3", "suspend")], "an unnamed client changed"),
        ({"parallelism": 0}, [{"manager": "x", "fieldsV1": "odd"}, "odd"], "an unnamed client changed"),
        ({"suspend": True}, [written("kueue", "2", "suspend"), written("seatrial", "1", "suspend")], "kueue suspended"),
    ],
)
def test_who_edited_the_job_is_reported_by_its_managed_fields(change, managed, who):
    history, first, now = History(ran=True), job(), job()
    now["spec"] |= change
    now["metadata"]["managedFields"] = managed
    history.enter(first, [])
    history.enter(now, [])
    assert f": {who} the job while it ran" in diagnose(now, [], [], history=history)[2].observed


@pytest.mark.parametrize("fault", ["node.lost", "job.failed"])
@pytest.mark.parametrize("given_up", [True, False])
def test_what_is_deleted_after_the_trial_knows_its_lost_nodes(monkeypatch, fault, given_up):
    """Pods on lost nodes cannot end and are not waited for, after a stopped trial and after a failed Job."""
    replicas = (Replica(index=0, pod="t-0", node="n0"), Replica(index=1, pod="t-1", node="n1", fault=fault))
    result = TrialResult(job="t", state=JobState.ERROR, replicas=replicas, given_up=given_up)
    known = []
    creation = SimpleNamespace(warned=(), lost=frozenset(), give_up=lambda: known.append(creation.lost))
    monkeypatch.setattr(Launcher, "_created", lambda *_: (creation, None))
    monkeypatch.setattr(Launcher, "_watched", lambda *_: result)
    asked = TrialSpec(run_id="abc", namespace="ns", image="i:1")
    Launcher(Kube())._once(asked, SimpleNamespace(kind=None))
    assert creation.lost == ({"n1"} if fault == "node.lost" else set())
    assert known == [creation.lost] * given_up


TAKEN = "pod t-1-abcde on n1: PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod"


def test_who_preempted_comes_before_what_is_left_for_another_attempt(monkeypatch):
    """A headline has room for the first words only: the first event and its cause."""
    urgent = {"metadata": {"name": "urgent-0", "namespace": "team", "uid": UID}}
    kube = Kube(events=[said("Preempted", f"Preempted by pod {UID} on node n1", "default-scheduler")], pods=[urgent])
    kube.answers["all"] = True
    first = deleted_by(kube, "ns", lost(TAKEN), sees_pods=True)
    monkeypatch.setattr(Launcher, "_once", lambda *_: first)
    monkeypatch.setattr("jobs.run.launcher.namespace_gone", lambda *_: "")
    left = "n1 has no room (0 of 8 free): 1 of 2 nodes are left for another attempt"
    asked = TrialSpec(run_id="abc", namespace="ns", image="i:1")
    result = Launcher(Kube(), room=lambda *_: left).run(asked, {})
    by = "pod t-1-abcde on n1: default-scheduler: Preempted by pod team/urgent-0 on node n1"
    assert (result.analysis.fault, result.analysis.observed) == ("job.disrupted", f"{by}; {left}")
    assert not result.interrupted and result.attempts == 1


def test_a_preemption_that_no_event_shows_keeps_the_words_of_the_pod():
    assert told(Kube(events=[]), lost(TAKEN)) == TAKEN
