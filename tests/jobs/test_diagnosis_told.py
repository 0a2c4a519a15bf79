"""The diagnosis quotes the cluster's messages about this job only, with the number of affected pods."""

import pytest

from jobs.diagnosis.state import Issue
from jobs.diagnosis.symptoms import PodSymptom
from jobs.diagnosis.verdict import diagnose
from jobs.trial.launchers import KINDS
from seatrial.faults.advice import FAULTS
from seatrial.faults.catalogue import read_text
from tests.jobs.objects import RUNS, condition, ended, event, failed, job, node, pod, waits

SHM = 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi". '
DISK = "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. "
ALIGNED = "Resources cannot be allocated with Topology locality"
DEVICES = (
    "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 6"
)
PRESSURE = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi."


@pytest.mark.parametrize(
    ("reason", "message", "fault", "advice"),
    [
        ("Evicted", SHM, "job.failed", "its own limit"),
        ("Evicted", DISK, "job.failed", "its own limit"),
        ("Evicted", PRESSURE, "job.disrupted", "a limit of ephemeral-storage"),
        ("TopologyAffinityError", ALIGNED, "topology.affinity", "one NUMA node"),
        ("UnexpectedAdmissionError", DEVICES, "container.start", "device plugin"),
        (
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 8000, used: 1, capacity: 2",
            "container.start",
            "",
        ),
        ("Preempting", "Preempted in order to admit critical pod", "job.disrupted", ""),
    ],
)
def test_what_the_kubelet_said_of_a_pod_is_quoted(reason, message, fault, advice):
    """Reason, message, pod and node are quoted, since advice needs all of them."""
    gone = pod(1, "Failed", node="n7", reason=reason, message=message)
    _, replicas, analysis = diagnose(job(conditions=failed()), [pod(0, main=RUNS), gone], [])
    assert analysis.observed == f"pod t-1-abcde on n7: {reason}: {message.strip()}"
    assert (analysis.fault, advice in f"{analysis.suggestion}; {analysis.remedy or FAULTS[fault].remedy}") == (
        fault,
        True,
    )
    assert replicas[1].readiness_issue.message == message.strip()


def crashed(index, code=1, reason="Error", message=""):
    return pod(index, "Failed", node=f"n{index}", main=ended(code, reason, message))


@pytest.mark.parametrize(
    ("others", "more"),
    [
        ([pod(1, main=RUNS)], ""),
        ([crashed(1)], " (and 1 more)"),
        ([crashed(1), crashed(2), crashed(3)], " (and 3 more)"),
        ([crashed(1), crashed(2, 137, "OOMKilled"), pod(3, main=RUNS)], ""),
        ([crashed(1, 137, "OOMKilled"), crashed(2)], ""),
    ],
    ids=["alone", "two", "all", "two-follow", "one-follows"],
)
def test_those_with_the_same_trouble_are_counted_and_no_others(others, more):
    """The cause is one pod, reported with the number of pods with the same fault and reason."""
    _, _, analysis = diagnose(job(len(others) + 1, failed()), [crashed(0), *others], [])
    name, _, rest = analysis.observed.partition(" on ")
    said = rest.partition(": ")[0].partition(" ")[2]
    assert name.startswith("pod t-")
    assert f" {said}" == more if more else not said


def test_one_fault_of_two_reasons_is_not_counted_as_one():
    """Two pods whose images cannot be pulled, one because of its name and one because of its registry."""
    pods = [
        pod(0, "Pending", main=waits("InvalidImageName", "couldn't parse image name")),
        pod(1, "Pending", node="n1", main=waits("ErrImageNeverPull", "not present with pull policy of Never")),
        pod(2, "Pending", node="n2", main=waits("ErrImageNeverPull", "not present with pull policy of Never")),
    ]
    _, replicas, analysis = diagnose(job(3, active=3), pods, [])
    assert {each.fault for each in replicas} == {"image.pull"}
    assert "more)" not in analysis.observed
    _, _, analysis = diagnose(job(3, active=3), pods[1:], [])
    assert analysis.observed.startswith("pod t-1-abcde on n1 (and 1 more): ErrImageNeverPull")


def test_two_faults_of_one_reason_are_not_counted_as_one():
    """StartError is the runtime's reason for a missing program and for a GPU that cannot be set up."""
    python = crashed(0, 128, "StartError", 'exec: "python3": executable file not found in $PATH: unknown')
    driver = "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown"
    pods = [python, crashed(1, 128, "StartError", driver)]
    _, replicas, analysis = diagnose(job(conditions=failed()), pods, [])
    assert {each.fault for each in replicas} == {"image.no-python", "container.start"}
    assert "StartError" in analysis.observed
    assert "more)" not in analysis.observed


@pytest.mark.parametrize(("asked_to_go", "inferred"), [(True, False), (False, True)])
def test_a_lost_node_fails_a_job_once_its_pod_was_asked_to_go(asked_to_go, inferred):
    """The other pods were not deleted: each is judged by its own deletion."""
    lost = pod(1, main=RUNS, node="n1", deleted="2026-01-01T00:00:50Z" if asked_to_go else "")
    nodes = [node("n0"), node("n1", ready="Unknown")]
    _, _, analysis = diagnose(job(conditions=failed()), [pod(0, main=RUNS), lost], [], nodes)
    assert (analysis.fault, analysis.subject, analysis.inferred) == ("node.lost", "n1", inferred)


POLICY = "Container trial for pod ns/t-0-abcde failed with exit code 42 matching FailJob rule at index 0"
TAKEN = "Pod ns/t-0-abcde has condition DisruptionTarget matching FailJob rule at index 0"


