"""The difference between two runs as text for a terminal, Markdown for a pull request, JSON, or a page.

The page is one HTML file with the content of the text, and the curves of both sides in one plot.
"""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from markupsafe import Markup
from tabulate import tabulate

from .. import plot
from ..schema import Record, RecordedFloor, RecordedTable
from ..summary import grouped
from ..template import render as rendered
from .comparison import Change, Comparison
from .regression import percent

HEADLINE = {
    "worse": "WORSE: something does not work as well as before",
    "unclear": "UNCLEAR: nothing is seen to be worse, but not everything could be compared",
    "better": "BETTER: nothing is worse, something is better",
    "same": "SAME: nothing is worse",
}
ORDER = ("worse", "unclear", "better", "appeared", "vanished")
SHOWN = 60
"""Maximum number of rows of one table; JSON has all of them."""
NAMED = 12
"""Maximum number of subjects that one row of equal subjects names."""
RUNS_SHOWN = 3
"""Maximum number of runs of one side that are listed, each on a line."""


def render(comparison: Comparison, style: str) -> str:
    """Render a comparison; ``style`` is text, markdown, json, or html: the content of the page."""
    if style == "json":
        return _printable(json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"
    parts = [_head(comparison, style)]
    for part in (_sides, _of_one_command, _no_longer_proven, _changes, _versions, _bandwidth):
        parts += part(comparison, style)
    if comparison.unclear:
        lines = [f"- {_clean(t, style)}" for t in comparison.unclear]
        parts.append(_title("Not compared", style) + "\n" + _lines(lines, style))
    if comparison.notes:
        parts.append(_lines([f"note: {_clean(t, style)}" for t in comparison.notes], style))
    return _printable("\n\n".join(parts)) + "\n"


def _printable(text: str) -> str:
    """Replace lone surrogates, which JSON may hold as escapes: they cannot be written to a file."""
    return text.encode("utf-8", "backslashreplace").decode()


def _head(comparison: Comparison, style: str) -> str:
    text = f"{HEADLINE[comparison.verdict]} (before: {comparison.verdicts[0]}, after: {comparison.verdicts[1]})"
    if style == "html":
        kind = {"worse": "no-go", "unclear": "inconclusive"}.get(comparison.verdict, "go")
        word, _, rest = HEADLINE[comparison.verdict].partition(": ")
        sides = f"before: {escape(comparison.verdicts[0])}, after: {escape(comparison.verdicts[1])}"
        hero = f'<div class="hero {kind}" role="status"><h1 class="word">{word}</h1>'
        return f'{hero}<p class="culprit">{rest}</p><p>{sides}</p></div>'
    return f"## seatrial compare: {text}" if style == "markdown" else _lines([text], style)


def _sides(comparison: Comparison, style: str) -> list[str]:
    """Describe cluster, server and time of each side; of many runs the first ones."""
    mark = "- " if style == "markdown" else "  "
    lines = []
    for name, runs in zip(("before", "after"), comparison.sides, strict=True):
        named = [_run(run) for run in runs[:RUNS_SHOWN]]
        more = [f"and {len(runs) - RUNS_SHOWN} more runs"] if len(runs) > RUNS_SHOWN else []
        lines += [f"{mark}{name + ':':<7} {_clean(text, style)}" for text in (*named, *more)]
    return [_lines(lines, style)] if lines else []


def _run(run: Mapping[str, str]) -> str:
    what = f"SIMULATED ({run['simulated']}) " if run["simulated"] else ""
    return (
        f"{what}{run['server']}, namespace {run['namespace']} · {run['started']} · profile {run['profile']} · "
        f"run {run['run_id']}: {run['verdict']} · {run['nodes']}"
    )


def _only_one_runs(comparison: Comparison, change: Change) -> bool:
    """Return whether only the trial or only the sweep has a check, while the sides are one of each."""
    return change.area == "check" and "not run" in (change.before, change.after) and len(set(comparison.commands)) > 1


def _of_one_command(comparison: Comparison, style: str) -> list[str]:
    """Count the checks that only a trial or only a sweep has."""
    counts = Counter(c.after == "not run" for c in comparison.changes if _only_one_runs(comparison, c))
    lines = []
    for gone, count in sorted(counts.items(), reverse=True):
        own, other = comparison.commands if gone else reversed(comparison.commands)
        checks = f"{count} checks of the {own} are" if count > 1 else f"1 check of the {own} is"
        lines.append(_clean(f"{checks} not part of a {other}", style))
    return [_lines(lines, style)] if lines else []


def _no_longer_proven(comparison: Comparison, style: str) -> list[str]:
    apart = {change.subject for change in comparison.changes if _only_one_runs(comparison, change)}
    names = [name for name in comparison.no_longer_proven if name not in apart]
    if not names:
        return []
    count = f"{len(names)} checks that passed before were" if len(names) > 1 else "1 check that passed before was"
    text = _clean(f"{count} not checked after, so fewer properties are proven: {', '.join(names)}", style)
    return [_lines([text] if style == "markdown" else _wrapped(text, _width()), style)]


def _width() -> int:
    """Return the terminal's columns; 120 if the output is not a terminal, since the table has six columns."""
    return max(80, shutil.get_terminal_size((120, 24)).columns)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Wraps at spaces only: names stay whole."""
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False, subsequent_indent=indent)


def _changes(comparison: Comparison, style: str) -> list[str]:
    changes = sorted(comparison.changes, key=lambda c: ORDER.index(c.kind) if c.kind in ORDER else len(ORDER))
    blocked = [c.subject for c in changes if c.area == "check" and c.after == "blocked"]
    told = set(comparison.no_longer_proven)
    shown = [
        c
        for c in changes
        if (c.area != "check" or c.after != "blocked")
        and not _only_one_runs(comparison, c)
        and not (c.area == "check" and c.after == "not run" and c.subject in told)
    ]
    equal: dict[tuple[str, ...], list[str]] = {}
    for c in shown:
        equal.setdefault((c.kind, c.area, c.before, c.after, c.note), []).append(c.subject)
    rows = [[kind, area, grouped(names, NAMED), *rest] for (kind, area, *rest), names in equal.items()]
    title = "Changes in behaviour"
    parts = _table(title, ["result", "what", "subject", "before", "after", "note"], rows, style) if rows else []
    if blocked:
        lines = _wrapped(f"Blocked after, so not compared: {', '.join(blocked)}", _width())
        parts.append(_lines([_clean(line, style) for line in lines], style))
    return parts


def _versions(comparison: Comparison, style: str) -> list[str]:
    rows = [[c.subject, c.before, c.after] for c in comparison.versions]
    title = "Changes of installed components (the likely causes)"
    if not rows and comparison.verdict == "worse":
        return [_lines(["Both records show the same installed components: check the hardware."], style)]
    return _table(title, ["", "before", "after"], rows, style) if rows else []


def _bandwidth(comparison: Comparison, style: str) -> list[str]:
    rows = [
        [
            r.group.where,
            " ".join(dict.fromkeys((r.group.collective, r.group.run))) + (f" {r.sizes}" if r.sizes else ""),
            r.reported_before,
            r.reported_after,
            "-" if r.change is None else percent(r.change),
            "-" if r.error is None else f"{100 * r.error:.1f} %",
            r.kind,
        ]
        for r in comparison.rows
    ]
    heads = ["nodes", "collective", "before", "after", "change", "std. error", "result"]
    title = "Bus bandwidth (GB/s), the mean over the rows of 1 GiB and more, unless other sizes are named"
    said = [f"- {_clean(text, style)}" for text in comparison.references]
    if style == "text":
        rows = [[*row[:2], _RATE.sub(r"\1", row[2]), _RATE.sub(r"\1", row[3]), *row[4:]] for row in rows]
    return (_table(title, heads, rows, style) if rows else []) + ([_lines(said, style)] if said else [])


PADDING = "  "
"""The columns that tabulate adds to the width of a header."""
_RATE = re.compile(r"^([\d.e+-]+) GB/s (?:over|at) .*$")
"""A rate with its unit and the sizes, which are in the table's title and in its row's name."""


def _title(text: str, style: str) -> str:
    return {"markdown": f"### {text}", "html": f"<h2>{text}</h2>"}.get(style, f"{text}:")


def _lines(lines: Sequence[str], style: str) -> str:
    if style == "html":
        items = (line.strip().removeprefix("- ") for line in lines)
        return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
    if style == "text":
        lines = [row for line in lines for row in _wrapped(line, _width(), "  ")]
    return "\n".join(lines)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], style: str) -> list[str]:
    kind = {"markdown": "pipe", "html": "unsafehtml"}.get(style, "simple")  # the cells are escaped
    cells = [[_clean(cell, style) for cell in row] for row in rows[:SHOWN]]
    if style == "text":
        cells = _fitted(heads, cells, _width())
    more = f"\n(and {len(rows) - SHOWN} more)" if len(rows) > SHOWN else ""
    if style == "html":  # a screen reader needs every header
        heads = [head or ("component" if len(heads) == 3 else "result") for head in heads]
    table = tabulate(cells, heads, kind, disable_numparse=True)
    if style == "html":
        table = f'<div class="wide" tabindex="0" role="group" aria-label="{title}">{table}</div>'
    heading = "\n".join(_wrapped(_title(title, style), _width())) if style == "text" else _title(title, style)
    return [f"{heading}\n\n{table}{more}"]


def _fitted(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Break the cells so that the table fits: the widest column shrinks first, and no word is broken."""
    columns = list(zip([head + PADDING for head in heads], *rows, strict=True))
    widths = [max(map(len, texts)) for texts in columns]
    least = [max(len(texts[0]), *(len(word) for text in texts for word in text.split())) for texts in columns]
    while sum(widths) + 2 * (len(widths) - 1) > width and widths != least:
        widest = max((i for i in range(len(widths)) if widths[i] > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1
    return [["\n".join(_wrapped(cell, most)) for cell, most in zip(row, widths, strict=True)] for row in rows]


def _clean(text: object, style: str) -> str:
    """Remove characters that control a terminal or are Markdown: records are untrusted."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", " ", str(text))
    if style == "html":
        return escape(plain)
    return re.sub(r"([\\`*_<>|\[\]@#])", r"\\\1", plain) if style == "markdown" else plain


def page(comparison: Comparison, before: Sequence[Record], after: Sequence[Record]) -> str:
    """Return the page of a comparison; the curves before are dashed."""
    floors: Mapping[str, Sequence[RecordedFloor]] = next(
        (record["floors"] for record in reversed(after) if record["floors"]), {}
    )
    body = Markup(render(comparison, "html"))  # noqa: S704 -- _clean escapes
    if curves := plot.bandwidth(tables(after), floors, tables(before)):
        body += Markup("<h2>{}</h2>").format(plot.TITLE) + curves
    return rendered("page.html", title=f"{comparison.verdict} · seatrial compare", body=body)


def tables(records: Sequence[Record]) -> dict[str, list[RecordedTable]]:
    """Return the tables of each collective; repeats are drawn as their median."""
    joined: dict[str, list[RecordedTable]] = {}
    for record in records:
        for name, job in record["collectives"].items():
            joined.setdefault(name, []).extend(job["tables"] if job else ())
    return joined
