"""Node actions: the record has each once, and every form of the report has the same."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from reports import html, junit, terminal
from reports.actions import NODES, PARTS, TITLE, in_one_line, lines
from reports.markdown import markdown
from reports.metrics import MOST_SERIES, exposition
from reports.record import CheckResult, Finding, Run, read_json, write_json
from reports.schema import Outcome, completed
from tests.reports.records import compare, record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reports.schema import Record


def finding(subject: str, action: str = "", *, ok: bool | None = False) -> Finding:
    """Return a finding with a fault of a check."""
    return Finding(subject=subject, ok=ok, observed="seen", expected="not seen", fault="gpu.xid", action=action)


def run_of(*findings: Finding, tried: tuple[str, ...] = ("gpu-1", "gpu-10", "gpu-2"), **more: Any) -> Run:
    """Return a run on these nodes whose only check failed."""
    check = CheckResult(id="runtime.health", title="Health", outcome=Outcome.FAILED, findings=findings)
    pods = {f"pod-{number}": node for number, node in enumerate(tried)}
    return Run(results=[check], trial={"job": "j", "nodes": len(tried), "pods": pods}, **more)


TWO = run_of(
    finding("gpu-1 GPU 0000:1b:00", "RESET_GPU"),
    finding("gpu-1 GPU 5", "CONTACT_SUPPORT"),
    finding("gpu-1 GPU 5", "RESET_GPU"),
    finding("gpu-1 GPU 0000:9d:00", "UNKNOWN", ok=None),
    finding("gpu-10", "REBOOT_NODE"),
    finding("gpu-2 GPU 0", ok=True),
)


def test_the_heaviest_action_counts_for_a_node_and_each_gpu_has_its_own() -> None:
    actions = TWO.actions
    assert {node: each["action"] for node, each in actions.items()} == {
        "gpu-1": "CONTACT_SUPPORT",
        "gpu-10": "REBOOT_NODE",
    }
    assert actions["gpu-1"]["parts"] == {
        "gpu-1 GPU 0000:1b:00": "RESET_GPU",
        "gpu-1 GPU 0000:9d:00": "UNKNOWN",
        "gpu-1 GPU 5": "CONTACT_SUPPORT",
    }
    assert list(actions) == ["gpu-1", "gpu-10"]  # the heaviest first
    assert "RMA" in actions["gpu-1"]["said"]


@pytest.mark.parametrize(
    ("action", "shown"), [("RESTART_APP", "UNKNOWN"), ("NONE", "UNKNOWN"), ("RESET_GPU", "RESET_GPU")]
)
def test_a_node_that_failed_for_more_is_not_said_to_need_nothing(action: str, shown: str) -> None:
    """A node whose port is also down needs an action that the catalogue lacks; a pair's fault and a pass change
    nothing."""
    xid = finding("gpu-1 GPU 1", action, ok=None)
    both = run_of(xid, finding("gpu-1 mlx5_3"), finding("gpu-2")).actions
    assert {node: each["action"] for node, each in both.items()} == {"gpu-1": shown}
    assert both["gpu-1"]["parts"] == {"gpu-1 GPU 1": action}
    alone = run_of(xid, finding("gpu-1 - gpu-2 rail mlx5_3"), finding("gpu-1 mlx5_3", ok=True)).actions
    assert alone["gpu-1"]["action"] == action


@pytest.mark.parametrize(
    "innocent",
    [
        finding("gpu-1 - gpu-2", "RESET_GPU"),  # a pair
        finding("gpu-1 -> gpu-2", "RESET_GPU"),
        finding("gpu-3 GPU 1", "RESET_GPU"),  # of no node of this run
        finding("rank 1 GPU 1", "RESET_GPU"),
        finding("cluster", "RESET_GPU"),
        finding("gpu-1"),  # for example a setting
    ],
)
def test_a_finding_of_no_single_node_asks_nothing_of_any(innocent: Finding) -> None:
    """A program failure, a pair, and a pod on an unknown node: no partner is drained."""
    assert run_of(innocent).actions == {}
    assert list(run_of(innocent, finding("gpu-2", "NONE")).actions) == ["gpu-2"]


def test_a_node_of_the_pool_that_was_not_tried_has_its_action() -> None:
    run = run_of(finding("idle", "UNKNOWN"), pool=("idle", "gpu-1"))
    assert list(run.actions) == ["idle"]


def read(run: Run) -> Record:
    """Return a run's record as read from its file."""
    return completed(json.loads(json.dumps(run.to_dict())))


