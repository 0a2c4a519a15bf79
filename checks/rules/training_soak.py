"""Whether a soak (`--soak`) lasted as long as was asked, by other clocks than the ranks' own, and was watched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobs.diagnosis.around import time_of
from jobs.pod.stages.training import SAMPLE_LIMIT_S, SAMPLE_S
from jobs.run.result import TrialResult
from jobs.run.stages.training import TrainingSample
from reports.record import Finding

from .findings import proven

LOOK_S = SAMPLE_S + 2 * SAMPLE_LIMIT_S
"""Between two looks at a GPU that still answers: jobs/pod/stages/training.py asks twice at most, and waits so long."""
WHOLE_SECONDS = 1.0
"""The kubelet writes when a container began and ended in whole seconds."""


def too_short(trial: TrialResult, rank: int, soak_s: int) -> str:
    """Say that a pod did not run for as long as its ranks say that they trained, '' where it may have.

    The times are the kubelet's; where it told none, the ranks' and the probe's own stand alone.
    """
    for pod in trial.pods:
        began, ended = time_of(pod.began), time_of(pod.ended)
        if pod.index == rank and began is not None and ended is not None:
            ran_s = (ended - began).total_seconds()
            if ran_s + WHOLE_SECONDS < soak_s:
                return f"by the kubelet its pod ran for {ran_s:.0f} s"
    return ""


def watched(samples: Mapping[str, TrainingSample | None], soak_s: int) -> Iterator[Finding]:
    """Judge whether each GPU's clock or heat was read all through the soak; nobody is accused where it was not.

    ``samples``: by GPU, as findings name it; None where none was taken.
    """
    least = max(1, int(soak_s / LOOK_S))
    for name, taken in samples.items():
        sample: TrainingSample = taken or {}
        measured = sample.get("sm_mhz") is not None or sample.get("temperature_c") is not None
        looks = (sample.get("samples") or 0) if measured else 0
        yield proven(
            name,
            looks >= least,
            f"{looks} looks at its clock and heat in a soak of {soak_s} s",
            f"{least} or more: one in {LOOK_S:.0f} s",
        )
