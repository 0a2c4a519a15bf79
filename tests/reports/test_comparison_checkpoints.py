"""Checkpoints before and after a change: slower storage is worse, varying storage is not."""

from typing import Any

import pytest

from tests.reports.records import NODES, changes, compare, record


def saved(seed: int, mb_s: float, nodes: tuple[str, ...] = NODES, size: int = 16 << 30) -> dict[str, Any]:
    states = [{"node": node, "states": []} for node in nodes]
    return record(seed, checkpoint={"ranks": 16, "bytes": size, "pause_s": 2.0, "mb_s": mb_s, "nodes": states})


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([8000], [3900], "worse"),  # still above a floor set for a bad day
        ([8000], [5000], "unclear"),
        ([8000], [6500], "same"),
        ([8000, 7900, 8200], [6000, 6100, 5900], "worse"),
        ([8000, 5900, 8200], [6000, 6100, 5900], "unclear"),  # one of the runs before was equally slow
        ([8000, 7900, 8200], [7000, 6900, 7100], "same"),
        ([3900], [8000], "better"),
    ],
)
def test_checkpoints_are_held_against_those_of_before(before: list[float], after: list[float], verdict: str) -> None:
    sides = [[saved(place, rate) for place, rate in enumerate(side, 10 * n)] for n, side in enumerate((before, after))]
    comparison = compare(*sides)
    assert comparison.verdict == verdict
    assert [c.kind for c in comparison.changes if c.area == "checkpoint"] == ([] if verdict == "same" else [verdict])


def test_other_nodes_other_sizes_and_runs_without_checkpoint_are_not_compared() -> None:
    assert changes(compare([saved(1, 8000)], [saved(2, 3000, ("gpu-node-8", "gpu-node-9"))])) == set()
    assert changes(compare([saved(1, 8000)], [saved(2, 3000, size=1 << 20)])) == set()
    assert changes(compare([record(1)], [saved(2, 3000)])) == set()
