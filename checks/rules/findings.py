"""The findings that rules make: what could not be told, what failed, what passed, and what a comparison gave."""

from __future__ import annotations

from reports.record import Finding


def unknown(subject: str, observed: str, expected: str = "", *, fault: str = "", unit: str = "") -> Finding:
    """Return what could not be told about a subject, and why; ``fault``: what explains that."""
    return Finding(subject=subject, ok=None, observed=observed, expected=expected, fault=fault, unit=unit)


def passed(subject: str, observed: str, expected: str = "", *, unit: str = "") -> Finding:
    """Return what is as expected."""
    return Finding(subject=subject, ok=True, observed=observed, expected=expected, unit=unit)


def failed(subject: str, observed: str, expected: str, fault: str, *, unit: str = "") -> Finding:
    """Return what is wrong, with its id in the catalogue of faults."""
    return Finding(subject=subject, ok=False, observed=observed, expected=expected, fault=fault, unit=unit)


def compared(subject: str, ok: bool | None, observed: str, expected: str, fault: str, *, unit: str = "") -> Finding:
    """Return what a comparison gave; ``fault`` is that of False alone, None is a comparison that could not be made."""
    fault = fault if ok is False else ""
    return Finding(subject=subject, ok=ok, observed=observed, expected=expected, fault=fault, unit=unit)


def proven(subject: str, ok: bool, observed: str, expected: str, *, fault: str = "") -> Finding:
    """Return a pass where it is proven, else what could not be told, with the ``fault`` that explains that."""
    return passed(subject, observed, expected) if ok else unknown(subject, observed, expected, fault=fault)
