"""Findings of a sweep over a fleet, which the pure rules of jobs/pod/sweep have judged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from jobs.cluster.json_types import empty
from jobs.pod.sweep.decode import NO_GO
from jobs.pod.sweep.judgement import FAIL, HARD, PASS, UNCLEAR
from jobs.pod.sweep.model import MEASURED, OUTCOMES
from jobs.run.stages.sweep import SweepTest
from reports.record import Finding

from ..profiles.loader import Profile
from .findings import compared, failed, passed, proven, unknown
from .sweep_reading import NEVER_JOINED, number_of
from .sweep_texts import EXPECTED, SHOWN, accused, devices_of, names_of
from .swept import Swept

MOST_TEXT = 600
APART = {
    "sweep.groups": "the groups of a fleet are as fast with each other as inside, or labels explain them",
    "sweep.plane": "all rails are equally fast",
    "sweep.noise": "tests of a kind differ by less than a fault does",
}


def ran_findings(swept: Swept) -> Iterator[Finding]:
    """Judge whether the sweep completed and tested every node that it was given."""
    whole = not swept.problem
    rounds = f"{swept.rounds} round{'' if swept.rounds == 1 else 's'}"
    if swept.earlier:
        rounds += f" ({len(swept.earlier.history)} of {swept.rounds} rounds are of {swept.earlier})"
    observed = rounds if whole else f"{rounds}, then: {swept.problem}"
    if untested := swept.section.get("untested"):
        observed += f"; no round tested {untested}"
    yield Finding(
        subject=swept.at or swept.job,
        ok=True if whole else False if swept.infra else None,
        observed=observed,
        expected="the plan is completed",
        fault="" if whole else swept.fault or "sweep.not-tested",
    )
    for node in dict.fromkeys((*swept.asked, *swept.left, *swept.misplaced)):
        if node in swept.misplaced:
            expected = "every result is from a node that runs a pod of the sweep, as the API server reports"
            yield unknown(node, swept.misplaced[node], expected, fault="sweep.misplaced")
            continue
        if node not in swept.tested:
            why = swept.blame.not_tested.get(node, NEVER_JOINED)
        elif node in swept.blame.not_tested:
            why = swept.blame.not_tested[node]
        else:
            by = f"tested, in rounds of {swept.earlier} only" if node in swept.only_earlier else "tested"
            yield passed(node, by, "alone and in pairs")
            continue
        yield unknown(node, why, "alone and in pairs", fault="sweep.not-tested")
    if not swept.blame.findings and swept.blame.verdict != NO_GO:
        for reason in _open(swept):
            complete = "every node alone and in pairs, and nothing left undecided"
            yield unknown(swept.job, reason, complete, fault="sweep.not-tested")


def _open(swept: Swept) -> list[str]:
    """Return the reasons why the fleet is not go, except findings about single nodes and elements."""
    group_reasons = {each.why for each in swept.blame.apart}  # reported by link_findings
    return [r for r in swept.blame.reasons if not r.startswith(("not proven ", "suspect ")) and r not in group_reasons]


def node_findings(swept: Swept) -> Iterator[Finding]:
    """Judge the fleet as a whole if it fails without a named fault, then every tested node."""
    if not swept.blame.findings and swept.blame.verdict == NO_GO:
        observed = "; ".join(_open(swept))[:MOST_TEXT]
        yield failed(f"fleet of {len(swept.tested)}", observed, EXPECTED, "sweep.fleet")
        if not swept.blame.proven:
            return  # all nodes are suspects
    named = {f.names[0]: f for f in swept.blame.findings if f.kind in ("node", "rail")}
    for node in dict.fromkeys((*swept.tested, *named)):
        if node in named:
            yield accused(swept, named[node])
        elif node in swept.blame.suspects:
            observed = f"suspect: {swept.blame.suspects[node]}"
            yield unknown(node, observed, EXPECTED, fault="sweep.suspect")
        elif node in swept.blame.proven:
            yield passed(node, "passed with proven partners", EXPECTED)


def link_findings(swept: Swept) -> Iterator[Finding]:
    """Judge the paths between nodes: the uplinks of leaves, and the paths of single pairs."""
    accusations = [f for f in swept.blame.findings if f.kind in ("uplink", "pair")]
    for each in accusations:
        yield accused(swept, each)
    for each in swept.blame.apart:
        fault = "sweep.noise" if each.kind == "noise" else "sweep.plane" if each.rails else "sweep.groups"
        subject = names_of(each.names)
        if each.rails:
            devices = ", ".join(devices_of(swept.rails, each.names[0], each.rails))
            subject = f"rail{'s' if len(each.rails) > 1 else ''} {devices} of {subject}"
        yield unknown(subject, each.why, APART[fault], fault=fault)
    if swept.unlabelled:
        expected = "leaves are known: the profile names their label (topology.leaf_label)"
        observed = f"{names_of(swept.unlabelled)} lack it: pairs were drawn without leaves, and no uplink was tested"
        yield unknown("leaves", observed, expected)
    bad = {each.names for each in accusations}
    for leaf in sorted(set(swept.leaves.values())):
        if not any(leaf in names for names in bad):
            row = next((r for r in swept.section["elements"]["uplinks"] if r["leaf"] == leaf), {"state": "proven"})
            yield proven(f"uplink of {leaf}", row["state"] == "proven", row["state"], EXPECTED)
    if swept.paths:
        yield _paths(swept)


def _paths(swept: Swept) -> Finding:
    """Count the pairs. A pair passes by its own result, and is decided if a named fault explains its failures.

    A value between the thresholds neither passes nor fails a pair: it is counted, but not as a pass.
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
    parts = [f"{counted['passed']} of {len(swept.paths)} pairs passed"]
    for name, text in (
        ("explained", "failed or did not end because of a named fault"),
        ("failed", "failed without a decision"),
        ("unclear", "between the limits of a pass and a failure"),
        ("nothing", "measured nothing"),
    ):
        if counted[name]:
            parts.append(f"{counted[name]} {text}")
    open_ = counted["failed"] or counted["nothing"] or not (counted["passed"] or counted["explained"])
    return proven("paths", not open_, "; ".join(parts), "each passes, or a named fault explains it")


