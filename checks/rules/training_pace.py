"""Rules of the training job's pace: TFLOP/s, exposed communication, periodic slow steps."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from jobs.cluster.json_types import empty
from jobs.run.stages.programs import TrainingSample
from reports.record import Finding
from reports.schema import RecordedTraining, TrainedRank

from ..profiles.schema import TrainingSection
from .findings import compared, failed, passed, unknown
from .training import Member
from .training_evidence import SHARED

MOST_STEPS = 240
"""Maximum number of steps in the record, the last ones; a soak has thousands."""
HIDDEN = 1.25
"""Maximum ratio of exposed communication to the time of the same bytes without computation: above it nothing
overlapped, and a quarter was lost in addition."""
UNSEEN = 0.05
"""Share of the step below which exposed communication is not reported."""
WAVE = 1.25
"""A step is slow if it takes more than this times the median. Healthy steps differ by a few percent: of 1,000 synthetic
runs with 2 % noise and an outlier in a hundred steps none is named (benchmarks/straggler.py)."""
WAVES = (5, 0.05)
"""Minimum number of slow steps, and their minimum share of all, above which they are not random."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The steps of the whole job: milliseconds, and their share of exposed communication."""

    step: float
    compute: float
    bare: float
    tflops: float
    tokens: int
    batch: int
    series: tuple[float, ...]

    @property
    def exposed(self) -> float:
        """Milliseconds of a step in which the slowest rank's GPU does not compute."""
        return max(0.0, self.step - self.compute)

    @property
    def share(self) -> float:
        """Exposed communication as a share of the step."""
        return self.exposed / self.step if self.step else 0.0


def pace(members: Sequence[Member]) -> Pace | None:
    """Return the job's pace; None if no rank reported a step, or the sizes of its steps.

    All ranks wait for the slowest one in each step: its compute time is not communication.
    """
    whole = [m for m in members if m.steps and m.compute and (m.reported["flops"] or 0) > 0]
    if not whole:
        return None
    series = [statistics.median(column) for column in zip(*(m.steps for m in whole), strict=False)]
    compute = [max(column) for column in zip(*(m.compute for m in whole), strict=False)]
    step, first = statistics.median(series), whole[0].reported
    shape = first["shape"]
    tflops = (first["flops"] or 0.0) / (step / 1000) / 1e12
    batch = int(shape.get("batch") or 0)
    return Pace(
        step=step,
        compute=statistics.median(compute),
        bare=statistics.median(m.reported["comm_ms"] or 0.0 for m in whole),
        tflops=tflops,
        tokens=int(shape.get("sequence") or 0) * batch,
        batch=batch,
        series=tuple(series),
    )


def rate(pace: Pace, asked: TrainingSection, job: str, other: Sequence[str] = ()) -> Finding:
    """Compare TFLOP/s of each GPU with the profile's floor, which must exist; ``other``: GPUs not covered by it."""
    observed = f"{pace.tflops:.1f} TFLOP/s a GPU ({pace.step:.1f} ms a step)"
    expected = f"{asked.tflops:g} TFLOP/s or more"
    if other:
        observed += f"; the GPUs are {', '.join(other)}, the floor is for those of the profile (gpu.product)"
        return unknown(job, observed, expected)
    if asked.batch and pace.batch != asked.batch:
        observed += f"; with {pace.batch} sequences a step, since memory is short; the floor is for {asked.batch}"
        return unknown(job, observed, expected)
    return compared(job, pace.tflops >= (asked.tflops or 0), observed, expected, "training.low-tflops")


def exposed(pace: Pace, asked: TrainingSection, job: str) -> Finding:
    """Judge the exposed communication of a step."""
    explained = max(HIDDEN * pace.bare, UNSEEN * pace.step)
    expected = f"at most {explained:.1f} ms: communication of the gradients alone takes {pace.bare:.1f} ms"
    limit = explained
    if asked.exposed_max is not None and asked.exposed_max * pace.step < explained:
        limit = asked.exposed_max * pace.step
        expected = f"at most {asked.exposed_max:.0%} of the step (training.exposed_max)"
    observed = (
        f"{pace.exposed:.1f} ms of {pace.step:.1f} ms a step ({pace.share:.0%}); the slowest rank's own compute takes "
        f"{pace.compute:.1f} ms"
    )
    ok: bool | None = pace.exposed <= limit
    if pace.bare <= 0 and limit == explained:  # communication without compute was not measured
        ok, observed = None, f"{observed}; the communication time of the gradients alone is unknown"
    return compared(job, ok, observed, expected, "training.exposed-communication")


