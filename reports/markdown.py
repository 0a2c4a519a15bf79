"""The report as GitHub-flavoured Markdown: for a ticket, an issue, or the summary of a workflow's step.

Text from a cluster can neither make a link nor mention a user: names are code spans, sentences are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .plain import plain, sentence
from .record import bill, counted
from .schema import Outcome, Record, RecordedCheck
from .summary import Summary, summarize
from .training_page import STATES, amounts, figures, rows, slowest_first

FINDINGS = 20
"""Rows for one check; the record has all of them."""
LONGEST = 60_000
"""Characters; GitHub refuses an issue of more than 65,536."""


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
        f"**{_text(summary.headline)}**",
        f"{summary.counted}; {summary.seconds:.0f} s",
        *([_text(summary.attempts)] if summary.attempts else []),
        *([_text(summary.untried)] if summary.untried else []),
        _table(("", ""), [(name, _code(value)) for name, value in facts.items() if value]),
    ]
    if summary.proven:
        parts += ["## Proven", *_proven(summary)]
    for check in record["checks"]:
        if check["outcome"] in (Outcome.FAILED, Outcome.ERROR):
            parts += _finding(check, record["faults"])
    for why, families in summary.not_judged.items():
        named = ", ".join(f"{family} {number}" for family, number in families.items())
        parts.append(f"Not judged, {_text(why)}: {named}.")
    parts += _training(record)
    if installed := bill(record["bom"]):
        rows = [(_text(what), _code(value)) for what, value in installed]
        parts += ["## Bill of materials", _table(("what", "version or number"), rows)]
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
                _text(f"{each.label} ({each.subject})"),
                _text(f"{each.value} {each.unit}"),
                _text(f"{each.floor} {each.unit}"),
                "; ".join(map(_text, filter(None, (each.source, each.reference)))),
            )
            for each in summary.measured
        ]
        yield _table(("bus bandwidth", "measured", "floor", "source of the floor; what others measured"), rows)
    if others := summary.in_words:
        yield _table(("what", "in words"), [(_text(what), _text(sentence(text))) for what, text in others])


def _training(record: Record) -> Iterable[str]:
    """Yield the measurements of training steps and checkpoints, as on the page."""
    if (steps := record["training"]) and (lines := list(figures(steps))):
        yield "## Training steps"
        yield _table(("measured", "what"), [(_text(number), _text(what)) for number, what in lines])
        slowest = slowest_first(steps)[:FINDINGS]
        numbers = [(_code(name), _code("not reported" if value is None else f"{value:.1f}")) for name, value in slowest]
        yield _table(("GPU, the slowest first", "TFLOP/s of its own compute"), numbers)
    if (saved := record["checkpoint"]) and (lines := list(amounts(saved))):
        yield "## Checkpoints"
        yield _table(("measured", "what"), [(_text(number), _text(what)) for number, what in lines])
        yield _table(("node", "step", *STATES), [[_code(cell) for cell in row] for row in rows(saved)[:FINDINGS]])
        yield "Seconds from the moment a node began to write a step until it had the state."


def _finding(check: RecordedCheck, faults: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    yield f"## {check['outcome'].upper()} {_text(check['id'])}: {_text(check['title'])}"
    shown = [f for f in check["findings"] if f["ok"] is not True]
    if shown:
        rows = [
            (
                _code(f["subject"]),
                _text(f"{f['observed']} {f['unit']}".strip()),
                _text(f"{f['expected']} {f['unit']}".strip() if f["expected"] else ""),
                _text(f["fault"]),
            )
            for f in shown[:FINDINGS]
        ]
        yield _table(("subject", "observed", "expected", "fault"), rows)
        if left := counted((f["ok"], f["observed"]) for f in shown[FINDINGS:]):
            yield f"… and {left}, in report.json"
    else:
        yield _text(sentence(check["reason"]))
    for note in check["notes"][:FINDINGS]:
        yield f"Note: {_text(note)}"
    named = dict.fromkeys([check["fault"], *(f["fault"] for f in shown)])
    for fault in filter(None, named):
        entry = faults.get(fault, {})
        said = [_text(sentence(text)).rstrip(".") + "." for text in map(entry.get, ("title", "meaning")) if text]
        yield f"**{_text(fault)}**: {' '.join(said)}"
        if entry.get("confirm"):
            yield f"Confirm: {_code(entry['confirm'])}"
        if entry.get("remedy"):
            yield f"Remedy: {_text(sentence(entry['remedy']))}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _line(value: object) -> str:
    """Return a text on one line, without control characters."""
    return " ".join(plain(value).split())


def _code(value: object) -> str:
    """Return a text as a code span, which nothing in it can end."""
    text = _line(value)
    if not text:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _text(value: object) -> str:
    """Return a text in which nothing is markup, a link or a mention."""
    escaped = re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", _line(value))
    return unlinked(escaped).replace("://", ":\u200b//")


def unlinked(text: str) -> str:
    """Return a text without mentions and links for GitHub."""
    return re.sub(r"(?i)\bwww\.", "www\u200b.", text.replace("@", "@\u200b"))


def workflow_command(level: str, title: str, text: str) -> str:
    """Return an annotation as GitHub's workflow commands have it; neither text can begin another command."""
    name, message = (_line(each).replace("%", "%25").replace("::", ": :") for each in (title, text))
    return f"::{level} title={name.replace(':', '%3A').replace(',', '%2C')}::{message}"
