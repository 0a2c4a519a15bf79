"""The cost of `seatrial --help`: its ratio to `python -c "import pytest"`, both measured in one run.

Usage: python benchmarks/start_up.py [ROUNDS]
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "import pytest": [sys.executable, "-c", "import pytest"],
    "seatrial --help": [sys.executable, "-m", "checks", "--help"],
    "seatrial checks": [sys.executable, "-m", "checks", "checks"],
}


def seconds(command):
    """Wall seconds of one run of the command."""
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main():
    """Measure the commands in turn, so that a drifting machine does not favour one of them."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    taken = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        seconds(command)  # warm the file cache
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    base = taken["import pytest"]
    for name, values in taken.items():
        ratio = statistics.median(v / b for v, b in zip(values, base, strict=True))
        print(f"{name:<18} median {statistics.median(values) * 1000:7.1f} ms   ratio to import pytest {ratio:5.2f}")


if __name__ == "__main__":
    main()
