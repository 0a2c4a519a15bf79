"""The bench's main program: the sweep over message sizes within its limits of time and memory.

The time of a size is that of the slowest rank. A slow network (sockets) is measured with fewer repetitions, or only
with smaller messages, so that it does not look like a hang. With several cycles the whole sweep is repeated and its
rows continue the same table, as with nccl-tests' -N; readers judge the spread.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from typing import Any, Callable, Dict, List

from . import alone, program, rails
from .operations import ELEMENT_BYTES, OPERATIONS
from .program import Rank, bus_id, free_memory, time_left
from .table import Side, footer, header, row, say

SPARE_BYTES = 1 << 30  # left free on the GPU, as nccl-tests does
LEAST_S = 1.0  # for each size, however small its share of the volume: small messages cost latency
SHARE = 0.7  # of the remaining time for repetitions; the rest is for filling, checking and errors
PLACE_BYTES = 192  # for a rank's location; a host name has at most 63, a GPU's about 40
ATTEMPTS = 4  # at least: two to estimate the duration, one measured, one checked


class Bench(Rank):
    """The sweep on one rank."""

    def __init__(self, torch: Any, options: argparse.Namespace) -> None:
        super().__init__(torch, options)
        self.operation = OPERATIONS[options.op](torch, self.device, self.rank, self.ranks)
        self.wrong = 0
        self.busbw: List[float] = []
        self.first_us: Dict[str, float] = {}
        self.more: Dict[str, Any] = {}  # facts in addition to the table

    def run(self) -> None:
        """Print the header, measure every size in every cycle, print the footer."""
        options = self.options
        self.align()  # the library connects and allocates memory before the free memory is read
        least = max(options.min_bytes, self.operation.least_bytes())
        largest = self.least(min(options.max_bytes, self.room()))
        if largest < least:
            raise RuntimeError("%d bytes do not fit into the free memory (%d bytes)" % (least, largest))
        self.header(largest)
        if options.rails:
            self.more.update(rails.measure(self, largest))
        if options.alone and self.cuda:
            self.more.update(alone.measure(self))
        self.operation.allocate(largest)
        sizes = steps(least, largest, options.factor)
        for cycle in range(options.cycles):
            measured = self.cycle(sizes, options.cycles - cycle, first=cycle == 0)
            sizes = sizes[:measured]
        if self.rank == 0:
            for line in footer(self.wrong, self.busbw):
                say(line)
            self.tell(largest)

    def cycle(self, sizes: List[int], cycles: int, *, first: bool) -> int:
        """Run the sweep once; return how many of its sizes were measured within the time."""
        operation, seconds = self.operation, 0.0
        for place, size in enumerate(sizes):
            if self.too_long(size, seconds * self.options.factor):
                return place
            real, count = operation.size(size)
            sides, share = {}, size / (sum(sizes[place:]) + (cycles - 1) * sum(sizes)) / len(operation.sides)
            for side in operation.sides:
                operation.side = side
                operation.prepare()
                seconds = self.measure(share, real if first and side == operation.sides[0] else 0)
                operation.prepare()
                self.align()
                operation.run()
                wrong = self.total(operation.wrong())
                algbw = real / seconds / 1e9 if seconds > 0 else float("nan")
                sides[side] = Side(seconds, algbw, algbw * operation.factor(), wrong)
                self.wrong += wrong
                self.busbw.append(sides[side].busbw)
            if self.rank == 0:
                say(row(real, count, operation.redop, operation.root, sides))
        return len(sizes)

    def too_long(self, size: int, predicted: float) -> bool:
        """Return whether the next size exceeds the remaining time, given the predicted duration of one run."""
        left = self.left()
        if predicted * ATTEMPTS * len(self.operation.sides) <= left:
            return False
        if self.rank == 0:
            form = "# seatrial: sizes from %d on are left out: one takes about %.1f s, %.0f s remain"
            say(form % (size, predicted, left))
        return True

    def measure(self, share: float, first_of: int) -> float:
        """Return the mean seconds of one run on the slowest rank, within this size's `share` of the remaining time."""
        runs, budget = self.options.warmup + self.options.iters, max(LEAST_S, SHARE * share * self.left())
        one = self.timed(1)
        if first_of:
            self.first_us[str(first_of)] = round(one * 1e6, 2)
        if one * runs > budget:
            one = min(one, self.timed(1))  # the first run of a size may set up connections
        if one * runs > budget:
            iters = max(1, min(self.options.iters, int(budget / one)))
            if self.rank == 0:
                say("# seatrial: %d of %d iterations: one takes about %.2f s" % (iters, self.options.iters, one))
            return self.timed(iters)
        for _ in range(self.options.warmup):
            self.operation.run()
        return self.timed(self.options.iters)

    def timed(self, iters: int) -> float:
        """Return the mean seconds of that many runs, on the slowest rank."""
        self.align()
        return self.slowest(self.clocked(self.operation.run, iters))

    def clocked(self, run: Callable[[], Any], iters: int) -> float:
        """Return the mean seconds of one run on this rank."""
        if self.cuda:
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(iters):
                run()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1000.0 / iters
        began = time.perf_counter()
        for _ in range(iters):
            run()
        return (time.perf_counter() - began) / iters

    def left(self) -> float:
        """Return the lowest remaining time of all ranks, in seconds."""
        return self.least(int(time_left() * 1000)) / 1000.0

    def room(self) -> int:
        """Return the largest message that fits into this rank's memory, in bytes."""
        buffers = sum(self.operation.shares())
        if self.cuda:
            return int(max(0, int(self.torch.cuda.mem_get_info(self.device)[0]) - SPARE_BYTES) / buffers)
        return int(free_memory() / (2 * buffers * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))

    # -- output ------------------------------------------------------------------------------------------------------

    def header(self, largest: int) -> None:
        """Print the settings and the location of each rank, like nccl-tests."""
        # As numbers: torch converts objects to tensors by numpy, which some images lack.
        mine, places = list(self.place().encode()[:PLACE_BYTES]), self.torch.zeros(self.ranks, PLACE_BYTES)
        places[self.rank, : len(mine)] = self.torch.tensor(mine)
        places = places.to(self.device)
        self.dist.all_reduce(places)
        if self.rank:
            return
        texts = [bytes(row).rstrip(b"\0").decode("utf-8", "replace") for row in places.int().tolist()]
        library = "torch %s, %s" % (self.torch.__version__, self.library())
        for line in header(self.operation.name, library, self.options, largest, texts):
            say(line)

    def place(self) -> str:
        """Return this rank's location: process, host, device."""
        host = socket.gethostname().split(".")[0]
        name, bus = "CPU", "0000:00:00"
        if self.cuda:
            name, bus = self.torch.cuda.get_device_name(self.device), bus_id(self.local)
        return "Pid %6d on %10s device %2d [%s] %s" % (os.getpid(), host, self.local, bus, name)

    def library(self) -> str:
        """Return the communication library in use, with its version."""
        if not self.cuda:
            return "gloo"
        version = self.torch.cuda.nccl.version()
        numbers = version if isinstance(version, tuple) else (version,)
        kind = "rccl" if getattr(self.torch.version, "hip", None) else "nccl"
        return "%s %s" % (kind, ".".join(str(number) for number in numbers))

    def tell(self, largest: int) -> None:
        """Write the facts without a column in the table to the file that the probe named: first run times by size."""
        path = os.environ.get("SEATRIAL_BENCH_FACTS")
        if path:
            facts = {"op": self.operation.name, "cycles": self.options.cycles, "largest": largest}
            with open(path, "w", encoding="ascii") as stream:
                json.dump(dict(facts, first_us=self.first_us, **self.more), stream)


