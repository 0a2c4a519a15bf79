"""Training steps before and after a change: slower is worse, noise is not."""

from typing import Any

import pytest

from reports.compare.text import render
from tests.reports.records import NODES, changes, compare, record


def trained(seed: int, tflops: float, nodes: tuple[str, ...] = tuple(NODES[:2])) -> dict[str, Any]:
    ranks = [{"node": node, "gpu": gpu, "compute_ms": 50.0} for node in nodes for gpu in range(8)]
    return record(seed, training={"tflops": tflops, "step_ms": 56.0, "exposed_share": 0.02, "ranks": ranks})


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([441], [300], "worse"),  # still above half of the published rate, which is the floor
        ([441], [396], "worse"),
        ([441], [405], "unclear"),
        ([441, 438, 444], [405, 409, 402], "worse"),
        ([441], [425], "same"),
        ([441, 438, 444], [425, 426, 420], "same"),
        ([300], [441], "better"),
        ([405], [441], "unclear"),
    ],
)
def test_steps_are_held_against_those_of_before(before: list[float], after: list[float], verdict: str) -> None:
    sides = [
        [trained(place, rate) for place, rate in enumerate(side, 10 * n)] for n, side in enumerate((before, after))
    ]
    comparison = compare(*sides)
    assert comparison.verdict == verdict
    kinds = [change.kind for change in comparison.changes if change.area == "training"]
    assert kinds == ([] if verdict == "same" else [verdict])


def test_other_nodes_and_runs_without_steps_are_not_compared() -> None:
    assert changes(compare([trained(1, 441)], [trained(2, 300, ("gpu-node-8", "gpu-node-9"))])) == set()
    assert changes(compare([record(1)], [trained(2, 300)])) == set()


def test_what_each_side_was_compared_with_is_reported():
    """The basis is the last record of a side; records without it have none."""
    before, after = record(seed=1), record(seed=2)
    after["collectives"]["ring"]["tables"][0]["nearest"] = {
        "sentence": "386 GB/s is 83% of what is published",
        "ratio": 0.83,
    }
    compared = compare([before], [after])
    assert compared.references == ["after, ring: 386 GB/s is 83% of what is published"]
    for style in ("text", "markdown", "html", "json"):
        assert "after, ring: 386 GB/s is 83% of what is published" in render(compared, style)
