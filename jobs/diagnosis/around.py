"""The timeline around a job's failure: events, conditions of its nodes, messages in its logs.

A cause precedes its effect, and concerns a node or pod of the job. The most severe of these is the likely cause (an
eviction, a failed GPU, a lost node, then storage and links), on the failing pod's own node before others. The rest is
classified as possible or nearby.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from seatrial.faults.xid import XID, xids

from ..cluster.facts.conditions import is_unhealthy
from ..cluster.facts.events import Event
from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured, as_list, as_map, by_type, name_of, node_of

EVICTION = re.compile(r"Evict(?!ionThreshold)|Preempt|DisruptionTarget|DeletionByTaintManager|TerminationByKubelet")
"""Matches reasons only: the scheduler's messages explain for every pending pod why preemption does not help it."""
TAKEN_BACK = "Cancelling deletion of Pod"
"""The taint manager's message for an eviction that is canceled because the taint was removed in time."""
KINDS = (
    (
        "gpu",
        r"\b(?:Xid|XID)|NVRM|fallen off the bus|G(?:PU|pu)(?:HasFallen|Unhealthy|Lost|Missing)"
        r"|(?:uncorrectable|double.?bit) ECC",
    ),
    (
        "storage",
        r"Failed(?:Mount|AttachVolume)|Input/output error|\bI/O error|Stale file handle|No space left on device"
        r"|Read-only file system|Transport endpoint is not connected|server \S+ not responding"
        r"|Disk quota exceeded|EXT4-fs error",
    ),
    (
        "link",
        r"\b[Ll]ink(?: is| status definitely)? (?:down|Down|DOWN|lost)(?![\w-])|LinkDown|NIC(?:Down|Lost)|IBPort"
        r"|\b[Pp]ort(?:[ _]state:?)?(?: \d{1,3})?(?: is| state)?:? (?:down|Down|DOWN)(?![\w-])"
        r"|carrier lost|[Ll]ost carrier|Cable unplugged|async (?:fatal )?event ?: ?port error",
    ),
    (
        "node",
        r"EvictionThreshold|NodeNot(?:Ready|Schedulable)|Rebooted|Shutdown|Kernel(?:Oops|Deadlock|Panic)|TaskHung|OOM"
        r"|(?:Deleting|Removing)Node|ScaleDown\b|SpotInterruption",
    ),
)
"""Kinds of events, conditions and log lines, most severe first except the node. Sources: reasons of the kubelet, the
controllers, cluster-autoscaler, aws-node-termination-handler and node-problem-detector (its config/); messages of
Linux (phylib, bonding, mlx5), libibverbs and NVRM."""
OTHER = "other"
"""Other warnings about a node (CheckLimitsForResolvConf, ImageGCFailed): reported, but not a cause."""
_COMPILED = tuple((kind, re.compile(text)) for kind, text in KINDS)
_HARDNESS = {"eviction": 0, "gpu": 1, "node": 2, "storage": 3, "link": 4}
LINE_KINDS = frozenset({"gpu", "storage", "link"})
WITHIN_S = 1800.0
"""Seconds between a cause and its failure, at most: the longest default timeout of torch.distributed (30 min; NCCL's is
10)."""
SECOND_S = 1.0
"""Timestamps of events and conditions have a resolution of one second."""
NOT_READY_S = 50.0
"""Seconds until an unresponsive node is reported NotReady (node-monitor-grace-period of the controllers)."""
MOST = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An event: RFC 3339 time, kind, pod and node ('' without either)."""

    at: str
    kind: str
    text: str
    pod: str = ""
    node: str = ""
    role: str = "nearby"  # failure | likely | possible | nearby
    why: str = ""


def kind_of(reason: str, text: str = "") -> str:
    """Return the kind of an event, a condition or a line (a text without a reason); '' if unknown."""
    if EVICTION.search(reason):
        return "eviction"
    return next((kind for kind, pattern in _COMPILED if pattern.search(reason) or pattern.search(text)), "")


def from_events(events: Iterable[Event], nodes: Mapping[str, str]) -> Iterator[Moment]:
    """Yield the events about the job's pods (name -> node) and their nodes.

    Included are those of a known kind, and all warnings about a node.

    A repeated event is yielded at its first and its last time, because a cause may persist after its effect.
    """
    names = set(nodes.values())
    for event in events:
        if event.message.startswith(TAKEN_BACK):
            continue
        kind = kind_of(event.reason, event.message if event.warning else "")
        for at in dict.fromkeys(filter(None, (event.since, event.when))):
            if event.kind == "Node" and event.name in names and (kind or event.warning):
                yield Moment(at=at, kind=kind or OTHER, node=event.name, text=_said(event))
            elif event.kind == "Pod" and event.name in nodes and kind:
                yield Moment(at=at, kind=kind, pod=event.name, node=nodes[event.name], text=_said(event))


def _said(event: Event) -> str:
    return safe(f"{event.reason}: {event.message}" + (f" (x{event.count})" if event.count > 1 else ""), 300)


def from_node(node: Unstructured) -> Iterator[Moment]:
    """Yield the changes of a node's conditions: when a bad one began, and when one recovered."""
    name = safe(name_of(node), 253)
    for kind, condition in by_type(as_map(node.get("status"))).items():
        at, state = str(condition.get("lastTransitionTime") or "")[:40], str(condition.get("status"))
        bad = is_unhealthy(kind, state)
        if not bad and kind != "Ready":
            continue  # healthy for an unknown time: the state before is not reported
        about = f"{kind}={state}"
        said = f"{condition.get('reason') or ''}: {condition.get('message') or ''}".strip(": ")
        text = f"{about} ({said})" if said else about
        yield Moment(
            at=at, kind=kind_of(kind, said) or "node", node=name, text=safe(text if bad else f"{about} again", 300)
        )


