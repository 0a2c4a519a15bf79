"""Read the text of NCCL RAS, 2.24 to 2.31: each line that src/ras/client_support.cc prints of ranks and processes."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass, field

from .model import Evidence, Process, Sample

BEGIN = re.compile(r"^Communicators\.\.\.(?: \(([\d.]{1,12})s\))?", re.MULTILINE)
_VERSION = re.compile(r"^NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})[\w.+]{0,40} compiled", re.MULTILINE)
_ROW = re.compile(r"^\s+(\d+)\s+(\d+)\s+\d+\s+[\d-]+\s+(\d+)\s+\d+\s+[A-Z]+\s+([A-Z,]+)\s*$", re.MULTILINE)
_TOTAL = re.compile(r"^\(total\) .*\n[ \t]*(?:\d+[ \t]+)+(\d+)[ \t]*$", re.MULTILINE)
_COMM = re.compile(r"^#(\d+)-(\d+) \((\w+)\) ([A-Z, ]+)$")
_OPERATION = re.compile(r"Communicator ranks have different (\w+) operation counts")
_GPU = r"\d[\d,]*(?: \(NVML [\d,]+\))?"  # the second number appears if CUDA_VISIBLE_DEVICES changes CUDA's numbering
_PLACE = rf"(?: -- (?:GPU ({_GPU}) managed by process (\d+) on node (\S+)|\[process information not found\]))?\s*$"
_COUNT = r"(?:launched up to operation (\d+)|not launched any operations)"
_MANY = re.compile(rf"^\s+(\d+) ranks? ha(?:s|ve) {_COUNT}")
_ONE = re.compile(rf"^\s+Rank (\d+) has {_COUNT}{_PLACE}")
_IN_STATE = re.compile(r"^\s+(\d+) ranks? ha(?:s|ve) status ([A-Z]+)")
_ONE_IN_STATE = re.compile(rf"^\s+Rank (\d+) has status ([A-Z]+){_PLACE}")
_REPORTED = re.compile(r"^\s+(?:Rank )?\d+ (?:ranks? )?reported [A-Z][\w ]{2,40}")
_NAMED = re.compile(rf"^\s+Rank (\d+){_PLACE}")
_PROCESS = re.compile(rf"^\s+Process (\d+) on node (\S+) managing GPUs? ({_GPU})")
_MOST_ERRORS = 16
MAX_RANKS = 1_000_000


def read_text(evidence: Evidence, file: str, text: str) -> None:
    """Add the samples of a text; several answers in one file are distinguished by their headings."""
    starts = [match.start() for match in BEGIN.finditer(text)]
    bounds = [0, *starts[1:], len(text)]
    version = _VERSION.search(text)
    evidence.version = evidence.version or (version[1] if version else "")
    totals = [int(match[1]) for match in _TOTAL.finditer(text)]
    for begin, end in itertools.pairwise(bounds):
        evidence.samples.append(_sample(file, text[begin:end], max(totals, default=0)))


@dataclass(slots=True)
class _At:
    """The place of a line in an answer: its section and communicator, and the common facts of the named ranks below."""

    section: str = ""
    comm: str = ""
    operation: str = ""
    count: int = 0
    state: str = ""
    listed: dict[str, int] = field(default_factory=dict)
    """Communicator to the number of its group in the table."""
    in_state: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Communicator to the numbers of ranks in each state; only the smaller set is named."""


def _sample(file: str, text: str, gpus: int) -> Sample:
    """Return one answer; ``gpus``: the job's number of GPUs, 0 if the text lacks it."""
    made, at = Sample(file), _At()
    rows = _ROW.findall(text)
    made.size = max([gpus, *(int(row[2]) for row in rows)])
    made.number = sum(int(row[1]) for row in rows)
    begin = BEGIN.search(text)
    made.took = (begin and begin[1]) or ""
    made.ok = bool(rows) and all(row[3] == "OK" for row in rows)
    for line in text.splitlines():
        if match := _COMM.match(line):
            at.section, at.comm, at.operation, at.state = match[4], match[3], "", ""
            at.listed.setdefault(match[3], int(match[1]))
        elif line.strip() in ("DEAD", "INCOMPLETE"):
            at.section, at.comm = line.strip(), ""
        else:
            _line(made, at, line)
    made.world = next((comm for comm, group in at.listed.items() if _is_world(rows, group, made.size)), None)
    for key, named in made.counts.items():  # the last "N ranks" of a list of names counts those names
        made.unnamed[key] = [
            (number, count)
            for number, count in made.unnamed.get(key, ())
            if number != sum(value == count for value in named.values())
        ]
    for comm, group in at.listed.items():
        size = next((int(row[2]) for row in rows if int(row[0]) == group), 0)
        _complete_states(made.states.setdefault(comm, {}), at.in_state.get(comm, []), size)
    made.states = {comm: states for comm, states in made.states.items() if states}
    _rank_all(made)
    return made


