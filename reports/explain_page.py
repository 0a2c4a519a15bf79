"""The page of `seatrial explain --format html`: actions, then the matrix of hosts with the late ranks marked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.logs.job_document import JobDocument as Job
from seatrial.logs.job_document import Pair

from .explain_parts import names_of, what_happened, what_is_wrong, where
from .plain import plain
from .template import render

MAX_HOSTS = 96
"""Maximum number of hosts in the matrix, those of late and dead ranks first; the JSON form has all."""
MAX_RANKS = 4096
STATES = (("dead_ranks", "dead"), ("late_ranks", "late"), ("unknown_ranks", "unknown"), ("waiting_ranks", "waiting"))
_FAST = frozenset(("ib", "roce", "efa", "cxi", "gib", "mnnvl"))
LONGEST = 1200
"""Maximum number of characters of one text from a log."""


def to_html(jobs: Sequence[Job], *, color: bool = False) -> str:  # noqa: ARG001 -- a page has its own
    """Return the page of all jobs."""
    verdicts = ", ".join(dict.fromkeys(str(job["verdict"]) for job in jobs))
    first = f" · {names_of(jobs[0], 90)}" if jobs and jobs[0]["files"] else ""
    return render("explain.html", title=f"{verdicts}{first} · seatrial explain", jobs=[_job(job) for job in jobs])


def _job(job: Job) -> Mapping[str, object]:
    states = {rank: state for key, state in reversed(STATES) for rank in _ranks(job, key)}
    hosts = _hosts(job, states)
    return {
        "job": job,
        "name": names_of(job, 200),
        "happened": list(what_happened(job)),
        "wrong": list(what_is_wrong(job)),
        "hosts": hosts,
        "more_ranks": sum(len(ranks) for _, ranks in hosts) >= MAX_RANKS,
        "states": [state for _, state in STATES] if states else [],
        "talk": _matrix(job, states),
        "where": where,
        "text": lambda value, most=LONGEST: plain(value, most),
    }


def _ranks(job: Job, key: str) -> list[int]:
    ranks: Any = job.get(key) or []
    return list(ranks)


def _hosts(job: Job, states: Mapping[int, str]) -> list[tuple[str, list[tuple[int, str]]]]:
    """Return the ranks of each host with their states, the worst hosts first; without hosts, ranks with a state."""
    rows = [(host["name"] or "host not shown", host["ranks"]) for host in job["hosts"]]
    shown = {rank for _, ranks in rows for rank in ranks}
    if rest := sorted(set(states) - shown):
        rows.append(("host not shown", rest))
    rows.sort(key=lambda row: (not any(states.get(rank) in ("late", "dead") for rank in row[1]), _natural(row[0])))
    left, made = MAX_RANKS, []
    for name, ranks in rows:
        if left > 0:
            made.append((name, [(rank, states.get(rank, "")) for rank in ranks[:left]]))
            left -= len(ranks)
    return made


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names by value: node-2 before node-10."""
    return [(int(part[:18]), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", name)]


def _matrix(job: Job, states: Mapping[int, str]) -> Mapping[str, object] | None:
    """Return the matrix of hosts, None if no pair is known: a row sends, a column receives."""
    pairs = {(pair["src"], pair["dst"]): pair for pair in job["pairs"]}
    lost = {rank for rank, state in states.items() if state in ("late", "dead")}
    marked = {str(host["name"]) for host in job["hosts"] if lost & set(host["ranks"])}
    names = sorted({end for ends in pairs for end in ends}, key=lambda name: (name not in marked, _natural(name)))
    shown = names[:MAX_HOSTS]
    rows = [(source, [_cell(pairs.get((source, target))) for target in shown]) for source in shown]
    return {"names": shown, "marked": marked, "rows": rows, "left": len(names) - len(shown)} if names else None


def _cell(pair: Pair | None) -> tuple[str, str]:
    """Return the class of page.css and the text of a cell."""
    if pair is None:
        return "", ""
    kinds = sorted(pair["transports"])
    colour = "socket" if "socket" in kinds else "fast" if set(kinds) <= _FAST else "other"
    carried = ", ".join(f"{kind} x{pair['transports'][kind]}" for kind in kinds)
    return colour, carried + {True: " GDR", "mixed": " GDR in part"}.get(pair["gdr"] or "", "")
