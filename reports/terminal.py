"""The terminal's text: a line per family of checks while they run, then verdict, findings and remedies."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tabulate import tabulate

from . import actions
from .plain import plain, with_unit
from .record import CheckResult, Finding, Run, counted
from .schema import Outcome, Verdict
from .summary import COUNTED, LAYERS, Deciding, Summary, blocked_roots, grouped, summarize
from .sweep import figures
from .sweep.text import lines

MARKUP: dict[Outcome, dict[str, bool]] = {
    Outcome.PASSED: {"green": True},
    Outcome.SKIPPED: {"yellow": True},
    Outcome.BLOCKED: {"light": True},
    Outcome.ERROR: {"yellow": True, "bold": True},
    Outcome.FAILED: {"red": True, "bold": True},
}
COLOUR = {Verdict.GO: {"green": True}, Verdict.NO_GO: {"red": True}, Verdict.INCONCLUSIVE: {"yellow": True}}
TITLES = {"look": "look at"}
FINDINGS_SHOWN = LISTED = 12
"""Maximum number of rows of one check's table on the terminal."""
REST = "report.json (--out)"
"""The report with everything that a terminal omits; the page is limited, too."""
NO_PROFILE = (
    "Without a profile no bandwidth, fabric or number of GPUs is compared with the order. Next: "
    "seatrial profile detect > my.yaml (read it), then the same command with --profile my.yaml"
)
NOBODY = "Failure class: unknown. Nothing shows the infrastructure or a program at fault."
"""For example on a busy cluster, or after an interrupted trial."""
EXPLAINED_BY: Mapping[str, str] = {"nccl.transport": "rdma", "nccl.fabric": "rdma"}
"""The family whose checks explain the failure of a higher one: the ports that NCCL did or did not find."""
UNEVENTFUL = (Outcome.PASSED, Outcome.SKIPPED)
SUBJECTS = 6
"""Maximum number of subjects that one row names, if they are not numbered."""
NAMED = 4
"""Maximum number of checks of one kind that a line names."""
PARAGRAPH_LINES = 8
"""Maximum number of lines of one text on the terminal, enough for every entry of the catalogue."""


def header(terminal: Any, run: Run) -> None:
    """Describe the subject of the trial, and whether it is simulated."""
    terminal.ensure_newline()
    if run.simulated:
        under = f", API faults {run.cluster['api_faults']}" if run.cluster.get("api_faults") else ""
        terminal.write_line(f"SIMULATED cluster, scenario {run.cluster.get('scenario', '')}{under}", bold=True)
        for lost in run.cluster.get("lost", ()):
            _paragraph(terminal, "", f"not simulated here: {lost}", _width())
    terminal.write_line(
        f"{run.cluster.get('server', '')} · namespace {run.cluster.get('namespace', '')}", bold=not run.simulated
    )
    if run.cpu_only:
        terminal.write_line("a trial on CPUs: GPUs, their fabric and NCCL are not tested")
    if run.tenant:
        terminal.write_line("judged with a tenant's permissions: this namespace only")
    terminal.write_line(f"run {run.run_id} · profile {run.profile or 'none: checks that need one are not judged'}")
    terminal.write_line("")


def by_layer(families: Iterable[str]) -> list[str]:
    """Return families of checks in the order of their layers; those of a user come last, in the given order."""
    return sorted(families, key=lambda name: LAYERS.index(name) if name in LAYERS else len(LAYERS))


def line(terminal: Any, result: CheckResult, *, why: bool = True) -> None:
    """Write the line of one finished check: outcome, id, title, and (``why``) the reason if it did not pass.

    A blocked or skipped check has no observation: the summary names it once, with the blocking check or its reason.
    """
    if result.outcome in (Outcome.BLOCKED, Outcome.SKIPPED):
        return
    terminal.ensure_newline()
    terminal.write(f"{result.outcome.upper():<8}", **MARKUP[result.outcome])
    seconds = f"  {result.seconds:.1f}s" if result.seconds >= 0.1 else ""
    title = _plain(f" {result.id:<22} {result.title}{seconds}")
    first, *rest = _wrap(title, _width() - 8, " " * 24)
    for text in (first, *(" " * 8 + more for more in rest)):
        terminal.write_line(text)
    if why and result.outcome is not Outcome.PASSED and result.reason:
        rows = _wrap(result.reason, _width() - 11)
        cut = [*rows[:1], f"{rows[1]} …"] if len(rows) > 2 else rows
        for text in cut:
            terminal.write_line(f"         {text}")


