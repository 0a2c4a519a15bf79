"""Whether the trial's container of a pod runs, has run, or has ended, as the kubelet says it, and why mpirun ended.

mpirun says it in its last lines: ssh, keys, names and daemons fail in few ways, each with a fixed text. Sources:
openssh (ssh.c, sshconnect.c, clientloop.c), open-mpi/ompi (orte/mca/plm/rsh, help-errmgr-base.txt), prrte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, by_type
from ..diagnosis.state import FailureAnalysis
from ..diagnosis.symptoms import blame
from ..faults.catalogue import read_text


def has_started(pod: Unstructured, container: str) -> bool:
    """Return whether a container runs or has run: then there is a log."""
    for entry in _statuses(pod):
        if entry.get("name") == container:
            state, before = as_map(entry.get("state")), as_map(entry.get("lastState"))
            return "running" in state or "terminated" in state or bool(as_map(before.get("terminated")))
    return False


def has_ended(pod: Unstructured, container: str) -> bool:
    """Return whether a container has run to its end."""
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
    """Return whether a pod with a running container is not ready: the first sign of its lost node.

    The trial's container has no readiness probe, so that nobody but the node's controller says so of it.
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
    """Return whether mpirun's words name a reason that another attempt will meet again."""
    said = [each.variant for line in output if (each := read_text("mpirun", line)) and each.variant]
    return bool(said) and all(each.final for each in said)


def explained(analysis: FailureAnalysis | None, output: Iterable[str]) -> FailureAnalysis | None:
    """Put mpirun's own reason in the place of its exit code."""
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
