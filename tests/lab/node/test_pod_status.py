"""A pod's status equals a 1.36 kubelet's for the same containers (api-contract/recordings)."""

import json

import pytest

from lab.node.network import StartError
from lab.node.runtime import capabilities, start_error
from lab.node.status import ContainerState, phase, pod_status
from tests.table import table

NOW = "2026-11-20T00:00:00Z"


def pod(policy="Never", inits=(), mains=("c",), **status):
    def containers(names):
        return [
            {"name": n.rstrip("!"), "image": "a", **({"restartPolicy": "Always"} if n.endswith("!") else {})}
            for n in names
        ]

    return {
        "metadata": {"name": "p", "generation": 1},
        "spec": {"restartPolicy": policy, "initContainers": containers(inits), "containers": containers(mains)},
        "status": status,
    }


def waiting(name="c"):
    return ContainerState(name, waiting={"reason": "ContainerCreating"})


def running(name="c", *, ready=True):
    return ContainerState(name, running={"startedAt": NOW}, ready=ready, started=True, created=True)


def ended(name="c", code=0):
    return ContainerState(
        name, terminated={"exitCode": code, "reason": "Completed" if not code else "Error"}, created=True
    )


@table(
    "spec, states, expected",
    [
        (pod(), [waiting()], "Pending"),
        (pod(), [running()], "Running"),
        (pod(), [ended()], "Succeeded"),
        (pod(), [ended(code=3)], "Failed"),
        (pod("OnFailure"), [ended(code=3)], "Running"),
        (pod("Always"), [ended()], "Running"),
        (pod(mains=("a", "b")), [ended("a"), running("b")], "Running"),
        (pod(mains=("a", "b")), [ended("a"), ended("b", 1)], "Failed"),
        (pod(inits=("i",)), [running("i"), waiting()], "Pending"),
        (pod(inits=("i",)), [ended("i", 1), waiting()], "Failed"),
        (pod(inits=("i",)), [ended("i"), running()], "Running"),
        (pod(inits=("side!",)), [running("side"), running()], "Running"),
        (pod(inits=("side!",)), [ended("side", 137), ended()], "Succeeded"),
    ],
)
def test_the_phase_follows_from_containers_and_restart_policy(spec, states, expected):
    """The rules are getPhase of the kubelet."""
    assert phase(spec, {s.name: s for s in states}) == expected


def conditions(spec, states, **more):
    status = pod_status(spec, {s.name: s for s in states}, NOW, sandbox=True, host_ip="10.0.0.1", **more)
    return {c["type"]: (c["status"], c.get("reason"), c.get("message")) for c in status["conditions"]}


def test_conditions_name_the_containers_that_are_not_ready():
    """ContainersNotReady with the list; Initialized names the incomplete init containers."""
    condition_of = conditions(pod(inits=("wait",)), [running("wait"), waiting()])
    assert condition_of["Ready"] == ("False", "ContainersNotReady", "containers with unready status: [c]")
    assert condition_of["Initialized"] == (
        "False",
        "ContainersNotInitialized",
        "containers with incomplete status: [wait]",
    )
    assert condition_of["PodScheduled"][0] == "True"


def test_an_ended_pod_is_completed_or_failed():
    """The reasons are PodCompleted and PodFailed."""
    assert conditions(pod(), [ended()])["Ready"] == ("False", "PodCompleted", None)
    assert conditions(pod(), [ended(code=1)])["ContainersReady"] == ("False", "PodFailed", None)


def test_a_transition_time_stays_while_the_status_does():
    """lastTransitionTime is the time of the change, not of the report."""
    old = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}
    status = pod_status(pod(**old), {"c": running()}, NOW, sandbox=True, host_ip="")
    times = {c["type"]: c["lastTransitionTime"] for c in status["conditions"]}
    assert times["Ready"] == "2020-01-01T00:00:00Z"
    assert times["Initialized"] == NOW


@pytest.mark.parametrize(
    ("stage", "number", "command", "text"),
    [
        ("exec", 2, "python3", 'exec: "python3": executable file not found in $PATH'),
        ("exec", 2, "/opt/x", 'exec: "/opt/x": stat /opt/x: no such file or directory'),
        ("exec", 13, "/etc/passwd", 'exec: "/etc/passwd": permission denied'),
    ],
    ids=["path", "absolute", "not-executable"],
)
def test_a_command_that_cannot_be_started_gets_the_runtimes_text(stage, number, command, text):
    """The recording is recordings/command-not-found."""
    message = start_error(StartError({"stage": stage, "errno": number, "error": "x"}), command)
    assert message == (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
        f"failed: unable to start container process: {text}"
    )


def test_the_statuses_of_the_recordings_have_our_keys(shared):
    """Every key of a recorded container status is written here, too (except for devices of a plugin)."""
    path = shared / "api-contract" / "recordings" / "happy-two-nodes" / "03-complete" / "pods.json"
    recorded = json.loads(path.read_text())["items"][0]
    state = ended()
    state.container_id = state.image_id = "x"
    spec = {**pod(), "spec": recorded["spec"], "status": {"allocatedResources": {}, "resources": {}}}
    state.name = recorded["spec"]["containers"][0]["name"]
    ours = pod_status(spec, {state.name: state}, NOW, sandbox=False, host_ip="10.0.0.1", pod_ip="10.244.0.1")
    assert set(recorded["status"]) == set(ours)
    theirs = recorded["status"]["containerStatuses"][0]
    assert set(theirs) - set(ours["containerStatuses"][0]) == {"allocatedResourcesStatus"}
    assert [c["type"] for c in ours["conditions"]] == [c["type"] for c in recorded["status"]["conditions"]]


def test_capabilities_are_added_and_dropped_by_name():
    """drop ALL keeps only added ones; IPC_LOCK is number 14."""
    assert capabilities({"capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}}) == {14}
    assert 14 not in capabilities({})
    assert 21 in capabilities({"privileged": True})
