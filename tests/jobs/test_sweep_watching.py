"""The sweep's watcher with a scripted API server: its requests, accepted sources, and end."""

from __future__ import annotations

import json
from collections import Counter
from threading import Event

import pytest

from jobs.run.evidence import taken
from jobs.run.sweep_watcher import SweepWatcher
from jobs.run.waiting import Limits
from tests.jobs.conftest import drips
from tests.waiting import HANG_S

LABELS = {"batch.kubernetes.io/job-name": "t"}
RUNNING = {"name": "trial", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "containerID": "c://1"}
GONE = {"name": "trial", "state": {"terminated": {"exitCode": 137}}, "containerID": "c://1"}
NOON = "2026-01-01T12:00:00Z"


def job(nodes):
    return {
        "kind": "Job",
        "metadata": {"name": "t", "namespace": "default", "uid": "u"},
        "spec": {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes, "backoffLimit": 0},
        "status": {"conditions": [], "startTime": "2026-01-01T00:00:00Z"},
    }


def pod(index, state=None, *, name="", owner="u", phase="Running"):
    return {
        "metadata": {
            "name": name or f"t-{index}-x",
            "uid": name or f"p{index}",
            "labels": {**LABELS, "batch.kubernetes.io/job-completion-index": str(index)},
            "ownerReferences": [{"kind": "Job", "name": "t", "uid": owner}],
        },
        "spec": {"nodeName": f"n{index}", "containers": [{"name": "trial", "image": "i:1"}]},
        "status": {"phase": phase, "containerStatuses": [state or RUNNING]},
    }


def node(name):
    """Return a node whose kubelet has stopped reporting."""
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": NOON}
    return {"metadata": {"name": name, "uid": name}, "spec": {}, "status": {"conditions": [ready]}}


def unready(lost_pod):
    """Return a pod in the state that the node controller sets when its node is lost."""
    lost_pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    return lost_pod


def line(number, stage, data, *, at=NOON, run="r1", rank=0):
    message = {"seatrial": 1, "run": run, "rank": rank, "n": number, "stage": stage, "seconds": 1, "data": data}
    return f"{at} {json.dumps(message)}".encode()


ROUND = {
    "number": 1,
    "stage": 1,
    "seconds": 1.0,
    "tests": [{"nodes": ["n0", "n1"], "outcome": "measured", "busbw": 1.0}],
}
END = {"seconds": 1.0, "stopped": None}
WHOLE = [line(1, "sweep.round.1", ROUND), line(2, "sweep.end", {"why": ""}), line(3, "end", END)]


class World:
    """One Job and its pods; each pod's log is a list of lines, which ends with the pod's container."""

    def __init__(self, nodes, pods, logs, lost=()):
        self.job, self.pods, self.logs = job(nodes), pods, logs
        self.nodes = [node(name) for name in lost]

    def answer(self, asked):
        if asked.query.get("watch"):
            return 200, {}, drips()
        if asked.path.endswith("/log"):
            log = self.logs.get(asked.path.split("/")[-2], [])
            return 200, {}, log() if callable(log) else iter([b"\n".join(log) + b"\n"])
        resource = asked.path.rpartition("/")[2]
        items = {"jobs": [self.job], "pods": self.pods, "nodes": self.nodes, "events": []}[resource]
        return 200, {}, {"metadata": {"resourceVersion": "1"}, "items": items}


@pytest.fixture
def sweep(kube, api, monkeypatch):
    """Watch a sweep to its end; return the observed job states, and the coordinator's reports."""
    monkeypatch.setattr("jobs.run.watcher._TICK_S", 0.05)
    monkeypatch.setattr("jobs.run.sweep_watcher.END_S", 0.3)
    monkeypatch.setattr("jobs.run.sweep_watcher.LAG_S", 1.0)
    monkeypatch.setattr("jobs.run.sweep_watcher.NODE_LOST_S", 1.0)

    def watch(nodes, pods, logs, *, job_s=HANG_S, lost=()):
        api.answer = World(nodes, pods, logs, lost).answer
        limits = Limits(start_s=HANG_S, job_s=job_s)
        watcher = SweepWatcher(kube, job="t", namespace="default", run="r1", limits=limits)
        outcome = watcher.keep()
        watch.placed, watch.ran, watch.heard = watcher.placed, watcher.ran, watcher.all_evidence()
        return outcome, watcher.evidence()

    return watch


