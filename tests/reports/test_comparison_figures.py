"""`seatrial compare`: a change refers to the two numbers printed with it, in every form."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from reports.compare.text import render
from tests.reports.records import compare, record

if TYPE_CHECKING:
    from reports.compare.comparison import Comparison

FIGURE = r"(\d[\d.e+-]*) (?:GB/s|MB/s|TFLOP/s)[^|]*"


def slower(rows: dict[int, float], seed: int = 2, scale: float = 1.0) -> dict[str, Any]:
    """Return a record whose rows of these sizes (GiB) are slower by a factor."""
    made = record(seed, noise=0.01, scale=scale)
    for job in [*made["collectives"].values(), *made["inside"].values()]:
        for row in job["tables"][0]["rows"]:
            for side in ("in_place", "out_of_place"):
                row[side]["busbw_gbps"] *= rows.get(row["size_bytes"] >> 30, 1.0)
    return made


def printed(comparison: Comparison) -> list[tuple[float, float, float]]:
    """Return before, after and the change in percent of every bandwidth that the Markdown table shows."""
    row = re.compile(rf"\| {FIGURE}\| {FIGURE}\| ([+-][\d.]+) % ")
    found = row.findall(render(comparison, "markdown"))
    return [(float(was), float(now), float(change)) for was, now, change in found]


@pytest.mark.parametrize(
    "after",
    [
        record(2),
        record(2, scale=1e-3),
        record(2, scale=0.9),
        record(2, scale=1.02),
        slower({1: 0.95, 8: 1.01}),  # the largest row rises while the mean falls
        slower({8: 0.85}),  # one row alone is worse
    ],
)
def test_a_change_is_of_the_two_numbers_with_it(after: dict[str, Any]) -> None:
    for seed in range(1, 20):
        comparison = compare([record(seed)], [after])
        shown = printed(comparison)
        assert len(shown) >= len(comparison.rows) == 4
        for was, now, change in shown:
            assert change == pytest.approx(100 * (now / was - 1), abs=0.051)
        for row in json.loads(render(comparison, "json"))["bandwidth"]:
            was, now = (float(row[side].split()[0]) for side in ("before", "after"))
            assert row["change"] == pytest.approx(now / was - 1, abs=1e-5)
            if (noted := re.search(r"([+-][\d.]+) %", row["note"])) and "alone" not in row["note"]:
                assert float(noted[1]) == pytest.approx(100 * row["change"], abs=0.051)


def test_the_numbers_are_those_that_were_judged() -> None:
    """Small rows fall and the largest one rises: the sign is the mean's, and the text names its rows."""
    comparison = compare([record(1, noise=0.0)], [slower({1: 0.96, 2: 0.97, 8: 1.01}, scale=1.0)])
    row = next(row for row in comparison.rows if row.group.run == "ring")
    assert row.reported_before.endswith(" GB/s over 1G to 8G")
    assert float(row.reported_after.split()[0]) < float(row.reported_before.split()[0])
    assert row.change is not None
    assert row.change < 0


def test_a_row_that_is_judged_alone_shows_its_own_change() -> None:
    sides = [[record(seed, noise=0.01) for seed in (1, 3)], [slower({8: 0.8}, seed) for seed in (2, 4)]]
    comparison = compare(*sides)
    row = next(row for row in comparison.rows if row.group.run == "ring")
    assert (row.kind, row.reported_before.split(" GB/s ")[1]) == ("worse", "at 8G")
    assert row.note.startswith("the rows of 8G alone: -")
    assert row.change == pytest.approx(-0.2, abs=0.03)


@pytest.mark.parametrize("style", ["text", "markdown", "html", "json"])
def test_no_change_is_printed_of_what_was_not_compared(style: str) -> None:
    """A collective that was not run again and a new one have no change; the others keep theirs."""
    before, after = record(1), record(2)
    del after["collectives"]["default"]
    del before["collectives"]["ring"]
    said = render(compare([before], [after]), style)
    if style == "json":
        changes = {row["run"]: row["change"] for row in json.loads(said)["bandwidth"]}
        assert changes["ring"] is changes["default"] is None
        assert changes["node"] is not None
    else:
        assert not re.search(r"not measured[^\n]*[+-]0\.0 %", said)
        assert len(re.findall(r"[+-]\d+\.\d %", said)) == 2


@pytest.mark.parametrize("rates", [(441.0, 300.0), (3.44, 2.6), (0.5149, 0.4)])
def test_a_rate_of_steps_has_the_change_of_its_numbers(rates: tuple[float, float]) -> None:
    ranks = [{"node": node, "gpu": 0, "compute_ms": 50.0} for node in ("a", "b")]
    sides = [record(seed, training={"tflops": rate, "ranks": ranks}) for seed, rate in enumerate(rates)]
    [change] = [each for each in compare(sides[:1], sides[1:]).changes if each.area == "training"]
    was, now, percent = re.findall(r"[+-]?\d+(?:\.\d+)?", f"{change.before} {change.after}")
    assert float(percent) == pytest.approx(100 * (float(now) / float(was) - 1), abs=0.051)