def family(terminal: Any, name: str, results: Sequence[CheckResult]) -> None:
    """Write the line of a family after its last check, such as ``nccl``; none if all were skipped."""
    ended = [r.outcome for r in results]
    if set(ended) == {Outcome.SKIPPED}:
        return
    worst = max((o for o in ended if o is not Outcome.SKIPPED), key=list(Outcome).index)
    counted = ", ".join(f"{ended.count(o)} {o}" for o in COUNTED if o in ended)
    seconds = sum(r.seconds for r in results)
    terminal.ensure_newline()
    terminal.write(f"{worst.upper():<8}", **MARKUP[worst])
    terminal.write_line(f" {name:<15} {counted}" + (f"  {seconds:.1f}s" if seconds >= 0.1 else ""))


def summary(terminal: Any, run: Run, folder: Path | None, *, detailed: bool = False) -> None:
    """Write verdict, culprit, proven properties, findings with remedies, and checks that were not judged.

    ``detailed``: name every skipped or blocked check with its reason; otherwise they are counted by family.
    """
    width = _width()
    summarized = summarize(run.to_dict())
    terminal.ensure_newline()
    terminal.write_line("")
    _verdict(terminal, run, summarized)
    _list(terminal, f"{actions.TITLE}:", actions.lines(run.actions), width)
    _proven(terminal, summarized, width)
    for result in run.results:
        if result.outcome in (Outcome.FAILED, Outcome.ERROR):
            told = summarized.deciding if summarized.deciding.check == result.id else Deciding()
            _failure(terminal, run, result, told, width)
    _not_judged(terminal, run, summarized, width, detailed=detailed)
    if run.sweep:
        terminal.write_line("")
        terminal.write_line("The sweep:", bold=True)
        over_all = [f for r in run.results if r.id == "sweep.scale" for f in r.findings]
        said = [f"job over all: {f.observed}{f' {f.unit}' if f.unit else ''} ({f.subject})" for f in over_all if f.ok]
        for text in (*lines(run.sweep, findings=False), *said):
            _paragraph(terminal, "", text, width)
    _list(terminal, "Deleted first, left by runs that were killed:", run.cleaned, width)
    _list(
        terminal,
        "Left behind, not deleted (seatrial cleanup tries again, once nothing said here is in its way):",
        run.leftovers,
        width,
    )
    _list(
        terminal, "Not visible, so not judged:" if not run.tenant else "Not visible to a tenant:", run.not_seen, width
    )
    if folder is not None:
        terminal.write_line(f"Report: {folder / 'report.html'}")


def _list(terminal: Any, title: str, texts: Sequence[str], width: int) -> None:
    """Write a list under its title, limited to one screen; nothing if the list is empty."""
    if texts:
        terminal.write_line(title, bold=True)
    for text in texts[:LISTED]:
        _paragraph(terminal, "", text, width)
    if len(texts) > LISTED:
        terminal.write_line(f"  … and {len(texts) - LISTED} more, in {REST}")


def one_line(terminal: Any, run: Run, folder: Path | None) -> None:
    """Write only the verdict, on one line of any length."""
    summarized = summarize(run.to_dict())
    terminal.ensure_newline()
    terminal.write(f"VERDICT: {run.verdict}", bold=True, **COLOUR[run.verdict])
    report = f" · {folder / 'report.html'}" if folder is not None else ""
    terminal.write_line(_plain(summarized.headline.removeprefix(run.verdict) + report))


