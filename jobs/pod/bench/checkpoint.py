"""A program that torchrun starts on every GPU: it saves a sharded state, is killed during a save, or loads one.

The state is a few DTensors over all ranks, saved and loaded by torch.distributed.checkpoint as FSDP2 does. Its values
depend on seed, step and rank, so that loaded and saved data can be compared.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List

TENSORS, ROW_BYTES = 8, 4096
TIMEOUT_S = 120  # a dead peer closes its connection; this limit is for a peer that hangs
SEED = 20071


class Shards:
    """The part of the state on this rank."""

    def __init__(self, torch: Any, total: int, device: str) -> None:
        self.torch, self.dist = torch, torch.distributed
        self.rank, self.ranks = self.dist.get_rank(), self.dist.get_world_size()
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", local) if device == "cuda" else torch.device("cpu")
        mesh = importlib.import_module("torch.distributed.device_mesh").init_device_mesh(device, (self.ranks,))
        try:
            tensors = importlib.import_module("torch.distributed.tensor")
            tensors.DTensor  # noqa: B018  (before 2.5 it was a private module)
        except (ImportError, AttributeError):
            tensors = importlib.import_module("torch.distributed._tensor")
        rows = max(1, total // TENSORS // ROW_BYTES)
        self.bytes = rows * ROW_BYTES * TENSORS
        self.state: Dict[str, Any] = {}
        for number in range(TENSORS):
            part = torch.zeros(rows, 1024, dtype=torch.float32, device=self.device)
            self.state["layer%d" % number] = tensors.DTensor.from_local(part, mesh, [tensors.Shard(0)])

    def expected(self, number: int, step: int) -> Any:
        """Return the content of a tensor's local part after a step, which compression cannot shrink."""
        source = self.torch.Generator().manual_seed(SEED + (step * self.ranks + self.rank) * TENSORS + number)
        shape = self.state["layer%d" % number].to_local().shape
        return self.torch.rand(shape, generator=source, dtype=self.torch.float32)

    def fill(self, step: int) -> None:
        """Set the state to that of a step."""
        for number in range(TENSORS):
            self.state["layer%d" % number].to_local().copy_(self.expected(number, step))

    def wrong(self, step: int) -> int:
        """Count the values that differ from those of a step."""
        total = 0
        for number in range(TENSORS):
            held = self.state["layer%d" % number].to_local().cpu()
            total += int((held != self.expected(number, step)).sum().item())
        return total


def save(shards: Shards, folder: str, step: int, *, dies: bool) -> Dict[str, Any]:
    """Save a step below a folder; return its times and bytes. `dies`: be killed when half of the file is written."""
    dcp = importlib.import_module("torch.distributed.checkpoint")
    took: List[float] = []

    def write_data(writer: Any, plan: Any, planner: Any) -> Any:
        """Write as torch does, and time only the writing, without the planning."""
        if dies:
            with open(os.path.join(str(writer.path), "__%d_0.distcp" % shards.rank), "wb") as file:
                file.write(os.urandom(shards.bytes // 2))
                file.flush()
                os.fsync(file.fileno())
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        future = dcp.FileSystemWriter.write_data(writer, plan, planner)
        future.wait()
        took.append(time.monotonic() - began)
        return future

    writer = type("Writer", (dcp.FileSystemWriter,), {"write_data": write_data})
    place = os.path.join(folder, "step-%d" % step)
    os.makedirs(place, mode=0o700, exist_ok=True)
    shards.fill(step)
    shards.dist.barrier()
    at, began = time.time(), time.monotonic()
    dcp.save(shards.state, storage_writer=writer(place, single_file_per_rank=True, sync_files=True))
    pause = time.monotonic() - began
    mine = [name for name in os.listdir(place) if name.startswith("__%d_" % shards.rank)]
    size = sum(os.path.getsize(os.path.join(place, name)) for name in mine)
    return {"step": step, "at": at, "pause_s": round(pause, 4), "write_s": round(sum(took), 4), "bytes": size}


def load(shards: Shards, folder: str, step: int) -> Dict[str, Any]:
    """Load a step into an empty state; return how many values are wrong."""
    dcp = importlib.import_module("torch.distributed.checkpoint")
    began = time.monotonic()
    dcp.load(shards.state, storage_reader=dcp.FileSystemReader(os.path.join(folder, "step-%d" % step)))
    seconds = time.monotonic() - began
    return {"loaded": step, "wrong": shards.wrong(step), "load_s": round(seconds, 4)}


def run(arguments: List[str]) -> None:
    """Run the mode of the command line; write the facts of this rank to the file that the probe named."""
    made = argparse.ArgumentParser(prog="checkpoint")
    made.add_argument("--mode", choices=("save", "die", "load"), required=True)
    made.add_argument("--folder", required=True)
    made.add_argument("--step", type=int, action="append", required=True)
    made.add_argument("--bytes", type=int, required=True)
    options = made.parse_args(arguments)
    torch = importlib.import_module("torch")
    device = "cpu" if os.environ.get("SEATRIAL_BENCH_DEVICE") == "cpu" else "cuda"
    if device == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError("torch %s finds no usable GPU in this container" % torch.__version__)
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    torch.distributed.init_process_group(backend, timeout=datetime.timedelta(seconds=TIMEOUT_S))
    facts: Dict[str, Any] = {"rank": torch.distributed.get_rank(), "torch": torch.__version__, "saves": []}
    shards = Shards(torch, options.bytes, device)
    for step in options.step:
        if options.mode == "load":
            facts.update(load(shards, options.folder, step))
        else:
            dies = options.mode == "die" and shards.rank == shards.ranks - 1
            facts["saves"].append(save(shards, options.folder, step, dies=dies))
    target = "%s.%s" % (os.environ["SEATRIAL_BENCH_FACTS"], os.environ.get("LOCAL_RANK", "0"))
    with open(target, "w", encoding="ascii") as file:
        json.dump(facts, file)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def reason(error: BaseException) -> str:
    """Return an error in one line; torch's CheckpointException holds each rank's error, of which the first is used."""
    failures = getattr(error, "failures", None)
    where = ""
    if isinstance(failures, dict) and failures:
        rank = min(failures)
        where, error = "at rank %s: " % rank, failures[rank][0]
    return "%s%s: %s" % (where, type(error).__name__, " ".join(str(error).split())[:1000])


def main(arguments: List[str]) -> int:
    """Run; on failure print the reason and exit at once."""
    try:
        run(arguments)
    except SystemExit:  # the command line is invalid
        raise
    except BaseException as error:  # noqa: BLE001  (whatever it was, this rank's answer; torch's is not an Exception)
        text = reason(error)
        sys.stdout.write("# seatrial bench: rank %s failed: %s\n" % (os.environ.get("RANK", "?"), text))
        sys.stdout.flush()
        os._exit(1)  # a normal exit would wait for the collective that failed
    return 0
