"""Read PyTorch Flight Recorder dumps, as pickle or JSON, one file per rank (formats of torch 2.4 to 2.13).

Only the deciding part of each dump is kept: the pending operations and the progress of each group. gloo's recorder
never leaves the state ``scheduled``: operations that it does not mark as retired are compared by presence.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from .model import Evidence, Group, Operation, Rank
from .pickles import PickleRefusedError, loads
from .plain import number, sizes, word
from .ras_text import MAX_RANKS

MAX_PENDING = 4096
ENTRY_BYTES = 16
"""Minimum size of an entry, as pickle or JSON: its two times and its two numbers alone take more."""
MAX_NAME = 120
MAX_CALLS = 20_000
MARKS = 32
EQUAL_SIZES = frozenset(
    ["all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base", "all_gather_into_tensor"]
)
"""Collectives with sizes that must be equal on all ranks (torch/distributed/flight_recorder, components/types.py).

The others may differ: a scatter's root, all_to_all's splits, lists of all_gather and reduce_scatter, coalesced ones.
"""
MOST_QUEUED = 64
"""Collectives whose times are compared between ranks: the timed-out operation is among the last."""
Members = dict[str, tuple[int, ...]]
"""Lists of ranks by their text: each dump of a job contains them again."""
_RANK = re.compile(r"(?<!\d)(\d{1,7})(?:\.[A-Za-z]{1,8})?$")
_STAMPS = ("time_discovered_started_ns", "time_discovered_completed_ns")
_P2P = re.compile(r"(send|recv) (\d{1,7})(->|<-)(\d{1,7})")
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}")
_MEMBERS = re.compile(r"\d{1,7}")


def rank_of(path: str) -> int | None:
    """Return the rank with which a file's name ends (``_dump_12``, ``rank_3.json``), None without one."""
    match = _RANK.search(path)
    return int(match[1]) if match else None


def stem_of(path: str) -> str:
    """Return a dump's file name without its rank."""
    name = path.replace("\\", "/").rpartition("/")[2]
    match = _RANK.search(name)
    return name[: match.start()] if match else name


def is_dump(head: bytes) -> bool:
    """Return whether a file begins as a pickle or as the JSON of a dump."""
    if head[:1] == b"\x80":
        return True
    ends = head[:8192] + head[-8192:]
    return head.lstrip()[:1] == b"{" and (b'"pg_config"' in ends or b'"profiling_name"' in ends)


def parse(path: str, data: bytes, members: Members) -> tuple[int, dict[str, Any]]:
    """Return a dump's rank and content. Raises PickleRefusedError with the reason.

    ``members`` remembers lists of ranks over the files of a job.
    """
    rank = rank_of(path)
    if rank is None or rank >= MAX_RANKS:
        raise PickleRefusedError("a dump's file name ends in its rank (dump_3), and this one does not")
    if data[:1] == b"\x80":
        content = loads(data)
    else:
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            raise PickleRefusedError("cut or damaged JSON") from None
    if _is_older(content):
        raise PickleRefusedError(
            "a dump of torch 2.2 or 2.3, which does not name its groups: 2.4 and later are supported"
        )
    if not isinstance(content, dict) or not (isinstance(content.get("entries"), list) or "pg_config" in content):
        raise PickleRefusedError("a pickle or JSON that is not a Flight Recorder dump")
    if len(content.get("entries") or ()) * ENTRY_BYTES > len(data):
        raise PickleRefusedError("it lists more entries than it holds, some of them many times")
    return _own_rank(rank, content, members), content


def _is_older(content: Any) -> bool:
    """Return whether a dump's entries identify their group only by its number in the process (TraceUtils.h, to 2.3)."""
    entries = content.get("entries") if isinstance(content, dict) else content
    entry = entries[0] if isinstance(entries, list) and entries else None
    return isinstance(entry, dict) and "profiling_name" in entry and "process_group" not in entry


def _own_rank(named: int, content: dict[str, Any], members: Members) -> int:
    """Return the rank of a dump: a process lists the groups that it is in; a file's number may count per host."""
    config = content.get("pg_config")
    entries = config.items() if isinstance(config, dict) else ()
    listed = [_listed(entry, members) for name, entry in entries if name and isinstance(entry, dict)]
    if all(named in ranks for ranks in listed if ranks):
        return named
    in_all = set.intersection(*(set(ranks) for ranks in listed if ranks))
    if len(in_all) != 1:
        raise PickleRefusedError(f"it lists groups without rank {named}, the rank in its file name")
    return in_all.pop()


def world_of(content: dict[str, Any], cache: Members) -> tuple[int, ...]:
    """Return the ranks of the job as a dump lists them; empty if it does not."""
    config = content.get("pg_config")
    for entry in config.values() if isinstance(config, dict) else ():
        if isinstance(entry, dict) and entry.get("desc") == "default_pg":
            return _listed(entry, cache)
    return ()


