"""The sweep's section of a record: it follows the schema, is bounded, and allows a sweep to resume."""

import json
import random
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from benchmarks import sweep_model as model
from jobs.pod.sweep.decode import decode
from jobs.pod.sweep.model import Done, Fleet, Result, Rules
from jobs.pod.sweep.plan import next_round
from jobs.pod.sweep.saved import saved
from jobs.pod.sweep.section import section

ROOT = Path(__file__).resolve().parents[2]
RECORD = json.loads((ROOT / "docs" / "record.schema.json").read_text())
SCHEMA = {"$ref": "#/$defs/sweep", "$defs": RECORD["$defs"]}


def swept(kind, size, seed=1):
    """Return a sweep of a model cluster: fleet, rules, history."""
    rng = random.Random(f"{size}{kind}{seed}")
    made = model.Model(size, rng) if size < 16 else model.broken(kind, size, rng)[0]
    fleet, rules, history = made.fleet(), replace(model.RULES, alone=True, node_floor=10.0), []
    while (each := next_round(fleet, rules, history)) is not None:
        history.append(replace(made.run(fleet, each, 40, 120), seconds=40.5))
    return fleet, rules, history


@pytest.mark.parametrize(
    ("kind", "size"), [("none", 1), ("none", 2), ("none", 17), ("node", 17), ("rail", 64), ("uplink", 64), ("pair", 64)]
)
def test_the_section_is_what_the_schema_says_and_is_read_back(kind, size):
    fleet, rules, history = swept(kind, size)
    for some in (history, history[:1], []):
        document = json.loads(json.dumps(section(fleet, rules, some), allow_nan=False))
        jsonschema.validate(document, SCHEMA)
        blame = decode(fleet, rules, some)
        assert (document["verdict"], len(document["findings"])) == (blame.verdict, len(blame.findings))
        assert [row["name"] for row in document["elements"]["nodes"]] == list(fleet.nodes)
        again = saved(document)
        assert again[:2] == (fleet, rules)
        assert decode(*again) == blame
        assert next_round(*again) == next_round(fleet, rules, some)
        assert section(*again) == document


def test_an_element_shows_its_own_share_and_not_that_of_its_partners():
    fleet, rules, history = swept("rail", 16)
    document = section(fleet, rules, history)
    (bad,) = document["findings"]
    for row in document["elements"]["nodes"]:
        slow = [rail for rail, share in enumerate(row["rails"]) if share < 0.9]
        assert slow == (bad["rails"] if row["name"] in bad["names"] else []), row
        assert row["state"] == ("at fault" if row["name"] in bad["names"] else row["state"])
    fleet, rules, history = swept("uplink", 64)
    document = section(fleet, rules, history)
    states = {row["leaf"]: row["state"] for row in document["elements"]["uplinks"]}
    assert [leaf for leaf, state in states.items() if state == "at fault"] == document["findings"][0]["names"]
    assert all(row["share"] > 0.9 for row in document["elements"]["nodes"])


@pytest.mark.parametrize("seconds", [float("nan"), -3600.0])
def test_odd_numbers_words_and_lengths_do_not_reach_the_record(seconds):
    fleet = Fleet(("a", "b", "c" * 300), {"a": "x" * 300})
    each = next_round(fleet, Rules(), [])
    odd = [
        Result("measured", float("nan"), (float("inf"), -1.0, 1e308), ("a", "stranger"), ("stranger",)),
        Result("a word\x1b[31m", float("-inf"), (1.0,) * 1000, ("b",)),
        Result("failed", 1e308, (), ()),
    ]
    history = [Done(each, dict(zip(each.tests, odd, strict=False)), seconds)]
    document = section(fleet, Rules(), history)
    jsonschema.validate(json.loads(json.dumps(document, allow_nan=False)), SCHEMA)
    assert "\x1b" not in json.dumps(document, ensure_ascii=False)
    assert document["verdict"] != "go"
    assert decode(*saved(document)).verdict != "go"


def test_what_no_sweep_wrote_is_refused_in_one_line():
    good = json.loads(json.dumps(section(*swept("none", 17))))
    saved(good)

    def broken(path, value):
        copy = json.loads(json.dumps(good))
        where = copy
        for key in path[:-1]:
            where = where[key]
        where[path[-1]] = value
        return copy

    cases = [
        {},
        {"sweep": 1},
        broken(["tests"], 5),
        broken(["tests", 0], None),
        broken(["tests", 0, "nodes"], ["a", "b", "c"]),
        broken(["tests", 0, "outcome"], "green"),
        broken(["tests", 0, "busbw_gbps"], "1"),
        broken(["tests", 0, "round"], 99),
        broken(["tests", 0, "round"], True),
        broken(["rounds", 0, "stage"], -1),
        broken(["rounds", -1, "number"], 30_000_000),
        broken(["rounds", -1, "number"], 1),
        broken(["rounds"], good["rounds"] + [{**good["rounds"][-1], "number": len(good["rounds"]) + 2}]),
        broken(["rounds"], good["rounds"][1:]),
        broken(["rounds", 0, "seconds"], float("nan")),
        broken(["rounds", 0, "seconds"], 10**400),
        broken(["tests", 0, "busbw_gbps"], 10**400),
        broken(["rules", "proofs"], "3"),
        broken(["rules"], None),
        broken(["elements", "nodes", 1], good["elements"]["nodes"][0]),
        broken(["elements", "nodes", 1, "name"], ""),
        broken(["tests_left_out"], 3),
    ]
    for case in cases:
        with pytest.raises(ValueError, match=r"the sweep of the record") as error:
            saved(case)
        assert "\n" not in str(error.value)
