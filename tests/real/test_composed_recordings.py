"""Timelines composed from recorded ones: two problems of a cluster at a time, and a broken watch.

The expectation follows from Kubernetes' own rules, which each test names.
"""

from dataclasses import replace

import pytest

from tests.examples import rest_is_slow
from tests.real.composed import (
    case_of,
    event,
    first,
    is_pod,
    later_from,
    namespace_goes,
    node_says,
    rewritten,
    stamp,
    then,
    with_more,
    without,
)
from tests.real.playing import Expected, play, wrong
from tests.real.server import Cut
from tests.real.test_real_recordings import HELD_S, said
from tests.real.variants import VARIANTS, cut, delayed, prefixes

HEARD = ("as recorded", "batches of 3 s", "Pods 1.5 s late", "Jobs 1.5 s late", "short gaps x10")
IN_EACH_WAY = pytest.mark.parametrize(
    "heard", [*HEARD[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in HEARD[2:])]
)
EVERY = rest_is_slow(every=20)
"""Step through a timeline's events; the slow half takes each of them."""
CREATING = {"waiting": {"reason": "ContainerCreating"}}


def expecting(case, ends, cause, subject=""):
    """Return the case with a different expected end."""
    return replace(case, expected=Expected(case.expected.job, ends, cause, subject))


def right_at_prefixes(case, change, every, ways=HEARD):
    """Assert it for the composed timeline in several variants, and paused after every so many events."""
    outcomes = {name: play(case, then(change, VARIANTS[name])) for name in ways}
    held = prefixes(change(case.play), HELD_S, outcomes["as recorded"].until)
    outcomes |= {name: play(case, then(change, hold)) for name, hold in list(held.items())[::every]}
    assert {name: problem for name, each in outcomes.items() if (problem := wrong(case, each))} == {}


def container(item):
    return (item.get("status", {}).get("containerStatuses") or [{}])[0]


def in_pull(case, rank, *, condition="EvictionByEvictionAPI"):
    """Return a case in which a rank's pod never runs: its image is still being pulled when it is deleted.

    A kubelet that terminates such a pod reports the container as ended with 137, ContainerStatusUnknown, without a
    time. The pod is Failed (pkg/kubelet/status/status_manager.go, TerminatePod).
    """
    selected = is_pod(rank, case)

    def edit(item):
        status = item.get("status", {})
        for one in status.get("containerStatuses") or []:
            if "terminated" in one["state"]:
                message = "The container could not be located when the pod was terminated"
                gone = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": message}
                one["state"] = {"terminated": gone | {"startedAt": None, "finishedAt": None}}
            else:
                one["state"] = dict(CREATING)
            one |= {"ready": False, "started": False}
        status["phase"] = "Pending" if status.get("phase") == "Running" else status.get("phase")
        for each in status.get("conditions") or []:
            if each["type"] in ("Ready", "ContainersReady") and each["status"] == "True":
                each |= {"status": "False", "reason": "ContainersNotReady"}
            if each["type"] == "DisruptionTarget":
                each |= {"reason": condition, "message": f"{condition}: evicting"}
        if not condition:
            status["conditions"] = [c for c in status.get("conditions") or [] if c["type"] != "DisruptionTarget"]

    pod = first(case, selected)
    spoken = ("Pulled", "Created", "Started", "Preempted", "Killing")
    return then(
        rewritten(selected, edit),
        without(
            lambda c: (
                c.kind == "Event" and c.object["reason"] in spoken and c.object["involvedObject"]["name"] == pod.name
            )
        ),
        with_more(
            event(case, pod.object, pod.at + 0.4, reason="Pulling", message='Pulling image "py:1"', severity="Normal")
        ),
    )


# -- the second attempt ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "ends", "cause"),
    [
        ("11-quota-none", "given-up", "quota.exceeded"),
        ("11b-quota-one-pod", "given-up", "quota.exceeded"),
        ("14-admission", "given-up", "admission.denied"),
        ("05-oom", "failed", "container.oom"),
        ("26-kubelet-stopped", "given-up", "node.lost"),
        ("20b-configmap", "given-up", "volume.mount"),
        ("17-job-deleted", "deleted", "job.disrupted"),
        ("01-healthy-a", "completed", None),
    ],
)
@IN_EACH_WAY
def test_what_the_second_attempt_meets_is_reported(second, ends, cause, heard):
    """An interruption is not a fault, and the next attempt's obstacle is not caused by it: a quota removes no pods."""
    case = expecting(case_of("25b-preempted"), ends, cause)
    outcome = play(case, VARIANTS[heard], then=case_of(second))
    assert (outcome.ends, outcome.fault, outcome.attempts) == (ends, cause, 2), outcome


