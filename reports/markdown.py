"""The report as GitHub-flavoured Markdown: for a ticket, an issue, or the summary of a workflow's step.

Text from a cluster can neither create a link nor mention a user: names are code spans, sentences are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from . import actions
from .plain import plain, sentence
from .record import bill, counted
from .schema import Outcome, Record, RecordedCheck
from .summary import Summary, summarize
from .training_page import STATES, amounts, figures, rows, slowest_first

FINDINGS = 20
"""Maximum number of rows for one check; the record has all of them."""
LONGEST = 60_000
"""Maximum number of characters; GitHub refuses an issue of more than 65,536."""


def markdown(record: Record) -> str:
    """Return the report of a record: verdict, culprit, proven properties, findings with remedies, components."""
    summary = summarize(record)
    cluster = record["cluster"]
    facts = {
        "server": cluster.get("server"),
        "namespace": cluster.get("namespace"),
        "run": record["run_id"],
        "started": record["started"],
        "profile": record["profile"] or "none",
        "failure class": record["failure_class"],
        "image": record["trial"].get("image"),
        "seatrial": record["seatrial"],
    }
    parts = [
        f"# seatrial: {summary.verdict}",
        f"**{escaped(summary.headline)}**",
        f"{summary.counted}; {summary.seconds:.0f} s",
        *([escaped(summary.attempts)] if summary.attempts else []),
        *([escaped(summary.untried)] if summary.untried else []),
        table(("", ""), [(name, code(value)) for name, value in facts.items() if value]),
    ]
    if told := actions.lines(record["actions"]):
        parts += [f"## {actions.TITLE}", "\n".join(f"- {escaped(line)}" for line in told[:FINDINGS])]
        parts += [f"… and {len(told) - FINDINGS} more, in report.json"] if len(told) > FINDINGS else []
    if summary.proven:
        parts += ["## Proven", *_proven(summary)]
    for check in record["checks"]:
        if check["outcome"] in (Outcome.FAILED, Outcome.ERROR):
            parts += _finding(check, record["faults"])
    for why, families in summary.not_judged.items():
        named = ", ".join(f"{family} {number}" for family, number in families.items())
        parts.append(f"Not judged, {escaped(why)}: {named}.")
    parts += _training(record)
    if installed := bill(record["bom"]):
        rows = [(escaped(what), code(value)) for what, value in installed]
        parts += ["## Bill of materials", table(("what", "version or number"), rows)]
    whole = "\n\n".join(parts) + "\n"
    return whole if len(whole) <= LONGEST else whole[:LONGEST] + "\n\n(cut here; report.json has the rest)\n"


def workflow_commands(record: Record) -> Iterable[str]:
    """Yield GitHub's workflow commands: an error for each check that failed, a warning for each inconclusive one."""
    for check in record["checks"]:
        kind = {Outcome.FAILED: "error", Outcome.ERROR: "warning"}.get(check["outcome"])
        if kind:
            text = f"{check['title']}: {check['reason'] or check['outcome']}"
            yield workflow_command(kind, f"seatrial {check['id']}", text)
    summary = summarize(record)
    kind = {"go": "notice", "no-go": "error"}.get(str(summary.verdict), "warning")
    yield workflow_command(kind, "seatrial", summary.headline)


def _proven(summary: Summary) -> Iterable[str]:
    """Yield the bandwidths with their floors, then further proven properties, as text."""
    if summary.measured:
        rows = [
            (
                escaped(f"{each.label} ({each.subject})"),
                escaped(f"{each.value} {each.unit}"),
                escaped(f"{each.floor} {each.unit}"),
                "; ".join(map(escaped, filter(None, (each.source, each.reference)))),
            )
            for each in summary.measured
        ]
        yield table(("bus bandwidth", "measured", "floor", "source of the floor; published measurements"), rows)
    if others := summary.in_words:
        yield table(("what", "in words"), [(escaped(what), escaped(sentence(text))) for what, text in others])


def _training(record: Record) -> Iterable[str]:
    """Yield the measurements of training steps and checkpoints, as on the page."""
    if (steps := record["training"]) and (lines := list(figures(steps))):
        yield "## Training steps"
        yield table(("measured", "what"), [(escaped(number), escaped(what)) for number, what in lines])
        slowest = slowest_first(steps)[:FINDINGS]
        numbers = [(code(name), code("not reported" if value is None else f"{value:.1f}")) for name, value in slowest]
        yield table(("GPU, the slowest first", "TFLOP/s of its own compute"), numbers)
    if (saved := record["checkpoint"]) and (lines := list(amounts(saved))):
        yield "## Checkpoints"
        yield table(("measured", "what"), [(escaped(number), escaped(what)) for number, what in lines])
        yield table(("node", "step", *STATES), [[code(cell) for cell in row] for row in rows(saved)[:FINDINGS]])
        yield "Seconds from the moment a node began to write a step until it reached the state."


def _finding(check: RecordedCheck, faults: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    yield f"## {check['outcome'].upper()} {escaped(check['id'])}: {escaped(check['title'])}"
    shown = [f for f in check["findings"] if f["ok"] is not True]
    if shown:
        rows = [
            (
                code(f["subject"]),
                escaped(f"{f['observed']} {f['unit']}".strip()),
                escaped(f"{f['expected']} {f['unit']}".strip() if f["expected"] else ""),
                escaped(f"{f['fault']} {f['action']}".strip()),
            )
            for f in shown[:FINDINGS]
        ]
        yield table(("subject", "observed", "expected", "fault"), rows)
        if left := counted((f["ok"], f["observed"]) for f in shown[FINDINGS:]):
            yield f"… and {left}, in report.json"
    else:
        yield escaped(sentence(check["reason"]))
    for note in check["notes"][:FINDINGS]:
        yield f"Note: {escaped(note)}"
    named = dict.fromkeys([check["fault"], *(f["fault"] for f in shown)])
    for fault in filter(None, named):
        entry = faults.get(fault, {})
        said = [escaped(sentence(text)).rstrip(".") + "." for text in map(entry.get, ("title", "meaning")) if text]
        yield f"**{escaped(fault)}**: {' '.join(said)}"
        if entry.get("confirm"):
            yield f"Confirm: {code(entry['confirm'])}"
        if entry.get("remedy"):
            yield f"Remedy: {escaped(sentence(entry['remedy']))}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that already are Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _line(value: object) -> str:
    """Return a text on one line, without control characters."""
    return " ".join(plain(value).split())


def code(value: object) -> str:
    """Return a text as a code span that its content cannot end."""
    text = _line(value)
    if not text:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def escaped(value: object) -> str:
    """Return a text in which nothing is markup, a link or a mention."""
    text = re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", _line(value))
    return unlinked(text).replace("://", ":\u200b//")


def unlinked(text: str) -> str:
    """Return a text without mentions and links for GitHub."""
    return re.sub(r"(?i)\bwww\.", "www\u200b.", text.replace("@", "@\u200b"))


def workflow_command(level: str, title: str, text: str) -> str:
    """Return an annotation as a GitHub workflow command; neither text can begin another command."""
    name, message = (_line(each).replace("%", "%25").replace("::", ": :") for each in (title, text))
    return f"::{level} title={name.replace(':', '%3A').replace(',', '%2C')}::{message}"