def from_pod(pod: Unstructured) -> Iterator[Moment]:
    """Yield failures of containers, and the pod's disruption condition."""
    name, node = _place(pod)
    status, unreported = as_map(pod.get("status")), True
    for entry in as_list(status.get("containerStatuses")):
        for state in (as_map(entry.get("state")), as_map(entry.get("lastState"))):
            end = as_map(state.get("terminated"))
            if end.get("exitCode"):
                unreported = False
                text = f"container {entry.get('name')} ended: {end.get('reason')}, exit code {end.get('exitCode')}"
                yield Moment(
                    at=str(end.get("finishedAt") or "")[:40], kind="failure", pod=name, node=node, text=safe(text, 200)
                )
    conditions = by_type(status)
    disrupted = conditions.get("DisruptionTarget") or {}
    if unreported and status.get("phase") == "Failed":  # an evicted pod may report no container
        at = str((conditions.get("Ready") or disrupted).get("lastTransitionTime") or "")[:40]
        text = f"the pod failed: {status.get('reason') or 'no reason is reported'}"
        yield Moment(at=at, kind="failure", pod=name, node=node, text=safe(text, 200))
    if disrupted.get("status") == "True":
        text = f"{disrupted.get('reason') or 'DisruptionTarget'}: {disrupted.get('message') or ''}".strip(": ")
        at = str(disrupted.get("lastTransitionTime") or "")[:40]
        yield Moment(at=at, kind="eviction", pod=name, node=node, text=safe(text, 300))


def from_lines(pod: Unstructured, lines: Iterable[str]) -> Iterator[Moment]:
    """Yield lines of a pod's log (each after its RFC 3339 time) about storage, a GPU or a link."""
    name, node = _place(pod)
    for line in lines:
        at, _, text = line.partition(" ")
        kind = kind_of("", text)
        if kind in LINE_KINDS and time_of(at) is not None:
            yield Moment(at=at, kind=kind, pod=name, node=node, text=safe(text.strip(), 200))


