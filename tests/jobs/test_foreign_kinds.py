"""Jobs of foreign kinds: their pods, ranks and states, read from raw objects."""

import datetime

import pytest

from jobs.cluster.client.errors import Forbidden, NotFound
from jobs.diagnosis.standing import NO_GANG, ranges, standing
from jobs.diagnosis.state import Issue, JobState, Replica
from jobs.diagnosis.verdict import diagnose
from jobs.run.job_causes import unsubmitted
from jobs.run.job_lookup import JobLookup
from jobs.trial.launchers import READ, unread

BY_NAME = {kind.name: kind for kind in READ}
NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


def pod(name, labels=None, phase="Running", node="n1", gpus=8, **more):
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    meta = {"name": name, "labels": labels or {}, "creationTimestamp": "2026-01-01T11:00:00Z", **more}
    spec = {"nodeName": node, "containers": [{"name": "main", "resources": resources}]}
    status = {"phase": phase}
    if phase == "Pending":
        spec.pop("nodeName")
        reason = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available",
        }
        status["conditions"] = [reason]
    return {"metadata": meta, "spec": spec, "status": status}


JOBSET = {
    "metadata": {"name": "js", "uid": "u"},
    "spec": {
        "replicatedJobs": [
            {"name": "leader", "replicas": 1, "template": {"spec": {"parallelism": 1}}},
            {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2}}},
        ]
    },
    "status": {},
}
RAYJOB = {
    "metadata": {"name": "ray", "uid": "u"},
    "spec": {"rayClusterSpec": {"workerGroupSpecs": [{"replicas": 2}]}},
    "status": {"jobDeploymentStatus": "Initializing", "rayClusterName": "ray-abcde"},
}
STATEFUL = {"metadata": {"name": "web", "uid": "u"}, "spec": {"replicas": 2}, "status": {"replicas": 2}}


def jobset_pods():
    label = "jobset.sigs.k8s.io/jobset-name"
    index = "batch.kubernetes.io/job-completion-index"
    yield pod("js-leader-0-0", {label: "js", "jobset.sigs.k8s.io/job-global-index": "0", index: "0"})
    for number in (1, 2):
        for rank in (0, 1):
            labels = {label: "js", "jobset.sigs.k8s.io/job-global-index": str(number), index: str(rank)}
            yield pod(f"js-workers-{number}-{rank}", labels, "Pending" if (number, rank) == (2, 1) else "Running")


def ray_pods():
    for name, kind, phase in (("h", "head", "Running"), ("w-1", "worker", "Running"), ("w-2", "worker", "Pending")):
        yield pod(f"ray-abcde-{name}", {"ray.io/cluster": "ray-abcde", "ray.io/node-type": kind}, phase)


def stateful_pods():
    yield pod("web-0", {"statefulset.kubernetes.io/pod-name": "web-0"})
    yield pod("web-1", {"statefulset.kubernetes.io/pod-name": "web-1"}, "Pending")


CASES = [
    ("jobset", JOBSET, [*jobset_pods()], 5),
    ("rayjob", RAYJOB, [*ray_pods()], 3),
    ("statefulset", STATEFUL, [*stateful_pods()], 2),
]


