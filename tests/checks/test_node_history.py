"""What a scheduled run remembers: whom it tests, whom it blames, and that one bad moment is no bad node."""

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
    """A run on some nodes; a failed one has a fault on its subject."""
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
    """The state after these runs, an hour apart, read back from JSON each time."""
    state = NodeHistory()
    for hour, run in enumerate(records):
        state = NodeHistory.read(json.loads(json.dumps(learn(state, run, now=NOW + 3600 * hour).to_dict())))
    return state


def test_a_node_is_bad_after_two_strikes_and_never_its_peer() -> None:
    """The first failure is one strike, the second calls it bad; a pass in between takes both away."""
    failed = record("no-go", subject="a GPU 3")
    assert after(failed).bad == ()
    assert after(failed, failed).bad == ("a",)
    assert after(failed, record("go"), failed).bad == ()
    peer = after(failed, failed).nodes["b"]
    assert (peer.tested, peer.strikes, peer.suspect, peer.score(NOW)) == (NOW + 3600, 0, False, (2, 0))


def full(
    fault: str, observed: str = "0 of 8 free", subject: str = "a", *, ok: bool | None = False, **more: str
) -> dict[str, Any]:
    """A run that found no room for a trial; of GPUs in use the verdict is inconclusive, by older versions no-go."""
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
    """That others hold every GPU is no failure; what else keeps a trial away is, at once where the API alone shows it."""
    assert conclude(NodeHistory(), learn(NodeHistory(), run, now=NOW), run)[0] == verdict


def tenant(stage: str = "preflight", outcome: str = "passed") -> Record:
    """A tenant's run that has tried no node: what takes the right to list nodes is skipped, and required."""
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
    """Night after night nothing is due, and what only a trial shows a tenant was shown by one that passed."""
    assert conclude(before, learn(before, run, now=NOW), run)[0] == verdict


def test_a_node_that_is_in_use_or_put_aside_gets_no_strike() -> None:
    """Night after night: it is not called bad for it, and is as good as it was."""
    for fault in ("gpu.taken", "nodes.cordoned", "nodes.tainted"):
        state = after(record("go"), full(fault), full(fault), full(fault))
        assert state.bad == ()
        assert state.nodes["a"].good
    assert after(record("go"), full("gpu.missing"), full("gpu.missing")).bad == ("a",)


def test_a_failed_pair_blames_nobody_until_one_half_is_known() -> None:
    """Both are suspects; beside a node that has passed, the one that fails again gets the strike."""
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
    """Neither is better known than the other."""
    state = after(record("go"), record("no-go", subject="a -> b (ring)"))
    assert [state.nodes[n].suspect for n in "ab"] == [True, True]


def test_a_name_is_not_taken_for_a_longer_one() -> None:
    """gpu-1 is not blamed for gpu-11, nor for gpu-1-b."""
    state = after(record("no-go", ("gpu-1", "gpu-11"), subject="gpu-11 GPU 0"))
    assert [state.nodes[n].strikes for n in ("gpu-1", "gpu-11")] == [0, 1]


def test_an_inconclusive_run_says_nothing_about_any_node() -> None:
    """Drained, blocked, interrupted: no strike, no pass, and not tested either."""
    assert after(record("inconclusive", subject="a")).nodes == {}


def test_only_a_full_run_with_a_trial_is_a_success() -> None:
    """Preflight alone shows no training."""
    assert after(record("go")).last_success == 1767225600
    assert after(record("go", ())).last_success == 0
    assert after({**record("go"), "scope": "partial"}).last_success == 0
    ahead = NodeHistory(last_success=NOW + 1)  # a clock was wrong: an alert on its age would not fire for years
    assert learn(ahead, record("no-go"), now=NOW).last_success == 0


