"""A recorder of the API server's responses to a trial's watcher (`accept --record`).

It sends no requests and does not affect the trial. Everything is kept in memory, bounded, and written after the verdict
has been reported. An error of the recorder only ends the recording.

`NAME.jsonl.gz` holds JSON lines. The first: `server` (gitVersion), `namespace`, `wall` (the time of day at t = 0, RFC
3339). Then one line for each watch event in the order of arrival: `t` (seconds), `kind`, `type` (ADDED, MODIFIED,
DELETED), `object`. There are two further lines. `"type": "WATCH-ENDED"`: the watch of this kind broke, for the reason
in `object`. It is restarted from the last resourceVersion, or with a new list after 410: then known objects are ADDED
again. `"kind": "Mark"`: `object` describes the action of a person. ConfigMaps have `keys` instead of data; nothing has
managedFields.
"""

from __future__ import annotations

import datetime
import gzip
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..cluster.client.errors import ApiError, ClusterError
from ..cluster.client.http_client import Response
from ..cluster.client.kube import Kube
from ..cluster.client.reading import CancelToken
from ..cluster.redact import MASK, redact_value, safe, secret_name
from ..cluster.unstructured import Unstructured, as_list, as_map
from ..diagnosis.state import JobState
from ..trial.launchers import KINDS
from .result import TrialResult

SUFFIX = ".jsonl.gz"
WATCH_ENDED = "WATCH-ENDED"
MARK = "Mark"
# The recorded resources, and the URL path component of their lists and watches.
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
# Fields of a Node that a recording's reader does not need, and those that identify the cluster.
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
    """A context manager that writes a recording line by line. Its input must be redacted already."""

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
        """Add one line; objects are reduced to a recording's form (`small`)."""
        shown = small(line.kind, line.object) if isinstance(line.object, dict) else line.object
        self._put({"t": round(line.t, 4), "kind": line.kind, "type": line.type, "object": shown})

    def _put(self, item: Unstructured) -> None:
        self._file.write(json.dumps(item, separators=(",", ":")) + "\n")


def small(kind: str, item: Unstructured) -> Unstructured:
    """Return the object in a recording's form: no managedFields, no data of ConfigMaps, few fields of Nodes."""
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


# The recordings of two nodes are below 1 MiB; an endless stream of responses must not fill memory or disk.
MOST_BYTES = 32 << 20
_LONGEST_TEXT = 16_384
# The type of each line, by the resource in its URL; a launcher's kinds in addition to those of the format.
_KINDS = {kind.resource: kind.kind for kind in KINDS.values()} | RESOURCES
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # a second copy of an object, written by kubectl