def test_no_room_after_an_interruption_is_of_the_interruption():
    """Every rank had a node before, so the lack of room is a consequence of the preemption."""
    case = case_of("25b-preempted")
    outcome = play(case, then=case_of("08-selector"))
    assert not wrong(case, outcome), outcome
    assert "retry: " in outcome.observed


@pytest.mark.parametrize(
    ("back", "ends", "cause"), [(True, "completed", None), (False, "interrupted", "job.disrupted")]
)
def test_a_node_that_an_interruption_left_cordoned_is_waited_for_a_minute(back, ends, cause):
    """Without visible nodes only the scheduler reports it. Only a person or an autoscaler adds another node."""
    case, second = expecting(case_of("25b-preempted"), ends, cause), case_of("02b-cordoned")
    stays = without(lambda c: c.at > second.play.start + 10)
    outcome = play(case, then=second if back else replace(second, play=stays(second.play)))
    assert (outcome.ends, outcome.fault, outcome.attempts) == (ends, cause, 2), outcome
    assert outcome.after_s < 90
    assert play(replace(second, play=stays(second.play))).after_s > 600  # a first attempt has all of its time


def test_a_rank_that_waits_while_another_runs_is_said_with_each_step():
    """A log has one line per 15 s."""
    said_so_far = []
    case = case_of("02b-cordoned")
    logs = {"0": said(case, 0, {"start": {}, "end": {}})}
    play(case, progress=said_so_far.append, logs=logs)
    steps = [text for text in said_so_far if text.startswith("rank 0: ")]
    assert all("it waits for rank 1, which is Pending (Unschedulable: 0/2 nodes" in text for text in steps) and steps
    said_so_far.clear()
    healthy = case_of("01-healthy-a")
    play(healthy, progress=said_so_far.append, logs={"0": said(healthy, 0, {"start": {}, "end": {}})})
    assert "waits for" not in str([text for text in said_so_far if text.startswith("rank 0: ")])


# -- a namespace that is deleted ---------------------------------------------------------------------------------------


def taken(case):
    """Return the moment at which the first pod is deleted."""
    return first(case, lambda c: c.kind == "Pod" and c.object["metadata"].get("deletionTimestamp")).at


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(("name", "ends"), [("25b-preempted", "interrupted"), ("17-job-deleted-b", "deleted")])
@IN_EACH_WAY
def test_a_namespace_that_a_user_deletes_is_an_interruption(name, ends, gone, heard):
    """A namespace's controller deletes pods and Job in any order; a second Job is refused (403), or finds no namespace
    (404)."""
    case = expecting(case_of(name), ends, "job.disrupted")
    outcome = play(case, then(with_more(namespace_goes(case, taken(case) - 0.1, gone=gone)), VARIANTS[heard]))
    assert not wrong(case, outcome) and outcome.attempts == 1, outcome
    assert outcome.observed.startswith(f"namespace {case.recording.namespace} {'was' if gone else 'is being'} deleted")


@pytest.mark.parametrize(("name", "cause"), [("04-both", "job.failed"), ("20b-config", "volume.mount")])
def test_what_a_namespace_on_its_way_out_makes_fail_is_an_interruption_and_else_none(name, cause):
    """A terminating namespace's ConfigMaps, Secrets and Services are deleted before its pods."""
    case = case_of(name)
    assert play(case).fault == cause
    outcome = play(case, with_more(namespace_goes(case, case.play.start + 1.0)))
    assert outcome.fault == "job.disrupted" and "is being deleted" in outcome.observed


def test_a_second_job_that_is_refused_is_of_the_interruption(monkeypatch):
    """No permission to read the namespace; a moment ago all objects were accepted."""
    for place in ("launcher", "aftermath"):
        monkeypatch.setattr(f"jobs.run.{place}.namespace_gone", lambda *_: "")
    case = case_of("25b-preempted")
    outcome = play(case, with_more(namespace_goes(case, taken(case) - 0.1)))
    assert not wrong(case, outcome) and outcome.attempts == 1, outcome
    assert "the retry failed" in outcome.observed and "being terminated" in outcome.observed


def test_ranks_that_vanished_before_the_end_keep_their_nodes():
    """A TTL deletes Job and pods; the namespace's deletion does, too, which is reported. The Job's end is received
    later."""
    case = case_of("16-ttl")
    pods_first = delayed("Job", 6.0)
    end = first(case, lambda c: c.kind == "Job" and c.object["status"].get("completionTime")).at
    logs = {str(rank): said(case, rank, {"start": {}, "end": {}}) for rank in (0, 1)}
    changes = (None, pods_first, then(with_more(namespace_goes(case, end)), pods_first))
    outcomes = [play(case, change, logs=logs) for change in changes]
    for outcome in outcomes:
        assert not wrong(case, outcome) and outcome.nodes == ("gpu-node-1", "gpu-node-2"), outcome
    assert ["being deleted" in str(outcome.warnings) for outcome in outcomes] == [False, False, True]


