"""What a GPU does without any other: copies from and to the host, and a product of matrices that must repeat bitwise.

A product that differs from the one before of the same matrices is silent corruption: nothing else changes between them.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Tuple

__all__ = ["measure"]

COPY_BYTES = 256 << 20
COPIES = 4
SIDE = 4096
SECONDS = 3.0  # of products: some thousands of them on a GPU of today
LEAST_PRODUCTS = 20


def measure(bench: Any) -> Dict[str, Any]:
    """Return the slower way's GB/s of each rank's copies, and how many products of all ranks differed."""
    torch, device = bench.torch, bench.device
    copies = torch.zeros(bench.ranks, dtype=torch.float64, device=device)
    copies[bench.rank] = _copies(torch, device)
    bench.dist.all_reduce(copies)
    products, differs = _products(torch, device)
    return {
        "copies_gbps": [round(value, 2) for value in copies.tolist()],
        "products": bench.least(products),
        "differs": bench.total(differs),
    }


def _copies(torch: Any, device: Any) -> float:
    """Return the bandwidth to the GPU or back from it, whichever is less, in GB/s."""
    there = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    try:
        here = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:  # no memory may be locked: the copies are slow then, and for everybody alike
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


def _products(torch: Any, device: Any) -> Tuple[int, int]:
    """Return how many products were made, and how many differed from the first."""
    generator = torch.Generator(device=device)
    generator.manual_seed(1)
    one, other = (torch.randn(SIDE, SIDE, generator=generator, device=device, dtype=torch.float32) for _ in range(2))
    one, other = one.to(torch.bfloat16), other.to(torch.bfloat16)
    first = one @ other
    made = differs = 0
    until = time.perf_counter() + SECONDS
    while made < LEAST_PRODUCTS or time.perf_counter() < until:
        differs += int(not torch.equal(one @ other, first))
        made += 1
    return made, differs
