"""The terminal's text: complete where it matters, short elsewhere, never wider than the terminal."""

import json
import re
from dataclasses import replace

import pytest

from reports import html, markdown, terminal
from reports.record import NOT_JUDGED, CheckResult, Finding, Run
from reports.schema import Outcome, completed
from reports.summary import LAYERS, grouped


class Terminal:
    """Keeps the output of pytest's terminal reporter."""

    def __init__(self):
        self.text = ""

    def ensure_newline(self):
        self.text += "" if self.text.endswith("\n") or not self.text else "\n"

    def write(self, text, **_):
        self.text += text

    def write_line(self, text, **_):
        self.text += text + "\n"


def check(name, outcome=Outcome.PASSED, **more):
    return CheckResult(id=name, title=f"The title of {name}", outcome=outcome, **more)


LONG = (
    "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 Insufficient rdma/hca_shared_devices_a; no victims found"
)
FAILED = check(
    "job.started",
    Outcome.FAILED,
    reason=f"pod-1: {LONG} {LONG}, expected the pod is bound to a node",
    findings=(
        Finding(
            subject="seatrial-abc-1-xyz",
            ok=False,
            observed=LONG,
            expected="the pod is bound to a node",
            fault="job.unschedulable",
        ),
    ),
)


def printed(run, monkeypatch, columns=80, folder=None, detailed=False):
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = Terminal()
    terminal.header(screen, run)
    for result in run.results:
        terminal.line(screen, result)
    terminal.summary(screen, run, folder, detailed=detailed)
    return screen.text


def test_no_line_is_wider_than_the_terminal(monkeypatch):
    """80 columns are enough for any text with a space to break at."""
    run = Run(simulated=True, scope="partial", selection="-k job " * 20, results=[check("a.b"), FAILED])
    assert max(map(len, printed(run, monkeypatch).splitlines())) <= 80


def test_a_long_observation_is_shown_whole(monkeypatch):
    """The scheduler's reason is at the end of its sentence: a truncated table would hide the cause."""
    text = printed(Run(results=[FAILED]), monkeypatch)
    assert f" {LONG} " in " ".join(text.split())
    second = check("nodes.gpu", Outcome.FAILED, findings=FAILED.findings)
    said = " ".join(printed(Run(results=[check("a.b", Outcome.FAILED, reason="x"), second]), monkeypatch).split())
    assert f"observed {LONG}" in said
    assert "seatrial-abc-1-xyz (job.unschedulable)" in said


def test_short_findings_are_in_a_table(monkeypatch):
    """Two nodes in adjacent rows are read faster than two blocks."""
    rows = tuple(
        Finding(subject=f"gpu-node-{n}", ok=False, observed=f"{7 - n}", expected="8", unit="GPUs", fault="gpu.missing")
        for n in range(3)
    )
    said = printed(Run(results=[check("gpu.allocatable", Outcome.FAILED, reason="x", findings=rows)]), monkeypatch)
    assert "  gpu-node-1  6 GPUs      8 GPUs      gpu.missing\n  gpu-node-2  5 GPUs " in said


CULPRIT = Finding(subject="gpu-5 - gpu-6", ok=False, observed="24.6", expected="at least 35", unit="GB/s", fault="x.y")


def test_the_culprit_the_fact_and_the_expectation_are_lines_of_their_own(monkeypatch):
    """The lines appear once: the check's own part below continues with the meaning."""
    results = [
        check("nccl.bandwidth-ring", Outcome.FAILED, findings=(CULPRIT,)),
        check("a.b"),
        check("c.d", Outcome.FAILED, reason="another"),
        check("e.f", Outcome.SKIPPED, reason="not asked for"),
    ]
    said = printed(Run(results=results), monkeypatch).partition("VERDICT")[2]
    assert said.splitlines()[1:6] == [
        "  gpu-5 - gpu-6",
        "  24.6 GB/s",
        "  expected at least 35 GB/s",
        "  also failed: c.d",
        "  1 passed, 2 failed, 1 skipped",
    ]
    assert said.count("24.6") == said.count("gpu-5") == said.count("at least 35") == 1


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([f"rdma-{n}" for n in range(8)], "rdma-0 ... rdma-7 (8)"),
        ([f"rdma-{n}" for n in (7, 1, 0, 3, 2, 5, 4, 6)], "rdma-0 ... rdma-7 (8)"),
        ([f"node-{n}/eth0" for n in range(9, 13)], "node-9/eth0, node-10/eth0, node-11/eth0 and 1 more"),
        ([f"gpu-{n}" for n in (0, 1, 2, 9)], "gpu-0, gpu-1, gpu-2 and 1 more"),
        (["a-0", "a-1", "b-2", "a-3"], "a-0, a-1, b-2 and 1 more"),
        (["a-0", "a-1"], "a-0, a-1"),
        (["b", "a", "d", "c"], "b, a, d and 1 more"),
    ],
)
def test_equal_subjects_are_one_row(names, said):
    """Only gapless numbers become a range, which names every subject."""
    assert grouped(names) == said


