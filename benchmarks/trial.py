"""The time of the trial on the healthy embedded cluster: its median and its ratio to the budget of 15 s.

The whole command is measured as a user runs it: Python and the cluster start, preflight, trial, reports, clean-up.

Usage: python benchmarks/trial.py [ROUNDS]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET_S = 15.0
"""The trial's budget on two cores."""


def run(out):
    """Run one trial; return its wall seconds, and the seconds that it reports."""
    command = [sys.executable, "-m", "checks", "accept", "--cluster", "sim:healthy", "--out", str(out)]
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    record = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert (record["verdict"], record["simulated"]) == ("go", True)
    return wall, record["seconds"]


def main():
    """Measure some rounds; the first one warms the file cache and is not counted."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        taken = [run(Path(folder) / str(number)) for number in range(rounds + 1)][1:]
    wall = [seconds for seconds, _ in taken]
    own = statistics.median(seconds for _, seconds in taken)
    median = statistics.median(wall)
    print(f"trial on sim:healthy  median {median:.2f} s of {rounds} ({min(wall):.2f} to {max(wall):.2f})", end="   ")
    print(f"{own:.2f} s without start-up   {os.cpu_count()} cores   ratio to {BUDGET_S:.0f} s: {median / BUDGET_S:.2f}")
    return int(median > BUDGET_S)


if __name__ == "__main__":
    raise SystemExit(main())
