"""A finding about one node blocks only that node; a withheld subject never passes."""

from dataclasses import replace

import pytest

from checks.framework.blocking import Places, blocks, named, withheld_in_words
from checks.framework.evidence import Blocked, CannotTell, CheckFailed, Evidence
from checks.framework.selection import Declaration
from reports.record import NOT_JUDGED, CheckResult, Finding
from reports.schema import Outcome
from tests.table import table

NODES = {"n-0", "n-1", "n-2", "n-10"}
BY_NODE = {"nodes.gpu", "gpu.allocatable"}


def declared(*, requires=("nodes.gpu",), by_node=True, stage="preflight", **more):
    given = {"unless_failed": (), "faults": (), "doc": "", **more}
    return Declaration(id="a", title="A", stage=stage, requires=requires, by_node=by_node, **given)


def result(check_id="nodes.gpu", outcome=Outcome.FAILED, *, bad=("n-1",), good=("n-0", "n-2"), blocked_by=()):
    findings = [Finding(subject=s, ok=False, observed="x", fault="nodes.not-ready") for s in bad]
    findings += [Finding(subject=s, ok=True, observed="fine") for s in good]
    return {
        check_id: CheckResult(id=check_id, title="", outcome=outcome, findings=tuple(findings), blocked_by=blocked_by)
    }


@table(
    "subject, nodes",
    [
        ("n-1", {"n-1"}),
        ("n-1 GPU 3", {"n-1"}),
        ("n-1 - n-0", {"n-0", "n-1"}),
        ("n-1 -> n-10", {"n-1", "n-10"}),
        ("n-1/mlx5_0", {"n-1"}),
        ("cluster", set()),
        ("n-100", set()),
        ("device plugin", set()),
        ("n-1.example", set()),
    ],
)
def test_a_subject_names_whole_nodes_only(subject, nodes):
    """n-1 does not match n-10, and a subject that is not a node names no node."""
    assert named(subject, NODES) == nodes


def test_a_bad_node_is_withheld_and_the_others_are_judged():
    """The failed prerequisite on that node is named."""
    blocked = blocks(declared(), result(), BY_NODE, NODES)
    assert (blocked.whole, blocked.nodes) == ((), {"n-1": ("nodes.gpu",)})
    assert list(withheld_in_words(blocked.nodes)) == ["n-1 (nodes.gpu)"]


@pytest.mark.parametrize(
    ("check", "results", "by_node"),
    [
        (declared(by_node=False), result(), BY_NODE),
        (declared(), result(), set()),
        (declared(), result(bad=("n-1", "cluster")), BY_NODE),
        (declared(), result(bad=(), outcome=Outcome.ERROR), BY_NODE),
        (declared(), result(bad=(), good=(), outcome=Outcome.BLOCKED), BY_NODE),
        (declared(), result(bad=("n-0", "n-1", "n-2"), good=()), BY_NODE),
        (declared(), {}, BY_NODE),
    ],
    ids=[
        "judges the whole",
        "whole before it",
        "cluster",
        "did not look",
        "did not run",
        "no node left",
        "was not run",
    ],
)
def test_what_is_not_about_single_nodes_blocks_the_check(check, results, by_node):
    """Near misses: such findings block the whole check."""
    blocked = blocks(check, results, by_node, NODES)
    assert (blocked.whole, blocked.nodes) == (("nodes.gpu",), {})


def test_a_check_of_the_trial_is_not_blocked_by_nodes_outside_of_it():
    """All nodes of the trial are healthy; the fault of another node was already reported."""
    whole = declared(by_node=False, stage="acceptance", requires=(), unless_failed=("nodes.gpu",))
    assert blocks(whole, result(), BY_NODE, NODES, {"n-0", "n-2"}).checks == ()
    assert blocks(whole, result(), BY_NODE, NODES, {"n-0", "n-1"}).whole == ("nodes.gpu",)
    assert blocks(whole, result(), BY_NODE, NODES).nodes == {"n-1": ("nodes.gpu",)}  # the trial starts without it


