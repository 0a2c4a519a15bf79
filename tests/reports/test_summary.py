"""The summary of a run: the same verdict, culprit and numbers in every form, and only numbers of checks."""

from dataclasses import replace

import pytest

from reports.markdown import markdown, workflow_commands
from reports.record import CheckResult, Finding, Run
from reports.schema import Outcome, completed
from reports.summary import summarize
from tests.table import table


def check(name, outcome=Outcome.PASSED, *findings, **more):
    return CheckResult(id=name, title=f"Title of {name}", outcome=outcome, findings=findings, **more)


def ok(subject, observed, expected="", unit=""):
    return Finding(subject=subject, ok=True, observed=observed, expected=expected, unit=unit)


def bad(subject, observed="7 of 8", fault="gpu.missing", state=False):
    return Finding(subject=subject, ok=state, observed=observed, expected="8", fault=fault)


RING = ok("all_reduce 8G in place", "384.6 (median of 3: 382 to 385)", "at least 350", "GB/s")
HEALTHY = Run(
    trial={"hosts": {"pod-0": "gpu-a", "pod-1": "gpu-b"}},
    pool=("gpu-a", "gpu-b", "gpu-c"),
    floors={"ring": [{"size_bytes": 8 << 30, "busbw_gbps": 350.0, "source": "published: 386 GB/s"}]},
    results=[
        check("job.started", Outcome.PASSED, ok("gpu-a", "rank 0 reported 13 stages")),
        check("nccl.fabric", Outcome.PASSED, ok("ring", "ib", "ib")),
        check("nccl.rails", Outcome.PASSED, ok("gpu-a", "8 rails used: mlx5_0:1", "8 rails")),
        check("nccl.gdr", Outcome.PASSED, ok("ring", "GPUDirect RDMA on every channel")),
        check("nccl.bandwidth-ring", Outcome.PASSED, RING),
        check("storage.rate", Outcome.SKIPPED, reason="not asked for"),
    ],
)


def test_a_go_names_nodes_and_numbers():
    """Each number is the finding of a passed check."""
    summary = summarize(HEALTHY.to_dict())
    proven = dict(summary.proven)
    assert summary.culprit == ""
    assert summary.headline == "go · 2 of 3 nodes tried · exit code 0"
    assert proven["nodes"] == "2 of 3 nodes tried: gpu-a, gpu-b"
    assert proven["fabric"] == "InfiniBand, 8 rails used per node, GPUDirect RDMA on every channel"
    assert proven["Ring"] == "384.6 GB/s (all_reduce 8G in place), floor 350: published: 386 GB/s"
    assert summary.not_judged == {"skipped": {"storage": 1}}


def test_a_bandwidth_is_shown_with_what_others_measured():
    record = HEALTHY.to_dict()
    record["collectives"] = {"ring": {"tables": [{"nearest": {"sentence": "384.6 GB/s is 99% of what is published"}}]}}
    proven = dict(summarize(record).proven)
    assert proven["by others"] == "384.6 GB/s is 99% of what is published"
    assert "by others" not in dict(summarize(HEALTHY.to_dict()).proven)


@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.BLOCKED, Outcome.ERROR, Outcome.FAILED])
def test_what_did_not_pass_is_not_proven(outcome):
    """A bandwidth below its floor, or an unjudged one, is not a proof."""
    summary = summarize(Run(results=[check("nccl.bandwidth-ring", outcome, RING)]).to_dict())
    assert summary.proven == []


def test_of_several_nodes_the_slowest_is_reported():
    """The best of a thousand nodes does not describe the others."""
    rows = [ok(f"gpu-{n} all_reduce", f"{480 - n % 2 * 20}.0", "at least 430", "GB/s") for n in range(4)]
    summary = summarize(Run(results=[check("nccl.bandwidth-node", Outcome.PASSED, *rows)]).to_dict())
    assert dict(summary.proven)["inside a node"].startswith("460.0 GB/s (gpu-1 ")