def _complete_states(states: dict[int, str], counted: list[tuple[int, str]], size: int) -> None:
    """Add the ranks that are not named, if they are the rest of a communicator and share one state."""
    named = Counter(states.values())
    rest = [(number, state) for number, state in counted if not named[state]]
    if len(rest) == 1 and rest[0][0] + len(states) == size <= MAX_RANKS:
        states |= dict.fromkeys(set(range(size)) - set(states), rest[0][1])


def _is_world(rows: list[tuple[str, ...]], group: int, size: int) -> bool:
    """Return whether a group of the table is the one communicator of all ranks; without a table, the first is."""
    if not rows:
        return group == 0
    return any((int(row[0]), int(row[1]), int(row[2])) == (group, 1, size) for row in rows)


def _line(made: Sample, at: _At, line: str) -> None:
    """Read a line within a section."""
    if match := _OPERATION.search(line):
        at.operation, at.state = match[1], ""
    elif match := _MANY.match(line):
        at.count = int(match[2] or 0)
        made.unnamed.setdefault((at.comm, at.operation), []).append((int(match[1]), at.count))
    elif match := _ONE.match(line):
        made.counts.setdefault((at.comm, at.operation), {})[int(match[1])] = int(match[2] or 0)
        _name(made, at, match[1], match[3], match[4], match[5])
    elif match := _IN_STATE.match(line):
        at.state = match[2]
        at.in_state.setdefault(at.comm, []).append((int(match[1]), at.state))
    elif match := _ONE_IN_STATE.match(line):
        made.states.setdefault(at.comm, {})[int(match[1])] = match[2]
        _name(made, at, match[1], match[3], match[4], match[5])
    elif match := _REPORTED.match(line):
        made.errors += [match[0].strip()] if len(made.errors) < _MOST_ERRORS else []
    elif match := _PROCESS.match(line):
        process = Process(None, match[2], match[3], int(match[1]))
        process.dead, process.silent = at.section == "DEAD", at.section == "INCOMPLETE"
        made.processes.append(process)
    elif match := _NAMED.match(line):
        process = _name(made, at, match[1], match[2], match[3], match[4])
        if at.section == "MISMATCH" and at.state:
            made.states.setdefault(at.comm, {})[int(match[1])] = at.state
        elif at.section == "MISMATCH" and at.operation:
            made.counts.setdefault((at.comm, at.operation), {})[int(match[1])] = at.count
        process.silent = at.section == "INCOMPLETE"


def _name(made: Sample, at: _At, rank: str, gpu: str | None, pid: str | None, host: str | None) -> Process:
    """Add a process that a line names by its rank in a communicator."""
    process = Process(int(rank), host or "", gpu or "", int(pid) if pid else None)
    known = made.members.setdefault(at.comm, {}).setdefault(int(rank), process)
    known.host, known.gpu, known.pid = known.host or process.host, known.gpu or process.gpu, known.pid or process.pid
    return known


def _rank_all(made: Sample) -> None:
    """List the processes that were named within communicators, with world ranks if these are known."""
    world = made.members.get(made.world or "", {})
    ranks: dict[tuple[str, int | None, str], int] = {(p.host, p.pid, p.gpu): r for r, p in world.items() if p.pid}
    for comm, named in made.members.items():
        for process in named.values():
            if comm != made.world:
                process.rank = ranks.get((process.host, process.pid, process.gpu))
            made.processes.append(process)