@pytest.mark.parametrize("fault", ["nodes.other-kind", "nodes.too-few", "gpu.oversubscribed", "nccl.program"])
def test_what_leaves_nothing_to_judge_blocks_though_it_leaves_the_verdict_open(fault):
    """A profile that does not fit, or a program that failed by itself, is not a cluster fault, but later checks are
    blocked."""
    check = declared(requires=(), unless_failed=("nodes.gpu",))
    (first,) = result(bad=(), outcome=Outcome.ERROR).values()
    assert blocks(check, {"nodes.gpu": replace(first, fault=fault)}, BY_NODE, NODES).whole == ("nodes.gpu",)
    assert blocks(check, {"nodes.gpu": replace(first, fault="nccl.no-evidence")}, BY_NODE, NODES).whole == ()
    assert blocks(check, {"nodes.gpu": first}, BY_NODE, NODES).whole == ()


def test_what_was_withheld_is_withheld_downstream():
    """A check that was blocked on a node blocks its dependents there; they name the first failure."""
    first = result() | result("gpu.allocatable", Outcome.BLOCKED, blocked_by=("nodes.gpu",))
    check = declared(requires=(), unless_failed=("gpu.allocatable",))
    assert blocks(check, first, BY_NODE, NODES).nodes == {"n-1": ("gpu.allocatable",)}
    check = declared(requires=("nodes.gpu",), unless_failed=("gpu.allocatable",))
    assert blocks(check, first, BY_NODE, NODES).nodes == {"n-1": ("nodes.gpu",)}


def test_a_check_that_failed_elsewhere_is_no_root_on_a_node_that_was_withheld_from_it():
    """A check that found a fault on n-2 did not check n-1, so only failures on n-1 are named there."""
    first = result() | result("gpu.allocatable", bad=("n-2",), good=("n-0",))
    withheld = Finding(subject="n-1", ok=None, observed=f"{NOT_JUDGED}nodes.gpu")
    second = replace(first["gpu.allocatable"], findings=(*first["gpu.allocatable"].findings, withheld))
    check = declared(requires=("nodes.gpu",), unless_failed=("gpu.allocatable",))
    blocked = blocks(check, first | {"gpu.allocatable": second}, BY_NODE, NODES)
    assert blocked.nodes == {"n-1": ("nodes.gpu",), "n-2": ("gpu.allocatable",)}


def evidence(*nodes):
    made = Evidence()
    made.expect(nodes)
    made.withhold({"n-1": ("nodes.gpu",)})
    made.expect(nodes)
    return made


def test_a_check_with_a_node_withheld_is_blocked_and_never_passed():
    """Results of the other nodes are recorded, and the withheld node is listed."""
    made = evidence("n-0")
    made.add("n-0", ok=True, observed="8")
    made.add("n-1 GPU 0", ok=False, observed="7", fault="gpu.missing")  # a consequence, so it is not reported
    with pytest.raises(Blocked, match=r"n-1 \(nodes.gpu\)"):
        made.verdict()
    assert [(f.subject, f.ok, f.fault) for f in made.findings] == [("n-0", True, ""), ("n-1", None, "")]


def test_a_fault_on_another_node_is_reported_with_the_withheld_one():
    """One run reports all independent faults."""
    made = evidence("n-0")
    made.add("n-0", ok=False, observed="7", fault="gpu.missing")
    with pytest.raises(CheckFailed, match="n-0: 7"):
        made.verdict()
    assert [(f.subject, f.ok) for f in made.findings] == [("n-0", False), ("n-1", None)]


