"""Constructors of findings: undetermined, failed, passed, and results of comparisons.

If nodes must be uniform, the majority decides. If no value is on more than half of the nodes, the deviating node cannot
be determined: one finding reports the difference, with every value and its nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from reports.record import Finding


def unknown(
    subject: str, observed: str, expected: str = "", *, fault: str = "", unit: str = "", action: str = ""
) -> Finding:
    """Return an undetermined finding with its reason; ``fault``: its cause."""
    return Finding(
        subject=subject, ok=None, observed=observed, expected=expected, fault=fault, unit=unit, action=action
    )


def passed(subject: str, observed: str, expected: str = "", *, unit: str = "") -> Finding:
    """Return a finding that meets its expectation."""
    return Finding(subject=subject, ok=True, observed=observed, expected=expected, unit=unit)


def failed(subject: str, observed: str, expected: str, fault: str, *, unit: str = "", action: str = "") -> Finding:
    """Return a failed finding with its fault id; ``action``: what to do with its node, if not its fault's."""
    return Finding(
        subject=subject, ok=False, observed=observed, expected=expected, fault=fault, unit=unit, action=action
    )


def compared(subject: str, ok: bool | None, observed: str, expected: str, fault: str, *, unit: str = "") -> Finding:
    """Return the finding of a comparison; ``fault`` applies to False only, None means that it was not possible."""
    fault = fault if ok is False else ""
    return Finding(subject=subject, ok=ok, observed=observed, expected=expected, fault=fault, unit=unit)


def proven(subject: str, ok: bool, observed: str, expected: str, *, fault: str = "") -> Finding:
    """Return a pass if ``ok``, else an undetermined finding, with the ``fault`` that explains it."""
    return passed(subject, observed, expected) if ok else unknown(subject, observed, expected, fault=fault)


_Row: TypeAlias = "tuple[object, bool | None, str] | tuple[object, bool | None, str, str]"


def first_match(subject: str, expected: str, *ladder: _Row) -> Finding:
    """Return the finding of the first row whose condition holds: (condition, ok, observed[, fault])."""
    row = next(row for row in ladder if row[0])
    fault = row[3] if len(row) == 4 else ""
    return Finding(subject=subject, ok=row[1], observed=row[2], expected=expected, fault=fault)


_Value = TypeVar("_Value", bound="Hashable")
SHOWN = 8
"""Maximum number of nodes and values in a text; the record of a large fleet must stay readable."""


def majority(values: Iterable[_Value]) -> tuple[_Value, int, int] | None:
    """Return the value of more than half, its count, and the total; None if there is no such value."""
    counts = Counter(values)
    total = counts.total()
    value, count = next(iter(counts.most_common(1)), (None, 0))
    return (value, count, total) if value is not None and 2 * count > total else None


def difference(what: str, values: Mapping[str, str], fault: str) -> Finding:
    """Return the finding that nodes differ in ``what`` (node -> value), without a majority."""
    where: dict[str, list[str]] = {}
    for node, value in values.items():
        where.setdefault(value, []).append(node)
    texts = [f"{value} on {_some(nodes)}" for value, nodes in where.items()]
    observed = f"{what} differs: {_some(texts, '; ')}"
    return failed(what, observed, "the same on all nodes; a tie does not show which is correct", fault)


def unlike(
    facts: Mapping[str, Mapping[str, str]], fault: str, line: Callable[[str, str], str] = lambda _, value: value
) -> Iterator[Finding]:
    """Compare nodes (node -> fact -> value): one finding for each node, and one for each fact without a majority.

    ``line(fact, value)``: the part of a value that must be equal on all nodes. A fact that a node does not report is
    not compared; a node that reports nothing, while others do, is undetermined.
    """
    names = list(dict.fromkeys(name for node_facts in facts.values() for name in node_facts))
    usual: dict[str, tuple[str, str]] = {}
    for name in names:
        values = {node: node_facts[name] for node, node_facts in facts.items() if node_facts.get(name)}
        if most := majority(line(name, value) for value in values.values()):
            shown = next(value for value in values.values() if line(name, value) == most[0])
            usual[name] = (most[0], f"{name} {shown} as on {most[1]} of {most[2]} nodes")
        elif values:
            yield difference(name, values, fault)
    reported = any(value for node_facts in facts.values() for value in node_facts.values())
    for node, node_facts in facts.items():
        decided = [name for name, value in node_facts.items() if value and name in usual]
        other = [name for name in decided if line(name, node_facts[name]) != usual[name][0]]
        shown = ", ".join(f"{name} {node_facts[name]}" for name in other or decided)
        blank = "no value that most nodes share" if any(node_facts.values()) else "nothing reported"
        silent = reported and not any(node_facts.values())
        yield Finding(
            subject=node,
            ok=None if silent else not other,
            observed=shown or blank,
            fault=fault if other else "",
            expected=", ".join(usual[name][1] for name in other) or "as on most nodes",
        )


def _some(texts: list[str], comma: str = ", ") -> str:
    more = f"{comma}{len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return comma.join(texts[:SHOWN]) + more
