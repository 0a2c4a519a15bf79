"""Attribution of failures of a user's job, which unlike a trial may request more than the cluster has.

A missing name, a size above that of the nodes, and a missing image are attributed to the job. So is a missing claim,
Secret or ConfigMap of a trial: its profile names them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from seatrial.faults.catalogue import INFRASTRUCTURE, PROGRAM, read_text

from ..cluster.facts.inventory import pod_requests
from ..cluster.facts.scheduling import rooms, unmatched
from ..cluster.unstructured import Unstructured, as_map
from .state import ERR_PROGRAM
from .symptoms import NOT_STARTED, PodSymptom

_MISSING = re.compile(r'(?i)\b(?:secret|configmap|persistentvolumeclaim) "([^"]{1,253})" not found')
_OF_OPERATORS = ("", "-ssh", "-config", "-svc")
"""What the launcher, the MPI operator (pkg/controller/mpi_job_controller.go) and Volcano's plugins
(pkg/controllers/job/plugins) add to a job's name for the objects that they create for it."""


def of_name(cause: PodSymptom, job: str) -> PodSymptom:
    """Attribute an object that a pod names and that does not exist to the author of the name.

    An object that a controller creates is the cluster's: that of an operator, the namespace's own certificates, and the
    claim of one pod.
    """
    if cause.fault not in ("container.config", "volume.mount") or cause.failure != PROGRAM:
        return cause
    missing = _MISSING.search(cause.issue.message)
    name = missing[1] if missing else ""
    own = cause.pod and (name.startswith(f"{cause.pod}-") or name.endswith(f"-{cause.pod}"))
    if own or name in ("kube-root-ca.crt", *(job + suffix for suffix in _OF_OPERATORS)):
        return replace(cause, failure=INFRASTRUCTURE)
    return replace(cause, err_class=ERR_PROGRAM)


def of_user(
    cause: PodSymptom, pod: Unstructured | None, nodes: Sequence[Unstructured], wanted: int, held: int
) -> PodSymptom:
    """Attribute the cause for a user's job of so many pods that hold so many GPUs; `pod` shows it."""
    if cause.fault == "queue.quota-short" or (cause.rank == NOT_STARTED and cause.failure == PROGRAM):
        return replace(cause, err_class=ERR_PROGRAM)
    if cause.fault not in ("job.unschedulable", "gang.partial", "gang.unschedulable") or pod is None:
        return cause
    if not nodes:
        own = f"its own ranks hold {held} GPUs; an account that may list nodes can see whether they have room for it"
        return replace(cause, suggestion=own) if held and "Insufficient" in cause.issue.message else cause
    if text := unmatched(pod, nodes):
        return replace(cause, err_class=ERR_PROGRAM, suggestion=text)
    short = "Insufficient" in cause.issue.message or cause.fault == "gang.unschedulable"
    return _of_size(cause, pod, nodes, wanted, held) if short else cause


def _of_size(cause: PodSymptom, pod: Unstructured, nodes: Sequence[Unstructured], wanted: int, held: int) -> PodSymptom:
    """Distinguish a job larger than the nodes, one that waits for GPUs in use, and lost devices."""
    offered, built = rooms(pod, nodes), rooms(pod, nodes, "capacity")
    if offered is None or built is None or built >= wanted > offered:
        return cause
    if offered >= wanted:
        busy = read_text("scheduler", f"{cause.issue.message}; in use by other workloads")
        return replace(cause.advised(busy), err_class=None, hopeless=False)
    size = " and ".join(f"{amount} {name}" for name, amount in pod_requests(as_map(pod.get("spec"))).items())
    return replace(
        cause,
        err_class=ERR_PROGRAM,
        suggestion=f"it requests {wanted} x {size}, but all nodes together hold {built} such pods: it never fits",
        remedy="request fewer pods, or less in each"
        + ("; cancel this one: its ranks hold GPUs meanwhile" if held else ""),
        hopeless=True,
    )
