"""The failure class of a whole run, program or infrastructure, is decided here only."""

from __future__ import annotations

from jobs.diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis
from reports.record import Run
from reports.schema import Outcome, Verdict
from seatrial.faults.catalogue import INFRASTRUCTURE, PROGRAM, UNKNOWN, failure_class

_OF_JOBS = {ERR_INFRA: INFRASTRUCTURE, ERR_PROGRAM: PROGRAM}


def failure_of(analysis: FailureAnalysis) -> str:
    """Return the failure class that the launcher's analysis of a job represents; of a disruption it is unknown."""
    return UNKNOWN if analysis.disrupted else _OF_JOBS.get(analysis.err_class or "", UNKNOWN)


def failure_class_of(run: Run) -> str | None:
    """Return the failure class of the decisive fault; None for a go, and if no fault has one.

    Where a check failed, only failed checks count; else the inconclusive ones.
    """
    if run.verdict is Verdict.GO:
        return None
    decisive = Outcome.FAILED if run.verdict is Verdict.NO_GO else Outcome.ERROR
    faults = {fault for each in run.results if each.outcome is decisive for fault in each.faults}
    known = {name: run.faults.get(name, {}).get("failure", UNKNOWN) for name in faults}
    if (trial := run.trial.get("failure")) and trial["fault"] in known:
        known[trial["fault"]] = trial["failure"]
    return failure_class(known.values())
