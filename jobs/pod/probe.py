"""The archive's entry point for Python: the probe, or the program that torchrun starts on every GPU.

The probe runs the trial's stages in order; each prints a line of evidence. The implementation is in `seatrial_pod/`.
This file only rejects a Python that cannot parse that: any Python 3 must be able to read it, and it is not compressed.
"""

import importlib
import json
import os
import signal
import sys
import traceback

OLDEST = (3, 8)
TERMINATED = 128 + signal.SIGTERM
TRIAL = "seatrial_pod.stages.run"
PROGRAMS = {
    "measure": "seatrial_pod.bench.sweep",
    "train": "seatrial_pod.bench.training",
    "checkpoint": "seatrial_pod.bench.checkpoint",
}


def unfit() -> str:
    """Return why this image's Python cannot run the probe; '' if it can."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < OLDEST:
        return "Python " + version + " is too old for the probe, which needs 3.8 or newer"
    try:
        import zlib  # noqa: F401, PLC0415  (a Python can be built without it)
    except ImportError:
        return "Python " + version + " has no zlib, without which it cannot unpack the probe"
    return ""


def refuse(why: str) -> int:
    """Report why the probe cannot run: as evidence, and to the kubelet for the pod's status."""
    line = {
        "seatrial": 1,
        "run": os.environ.get("SEATRIAL_RUN", ""),
        "rank": int(os.environ.get("JOB_COMPLETION_INDEX") or 0),
        "n": 1,
        "stage": "start",
        "seconds": 0,
        "data": {"python": ".".join(str(part) for part in sys.version_info[:3]), "error": why},
    }
    sys.stdout.write(json.dumps(line) + "\n")
    try:  # as stages/lines.py does
        descriptor = os.open(os.environ.get("SEATRIAL_TERMINATION_LOG") or "/dev/termination-log", os.O_WRONLY)
        os.write(descriptor, why.encode("ascii"))
    except OSError:  # the log line has the same text
        pass
    return 65


def main() -> int:
    """Run the trial; the exit code is 0 unless the probe itself failed, or was terminated early."""
    program = PROGRAMS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if not program:
        # A container's first process has no default action for SIGTERM: before the stages begin, the signal would be
        # ignored.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
    why = unfit()
    if why:
        if program:
            sys.exit("seatrial: " + why)
        return refuse(why)
    sys.dont_write_bytecode = True
    sys.excepthook = traceback.print_exception  # before 3.13 the interpreter's traceback shows no line of an archive
    if program:
        return int(importlib.import_module(program).main(sys.argv[2:]))
    return int(importlib.import_module(TRIAL).main(os.path.dirname(os.path.abspath(__file__))))


if __name__ == "__main__":
    sys.exit(main())
