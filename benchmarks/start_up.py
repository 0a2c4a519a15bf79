"""The processor time of short commands, as a ratio to `python -c "import pytest"` in the same run.

Usage: python benchmarks/start_up.py [ROUNDS]

On a shared core, with 0.13 s for `import pytest`: --help 0.2, explain of a log of 3 KB 1.3, checks 3.7.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "import pytest": [sys.executable, "-c", "import pytest"],
    "seatrial --help": [sys.executable, "-m", "checks", "--help"],
    "seatrial explain": [sys.executable, "-m", "checks", "explain", "tests/pod/data/nccl-2.28.9-node0.log"],
    "seatrial checks": [sys.executable, "-m", "checks", "checks"],
}


def seconds(command):
    """Return the processor seconds of one run of the command, whatever its verdict."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 1, 10), command
    return used.ru_utime + used.ru_stime


def main():
    """Measure the commands alternately, so that a machine of varying speed does not favour one of them."""
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
