"""DCGM's diagnostics: the results of its tests for each GPU, and whether the GPU is at fault or the node's settings.

A test that was skipped, or could not run, shows nothing: a GPU passes where some test passed and none failed. The
part at fault follows from DCGM's own category and severity (dcgm_errors.h), and where a release prints none from
what the test looks at: tests of the deployment look at libraries, permissions and settings, the others at the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jobs.run.result import TrialResult
from jobs.run.stages.hardware import DcgmResult, DcgmSaid, DcgmStage
from reports.record import Finding
from seatrial.faults.actions import heaviest
from seatrial.faults.codes import dcgm_action

from .findings import failed, proven, unknown
from .ranks import Rank, each_rank, stages

GPU_FAULT, SETUP_FAULT = "gpu.dcgm-failed", "runtime.dcgm-setup"
# github.com/NVIDIA/DCGM, dcgmlib/dcgm_errors.h: dcgmErrorCategory_enum, dcgmErrorSeverity_enum and dcgmError_enum.
OF_GPU = frozenset({1, 2, 5, *range(9, 16)})  # performance, Xid, and all that begin with HARDWARE
OF_SETUP = frozenset({3, 4})  # SOFTWARE_CONFIG, SOFTWARE_LIBRARY
ASKS = {1: "monitor it", 2: "isolate it", 4: "triage", 5: "change a setting", 6: "drain it and reset it"}
SEVERITY_OF = {2: GPU_FAULT, 5: SETUP_FAULT, 6: GPU_FAULT}
PERSISTENCE_ID = 29
PERSISTENCE = re.compile(r"persistence mode", re.IGNORECASE)
NOT_RUN = re.compile(r"abort|skipp|permission", re.IGNORECASE)
"""A test that was ended early, left out, or not allowed to this pod has measured nothing, whatever its status says."""
ON_GPU = re.compile(r"remap|retire|inforom", re.IGNORECASE)
"""Tests of DCGM 3's deployment category that read the GPU's own state."""
MOST_NAMED = 4
OFF = "the profile, or --dcgm, disables it (runtime.dcgm: 0)"
INSTALL = "install datacenter-gpu-manager-4-core (DCGM 3: datacenter-gpu-manager) in the trial's image"


def missing(trial: TrialResult) -> list[str]:
    """Return DCGM's programs that no pod has; nothing if some pod has all, or none reports it."""
    reported = [data for rank in trial.evidence if (data := stages(trial, rank).get("dcgm"))]
    if not reported or any(data.get("found") is not False for data in reported):
        return []
    return sorted({str(name) for data in reported for name in data.get("missing") or []}) or ["dcgmi"]


@each_rank(DcgmStage)
def findings(rank: Rank[DcgmStage]) -> Iterator[Finding]:
    """Judge each GPU of each rank by DCGM's tests of it, and each node by those that are of no single GPU."""
    if rank.data.get("found") is not True:
        yield unknown(rank.node, "no dcgmi and nv-hostengine in this pod, though another has them")
    else:
        runtime = stages(rank.trial, rank.number).get("runtime") or {}
        yield from of_node(rank.node, rank.data, len(runtime.get("gpus") or []))


def of_node(node: str, data: DcgmStage, gpus: int) -> Iterator[Finding]:
    """Judge a node's GPUs, so many of them, by DCGM's tests, and the node by those that are of no single GPU."""
    asked = f"dcgmi diag -r {data.get('level')}"
    expected = f"{asked} passes"
    if data.get("error"):
        yield unknown(node, f"{asked} did not report everything: {data['error']}", expected)
    results = data.get("results") or []
    at_fault = set()
    for result in results:
        if result.get("status") == "pass" or _is_skipped(result) or _is_persistence(result):
            continue
        who = result.get("who") or []
        at_fault |= set(who)
        observed, fault = _text_of(result), _fault(result)
        subject = f"{node} {who[0]}" if len(who) == 1 else node
        if fault:
            codes = [said.get("id") for said in result.get("said") or [] if fault == GPU_FAULT]
            yield failed(subject, observed, expected, fault, action=heaviest(map(dcgm_action, codes)) or "")
        else:
            yield unknown(subject, observed, expected)
    for index in range(gpus):
        name = f"GPU {index}"
        own = [result for result in results if name in (result.get("who") or [])]
        if name in at_fault:
            continue
        passed = [each for each in own if each.get("status") == "pass"]
        rest = [_text_of(each) for each in own if each.get("status") != "pass"]
        summary = f"passed: {', '.join(_named(passed))}" if passed else "no test passed"
        shown = "; ".join([f"DCGM {data.get('version') or '(no version)'}, {summary}", *rest])
        yield proven(f"{node} {name}", bool(passed), shown, expected)
    if not gpus:
        yield unknown(node, "no GPU was read", expected)


def _named(passed: Sequence[DcgmResult]) -> Iterator[str]:
    """Name the tests; of a category with many, such as DCGM 3's deployment, only how many."""
    of: dict[str, list[str]] = {}
    for each in passed:
        of.setdefault(each.get("category") or "", []).append(each.get("test") or "a test")
    for category, tests in of.items():
        yield ", ".join(tests) if len(tests) <= MOST_NAMED else f"{len(tests)} tests of {category}"


def _is_skipped(result: DcgmResult) -> bool:
    return result.get("status") == "skip"


def _is_persistence(result: DcgmResult) -> bool:
    said = result.get("said") or []
    named = bool(said) and all(_says_persistence(each) for each in said)
    return named or (not said and bool(PERSISTENCE.search(result.get("test") or "")))


def _says_persistence(said: DcgmSaid) -> bool:
    return said.get("id") == PERSISTENCE_ID or bool(PERSISTENCE.search(said.get("text") or ""))


def _text_of(result: DcgmResult) -> str:
    words = {"fail": "failed", "skip": "skipped", "warn": "warns"}
    status = result.get("status") or "no status"
    parts = [f"{result.get('test') or 'a test'} {words.get(status, status)}"]
    for said in result.get("said") or []:
        asks = ASKS.get(said.get("severity") or 0)
        parts.append(f"{said.get('text')}{f' (DCGM: {asks})' if asks and status == 'fail' else ''}")
    return ": ".join([parts[0], "; ".join(parts[1:])]) if parts[1:] else parts[0]


def _fault(result: DcgmResult) -> str:
    """Return the part at fault by a result, '' without a fault: it only warns, or nothing was measured."""
    if result.get("status") != "fail":
        return ""
    said = [each for each in result.get("said") or [] if not _says_persistence(each)]
    faults = {_fault_of(each, result) for each in said} if said else {_by_test(result)}
    return next((fault for fault in (GPU_FAULT, SETUP_FAULT) if fault in faults), "")


def _fault_of(said: DcgmSaid, result: DcgmResult) -> str:
    category, severity = said.get("category"), said.get("severity") or 0
    if category in OF_GPU:
        return GPU_FAULT
    if NOT_RUN.search(said.get("text") or ""):
        return ""
    if category in OF_SETUP:
        return SETUP_FAULT
    return SEVERITY_OF.get(severity) or _by_test(result)


def _by_test(result: DcgmResult) -> str:
    test = result.get("test") or ""
    if ON_GPU.search(test):
        return GPU_FAULT
    if NOT_RUN.search(test):
        return ""
    deployment = (result.get("category") or "").lower() == "deployment" or test.lower() == "software"
    return SETUP_FAULT if deployment else GPU_FAULT