def _proven(terminal: Any, summary: Summary, width: int) -> None:
    """Write the proven properties with their numbers: all for a go, else only the number of findings."""
    if summary.verdict is not Verdict.GO or not summary.proven:
        return
    terminal.write_line(f"Proven, in {summary.seconds:.0f} s:", bold=True)
    for what, text in summary.proven:
        terminal.write_line(f"  {what:<14} {_shortened(text, width - 17)}")


def _not_judged(terminal: Any, run: Run, summary: Summary, width: int, *, detailed: bool) -> None:
    """Write blocked and skipped checks: counted by family, or (``detailed``) each with its reason."""
    blocked = {why: families for why, families in summary.not_judged.items() if why != "skipped"}
    if detailed:
        for blockers, names in _blocked(run.results).items():
            terminal.write_line("")
            terminal.write("BLOCKED ", **MARKUP[Outcome.BLOCKED])
            terminal.write_line(f"by {', '.join(blockers) or 'its prerequisites'}, so not judged:", bold=True)
            _paragraph(terminal, "", ", ".join(names), width)
        _skipped(terminal, run.results, width)
        terminal.write_line("")
        return
    if blocked and summary.verdict is not Verdict.GO:
        terminal.write_line("")
    for why, families in blocked.items():
        _paragraph(terminal, "", f"Not judged, {why}: {_families(families)}", width)
    if skipped := summary.not_judged.get("skipped"):
        _paragraph(terminal, "", f"Not requested or not applicable: {_families(skipped)} (-v: why)", width)


def _families(families: Mapping[str, int]) -> str:
    """Write the number of checks by family: ``7 checks (nccl 4, rdma 2, job)``."""
    total = sum(families.values())
    named = ", ".join(f"{name} {number}" if number > 1 else name for name, number in families.items())
    return f"{total} {'check' if total == 1 else 'checks'} ({named})"


def _skipped(terminal: Any, results: Sequence[CheckResult], width: int) -> None:
    """Write one line for each check that does not apply here, with its shortened reason; the report has it in full."""
    skipped = [r for r in results if r.outcome is Outcome.SKIPPED]
    if not skipped:
        return
    terminal.write_line("")
    terminal.write("SKIPPED ", **MARKUP[Outcome.SKIPPED])
    terminal.write_line("each for its reason:", bold=True)
    for result in skipped:
        terminal.write_line(f"  {result.id:<23} {_shortened(result.reason, width - 26)}")


def not_collected(terminal: Any, report: Any) -> None:
    """Name the file of checks that could not be read, with Python's error."""
    text = str(report.longrepr)
    said = [row[1:].strip() for row in text.splitlines() if row.startswith("E  ")]
    places = re.findall(r"^\S+:\d+(?=: )", text, re.MULTILINE)
    terminal.ensure_newline()
    terminal.write("ERROR ", **MARKUP[Outcome.ERROR])
    terminal.write_line(f"{report.nodeid or (places or ['a file of checks'])[-1]} could not be read", bold=True)
    _paragraph(terminal, "", "\n".join(said) or text, _width())


def _blocked(results: Sequence[CheckResult]) -> dict[tuple[str, ...], list[str]]:
    """Write the blocked checks by root cause: other checks, or their own reason."""
    roots = blocked_roots((r.id, r.outcome, r.blocked_by) for r in results)
    grouped: dict[tuple[str, ...], list[str]] = {}
    for result in results:
        if result.outcome is Outcome.BLOCKED:
            why = roots[result.id] or ((_plain(result.reason),) if result.reason else ())
            grouped.setdefault(why, []).append(result.id + _where(result))
    return grouped


def _where(result: CheckResult) -> str:
    """Name the subjects that a partly blocked check did not judge; '' if there are none."""
    left = [f.subject for f in result.findings if f.ok is None]
    if not any(f.ok for f in result.findings):
        return ""
    return f" ({left[0] if len(left) == 1 else f'{len(left)} subjects'})"


