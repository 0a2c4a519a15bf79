"""Rules of each node's own training steps in a sweep: completion, correctness, speed.

The rules are those of a trial's training (rules/training.py); the nodes train at the same time, but independently.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jobs.cluster.json_types import empty
from jobs.pod.bench import stragglers
from jobs.run.stages.sweep import SweepTraining
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from ..profiles.schema import TrainingSection
from . import training, training_pace
from .findings import failed, passed, unknown
from .swept import Swept, with_findings
from .training import Member, on_cpus
from .training_pace import Pace

EXPECTED = "as fast as the other nodes' GPUs, at the profile's floor"
MOST_TEXT = 400
NO_STEPS = empty(SweepTraining)


def members(swept: Swept) -> list[Member]:
    """Return every rank that reported its steps, in the order of the nodes."""
    swept_members = []
    for node in swept.tested:
        data = swept.training.get(node, NO_STEPS)
        samples = {sample["index"]: sample for sample in data["samples"]}
        for reported in data["ranks"]:
            local = reported["local"] or 0
            swept_members.append(Member(node, local, reported, samples.get(local)))
    return swept_members


def with_training(swept: Swept, spec: TrialSpec, asked: TrainingSection) -> Swept:
    """Return the sweep with its section updated by the training results."""
    all_members = members(swept)
    owners = {member.name: member.node for member in all_members}
    by_node: dict[str, list[Finding]] = {}
    pace = () if on_cpus(all_members) else pace_findings(swept, asked)
    for finding in (*trained_findings(swept, spec), *pace):
        if finding.ok is not True:
            by_node.setdefault(owners.get(finding.subject, finding.subject), []).append(finding)
    return with_findings(swept, by_node)


def trained_findings(swept: Swept, spec: TrialSpec) -> Iterator[Finding]:
    """Judge whether each node's steps completed, with correct products and a decreasing loss; one finding a node."""
    all_members = members(swept)
    wrong: dict[str, list[Finding]] = {}
    owners = {member.name: member.node for member in all_members}
    amd = any(str(member.reported["library"]).startswith("hip") for member in all_members)
    products = () if amd else training.products(all_members)  # hipBLAS does not guarantee identical bits
    losses = (finding for node in dict.fromkeys(owners.values()) for finding in _losses(node, all_members))
    for finding in (*products, *losses):
        if not finding.ok:
            wrong.setdefault(owners.get(finding.subject, finding.subject), []).append(finding)
    for node in swept.tested:
        data = swept.training.get(node)
        if data is None:
            yield unknown(node, "it reported no training steps", "the steps of its GPUs")
        elif data["skipped"]:
            yield unknown(node, f"the steps were not begun: {data['skipped']}")
        else:
            ended = training.ended(node, data, spec)
            yield from [*wrong.get(node, ()), *([] if ended.ok and node in wrong else [ended])]


def _losses(node: str, all_members: Sequence[Member]) -> Iterator[Finding]:
    """Judge the losses of each node's ranks separately: only these share gradients."""
    for finding in training.losses(_of(all_members, node)):
        yield replace(finding, subject=node) if finding.subject == training.JOB else finding


def pace_findings(swept: Swept, asked: TrainingSection) -> Iterator[Finding]:
    """Name GPUs and nodes that are slower than others of their kind, and nodes below the floor.

    Consequences of a slow GPU (its node's steps and rate) are not reported.
    """
    all_members = members(swept)
    paces = {node: pace for node in swept.tested if (pace := training_pace.pace(_of(all_members, node))) is not None}
    owners = {member.name: member.node for member in all_members}
    by_node: dict[str, list[Finding]] = {}
    for finding in training.slow_members(all_members):
        by_node.setdefault(owners.get(finding.subject, finding.subject), []).append(finding)
    steps = {finding.subject: finding for finding in _slow_steps(all_members, paces)}
    apart = {} if asked.tflops is not None else _behind_the_fastest(all_members, paces)
    for node in swept.tested:
        pace = paces.get(node)
        if pace is None:
            yield unknown(node, "no rank reported its steps", EXPECTED)
            continue
        slow = [finding for finding in by_node.get(node, ()) if finding.ok is False]
        rate = training_pace.rate(pace, asked, node) if asked.tflops is not None else None
        if slow or node in steps:
            yield from slow or [steps[node]]
        elif rate is not None and not rate.ok:
            yield rate
        elif open_ := [finding for finding in by_node.get(node, ()) if not finding.ok]:
            yield open_[0]
        elif node in apart:
            yield apart[node]
        else:
            yield passed(node, _pace_text(pace), EXPECTED)


