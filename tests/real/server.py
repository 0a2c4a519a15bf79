"""An API server that plays a recording without a network: it replaces urllib3's connection pool.

List and get: the state at that moment; watch: the changes after that resourceVersion, at their times. The recording
pauses just before its Job until a client creates a Job, then it runs; a further Job plays it again, if its namespace
still accepts it. The client's names replace the recorded ones, timestamps follow the clock. Writes change nothing; a
DELETE of the Job hides everything until the next one.
"""

import bisect
import copy
import datetime
import json
import math
import re
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import urllib3

from jobs.run.recorder import MARK, RESOURCES, WATCH_ENDED
from tests import recordings

VERSIONS = {"Job": "batch/v1", "EndpointSlice": "discovery.k8s.io/v1"}
RUN_LABEL = "app.kubernetes.io/instance"
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)((?:\.\d+)?Z)")
_TOO_OLD = re.compile(r"(?i)too old|410|gone|expired")
_BROKEN = re.compile(r"(?i)connection|protocol|reset|refused|remote|incomplete|timed? ?out")
_LISTED_S = 2.0  # a new list arrives as one burst


@dataclass(frozen=True)
class Change:
    """One watch event and the time at which it is received, in seconds of the recording."""

    at: float
    kind: str
    type: str
    object: dict

    @cached_property
    def text(self):
        return json.dumps({"apiVersion": VERSIONS.get(self.kind, "v1"), "kind": self.kind} | self.object)

    @cached_property
    def name(self):
        return str(self.object["metadata"].get("name"))

    @cached_property
    def version(self):
        return int(self.object["metadata"].get("resourceVersion") or 0)


class Shown(NamedTuple):
    """An object as the client gets it, and its cached JSON, since it is requested repeatedly."""

    object: dict
    text: str


@dataclass(frozen=True)
class Cut:
    """Watches break at a moment (of one kind or all); for `away_s` the server does not respond; then old versions are
    refused or not.

    With `roles_s` the server responds after that, but refuses all clients for that time, because it has not read its
    roles yet.
    """

    at: float
    away_s: float = 0.0
    kind: str = ""
    too_old: bool = False
    roles_s: float = 0.0


@dataclass(frozen=True)
class Play:
    """A play: the changes in the order of reception, the cuts, and the start."""

    start: float
    changes: tuple
    cuts: tuple = ()


def play_of(recording, job):
    """Make a play of a recording: lists after a broken watch become changes, gaps become cuts."""
    changes = [
        Change(line.t, line.kind, line.type, line.object) for line in recording.lines if recordings.is_change(line)
    ]
    first = next(c for c in changes if c.kind == "Job" and c.name == job)
    broken = [line for line in recording.lines if line.type == WATCH_ENDED]
    heard = [line.t for line in recording.lines if line.type != WATCH_ENDED and line.kind != MARK]
    cuts = []
    for line in broken:
        said = json.dumps(line.object)
        if _TOO_OLD.search(said):
            cuts.append(Cut(line.t, 0.0, line.kind, too_old=True))
            changes += _forgotten(changes, line)
        elif _BROKEN.search(said):
            answers = [b.t for b in broken if b.t > line.t and _TOO_OLD.search(json.dumps(b.object))]
            back = min([*answers, *(t for t in heard if t > line.t)], default=line.t)
            cuts.append(Cut(line.t, back - line.t, line.kind))
        else:
            cuts.append(Cut(line.t, 0.0, line.kind))
    return Play(first.at, tuple(sorted(changes, key=lambda c: c.at)), tuple(cuts))


def _origin(play, recording):
    """Return the time of day (in seconds) at which the recorded Job was created."""
    return datetime.datetime.fromisoformat(recording.wall).timestamp() + play.start


