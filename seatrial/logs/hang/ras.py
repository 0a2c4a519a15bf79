"""Recognise answers of NCCL RAS (``ncclras``, VERBOSE STATUS), and read the JSON of 2.28.7 and later."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from ...faults.codes import nccl_results
from .model import Evidence, Process, Sample
from .plain import word
from .ras_text import BEGIN

_HEAD = re.compile(r"^\s*Group\s+Comms\s+Nodes\s+Ranks", re.MULTILINE)
_BEFORE = re.compile(r"(?:\s+|SERVER PROTOCOL \d+|OK\b)*")
"""The protocol's text before an answer, and between two answers: a copy of the connection contains it, too."""
_Identity = tuple[str, int, str]
"""Host, process and CUDA device of a rank."""
_NO_COMMA = re.compile(r"([^\s,{\[])(\s*\n\s*\"\w+\"\s*:)")


def form_of(text: str) -> Literal["json", "text"] | None:
    """Return the form of RAS at a file's beginning, with or without the protocol's text before it."""
    begin = _BEFORE.match(text)
    if begin and text[begin.end() :][:1] == "{" and '"communicators"' in text and '"nccl_version"' in text:
        return "json"
    return "text" if BEGIN.search(text) or _HEAD.search(text) else None


def read_json(evidence: Evidence, file: str, text: str) -> None:
    """Add the JSON answers of a text. Raises ValueError for cut or foreign JSON."""
    try:
        answers = _parsed(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    evidence.samples += [_json_sample(file, answer) for answer in answers]
    for answer in answers[:1]:
        evidence.version = evidence.version or word(answer.get("nccl_version"), 40)


def _json_sample(file: str, content: Any) -> Sample:
    comms = content.get("communicators") if isinstance(content, dict) else None
    if not isinstance(comms, list):
        raise ValueError("no communicators")  # noqa: TRY004 -- one error for all forms
    made = Sample(file, str(content.get("timestamp", ""))[:40])
    ordered = sorted(_dicts(comms), key=lambda c: -_int(c.get("size")))
    everyone = {_identity(entry) for comm in ordered for entry in _all_ranks(comm) if _int(entry.get("pid")) > 0}
    largest = _int(ordered[0].get("size")) if ordered else 0
    made.size = max(largest, len(everyone))
    made.ok = bool(comms)
    world: dict[_Identity, int] = {}
    for index, comm in enumerate(ordered):
        name = str(comm.get("hash"))[:40]
        made.comms.add(name)
        if index == 0 and largest == made.size:
            made.world = name
            world = {_identity(entry): _int(entry.get("rank")) for entry in _all_ranks(comm)}
        _json_communicator(made, name, comm, world)
    made.ok = made.ok and all(len(set(counts.values())) == 1 for counts in made.counts.values())
    made.ok = made.ok and not made.states and not made.errors
    return made


def _json_communicator(made: Sample, name: str, comm: dict[str, Any], world: dict[_Identity, int]) -> None:
    """Add an answer's facts about a communicator; ``world``: the ranks of the communicator of all ranks."""
    all_ranks = _all_ranks(comm)
    named = bool(world) and len(world) == made.size and all(_identity(entry) in world for entry in all_ranks)
    if named and name != made.world:
        made.parts.add(name)
    states: dict[int, str] = {}
    errors: dict[str, list[int]] = {}
    present = len(_dicts(comm.get("ranks")))
    for index, entry in enumerate(all_ranks):
        rank = world[_identity(entry)] if named else _int(entry.get("rank"))
        process, missing = _json_process(entry), index >= present
        status, counts = entry.get("status"), entry.get("collective_counts")
        status = status if isinstance(status, dict) else {}
        there = missing and status.get("unresponsive") is False and status.get("considered_dead") is not True
        if not missing or there:
            states[rank] = "NOCOMM" if there else _state(status)
        else:
            process.dead = status.get("considered_dead") is True
            process.silent = not process.dead
            made.ok = False
        if not missing and isinstance(counts, dict):
            for operation, count in counts.items():
                made.counts.setdefault((name, str(operation)[:40]), {})[rank] = _int(count)
        for code in {_int(status.get(key)) for key in ("init_state", "async_error")} & nccl_results().keys():
            errors.setdefault(nccl_results()[code].ras, []).append(rank)
        if name == made.world or made.world is None:
            process.rank = process.rank if made.world else None
            made.processes.append(process)
        made.members.setdefault(name, {})[rank] = process
    for text, ranks in errors.items():
        subject = f"Rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
        where = "" if named or name == made.world else f" in communicator {name}"
        made.errors.append(f"{subject} reported {text}{where}")
    if len(set(states.values())) > 1:
        made.states[name] = states


def _state(status: dict[str, Any]) -> str:
    """Return the state of a rank in the terms of RAS's text."""
    if status.get("abort_flag") is True:
        return "ABORT"
    if status.get("finalize_called") is True or status.get("destroy_flag") is True:
        return "FINALIZE"
    return "INIT" if _int(status.get("init_state")) else "RUNNING"


def _parsed(text: str) -> list[Any]:
    """Return consecutive JSON values, also if a comma is missing at a line's end.

    NCCL 2.28.9 omits the comma before the status of a missing rank, which is the most important entry.
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


def _all_ranks(comm: dict[str, Any]) -> list[dict[str, Any]]:
    return _dicts(comm.get("ranks")) + _dicts(comm.get("missing_ranks"))


def _identity(entry: dict[str, Any]) -> _Identity:
    return str(entry.get("host", ""))[:80], _int(entry.get("pid")), str(entry.get("cuda_dev"))[:16]


def _json_process(entry: dict[str, Any]) -> Process:
    host, gpu, nvml = str(entry.get("host", ""))[:80], entry.get("cuda_dev"), entry.get("nvml_dev")
    rank, shown = _int(entry.get("rank")), "" if gpu is None else str(gpu)[:16]
    shown += "" if nvml in (None, gpu) else f" (NVML {str(nvml)[:16]})"  # as in its text
    return Process(rank if rank >= 0 else None, host, shown, _int(entry.get("pid")))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0
