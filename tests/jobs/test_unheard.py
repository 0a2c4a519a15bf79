"""A pod that ran, or seems to have run, without a log line: the reason, with advice."""

from types import SimpleNamespace

import pytest

from jobs.run.explanations import simulated, unreachable

REFUSED = 'GET .../log: 500: Get "https://10.0.0.7:10250/containerLogs/a/b/c": dial tcp 10.0.0.7:10250: connect: connection refused'
KWOK = 'GET .../log: 400 BadRequest: no logs found for container "trial" in pod "default/p-0"'
RAN = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
ENDED = {"terminated": {"exitCode": 0}}


def pod(name, state, *, made):
    status = {"name": "trial", "state": state, **({"containerID": "containerd://1"} if made else {})}
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": f"node-of-{name}"},
        "status": {"phase": "Succeeded" if state is ENDED else "Running", "containerStatuses": [status]},
    }


def follower(problem="", *, heard=False):
    return SimpleNamespace(problem=problem, heard=heard)


@pytest.mark.parametrize("state", [RAN, ENDED])
@pytest.mark.parametrize("problem", [REFUSED, KWOK])
def test_a_container_that_no_runtime_made_is_called_simulated(state, problem):
    """KWOK's pods run and complete without a container ID: the message asks whether the nodes are real."""
    pods = [pod("p-0", state, made=False), pod("p-1", state, made=False)]
    analysis = simulated(pods, {"p-0": follower(problem), "p-1": follower(problem)}, "trial")
    assert analysis is not None
    assert (analysis.fault, analysis.subject, analysis.err_class) == ("node.simulated", "node-of-p-0", None)
    assert "(and 1 more)" in analysis.observed
    assert "KWOK" in analysis.suggestion


def test_a_real_container_whose_log_is_refused_is_a_fault_of_the_path_to_the_kubelet():
    """The dialer's message is quoted, and the pod is not called simulated."""
    pods, followers = [pod("p-0", ENDED, made=True)], {"p-0": follower(REFUSED)}
    assert simulated(pods, followers, "trial") is None
    analysis = unreachable(pods, followers)
    assert analysis is not None
    assert analysis.fault == "job.log-unreachable"
    assert "10250" in analysis.observed


def test_an_empty_log_is_no_proof_while_the_pod_runs():
    """A completed pod prints nothing more; a running one may."""
    analysis = simulated([pod("p-0", ENDED, made=False)], {"p-0": follower()}, "trial")
    assert analysis is not None
    assert "its log is empty" in analysis.observed
    assert simulated([pod("p-0", RAN, made=False)], {"p-0": follower()}, "trial") is None


@pytest.mark.parametrize(
    "followed", [follower(), follower(REFUSED, heard=True), follower("404 NotFound: pods p-0 not found")]
)
def test_what_was_heard_or_only_not_found_is_nothing_of_the_kind(followed):
    """A connection that broke once, a readable log and a deleted pod have other explanations."""
    pods, followers = [pod("p-0", ENDED, made=True)], {"p-0": followed}
    assert simulated(pods, followers, "trial") is None
    assert unreachable(pods, followers) is None


def test_a_container_that_failed_before_it_was_made_is_no_simulation():
    """A kubelet reports ContainerStatusUnknown (137) without an id for a container that it lost."""
    lost = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}
    assert simulated([pod("p-0", lost, made=False)], {"p-0": follower(REFUSED)}, "trial") is None