def scale_findings(swept: Swept, profile: Profile) -> Iterator[Finding]:
    """Judge the one job over all nodes that passed alone and in pairs."""
    end = swept.end or empty(SweepTest)
    count = len(end["nodes"])
    subject, expected = f"all_reduce of {count} nodes", "it ends, with right sums over the right transport"
    reasons = "; ".join(f"{node}: {text}" for node, text in end["why"].items())
    if end["outcome"] != MEASURED:
        known = end["outcome"] in OUTCOMES and end["outcome"] != "nothing"
        observed = f"{end['outcome']}" + (f" ({reasons})" if reasons else "")
        ended = failed(subject, observed, expected, "sweep.scale")
        yield ended if known else replace(ended, ok=None)
        return
    if why := _not_whole(swept, end):
        yield unknown(subject, why, expected, fault="sweep.scale")
        return
    rows = _rows(end)
    floors = [f for f in profile.floor("all_reduce", "ring", count) if int(f.size) in rows]
    for each in floors:
        value = rows[int(each.size)]
        ok, expected = value >= each.busbw_gbps, f"{each.busbw_gbps:g}"
        yield compared(subject, ok, f"{value:g}", expected, "sweep.scale", unit="GB/s")
    if not floors:
        yield _against_pairs(swept, subject, end["busbw"] or 0.0)


def _not_whole(swept: Swept, end: SweepTest) -> str:
    """Name missing results of the job over all nodes; '' if it is complete."""
    nodes = {str(node) for node in end["nodes"]}
    reported = set(nodes if end["reported"] is None else end["reported"])
    if elsewhere := sorted(nodes & swept.misplaced.keys()):
        return f"it names nodes without a pod of the sweep: {', '.join(elsewhere[:SHOWN])}"
    if silent := sorted(nodes - reported):
        return f"{len(silent)} of {len(nodes)} nodes reported nothing: {', '.join(silent[:SHOWN])}"
    if left := [node for node in swept.blame.proven if node not in nodes]:
        count = len(swept.blame.proven)
        return f"{count - len(left)} of {count} nodes that passed ran it; it lacks {', '.join(left[:SHOWN])}"
    value = number_of(end["busbw"])
    if value is None or not math.isfinite(value) or not _rows(end):
        return "it ended, and its busbw was not reported"
    return ""


def _rows(end: SweepTest) -> dict[int, float]:
    """Return the busbw in GB/s by message size, for rows with finite values."""
    busbw = {}
    for row in end["rows"]:
        size, value = (number_of(each) for each in row[:2]) if isinstance(row, list) and len(row) == 3 else (None, None)
        if size is not None and value is not None and math.isfinite(size) and math.isfinite(value):
            busbw[int(size)] = value
    return busbw


def _against_pairs(swept: Swept, subject: str, value: float) -> Finding:
    """Compare a job without a floor with the pairs: far below them is not a fault, but not a pass either."""
    levels = {row["kind"]: row["busbw_gbps"] for row in swept.section["levels"] if row["rail"] is None}
    level, floor = levels.get("across leaves", levels.get("in a leaf")), swept.section["rules"]["pair_floor"]
    accuses = swept.section["rules"]["accuses"]
    parts, limits = [f"{value:g} GB/s; no floor for so many nodes"], []
    if level:
        parts.append(f"{value / level:.2f} of the pairs' bandwidth")
        limits.append(accuses * level)
    if floor:
        parts.append(f"the floor of pairs is {floor:g}")
        limits.append(floor)
    if not limits:
        parts.append("and no pair to compare with")
    ok = True if limits and value >= max(limits) else None
    named = [each for each in swept.blame.findings if each.kind in ("uplink", "pair")]
    if not ok and named:
        parts.append(f"it may have run over {' - '.join(named[0].names)}, at fault by itself (sweep.{named[0].kind})")
    return Finding(
        subject=subject,
        ok=ok,
        observed="; ".join(parts),
        expected=f"{max(limits):.4g} GB/s" if limits else "what pairs reach",
        fault="" if ok or named else "sweep.scale",
    )