@pytest.mark.parametrize(
    ("state", "idle", "nodes"),
    [
        (NodeHistory(), ["a"], ()),  # the cluster is at work
        (NodeHistory(), ["a", "b", "c"], ("a", "b")),
        (NodeHistory({n: Watched(tested=NOW, passed=NOW) for n in "abc"}), ["a", "b", "c"], ()),
        (NodeHistory({"a": Watched(tested=NOW, passed=NOW)}), ["a", "b"], ("b", "a")),  # a new node beside a good one
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
    """Suspects beside good nodes first, then what was not tested for a week; nothing where nothing is idle or due."""
    chosen = choose(state, idle, need=2, now=NOW, every_s=WEEK)
    assert chosen.nodes == nodes
    assert chosen.why


def test_a_tenants_failed_trial_is_tried_again() -> None:
    """Where no nodes are seen, a trial that passed gives a week's rest; one that failed counts only when it fails again."""

    def chosen(*verdicts: str, later: float = WEEK / 2) -> tuple[str, ...]:
        state = after(*map(record, verdicts))
        return choose_unseen(state, now=NOW + 3600 * len(verdicts) + later, every_s=WEEK).nodes

    assert chosen("go") == ()
    assert chosen("go", later=2 * WEEK) == (ANY,)
    assert chosen("no-go") == (ANY,)
    assert chosen("go", "no-go") == (ANY,)
    assert chosen("no-go", "go") == ()
    assert choose_unseen(after(record("go")), now=NOW - 1, every_s=WEEK).nodes == (ANY,)  # a clock that was ahead


def test_the_trend_needs_a_history() -> None:
    """Ten percent below five accepted runs is told; below four it is not; three percent never is."""

    def notes_of(runs: int, busbw: float) -> list[str]:
        return trend(after(*[record("go") for _ in range(runs)]), record("go", busbw=busbw))

    assert notes_of(4, 300.0) == []
    assert notes_of(5, 370.0) == []
    (text,) = notes_of(5, 342.0)
    assert "a - b: all_reduce ring at 8 GiB: 342 GB/s, 90 % of its usual 380 over 5 runs" in text


def test_what_is_remembered_is_bounded_and_survives_damage() -> None:
    """Thousands of nodes and runs stay within one ConfigMap; keys of the wrong type are forgotten."""
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
    """The record of a sweep that showed this of its nodes."""
    rows = [{"name": name, "state": state} for name, state in states.items()]
    findings = [{"kind": "rail", "names": [n], "rails": [3]} for n, state in states.items() if state == "at fault"]
    verdict = "no-go" if findings else "go" if set(states.values()) <= {"proven", "flaky"} else "inconclusive"
    return {**record(verdict, tuple(states)), "sweep": {"findings": findings, "elements": {"nodes": rows}}}


def asking(action: str, run: Record) -> Record:
    """The same record with what to do with node a."""
    asked = {"node": "a", "action": action, "said": "", "parts": {"a GPU 3": action}}
    return completed({**run, "actions": {"a": asked}})


def test_what_to_do_with_a_bad_node_is_remembered_until_it_passes() -> None:
    """Of its last failure that tells it; a peer has none, and what is written by hand is no action."""
    failed = record("no-go", subject="a GPU 3")
    assert after(asking("RESET_GPU", failed)).actions == {}  # one strike: not bad yet
    assert after(asking("RESET_GPU", failed), failed).actions == {"a": "RESET_GPU"}
    assert after(failed, asking("REBOOT_NODE", failed)).actions == {"a": "REBOOT_NODE"}
    other = record("no-go", subject="a mlx5_3")
    other["checks"][0]["findings"][0]["fault"] = "rdma.port-down"
    assert after(asking("RESET_GPU", failed), other).actions == {}  # a reset mends no port
    again = after(asking("RESET_GPU", failed), record("go"), failed, failed)
    assert (again.bad, again.actions) == (("a",), {})
    passed = asking("RESET_GPU", record("go"))
    assert after(failed, failed, passed).nodes["a"].action == ""
    sweep = completed(swept(a="at fault", b="proven"))
    assert after(asking("CONTACT_SUPPORT", sweep), sweep).actions == {"a": "CONTACT_SUPPORT"}
    entry = {"strikes": 2, "action": "rm -rf"}
    assert NodeHistory.read({"nodes": {"a": entry}}).nodes["a"].action == ""


def test_a_sweep_says_of_each_node_what_it_showed() -> None:
    """Whoever met a bad node is not under suspicion; what was not tested stays as it was."""
    state = after(swept(a="at fault", b="proven", c="suspect", d="not tested"))
    assert (state.nodes["a"].strikes, state.nodes["a"].faults) == (1, ("sweep.rail",))
    assert (state.nodes["b"].good, state.nodes["c"].suspect, "d" in state.nodes) == (True, True, False)
    assert after(swept(a="at fault", b="proven"), swept(a="at fault", b="flaky")).bad == ("a",)
    assert not after(swept(a="at fault", b="proven"), swept(a="proven", b="proven")).nodes["a"].strikes


def test_trials_and_failures_are_counted_over_weeks_also_where_a_node_passes_in_between() -> None:
    """A node that fails every second week is never called bad; its score says it. Old weeks are forgotten."""
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
    """Starvation is told, also of a node that no run has ever tested, and by metrics of bounded number."""
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


def test_suspects_are_taken_beside_proven_nodes_then_the_oldest() -> None:
    """Idle nodes only, at most so many, in an order that the planner keeps to; nothing where nothing is due."""
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
    """Forty of 60 nodes are under suspicion for good: every node is tested in its turn, suspects and others alike."""
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
    """Of a sweep that goes on with another: each node at the time of its rounds, and never twice."""
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