def judged(moments: Iterable[Moment], pods: Sequence[Unstructured]) -> list[Moment]:
    """Return the events during the job in order, each with its role in the failure."""
    timed = {replace(moment, at=_utc(at)) for moment in moments if (at := time_of(moment.at)) is not None}
    moments_in_order = sorted(timed, key=lambda moment: (_seconds(moment), moment.text))
    began = min(
        filter(None, (time_of(as_map(pod.get("metadata")).get("creationTimestamp")) for pod in pods)), default=None
    )
    moments_in_order = [moment for moment in moments_in_order if began is None or _seconds(moment) >= began.timestamp()]
    failure = next((moment for moment in moments_in_order if moment.kind == "failure"), None)
    if failure is None:
        return moments_in_order[-MOST:]
    started = {_place(pod)[0]: _started(pod) for pod in pods}
    judged_moments = [_against(moment, failure, started) for moment in moments_in_order]
    possible = [m for m in judged_moments if m.role == "possible" and m.kind != OTHER and not _of_program(m)]
    if possible:
        likely = min(possible, key=lambda moment: _rank(moment, failure))
        judged_moments[judged_moments.index(likely)] = replace(likely, role="likely")
    return _bounded(judged_moments)


def _against(moment: Moment, failure: Moment, started: Mapping[str, float | None]) -> Moment:
    """Classify an event by time: a cause precedes the failure by at most a timeout."""
    if moment is failure:
        return replace(moment, role="failure", why="the first failure")
    before = _seconds(failure) - _seconds(moment)
    if why := _apart(moment, before, started):
        return replace(moment, why=why)
    where = "on another node of the job"
    if moment.node == failure.node:
        where = "in this pod" if moment.pod == failure.pod else "on its node"
    usual = "; the program itself usually causes such an Xid" if _of_program(moment) else ""
    return replace(moment, role="possible", why=f"{_ago(before)} {failure.pod} failed first, {where}{usual}")


def _of_program(moment: Moment) -> bool:
    return moment.kind == "gpu" and only_of_programs(moment.text)


def only_of_programs(text: str) -> bool:
    """Return whether a text contains only Xids that a program usually causes itself."""
    numbers = {int(number) for number in XID.findall(text)}
    return bool(numbers) and all(number in xids() and xids()[number].program for number in numbers)


def _apart(moment: Moment, before: float, started: Mapping[str, float | None]) -> str:
    """Explain why an event so many seconds before the failure cannot be its cause; '' if it can."""
    if moment.kind == "failure":
        return "after the first failure"
    begin = started.get(moment.pod)
    if moment.kind == "storage" and begin is not None and _seconds(moment) < begin:
        return "before its container started successfully"
    if before > WITHIN_S:
        return f"{before / 60:.0f} min before the failure"
    late_events = (moment.kind == "node" and "NotReady" in moment.text) or moment.text.startswith("Ready=")
    if before < -(NOT_READY_S if late_events and not moment.text.endswith(" again") else SECOND_S):
        return "after the failure"
    return ""


def _ago(before: float) -> str:
    if before >= 0:
        return f"{before:.0f} s before"
    return f"reported {-before:.0f} s after"


def _rank(moment: Moment, failure: Moment) -> tuple[bool, int, float]:
    return (moment.node != failure.node, _HARDNESS.get(moment.kind, 9), abs(_seconds(failure) - _seconds(moment)))


def _bounded(moments: list[Moment]) -> list[Moment]:
    """Return at most MOST of them in order of time; those with a role in the failure have priority."""
    most_likely = sorted(
        range(len(moments)), key=lambda n: ("likely", "failure", "possible", "nearby").index(moments[n].role)
    )[:MOST]
    return [moments[n] for n in sorted(most_likely)]


def _place(pod: Unstructured) -> tuple[str, str]:
    return safe(name_of(pod), 253), safe(node_of(pod), 253)


def _started(pod: Unstructured) -> float | None:
    for entry in as_list(as_map(pod.get("status")).get("containerStatuses")):
        for state in as_map(entry.get("state")).values():
            if (began := time_of(as_map(state).get("startedAt"))) is not None:
                return began.timestamp()
    return None


def time_of(text: object) -> datetime.datetime | None:
    """Parse an RFC 3339 time with a zone; None for anything else."""
    try:
        moment = datetime.datetime.fromisoformat(str(text or ""))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _utc(at: datetime.datetime) -> str:
    """Format a time in UTC: a container runtime uses its node's time zone."""
    return at.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(moment: Moment) -> float:
    moment_time = time_of(moment.at)
    return moment_time.timestamp() if moment_time else 0.0