def add(evidence: Evidence, rank: int, content: dict[str, Any], members: Members, written: float | None = None) -> None:
    """Add a dump, ``written`` in seconds since 1970. Raises PickleRefusedError if that rank already has one.

    ``members`` remembers lists of ranks over the files of a job.
    """
    if rank in evidence.ranks:
        raise PickleRefusedError(f"a second dump of rank {rank}; the first one counts")
    group_of, world = _configuration(evidence, content.get("pg_config"), members)
    evidence.world |= world
    evidence.listed |= world
    evidence.world.add(rank)
    made = _rank(content, group_of, evidence, written)
    if content.get("entries") and made.last is None:
        raise PickleRefusedError("none of its entries can be read")
    evidence.ranks[rank] = made
    version = _VERSION.match(word(content.get("nccl_version") or content.get("comm_lib_version")))
    if version and made.last is not None and made.last.name.startswith("nccl:"):
        evidence.version = evidence.version or version[0]


def _listed(entry: dict[str, Any], cache: Members) -> tuple[int, ...]:
    text = entry.get("ranks")
    text = text if isinstance(text, str) else ", ".join(map(word, text)) if isinstance(text, list) else ""
    members = cache.get(text)
    if len(text) > MAX_RANKS * 9:  # "1000000, "
        raise PickleRefusedError(f"it lists a group of more than {MAX_RANKS} ranks")
    if members is None:
        members = cache.setdefault(text, tuple(int(item) for item in _MEMBERS.findall(text)))
    return members


def _configuration(evidence: Evidence, config: Any, cache: Members) -> tuple[dict[str, str], set[int]]:
    """Return the rank's groups, name to key; add them to the evidence.

    A group's name is a counter of each process: the same name may be another group on another rank. The members
    distinguish them.
    """
    group_of: dict[str, str] = {}
    world: set[int] = set()
    for name, entry in config.items() if isinstance(config, dict) else ():
        if not isinstance(entry, dict):
            continue
        members = _listed(entry, cache)
        if not name:  # gloo's one entry, of the group that was created last
            world.update(members)
            continue
        described = word(entry.get("desc")) or word(name)
        if described == "undefined":
            described = f"group {name}"
        key = f"{word(name)}/{described}/{members[:1]}{len(members)}"
        if key not in evidence.groups:
            evidence.groups[key] = Group(key, described, members)
            world.update(members)
        group_of[word(name)] = key
    return group_of, world


def _rank(content: dict[str, Any], group_of: dict[str, str], evidence: Evidence, written: float | None) -> Rank:
    numbers: dict[int, str] = {}
    listed = content.get("entries")
    entries = [entry for entry in listed or [] if isinstance(entry, dict) and isinstance(entry.get("state"), str)]
    entries.sort(key=lambda item: number(item.get("record_id")))
    queued = [time for entry in entries if (time := number(entry.get("time_created_ns"))) > 0]
    stamps = [number(entry.get(stamp)) for entry in entries for stamp in _STAMPS]
    launched = _launched_together(entries)
    pending: list[Operation] = []
    finished: dict[str, Operation] = {}
    enqueued: dict[str, int] = {}
    queued_at: dict[tuple[str, int], Operation] = {}
    last: Operation | None = None
    standing: dict[Batch, int] = {}
    for entry in entries:
        batch = _batch(entry)
        if launched.get(batch) is entry:
            continue
        operation = _operation(entry, group_of, evidence)
        if operation is None:
            continue
        whole = launched.get(batch, entry)
        if batch in standing and operation.p2p:
            pending[standing[batch]] = _joined(pending[standing[batch]], operation)
            continue
        numbers[number(entry.get("pg_id"))] = operation.group
        last = operation
        if not operation.p2p:
            enqueued[operation.group] = max(enqueued.get(operation.group, -1), operation.sequence)
        if not operation.p2p and not operation.marked:
            queued_at[operation.group, operation.sequence] = operation
            if len(queued_at) > MOST_QUEUED:
                del queued_at[next(iter(queued_at))]
        if _is_done(whole):
            if not operation.p2p and (
                operation.group not in finished or operation.sequence >= finished[operation.group].sequence
            ):
                finished[operation.group] = operation
                if operation.name.rpartition(":")[2] in EQUAL_SIZES and len(evidence.calls) < MAX_CALLS:
                    evidence.calls.setdefault((operation.group, operation.sequence), operation.name + operation.sizes)
            continue
        if len(pending) < MAX_PENDING:
            if operation.p2p and batch in launched:
                standing[batch] = len(pending)
            ended = whole.get("retired") is True and operation.marked  # see _is_done
            pending.append(replace(operation, started=whole.get("state") == "started", ended=ended))
    made = Rank(
        pending=tuple(pending),
        enqueued=enqueued,
        completed={group: operation.sequence for group, operation in finished.items()},
        finished=finished,
        last=last,
        written=written,
        taken=_taken(entries, max(queued, default=0)),
        latest=max([*queued, *stamps], default=0) / 1e9,
        active=bool(entries) and not any(_is_done(entry) for entry in entries),
        cut=bool(entries) and number(entries[0].get("record_id")) > 0 and not _is_done(entries[0]),
        marks=frozenset(number(entry.get("time_created_ns")) for entry in entries[-MARKS:]) - {-1},
        span=(min(queued), max(queued)) if queued else None,
        queued_at=queued_at,
        recorded=len(entries),
    )
    return _with_status(made, content.get("pg_status"), numbers, group_of)


