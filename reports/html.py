"""The page of a run: the parts that this suite adds to pytest-html's report; every text is escaped here.

pytest-html inserts summary and extras as raw HTML and does not escape test ids: nothing leaves this module unescaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from . import plot
from .matrix import matrix
from .plain import plain
from .record import CheckResult, Finding, Run, bill, counted, is_withheld
from .schema import Outcome, RecordedJob
from .summary import Summary, summarize
from .sweep.page import page
from .timeline import timeline
from .training_page import checkpoint, training

NODES_SHOWN = 200
"""Names of nodes that were not tried; the record has all of them."""
BAD_SHOWN, GOOD_SHOWN = 50, 10
"""Rows of one check's table: of what was found, and of what is as it should be; the record has all of them."""
HERE = Path(__file__).parent


def style() -> str:
    """Return the page's style sheet, as an element."""
    return f"<style>{(HERE / 'page.css').read_text(encoding='utf-8')}</style>"


def finish(text: str) -> str:
    """Return pytest-html's page with a language, a viewport, named filters and the page's script."""
    text = text.replace("<html>", '<html lang="en">', 1)
    viewport = '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
    text = text.replace('<meta charset="utf-8"/>', f'<meta charset="utf-8"/>{viewport}', 1)
    text = re.sub(r'(<input [^>]*data-test-result="(\w+)")', r'\1 aria-label="show \2"', text)
    script = f"<script>{(HERE / 'page.js').read_text(encoding='utf-8')}</script>"
    return text.replace("</body>", f"{script}</body>", 1)


def overview(run: Run) -> Iterable[str]:
    """Yield the verdict, what was proven, what was found with its remedy, the nodes, the plots, what is installed."""
    record = run.to_dict()
    summary = summarize(record)
    yield style()
    yield '<div class="st">'
    yield _hero(summary)
    if run.simulated:
        yield '<div class="sim">SIMULATED: an embedded cluster; this says nothing about any real one.</div>'
    for result in run.results:
        if result.outcome in (Outcome.FAILED, Outcome.ERROR):
            yield _failure(run, result)
    if summary.proven:
        yield f"<h2>Proven, in {summary.seconds:.0f} s</h2>{_facts_table(summary.proven)}"
    yield _not_judged(summary)
    yield _list("Not seen, so not judged", run.not_seen)
    yield _list("Left behind, not deleted", run.leftovers)
    yield matrix(run)
    yield from page(run.sweep or {})
    yield from plot.bandwidth({name: job["tables"] for name, job in record["collectives"].items() if job}, run.floors)
    yield from training(run.training)
    yield from checkpoint(run.checkpoint)
    yield _sentences(record["collectives"], run.trial.get("hosts", {}))
    yield from timeline(run.trial.get("timeline", ()))
    yield _bill(run)
    yield "<h2>The run</h2>"
    yield _facts(run)
    yield "<h2>All checks</h2></div>"


def _hero(summary: Summary) -> str:
    marks = "".join(f" ({mark})" for mark in summary.marks)
    culprit = f'<div class="culprit">{escape(summary.culprit)}</div>' if summary.culprit else ""
    attempts = f"<div>{escape(summary.attempts)}</div>" if summary.attempts else ""
    untried = f"<div>{escape(summary.untried)}</div>" if summary.untried else ""
    return (
        f'<div class="hero {escape(summary.verdict)}" role="status" '
        f'aria-label="{escape(summary.headline, quote=True)}">'
        f'<div class="word">{escape(summary.verdict)}{marks}</div>{culprit}'
        f"<div>{escape(str(summary.coverage))} · exit code {summary.exit_code} · {escape(summary.counted)}</div>"
        f"{attempts}{untried}</div>"
    )


def _facts_table(rows: Iterable[tuple[str, str]], differing: frozenset[str] = frozenset()) -> str:
    cells = "".join(
        f"<tr{' class=differs' if what in differing else ''}><th scope=row>{escape(plain(what))}</th>"
        f"<td>{escape(plain(value))}</td></tr>"
        for what, value in rows
    )
    return f'<table class="facts">{cells}</table>'


def _list(title: str, texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(plain(text))}</li>" for text in texts[:NODES_SHOWN])
    if len(texts) > NODES_SHOWN:
        items += f"<li>… and {len(texts) - NODES_SHOWN} more, in report.json</li>"
    return f"<h2>{title}</h2><ul>{items}</ul>" if items else ""


def _not_judged(summary: Summary) -> str:
    said = [
        f"{why}: {', '.join(f'{name} {number}' for name, number in families.items())}"
        for why, families in summary.not_judged.items()
    ]
    return _list("Not judged", said)


def _facts(run: Run) -> str:
    facts = {
        "run": run.run_id,
        "started": run.started,
        "took": f"{run.seconds:.1f} s",
        "profile": run.profile or "none",
        **({"seen as": "a tenant, with the rights of one namespace"} if run.tenant else {}),
        "scope": f"{run.scope} {run.selection}".strip(),
        "nodes": f"{run.coverage}{' (all were asked for)' if run.asks_all else ''}",
        **({"nodes tried": run.coverage.tried[:NODES_SHOWN]} if run.coverage.tried else {}),
        **({"nodes not tried": left} if (left := run.coverage.not_tried(NODES_SHOWN)) else {}),
        **{k: v for k, v in run.cluster.items() if v not in ("", [], None)},
    }
    if run.interrupted:
        facts["interrupted"] = run.interrupted
    return _facts_table((name, _flat(value)) for name, value in facts.items())