# -- drains and evictions ----------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("condition", ["EvictionByEvictionAPI", "DeletionByTaintManager", "TerminationByKubelet"])
def test_a_drain_while_the_image_is_pulled_is_an_interruption(condition, every):
    """The container that never existed ends with 137: neither the program nor the node's memory is at fault."""
    case = case_of("25b-preempted")
    right_at_prefixes(case, in_pull(case, 1, condition=condition), every)


@EVERY
def test_a_pod_deleted_while_its_image_is_pulled_is_an_interruption(every):
    """kubectl delete pod sets no DisruptionTarget: the Job then reaches its backoff limit."""
    case = case_of("25b-preempted")

    def by_backoff(item):
        for each in item["status"].get("conditions") or []:
            if each["type"] in ("FailureTarget", "Failed"):
                each |= {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}

    change = then(
        in_pull(case, 1, condition=""),
        rewritten(lambda c: c.kind == "Job" and c.name == case.expected.job, by_backoff),
        without(lambda c: c.kind == "Event" and c.object["reason"] == "PodFailurePolicy"),
    )
    right_at_prefixes(case, change, every)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["25b-preempted", "35b-evicted", "26-kubelet", "17-job-deleted-b", "05-oom"])
@pytest.mark.parametrize("away_s", [0.2, 2.0, 9.0])
def test_what_a_broken_watch_swallows_is_seen_by_the_new_list(name, away_s):
    """The watch ends in 410 at each change of the Job or a pod: the list shows only the final state."""
    case = case_of(name)
    moments = {c.at - case.play.start - 0.0005 for c in case.play.changes if c.kind in ("Job", "Pod")}
    outcomes = {m: play(case, cut(m, away_s, too_old=True)) for m in sorted(moments) if m > 0.05}
    assert {m: problem for m, each in outcomes.items() if (problem := wrong(case, each))} == {}


@pytest.mark.parametrize("away_s", [0.6, 5.0])
def test_an_eviction_that_no_one_saw_is_reported_by_the_job(away_s):
    """The pods are gone in the new list: the Job's condition names the pod."""
    case = case_of("25b-preempted")
    outcome = play(case, cut(4.04, away_s, too_old=True))
    assert not wrong(case, outcome), outcome


def test_what_cannot_be_tried_again_is_reported_as_the_interruption():
    """The API server goes away when the second attempt is about to start."""
    case = case_of("25b-preempted")
    outcome = play(case, cut(4.045, 30.0, too_old=True))
    assert not wrong(case, outcome), outcome
    assert "the retry failed" in outcome.observed


# -- nodes -------------------------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("for_s", [4.0, 18.0])
@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_reboots_while_it_pulls_is_waited_for(for_s, status, every):
    """A pod that has not started loses nothing: the kubelet recreates its sandbox."""
    case = case_of("20-configmap")
    pod = first(case, is_pod(1, case))
    down, up = pod.at + 5.0, pod.at + 5.0 + for_s
    changed = "Pod sandbox changed, it will be killed and re-created."
    change = then(
        without(lambda c: c.kind == "Event" and c.object["reason"] == "FailedMount"),
        with_more(
            event(case, pod.object, pod.at + 0.4, reason="Pulling", message='Pulling image "py:1"', severity="Normal"),
            *node_says(case, "gpu-node-2", (down, status), (up, "True")),
            event(case, pod.object, down, reason="NodeNotReady", message="Node is not ready"),
            event(case, pod.object, up + 0.5, reason="SandboxChanged", message=changed, severity="Normal"),
        ),
    )
    right_at_prefixes(case, change, every, ways=("as recorded", "batches of 3 s", "Nodes 1.5 s late"))


@pytest.mark.parametrize("code", [255, 137])
@IN_EACH_WAY
def test_a_node_that_rebooted_under_a_rank_is_what_ended_it(code, heard):
    """The returning kubelet finds no container: 255, Unknown, from containerd, or 137, ContainerStatusUnknown."""
    case = expecting(case_of("35b-evicted"), "failed", "node.lost", "gpu-node-2")
    ended = first(case, lambda c: is_pod(1, case)(c) and "terminated" in container(c.object).get("state", {}))
    down, up = ended.at - 4.0, ended.at - 1.0

    def edit(item):
        if end := container(item).get("state", {}).get("terminated"):
            end |= {"exitCode": code, "reason": "Unknown" if code == 255 else "ContainerStatusUnknown"}
            end["finishedAt"] = stamp(case, up + 1) if code == 255 else None
            item["status"].pop("reason", None)
            item["status"].pop("message", None)

    change = then(
        rewritten(is_pod(1, case), edit),
        without(
            lambda c: (
                c.kind == "Event"
                and c.object["reason"] in ("Evicted", "Killing")
                and "-1-" in c.object["involvedObject"]["name"]
            )
        ),
        with_more(*node_says(case, "gpu-node-2", (down, "False"), (up, "True"))),
    )
    outcome = play(case, then(change, VARIANTS[heard]))
    assert not wrong(case, outcome), outcome