def _with_status(made: Rank, status: Any, numbers: dict[int, str], group_of: dict[str, str]) -> Rank:
    """Return a rank with the progress of each group, for the groups that an entry numbers in this process.

    Group 0 is the default group in every process.
    """
    default = group_of.get("0") or group_of.get("default_pg")
    if default is not None:
        numbers.setdefault(0, default)
    enqueued, completed, without_pairs = {**made.enqueued}, {**made.completed}, made.sends
    sends = {operation.group for operation in made.pending if operation.p2p}
    lost: bool | None = None
    for counted, entry in status.items() if isinstance(status, dict) else ():
        group = numbers.get(number(counted))
        if group is None or not isinstance(entry, dict) or group in sends:
            continue  # the counters of a group also count its sends
        last, done = number(entry.get("last_enqueued_collective")), number(entry.get("last_completed_collective"))
        if made.last is not None and not made.last.marked and last > enqueued.get(group, last):
            without_pairs = True
        if group not in enqueued and last >= 0:
            enqueued[group] = last
            if done >= last:
                completed[group] = done
        if number(counted) >= 0 and all(operation.marked for operation in made.pending):  # newer ones overwrote some
            first = made.first_pending.get(group, last + 1)
            lost = bool(lost) or first > max(done, completed.get(group, 0), 0) + 1
    return replace(made, enqueued=enqueued, completed=completed, sends=without_pairs, lost=lost)


def _is_done(entry: dict[str, Any]) -> bool:
    """Return whether an operation has ended; retired by NCCL's watchdog only, it timed out (FlightRecorder.hpp)."""
    by_gloo = word(entry.get("profiling_name")).startswith("gloo:")
    return entry.get("state") == "completed" or (by_gloo and entry.get("retired") is True)


def _taken(entries: list[dict[str, Any]], newest: int) -> float | None:
    """Return when a dump was taken, in seconds since 1970; ``newest``: when its last operation was queued.

    While it dumps, NCCL's recorder queries operations that no watchdog has retired. It stamps started or completed ones
    with that moment (FlightRecorder.hpp, dump_entries). gloo's stamps nothing.
    """
    looked_at = [entry for entry in entries if entry.get("retired") is False]
    stamps = [stamp for entry in looked_at for name in _STAMPS if (stamp := number(entry.get(name))) >= newest > 0]
    return max(stamps) / 1e9 if stamps else None


Batch = tuple[str, int, int]


def _batch(entry: dict[str, Any]) -> Batch:
    """Return group and numbers, which are common to all operations that were launched together."""
    named = entry.get("process_group")
    name = word(named[0]) if isinstance(named, list | tuple) and named else word(named) or "0"
    return name, number(entry.get("collective_seq_id")), number(entry.get("p2p_seq_id"))


def _launched_together(entries: list[dict[str, Any]]) -> dict[Batch, dict[str, Any]]:
    """Return the entries that represent several operations in one launch (batch_isend_irecv and the like).

    Only such an entry, named coalesced, is marked as started and completed; its parts remain in the queued state.
    """
    parts = {_batch(entry) for entry in entries if not _coalesced(entry)}
    return {_batch(entry): entry for entry in entries if _coalesced(entry) and _batch(entry) in parts}


def _coalesced(entry: dict[str, Any]) -> bool:
    return word(entry.get("profiling_name")).rpartition(":")[2] == "coalesced"


def _joined(batch: Operation, part: Operation) -> Operation:
    peers = tuple(dict.fromkeys((*batch.peers, *part.peers)))
    name = batch.name if len(batch.name) > MAX_NAME else f"{batch.name}, {part.name.rpartition(':')[2]}"
    return replace(batch, peers=peers, name=name)


def _operation(entry: dict[str, Any], group_of: dict[str, str], evidence: Evidence) -> Operation | None:
    named = entry.get("process_group")
    name = word(named[0]) if isinstance(named, list | tuple) and named else word(named) or "0"
    group = group_of.get(name, name)
    if group not in evidence.groups:
        described = word(named[1]) if isinstance(named, list | tuple) and len(named) > 1 else name
        evidence.groups[group] = Group(group, described[:120], ())
    text = word(entry.get("profiling_name"))
    p2p = entry.get("is_p2p") is True
    peers: tuple[int, ...] = ()
    said = _P2P.search(text)
    if said:
        other = int(said[4])
        members = evidence.groups[group].members
        peers = members[other : other + 1]
        p2p = True
    sequence = number(entry.get("p2p_seq_id" if p2p else "collective_seq_id", entry.get("seq_id")))
    if not text or (sequence < 0 and not p2p):
        return None  # an entry without name or number has no position
    shapes = sizes(entry.get("input_sizes"), entry.get("input_dtypes"))
    when, limit = max(0, number(entry.get("time_created_ns"))), max(0, number(entry.get("timeout_ms")))
    marked = not text.startswith("gloo:")
    return Operation(group, sequence, text, shapes[:200], p2p, peers, created=when, timeout_ms=limit, marked=marked)
