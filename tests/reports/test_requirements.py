"""Requirements of a list by a run: met, not met, not tested, and their output forms."""

import csv
import io
from xml.etree import ElementTree

import pytest

from cli.listing import all_checks
from cli.requirements import list_names, load_list
from reports.requirements.forms import FORMATS, render
from reports.requirements.judged import Requirement, RequirementList, State, judge, limits, verdict_over
from reports.schema import Verdict, completed
from tests.table import table


def check(name, outcome="passed", findings=(), **more):
    """Return a check of a record; its findings are (subject, ok, observed, expected)."""
    keys = ("subject", "ok", "observed", "expected")
    return {"id": name, "outcome": outcome, "findings": [dict(zip(keys, f, strict=True)) for f in findings], **more}


def record(*checks, **more):
    """Return a full run over the whole pool of two nodes."""
    run = {"schema": 1, "run_id": "r", "verdict": "go", "scope": "full", "collectives": {}, "checks": [*checks]}
    trial = {"job": "j", "nodes": 2, "pods": {"p0": "a", "p1": "b"}}
    return completed({**run, "trial": trial, "coverage": {"pool": ["a", "b"], "tried": ["a", "b"]}, **more})


def wanted(*checks, **more):
    """Return a requirement that these checks show."""
    return Requirement(id="NET-4", title="All is RDMA", checks=checks, **more)


SEEN = [("a", True, "ib on 16 channels", "ib")]


@table(
    "checks, state",
    [
        ([check("x", "passed", SEEN), check("y", "passed", SEEN)], State.MET),
        ([check("x", "passed", SEEN)], State.NOT_TESTED),  # y is absent
        ([check("x", "passed", SEEN), check("y", "skipped", reason="off")], State.NOT_TESTED),
        ([check("x", "passed", SEEN), check("y", "skipped", waived=True)], State.NOT_TESTED),
        ([check("x", "passed", SEEN), check("y", "blocked", blocked_by=["x"])], State.NOT_TESTED),
        ([check("x", "passed", SEEN), check("y", "error")], State.NOT_TESTED),
        ([check("x", "passed", SEEN), check("y", "failed", [("b", False, "socket", "ib")])], State.NOT_MET),
        ([check("x", "skipped"), check("y", "failed")], State.NOT_MET),
        ([check("x", "passed", SEEN), check("y", "passed", SEEN), check("y", "failed")], State.NOT_MET),
        ([check("x", "passed", SEEN), check("y", "passed", [*SEEN, ("b", None, "unseen", "")])], State.NOT_TESTED),
        ([], State.NOT_TESTED),
    ],
)
def test_met_is_only_what_every_check_passed(checks, state):
    """Skipped, waived, blocked, unknown and absent checks are not tested; a failed one outweighs all."""
    assert judge(record(*checks), [wanted("x", "y")])[0].state is state


def test_what_no_check_shows_is_never_met():
    """Without a check no part of the requirement is met; a failure still disproves it."""
    passed, failed = record(check("x", "passed", SEEN)), record(check("x", "failed"))
    in_part = wanted("x", not_shown="the 30 days")
    assert judge(passed, [wanted()])[0].state is State.NOT_TESTED
    assert judge(passed, [in_part])[0].state is State.NOT_TESTED
    assert judge(passed, [in_part])[0].evidence[-1] == "no check shows the 30 days"
    assert judge(failed, [in_part])[0].state is State.NOT_MET


