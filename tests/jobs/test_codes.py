"""CUDA's and NCCL's error numbers are in one table each, and an error's text leads to the same row as its number."""

from __future__ import annotations

import pytest

from seatrial.faults import codes
from seatrial.faults.catalogue import catalogue
from seatrial.faults.codes import UNKNOWN, cuda_error, nccl_results
from tests.table import table

ROWS = codes._cuda_errors()


def test_every_number_appears_once_and_names_a_fault_of_the_catalogue() -> None:
    numbers = [row.code for row in ROWS]
    assert len(numbers) == len(set(numbers)) > 40
    assert {row.fault for row in ROWS if row.fault} <= set(catalogue())
    assert all(row.fault or row.imports for row in ROWS)


@table("row", ROWS)
def test_the_words_of_an_error_lead_to_its_row_and_so_does_its_number(row: codes.CudaError) -> None:
    assert cuda_error(f"x.cc:1 NCCL WARN Cuda failure '{row.words}'") == row
    if row.code:
        assert cuda_error(f"x.cc:1 NCCL WARN Cuda failure {row.code}") == row
        assert cuda_error(f"RuntimeError: CUDA error: {row.code}") == row


@pytest.mark.parametrize("text", ["Cuda failure 811 'x'", "Cuda failure 1234", "rank 700 failed", "no error"])
def test_a_number_that_is_not_in_the_table_reports_nothing(text: str) -> None:
    """811 belongs to dynamic parallelism, and not to MPS."""
    assert cuda_error(text) == UNKNOWN


def test_what_nccl_returns_is_reported_by_number_in_each_form_of_words() -> None:
    assert list(nccl_results()) == [1, 2, 3, 4, 5, 6]
    assert all(all(row) for row in nccl_results().values())
