"""Results of a cluster that uses sockets or one bad link: small, but still numbers."""

from __future__ import annotations

import pytest

from checks.profiles.baseline import baseline
from reports.compare.regression import bandwidth_rows
from reports.metrics import exposition
from reports.record import samples_of
from reports.schema import completed
from tests.reports.records import changes, compare, record
from tests.reports.test_metrics import read
from tests.table import table


@table(
    "printed, value",
    [
        (386.0, 386.0),
        (1.0, 1.0),  # sockets over one 10 Gbit/s port
        (0.84, 0.84),
        (0.01, 0.01),  # the least that nccl-tests prints in two digits
        (0.0, None),  # no measurement
        (-0.1, None),
        (float("nan"), None),
        (float("inf"), None),
        (None, None),
    ],
)
def test_every_bandwidth_above_nothing_is_a_sample(printed: float | None, value: float | None) -> None:
    (row,) = completed(record())["collectives"]["ring"]["tables"][0]["rows"][:1]
    row["out_of_place"] = {**row["out_of_place"], "busbw_gbps": printed}
    row["in_place"] = None
    assert list(samples_of(row)) == ([] if value is None else [value])


@pytest.mark.parametrize("scale", [1 / 400, 1 / 1000, 1 / 3000])
def test_a_cluster_on_sockets_is_compared_and_measured(scale: float) -> None:
    """All rows of the cluster are at 1 GB/s and less: none may be missing in the comparison, the metrics or a baseline."""
    fast, slow = completed(record(1)), completed(record(2, scale=scale))
    assert bandwidth_rows([slow]).keys() == bandwidth_rows([fast]).keys()
    assert all(len(rows) == 4 for rows in bandwidth_rows([slow]).values())
    comparison = compare([record(1)], [record(2, scale=scale)])
    assert {area for area, _ in changes(comparison)} == {"bandwidth"}
    assert changes(comparison, "unclear") == set()
    assert compare([record(1, scale=scale)], [record(2, scale=scale)]).verdict == "same"

    name = "seatrial_bus_bandwidth_bytes_per_second"
    of_fast, of_slow = ({key for key in read(exposition(each)) if key[0] == name} for each in (fast, slow))
    assert of_slow == of_fast
    assert of_fast
    assert len(baseline(slow, slack=0.05)["floors"]) == len(baseline(fast, slack=0.05)["floors"]) > 0
