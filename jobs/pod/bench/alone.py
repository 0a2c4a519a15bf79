"""Tests of a single GPU: copies from and to the host, and matrix products that must be bitwise identical."""

from __future__ import annotations

import time
from typing import Any, Dict

from . import product

COPY_BYTES = 256 << 20
COPIES = 4
SIDE = 4096
SECONDS = 3.0  # of products: some thousands on a current GPU


def measure(bench: Any) -> Dict[str, Any]:
    """Return each rank's copy bandwidth in GB/s (the slower direction), and how many products differed in all."""
    torch, device = bench.torch, bench.device
    copies = torch.zeros(bench.ranks, dtype=torch.float64, device=device)
    copies[bench.rank] = _copies(torch, device)
    bench.dist.all_reduce(copies)
    result = product.repeated(torch, device, "bf16", SIDE, SECONDS)
    if result.get("why"):
        raise RuntimeError("no product of matrices: %s" % result["why"])
    return {
        "copies_gbps": [round(value, 2) for value in copies.tolist()],
        "products": bench.least(result["made"]),
        "differs": bench.total(result["differs"]),
    }


def _copies(torch: Any, device: Any) -> float:
    """Return the bandwidth to the GPU or from it, the lower one, in GB/s."""
    there = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    try:
        here = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:  # the memlock limit is too low: the copies are then slow on all ranks
        here = torch.empty(COPY_BYTES, dtype=torch.uint8)
    return min(_rate(torch, device, there, here), _rate(torch, device, here, there))


def _rate(torch: Any, device: Any, target: Any, source: Any) -> float:
    target.copy_(source)
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(COPIES):
        target.copy_(source)
    torch.cuda.synchronize(device)
    return COPIES * COPY_BYTES / (time.perf_counter() - began) / 1e9