def waves(members: Sequence[Member], pace: Pace, job: str) -> Finding:
    """Find periodic slow steps, and the ranks whose compute causes them."""
    slow, share = _slow_steps(pace.series)
    expected = f"fewer than {WAVES[0]} steps, or {WAVES[1]:.0%} of them, above {WAVE:g} x the median"
    used = [m.sample["utilisation"] for m in members if m.sample and m.sample["utilisation"] is not None]
    use = f"; GPUs {min(used):.0f} to {max(used):.0f} % used" if used else ""
    if len(slow) < WAVES[0] or share < WAVES[1]:
        observed = f"{len(slow)} of {len(pace.series)} steps above {WAVE:g} x {pace.step:.1f} ms{use}"
        return passed(job, observed, expected)
    gaps = [b - a for a, b in pairwise(slow)]
    often = f", about every {statistics.median(gaps):.0f} steps" if gaps else ""
    named = [
        m.name for m in members if len(_slow_steps(m.compute)[0]) >= WAVES[0] and _slow_steps(m.compute)[1] >= WAVES[1]
    ]
    cause = (
        f"own compute of {', '.join(named[:8])} varies" if named else "every rank's own compute is steady: the network"
    )
    worst = max(pace.series)
    observed = (
        f"{len(slow)} of {len(pace.series)} steps{often}, up to {worst:.1f} ms of {pace.step:.1f} ms; {cause}{use}"
    )
    return failed(job, observed, expected, "training.step-waves")


def _slow_steps(times: Sequence[float]) -> tuple[list[int], float]:
    if not times:
        return [], 0.0
    limit = WAVE * statistics.median(times)
    slow = [place for place, each in enumerate(times) if each > limit]
    return slow, len(slow) / len(times)


def notes(members: Sequence[Member], pace: Pace | None) -> Iterator[str]:
    """Describe the program and the facts that are not judged."""
    if not members:
        return
    first = members[0].reported
    shape = first["shape"]
    if pace is not None and shape:
        yield (
            f"{shape.get('parameters', 0) / 1e6:.0f} M parameters, {pace.tokens} tokens a step and GPU, seed "
            f"{first['seed']}: 6 x {shape.get('multiplying', 0) / 1e6:.0f} M x tokens + attention = "
            f"{(first['flops'] or 0) / 1e12:.2f} TFLOP a step and GPU (PaLM, appendix B, arXiv:2204.02311)"
        )
    for mode in first["modes"]:
        times = mode["step_ms"]
        if mode["why"]:
            yield f"{mode['mode']} was not run: {mode['why']}"
        if times and mode["mode"] != SHARED:
            pace_ms = f"{statistics.median(times):.1f} ms a step over {mode['steps']} steps"
            yield f"{mode['mode']}: {pace_ms}, not judged"
    memory = [m.reported["memory_mib"] for m in members if m.reported["memory_mib"] is not None]
    if memory:
        yield f"at most {max(memory):.0f} MiB of a GPU's memory were in use"
    missing = {str(p["kind"]): str(p["why"]) for m in members for p in m.reported["products"] if p["why"]}
    for kind, why in sorted(missing.items()):
        yield f"no product in {kind}: {why}"


def heat(members: Sequence[Member]) -> Iterator[str]:
    """Describe temperature, clock and utilisation of each node's GPUs during the steps."""
    for node in dict.fromkeys(m.node for m in members):
        samples = [m.sample for m in members if m.node == node and m.sample is not None]
        spans = []
        for key, unit in (("sm_mhz", "MHz"), ("power_w", "W"), ("temperature_c", "C"), ("utilisation", "% used")):
            values = [float(value) for each in samples if isinstance(value := each.get(key), int | float)]
            spans += [f"{min(values):.0f} to {max(values):.0f} {unit}"] if values else []
        if spans:
            yield f"{node}: {', '.join(spans)}"


def section(members: Sequence[Member], pace: Pace | None, asked: TrainingSection) -> RecordedTraining:
    """Return the record's section: the job's pace and its floor, its last steps, and each rank's medians."""
    ranks = [_rank(m) for m in members]
    if pace is None:
        return {"ranks": ranks}
    return {
        "tflops": round(pace.tflops, 2),
        "step_ms": round(pace.step, 3),
        "compute_ms": round(pace.compute, 3),
        "exposed_share": round(pace.share, 4),
        "comm_ms": round(pace.bare, 3),
        "steps": len(pace.series),
        "spread": round(spread(pace.series), 4),
        "series_ms": [round(value, 3) for value in pace.series[-MOST_STEPS:]],
        "floor_tflops": asked.tflops,
        "floor_source": asked.source if asked.tflops else "",
        "ranks": ranks,
    }


def _rank(member: Member) -> TrainedRank:
    sample = member.sample or empty(TrainingSample)
    return {
        "node": member.node,
        "gpu": member.gpu,
        "compute_ms": round(statistics.median(member.compute), 3) if member.compute else None,
        "memory_mib": member.reported["memory_mib"],
        "sm_mhz": sample["sm_mhz"],
        "power_w": sample["power_w"],
        "temperature_c": sample["temperature_c"],
        "utilisation": sample["utilisation"],
    }


def spread(series: Sequence[float]) -> float:
    """Return the spread of the middle 80 % of the steps, as a share of the median."""
    ordered = sorted(series)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return (high - low) / statistics.median(ordered)
