"""The trial on every scenario of the embedded cluster: the right fault on the right subject, and no other."""

import fnmatch
import functools
import html
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from lab.rehearse import trials as rehearse
from reports import terminal
from reports.plain import plain
from reports.schema import completed
from reports.summary import summarize
from reports.sweep.text import lines
from tests.program import Program, seatrial
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[2]
EXIT = {"go": 0, "no-go": 1, "inconclusive": 10}
SHIPPED = ROOT / "checks" / "profiles"
# One of each family, for runs without the slow tests.
QUICK = {"socket-fallback", "gpu-missing", "port-blocked"}
SCHEMA = json.loads((ROOT / "docs" / "record.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)  # jsonschema.validate would check the schema each time
NAMES = sorted(path.stem for path in (ROOT / "lab" / "scenarios").glob("*.yaml"))


@functools.cache
def asked_of_all():
    """Return the expectations of all scenarios: the first test loads them, since collection would do so in every
    worker."""
    return {each.name: each for each in rehearse.rehearsals(rehearse.parse([]))}


def conforms(record):
    """Validate a record with the published schema, so that every added key is documented."""
    VALIDATOR.validate(record)
    assert record.keys() == SCHEMA["properties"].keys()


@pytest.fixture
def rehearsed(tmp_path, monkeypatch):
    """Rehearse a scenario by its name; return the findings, the record and the folder of the report."""
    asked = asked_of_all()

    class Kept(Program):
        """A program whose output is kept next to its report."""

        def communicate(self, *arguments, **options):
            printed, said = super().communicate(*arguments, **options)
            (tmp_path / "printed").write_text(printed, encoding="utf-8")
            return printed, said

    monkeypatch.setattr(rehearse.subprocess, "Popen", Kept)

    def run(name):
        out = tmp_path / "out"
        rehearse.rehearse(asked[name], out, tmp_path, [])
        return asked[name], json.loads((out / "report.json").read_text()), out

    return run


def parameters():
    names = [name for name in NAMES if name != "healthy"]
    return [pytest.param(name, id=name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


def test_every_scenario_is_rehearsed():
    assert sorted(asked_of_all()) == NAMES


def flaky(sweep):
    """Assert the note: the link failed, was retried, and passed, without a fault."""
    pair = ["gpu-node-0", "gpu-node-1"]
    assert [test["share"] < 0.9 for test in sweep["tests"] if test["nodes"] == pair] == [True, False]
    assert (sweep["findings"], sweep["flaky"]) == ([], [pair])
    assert "Flaky, failed once and passed once: gpu-node-0 - gpu-node-1" in lines(sweep)


def groups(sweep):
    """Assert the note: one leaf's nodes have older cables, and the verdict is go."""
    assert sweep["findings"] == []
    assert any(line.startswith("Note: two groups in a leaf") for line in lines(sweep)), sweep["notes"]


SWEEPS = {"sweep-flaky": flaky, "sweep-groups": groups}
"""A sweep's notes about a cluster, in addition to its faults."""


@pytest.mark.parametrize("name", parameters())
def test_a_scenario_is_recognised_for_the_right_reason(name, rehearsed):
    """A rehearsal finds exactly the stated faults on the stated subjects, the stated outcome, no leftovers, and a text
    for each."""
    asked, record, out = rehearsed(name)
    said = "\n".join(f"{c['id']}: {c['outcome']} {c['reason']}" for c in record["checks"] if c["outcome"] != "passed")
    assert asked.recognised, f"{asked.trouble}; {asked.mistaken}; found {asked.accused}, {asked.verdict}:\n{said}"
    assert record["exit_code"] == EXIT[record["verdict"]]
    conforms(record)
    assert record["verdict"] != "go" or not asked.expected
    for fault in asked.expected:
        entry = record["faults"][fault]
        assert all(entry[key] for key in ("meaning", "confirm", "remedy")), fault
    in_every_form(out, record)
    asks_of_the_guilty_alone(asked, record)
    if name in SWEEPS:
        SWEEPS[name](record["sweep"])
    if record["verdict"] == "go" and record["sweep"] and any((out / "logs").glob("*.log")):
        said = seatrial("explain", str(out / "logs"))
        assert (said.returncode, "pods of a sweep" in " ".join(said.stdout.split())) == (10, True), said.stdout
    profile = SHIPPED / f"{record['profile']}.yaml"
    if (
        record["verdict"] == "go"
        and not record["sweep"]
        and profile.exists()
        and "all_gather" not in profile.read_text()
    ):
        logs_are_go(out, "--profile", str(profile))


def asks_of_the_guilty_alone(asked, record):
    """Assert that only a broken node gets an action (reset, reboot, replace), with each part in a finding."""
    subjects = {f["subject"]: f for c in record["checks"] for f in c["findings"] if f["action"]}
    assert {part for each in record["actions"].values() for part in each["parts"]} == subjects.keys()
    assert not record["actions"] or record["verdict"] != "go"
    heavy = [each["node"] for each in record["actions"].values() if each["action"] in ("RESET_GPU", "REBOOT_NODE", RMA)]
    broken = {
        subject.partition(" ")[0]
        for fault in asked.expected
        for subject in asked.subjects.get(fault) or asked.accused[fault]
    }
    assert not [node for node in heavy if not any(fnmatch.fnmatchcase(node, each) for each in broken)], record[
        "actions"
    ]
    if asked.name in ACTIONS:
        assert {node: each["action"] for node, each in record["actions"].items()} == ACTIONS[asked.name]


RMA = "CONTACT_SUPPORT"
ACTIONS = {
    "xid-of-a-program": {},
    "xid-reported": {"gpu-node-1": "REBOOT_NODE"},
    "gpu-off-bus": {"gpu-node-1": "REBOOT_NODE"},
    "node-condition-gpu": {"gpu-node-1": "REBOOT_NODE"},
    "recovery-needed": {"gpu-node-1": "RESET_GPU"},
    "remap-pending": {"gpu-node-1": "RESET_GPU"},
    "ecc-uncorrected": {"gpu-node-1": "RESET_GPU"},
    "nvlink-down": {"gpu-node-1": "RESET_GPU"},
    "remap-failed": {"gpu-node-1": "CONTACT_SUPPORT"},
    "gpu-throttled": {"gpu-node-1": "CONTACT_SUPPORT"},
    "dcgm-memory-failed": {"gpu-node-1": "CONTACT_SUPPORT"},
    "dcgm-setup": {},
    "gpu-missing": {"gpu-node-1": "UNKNOWN"},
    "training-fails": {},
    "image-without-torch": {},
}
"""Node actions, in scenarios of each action and of none."""


def logs_are_go(out, *options):
    """Assert that the pod logs of a good trial are go for `explain`, too."""
    if any((out / "logs").glob("*.log")):
        done = seatrial("explain", "--full", *options, str(out / "logs"))
        assert done.returncode == 0, done.stdout + done.stderr


def in_every_form(out, record):
    """Assert that page, ticket, JUnit and metrics have the record's verdict, culprit and counts."""
    summary = summarize(completed(record))
    assert (summary.culprit == "") == (summary.verdict == "go")
    page = html.unescape((out / "report.html").read_text())
    assert summary.headline in page
    assert summary.counted in page
    marks = "".join(f" ({mark})" for mark in summary.marks)
    assert f"<title>{summary.verdict}{marks} · " in page
    for outcome, number in summary.counts.items():
        assert len(re.findall(rf'<details class="check"[^>]*><summary><span class="{outcome}"', page)) == number
    for each in summary.measured:
        assert f'<b>{each.value}</b></td><td class="number">{each.floor}</td>' in page
    ticket = (out / "report.md").read_text()
    assert summary.counted in ticket
    words = re.sub(r"\\(.)", r"\1", ticket).replace("\u200b", "")
    assert " ".join(summary.headline.split()) in words
    for each in summary.measured:
        assert f"| {each.value} {each.unit} | {each.floor} {each.unit} |" in words
        assert each.reference in words
    suite = ElementTree.parse(out / "junit.xml").getroot().find("testsuite")
    facts = {each.get("name"): each.get("value") for each in suite.find("properties")}
    assert (facts["verdict"], facts["headline"]) == (summary.verdict, summary.headline)
    assert int(suite.get("failures")) == summary.counts.get("failed", 0)
    metrics = (out / "metrics.prom").read_text()
    assert f'seatrial_run_verdict{{verdict="{summary.verdict}"}} 1.0' in metrics
    assert metrics.count('outcome="failed"} 1.0') == summary.counts.get("failed", 0)
    assert all(text in page for _, text in summary.in_words)
    on_the_terminal((out.parent / "printed").read_text(encoding="utf-8"), summary)


WIDTH = 100
"""Width of the text if the output is not a terminal."""


def on_the_terminal(printed, summary):
    """Assert that the terminal has the record's verdict, culprit, counts and numbers, layers in order, and no split
    word."""
    said = " ".join(printed.split())
    assert said.count("VERDICT: ") == 1
    assert f"VERDICT: {' '.join(summary.short.split())} " in said
    assert f" {summary.counted} " in said
    decided = summary.deciding
    assert bool(decided.fact) == (summary.verdict != "go")
    for text in (decided.name, decided.fact, f"expected {decided.expected}" if decided.expected else ""):
        assert " ".join(plain(text).split())[:200] in said
    for what, text in summary.proven if summary.verdict == "go" else ():
        assert " ".join([what, *text.split()[:2]]) in said
    families = re.findall(r"^(?:PASSED|FAILED|ERROR|BLOCKED) +([\w-]+)  ", printed, re.MULTILINE)
    assert families == terminal.by_layer(families)
    lines = [line for line in printed.splitlines() if not line.startswith("  · ")]  # one progress line of any length
    long = [line for line in lines if len(line) > WIDTH and len(line.split()) > 1]
    assert not [line for line in long if not any(len(word) > WIDTH - 30 for word in line.split())], long


def test_the_schema_refuses_a_damaged_record(rehearsed):
    """The record of a run that could not start, with an invalid outcome."""
    record = rehearsed("api-down")[1]
    conforms(record)
    record["checks"][0]["outcome"] = "green"
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(record)


def test_the_healthy_cluster_is_go_and_marked_simulated(tmp_path):
    """go, every check passed, SIMULATED in every report."""
    done = subprocess.run(
        [sys.executable, "-m", "checks", "accept", "--cluster", "sim:healthy", "--out", str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {c["outcome"] for c in record["checks"]} <= {"passed", "skipped"}, done.stdout
    conforms(record)
    assert (record["verdict"], done.returncode, record["simulated"]) == ("go", 0, True)
    assert "SIMULATED" in done.stdout
    assert "SIMULATED" in (tmp_path / "out" / "report.html").read_text()
    assert {"report.json", "report.html", "junit.xml", "logs"} <= {p.name for p in (tmp_path / "out").iterdir()}
    logs_are_go(tmp_path / "out")
    logs_are_go(tmp_path / "out", "--profile", "h100-ib")  # each floor belongs to one of the trial's runs
