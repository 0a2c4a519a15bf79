"""State of scheduled runs: tested nodes, strikes, and tolerance of a single failure."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any

import pytest

from cli.schedule.node_history import ANY, choose, choose_unseen, conclude, learn, next_nodes, overdue, trend
from cli.schedule.remembered import MOST_NODES, MOST_RUNS, NodeHistory, Watched
from reports.metrics import exposition
from reports.schema import Record, completed
from tests.table import table

WEEK = 7 * 86400.0
NOW = 1_000_000_000.0


def record(verdict: str, nodes: tuple[str, ...] = ("a", "b"), *, subject: str = "", busbw: float = 380.0) -> Record:
    """Return the record of a run on some nodes; a failed one has a fault on its subject."""
    finding = {"subject": subject, "ok": False, "fault": "x.y"}
    check = {"id": "c", "outcome": "failed" if subject else "passed", "findings": [finding] if subject else []}
    hosts = {f"pod-{n}": node for n, node in enumerate(nodes)}
    side = {"busbw_gbps": busbw}
    job = {
        "hosts": [{"name": pod} for pod in hosts],
        "tables": [{"collective": "all_reduce", "rows": [{"size_bytes": 8 << 30, "in_place": side}]}],
    }
    made = {
        "run_id": "r",
        "verdict": verdict,
        "scope": "full",
        "started": "2026-01-01T00:00:00+00:00",
        "checks": [check],
        "trial": {"hosts": hosts},
        "collectives": {"ring": job},
    }
    return completed(made)


def after(*records: Record) -> NodeHistory:
    """Return the state after these runs, one hour apart, with a JSON round trip each time."""
    state = NodeHistory()
    for hour, run in enumerate(records):
        state = NodeHistory.read(json.loads(json.dumps(learn(state, run, now=NOW + 3600 * hour).to_dict())))
    return state


def test_a_node_is_bad_after_two_strikes_and_never_its_peer() -> None:
    """The first failure is one strike, the second marks it bad; a pass in between resets both."""
    failed = record("no-go", subject="a GPU 3")
    assert after(failed).bad == ()
    assert after(failed, failed).bad == ("a",)
    assert after(failed, record("go"), failed).bad == ()
    peer = after(failed, failed).nodes["b"]
    assert (peer.tested, peer.strikes, peer.suspect, peer.score(NOW)) == (NOW + 3600, 0, False, (2, 0))


def full(
    fault: str, observed: str = "0 of 8 free", subject: str = "a", *, ok: bool | None = False, **more: str
) -> dict[str, Any]:
    """Return a run that found no room for a trial; GPUs in use are inconclusive, in older versions no-go."""
    finding = {"subject": subject, "ok": ok, "fault": fault, "observed": observed}
    outcome, verdict = ("error", "inconclusive") if ok is None else ("failed", "no-go")
    check = {"id": "gpu.free", "stage": "preflight", "outcome": outcome, "findings": [finding]} | more
    made = record(verdict, ())
    return {**made, "checks": [*made["checks"], completed({**made, "checks": [check]})["checks"][0]]}


SHORT = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate"


@table(
    "run, verdict",
    [
        (full("gpu.taken", ok=None), "go"),
        (full("gpu.taken"), "go"),
        (full("gpu.held-by-slurm"), "go"),
        (full("job.unschedulable", SHORT, stage="acceptance"), "go"),
        (full("job.unschedulable", SHORT, ok=None, stage="acceptance"), "go"),
        (full("job.disrupted", ok=None, stage="acceptance"), "inconclusive"),
        (full("gpu.taken", ok=None) | {"required": ["nccl.gdr"]}, "inconclusive"),
        (full("job.unschedulable", f"{SHORT}, 2 Insufficient rdma/hca.", stage="acceptance"), "inconclusive"),
        (full("nodes.cordoned", "cordoned"), "no-go"),
        (full("gpu.missing", "7"), "no-go"),
    ],
)
def test_a_cluster_at_work_has_nothing_wrong_with_it(run: dict[str, Any], verdict: str) -> None:
    """GPUs in use are not a failure; other obstacles are, at once if the API shows them."""
    assert conclude(NodeHistory(), learn(NodeHistory(), run, now=NOW), run)[0] == verdict


def tenant(stage: str = "preflight", outcome: str = "passed") -> Record:
    """Return a tenant's run that has tried no node: checks that need permission to list nodes are skipped, and
    required."""
    hidden = {"id": "gpu.allocatable", "stage": "preflight", "outcome": "skipped", "proven_by": ["nccl.ranks"]}
    other = {"id": "api.version", "stage": stage, "outcome": outcome}
    made = {**record("inconclusive", ()), "collectives": {}, "scope": "partial", "required": ["gpu.allocatable"]}
    return completed({**made, "checks": [other, hidden]})


@pytest.mark.parametrize(
    ("before", "run", "verdict"),
    [
        (after(record("go")), tenant(), "go"),
        (after(record("go"), tenant()), tenant(), "go"),
        (after(record("go")), tenant(outcome="error"), "inconclusive"),
        (after(record("go")), tenant(outcome="failed") | {"verdict": "no-go"}, "no-go"),
        (after(record("go")), tenant(stage="acceptance"), "inconclusive"),
        (
            after(record("go")),
            tenant() | {"required": ["gpu.allocatable", "nccl.gdr"], "scope": "full"},
            "inconclusive",
        ),
        (after(record("go"), record("no-go", subject="a")), tenant(), "inconclusive"),
        (after(), tenant(), "inconclusive"),
    ],
)
def test_between_two_trials_a_tenant_need_not_see_what_the_last_one_showed(
    before: NodeHistory, run: Record, verdict: str
) -> None:
    """Night after night nothing is due, and a passed trial showed what a tenant cannot list."""
    assert conclude(before, learn(before, run, now=NOW), run)[0] == verdict


def test_a_node_that_is_in_use_or_put_aside_gets_no_strike() -> None:
    """Repeated runs do not mark a node in use as bad, and its state does not change."""
    for fault in ("gpu.taken", "nodes.cordoned", "nodes.tainted"):
        state = after(record("go"), full(fault), full(fault), full(fault))
        assert state.bad == ()
        assert state.nodes["a"].good
    assert after(record("go"), full("gpu.missing"), full("gpu.missing")).bad == ("a",)


def test_a_failed_pair_raises_no_fault_until_one_half_is_known() -> None:
    """Nodes of a failed pair are suspects; with a proven partner, the one that fails again gets the strike."""
    pair = record("no-go", subject="a -> b (ring)")
    both = after(pair)
    assert [both.nodes[n].suspect for n in "ab"] == [True, True]
    assert [both.nodes[n].strikes for n in "ab"] == [0, 0]
    known = after(record("go", ("c", "d")), pair, record("no-go", ("a", "c"), subject="a -> c (ring)"))
    assert (known.nodes["a"].strikes, known.nodes["c"].strikes) == (1, 0)
    assert known.nodes["c"].good
    cleared = after(record("go", ("c", "d")), pair, record("go", ("b", "c")))
    assert cleared.nodes["b"].good


def test_two_good_nodes_that_fail_together_are_suspects() -> None:
    """Neither of two proven nodes is better known than the other."""
    state = after(record("go"), record("no-go", subject="a -> b (ring)"))
    assert [state.nodes[n].suspect for n in "ab"] == [True, True]


def test_a_name_is_not_taken_for_a_longer_one() -> None:
    """gpu-1 does not match gpu-11 or gpu-1-b."""
    state = after(record("no-go", ("gpu-1", "gpu-11"), subject="gpu-11 GPU 0"))
    assert [state.nodes[n].strikes for n in ("gpu-1", "gpu-11")] == [0, 1]


def test_an_inconclusive_run_says_nothing_about_any_node() -> None:
    """A drained, blocked or interrupted run adds no strike and no pass, and does not count as a test."""
    assert after(record("inconclusive", subject="a")).nodes == {}


def test_only_a_full_run_with_a_trial_is_a_success() -> None:
    """Preflight alone does not test training."""
    assert after(record("go")).last_success == 1767225600
    assert after(record("go", ())).last_success == 0
    assert after({**record("go"), "scope": "partial"}).last_success == 0
    ahead = NodeHistory(last_success=NOW + 1)  # the clock was wrong: an alert on its age would not fire for years
    assert learn(ahead, record("no-go"), now=NOW).last_success == 0


@pytest.mark.parametrize(
    ("state", "idle", "nodes"),
    [
        (NodeHistory(), ["a"], ()),  # the cluster is busy
        (NodeHistory(), ["a", "b", "c"], ("a", "b")),
        (NodeHistory({n: Watched(tested=NOW, passed=NOW) for n in "abc"}), ["a", "b", "c"], ()),
        (NodeHistory({"a": Watched(tested=NOW, passed=NOW)}), ["a", "b"], ("b", "a")),  # a new node next to a good one
        (
            NodeHistory({"a": Watched(tested=NOW - 2 * WEEK), "b": Watched(tested=NOW - 3 * WEEK)}),
            ["a", "b"],
            ("b", "a"),
        ),
        (
            NodeHistory(
                {
                    "a": Watched(tested=NOW, suspect=True),
                    "b": Watched(tested=NOW, suspect=True),
                    "c": Watched(tested=NOW, passed=NOW),
                }
            ),
            ["a", "b", "c"],
            ("a", "c"),
        ),
        (
            NodeHistory({"a": Watched(tested=NOW, strikes=1), "c": Watched(tested=NOW, passed=NOW)}),
            ["a", "c"],
            ("a", "c"),
        ),
        (
            NodeHistory({"a": Watched(tested=NOW, suspect=True), "b": Watched(tested=NOW, suspect=True)}),
            ["a", "b"],
            ("a", "b"),
        ),
    ],
)
def test_who_is_tested_next(state: NodeHistory, idle: list[str], nodes: tuple[str, ...]) -> None:
    """Suspects with good partners come first, then nodes untested for a week; with no idle or due node the choice is
    empty."""
    chosen = choose(state, idle, need=2, now=NOW, every_s=WEEK)
    assert chosen.nodes == nodes
    assert chosen.why


def test_a_tenants_failed_trial_is_tried_again() -> None:
    """Without visible nodes, a passed trial is valid for a week; a failed one counts only if it fails again."""

    def chosen(*verdicts: str, later: float = WEEK / 2) -> tuple[str, ...]:
        state = after(*map(record, verdicts))
        return choose_unseen(state, now=NOW + 3600 * len(verdicts) + later, every_s=WEEK).nodes

    assert chosen("go") == ()
    assert chosen("go", later=2 * WEEK) == (ANY,)
    assert chosen("no-go") == (ANY,)
    assert chosen("go", "no-go") == (ANY,)
    assert chosen("no-go", "go") == ()
    assert choose_unseen(after(record("go")), now=NOW - 1, every_s=WEEK).nodes == (ANY,)  # the clock was ahead


def test_the_trend_needs_a_history() -> None:
    """Ten percent below five accepted runs is reported; with fewer than four, or by three percent, it is not."""

    def notes_of(runs: int, busbw: float) -> list[str]:
        return trend(after(*[record("go") for _ in range(runs)]), record("go", busbw=busbw))

    assert notes_of(4, 300.0) == []
    assert notes_of(5, 370.0) == []
    (text,) = notes_of(5, 342.0)
    assert "a - b: all_reduce ring at 8 GiB: 342 GB/s, 90 % of its usual 380 over 5 runs" in text


def test_what_is_remembered_is_bounded_and_survives_damage() -> None:
    """Thousands of nodes and runs fit in one ConfigMap; keys of the wrong type are dropped."""
    state = NodeHistory({f"n{i}": Watched(tested=float(i)) for i in range(2 * MOST_NODES)})
    for _ in range(2 * MOST_RUNS):
        state = learn(state, record("go"), now=NOW)
    assert len(state.nodes) == MOST_NODES
    assert len(state.past) == MOST_RUNS
    assert len(json.dumps(state.to_dict())) < 900_000
    damaged = {
        "nodes": {"a": {"tested": "x", "strikes": None}, "b": 3},
        "past": [1, {"samples": {"g": 1}}],
        "last_success": [],
    }
    assert NodeHistory.read(damaged).nodes == {"a": Watched()}


def swept(**states: str) -> dict[str, Any]:
    """Return the record of a sweep with these node results."""
    rows = [{"name": name, "state": state} for name, state in states.items()]
    findings = [{"kind": "rail", "names": [n], "rails": [3]} for n, state in states.items() if state == "at fault"]
    verdict = "no-go" if findings else "go" if set(states.values()) <= {"proven", "flaky"} else "inconclusive"
    return {**record(verdict, tuple(states)), "sweep": {"findings": findings, "elements": {"nodes": rows}}}


def asking(action: str, run: Record) -> Record:
    """Return the same record with an action for node a."""
    asked = {"node": "a", "action": action, "said": "", "parts": {"a GPU 3": action}}
    return completed({**run, "actions": {"a": asked}})


def test_what_to_do_with_a_bad_node_is_remembered_until_it_passes() -> None:
    """A bad node's action comes from its last failure with one; a partner has none, and invalid manual edits are
    ignored."""
    failed = record("no-go", subject="a GPU 3")
    assert after(asking("RESET_GPU", failed)).actions == {}  # one strike: not bad yet
    assert after(asking("RESET_GPU", failed), failed).actions == {"a": "RESET_GPU"}
    assert after(failed, asking("REBOOT_NODE", failed)).actions == {"a": "REBOOT_NODE"}
    other = record("no-go", subject="a mlx5_3")
    other["checks"][0]["findings"][0]["fault"] = "rdma.port-down"
    assert after(asking("RESET_GPU", failed), other).actions == {}  # a reset does not fix a port
    again = after(asking("RESET_GPU", failed), record("go"), failed, failed)
    assert (again.bad, again.actions) == (("a",), {})
    passed = asking("RESET_GPU", record("go"))
    assert after(failed, failed, passed).nodes["a"].action == ""
    sweep = completed(swept(a="at fault", b="proven"))
    assert after(asking("CONTACT_SUPPORT", sweep), sweep).actions == {"a": "CONTACT_SUPPORT"}
    entry = {"strikes": 2, "action": "rm -rf"}
    assert NodeHistory.read({"nodes": {"a": entry}}).nodes["a"].action == ""


def test_a_sweep_says_of_each_node_what_it_showed() -> None:
    """Partners of a bad node are not suspects; an untested node keeps its state."""
    state = after(swept(a="at fault", b="proven", c="suspect", d="not tested"))
    assert (state.nodes["a"].strikes, state.nodes["a"].faults) == (1, ("sweep.rail",))
    assert (state.nodes["b"].good, state.nodes["c"].suspect, "d" in state.nodes) == (True, True, False)
    assert after(swept(a="at fault", b="proven"), swept(a="at fault", b="flaky")).bad == ("a",)
    assert not after(swept(a="at fault", b="proven"), swept(a="proven", b="proven")).nodes["a"].strikes


def test_trials_and_failures_are_counted_over_weeks_also_where_a_node_passes_in_between() -> None:
    """A node that fails every second week is never marked bad, but its score shows it. Old weeks expire."""
    state = NodeHistory()
    for week in range(30):
        run = swept(a="proven" if week % 2 else "at fault", b="proven")
        state = NodeHistory.read(json.loads(json.dumps(learn(state, run, now=NOW + WEEK * week).to_dict())))
    assert state.bad == ()
    assert state.nodes["a"].score(NOW + WEEK * 29) == (8, 4)
    assert state.nodes["b"].score(NOW + WEEK * 29) == (8, 0)
    assert len(state.nodes["a"].weeks) == 8
    assert state.nodes["a"].score(NOW + WEEK * 60) == (0, 0)
    text = exposition(record("go"), history=state.series(NOW + WEEK * 29))
    assert 'seatrial_node_failed_trials{node="a"} 4.0' in text


def test_a_node_that_is_never_idle_is_overdue_from_when_it_was_first_seen() -> None:
    """Starvation is reported, also for a node that was never tested, and in metrics of bounded number."""
    state = after(record("go")).watching({"a", "b", "busy"}, NOW)
    state = NodeHistory.read(json.loads(json.dumps(state.to_dict())))
    assert overdue(state, now=NOW + WEEK, limit_s=4 * WEEK) == ()
    state = learn(state, record("go"), now=NOW + 3 * WEEK)
    assert overdue(state, now=NOW + 5 * WEEK, limit_s=4 * WEEK) == ("busy",)
    assert state.series(NOW + 5 * WEEK)["busy"] == (NOW, 0, 0)
    many = NodeHistory({f"n{i}": Watched(tested=NOW + i) for i in range(1500)} | {"old": Watched(tested=1.0)})
    text = exposition(record("go"), history=many.series(NOW))
    assert 'seatrial_node_tested_timestamp_seconds{node="old"} 1.0' in text
    assert text.count("seatrial_node_tested_timestamp_seconds{") == 1000


def test_suspects_are_taken_with_proven_nodes_then_the_oldest() -> None:
    """Idle nodes only, up to a limit, in a stable order for the planner; empty if none is due."""
    state = NodeHistory(
        {
            "bad": Watched(tested=NOW, strikes=1),
            "odd": Watched(tested=NOW - 1, suspect=True),
            **{f"g{i}": Watched(tested=NOW - i, passed=NOW - i) for i in range(4)},
            **{f"old{i}": Watched(tested=NOW - WEEK * (2 + i), passed=1.0) for i in range(5)},
        }
    )
    idle = sorted([*state.nodes, "new"])

    def nodes(*, most: int = 64, among: list[str] = idle, known: NodeHistory = state) -> tuple[str, ...]:
        return next_nodes(known, among, most=most, now=NOW, every_s=WEEK).nodes

    assert nodes() == ("odd", "g0", "bad", "g1", "new", "old4", "old3", "old2", "old1", "old0")
    assert nodes(most=4) == ("odd", "g0", "new", "old4")
    assert nodes(most=2) == ("new", "old4")
    assert nodes(most=2, among=["odd", "bad", "g0"]) == ("odd", "g0")
    assert nodes(among=["g0", "g1", "g2"]) == ()
    assert nodes(among=["old1"]) == ()
    assert nodes(among=["old1", "g3", "g2"]) == ("old1", "g2")
    assert nodes(among=["odd", "bad"]) == ("odd", "bad")
    assert nodes(known=NodeHistory({"a": Watched(tested=NOW + WEEK)}), among=["a", "b"]) == ("a", "b"), (
        "a clock that was ahead"
    )
    chosen = next_nodes(state, idle, most=64, now=NOW, every_s=WEEK)
    assert chosen.why == "of 12 idle nodes 2 under suspicion and 6 due"
    assert "1 idle node" in next_nodes(state, ["old1"], most=64, now=NOW, every_s=WEEK).why
    assert "all 3 idle nodes were tested" in next_nodes(state, ["g0", "g1", "g2"], most=64, now=NOW, every_s=WEEK).why


@pytest.mark.parametrize("most", [2, 3, 4, 8, 9])
def test_many_suspects_do_not_keep_the_oldest_from_their_turn(most: int) -> None:
    """With 40 of 60 nodes permanently suspect, every node is still tested in its turn."""
    names = [f"n{number:02}" for number in range(60)]
    nodes = {name: Watched(tested=NOW, suspect=number < 40, passed=1.0) for number, name in enumerate(names)}
    longest: dict[str, float] = dict.fromkeys(names, 0.0)
    every_s, gap_s = WEEK, 6 * 3600.0
    for run in range(600):
        now = NOW + run * gap_s
        for name in next_nodes(NodeHistory(nodes), names, most=most, now=now, every_s=every_s).nodes:
            longest[name] = max(longest[name], now - nodes[name].tested)
            nodes[name] = dataclasses.replace(nodes[name], tested=now)
    waited = max(*longest.values(), *(now - each.tested for each in nodes.values()))
    assert waited <= every_s + gap_s * 3 * len(names) / most, waited / gap_s


def test_nodes_that_only_an_earlier_sweep_tested_were_tested_then() -> None:
    """For a resumed sweep, each node has the time of its rounds, and never counts twice."""
    run = swept(a="proven", b="proven", c="at fault")
    run["sweep"] |= {
        "resumed": {"ended": "2026-01-02T00:00:00+00:00", "rounds": 2, "run_id": "x"},
        "tests": [{"round": 1, "nodes": ["a", "c"]}, {"round": 3, "nodes": ["b"]}],
    }
    then = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC).timestamp()
    now = then + 5 * 3600
    state = learn(NodeHistory(), run, now=now)
    assert {name: node.tested for name, node in state.nodes.items()} == {"a": then, "b": now, "c": then}
    assert (state.nodes["a"].passed, state.nodes["c"].strikes) == (then, 1)
    again = learn(state, run, now=now + 60)
    assert (again.nodes["a"], again.nodes["c"]) == (state.nodes["a"], state.nodes["c"])
    run["sweep"]["resumed"]["ended"] = "whenever"
    assert set(learn(NodeHistory(), run, now=now).nodes) == {"b"}
