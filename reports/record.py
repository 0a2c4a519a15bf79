"""The run record: all observations, and the only place that derives the verdict.

Rule: a run without observations never passes. Every renderer reads this record and none of them judges again.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, cast

from seatrial.faults.actions import Action, heaviest, in_words, weight

from .schema import Cluster, Outcome, Record, RecordedTrial, RecordError, Verdict, completed

if TYPE_CHECKING:
    from seatrial.logs.job_document import JobDocument

    from .schema import (
        RecordedAction,
        RecordedCheckpoint,
        RecordedFloor,
        RecordedJob,
        RecordedRow,
        RecordedSweep,
        RecordedTraining,
    )

SCHEMA = 1
"""Version of ``report.json``; raised when a key changes its meaning or disappears, not when one is added."""


LARGEST = 200_000_000
"""Maximum size in bytes; a record of a run over thousands of nodes is far smaller."""


EXIT_CODES = {Verdict.GO: 0, Verdict.NO_GO: 1, Verdict.INCONCLUSIVE: 10}
"""Exit code of every command that ends in a verdict; 2 to 5 are pytest's own."""


def worst(verdicts: Iterable[str]) -> Verdict:
    """Return the worst of several verdicts: no-go, then inconclusive; without any, inconclusive."""
    present = {Verdict(verdict) for verdict in verdicts} or {Verdict.INCONCLUSIVE}
    return next(each for each in (Verdict.NO_GO, Verdict.INCONCLUSIVE, Verdict.GO) if each in present)


NOT_JUDGED = "not judged: blocked by "
"""The prefix of a finding that represents a node or pair that a check did not judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One observation about one subject: a node, a pod pair, a GPU, a permission."""

    subject: str
    ok: bool | None  # None: could not be determined
    observed: str
    expected: str = ""
    unit: str = ""
    fault: str = ""
    action: str = ""  # the action for its node: a word of seatrial.faults.actions


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The outcome of one check and everything that supports it."""

    id: str
    title: str
    outcome: Outcome
    stage: str = ""
    reason: str = ""
    seconds: float = 0.0
    requires: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    fault: str = ""  # the whole check's fault, if it has no finding
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    doc: str = ""
    waived: bool = False  # skipped because the user or the profile requested it
    proven_by: tuple[str, ...] = ()  # if skipped for a tenant: the checks that prove the same

    @property
    def faults(self) -> tuple[str, ...]:
        """The distinct fault ids of this check, in order."""
        named = [self.fault, *(f.fault for f in self.findings if f.ok is not True)]
        return tuple(dict.fromkeys(f for f in named if f))


def is_withheld(ok: bool | None, observed: str) -> bool:
    """Return whether a finding represents a subject that was not judged because of an earlier failure."""
    return ok is None and observed.startswith(NOT_JUDGED)


def counted(findings: Iterable[tuple[bool | None, str]]) -> str:
    """Return how many findings (ok, observed) a report omits: '193 more, 295 not judged'; '' if it has all."""
    kinds = Counter(
        "as expected" if ok else "not judged" if is_withheld(ok, observed) else "more" for ok, observed in findings
    )
    return ", ".join(f"{kinds[kind]} {kind}" for kind in ("more", "not judged", "as expected") if kinds[kind])


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The tried part of the pool; the remaining nodes are judged by the API only."""

    tried: tuple[str, ...] = ()  # nodes on which the trial's pods ran and gave evidence
    pool: tuple[str, ...] | None = None  # all nodes of the selection and the profile; None: not visible
    started: bool = True  # whether a trial ran: a preflight starts no pod, and tries nothing

    @property
    def untried(self) -> tuple[str, ...]:
        """The nodes of the pool on which no pod ran, in the pool's order."""
        tried = set(self.tried)
        return tuple(node for node in self.pool or () if node not in tried)

    @property
    def whole(self) -> bool:
        """Return whether every node of the pool was tried; False for an unknown pool."""
        return bool(self.pool) and not self.untried

    def __str__(self) -> str:
        if not self.started:
            return "no pod was started"
        if self.pool is None:
            return f"{len(self.tried)} {'node' if len(self.tried) == 1 else 'nodes'} tried, pool unknown"
        count = len({*self.pool, *self.tried})
        return f"{len(self.tried)} of {count} {'node' if count == 1 else 'nodes'} tried"

    def not_tried(self, most: int = 8) -> str:
        """Name the nodes that a trial left out, in one line; '' if there are none, or no trial ran."""
        if not self.started:
            return ""
        more = f" and {len(self.untried) - most} more" if len(self.untried) > most else ""
        return ", ".join(self.untried[:most]) + more


