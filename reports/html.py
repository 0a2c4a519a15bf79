"""The page of a run: one file, which loads no other resource and is readable without its script.

pytest-html provides the option; its content is replaced, since it shows neither a verdict nor a check's own outcome.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import actions, plot
from .matrix import matrix
from .plain import plain
from .record import CheckResult, Finding, Run, bill, counted, is_withheld
from .schema import Outcome, Record, RecordedJob
from .summary import Measured, Summary, summarize
from .sweep.page import page as swept
from .template import render
from .timeline import timeline
from .training_page import checkpoint, training

if TYPE_CHECKING:
    from markupsafe import Markup

NODES_SHOWN = 200
"""Maximum number of names of untried nodes; the record has all of them."""
BAD_SHOWN, GOOD_SHOWN = 50, 10
"""Maximum number of rows of bad and of good findings in one check's table; the record has all of them."""
ENTRIES = 8
"""Maximum number of failed checks in the table of contents."""
TITLE = 90
"""Maximum number of characters of the culprit in the title, which a browser's tab and a list of files truncate."""
LONGEST_TEXT = 20_000
"""Maximum number of characters of a user test's output."""


class Section(NamedTuple):
    """A part of the page: its anchor, heading and content; ``entry`` is in the table of contents."""

    id: str
    title: str
    body: str
    entry: str = ""


class Table(NamedTuple):
    """Findings as the rows of a table, and the number of omitted ones in words."""

    rows: Sequence[Mapping[str, str]]
    left: str


class UserTest(NamedTuple):
    """A test of the session that is not a check: its id, outcome and output."""

    id: str
    outcome: str
    text: str


def page(run: Run, others: Sequence[UserTest] = ()) -> str:
    """Return the page of a run; ``others``: other tests of the session."""
    record = run.to_dict()
    summary = summarize(record)
    sections = [each for each in _sections(run, record, summary, others) if each.body]
    head = _head(run)
    marks = "".join(f" ({mark})" for mark in summary.marks)
    title = " · ".join(filter(None, [f"{summary.verdict}{marks}", plain(summary.culprit, TITLE), *head[:3]]))
    return render("run.html", title=f"{title} · seatrial", summary=summary, head=head, sections=sections)


def _head(run: Run) -> list[str]:
    """Describe the cluster, time, reference, coverage and duration of the run."""
    namespace = run.cluster.get("namespace")
    scenario = run.cluster.get("scenario")
    context = run.cluster.get("context")
    said = [
        f"scenario {scenario}" if scenario else run.cluster.get("server", ""),
        f"context {context}" if context else "",
        f"namespace {namespace}" if namespace else "",
        _date(run.started),
        f"profile {run.profile}" if run.profile else "no profile",
        str(run.coverage),
        duration(run.seconds),
    ]
    return [plain(each) for each in said if each]


def _date(started: str) -> str:
    """Return a date with its time zone; any other text unchanged."""
    try:
        return datetime.datetime.fromisoformat(started).strftime("%d %b %Y, %H:%M %Z").strip().lstrip("0")
    except ValueError:
        return started


