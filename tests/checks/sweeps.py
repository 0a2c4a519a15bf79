"""Sweeps over synthetic fleets, as their coordinator reports them."""

from dataclasses import replace
from typing import Any

from checks.profiles.loader import load_profile
from checks.rules.sweep import link_findings, node_findings, ran_findings
from checks.rules.sweep_reading import read_sweep
from jobs.diagnosis.state import JobState
from jobs.pod.stages.coordinator import RELEASED
from jobs.pod.sweep.decode import spare
from jobs.pod.sweep.model import Done, Result, Rules
from jobs.pod.sweep.model import Fleet as PlannedFleet
from jobs.pod.sweep.plan import next_round
from jobs.run.evidence import RankEvidence
from jobs.run.result import TrialResult
from jobs.trial.parts import Sweep
from tests.by_hand import Stages

RULES = Rules(pair_floor=300.0, node_floor=400.0)


PROFILE = load_profile("h100-ib")


def printed(nodes, speed, *, rounds=99, leaves=(), alone=lambda node: 480.0, release=False, pinned=()):
    """Return the stages that a coordinator prints for a fleet in which `speed(pair)` is a pair's busbw or an outcome.

    `pinned`: the rate of each rail in every pair. With `release` it releases nodes that it no longer needs, as with
    --no-scale.
    """
    names = tuple(f"node-{n}" for n in range(nodes))
    fleet = PlannedFleet(names, dict(leaves))
    stages: dict[str, dict[str, Any]] = {}
    history: list[Done] = []
    rails = {name: [f"mlx5_{n}" for n in range(8)] for name in names}
    stages["sweep.fleet.1"] = {"nodes": list(names), "leaves": dict(leaves), "rails": rails}
    while (each := next_round(fleet, RULES, history)) is not None and len(history) < rounds:
        if release and (spared := spare(fleet, RULES, history, each, {names[0]})):
            fleet = replace(fleet, gone={**fleet.gone, **dict.fromkeys(spared, RELEASED)})
            count = sum(name.startswith("sweep.fleet.") for name in stages) + 1
            stages[f"sweep.fleet.{count}"] = {**stages["sweep.fleet.1"], "gone": dict(fleet.gone)}
        results, rows = {}, []
        for test in each.tests:
            value = alone(test[0]) if len(test) == 1 else speed(test)
            of_rails = list(pinned) if len(test) > 1 else []
            row: dict[str, Any] = {"nodes": list(test), "outcome": "measured", "busbw": value, "rails": of_rails}
            if isinstance(value, str):
                row = {"nodes": list(test), "outcome": value, "why": {test[0]: "it said why"}}
            elif value is None:
                row = {"nodes": list(test), "outcome": "nothing", "reported": []}
            rows.append(row)
            reported = tuple(row.get("reported", test))
            results[test] = Result(row["outcome"], row.get("busbw"), tuple(row.get("rails", ())), reported)
        history.append(Done(each, results))
        stages[f"sweep.round.{each.number}"] = {
            "number": each.number,
            "stage": each.stage,
            "seconds": 1.0,
            "tests": rows,
        }
    stages["sweep.end"] = {"why": ""}
    stages["end"] = {"seconds": 1.0, "stopped": None}
    return names, stages


def swept(
    names, stages, *, analysis=None, leaves=(), left=(), earlier=None, placed=None, ran=(), agents=(), **evidence
):
    made = Sweep(token="t", nodes=tuple(names), leaves=dict(leaves))
    evidence_of = {0: RankEvidence(rank=0, stages=Stages(stages), **evidence)} if stages is not None else {}
    evidence_of |= dict(agents)
    where = {"placed": on([*names, *dict(left)]) if placed is None else placed, "state": JobState.COMPLETE}
    trial = TrialResult(job="seatrial-x", evidence=evidence_of, analysis=analysis, ran=frozenset(ran), **where)
    return read_sweep(trial, made, RULES, dict(left), earlier)


def on(nodes):
    """Return the placement that the API server reports: pod n on the n-th node."""
    return {node: frozenset({rank}) for rank, node in enumerate(nodes)}


def everything(sweep):
    return [*ran_findings(sweep), *node_findings(sweep), *link_findings(sweep)]
