"""How do findings that a pure function made get into a check's evidence? Unchanged, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .collectives import next_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from reports.record import Finding

    from ..evidence import Evidence


def put(evidence: Evidence, findings: Iterable[Finding]) -> None:
    """Add each finding."""
    for f in findings:
        evidence.add(f.subject, ok=f.ok, observed=f.observed, expected=f.expected, fault=f.fault, unit=f.unit)


def note(evidence: Evidence, texts: Iterable[str]) -> None:
    """Add each text as a note."""
    for text in texts:
        evidence.note(text)


def put_with_steps(
    evidence: Evidence, findings: Iterable[Finding], jobs: Mapping[str, dict[str, Any] | None]
) -> None:
    """Add each finding, and below the check what confirms and mends the faults among them, as the log analyzer says."""
    put(evidence, findings)
    for text in next_steps(jobs, [f.fault for f in evidence.findings if f.ok is not True]):
        evidence.note(text)
