"""Training steps and checkpoints in the reports: figures, each GPU with the floor, each state with its time."""

import json
from pathlib import Path

import jsonschema
import pytest

from reports.html import page as page_of
from reports.markdown import markdown
from reports.record import CheckResult, Run
from reports.schema import Outcome
from reports.training_page import MOST_RANKS, checkpoint, own_tflops, rows, slowest_first, training

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "record.schema.json").read_text())
EVIL = "<b>|node"


def ranks(count=2, **more):
    return [{"node": EVIL, "gpu": n, "compute_ms": 50.0 + n, **more} for n in range(count)]


def steps(**more):
    facts = {"tflops": 400.0, "step_ms": 60.0, "compute_ms": 51.0, "exposed_share": 0.15, "comm_ms": 4.0, "steps": 40}
    facts |= {"spread": 0.012, "series_ms": [60.0, 61.0, 59.0], "floor_tflops": 475.0, "floor_source": "somebody's"}
    return facts | {"ranks": ranks()} | more


SAVED = {
    "ranks": 16,
    "bytes": 3 << 30,
    "pause_s": 1.5,
    "flush_s": 0.0,
    "mb_s": 2147.5,
    "slowest_mb_s": 90.0,
    "nodes": [
        {
            "node": EVIL,
            "states": [
                {"step": 2, "state": "writing", "seconds": 0.0},
                {"step": 2, "state": "durable", "seconds": 1.5},
                {"step": 2, "state": "verified", "seconds": 2.25},
                {"step": 3, "state": "writing", "seconds": 0.0},
            ],
        }
    ],
}


def test_a_gpu_is_shown_by_its_own_compute_with_the_floor():
    """400 TFLOP/s in steps of 60 ms are 480 with 50 ms of own compute, and 470.6 with 51: one is below 475."""
    assert own_tflops(steps(), 50.0) == pytest.approx(480.0)
    page = training(steps())
    assert page.count("<li") == 2 and page.count('class="low"') == 1 and "470.6 below" in page
    assert page.index("470.6") < page.index("480.0") and "floor 475: somebody&#39;s" in page
    assert "15.0%" in page and "9.0 ms of each step" in page and "within 1.2%" in page


def test_without_a_floor_nothing_is_below_it():
    """Without a floor the page says so, and marks no GPU."""
    page = training(steps(floor_tflops=None, floor_source=""))
    assert "below" not in page and "no floor" in page and "<i " not in page


def test_what_reported_nothing_is_shown_first_and_nothing_is_divided_by_zero():
    """A GPU without a time, steps without a pace, and records of earlier versions are rendered."""
    ranked = slowest_first(steps(ranks=[*ranks(), {"node": "n", "gpu": 7, "compute_ms": None}, {"compute_ms": 0.0}]))
    assert [value for _, value in ranked][:2] == [None, None]
    assert "not reported" in (training(steps(ranks=[*ranks(), {"node": "n", "gpu": 7, "compute_ms": None}])))
    assert (training({"ranks": ranks()})).count("<li") == 0
    assert training(None) == training({"ranks": []}) == checkpoint(None) == ""
    old = steps()
    del old["series_ms"], old["floor_tflops"], old["floor_source"]
    assert "TFLOP/s" in (training(old))
    assert "<polyline" not in (training(steps(series_ms=[0.0, 0.0])))


def test_the_states_of_a_checkpoint_are_in_order_and_a_torn_step_shows():
    """The step in which a rank was killed remained in the state writing."""
    assert rows(SAVED) == [(EVIL, "2", "0.00", "", "", "1.50", "2.25"), (EVIL, "3", "0.00", "", "", "", "")]
    page = checkpoint(SAVED)
    assert page.count("<td>-</td>") == 6 and "nothing to flush" in page and "3.00 GiB" in page
    saved = {"nodes": SAVED["nodes"]}  # not every rank saved: there is no total
    assert "MB/s" not in (checkpoint(saved))


def test_thousands_of_gpus_are_bounded():
    """The slowest are kept."""
    page = training(steps(ranks=ranks(5000)))
    assert page.count("<li") == MOST_RANKS and "4744 faster ones" in page and "GPU 4999" in page


def test_no_report_lets_a_name_become_markup():
    """A node's name is untrusted text in every form, and the record follows its schema."""
    run = Run(
        run_id="r",
        training=steps(),
        checkpoint=SAVED,
        results=[CheckResult(id="a.b", title="t", outcome=Outcome.PASSED)],
    )
    assert EVIL not in page_of(run) and "&lt;b&gt;|node" in page_of(run)
    text = markdown(run.to_dict())
    assert "`<b>\\|node GPU 1` | `470.6`" in text and "## Checkpoints" in text
    jsonschema.validate(json.loads(json.dumps(run.to_dict())), SCHEMA)
