"""Read answers of NCCL RAS (``ncclras``, VERBOSE STATUS): the text of 2.24 to 2.31 and the JSON of 2.28.7 and later."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Literal

from .model import Evidence, Process, Sample

_HEAD = re.compile(r"^\s*Group\s+Comms\s+Nodes\s+Ranks", re.MULTILINE)
_BEGIN = re.compile(r"^Communicators\.\.\.(?: \(([\d.]{1,12})s\))?", re.MULTILINE)
_ROW = re.compile(r"^\s+\d+\s+\d+\s+[\d-]+\s+[\d-]+\s+(\d+)\s+\d+\s+([A-Z]+)\s+([A-Z,]+)\s*$", re.MULTILINE)
_COMM = re.compile(r"^#(\S+) \((\w+)\) ([A-Z, ]+)$")
_OPERATION = re.compile(r"Communicator ranks have different (\w+) operation counts")
_MANY = re.compile(r"^\s+(\d+) ranks? ha(?:s|ve) launched up to operation (\d+)")
_PLACE = r"(?: -- GPU ([\w,]+) managed by process (\d+) on node (\S+))?"
_ONE = re.compile(r"^\s+Rank (\d+) has launched up to operation (\d+)" + _PLACE)
_NAMED = re.compile(r"^\s+Rank (\d+)" + _PLACE + r"\s*$")
_BEFORE = re.compile(r"(?:\s+|SERVER PROTOCOL \d+|OK\b)*")
"""What the protocol says before an answer, and between two of them: a copy of the connection holds it, too."""
_NO_COMMA = re.compile(r"([^\s,{\[])(\s*\n\s*\"\w+\"\s*:)")
_PROCESS = re.compile(r"^\s+Process (\d+) on node (\S+) managing GPUs? ([\w,]+)")


def form_of(text: str) -> Literal["json", "text"] | None:
    """Return the form of RAS that a file's beginning has, with or without the protocol's words before it."""
    begin = _BEFORE.match(text)
    if begin and text[begin.end() :][:1] == "{" and '"communicators"' in text and '"nccl_version"' in text:
        return "json"
    return "text" if _BEGIN.search(text) or _HEAD.search(text) else None


def read_text(evidence: Evidence, file: str, text: str) -> None:
    """Add the samples of a text; several answers in one file are told apart by their headings."""
    starts = [match.start() for match in _BEGIN.finditer(text)]
    cuts = [0, *starts[1:], len(text)]
    for begin, end in itertools.pairwise(cuts):
        evidence.samples.append(_sample(file, text[begin:end]))


def _sample(file: str, text: str) -> Sample:
    made = Sample(file)
    rows = _ROW.findall(text)
    made.size = max((int(row[0]) for row in rows), default=0)
    begin = _BEGIN.search(text)
    made.took = (begin and begin[1]) or ""
    made.ok = bool(rows) and all(row[2] == "OK" for row in rows)
    section, comm, operation, pending = "", "", "", 0
    for line in text.splitlines():
        if match := _COMM.match(line):
            section, comm, operation = match[3], match[2], ""
            made.world = made.world or comm
        elif line.strip() in ("DEAD", "INCOMPLETE"):
            section, comm = line.strip(), ""
        elif match := _OPERATION.search(line):
            operation = match[1]
        elif match := _MANY.match(line):
            made.others.setdefault((comm, operation), []).append((int(match[1]), int(match[2])))
            pending = int(match[2])
        elif match := _ONE.match(line):
            made.counts.setdefault((comm, operation), {})[int(match[1])] = int(match[2])
            made.processes.append(_process(match[1], match[3], match[4], match[5]))
        elif match := _PROCESS.match(line):
            process = _process(None, match[3], match[1], match[2])
            process.dead, process.silent = section == "DEAD", section == "INCOMPLETE"
            made.processes.append(process)
        elif match := _NAMED.match(line):
            process = _process(match[1], match[2], match[3], match[4])
            if "MISMATCH" in section and operation:
                made.counts.setdefault((comm, operation), {})[int(match[1])] = pending
            process.silent, process.dead = "INCOMPLETE" in section, "DEAD" in section
            made.processes.append(process)
    for key, named in made.counts.items():  # the last "N ranks" of a list of names counts those names
        made.others[key] = [
            (number, count)
            for number, count in made.others.get(key, ())
            if number != sum(value == count for value in named.values())
        ]
    return made


def _process(rank: str | None, gpu: str | None, pid: str | None, host: str | None) -> Process:
    return Process(int(rank) if rank else None, host or "", gpu or "", int(pid) if pid else None)


def read_json(evidence: Evidence, file: str, text: str) -> None:
    """Add the JSON answers of a text. Raises ValueError for cut or foreign JSON."""
    try:
        answers = _parsed(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    evidence.samples += [_json_sample(file, answer) for answer in answers]


def _json_sample(file: str, content: Any) -> Sample:
    comms = content.get("communicators") if isinstance(content, dict) else None
    if not isinstance(comms, list):
        raise ValueError("no communicators")  # noqa: TRY004 -- one error for all forms
    made = Sample(file, str(content.get("timestamp", ""))[:40])
    made.ok = bool(comms)
    world: dict[tuple[str, int, str], int] = {}
    for comm in sorted((c for c in comms if isinstance(c, dict)), key=lambda c: -_int(c.get("size"))):
        name = str(comm.get("hash"))[:40]
        made.comms.add(name)
        if made.world is None:
            made.world, made.size = name, _int(comm.get("size"))
        everybody = _dicts(comm.get("ranks")) + _dicts(comm.get("missing_ranks"))
        if name == made.world:
            world = {_who(entry): _int(entry.get("rank")) for entry in everybody}
        named = len(world) == made.size and all(_who(entry) in world for entry in everybody)
        if named and name != made.world:
            made.parts.add(name)
        for entry in _dicts(comm.get("ranks")):
            rank = world[_who(entry)] if named else _int(entry.get("rank"))
            if name == made.world:
                made.processes.append(_json_process(entry))
            counts = entry.get("collective_counts")
            for operation, count in counts.items() if isinstance(counts, dict) else ():
                made.counts.setdefault((name, str(operation)[:40]), {})[rank] = _int(count)
        for entry in _dicts(comm.get("missing_ranks")):
            process = _json_process(entry)
            status = entry.get("status")
            status = status if isinstance(status, dict) else {}
            process.dead = status.get("considered_dead") is True
            process.silent = not process.dead
            made.ok = False
            if name == made.world:
                made.processes.append(process)
    made.ok = made.ok and all(len(set(counts.values())) == 1 for counts in made.counts.values())
    return made


def _parsed(text: str) -> list[Any]:
    """Return the values of JSON, one after the other, also where a comma is missing at a line's end.

    NCCL 2.28.9 forgets the one before the status of a rank that is missing: where it matters most.
    """
    try:
        return _values(text)
    except ValueError:
        return _values(_NO_COMMA.sub(r"\1,\2", text))


def _values(text: str) -> list[Any]:
    values, at = [], 0
    while (begin := _BEFORE.match(text, at)) is not None and begin.end() < len(text):
        value, at = json.JSONDecoder().raw_decode(text, begin.end())
        values.append(value)
    return values


def _who(entry: dict[str, Any]) -> tuple[str, int, str]:
    return str(entry.get("host", ""))[:80], _int(entry.get("pid")), str(entry.get("cuda_dev"))[:16]


def _json_process(entry: dict[str, Any]) -> Process:
    host, gpu = str(entry.get("host", ""))[:80], entry.get("cuda_dev")
    rank = _int(entry.get("rank"))
    return Process(rank if rank >= 0 else None, host, "" if gpu is None else str(gpu)[:16], _int(entry.get("pid")))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0
