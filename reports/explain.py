"""The judgement of an NCCL log as text for a terminal or JSON: job documents in, one document out.

Text fits 80 columns; colour is used only when asked for.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence

from jobs.nccl.job_document import JobDocument as Job

from .explain_parts import Part, names_of, parts, where
from .plain import plain
from .schema import Verdict

Paint = Mapping[str, Callable[[str], str]]

WIDTH = 80
SCHEMA = 1

_COLOURS = {"go": "32", "no-go": "31", "inconclusive": "33", "fatal": "31", "degraded": "33", "info": "36", "head": "1"}
_PAINTED = {kind: f"\x1b[{code}m{{}}\x1b[0m".format for kind, code in _COLOURS.items()}
_PLAIN = dict.fromkeys(_COLOURS, str)


def to_json(jobs: Sequence[Job], *, color: bool = False) -> str:  # noqa: ARG001 -- JSON has no colour
    """Return the JSON document, ``{"schema": 1, "jobs": [...]}``, as text; it never holds NaN."""
    return json.dumps({"schema": SCHEMA, "jobs": list(jobs)}, indent=2, allow_nan=False) + "\n"


def to_text(jobs: Sequence[Job], *, color: bool = False, width: int = WIDTH) -> str:
    """Return what a person reads in a terminal."""
    paint = _PAINTED if color else _PLAIN
    blocks = [_job_text(job, paint, width) for job in jobs]
    if len(jobs) > 1:
        counts = {name: sum(job["verdict"] == name for job in jobs) for name in Verdict}
        said = ", ".join(f"{count} {paint[name](name)}" for name, count in counts.items() if count)
        blocks.append(f"{len(jobs)} jobs: {said}")
    return ("\n" + "─" * width + "\n\n").join(blocks) + "\n"


def _job_text(job: Job, paint: Paint, width: int) -> str:
    lines = [f"{paint[job['verdict']](job['verdict'].upper())}  {names_of(job, width - len(job['verdict']) - 2)}"]
    lines += _wrap(job["sentence"], width, "")
    if failure_class := job.get("failure_class"):
        lines += _wrap(f"Failure class: {failure_class}", width, "")
    for part in parts(job):
        lines += ["", *_part_text(part, paint, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wrap(text: str, width: int, indent: str, first: str | None = None) -> list[str]:
    """Wrap text; long names are broken rather than let run over the edge."""
    start = indent if first is None else first
    lines = textwrap.wrap(
        plain(text, 1200), width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
    )
    return lines or [start.rstrip()]


_ROW = "  {:>10}  {:>9}  {:>17}  {:>5}  {:>13}  {:>5}".format


def _part_text(part: Part, paint: Paint, width: int) -> Iterator[str]:
    if part.severity:
        yield f"{paint[part.severity](part.severity.upper())}  {part.fault}"
    elif part.title:
        yield paint["head"](part.title)
    if part.said:
        yield from _wrap(part.said, width, "  " if part.title or part.severity else "")
    for number, item in enumerate(part.items, 1):
        if item.text:
            yield from _wrap(item.text, width, "    ", f"  {number} " if part.numbered else "  ")
        for below in item.below:
            if below.label == "confirm":
                yield from _wrap(below.text, width, " " * 13, f"    {below.label:<9}")
            else:
                yield from _wrap(f"{below.label}: {below.text}" if below.label else below.text, width, " " * 6, " " * 4)
    for line in part.quoted:
        spot = where(line, plain(line["file"] or "", 200).rpartition("/")[2])
        yield from _wrap(f"{spot}  {line['text']}", width, "    ", "  | ")
    yield from (_ROW(*row) for row in part.table)
    for note in part.notes:
        yield from _wrap(note, width, "  ")
    for below in part.advice:
        yield from _wrap(below.text, width, " " * 11, f"  {below.label:<9}")
