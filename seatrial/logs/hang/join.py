"""Join the facts about a rank: its process in the log and RAS, its pod and node, its network, its last lines.

Pure: no file is opened here, `read_tail` is given. Other facts are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..job.streams import group
from ..reader.lines.clean import printable

if TYPE_CHECKING:
    from ..reader.state.partial import Partial
    from .model import Decision, Evidence, Pod

MOST_PLACES = 32
_WORDS = 300
Tail = Callable[[str], Iterable[str]]
"""Returns the last lines of a log, by the name under which it was read."""
_WORD = re.compile(r"[A-Za-z]{2}")
_ASIDE = re.compile(
    r"(?:Future|Deprecation)Warning\b|\bwarnings\.warn\(|\bis deprecated\b|dump signal"
    r"|Flight recorder dump|to dump (?:the )?debug info"
)
"""Incidental messages: deprecations, and that torch writes a dump because another rank requested it."""
_RANKED = r"(?:\[rank{0}\]|\[default{0}\]|\brank[ =:]{0}\b|\bRank {0}\])"


@dataclass(frozen=True, slots=True)
class Process:
    """A rank's process in the NCCL log; `file` is the log of its last line."""

    file: str
    host: str
    pid: int
    alone: bool
    """No other process wrote into that log."""
    creating: int = 0
    """The size of a communicator, other than the world, whose creation it began and did not finish."""


def processes(partial: Partial, files: AbstractSet[str], *, one_job: bool = False) -> dict[int, Process]:
    """Return the processes of the world's ranks of the one job in some files; empty if there are several jobs."""
    jobs = [
        job
        for job in group(partial, one_job)
        if job.procs and any(source.name in files for source in job.sources.values())
    ]
    if len(jobs) != 1:
        return {}
    (job,) = jobs
    crowd: dict[int, int] = {}
    for proc in job.procs:
        for source in proc.sources:
            crowd[source] = crowd.get(source, 0) + 1
    by_rank: dict[int, Process] = {}
    for proc in job.procs:
        if proc.host is None or proc.pid is None or not proc.sources:
            continue
        source = max(proc.sources)
        begun = [
            c.nranks for (key, _), c in proc.comms.items() if key not in job.world and c.started and not c.completed
        ]
        for key, rank in proc.comms:
            if key in job.world and source in job.sources:
                by_rank[rank] = Process(
                    job.sources[source].name, proc.host, proc.pid, crowd[source] == 1, max(begun, default=0)
                )
    return by_rank


def waits_in_creation(made: Decision, logged: Mapping[int, Process]) -> Decision:
    """Clear late ranks that wait for others in the creation of a communicator, if others are late, or may be."""
    creating = {rank for rank in made.late if rank in logged and logged[rank].creating}
    if made.kind != "late" or not creating or not (made.late - creating or made.unknown):
        return made
    cleared = tuple(f"rank {rank} " for rank in creating)
    kept = [each for each in made.because if each[0] != "Flight Recorder" or not each[2].startswith(cleared)]
    text = "rank {} began to create a communicator of {} ranks and waits there for the others"
    shown = [(logged[rank].file, 0, text.format(rank, logged[rank].creating)) for rank in sorted(creating)[:4]]
    late, waiting, because = made.late - creating, made.waiting | creating, (*kept, *shown)
    if late:
        return replace(made, late=late, waiting=waiting, because=because)
    return replace(made, kind="undecided", proven=False, late=late, waiting=waiting, because=because)


