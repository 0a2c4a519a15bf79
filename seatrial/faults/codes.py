"""The error numbers of CUDA, NCCL and DCGM, as data: one table for each.

cuda.csv: cudaError_t (driver_types.h) with distinctive words of cudaGetErrorString, and the fault that explains a
failed call. Its last column: whether this error results from opening the memory of an unreachable peer's GPU. The
process may not see that GPU, or the container or system may lack such a call. The last row is HIP's, without a number.
nccl.csv: ncclResult_t (nccl.h), with the words of RAS's text; 7 is in progress. dcgm.csv: the errors of DCGM about a
GPU or its links, with NVSentinel's action on the node for each.

Errors of system calls are Python's `errno` and `os.strerror`; the meanings of exit codes are variants of job.yaml.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple


class CudaError(NamedTuple):
    """One CUDA error; ``fault`` is '' if the number explains nothing."""

    code: int
    words: str
    fault: str
    imports: bool


class NcclResult(NamedTuple):
    """One NCCL result that is an error."""

    name: str
    ras: str
    meaning: str


UNKNOWN = CudaError(0, "", "", imports=False)
_NUMBER = re.compile(r"(?i)cuda (?:failure|error:?) (\d{1,4})\b")


def cuda_error(text: str) -> CudaError:
    """Return the CUDA error in a text, by its number or else its words; UNKNOWN if it shows none."""
    number, said = _NUMBER.search(text), text.casefold()
    by_number = (row for row in _cuda_errors() if number and row.code == int(number[1]))
    return next(by_number, None) or next((row for row in _cuda_errors() if row.words.casefold() in said), UNKNOWN)


@cache
def _cuda_errors() -> tuple[CudaError, ...]:
    """Return the table, longer texts before their own beginnings."""
    rows = _rows("cuda.csv")
    errors = [CudaError(int(row["code"] or 0), row["words"], row["fault"], row["import"] == "yes") for row in rows]
    return tuple(sorted(errors, key=lambda row: -len(row.words)))


@cache
def nccl_results() -> Mapping[int, NcclResult]:
    """Return NCCL's errors by number."""
    return {int(row["code"]): NcclResult(row["name"], row["ras"], row["meaning"]) for row in _rows("nccl.csv")}


def dcgm_action(code: object) -> str:
    """Return the action for a node with a DCGM error; '' for a number that the table lacks."""
    return _dcgm_actions().get(code, "") if isinstance(code, int) else ""


@cache
def _dcgm_actions() -> Mapping[int, str]:
    return {int(row["code"]): row["action"] for row in _rows("dcgm.csv")}


def _rows(name: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(line for line in table if not line.startswith("#")))
