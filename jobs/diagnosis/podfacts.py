"""Facts about the trial's pods other than failures: images, pull times, networks, delays.

Read from the pods and events that the watcher has anyway, without further requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ..cluster.facts.events import about, read_events
from ..cluster.redact import redact
from ..cluster.unstructured import Unstructured, as_list, as_map, by_type, statuses_of
from .history import last_end
from .state import PodFacts

# kubernetes pkg/kubelet/images/image_manager.go, since 1.27: 'Successfully pulled image "X" in 12.3s (14s including
# waiting). Image size: N bytes.'
_PULLED = re.compile(r'Successfully pulled image "(?P<image>[^"]+)" in (?P<time>[\d.hmsµun]+)')
_PRESENT = re.compile(r'Container image "(?P<image>[^"]+)" already present on machine')
_PART = re.compile(r"([\d.]+)(h|ms|m|s|µs|us|ns)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}
_PARTS = ("initContainers", "containers", "ephemeralContainers")
_LONGEST = 16_384  # of an annotation: Multus writes a few hundred bytes for each network


def pod_facts(
    pods: Iterable[Unstructured], events: Iterable[Any], index: Callable[[Unstructured], int]
) -> tuple[PodFacts, ...]:
    """Describe every pod, in the order of ranks."""
    read = read_events(events)
    described = []
    for pod in pods:
        meta, spec, status = (as_map(pod.get(key)) for key in ("metadata", "spec", "status"))
        name, uid = str(meta.get("name") or ""), str(meta.get("uid") or "")
        entries = statuses_of(status)
        described.append(
            PodFacts(
                index=index(pod),
                name=name,
                node=str(spec.get("nodeName") or ""),
                uid=uid,
                images=_images(spec, entries),
                annotations={str(k): redact(str(v))[:_LONGEST] for k, v in as_map(meta.get("annotations")).items()},
                pull_seconds=_pulls((event.message for event in about(read, "Pod", name, uid)), spec),
                created=str(meta.get("creationTimestamp") or ""),
                scheduled=_scheduled(status),
                began=_started(status),
                ended=last_end(status),
            )
        )
    return tuple(sorted(described, key=lambda facts: (facts.index, facts.name)))


def _images(spec: Unstructured, entries: Iterable[Unstructured]) -> dict[str, tuple[str, str]]:
    """Return each container's image as in the pod, including injected containers, with the digest from the status.

    The status names an image in the runtime's form, which may be another tag of the same image. An image requested by
    digest appears there by its own id (containerd, internal/cri/server/container_status.go).
    """
    asked = _asked(spec)
    return {
        str(e.get("name")): (asked.get(str(e.get("name"))) or str(e.get("image") or ""), str(e.get("imageID") or ""))
        for e in entries
    }


def _asked(spec: Unstructured) -> dict[str, str]:
    declared = [each for part in _PARTS for each in as_list(spec.get(part))]
    return {str(each.get("name")): str(each.get("image") or "") for each in declared}


def _pulls(messages: Iterable[str], spec: Unstructured) -> dict[str, float]:
    """Return pull seconds by image, as the pod names it: kubelets may add the implicit tag (image_manager.go)."""
    names = {f"{image}:latest": image for image in _asked(spec).values()}
    seconds: dict[str, float] = {}
    for message in messages:
        if pulled := _PULLED.search(message):
            image = names.get(pulled["image"], pulled["image"])
            seconds[image] = sum(float(n) * _SECONDS[unit] for n, unit in _PART.findall(pulled["time"]))
        elif present := _PRESENT.search(message):
            seconds.setdefault(names.get(present["image"], present["image"]), 0.0)
    return seconds


def _scheduled(status: Unstructured) -> str:
    """Return when the pod was bound to a node; '' before."""
    bound = by_type(status).get("PodScheduled") or {}
    return str(bound.get("lastTransitionTime") or "") if bound.get("status") == "True" else ""


def _started(status: Unstructured) -> str:
    """Return when the first container began; '' if none has."""
    times = []
    for entry in as_list(status.get("containerStatuses")):
        state = as_map(entry.get("state"))
        times += [str(as_map(state.get(key)).get("startedAt") or "") for key in ("running", "terminated")]
    return min(filter(None, times), default="")
