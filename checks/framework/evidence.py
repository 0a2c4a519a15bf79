"""The findings of one check and its outcome: a subject without a finding is never a pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

import pytest

from checks.framework.blocking import Places, withheld_in_words
from jobs.cluster.redact import redact
from reports.record import NOT_JUDGED, Finding
from seatrial.faults.actions import Action, weight

MAX_TEXT = 2000
"""Maximum number of characters of one observed or expected text, so that reports stay readable for any response."""


class CheckFailed(AssertionError):  # noqa: N818 -- an outcome, not an error of the program
    """The cluster violates the check's assertion."""


class CannotTell(Exception):  # noqa: N818 -- it is an outcome, not an error of the program
    """The check could not determine its property; ``fault`` is the catalogue's id of the reason, if it has one."""

    def __init__(self, reason: str, fault: str = "") -> None:
        super().__init__(reason)
        self.fault = fault


class Blocked(pytest.skip.Exception):  # type: ignore[name-defined, misc]  # mypy does not see it
    """A prerequisite did not pass: nothing was judged, or only a part."""


class Evidence:
    """The findings of one check.

    A check that has its findings from a rule ends with ``judge``. Any other check declares its subjects (``expect``),
    adds a finding for each (``compare`` or ``add``), and ends with ``verdict``. It ends early with ``skip`` (not
    applicable) or ``unknown`` (inconclusive).
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.advice: dict[str, dict[str, str]] = {}
        self.fault = ""
        self.waived = False
        self.judged = False
        self.withheld: Mapping[str, tuple[str, ...]] = {}
        self._places = Places(())
        self._expected: dict[str, None] = {}
        self._open: list[str] = []

    def withhold(self, places: Mapping[str, tuple[str, ...]]) -> None:
        """List these nodes or pairs (-> failed prerequisite) as not judged."""
        self.withheld, self._places = places, Places(places)

    def leave_open(self, subject: str, observed: str) -> None:
        """Add the subjects that are withheld, and therefore not judged."""
        self._open.append(observed)
        self.findings.append(Finding(subject=subject, ok=None, observed=observed))

    def expect(self, subjects: Iterable[str]) -> None:
        """Declare the subjects that must each have a finding before ``verdict``."""
        self._expected.update(dict.fromkeys(s for s in subjects if s not in self._places))

    def add(
        self,
        subject: str,
        *,
        ok: bool | None,
        observed: object,
        expected: object = "",
        fault: str = "",
        unit: str = "",
        action: str = "",
    ) -> None:
        """Add a finding; ``ok=None`` means undetermined. Fault and action are kept only if it is not ok.

        ``action``: what to do with its node, if this differs from the fault's action. Raises ValueError for an unknown
        action.
        """
        if action and weight(action) < 0:
            raise ValueError(f"action is {action!r}, not one of {', '.join(Action)}")
        subject = _text(subject)
        if subject in self._places:
            return
        self.findings.append(
            Finding(
                subject=subject,
                ok=ok,
                observed=_text(observed),
                expected=_text(expected),
                unit=unit,
                fault="" if ok else fault,
                action="" if ok else action,
            )
        )

    def compare(
        self, subject: str, *, observed: Any, expected: Any, fault: str, unit: str = "", ok: bool | None = None
    ) -> None:
        """Add a finding that passes if observed equals expected; ``ok`` decides where equality is not the rule."""
        self.add(
            subject,
            ok=(observed == expected) if ok is None else ok,
            observed=observed,
            expected=expected,
            fault=fault,
            unit=unit,
        )

    def put(self, findings: Iterable[Finding]) -> None:
        """Add a rule's findings, in its order."""
        for f in findings:
            self.add(
                f.subject,
                ok=f.ok,
                observed=f.observed,
                expected=f.expected,
                fault=f.fault,
                unit=f.unit,
                action=f.action,
            )

    def note(self, *texts: str) -> None:
        """Add context that is shown under the check, but not judged."""
        self.notes += map(_text, texts)

    def advise(self, fault: str, *, confirm: str, remedy: str) -> None:
        """Give specific advice priority over the fault's entry; empty advice is ignored."""
        self.advice[fault] = {"confirm": confirm, "remedy": remedy}

    def judge(self, findings: Iterable[Finding], notes: Iterable[str] = ()) -> None:
        """Add a rule's findings and notes, and end the check with its ``verdict``."""
        __tracebackhide__ = True
        self.put(findings)
        self.note(*notes)
        self.verdict()

    def skip(self, reason: str, *, waived: bool = False) -> NoReturn:
        """End the check as not applicable. ``waived``: the user or the profile took the responsibility."""
        self.waived = waived
        pytest.skip(_text(reason))

    def unknown(self, reason: str, fault: str = "") -> NoReturn:
        """End the check as ``error`` with the reason why its property could not be determined."""
        __tracebackhide__ = True
        self.fault = fault
        raise CannotTell(_text(reason), fault)

    def verdict(self) -> None:
        """End the check: failed on any bad finding, error if an expected subject has none, else passed."""
        __tracebackhide__ = True
        self.judged = True
        judged = list(self.findings)
        subjects = {f.subject for f in judged}
        missing = [s for s in self._expected if _text(s) not in subjects]
        for place, names in self.withheld.items():
            self.findings.append(Finding(subject=place, ok=None, observed=NOT_JUDGED + ", ".join(names)))
        if bad := [f for f in judged if f.ok is False]:
            self.findings += [Finding(subject=_text(s), ok=None, observed="nothing was observed") for s in missing]
            raise CheckFailed(_sentence(bad, len(judged)))
        if not judged and not self.withheld:
            raise CannotTell("nothing was observed, so nothing can be judged")
        if missing:
            shown = ", ".join(missing[:5])
            raise CannotTell(f"no finding for {shown} ({len(missing)} of {len(self._expected)} subjects)")
        if unclear := [f for f in judged if f.ok is None and f.observed not in self._open]:
            self.fault = next((f.fault for f in unclear if f.fault), "")
            raise CannotTell(_sentence(unclear, len(judged)), self.fault)
        if self.withheld:
            raise Blocked(f"not judged: {'; '.join([*self._open, *withheld_in_words(self.withheld)])}")


def _sentence(findings: list[Finding], total: int) -> str:
    parts = []
    for f in findings[:3]:
        unit = f" {f.unit}" if f.unit else ""
        expected = f" (expected {f.expected}{unit})" if f.expected else ""
        parts.append(f"{f.subject}: {f.observed}{unit}{expected}")
    more = f" (and {len(findings) - 3} more of {total})" if len(findings) > 3 else ""
    return "; ".join(parts) + more


def _text(value: object) -> str:
    """Return a bounded, redacted text without control characters."""
    text = str(value)
    return _known(text) if len(text) <= KNOWN_LENGTH else _clean(text)


def _clean(text: str) -> str:
    text = redact(text)
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


KNOWN_LENGTH = 200
_known = lru_cache(maxsize=1 << 14)(_clean)  # every check names the same nodes, and expects the same values
