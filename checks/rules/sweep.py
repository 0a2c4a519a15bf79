"""Judges a sweep over a fleet by what its coordinator told: the pure rules of jobs/pod/sweep, turned into findings.

The coordinator's rounds are facts; its own opinion is not read. What is missing of them is never a pass.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from jobs.diagnosis.state import ERR_INFRA
from jobs.pod.sweep.decode import NO_GO, decode
from jobs.pod.sweep.judgement import FAIL, HARD, PASS, UNCLEAR, judge
from jobs.pod.sweep.model import MEASURED, OUTCOMES, Done, Fleet, Result, Round
from jobs.pod.sweep.section import section
from reports.record import Finding

from .sweep_placed import misplaced
from .sweep_told import EXPECTED, SHOWN, accused, card_of, devices_of, names_of, rest_of
from .swept import Earlier, Swept, without

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobs.pod.sweep.model import Nodes, Rules
    from jobs.run.result import TrialResult
    from jobs.run.stages.sweep import SweepTraining
    from jobs.trial.parts import Sweep

    from ..profiles.loader import Profile

GROUPS = "sweep.groups"
ROUND = re.compile(r"sweep\.round\.(\d{1,6})")
TRAINING = re.compile(r"sweep\.training\.(\d{1,6})")
FLEET = re.compile(r"sweep\.fleet\.(\d{1,6})")
MOST_TEXT = 600
NEVER_CAME = "its pod did not start, or its agent did not come"


def read_sweep(
    trial: TrialResult,
    asked: Sweep,
    rules: Rules,
    before: Sequence[Done],
    left: Mapping[str, str],
    earlier: Earlier | None = None,
) -> Swept:
    """Judge the rounds that the coordinator's log holds, and those of the sweep that it goes on with."""
    evidence = trial.evidence.get(0)
    stages = evidence.stages if evidence else {}
    fleets = [stages[name] for name in sorted((n for n in stages if FLEET.fullmatch(n)), key=_number)]
    told = fleets[-1] if fleets else {}
    gone = {str(node): str(why) for node, why in (told.get("gone") or {}).items()}
    left = {node: why for node, why in left.items() if node not in (told.get("nodes") or ())}  # one may have come free
    nodes = (*asked.nodes, *(str(node) for node in told.get("nodes") or () if node not in asked.nodes))
    gone |= {node: NEVER_CAME for node in asked.nodes if node not in (told.get("nodes") or ())}
    gone |= {node: f"left alone: {why}" for node, why in left.items()}
    nodes += tuple(node for node in left if node not in nodes)
    leaves = {node: asked.leaves[node] for node in nodes if node in asked.leaves}
    rows = [stages[name] for name in sorted((n for n in stages if ROUND.fullmatch(n)), key=_number)]
    fresh = [done_of(row) for row in rows]
    elsewhere = misplaced(trial.placed, fleets, _reported(fresh))
    fresh = [without(done, elsewhere) for done in fresh]
    nodes += tuple(node for node in elsewhere if node not in nodes)
    fleet = Fleet(nodes, leaves, {**gone, **elsewhere})
    history = [*before, *fresh]
    blame = decode(fleet, rules, history)
    reported, now = _reported(history), _reported(fresh)
    paths: dict[Nodes, frozenset[str]] = {}
    for each in judge(fleet, rules, history).judged:
        if len(each.nodes) == 2:
            paths[each.nodes] = paths.get(each.nodes, frozenset()) | {each.grade}
    for done in history:  # the slow tests of a round that disturbed itself are not judged
        paths |= {test: frozenset() for test in done.round.tests if len(test) == 2 and test not in paths}
    said: dict[Nodes, tuple[str, ...]] = {}
    hardware: dict[str, Mapping[str, Any]] = {}
    errors: dict[str, Counter[str]] = {}
    for row in rows:
        for test in row.get("tests") or ():
            for node, grown in (test.get("errors") or {}).items():
                errors.setdefault(node, Counter()).update(grown)
            if len(test["nodes"]) == 1 and test.get("hardware"):
                hardware[test["nodes"][0]] = test["hardware"]
            texts = tuple(f"{node}: {text}" for node, text in (test.get("why") or {}).items())
            if texts:
                said[tuple(test["nodes"])] = texts
    failed = trial.analysis
    made: dict[str, Any] = {**section(fleet, rules, history), "hardware": hardware}
    rails = {str(node): list(names) for node, names in (told.get("rails") or {}).items()}
    for each in made["findings"]:
        each["rest"] = rest_of(made, each["names"], leaves)
        if each["kind"] == "rail":
            node = each["names"][0]
            each["devices"] = devices_of(rails, node, each["rails"])
            each["cards"] = [card for name in each["devices"] if (card := card_of(hardware.get(node, {}), name))]
    if earlier:
        made["resumed"] = {
            "run_id": earlier.run_id,
            "started": earlier.started.isoformat(timespec="seconds"),
            "ended": earlier.ended.isoformat(timespec="seconds"),
            "rounds": len(before),
        }
    tested = tuple(node for node in nodes if node in reported)
    return Swept(
        job=trial.job,
        asked=tuple(node for node in nodes if node not in left),
        tested=tested,
        left=left,
        blame=blame,
        section=made,
        leaves=leaves,
        rails=rails,
        rounds=len(history),
        problem=_problem(trial, stages),
        fault=failed.fault if failed else "",
        at=failed.subject if failed and failed.fault == "node.lost" else "",
        infra=failed is not None and failed.err_class == ERR_INFRA and not failed.disrupted,
        end=stages.get("sweep.job"),
        said=said,
        hardware=hardware,
        training=_trained(stages, elsewhere),
        errors=errors,
        paths=paths,
        misplaced=elsewhere,
        earlier=earlier,
        only_earlier=tuple(node for node in tested if node not in now),
    )


