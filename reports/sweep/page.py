"""The part of the page about a sweep: findings, heatmaps, the distribution with its floor, and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from jobs.pod.sweep.rows import NodeRow

from ..plot import round_up
from ..schema import RecordedSweep, elements
from ..template import render
from . import heatmap
from .heatmap import svg, text
from .text import lines

TABLE = 200
"""Maximum number of rows of a table; the record has all of them."""
WIDTH = 430
BINS = 48


def page(sweep: RecordedSweep) -> str:
    """Return the section of a sweep; '' if no sweep ran."""
    nodes = elements(sweep)["nodes"]
    if not nodes:
        return ""
    return render(
        "sweep.html",
        lines=list(lines(sweep)),
        legend=heatmap.legend(sweep),
        pictures=list(_pictures(sweep, nodes)),
        leaves=_leaves(sweep, nodes),
        nodes=_nodes(nodes),
        more=f", the first {TABLE} of {len(nodes)}" if len(nodes) > TABLE else "",
    )


def _pictures(sweep: RecordedSweep, nodes: Sequence[NodeRow]) -> Iterator[tuple[str, Markup]]:
    """Yield each picture with its title."""
    axis = heatmap.axis_of(nodes)
    grouped = len(axis.labels) < len(nodes)
    by = "node by node"
    if grouped:
        by = (
            f"{'leaf by leaf' if any(node['leaf'] for node in nodes) else 'by groups of nodes'}: the worst pair of each"
        )
    yield f"Pairs, {by}", heatmap.matrix(axis, heatmap.cells(sweep, axis), grouped=grouped)
    if grouped and (chosen := heatmap.opened(sweep, nodes)):
        title = f"Opened, with each partner: {len(chosen)} that failed or were not tested"
        yield title, heatmap.partners(sweep, chosen)
    yield from heatmap.rails(sweep, nodes, axis, grouped=grouped)
    yield from _distribution(sweep)


def _distribution(sweep: RecordedSweep) -> Iterator[tuple[str, Markup]]:
    """Yield the distribution of the pairs' speed, with the floor and the reference."""
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
    left, width, height, head = 60.0, WIDTH - 90.0, 150.0, 46.0
    bar = width / BINS
    parts = [
        f'<rect x="{left + at * bar:.1f}" y="{head + height * (1 - number / max(counted)):.1f}" width="{bar - 1:.1f}" '
        f'height="{height * number / max(counted):.1f}" fill="var(--faint)"><title>{number} tests at '
        f"{at * top / BINS:.1f} to {(at + 1) * top / BINS:.1f} GB/s</title></rect>"
        for at, number in enumerate(counted)
        if number
    ]
    parts.append(f'<path d="M{left:g} {head + height:g}h{width:g}" stroke="var(--faint)"/>')
    step = round_up(top / 5)
    for tick in range(int(top / step) + 1):
        x = left + width * tick * step / top
        parts.append(text(x, head + height + 15, f"{tick * step:g}", anchor="middle"))
    parts.append(text(left + width / 2, head + height + 32, "bus bandwidth of a test (GB/s)", anchor="middle"))
    parts.append(text(left - 5, head + 8, f"{max(counted)} test{'' if max(counted) == 1 else 's'}", anchor="end"))
    for at, (said, value, colour) in enumerate(marks):
        x = left + width * value / top
        parts.append(f'<path d="M{x:.1f} {12 + 14 * at:g}V{head + height:g}" stroke="{colour}" stroke-width="2"/>')
        label = f"{said} {value:.1f} GB/s"
        parts.append(text(x - 5, 18 + 14 * at, label, anchor="end"))
    none = (
        "" if floor is not None else " (no floor: the profile has none for two nodes, so a slow fleet is not detected)"
    )
    yield (
        f"Bus bandwidth of all pairs{none}",
        svg(WIDTH, head + height + 38, "distribution of the pairs' bandwidth", parts, fits=True),
    )


def _leaves(sweep: RecordedSweep, nodes: Sequence[NodeRow]) -> Sequence[Sequence[str]]:
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
    return rows


def _nodes(nodes: Sequence[NodeRow]) -> Sequence[Sequence[str]]:
    """Return the nodes, unproven ones first."""
    ordered = sorted(nodes, key=lambda node: (heatmap.STATES.index(node["state"]), node["name"]))
    return [
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


def _worst(rails: Sequence[float]) -> str:
    return f"{rails.index(min(rails))}: {min(rails):.2f}" if rails else ""


def _share(share: float | None) -> str:
    return "nothing measured" if share is None else f"{share:.2f}"
