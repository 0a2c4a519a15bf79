"""How fast, and how correct, is all_reduce over all ranks? A torch.distributed bench that prints nccl-tests' table.

torch's all_reduce works in place: the in-place columns are measured, the out-of-place ones say N/A. Bandwidth is
nccl-tests' own (its doc/PERFORMANCE.md): algbw = bytes / time, busbw = algbw * 2(n-1)/n, with 1 GB = 1e9 bytes and the
slowest rank's time. A slow network (sockets) is measured with fewer repetitions, or with smaller messages only: it must
not look like one that hangs.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import math
import os
import socket
import sys
import time
from typing import Any, Dict, List, Optional

ELEMENT_BYTES = 4  # float32, as nccl-tests' default
PERIOD = 65521  # a prime: NCCL's chunks are powers of two, so a misplaced chunk never lands on the same values
LARGEST_VALUE = 8191
EXACT = 1 << 24  # float32 holds every whole number up to here, so the sum is exact in any order
CHECK_ROWS = 1024  # rows of PERIOD values compared at once: 64 MB of scratch memory
SPARE_BYTES = 1 << 30  # left free on the GPU, as nccl-tests does
LEAST_S = 1.0  # for each size, however little of the sweep's volume it is: small messages cost latency, not volume
SHARE = 0.7  # of the time that is left goes into repetitions; the rest is for filling, checking and errors
OPERATIONS = 4  # at least: two to see how long one takes, one measured, one checked
PROCESS_GROUP_SLACK_S = (
    120  # torch's own time-out comes after the probe's deadline: one mechanism decides what is a hang
)


class Bench:
    """The sweep over message sizes on one rank."""

    def __init__(self, torch: Any, options: argparse.Namespace) -> None:
        self.torch, self.dist, self.options = torch, torch.distributed, options
        self.rank, self.ranks = self.dist.get_rank(), self.dist.get_world_size()
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        self.cuda = options.device == "cuda"
        self.device = torch.device("cuda", self.local) if self.cuda else torch.device("cpu")
        self.wrong = 0
        self.busbw: List[float] = []

    def run(self) -> None:
        """Print the header, measure every size, print the footer."""
        options = self.options
        self.align()  # the library connects, and takes its own memory, before the free memory is looked at
        largest = self.least(min(options.max_bytes, self.room()))
        if largest < options.min_bytes:
            raise RuntimeError("%d bytes do not fit into the free memory (%d bytes)" % (options.min_bytes, largest))
        self.header(largest)
        buffer = self.torch.empty(largest // ELEMENT_BYTES, dtype=self.torch.float32, device=self.device)
        mine = self.pattern(self.rank)
        expected = self.pattern(0)
        for rank in range(1, self.ranks):
            expected += self.pattern(rank)
        seconds = 0.0
        sizes = steps(options.min_bytes, largest, options.factor)
        for place, size in enumerate(sizes):
            if self.too_long(size, seconds * options.factor):
                break
            part = buffer[: size // ELEMENT_BYTES]
            fill(part, mine)
            seconds = self.measure(part, size / sum(sizes[place:]))
            fill(part, mine)
            self.dist.all_reduce(part)
            self.row(part.numel(), seconds, self.total(mismatches(part, expected)))
        self.footer()

    def too_long(self, size: int, predicted: float) -> bool:
        """Say whether the next size does not fit into the time any more, given what one all_reduce of it will take."""
        left = self.left()
        if predicted * OPERATIONS <= left:
            return False
        if self.rank == 0:
            words = "# seatrial: sizes from %d on are left out: one takes about %.1f s, %.0f s remain"
            say(words % (size, predicted, left))
        return True

    def measure(self, part: Any, share: float) -> float:
        """Return the mean seconds of one all_reduce, on the slowest rank, using this size's `share` of what remains."""
        wanted, budget = self.options.warmup + self.options.iters, max(LEAST_S, SHARE * share * self.left())
        one = self.timed(part, 1)
        if one * wanted > budget:
            one = min(one, self.timed(part, 1))  # the first of a size may set up connections
        if one * wanted > budget:
            iters = max(1, min(self.options.iters, int(budget / one)))
            if self.rank == 0:
                say("# seatrial: %d of %d iterations: one takes about %.2f s" % (iters, self.options.iters, one))
            return self.timed(part, iters)
        for _ in range(self.options.warmup):
            self.dist.all_reduce(part)
        return self.timed(part, self.options.iters)

    def timed(self, part: Any, iters: int) -> float:
        """Return the mean seconds of that many all_reduces, on the slowest rank."""
        self.align()
        if self.cuda:
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(iters):
                self.dist.all_reduce(part)
            end.record()
            end.synchronize()
            seconds = begin.elapsed_time(end) / 1000.0
        else:
            began = time.perf_counter()
            for _ in range(iters):
                self.dist.all_reduce(part)
            seconds = time.perf_counter() - began
        return self.slowest(seconds / iters)

    def left(self) -> float:
        """Return the seconds that remain, on the rank that has the least."""
        return self.least(int(time_left() * 1000)) / 1000.0

    def pattern(self, rank: int) -> Any:
        """Return one period of a rank's values: whole numbers that differ by rank and by position."""
        modulus = max(2, min(LARGEST_VALUE, EXACT // self.ranks))
        index = self.torch.arange(PERIOD, dtype=self.torch.int64, device=self.device)
        return ((index * 40503 // 7 + rank * 97) % modulus).to(self.torch.float32)

    def room(self) -> int:
        """Return how many bytes one message may have on this rank."""
        if self.cuda:
            return max(0, int(self.torch.cuda.mem_get_info(self.device)[0]) - SPARE_BYTES)
        return free_memory() // (2 * int(os.environ.get("LOCAL_WORLD_SIZE", "1")))

    # -- small agreements between the ranks: all through all_reduce, so that nothing else can be what fails -----------

    def align(self) -> None:
        """Let all ranks start together."""
        self.total(0)
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

    # -- printing ----------------------------------------------------------------------------------------------------

    def header(self, largest: int) -> None:
        """Print what was asked for and which rank sits where, as nccl-tests does."""
        options = self.options
        places: List[Optional[str]] = [None] * self.ranks
        self.dist.all_gather_object(places, self.place())
        if self.rank:
            return
        say("# seatrial all_reduce bench, torch %s, %s" % (self.torch.__version__, self.library()))
        if largest < options.max_bytes:
            say("# Reducing maxBytes to %d due to memory limitation" % largest)
        say(
            "# nThread 1 nGpus 1 minBytes %d maxBytes %d step: %d(factor) warmup iters: %d iters: %d agg iters: 1"
            " validation: 1 graph: 0" % (options.min_bytes, largest, options.factor, options.warmup, options.iters)
        )
        say("#")
        say("# Using devices")
        for rank, place in enumerate(places):
            say("#  Rank %2d Group  0 %s" % (rank, place))
        say("#")
        say("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place" % ("", "", "", "", ""))
        names = ("size", "count", "type", "redop", "root")
        say("# %10s  %12s  %8s  %6s  %6s" % names + "  %7s  %6s  %6s %6s" % COLUMNS + "  %7s  %6s  %6s %6s" % COLUMNS)
        units = ("(B)", "(elements)", "", "", "") + ("(us)", "(GB/s)", "(GB/s)", "") * 2
        say("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s" % units)

    def place(self) -> str:
        """Return where this rank runs: process, host, device."""
        host = socket.gethostname().split(".")[0]
        name, bus = "CPU", "0000:00:00"
        if self.cuda:
            name, bus = self.torch.cuda.get_device_name(self.device), bus_id(self.local)
        return "Pid %6d on %10s device %2d [%s] %s" % (os.getpid(), host, self.local, bus, name)

    def library(self) -> str:
        """Return which communication library does the work, with its version."""
        if not self.cuda:
            return "gloo"
        version = self.torch.cuda.nccl.version()
        numbers = version if isinstance(version, tuple) else (version,)
        kind = "rccl" if getattr(self.torch.version, "hip", None) else "nccl"
        return "%s %s" % (kind, ".".join(str(number) for number in numbers))

    def row(self, count: int, seconds: float, wrong: int) -> None:
        """Print one size's row; what was not measured is N/A, never 0."""
        algbw = count * ELEMENT_BYTES / seconds / 1e9 if seconds > 0 else float("nan")
        busbw = algbw * 2 * (self.ranks - 1) / self.ranks
        self.busbw.append(busbw)
        self.wrong += wrong
        if self.rank:
            return
        left = (count * ELEMENT_BYTES, count, "float", "sum", -1)
        in_place = (fit(seconds * 1e6, 7), fit(algbw, 6), fit(busbw, 6), wrong)
        say(
            "%12d  %12d  %8s  %6s  %6d" % left
            + "  %7s  %6s  %6s %6s" % (("N/A",) * 4)
            + "  %7s  %6s  %6s %6d" % in_place
        )

    def footer(self) -> None:
        """Print how many values were wrong and the sweep's mean, as nccl-tests does."""
        if self.rank == 0:
            say("# Out of bounds values : %d %s" % (self.wrong, "FAILED" if self.wrong else "OK"))
            say("# Avg bus bandwidth    : %g" % (sum(self.busbw) / len(self.busbw)))
            say("#")


COLUMNS = ("time", "algbw", "busbw", "#wrong")


def steps(first: int, last: int, factor: int) -> List[int]:
    """Return the sizes of the sweep."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return sizes


def time_left() -> float:
    """Return the seconds until the probe would end this command; the processes of a machine share the clock."""
    until = os.environ.get("SEATRIAL_BENCH_UNTIL")
    return max(0.0, float(until) - time.monotonic()) if until else 600.0


def fill(part: Any, pattern: Any) -> None:
    """Write the pattern over and over, without scratch memory."""
    period = pattern.numel()
    whole = part.numel() // period * period
    if whole:
        part[:whole].view(-1, period).copy_(pattern)
    if whole < part.numel():
        part[whole:].copy_(pattern[: part.numel() - whole])


def mismatches(part: Any, expected: Any) -> int:
    """Count the values that are not exactly as expected (a NaN is not)."""
    period = expected.numel()
    whole = part.numel() // period * period
    found = int((part[whole:] != expected[: part.numel() - whole]).sum())
    rows = part[:whole].view(-1, period)
    for first in range(0, rows.shape[0], CHECK_ROWS):
        found += int((rows[first : first + CHECK_ROWS] != expected).sum())
    return found


def fit(value: float, width: int) -> str:
    """Return the number in at most `width` characters, with as many decimals as fit."""
    if not math.isfinite(value):
        return str(value)
    for decimals in (2, 1, 0):
        text = "%.*f" % (decimals, value)
        if len(text) <= width:
            return text
    return "%.1e" % value


def free_memory() -> int:
    """Return the free bytes of this machine, or of this container if that is less."""
    free = 1 << 30
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            free = next(int(line.split()[1]) * 1024 for line in stream if line.startswith("MemAvailable:"))
        limit, used = (number("/sys/fs/cgroup/memory." + name) for name in ("max", "current"))
        free = min(free, max(0, limit - used))
    except (OSError, ValueError, StopIteration):  # no such file, or "max": there is no limit
        pass
    return free


def number(path: str) -> int:
    """Return the whole number that a small file holds."""
    with open(path, encoding="ascii") as stream:
        return int(stream.read())


def bus_id(device: int) -> str:
    """Return the device's PCI address from the driver; torch tells it only in recent versions."""
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


def say(text: str) -> None:
    """Print at once: the probe shows how far the sweep is."""
    print(text.rstrip(), flush=True)


def parse(arguments: List[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="all_reduce over all ranks of a torchrun job")
    parser.add_argument("--min-bytes", type=int, default=1 << 20)
    parser.add_argument("--max-bytes", type=int, default=1 << 30)
    parser.add_argument("--factor", type=int, default=2)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    options = parser.parse_args(arguments)
    if options.factor < 2 or options.iters < 1 or options.warmup < 0 or options.min_bytes < ELEMENT_BYTES:
        parser.error("factor >= 2, iters >= 1, warmup >= 0 and min-bytes >= 4 are needed")
    options.min_bytes -= options.min_bytes % ELEMENT_BYTES
    options.max_bytes = max(options.max_bytes, options.min_bytes)
    options.device = os.environ.get("SEATRIAL_BENCH_DEVICE", "cuda")
    return options


def begin(torch: Any, options: argparse.Namespace) -> None:
    """Join the process group; a GPU that torch cannot use is a failure, never a reason to measure the CPU instead."""
    deadline = max(1.0, time_left())  # less what importing torch took, which may be minutes from a cold image
    faulthandler.dump_traceback_later(deadline, exit=False)  # a hang shows where it hangs
    backend: Dict[str, str] = {"cuda": "nccl", "cpu": "gloo"}
    if options.device == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if not torch.cuda.is_available():
            raise RuntimeError("torch %s finds no usable GPU in this container" % torch.__version__)
        if local >= torch.cuda.device_count():
            raise RuntimeError("local rank %d has no GPU: torch sees %d" % (local, torch.cuda.device_count()))
        torch.cuda.set_device(local)
    timeout = datetime.timedelta(seconds=deadline + PROCESS_GROUP_SLACK_S)
    torch.distributed.init_process_group(backend[options.device], timeout=timeout)


def main() -> int:
    """Run the sweep; prints the reason and returns non-zero where it cannot."""
    options = parse(sys.argv[1:])
    # This script's folder holds packages of the probe's, whose names must not hide installed ones from torch.
    # In a ConfigMap the script is a link to ..data/, itself a link; Python puts the end of that chain on its path.
    here = {os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.realpath(__file__))}
    sys.path[:] = [entry for entry in sys.path if not {os.path.abspath(entry or "."), os.path.realpath(entry)} & here]
    who = "rank %s" % os.environ.get("RANK", "?")
    try:
        import torch  # noqa: PLC0415  (after the path was cleaned)
        import torch.distributed  # noqa: PLC0415

        begin(torch, options)
        Bench(torch, options).run()
        torch.distributed.destroy_process_group()
    except Exception as error:  # noqa: BLE001  (whatever it was, it is this rank's answer, and the exit code says so)
        say("# seatrial bench: %s failed: %s: %s" % (who, type(error).__name__, error))
        sys.stdout.flush()
        os._exit(1)  # a normal exit would wait for the collective that failed
    faulthandler.cancel_dump_traceback_later()
    return 0


if __name__ == "__main__":
    sys.exit(main())