def test_equal_findings_are_one_row(monkeypatch):
    """Eight networks with the same fault are one line; a different value is another line."""
    first = Finding(subject="a", ok=False, observed="x", expected="y", fault="f.g")
    rows = [replace(first, subject=f"rdma-{n}", observed="no route") for n in range(8)]
    other = replace(first, subject="rdma-8", observed="no address")
    said = printed(Run(results=[check("a.b", Outcome.FAILED, findings=(first, *rows, other))]), monkeypatch)
    assert said.count("no route") == said.count("no address") == 1
    assert " rdma-0 ... rdma-7 no route " in " ".join(said.split())


def test_a_failed_transport_shows_what_the_rdma_checks_saw(monkeypatch):
    """`2 passed` does not explain "no ACTIVE port"; passed or skipped preflight results are not repeated."""
    socket = Finding(subject="a - b", ok=False, observed="socket", fault="nccl.socket-fallback")
    port = Finding(subject="a", ok=True, observed="8 ports ACTIVE")
    results = [
        check("rdma.allocatable", stage="preflight"),
        check("rdma.networks", Outcome.SKIPPED, stage="preflight", reason="none is asked for"),
        check("rdma.devices", stage="acceptance", findings=(port, replace(port, subject="b"))),
        check("rdma.counters", Outcome.SKIPPED, stage="acceptance", reason="nothing was sent"),
        check("network.mtu", Outcome.SKIPPED, stage="acceptance", reason="elsewhere"),
        check("nccl.transport", Outcome.FAILED, stage="acceptance", findings=(socket,)),
    ]
    said = printed(Run(results=results), monkeypatch)
    assert [row.strip() for row in said.splitlines() if "see also" in row] == [
        "see also  rdma.devices passed: a, b: 8 ports ACTIVE",
        "see also  rdma.counters skipped: nothing was sent",
    ]
    held = [*results[:-1], check("nccl.transport", stage="acceptance")]
    assert "see also" not in printed(Run(results=held), monkeypatch)


def test_layers_come_in_the_order_of_readme(root):
    """README gives the order of layers, and the terminal uses it; a user's families come last."""
    table = re.findall(r"^\| [\d\N{EN DASH}]+ \| (.*?) \|", (root / "README.md").read_text(), re.MULTILINE)
    families = [name for row in table for name in re.findall(r"`([\w]+)`", row)]
    assert len(families) > 15
    assert [name for name in LAYERS if name != "sweep"] == families
    assert terminal.by_layer(["ours", "nccl", "api", "gpu", "theirs"]) == ["api", "gpu", "nccl", "ours", "theirs"]


def test_a_reason_that_is_cut_says_so(monkeypatch):
    """During the run two lines are enough; the ellipsis shows that there is more."""
    live = printed(Run(results=[FAILED]), monkeypatch).split("VERDICT")[0]
    assert live.rstrip().endswith("…")


def test_what_was_blocked_is_named_once_behind_the_root_of_it(monkeypatch):
    """Eighteen consequences of one fault are one paragraph, and they name the fault's check, not each other."""
    results = [
        check("a.root", Outcome.ERROR, reason="not seen"),
        check("b.next", Outcome.BLOCKED, blocked_by=("a.root",)),
        check("c.last", Outcome.BLOCKED, blocked_by=("b.next",)),
        check("d.other", Outcome.BLOCKED, blocked_by=("x.never-ran",)),
    ]
    said = printed(Run(results=results), monkeypatch, detailed=True)
    assert "BLOCKED by a.root, so not judged:\n  b.next, c.last\n" in said
    assert "BLOCKED by x.never-ran, so not judged:\n  d.other\n" in said
    assert said.count("b.next") == 1


def test_without_details_what_was_not_judged_is_counted(monkeypatch):
    """Twenty reasons would hide the proofs; -v shows them."""
    results = [
        check("a.root", Outcome.FAILED, reason="x"),
        check("nccl.ring", Outcome.BLOCKED, blocked_by=("a.root",)),
        check("nccl.gdr", Outcome.BLOCKED, blocked_by=("a.root",)),
        check("storage.rate", Outcome.SKIPPED, reason="the profile states no rate"),
    ]
    said = printed(Run(results=results), monkeypatch)
    assert "Not judged, blocked by a.root: 2 checks (nccl 2)" in said
    assert "Not requested or not applicable: 1 check (storage) (-v: why)" in said
    assert "states no rate" not in said
    assert "states no rate" in printed(Run(results=results), monkeypatch, detailed=True)


def test_a_go_fits_on_a_screen(monkeypatch, tmp_path):
    """A go takes at most 25 lines, whatever was skipped."""
    results = [check(f"family{n}.check{m}", Outcome.SKIPPED, reason="long " * 40) for n in range(12) for m in range(4)]
    run = Run(results=[*results, check("a.b")], profile="p")
    said = printed(run, monkeypatch, folder=tmp_path).split("VERDICT: go")[1]
    assert len(said.splitlines()) <= 25


