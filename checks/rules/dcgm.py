"""DCGM's diagnostics: the results of its tests for each GPU, and whether the GPU or the node's settings are at fault.

A skipped test, or one that could not run, shows nothing: a GPU passes if some test passed and none failed.
`seatrial.faults.dcgm` determines the part at fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.run.result import TrialResult
from jobs.run.stages.hardware import DcgmResult, DcgmStage
from reports.record import Finding
from seatrial.faults.dcgm import action_of, fault_of, is_persistence, text_of

from .findings import failed, proven, unknown
from .ranks import Rank, each_rank, every_stage, stages

MOST_NAMED = 4
OFF = "the profile, or --dcgm, disables it (runtime.dcgm: 0)"
INSTALL = "install datacenter-gpu-manager-4-core (DCGM 3: datacenter-gpu-manager) in the trial's image"


def missing(trial: TrialResult) -> list[str]:
    """Return the DCGM programs that every pod lacks; empty if some pod has all, or none reports it."""
    reported = [data for rank in trial.evidence if (data := stages(trial, rank).get("dcgm"))]
    if not reported or any(data["found"] is not False for data in reported):
        return []
    return sorted({str(name) for data in reported for name in data["missing"]}) or ["dcgmi"]


@each_rank(DcgmStage)
def findings(rank: Rank[DcgmStage]) -> Iterator[Finding]:
    """Judge each GPU of each rank by its DCGM tests, and each node by the tests without a GPU number."""
    if rank.data["found"] is not True:
        yield unknown(rank.node, "no dcgmi and nv-hostengine in this pod, though another has them")
    else:
        runtime = every_stage(rank.trial, rank.number)["runtime"]
        yield from of_node(rank.node, rank.data, len(runtime["gpus"] or []))


def of_node(node: str, data: DcgmStage, gpus: int) -> Iterator[Finding]:
    """Judge a node's GPUs (``gpus`` in number) by DCGM's tests, and the node by the tests without a GPU number."""
    asked = f"dcgmi diag -r {data['level']}"
    expected = f"{asked} passes"
    if data["error"]:
        yield unknown(node, f"{asked} did not report everything: {data['error']}", expected)
    results = data["results"]
    at_fault = set()
    for result in results:
        if result["status"] == "pass" or _is_skipped(result) or is_persistence(result):
            continue
        who = result["who"]
        at_fault |= set(who)
        observed, fault = text_of(result), fault_of(result)
        subject = f"{node} {who[0]}" if len(who) == 1 else node
        if fault:
            yield failed(subject, observed, expected, fault, action=action_of(result, fault))
        else:
            yield unknown(subject, observed, expected)
    for index in range(gpus):
        name = f"GPU {index}"
        own = [result for result in results if name in result["who"]]
        if name in at_fault:
            continue
        passed = [each for each in own if each["status"] == "pass"]
        rest = [text_of(each) for each in own if each["status"] != "pass"]
        summary = f"passed: {', '.join(_named(passed))}" if passed else "no test passed"
        shown = "; ".join([f"DCGM {data['version'] or '(no version)'}, {summary}", *rest])
        yield proven(f"{node} {name}", bool(passed), shown, expected)
    if not gpus:
        yield unknown(node, "no GPU was read", expected)


def _named(passed: Sequence[DcgmResult]) -> Iterator[str]:
    """Name the tests; only their number for a category with many tests, such as DCGM 3's deployment."""
    of: dict[str, list[str]] = {}
    for each in passed:
        of.setdefault(each["category"] or "", []).append(each["test"] or "a test")
    for category, tests in of.items():
        yield ", ".join(tests) if len(tests) <= MOST_NAMED else f"{len(tests)} tests of {category}"


def _is_skipped(result: DcgmResult) -> bool:
    return result["status"] == "skip"
