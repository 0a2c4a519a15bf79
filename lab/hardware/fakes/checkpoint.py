"""Fake checkpoint program: simulated ranks save, truncate and load a sharded checkpoint.

The files are real and in the requested place; their content is generated. The faults of the world (`collective:
{checkpoint: {wrong: 7}}`) take effect when a step is loaded.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .options import Options
    from .rendezvous import Rendezvous


def asked_for(options: Options) -> bool:
    """Return whether torchrun's arguments start the checkpoint's program."""
    return options.program == "checkpoint"


def play(arguments: list[str], options: Options, rendezvous: Rendezvous, world: Mapping[str, Any]) -> int:
    """Simulate the ranks of this node; return torchrun's exit code."""
    flags = dict(word.lstrip("-").partition("=")[::2] for word in arguments if word.startswith("--"))
    steps = [int(word.partition("=")[2]) for word in arguments if word.startswith("--step=")]
    folder, size, dies = flags["folder"], int(flags["bytes"]), flags["mode"] == "die"
    ranks = range(options.node * options.local, (options.node + 1) * options.local)
    facts: list[dict[str, Any]] = [{"rank": rank, "torch": "2.11.0", "saves": []} for rank in ranks]
    rendezvous.all_gather({"node": options.node})
    try:
        for step in steps:
            place = os.path.join(folder, f"step-{step}")
            if flags["mode"] == "load":
                wrong = int(world["collective"].get("checkpoint", {}).get("wrong", 0))
                _load(place, options.nodes * options.local)
                for each in facts:
                    each.update(loaded=step, wrong=wrong, load_s=0.01)
                continue
            for each in facts:
                each["saves"].append(_save(place, each["rank"], step, size // 2 if dies else size))
            if options.node == 0 and not dies:
                with open(os.path.join(place, ".metadata"), "wb") as file:
                    file.write(b"index")
    except OSError as error:
        print(f"# seatrial bench: rank {ranks[0]} failed: {type(error).__name__}: {error}", flush=True)
        return 1
    if dies:
        print("Signal 9 (SIGKILL) received", file=sys.stderr)
        return 1
    for local, each in enumerate(facts):
        with open(f"{os.environ['SEATRIAL_BENCH_FACTS']}.{local}", "w", encoding="ascii") as file:
            json.dump(each, file)
    rendezvous.barrier()
    return 0


def _save(place: str, rank: int, step: int, size: int) -> dict[str, Any]:
    os.makedirs(place, exist_ok=True)
    at, began = time.time(), time.monotonic()
    with open(os.path.join(place, f"__{rank}_0.distcp"), "wb") as file:
        file.write(os.urandom(4096) * (size // 4096))
        file.flush()
        os.fsync(file.fileno())
    seconds = max(1e-4, time.monotonic() - began)
    return {"step": step, "at": at, "bytes": size // 4096 * 4096, "pause_s": seconds, "write_s": seconds}


def _load(place: str, ranks: int) -> None:
    for name in [".metadata", *(f"__{rank}_0.distcp" for rank in range(ranks))]:
        with open(os.path.join(place, name), "rb") as file:
            file.read(1)