def forms(run: Run, folder: Path) -> dict[str, str]:
    """Return the forms of the report as text."""
    (folder / "junit.xml").write_text("<testsuites><testsuite><testcase/></testsuite></testsuites>")
    junit.stamp(folder / "junit.xml", run)
    write_json(run, folder / "report.json")
    kept = read_json(folder / "report.json")
    screen = Screen()
    terminal.summary(screen, run, None)
    return {
        "page": html.page(run),
        "ticket": markdown(kept),
        "junit": (folder / "junit.xml").read_text(),
        "metrics": exposition(kept),
        "terminal": screen.text,
    }


class Screen:
    """Keeps the output of pytest's terminal reporter."""

    text = ""

    def ensure_newline(self) -> None:
        """Begin a line."""

    def write(self, text: str, **_: Any) -> None:
        self.text += text

    def write_line(self, text: str, **_: Any) -> None:
        self.text += text + "\n"


def test_every_form_has_the_same(tmp_path: Path) -> None:
    said = forms(TWO, tmp_path)
    for name in ("page", "ticket", "terminal"):
        plain = " ".join(said[name].replace("\\", "").split())
        assert TITLE in plain, name
        assert "(RMA); GPU 5 CONTACT_SUPPORT, GPU 0000:1b:00 RESET_GPU, GPU 0000:9d:00 UNKNOWN" in plain, name
        assert "gpu-10 REBOOT_NODE: drain the node and reboot it" in plain, name
    assert '<td data-label="fault">gpu.xid <code>REBOOT_NODE</code></td>' in said["page"]
    assert "| gpu.xid REBOOT\\_NODE |" in said["ticket"]
    assert '<property name="node_actions" value="gpu-1: CONTACT_SUPPORT, gpu-10: REBOOT_NODE"' in said["junit"]
    assert dict(series(said["metrics"])) == {("gpu-1", "CONTACT_SUPPORT"): 1.0, ("gpu-10", "REBOOT_NODE"): 1.0}


def test_a_run_without_actions_says_nothing_of_them(tmp_path: Path) -> None:
    """A gauge keeps one sample, so that a push replaces the last run's."""
    said = forms(run_of(finding("gpu-1")), tmp_path)
    for name in ("page", "ticket", "terminal"):
        assert TITLE not in said[name]
    assert '<property name="node_actions" value=""' in said["junit"]
    assert dict(series(said["metrics"])) == {("none", "NONE"): 0.0}


def series(text: str) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the metric's labels and value for each sample."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "seatrial_node_action":
                yield (sample.labels["node"], sample.labels["action"]), sample.value


def test_thousands_of_nodes_flood_no_form() -> None:
    """The heaviest are kept, and omitted ones are counted."""
    nodes = tuple(f"n{number:04}" for number in range(MOST_SERIES + 200))
    gpus = [finding(f"n0000 GPU {number}", "RESET_GPU") for number in range(PARTS + 3)]
    run = run_of(
        *(finding(node, "UNKNOWN") for node in nodes), finding(nodes[-1], "CONTACT_SUPPORT"), *gpus, tried=nodes
    )
    document = read(run)
    samples = dict(series(exposition(document)))
    assert len(samples) == MOST_SERIES
    assert samples[nodes[-1], "CONTACT_SUPPORT"] == 1.0
    assert in_one_line(run.actions).endswith(f" and {len(nodes) - NODES} more")
    assert lines(run.actions)[1].endswith(", 4 more")
    assert markdown(document).count("look it up") < 60


