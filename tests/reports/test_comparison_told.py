"""The basis of a comparison's verdict: numbers, fractions and elements."""

from __future__ import annotations

import math
import re
import statistics
from typing import Any

import pytest

from reports.compare import comparison as judged
from reports.compare import regression
from reports.compare.comparison import _direct
from reports.compare.text import page
from reports.schema import completed
from tests.reports.records import NODES, PAIR, compare, record
from tests.reports.test_comparison_steps import trained
from tests.reports.test_comparison_sweep import fast, slow_of, sweep_record


def told(before: dict[str, Any], after: dict[str, Any], area: str) -> dict[str, tuple[str, str, str, str]]:
    """Return the changes of one area by subject: kind, before, after, note."""
    return {
        c.subject: (c.kind, c.before, c.after, c.note) for c in compare([before], [after]).changes if c.area == area
    }


def faulty(seed: int, **finding: Any) -> dict[str, Any]:
    """Return a run with one finding."""
    made = record(seed, noise=0.0, verdict="no-go")
    given = {
        "subject": "gpu-node-1",
        "ok": False,
        "observed": "24.6",
        "unit": "GB/s",
        "fault": "network.slow",
        **finding,
    }
    made["checks"][1] |= {"outcome": "failed", "findings": [given]}
    return made


def test_a_fault_is_reported_on_the_side_that_shows_it() -> None:
    """The observation is shown before if it is gone, and after if it is new."""
    clean = record(1, noise=0.0)
    assert told(clean, faulty(2), "fault")["gpu-node-1"] == ("worse", "not found", "24.6 GB/s", "network.slow")
    assert told(faulty(1), record(2, noise=0.0), "fault")["gpu-node-1"] == (
        "better",
        "24.6 GB/s",
        "not found",
        "network.slow",
    )
    unclear = faulty(2, ok=None)
    assert told(clean, unclear, "fault")["gpu-node-1"][0] == "unclear"


def test_gpudirect_is_reported_in_three_words() -> None:
    """Seen, absent, and not shown: the last is not a loss."""

    def side(seed: int, gdr: bool | None) -> dict[str, Any]:
        made = record(seed, noise=0.0)
        for job in made["collectives"].values():
            for host in job["hosts"]:
                host["gdr"] = gdr
        return made

    words = {True: "GPUDirect RDMA", False: "no GPUDirect RDMA", None: "not shown"}
    for was in (True, False):
        for now, kind in ((True, "better"), (False, "worse"), (None, "unclear")):
            changes = told(side(1, was), side(2, now), "gdr")
            expected = {} if was == now else dict.fromkeys(NODES, (kind, words[was], words[now], ""))
            assert changes == expected
    assert _direct is judged._direct


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.25, 2.0])
def test_a_changed_rate_is_reported_with_both_numbers_and_their_quotient(factor: float) -> None:
    """The percentage follows from the two numbers shown with it."""

    (change,) = compare([trained(1, 400)], [trained(2, 400 * factor)]).changes
    told = (
        re.fullmatch(r"([\d.]+) TFLOP/s a GPU", change.before)[1],
        *re.fullmatch(r"([\d.]+), (.+)%", change.after).groups(),
    )
    assert [float(each) for each in told[:2]] == [400, 400 * factor]
    assert float(told[2]) == pytest.approx(100 * (factor - 1), abs=0.5)
    assert (change.area, change.kind) == ("training", "worse" if factor < 1 else "better")


def test_a_group_that_is_new_has_changed_by_nothing() -> None:
    """A new group is listed with its rate, and counts neither as better nor as worse."""
    before = record(1, noise=0.0)
    before["collectives"] = {"ring": before["collectives"]["ring"]}
    comparison = compare([before], [record(2, noise=0.0)])
    rows = {str(row.group): row for row in comparison.rows}
    new = rows[f"{PAIR}: all_reduce default"]
    assert (new.kind, new.change, new.error) == ("appeared", None, None)
    assert rows[f"{PAIR}: all_reduce ring"].kind == "same"
    assert comparison.verdict == "same"


