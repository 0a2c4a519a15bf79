"""The judgement of a job: its facts become faults, a verdict, and one sentence.

Verdict: ``no-go`` with any fatal or degrading fault. ``go`` only with evidence: several nodes, RDMA (or an NVLink
fabric) in channel lines of ranks, and nothing against it; or one node with connected ranks or a complete table.
Everything else is ``inconclusive``: a log that shows nothing proves nothing.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, cast

from ...faults.catalogue import having
from ..job.hosts import hosts_of
from ..job.jobs import place
from ..reader.events.symptoms import BENIGN, CAUSE, CONSEQUENCE, SYMPTOMS, WHY
from ..reader.events.transports import RDMA
from ..reader.state.copies import LISTS
from .faults import found_fault, lowered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...faults.variants import Variant
    from ..job.view import View
    from ..job_document import EvidenceLine, Expected, FoundFault, ReadTable, Verdict
    from ..reader.state.process import Note, Proc


Rules = tuple[tuple[str, "Callable[[Judgement], None]"], ...]
"""Rules, each with the kind of evidence that it judges."""


class Judgement:
    """The faults of one job and their conclusions."""

    def __init__(self, view: View, expect: Expected) -> None:
        self.view = view
        self.job = view.job
        self.expect = expect
        self.hosts = hosts_of(view)
        self.tables = [cast("ReadTable", table) for source in self.job.sources.values() for table in source.tables]
        self.tabled = {(line[0], line[1]) for line in self.job.rank_lines.values()}  # host and pid of a table's ranks
        self.faults: list[FoundFault] = []
        self.causes: list[tuple[str, Note]] = []  # causes in lines of any process, the earliest first
        self.event = self.job.events.get  # the first occurrence of an event in the job's streams, or None
        self.hang, self.crash = self._ending()
        with_channels = {proc.host for proc in self.job.procs if proc.edges}
        listed = {name[len(LISTS) :] for name in self.job.events if name.startswith(LISTS)}
        listed |= set(self.job.rank_hosts.values()) if listed else set()
        self.not_shown = sorted(listed - with_channels)  # hosts without a channel, in a log of two benchmarks
        self.ended_badly = False  # whether the job failed and a fault explains how
        symptoms = any(name.startswith(("nccl.", "symptom ", UNHEADED)) for name in (*self.job.noted, *self.job.events))
        connections = "connected" in self.job.flags or self.job.facts["version"]
        self.shows: dict[str, object] = {  # lines in the log by kind of evidence, empty without any
            "anything": True,
            "trouble": self.hang or self.crash or symptoms,
            "strange lines": symptoms or not UNEXPLAINED.isdisjoint((*self.job.noted, *self.job.events)),
            "last words": "ending" in self.job.events,
            "versions": len(self.job.facts["version"]) > 1,
            "forms of a message": self.job.facts["plugin-form"],
            "communicators": self.job.comms,
            "connections": connections,
            "what a cut ends": self.tables or self.job.comms or connections,
            "network inside a host": view.local_net,
            "shared memory": view.local["shm"],
            "NVLink fabric": "fabric" in self.job.flags,
            "split hosts": view.split_nodes,
            "port rates": self.job.facts["port"],
            "network devices": any(proc.hcas for proc in self.job.procs),
            "devices without GPUDirect": self.job.facts["gdr-off"],
            "ranks of hosts": any(host["ranks"] for host in self.hosts),
            "runs": self.job.comms or self.job.numbers.get("world") or self.event("separate-runs") or self.tables,
            "tables": self.tables,
            "DCGM": any(name.startswith("dcgm ") for name in self.job.events),
            "cut channels": not {"line channel-cut", "line channel-unknown"}.isdisjoint(self.job.noted),
        }

    def apply(self, rules: Rules) -> None:
        """Apply rules in order, each if the log has its kind of evidence."""
        for needed, rule in rules:
            if self.shows[needed]:
                rule(self)

    # -- endings -------------------------------------------------------------------------------------------------------
    @cached_property
    def finished(self) -> bool:
        """Whether a benchmark or the job's own communicator ended normally: then lost peers are not trouble."""
        return self.job.destroyed(self.job.world) or any(table["complete"] for table in self.tables)

    @cached_property
    def ended_well(self) -> bool:
        """Whether everything that began has ended, and no line reports a death of the job's processes."""
        if any(map(self.event, _DEATHS)) or any(proc.last_error for proc in self.job.procs):
            return False
        if self.tables:
            return all(table["complete"] and table["avg_ok"] is not False for table in self.tables)
        procs = [proc for proc in self.job.procs if proc.comms]
        return bool(procs) and all(map(self.job.ended, procs))

    def _ending(self) -> tuple[bool, bool]:
        """Distinguish a hang from a crash by the end of the log.

        A process that died by itself (a signal, an NCCL error, a failed launch) is a crash, even if a watchdog then
        ended it. A job that still waited when a watchdog or a time limit ended it is a hang.
        """
        waited = any(map(self.event, _WAITED))
        died = any(map(self.event, _DIED))
        failed_test = any(table["avg_ok"] is False or table["out_of_bounds_ok"] is False for table in self.tables)
        ended = any(proc.last_error for proc in self.job.procs) or bool(
            self.event("nccl-error") or self.event("gloo-error")
        )
        ended = ended or (bool(self.event("test-stack") or self.event("terminated")) and not failed_test)
        deadly = [name for name in self.job.noted if name in having("deadly") and not self.survived(name)]
        ended = ended or (bool(deadly) and any(note.is_cause for note in self._notes(deadly)))
        if died:
            return False, True
        return waited, ended and not waited

    def survived(self, cause: str) -> bool:
        """Return whether a cause that prevents a process from starting did not stop this job, since it completed.

        NCCL continued without it, or the line is another process's. A fault of a running job may have occurred after
        that end, unless only processes that reached the end warn of it.
        """
        if not self.ended_well or cause not in having("stage", "running"):
            return self.ended_well
        warned = self.job.noted.get(cause, [])
        reached = bool(warned) and not self.event("symptom " + cause)
        return reached and all(self.job.ended(proc) or (proc.host, proc.pid) in self.tabled for proc in warned)

    def _peers_gone(self) -> list[Note]:
        """Return the processes' messages about peers that disconnected before the end of their run."""
        said = dict.fromkeys(proc for name in FOLLOWS for proc in self.job.noted.get(name, ()))
        if not said:
            return []
        named = any((proc.host, proc.pid) in self.tabled for proc in self.job.procs)
        whole = any(table["complete"] for table in self.tables)
        ends: dict[tuple[str, ...], bool] = {}
        notes = []
        for proc in said:
            largest = self.job.largest(proc)
            if largest not in ends:
                ends[largest] = self.job.left_by_all(largest)
            of_table = whole and (not named or (proc.host, proc.pid) in self.tabled)
            if not (of_table or (ends[largest] if largest else self.finished)):
                notes += [proc.notes[name] for name in FOLLOWS if name in proc.notes]
        return notes

    def report_earlier(self, earlier: Judgement) -> None:
        """Report the end of an attempt before the job's last one."""
        fault = earlier.faults[0]
        cause = (fault["cause"] or "").rstrip(".").removesuffix(LATER)
        reached = "completed" if self.ended_well else "came up, and the log shows no fault"
        said = "the last attempt %s, but one before it failed: %s (%s)" % (reached, lowered(fault["title"]), cause)
        self.add("nccl.restarted", fault["subject"], fault["evidence"], cause=said)

    # -- faults --------------------------------------------------------------------------------------------------------
    def add(
        self,
        fault: str,
        subject: str,
        evidence: list[EvidenceLine],
        *,
        why: str | None = None,
        cause: str | None = None,
        variant: Variant | None = None,
    ) -> None:
        """Report a fault; ``why`` names the fault that explains it and supplies cause, confirmation and remedy."""
        self.faults.append(found_fault(fault, subject, evidence, why=why, cause=cause, variant=variant))

    def line(self, note: Note | None) -> list[EvidenceLine]:
        """Return a note as evidence: file, line, text."""
        if note is None:
            return []
        source = self.job.sources.get(note.source)
        return [{"file": source.name if source else None, "line": note.line, "text": note.text}]

    def earliest(self, name: str) -> tuple[Note | None, list[Proc]]:
        """Return the first occurrence of a symptom, and the processes that show it."""
        procs = self.job.noted.get(name, [])
        return self.job.first_note(name, procs), procs

    # -- verdict -------------------------------------------------------------------------------------------------------
    def has(self, *names: str) -> bool:
        """Return whether one of these faults was reported."""
        return any(fault["fault"] in names for fault in self.faults)

    def verdict(self) -> Verdict:
        """Return go, no-go or inconclusive."""
        if any(fault["severity"] in ("fatal", "degraded") for fault in self.faults):
            return "no-go"
        doubtful = self.has(
            "nccl.gdr-hca-off",
            "nccl.port-rate",
            "nccl.log-truncated",
            "nccl.odd-numbers",
            "nccl.restarted",
            "nccl.separate-runs",
            "nccl.unexplained",
        )
        return "go" if self.proven() and not doubtful else "inconclusive"

    def unexplained(self) -> Note | None:
        """Return the first line that mentions trouble which no rule judges: then nothing is proven healthy."""
        notes = self._notes(_UNEXPLAINED_NOTES)
        named = {event[8:]: note for event, note in self.job.events.items() if event.startswith("symptom ")}
        notes += [note for _, note in self.unheaded()]
        for name in _UNEXPLAINED_EVENTS:
            note = self.event(name)
            if note is not None and not (name in _CAUGHT and self._overcome(note)):
                notes.append(note)
        notes += [note for note in self._notes(_NEVER_RETRIED) if note.role != WHY]
        warned = having("blame", "warning")
        notes += [note for name, note in self.causes if name in _TRIED and "retrying" not in note.text]
        notes += self._peers_gone()
        if not self.finished:
            notes += [note for name, note in self.causes if name not in warned]
        ends = {*_NEVER_RETRIED} - warned  # a normal end of the job does not show that all other processes reached it
        notes += [note for name, note in named.items() if name in ends and note.role != WHY]
        notes += [named[name] for name in _RAISED if name in named and self._is_reported(named[name])]
        return min(notes, key=place, default=None)

    def unheaded(self) -> list[tuple[str, Note]]:
        """Return the faults that NCCL warnings without a head mention ("" if unknown), in their order."""
        said = [(name[len(UNHEADED) :], note) for name, note in self.job.events.items() if name.startswith(UNHEADED)]
        return sorted(said, key=lambda each: place(each[1]))

    def _notes(self, names: Iterable[str]) -> list[Note]:
        """Return the lines of some kinds that processes printed."""
        return [proc.notes[name] for name in names for proc in self.job.noted.get(name, ())]

    def passed_over(self) -> Note | None:
        """Return the first cause that a line names and no fault does, because the job completed."""
        if self.has("nccl.unexplained", "nccl.restarted", *(name for name, _ in self.causes)):
            return None
        said = [note for name, note in self.causes if name in _NEVER_RETRIED and name not in having("blame", "warning")]
        return min(said, key=place, default=None) if self.ended_well else None

    def _is_reported(self, note: Note) -> bool:
        """Return whether a line is neither a warning nor a wait before NCCL began, in a job that completed."""
        return not _WARNS.search(note.text) and not (self.finished and self.comes_earlier(note))

    def _overcome(self, note: Note) -> bool:
        """Return whether a line is the only one of its kind, and before NCCL began, in a job that completed.

        An event that a rule names is not an exception that a program handles; neither is a message of a launcher or the
        kernel.
        """
        alone = self.finished and note.count == 1 and self.comes_earlier(note) and not _OUTSIDE.search(note.text)
        return alone and note.role in ("", BENIGN)

    def comes_earlier(self, note: Note) -> bool:
        """Return whether a line precedes NCCL's first one in its stream."""
        source = self.job.sources[note.source]
        began = [table["line"] for table in source.tables] + [first for first, _ in source.spans.values()]
        began += [each.line for proc in self.job.procs for each in proc.notes.values() if each.source == note.source]
        return note.line < min(began, default=0)

    def proven(self) -> bool:
        """Return whether the log holds positive evidence of a healthy job."""
        view = self.view
        if self.hang or self.crash or self.not_shown or view.size_by_channels:
            return False
        if view.connectors:
            right = RDMA | {self.expect.fabric}
            known = view.nodes is not None and view.nodes > 1
            return known and view.counts.keys() <= right and self._all_shown()
        if view.nodes == 1 and view.ranks is not None and view.ranks > 1 and view.alone():
            ran = any(table["complete"] and table["rows"] for table in self.tables)
            connected = "connected" in self.job.flags or view.local["p2p"] + view.local["shm"] > 0
            whole = connected and len(set().union(*self.job.completed.values())) >= view.ranks
            return (ran and not view.list_cut) or whole
        return False

    def _all_shown(self) -> bool:
        """Return whether every rank shows a channel: the channels of two of sixteen ranks do not describe the others.

        If no line shows the job's size, some ranks count as missing. Other processes in the log, such as a second job's
        hosts and ranks, must show a channel, too. If no communicator shows all ranks, since the job uses parts of a
        split, each rank has to show a channel to another host.
        """
        world = [proc for key in self.job.world for proc in self.job.members[key].values()]
        across = {
            proc
            for proc, connectors in self.view.connectors.items()
            if any(connector.kind != "collnet" for connector, _, _ in connectors.values())
        }
        in_one = max(map(len, self.view.shown.values()), default=0)
        if self.view.ranks is None or max(in_one, len(across.intersection(world))) < self.view.ranks:
            return False
        nodes = self.job.node_of
        with_channels = {nodes[proc] for proc in self.job.procs if proc.edges}
        known = [key for key in self.job.world if key.startswith("0x")]
        whole = all(len(self.job.members[key]) >= self.job.nranks for key in known)
        return (
            whole
            and all(proc.edges for proc in world)
            and all(nodes[proc] in with_channels for proc in self.job.procs if proc.host)
        )