def duration(seconds: float) -> str:
    """Return a duration as text: 19 s, 6 min 12 s, 2 h 3 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min {whole % 60} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _sections(run: Run, record: Record, summary: Summary, others: Sequence[UserTest]) -> Iterator[Section]:
    failed = [result for result in run.results if result.outcome in _BAD]
    for number, result in enumerate(failed):
        title = f"{result.outcome.upper()} {result.id}: {result.title}"
        yield Section(result.id, title, _failure(run, result), result.id if number < ENTRIES else "")
    if told := actions.lines(record["actions"]):
        yield Section("actions", actions.TITLE, render("listed.html", texts=told, most=NODES_SHOWN), "Actions")
    if summary.proven:
        yield Section("proven", "Proven", _proven(summary), "Proven")
    yield _listed("not-judged", "Not judged", _not_judged(summary))
    yield _listed("not-seen", "Not visible, so not judged", run.not_seen)
    yield _listed("leftovers", "Left behind, not deleted", run.leftovers)
    yield Section("nodes", "Nodes", matrix(run), "Nodes")
    yield Section("links", "Every node, every link", swept(run.sweep or {}), "Every link")
    tables = {name: job["tables"] for name, job in record["collectives"].items() if job}
    yield Section("bandwidth", plot.TITLE, plot.bandwidth(tables, run.floors), "Bandwidth")
    yield Section("training", "Training steps", training(run.training), "Training steps")
    yield Section("checkpoints", "Checkpoints", checkpoint(run.checkpoint), "Checkpoints")
    yield Section("time", "Timeline of the trial", timeline(run.trial.get("timeline", ())), "Time")
    if run.results or others:
        yield Section("checks", "All checks", _checks(run, others), "All checks")
    folded = [
        ("NCCL's logs", _sentences(record["collectives"], run.trial.get("hosts", {})), ()),
        ("Bill of materials", (installed := bill(run.bom)), _differing(installed)),
        ("The run", _facts(run), ()),
    ]
    yield Section("details", "Details", render("details.html", parts=[each for each in folded if each[1]]), "Details")


_BAD = (Outcome.FAILED, Outcome.ERROR)


def _listed(anchor: str, title: str, texts: Sequence[str]) -> Section:
    body = render("listed.html", texts=[plain(text) for text in texts], most=NODES_SHOWN) if texts else ""
    return Section(anchor, title, body)


def _proven(summary: Summary) -> Markup:
    """Yield bandwidths next to their floors, then further proven properties."""
    measured = [_margin(each) for each in summary.measured]
    return render("proven.html", measured=measured, rows=summary.in_words)


def _margin(each: Measured) -> Mapping[str, Any]:
    """Add the margin over the floor, and the lengths of the bar, as shares of the larger value."""
    shown: dict[str, Any] = {**each._asdict(), "margin": None}
    try:
        value, floor = float(each.value), float(each.floor)
    except ValueError:
        return shown
    if floor > 0 and value >= 0:
        whole = 1.05 * max(value, floor)
        shown |= {"margin": value / floor - 1, "filled": value / whole, "mark": floor / whole}
    return shown


def _not_judged(summary: Summary) -> list[str]:
    return [
        f"{why}: {', '.join(f'{name} {number}' for name, number in families.items())}"
        for why, families in summary.not_judged.items()
    ]


def _facts(run: Run) -> list[tuple[str, str]]:
    facts: dict[str, Any] = {
        "run": run.run_id,
        "started": run.started,
        "took": f"{run.seconds:.1f} s",
        "profile": run.profile or "none",
        **({"seen as": "a tenant, with the permissions of one namespace"} if run.tenant else {}),
        "scope": f"{run.scope} {run.selection}".strip(),
        "nodes": f"{run.coverage}{' (all were requested)' if run.asks_all else ''}",
        **({"nodes tried": run.coverage.tried[:NODES_SHOWN]} if run.coverage.tried else {}),
        **({"nodes not tried": left} if (left := run.coverage.not_tried(NODES_SHOWN)) else {}),
        **{k: v for k, v in run.cluster.items() if v not in ("", [], None)},
    }
    if run.interrupted:
        facts["interrupted"] = run.interrupted
    return [(name, _flat(value)) for name, value in facts.items()]


def _differing(installed: Sequence[tuple[str, str]]) -> frozenset[str]:
    """Return the lines of a bill of materials with several values for one component: nodes differ in it."""
    return frozenset(what for what, value in installed if re.search(r"\(\d+\), ", value))


def _sentences(collectives: Mapping[str, RecordedJob | None], hosts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the facts of NCCL's log about the collectives, with nodes in place of pods; equal sentences once."""
    named: dict[str, list[str]] = {}
    for name, job in collectives.items():
        if job and (said := job["sentence"]):
            for host in sorted(hosts, key=len, reverse=True):
                said = said.replace(host, hosts[host])
            named.setdefault(said, []).append(plot.series(name))
    return [(", ".join(names), said) for said, names in named.items()]


def _flat(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _failure(run: Run, result: CheckResult) -> Markup:
    table = findings([f for f in result.findings if f.ok is not True])
    faults = [(fault, run.faults.get(fault, {})) for fault in result.faults]
    return render("failure.html", result=result, table=table, faults=faults, most=BAD_SHOWN)


STATES = {True: ("ok", "ok"), False: ("not ok", "bad"), None: ("not seen", "unclear")}
"""``ok`` of a finding -> its word, and its class of page.css."""


def findings(found: Sequence[Finding]) -> Table:
    """Return a table of findings: first the bad ones, then a few good ones."""
    bad, good = [f for f in found if f.ok is not True], [f for f in found if f.ok is True]
    rows = [
        {
            "css": STATES[f.ok][1],
            "state": "not judged" if is_withheld(f.ok, f.observed) else STATES[f.ok][0],
            "subject": f.subject,
            "observed": f"{f.observed} {f.unit}".strip(),
            "expected": f"{f.expected} {f.unit}".strip() if f.expected else "",
            "fault": f.fault,
            "action": f.action,
        }
        for f in [*bad[:BAD_SHOWN], *good[:GOOD_SHOWN]]
    ]
    return Table(rows, counted((f.ok, f.observed) for f in [*bad[BAD_SHOWN:], *good[GOOD_SHOWN:]]))


def _checks(run: Run, others: Sequence[UserTest]) -> Markup:
    """Return all checks by family; a family with bad findings is expanded."""
    by_family: dict[str, list[CheckResult]] = {}
    for result in run.results:
        by_family.setdefault(result.id.partition(".")[0], []).append(result)
    families = []
    for name, results in by_family.items():
        ended = Counter(result.outcome for result in results)
        families.append(
            {
                "name": name,
                "counted": ", ".join(f"{ended[outcome]} {outcome}" for outcome in Outcome if ended[outcome]),
                "bad": any(result.outcome in _BAD for result in results),
                "checks": [
                    {
                        "result": result,
                        "why": result.reason or _first_findings(result.findings),
                        "carded": result.outcome in _BAD,  # its own section has the anchor
                        "table": findings(result.findings),
                    }
                    for result in results
                ],
            }
        )
    bad = any(other.outcome not in ("passed", "skipped") for other in others)
    return render("checks.html", families=families, others=others, others_bad=bad, most=BAD_SHOWN)


def _first_findings(found: Sequence[Finding]) -> str:
    """Return the observation of a passed check in one line; its details have the full text."""
    said = [f"{f.subject}: {f.observed} {f.unit}".strip() for f in found[:2]]
    return "; ".join(said) + (f" … and {len(found) - 2} more" if len(found) > 2 else "")