def _trained(stages: Mapping[str, Any], elsewhere: Mapping[str, str]) -> dict[str, SweepTraining]:
    """Return each node's training steps alone: the last that it told of."""
    names = sorted((name for name in stages if TRAINING.fullmatch(name)), key=_number)
    told: list[SweepTraining] = [stages[name] for name in names]
    return {node: steps for steps in told if (node := str(steps.get("node"))) not in elsewhere}


def _reported(history: Sequence[Done]) -> set[str]:
    return {node for done in history for result in done.results.values() for node in result.reported}


def _number(name: str) -> int:
    return int(name.rpartition(".")[2])


def done_of(row: Mapping[str, Any]) -> Done:
    """Read a round; a test that is not as the coordinator prints it has measured nothing."""
    results: dict[Nodes, Result] = {}
    for test in row.get("tests") or ():
        nodes = tuple(str(node) for node in test["nodes"])
        outcome = test.get("outcome")
        results[nodes] = Result(
            outcome if outcome in OUTCOMES else "nothing",
            _value(test.get("busbw")),
            tuple(_value(value) for value in test.get("rails") or ()),
            tuple(str(node) for node in test.get("reported", nodes)),
            tuple(str(node) for node in test.get("at") or ()),
        )
    number, stage = int(row.get("number") or 0), int(row.get("stage") or 0)
    return Done(Round(number, stage, tuple(results)), results, _value(row.get("seconds")) or 0.0)