@pytest.mark.parametrize("nodes", [2, 64])
def test_what_is_asked_does_not_grow_with_the_fleet(sweep, api, nodes):
    """One list and one watch of the job and of its pods, and one log, for any N; events at most three times."""
    outcome, evidence = sweep(nodes, [pod(n) for n in range(nodes)], {"t-0-x": WHOLE})
    assert outcome.analysis is None
    assert evidence.complete and set(evidence.stages) == {"sweep.round.1", "sweep.end", "end"}
    asked = Counter((each.path.rpartition("/")[2], bool(each.query.get("watch"))) for each in api.asked)
    assert {key: asked[key] for key in asked if key[0] in ("jobs", "pods")} == {
        ("jobs", False): 1,
        ("jobs", True): 1,
        ("pods", False): 1,
        ("pods", True): 1,
    }
    assert {each.path for each in api.asked if each.path.endswith("/log")} == {
        "/api/v1/namespaces/default/pods/t-0-x/log"
    }
    assert asked["events", False] <= 3
    assert not asked["nodes", False]


def test_pods_that_are_lost_do_not_end_a_sweep(sweep):
    """Three of eight have died: the coordinator continues and reports them itself."""
    pods = [pod(n, GONE if n > 4 else RUNNING, phase="Failed" if n > 4 else "Running") for n in range(8)]
    outcome, evidence = sweep(8, pods, {"t-0-x": WHOLE})
    assert (outcome.analysis, evidence.complete) == (None, True)


def test_a_failed_job_does_not_precede_the_end_that_its_coordinator_had_printed(sweep, api, monkeypatch):
    """The log arrives after the pods' states, as on a busy machine."""
    monkeypatch.setattr("jobs.run.watcher._BEHIND_S", 0.0)
    seen, drain = Event(), SweepWatcher._drain
    monkeypatch.setattr(SweepWatcher, "_drain", lambda self, *limits: (seen.set(), drain(self, *limits))[1])
    pods = [pod(n, GONE if n > 4 else RUNNING, phase="Failed" if n > 4 else "Running") for n in range(8)]

    def late():
        assert seen.wait(HANG_S)
        yield b"\n".join(WHOLE) + b"\n"

    outcome, evidence = sweep(8, pods, {"t-0-x": late})
    assert (outcome.analysis, evidence.complete) == (None, True)


def test_lines_that_come_twice_are_counted_once(sweep):
    """A log read again from a second on repeats lines; other output between them is skipped."""
    noise = [f"{NOON} {text}".encode() for text in ("hello", '{"seatrial"', '{"seatrial": 1, "run": []}', "\x00\xff")]
    outcome, evidence = sweep(2, [pod(0), pod(1)], {"t-0-x": [*noise, WHOLE[0], WHOLE[0], *noise, *WHOLE]})
    assert outcome.analysis is None
    assert (evidence.problem, evidence.missing, evidence.complete) == ("", (), True)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (line(1, "sweep.round.1", {**ROUND, "number": 7}), "line 1 of the evidence was sent twice, and differs"),
        (line(4, "sweep.round.1", ROUND), "stage sweep.round.1 was reported twice"),
        (line(4, "sweep.round.2", {"tests": "none"}), "not in the probe's format"),
    ],
)
def test_a_log_that_contradicts_itself_is_no_whole_sweep(sweep, more, problem):
    """The first line counts, and the problem is reported: such a sweep is not go."""
    _, evidence = sweep(2, [pod(0), pod(1)], {"t-0-x": [WHOLE[0], more, *WHOLE[1:]]})
    assert problem in evidence.problem and not evidence.complete
    assert evidence.stages["sweep.round.1"] == taken("sweep.round.1", ROUND)[0]


