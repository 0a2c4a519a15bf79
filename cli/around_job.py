"""What the cluster tells of a job's time: events of its pods and nodes, the nodes' conditions, words in its logs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from jobs.cluster.client.errors import ClusterError
from jobs.cluster.client.kube import Kube, path
from jobs.cluster.facts.events import read_events
from jobs.cluster.redact import redact, safe
from jobs.cluster.unstructured import Unstructured, as_list, as_map, name_of, node_of
from jobs.diagnosis import around
from jobs.diagnosis.around import Moment
from jobs.nccl.job_document import Around

LINES = 2000
"""Of each container's log, the last ones: what a program says as it dies."""
AT_ONCE = 8
MOST_PODS, MOST_NODES = 256, 64


def look_around(kube: Kube, pods: Sequence[Unstructured], not_seen: list[str]) -> list[Around]:
    """Return what happened in the job's time, in order; nothing where nothing failed and nothing is wrong."""
    where = {name_of(pod): node_of(pod) for pod in pods[:MOST_PODS]}
    moments: list[Moment] = []
    for pod in pods[:MOST_PODS]:
        moments += around.from_pod(pod)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        from_logs = list(pool.map(lambda pod: _lines(kube, pod), pods[:MOST_PODS]))
        nodes = list(pool.map(lambda name: _node(kube, name), sorted({*where.values()} - {""})[:MOST_NODES]))
    moments += itertools.chain.from_iterable(from_logs)
    for node in nodes:
        if isinstance(node, str):
            not_seen.append(f"conditions of the nodes: {node}")
            break
        moments += around.from_node(node)
    for place, kind in ((kube.namespace, "Pod"), ("default", "Node")):  # a node's events are in default
        try:
            items, _ = kube.list(path("events", namespace=place), fieldSelector=f"involvedObject.kind={kind}")
        except ClusterError as error:
            not_seen.append(f"events of the {kind.lower()}s in {place}: {safe(error, 300)}")
            continue
        moments += around.from_events(read_events(items), where)
    judged = around.judged(moments, pods)
    return [_written(moment) for moment in judged] if any(m.role == "failure" for m in judged) else []


def _written(moment: Moment) -> Around:
    entry: Around = asdict(moment)  # type: ignore[assignment]  # the same keys
    entry["text"] = redact(moment.text)
    return entry


def _node(kube: Kube, name: str) -> Unstructured | str:
    try:
        return as_map(kube.get(path("nodes", name)))
    except ClusterError as error:
        return safe(error, 300)


def _lines(kube: Kube, pod: Unstructured) -> list[Moment]:
    name = name_of(pod)
    moments: list[Moment] = []
    for container in as_list(as_map(pod.get("spec")).get("containers")):
        moments += around.from_lines(pod, _stamped(kube, name, str(container.get("name") or "")))
    return moments


def _stamped(kube: Kube, pod: str, container: str) -> Iterator[str]:
    """The last lines of a container's log, each behind its time; none where it cannot be read."""
    try:
        with kube.log_stream(
            kube.namespace,
            pod,
            deadline_s=20.0,
            container=container,
            timestamps=True,
            tailLines=LINES,
            limitBytes=4 << 20,
        ) as chunks:
            yield from b"".join(chunks).decode("utf-8", "replace").splitlines()
    except ClusterError:
        return