def _failure(terminal: Any, run: Run, result: CheckResult, told: Deciding, width: int) -> None:
    """Write a check's findings, except those ``told`` with the verdict; their meaning, and the remedy."""
    terminal.write_line("")
    terminal.write(f"{result.outcome.upper()} ", **MARKUP[result.outcome])
    title, *rest = _wrap(f"{result.id}: {result.title}", width - len(result.outcome) - 1)
    for text in (title, *(f"  {more}" for more in rest)):
        terminal.write_line(text, bold=True)
    rows = [f for f in result.findings if f.ok is not True and f.subject not in told.subjects]
    groups: dict[Finding, list[Finding]] = {}
    for each in rows:
        groups.setdefault(replace(each, subject=""), []).append(each)
    equal = [replace(first, subject=grouped([f.subject for f in alike], SUBJECTS)) for first, alike in groups.items()]
    if equal:
        _findings(terminal, run, equal[:FINDINGS_SHOWN], width)
        left = [f for alike in list(groups.values())[FINDINGS_SHOWN:] for f in alike]
        if said := counted((f.ok, f.observed) for f in left):
            terminal.write_line(f"  … and {said}, in {REST}")
    elif not told.check:
        _paragraph(terminal, "", result.reason, width)
    for text in _explaining(run.results, result):
        _paragraph(terminal, "see also", text, width)
    for note in result.notes[:LISTED]:
        _paragraph(terminal, "note", note, width)
    for fault in result.faults:
        entry = run.faults.get(fault, {})
        terminal.write_line(f"  {fault}: {entry.get('title', '')}", bold=True)
        for key in ("meaning", "look", "confirm", "remedy"):
            if entry.get(key):
                _paragraph(terminal, TITLES.get(key, key), entry[key], width)


def _explaining(results: Sequence[CheckResult], failed: CheckResult) -> Iterator[str]:
    """Yield the outcomes of the layer that explains a failure; preflight does not describe pods."""
    family = EXPLAINED_BY.get(failed.id)
    for result in results if failed.outcome is Outcome.FAILED else ():
        if result.id.partition(".")[0] != family or (result.stage == "preflight" and result.outcome in UNEVENTFUL):
            continue
        said = result.reason
        if result.outcome is Outcome.PASSED and result.findings:
            said = f"{grouped([f.subject for f in result.findings])}: {result.findings[0].observed}"
        yield f"{result.id} {result.outcome}{f': {said}' if said else ''}"


