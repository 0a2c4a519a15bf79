"""Judges what each node's own training steps show in a sweep: whether they end, what they compute, who is slow.

The rules are those of a trial's training (rules/training.py), over nodes that train at the same time, each for itself.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from jobs.pod.bench import stragglers
from reports.record import Finding

from . import training, training_pace
from .training import Member

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobs.trial.spec import TrialSpec

    from ..profiles.schema.training import TrainingSection
    from .swept import Swept
    from .training_pace import Pace

EXPECTED = "as fast as the other nodes' GPUs, at the profile's floor"


def members(swept: Swept) -> list[Member]:
    """Return every rank that told of its steps, in the order of the nodes."""
    found = []
    for node in swept.tested:
        data = swept.training.get(node, {})
        samples = {sample.get("index"): sample for sample in data.get("samples") or []}
        for told in data.get("ranks") or []:
            local = told.get("local") or 0
            found.append(Member(node, local, told, samples.get(local)))
    return found


def trained_findings(swept: Swept, spec: TrialSpec) -> Iterator[Finding]:
    """Judge whether each node's steps came to their end, multiplied rightly and learned: one finding for each node."""
    all_members = members(swept)
    wrong: dict[str, list[Finding]] = {}
    owners = {member.name: member.node for member in all_members}
    amd = any(str(member.reported.get("library")).startswith("hip") for member in all_members)
    products = () if amd else training.products(all_members)  # hipBLAS promises no bits
    for found in (*products, *training.losses(all_members)):
        if not found.ok:
            wrong.setdefault(owners[found.subject], []).append(found)
    for node in swept.tested:
        data = swept.training.get(node)
        if data is None:
            expected = "the steps of its GPUs"
            yield Finding(subject=node, ok=None, observed="it told nothing of training steps", expected=expected)
        elif data.get("skipped"):
            yield Finding(subject=node, ok=None, observed=f"the steps were not begun: {data['skipped']}")
        else:
            ended = training.ended(node, data, spec)
            yield from [*wrong.get(node, ()), *([] if ended.ok and node in wrong else [ended])]


def pace_findings(swept: Swept, asked: TrainingSection) -> Iterator[Finding]:
    """Name GPUs and nodes that are slower than the others of their kind, and nodes below the floor.

    What follows from a slow GPU (its node's steps, its node's rate) is not said besides.
    """
    all_members = members(swept)
    paces = {node: seen for node in swept.tested if (seen := training_pace.pace(_of(all_members, node))) is not None}
    owners = {member.name: member.node for member in all_members}
    told: dict[str, list[Finding]] = {}
    for found in training.slow_members(all_members):
        told.setdefault(owners.get(found.subject, found.subject), []).append(found)
    steps = {found.subject: found for found in _slow_steps(all_members, paces)}
    for node in swept.tested:
        seen = paces.get(node)
        if seen is None:
            yield Finding(subject=node, ok=None, observed="no rank told of its steps", expected=EXPECTED)
            continue
        slow = [found for found in told.get(node, ()) if found.ok is False]
        rate = training_pace.rate(seen, asked, node) if asked.tflops is not None else None
        if slow or node in steps:
            yield from slow or [steps[node]]
        elif rate is not None and not rate.ok:
            yield rate
        elif open_ := [found for found in told.get(node, ()) if not found.ok]:
            yield open_[0]
        else:
            yield Finding(subject=node, ok=True, observed=_words(seen), expected=EXPECTED)


def _slow_steps(all_members: Sequence[Member], paces: Mapping[str, Pace]) -> Iterator[Finding]:
    """Name nodes whose steps with all of their own GPUs are longer than those of the other nodes of their kind."""
    kinds: dict[object, list[str]] = {}
    for node in paces:
        own = _of(all_members, node)
        kinds.setdefault((len(own), str(own[0].reported.get("name")), paces[node].batch), []).append(node)
    for nodes in kinds.values():
        for node, stands in stragglers.standings({node: paces[node].series for node in nodes}).items():
            if stands.slow:
                observed = (
                    f"{stands.median:.1f} ms a step with its own GPUs, {stands.excess:.1%} above {len(nodes) - 1} "
                    f"other nodes ({stands.reference:.1f} ms)"
                )
                expected = f"less than {stands.limit:.1%} above"
                yield Finding(subject=node, ok=False, observed=observed, expected=expected, fault="training.slow-node")


def notes(swept: Swept, asked: TrainingSection) -> Iterator[str]:
    """Say what the nodes reach alone, who is slowest by its own compute, and what was run."""
    all_members = members(swept)
    timed = {member.name: statistics.median(member.compute) for member in all_members if member.compute}
    seen = [found for node in swept.tested if (found := training_pace.pace(_of(all_members, node))) is not None]
    if seen and timed:
        rates = sorted(each.tflops for each in seen)
        last = max(timed, key=lambda name: timed[name])
        yield (
            f"{len(seen)} nodes alone: {rates[0]:.0f} to {rates[-1]:.0f} TFLOP/s a GPU, the middle one "
            f"{statistics.median(rates):.0f}; slowest by its own compute {last}, {timed[last]:.1f} ms a step of "
            f"{statistics.median(timed.values()):.1f} ms"
        )
        if asked.tflops is None:
            yield "the profile has no floor (training.tflops): that all are slow alike would not be seen"
    yield from training_pace.notes(all_members, seen[0] if seen else None)


def _of(all_members: Sequence[Member], node: str) -> list[Member]:
    return [member for member in all_members if member.node == node]


def _words(seen: Pace) -> str:
    wavers = training_pace.spread(seen.series)
    return f"{seen.tflops:.0f} TFLOP/s a GPU, {seen.step:.1f} ms a step, of which 80 % lie within {wavers:.1%}"
