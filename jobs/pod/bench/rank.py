"""One rank of a program of the bench: its device, and small agreements with the other ranks."""

from __future__ import annotations

import argparse
import os
from typing import Any


class Rank:
    """A rank and its device. All agreements go through all_reduce, so that nothing else can be what fails."""

    def __init__(self, torch: Any, options: argparse.Namespace) -> None:
        self.torch, self.dist, self.options = torch, torch.distributed, options
        self.rank, self.ranks = self.dist.get_rank(), self.dist.get_world_size()
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        self.cuda = options.device == "cuda"
        self.device = torch.device("cuda", self.local) if self.cuda else torch.device("cpu")

    def align(self) -> None:
        """Let all ranks start together."""
        self.total(0)
        self.wait()

    def wait(self) -> None:
        """Wait until the device has done all it was given."""
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