def _findings(terminal: Any, run: Run, rows: Sequence[Finding], width: int) -> None:
    """Write a table if its cells are short; else one block for each finding, so that no important text is truncated."""
    cells = []
    for each in rows:
        seen = (each.subject, with_unit(each.observed, each.unit), with_unit(each.expected, each.unit))
        cells.append((*(figures.of_finding(run.sweep, each.subject, each.observed) or seen), each.fault))
    room = (width // 4, width // 3, width // 4, width)
    wrapped = [[_wrap(cell, most) for cell, most in zip(row, room, strict=True)] for row in cells]
    if all(len(cell) <= 2 for row in wrapped for cell in row):
        text = tabulate(
            [["\n".join(cell) for cell in row] for row in wrapped],
            headers=["subject", "observed", "expected", "fault"],
            disable_numparse=True,
        )
        if max(map(len, text.splitlines())) <= width - 2:
            terminal.write_line(textwrap.indent(text, "  "))
            return
    for subject, observed, expected, fault in cells:
        _paragraph(terminal, "subject", subject + (f" ({fault})" if fault else ""), width)
        _paragraph(terminal, "observed", observed, width)
        if expected:
            _paragraph(terminal, "expected", expected, width)


def _width() -> int:
    """Return the terminal's columns, within a readable width; 100 if the output is not a terminal."""
    return max(60, min(shutil.get_terminal_size((100, 24)).columns, 110))


def _paragraph(terminal: Any, label: str, text: str, width: int) -> None:
    head = f"{label:>9}  " if label else "  "
    rows = [part for row in text.splitlines() for part in _wrap(row, width - len(head)) or [""]]
    if len(rows) > PARAGRAPH_LINES:
        rows = [*rows[:PARAGRAPH_LINES], f"… the rest is in {REST}"]
    for index, row in enumerate(rows):
        terminal.write_line(f"{head if index == 0 else ' ' * len(head)}{row}")


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Wraps at spaces only: names, paths and commands stay whole for copying."""
    rows = textwrap.wrap(_plain(text), width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)
    return [uncommanded(row) for row in rows]


def _shortened(text: str, width: int) -> str:
    """Return as much of a text as fits a row, broken at a space."""
    rows = _wrap(text, width - 2)
    return f"{rows[0]} …" if len(rows) > 1 else "".join(_wrap(text, width)[:1])


def uncommanded(row: str) -> str:
    """Return a row that is not a GitHub workflow command (``::error::``): its text is untrusted."""
    return re.sub(r"^(\s*):(?=:)", r"\1: ", row)


def _plain(text: str) -> str:
    """Remove control characters: untrusted text must not control the terminal."""
    return plain(text).replace("##[", "## [")  # GitHub's old command form


def _too_little(terminal: Any, run: Run, told: str) -> None:
    """List untried nodes, and missing conditions for a go unless ``told`` before."""
    if left := run.coverage.not_tried():
        _paragraph(terminal, "", f"Not tried: {left}", _width())
    if run.too_few_tried and run.verdict is not Verdict.NO_GO and run.too_few_tried.lower() not in told:
        _paragraph(terminal, "", f"Not a go: {run.too_few_tried}.", _width())
    unseen = ", ".join(run.required_but_unseen)
    if unseen and run.verdict is not Verdict.NO_GO and unseen.lower() not in told:
        _paragraph(terminal, "", f"Required but not judged: {unseen}", _width())


def _culprit(terminal: Any, run: Run, decided: Deciding, width: int) -> None:
    """Write culprit, observation, expectation, and further checks with the same outcome."""
    if decided.name:
        for row in _wrap(decided.name, width - 4):
            terminal.write_line(f"  {row}", bold=True)
    for text in filter(None, (decided.fact, f"expected {decided.expected}" if decided.expected else "")):
        _paragraph(terminal, "", text, width)
    if decided.further:
        more = f" and {len(decided.further) - NAMED} more" if len(decided.further) > NAMED else ""
        said = "failed" if run.verdict is Verdict.NO_GO else "inconclusive"
        _paragraph(terminal, "", f"also {said}: {', '.join(decided.further[:NAMED])}{more}", width)


def _verdict(terminal: Any, run: Run, summary: Summary) -> None:
    """Write the verdict, then culprit, observation and expectation on separate lines."""
    head = f"VERDICT: {run.verdict}"
    terminal.write(head, bold=True, **COLOUR[run.verdict])
    first, *rest = _wrap(f"VERDICT: {summary.short}", _width(), "  ")
    terminal.write_line(first.removeprefix(head))
    for row in rest:
        terminal.write_line(row)
    _culprit(terminal, run, summary.deciding, _width())
    _paragraph(terminal, "", summary.counted, _width())
    if summary.attempts:
        _paragraph(terminal, "", f"{summary.attempts}.", _width())
    if run.goes_on:  # a check that is not yet judged is neither missing nor insufficient
        if run.verdict is Verdict.NO_GO:
            _paragraph(terminal, "", run.goes_on, _width())
        terminal.write_line(f"  Next: {_plain(run.trial['attach'])}")  # on one line for copying
    else:
        _too_little(terminal, run, summary.deciding.fact.lower())
    if run.scope == "partial":
        _paragraph(terminal, "", f"Partial run ({run.selection}): not enough for a gate.", _width())
    if run.failure_class:
        _paragraph(terminal, "", f"Failure class: {run.failure_class}", _width())
    elif run.verdict is Verdict.INCONCLUSIVE and run.faults:
        _paragraph(terminal, "", NOBODY, _width())
    if run.interrupted and run.interrupted not in summary.deciding.fact:
        _paragraph(terminal, "", f"Ended early: {run.interrupted}", _width())
    if summary.untried:
        _paragraph(terminal, "", summary.untried, _width())
    if not run.profile:
        _paragraph(terminal, "", NO_PROFILE, _width())