def _bill(run: Run) -> str:
    """The bill of materials; a line with several values for one thing is marked: nodes differ in it."""
    rows = bill(run.bom)
    if not rows:
        return ""
    differing = frozenset(what for what, value in rows if re.search(r"\(\d+\), ", value))
    note = '<p class="note">Marked: nodes differ in it.</p>' if differing else ""
    return f"<h2>Bill of materials</h2>{note}{_facts_table(rows, differing)}"


def _sentences(collectives: Mapping[str, RecordedJob | None], hosts: Mapping[str, str]) -> str:
    """What NCCL's own log says of each collective, in the analyzer's words, with nodes in place of pods."""
    rows = []
    for name, job in collectives.items():
        if job and (said := job["sentence"]):
            for host in sorted(hosts, key=len, reverse=True):
                said = said.replace(host, hosts[host])
            rows.append((name, said))
    return f"<h2>What NCCL's logs say</h2>{_facts_table(rows)}" if rows else ""


def _flat(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _failure(run: Run, result: CheckResult) -> str:
    kind = "fault error" if result.outcome is Outcome.ERROR else "fault"
    title = f"{result.outcome.upper()} {result.id}: {result.title}"
    parts = [f'<h2>{escape(title)}</h2><div class="{kind}">']
    parts.append(_table([f for f in result.findings if f.ok is not True]) or f"<p>{escape(result.reason)}</p>")
    parts += [f'<p class="note">{escape(note)}</p>' for note in result.notes[:BAD_SHOWN]]
    for fault in result.faults:
        entry = run.faults.get(fault, {})
        rows = "".join(
            f"<dt>{escape(key)}</dt><dd>{_command(entry[key]) if key == 'confirm' else escape(entry[key])}</dd>"
            for key in ("meaning", "look", "confirm", "remedy", "source")
            if entry.get(key)
        )
        parts.append(f"<h3>{escape(entry.get('title', '') or fault)} <code>{escape(fault)}</code></h3><dl>{rows}</dl>")
    return "".join(parts) + "</div>"


def _command(text: str) -> str:
    return f'<div class="command"><code>{escape(text)}</code><button data-does="copy">copy</button></div>'


def _table(findings: Sequence[Finding]) -> str:
    """A table of findings: first what was found, then a few of those that are as they should be."""
    bad = [f for f in findings if f.ok is not True]
    good = [f for f in findings if f.ok is True]
    shown = [*bad[:BAD_SHOWN], *good[:GOOD_SHOWN]]
    left = counted((f.ok, f.observed) for f in [*bad[BAD_SHOWN:], *good[GOOD_SHOWN:]])
    rows = []
    for f in shown:
        word, css = {True: ("ok", "ok"), False: ("not ok", "bad"), None: ("not seen", "unclear")}[f.ok]
        word = "not judged" if is_withheld(f.ok, f.observed) else word
        expected = f"{f.expected} {f.unit}".strip() if f.expected else ""
        cells = (f.subject, f"{f.observed} {f.unit}".strip(), expected, f.fault)
        rows.append(f'<tr><td class="{css}">{word}</td>' + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>")
    head = "".join(f"<th scope=col>{h}</th>" for h in ("state", "subject", "observed", "expected", "fault"))
    more = f'<p class="note">… and {left}, in report.json</p>' if left else ""
    table = f"<table><tr>{head}</tr>{''.join(rows)}</table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="findings">{table}</div>{more}' if rows else ""


def details(result: CheckResult) -> str:
    """The body of one row: what the check asserts, what it saw, what it requires."""
    requires = f"<p>Requires: {escape(', '.join(result.requires))}</p>" if result.requires else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in result.notes[:BAD_SHOWN])
    return f'<div class="st"><p>{escape(result.doc)}</p>{_table(result.findings)}{notes}{requires}</div>'


def row(report: Any, cells: list[str]) -> None:
    """Rewrite pytest-html's cells of a check: its own outcome, its id and title, its reason."""
    result: CheckResult | None = getattr(report, "seatrial", None)
    if result is None:
        cells[1] = f'<td class="col-testId">{escape(report.nodeid)}</td>'
        cells[3] = "<td></td>"
        return
    if result.outcome is Outcome.BLOCKED:
        # The filter of pytest-html knows 'Skipped' only; the reader sees the word of this suite.
        cells[0] = '<td class="col-result" hidden>Skipped</td><td class="col-result">Blocked</td>'
    cells[1] = f'<td class="col-testId">{escape(result.id)}: {escape(result.title)}</td>'
    cells[3] = f"<td>{escape(result.reason or _first_finding(result.findings))}</td>"


def _first_finding(findings: Sequence[Finding]) -> str:
    """What a check that passed has seen, in a line: the whole stands in the row's details."""
    said = [f"{f.subject}: {f.observed} {f.unit}".strip() for f in findings[:2]]
    return "; ".join(said) + (f" … and {len(findings) - 2} more" if len(findings) > 2 else "")
