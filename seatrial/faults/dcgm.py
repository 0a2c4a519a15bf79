"""The part at fault in a failed test of DCGM's diagnostics: the GPU, or the node's settings.

It follows from DCGM's own category and severity (dcgm_errors.h). For a release that prints none it follows from the
test: tests of the deployment read libraries, permissions and settings, the others the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from .actions import heaviest
from .codes import dcgm_action

Result: TypeAlias = Mapping[str, Any]
"""A result of a test as seatrial.logs.reader.dcgm reads it, or one of its warnings."""
GPU_FAULT, SETUP_FAULT = "gpu.dcgm-failed", "runtime.dcgm-setup"
# github.com/NVIDIA/DCGM, dcgmlib/dcgm_errors.h: dcgmErrorCategory_enum, dcgmErrorSeverity_enum and dcgmError_enum.
OF_GPU = frozenset({1, 2, 5, *range(9, 16)})  # performance, Xid, and all that begin with HARDWARE
OF_SETUP = frozenset({3, 4})  # SOFTWARE_CONFIG, SOFTWARE_LIBRARY
ASKS = {1: "monitor it", 2: "isolate it", 4: "triage", 5: "change a setting", 6: "drain it and reset it"}
SEVERITY_OF = {2: GPU_FAULT, 5: SETUP_FAULT, 6: GPU_FAULT}
PERSISTENCE_ID = 29
PERSISTENCE = re.compile(r"persistence mode", re.IGNORECASE)
NOT_RUN = re.compile(r"abort|skipp|permission", re.IGNORECASE)
"""A test that was aborted, skipped, or not permitted in this pod measured nothing, whatever its status."""
NOT_READY = re.compile(r"system not yet initialized|busy or unavailable")
"""CUDA errors 802 and 46 (cudaGetErrorString): the fabric manager does not run, or a program holds the GPU."""
ON_GPU = re.compile(r"remap|retire|inforom", re.IGNORECASE)
"""Tests of DCGM 3's deployment category that read the GPU's own state."""


def is_persistence(result: Result) -> bool:
    """Return whether a result is about persistence mode alone, which has its own check."""
    said = result.get("said") or []
    named = bool(said) and all(_says_persistence(each) for each in said)
    return named or (not said and bool(PERSISTENCE.search(result.get("test") or "")))


def _says_persistence(said: Result) -> bool:
    return said.get("id") == PERSISTENCE_ID or bool(PERSISTENCE.search(said.get("text") or ""))


def text_of(result: Result) -> str:
    """Return a result in words: the test, its outcome, and DCGM's message and advice."""
    words = {"fail": "failed", "skip": "skipped", "warn": "warns"}
    status = result.get("status") or "no status"
    parts = [f"{result.get('test') or 'a test'} {words.get(status, status)}"]
    for said in result.get("said") or []:
        asks = ASKS.get(said.get("severity") or 0)
        parts.append(f"{said.get('text')}{f' (DCGM: {asks})' if asks and status == 'fail' else ''}")
    return ": ".join([parts[0], "; ".join(parts[1:])]) if parts[1:] else parts[0]


def fault_of(result: Result) -> str:
    """Return the part at fault; '' if the test only warns, or nothing was measured."""
    if result.get("status") != "fail":
        return ""
    said = [each for each in result.get("said") or [] if not _says_persistence(each)]
    faults = {_by_warning(each, result) for each in said} if said else {_by_test(result)}
    return next((fault for fault in (GPU_FAULT, SETUP_FAULT) if fault in faults), "")


def _by_warning(said: Result, result: Result) -> str:
    category, severity = said.get("category"), said.get("severity") or 0
    if category in OF_GPU:
        return GPU_FAULT
    if NOT_RUN.search(said.get("text") or ""):
        return ""
    if category in OF_SETUP or NOT_READY.search(said.get("text") or ""):
        return SETUP_FAULT
    return SEVERITY_OF.get(severity) or _by_test(result)


def _by_test(result: Result) -> str:
    test = result.get("test") or ""
    if ON_GPU.search(test):
        return GPU_FAULT
    if NOT_RUN.search(test):
        return ""
    deployment = (result.get("category") or "").lower() == "deployment" or test.lower() == "software"
    return SETUP_FAULT if deployment else GPU_FAULT


def action_of(result: Result, fault: str) -> str:
    """Return the action of DCGM's errors for a failed GPU's node; '' if the catalogue's entry gives it."""
    codes = [said.get("id") for said in result.get("said") or [] if fault == GPU_FAULT]
    return heaviest(map(dcgm_action, codes)) or ""