class Recorder:
    """The recording of one trial job; threads may share it."""

    def __init__(self, job: str, namespace: str) -> None:
        self.job, self.namespace = job, namespace
        self.problem = ""
        self._began, self._wall = time.monotonic(), datetime.datetime.now(datetime.UTC)
        self._lock = threading.Lock()
        self._lines: list[tuple[float, str, str, str]] = []
        self._bytes = 0
        self._versions: dict[tuple[str, str], str] = {}
        self._broken: set[str] = set()  # kinds with a broken watch: their next list reports all objects again
        self._result: TrialResult | None = None
        self._concluded = 0.0

    def change(self, url_path: str, type_: str, item: Any) -> None:
        """Record a watch event, or the API server's answer to a create or change."""
        kind = _kind(url_path)
        if not kind or not isinstance(item, dict) or type_ not in {"ADDED", "MODIFIED", "DELETED"}:
            return
        with self._lock:
            key, version = _identity(kind, item)
            if type_ != "DELETED" and self._versions.get(key) == version:
                return  # recorded already, from the response to a write or from a list
            if type_ == "DELETED":
                self._versions.pop(key, None)
            else:
                self._versions[key] = version
            self._add(kind, type_, small(kind, item))

    def listed(self, url_path: str, items: list[Any]) -> None:
        """Record a page of a list: its new and changed objects, as watch events."""
        kind = _kind(url_path)
        with self._lock:
            for item in items if kind else ():
                if not isinstance(item, dict):
                    continue
                key, version = _identity(kind, item)
                known = self._versions.get(key)
                if known != version or kind in self._broken:
                    type_ = "MODIFIED" if known is not None and kind not in self._broken else "ADDED"
                    self._add(kind, type_, small(kind, item))
                self._versions[key] = version
            self._broken.discard(kind)

    def ended(self, url_path: str, error: Exception) -> None:
        """Record that a watch broke, and the reason, without the server's address."""
        if kind := _kind(url_path):
            said = f"{error.status} {error.reason}: {error.message}" if isinstance(error, ApiError) else _reason(error)
            with self._lock:
                self._broken.add(kind)
                self._add(kind, WATCH_ENDED, safe(f"{type(error).__name__}: {said}", 300))

    def mark(self, text: str) -> None:
        """Record an action of seatrial itself."""
        with self._lock:
            self._add(MARK, "DONE", text)

    def conclude(self, result: TrialResult) -> None:
        """Store the result for the yaml; later events are not recorded."""
        self._result, self._concluded = result, time.monotonic() - self._began

    def _add(self, kind: str, type_: str, value: Any) -> None:
        if self._result is not None or self._bytes > MOST_BYTES:
            return
        text = json.dumps(value)
        self._bytes += len(text)
        if self._bytes > MOST_BYTES:
            kind, type_, text = MARK, "DONE", json.dumps(f"the recording ends here: more than {MOST_BYTES >> 20} MiB")
        self._lines.append((time.monotonic() - self._began, kind, type_, text))

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, folder: Path, *, server: str) -> Path:
        """Write JOB.jsonl.gz and JOB.yaml, redacted, and return the first. Raises OSError; leaves no partial file."""
        folder.mkdir(parents=True, exist_ok=True)
        place, stub = folder / f"{self.job}{SUFFIX}", folder / f"{self.job}.yaml"
        draft = folder / f".{self.job}{SUFFIX}"
        try:
            with RecordingWriter(draft, server=server, namespace=self.namespace, wall=self._wall.isoformat()) as out:
                for t, kind, type_, text in self._lines:
                    out.write(Line(t, kind, type_, _redacted(json.loads(text))))
            draft.replace(place)
            stub.write_text(self._stub(), encoding="utf-8")
        except OSError:
            for each in (draft, place, stub):
                each.unlink(missing_ok=True)
            raise
        return place

    def _stub(self) -> str:
        """Return the yaml for the recording: the run's conclusion, to be corrected by the user."""
        born = next((t for t, kind, type_, _ in self._lines if (kind, type_) == (_kind_of(self), "ADDED")), 0.0)
        last = max((t for t, *_ in self._lines if t <= self._concluded), default=born)
        marks = [f"{t - born:.1f} s: {json.loads(text)}" for t, kind, _, text in self._lines if kind == MARK]
        cause = self._result.analysis if self._result else None
        said = safe(cause.observed, 500) if cause else "nothing was wrong" if self._result else "the run was stopped"
        stub = {
            "situation": f"Recorded by seatrial, not confirmed: {said}",
            "how": marks,
            "job": self.job,
            "namespace": self.namespace,
            "expect": {
                "ends": _ends(self._result),
                "after_s": round(last - born, 1),
                "cause": cause.fault if cause else None,
                "also": [],
                "subject": cause.subject if cause else None,
            },
            "notes": [],
        }
        head = (
            "# expect holds seatrial's conclusion. Correct it to the actual facts, and describe under\n"
            "# situation and how what was done to the cluster: then it is a test (docs/recordings.md).\n"
        )
        import yaml  # noqa: PLC0415  (not needed unless a recording is kept)

        return head + str(yaml.safe_dump(stub, sort_keys=False, allow_unicode=True, width=120))


