"""Read what torchfrtrace prints of Flight Recorder dumps, and find in it for whom ranks wait.

It compares the ranks of one group under one number at a time. So a rank that is missing in one record may wait in
another one; that it calls a rank "culprit" means no more than that the first rank called something else.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from .flight_recorder import ALIKE
from .model import Traced

if TYPE_CHECKING:
    from .model import Decision, Evidence

ANCHORS = (
    b"Not all ranks joining collective",
    b"Collective sequence number: ",
    b"mismatch in the collective sequence",
    b"missed FR dumps from ranks",
    b"Missing dump files from ranks",
    b"Too many mismatches for process_group",
)
WORDS = (
    rb"ollective sequence number|joining collective|FR dumps from ranks|dump files from ranks|Too many mismatches for"
    rb"|(?:group info|collective|missing ranks|expected ranks|collective state|error msg|collective stack trace):"
)
MAX_KEPT = 10_000
MAX_LINE = 200_000
"""Characters; a group of 30,000 ranks fills so many."""
MAX_RANKS = 1_000_000
"""Of all records together; of those beyond it is not known who stands there."""
_UNTIMED = "torchfrtrace prints no times"
# torch/distributed/flight_recorder/components/utils.py (error_analysis); before torch 2.6 "... collective 5 at entry 4"
_HEAD = re.compile(
    r"(Not all ranks joining collective)\D{0,24}(\d{1,15})"
    r"|(Collective) sequence number: (\d{1,15}) has errors"
    r"|(Input/output mismatch) in the collective sequence number: (\d{1,15})"
)
_FIELD = re.compile(
    r"(?:^|[\s\]>|:])(group info|collective|missing ranks|expected ranks|collective state|error msg): (.{0,200000})"
)
_LAST = re.compile(r"collective stack trace:")
_NO_DUMP = re.compile(r"(?:missed FR dumps from ranks \(|Missing dump files from ranks )\{([\d, ]{1,4000})\}")
_ENDED = re.compile(r"Too many mismatches for process_group .{0,200}aborting")  # build_collectives: --mismatch_cap
_CULPRIT = re.compile(r"(?:Culprit|Error) rank (\d{1,7})[;,] (?:Error type: )?([A-Z_]{4,40})")
_BEFORE_CULPRIT = re.compile(r"(?=(?:Culprit|Error) rank \d)")
_FOUND = re.compile(r"does not match (?:found )?(.{1,200})")
_PAIRS = re.compile(r":(?:send|recv|coalesced)\b")
_END = re.compile(r":(?:send|recv) (\d{1,7})(?:->|<-)")
_CALLED_OTHERWISE = frozenset(("COLLECTIVE_TYPE_MISMATCH", "SIZE_OR_SYNTAX_MISMATCH", "COLLECTIVE_DTYPE_MISMATCH"))


class Reader:
    """Takes the lines of a log one after the other, and adds each record that is complete to the evidence."""

    def __init__(self, evidence: Evidence, file: str) -> None:
        """Begin outside of any record."""
        self.evidence, self.file = evidence, file
        self.fields: dict[str, str] = {}
        self.ranks = 0
        self.head: tuple[int, str, int] | None = None

    def take(self, number: int, line: str) -> None:
        """Take a line with its number."""
        if (head := _HEAD.search(line)) is not None:
            self.close()
            self.head, self.fields = (int(next(filter(None, head.groups()[1::2]))), line.strip()[:300], number), {}
        elif (gone := _NO_DUMP.search(line)) is not None:
            self.evidence.undumped |= _numbers(gone[1])
        elif _ENDED.search(line):
            self.evidence.trace_ended = True
        elif self.head is not None and _LAST.search(line):
            self.close()
        elif self.head is not None and (field := _FIELD.search(line)) is not None:
            self.fields.setdefault(field[1], field[2].strip())

    def close(self) -> None:
        """End the record: one that was cut before its state says nothing."""
        head, fields, self.head = self.head, self.fields, None
        if head is None or "collective state" not in fields or len(self.evidence.traced) >= MAX_KEPT:
            return
        sequence, text, number = head
        named, _, group = fields.get("group info", "").partition(":")
        listed = fields.get("expected ranks", "")
        expected = _numbers(listed) if "{" in listed else set()
        self.ranks += len(expected)
        self.evidence.traced.append(
            Traced(
                (named.strip()[:40], group.strip()[:80]),
                fields.get("collective", "")[:80],
                sequence,
                frozenset(_numbers(fields.get("missing ranks", ""))),
                frozenset(expected if self.ranks <= MAX_RANKS else ()),
                fields["collective state"][:20],
                _culprits(fields.get("error msg", "")),
                "mismatch in the" in text,
                (self.file, number, text),
            )
        )


def _culprits(text: str) -> tuple[tuple[int, str, str], ...]:
    """Return the ranks that differ from the first one, each with how, and with what it called."""
    culprits = []
    for piece in _BEFORE_CULPRIT.split(text):
        if match := _CULPRIT.match(piece):
            found = _FOUND.search(piece)
            culprits.append((int(match[1]), match[2], found[1].strip(" ,") if found else ""))
    return tuple(culprits)


def _numbers(text: str) -> set[int]:
    return {int(item) for item in re.findall(r"\d{1,7}", text)}


def from_trace(made: Decision, evidence: Evidence) -> bool:
    """Say who is missing and waits nowhere, or who called something else; a time-out beside it makes it a proof."""
    made.unknown |= evidence.undumped
    if evidence.ranks:
        return False  # the dumps themselves say more
    if _called_otherwise(made, evidence.traced):
        return True
    pending = [item for item in evidence.traced if item.state != "completed"]
    standing = {rank for item in pending for rank in (_own(item) if _pair(item) else item.expected - item.missing)}
    made.suspects = _not_started(pending)
    held_up = [item for item in pending if item.missing - standing and not _pair(item)]
    if not held_up and not made.suspects:
        return False
    held_up = held_up or pending
    missing = [item.missing - standing for item in held_up]
    late = _alone(missing, pending, standing, ended=evidence.trace_ended)
    other = {rank for ranks in missing if not ranks & late for rank in ranks}  # of them, some may wait unseen
    first = min(held_up, key=lambda item: (len(item.missing - standing), len(item.expected), item.sequence))
    made.group, made.operation, made.sequence = first.group[1] or None, _bare(first.operation), first.sequence
    made.because += [item.where for item in held_up[:3]]
    made.late, made.suspects = late, made.suspects | other - late
    made.waiting |= standing
    made.proven = bool(evidence.timeouts or evidence.broken or evidence.lagging)
    if not made.proven:
        made.undated = _UNTIMED
    made.kind = "late" if made.proven else "undecided"
    return True


def _alone(missing: list[frozenset[int]], pending: list[Traced], standing: set[int], *, ended: bool) -> set[int]:
    """Return the one rank that is missing alone; nobody where it may wait unseen.

    What all have entered is in no record: several may stand in that together. A record of a send or a receive does not
    count those who queued some other one, and a report that ``ended`` early has looked at some groups only.
    """
    late = {rank for ranks in missing if len(ranks) == 1 for rank in ranks}
    told = all(item.expected for item in pending) or len(pending) == 1
    paired = {rank for item in pending if _pair(item) for rank in item.expected - item.missing}
    whole = not ended or any(item.missing - standing == late and item.group[1] == "default_pg" for item in pending)
    return late - paired if told and whole and len(late) == 1 else set()


def _pair(item: Traced) -> bool:
    return _PAIRS.search(item.operation) is not None


def _own(item: Traced) -> set[int]:
    """Return the rank that queued a send or a receive: its first number is of the group, whose ranks torch sorts."""
    match = _END.search(item.operation)
    return set(sorted(item.expected)[int(match[1]) : int(match[1]) + 1]) if match else set()


def _not_started(pending: list[Traced]) -> set[int]:
    """Return whose GPU has not started the one operation that others' have; of several, one may wait for another."""
    (item,) = pending if len(pending) == 1 else [None]
    if item is None or item.missing or not item.errors:
        return set()
    states = {rank: found for rank, kind, found in item.errors if kind == "COLLECTIVE_STATE_MISMATCH"}
    return {rank for rank in item.expected if "scheduled" in states.get(rank, item.state)}


def _called_otherwise(made: Decision, records: list[Traced]) -> bool:
    """Name the strict minority that called another operation, size or type under one number."""
    for item in records:
        name = _bare(item.operation)
        kinds = {kind for _, kind, _ in item.errors} & _CALLED_OTHERWISE
        if (kinds == {"SIZE_OR_SYNTAX_MISMATCH"} and name not in ALIKE) or not (kinds or item.unequal):
            continue
        called = {rank: (kind, found) for rank, kind, found in item.errors if kind in _CALLED_OTHERWISE}
        calls = Counter(called.get(rank, ("", "")) for rank in item.expected - item.missing)
        common, most = calls.most_common(1)[0] if calls else (("", ""), 0)
        made.kind, made.proven = "mismatch", True
        if 2 * most > len(item.expected):
            made.late = {rank for rank in item.expected - item.missing if called.get(rank, ("", "")) != common}
        made.waiting |= item.expected - item.missing - made.late if made.late else set()
        made.group, made.operation, made.sequence = item.group[1] or None, name, item.sequence
        made.because.append(item.where)
        return True
    return False


def _bare(operation: str) -> str:
    return operation.partition(":")[2].partition(" ")[0] or operation