def test_words_of_other_runs_and_ranks_are_nobodys(sweep):
    """An agent that prints rounds is not the coordinator."""
    strange = [line(1, "sweep.round.9", ROUND, run="r2"), line(1, "sweep.round.8", ROUND, rank=3)]
    _, evidence = sweep(2, [pod(0), pod(1)], {"t-0-x": [WHOLE[0], *strange, *WHOLE[1:]], "t-1-x": strange})
    assert set(evidence.stages) == {"sweep.round.1", "sweep.end", "end"}


def test_a_clock_that_jumps_loses_nothing(sweep):
    """A log's timestamps follow the node's clock back and forth, so lines are identified by number."""
    stamps = ("2026-01-01T12:00:00Z", "2019-01-01T00:00:00Z", "2031-01-01T00:00:00Z")
    log = [
        line(n + 1, stage, data, at=at)
        for n, (stage, data, at) in enumerate(
            zip(("sweep.round.1", "sweep.end", "end"), (ROUND, {"why": ""}, END), stamps, strict=True)
        )
    ]
    outcome, evidence = sweep(2, [pod(0), pod(1)], {"t-0-x": log})
    assert (outcome.analysis, evidence.complete) == (None, True)


def test_a_coordinator_that_is_gone_is_the_end_and_reported(sweep):
    """kill -9 of rank 0: its reports are kept, and other pods are not waited for."""
    dead = pod(0, GONE, phase="Failed")
    outcome, evidence = sweep(3, [dead, pod(1), pod(2)], {"t-0-x": WHOLE[:1]})
    assert outcome.analysis is not None and outcome.analysis.subject == "t-0-x"
    assert set(evidence.stages) == {"sweep.round.1"} and not evidence.complete


DONE = {"name": "trial", "state": {"terminated": {"exitCode": 0}}, "containerID": "c://1"}


def test_a_leader_whose_node_is_lost_is_the_end_and_nobodys_fault(sweep):
    """The leader's pod status remains Running; the other agents have ended without it."""
    finished = [pod(n, DONE, phase="Succeeded") for n in (1, 2)]
    again = pod(0, name="t-0-y")  # created by the Job as a replacement
    outcome, evidence = sweep(3, [unready(pod(0)), again, *finished], {"t-0-x": WHOLE[:1]}, lost=["n0"])
    analysis = outcome.analysis
    assert (analysis.fault, analysis.subject, analysis.disrupted, analysis.err_class) == ("node.lost", "n0", True, None)
    assert set(evidence.stages) == {"sweep.round.1"}


def test_a_leader_that_the_api_server_does_not_see_is_waited_for_while_agents_run(sweep):
    """Agents would end without a leader, so the sweep continues until its deadline."""
    outcome, _ = sweep(2, [unready(pod(0)), pod(1)], {"t-0-x": WHOLE[:1]}, lost=["n0"], job_s=3.0)
    assert outcome.analysis.fault == "job.deadline"


def test_a_second_pod_of_rank_0_is_not_believed(sweep):
    """A second pod of rank 0 has no data of the first one's rounds."""
    dead = pod(0, GONE, phase="Failed")
    again = pod(0, name="t-0-y")
    outcome, evidence = sweep(2, [dead, again, pod(1)], {"t-0-x": WHOLE[:1], "t-0-y": WHOLE})
    assert outcome.analysis is not None
    assert set(evidence.stages) == {"sweep.round.1"}