def join(
    made: Decision,
    evidence: Evidence,
    document: Mapping[str, Any],
    logged: Mapping[int, Process],
    read_tail: Tail | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the known facts of each late, dead or silent rank: host, GPU, process, pod, node, network, last line."""
    places: dict[str, dict[str, Any]] = {}
    hosts = {rank: host for host in document["hosts"] for rank in host["ranks"] if host["name"]}
    for rank in sorted(made.late | made.dead | (made.unknown if len(made.unknown) <= MOST_PLACES else set()))[
        :MOST_PLACES
    ]:
        ras_place, spoke = made.places.get(rank), logged.get(rank)
        place: dict[str, Any] = {
            "host": (ras_place.host if ras_place else None) or (spoke.host if spoke else None),
            "gpu": ras_place.gpu if ras_place and ras_place.gpu else None,
            "pid": (ras_place.pid if ras_place else None) or (spoke.pid if spoke else None),
        }
        pod = _pod(evidence.pods, ras_place.host if ras_place else "", spoke)
        if pod is not None:
            place |= {"pod": pod.name, "namespace": pod.namespace, "node": pod.node}
            place |= {"pod_state": pod.trouble} if pod.trouble else {}
            place |= {"node_state": pod.node_trouble} if pod.node_trouble else {}
        host = hosts.get(rank)
        if host is not None:
            place["network"] = network(document, host["name"])
        if spoke is not None and read_tail is not None:
            last_lines = last_words(read_tail(spoke.file), spoke, rank)
            place |= {"last_words": last_lines} if last_lines else {}
        if any(value is not None for value in place.values()):
            places[str(rank)] = place
    return places


def _pod(pods: Iterable[Pod], address: str, spoke: Process | None) -> Pod | None:
    """Return the pod of a process: by its log, its host name, or its address if only one pod has it."""
    if spoke is not None:
        for pod in pods:
            if spoke.file.partition(" ")[0] == pod.name or spoke.host == pod.name:
                return pod
    named = [pod for pod in pods if address and address in (pod.name, *pod.addresses)]
    return named[0] if len(named) == 1 else None


def network(document: Mapping[str, Any], host: str) -> dict[str, Any] | None:
    """Return the transport of a host's data to and from other hosts, by the log; None if unknown."""
    pairs = [pair for pair in document["pairs"] if host in (pair["src"], pair["dst"])]
    if not pairs:
        return None
    transports: dict[str, int] = {}
    for pair in pairs:
        for name, count in pair["transports"].items():
            transports[name] = transports.get(name, 0) + count
    direct = {pair["gdr"] for pair in pairs if pair["gdr"] is not None}
    peers = {end for pair in pairs for end in (pair["src"], pair["dst"])} - {host}
    return {
        "transports": dict(sorted(transports.items())),
        "gdr": None if not direct else "mixed" if len(direct) > 1 else next(iter(direct)),
        "hosts": len(peers),
    }


def last_words(lines: Iterable[str], spoke: Process, rank: int) -> str:
    """Return the last line of a log that a rank's process wrote, by its NCCL prefix or torch's; empty without one.

    A library's incidental message counts only if the process wrote nothing else.
    """
    own = re.compile(rf"{re.escape(spoke.host)}:{spoke.pid}:|" + _RANKED.replace("{0}", str(rank)))
    last = aside = ""
    for line in lines:
        if _WORD.search(line) and (spoke.alone or own.search(line[:400])):
            if _ASIDE.search(line):
                aside = line.strip()
            else:
                last = line.strip()
    return printable(last or aside, _WORDS)


def place_sentences(places: Mapping[str, Mapping[str, Any]], faults: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the additions of the joined evidence, as sentences without full stops."""
    said = []
    for rank, place in list(places.items())[:4]:
        states = [
            f"pod {place['pod']}" + (f" on node {place['node']}" if place.get("node") else "")
            if place.get("pod")
            else "",
            f"the pod: {place['pod_state']}" if place.get("pod_state") else "",
            f"the node: {place['node_state']}" if place.get("node_state") else "",
        ]
        if any(states):
            said.append(f"rank {rank} is " + "; ".join(state for state in states if state))
    if (carried := _carried(places)) and not any(fault["severity"] in ("fatal", "degraded") for fault in faults):
        said.append(f"{carried}, and the log has no warning about it")
    elif carried:
        said.append(carried)
    return said


def _carried(places: Mapping[str, Mapping[str, Any]]) -> str:
    """Name the transport of these ranks' hosts."""
    networks = [place["network"] for place in places.values() if place.get("network")]
    if not networks:
        return ""
    names = sorted({name for network in networks for name in network["transports"]})
    direct = {network["gdr"] for network in networks}
    with_gdr = (
        {True: " with GPUDirect", False: " without GPUDirect"}.get(next(iter(direct)), "") if len(direct) == 1 else ""
    )
    pronoun = "its" if len(places) == 1 else "their"
    shown = ", ".join(
        {"ib": "InfiniBand", "roce": "RoCE", "efa": "EFA", "socket": "sockets"}.get(name, name) for name in names
    )
    return f"{pronoun} data between hosts went over {shown}{with_gdr if names != ['socket'] else ''}"
