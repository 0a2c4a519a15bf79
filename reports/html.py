"""The parts that this suite adds to pytest-html's report; every text is escaped here.

pytest-html inserts summary and extras as raw HTML and does not escape test ids: nothing leaves this module unescaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from . import plot
from .record import CheckResult, Finding, Outcome, Run, Verdict, bill
from .summary import summarize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COLOUR = {Verdict.GO: "#1a7f37", Verdict.NO_GO: "#b42318", Verdict.INCONCLUSIVE: "#9a6700"}
NODES_SHOWN = 200
"""Names of nodes that were not tried; the record has all of them."""
STYLE = """<style>
.st{font:14px/1.5 system-ui,sans-serif;color:#1f2328;max-width:1100px}.st h2{font-size:17px;margin:22px 0 6px}
.st table{border-collapse:collapse;margin:6px 0}.st td,.st th{border:1px solid #d0d7de;padding:3px 9px;text-align:left;
vertical-align:top;font-size:13px;white-space:pre-wrap;overflow-wrap:anywhere;max-width:460px}.st th{background:#f6f8fa}
.st .verdict{color:#fff;padding:10px 16px;border-radius:6px;font-size:19px;font-weight:600}
.st .sim{background:#fff8c5;border:1px solid #d4a72c;padding:6px 12px;border-radius:6px;margin:8px 0;font-weight:600}
.st .fault{border-left:4px solid #b42318;padding:2px 12px;margin:10px 0}.st .error{border-color:#9a6700}
.st dt{font-weight:600;margin-top:4px}.st dd{margin:0 0 0 16px;white-space:pre-wrap;overflow-wrap:anywhere}
#environment-header,#environment,.logwrapper{display:none}
.st .map{display:flex;flex-wrap:wrap;gap:6px 18px;margin:8px 0}.st .map div{font-size:12px}.st .map b{display:block;
font-weight:400;color:#57606a}.st i{display:inline-block;width:13px;height:13px;margin:1px 2px 0 0;border-radius:2px;
border:1px solid #8c959f;vertical-align:-2px}.st i.passed{background:#1a7f37;border-color:#1a7f37}
.st i.failed{background:#b42318;border-color:#b42318}.st i.error{background:#d4a72c;border-color:#9a6700}
.st i.blocked{background:repeating-linear-gradient(45deg,#afb8c1 0 3px,#fff 3px 6px)}
.st .ok{color:#1a7f37}.st .bad{color:#b42318;font-weight:600}.st .unclear{color:#9a6700;font-weight:600}
</style>"""


def overview(run: Run) -> Iterable[str]:
    """Yield the verdict, what was found with its remedy, and the bandwidth plots."""
    told = summarize(run.to_dict())
    yield STYLE
    yield '<div class="st">'
    yield (
        f'<div class="verdict" style="background:{COLOUR[run.verdict]}">{escape(told.headline)}<br>'
        f"<small>{escape(told.counted)}</small></div>"
    )
    if run.simulated:
        yield '<div class="sim">SIMULATED: an embedded cluster; this says nothing about any real one.</div>'
    yield _map(run.results)
    if told.verdict is Verdict.GO and told.proven:
        rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(text)}</td></tr>" for what, text in told.proven)
        yield f"<h2>Proven, in {told.seconds:.0f} s</h2><table>{rows}</table>"
    yield _facts(run)
    for result in run.results:
        if result.outcome in (Outcome.FAILED, Outcome.ERROR):
            yield _found(run, result)
    if run.not_seen:
        yield "<h2>Not seen, so not judged</h2><ul>"
        yield from (f"<li>{escape(text)}</li>" for text in run.not_seen)
        yield "</ul>"
    if run.leftovers:
        yield "<h2>Left behind, not deleted</h2><ul>"
        yield from (f"<li>{escape(name)}</li>" for name in run.leftovers)
        yield "</ul>"
    yield from plot.bandwidth(run.collectives, run.floors)
    yield _sentences(run.collectives)
    if run.bom:
        rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(value)}</td></tr>" for what, value in bill(run.bom))
        yield f"<h2>Bill of materials</h2><table>{rows}</table>"
    yield "</div>"


def _map(results: Iterable[CheckResult]) -> str:
    """A square for each check in the order of the run, by family: where it stopped is seen at one glance."""
    families: dict[str, list[str]] = {}
    for result in results:
        said = escape(f"{result.id} {result.outcome}: {result.reason or result.title}", quote=True)
        family = families.setdefault(result.id.partition(".")[0], [])
        family.append(f'<i class="{escape(result.outcome)}" title="{said}"></i>')
    cells = "".join(f"<div><b>{escape(name)}</b>{''.join(squares)}</div>" for name, squares in families.items())
    legend = " ".join(f'<i class="{outcome}"></i> {outcome} &nbsp;' for outcome in Outcome)
    return f'<div class="map">{cells}</div><div style="font-size:12px">{legend}</div>' if cells else ""


def _facts(run: Run) -> str:
    facts = {
        "run": run.run_id,
        "started": run.started,
        "took": f"{run.seconds:.1f} s",
        "profile": run.profile or "none",
        **({"seen as": "a tenant, with the rights of one namespace"} if run.tenant else {}),
        "scope": f"{run.scope} {run.selection}".strip(),
        "nodes": f"{run.coverage}{' (all were asked for)' if run.asks_all else ''}",
        **({"nodes tried": run.coverage.tried} if run.coverage.tried else {}),
        **({"nodes not tried": run.coverage.not_tried(NODES_SHOWN)} if run.coverage.untried else {}),
        **{k: v for k, v in run.cluster.items() if v not in ("", [], None)},
    }
    if run.interrupted:
        facts["interrupted"] = run.interrupted
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(_flat(v))}</td></tr>" for k, v in facts.items())
    return f"<table>{rows}</table>"


def _sentences(collectives: Mapping[str, Any]) -> str:
    """What NCCL's own log says of each collective, in the analyzer's words."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(job['sentence']))}</td></tr>"
        for name, job in collectives.items()
        if job and job.get("sentence")
    )
    return f"<h2>What NCCL's logs say</h2><table>{rows}</table>" if rows else ""


def _flat(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _found(run: Run, result: CheckResult) -> str:
    kind = "fault error" if result.outcome is Outcome.ERROR else "fault"
    title = f"{result.outcome.upper()} {result.id}: {result.title}"
    parts = [f'<h2>{escape(title)}</h2><div class="{kind}">']
    parts.append(_table([f for f in result.findings if f.ok is not True]) or f"<p>{escape(result.reason)}</p>")
    parts += [f"<p>{escape(note)}</p>" for note in result.notes]
    for fault in result.faults:
        entry = run.faults.get(fault, {})
        rows = "".join(
            f"<dt>{escape(key)}</dt><dd>{escape(entry[key])}</dd>"
            for key in ("meaning", "look", "confirm", "remedy", "source")
            if entry.get(key)
        )
        parts.append(f"<p><b>{escape(fault)}</b> {escape(entry.get('title', ''))}</p><dl>{rows}</dl>")
    return "".join(parts) + "</div>"


def _table(findings: Iterable[Finding]) -> str:
    rows = []
    for f in findings:
        word, css = {True: ("ok", "ok"), False: ("not ok", "bad"), None: ("not seen", "unclear")}[f.ok]
        expected = f"{f.expected} {f.unit}".strip() if f.expected else ""
        cells = (f.subject, f"{f.observed} {f.unit}".strip(), expected, f.fault)
        rows.append(f'<tr><td class="{css}">{word}</td>' + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>")
    head = "".join(f"<th>{h}</th>" for h in ("", "subject", "observed", "expected", "fault"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>" if rows else ""


def details(result: CheckResult) -> str:
    """The body of one row: what the check asserts, what it saw, what it requires."""
    requires = f"<p>Requires: {escape(', '.join(result.requires))}</p>" if result.requires else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in result.notes)
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
    cells[3] = f"<td>{escape(result.reason or _seen(result.findings))}</td>"


def _seen(findings: Sequence[Finding]) -> str:
    """What a check that passed has seen, in a line: the whole stands in the row's details."""
    said = [f"{f.subject}: {f.observed} {f.unit}".strip() for f in findings[:2]]
    return "; ".join(said) + (f" … and {len(findings) - 2} more" if len(findings) > 2 else "")
