"""The watcher with a scripted API server: its requests, and its conclusions from partial answers."""

from __future__ import annotations

import datetime
import json
import threading
from types import SimpleNamespace

import pytest

from jobs.diagnosis.state import ERR_INFRA, Replica
from jobs.diagnosis.verdict import diagnose
from jobs.run.waiting import Limits, WatchOutcome, too_late
from jobs.run.watcher import Watcher
from tests.jobs.conftest import drips
from tests.waiting import HANG_S

JOB = {
    "kind": "Job",
    "metadata": {"name": "t", "namespace": "default", "uid": "u"},
    "spec": {"completionMode": "Indexed", "completions": 1, "parallelism": 1, "backoffLimit": 0},
    "status": {"conditions": [], "startTime": "2026-01-01T00:00:00Z"},
}
DONE = JOB | {"status": {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1}}
NO_ROOM = "0/{} nodes are available: {} Insufficient nvidia.com/gpu."


def pod(phase="Pending", **status):
    labels = {"batch.kubernetes.io/job-name": "t", "batch.kubernetes.io/job-completion-index": "0"}
    gpus = {"resources": {"requests": {"nvidia.com/gpu": "8"}}}
    return {
        "metadata": {
            "name": "t-0-x",
            "uid": "p",
            "labels": labels,
            "ownerReferences": [{"kind": "Job", "name": "t", "uid": "u"}],
        },
        "spec": {"containers": [{"name": "trial", "image": "i:1", **gpus}]},
        "status": {"phase": phase, **status},
    }


def node(number, gpus):
    offered = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "metadata": {"name": f"n{number}"},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": offered, "allocatable": offered},
    }


class World:
    """Lists and watches of one Job and its pod; nodes in pages, as requested."""

    def __init__(self, job, pods, nodes=(), log=b""):
        self.job, self.pods, self.nodes, self.log = job, pods, list(nodes), log
        self.refusals = []
        self.changes = {}  # by resource: events of its watch after the log is read
        self.log_read = threading.Event()

    def answer(self, asked):
        if self.refusals:
            return self.refusals.pop(), {}, {"kind": "Status", "reason": "Forbidden", "message": "not now"}
        if asked.query.get("watch"):
            return 200, {}, self._events(self.changes.pop(asked.path.rpartition("/")[2], ()))
        if asked.path.endswith("/log") and isinstance(self.log, str):  # the reason that the kubelet cannot be reached
            return 500, {}, {"kind": "Status", "message": f'Get "https://10.0.0.7:10250/containerLogs": {self.log}'}
        if asked.path.endswith("/log"):
            self.log_read.set()
            return 200, {}, iter([self.log])
        resource = asked.path.rpartition("/")[2]
        items = {"jobs": [self.job], "pods": self.pods, "nodes": self.nodes, "events": []}[resource]
        begin, size = int(asked.query.get("continue") or 0), int(asked.query.get("limit") or 500)
        more = {"continue": str(begin + size)} if begin + size < len(items) else {}
        return 200, {}, {"metadata": {"resourceVersion": "1", **more}, "items": items[begin : begin + size]}

    def _events(self, changes):
        for type_, item in changes:
            self.log_read.wait(HANG_S)
            self.job, self.pods = (self.job, []) if type_ == "DELETED" else (item, self.pods)
            yield json.dumps({"type": type_, "object": item}).encode() + b"\n"
        yield from drips()


def watched(kube, api, world, **more):
    api.answer = world.answer
    limits = Limits(start_s=more.pop("start_s", HANG_S), job_s=HANG_S, queue_s=more.pop("queue_s", HANG_S))
    return Watcher(kube, job="t", namespace="default", run="r1", limits=limits, **more).keep()


@pytest.fixture
def waiting(monkeypatch):
    """Return an unschedulable pod, and a watcher that stops hopeless waits at once."""
    monkeypatch.setattr("jobs.diagnosis.not_started.JOINING_S", 0.2)
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": NO_ROOM.format(600, 600),
    }
    return pod(conditions=[unschedulable])


