"""What is an entry of the fault catalogue? A title, what it means, what confirms it, what mends it.

And the source of all that.
"""

from __future__ import annotations


def add(
    faults: dict[str, dict[str, str]],
    ident: str,
    severity: str,
    title: str,
    cause: str,
    confirm: str,
    remedy: str,
    source: str,
) -> None:
    """Add an entry; ids are stable, reports and dashboards key on them."""
    faults[ident] = {
        "title": title,
        "severity": severity,
        "cause": cause,
        "confirm": confirm,
        "remedy": remedy,
        "source": source,
    }
