"""The forms of `explain`, by name; for a program's step summary and annotations; and the few lines on many jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from jobs.nccl.job_document import JobDocument as Job

from .explain import WIDTH, to_json, to_text
from .explain_markdown import to_markdown
from .explain_page import to_html
from .markdown import workflow_command
from .plain import plain
from .schema import Verdict

FEW = 3
"""Jobs that are told in full; of more, a line or two for each kind, unless asked for."""
MAX_KINDS = 9
MAX_NAMES = 200
MAX_ANNOTATIONS = 10
"""Of each level that GitHub shows for one step (docs.github.com, workflow commands)."""
LONGEST = 900_000
"""Characters; GitHub takes a step's summary of 1 MiB at most."""

RENDERERS: dict[str, Callable[..., str]] = {"text": to_text, "json": to_json, "markdown": to_markdown, "html": to_html}
"""Format name -> renderer(jobs, color=False)."""


def summary(jobs: Sequence[Job], width: int = WIDTH) -> str:
    """Return at most a screen (24 lines) on many jobs: each kind of result, the worst first, and whose it is."""
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
            [
                *lines,
                "",
                "Each in full: --full; as a program reads it: --format json",
                _cut(f"First to read: {name}", width),
            ]
        )
        + "\n"
    )


def _names(jobs: Sequence[Job], room: int) -> str:
    """Return as many names of logs as fit, and how many more there are."""
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
    """Yield GitHub's workflow commands: an error for each no-go, a warning for what could not tell, a notice for go."""
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
    """Return Markdown for a workflow's step: few jobs in full, of many the kinds of results."""
    text = to_markdown(jobs) if len(jobs) <= FEW else "```text\n" + summary(jobs).replace("`", "'") + "```\n"
    return text if len(text) <= LONGEST else text[:LONGEST] + "\n\n(cut: GitHub takes no more)\n"
