"""Nodes by families of checks as a table: an overview of the bad findings in the fleet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .record import CheckResult, Finding, Run
from .schema import Outcome
from .template import render

ROWS, FINDINGS = 200, 20
"""Maximum number of nodes with a separate row, and of findings in one expanded row; the record has all."""
NAMES = 2000
"""Maximum number of names of nodes that share a row; the record has all of them."""
FEW = 16
"""In a fleet of at most this many nodes each has its own row."""
CLASSES = {False: "f", None: "u", True: "p"}  # classes in page.css: failed, not clear, passed
WORST_LAST = "npuf"  # a failed check outweighs all others
_WORD = re.compile(r"[^\s(),:;]+")


class Found(NamedTuple):
    """The first findings with their checks, and the number of all."""

    shown: Sequence[tuple[CheckResult, Finding]]
    total: int

    def __bool__(self) -> bool:
        """Return whether there are findings."""
        return self.total > 0


class Row(NamedTuple):
    """A node: its state in each family, and its findings."""

    name: str
    states: tuple[str, ...]
    tried: bool
    findings: Found


class Group(NamedTuple):
    """Nodes without separate findings and with equal states in every family."""

    names: Sequence[str]
    states: tuple[str, ...]
    tried: bool


def nodes_named(run: Run) -> list[str]:
    """Return the nodes that findings may be about: those of the pool, and those that were tried."""
    return list(dict.fromkeys([*(run.pool or ()), *run.coverage.tried]))


def matrix(run: Run) -> str:
    """Return the table and its expanded rows; '' if no node is known.

    Nodes with findings come first, the worst on top; in a large fleet the rest share rows.
    """
    nodes = nodes_named(run)
    covered = run.coverage
    tried = frozenset(covered.tried) if covered.started else frozenset(nodes)
    cells, of_node, together = _cells(run.results, frozenset(nodes), frozenset(covered.tried))
    families = [
        family
        for family in dict.fromkeys(_family(result) for result in run.results)
        if any((node, family) in cells for node in nodes)
    ]
    if not families:
        return ""
    rows = [
        Row(node, tuple(cells.get((node, family), "n") for family in families), node in tried, _found(of_node, node))
        for node in nodes
    ]
    rows.sort(key=lambda row: (not row.findings, -max(map(WORST_LAST.index, row.states))))  # stable: the pool's order
    bad = sum(bool(row.findings) for row in rows)
    own = len(rows) if len(rows) <= FEW else min(bad, ROWS)
    groups: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for row in rows[own:]:
        groups.setdefault((row.tried, row.states), []).append(row.name)
    return render(
        "nodes.html",
        families=families,
        rows=rows[:own],
        groups=[Group(names, states, known) for (known, states), names in groups.items()],
        together=Found(together[:FINDINGS], len(together)),
        most=NAMES,
        search=len(rows) > FEW,
    )


_Entry = tuple[CheckResult, Finding]


def _found(of_node: dict[str, list[_Entry]], node: str) -> Found:
    entries = of_node.get(node, [])
    return Found(entries[:FINDINGS], len(entries))


def _cells(
    results: Sequence[CheckResult], nodes: frozenset[str], tried: frozenset[str]
) -> tuple[dict[tuple[str, str], str], dict[str, list[_Entry]], list[_Entry]]:
    """Return the worst state of each node in each family, each node's findings, and those of all nodes together."""
    cells: dict[tuple[str, str], str] = {}
    of_node: dict[str, list[_Entry]] = {}
    together: list[_Entry] = []

    def worsen(node: str, family: str, state: str) -> None:
        cells[node, family] = max(cells.get((node, family), "p"), state, key=WORST_LAST.index)

    for result in results:
        if result.outcome is Outcome.SKIPPED:
            continue
        shown = any(finding.ok is not True for finding in result.findings)
        if result.outcome is not Outcome.PASSED and not shown:  # no finding names a node
            for node in nodes:
                worsen(node, _family(result), "u")
        of_all = False
        for finding in result.findings:
            state = CLASSES[finding.ok]
            named = nodes.intersection(_WORD.findall(finding.subject))
            if finding.ok is not True and not named:
                named, state = nodes.intersection(_WORD.findall(finding.observed)), "u"  # named only, not at fault
            if finding.ok is not True:
                for kept in [of_node.setdefault(node, []) for node in named] if named else [together]:
                    kept.append((result, finding))
                of_all = of_all or not named
            for node in named:
                worsen(node, _family(result), state)
        for node in (tried or nodes) if of_all else ():  # any of them may be at fault
            worsen(node, _family(result), "u")
    return cells, of_node, together


def _family(result: CheckResult) -> str:
    return result.id.partition(".")[0]