def test_the_evidence_is_what_was_measured_and_of_a_failure_what_failed():
    """The first findings of a passed check; of a failed one the bad findings, however many are good."""
    many = [(f"n{n}", True, "386 GB/s", "350") for n in range(5)]
    found = judge(record(check("x", "passed", many)), [wanted("x")])[0]
    assert found.evidence == [
        "x passed: n0: 386 GB/s (expected 350); n1: 386 GB/s (expected 350); n2: 386 GB/s (expected 350); and 2 more"
    ]
    found = judge(record(check("x", "failed", [*many, ("n9", False, "95 GB/s", "350")])), [wanted("x")])[0]
    assert found.evidence == ["x failed: n9: 95 GB/s (expected 350)"]
    found = judge(record(check("x", "blocked", blocked_by=["w"])), [wanted("x", "z")])[0]
    assert found.evidence == ["x blocked: by w", "z: not part of this run"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, []),
        ({"simulated": True}, ["SIMULATED"]),
        ({"scope": "partial", "selection": "--check nccl"}, ["PARTIAL: --check nccl"]),
        ({"scope": "partial"}, ["PARTIAL: checks were deselected"]),
        ({"tenant": True}, ["TENANT: one namespace only"]),
        ({"coverage": {"pool": ["a", "b", "c"], "tried": ["a", "b"]}}, ["2 of 3 nodes tried"]),
        ({"trial": {}, "coverage": {"pool": ["a"]}}, ["no pod was started"]),
        ({"interrupted": "SIGTERM"}, ["ended early: SIGTERM"]),
    ],
)
@pytest.mark.parametrize("style", FORMATS)
def test_what_limits_a_run_is_reported_with_each_state(more, said, style):
    """A line shows that its state is from a simulation or a partial run."""
    run = record(check("x", "passed", SEEN), **more)
    assert limits(run) == said
    made = RequirementList(title="Ours", source="annex B", requirements=(wanted("x"),))
    text = render(run, made, judge(run, made.requirements), style)
    line = next(line for line in text.splitlines() if "NET-4" in line)
    assert "met" in text
    for mark in said:
        assert mark.partition(":")[0] in line


def test_each_form_can_be_read_and_nothing_of_a_record_acts_in_it():
    """A name with markup, a formula or a control sequence remains text."""
    hostile = [("=cmd|' /C calc'!A0\x1b[31m<b>\ud800", False, "@all", "ib")]
    run = record(check("x", "failed", hostile), verdict="no-go")
    made = RequirementList(title="=Ours", source="annex B", requirements=(wanted("x"), wanted_else()))
    judged = judge(run, made.requirements)
    texts = {style: render(run, made, judged, style) for style in FORMATS}
    assert not any("\x1b" in text for text in texts.values())
    rows = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert [row["state"] for row in rows] == ["not met", "not tested"]
    assert rows[0]["list"] == "'=Ours"
    suite = ElementTree.fromstring(texts["junit"])
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "1")
    named = {p.get("name"): p.get("value") for p in suite.find("testcase").iter("property")}
    assert named["requirement"] == "NET-4"
    assert named["state"] == "not met"
    assert named["evidence"].startswith("x failed: =cmd")
    assert "<b>" not in texts["markdown"].replace("\\<b\\>", "")
    assert "@all" not in texts["markdown"]


def wanted_else():
    """Return a requirement that no check shows."""
    return Requirement(id="NET-5", title="-1 is no formula")


def test_a_list_comes_to_the_worst_of_its_states():
    """A requirement that is not met is no-go, an untested one is inconclusive."""
    met, unmet, open_ = (record(check("x", outcome)) for outcome in ("passed", "failed", "skipped"))
    assert verdict_over(judge(met, [wanted("x")])) is Verdict.GO
    assert verdict_over(judge(met, [wanted("x"), wanted_else()])) is Verdict.INCONCLUSIVE
    assert verdict_over(judge(unmet, [wanted("x"), wanted_else()])) is Verdict.NO_GO
    assert verdict_over(judge(open_, [wanted("x")])) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("name", list_names())
def test_a_shipped_list_names_checks_that_exist_and_where_it_is_published(name):
    """Foreign ids need their source, since a removed check would never be tested."""
    made = load_list(name, all_checks())
    assert "." in made.source
    assert any(each.checks for each in made.requirements)
