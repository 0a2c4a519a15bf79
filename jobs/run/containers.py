"""The state of the trial's container, as reported by the kubelet, and the cause of mpirun's end.

mpirun reports it in its last lines: ssh, keys, names and daemons fail in few ways, each with a fixed text. Sources:
openssh (ssh.c, sshconnect.c, clientloop.c), open-mpi/ompi (orte/mca/plm/rsh, help-errmgr-base.txt), prrte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from seatrial.faults.catalogue import read_text

from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, by_type, whole
from ..diagnosis.state import FailureAnalysis
from ..diagnosis.symptoms import blame

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The pod's annotation for the default container of kubectl logs; injected sidecars may precede it."""


def has_started(pod: Unstructured, container: str) -> bool:
    """Return whether a container runs or has run, so that it has a log."""
    for entry in _statuses(pod):
        if entry.get("name") == container:
            state, before = as_map(entry.get("state")), as_map(entry.get("lastState"))
            return "running" in state or "terminated" in state or bool(as_map(before.get("terminated")))
    return False


def failed_before(pod: Unstructured) -> list[tuple[str, int]]:
    """Return the init containers with a failed last run and their restart counts; later ones wait for them."""
    found = []
    for entry in as_list(as_map(pod.get("status")).get("initContainerStatuses")):
        lives = [as_map(as_map(entry.get(key)).get("terminated")) for key in ("state", "lastState")]
        if next((life.get("exitCode") for life in lives if life), 0):
            found.append((str(entry.get("name")), whole(entry.get("restartCount"))))
    return found


def speaking(pod: Unstructured) -> str:
    """Name the container with a pod's log: kubectl's default one, or the init container that blocks it."""
    names = [str(each.get("name")) for each in as_list(as_map(pod.get("spec")).get("containers"))]
    marked = as_map(as_map(pod.get("metadata")).get("annotations")).get(DEFAULT_CONTAINER)
    main = marked if marked in names else next(iter(names), "")
    failed = failed_before(pod)
    return failed[0][0] if failed and not has_started(pod, main) else main


def has_ended(pod: Unstructured, container: str) -> bool:
    """Return whether a container has ended."""
    states = [as_map(each.get("state")) for each in _statuses(pod) if each.get("name") == container]
    return any("terminated" in state for state in states)


def others_running(pod: Unstructured, container: str) -> list[str]:
    """Return the names of the pod's further running containers."""
    return [
        str(entry.get("name"))
        for entry in _statuses(pod)
        if entry.get("name") != container and "running" in as_map(entry.get("state"))
    ]


def is_shaken(pod: Unstructured, container: str) -> bool:
    """Return whether a pod with a running container is not ready: the first sign of a lost node.

    The trial's container has no readiness probe, so only the node's controller reports it.
    """
    status = as_map(pod.get("status"))
    unready = (by_type(status).get("Ready") or {}).get("status") == "False"
    return (
        status.get("phase") == "Running" and unready and has_started(pod, container) and not has_ended(pod, container)
    )


def termination_message(pod: Unstructured, container: str) -> str:
    """Return the termination message of a terminated container; '' without one."""
    for entry in _statuses(pod):
        if entry.get("name") == container:
            return str(as_map(as_map(entry.get("state")).get("terminated")).get("message") or "")
    return ""


def _statuses(pod: Unstructured) -> list[Unstructured]:
    return as_list(as_map(pod.get("status")).get("containerStatuses"))


def is_final(output: Iterable[str]) -> bool:
    """Return whether mpirun's output names a cause that another attempt would meet again."""
    said = [each.variant for line in output if (each := read_text("mpirun", line)) and each.variant]
    return bool(said) and all(each.final for each in said)


def explained(analysis: FailureAnalysis | None, output: Iterable[str]) -> FailureAnalysis | None:
    """Replace mpirun's exit code by its own reason."""
    if analysis is None or analysis.fault != "job.failed":
        return analysis
    lines = list(output)
    said = read_text("mpirun", "\n".join(lines))
    if said is None or said.why is None or said.variant is None:
        return analysis
    line = next((line for line in lines if (each := read_text("mpirun", line)) and each.cause == said.cause), "")
    return replace(
        analysis,
        fault=said.why,
        subject=safe(said.variant.subject.partition(".")[0].rstrip(":"), 100) or analysis.subject,
        observed=safe(f"mpirun ended: {line.strip()}", 600),
        expected="mpirun starts a process in every worker",
        suggestion=said.cause or "",
        confirm=said.variant.confirm,
        remedy=said.variant.remedy,
        err_class=blame(said),
    )
