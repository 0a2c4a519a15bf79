"""What does a person at a terminal read? One line per check while it runs, then findings, remedies, the verdict."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from .record import CheckResult, Outcome, Run, Verdict, counts

if TYPE_CHECKING:
    from pathlib import Path

MARKUP: dict[Outcome, dict[str, bool]] = {
    Outcome.PASSED: {"green": True},
    Outcome.SKIPPED: {"yellow": True},
    Outcome.BLOCKED: {"light": True},
    Outcome.ERROR: {"yellow": True, "bold": True},
    Outcome.FAILED: {"red": True, "bold": True},
}
COLOUR = {Verdict.GO: {"green": True}, Verdict.NO_GO: {"red": True}, Verdict.INCONCLUSIVE: {"yellow": True}}
FINDINGS_SHOWN = 12
"""Rows of one check's table on the terminal; all of them are in the report."""


def header(terminal: Any, run: Run) -> None:
    """Say what is on trial, and that it is simulated where it is."""
    where = f"{run.cluster.get('server', '')} · namespace {run.cluster.get('namespace', '')}"
    terminal.ensure_newline()
    if run.simulated:
        terminal.write_line(f"SIMULATED cluster, scenario {run.cluster.get('scenario', '')} · {where}", bold=True)
        for lost in run.cluster.get("lost", ()):
            terminal.write_line(f"  not simulated here: {lost}", yellow=True)
    else:
        terminal.write_line(where, bold=True)
    terminal.write_line(f"run {run.run_id} · profile {run.profile or 'none: only what needs no profile is judged'}")
    terminal.write_line("")


def line(terminal: Any, result: CheckResult) -> None:
    """Write the line of one finished check: outcome, id, title, and why where it did not pass."""
    terminal.ensure_newline()
    terminal.write(f"{result.outcome.upper():<8}", **MARKUP[result.outcome])
    seconds = f"  {result.seconds:.1f} s" if result.seconds >= 0.1 else ""
    terminal.write_line(f" {result.id:<22} {result.title}{seconds}")
    if result.outcome not in (Outcome.PASSED, Outcome.BLOCKED) and result.reason:
        for text in textwrap.wrap(result.reason, _width() - 10)[:4]:
            terminal.write_line(f"         {text}")


def summary(terminal: Any, run: Run, folder: Path | None) -> None:
    """Write what was found and what to do about it, then the verdict."""
    width = _width()
    for result in run.results:
        if result.outcome in (Outcome.FAILED, Outcome.ERROR):
            _found(terminal, run, result, width)
    terminal.write_line("")
    if run.leftovers:
        terminal.write_line("Left behind, not deleted:", yellow=True, bold=True)
        for name in run.leftovers:
            terminal.write_line(f"  {name}")
        terminal.write_line("  seatrial cleanup removes what carries this tool's label.")
    _verdict(terminal, run)
    if folder is not None:
        terminal.write_line(f"Report: {folder / 'report.html'}")


def _found(terminal: Any, run: Run, result: CheckResult, width: int) -> None:
    terminal.write_line("")
    terminal.write(f"{result.outcome.upper()} ", **MARKUP[result.outcome])
    terminal.write_line(f"{result.id}: {result.title}", bold=True)
    if rows := [f for f in result.findings if f.ok is not True]:
        table = [
            [_cut(f.subject, width // 4), _cut(f"{f.observed} {f.unit}".strip(), width // 3),
             _cut(f"{f.expected} {f.unit}".strip(), width // 4), f.fault]
            for f in rows[:FINDINGS_SHOWN]
        ]
        text = tabulate(table, headers=["subject", "observed", "expected", "fault"], disable_numparse=True)
        terminal.write_line(textwrap.indent(text, "  "))
        if len(rows) > FINDINGS_SHOWN:
            terminal.write_line(f"  … and {len(rows) - FINDINGS_SHOWN} more in the report")
    else:
        _paragraph(terminal, "", result.reason, width)
    for note in result.notes:
        _paragraph(terminal, "note", note, width)
    for fault in result.faults:
        entry = run.faults.get(fault, {})
        terminal.write_line(f"  {fault}: {entry.get('title', '')}", bold=True)
        for key in ("meaning", "confirm", "remedy"):
            if entry.get(key):
                _paragraph(terminal, key, entry[key], width)


def _width() -> int:
    """Columns to fill: the terminal's, within what reads well; 100 where the output is no terminal."""
    return max(60, min(shutil.get_terminal_size((100, 24)).columns, 110))


def _paragraph(terminal: Any, label: str, text: str, width: int) -> None:
    head = f"{label:>9}  " if label else "  "
    for index, row in enumerate(text.splitlines() or [""]):
        first = head if index == 0 else " " * len(head)
        wrapped = textwrap.wrap(row, width - len(head), break_long_words=False, break_on_hyphens=False)
        for number, part in enumerate(wrapped):
            terminal.write_line(f"{first if number == 0 else ' ' * len(head)}{part}")


def _cut(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, max(width, 16), max_lines=4, placeholder=" …"))


def _verdict(terminal: Any, run: Run) -> None:
    said = ", ".join(f"{n} {outcome}" for outcome, n in counts(run.results).items()) or "nothing was checked"
    simulated = " · SIMULATED: says nothing about any real cluster" if run.simulated else ""
    terminal.write(f"VERDICT: {run.verdict}", bold=True, **COLOUR[run.verdict])
    terminal.write_line(f" · {said} · exit code {run.exit_code}{simulated}")
    if run.scope == "partial":
        terminal.write_line(f"Partial run ({run.selection}): not enough for a gate.")
    if run.required_but_unseen and run.verdict is not Verdict.NO_GO:
        terminal.write_line(f"Required but not judged: {', '.join(run.required_but_unseen)}")
    if run.interrupted:
        terminal.write_line(f"Interrupted: {run.interrupted}", yellow=True)
