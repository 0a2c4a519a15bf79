"""Validation of the ranks' reports of their training steps before they are judged.

The reports must be from one job: each rank once, all with the same work. Contradictory figures prove nothing and are
not a fault. A soak (`--soak`) must have lasted for the requested time by clocks other than the ranks' own, with samples
throughout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jobs.cluster.json_types import empty
from jobs.diagnosis.around import time_of
from jobs.pod.bench import model
from jobs.pod.stages import nodetraining
from jobs.pod.stages.training import SAMPLE_LIMIT_S, SAMPLE_S
from jobs.run.result import TrialResult
from jobs.run.stages.programs import TrainingMode, TrainingRank, TrainingSample
from reports.record import Finding

from .findings import proven

DEVICES = ("cuda", "cpu")
SHARED = "ddp"
"""The kind of parallelism that is judged; the other (FSDP2) is only shown."""
TIMED = nodetraining.MOST_TIMES // 2
"""The least number of reported step times, if the run has at least as many steps: a sweep's line leaves out less than
half of 40."""


def shared(rank: TrainingRank) -> TrainingMode:
    """Return a rank's judged steps with all ranks; empty if they never ended."""
    return next((mode for mode in rank["modes"] if mode["mode"] == SHARED), empty(TrainingMode))


def times(milliseconds: list[float] | None) -> list[float]:
    """Return the times; an empty list if one is invalid."""
    return milliseconds if milliseconds and min(milliseconds) > 0 else []


def contradiction(reported: Sequence[TrainingRank], own: int, first: int, world: int) -> str:
    """Explain why these cannot be the ``own`` ranks of a node, starting at ``first``, of ``world``; '' if they are."""
    expected = Counter[tuple[int | None, ...]]((first + local, local, world) for local in range(own))
    present = Counter[tuple[int | None, ...]]((t["rank"], t["local"], t["world"]) for t in reported)
    if present != expected:
        rank, local, ranks = next(iter((present - expected) or (expected - present)))
        subject = "one reports to be" if present - expected else "none reports to be"
        return (
            f"{len(reported)} ranks reported steps, not ranks {first} to {first + own - 1} of {world}, each once: "
            f"{subject} rank {rank}, number {local} here, of {ranks}"
        )
    buses = Counter(str(bus).lower() for each in reported if (bus := each["bus_id"]))
    if twice := [bus for bus, count in buses.items() if count > 1]:
        return f"{buses[twice[0]]} ranks name the GPU at {twice[0][:40]} as theirs"
    devices = {each["device"] for each in reported}
    if len(devices) > 1 or not devices <= set(DEVICES):
        return f"its ranks ran on {_listed(devices)}"
    for each in reported:
        counts = [len(times(series)) for series in (shared(each)["step_ms"], each["compute_ms"])]
        if min(counts) < min(shared(each)["steps"] or 0, TIMED):
            return f"rank {each['rank']} reports the times of {counts[0]} steps, and of {counts[1]} alone"
    return differing(reported)


def differing(ranks: Iterable[TrainingRank]) -> str:
    """Describe differences in the work of one job's ranks, or unusable counts; '' if there are none."""
    ranks = list(ranks)
    for key in ("shape", "flops", "seed"):
        values = {_plain(each.get(key)) for each in ranks}
        if len(values) > 1 or None in values:
            return f"its ranks do not agree in {key}: {_listed(values)}"
    for each in ranks[:1]:
        sizes = each["shape"]
        try:
            counted = model.flops(model.Shape(**{size: sizes[size] for size in model.Shape._fields}))
        except (KeyError, TypeError):
            return "its ranks do not report the sizes of their model"
        if counted != each["flops"] or counted <= 0:
            return f"its ranks count {each['flops']} operations a step, and their model takes {counted:g}"
    return ""


def _plain(value: Any) -> Any:
    return tuple(sorted(value.items(), key=str)) if isinstance(value, dict) else value


def _listed(values: Iterable[object]) -> str:
    return ", ".join(sorted("nothing reported" if value is None else str(value)[:60] for value in values)[:4])


LOOK_S = SAMPLE_S + 2 * SAMPLE_LIMIT_S
"""Maximum seconds between two samples of a responsive GPU: jobs/pod/stages/training.py tries twice, with this time
limit."""
WHOLE_SECONDS = 1.0
"""The kubelet reports the start and end of a container in whole seconds."""


def too_short(trial: TrialResult, rank: int, soak_s: int) -> str:
    """Report that a pod ran for less time than its ranks claim to have trained; '' if it did not.

    The times are the kubelet's; without them, only the ranks' and the probe's own count.
    """
    for pod in trial.pods:
        began, ended = time_of(pod.began), time_of(pod.ended)
        if pod.index == rank and began is not None and ended is not None:
            ran_s = (ended - began).total_seconds()
            if ran_s + WHOLE_SECONDS < soak_s:
                return f"by the kubelet its pod ran for {ran_s:.0f} s"
    return ""


def watched(samples: Mapping[str, TrainingSample | None], soak_s: int) -> Iterator[Finding]:
    """Judge whether each GPU's clock or temperature was sampled during the whole soak; a gap is not a fault.

    ``samples``: by GPU, as findings name it; None if there are none.
    """
    least = max(1, int(soak_s / LOOK_S))
    for name, taken in samples.items():
        sample = taken or empty(TrainingSample)
        measured = sample["sm_mhz"] is not None or sample["temperature_c"] is not None
        looks = (sample["samples"] or 0) if measured else 0
        observed = f"{looks} samples of its clock and temperature in a soak of {soak_s} s"
        yield proven(name, looks >= least, observed, f"{least} or more: one in {LOOK_S:.0f} s")
