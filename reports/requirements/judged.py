"""The result of each requirement of a list in a run's record: met, not met or not tested, with its evidence.

Rule: a requirement is met only if all of its checks passed, and they cover it completely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..plain import plain, with_unit
from ..record import is_withheld, run_of
from ..schema import Outcome, Record, RecordedCheck, RecordedFinding, Verdict
from ..summary import summarize

FINDINGS, OBSERVED, REASON = 3, 160, 200
"""Maximum number of findings of one check as evidence, and characters of each and of a reason; the record has all."""


class State(StrEnum):
    """The result of a requirement in a run."""

    MET = "met"
    NOT_MET = "not met"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One requirement: its id in its list, and the checks that must all pass; a failed one disproves it."""

    id: str
    title: str
    level: str = ""  # the list's own level: MUST, SHOULD
    checks: tuple[str, ...] = ()  # empty: no check covers it
    not_shown: str = ""  # the part that no check covers; such a requirement is never met, only disproven

    def __post_init__(self) -> None:
        """Raise the loader's error for an entry that is ambiguous or empty."""
        for name in ("id", "title"):
            if not getattr(self, name).strip():
                raise ValueError(f".{name} must not be empty")
        if twice := _twice(self.checks):
            raise ValueError(f".checks names {twice} twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementList:
    """A list of requirements in one version, and its place of publication."""

    title: str
    source: str
    requirements: tuple[Requirement, ...]

    def __post_init__(self) -> None:
        """Reject an empty list, and one with two requirements of one id."""
        if not self.requirements:
            raise ValueError(".requirements must not be empty")
        if twice := _twice(each.id for each in self.requirements):
            raise ValueError(f".requirements have the id {twice} twice")
        if not self.source.strip():
            raise ValueError(".source must name the place of publication")


def _twice(names: Iterable[str]) -> str:
    return next((name for name, count in Counter(names).items() if count > 1), "")


@dataclass(frozen=True, slots=True)
class Judged:
    """A requirement with its result in a run, and a line of evidence for each of its checks."""

    requirement: Requirement
    state: State
    evidence: Sequence[str]


def judge(record: Record, requirements: Iterable[Requirement]) -> list[Judged]:
    """Return the result of each requirement in a record, in their order."""
    ended: dict[str, list[RecordedCheck]] = {}
    for check in record["checks"]:
        ended.setdefault(check["id"], []).append(check)
    return [_judged(each, ended) for each in requirements]


def _judged(requirement: Requirement, ended: dict[str, list[RecordedCheck]]) -> Judged:
    found = [check for name in requirement.checks for check in ended.get(name, [])]
    evidence = [_evidence(check) for check in found]
    evidence += [f"{name}: not part of this run" for name in requirement.checks if name not in ended]
    if requirement.not_shown or not requirement.checks:
        evidence.append(f"no check shows {requirement.not_shown or 'it'}")
    if any(check["outcome"] is Outcome.FAILED for check in found):
        return Judged(requirement, State.NOT_MET, evidence)
    whole = bool(requirement.checks) and not requirement.not_shown and all(map(ended.get, requirement.checks))
    met = whole and all(_passed(check) for check in found)
    return Judged(requirement, State.MET if met else State.NOT_TESTED, evidence)


def _passed(check: RecordedCheck) -> bool:
    """Return whether a check passed on all of its subjects."""
    return check["outcome"] is Outcome.PASSED and all(f["ok"] is True for f in check["findings"])


def _evidence(check: RecordedCheck) -> str:
    """Describe how a check ended: its first unexpected finding, else its measurement."""
    shown = [f for f in check["findings"] if f["ok"] is False]
    shown = shown or [f for f in check["findings"] if f["ok"] is None and not is_withheld(f["ok"], f["observed"])]
    if not shown and check["outcome"] is Outcome.PASSED:
        shown = check["findings"]
    said = [_finding(each) for each in shown[:FINDINGS]]
    if len(shown) > FINDINGS:
        said.append(f"and {len(shown) - FINDINGS} more")
    blocked = f"by {', '.join(check['blocked_by'])}" if check["blocked_by"] else ""
    why = "; ".join(said) or blocked or plain(check["reason"], REASON)
    return f"{check['id']} {check['outcome']}" + (f": {why}" if why else "")


def _finding(finding: RecordedFinding) -> str:
    observed = with_unit(plain(finding["observed"], OBSERVED), finding["unit"])
    expected = with_unit(plain(finding["expected"], OBSERVED), finding["unit"])
    return plain(f"{finding['subject']}: {observed}" + (f" (expected {expected})" if expected else ""))


def limits(record: Record) -> list[str]:
    """Describe the limits of a run's evidence: a simulation, a selection of checks, nodes that were not tried."""
    summary, run = summarize(record), run_of(record)
    marks = [*summary.marks]
    if record["scope"] != "full":
        marks.append(f"PARTIAL: {plain(record['selection'], REASON) or 'checks were deselected'}")
    if run.goes_on:
        marks.append("the trial continues")
    if record["interrupted"]:
        marks.append(plain(f"ended early: {record['interrupted']}", REASON))
    if not summary.coverage.whole:
        marks.append(str(summary.coverage))
    return marks


def verdict_over(judged: Iterable[Judged]) -> Verdict:
    """Return the result of a list: no-go if a requirement is not met, go if all are met."""
    states = {each.state for each in judged}
    if State.NOT_MET in states:
        return Verdict.NO_GO
    return Verdict.GO if states == {State.MET} else Verdict.INCONCLUSIVE
