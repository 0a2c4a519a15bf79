"""The run record: what was observed, and the one place that turns it into a verdict.

Rule: nothing observed is never a pass. Every renderer reads this record and none of them judges again.
"""

from __future__ import annotations

import datetime
import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

SCHEMA = 1
"""Version of ``report.json``; raised when a key changes its meaning or disappears, not when one is added."""


LARGEST = 200_000_000
"""Bytes; a record of a run over thousands of nodes stays far below it."""


class RecordError(ValueError):
    """A file is no record that can be read; one line."""


class Outcome(StrEnum):
    """How one check ended."""

    PASSED = "passed"
    SKIPPED = "skipped"  # does not apply here, and says why
    BLOCKED = "blocked"  # a check it requires did not pass
    ERROR = "error"  # could not tell
    FAILED = "failed"  # the cluster is at fault


class Verdict(StrEnum):
    """What a run says about the cluster."""

    GO = "go"
    NO_GO = "no-go"
    INCONCLUSIVE = "inconclusive"


EXIT_CODES = {Verdict.GO: 0, Verdict.NO_GO: 1, Verdict.INCONCLUSIVE: 10}
"""Exit code of every command that ends in a verdict; 2 to 5 are pytest's own."""


def worst(verdicts: Iterable[str]) -> Verdict:
    """Return the worst of several verdicts: no-go, then inconclusive; of none at all inconclusive."""
    found = {Verdict(verdict) for verdict in verdicts} or {Verdict.INCONCLUSIVE}
    return next(each for each in (Verdict.NO_GO, Verdict.INCONCLUSIVE, Verdict.GO) if each in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One observation about one subject: a node, a pod pair, a GPU, a permission."""

    subject: str
    ok: bool | None  # None: could not tell
    observed: str
    expected: str = ""
    unit: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """How one check ended and everything that supports it."""

    id: str
    title: str
    outcome: Outcome
    stage: str = ""
    reason: str = ""
    seconds: float = 0.0
    requires: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    fault: str = ""  # of the check as a whole, where no finding could be made
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    doc: str = ""
    waived: bool = False  # skipped because the user or the profile said so
    proven_by: tuple[str, ...] = ()  # skipped where it could not be seen: the checks whose passing shows the same

    @property
    def faults(self) -> tuple[str, ...]:
        """The fault ids this check found, each once, in order."""
        named = [self.fault, *(f.fault for f in self.findings if f.ok is not True)]
        return tuple(dict.fromkeys(f for f in named if f))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of the pool a run tried; what it says of the other nodes is what the API says, and no more."""

    tried: tuple[str, ...] = ()  # nodes on which the trial's pods ran and gave evidence
    pool: tuple[str, ...] | None = None  # all nodes that the selection and the profile mean; None: not seen

    @property
    def untried(self) -> tuple[str, ...]:
        """The nodes of the pool on which nothing ran, in the pool's order."""
        tried = set(self.tried)
        return tuple(node for node in self.pool or () if node not in tried)

    @property
    def whole(self) -> bool:
        """Whether every node of the pool was tried; of a pool that is not seen nobody can say so."""
        return bool(self.pool) and not self.untried

    def __str__(self) -> str:
        if self.pool is None:
            return f"{len(self.tried)} {'node' if len(self.tried) == 1 else 'nodes'} tried, pool unknown"
        count = len({*self.pool, *self.tried})
        return f"{len(self.tried)} of {count} {'node' if count == 1 else 'nodes'} tried"

    def not_tried(self, most: int = 8) -> str:
        """Name the nodes that were not tried, in one line; '' where there are none."""
        more = f" and {len(self.untried) - most} more" if len(self.untried) > most else ""
        return ", ".join(self.untried[:most]) + more


def coverage_of(record: Mapping[str, Any]) -> Coverage:
    """Return the coverage of a record; one of an earlier version knows the nodes it tried and not their pool."""
    hosts = (record.get("trial") or {}).get("hosts") or {}
    pool = (record.get("coverage") or {}).get("pool")
    return Coverage(
        tried=tuple(sorted({str(node) for node in hosts.values()})),
        pool=None if pool is None else tuple(map(str, pool)),
    )


@dataclass(slots=True, kw_only=True)
class Run:
    """One execution: every result in order, and what it ran against."""

    run_id: str = ""
    started: str = ""
    seconds: float = 0.0
    simulated: bool = False
    scope: str = "full"  # 'partial' when checks were deselected: a gate refuses that
    selection: str = ""
    seatrial: str = ""  # the version that judged
    profile: str | None = None
    profile_digest: str = ""  # of all that the profile asks: its name may stand for something else tomorrow
    cluster: dict[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    results: list[CheckResult] = field(default_factory=list)
    faults: dict[str, dict[str, str]] = field(default_factory=dict)  # catalogue entries of the faults found
    collectives: dict[str, Any] = field(default_factory=dict)  # job documents of the log analyzer, by collective
    intra_node: dict[str, Any] = field(default_factory=dict)  # the same of what each node ran on its own, by node
    floors: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # what a collective was held against
    tenant: bool = False  # judged with the rights of one namespace: what a tenant can see, and no more
    not_seen: list[str] = field(default_factory=list)  # what the rights did not let us see, in words
    bom: dict[str, Any] = field(default_factory=dict)  # what is installed, section by section
    trial: dict[str, Any] = field(default_factory=dict)  # what ran: job, image, which host was which node
    cleaned: list[str] = field(default_factory=list)  # what killed runs had left, deleted before anything was judged
    pool: tuple[str, ...] | None = None  # the nodes that selection and profile mean; None: not seen
    sweep: Mapping[str, Any] | None = None  # what a sweep did and showed: jobs/pod/sweep/section.py
    asks_all: bool = False  # whether only a trial of every node of the pool is enough
    leftovers: list[str] = field(default_factory=list)
    interrupted: str = ""  # the signal or error that ended the run early
    pytest_exit: int = 0  # pytest's own exit status where it is neither 'ok' nor 'tests failed'

    @property
    def verdict(self) -> Verdict:
        """``no-go`` if anything failed; ``go`` only if everything was seen and held; else ``inconclusive``."""
        outcomes = [r.outcome for r in self.results]
        if Outcome.FAILED in outcomes:
            return Verdict.NO_GO
        if self.interrupted or self.pytest_exit or Outcome.ERROR in outcomes or Outcome.BLOCKED in outcomes:
            return Verdict.INCONCLUSIVE
        if Outcome.PASSED not in outcomes or self.required_but_unseen or self.too_few_tried:
            return Verdict.INCONCLUSIVE
        return Verdict.GO

    @property
    def coverage(self) -> Coverage:
        """How much of the pool was tried."""
        return coverage_of({"trial": self.trial, "coverage": {"pool": self.pool}})

    @property
    def too_few_tried(self) -> bool:
        """Whether every node of the pool was asked for and not every one was tried."""
        return self.asks_all and self.scope == "full" and not self.coverage.whole

    @property
    def required_but_unseen(self) -> tuple[str, ...]:
        """Required checks that were skipped without the user's or the profile's word for it, or never ran at all.

        What a tenant cannot see counts as seen where every check passed that shows the same from inside of the trial.
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
    def exit_code(self) -> int:
        """0 go, 1 no-go, 10 inconclusive; pytest's own code where the run did not get to its end."""
        return self.pytest_exit or EXIT_CODES[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """The content of ``report.json``: plain JSON types only."""
        return {
            "schema": SCHEMA,
            "run_id": self.run_id,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "simulated": self.simulated,
            "scope": self.scope,
            "selection": self.selection,
            "verdict": str(self.verdict),
            "exit_code": self.exit_code,
            "seatrial": self.seatrial,
            "profile": self.profile,
            "profile_digest": self.profile_digest,
            "cluster": self.cluster,
            "required": list(self.required),
            "interrupted": self.interrupted,
            "checks": [{**asdict(r), "outcome": str(r.outcome), "seconds": round(r.seconds, 3)} for r in self.results],
            "faults": self.faults,
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
            "tenant": self.tenant,
            "not_seen": list(self.not_seen),
            "bom": self.bom,
            "cleaned": list(self.cleaned),
            "leftovers": list(self.leftovers),
        }


RUN = pytest.StashKey[Run]()
"""Where a pytest session keeps its record, from the moment the checks begin; the renderers read it there."""


def bill(bom: Mapping[str, Any], head: str = "") -> list[tuple[str, str]]:
    """Write the bill of materials as (what, value) lines: sections become a path, counted values are joined."""
    found: list[tuple[str, str]] = []
    for key, value in bom.items():
        name = f"{head} {key}".strip()
        if isinstance(value, dict) and value and all(isinstance(v, int) for v in value.values()):
            found.append((name, ", ".join(f"{text} ({count})" for text, count in value.items())))
        elif isinstance(value, dict):
            found += bill(value, name)
        else:
            found.append((name, str(value)))
    return found


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` so that a reader sees the old file or the whole new one, never a part."""
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
    """Write ``report.json``, the truth that every other report is drawn from."""
    write_atomically(path, json.dumps(run.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a record, or the one in a directory that ``--out`` wrote; keys that are not known here are kept.

    Raises RecordError (one line) for a file that is damaged, no record, or of a newer schema than this one.
    """
    place = path / "report.json" if path.is_dir() else path
    try:
        with place.open("rb") as file:
            raw = file.read(LARGEST + 1)
        found = json.loads(raw, parse_constant=_no_number) if len(raw) <= LARGEST else {"schema": None}
    except OSError as error:
        raise RecordError(f"{place}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place} is damaged or no record of a run: it is not JSON") from error
    if len(raw) > LARGEST:
        raise RecordError(f"{place} is no record of a run: it is larger than {LARGEST:,} bytes")
    if not isinstance(found, dict) or type(found.get("schema")) is not int or found["schema"] < 1:
        raise RecordError(f"{place} is no record of a run (report.json): it has no schema")
    if found["schema"] > SCHEMA:
        newer = f"{place} has schema {found['schema']}; this version reads up to {SCHEMA}"
        raise RecordError(f"{newer}: use a newer seatrial")
    if missing := [key for key in NEEDED if found.get(key) is None]:
        raise RecordError(f"{place} is damaged: {missing[0]!r} is missing")
    if wrong := next(_misfits(found, SHAPE, ""), None):
        raise RecordError(f"{place} is damaged: {wrong}")
    return found


NEEDED = ("run_id", "verdict", "scope", "checks", "collectives")
_NUMBER = (int, float)
_SIDE = {"busbw_gbps": _NUMBER}
_JOB = {
    "nodes": int,
    "nccl_versions": [str],
    "hosts": [{"name": str, "rails": {"*": [str]}}],
    "pairs": [{"src": str, "dst": str, "transports": {"*": _NUMBER}}],
    "tables": [{"collective": str, "rows": [{"size_bytes": int, "out_of_place": _SIDE, "in_place": _SIDE}]}],
}
_CHECK = {
    "id": str,
    "outcome": frozenset(str(outcome) for outcome in Outcome),
    "seconds": _NUMBER,
    "findings": [{"fault": str, "observed": str, "subject": str, "ok": bool}],
}
SHAPE: dict[str, Any] = {
    "run_id": str,
    "started": str,
    "seconds": _NUMBER,
    "verdict": frozenset(str(verdict) for verdict in Verdict),
    "scope": frozenset({"full", "partial"}),
    "seatrial": str,
    "profile_digest": str,
    "checks": [_CHECK],
    "collectives": {"*": _JOB},
    "inside": {"*": _JOB},
    "floors": {"*": [{"size_bytes": int, "busbw_gbps": _NUMBER, "source": str}]},
    "trial": {"hosts": {"*": str}, "dns_seconds": {"*": _NUMBER}},
    "coverage": {"asked": str, "tried": [str], "untried": [str], "pool": [str]},
    "sweep": {"proven": [str], "findings": [{"kind": str, "names": [str], "why": str}], "rounds": [{"number": int}]},
    "cluster": dict,
    "bom": dict,
    "faults": dict,
}
"""What readers rely on, where it is there: types, words, ``[of each]``, ``{"*": of each}``."""


def _misfits(value: Any, shape: Any, where: str) -> Iterator[str]:
    """Yield what is not as ``shape`` says; nothing is said of null and of keys that are not in it."""
    if value is None and not isinstance(shape, frozenset):
        return
    if isinstance(shape, frozenset):
        if not isinstance(value, str) or value not in shape:
            yield f"{where} is none of {', '.join(sorted(shape))}"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{where} is no list"
        for number, item in enumerate(value if isinstance(value, list) else ()):
            if item is None:
                yield f"{where}.{number} is null"
            yield from _misfits(item, shape[0], f"{where}.{number}")
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{where or 'it'} is no object"
            return
        keys = value if "*" in shape else shape.keys() & value.keys()
        for key in keys:
            yield from _misfits(value[key], shape.get("*", shape.get(key)), f"{where}.{key}"[:200].lstrip("."))
    elif not isinstance(value, shape) or (isinstance(value, bool) and shape is not bool):
        yield f"{where} is no {getattr(shape, '__name__', 'number')}"
    elif isinstance(value, _NUMBER) and not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:
        yield f"{where} is out of bounds"


_LARGEST_NUMBER = 10**18


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")  # NaN and Infinity are Python's, and not JSON


def run_of(record: Mapping[str, Any]) -> Run:
    """Return as much of the run as decides its verdict: outcomes, scope, what was required, asked for and tried."""
    results = [
        CheckResult(
            id=str(check.get("id")),
            title="",
            outcome=Outcome(check["outcome"]),
            waived=check.get("waived") is True,
            proven_by=tuple(map(str, check.get("proven_by") or ())),
        )
        for check in record.get("checks") or []
    ]
    code = record.get("exit_code")
    return Run(
        scope=str(record.get("scope")),
        required=tuple(map(str, record.get("required") or ())),
        results=results,
        interrupted=str(record.get("interrupted") or ""),
        pytest_exit=code if code in (2, 3, 4, 5) else 0,
        trial=record.get("trial") or {},
        pool=coverage_of(record).pool,
        asks_all=(record.get("coverage") or {}).get("asked") == "all",
    )


def verdict_of(record: Mapping[str, Any]) -> Verdict:
    """Return the verdict that a record's own checks give; another one than it says was not written by a run."""
    return run_of(record).verdict


ALONE = "node"
"""What the run of a collective is called that each node does on its own; the others are over all nodes."""


def measured(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every document with its run: ring, default, ... over all nodes, then ``node`` for each node alone."""
    runs = [(str(run), job) for run, job in (record.get("collectives") or {}).items()]
    runs += [(ALONE, job) for job in (record.get("inside") or {}).values()]
    return ((run, job) for run, job in runs if isinstance(job, dict))


def ended(record: Mapping[str, Any]) -> float:
    """Return when the run of a record ended, in seconds since 1970; 0 where it does not say."""
    try:
        started = datetime.datetime.fromisoformat(str(record.get("started"))).timestamp()
    except ValueError:
        return 0.0
    return started + float(record.get("seconds") or 0)


def succeeded(record: Mapping[str, Any]) -> float | None:
    """Return when a full run that was accepted ended; None for any other run."""
    accepted = record.get("verdict") == Verdict.GO and record.get("scope") == "full"
    return ended(record) if accepted else None
