"""How do findings that a pure function made get into a check's evidence? Unchanged, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reports.record import Finding

    from .evidence import Evidence


def put(evidence: Evidence, findings: Iterable[Finding]) -> None:
    """Add each finding."""
    for f in findings:
        evidence.add(f.subject, ok=f.ok, observed=f.observed, expected=f.expected, fault=f.fault, unit=f.unit)
