"""The judgement of an NCCL log as Markdown, for an issue, a chat or a step's summary: nothing of the log is markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jobs.nccl.job_document import JobDocument as Job

from .explain_parts import Below, Part, names_of, parts, where
from .markdown import unlinked
from .plain import plain


def to_markdown(jobs: Sequence[Job], *, color: bool = False) -> str:  # noqa: ARG001 -- neither has Markdown
    """Return the judgement for an issue or a chat: Markdown in which nothing of the log is markup."""
    return "\n\n---\n\n".join(_job_markdown(job) for job in jobs) + "\n"


def _md(value: object, limit: int = 600) -> str:
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
    name = f" {_code(names_of(job, 200))}" if job["files"] else ""
    lines = [f"**{job['verdict'].upper()}**{name}", "", _md(job["sentence"], 1200)]
    if failure_class := job.get("failure_class"):
        lines += ["", f"Failure class: {failure_class}"]
    for part in parts(job):
        lines += ["", *_part_markdown(part)]
    return "\n".join(lines)


def _part_markdown(part: Part) -> Iterator[str]:
    if part.severity:
        yield from (f"### {_md(part.severity)}: {_md(part.fault)}", "")
    elif part.title:
        yield from (f"#### {_md(part.title)}", "")
    if part.said:
        yield from (_md(part.said, 1200), "") if part.title or part.severity else (_md(part.said, 1200),)
    for item in part.items:
        texts = [_md(item.text), "; ".join(map(_below, item.below))]
        yield f"{'1.' if part.numbered else '-'} {': '.join(filter(None, texts))}"
    for line in part.quoted:
        yield f"- evidence {_code(where(line, str(line['file'] or '')), 200)} {_code(line['text'])}"
    for number, row in enumerate(part.table):
        yield "| " + " | ".join(map(_md, row)) + " |"
        if number == 0:
            yield "|---:|---" + "|---:" * (len(row) - 2) + "|"
    for note in part.notes:
        yield from ("", _md(note))
    if part.advice and part.items:
        yield ""
    yield from (f"- {_below(each)}" for each in part.advice)


def _below(below: Below) -> str:
    label = f"{_md(below.label)}: " if below.label else ""
    return label + (_code(below.text) if below.code else _md(below.text))
