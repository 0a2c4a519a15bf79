"""The reader of a sweep coordinator's log: its rounds are facts, its own verdict is ignored.

The pure rules of jobs/pod/sweep judge them; a missing result is never a pass. Each pod reports its node's name. The pod
that proves a node, or finds it at fault, must run on that node according to the API server.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from jobs.cluster.json_types import empty
from jobs.cluster.redact import safe
from jobs.pod.sweep.decode import decode
from jobs.pod.sweep.judgement import judge
from jobs.pod.sweep.model import OUTCOMES, Done, Fleet, Nodes, Result, Round, Rules
from jobs.pod.sweep.section import section
from jobs.run.result import TrialResult
from jobs.run.stages.sweep import SweepAgent, SweepFleet, SweepRound, SweepTest, SweptHardware
from jobs.trial.parts import Sweep

from .sweep_texts import NO_HARDWARE, card_of, devices_of, rest_of
from .swept import Earlier, Swept, without

NEVER_JOINED = "its pod did not start, or its agent did not connect"
NO_AGENT = "its pod ran, but its agent did not connect"
ENDED = "its pod ran, and the sweep ended before its turn"


def read_sweep(
    trial: TrialResult, asked: Sweep, rules: Rules, left: Mapping[str, str], earlier: Earlier | None = None
) -> Swept:
    """Judge the rounds that the coordinator's log holds, and those of the sweep that it continues with."""
    stages = trial.evidence[0].stages if 0 in trial.evidence else {}
    fleets: list[SweepFleet] = numbered(stages, "fleet")
    rows: list[SweepRound] = numbered(stages, "round")
    read = [done_of(row) for row in rows]
    elsewhere = misplaced(trial.placed, fleets, _reported(read))
    fresh = [without(done, elsewhere) for done in read]
    latest = fleets[-1] if fleets else empty(SweepFleet)
    arrived = latest["nodes"]  # an excluded node may have become free
    left = {node: why for node, why in left.items() if node not in arrived}
    problem = _problem(trial, stages)
    absent = {node: (ENDED if problem else NO_AGENT) if node in trial.ran else NEVER_JOINED for node in asked.nodes}
    absent |= {node: why for node, why in _unmet(trial).items() if node in absent}
    fleet, history = _fleet(absent, asked, latest, left, elsewhere), [*(earlier.history if earlier else ()), *fresh]
    rails = {str(node): list(names) for node, names in latest["rails"].items()}
    hardware = _hardware(rows)
    now, reported = _reported(fresh), _reported(history)
    tested = tuple(node for node in fleet.nodes if node in reported)
    return Swept(
        job=trial.job,
        asked=tuple(node for node in fleet.nodes if node not in left),
        tested=tested,
        left=left,
        blame=decode(fleet, rules, history),
        section=_section(section(fleet, rules, history), fleet.leaves, rails, hardware, earlier),
        leaves=fleet.leaves,
        rails=rails,
        rounds=len(history),
        problem=problem,
        failure=trial.analysis,
        end=cast("SweepTest | None", stages.get("sweep.job")),
        said=_said(rows),
        writes={tuple(test["nodes"]): writes for test in _tests(rows) if (writes := test["writes"])},
        hardware=hardware,
        training=_alone(stages, "training", elsewhere),
        dcgm=_alone(stages, "dcgm", elsewhere),
        errors=_errors(rows),
        paths=_grades(fleet, rules, history),
        misplaced=elsewhere,
        earlier=earlier,
        only_earlier=tuple(node for node in tested if node not in now),
    )


def _unmet(trial: TrialResult) -> dict[str, str]:
    """Return by node the reason, reported by its pod, why its agent did not reach the coordinator."""
    why: dict[str, str] = {}
    for node, ranks in trial.placed.items():
        for rank in ranks & trial.evidence.keys():
            reports: list[SweepAgent] = numbered(trial.evidence[rank].stages, "agent")
            if reports:
                where, error = reports[-1]["address"], reports[-1]["error"]
                why[node] = f"its pod ran, but its agent did not reach rank 0's pod at {where}: {safe(error, 200)}"
    return why


def numbered(stages: Mapping[str, Any], kind: str) -> list[Any]:
    """Return the stages ``sweep.KIND.N``, in the order of their numbers."""
    numbers = {name: re.fullmatch(rf"sweep\.{kind}\.(\d{{1,6}})", name) for name in stages}
    return [stages[name] for _, name in sorted((int(match[1]), name) for name, match in numbers.items() if match)]


def _fleet(
    absent: Mapping[str, str], asked: Sweep, latest: SweepFleet, left: Mapping[str, str], elsewhere: Mapping[str, str]
) -> Fleet:
    """Return all nodes that were requested, connected, excluded or named; and why some are gone.

    ``absent``: node without an agent -> reason.
    """
    listed = [str(node) for node in latest["nodes"]]
    arrived = listed if latest["ranks"] is None else latest["ranks"]  # a listed node without a rank did not connect
    nodes = tuple(dict.fromkeys((*asked.nodes, *listed, *left, *elsewhere)))
    gone = {str(node): str(why) for node, why in latest["gone"].items()}
    gone |= {node: why for node, why in absent.items() if node not in arrived}
    gone |= {node: f"left alone: {why}" for node, why in left.items()}
    leaves = {node: asked.leaves[node] for node in nodes if node in asked.leaves}
    return Fleet(nodes, leaves, {**gone, **elsewhere})


