"""kubectl's streams: exec, attach, run --rm, logs -f, and the refused port-forward."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def pod(kubectl):
    """Create a pod that prints periodically."""
    kubectl(
        "run",
        "p",
        "--image=a",
        "--restart=Never",
        "--",
        "sh",
        "-c",
        "n=0; while true; do n=$((n+1)); echo tick $n; sleep 0.3; done",
    )
    kubectl.awaited("condition=Ready", "pod/p")


def test_exec_carries_output_errors_and_the_exit_code(kubectl):
    """Streams are separate; kubectl has the command's exit code."""
    done = kubectl.run("exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.code, done.out) == (3, "out\n")
    assert done.err.startswith("err\n")
    assert kubectl("exec", "p", "--", "hostname") == "p\n"


def test_exec_passes_standard_input_to_its_end(kubectl):
    """Megabytes pass in both directions, and the command sees the input's end."""
    text = "0123456789abcde\n" * 100_000
    assert kubectl("exec", "-i", "p", "--", "cat", text=text) == text
    assert kubectl("exec", "-i", "p", "--", "wc", "-c", text=text).strip() == str(len(text))


def test_exec_says_what_cannot_be_run(kubectl):
    """The message is runc's text for a missing program, and the server's for a missing container."""
    refused = kubectl.refused("exec", "p", "--", "nosuch")
    assert 'exec: "nosuch": executable file not found in $PATH' in refused
    assert "container zz is not valid for pod p" in kubectl.refused("exec", "p", "-c", "zz", "--", "ls")
    kubectl("run", "ended", "--image=a", "--restart=Never", "--", "true")
    kubectl.awaited("jsonpath={.status.phase}=Succeeded", "pod/ended")
    assert "completed pod" in kubectl.refused("exec", "ended", "--", "ls")


def test_exec_needs_the_right_to_create_it(kubectl, served):
    """A user without permission to create exec gets the refusal."""
    refused = kubectl.refused("exec", "p", "--kubeconfig", str(served / "nobody"), "--", "ls")
    assert "forbidden" in refused.lower()


def test_run_attaches_and_removes_the_pod(kubectl):
    """run --rm -i: input, output, and no leftovers."""
    done = kubectl.run(
        "run",
        "r",
        "--image=a",
        "--restart=Never",
        "--rm",
        "-i",
        "--",
        "sh",
        "-c",
        "sleep 0.5; cat; echo done",
        text="typed\n",
    )
    assert "typed\ndone\n" in done.out
    assert 'pod "r" deleted' in done.out
    assert "not found" in kubectl.refused("get", "pod", "r")


def test_logs_are_followed_until_the_container_ends(kubectl):
    """-f starts at the beginning and ends with the container."""
    kubectl(
        "run", "l", "--image=a", "--restart=Never", "--", "sh", "-c", "for i in 1 2 3; do echo l$i; sleep 0.2; done"
    )
    kubectl.eventually("Running|Completed", "get", "pod", "l")
    assert kubectl("logs", "-f", "l") == "l1\nl2\nl3\n"


def test_previous_logs_are_those_of_the_run_before(kubectl):
    """The container has been restarted."""
    kubectl("run", "again", "--image=a", "--restart=OnFailure", "--", "sh", "-c", "echo $$ run; exit 1")
    kubectl.eventually("[1-9]", "get", "pod", "again", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
    assert "run" in kubectl("logs", "again", "--previous")


def test_port_forwarding_is_refused_in_clear_words(kubectl):
    """The message names an alternative."""
    assert "does not forward ports" in kubectl.refused("port-forward", "pod/p", "18080:80")


def test_debug_adds_an_ephemeral_container(kubectl):
    """The ephemeral container runs next to the others, its log is readable, and the pod continues."""
    kubectl("debug", "p", "--image=a", "-c", "d", "--profile=general", "--", "sh", "-c", "echo looked")
    kubectl.eventually(
        "0", "get", "pod", "p", "-o", "jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}"
    )
    assert kubectl("logs", "p", "-c", "d") == "looked\n"
    assert "Running" in kubectl("get", "pod", "p")
