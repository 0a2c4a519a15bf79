"""The logs of job/NAME: of every container of every pod, including terminated ones.

For a restarted container the log before the restart is read too: it shows a crash. Containers without NCCL output
(proxies, syncers) are read like the others and left out of the answer, unless no container has any.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jobs.cluster.client.errors import ApiError
from jobs.cluster.unstructured import Unstructured, name_of
from jobs.run.containers import failed_before

if TYPE_CHECKING:
    from jobs.cluster.client.kube import Kube
    from seatrial.logs.job_document import JobDocument

DEADLINE_S = 600.0
KINDS = ("job", "mpijob", "pytorchjob", "trainjob", "jobset", "rayjob", "statefulset")
"""The words for logs that are explained as one job; job/NAME may be any of them."""
_SHORT = {"po": "pod", "pods": "pod", "sts": "statefulset"} | {f"{kind}s": kind for kind in KINDS}


def cluster_name(text: str) -> tuple[str, str] | None:
    """Return kind and name if a text names a workload as kubectl does (``job/x``, ``pods/x``), else None."""
    kind, slash, name = text.partition("/")
    known = _SHORT.get(kind.lower().partition(".")[0], kind.lower().partition(".")[0])
    if not slash or not name or "/" in name or (known != "pod" and known not in KINDS):
        return None
    return known, name


def hint(text: str) -> str:
    """Suggest the correct form of a name that is not a file but looks like a workload."""
    kind, slash, name = text.partition("/")
    if not slash or "/" in name or "." in kind:
        return ""
    kinds = ["pod", *KINDS]
    near = difflib.get_close_matches(kind.lower(), kinds, 1, 0.6)
    if not name:
        return f"; to read from the cluster, write {near[0]}/NAME" if near else ""
    if near and near[0] != kind:
        return f"; did you mean {near[0]}/{name}?"
    return f"; from the cluster, only {', '.join(f'{word}/NAME' for word in kinds)} can be read"


def open_containers(
    kube: Kube, pods: Iterable[Unstructured], *, must: bool = True
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield (name, chunks) of every container's log, older instances first; read each stream before the next.

    ``must``: raise an error if none has a log yet, since nothing else is known of them.
    """
    opened, refused = 0, None
    for pod in pods:
        pod_name = name_of(pod)
        for container, previous in _containers(pod):
            try:
                with kube.log_stream(
                    kube.namespace, pod_name, deadline_s=DEADLINE_S, container=container, previous=previous
                ) as chunks:
                    opened += 1
                    yield _shown(pod, container, previous=previous), chunks
            except ApiError as error:
                if error.status not in {400, 404}:
                    raise
                refused = refused or error  # the container waits to start, or its older log is gone
    if must and not opened and refused is not None:
        raise refused


def _containers(pod: Unstructured) -> Iterator[tuple[str, bool]]:
    """Yield each failed init container and each container of a pod, the previous instance of a restarted one first."""
    for name, again in failed_before(pod):
        if again:
            yield name, True
        yield name, False
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    restarts = {str(state.get("name")): int(state.get("restartCount") or 0) for state in states}
    for container in (pod.get("spec") or {}).get("containers") or [{}]:
        name = str(container.get("name") or "")
        if restarts.get(name):
            yield name, True
        yield name, False


def _shown(pod: Unstructured, container: str, *, previous: bool) -> str:
    """Name a log by its pod, its container if there are several, and its instance."""
    name = name_of(pod)
    several = [str(each.get("name") or "") for each in (pod.get("spec") or {}).get("containers") or [{}]] != [container]
    return name + (f" {container}" if several else "") + (" (before its restart)" if previous else "")


def telling(jobs: Iterable[JobDocument], *, or_all: bool) -> list[JobDocument]:
    """Return the jobs with NCCL in their logs; if there are none, all of them or none."""
    documents = list(jobs)
    with_nccl = [job for job in documents if job["nccl_lines"] or job["tables"] or job["hang"] or job["crash"]]
    return with_nccl or (documents if or_all else [])
