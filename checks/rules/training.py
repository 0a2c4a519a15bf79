"""Training rules: the steps of all ranks judge single GPUs and nodes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from jobs.pod.bench import stragglers
from jobs.pod.bench.product import LEAST_PRODUCTS
from jobs.run.result import TrialResult
from jobs.run.stages.programs import TrainingMode, TrainingProduct, TrainingRank, TrainingRun, TrainingSample
from jobs.run.stages.sweep import SweepTraining
from jobs.trial.parts import TrainingSpec
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from . import training_evidence
from .findings import compared, failed, proven, unknown
from .ranks import every_stage, place, silent, stages

Work: TypeAlias = "tuple[object, ...]"
ENDS = 3
"""Number of first and last losses that are averaged."""
FALLING = "finite at every step, and falling"
JOB = "the training job"
SHOWN = 8
"""Maximum number of ranks that a finding names in addition to its own."""
COMPARED = 3
"""Minimum number of GPUs of one kind for which the majority's product is assumed correct."""


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of the training steps, and its location."""

    node: str
    gpu: int
    reported: TrainingRank
    sample: TrainingSample | None

    @property
    def name(self) -> str:
        """The GPU as every finding names it, or the node's process without a GPU."""
        return f"{self.node} {'GPU' if self.reported['device'] == 'cuda' else 'process'} {self.gpu}"

    @property
    def first(self) -> TrainingMode:
        """The steps that are judged; empty if they never ended."""
        return training_evidence.shared(self.reported)

    @property
    def compute(self) -> list[float]:
        """Milliseconds of each step of the rank alone."""
        return training_evidence.times(self.reported["compute_ms"])

    @property
    def steps(self) -> list[float]:
        """Milliseconds of each step with all ranks."""
        return training_evidence.times(self.first["step_ms"])


def members(trial: TrialResult, spec: TrialSpec) -> list[Member]:
    """Return every rank with a report, in the order of the nodes."""
    all_members = []
    for rank in range(spec.nodes):
        data = every_stage(trial, rank)["training"]
        runtime = every_stage(trial, rank)["runtime"]
        listed = runtime["gpus"] or []
        buses = {bus: index for gpu in listed if (bus := _bus(gpu["bus_id"])) and (index := gpu["index"]) is not None}
        samples = {sample["index"]: sample for sample in data["samples"]}
        for reported in data["ranks"]:
            local = int(reported["local"] or 0)
            gpu = buses.get(_bus(reported["bus_id"]), local)
            all_members.append(Member(place(trial, rank), gpu, reported, samples.get(gpu)))
    return all_members


def _bus(text: object) -> str:
    """Normalise a PCI address, '' for none: nvidia-smi has a longer domain, CUDA no function."""
    address = str(text or "").lower().partition(".")[0]
    return address[-10:] if ":" in address else ""