@pytest.mark.parametrize(("name", "raw", "pods", "size"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("granted", [True, False])
def test_each_pod_is_a_rank_and_the_one_that_waits_is_named(name, raw, pods, size, granted):
    """Ranks are found with a readable object and with its pods alone."""
    kind, called = BY_NAME[name], raw["metadata"]["name"]
    strangers = [
        pod("web-0-x"),
        pod("jsx", {"jobset.sigs.k8s.io/jobset-name": "jsx"}),
        pod("y", {"ray.io/cluster": "rays"}),
    ]
    mine = [each for each in [*pods, *strangers] if kind.belongs(each, called)]
    assert mine == pods
    job = raw if granted else unread(kind, called, mine)
    state, replicas, analysis = diagnose(job, mine, [], [], name=called, kind=kind, outside=True)
    assert (state, [each.index for each in replicas]) == (JobState.RUNNING, [*range(size)])
    assert [each.phase for each in replicas].count("Pending") == 1
    assert (
        analysis is not None and analysis.fault == "job.unschedulable" and analysis.pod == pods[-1]["metadata"]["name"]
    )
    lines = standing(state, replicas, size, gang="", now=NOW)
    assert lines[0].startswith(f"{size - 1} of {size} ranks") and lines[0].endswith("for 60 min")
    assert f"{8 * (size - 1)} GPUs are held by rank" in lines[2] and lines[3] == NO_GANG


@pytest.mark.parametrize(
    ("raw", "name", "state"),
    [
        (JOBSET | {"status": {"conditions": [{"type": "Completed", "status": "True"}]}}, "jobset", JobState.COMPLETE),
        (JOBSET | {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "jobset", JobState.ERROR),
        (RAYJOB | {"status": {"jobStatus": "SUCCEEDED"}}, "rayjob", JobState.COMPLETE),
        (RAYJOB | {"status": {"jobStatus": "FAILED", "message": "x"}}, "rayjob", JobState.ERROR),
        (STATEFUL, "statefulset", JobState.PENDING),
    ],
)
def test_the_state_is_reported_in_a_jobs_words(raw, name, state):
    assert diagnose(raw, [], [], [], name=raw["metadata"]["name"], kind=BY_NAME[name], outside=True)[0] is state


def test_what_is_read_of_pods_alone_ends_as_they_do():
    """A job completes if all pods succeeded, and fails if one failed finally."""
    kind = BY_NAME["rayjob"]
    for phases, state in ((("Succeeded",) * 2, JobState.COMPLETE), (("Running", "Failed"), JobState.ERROR)):
        pods = [pod(f"ray-abcde-{n}", {"ray.io/cluster": "ray-abcde"}, phase) for n, phase in enumerate(phases)]
        for each in pods:
            each["spec"]["restartPolicy"] = "Never"
        assert diagnose(unread(kind, "ray", pods), pods, [], [], name="ray", kind=kind, outside=True)[0] is state


def rank(index, phase="Running", issue=None, **more):
    return Replica(
        index=index, pod=f"p{index}", phase=phase, readiness_issue=issue, since="2026-01-01T11:59:00Z", **more
    )


def test_ranks_that_wait_for_one_reason_are_one_line():
    """Names and numbers in a message do not make a reason different."""
    waiting = [rank(n, "Pending", Issue("FailedMount", f"volume for p{n} times out")) for n in (2, 3)]
    other = rank(4, "Pending", Issue("ErrImagePull", "not found"))
    lines = standing(JobState.RUNNING, [rank(0, held=True), rank(1, held=True), *waiting, other], 5, gang="", now=NOW)
    assert [line.partition(" for ")[0] for line in lines[:3]] == [
        "2 of 5 ranks (0-1) run",
        "1 of 5 ranks (4) waits",
        "2 of 5 ranks (2-3) wait",
    ]
    assert len(lines) == 4 and lines[3] == NO_GANG  # they have no GPUs


def test_a_queue_that_starts_half_is_reported_and_one_rank_alone_holds_nothing_for_others():
    """Near misses are jobs whose pods all wait or all run, that have one rank, or that have ended."""
    half = [rank(0, gpus=8, held=True), rank(1, "Pending", Issue("Unschedulable", "x"))]
    assert standing(JobState.RUNNING, half, 2, gang="kueue", now=NOW)[2:] == [
        "8 GPUs are held by rank 0 and unused, waiting for it",
        "kueue has started only some of its pods",
    ]
    for state, replicas in (
        (JobState.PENDING, [rank(n, "Pending", Issue("Unschedulable", "x")) for n in range(2)]),
        (JobState.RUNNING, [rank(n, gpus=8, held=True) for n in range(2)]),
        (JobState.PENDING, [rank(0, "Pending", Issue("Unschedulable", "x"))]),
        (JobState.RUNNING, [rank(0, gpus=8, held=True), Replica(index=1)]),
        (JobState.ERROR, [rank(0, "Failed"), rank(1, "Pending", Issue("Unschedulable", "x"))]),
    ):
        assert not [
            line
            for line in standing(state, replicas, len(replicas), gang="", now=NOW)
            if "held" in line or "gang" in line
        ]
    (failed,) = standing(JobState.ERROR, [rank(1, "Failed")], 2, gang="", now=NOW)  # the other pod was deleted
    assert failed == "1 of 2 ranks (1) failed 60 s ago"
    assert standing(JobState.UNKNOWN, [], 0, gang="", now=NOW) == []


def test_numbers_are_written_as_people_do():
    assert ranges([3, 0, 1, 2, 5, 9, 8]) == "0-3, 5, 8-9" and ranges([]) == ""


class Tenant:
    """A cluster whose account may read pods, events and Services, but no object of an operator."""

    server, namespace = "https://api.example", "team"

    def __init__(self, pods):
        self.pods, self.asked = pods, []

    def require(self, verb, resource, **_):
        raise Forbidden(f"{self.server}: {resource}", status=403, message=f"no permission to {verb} {resource}")

    def get(self, url, **_):
        self.asked.append(url)
        raise NotFound(f"{self.server}: GET {url}", status=404, reason="NotFound", message="not found")

    def list(self, url, **more):
        self.asked.append(url)
        return (self.pods, "") if url.endswith("/pods") and "labelSelector" in more else ([], "")


@pytest.mark.parametrize(("name", "raw", "pods", "size"), CASES, ids=[case[0] for case in CASES])
def test_who_may_not_get_the_object_is_answered_by_its_pods(name, raw, pods, size):
    """No request exceeds the permissions; a Job with that name, which is readable, does not exist."""
    kube = Tenant(pods)
    seen = JobLookup(kube).look(raw["metadata"]["name"])
    assert (seen.state, len(seen.replicas), seen.analysis.fault) == (JobState.RUNNING, size, "job.unschedulable")
    assert any("GPUs are held by" in line for line in seen.standing)
    assert not [url for url in kube.asked if BY_NAME[name].resource in url]
    assert JobLookup(kube).look("other").state is JobState.UNKNOWN


def test_the_queue_that_may_not_be_read_is_named_with_the_role_for_it():
    """Hidden parts are listed, and the others are reported."""
    gang = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
    pods = [each | {"metadata": each["metadata"] | gang} for each in ray_pods()]
    seen = JobLookup(Tenant(pods)).look("ray")
    (text,) = seen.not_seen
    assert "no permission to get podgroups.scheduling.volcano.sh in team" in text
    assert text.endswith("seatrial rbac --tenant --namespace team --queue volcano")
    assert "volcano has started only some of its pods" in seen.standing


TRAINING = "training.kubeflow.org/"


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ({f"{TRAINING}job-name": "k", f"{TRAINING}job-role": "worker"}, "mpijob"),
        (
            {f"{TRAINING}job-name": "k", f"{TRAINING}job-role": "master", f"{TRAINING}replica-type": "master"},
            "pytorchjob",
        ),
        ({f"{TRAINING}job-name": "k", f"{TRAINING}replica-type": "worker"}, "pytorchjob"),
        ({"jobset.sigs.k8s.io/jobset-name": "k"}, "jobset"),
    ],
)
def test_operators_that_share_a_label_are_distinguished(labels, kind):
    assert JobLookup(Tenant([pod("k-0", labels)])).kind_of("k").name == kind


def test_a_suspended_job_of_no_queue_is_judged_unless_another_object_made_it():
    """A queue label on the pod template only is reported."""
    kind, template = BY_NAME["indexed"], {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}
    job = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    symptom = unsubmitted(kind, "j", job)
    assert (
        symptom is not None
        and symptom.fault == "queue.unnamed"
        and "its pod template has that label" in str(symptom.issue)
    )
    owned = job | {"metadata": {"name": "j", "ownerReferences": [{"kind": "JobSet", "name": "js", "uid": "u"}]}}
    running = job | {"spec": {"suspend": False, "template": template}}
    assert unsubmitted(kind, "j", owned) is None and unsubmitted(kind, "j", running) is None
