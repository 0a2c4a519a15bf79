"""The probe: runs the trial's stages in order and prints one line of evidence for each.

This file only finds its siblings and refuses a Python that cannot read them; any Python 3 must be able to read it.
The work is in `stages/`, which lies beside it in the pod (/seatrial, mounted read-only).
"""

import importlib
import json
import os
import signal
import sys

OLDEST = (3, 8)
TERMINATED = 128 + signal.SIGTERM


def refuse() -> int:
    """Say in the evidence's own form that this image's Python is too old."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    line = {
        "seatrial": 1,
        "run": os.environ.get("SEATRIAL_RUN", ""),
        "rank": int(os.environ.get("JOB_COMPLETION_INDEX") or 0),
        "n": 1,
        "stage": "start",
        "seconds": 0,
        "data": {
            "python": version,
            "error": "Python " + version + " is too old for the probe, which needs 3.8 or newer",
        },
    }
    sys.stdout.write(json.dumps(line) + "\n")
    return 65


def main() -> int:
    """Run the trial; the exit code is 0 unless the probe itself is broken, or was told to end before it had."""
    # A container's first process has no default action for SIGTERM: until the stages begin, it would be ignored.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
    if sys.version_info[:2] < OLDEST:
        return refuse()
    sys.dont_write_bytecode = True
    here = os.path.dirname(os.path.abspath(__file__))
    if here not in sys.path:  # PYTHONSAFEPATH keeps the script's folder out
        sys.path.insert(0, here)
    return int(importlib.import_module("stages.run").main(here))


if __name__ == "__main__":
    sys.exit(main())
