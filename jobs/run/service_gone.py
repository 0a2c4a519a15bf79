"""A Service that gives the ranks their names and was deleted meanwhile: then it is the cause, not the network."""

from __future__ import annotations

from dataclasses import replace

from ..cluster.client.errors import ClusterError, NotFound
from ..cluster.client.kube import Kube, path
from ..cluster.unstructured import as_list, as_map
from ..diagnosis.grace_periods import DELETED_S
from ..diagnosis.history import later
from ..diagnosis.state import interrupted
from ..trial.spec import TrialSpec
from .result import TrialResult


def with_service_gone(kube: Kube, spec: TrialSpec, result: TrialResult) -> TrialResult:
    """Return the result of a trial whose ranks did not find each other with a deleted Service as its cause, if so."""
    if not _apart(result):
        return result
    services = dict.fromkeys(peer.partition(".")[2] or peer for peer in spec.peers)
    return next(filter(None, (_without(kube, name, spec.namespace, result) for name in services)), result)


def _apart(result: TrialResult) -> bool:
    """Tell whether a rank did not find a peer's name, or a collective failed, and nothing else explains it."""
    if result.analysis is not None and result.analysis.fault != "job.failed":
        return False
    for evidence in result.evidence.values():
        peers = as_list(as_map(evidence.stages.get("dns")).get("peers"))
        if any(not peer.get("addresses") for peer in peers):
            return True
        if any(name.startswith("collective.") and data.get("exit") != 0 for name, data in evidence.stages.items()):
            return True
    return False


def _without(kube: Kube, name: str, namespace: str, result: TrialResult) -> TrialResult | None:
    """Ask whether a Service of ranks that did not find each other is gone, or not the one with which they began.

    That is the cause then; an operator makes its own anew. None where it is not, or nobody can tell.
    """
    try:
        service = kube.get(path("services", name, namespace=namespace))
    except NotFound:
        then = "deleted by others"
    except ClusterError:
        return None
    else:
        made = str(as_map(service.get("metadata")).get("creationTimestamp") or "")
        began = min(filter(None, (pod.began for pod in result.pods)), default="")
        if not (began and later(began, int(DELETED_S)) < made):
            return None
        then = f"deleted by others and made anew at {made}"
    analysis = interrupted(
        f"service/{name}",
        f"the headless Service {name}, which gives the ranks their names, was {then} while the trial ran; then ranks "
        "did not find each other",
        expected="nobody deletes the trial's objects",
    )
    return replace(result, analysis=analysis)