class RecordedKube(Kube):
    """The same connection, with responses about a trial's objects passed to a recorder."""

    def __init__(self, kube: Kube, recorder: Recorder) -> None:
        vars(self).update(vars(kube))  # one connection pool, one set of credentials
        self._recorder = recorder

    def create(self, url_path: str, body: Any, *, dry_run: bool = False, **options: Any) -> Response:
        """POST an object; see Kube.create."""
        answer = super().create(url_path, body, dry_run=dry_run, **options)
        if not dry_run:
            self._tell(Recorder.change, url_path, "ADDED", answer.body)
            self._tell(Recorder.mark, f"{_kind(url_path)} created")
        return answer

    def patch(self, url_path: str, body: Any, **options: Any) -> Any:
        """PATCH an object; see Kube.patch."""
        answer = super().patch(url_path, body, **options)
        self._tell(Recorder.change, url_path, "MODIFIED", answer)
        self._tell(Recorder.mark, f"{_kind(url_path)} patched: {safe(json.dumps(body), 200)}")
        return answer

    def pages(self, url_path: str, **options: Any) -> Iterator[tuple[list[Any], str]]:
        """Yield the pages of a list; see Kube.pages."""
        for page, version in super().pages(url_path, **options):
            self._tell(Recorder.listed, url_path, page)
            yield page, version

    def watch(
        self, url_path: str, *, cancel_token: CancelToken | None = None, **options: Any
    ) -> Iterator[tuple[str, Unstructured]]:
        """Yield the events of a watch; see Kube.watch."""
        try:
            for kind, item in super().watch(url_path, cancel_token=cancel_token, **options):
                self._tell(Recorder.change, url_path, kind, item)
                yield kind, item
        except ClusterError as error:
            if cancel_token is None or not cancel_token.is_cut:
                self._tell(Recorder.ended, url_path, error)
            raise

    def _tell(self, what: Any, *arguments: Any) -> None:
        """Pass data to the recorder. It reads untrusted data in the watcher's threads: its errors must not end them."""
        if self._recorder.problem:
            return
        try:
            what(self._recorder, *arguments)
        except Exception as error:  # noqa: BLE001  (whatever it is, the trial goes on)
            self._recorder.problem = safe(f"{type(error).__name__}: {error}", 200)


def _kind(url_path: str) -> str:
    """Return the kind of a resource's or object's URL path; '' if it is not recorded."""
    parts = url_path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return _KINDS.get(rest[0], "") if len(rest) in {1, 2} else ""


def _kind_of(recorder: Recorder) -> str:
    """Return the kind of object that launched the trial."""
    launched = [kind for _, kind, type_, _ in recorder._lines if type_ == "ADDED"]  # noqa: SLF001
    return launched[0] if launched else ""


def _identity(kind: str, item: Unstructured) -> tuple[tuple[str, str], str]:
    meta = as_map(item.get("metadata"))
    return (kind, str(meta.get("uid") or meta.get("name") or "")), str(meta.get("resourceVersion") or "")


def _reason(error: Exception) -> str:
    """Return the last part of a transport error's text, without server, verb and path."""
    return str(error).rsplit(": ", 1)[-1]


def _redacted(item: Any) -> Any:
    """Return the object without credentials.

    Masked are texts with a credential's pattern, and variables with a secret-looking name.
    """
    if isinstance(item, dict):
        meta = as_map(item.get("metadata"))
        as_map(meta.get("annotations")).pop(_LAST_APPLIED, None)
        for spec in (as_map(item.get("spec")), as_map(as_map(as_map(item.get("spec")).get("template")).get("spec"))):
            for group in ("containers", "initContainers", "ephemeralContainers"):
                for container in as_list(spec.get(group)):
                    for variable in as_list(as_map(container).get("env")):
                        if "value" in as_map(variable) and secret_name(str(variable.get("name"))):
                            variable["value"] = MASK
    return redact_value(item, limit=_LONGEST_TEXT)


def _ends(result: TrialResult | None) -> str:
    """Return the result of the trial in the format of a recording's yaml; '' if the run ended before it."""
    if result is None:
        return ""
    if result.state is JobState.CANCELED:
        return "deleted"
    if result.analysis is not None and result.analysis.disrupted:
        return "interrupted"
    return {JobState.COMPLETE: "completed", JobState.ERROR: "failed"}.get(result.state, "given-up")
