"""Whether the trial's container of a pod runs, has run, or has ended, as the kubelet says it, and why mpirun ended.

mpirun says it in its last lines: ssh, keys, names and daemons fail in few ways, each with a fixed text. Sources:
openssh (ssh.c, sshconnect.c, clientloop.c), open-mpi/ompi (orte/mca/plm/rsh, help-errmgr-base.txt), prrte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, by_type
from ..diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis


def has_started(pod: Unstructured, container: str) -> bool:
    """Tell whether a container runs or has run: then there is a log."""
    for entry in _statuses(pod):
        if entry.get("name") == container:
            state, before = as_map(entry.get("state")), as_map(entry.get("lastState"))
            return "running" in state or "terminated" in state or bool(as_map(before.get("terminated")))
    return False


def has_ended(pod: Unstructured, container: str) -> bool:
    """Tell whether a container has run to its end."""
    states = [as_map(each.get("state")) for each in _statuses(pod) if each.get("name") == container]
    return any("terminated" in state for state in states)


def others_running(pod: Unstructured, container: str) -> list[str]:
    """Return the names of the pod's other containers that run."""
    return [
        str(entry.get("name"))
        for entry in _statuses(pod)
        if entry.get("name") != container and "running" in as_map(entry.get("state"))
    ]


def is_shaken(pod: Unstructured, container: str) -> bool:
    """Tell whether a pod whose container runs is said not to be ready: that is how its lost node shows first.

    The trial's container has no readiness probe, so that nobody but the node's controller says so of it.
    """
    status = as_map(pod.get("status"))
    unready = (by_type(status).get("Ready") or {}).get("status") == "False"
    return (
        status.get("phase") == "Running" and unready and has_started(pod, container) and not has_ended(pod, container)
    )


def termination_message(pod: Unstructured, container: str) -> str:
    """Return the termination message of a container that has ended; '' where there is none."""
    for entry in _statuses(pod):
        if entry.get("name") == container:
            return str(as_map(as_map(entry.get("state")).get("terminated")).get("message") or "")
    return ""


def _statuses(pod: Unstructured) -> list[Unstructured]:
    return as_list(as_map(pod.get("status")).get("containerStatuses"))


# (pattern, whose, advice)
_LAST_LINES = (
    (
        r"Could not resolve hostname (?P<host>[^\s:]+)",
        ERR_INFRA,
        "The launcher does not resolve a worker's name: is the operator's Service there, and does DNS answer?",
    ),
    (
        r"connect to (?:host|address) (?P<host>\S+) port \d+: (?:Connection refused|Connection timed out|No route)",
        ERR_INFRA,
        "No sshd answers in the worker: does it run there, and does a NetworkPolicy let port 22 through?",
    ),
    (
        r"Connection (?:closed|reset) by (?P<host>\S+)",
        ERR_PROGRAM,
        "sshd hung up: it may not change its user (capabilities SYS_CHROOT, SETUID, SETGID) or has no host keys.",
    ),
    (
        r"Permission denied \((?:publickey|password|keyboard)",
        ERR_PROGRAM,
        "The keys are not where sshd looks: set launch.mpi.ssh_path to the .ssh folder of the user that sshd runs as.",
    ),
    (
        r"Host key verification failed",
        ERR_PROGRAM,
        "The image's ssh asks about unknown hosts: StrictHostKeyChecking no (mpi-operator's base image sets it).",
    ),
    (
        r"(?:bash|sh): (?:line \d+: )?(?:\S+/)?(?:orted|prted): (?:command )?not found",
        ERR_PROGRAM,
        "An ssh session does not find Open MPI's daemon: call mpirun by its full path (launch.mpi.mpirun).",
    ),
    (r"There are not enough slots available", ERR_PROGRAM, "mpirun did not read the operator's hostfile."),
)


# What another attempt may find otherwise: a name that was just not published yet, an sshd that was still starting.
_PASSING = re.compile(r"Could not resolve hostname|Connection refused")


def is_final(output: Iterable[str]) -> bool:
    """Tell whether mpirun's words name a reason that another attempt will meet again."""
    lines = list(output)
    if any(_PASSING.search(line) for line in lines):
        return False
    return any(re.search(pattern, line) for pattern, _, _ in _LAST_LINES for line in lines)


def explained(analysis: FailureAnalysis | None, output: Iterable[str]) -> FailureAnalysis | None:
    """Put mpirun's own reason in the place of its exit code."""
    if analysis is None or analysis.fault != "job.failed":
        return analysis
    lines = list(output)
    for pattern, blame, advice in _LAST_LINES:
        for line in lines:
            match = re.search(pattern, line)
            if match:
                host = match.groupdict().get("host") or ""
                return replace(
                    analysis,
                    fault="mpi.ssh-failed",
                    subject=safe(host.partition(".")[0].rstrip(":"), 100) or analysis.subject,
                    observed=safe(f"mpirun ended: {line.strip()}", 600),
                    expected="mpirun starts a process in every worker",
                    suggestion=advice,
                    err_class=blame,
                )
    return analysis