@table(
    "run, culprit",
    [
        (Run(results=[check("a.b", Outcome.FAILED, bad("gpu-b"))]), "gpu-b: 7 of 8 (expected 8)"),
        (
            Run(results=[check("a.b", Outcome.FAILED, ok("gpu-a", "8"), bad("gpu-b"), bad("gpu-c"))]),
            "gpu-b (and 1 more): 7 of 8 (expected 8)",
        ),
        (
            Run(
                results=[
                    check(
                        "a.b",
                        Outcome.FAILED,
                        Finding(subject="ring 8G", ok=False, observed="126", expected="at least 350", unit="GB/s"),
                    )
                ]
            ),
            "ring 8G: 126 GB/s (expected at least 350 GB/s)",
        ),
        (
            Run(results=[check("x.y", Outcome.ERROR, reason="?"), check("a.b", Outcome.FAILED, bad("gpu-b"))]),
            "gpu-b: 7 of 8 (expected 8)",
        ),
        (
            Run(results=[check("a.b", Outcome.FAILED, bad("gpu-b")), check("c.d", Outcome.FAILED, bad("gpu-c"))]),
            "gpu-b: 7 of 8 (expected 8), and 1 more check",
        ),
        (Run(results=[check("a.b", Outcome.ERROR, reason="no answer")]), "a.b: no answer"),
        (Run(results=[check("a.b")], interrupted="received SIGINT"), "ended early: received SIGINT"),
        (Run(results=[check("a.b")], required=("c.d",)), "required but not judged: c.d"),
        (
            Run(results=[check("a.b")], asks_all=True, pool=("n",)),
            "not every node was tried, but all were requested (--nodes all)",
        ),
        (
            Run(results=[check("a.b")], trial={"nodes": 2, "pods": {"p-0": "a"}}),
            "the trial spans 2 nodes, and pods on 1 gave evidence",
        ),
        (Run(), "no check could be judged"),
    ],
)
def test_the_culprit_is_what_decided(run, culprit):
    """The first line names whatever prevents go."""
    summary = summarize(run.to_dict())
    assert summary.verdict != "go"
    assert summary.culprit == culprit
    assert culprit in summary.headline


HOSTILE = "x|y `z` <script> [a](http://evil) @team \x1b]0;\n## go"


def test_a_ticket_carries_what_was_found_and_no_markup_of_others():
    """Cluster texts remain text: no table is broken, and none becomes a heading, a link or a mention."""
    failed = check("a.b", Outcome.FAILED, bad(HOSTILE, HOSTILE), reason=HOSTILE, notes=(HOSTILE,))
    run = Run(
        results=[failed],
        faults={"gpu.missing": {"title": "t", "meaning": HOSTILE, "confirm": HOSTILE, "remedy": HOSTILE}},
    )
    text = markdown(run.to_dict())
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# seatrial: no-go",
        "## FAILED a.b: Title of a.b",
    ]
    outside = "".join(part for index, part in enumerate(_spans(text)) if index % 2 == 0)
    assert "<script>" not in outside
    assert "@team" not in outside
    assert "http://" not in outside


def _spans(text):
    """Split a text at its code spans."""
    import re

    return re.split(r"(?<!\\)(`+(?!`).*?(?<!`)`+(?!`))", text)


def test_a_ticket_is_bounded():
    """A thousand nodes with one fault each fit into an issue."""
    rows = [bad(f"gpu-node-{n}", "a long observation " * 20) for n in range(1000)]
    assert len(markdown(Run(results=[check(f"a.b{n}", Outcome.FAILED, *rows) for n in range(30)]).to_dict())) < 65_536


def test_annotations_cannot_be_forged():
    """A text from the cluster neither starts nor ends an annotation command."""
    failed = check("a.b", Outcome.FAILED, bad("n"), reason="100 %\n::error::forged")
    lines = list(workflow_commands(Run(results=[failed]).to_dict()))
    assert len(lines) == 2
    assert lines[0] == "::error title=seatrial a.b::Title of a.b: 100 %25 : :error: :forged"
    assert lines[1].startswith("::error title=seatrial::no-go · n: 7 of 8")


def test_what_contradicts_the_verdict_is_not_proven():
    """Sums that are right inside the nodes and wrong between them are reported as neither, and without a bandwidth."""
    node = check("nccl.correctness-node", Outcome.PASSED, ok("gpu-a", "0 wrong"), ok("gpu-b", "0 wrong"))
    ring = check("nccl.bandwidth-ring", Outcome.PASSED, RING)
    wrong = check("nccl.correctness", Outcome.FAILED, bad("ring", "wrong in 42 of 42"))
    assert dict(summarize(Run(results=[node, ring, wrong]).to_dict()).proven) == {}
    blocked = check("nccl.correctness", Outcome.BLOCKED)
    assert dict(summarize(Run(results=[node, blocked]).to_dict()).proven) == {
        "sums": "right inside every node (2 tables)"
    }


def test_nodes_are_proven_by_the_check_that_saw_them():
    """A pod that was placed and then lost does not prove its node."""
    run = Run(trial={"hosts": {"pod-0": "gpu-a"}}, results=[check("job.started", Outcome.ERROR, reason="lost")])
    assert dict(summarize(run.to_dict()).proven) == {}


