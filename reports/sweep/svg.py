"""Parts of a picture of a sweep: inline SVG without script, its colours, and how a test is graded for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from jobs.pod.sweep.rows import TestRow

from ..schema import RecordedRules

COLOURS = {
    "pass": "#aceebb",
    "flaky": "#b6a4f5",
    "unclear": "#f2cc60",
    "slow": "#f0883e",
    "very slow": "#b42318",
    "dead": "#3d0b0b",
    "nothing": "#afb8c1",
}
"""From good to bad it gets darker: readable without seeing colours."""
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
"""Pixels of a letter of a label, at most."""


def grade(test: TestRow, rules: RecordedRules) -> str:
    """Say how a test ended, by what the sweep was judged by; '' for one that was repeated and does not count."""
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
    """Say how the tests of one pair ended together: what failed and passed is flaky; a wrong sum stays wrong."""
    results = list(tests)
    grades = {grade(test, rules) for test in results} - {""}
    if any(test["outcome"] in _FINAL for test in results) or "pass" not in grades:
        return worst(grades)
    return "flaky" if grades.intersection(FAILED) else "pass"


def worst(grades: Iterable[str]) -> str:
    """Return the worst of some grades; '' of none."""
    return max(grades, key=_ORDER.index, default="")


def svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """Return a picture that can be scrolled sideways."""
    return (
        f'<div style="overflow-x:auto"><svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title, quote=True)}; the tables below say the same" '
        f'style="font:11px system-ui,sans-serif">{"".join(parts)}</svg></div>'
    )


def rect(x: float, y: float, width: float, height: float, of: str, said: str = "") -> str:
    """Return a cell in the colour of its grade; ``said`` is shown to who points at it."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{COLOURS.get(of, "#fff")}"'
    return f"<rect {place}><title>{escape(said)}</title></rect>" if said else f"<rect {place}/>"


def text(x: float, y: float, label: str, *, anchor: str = "start", turned: int = 0, light: bool = False) -> str:
    """Return a label, ``turned`` by so many degrees."""
    turn = f' transform="rotate(-{turned} {x:g} {y:g})"' if turned else ""
    fill = "#fff" if light else "var(--ink)"
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{turn} fill="{fill}">{escape(label)}</text>'


def short(label: str, most: int = 26) -> str:
    """Return a label of at most 26 characters: the end of a name tells nodes apart."""
    return label if len(label) <= most else "…" + label[1 - most :]


def legend() -> str:
    """Return what the colours mean."""
    marks = "".join(
        f'<span style="white-space:nowrap;margin-right:14px">{_mark(colour)} {WORDS[name]}</span> '
        for name, colour in COLOURS.items()
    )
    empty = f'<span style="white-space:nowrap">{_mark("var(--panel)")} not tested together</span>'
    return f'<p style="font-size:12px">{marks}{empty}</p>'


def _mark(colour: str) -> str:
    style = f"display:inline-block;width:13px;height:13px;border:1px solid #8c959f;background:{colour}"
    return f'<b style="{style};vertical-align:-2px"></b>'
