"""Shared fixtures of the analyzer's tests: judging bytes, and the recorded runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from seatrial.logs import conclude, read

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def data() -> Path:
    """Return our own logs: recorded runs with labels."""
    return DATA


@pytest.fixture(scope="session")
def judge():
    """Judge texts or bytes as one job, each as a separate file."""

    def judge(*logs: bytes | str, **options):
        streams = [
            (f"log{index}", io.BytesIO(log.encode() if isinstance(log, str) else log)) for index, log in enumerate(logs)
        ]
        jobs = conclude(read(streams), one_job=True, **options)
        assert len(jobs) == 1
        return jobs[0]

    return judge
