"""A few dozen training steps on every rank: with the other ranks (DDP, then FSDP2), and alone.

Each round times some steps of a model on this rank alone, then as many of one with shared gradients. The first are this
GPU's compute time, independent of other ranks. The difference to the second is waiting, and communication that does not
overlap with compute. Every rank writes its results to a file after each part, so that a later hang loses nothing.

If noise leaves open whether a rank is slow, each rank makes more steps alone.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import math
import os
import statistics
import time
from typing import Any, Callable, Dict, List, Tuple

from . import model, product, program, stragglers
from .program import Rank, bus_id, free_memory, time_left
from .table import say

MOST_MEMORY = 24 << 30  # of a GPU; documented in docs/training.md
FREE_SHARE = 0.8  # of the free memory
ROUND = 5  # steps alone, then as many with the others
WARM = 3  # rounds that are not counted: connections, autotuning, rising clocks
LEARNS_FOR = 60  # steps; then the learning rate is 0, so that hours of the same batch cannot make the values diverge
RATE = 3e-4
BUCKET_BYTES = 25 << 20  # of gradients, as in DistributedDataParallel (bucket_cap_mb)
MOST_KEPT = 240  # times of each kind in the result
SETTLE_S = 60.0  # of more steps, if noise hides a slow rank; on an H100 MOST_KEPT take 12
# Errors of a torch with another FSDP2. Errors of NCCL, CUDA and memory are RuntimeErrors and count as failures.
NOT_THIS_TORCH = (TypeError, ValueError, AttributeError, AssertionError, ImportError)
SPARE_S = 15.0  # of the limit, for the end and the report
PRODUCT_SIDE, PRODUCT_S = 4096, 2.0
PRODUCT_SIDE_CPU, PRODUCT_S_CPU = 256, 0.05


class Training(Rank):
    """The steps of one rank."""

    def __init__(self, torch: Any, options: argparse.Namespace) -> None:
        super().__init__(torch, options)
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.facts: Dict[str, Any] = {"rank": self.rank, "local": self.local, "world": self.ranks, "compute_ms": []}
        self.facts.update(losses=[], bad_step=None)
        self.facts.update(self.machine(), seed=options.seed, products=[], modes=[])
        self.window: List[float] = []

    def run(self) -> None:
        """Multiply matrices, then train in each mode; write the results after each."""
        if self.cuda:
            whole = self.torch.cuda.mem_get_info(self.device)[1]
            self.torch.cuda.set_per_process_memory_fraction(min(1.0, MOST_MEMORY / whole), self.device)
        side, seconds = (PRODUCT_SIDE, PRODUCT_S) if self.cuda else (PRODUCT_SIDE_CPU, PRODUCT_S_CPU)
        for kind in product.kinds(cuda=self.cuda):
            self.facts["products"].append(product.repeated(self.torch, self.device, kind, side, seconds))
        self.tell("matrix products")
        shape = self.fit_to_memory(model.CPU if not self.cuda else model.GPU)
        self.facts.update(shape=model.described(shape), flops=model.flops(shape))
        own = model.model(self.torch, shape, self.options.seed, self.device, self.dtype)
        alone = self.alone(copy.deepcopy(own), model.batch(self.torch, shape, self.options.seed + self.rank, "cpu"))
        self.facts["comm_ms"] = self.bare(sum(each.numel() for each in own.parameters()))
        makers: List[Tuple[str, Callable[[Any], Any]]] = [("ddp", self.ddp)]
        fsdp = fully_shard_of(self.torch)
        if fsdp is not None and (self.cuda or self.options.fsdp_on_cpu):
            makers.append(("fsdp2", lambda plain: self.fsdp2(fsdp, plain)))
        soak = self.options.soak
        for name, wrap in makers:
            gc.collect()  # free the memory of the previous mode first
            try:
                self.mode(name, wrap(copy.deepcopy(own)), alone, soak if name == "ddp" else 0.0)
            except NOT_THIS_TORCH as error:
                if name == "ddp":
                    raise
                self.facts["modes"] = [each for each in self.facts["modes"] if each["mode"] != name]
                reason = "%s: %s" % (type(error).__name__, error)
                self.facts["modes"].append({"mode": name, "steps": 0, "why": reason.splitlines()[0][:200]})
                self.tell("%s: %s" % (name, reason[:200]))
        if not soak:
            self.settle(alone)
        if self.rank == 0:
            say("# seatrial training: done")

    def alone(self, own: Any, batch: Tuple[Any, Any]) -> Steps:
        """Return the steps that no other rank takes part in.

        On a shared CPU the elapsed time of a step varies, so the CPU time of the process is measured.
        """
        return Steps(self, own, batch, time.perf_counter if self.cuda else time.process_time)

    def mode(self, name: str, wrapped: Any, alone: Steps, soak: float) -> None:
        """Run the rounds of one mode."""
        shared = Steps(self, wrapped, alone.batch)
        result: Dict[str, Any] = {"mode": name, "step_ms": [], "losses": [], "steps": 0, "bad_step": None}
        self.facts["modes"].append(result)
        own: List[float] = []
        until, began, rounds = time.monotonic() + soak, time.monotonic(), 0
        while rounds < WARM or self.goes_on(result, until, (time.monotonic() - began) / max(1, rounds)):
            if rounds == WARM:
                self.window.append(time.time())
            self.align()
            compute = self.by_itself(alone)
            self.align()
            steps, losses = shared.several(ROUND)
            if rounds >= WARM:
                own += compute
                result["step_ms"] += steps
                result["steps"] += ROUND
            if result["bad_step"] is None:
                bad = [place for place, loss in enumerate(losses) if not math.isfinite(loss)]
                result["bad_step"] = rounds * ROUND + bad[0] if bad else None
            result["losses"] += [loss for loss in losses if math.isfinite(loss)]
            rounds += 1
            if rounds % 20 == 0 and self.rank == 0:
                say("# seatrial training: %s, %d steps" % (name, result["steps"]))
        self.window.append(time.time())
        self.facts["compute_ms"] = thinned(self.facts["compute_ms"] + own)
        result.update(step_ms=thinned(result["step_ms"]), losses=ends(result["losses"]))
        result["seconds"] = round(time.monotonic() - began, 1)
        self.facts["window"] = [self.window[0], self.window[-1]]
        if self.cuda:
            self.facts["memory_mib"] = round(self.torch.cuda.max_memory_allocated(self.device) / 2**20)
        self.tell("%s: %.1f ms a step" % (name, statistics.median(result["step_ms"])))

    def goes_on(self, result: Dict[str, Any], until: float, round_s: float) -> bool:
        """Return, identically on all ranks, whether another round follows: steps are missing, or the soak continues."""
        left = time_left() - SPARE_S - 2 * round_s
        unfinished = result["steps"] < self.options.steps or time.monotonic() < until
        return self.least(int(left * 1000) if unfinished else 0) > 0

    def by_itself(self, alone: Steps) -> List[float]:
        """Run a round of steps alone; return their milliseconds, and keep their losses."""
        before = alone.made
        times, losses = alone.several(ROUND)
        bad = [before + place for place, loss in enumerate(losses) if not math.isfinite(loss)]
        if self.facts["bad_step"] is None and bad:
            self.facts["bad_step"] = bad[0]
        self.facts["losses"] = ends(self.facts["losses"] + [loss for loss in losses if math.isfinite(loss)])
        return times

    def settle(self, alone: Steps) -> None:
        """Run more steps alone if noise leaves open whether a rank is slow, up to MOST_KEPT or for SETTLE_S."""
        own, until = self.facts["compute_ms"], time.monotonic() + SETTLE_S
        while len(own) < MOST_KEPT and not stragglers.settled(self.everyones(own)):
            if not self.least(int(time.monotonic() < until and time_left() > SPARE_S)):
                break
            self.align()
            own += self.by_itself(alone)
            self.facts["window"][-1] = time.time()
        self.tell("%d steps alone" % len(own))

    def everyones(self, own: List[float]) -> Dict[int, List[float]]:
        """Return the times of all ranks, the same number for each."""
        shared = self.torch.zeros(self.ranks, len(own), dtype=self.torch.float64, device=self.device)
        shared[self.rank] = self.torch.tensor(own, dtype=self.torch.float64)
        self.dist.all_reduce(shared)
        return dict(enumerate(shared.tolist()))

    def ddp(self, plain: Any) -> Any:
        """Share the gradients of whole replicas."""
        wrapper = self.torch.nn.parallel.DistributedDataParallel
        devices = [self.local] if self.cuda else None
        return wrapper(plain, device_ids=devices, gradient_as_bucket_view=True)

    def fsdp2(self, fully_shard: Callable[..., Any], plain: Any) -> Any:
        """Share parameters, gradients and the optimizer's state, block by block."""
        for block in plain.blocks:
            fully_shard(block)
        fully_shard(plain)
        return plain

    def bare(self, count: int) -> float:
        """Return the milliseconds of an all_reduce of all gradients without computation."""
        each = max(1, BUCKET_BYTES // (2 if self.cuda else 4))
        bucket = self.torch.zeros(min(each, count), dtype=self.dtype, device=self.device)
        milliseconds = []
        for _ in range(6):
            self.align()
            began = time.perf_counter()
            left = count
            while left > 0:
                self.dist.all_reduce(bucket[: min(left, each)])
                left -= each
            self.wait()
            milliseconds.append((time.perf_counter() - began) * 1000)
        return round(statistics.median(milliseconds[2:]), 4)

    def fit_to_memory(self, shape: model.Shape) -> model.Shape:
        """Return the shape with a batch that fits into the least free memory of all ranks."""
        if self.cuda:
            free = min(MOST_MEMORY, int(self.torch.cuda.mem_get_info(self.device)[0] * FREE_SHARE))
        else:
            free = int(free_memory() * FREE_SHARE / int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        free, size = self.least(free), 2 if self.cuda else 4
        while model.memory_bytes(shape, size) > free and shape.batch > 1:
            shape = shape._replace(batch=shape.batch // 2)
        while model.memory_bytes(shape, size) > free and shape.layers > 1:
            shape = shape._replace(layers=shape.layers // 2)
        if model.memory_bytes(shape, size) > free:
            mib = (free >> 20, model.memory_bytes(shape, size) >> 20)
            raise RuntimeError("%d MiB of memory are usable on the fullest rank; the smallest model needs %d" % mib)
        return shape

    def machine(self) -> Dict[str, Any]:
        """Return the machine of this rank."""
        torch = self.torch
        facts: Dict[str, Any] = {"device": self.options.device, "torch": str(torch.__version__)[:40]}
        if not self.cuda:
            return dict(facts, name="CPU", bus_id=None, library="gloo", multiprocessors=None)
        known = torch.cuda.get_device_properties(self.device)
        hip = getattr(torch.version, "hip", None)
        library = "hip %s" % hip if hip else "cuda %s" % torch.version.cuda
        facts.update(name=str(known.name), multiprocessors=int(known.multi_processor_count), library=library)
        return dict(facts, bus_id=bus_id(self.local))

    def tell(self, progress: str) -> None:
        """Write the results so far; the file is replaced atomically."""
        path = os.environ.get("SEATRIAL_BENCH_FACTS")
        if path:
            place = "%s.%d" % (path, self.local)
            with open(place + ".new", "w", encoding="ascii") as stream:
                json.dump(self.facts, stream, allow_nan=False)
            os.replace(place + ".new", place)
        if self.rank == 0:
            say("# seatrial training: %s" % progress)


class Steps:
    """Steps of one model on one rank."""

    def __init__(
        self, training: Training, wrapped: Any, batch: Tuple[Any, Any], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.training, self.model, self.made, self.clock = training, wrapped, 0, clock
        self.batch = batch[0].to(training.device), batch[1].to(training.device)
        self.optimizer = training.torch.optim.AdamW(wrapped.parameters(), lr=RATE)

    def one(self) -> Any:
        """Run forward, backward and update; return the loss, still on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(*self.batch)
        loss.backward()
        self.optimizer.step()
        self.made += 1
        if self.made == LEARNS_FOR:
            for group in self.optimizer.param_groups:
                group["lr"] = 0.0
        return loss.detach()

    def several(self, count: int) -> Tuple[List[float], List[float]]:
        """Return the milliseconds and the loss of each of that many steps; synchronise the device only at the end."""
        training, losses = self.training, []
        marks = [self.mark()]
        for _ in range(count):
            losses.append(self.one())
            marks.append(self.mark())
        training.wait()
        if training.cuda:
            times = [float(marks[i].elapsed_time(marks[i + 1])) for i in range(count)]
        else:
            times = [(marks[i + 1] - marks[i]) * 1000 for i in range(count)]
        return [round(each, 4) for each in times], training.torch.stack(losses).float().tolist()

    def mark(self) -> Any:
        """Return a point in time, in the device's queue or by the clock."""
        if not self.training.cuda:
            return self.clock()
        event = self.training.torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def fully_shard_of(torch: Any) -> Any:
    """Return FSDP2's wrapper if this torch has it: since 2.4 as a private module, since 2.6 as a public one."""
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    except ImportError:
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 4):
            return None
        try:
            from torch.distributed._composable.fsdp import fully_shard  # noqa: PLC0415
        except ImportError:
            return None
    return fully_shard


def thinned(values: List[float]) -> List[float]:
    """Return at most MOST_KEPT of the values, evenly spaced, in order."""
    step = max(1, -(-len(values) // MOST_KEPT))
    return values[::step]


def ends(losses: List[float]) -> List[float]:
    """Return the first and the last losses, which show whether the loss decreased."""
    shown = losses if len(losses) <= 20 else losses[:10] + losses[-10:]
    return [round(loss, 4) for loss in shown]


def parse(arguments: List[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="train", description="A few dozen training steps.")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--soak", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fsdp-on-cpu", action="store_true")
    options = parser.parse_args(arguments)
    if options.steps < ROUND or options.soak < 0 or options.seed < 0:
        parser.error("steps >= %d, soak >= 0 and seed >= 0 are needed" % ROUND)
    options.device = os.environ.get("SEATRIAL_BENCH_DEVICE", "cuda")
    return options


def main(arguments: List[str]) -> int:
    """Run the steps; on failure print the reason and return non-zero."""
    options = parse(arguments)
    return program.main(options.device, lambda torch: Training(torch, options).run())