def test_a_start_is_hopeless_only_when_no_node_of_any_page_could_take_the_pod(kube, api, waiting):
    """The first 500 nodes have no GPUs, the next have 8 in use by others: waiting helps."""
    many = [node(number, 0) for number in range(550)]
    outcome = watched(kube, api, World(JOB, [waiting], [*many, *(node(600 + n, 8) for n in range(50))]), start_s=3.0)
    assert "given up" not in outcome.analysis.observed
    assert "1 of 1 pods have not started after" in outcome.analysis.observed
    outcome = watched(kube, api, World(JOB, [waiting], [*many, *(node(600 + n, 4) for n in range(50))]), start_s=HANG_S)
    assert "given up" in outcome.analysis.observed


def test_who_does_not_see_nodes_does_not_ask_for_them(kube, api, waiting):
    """A tenant's Role does not include nodes."""
    outcome = watched(kube, api, World(JOB, [waiting], [node(0, 8)]), start_s=2.0, sees_nodes=False)
    assert outcome.analysis.fault == "job.unschedulable"
    assert not [asked for asked in api.asked if "/nodes" in asked.path]


@pytest.mark.parametrize("code", [401, 403, 404, 503])
def test_a_server_that_refuses_for_a_moment_is_waited_for(kube, api, code):
    """A server restarted just before the first list has not read its roles: neither an error nor the trial's end."""
    ended = {"name": "trial", "state": {"terminated": {"exitCode": 0}}, "containerID": "containerd://1"}
    end = json.dumps({"seatrial": 1, "run": "r1", "rank": 0, "n": 1, "stage": "end", "seconds": 0, "data": {}})
    world = World(DONE, [pod("Succeeded", containerStatuses=[ended])], log=b"2026-01-01T00:00:00Z %s\n" % end.encode())
    world.refusals = [code] * 6
    outcome = watched(kube, api, world)
    assert (str(outcome.state), outcome.analysis) == ("Complete", None)


def test_a_refusal_that_lasts_is_reported(kube, api, monkeypatch):
    """Waiting does not grant a missing permission: the API server's message is quoted."""
    monkeypatch.setattr("jobs.run.watcher._EXPIRED_S", 0.5)
    world = World(DONE, [])
    world.refusals = [403] * 1000
    with pytest.raises(Exception, match="403 Forbidden"):
        watched(kube, api, world)


def test_a_log_that_the_api_server_cannot_fetch_is_the_end_of_a_job_that_completed(kube, api, monkeypatch):
    """The job is Complete but its log is unreadable, so the run does not pass and quotes the dialer's message."""
    monkeypatch.setattr("jobs.run.watcher._DRAIN_S", 0.5)
    ended = {"name": "trial", "containerID": "containerd://1", "state": {"terminated": {"exitCode": 0}}}
    world = World(DONE, [pod("Succeeded", containerStatuses=[ended])])
    world.log = "dial tcp 10.0.0.7:10250: connect: connection refused"
    outcome = watched(kube, api, world)
    assert (str(outcome.state), outcome.analysis.fault) == ("Complete", "job.log-unreachable")
    assert world.log in outcome.analysis.observed


def test_a_pod_that_a_user_deleted_while_its_job_succeeded_was_interrupted(kube, api, monkeypatch):
    """The probe exits with 0 after SIGTERM, and the Job counts its pod as succeeded."""
    for patience in ("_DRAIN_S", "_BEHIND_S"):
        monkeypatch.setattr(f"jobs.run.watcher.{patience}", 0.5)
    running = pod("Running", containerStatuses=[{"name": "trial", "state": {"running": {"startedAt": "2026-01-01"}}}])
    world = World(JOB, [running], log=b"no end\n")
    world.changes = {"pods": [("DELETED", running)], "jobs": [("MODIFIED", DONE)]}
    outcome = watched(kube, api, world)
    assert (str(outcome.state), outcome.analysis.fault, outcome.analysis.disrupted) == (
        "Complete",
        "job.disrupted",
        True,
    )