def test_what_was_not_seen_is_not_counted_with_the_culprit():
    """One node is NotReady; 63 others were not observed."""
    rows = [bad("gpu-0", "NotReady", ""), *(bad(f"gpu-{n}", "nothing was observed", "", None) for n in range(1, 64))]
    summary = summarize(Run(results=[check("a.b", Outcome.FAILED, *rows)]).to_dict())
    assert summary.culprit == "gpu-0: NotReady (expected 8)"


def test_a_culprit_that_names_no_node_says_which_were_tried():
    """A bandwidth concerns all tried nodes together."""
    slow = Finding(subject="ring 8G", ok=False, observed="126", expected="at least 350", unit="GB/s")
    run = Run(trial={"hosts": {"p": "gpu-a", "q": "gpu-b"}}, results=[check("nccl.b", Outcome.FAILED, slow)])
    assert summarize(run.to_dict()).culprit == "ring 8G: 126 GB/s (expected at least 350 GB/s), on gpu-a, gpu-b"
    run.results = [check("job.started", Outcome.FAILED, bad("pod-1", "unschedulable"))]
    assert "gpu-a" not in summarize(run.to_dict()).culprit


def test_a_check_that_blocks_itself_says_why():
    """Without another blocker, its own text is the only explanation."""
    summary = summarize(Run(results=[check("sweep.ran", Outcome.BLOCKED, reason="no node is free")]).to_dict())
    assert summary.not_judged == {"no node is free": {"sweep": 1}}


@pytest.mark.parametrize("resumed", [Outcome.PASSED, Outcome.ERROR])
def test_a_checkpoint_is_proven_by_what_was_read_back(resumed):
    saved = {"nodes": [], "ranks": 16, "bytes": 2**30, "pause_s": 1.0, "mb_s": 1073.7, "slowest_mb_s": 60.0}
    results = [check("checkpoint.saved"), check("checkpoint.resumed", resumed)]
    proven = dict(summarize(Run(checkpoint=saved, results=results).to_dict()).proven)
    ends = "; resumed after a crash" if resumed is Outcome.PASSED else ""
    assert proven == {"checkpoint": f"1074 MB/s of 16 ranks, read back elsewhere{ends}"}
    results = [check("checkpoint.saved", Outcome.FAILED)]
    assert summarize(Run(checkpoint=saved, results=results).to_dict()).proven == []


def test_nodes_that_are_left_out_or_queued_are_said():
    """A pass with a note is still a pass; a failed check is described by its finding."""
    notes = ("not judged: virtual, not a separate machine",)
    left_out = CheckResult(
        id="nodes.gpu",
        title="",
        outcome=Outcome.PASSED,
        findings=(Finding(subject="a", ok=True, observed=""),),
        notes=notes,
    )
    queued = CheckResult(
        id="stack.upgrade", title="", outcome=Outcome.PASSED, notes=("queued for a driver upgrade: a",)
    )
    other = CheckResult(id="a.b", title="", outcome=Outcome.PASSED, notes=("anything",))
    proven = dict(summarize(Run(results=[left_out, queued, other]).to_dict()).proven)
    assert proven["noted"] == "not judged: virtual, not a separate machine; queued for a driver upgrade: a"
    failed = replace(left_out, outcome=Outcome.FAILED)
    assert "noted" not in dict(summarize(Run(results=[failed, other]).to_dict()).proven)


def test_a_bandwidth_that_was_waived_is_reported_for_a_go():
    """With a profile without floors the go says that no bandwidth was judged, and shows the measurement."""
    why = "no floor published; measured, not judged: 386.4 GB/s"
    waived = {"id": "nccl.bandwidth-ring", "outcome": "skipped", "reason": why, "waived": True, "findings": []}
    unasked = {"id": "nccl.bandwidth-sendrecv", "outcome": "skipped", "reason": "no floor", "findings": []}
    run = {"schema": 1, "run_id": "r", "verdict": "go", "scope": "full", "collectives": {}}
    assert summarize(completed({**run, "checks": [waived, unasked]})).untried == f"nccl.bandwidth-ring: {why}."


def test_locks_that_fail_are_reported_for_a_go_where_the_profile_says_nothing_of_them():
    """The note is missing if the profile needs no locks, or if there is no shared path."""
    why = "not judged, since the profile requires no locks: a /results: nfs (nolock): flock granted while b holds it"
    check = {
        "id": "storage.locks",
        "outcome": "skipped",
        "reason": why,
        "waived": False,
        "findings": [],
        "notes": ["x"],
    }
    run = {"schema": 1, "run_id": "r", "verdict": "go", "scope": "full", "collectives": {}}
    assert summarize(completed({**run, "checks": [check]})).untried == f"storage.locks: {why}."
    for quiet in ({"waived": True}, {"notes": []}):
        assert summarize(completed({**run, "checks": [check | quiet]})).untried == ""
