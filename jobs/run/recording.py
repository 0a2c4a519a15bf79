"""Recordings of what an API server told the watchers of one trial: the file format and its writer.

`NAME.jsonl.gz` holds JSON lines. The first: `server` (gitVersion), `namespace`, `wall` (the time of day at t = 0, RFC
3339). Then one line for each watch event in the order of arrival: `t` (seconds), `kind`, `type` (ADDED, MODIFIED,
DELETED), `object`. Besides, `"type": "WATCH-ENDED"` (the watch of this kind broke, `object` says how; it is made again,
from the last resourceVersion or with a new list after 410: then known objects are ADDED again) and `"kind": "Mark"`
(somebody did what `object` says). ConfigMaps have `keys` instead of data; nothing has managedFields.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..cluster.unstructured import Unstructured

SUFFIX = ".jsonl.gz"
WATCH_ENDED = "WATCH-ENDED"
MARK = "Mark"
# What is recorded, and under which URL path component it is listed and watched.
RESOURCES = {
    "jobs": "Job",
    "pods": "Pod",
    "events": "Event",
    "services": "Service",
    "endpointslices": "EndpointSlice",
    "configmaps": "ConfigMap",
    "namespaces": "Namespace",
    "nodes": "Node",
}
# What no reader of a recording needs of a Node, and what would tell a stranger about the cluster.
_NODE_STATUS = ("conditions", "capacity", "allocatable")
_NODE_SPEC = ("taints", "unschedulable")


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a change of an object, the end of a watch, or a mark (then `object` is text)."""

    t: float
    kind: str
    type: str
    object: Any


class RecordingWriter:
    """Writes a recording line by line; a context manager. What it is given must be redacted already."""

    def __init__(self, path: Path, *, server: str, namespace: str, wall: str) -> None:
        self._file = gzip.open(path, "wt", encoding="utf-8")  # noqa: SIM115  (closed by __exit__)
        self._put({"server": server, "namespace": namespace, "wall": wall})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, line: Line) -> None:
        """Add one line; objects lose what a recording does not hold (`small`)."""
        shown = small(line.kind, line.object) if isinstance(line.object, dict) else line.object
        self._put({"t": round(line.t, 4), "kind": line.kind, "type": line.type, "object": shown})

    def _put(self, item: Unstructured) -> None:
        self._file.write(json.dumps(item, separators=(",", ":")) + "\n")


def small(kind: str, item: Unstructured) -> Unstructured:
    """Return the object as a recording holds it: no managedFields, no data of ConfigMaps, of Nodes what decides."""
    meta = {key: value for key, value in (item.get("metadata") or {}).items() if key != "managedFields"}
    shown = item | {"metadata": meta}
    if kind == "ConfigMap" and "keys" not in item:
        keys = sorted((item.get("data") or {}) | (item.get("binaryData") or {}))
        shown = {key: value for key, value in shown.items() if key not in {"data", "binaryData"}} | {"keys": keys}
    if kind == "Node":
        of_meta = ("name", "labels", "uid", "resourceVersion")
        spec, status = item.get("spec") or {}, item.get("status") or {}
        shown = {
            "metadata": {key: meta[key] for key in of_meta if key in meta},
            "spec": {key: spec[key] for key in _NODE_SPEC if key in spec},
            "status": {key: status[key] for key in _NODE_STATUS if key in status},
        }
    return shown