def test_a_subject_that_was_not_checked_blocks_what_comes_after_it():
    """A node without a finding did not pass, even if another node is reported as bad."""
    made = Evidence()
    made.expect(["n-0", "n-1"])
    made.add("n-0", ok=False, observed="7", fault="gpu.missing")
    with pytest.raises(CheckFailed):
        made.verdict()
    assert [(f.subject, f.ok) for f in made.findings] == [("n-0", False), ("n-1", None)]
    blind = evidence("n-0")
    with pytest.raises(CannotTell, match="no finding for n-0"):
        blind.verdict()


MTU = result("network.mtu", bad=("n-0 -> n-1",), good=("n-1 -> n-0", "n-1 -> n-2", "n-2 -> n-1", "n-0 -> n-2"))
RATES = declared(requires=("network.mtu",), by_node=False, stage="acceptance", by_pair=("network.mtu",))


def test_a_pair_that_did_not_hold_is_withheld_and_other_pairs_of_its_nodes_are_judged():
    """A bad pair is withheld in both directions, because they share the path; other pairs are judged."""
    blocked = blocks(RATES, MTU, BY_NODE, NODES, {"n-0", "n-1", "n-2"})
    assert (blocked.whole, blocked.nodes) == ((), {"n-0 - n-1": ("network.mtu",)})
    assert [s in Places(blocked.nodes) for s in ("n-1 -> n-0", "n-0 -> n-1", "n-1 -> n-2", "n-1")] == [
        True,
        True,
        False,
        False,
    ]
    made = Evidence()
    made.withhold(blocked.nodes)
    made.expect(["n-0 -> n-1", "n-1 -> n-2"])
    made.add("n-0 -> n-1", ok=False, observed="0.1 Gb/s", fault="network.slow")  # a consequence
    made.add("n-1 -> n-2", ok=True, observed="40 Gb/s")
    with pytest.raises(Blocked, match=r"n-0 - n-1 \(network.mtu\)"):
        made.verdict()
    assert [(f.subject, f.ok) for f in made.findings] == [("n-1 -> n-2", True), ("n-0 - n-1", None)]


def test_a_node_that_differs_withholds_all_its_pairs():
    """A check by pair may also report a single node."""
    first = result("network.mtu", bad=("n-1",), good=("n-0 -> n-1", "n-1 -> n-2", "n-0 -> n-2"))
    blocked = blocks(RATES, first, BY_NODE, NODES)
    assert blocked.nodes == {"n-1": ("network.mtu",)}
    assert [s in Places(blocked.nodes) for s in ("n-1 -> n-0", "n-0 -> n-2")] == [True, False]


@pytest.mark.parametrize(
    ("check", "first"),
    [
        (replace(RATES, by_pair=()), MTU),
        (RATES, result("network.mtu", bad=("MTU",), good=("n-0 -> n-1",))),
        (RATES, result("network.mtu", bad=("n-0 -> n-1", "n-1 -> n-0"), good=())),
        (RATES, result("network.mtu", Outcome.BLOCKED, bad=(), good=())),
    ],
    ids=["judges the whole", "no pair is named", "no pair left", "did not run"],
)
def test_what_is_not_about_single_pairs_blocks_the_check(check, first):
    """Near misses: such findings block the whole check."""
    blocked = blocks(check, first, BY_NODE, NODES)
    assert (blocked.whole, blocked.nodes) == (("network.mtu",), {})


def test_a_pair_that_was_withheld_is_withheld_downstream():
    """Blocked ports between two nodes withhold the packet size check of that pair, and then its rate check."""
    blocked = {**MTU}
    withheld = Finding(subject="n-0 - n-1", ok=None, observed=f"{NOT_JUDGED}network.ports")
    good = Finding(subject="n-1 -> n-2", ok=True, observed="9000 bytes")
    blocked["network.mtu"] = replace(MTU["network.mtu"], outcome=Outcome.BLOCKED, findings=(withheld, good))
    assert blocks(RATES, blocked, BY_NODE, NODES).nodes == {"n-0 - n-1": ("network.mtu",)}