# A warning that matches no symptom, a peer that RAS reports as dead, an NVLink fabric that NCCL reports as degraded, a
# port that lost its link.
_UNEXPLAINED_NOTES = (
    "warn",
    "line dead-peer",
    "line degraded",
    *(f"info:nccl.{name}" for name in ("ib-link-flap", "ib-card", "ib-error", "ib-protection")),
)
_WARNS = re.compile(r"\[W\d{0,4} |WARN|[Ww]arning")  # torch's level (c10/util/Logging.cpp), and that of Python
_OUTSIDE = re.compile(
    r"^(?:<\d>)?\[ *\d{1,9}\.\d{1,6}\] |kernel: |\[?(?:mpi(?:run|exec)|prte(?:run)?|orte[dr]|hydra|srun|slurmstepd)\b"
)
_CAUGHT = ("traceback", "exception", "trouble")  # events of a program that may have continued
_UNEXPLAINED_EVENTS = ("ended", "traceback", "uncaught", "exception", "xid", "dead-peer", "trouble")

UNHEADED = "unheaded "  # events of NCCL's warnings without their heads
LATER = "; a later run in the same log completed"

# Signs that a process of the job died, or waited until it was ended.
_WAITED = ("watchdog", "time-limit", "test-timeout")
_DIED = ("signal", "launch-failed", "test-failure", "oom-kill")
_DEATHS = (*_WAITED, *_DIED, "nccl-error", "test-stack", "terminated", "uncaught")

# Messages of a rank when another one, or its queue pair, is gone.
FOLLOWS = tuple(dict.fromkeys(item.fault for item in SYMPTOMS if item.role == CONSEQUENCE and item.fault))
UNEXPLAINED = frozenset((*_UNEXPLAINED_NOTES, *_UNEXPLAINED_EVENTS, *FOLLOWS))

_RAISED = ("nccl.name-resolution", "nccl.store-gone")  # also printed as errors, by the rank itself and others

_TRIED = ("nccl.connect-refused", "nccl.connect-timeout")  # misc/socket.cc: "retrying (3/34)", as information

_PASSED = {*_TRIED, "nccl.wrong-peer"}  # NCCL closes a foreign connection and accepts the next one

_NEVER_RETRIED = sorted({item.fault for item in SYMPTOMS if item.role == CAUSE} - _PASSED)
"""Failures that NCCL warns of and does not retry: a normal end of the job does not show their result."""