@pytest.mark.parametrize(("waiting", "fault"), [(True, "queue.waiting"), (False, "job.start-timeout")])
def test_the_time_in_which_pods_start_begins_when_the_queue_lets_the_job_in(kube, api, waiting, fault):
    queue = SimpleNamespace(waiting=waiting, admitted_s=0.0, look=lambda *_, **__: None, symptom=lambda: None)
    outcome = watched(kube, api, World(JOB, []), start_s=0.5, queue_s=2.0, queueing=queue)
    assert outcome.analysis.fault == fault


@pytest.mark.parametrize(("phase", "late"), [("Pending", True), ("Running", False)])
def test_one_pod_that_runs_is_all_that_a_trial_of_one_waits_for(kube, phase, late):
    """A single pod's own time may exceed the time in which pods must start."""
    watcher = Watcher(kube, job="t", namespace="default", run="r1", limits=Limits(start_s=0.0, job_s=60.0))
    state = {"running": {"startedAt": "2026-01-01"}} if phase == "Running" else {"waiting": {}}
    pods = [pod(phase, containerStatuses=[{"name": "trial", "state": state}])]
    outcome = WatchOutcome(replicas=(Replica(index=0, pod="t-0-x", phase=phase),), pods=pods)
    assert watcher._expired(outcome, 1.0) is late


def test_what_only_the_clock_changes_is_reported_too_and_nothing_is_concluded_twice(kube, api, monkeypatch):
    """Objects and events do not change while an unscheduled pod gets old enough, and only that is reported."""
    monkeypatch.setattr("jobs.diagnosis.not_started.YOUNG_S", HANG_S)
    monkeypatch.setattr("jobs.diagnosis.not_started.SCHEDULER_S", 2.0)
    concluded = []

    def concluding(*known, **more):
        concluded.append(diagnose(*known, **more))
        monkeypatch.setattr("jobs.diagnosis.not_started.YOUNG_S", 0.0)  # it is old enough after one look
        return concluded[-1]

    monkeypatch.setattr("jobs.run.watcher.diagnose", concluding)
    alone = pod("Pending")
    alone["metadata"]["creationTimestamp"] = datetime.datetime.now(datetime.UTC).isoformat()
    outcome = watched(kube, api, World(JOB, [alone]), start_s=HANG_S)
    assert outcome.analysis.fault == "job.no-scheduler"
    causes = [cause and cause.fault for _, _, cause in concluded]
    assert causes[0] is None and causes[-1] == "job.no-scheduler"
    assert len(causes) <= 4  # of about ten looks: young, old enough, and with the nodes read then and at the end


@pytest.mark.parametrize(("queued", "blame"), [(True, None), (False, ERR_INFRA)], ids=["queued", "begun"])
def test_a_full_queue_is_no_fault_of_a_cluster_of_pods_that_do_not_start(queued, blame):
    """Pods of a full queue wait for other workloads; admitted pods that do not start are a cluster fault."""
    late = WatchOutcome(replicas=(Replica(index=0, pod="t-0", phase="Running"), Replica(index=1, pod="t-1")))
    analysis = too_late("t", Limits(start_s=60.0, job_s=600.0), late, 61.0, 1, "no pods", queued=queued)
    assert (analysis.fault, analysis.err_class) == ("job.start-timeout", blame)
    assert "1 of 2 pods have not started after 61 s" in analysis.observed


@pytest.mark.parametrize(("made", "asked"), [("", True), ("t-0-x", False)], ids=["no pod", "a pod"])
def test_where_no_one_has_made_a_pod_its_controller_is_asked_for(made, asked):
    """A controller that is down leaves no event with the reason."""
    late = WatchOutcome(replicas=(Replica(index=0, pod=made), Replica(index=1)))
    analysis = too_late("t", Limits(start_s=60.0, job_s=600.0), late, 61.0, 0, "no pods", queued=False)
    assert ("kube-controller-manager" in analysis.suggestion) is asked
    assert ("The last event" in analysis.suggestion) is not asked
