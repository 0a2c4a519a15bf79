"""The judgement of an NCCL log as Markdown, for an issue, a chat or a step's summary: nothing of the log is markup."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jobs.nccl.job_document import FoundFault, Table
from jobs.nccl.job_document import JobDocument as Job

from .explain import (
    AROUND,
    MAX_NOT_SEEN,
    MAX_PAIRS,
    MAX_ROWS,
    around,
    facts,
    main,
    pairs,
    places,
    plain,
    shown_names,
    shown_size,
    shown_values,
    table_notes,
    where,
)
from .markdown import unlinked


def to_markdown(jobs: Sequence[Job], *, color: bool = False) -> str:  # noqa: ARG001 -- neither has Markdown
    """Return the judgement for an issue or a chat: Markdown in which nothing of the log is markup."""
    return "\n\n---\n\n".join(_job_markdown(job) for job in jobs) + "\n"


def _md(value: object, limit: int = 400) -> str:
    """Escape what Markdown or HTML would act upon."""
    text = plain(value, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return unlinked(re.sub(r"([\\`*_{}\[\]()#+!|~])", r"\\\1", text))


def _code(value: object, limit: int = 400) -> str:
    """Return an inline code span that its content cannot leave."""
    text = plain(value, limit)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _job_markdown(job: Job) -> str:
    lines = [
        f"**{job['verdict'].upper()}** {_code(shown_names(job, 200))}"
        if job["files"]
        else f"**{job['verdict'].upper()}**"
    ]
    lines += ["", _md(job["sentence"], 1200)]
    if failure_class := job.get("failure_class"):
        lines += ["", f"Failure class: {failure_class}"]
    lines += _todo(job)
    lines += ["", " · ".join(_md(fact) for fact in facts(job))]
    if lost := places(job):
        lines += ["", "| rank that does not come | where | last words |", "|---|---|---|"]
        lines += [
            f"| {rank} | {_md(spot, 600)} | {_code(last_words).replace('|', chr(92) + '|') if last_words else ''} |"
            for rank, spot, last_words in lost
        ]
    if job["pairs"]:
        lines += ["", "| from | to | channels | GPUDirect | devices |", "|---|---|---|---|---|"]
        for pair, cells in pairs(job):
            ends = f"| {_md(pair['src'], 60)} | {_md(pair['dst'], 60)}"
            lines.append(f"{ends} | {' | '.join(map(_md, cells))} |")
        if (more := len(job["pairs"]) - MAX_PAIRS) > 0:
            lines += ["", f"… and {more} more pairs"]
    for fault in job["faults"]:
        lines += ["", *_fault(fault, helped=fault is main(job))]
    if happened := around(job):
        lines += ["", AROUND + ":", ""]
        lines += [
            f"- {part}, {at}, {_code(place)}: {_code(text)}; {_md(why)}" for part, at, place, text, why in happened
        ]
    for table in job["tables"]:
        lines += ["", *_table_markdown(table)]
    if job["advice"]:
        lines += ["", f"Next time: {_md(job['advice'])}."]
    if job.get("not_seen"):
        lines += ["", "Not seen:", "", *(f"- {_md(text, 600)}" for text in job["not_seen"][:MAX_NOT_SEEN])]
    return "\n".join(lines)


def _fault(fault: FoundFault, *, helped: bool) -> list[str]:
    """Return what is said of a fault; where it was ``helped`` already, without how to confirm and mend it."""
    lines = [f"### {_md(fault['severity'])}: {_md(fault.get('title', fault['fault']))}", ""]
    lines.append(
        f"- fault {_code(fault['fault'])}"
        + (f", because of {_code(fault['why'])}" if fault["why"] else "")
        + f": {_md(fault['subject'])}"
    )
    lines += [
        f"- evidence {_code(where(item, str(item['file'] or '')), 200)} {_code(item['text'])}"
        for item in fault["evidence"]
    ]
    lines += [f"- cause: {_md(fault['cause'])}"]
    if not helped:
        lines += [f"- confirm: {_code(fault['confirm'])}", f"- remedy: {_md(fault['remedy'])}"]
    return lines


def _todo(job: Job) -> list[str]:
    """Return the causes that remain, the most likely first, and what helps."""
    if not job["causes"]:
        return []
    lines = ["", "Likely causes, the first one first:" if len(job["causes"]) > 1 else "What to do:", ""]
    lines += [f"1. {_md(cause['cause'], 600)}: {_code(cause['confirm'])}" for cause in job["causes"]]
    fault = main(job)
    return lines + (["", f"Remedy: {_md(fault['remedy'], 600)}"] if fault else [])


def _table_markdown(table: Table) -> list[str]:
    lines = [f"Benchmark {_code(table['collective'] or 'not named')}", ""]
    if table["rows"]:
        lines += [
            "| size | type | out-of-place GB/s | wrong | in-place GB/s | wrong |",
            "|---:|---|---:|---:|---:|---:|",
        ]
    for row in table["rows"][-MAX_ROWS:]:
        cells = [shown_size(row["size_bytes"]), _md(row["type"], 16), *shown_values(row)]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", *[_md(note) for note in table_notes(table)]]
