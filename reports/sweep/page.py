"""The part of the page that shows a sweep: what was found, heatmaps, the distribution with its floor, and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from jobs.pod.sweep.rows import NodeRow

from ..schema import RecordedSweep, elements
from . import heatmap
from .heatmap import legend, svg, text
from .text import lines

TABLE = 200
"""Rows of a table; the record has all of them."""
WIDTH = 900
BINS = 48


def page(sweep: RecordedSweep) -> Iterator[str]:
    """Yield HTML in which every text is escaped; nothing where no sweep was run."""
    nodes = elements(sweep)["nodes"]
    if not nodes:
        return
    yield "<h2>Every node, every link</h2><ul>"
    yield from (f"<li>{escape(line)}</li>" for line in lines(sweep))
    yield "</ul>"
    axis = heatmap.axis_of(nodes)
    grouped = len(axis.labels) < len(nodes)
    yield legend()
    by = "node by node"
    if grouped:
        by = (
            f"{'leaf by leaf' if any(node['leaf'] for node in nodes) else 'by groups of nodes'}: the worst pair of each"
        )
    yield f"<h3>Pairs, {by}</h3>"
    yield heatmap.matrix(axis, heatmap.cells(sweep, axis), grouped=grouped)
    if grouped and (chosen := heatmap.opened(sweep, nodes)):
        yield f"<h3>Opened, with each partner: {len(chosen)} that failed or were not tested</h3>"
        yield heatmap.partners(sweep, chosen)
    yield from heatmap.rails(sweep, nodes, axis, grouped=grouped)
    yield from _distribution(sweep)
    yield from _tables(sweep, nodes)


def _distribution(sweep: RecordedSweep) -> Iterator[str]:
    """How many pairs ran how fast, with the floor and what tests were compared with."""
    values = [
        float(test["busbw_gbps"])
        for test in sweep.get("tests", [])
        if len(test["nodes"]) > 1 and test["outcome"] == "measured" and test.get("share") is not None
    ]
    if not values:
        return
    floor = sweep.get("rules", {}).get("pair_floor")
    levels = [lv for lv in sweep.get("levels", []) if lv["rail"] is None and lv["kind"] != "alone"]
    marks = [(f"level {lv['kind']}", float(lv["busbw_gbps"]), "var(--curve-0)") for lv in levels]
    marks += [("floor", float(floor), "var(--no)")] if floor is not None else []
    top = 1.04 * max([*values, *(value for _, value, _ in marks)]) or 1.0
    counted = [0] * BINS
    for value in values:
        counted[min(BINS - 1, int(BINS * value / top))] += 1
    left, width, height, head = 60.0, WIDTH - 200.0, 150.0, 46.0
    bar = width / BINS
    parts = [
        f'<rect x="{left + at * bar:.1f}" y="{head + height * (1 - number / max(counted)):.1f}" width="{bar - 1:.1f}" '
        f'height="{height * number / max(counted):.1f}" fill="var(--faint)"><title>{number} tests at '
        f"{at * top / BINS:.1f} to {(at + 1) * top / BINS:.1f} GB/s</title></rect>"
        for at, number in enumerate(counted)
        if number
    ]
    parts.append(f'<path d="M{left:g} {head + height:g}h{width:g}" stroke="var(--faint)"/>')
    parts += [text(left + width * part / 4, head + height + 15, f"{top * part / 4:.0f} GB/s") for part in range(5)]
    parts.append(text(left - 5, head + 8, f"{max(counted)} tests", anchor="end"))
    for at, (said, value, colour) in enumerate(marks):
        x = left + width * value / top
        parts.append(f'<path d="M{x:.1f} {12 + 14 * at:g}V{head + height:g}" stroke="{colour}" stroke-width="2"/>')
        label = f"{said} {value:.1f} GB/s"
        parts.append(text(x - 5, 18 + 14 * at, label, anchor="end"))
    yield "<h3>Bus bandwidth of all pairs</h3>"
    if floor is None:
        yield "<p>No floor: the profile has none for two nodes, so a fleet that is slow as a whole is not seen.</p>"
    yield svg(WIDTH, head + height + 24, "how many pairs ran how fast", parts)


def _tables(sweep: RecordedSweep, nodes: Sequence[NodeRow]) -> Iterator[str]:
    """The same as text: leaves, then nodes, those that are not proven first."""
    leaves: dict[str, list[NodeRow]] = {}
    for node in nodes:
        leaves.setdefault(node["leaf"], []).append(node)
    uplinks = {each["leaf"]: each for each in elements(sweep)["uplinks"]}
    rows = []
    for leaf, mates in sorted(leaves.items())[:TABLE]:
        states = [node["state"] for node in mates]
        counted = ", ".join(f"{states.count(state)} {state}" for state in heatmap.STATES if state in states)
        uplink = uplinks.get(leaf)
        said = f"{uplink['state']}, {_share(uplink['share'])}" if uplink else ""
        rows.append((leaf or "not known", str(len(mates)), counted, said))
    yield "<details open><summary>By leaf</summary>"
    yield _table(("leaf", "nodes", "of which", "uplink, best share"), rows)
    yield "</details>"
    ordered = sorted(nodes, key=lambda node: (heatmap.STATES.index(node["state"]), node["name"]))
    each = [
        (
            node["name"],
            node["leaf"],
            node["state"],
            f"{node['passed']} passed, {node['failed']} failed",
            _share(node["share"]),
            _worst(node["rails"]),
        )
        for node in ordered[:TABLE]
    ]
    rest = f", the first {TABLE} of {len(nodes)}" if len(nodes) > TABLE else ""
    yield f"<details><summary>By node, what is not proven first{rest}</summary>"
    yield _table(("node", "leaf", "state", "partners", "best share", "worst rail"), each)
    yield "</details>"


def _worst(rails: Sequence[float]) -> str:
    return f"{rails.index(min(rails))}: {min(rails):.2f}" if rails else ""


def _share(share: float | None) -> str:
    return "nothing measured" if share is None else f"{share:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>{body}</table>"
