"""Nodes by families of checks as a table: where in the fleet something was found, at one glance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from .record import CheckResult, Finding, Run
from .schema import Outcome

NODES, FINDINGS = 1000, 20
"""Rows of the table, and findings that one row opens; the record has all of them."""
CLASSES = {False: "f", None: "u", True: "p"}  # of page.css: failed, not clear, passed
_WORD = re.compile(r"[^\s(),:;]+")


def nodes_named(run: Run) -> list[str]:
    """Return the nodes that findings may be about: those of the pool, and those that were tried."""
    return list(dict.fromkeys([*(run.pool or ()), *run.coverage.tried]))


def matrix(run: Run) -> str:
    """Return the table and what its rows open; '' where no node is known."""
    nodes = nodes_named(run)
    families = list(dict.fromkeys(_family(result) for result in run.results))
    tried = frozenset(run.coverage.tried)
    cells, by_subject = _cells(run.results, frozenset(nodes), tried)
    shown_families = [family for family in families if any((node, family) in cells for node in nodes)]
    if not shown_families:
        return ""
    worst_first = sorted(nodes, key=lambda node: node not in by_subject)[:NODES]
    shown = [node for node in nodes if node in frozenset(worst_first)]
    head = "".join(f"<th><button data-does=sort>{escape(name)}</button></th>" for name in shown_families)
    rows = []
    for number, node in enumerate(shown):
        name = escape(node) + (
            "" if node in tried or not run.coverage.started else ' <span class="note">not tried</span>'
        )
        if node in by_subject:
            name = f'<button data-does=open data-node="found-{number}" aria-expanded=false>{name}</button>'
        states = (cells.get((node, family), "n") for family in shown_families)
        rows.append(f"<tr><td>{name}" + "".join(f"<td class={state}>" for state in states))
    more = f"<p>… and {len(nodes) - len(shown)} more nodes, in report.json</p>" if len(nodes) > len(shown) else ""
    templates = "".join(
        f'<template id="found-{number}">{_findings(by_subject[node])}</template>'
        for number, node in enumerate(shown)
        if node in by_subject
    )
    return (
        '<h2>Nodes</h2><p class="note">✓ passed · ✗ failed · ? could not be told or was blocked, or was found of all '
        "nodes together · a dot: not judged. "
        "A head sorts; a node with findings opens them. A finding about a pair stands at both nodes.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Nodes by families of checks"><table class="matrix">'
        f"<thead><tr><th><button data-does=sort>node</button></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
        f"</table></div>{more}{templates}"
    )


def _cells(
    results: Sequence[CheckResult], nodes: frozenset[str], tried: frozenset[str]
) -> tuple[dict[tuple[str, str], str], dict[str, list[tuple[CheckResult, Finding]]]]:
    """Return the worst state of each node in each family, and what was found at each node."""
    order = "pun"  # a check that failed outweighs all
    cells: dict[tuple[str, str], str] = {}
    by_subject: dict[str, list[tuple[CheckResult, Finding]]] = {}
    for result in results:
        if result.outcome is Outcome.SKIPPED:
            continue
        shown = any(finding.ok is not True for finding in result.findings)
        if result.outcome is not Outcome.PASSED and not shown:  # nothing was told of any node
            for node in nodes:
                if cells.get((node, _family(result))) != "f":
                    cells[node, _family(result)] = "u"
        for finding in result.findings:
            state = CLASSES[finding.ok]
            named = nodes.intersection(_WORD.findall(finding.subject))
            if finding.ok is not True and not named:
                named, state = nodes.intersection(_WORD.findall(finding.observed)), "u"  # spoken of, not accused
            if finding.ok is not True and not named:
                named, state = tried or nodes, "u"  # of all nodes together: which of them, nothing tells
            for node in named:
                key = (node, _family(result))
                before = cells.get(key, "p")
                worse = state == "f" or (before != "f" and order.index(state) > order.index(before))
                cells[key] = state if worse else before
                if finding.ok is not True:
                    by_subject.setdefault(node, []).append((result, finding))
    return cells, by_subject


def _findings(findings: Sequence[tuple[CheckResult, Finding]]) -> str:
    items: Iterable[str] = (
        f"<li><b>{escape(result.id)}</b> {escape(finding.subject)}: {escape(finding.observed)} {escape(finding.unit)}"
        + (f", expected {escape(finding.expected)}" if finding.expected else "")
        + "</li>"
        for result, finding in findings[:FINDINGS]
    )
    more = f"<li>… and {len(findings) - FINDINGS} more, in report.json</li>" if len(findings) > FINDINGS else ""
    return f"<ul>{''.join(items)}{more}</ul>"


def _family(result: CheckResult) -> str:
    return result.id.partition(".")[0]
