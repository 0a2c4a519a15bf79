"""Heatmaps of a sweep, as inline SVG without script (node by node, node by rail, uplink by rail), and the grades.

Up to a hundred nodes have a row each; in larger fleets leaves do, with unproven nodes expanded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from markupsafe import Markup

from jobs.pod.sweep.rows import NodeRow, TestRow

from ..schema import RecordedRules, RecordedSweep, elements
from ..template import render

COLOURS = {
    "pass": "#aceebb",
    "flaky": "#b6a4f5",
    "unclear": "#f2cc60",
    "slow": "#f0883e",
    "very slow": "#b42318",
    "dead": "#3d0b0b",
    "nothing": "#afb8c1",
}
"""Darker is worse, so that the colours are distinct without colour vision."""
WORDS = {
    "pass": "as fast as its peers",
    "flaky": "failed, and passed when repeated",
    "unclear": "between the thresholds",
    "slow": "too slow",
    "very slow": "below 0.7, or below the floor",
    "dead": "wrong sums or transport, or no end",
    "nothing": "nothing was reported",
}
DARK = ("very slow", "dead")
FAILED = ("slow", "very slow", "dead")
_ORDER = ("pass", "flaky", "nothing", "unclear", "slow", "very slow", "dead")
_FINAL = ("wrong sums", "wrong transport")
CHARACTER = 6.3
"""Maximum width of a character of a label, in pixels."""


def grade(test: TestRow, rules: RecordedRules) -> str:
    """Grade a test by the sweep's thresholds; '' for a repeated test that does not count."""
    if test["outcome"] not in ("measured", "nothing"):
        return "dead"
    share, busbw = test.get("share"), test.get("busbw_gbps")
    if share is None:
        return "" if test["outcome"] == "measured" and busbw is not None else "nothing"
    floor = rules.get("node_floor") if len(test["nodes"]) == 1 else rules.get("pair_floor")
    if share < 0.7 or (floor is not None and busbw is not None and busbw < floor):
        return "very slow"
    return "pass" if share >= rules.get("clears", 0.93) else "unclear" if share >= rules.get("accuses", 0.9) else "slow"


def together(tests: Iterable[TestRow], rules: RecordedRules) -> str:
    """Grade the tests of one pair together: a failure and a pass are flaky; a wrong sum remains wrong."""
    results = list(tests)
    grades = {grade(test, rules) for test in results} - {""}
    if any(test["outcome"] in _FINAL for test in results) or "pass" not in grades:
        return worst(grades)
    return "flaky" if grades.intersection(FAILED) else "pass"


def worst(grades: Iterable[str]) -> str:
    """Return the worst of some grades; '' if there are none."""
    return max(grades, key=_ORDER.index, default="")


def svg(width: float, height: float, title: str, parts: Sequence[str], *, fits: bool = False) -> Markup:
    """Return a picture whose cells show their text on hover or keyboard focus.

    It scrolls horizontally, or shrinks to the width of the page if it ``fits``.
    """
    drawn = Markup("".join(parts))  # noqa: S704 -- rect and text escape
    return render("picture.html", width=round(width), height=round(height), title=title, parts=drawn, fits=fits)


