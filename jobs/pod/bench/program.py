"""The common frame of the bench's programs: find torch, join the process group, report a failure.

Each rank has its device and exchanges small values with the others; the memory available for messages is that of its
machine.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import os
import sys
import time
from typing import Any, Callable

from .table import say

# torch's own timeout is after the probe's deadline, so that only the probe decides that a rank hangs
PROCESS_GROUP_SLACK_S = 120


def time_left() -> float:
    """Return the seconds until the probe would end this command; the processes of a machine share the clock."""
    until = os.environ.get("SEATRIAL_BENCH_UNTIL")
    return max(0.0, float(until) - time.monotonic()) if until else 600.0


def begin(torch: Any, device: str) -> None:
    """Join the process group; fail if torch cannot use the GPU, and never measure the CPU instead."""
    deadline = max(1.0, time_left())  # less the import of torch, which may take minutes from a cold image
    faulthandler.dump_traceback_later(deadline, exit=False)  # a traceback shows the place of a hang
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


def main(device: str, work: Callable[[Any], None]) -> int:
    """Call `work` with torch within a process group; on failure print the reason and return non-zero."""
    rank_name = "rank %s" % os.environ.get("RANK", "?")
    try:
        import torch  # noqa: PLC0415  (an image may have none)
        import torch.distributed  # noqa: PLC0415

        begin(torch, device)
        work(torch)
        torch.distributed.destroy_process_group()
    except Exception as error:  # noqa: BLE001  (whatever it was, it is this rank's answer, and the exit code says so)
        say("# seatrial bench: %s failed: %s: %s" % (rank_name, type(error).__name__, error))
        sys.stdout.flush()
        os._exit(1)  # a normal exit would wait for the collective that failed
    faulthandler.cancel_dump_traceback_later()
    return 0


class Rank:
    """A rank and its device. Ranks exchange values only by all_reduce, so that nothing else can fail."""

    def __init__(self, torch: Any, options: argparse.Namespace) -> None:
        self.torch, self.dist, self.options = torch, torch.distributed, options
        self.rank, self.ranks = self.dist.get_rank(), self.dist.get_world_size()
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        self.cuda = options.device == "cuda"
        self.device = torch.device("cuda", self.local) if self.cuda else torch.device("cpu")

    def align(self) -> None:
        """Synchronise all ranks."""
        self.total(0)
        self.wait()

    def wait(self) -> None:
        """Wait until the device has completed its queue."""
        if self.cuda:
            self.torch.cuda.synchronize(self.device)

    def total(self, number: int) -> int:
        """Return the sum over all ranks."""
        return int(self._reduced(number, self.torch.int64, self.dist.ReduceOp.SUM))

    def least(self, number: int) -> int:
        """Return the smallest of all ranks' numbers."""
        return int(self._reduced(number, self.torch.int64, self.dist.ReduceOp.MIN))

    def slowest(self, seconds: float) -> float:
        """Return the largest of all ranks' times."""
        return float(self._reduced(seconds, self.torch.float64, self.dist.ReduceOp.MAX))

    def _reduced(self, number: Any, dtype: Any, operation: Any) -> Any:
        tensor = self.torch.tensor([number], dtype=dtype, device=self.device)
        self.dist.all_reduce(tensor, op=operation)
        return tensor.item()


def free_memory() -> int:
    """Return the free bytes of this machine, or of this container if that is less."""
    free = 1 << 30
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            free = next(int(line.split()[1]) * 1024 for line in stream if line.startswith("MemAvailable:"))
        limit, used = (number("/sys/fs/cgroup/memory." + name) for name in ("max", "current"))
        free = min(free, max(0, limit - used))
    except (OSError, ValueError, StopIteration):  # no such file, or "max": no limit
        pass
    return free


def number(path: str) -> int:
    """Return the whole number in a small file."""
    with open(path, encoding="ascii") as stream:
        return int(stream.read())


def bus_id(device: int) -> str:
    """Return the device's PCI address from the driver; torch reports it only in recent versions."""
    import ctypes  # noqa: PLC0415  (only here, and only with a GPU)

    text = ctypes.create_string_buffer(32)
    handle = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        known = driver.cuDeviceGet(ctypes.byref(handle), device) == 0
        if known and driver.cuDeviceGetPCIBusId(text, 32, handle) == 0:
            return text.value.decode("ascii", "replace").lower().rpartition(".")[0]
    except (OSError, AttributeError):
        pass
    return "unknown"