def steps(first: int, last: int, factor: int) -> List[int]:
    """Return the sizes of the sweep."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return sizes


def parse(arguments: List[str]) -> argparse.Namespace:
    """Parse the command line; sizes are whole elements."""
    parser = argparse.ArgumentParser(prog="measure", description="A collective in nccl-tests' form.")
    parser.add_argument("--op", choices=sorted(OPERATIONS), default="all_reduce")
    for name, value in (("min-bytes", 1 << 20), ("max-bytes", 1 << 30), ("factor", 2), ("iters", 20), ("warmup", 5)):
        parser.add_argument("--" + name, type=int, default=value)
    for name in ("cycles", "rails", "alone"):
        parser.add_argument("--" + name, type=int, default=int(name == "cycles"))
    options = parser.parse_args(arguments)
    if options.factor < 2 or options.iters < 1 or options.warmup < 0 or options.min_bytes < ELEMENT_BYTES:
        parser.error("factor >= 2, iters >= 1, warmup >= 0 and min-bytes >= 4 are needed")
    if options.cycles < 1:
        parser.error("cycles >= 1 is needed")
    options.min_bytes -= options.min_bytes % ELEMENT_BYTES
    options.max_bytes = max(options.max_bytes, options.min_bytes)
    options.device = os.environ.get("SEATRIAL_BENCH_DEVICE", "cuda")
    return options


def main(arguments: List[str]) -> int:
    """Run the sweep; on failure print the reason and return non-zero."""
    options = parse(arguments)
    return program.main(options.device, lambda torch: Bench(torch, options).run())