def _kinds(all_members: Sequence[Member], paces: Mapping[str, Pace]) -> list[list[str]]:
    """Return the groups of nodes with comparable steps: same GPU model, number of GPUs, and batch size."""
    kinds: dict[object, list[str]] = {}
    for node in paces:
        own = _of(all_members, node)
        kinds.setdefault((len(own), str(own[0].reported["name"]), paces[node].batch), []).append(node)
    return list(kinds.values())


def _behind_the_fastest(all_members: Sequence[Member], paces: Mapping[str, Pace]) -> dict[str, Finding]:
    """Return the nodes far behind the fastest of their kind: if most are slow, the median is slow, too."""
    behind = {}
    for nodes in _kinds(all_members, paces):
        first = min(nodes, key=lambda node: paces[node].step)
        for node in nodes:
            excess = paces[node].step / paces[first].step - 1
            if excess > stragglers.TELLS:
                observed = (
                    f"{paces[node].step:.1f} ms a step, {excess:.1%} above {first}, the fastest; no floor shows which"
                )
                behind[node] = unknown(node, f"{observed} of them is right", EXPECTED)
    return behind


def _slow_steps(all_members: Sequence[Member], paces: Mapping[str, Pace]) -> Iterator[Finding]:
    """Name nodes whose steps, on all of their own GPUs, take longer than those of other nodes of their kind."""
    for nodes in _kinds(all_members, paces):
        for node, standing in stragglers.standings({node: paces[node].series for node in nodes}).items():
            if standing.slow:
                observed = (
                    f"{standing.median:.1f} ms a step with its own GPUs, {standing.excess:.1%} above {len(nodes) - 1} "
                    f"other nodes ({standing.reference:.1f} ms)"
                )
                yield failed(node, observed, f"less than {standing.limit:.1%} above", "training.slow-node")


def notes(swept: Swept, asked: TrainingSection) -> Iterator[str]:
    """Describe the nodes' rates alone, the slowest GPU by its own compute time, and the program."""
    all_members = members(swept)
    timed = {member.name: statistics.median(member.compute) for member in all_members if member.compute}
    paces = [pace for node in swept.tested if (pace := training_pace.pace(_of(all_members, node))) is not None]
    if paces and timed:
        rates = sorted(each.tflops for each in paces)
        last = max(timed, key=lambda name: timed[name])
        yield (
            f"{len(paces)} nodes alone: {rates[0]:.0f} to {rates[-1]:.0f} TFLOP/s a GPU, median "
            f"{statistics.median(rates):.0f}; slowest by its own compute {last}, {timed[last]:.1f} ms a step of "
            f"{statistics.median(timed.values()):.1f} ms"
        )
        if asked.tflops is None:
            yield "the profile has no floor (training.tflops): a uniformly slow fleet would not be detected"
    yield from training_pace.notes(all_members, paces[0] if paces else None)


def _of(all_members: Sequence[Member], node: str) -> list[Member]:
    return [member for member in all_members if member.node == node]


def _pace_text(pace: Pace) -> str:
    wavers = training_pace.spread(pace.series)
    return f"{pace.tflops:.0f} TFLOP/s a GPU, {pace.step:.1f} ms a step, 80 % of the steps within {wavers:.1%}"
