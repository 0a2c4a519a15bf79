"""The failure class of a whole run: caused by the program or by the infrastructure. Decided here only."""

from __future__ import annotations

from jobs.diagnosis.state import ERR_INFRA, ERR_PROGRAM, FailureAnalysis
from reports.record import Run
from reports.schema import Outcome, Verdict
from seatrial.faults.catalogue import INFRASTRUCTURE, PROGRAM, UNKNOWN, failure_class

_OF_JOBS = {ERR_INFRA: INFRASTRUCTURE, ERR_PROGRAM: PROGRAM}


def failure_of(analysis: FailureAnalysis) -> str:
    """Return the failure class of the launcher's analysis of a job; unknown for a disruption."""
    return UNKNOWN if analysis.disrupted else _OF_JOBS.get(analysis.err_class or "", UNKNOWN)


def failure_class_of(run: Run) -> str | None:
    """Return the failure class of the decisive fault; None for a go, or if no fault has one.

    If a check failed, only failed checks count; otherwise the inconclusive ones do.
    """
    if run.verdict is Verdict.GO:
        return None
    decisive = Outcome.FAILED if run.verdict is Verdict.NO_GO else Outcome.ERROR
    faults = {fault for each in run.results if each.outcome is decisive for fault in each.faults}
    known = {name: run.faults.get(name, {}).get("failure", UNKNOWN) for name in faults}
    if (trial := run.trial.get("failure")) and trial["fault"] in known:
        known[trial["fault"]] = trial["failure"]
    return failure_class(known.values())