def _forgotten(changes, line):
    """Return objects missing in a new list: they were deleted without a watch."""
    after = [c for c in changes if c.kind == line.kind and c.at >= line.t]
    if not after:
        return []
    listed = {c.name for c in after if c.at <= after[0].at + _LISTED_S}
    known: dict[Any, Any] = {}
    for c in changes:
        if c.kind == line.kind and c.at < line.t:
            known.pop(c.name, None)
            if c.type != "DELETED":
                known[c.name] = c
    # Unreferenced events still exist: a list after a 410 alone does not restore a watch of them.
    return [Change(after[0].at, c.kind, "DELETED", c.object) for name, c in known.items() if name not in listed]


class Server:
    """The API server of one play, as a connection pool."""

    def __init__(self, world, play, recording, job, logs=None, then=None):
        """Prepare the server; `then` is (play, recording, job) for a second Job, the same again if None."""
        self._logs = logs or {}  # bytes by the pod's completion index; a missing one means no output
        self._world, self._then, self._origin = world, then, _origin(play, recording)
        self._take(play, recording, job)
        self._began, self._names, self._gone = None, [], False
        self.created = []  # names of the Jobs that were really created
        self.deleted = 0
        self._streams = []
        self._last = -math.inf

    def _take(self, play, recording, job):
        """Set the current play."""
        self._play, self._recording, self._job = play, recording, job
        self._by_kind = {k: [c for c in play.changes if c.kind == k] for k in RESOURCES.values()}
        self._times = {k: [c.at for c in cs] for k, cs in self._by_kind.items()}
        self._shift = self._origin - _origin(play, recording)
        self._texts, self._old, self._states = {}, {}, {}

    # -- time ----------------------------------------------------------------------------------------------------------

    def now(self):
        """Return the seconds of the recording."""
        return self._play.start - 1e-6 if self._began is None else self._play.start + self._world.now - self._began

    def until(self):
        """Return the last moment of the recording that a client has reached, in any of its attempts."""
        self._last = max(self._last, self.now())
        return self._last

    def _when(self, at):
        """Return the world's time at which the recording is at `at`."""
        return self._world.now + (at - self.now())

    def _away_until(self, kind=""):
        return max((c.at + c.away_s for c in self._play.cuts if c.at <= self.now() < c.at + c.away_s), default=None)

    # -- objects -------------------------------------------------------------------------------------------------------

    def _shown(self, change):
        key = id(change), len(self.created)
        if key not in self._texts:
            text = change.text
            for old, new in self._names:
                text = text.replace(old, new)
            delta = (
                datetime.timedelta(seconds=round((self._began or 0) - self._first + self._shift))
                if self.created
                else datetime.timedelta()
            )
            if delta:
                text = _STAMP.sub(lambda m: (datetime.datetime.fromisoformat(m[1]) + delta).isoformat() + m[2], text)
            self._texts[key] = Shown(json.loads(text), text)
        return self._texts[key]

    def _state(self, kind):
        if self._gone and kind not in ("Node", "Namespace", "Event"):  # events outlive their objects
            return []
        heard = bisect.bisect_right(self._times[kind], self.now())
        if self._states.get(kind, ())[:2] != (heard, len(self.created)):
            here: dict[Any, Any] = {}
            for change in self._by_kind[kind][:heard]:
                here.pop(change.name, None)
                if change.type != "DELETED":
                    here[change.name] = change
            self._states[kind] = heard, len(self.created), [self._shown(change) for change in here.values()]
        return self._states[kind][2]

    def _version(self, kind):
        heard = self._by_kind[kind][: bisect.bisect_right(self._times[kind], self.now())]
        return max((c.version for c in heard), default=1)

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    def request(self, verb, url, body=None, **_):
        """Answer like urllib3's PoolManager."""
        self._world.sleep(0.001)  # no response takes zero time
        if self._away_until() is not None:
            raise urllib3.exceptions.ProtocolError("Connection refused")
        parts = urlsplit(url)
        if any(c.at + c.away_s <= self.now() < c.at + c.away_s + c.roles_s for c in self._play.cuts):
            what = parts.path.partition("/namespaces/")[2].split("/")[1:2] or ["nodes"]
            reason = f'cannot {verb.lower()} resource "{what[0]}" in API group "" in the namespace "{self._recording.namespace}"'
            return _status(403, "Forbidden", f'{what[0]} is forbidden: User "u" {reason}')
        query = dict(parse_qsl(parts.query))
        sent = json.loads(body) if body else {}
        if parts.path == "/version":
            major, minor = self._recording.server.removeprefix("v").split(".")[:2]
            return _answer(200, {"gitVersion": self._recording.server, "major": major, "minor": minor})
        place = re.fullmatch(
            r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?(?:/([^/]+))?(?:/([^/]+))?(?:/([^/]+))?", parts.path
        )
        space, resource, name, sub = place.groups() if place else ("", "", "", "")
        kind, name = ("Namespace", space) if space and not resource else (RESOURCES.get(resource or "", ""), name)
        if verb == "POST":
            return self._refusal(space, resource) or self._post(kind, space, sent, dry="dryRun" in query)
        if verb == "DELETE":
            self._delete(kind)
            return _status(200, "", "")
        if not kind:
            return _status(404, "NotFound", "the server could not find the requested resource")
        return self._log(name, query) if sub == "log" else self._get(kind, name, query, sent)

    def _get(self, kind, name, query, sent):
        """Answer with one object (the sent patch, if the recording does not have it), a list or a watch."""
        if name:
            there = self._named(kind, name) or (Shown(sent, json.dumps(sent)) if sent else None)
            missing = f'{kind.lower()}s "{name}" not found'
            return Answer(200, there.text) if there else _status(404, "NotFound", missing)
        if query.get("watch") == "true":
            return self._watch(kind, query)
        selects = _selector(query)
        items = ", ".join(item.text for item in self._state(kind) if selects(item.object))
        meta = json.dumps({"resourceVersion": str(self._version(kind))})
        return Answer(200, f'{{"kind": "{kind}List", "metadata": {meta}, "items": [{items}]}}')

    def _named(self, kind, name):
        return next((item for item in self._state(kind) if item.object["metadata"]["name"] == name), None)

    def _delete(self, kind):
        if kind == "Job":
            self._gone, self.deleted = True, self.deleted + 1
            self._end_streams()

    def _refusal(self, space, resource):
        """Return the refusal of a recorded namespace that is being deleted, or was deleted
        (plugin/pkg/admission/lifecycle)."""
        here = self._named("Namespace", space)
        if self._began is None or not self._by_kind["Namespace"] or (here and not _is_deleted(here)):
            return None
        if not here:
            return _status(404, "NotFound", f'namespaces "{space}" not found')
        why = f"unable to create new content in namespace {space} because it is being terminated"
        return _status(403, "Forbidden", f'{resource} "x" is forbidden: {why}')

    def _post(self, kind, space, sent, *, dry):
        meta = sent.setdefault("metadata", {})
        if kind != "Job" or dry:
            meta.setdefault("uid", "00000000-0000-4000-8000-000000000000")
            return _answer(201, sent)
        self._end_streams()
        self.until()
        if self.created and self._then:
            self._take(*self._then)
        self._began, self._gone = self._world.now, False
        if not self.created:
            self._first = self._began
        self.created.append(meta["name"])
        self._names = [(self._job, meta["name"]), (self._recording.namespace, space)]
        made = next(c for c in self._by_kind["Job"] if c.name == self._job)
        return Answer(201, self._shown(made).text)

    def _watch(self, kind, query):
        since = int(query.get("resourceVersion") or 0)
        for cut in self._play.cuts:
            if (
                cut.too_old
                and cut.kind in ("", kind)
                and cut.at <= self.now()
                and self._old.get((kind, cut.at), 0) == 0
            ):
                self._old[kind, cut.at] = 1
                if since < self._version(kind) or cut.kind:
                    return _status(410, "Expired", f"too old resource version: {since} ({self._version(kind)})")
        end = self._world.now + float(query.get("timeoutSeconds") or 3600)
        self._streams.append(Stream(self._world, self._events(kind, since, query), end))
        return self._streams[-1]

    def _end_streams(self):
        """Notify every watch that another Job is played, or none."""
        for stream in self._streams:
            self._world.wake(stream)
        self._streams.clear()

    def _events(self, kind, since, query):
        """Yield (moment, bytes) of received events; a cut raises, another Job or its deletion ends the watch."""
        run, opened, selects = len(self.created), self.now(), _selector(query)
        cut = min((c.at for c in self._play.cuts if c.kind in ("", kind) and c.at > opened), default=math.inf)
        for change in [*(c for c in self._by_kind[kind] if c.version > since), None]:
            due = min(cut, math.inf if change is None else change.at)
            while self.now() < due - 1e-6:
                yield (None if due == math.inf else self._when(due)), b""
                if len(self.created) != run or self._gone:
                    return
            if due == cut:
                raise urllib3.exceptions.ProtocolError("Connection broken: IncompleteRead")
            item = self._shown(change)
            if selects(item.object):
                yield self._world.now, f'{{"type": "{change.type}", "object": {item.text}}}\n'.encode()

    def _log(self, name, query):
        """Answer with the pod's output, which ends with its container."""
        item = self._named("Pod", name)
        if item is None:
            return _status(404, "NotFound", f'pods "{name}" not found')
        pod = item.object
        states = [s for s in pod["status"].get("containerStatuses") or [] if s["name"] == query.get("container")]
        if not any("running" in s["state"] or "terminated" in s["state"] or s.get("lastState") for s in states):
            return _status(400, "BadRequest", f'container in pod "{name}" is waiting to start')
        said = self._logs.get(pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-completion-index"), b"")
        return Stream(self._world, self._speech(name, query, said), self._world.now + 3600)

    def _speech(self, name, query, said):
        if said:
            yield self._world.now, said
        while query.get("follow") == "true":
            item = self._named("Pod", name)
            states = (item.object if item else {}).get("status", {}).get("containerStatuses") or []
            if not any(s["name"] == query.get("container") and "running" in s["state"] for s in states):
                return
            yield self._world.now + 0.25, b""


class Stream:
    """A streamed response, with the part of urllib3's HTTPResponse that the client uses."""

    status = 200

    def __init__(self, world, parts, end):
        self._world, self._parts, self._end, self._over = world, parts, end, False
        self.headers = urllib3.HTTPHeaderDict({"Content-Type": "application/json"})

    def read1(self, _=0):
        while not self._over:
            try:
                moment, data = next(self._parts)
            except StopIteration:
                return b""
            if data:
                return data
            if self._world.now >= self._end:
                return b""
            self._world.block(self._end if moment is None else min(moment, self._end), self)
        raise urllib3.exceptions.ProtocolError("cut")

    def shutdown(self):
        self._over = True
        self._world.wake(self)

    def close(self):
        pass


class Answer:
    """A complete response."""

    def __init__(self, status, text):
        self.status, self._data = status, text.encode()
        self.headers = urllib3.HTTPHeaderDict({"Content-Type": "application/json"})

    def read1(self, _=0):
        data, self._data = self._data, b""
        return data

    def shutdown(self):
        pass

    close = shutdown


def _is_deleted(shown):
    return bool(shown.object["metadata"].get("deletionTimestamp"))


def _answer(status, body):
    return Answer(status, json.dumps(body))


def _status(code, reason, message):
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Success" if code < 300 else "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return _answer(code, status)


def _selector(query):
    """Return a function that says whether an object has the requested labels and fields."""
    pairs = [
        (("metadata", "labels", key) if by == "labelSelector" else tuple(key.split(".")), value)
        for by in ("labelSelector", "fieldSelector")
        for key, _, value in (pair.replace("==", "=").partition("=") for pair in query.get(by, "").split(",") if pair)
    ]

    def matches(thing):
        return all(reduce(lambda place, part: (place or {}).get(part), path, thing) == value for path, value in pairs)

    return matches


def at(change, moment):
    """Return the change at another moment, with its cached data."""
    change.text  # noqa: B018
    moved = copy.copy(change)
    vars(moved)["at"] = moment
    return moved