def completed(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Judge whether every node's ranks completed their steps.

    One finding for each node, and one more if the ranks' reports are not from one job.
    """
    findings = []
    for rank in range(spec.nodes):
        node, data = place(trial, rank), stages(trial, rank).get("training")
        if data is None:
            findings.append(silent(trial, rank, "training"))
        elif data["skipped"]:
            findings.append(unknown(node, f"the steps were not begun: {data['skipped']}"))
        else:
            findings.append(ended(node, data, spec, rank, spec.nodes))
            soak_s = spec.training.soak_s if spec.training else 0
            if findings[-1].ok and (short := training_evidence.too_short(trial, rank, soak_s)):
                findings[-1] = replace(findings[-1], ok=None, observed=f"{findings[-1].observed}; {short}")
    yield from findings
    reported = [reported for rank in range(spec.nodes) for reported in every_stage(trial, rank)["training"]["ranks"]]
    if all(each.ok for each in findings) and (odd := training_evidence.differing(reported)):
        yield unknown(JOB, odd, "all ranks at the same work")


def ended(node: str, data: TrainingRun | SweepTraining, spec: TrialSpec, pod: int = 0, pods: int = 1) -> Finding:
    """Judge whether a node's ranks completed their steps; it is number ``pod`` of ``pods`` that train together."""
    ranks, asked = data["ranks"], spec.training or TrainingSpec()
    own = max(1, spec.gpus_per_node)
    modes = [mode for reported in ranks if (mode := training_evidence.shared(reported))["mode"]]
    counts = [mode["steps"] or 0 for mode in modes]
    expected = f"{own} ranks of {asked.steps} steps or more, completed"
    done = f"{len(counts)} of {own} ranks did {min(counts, default=0)} steps ({training_evidence.SHARED})"
    if data["timed_out"]:
        observed = f"{done}; the program did not end within {data['seconds'] or 0:.0f} s"
        return failed(node, observed, expected, "training.no-end")
    if data["stopped"]:  # another rank failed, or a drain: this node is not at fault
        return unknown(node, f"{done}; stopped: {data['stopped']}", expected)
    if data["exit"] != 0 or data["error"]:
        said = str(data["error"] or data["output_tail"] or f"exit code {data['exit']}").strip()
        return failed(node, f"{done}; {said[-600:]}", expected, "training.failed")
    ok = len(counts) == own and min(counts) >= asked.steps
    lasted = min((mode["seconds"] or 0.0 for mode in modes), default=0.0)
    if asked.soak_s:
        lasted = min(lasted, data["seconds"] or 0.0)  # by the ranks' own clocks and the probe's
        expected += f"; --soak of {asked.soak_s} s"
        done += f" in {lasted:.0f} s"
        ok = ok and lasted >= asked.soak_s
    if odd := ok and training_evidence.contradiction(ranks, own, pod * own, pods * own):
        ok, done = False, f"{done}; {odd}"
    return proven(node, ok, done, expected)


def products(members: Sequence[Member]) -> Iterator[Finding]:
    """Judge the products of matrices: bitwise identical in every repeat, and on all GPUs of a kind.

    If GPUs of a kind differ without a majority, or one GPU lacks a product that others of its kind have, no node is at
    fault and none passes.
    """
    digests = _digests(members)
    usual = _usual(digests)
    for member in members:
        own_products = member.reported["products"]
        made = [each for each in own_products if each["made"]]
        expected = "bitwise identical products, equal to those of the other GPUs of its kind"
        if not made:
            why = "; ".join(str(each["why"]) for each in own_products) or "none was made"
            yield unknown(member.name, f"no product: {why}", expected)
            continue
        bad = [f"{each['differs']} of {each['made']} in {each['kind']}" for each in made if each["differs"]]
        other = [
            str(each["kind"])
            for each in made
            if (right := usual.get(_work_of(member, each))) is not None and each["digest"] not in (None, "", right)
        ]
        said = ", ".join(f"{each['made']} in {each['kind']} (seed {each['seed']})" for each in made)
        if bad:
            observed = f"products of the same matrices differ: {', '.join(bad)}"
        elif other:
            observed = f"all products are equal, but differ from most GPUs of its kind in {', '.join(other)}"
        else:
            observed = f"{said}: all equal"
        doubts = [doubt for each in made if (doubt := _doubt(member, each, digests, usual))]
        doubts += _lacking(member, members)
        ok = False if bad or other else None if doubts else True
        yield compared(member.name, ok, "; ".join([observed, *doubts]), expected, "training.product-differs")


def _doubt(
    member: Member, product: TrainingProduct, digests: Mapping[Work, Counter[str]], usual: Mapping[Work, str]
) -> str:
    """Explain why one product does not pass although it is not a fault; '' if it passes."""
    key, kind = _work_of(member, product), product["kind"]
    if not kind or product["differs"] is None or (product["made"] or 0) < LEAST_PRODUCTS:
        return f"{kind or 'an unnamed format'} does not list how many of {LEAST_PRODUCTS} or more differ"
    if member.reported["device"] != "cuda" or product["differs"]:
        return ""
    if not product["digest"]:
        return f"no digest in {kind}"
    if len(digests[key]) > 1 and key not in usual:
        return f"the {digests[key].total()} GPUs of its kind differ in {kind}, without a majority"
    gpus_of_name = sum(made.total() for other, made in digests.items() if other[0] == key[0] and kind in other)
    if digests[key].total() == 1 < gpus_of_name:
        return f"no other GPU of its name made the same product in {kind}: {', '.join(str(part) for part in key)}"
    return ""


def _lacking(member: Member, members: Sequence[Member]) -> list[str]:
    """Name the formats that other GPUs of the same model have and this one lacks."""
    namesakes = [m for m in members if m.reported["name"] == member.reported["name"]]
    theirs = {str(p["kind"]) for m in namesakes for p in m.reported["products"] if p["made"]}
    own = {str(p["kind"]): p for p in member.reported["products"]}
    lacking = [kind for kind in sorted(theirs) if not (kind in own and own[kind]["made"])]
    return [f"none in {k}, unlike other GPUs of its kind: {own[k]['why'] if k in own else '-'}" for k in lacking]


def _work_of(member: Member, product: TrainingProduct) -> Work:
    """Return the key of comparable products: the GPU's kind, the library, the matrices."""
    rank = member.reported
    return (
        *(rank["name"], rank["multiprocessors"], rank["torch"], rank["library"]),
        *(product["kind"], product["side"], product["seed"]),
    )


def _digests(members: Sequence[Member]) -> dict[Work, Counter[str]]:
    """Count the GPUs of a kind by product, without those with differing products."""
    digests: dict[Work, Counter[str]] = {}
    for member in members:
        for each in member.reported["products"]:
            if each["digest"] and not each["differs"] and member.reported["device"] == "cuda":
                digests.setdefault(_work_of(member, each), Counter())[str(each["digest"])] += 1
    return digests


def _usual(digests: Mapping[Work, Counter[str]]) -> dict[Work, str]:
    """Return the product of more than half of the GPUs of a kind, if there are enough of them."""
    found_most = {key: (counts.most_common(1)[0], counts.total()) for key, counts in digests.items()}
    return {key: most[0] for key, (most, total) in found_most.items() if total >= COMPARED and most[1] * 2 > total}


def losses(members: Sequence[Member]) -> Iterator[Finding]:
    """Judge the loss of each rank, alone and with all: finite at every step, and lower at the end than at first.

    All ranks share their gradients: a wrong value on one rank is on all of them a step later. So the finding names the
    ranks whose steps alone show it; if none do, the ranks that had it first.
    """
    alone = {m.name: step for m in members if (step := m.reported["bad_step"]) is not None}
    shared = {
        m.name: step
        for m in members
        for mode in reversed(m.reported["modes"])
        if (step := mode["bad_step"]) is not None
    }
    first = min(shared.values(), default=0)
    named = list(alone) or [name for name, step in shared.items() if step == first]
    everywhere, fault = "", ""
    if len(named) == len(members) > 1 and not alone:
        everywhere, fault = f"not a finite number on all ranks at once, step {first}", "training.loss-not-finite"
    elif len(members) > 1 and all(falls(m.first["losses"]) is False and falls(m.reported["losses"]) for m in members):
        everywhere, fault = "it does not fall on any rank", "training.loss-not-falling"
    if everywhere:
        observed = f"{everywhere}, and is as it should be on each alone: the shared gradients"
        yield failed(JOB, observed, FALLING, fault)
        return
    for member in members:
        name = member.name
        if name in named:
            where = f"step {alone[name]} without any other rank" if name in alone else f"step {shared[name]}"
            fault, observed = "training.loss-not-finite", f"not a finite number at {where}"
            yield failed(name, observed, FALLING, fault)
        elif name in shared:
            observed = f"not a finite number at step {shared[name]}; its source: {', '.join(named[:SHOWN])}"
            yield unknown(name, observed, FALLING)
        else:
            yield _falling(member)


def falls(losses: Sequence[float] | None) -> bool | None:
    """Return whether losses are lower at the end; None if too few were reported."""
    if losses is None or len(losses) < 2 * ENDS:
        return None
    return statistics.fmean(losses[-ENDS:]) < statistics.fmean(losses[:ENDS])


def _falling(member: Member) -> Finding:
    """Judge the losses of one rank, which are all finite."""
    ways = {"with all ranks": member.first["losses"], "alone": member.reported["losses"]}
    observed = "; ".join(f"{way} {_path(losses_of_way)}" for way, losses_of_way in ways.items())
    each = [falls(losses_of_way) for losses_of_way in ways.values()]
    ok = False if False in each else None if None in each else True
    return compared(member.name, ok, observed, FALLING, "training.loss-not-falling")


def _path(losses_reported: Sequence[float]) -> str:
    if len(losses_reported) < 2 * ENDS:
        return f"{len(losses_reported)} losses were reported"
    return f"from {statistics.fmean(losses_reported[:ENDS]):.3f} to {statistics.fmean(losses_reported[-ENDS:]):.3f}"


def slow_members(members: Sequence[Member]) -> Iterator[Finding]:
    """Name nodes and GPUs whose compute time is longer than that of their kind.

    A node is named as a whole if the faster half of its GPUs is slow; then none of its GPUs is named in addition.
    """
    for kind in dict.fromkeys(str(m.reported["name"]) for m in members):
        same_kind = [m for m in members if str(m.reported["name"]) == kind]
        nodes = {name: [m for m in same_kind if m.node == name] for name in dict.fromkeys(m.node for m in same_kind)}
        whole = {
            name: [statistics.median_low(column) for column in zip(*(m.compute for m in own), strict=False)]
            for name, own in nodes.items()
            if len(own) > 1 and all(m.compute for m in own)
        }
        by_node = stragglers.soaked(whole)
        slow = {name for name, standing in by_node.items() if standing.slow}
        for name in slow:
            yield _slow(name, by_node[name], "training.slow-node", f"the GPUs of {len(whole) - 1} other nodes", "")
        rest = [m for m in same_kind if m.node not in slow]
        standings = stragglers.soaked({m.name: m.compute for m in rest if m.compute})
        for member in rest:
            standing = standings.get(member.name)
            if standing is None:
                observed = (
                    "no other rank of its kind to compare it with" if member.compute else "no step times were reported"
                )
                yield unknown(member.name, observed)
                continue
            yield _slow(
                member.name, standing, "training.slow-gpu", f"{len(standings) - 1} others", _clocks(member, rest)
            )


def _slow(subject: str, standing: stragglers.Standing, fault: str, compared_with: str, why: str) -> Finding:
    observed = (
        f"own compute {standing.median:.1f} ms a step, {abs(standing.excess):.1%} "
        f"{'above' if standing.excess >= 0 else 'below'} {compared_with} ({standing.reference:.1f} ms)"
        f"{' in the last third of the steps' if standing.late else ''}{why}"
    )
    expected = f"less than {standing.limit:.1%} above"
    if standing.slow:
        return failed(subject, observed, expected, fault)
    if not standing.conclusive:
        observed += f"; the times vary too much to exclude that it is slower by {stragglers.TELLS:.0%}"
    return proven(subject, standing.conclusive, observed, expected)


def _clocks(member: Member, compared_with: Sequence[Member]) -> str:
    """Describe clock and power of this GPU and of the other GPUs."""
    own = member.sample
    known = [s for m in compared_with if m is not member and (s := m.sample) is not None and s["sm_mhz"] is not None]
    if own is None or own["sm_mhz"] is None or not known:
        return ""
    clock = statistics.median(s["sm_mhz"] or 0.0 for s in known)
    text = f"; {own['sm_mhz']:.0f} MHz, others {clock:.0f}"
    powers = [watts for s in known if (watts := s["power_w"]) is not None]
    if own["power_w"] is not None and powers:
        text += f"; {own['power_w']:.0f} W, others {statistics.median(powers):.0f}"
    return text


def on_cpus(members: Sequence[Member]) -> bool:
    """Return whether no rank had a GPU: then the duration of steps does not describe a cluster for training."""
    return bool(members) and all(m.reported["device"] != "cuda" for m in members)