def coverage_of(record: Record) -> Coverage:
    """Return the coverage of a record; one of an earlier version has the tried nodes but not their pool."""
    return _coverage(record["trial"], record["coverage"]["pool"])


def _coverage(trial: RecordedTrial, pool: Iterable[str] | None) -> Coverage:
    tried = trial.get("pods") or trial.get("hosts", {})  # a sweep, and an earlier version, has hosts only
    return Coverage(
        tried=tuple(sorted({*tried.values()})), pool=None if pool is None else tuple(pool), started=bool(trial)
    )


def goes_on(trial: RecordedTrial) -> str:
    """Describe a detached trial in progress and how to judge it; '' for any other."""
    if not trial.get("attach"):
        return ""
    kept = datetime.timedelta(seconds=trial.get("kept_s", 0))
    return (
        f"{trial.get('job', 'the trial')} continues in the cluster and is not judged yet: {trial['attach']} "
        f"(until {kept} after its end: deadlines.ttl_s)"
    )


@dataclass(slots=True, kw_only=True)
class Run:
    """One execution: every result in order, and its target."""

    run_id: str = ""
    started: str = ""
    seconds: float = 0.0
    simulated: bool = False
    scope: str = "full"  # 'partial' if checks were deselected: a gate rejects that
    selection: str = ""
    seatrial: str = ""  # version that judged the run
    profile: str | None = None
    profile_digest: str = ""  # digest of all of the profile's requirements: its name may mean something else later
    cluster: Cluster = field(default_factory=Cluster)
    required: tuple[str, ...] = ()
    results: list[CheckResult] = field(default_factory=list)
    faults: dict[str, dict[str, str]] = field(default_factory=dict)  # catalogue entries of the faults found
    collectives: dict[str, JobDocument | None] = field(default_factory=dict)  # by collective; None: no document
    intra_node: dict[str, JobDocument | None] = field(default_factory=dict)  # each node's run alone, by node
    floors: dict[str, list[RecordedFloor]] = field(default_factory=dict)  # the reference of each collective
    tenant: bool = False  # judged with the permissions of one namespace, as a tenant
    cpu_only: bool = False  # a trial on CPUs: it does not describe GPUs and their fabric
    not_seen: list[str] = field(default_factory=list)  # facts that the permissions did not allow to read, in words
    bom: dict[str, object] = field(default_factory=dict)  # installed components, section by section
    trial: RecordedTrial = field(default_factory=RecordedTrial)
    cleaned: list[str] = field(default_factory=list)  # leftovers of killed runs, deleted before the first judgement
    pool: tuple[str, ...] | None = None  # nodes of the selection and the profile; None: not visible
    sweep: RecordedSweep | None = None  # rounds and results of a sweep: jobs/pod/sweep/section.py
    training: RecordedTraining | None = None  # the pace of the training steps, and each rank's medians
    checkpoint: RecordedCheckpoint | None = None  # the measurements of a checkpoint of all ranks, and its states
    asks_all: bool = False  # whether a trial of every node of the pool is required
    leftovers: list[str] = field(default_factory=list)
    failure_class: str | None = (
        None  # class of the decisive failure: 'infrastructure' or 'program'; None: for a go, or unknown
    )
    interrupted: str = ""  # the signal or error that ended the run early
    pytest_exit: int = 0  # pytest's own exit status if it is neither 'ok' nor 'tests failed'

    @property
    def verdict(self) -> Verdict:
        """``no-go`` if any check failed; ``go`` only if all were observed and passed; else ``inconclusive``."""
        outcomes = [r.outcome for r in self.results]
        if Outcome.FAILED in outcomes:
            return Verdict.NO_GO
        if (
            self.goes_on
            or self.interrupted
            or self.pytest_exit
            or Outcome.ERROR in outcomes
            or Outcome.BLOCKED in outcomes
        ):
            return Verdict.INCONCLUSIVE
        if Outcome.PASSED not in outcomes or self.required_but_unseen or self.too_few_tried:
            return Verdict.INCONCLUSIVE
        return Verdict.GO

    @property
    def goes_on(self) -> str:
        """Describe a detached trial and how to judge it; '' if none was detached."""
        return goes_on(self.trial)

    @property
    def coverage(self) -> Coverage:
        """The tried part of the pool."""
        return _coverage(self.trial, self.pool)

    @property
    def too_few_tried(self) -> str:
        """Explain why fewer nodes were tried than a go covers (the pool, or the trial's span); '' if they suffice."""
        if self.asks_all and self.scope == "full" and not self.coverage.whole:
            return "not every node was tried, but all were requested (--nodes all)"
        spans, tried = self.trial.get("nodes", 0), len(self.coverage.tried)
        return f"the trial spans {spans} nodes, and pods on {tried} gave evidence" if tried < spans else ""

    @property
    def required_but_unseen(self) -> tuple[str, ...]:
        """Required checks that were skipped without a waiver by the user or the profile, or never ran.

        A check that a tenant cannot run counts as run if all checks that prove the same inside the trial passed.
        """
        results = {r.id: r.outcome for r in self.results}
        skipped = [
            r.id
            for r in self.results
            if r.outcome is Outcome.SKIPPED
            and not r.waived
            and not (r.proven_by and all(results.get(other) is Outcome.PASSED for other in r.proven_by))
        ]
        missing = [i for i in self.required if i not in results] if self.scope == "full" else []
        return tuple(i for i in self.required if i in skipped or i in missing)

    @property
    def actions(self) -> dict[str, RecordedAction]:
        """Return the actions of the findings for each node, the heaviest first: of each part, and of the whole.

        A part is the node itself or one of its GPUs. A finding of a pair, or of a pod on an unknown node, gives no
        action. A node that also failed for a fault without an action is not reported as needing none.
        """
        nodes = {*self.coverage.tried, *self.coverage.untried}
        parts: dict[str, dict[str, list[str]]] = {}
        others: set[str] = set()
        for finding in (finding for result in self.results for finding in result.findings):
            node, _, rest = finding.subject.partition(" ")
            if node in nodes and not rest.startswith(("- ", "-> ")):
                if finding.action:
                    parts.setdefault(node, {}).setdefault(finding.subject, []).append(finding.action)
                elif finding.ok is False and finding.fault:
                    others.add(node)
        made: list[RecordedAction] = []
        for node, found in sorted(parts.items()):
            own = {subject: str(heaviest(actions) or Action.UNKNOWN) for subject, actions in sorted(found.items())}
            action = heaviest([*own.values(), *([Action.UNKNOWN] if node in others else [])]) or Action.UNKNOWN
            made.append({"node": node, "action": str(action), "said": in_words(action), "parts": own})
        return {each["node"]: each for each in sorted(made, key=lambda each: -weight(each["action"]))}

    @property
    def exit_code(self) -> int:
        """The exit code: 0 go, 1 no-go, 10 inconclusive; pytest's own code if the run did not complete."""
        return self.pytest_exit or EXIT_CODES[self.verdict]

    def to_dict(self) -> Record:
        """Return the content of ``report.json``: plain JSON types only."""
        made = {
            "schema": SCHEMA,
            "run_id": self.run_id,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "simulated": self.simulated,
            "scope": self.scope,
            "selection": self.selection,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "failure_class": self.failure_class,
            "seatrial": self.seatrial,
            "profile": self.profile,
            "profile_digest": self.profile_digest,
            "cluster": self.cluster,
            "required": list(self.required),
            "interrupted": self.interrupted,
            "checks": [_checked(result) for result in self.results],
            "faults": self.faults,
            "actions": self.actions,
            "collectives": self.collectives,
            "inside": self.intra_node,
            "floors": self.floors,
            "trial": self.trial,
            "coverage": {
                "said": str(self.coverage),
                "asked": "all" if self.asks_all else "",
                "tried": list(self.coverage.tried),
                "untried": list(self.coverage.untried),
                "pool": None if self.pool is None else list(self.pool),
            },
            "sweep": self.sweep,
            "training": self.training,
            "checkpoint": self.checkpoint,
            "tenant": self.tenant,
            "cpu_only": self.cpu_only,
            "not_seen": list(self.not_seen),
            "bom": self.bom,
            "cleaned": list(self.cleaned),
            "leftovers": list(self.leftovers),
        }
        return cast("Record", made)


