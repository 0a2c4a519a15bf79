"""Nodes by families of checks as a table: where in the fleet something was found, at one glance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import count

from .record import CheckResult, Finding, Run
from .schema import Outcome

NODES, FINDINGS = 1000, 20
"""Rows of the table, and findings that one row opens; the record has all of them."""
CLASSES = {False: "f", None: "u", True: "p"}  # of page.css: failed, not clear, passed
WORST_LAST = "puf"  # a check that failed outweighs all
_WORD = re.compile(r"[^\s(),:;]+")


def nodes_named(run: Run) -> list[str]:
    """Return the nodes that findings may be about: those of the pool, and those that were tried."""
    return list(dict.fromkeys([*(run.pool or ()), *run.coverage.tried]))


def matrix(run: Run) -> str:
    """Return the table and what its rows open; '' where no node is known."""
    nodes = nodes_named(run)
    families = list(dict.fromkeys(_family(result) for result in run.results))
    tried = frozenset(run.coverage.tried)
    cells, found = _cells(run.results, frozenset(nodes), tried)
    shown_families = [family for family in families if any((node, family) in cells for node in nodes)]
    if not shown_families:
        return ""
    worst_first = frozenset(sorted(nodes, key=lambda node: not found.count(node))[:NODES])
    shown = [node for node in nodes if node in worst_first]
    head = "".join(f"<th><button data-does=sort>{escape(name)}</button></th>" for name in shown_families)
    rows = []
    for number, node in enumerate(shown):
        name = escape(node) + (
            "" if node in tried or not run.coverage.started else ' <span class="note">not tried</span>'
        )
        if found.count(node):
            name = f'<button data-does=open data-node="found-{number}" aria-expanded=false>{name}</button>'
        states = (cells.get((node, family), "n") for family in shown_families)
        rows.append(f"<tr><td>{name}" + "".join(f"<td class={state}>" for state in states))
    more = f"<p>… and {len(nodes) - len(shown)} more nodes, in report.json</p>" if len(nodes) > len(shown) else ""
    templates = "".join(
        f'<template id="found-{number}">{_findings(found.of(node), found.count(node))}</template>'
        for number, node in enumerate(shown)
        if found.count(node)
    )
    return (
        '<h2>Nodes</h2><p class="note">✓ passed · ✗ failed · ? could not be told or was blocked, or was found of all '
        "nodes together · a dot: not judged. "
        "A head sorts; a node with findings opens them. A finding about a pair stands at both nodes.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Nodes by families of checks"><table class="matrix">'
        f"<thead><tr><th><button data-does=sort>node</button></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
        f"</table></div>{more}{templates}"
    )


class _Found:
    """What was found of each node, in order; what was found of all of them together is kept once."""

    def __init__(self, together: frozenset[str]) -> None:
        self._together = together
        self._of_all: list[_Entry] = []
        self._of_node: dict[str, list[_Entry]] = {}
        self._number = count()

    def add(self, nodes: frozenset[str], result: CheckResult, finding: Finding) -> None:
        """Keep what was found of nodes; of all together, where there are none."""
        entry = next(self._number), result, finding
        for kept in [self._of_node.setdefault(node, []) for node in nodes] if nodes else [self._of_all]:
            kept.append(entry)

    def of(self, node: str) -> list[_Entry]:
        """Return the first FINDINGS of a node."""
        own, of_all = self._of_node.get(node, []), self._of_all if node in self._together else []
        return sorted([*own[:FINDINGS], *of_all[:FINDINGS]], key=lambda entry: entry[0])[:FINDINGS]

    def count(self, node: str) -> int:
        """Return how many there are of a node."""
        return len(self._of_node.get(node, ())) + (len(self._of_all) if node in self._together else 0)


_Entry = tuple[int, CheckResult, Finding]


def _cells(
    results: Sequence[CheckResult], nodes: frozenset[str], tried: frozenset[str]
) -> tuple[dict[tuple[str, str], str], _Found]:
    """Return the worst state of each node in each family, and what was found at each node."""
    cells: dict[tuple[str, str], str] = {}

    def worsen(node: str, family: str, state: str) -> None:
        cells[node, family] = max(cells.get((node, family), "p"), state, key=WORST_LAST.index)

    together = tried or nodes
    found = _Found(together)
    for result in results:
        if result.outcome is Outcome.SKIPPED:
            continue
        shown = any(finding.ok is not True for finding in result.findings)
        if result.outcome is not Outcome.PASSED and not shown:  # nothing was told of any node
            for node in nodes:
                worsen(node, _family(result), "u")
        of_all = False
        for finding in result.findings:
            state = CLASSES[finding.ok]
            named = nodes.intersection(_WORD.findall(finding.subject))
            if finding.ok is not True and not named:
                named, state = nodes.intersection(_WORD.findall(finding.observed)), "u"  # spoken of, not accused
            if finding.ok is not True:
                found.add(named, result, finding)
                of_all = of_all or not named
            for node in named:
                worsen(node, _family(result), state)
        for node in together if of_all else ():  # which of them, nothing tells
            worsen(node, _family(result), "u")
    return cells, found


def _findings(findings: Sequence[_Entry], total: int) -> str:
    items: Iterable[str] = (
        f"<li><b>{escape(result.id)}</b> {escape(finding.subject)}: {escape(finding.observed)} {escape(finding.unit)}"
        + (f", expected {escape(finding.expected)}" if finding.expected else "")
        + "</li>"
        for _, result, finding in findings
    )
    more = f"<li>… and {total - len(findings)} more, in report.json</li>" if total > len(findings) else ""
    return f"<ul>{''.join(items)}{more}</ul>"


def _family(result: CheckResult) -> str:
    return result.id.partition(".")[0]