def test_scheduled_runs_add_what_to_do_with_the_nodes_that_they_call_bad() -> None:
    """A node of an earlier run keeps its action; this run's result applies to its own nodes."""
    document = read(run_of(finding("gpu-1", "RESET_GPU")))
    earlier = {"gpu-1": "REBOOT_NODE", "gpu-7": "CONTACT_SUPPORT", "gpu-8": "green"}
    samples = dict(series(exposition(document, actions=earlier)))
    assert samples == {("gpu-7", "CONTACT_SUPPORT"): 1.0, ("gpu-1", "RESET_GPU"): 1.0}


def test_a_record_of_an_earlier_version_has_no_actions_and_is_compared_as_before() -> None:
    old = record(1)
    assert "actions" not in old
    assert completed(old)["actions"] == {}
    assert dict(series(exposition(completed(old)))) == {("none", "NONE"): 0.0}
    new = {**record(2), "actions": dict(TWO.actions)}
    assert compare([old], [new]) == compare([old], [record(2)])
    assert compare([new], [old]) == compare([record(2)], [old])


HOSTILE = st.text(st.sampled_from("<>&\"'\\\n\r\t\x1b\x00|`*_[](){}@:/ab1 \u202e"), min_size=1, max_size=40)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(node=HOSTILE, subject=HOSTILE, word=HOSTILE, said=HOSTILE)
def test_a_record_with_foreign_texts_breaks_no_form(
    tmp_path: Path, node: str, subject: str, word: str, said: str
) -> None:
    """A record may come from any source: its strings are text in every form, and never a metric's label."""
    document = read(run_of(finding("gpu-1", "RESET_GPU")))
    document["actions"] = {
        node: {"node": node, "action": word, "said": said, "parts": {subject: word}},
        f"{node} too": {"node": node, "action": "RESET_GPU", "said": said, "parts": {}},
    }
    ticket = markdown(document)
    listed = ticket.partition(f"## {TITLE}")[2].partition("\n\n## ")[0]
    assert len(listed.strip().splitlines()) == 2
    assert not any(sign in listed.replace("\\<", "").replace("\\>", "") for sign in "<>\x1b\x00\u202e")
    found = dict(series(exposition(document)))
    assert found == {(f"{node} too", "RESET_GPU"): 1.0}
    for line in lines(document["actions"]):
        assert line.isprintable()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=HOSTILE.map(str.split).map("".join).filter(str.isprintable).filter(bool))
def test_a_foreign_subject_is_text_on_the_page_and_in_junit(tmp_path: Path, name: str) -> None:
    """A node's name adds no tag to the page, and JUnit's file remains readable."""
    run = run_of(finding(f"{name} GPU <script>x</script>", "RESET_GPU"), tried=(name,))
    page = html.page(run)
    tags = Tags()
    tags.feed(page)
    assert "<script>x" not in page
    assert tags.text.count("RESET_GPU") >= 2
    (tmp_path / "junit.xml").write_text("<testsuites><testsuite/></testsuites>")
    junit.stamp(tmp_path / "junit.xml", run)
    properties = {
        each.get("name"): each.get("value") for each in ElementTree.parse(tmp_path / "junit.xml").iter("property")
    }
    assert properties["node_actions"] == f"{name}: RESET_GPU"


class Tags(HTMLParser):
    """Keeps the tags of a page."""

    text = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_finding_keeps_its_action_through_a_file(tmp_path: Path) -> None:
    """The record of a detached run is judged later."""
    write_json(TWO, tmp_path / "report.json")
    found = read_json(tmp_path / "report.json")["checks"][0]["findings"][1]
    assert (
        Finding(**{field.name: found[field.name] for field in dataclasses.fields(Finding)})
        == TWO.results[0].findings[1]
    )
