"""DCGM's diagnostics in a log: each failed test is a fault of the GPU or of the node's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...faults.actions import Action, heaviest
from ...faults.catalogue import catalogue
from ...faults.variants import fill
from .faults import found_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..job_document import EvidenceLine, FoundFault
    from ..reader.state.process import Note
    from .judge import Judgement

DIAGNOSED = "dcgm "


def judge_dcgm(judgement: Judgement) -> None:
    """Report each failed test, and the tests that DCGM left open if nothing else is wrong."""
    for parts, note in _said(judgement, "fail"):
        if len(parts) == 4 and parts[0] in catalogue():
            judgement.faults.append(_fault(judgement, parts, note))
    doubt = next(_said(judgement, "open"), None)
    if doubt is not None and not judgement.faults and judgement.verdict() == "go":
        judgement.add("nccl.unexplained", "the job", judgement.line(doubt[1]), cause="DCGM says: " + doubt[0][0])


def _fault(judgement: Judgement, parts: list[str], note: Note) -> FoundFault:
    name, action, who, said = parts
    shown: list[EvidenceLine] = [{**each, "text": f"dcgmi diag: {who}: {said}"} for each in judgement.line(note)]
    entry, fault = catalogue()[name], found_fault(name, who, shown, cause=said)
    diagnosed: FoundFault = {
        **fault,
        "confirm": fill(entry.confirm, trial=False),
        "remedy": fill(entry.remedy, trial=False),
        "action": str(heaviest((action,)) or Action.UNKNOWN),
    }
    return diagnosed


def diagnosis_said(judgement: Judgement) -> str:
    """Return the tests of each report and those left open; '' without a report."""
    counted = [parts[0] for parts, _ in _said(judgement, "counted")]
    doubts = [parts[0] for parts, _ in _said(judgement, "open")]
    return "; ".join([*counted[:4], *doubts[:2]])


def _said(judgement: Judgement, kind: str) -> Iterator[tuple[list[str], Note]]:
    for source in judgement.job.sources.values():
        for name, note in source.events.items():
            if name.startswith(f"{DIAGNOSED}{kind} | "):
                yield name.removeprefix(f"{DIAGNOSED}{kind} | ").split(" | ", 3), note
