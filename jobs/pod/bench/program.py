"""What every program of the bench does around its work: torch found, the process group joined, a failure said."""

from __future__ import annotations

import datetime
import faulthandler
import os
import sys
import time
from typing import Any, Callable

from .table import say

# torch's own time-out comes after the probe's deadline: one mechanism decides what is a hang
PROCESS_GROUP_SLACK_S = 120


def time_left() -> float:
    """Return the seconds until the probe would end this command; the processes of a machine share the clock."""
    until = os.environ.get("SEATRIAL_BENCH_UNTIL")
    return max(0.0, float(until) - time.monotonic()) if until else 600.0


def begin(torch: Any, device: str) -> None:
    """Join the process group; a GPU that torch cannot use is a failure, never a reason to measure the CPU instead."""
    deadline = max(1.0, time_left())  # less what importing torch took, which may be minutes from a cold image
    faulthandler.dump_traceback_later(deadline, exit=False)  # a hang shows where it hangs
    backend = {"cuda": "nccl", "cpu": "gloo"}
    if device == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if not torch.cuda.is_available():
            raise RuntimeError("torch %s finds no usable GPU in this container" % torch.__version__)
        if local >= torch.cuda.device_count():
            raise RuntimeError("local rank %d has no GPU: torch sees %d" % (local, torch.cuda.device_count()))
        torch.cuda.set_device(local)
    timeout = datetime.timedelta(seconds=deadline + PROCESS_GROUP_SLACK_S)
    torch.distributed.init_process_group(backend[device], timeout=timeout)


def main(here: str, device: str, work: Callable[[Any], None]) -> int:
    """Give torch to `work` within a process group; prints the reason and returns non-zero where it fails."""
    # The script's folder holds packages of the probe's, whose names must not hide installed ones from torch.
    # In a ConfigMap the script is a link to ..data/, itself a link; Python puts the end of that chain on its path.
    ours = {here, os.path.realpath(here), os.path.dirname(os.path.realpath(os.path.join(here, "measure.py")))}
    sys.path[:] = [entry for entry in sys.path if not {os.path.abspath(entry or "."), os.path.realpath(entry)} & ours]
    who = "rank %s" % os.environ.get("RANK", "?")
    try:
        import torch  # noqa: PLC0415  (after the path was cleaned)
        import torch.distributed  # noqa: PLC0415

        begin(torch, device)
        work(torch)
        torch.distributed.destroy_process_group()
    except Exception as error:  # noqa: BLE001  (whatever it was, it is this rank's answer, and the exit code says so)
        say("# seatrial bench: %s failed: %s: %s" % (who, type(error).__name__, error))
        sys.stdout.flush()
        os._exit(1)  # a normal exit would wait for the collective that failed
    faulthandler.cancel_dump_traceback_later()
    return 0
