"""The presentation of a sweep: lines, bounded pictures that name failed elements, tables, metrics."""

import json
import random
import re
from dataclasses import replace
from statistics import median
from xml.etree import ElementTree

import pytest

from benchmarks import sweep_model as model
from jobs.pod.sweep.model import Done, Fleet, Result
from jobs.pod.sweep.plan import next_round
from jobs.pod.sweep.section import section
from reports import html, metrics
from reports.record import Run
from reports.sweep import figures
from reports.sweep.page import page
from reports.sweep.text import cordon, lines

HOSTILE = "<script>alert(1)</script>\"'&"


def swept(size, leaf, faults, rails=8, names=None):
    """Return the section of a sweep of a model cluster."""
    made = model.Model(size, random.Random(size), rails=rails, leaf_size=leaf)
    fleet = made.fleet()
    if names:
        fleet = Fleet(names, {})
    made.faults = faults(fleet.nodes)
    rules = replace(model.RULES, alone=True, node_floor=10.0, pair_floor=80.0)
    history = []
    while (each := next_round(fleet, rules, history)) is not None:
        history.append(made.run(fleet, each, 40, 120))
    return json.loads(json.dumps(section(fleet, rules, history)))


def pictures(text):
    """Return the pictures of a page, parsed as XML."""
    return [ElementTree.fromstring(part) for part in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_a_sweep_is_reported_in_gigabytes_a_second():
    """The lines show single nodes, inside each leaf, across leaves, the worst and the median pair, with the floors."""
    sweep = swept(16, 4, lambda n: {(n[1], 2): 0.6})
    said = dict(line.split(": ", 1) for line in figures.lines(sweep))
    rates = [(test["nodes"], test["busbw_gbps"]) for test in sweep["tests"] if len(test["nodes"]) == 2]
    leaves = {row["name"]: row["leaf"] for row in sweep["elements"]["nodes"]}
    inside = {}
    for (one, other), rate in rates:
        inside.setdefault(leaves[one] if leaves[one] == leaves[other] else "", []).append(rate)
    across = inside.pop("")
    worst, slowest = min(rates, key=lambda pair: pair[1])
    assert said["alone"].endswith(" GB/s, the median of 16 nodes, floor 10")
    assert said["pairs in a leaf"] == ", ".join(f"{leaf} {median(inside[leaf]):.1f}" for leaf in sorted(inside)) + (
        " GB/s (medians)"
    )
    assert said["pairs across leaves"] == f"{median(across):.1f} GB/s, the median of {len(across)} tests"
    assert said["worst pair"] == (
        f"{slowest:.1f} GB/s ({' - '.join(worst)}); median pair: {median(rate for _, rate in rates):.1f} GB/s, floor 80"
    )
    assert list(figures.lines({})) == []
    assert set(said.items()) <= {tuple(line.split(": ", 1)) for line in lines(sweep) if ": " in line}


CULPRITS = [
    {"kind": "rail", "names": ["a"], "rails": [1], "devices": ["mlx5_1"], "cards": ["mlx5_1: GUID 1:2, PCI 3"]},
    {"kind": "node", "names": ["a"], "rails": []},
    {"kind": "uplink", "names": ["x"], "rails": []},
    {"kind": "pair", "names": ["a", "b"], "rails": []},
]
TESTED = {
    "rules": {"pair_floor": 325.0, "node_floor": 430.0},
    "elements": {
        "nodes": [{"name": name, "leaf": leaf} for name, leaf in (("a", "x"), ("b", "x"), ("c", "y"))],
        "uplinks": [],
        "pairs": [],
    },
    "levels": [
        {"kind": "alone", "rail": None, "busbw_gbps": 480.0},
        {"kind": "in a leaf", "rail": None, "busbw_gbps": 370.0},
        {"kind": "in a leaf", "rail": 1, "busbw_gbps": 46.0},
        {"kind": "across leaves", "rail": None, "busbw_gbps": 360.0},
    ],
    "tests": [
        {"round": 1, "nodes": ["a"], "outcome": "measured", "busbw_gbps": 240.0},
        {"round": 2, "nodes": ["a", "b"], "outcome": "measured", "busbw_gbps": 190.0, "rails_gbps": [46.0, 23.0]},
        {"round": 3, "nodes": ["a", "c"], "outcome": "measured", "busbw_gbps": 180.0, "rails_gbps": [46.0, 22.5]},
        {"round": 4, "nodes": ["b", "c"], "outcome": "measured", "busbw_gbps": 361.0, "rails_gbps": [46.0, None]},
        {"round": 5, "nodes": ["a", "b"], "outcome": "hung"},
    ],
}


@pytest.mark.parametrize(
    ("finding", "subject", "name", "fact", "expected"),
    [
        (CULPRITS[0], "a rail mlx5_1", "a rail mlx5_1 (GUID 1:2, PCI 3)", "22.5 to 23.0", "46.0 GB/s, the median of"),
        (CULPRITS[1], "a", "a", "180.0 to 190.0", "370.0 GB/s, the median of the fleet; floor 325"),
        (CULPRITS[2], "uplink of x", "uplink of x", "180.0 to 361.0", "360.0 GB/s, the median of the fleet; floor 325"),
        (CULPRITS[3], "a - b", "a - b", "190.0", "370.0 GB/s, the median of the fleet; floor 325"),
    ],
    ids=["rail", "node", "uplink", "pair"],
)
def test_an_element_at_fault_has_its_rates_and_those_of_the_fleet(finding, subject, name, fact, expected):
    """A rail at fault has the rates of that rail, an uplink those of pairs across leaves; a hang or a wrong sum has
    none."""
    why = "2 of 2 pairs: 0.50 of the median"
    observed = "; ".join([why, "all others at 1.00", *finding.get("cards", ()), "port errors grew by 7"])
    said = figures.of_finding({**TESTED, "findings": [{**finding, "why": why}]}, subject, observed)
    assert said[:2] == (name, f"{fact} GB/s: {why}; port errors grew by 7")
    assert said[2].startswith(expected)
    wrong = {**TESTED, "findings": [{**finding, "why": "wrong sums in 2 of 2 pairs"}]}
    assert figures.of_finding(wrong, subject, "") is None
    assert figures.of_finding({**TESTED, "findings": [{**finding, "why": why}]}, "another", "") is None
    assert figures.of_finding(None, subject, "") is None


def test_a_node_that_is_slow_alone_has_its_rate_alone():
    """Pairs of the node do not show why it is at fault."""
    finding = {**CULPRITS[1], "why": "alone: 0.50 of the median"}
    assert figures.of_finding({**TESTED, "findings": [finding]}, "a", finding["why"]) == (
        "a",
        "240.0 GB/s: alone: 0.50 of the median",
        "480.0 GB/s, the median of the fleet; floor 430",
    )


@pytest.mark.parametrize(("size", "leaf"), [(2, 0), (16, 4), (100, 25), (101, 0), (1000, 32)])
def test_the_page_is_bounded_whatever_the_size_and_names_what_failed(size, leaf):
    sweep = swept(size, leaf, lambda n: {(n[1], 2): 0.6} if size > 2 else {})
    text = page(sweep)
    assert len(text) < 400_000
    drawn = pictures(text)
    assert len(drawn) >= 3
    assert all(float(each.get("width")) < 1300 and float(each.get("height")) < 1300 for each in drawn)
    assert all(each.get("role") == "img" and each.get("aria-label") for each in drawn)
    assert "<table>" in text
    assert "floor" in text
    if size > 2:
        assert f"n00001 rail 2: {sweep['findings'][0]['why']}" in text
        assert "at fault" in text
        assert "n00001 rail 2: 0.6" in text or "n00001 rail 2: 0.5" in text, "the strip shows it"


def test_a_page_of_a_sweep_without_rails_says_so_and_shows_none():
    """Only the sum of all rails was measured: no text on the page may suggest a single one."""
    sweep = swept(16, 4, lambda _: {}, rails=0)
    assert sweep["verdict"] == "go"
    text = page(sweep)
    assert "Note: rails not tested: 48 of 48 pairs" in text
    assert "rail 0" not in text
    assert "l0000: 1.0" in text or "l0000: 0.9" in text, "the uplinks' strip is there"
    assert "rails not tested" not in (page(swept(16, 4, lambda _: {}, rails=8)))


def test_names_of_nodes_are_text_wherever_they_stand():
    sweep = swept(6, 0, lambda n: {n[0]: 0.5}, names=(HOSTILE, "a", "b", "c", "d", "e" * 250))
    sweep["notes"] = [HOSTILE]
    text = html.page(Run(sweep=sweep))
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    pictures(text)
    assert "Every node, every link" in text
    assert "Every node, every link" not in html.page(Run())


def test_lines_say_who_where_and_what_to_do():
    sweep = swept(16, 4, lambda n: {(n[3], 2): 0.6, n[9]: 0.0, (n[4], n[5]): 0.6})
    said = list(lines(sweep))
    assert said[0].startswith("n00003 rail 2: ")
    sweep["findings"][0]["devices"] = ["mlx5_2"]
    assert next(lines(sweep)).startswith("n00003 rail mlx5_2: ")
    sweep["findings"][0] |= {"cards": ["mlx5_2: serial MT1, PCI 0000:60:00.0"], "rest": 0.998}
    first = next(lines(sweep))
    assert first.startswith("n00003 rail mlx5_2 (serial MT1, PCI 0000:60:00.0): ")
    assert re.search(r": 0\.[56]\d.* of the median; all others at 1\.00$", first)
    pair = r"path n00004 - n00005: (\d) of \1 tests fail though both nodes pass with others: 0\.[56]\d"
    assert any(re.match(pair, line) for line in said)
    assert "14 of 16 nodes proven" in "\n".join(said)
    assert cordon(sweep) == ("n00003", "n00009")
    assert "kubectl cordon n00003 n00009" in said
    many = {**sweep, "findings": sweep["findings"] * 500, "suspects": dict.fromkeys(map(str, range(5000)), "x")}
    assert len(list(lines(many))) < 40
    assert max(map(len, lines(many))) < 2000


def test_a_repeated_failure_that_passed_is_flaky_and_a_wrong_sum_is_not():
    fleet = Fleet(("a", "b", "c", "d"))
    rules = replace(model.RULES, alone=False)
    history, failed_once = [], set()
    while (each := next_round(fleet, rules, history)) is not None:
        results = {}
        for test in each.tests:
            slow = test == ("a", "b") and test not in failed_once
            failed_once.add(test)
            results[test] = Result(
                "wrong sums" if test == ("c", "d") else "measured", 50.0 if slow else 100.0, (), test
            )
        history.append(Done(each, results))
    text = page(section(fleet, rules, history))
    assert "a - b: flaky" in text
    assert "c - d: dead, 1 of 1 failed" in text


def test_metrics_are_bounded_and_absent_without_a_sweep():
    sweep = swept(16, 4, lambda n: {(n[3], 2): 0.6})
    text = metrics.exposition(Run(sweep=sweep).to_dict())
    assert 'seatrial_sweep_fault{kind="rail",rail="2",subject="n00003"} 1.0' in text
    assert 'seatrial_sweep_nodes{state="at fault"} 1.0' in text
    assert "seatrial_sweep" not in metrics.exposition(Run().to_dict())
    finding = sweep["findings"][0]
    sweep["findings"] = [{**finding, "names": [f"n{i}"]} for i in range(3000)]
    text = metrics.exposition(Run(sweep=sweep).to_dict())
    assert text.count("seatrial_sweep_fault{") == 1000
    assert "seatrial_series_left_out 2000.0" in text
