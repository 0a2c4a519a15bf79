"""The run record: what was observed, and the one place that turns it into a verdict.

Rule: nothing observed is never a pass. Every renderer reads this record and none of them judges again.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

SCHEMA = 1
"""Version of ``report.json``; raised when a key changes its meaning or disappears, not when one is added."""


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

    @property
    def faults(self) -> tuple[str, ...]:
        """The fault ids this check found, each once, in order."""
        named = [self.fault, *(f.fault for f in self.findings if f.ok is not True)]
        return tuple(dict.fromkeys(f for f in named if f))


@dataclass(slots=True, kw_only=True)
class Run:
    """One execution: every result in order, and what it ran against."""

    run_id: str = ""
    started: str = ""
    seconds: float = 0.0
    simulated: bool = False
    scope: str = "full"  # 'partial' when checks were deselected: a gate refuses that
    selection: str = ""
    profile: str | None = None
    cluster: dict[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    results: list[CheckResult] = field(default_factory=list)
    faults: dict[str, dict[str, str]] = field(default_factory=dict)  # catalogue entries of the faults found
    collectives: dict[str, Any] = field(default_factory=dict)  # job documents of the log analyzer, by collective
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
        if Outcome.PASSED not in outcomes or self.required_but_unseen:
            return Verdict.INCONCLUSIVE
        return Verdict.GO

    @property
    def required_but_unseen(self) -> tuple[str, ...]:
        """Required checks that were skipped without the user's or the profile's word for it, or never ran at all."""
        results = {r.id for r in self.results}
        skipped = [r.id for r in self.results if r.outcome is Outcome.SKIPPED and not r.waived]
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
            "profile": self.profile,
            "cluster": self.cluster,
            "required": list(self.required),
            "interrupted": self.interrupted,
            "checks": [{**asdict(r), "outcome": str(r.outcome), "seconds": round(r.seconds, 3)} for r in self.results],
            "faults": self.faults,
            "collectives": self.collectives,
            "leftovers": list(self.leftovers),
        }


RUN = pytest.StashKey[Run]()
"""Where a pytest session keeps its record, from the moment the checks begin; the renderers read it there."""


def counts(results: Iterable[CheckResult]) -> Mapping[Outcome, int]:
    """How many checks ended in each outcome, worst first, outcomes that did not occur left out."""
    found = [r.outcome for r in results]
    return {o: found.count(o) for o in reversed(Outcome) if o in found}


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