def _grades(fleet: Fleet, rules: Rules, history: Sequence[Done]) -> dict[Nodes, frozenset[str]]:
    """Return by pair the grades of its tests; slow tests in a round that disturbed itself are not judged."""
    grades: dict[Nodes, frozenset[str]] = {}
    for each in judge(fleet, rules, history).judged:
        if len(each.nodes) == 2:
            grades[each.nodes] = grades.get(each.nodes, frozenset()) | {each.grade}
    for done in history:
        grades |= {test: frozenset() for test in done.round.tests if len(test) == 2 and test not in grades}
    return grades


def _tests(rows: Iterable[SweepRound]) -> Iterator[SweepTest]:
    return (test for row in rows for test in row["tests"])


def _said(rows: Iterable[SweepRound]) -> dict[Nodes, tuple[str, ...]]:
    """Return the nodes' reports by test."""
    return {
        tuple(test["nodes"]): tuple(f"{node}: {text}" for node, text in why.items())
        for test in _tests(rows)
        if (why := test["why"])
    }


def _hardware(rows: Iterable[SweepRound]) -> dict[str, SweptHardware]:
    """Return by node its GPUs and NICs, as reported by its test alone."""
    alone = (test for test in _tests(rows) if len(test["nodes"]) == 1)
    return {test["nodes"][0]: hardware for test in alone if (hardware := test["hardware"])}


def _errors(rows: Iterable[SweepRound]) -> dict[str, Counter[str]]:
    """Return by node the port counters that grew, over all tests."""
    errors: dict[str, Counter[str]] = {}
    for test in _tests(rows):
        for node, grown in test["errors"].items():
            errors.setdefault(node, Counter()).update(grown)
    return errors


def _section(
    made: Mapping[str, Any],
    leaves: Mapping[str, str],
    rails: Mapping[str, Sequence[str]],
    hardware: Mapping[str, SweptHardware],
    earlier: Earlier | None,
) -> dict[str, Any]:
    """Return a sweep's section with the hardware, the run that it resumed, and the meaning of its findings' names.

    Each finding gets the result of its leaf's other nodes; a finding about a rail gets its devices and NICs.
    """
    for each in made["findings"]:
        each["rest"] = rest_of(made, each["names"], leaves)
        if each["kind"] == "rail":
            node = each["names"][0]
            each["devices"] = devices_of(rails, node, each["rails"])
            own = hardware.get(node, NO_HARDWARE)
            each["cards"] = [card for name in each["devices"] if (card := card_of(own, name))]
    if earlier is None:
        return {**made, "hardware": hardware}
    resumed = {
        "run_id": earlier.run_id,
        "started": earlier.started.isoformat(timespec="seconds"),
        "ended": earlier.ended.isoformat(timespec="seconds"),
        "rounds": len(earlier.history),
    }
    return {**made, "hardware": hardware, "resumed": resumed}


def _alone(stages: Mapping[str, Any], kind: str, elsewhere: Mapping[str, str]) -> dict[str, Any]:
    """Return by node its last report in stages of this kind."""
    return {node: told for told in numbered(stages, kind) if (node := str(told.get("node"))) not in elsewhere}


def _reported(history: Sequence[Done]) -> set[str]:
    return {node for done in history for result in done.results.values() for node in result.reported}


def done_of(row: SweepRound) -> Done:
    """Parse a round; a test in an unexpected format has no result."""
    results: dict[Nodes, Result] = {}
    for test in row["tests"]:
        nodes = tuple(str(node) for node in test["nodes"])
        outcome = test["outcome"]
        results[nodes] = Result(
            outcome if outcome in OUTCOMES else "nothing",
            number_of(test["busbw"]),
            tuple(number_of(value) for value in test["rails"]),
            tuple(nodes if test["reported"] is None else test["reported"]),
            tuple(str(node) for node in test["at"]),
        )
    number, stage = int(row["number"] or 0), int(row["stage"] or 0)
    return Done(Round(number, stage, tuple(results)), results, number_of(row["seconds"]) or 0.0)


def number_of(value: Any) -> float | None:
    """Return a number as it is, None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _problem(trial: TrialResult, stages: Mapping[str, Any]) -> str:
    """Explain why the sweep did not complete; '' if the coordinator's log is complete."""
    evidence = trial.evidence.get(0)
    if trial.analysis is not None:
        return trial.analysis.observed
    if evidence is None or not stages:
        return f"the coordinator reported nothing{f': {evidence.problem}' if evidence and evidence.problem else ''}"
    if evidence.missing:
        return f"{len(evidence.missing)} lines of the coordinator's log are missing"
    if evidence.problem:
        return evidence.problem
    end = stages.get("sweep.end")
    if end is None:
        return "the coordinator ended before the sweep did"
    return str(end["why"] or "")


def misplaced(
    placed: Mapping[str, Collection[int]], fleets: Iterable[SweepFleet], reported: Collection[str]
) -> dict[str, str]:
    """Return the nodes in results or agents' reports on which the reporting pod never ran, and why.

    `placed`: node -> indexes of the pods that were bound to it; `fleets`: the coordinator's report on its agents.
    """
    claimed: dict[str, set[int]] = {node: set() for node in reported}
    for fleet in fleets:
        for node, rank in (fleet["ranks"] or {}).items():
            claimed.setdefault(str(node), set()).add(rank)
    elsewhere = {}
    for node, ranks in sorted(claimed.items()):
        there = set(placed.get(node, ()))
        if not there:
            elsewhere[node] = "results name it, but according to the API server no pod of the sweep ran on it"
        elif ranks - there:
            said, known = (", ".join(map(str, sorted(each))) for each in (ranks - there, there))
            elsewhere[node] = (
                f"the pod with index {said} reports to run there, but by the API server index {known} does"
            )
    return elsewhere