def rect(x: float, y: float, width: float, height: float, of: str, said: str = "") -> str:
    """Return a cell in the colour of its grade; ``said`` is shown on hover."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{COLOURS.get(of, "#fff")}"'
    return f"<rect {place}><title>{escape(said)}</title></rect>" if said else f"<rect {place}/>"


def text(x: float, y: float, label: str, *, anchor: str = "start", turned: int = 0, light: bool = False) -> str:
    """Return a label, ``turned`` by so many degrees."""
    turn = f' transform="rotate(-{turned} {x:g} {y:g})"' if turned else ""
    fill = "#fff" if light else "var(--ink)"
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{turn} fill="{fill}">{escape(label)}</text>'


def short(label: str, most: int = 26) -> str:
    """Return a label of at most 26 characters: the end of a name distinguishes nodes."""
    return label if len(label) <= most else "…" + label[1 - most :]


def legend(sweep: RecordedSweep) -> Markup:
    """Return the legend of the colours, with the reference level and the floor."""
    rules = sweep.get("rules", {})
    levels = [level for level in sweep.get("levels", []) if level["rail"] is None and level["kind"] != "alone"]
    said = [f"level {level['kind']} {level['busbw_gbps']:.1f} GB/s" for level in levels]
    said += [f"floor {floor:g} GB/s" for floor in [rules.get("pair_floor")] if floor is not None]
    colours = [(colour, WORDS[name]) for name, colour in COLOURS.items()]
    return render("legend.html", colours=[*colours, ("var(--panel)", "not tested together")], levels=said)


MOST_ROWS = 100
"""Maximum number of nodes with a row each, and of groups of nodes in larger fleets."""
GROUPS = 32
"""Groups of neighbours if no leaf is known."""
OPENED = 24
"""Maximum number of nodes that are expanded below a picture of leaves, worst first."""
PARTNERS = 16
STATES = ("at fault", "suspect", "not tested", "flaky", "proven")


class Cell(NamedTuple):
    """The worst of some pairs, their number, the number of permanent failures, and the lowest share."""

    grade: str
    pairs: int
    failed: int
    share: float | None


class Axis(NamedTuple):
    """Rows of a picture: their labels, the row of each node, and the first row of each leaf."""

    labels: Sequence[str]
    row: Mapping[str, int]
    begins: Sequence[tuple[int, str]]


def axis_of(nodes: Sequence[NodeRow]) -> Axis:
    """Order nodes by leaf; group more than a hundred by leaf, or by neighbours if no leaf is known."""
    ordered = sorted(nodes, key=lambda node: node["leaf"])
    leaves: dict[str, list[str]] = {}
    for node in ordered:
        leaves.setdefault(node["leaf"], []).append(node["name"])
    if len(nodes) <= MOST_ROWS:
        names = [name for mates in leaves.values() for name in mates]
        begins, at = [], 0
        for leaf, mates in leaves.items():
            begins.append((at, leaf))
            at += len(mates)
        return Axis([short(name) for name in names], {name: row for row, name in enumerate(names)}, begins)
    groups = list(leaves.items())
    if len(leaves) == 1:
        names, size = leaves[groups[0][0]], -(-len(nodes) // GROUPS)
        parts = [names[at : at + size] for at in range(0, len(names), size)]
        groups = [(f"{short(part[0], 13)} to {short(part[-1], 13)}", part) for part in parts]
    step = -(-len(groups) // MOST_ROWS)
    merged = [groups[at : at + step] for at in range(0, len(groups), step)]
    labels = [part[0][0] + (f" to {part[-1][0]}" if len(part) > 1 else "") for part in merged]
    row = {name: at for at, part in enumerate(merged) for _, mates in part for name in mates}
    return Axis([short(label, 30) or "no leaf known" for label in labels], row, ())


def cells(sweep: RecordedSweep, axis: Axis) -> dict[tuple[int, int], Cell]:
    """Return the grade of each pair of rows; on the diagonal nodes alone, and pairs inside a group."""
    rules = sweep.get("rules", {})
    of: dict[tuple[str, ...], list[TestRow]] = {}
    for test in sweep.get("tests", []):
        of.setdefault(tuple(test["nodes"]), []).append(test)
    by_place: dict[tuple[int, int], Cell] = {}
    for nodes, tests in of.items():
        rows = [axis.row[name] for name in nodes if name in axis.row]
        said = together(tests, rules)
        if not said or not rows:
            continue
        key = (min(rows), max(rows))
        before = by_place.get(key, Cell("pass", 0, 0, None))
        shares = [value for value in (before.share, *(test.get("share") for test in tests)) if value is not None]
        failed = before.failed + (said in FAILED)
        by_place[key] = Cell(worst([before.grade, said]), before.pairs + 1, failed, min(shares, default=None))
    return by_place


def opened(sweep: RecordedSweep, nodes: Sequence[NodeRow]) -> list[str]:
    """Return the nodes to expand: at fault first, then ends of bad paths, suspects, untested ones."""
    named = [name for finding in sweep.get("findings", []) if finding["kind"] != "uplink" for name in finding["names"]]
    open_ = sorted((n for n in nodes if n["state"] not in ("proven", "flaky")), key=lambda n: STATES.index(n["state"]))
    return list(dict.fromkeys([*named, *(node["name"] for node in open_)]))[:OPENED]


def matrix(axis: Axis, pairs: Mapping[tuple[int, int], Cell], *, grouped: bool) -> Markup:
    """Return the heatmap of pairs, both halves."""
    count = len(axis.labels)
    size = max(7.0, min(26.0, 760 / count))
    left, top = _margins(axis.labels, size)
    each = -(-11 // int(size)) if size < 11 else 1  # step so that the labels do not overlap
    parts = [f'<rect x="{left:g}" y="{top:g}" width="{size * count:g}" height="{size * count:g}" fill="var(--panel)"/>']
    for (a, b), cell in sorted(pairs.items()):
        share = f", lowest {cell.share:.2f}" if cell.share is not None else ""
        what = axis.labels[a] if a == b else f"{axis.labels[a]} - {axis.labels[b]}"
        said = f"{what}: {cell.grade}, {cell.failed} of {cell.pairs} failed{share}"
        side = size - 1 if size > 8 else size - 0.5
        parts.append(rect(left + b * size, top + a * size, side, side, cell.grade, said))
        if a != b:
            parts.append(rect(left + a * size, top + b * size, side, side, cell.grade, "" if grouped else said))
    for at, label in enumerate(axis.labels):
        if at % each == 0:
            parts.append(text(left - 5, top + at * size + size / 2 + 4, label, anchor="end"))
    parts += _above(axis.labels, left, top, size)
    whole = size * count
    for at, leaf in axis.begins[1:]:
        place = at * size - 0.5
        said = f"<title>{escape(leaf)} begins</title>"
        parts.append(f'<path d="M{left:g} {top + place:g}h{whole:g}" stroke="var(--faint)">{said}</path>')
        parts.append(f'<path d="M{left + place:g} {top:g}v{whole:g}" stroke="var(--faint)">{said}</path>')
    return svg(left + whole + 20 + top / 2, top + whole + 6, "the result of each pair of nodes", parts)


def _margins(labels: Sequence[str], size: float) -> tuple[float, float]:
    longest = CHARACTER * max(map(len, labels)) + 12
    return longest, longest if size < 18 else longest * 0.9


def _above(labels: Sequence[str], left: float, top: float, size: float) -> Iterator[str]:
    """Return labels of columns: slanted if there is space, else upright, and as many as fit."""
    each = -(-11 // int(size)) if size < 11 else 1
    for at, label in enumerate(labels):
        if at % each == 0:
            x = left + at * size + size / 2
            yield text(x + 4, top - 5, label, turned=90) if size < 18 else text(x, top - 5, label, turned=60)


def partners(sweep: RecordedSweep, names: Sequence[str]) -> Markup:
    """Return a row for each expanded node: its tests alone, then with each partner, in the order of the rounds."""
    of: dict[str, list[tuple[str, str, float | None]]] = {name: [] for name in names}
    for test in sweep.get("tests", []):
        how = grade(test, sweep.get("rules", {}))
        for name in test["nodes"]:
            if name in of and how and len(of[name]) < PARTNERS:
                partner = next((other for other in test["nodes"] if other != name), "alone")
                of[name].append((partner, how, test.get("share")))
    left, size, row = CHARACTER * min(26, max(map(len, names))) + 12, 44.0, 20.0
    parts = []
    for at, (name, tests) in enumerate(of.items()):
        parts.append(text(left - 5, at * row + 14, short(name), anchor="end"))
        if not tests:
            parts.append(text(left, at * row + 14, "not tested"))
        for column, (partner, how, share) in enumerate(tests):
            x, y = left + column * size, at * row
            parts.append(rect(x, y, size - 2, row - 2, how, f"{name} - {partner}"))
            said = "" if share is None else f"{share:.2f}"
            parts.append(text(x + size / 2 - 1, y + 13, said, anchor="middle", light=how in DARK))
    return svg(left + PARTNERS * size, len(names) * row + 4, "each opened node with each partner", parts)


def rails(sweep: RecordedSweep, nodes: Sequence[NodeRow], axis: Axis, *, grouped: bool) -> Iterator[tuple[str, Markup]]:
    """Yield a strip for nodes (or the worst of each group) and one for uplinks, with a title: a row for each rail."""
    worst: dict[int, list[float]] = {}
    for node in nodes:
        row = axis.row[node["name"]]
        shares = [float(share) for share in node["rails"]]
        worst[row] = [min(pair) for pair in zip(worst[row], shares, strict=False)] if row in worst else shares
    if any(worst.values()):
        shown = [(axis.labels[row], shares) for row, shares in sorted(worst.items())]
        yield f"Rails of each {'leaf: its worst node' if grouped else 'node'}", _strip(sweep, shown)
        if grouped and (chosen := set(opened(sweep, nodes))):
            named = [(n["name"], [float(s) for s in n["rails"]]) for n in nodes if n["name"] in chosen]
            yield "Rails of the opened nodes", _strip(sweep, named)
    uplinks = [
        (each["leaf"], each["rails"] or [share for share in (each["share"],) if share is not None])
        for each in elements(sweep)["uplinks"]
    ][:MOST_ROWS]
    if any(shares for _, shares in uplinks):
        yield "Uplinks of leaves, by rail where rails were measured", _strip(sweep, uplinks)


def _strip(sweep: RecordedSweep, columns: Sequence[tuple[str, Sequence[float]]]) -> Markup:
    rules = sweep.get("rules", {})
    rows = max(len(shares) for _, shares in columns)
    size = max(7.0, min(26.0, 760 / len(columns)))
    labels = [short(name) for name, _ in columns]
    left, high = 60.0, 14.0
    top = _margins(labels, size)[1]
    parts = [
        text(left - 5, top + rail * high + 11, f"rail {rail}" if rows > 1 else "all", anchor="end")
        for rail in range(rows)
    ]
    parts += _above(labels, left, top, size)
    for at, (name, shares) in enumerate(columns):
        for rail, share in enumerate(shares):
            how = grade({"round": 0, "nodes": [name, name], "outcome": "measured", "share": share}, rules)
            said = f"{name}{f' rail {rail}' if rows > 1 else ''}: {share:.2f}"
            parts.append(rect(left + at * size, top + rail * high, size - 1, high - 1, how, said))
    return svg(left + size * len(columns) + 20 + top / 2, top + rows * high + 4, "the best share of each rail", parts)
