"""Training steps as measured by the bench's program: the files of each rank.

The world sets slow compute (`compute_scale` of a GPU or a node: 0.9 is nine tenths of the speed), wrong products
(`product_differs`) and the step with NaN (`nan_step`). For the job (`collective.training`) it sets the share of exposed
communication, the interval of slow steps, a constant loss, hanging steps, or the error of a rank.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .options import Options

Object = dict[str, Any]
#: An H100 at about 430 TFLOP/s in bf16.
COMPUTE_MS, BARE_MS, HIDDEN = 55.0, 6.0, 1.02
SHAPE = {"layers": 8, "hidden": 2048, "heads": 16, "sequence": 2048, "batch": 4, "vocabulary": 16384}
MULTIPLYING = 12 * 8 * 2048 * 2048 + 16384 * 2048
PARAMETERS = MULTIPLYING + (16384 + 2048) * 2048
FLOPS = float(8192 * (6 * MULTIPLYING + 12 * 8 * 2048 * 2048))
STEPS_OF_A_ROUND = 5
WAVE = 1.8


def describe(gpu: Mapping[str, Any], kind: Mapping[str, Any]) -> Object:
    """Return this GPU's data for the other ranks: its speed and its errors."""
    scale = float(gpu.get("compute_scale", kind.get("compute_scale", 1.0)))
    return {"compute_scale": scale, "nan_step": gpu.get("nan_step"), "product_differs": gpu.get("product_differs", 0)}


def play(job: Mapping[str, Any], options: Options, world: Mapping[str, Any], mine: Sequence[Mapping[str, Any]]) -> int:
    """Write the file of every rank of this node; return torchrun's exit code."""
    settings, began = dict(world["collective"].get("training", {})), time.time()
    time.sleep(float(options.bench["soak"]))
    for rank in mine:
        _write(rank, _facts(rank, job, options.bench, settings) | {"window": [began, time.time()]})
    if settings.get("hangs"):
        while True:
            time.sleep(3600)
    if settings.get("fails") and world.get("node") in settings.get("nodes", [world.get("node")]):
        for rank in mine:
            print(f"# seatrial bench: rank {rank['rank']} failed: {settings['fails']}", flush=True)
        return 1
    if any(rank["rank"] == 0 for rank in mine):
        print("# seatrial training: done", flush=True)
    return 0


def _facts(rank: Mapping[str, Any], job: Mapping[str, Any], options: Mapping[str, Any], settings: Object) -> Object:
    slowest = min(float(each["compute_scale"]) for each in job["ranks"])
    count = int(options["steps"]) // STEPS_OF_A_ROUND * STEPS_OF_A_ROUND
    whole = COMPUTE_MS / slowest * HIDDEN / (1 - float(settings.get("exposed", 0.0)))
    name = f"{rank['host']}/{rank['local']}"
    dies = bool(settings.get("hangs") or settings.get("fails"))
    modes = [] if dies else [_mode(mode, count, whole, rank, job, settings) for mode in ("ddp", "fsdp2")]
    for mode in modes[:1]:
        mode["seconds"] = float(options["soak"])
    return {
        "rank": rank["rank"],
        "local": rank["local"],
        "world": len(job["ranks"]),
        "seed": int(options["seed"]),
        "device": "cuda",
        "name": rank["gpu"],
        "torch": job["torch"],
        "library": "hip 6.4" if rank["vendor"] == "amd" else "cuda 13.0",
        "multiprocessors": 132,
        "bus_id": rank["pci"].rpartition(".")[0] or rank["pci"],
        "products": [_product(kind, rank, name) for kind in ("bf16", "fp16", "fp8")],
        "compute_ms": [] if dies else _times(f"{name}/own", 2 * count, COMPUTE_MS / float(rank["compute_scale"])),
        "losses": [] if dies else _losses({}, rank["nan_step"]),
        "bad_step": None if dies else rank["nan_step"],
        "comm_ms": BARE_MS,
        "memory_mib": 15_240,
        "flops": FLOPS,
        "shape": {**SHAPE, "parameters": PARAMETERS, "multiplying": MULTIPLYING},
        "modes": modes,
    }


def _mode(
    mode: str, count: int, whole: float, rank: Mapping[str, Any], job: Mapping[str, Any], settings: Object
) -> Object:
    every = int(settings.get("waves", 0))
    steps = _times(f"{job['ranks'][0]['host']}/{mode}", count, whole * (1.04 if mode == "fsdp2" else 1.0))
    steps = [ms * (WAVE if every and place % every == 0 else 1.0) for place, ms in enumerate(steps)]
    bad = min((int(each["nan_step"]) for each in job["ranks"] if each["nan_step"] is not None), default=None)
    mine = rank["nan_step"] if bad is not None and rank["nan_step"] == bad else None
    step = None if bad is None else int(mine if mine is not None else bad + 1)
    return {"mode": mode, "steps": count, "bad_step": step, "step_ms": steps, "losses": _losses(settings, step)}


def _losses(settings: Object, bad: int | None) -> list[float]:
    falls = 0.0 if settings.get("loss") == "stays" else 0.12
    return [round(9.7 - falls * place, 4) for place in range(20 if bad is None else min(bad, 20))]


def _product(kind: str, rank: Mapping[str, Any], name: str) -> Object:
    differs = int(rank["product_differs"])
    digest = _digest(kind, rank["gpu"], name if differs else "")
    return {"kind": kind, "seed": 1, "side": 4096, "made": 5200, "differs": differs, "digest": digest, "why": None}


def _times(seed: str, count: int, usual: float) -> list[float]:
    """Return milliseconds within half a percent of the usual value, the same in every run."""
    noise = hashlib.shake_256(seed.encode()).digest(count)
    return [round(usual * (1 + (each / 255 - 0.5) * 0.01), 4) for each in noise]


def _write(rank: Mapping[str, Any], facts: Object) -> None:
    path = os.environ.get("SEATRIAL_BENCH_FACTS")
    if path:
        with open(f"{path}.{rank['local']}", "w", encoding="ascii") as file:
            json.dump(facts, file)


def _digest(*parts: Any) -> str:
    return hashlib.sha256("/".join(str(part) for part in parts).encode()).hexdigest()[:16]