@pytest.mark.parametrize(
    ("reason", "message", "fault", "disrupted"),
    [
        ("PodFailurePolicy", TAKEN, "job.disrupted", True),
        ("PodFailurePolicy", POLICY, "job.failed", False),
        ("BackoffLimitExceeded", "Job has reached the specified backoff limit", "job.failed", False),
        ("SomethingNewer", TAKEN, "job.failed", False),
    ],
)
def test_a_job_that_its_policy_failed_is_interrupted_only_where_a_pod_was_taken(reason, message, fault, disrupted):
    """An exit code that the policy names is the program's; no other object of the job is left."""
    _, _, analysis = diagnose(job(conditions=failed(reason, message)), [], [])
    assert (analysis.fault, analysis.disrupted) == (fault, disrupted)
    assert message in analysis.observed


def test_a_job_that_tries_a_rank_again_shows_why_the_first_attempt_failed():
    """Only a launcher pod before any rank has begun fails silently: a rank's failure is reported during its retry."""
    again = job()
    again["spec"]["backoffLimit"] = 3
    state, replicas, analysis = diagnose(again, [crashed(0), pod(1, main=RUNS)], [])
    assert state == "Running"
    assert (analysis.fault, replicas[0].fault) == ("job.failed", "job.failed")


def test_the_events_with_a_cause_are_the_jobs_own():
    """Warnings about the job and its present and deleted pods are included; those of other jobs are not."""
    events = [
        event("Job", "t", "SuccessfulCreate", "Created pod: t-9-gone0", warning=False),
        event("Job", "t", "BackoffLimitExceeded", "of the job"),
        event("Pod", "t-0-abcde", "BackOff", "of a pod that is there"),
        event("Pod", "t-9-gone0", "FailedMount", "of a pod that is gone"),
        event("Pod", "other-0-abcde", "BackOff", "of another job's pod"),
        event("Job", "other", "BackoffLimitExceeded", "of another job"),
        event("Node", "t-0-abcde", "NodeNotReady", "of a node that is called like a pod"),
    ]
    events[5]["involvedObject"]["uid"] = "another"
    _, _, analysis = diagnose(job(conditions=failed()), [crashed(0), pod(1, main=RUNS)], events)
    told = "\n".join(map(str, analysis.events))
    assert [text for text in ("of the job", "that is there", "that is gone") if text not in told] == []
    assert "another" not in told
    assert "called like" not in told


def test_a_launcher_is_tried_again_only_within_its_limit_and_before_the_job_is_over():
    """A worker's failure is reported at once: workers are ranks, and no further attempt replaces them."""
    labels = {"training.kubeflow.org/job-name": "s"}

    def one(name, role, code=None, **more):
        labels_of = labels | {"training.kubeflow.org/job-role": role} | more
        state = {"terminated": {"exitCode": code, "reason": "Error"}} if code else {"running": {}}
        return {
            "metadata": {"name": name, "labels": labels_of},
            "spec": {"nodeName": "n"},
            "status": {
                "phase": "Failed" if code else "Running",
                "containerStatuses": [{"name": "trial", "state": state}],
            },
        }

    def look(*pods, limit=1, over=()):
        raw = {
            "metadata": {"name": "s", "uid": "u"},
            "status": {"conditions": [condition("Created"), *over]},
            "spec": {
                "runPolicy": {"backoffLimit": limit},
                "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 1}},
            },
        }
        analysis = diagnose(raw, pods, [], name="s", kind=KINDS["mpijob"])[2]
        return analysis and (analysis.fault, analysis.observed.partition(" on ")[0])

    worker = one("s-worker-0", "worker", **{"training.kubeflow.org/replica-index": "0"})
    dead = one("s-worker-0", "worker", 1, **{"training.kubeflow.org/replica-index": "0"})
    first, second = one("l-1", "launcher", 1), one("l-2", "launcher", 1)
    assert look(first, worker) is None
    assert look(first, second, worker, limit=2) is None
    assert look(first, worker, limit=0) == ("job.failed", "pod l-1")
    assert look(first, second, worker) == ("job.failed", "pod l-1")
    assert look(first, worker, over=[condition("Failed", reason="MPIJobFailed")], limit=2) == ("job.failed", "pod l-1")
    assert look(first, dead) == ("job.failed", "pod s-worker-0")


@pytest.mark.parametrize(
    ("name", "node", "command"),
    [
        ("t-0-abcde", "n7", "kubectl describe node n7; kubectl get pods -A -o wide --field-selector spec.nodeName=n7"),
        (
            "a'; rm",
            "n 7",
            "kubectl describe node 'n 7'; kubectl get pods -A -o wide --field-selector spec.nodeName='n 7'",
        ),
    ],
)
def test_the_command_that_confirms_names_the_pod_and_its_node(name, node, command):
    """The command can be pasted: known names are filled in and quoted for a shell."""
    said = PodSymptom(fault="container.start", issue=Issue("OutOfcpu", "")).advised(
        read_text("admission", "OutOfcpu: no")
    )
    assert said.at(pod=name, node=node).confirm == command
    assert said.at(pod=name, node="").confirm == said.confirm
    last = PodSymptom(fault="job.failed", issue=Issue("Error", "")).advised(read_text("exit", "Error: exit code 134"))
    assert last.at(pod="t-0-abcde", node="").confirm == "kubectl -n {namespace} logs t-0-abcde --tail=50"
    assert last.at(pod="job/t", node="").confirm == last.confirm