def test_a_node_that_goes_away_while_it_pulls_is_lost():
    """A lost node's pod is evicted after its toleration time, and remains, since no kubelet terminates it."""
    case = case_of("26-kubelet")
    change = then(in_pull(case, 1, condition="DeletionByTaintManager"), without(lambda c: c.at > case.play.start + 150))
    outcome = play(case, change)
    assert not wrong(case, outcome), outcome


# -- admission ---------------------------------------------------------------------------------------------------------


@IN_EACH_WAY
def test_a_webhook_that_changes_what_pods_ask_for_is_believed(heard):
    """The Job's template keeps its requests; the scheduler's message is about the pod, as the webhook changed it."""
    case = case_of("07-too-much")

    def modest(item):
        item["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "200m"}

    change = rewritten(lambda c: c.kind == "Job" and c.name == case.expected.job, modest)
    outcome = play(case, then(change, VARIANTS[heard]))
    assert not wrong(case, outcome), outcome
    assert "cpu" in outcome.observed


@EVERY
def test_pods_whose_gpus_a_webhook_took_away_run_all_the_same(every):
    """The checks report missing devices inside; the Job is Complete."""
    case = case_of("01-healthy-a")

    def none(item):
        for each in item["spec"]["containers"]:
            each["resources"]["limits"] = {}

    change = rewritten(lambda c: c.kind == "Pod", none)
    right_at_prefixes(case, change, every, ways=("as recorded", "batches of 3 s"))


# -- the API server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("away_s", "roles_s"), [(0.0, 1.0), (0.0, 3.0), (1.0, 1.0), (10.0, 1.0), (26.0, 1.5)])
@pytest.mark.parametrize("stale_s", [0.0, 3.0])
def test_an_api_server_that_restarts_between_creation_and_resume_is_waited_for(away_s, roles_s, stale_s):
    """An API server refuses every user until it has read its roles, and its first answers may be old; the Job is
    suspended."""
    case = case_of("01-healthy-a")
    resumed = min(
        first(case, lambda c: c.kind == "Job" and c.object["spec"].get("suspend") is False).at,
        first(case, is_pod(0, case)).at,
    )

    def restart(heard):
        return replace(heard, cuts=(*heard.cuts, Cut(heard.start + 0.0015, away_s, too_old=True, roles_s=roles_s)))

    outcome = play(case, then(later_from(resumed, away_s + roles_s + 2.0), delayed("Job", stale_s), restart))
    assert not wrong(case, outcome), outcome


# -- clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead_s", [300.0, -300.0])
@pytest.mark.parametrize(
    "name", ["01-healthy-a", "05-oom", "19-susp", "25b-pre", "26-kube", "31-service", "37-no", "41-contr"]
)
def test_a_clock_that_differs_from_the_api_servers_changes_nothing(name, ahead_s):
    case = case_of(name)
    outcomes = {heard: wrong(case, play(case, VARIANTS[heard], ahead_s=ahead_s)) for heard in HEARD}
    assert outcomes == dict.fromkeys(HEARD, "")


# -- Events ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", ["Pod", "Job"])
@pytest.mark.parametrize(
    "name", ["01-healthy-a", "05-oom", "16-ttl", "17-job-deleted-b", "20-conf", "25b-pre", "35b-ev"]
)
def test_events_may_come_before_what_they_are_about(name, late):
    case = case_of(name)
    outcomes = {s: wrong(case, play(case, delayed(late, s))) for s in (2.0, 4.0)}
    assert outcomes == {2.0: "", 4.0: ""}


# Only an event shows it: the Job and its pods wait silently.
SILENT = {"11-quota-none", "11b-quota", "13-limit", "14-adm", "20b-conf"}


@pytest.mark.parametrize(
    "name",
    [
        "01-healthy-a",
        "04-both",
        "05-oom",
        "16-ttl",
        "17-job-deleted-b",
        "22-sec",
        "25b-pre",
        "26-kube",
        "35b-ev",
        *sorted(SILENT),
    ],
)
def test_events_may_never_come(name):
    """Events only explain: without one, objects show a failure, and the elapsed time shows a wait."""
    case = case_of(name)
    if name in SILENT:
        case = expecting(case, "given-up", "job.start-timeout")
    outcome = play(case, without(lambda c: c.kind == "Event"))
    assert not wrong(case, outcome), outcome
