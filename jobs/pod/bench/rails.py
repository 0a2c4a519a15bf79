"""A test of all rails at once: one communicator for each local rank, over the ranks with this local rank.

NCCL uses the NIC nearest to a GPU, so that on rail-optimised nodes each communicator measures one rail.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List

SHARE = 4  # of the largest message: all rails together carry the whole of it
LEAST_BYTES = 1 << 20


def measure(bench: Any, largest: int) -> Dict[str, Any]:
    """Return bus bandwidth by local rank in GB/s (nccl-tests' all_reduce), and how many first sums were wrong."""
    torch, dist = bench.torch, bench.dist
    local = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    nodes = bench.ranks // local
    if nodes < 2 or nodes * local != bench.ranks:
        return {}
    mine: Any = None
    for number in range(local):  # new_group is collective: every rank calls it for each group
        group = dist.new_group([node * local + number for node in range(nodes)])
        if number == bench.local:
            mine = group
    size = max(LEAST_BYTES, largest // SHARE)
    tensor = torch.ones(size // 4, dtype=torch.float32, device=bench.device)
    dist.all_reduce(tensor, group=mine)
    wrong = bench.total(int((tensor != nodes).sum().item()))
    tensor.zero_()  # repeated sums would overflow
    for _ in range(bench.options.warmup):
        dist.all_reduce(tensor, group=mine)
    bench.align()
    seconds = bench.clocked(lambda: dist.all_reduce(tensor, group=mine), bench.options.iters)
    speeds: List[float] = [0.0] * local
    speeds[bench.local] = seconds
    slowest = torch.tensor(speeds, dtype=torch.float64, device=bench.device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    factor = 2 * (nodes - 1) / nodes
    values = [round(size / each * factor / 1e9, 3) if each > 0 else None for each in slowest.tolist()]
    return {"rails": values, "rails_bytes": size, "rails_wrong": wrong}
