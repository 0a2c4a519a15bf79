"""The page of `seatrial explain --format html`: who talks to whom by host, with transports, and the late ranks marked.

One file without scripts or anything from elsewhere; every text of a log is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from jobs.nccl.job_document import JobDocument as Job
from jobs.nccl.job_document import Pair

from .explain_parts import Below, Part, names_of, what_happened, what_is_wrong, where
from .plain import plain

MAX_HOSTS = 96
"""Hosts in the matrix, those of late and dead ranks first; the JSON form has all."""
MAX_RANKS = 4096
STATES = (("dead_ranks", "dead"), ("late_ranks", "late"), ("unknown_ranks", "unknown"), ("waiting_ranks", "waiting"))
_FAST = frozenset(("ib", "roce", "efa", "cxi", "gib", "mnnvl"))
STYLE = """
:root{color-scheme:light dark;--text:#222;--page:#fff;--line:#ccc;--code:#f3f3f3;--no:#b00020;--yes:#1a7f37;
--maybe:#8a5a00;
--ok:#e3f4e6;--bad:#fbdcdc;--other:#fdf3d7;--late:#b00020;--dead:#222;--on:#fff;--unknown:#ddd}
@media (prefers-color-scheme:dark){:root{--text:#e6e6e6;--page:#16181c;--line:#444a52;--code:#24282e;--no:#ff8a8a;
--yes:#7ddc93;--maybe:#e8b859;--ok:#173d22;--bad:#4d1f22;--other:#453812;--late:#ff6b6b;--dead:#f2f2f2;--on:#16181c;
--unknown:#4a4f57}}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:var(--text);
background:var(--page)}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin:1.4rem 0 .4rem}
.no-go{color:var(--no)}.go{color:var(--yes)}.inconclusive{color:var(--maybe)}
table{border-collapse:collapse;margin:.6rem 0}
td,th{border:1px solid var(--line);padding:.2rem .45rem;text-align:left;vertical-align:top}
.wide th:first-child{white-space:nowrap}
.wide{overflow-x:auto}.ok{background:var(--ok)}.bad{background:var(--bad)}.other{background:var(--other)}
.rank{display:inline-block;min-width:1.9em;margin:1px;padding:0 .2em;text-align:center;border:1px solid var(--line)}
.late{background:var(--late);color:var(--on)}.dead{background:var(--dead);color:var(--on)}
.waiting{background:var(--other)}.unknown{background:var(--unknown)}
code{background:var(--code);padding:0 .2em;overflow-wrap:anywhere}
"""


def to_html(jobs: Sequence[Job], *, color: bool = False) -> str:  # noqa: ARG001 -- a page has its own
    """Return the page of all jobs."""
    body = "\n".join("\n".join(_job(job)) for job in jobs)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/><title>seatrial explain</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _text(value: object, limit: int = 600) -> str:
    return escape(plain(value, limit))


def _job(job: Job) -> Iterator[str]:
    yield f'<h1><span class="{job["verdict"]}">{job["verdict"].upper()}</span> {_text(job["diagnosis"], 60)}</h1>'
    yield f"<p><code>{_text(names_of(job, 200))}</code></p>" if job["files"] else ""
    yield f"<p>{_text(job['sentence'], 2000)}</p>"
    if failure_class := job.get("failure_class"):
        yield f"<p>Failure class: {failure_class}</p>"
    for part in what_happened(job):
        yield from _part(part)
    states = {rank: state for key, state in reversed(STATES) for rank in _ranks(job, key)}
    yield from _hosts(job, states)
    yield from _matrix(job, states)
    for part in what_is_wrong(job):
        yield from _part(part)


def _part(part: Part) -> Iterator[str]:
    if part.severity:
        yield f"<h2>{_text(part.severity)} <code>{_text(part.fault)}</code></h2>"
    elif part.title:
        yield f"<h2>{_text(part.title)}</h2>"
    if part.lead:
        yield f"<p>{_text(part.lead, 1200)}</p>"
    if part.items:
        kind = "ol" if part.numbered else "ul"
        items = (f"<li>{'<br/>'.join(filter(None, [_text(i.text), *map(_below, i.below)]))}</li>" for i in part.items)
        yield f"<{kind}>{''.join(items)}</{kind}>"
    if part.quoted:
        lines = (f"{where(line, str(line['file'] or ''))} {line['text']}" for line in part.quoted)
        yield f"<ul>{''.join(f'<li><code>{_text(line)}</code></li>' for line in lines)}</ul>"
    if part.table:
        head, *rows = part.table
        body = "".join(_row("td", row) for row in rows)
        yield f'<div class="wide"><table>{_row("th", head)}{body}</table></div>'
    yield from (f"<p>{_text(note)}</p>" for note in part.notes)
    yield from (f"<p>{_below(each)}</p>" for each in part.advice)


def _row(kind: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{_text(cell)}</{kind}>' for cell in cells)}</tr>"


def _below(below: Below) -> str:
    text = f"<code>{_text(below.text)}</code>" if below.code else _text(below.text)
    return f"{_text(below.label)}: {text}" if below.label else text


def _ranks(job: Job, key: str) -> list[int]:
    ranks: Any = job.get(key) or []
    return list(ranks)


def _hosts(job: Job, states: dict[int, str]) -> Iterator[str]:
    """Yield the ranks by host, each with its state; of no host those that have one."""
    rows = [(host["name"] or "host not shown", host["ranks"]) for host in job["hosts"]]
    shown = {rank for _, ranks in rows for rank in ranks}
    if rest := sorted(set(states) - shown):
        rows.append(("host not shown", rest))
    if not rows:
        return
    rows.sort(key=lambda row: (not any(states.get(rank) in ("late", "dead") for rank in row[1]), _natural(row[0])))
    yield "<h2>Ranks by host</h2>"
    if states:
        yield "<p>" + " ".join(f'<span class="rank {state}">{state}</span>' for _, state in STATES) + "</p>"
    yield "<table>"
    left = MAX_RANKS
    for name, ranks in rows:
        cells = "".join(f'<span class="rank {states.get(rank, "")}">{rank}</span>' for rank in ranks[:left])
        yield f"<tr><th>{_text(name, 80)}</th><td>{cells}</td></tr>"
        left -= len(ranks)
        if left <= 0:
            yield '<tr><td colspan="2">the JSON form has all ranks</td></tr>'
            break
    yield "</table>"


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts names with numbers as people count: node-2 before node-10."""
    return [(int(part[:18]), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", name)]


def _matrix(job: Job, states: dict[int, str]) -> Iterator[str]:
    """Yield the matrix of hosts: a row sends, a column receives."""
    pairs = {(pair["src"], pair["dst"]): pair for pair in job["pairs"]}
    if not pairs:
        return
    lost = {rank for rank, state in states.items() if state in ("late", "dead")}
    marked = {str(host["name"]) for host in job["hosts"] if lost & set(host["ranks"])}
    names = sorted({end for ends in pairs for end in ends}, key=lambda name: (name not in marked, _natural(name)))
    shown = names[:MAX_HOSTS]
    yield "<h2>Who talks to whom (row sends to column, channels by transport)</h2>"
    yield '<div class="wide"><table><tr><th></th>' + "".join(_head(name, marked) for name in shown) + "</tr>"
    for source in shown:
        cells = "".join(_cell(pairs.get((source, target))) for target in shown)
        yield f"<tr>{_head(source, marked)}{cells}</tr>"
    yield "</table></div>"
    if len(names) > len(shown):
        yield f"<p>{len(names) - len(shown)} more hosts are in the JSON form.</p>"


def _cell(pair: Pair | None) -> str:
    if pair is None:
        return "<td></td>"
    kinds = sorted(pair["transports"])
    colour = "bad" if "socket" in kinds else "ok" if set(kinds) <= _FAST else "other"
    carried = ", ".join(f"{kind} x{pair['transports'][kind]}" for kind in kinds)
    direct = {True: " GDR", "mixed": " GDR in part"}.get(pair["gdr"] or "", "")
    return f'<td class="{colour}">{_text(carried + direct, 80)}</td>'


def _head(name: str, marked: set[str]) -> str:
    return f'<th class="{"late" if name in marked else ""}">{_text(name, 60)}</th>'