def _checked(result: CheckResult) -> dict[str, object]:
    """Return a check's entry of the record. Its values are immutable, so it copies none, unlike dataclasses.asdict."""
    findings = tuple(dict(zip(_FINDING, values, strict=True)) for values in map(_FINDING_OF, result.findings))
    entry = {key: getattr(result, key) for key in _CHECK}
    return entry | {"seconds": round(result.seconds, 3), "findings": findings}


_FINDING, _CHECK = (tuple(each.name for each in fields(kind)) for kind in (Finding, CheckResult))
_FINDING_OF = attrgetter(*_FINDING)


def bill(bom: Mapping[str, object], head: str = "") -> list[tuple[str, str]]:
    """Write the bill of materials as (name, value) lines: sections become a path, counted values are joined."""
    lines: list[tuple[str, str]] = []
    for key, value in bom.items():
        name = f"{head} {key}".strip()
        if isinstance(value, dict) and value and all(isinstance(v, int) for v in value.values()):
            lines.append((name, ", ".join(f"{text} ({count})" for text, count in value.items())))
        elif isinstance(value, dict):
            lines += bill(value, name)
        else:
            lines.append((name, str(value)))
    return lines


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` so that a reader sees the old file or the complete new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # noqa: PTH101 -- mkstemp makes it private; the report is not
        os.replace(name, path)  # noqa: PTH105
    except BaseException:
        os.unlink(name)  # noqa: PTH108
        raise


def write_json(run: Run, path: Path) -> None:
    """Write ``report.json``, the source of every other report."""
    write_atomically(path, "".join(_lines(run.to_dict(), "\n")) + "\n")


def _lines(value: object, start: str) -> Iterator[str]:
    """Yield a value as JSON, with one line for each innermost object, such as one of thousands of findings.

    The json module indents in Python code, five times as slowly, and a third of its output is blanks.
    """
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if not any(isinstance(each, dict | list | tuple) and each for each in inner):
        yield _one_line(value)
        return
    begin, end = "{}" if isinstance(value, dict) else "[]"
    before = begin
    for key, each in value.items() if isinstance(value, dict) else enumerate(inner):
        yield f"{before}{start}  "
        if isinstance(value, dict):
            yield f"{_one_line(str(key))}: "
        yield from _lines(each, f"{start}  ")
        before = ","
    yield f"{start}{end}"


_one_line = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def read_json(path: Path) -> Record:
    """Read a record, or the one in a directory that ``--out`` wrote; unknown keys are kept.

    Raises RecordError (one line) for a file that is damaged, not a record, or of a newer schema.
    """
    place = path / "report.json" if path.is_dir() else path
    try:
        with place.open("rb") as file:
            raw = file.read(LARGEST + 1)
        content = json.loads(raw, parse_constant=_no_number) if len(raw) <= LARGEST else {"schema": None}
    except OSError as error:
        raise RecordError(f"{place}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place} is damaged or no record of a run: it is not JSON") from error
    if len(raw) > LARGEST:
        raise RecordError(f"{place} is not a record of a run: it is larger than {LARGEST:,} bytes")
    if not isinstance(content, dict) or type(content.get("schema")) is not int or content["schema"] < 1:
        raise RecordError(f"{place} is not a record of a run (report.json): it has no schema")
    if content["schema"] > SCHEMA:
        newer = f"{place} has schema {content['schema']}; this version reads up to {SCHEMA}"
        raise RecordError(f"{newer}: use a newer seatrial")
    if missing := [key for key in NEEDED if content.get(key) is None]:
        raise RecordError(f"{place} is damaged: {missing[0]!r} is missing")
    try:
        record = completed(content)
    except RecordError as error:
        raise RecordError(f"{place} is damaged: {error}") from None
    if why := _contradiction(record, content):
        raise RecordError(f"{place} is not a record of a run, it contradicts itself: {why}")
    return record


def _contradiction(record: Record, written: Mapping[str, object]) -> str:
    """Describe contradictions within a record; '' if there are none."""
    verdict, code = record["verdict"], record["exit_code"]
    if "exit_code" in written and code != EXIT_CODES[verdict] and (code not in PYTESTS or verdict is Verdict.GO):
        return f"verdict {verdict}, exit code {code}"
    tried = {*coverage_of(record).tried, *record["trial"].get("hosts", {}).values()}
    if "coverage" in written and (left := sorted(tried - {*record["coverage"]["tried"]})):
        return f"{len(tried)} nodes gave evidence, and {', '.join(left[:3])} is not among those that were tried"
    passed = {check["id"] for check in record["checks"] if check["outcome"] is Outcome.PASSED}
    for check, jobs in SUMS.items():
        tables = [table for job in record[jobs].values() if job for table in job["tables"]]
        if check in passed and (wrong := sum(_wrong(row) for table in tables for row in table["rows"])):
            return f"{check} passed, and {wrong} sums are wrong"
    return ""


def _wrong(row: RecordedRow) -> int:
    return sum(side["wrong"] or 0 for side in (row["out_of_place"], row["in_place"]) if side)


PYTESTS = (2, 3, 4, 5)
"""Exit codes of pytest's own: the run did not complete."""
SUMS: Mapping[str, Literal["collectives", "inside"]] = {
    "nccl.correctness": "collectives",
    "nccl.correctness-node": "inside",
}
"""The checks of correct sums, and the place of the tables that they judge."""
NEEDED = ("run_id", "verdict", "scope", "checks", "collectives")


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")  # NaN and Infinity are Python's, not JSON


def run_of(record: Record) -> Run:
    """Return the parts of the run that decide its verdict: outcomes, scope, required, requested and tried items."""
    return Run(
        scope=record["scope"],
        required=tuple(record["required"]),
        results=[
            CheckResult(
                id=check["id"],
                title="",
                outcome=check["outcome"],
                waived=check["waived"],
                proven_by=tuple(check["proven_by"]),
            )
            for check in record["checks"]
        ],
        interrupted=record["interrupted"],
        pytest_exit=record["exit_code"] if record["exit_code"] in PYTESTS else 0,
        trial=record["trial"],
        pool=coverage_of(record).pool,
        asks_all=record["coverage"]["asked"] == "all",
    )


def verdict_of(record: Record) -> Verdict:
    """Return the verdict of a record's own checks; a record with another one was not written by a run."""
    return run_of(record).verdict


ALONE = "node"
"""The name of a collective's run on each node alone; the other runs are over all nodes."""


def references(record: Record) -> dict[str, str]:
    """Return the reference of each collective's bandwidths, as text; empty for a record without one."""
    return {
        run: said
        for run, job in measured(record)
        for table in job["tables"][:1]
        if (nearest := table.get("nearest")) and (said := nearest["sentence"])
    }


def measured(record: Record) -> Iterator[tuple[str, RecordedJob]]:
    """Yield every document with its run: ring, default, ... over all nodes, then ``node`` for each node alone."""
    runs = [*record["collectives"].items(), *((ALONE, job) for job in record["inside"].values())]
    return ((run, job) for run, job in runs if job)


def samples_of(row: RecordedRow) -> Iterator[float]:
    """Yield the positive bus bandwidths of a row, out of place and in place; GB/s."""
    for side in (row["out_of_place"], row["in_place"]):
        value = side["busbw_gbps"] if side else None
        if value is not None and 0 < value < math.inf:
            yield float(value)


def ended(record: Record) -> float:
    """Return when the run of a record ended, in seconds since 1970; 0 if the record lacks it."""
    try:
        return datetime.datetime.fromisoformat(record["started"]).timestamp() + record["seconds"]
    except ValueError:
        return 0.0


def succeeded(record: Record) -> float | None:
    """Return when an accepted full run ended; None for any other run."""
    accepted = record["verdict"] == Verdict.GO and record["scope"] == "full"
    return ended(record) if accepted else None