def test_a_pod_of_someone_else_does_not_lead(sweep, api):
    """Any user can write labels; the job's own pod comes later, and is followed."""
    stranger = pod(0, name="a-stranger", owner="another")
    forged = [line(1, "sweep.end", {"why": ""}), line(2, "end", END)]
    _, evidence = sweep(2, [stranger, pod(0), pod(1)], {"a-stranger": forged, "t-0-x": WHOLE})
    assert "sweep.round.1" in evidence.stages
    assert not [each for each in api.asked if "a-stranger" in each.path]


def test_where_pods_were_is_the_api_servers_word(sweep):
    """The API server's placement includes completed and recreated pods, but neither unscheduled nor foreign ones."""
    unbound = pod(3, phase="Pending")
    del unbound["spec"]["nodeName"]
    again = pod(1, name="t-1-y")
    again["spec"]["nodeName"] = "n9"
    stranger = pod(2, name="a-stranger", owner="another")
    stranger["spec"]["nodeName"] = "n7"
    sweep(4, [pod(0), pod(1, GONE, phase="Failed"), again, pod(2), stranger, unbound], {"t-0-x": WHOLE})
    assert sweep.placed == {"n0": {0}, "n1": {1}, "n9": {1}, "n2": {2}}


def test_a_sweep_that_reports_nothing_ends_by_its_deadline(sweep):
    """The pods run silently: overdue, with the last state, and without results."""
    outcome, evidence = sweep(2, [pod(0), pod(1)], {}, job_s=1.0)
    assert outcome.analysis is not None and outcome.analysis.fault == "job.deadline"
    assert evidence.stages == {}


def test_the_nodes_on_which_pods_have_run_are_known(sweep):
    waiting = {"name": "trial", "state": {"waiting": {"reason": "ContainerCreating"}}}
    sweep(3, [pod(0, GONE, phase="Failed"), pod(1), pod(2, waiting, phase="Pending")], {"t-0-x": WHOLE[:1]})
    assert (sweep.ran, set(sweep.placed)) == ({"n0", "n1"}, {"n0", "n1", "n2"})


MET_TWO = {"nodes": ["n0", "n1", "n2"], "gone": {"n2": "its agent did not connect"}, "ranks": {"n0": 0, "n1": 1}}
WHY = {"address": "t-0.t:29500 (10.0.0.1)", "error": "connection refused"}


def test_only_pods_that_the_coordinator_has_not_met_are_heard(sweep, api):
    """Pods that the coordinator has not met report the reason; met, pending and foreign pods are not read."""
    waiting = {"name": "trial", "state": {"waiting": {"reason": "ContainerCreating"}}}
    stranger = pod(2, name="a-stranger", owner="another")
    pods = [pod(0), pod(1), pod(2), pod(3, waiting, phase="Pending"), stranger]
    counted = [line(1, "sweep.fleet.1", MET_TWO), line(2, "sweep.end", {"why": ""}), line(3, "end", END)]
    unmet = [line(1, "start", {}, rank=0), line(2, "sweep.agent.1", WHY, rank=0)]  # the API gives the rank
    outcome, evidence = sweep(4, pods, {"t-0-x": counted, "t-2-x": unmet, "a-stranger": unmet})
    assert (outcome.analysis, evidence.complete) == (None, True)
    assert set(sweep.heard) == {0, 2}
    assert sweep.heard[2].stages["sweep.agent.1"] == WHY
    logs = {each.path.split("/")[-2] for each in api.asked if each.path.endswith("/log")}
    assert logs == {"t-0-x", "t-2-x"}


def test_of_many_pods_that_are_not_met_some_are_heard(sweep, api):
    """A broken network has one reason on all nodes; if one of the pods is gone by then, the sweep does not end."""
    counted = [
        line(1, "sweep.fleet.1", {"nodes": [], "ranks": {"n0": 0}}),
        line(2, "sweep.end", {"why": ""}),
        line(3, "end", END),
    ]
    outcome, _ = sweep(64, [pod(n) for n in range(64)], {"t-0-x": counted})
    assert outcome.analysis is None
    assert len({each.path for each in api.asked if each.path.endswith("/log")}) == 17
