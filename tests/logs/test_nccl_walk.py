"""The number of functions that a log line passes on its way to the report is limited."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.program import ROOT

MOST = 151
"""60 % of the original 228, 11 for the line that states the job's size, and 3 for the last line of a stream."""
MOST_OF_A_WARNING = 83
"""The original number: a quarter of it finds the line and its process, the rest finds a fault."""


def test_a_channel_line_and_a_warning_pass_few_functions() -> None:
    walk = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "nccl_walk.py"], capture_output=True, text=True, check=True
    ).stdout
    counts = [int(count) for count in re.findall(r": (\d+) functions of", walk)]
    assert len(counts) == 4
    assert counts[0] > counts[1] > 0
    assert counts[0] <= MOST, walk
    assert 0 < counts[3] <= MOST_OF_A_WARNING, walk
