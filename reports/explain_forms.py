"""The judgement of an NCCL log as text for a terminal, Markdown or JSON; and a short overview of many jobs.

Text fits 80 columns; colour is used only when requested. Markdown is for an issue, a chat or a step's summary; text
from the log is escaped. explain_page.py has the HTML.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from seatrial.logs.job_document import JobDocument as Job

from .explain_page import to_html
from .explain_parts import Below, Part, names_of, parts, where
from .markdown import unlinked, workflow_command
from .plain import plain
from .schema import Verdict

Paint = Mapping[str, Callable[[str], str]]

WIDTH = 80
SCHEMA = 1

_COLOURS = {"go": "32", "no-go": "31", "inconclusive": "33", "fatal": "31", "degraded": "33", "info": "36", "head": "1"}
_PAINTED = {kind: f"\x1b[{code}m{{}}\x1b[0m".format for kind, code in _COLOURS.items()}
_PLAIN = dict.fromkeys(_COLOURS, str)


def to_json(jobs: Sequence[Job], *, color: bool = False) -> str:  # noqa: ARG001 -- JSON has no colour
    """Return the JSON document, ``{"schema": 1, "jobs": [...]}``, as text; it never contains NaN."""
    return json.dumps({"schema": SCHEMA, "jobs": list(jobs)}, indent=2, allow_nan=False) + "\n"


def to_text(jobs: Sequence[Job], *, color: bool = False, width: int = WIDTH) -> str:
    """Return the text for a terminal."""
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
    """Wrap text; break long names instead of exceeding the width."""
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
    if part.lead:
        yield from _wrap(part.lead, width, "  " if part.title or part.severity else "")
    for number, item in enumerate(part.items, 1):
        if item.text:
            yield from _wrap(item.text, width, "    ", f"  {number} " if part.numbered else "  ")
        for below in item.below:
            if below.label == "confirm":
                start = "    " if item.text else "  "  # below the cause, or aligned with the remedy
                yield from _wrap(below.text, width, start + " " * 9, f"{start}{below.label:<9}")
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


def to_markdown(jobs: Sequence[Job], *, color: bool = False) -> str:  # noqa: ARG001 -- neither has Markdown
    """Return the judgement for an issue or a chat: Markdown with the log's text escaped."""
    return "\n\n---\n\n".join(_job_markdown(job) for job in jobs) + "\n"


def _md(value: object, limit: int = 600) -> str:
    """Escape characters that Markdown or HTML would interpret."""
    text = plain(value, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return unlinked(re.sub(r"([\\`*_{}\[\]()#+!|~])", r"\\\1", text))


def _code(value: object, limit: int = 400) -> str:
    """Return an inline code span that its content cannot end."""
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
    if part.lead:
        yield from (_md(part.lead, 1200), "") if part.title or part.severity else (_md(part.lead, 1200),)
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


FEW = 3
"""Maximum number of jobs that are reported in full; more get a line or two for each kind, unless requested."""
MAX_KINDS = 9
MAX_NAMES = 200
MAX_ANNOTATIONS = 10
"""Maximum number of annotations of each level that GitHub shows for one step (docs.github.com, workflow commands)."""
LONGEST = 900_000
"""Maximum number of characters; GitHub takes a step's summary of 1 MiB at most."""

RENDERERS: dict[str, Callable[..., str]] = {"text": to_text, "json": to_json, "markdown": to_markdown, "html": to_html}
"""Format name -> renderer(jobs, color=False)."""


def summary(jobs: Sequence[Job], width: int = WIDTH) -> str:
    """Return an overview of many jobs on one screen (24 lines): each kind of result with its jobs, the worst first."""
    kinds: dict[tuple[int, str, str, str], list[Job]] = defaultdict(list)
    order = [Verdict.NO_GO, Verdict.INCONCLUSIVE, Verdict.GO]
    for job in jobs:
        main = next((fault["why"] or fault["fault"] for fault in job["faults"] if fault["severity"] != "info"), "")
        kinds[order.index(Verdict(job["verdict"])), str(job["verdict"]), job["diagnosis"], main].append(job)
    counts = ", ".join(f"{sum(job['verdict'] == verdict for job in jobs)} {verdict}" for verdict in order)
    lines = [f"{len(jobs)} jobs: {counts}", ""]
    ranked = sorted(kinds.items(), key=lambda item: (item[0][0], -len(item[1]), item[0]))
    for (_, verdict, diagnosis, main), same in ranked[:MAX_KINDS]:
        why = f" ({main})" if main else ""
        lines.append(_cut(f"{verdict.upper():<12} {len(same):>4}  {diagnosis}{why}", width))
        lines.append(_cut(" " * 19 + _names(same, width - 19), width))
    if len(ranked) > MAX_KINDS:
        rest = sum(len(same) for _, same in ranked[MAX_KINDS:])
        lines.append(f"and {len(ranked) - MAX_KINDS} more kinds of {rest} jobs")
    worst = ranked[0][1][0]
    name = plain(worst["files"][0], 200) if worst["files"] else ""
    return (
        "\n".join(
            [*lines, "", "All in full: --full; for programs: --format json", _cut(f"First to read: {name}", width)]
        )
        + "\n"
    )


def _names(jobs: Sequence[Job], room: int) -> str:
    """Return as many names of logs as fit, and the number of others."""
    names = [plain(job["files"][0], MAX_NAMES).rpartition("/")[2] for job in jobs if job["files"]]
    shown = ""
    for index, name in enumerate(names):
        rest = len(names) - index - 1
        longer = f"{shown}, {name}" if shown else name
        if len(longer) + (len(f" and {rest} more") if rest else 0) > room:
            return f"{shown} and {rest + 1} more" if shown else name
        shown = longer
    return shown


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def workflow_commands(jobs: Sequence[Job]) -> Iterator[str]:
    """Yield GitHub's workflow commands: an error for each no-go, a warning for an inconclusive one, a notice for go."""
    levels = {"no-go": "error", "go": "notice"}
    left: dict[str, int] = defaultdict(lambda: MAX_ANNOTATIONS)
    for job in jobs:
        level = levels.get(job["verdict"], "warning")
        left[level] -= 1
        if left[level] < 0:
            continue
        text = f"{job['verdict']}: {job['sentence']}"
        if job["causes"]:
            text += f" Look first: {job['causes'][0]['cause']} ({job['causes'][0]['confirm']})"
        title = plain(job["files"][0], 120) if job["files"] else "explain"
        yield workflow_command(level, f"seatrial {title}", plain(text, 1000))


def step_summary(jobs: Sequence[Job]) -> str:
    """Return Markdown for a workflow's step: a few jobs in full, an overview of many."""
    text = to_markdown(jobs) if len(jobs) <= FEW else "```text\n" + summary(jobs).replace("`", "'") + "```\n"
    return text if len(text) <= LONGEST else text[:LONGEST] + "\n\n(truncated at GitHub's limit)\n"