def test_pairs_that_both_sweeps_measured_are_compared_and_no_others() -> None:
    """A pair that one of them did not draw is not a loss; slow pairs of a node at fault belong to the node."""
    before, after = sweep_record("a", fast), sweep_record("b", slow_of("n2"), seed=7, n2="at fault")
    after["sweep"]["tests"] = [test for test in after["sweep"]["tests"] if test["nodes"] != ["n0", "n1"]]
    compared = {str(row.group): row.kind for row in compare([before], [after]).rows}
    pairs = {name for name in compared if name.endswith(" pair")}
    assert len(pairs) == 14
    assert not [name for name in pairs if name.startswith("n0 - n1:")]
    assert [name for name, kind in compared.items() if kind == "worse"] == ["n2: all_reduce pairs of this node"]
    single = {name for name, kind in compared.items() if kind == "unclear"}  # one sample on each side
    assert single == {name for name in pairs if "n2" in name}


@pytest.mark.parametrize("kind", ["pair", "uplink"])
def test_a_pair_or_an_uplink_at_fault_leaves_the_nodes_own_numbers_out_of_it(kind: str) -> None:
    """Traffic over a bad element proves nothing about its nodes; their other pairs do."""
    before = sweep_record("a", fast)
    bad = {("n0", "n1")} if kind == "pair" else {(a, b) for a in ("n0", "n1", "n2") for b in ("n3", "n4", "n5")}
    after = sweep_record("b", lambda a, b: 150.0 if (a, b) in bad else 380.0, seed=7)
    names = ["n0", "n1"] if kind == "pair" else ["l0"]
    after["sweep"]["findings"] = [{"kind": kind, "names": names, "rails": [], "why": "slow"}]
    for made in (before, after):
        for number, row in enumerate(made["sweep"]["elements"]["nodes"]):
            row["leaf"] = f"l{number // 3}"
    compared = {str(row.group): row.kind for row in compare([before], [after]).rows}
    assert {kind for name, kind in compared.items() if "pairs of this node" in name} == {"same"}
    assert sum("pairs of this node" in name for name in compared) == 6


def test_the_curves_have_the_floors_of_the_last_record_that_has_any() -> None:
    before, after = completed(record(1)), completed(record(2))
    floors = {"ring": [{"size_bytes": 8 << 30, "busbw_gbps": 300.0, "source": "us"}]}
    plain = page(compare([record(1)], [record(2)]), [before], [after])
    with_floors = page(compare([record(1)], [record(2)]), [before], [completed(record(3, floors=floors)), after])
    assert plain != with_floors
    assert len(with_floors) > len(plain)


def runs(*rows: float) -> dict[int, list[list[float]]]:
    """Return one run whose rows have two equal samples each."""
    return {size << 30: [[value, value]] for size, value in enumerate(rows, 1)}


def test_the_error_of_a_change_is_the_largest_of_what_samples_rows_and_runs_say() -> None:
    """Two rows that changed differently already give the error of their mean; a single one does not."""
    old, new = runs(100.0, 100.0), runs(100.0, 80.0)
    changes = [0.0, math.log(0.8)]
    of_rows = statistics.stdev(changes) / math.sqrt(2)
    assert regression._error(old, new, changes, 0.0) == pytest.approx(of_rows)
    assert regression._error(old, new, changes[:1], 0.0) < of_rows / 2
    wide = {1 << 30: [[50.0, 100.0, 200.0]]}
    assert regression._error(wide, wide, [0.0], 0.0) > regression._error(runs(100.0), runs(100.0), [0.0], 0.0)
    assert regression._error(runs(100.0), runs(100.0), [0.0], 0.5) > 0.3, "the usual spread of samples also counts"
    apart = {1 << 30: [[100.0, 100.0], [120.0, 120.0]]}
    between = statistics.stdev([math.log(100), math.log(120)]) / math.sqrt(2)
    assert regression._error(apart, runs(110.0), [0.0], 0.0) >= between


def test_records_without_two_samples_of_a_row_do_not_say_how_samples_scatter() -> None:
    assert regression._usual([]) == 0.0
    assert regression._usual([{1: [[5.0]]}, {1: [[7.0]], 2: [[9.0]]}]) == 0.0
    shown = regression._usual([{1: [[100.0, 110.0]]}, {1: [[5.0]]}])
    assert 0.02 < shown < 0.15