def test_a_family_is_one_line(monkeypatch):
    """A family's line shows the worst outcome and the counts; skipped checks do not affect it."""
    screen = Terminal()
    terminal.family(screen, "nccl", [check("nccl.a"), check("nccl.b", Outcome.SKIPPED), check("nccl.c")])
    terminal.family(screen, "rdma", [check("rdma.a"), check("rdma.b", Outcome.BLOCKED)])
    terminal.family(screen, "storage", [check("storage.a", Outcome.SKIPPED)])
    assert screen.text.splitlines() == [
        "PASSED   nccl            2 passed, 1 skipped",
        "BLOCKED  rdma            1 passed, 1 blocked",
    ]


@pytest.mark.parametrize("simulated", [True, False])
def test_the_verdict_says_whether_it_is_simulated(monkeypatch, tmp_path, simulated):
    """A verdict of the embedded cluster must not be mistaken for a real cluster's."""
    said = printed(Run(simulated=simulated, results=[check("a.b")]), monkeypatch, folder=tmp_path)
    assert ("VERDICT: go (SIMULATED) ·" in said) == simulated
    assert said.endswith(f"Report: {tmp_path / 'report.html'}\n")


def test_control_characters_never_reach_the_terminal(monkeypatch):
    """A name or a message of the cluster could hide lines or set the window's title."""
    hostile = "pod\x1b]0;owned\x07 \x9b2J \u202e"
    results = [
        check("a.b", Outcome.ERROR, reason=hostile),
        check(
            "c.d",
            Outcome.FAILED,
            reason=hostile,
            findings=(Finding(subject=hostile, ok=False, observed=hostile, expected=hostile, fault="x.y"),),
            notes=(hostile,),
        ),
    ]
    assert not set(printed(Run(results=results), monkeypatch)) & set("\x1b\x07\x9b\u202e")


def test_what_a_cluster_says_is_no_command_of_a_workflow(monkeypatch):
    """GitHub's runner parses every line of a log: a row must not begin like its commands."""
    text = "::error::forged\n::stop-commands::token ##[error]forged"
    failed = check("c.d", Outcome.FAILED, reason=text, notes=(text,))
    said = printed(Run(results=[failed], not_seen=[text]), monkeypatch)
    assert not [row for row in said.splitlines() if row.lstrip().startswith("::") or "##[" in row]


def test_lists_are_bounded(monkeypatch):
    """Leftovers of a thousand nodes are in the report."""
    names = [f"job {n}\x1b[2J" for n in range(1000)]
    said = printed(Run(cleaned=names, leftovers=names, not_seen=names, results=[check("a.b")]), monkeypatch)
    assert len(said.splitlines()) < 60
    assert said.count("… and 988 more, in report.json (--out)") == 3
    assert "\x1b" not in said


@pytest.mark.parametrize("why", [["pod x on n1: PreemptionByScheduler: by pod team/urgent <b>"], []])
def test_every_form_begins_with_the_attempt_and_who_interrupted_the_one_before(why, monkeypatch):
    """A go of the first attempt does not mention attempts."""
    run = Run(results=[check("job.started")], trial={"job": "t", **({"interrupted": why} if why else {})})
    said = "Attempt 2 of the trial; attempt 1 was interrupted: pod x on n1"
    record = completed(json.loads(json.dumps(run.to_dict())))
    forms = (printed(run, monkeypatch, columns=200), html.page(run), markdown.markdown(record))
    assert [said in " ".join(text.split()) for text in forms] == [bool(why)] * 3
    assert ["ttempt" in text for text in forms] == [bool(why)] * 3
    assert "<b>" not in forms[1].partition("urgent")[2][:10]
    assert record["trial"].get("interrupted", []) == why


def test_what_was_not_judged_is_counted_apart(monkeypatch):
    """205 nodes with another driver remain 205, whatever the result of the 295 that are down."""
    bad = [Finding(subject=f"n-{i}", ok=False, observed="driver 570", fault="nodes.drift") for i in range(205)]
    down = [Finding(subject=f"m-{i}", ok=None, observed=f"{NOT_JUDGED}nodes.gpu") for i in range(295)]
    run = Run(results=[check("nodes.uniform", Outcome.FAILED, findings=(*bad, *down))])
    said = printed(run, monkeypatch)
    assert "  n-0 ... n-204 (205)\n  driver 570\n" in said
    assert "  m-0 ... m-294 (295)  not judged: " in said
    each = [replace(row, observed=f"driver {n}") for n, row in enumerate(bad)]
    many = Run(results=[check("nodes.uniform", Outcome.FAILED, findings=(*each, *down))])
    assert "… and 192 more, 295 not judged, in report.json (--out)" in printed(many, monkeypatch)
    assert "… and 185 more, 295 not judged, in report.json" in markdown.markdown(run.to_dict())
    page = html.page(run)
    assert "… and 155 more, 295 not judged, in report.json" in page
    few = Run(results=[check("nodes.uniform", Outcome.FAILED, findings=(*bad[:12], *down[:3]))])
    assert "  m-0, m-1, m-2  not judged: " in printed(few, monkeypatch)
    assert '<td class="unclear">not judged</td>' in html.page(few)
    assert "… and" not in printed(Run(results=[check("a.b", Outcome.FAILED, findings=bad[:12])]), monkeypatch)