def _value(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _problem(trial: TrialResult, stages: Mapping[str, Any]) -> str:
    """Say why the sweep did not come to its end; empty where the coordinator told it whole."""
    evidence = trial.evidence.get(0)
    if trial.analysis is not None:
        return trial.analysis.observed
    if evidence is None or not stages:
        return f"the coordinator told nothing{f': {evidence.problem}' if evidence and evidence.problem else ''}"
    if evidence.missing:
        return f"{len(evidence.missing)} lines of the coordinator's log are missing"
    if evidence.problem:
        return evidence.problem
    end = stages.get("sweep.end")
    if end is None:
        return "the coordinator ended before the sweep did"
    return str(end.get("why") or "")


def ran_findings(swept: Swept) -> Iterator[Finding]:
    """Judge whether the sweep came to its end and tested every node that it was given."""
    whole = not swept.problem
    rounds = f"{swept.rounds} round{'' if swept.rounds == 1 else 's'}"
    if swept.earlier:
        rounds += f" ({len(swept.earlier.history)} of {swept.rounds} rounds are of {swept.earlier})"
    yield Finding(
        subject=swept.at or swept.job,
        ok=True if whole else False if swept.infra else None,
        observed=rounds if whole else f"{rounds}, then: {swept.problem}",
        expected="the plan comes to its end",
        fault="" if whole else swept.fault or "sweep.not-tested",
    )
    for node in dict.fromkeys((*swept.asked, *swept.left, *swept.misplaced)):
        if node in swept.misplaced:
            expected = "results are of nodes on which a pod of the sweep runs, as the API server tells"
            why = swept.misplaced[node]
            yield Finding(subject=node, ok=None, observed=why, expected=expected, fault="sweep.misplaced")
            continue
        if node not in swept.tested:
            why = swept.blame.not_tested.get(node, NEVER_CAME)
        elif node in swept.blame.not_tested:
            why = swept.blame.not_tested[node]
        else:
            by = f"tested, in rounds of {swept.earlier} only" if node in swept.only_earlier else "tested"
            yield Finding(subject=node, ok=True, observed=by, expected="alone and in pairs")
            continue
        yield Finding(subject=node, ok=None, observed=why, expected="alone and in pairs", fault="sweep.not-tested")
    if not swept.blame.findings and swept.blame.verdict != NO_GO:
        for reason in _open(swept):
            complete = "every node alone and in pairs, and nothing left undecided"
            yield Finding(subject=swept.job, ok=None, observed=reason, expected=complete, fault="sweep.not-tested")


def _open(swept: Swept) -> list[str]:
    """Return why the fleet is no go, besides what is said of single nodes and elements."""
    told = {each.why for each in swept.blame.apart}  # link_findings says it
    return [r for r in swept.blame.reasons if not r.startswith(("not proven ", "suspect ")) and r not in told]


def node_findings(swept: Swept) -> Iterator[Finding]:
    """Judge the fleet as a whole, where it fails and nobody is at fault, then every node that was tested."""
    if not swept.blame.findings and swept.blame.verdict == NO_GO:
        observed = "; ".join(_open(swept))[:MOST_TEXT]
        yield Finding(
            subject=f"fleet of {len(swept.tested)}", ok=False, observed=observed, expected=EXPECTED, fault="sweep.fleet"
        )
        if not swept.blame.proven:
            return  # all are suspects alike
    named = {f.names[0]: f for f in swept.blame.findings if f.kind in ("node", "rail")}
    for node in dict.fromkeys((*swept.tested, *named)):
        if node in named:
            yield accused(swept, named[node])
        elif node in swept.blame.suspects:
            observed = f"suspect: {swept.blame.suspects[node]}"
            yield Finding(subject=node, ok=None, observed=observed, expected=EXPECTED, fault="sweep.suspect")
        elif node in swept.blame.proven:
            yield Finding(subject=node, ok=True, observed="passed with proven partners", expected=EXPECTED)


def link_findings(swept: Swept) -> Iterator[Finding]:
    """Judge what lies between nodes: uplinks of leaves, and the paths of single pairs."""
    found = [f for f in swept.blame.findings if f.kind in ("uplink", "pair")]
    for each in found:
        yield accused(swept, each)
    for each in swept.blame.apart:
        expected = "the groups of a fleet are as fast with each other as inside, or labels say what they are"
        yield Finding(subject=names_of(each.names), ok=None, observed=each.why, expected=expected, fault=GROUPS)
    if swept.unlabelled:
        expected = "leaves are known: the profile names their label (topology.leaf_label)"
        observed = f"{names_of(swept.unlabelled)} lack it: pairs were drawn without leaves, and no uplink was tested"
        yield Finding(subject="leaves", ok=None, observed=observed, expected=expected)
    bad = {each.names for each in found}
    for leaf in sorted(set(swept.leaves.values())):
        if not any(leaf in names for names in bad):
            row = next((r for r in swept.section["elements"]["uplinks"] if r["leaf"] == leaf), {"state": "proven"})
            ok = True if row["state"] == "proven" else None
            yield Finding(subject=f"uplink of {leaf}", ok=ok, observed=row["state"], expected=EXPECTED)
    if swept.paths:
        yield _paths(swept)


def _paths(swept: Swept) -> Finding:
    """Count the pairs: one passes by a pass of its own, and is decided where what is accused explains its failures.

    A value between the thresholds neither clears a pair nor accuses it: it is counted, and no pass.
    """
    nodes = {each.names[0] for each in swept.blame.findings if each.kind in ("node", "rail")}
    leaves = {name for each in swept.blame.findings if each.kind == "uplink" for name in each.names}
    bad = {each.names for each in swept.blame.findings if each.kind == "pair"}
    counted = dict.fromkeys(("passed", "explained", "failed", "unclear", "nothing"), 0)
    for pair, grades in swept.paths.items():
        ways = {swept.leaves.get(node, "") for node in pair}
        if pair in bad or nodes & set(pair) or (len(ways) > 1 and ways & leaves):
            counted["explained" if pair in bad or PASS not in grades else "passed"] += 1
        elif HARD in grades or (FAIL in grades and PASS not in grades):
            counted["failed"] += 1
        else:
            counted["passed" if PASS in grades else "unclear" if UNCLEAR in grades else "nothing"] += 1
    told = [f"{counted['passed']} of {len(swept.paths)} pairs passed"]
    for name, words in (
        ("explained", "failed or did not end, by what is named at fault"),
        ("failed", "failed and are not decided"),
        ("unclear", "are too slow to clear and too fast to accuse"),
        ("nothing", "measured nothing"),
    ):
        if counted[name]:
            told.append(f"{counted[name]} {words}")
    open_ = counted["failed"] or counted["nothing"] or not (counted["passed"] or counted["explained"])
    return Finding(
        subject="paths",
        ok=None if open_ else True,
        observed="; ".join(told),
        expected="each passes, or what is named at fault explains it",
    )


def scale_findings(swept: Swept, profile: Profile) -> Iterator[Finding]:
    """Judge the one job over all nodes that passed alone and in pairs."""
    end = swept.end or {}
    count = len(end.get("nodes") or ())
    subject, expected = f"all_reduce of {count} nodes", "it ends, with right sums over the right transport"
    told = "; ".join(f"{node}: {text}" for node, text in (end.get("why") or {}).items())
    if end.get("outcome") != MEASURED:
        known = end.get("outcome") in OUTCOMES and end.get("outcome") != "nothing"
        observed = f"{end.get('outcome')}" + (f" ({told})" if told else "")
        yield Finding(
            subject=subject, ok=False if known else None, observed=observed, expected=expected, fault="sweep.scale"
        )
        return
    if why := _not_whole(swept, end):
        yield Finding(subject=subject, ok=None, observed=why, expected=expected, fault="sweep.scale")
        return
    rows = _rows(end)
    floors = [f for f in profile.floor("all_reduce", "ring", count) if int(f.size) in rows]
    for each in floors:
        value = rows[int(each.size)]
        ok = value >= each.busbw_gbps
        fault = "" if ok else "sweep.scale"
        yield Finding(
            subject=subject, ok=ok, observed=f"{value:g}", expected=f"{each.busbw_gbps:g}", fault=fault, unit="GB/s"
        )
    if not floors:
        yield _against_pairs(swept, subject, float(end["busbw"]))


def _not_whole(swept: Swept, end: Mapping[str, Any]) -> str:
    """Say what is missing of the job over all nodes before it can be judged; '' where nothing is."""
    nodes = {str(node) for node in end.get("nodes") or ()}
    told = {str(node) for node in end.get("reported", nodes) or ()}
    if elsewhere := sorted(nodes & swept.misplaced.keys()):
        return f"it names nodes on which no pod of the sweep was: {', '.join(elsewhere[:SHOWN])}"
    if silent := sorted(nodes - told):
        return f"{len(silent)} of {len(nodes)} nodes reported nothing: {', '.join(silent[:SHOWN])}"
    if left := [node for node in swept.blame.proven if node not in nodes]:
        count = len(swept.blame.proven)
        return f"{count - len(left)} of {count} nodes that passed ran it; it lacks {', '.join(left[:SHOWN])}"
    value = _value(end.get("busbw"))
    if value is None or not math.isfinite(value) or not _rows(end):
        return "it ended, and its busbw was not reported"
    return ""


def _rows(end: Mapping[str, Any]) -> dict[int, float]:
    """Return the busbw of each size in GB/s, of the rows that are finite."""
    found = {}
    for row in end.get("rows") or ():
        size, value = (_value(each) for each in row[:2]) if isinstance(row, list) and len(row) == 3 else (None, None)
        if size is not None and value is not None and math.isfinite(size) and math.isfinite(value):
            found[int(size)] = value
    return found


def _against_pairs(swept: Swept, subject: str, value: float) -> Finding:
    """Hold a job for which there is no floor against what pairs reach: far below them is no fault yet, and no pass."""
    levels = {row["kind"]: row["busbw_gbps"] for row in swept.section["levels"] if row["rail"] is None}
    level, floor = levels.get("across leaves", levels.get("in a leaf")), swept.section["rules"]["pair_floor"]
    accuses = swept.section["rules"]["accuses"]
    told, limits = [f"{value:g} GB/s; no floor for so many nodes"], []
    if level:
        told.append(f"{value / level:.2f} of what pairs reach")
        limits.append(accuses * level)
    if floor:
        told.append(f"the floor of pairs is {floor:g}")
        limits.append(floor)
    if not limits:
        told.append("and no pair to compare with")
    ok = True if limits and value >= max(limits) else None
    named = [each for each in swept.blame.findings if each.kind in ("uplink", "pair")]
    if not ok and named:
        told.append(f"it may have run over {' - '.join(named[0].names)}, at fault by itself (sweep.{named[0].kind})")
    return Finding(
        subject=subject,
        ok=ok,
        observed="; ".join(told),
        expected=f"{max(limits):.4g} GB/s" if limits else "what pairs reach",
        fault="" if ok or named else "sweep.scale",
    )
