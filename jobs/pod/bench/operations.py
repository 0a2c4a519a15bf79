"""The collectives: data and buffers of each, and the expected result.

Sizes, counts and the factors from algorithm to bus bandwidth are those of nccl-tests (its doc/PERFORMANCE.md). A size
is one rank's share of the whole, so that of all_gather and reduce_scatter counts all ranks' parts. torch's all_reduce
and broadcast work only in place, its all_to_all and send/recv only out of place.

The test values are whole numbers that differ by rank, segment and position.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple, Type

PERIOD = 65521  # a prime: NCCL's chunks are powers of two, so a misplaced chunk never matches the expected values
LARGEST_VALUE = 8191
EXACT = 1 << 24  # float32 holds every whole number up to here, so the sum is exact in any order
CHECK_ROWS = 1024  # rows of PERIOD values compared at once: 64 MB of scratch memory


def pattern(torch: Any, device: Any, ranks: int, seed: int) -> Any:
    """Return one period of values; those of two seeds differ at every position."""
    modulus = max(2, min(LARGEST_VALUE, EXACT // ranks))
    index = torch.arange(PERIOD, dtype=torch.int64, device=device)
    return ((index * 40503 // 7 + seed * 97) % modulus).to(torch.float32)


def fill(part: Any, values: Any) -> None:
    """Write the values repeatedly, without scratch memory."""
    period = values.numel()
    whole = part.numel() // period * period
    if whole:
        part[:whole].view(-1, period).copy_(values)
    if whole < part.numel():
        part[whole:].copy_(values[: part.numel() - whole])


def mismatches(part: Any, expected: Any) -> int:
    """Count the values that are not exactly as expected; NaN counts."""
    period = expected.numel()
    whole = part.numel() // period * period
    count = int((part[whole:] != expected[: part.numel() - whole]).sum())
    rows = part[:whole].view(-1, period)
    for first in range(0, rows.shape[0], CHECK_ROWS):
        count += int((rows[first : first + CHECK_ROWS] != expected).sum())
    return count


__all__ = ["OPERATIONS", "Operation"]

ELEMENT_BYTES = 4  # float32, as nccl-tests' default


class Operation:
    """One collective on this rank: choose a `size`, set the `side`, then `prepare`, `run` and count with `wrong`."""

    name = ""
    redop, root = "none", -1
    sides: Tuple[str, ...] = ("out_of_place", "in_place")
    segmented = True  # a buffer holds one part for each rank

    def __init__(self, torch: Any, device: Any, rank: int, ranks: int) -> None:
        self.torch, self.dist, self.device, self.rank, self.ranks = torch, torch.distributed, device, rank, ranks
        self.side = self.sides[0]
        self.source: Any = None
        self.target: Any = None
        self._expected: Dict[int, Any] = {}

    # -- defined by each collective ------------------------------------------------------------------------------------

    def factor(self) -> float:
        """Return the ratio of bus bandwidth to algorithm bandwidth."""
        return (self.ranks - 1) / self.ranks

    def shares(self) -> Tuple[float, float]:
        """Return the sizes of source and target buffer as shares of the message."""
        return 1.0, 1.0

    def prepare(self) -> None:
        """Fill the send buffer, and clear the receive buffer."""
        raise NotImplementedError

    def run(self) -> None:
        """Run the collective once; on a GPU this only enqueues it in the stream."""
        raise NotImplementedError

    def wrong(self) -> int:
        """Count the wrong values that this rank received."""
        raise NotImplementedError

    # -- common to all -------------------------------------------------------------------------------------------------

    def allocate(self, largest: int) -> None:
        """Reserve the buffers for the largest message."""
        source, target = self.shares()
        self.source_all, self.target_all = self._buffer(largest, source), self._buffer(largest, target)

    def size(self, size: int) -> Tuple[int, int]:
        """Choose a message size; return the actual one (whole parts only) and the count column of nccl-tests."""
        elements = size // ELEMENT_BYTES
        part = max(1, elements // self.ranks) if self.segmented else elements
        whole = part * self.ranks if self.segmented else elements
        self.part = part
        source, target = self.shares()
        self.source = self.source_all[: whole if source == 1.0 else part]
        self.target = self.target_all[: whole if target == 1.0 else part] if target else None
        return whole * ELEMENT_BYTES, part

    def least_bytes(self) -> int:
        """Return the smallest message: one element for each part."""
        return ELEMENT_BYTES * (self.ranks if self.segmented else 1)

    def pattern(self, seed: int) -> Any:
        """Return the values of a sender (or of a sender's part for one receiver)."""
        return pattern(self.torch, self.device, self.ranks, seed)

    def seed(self, sender: int, receiver: int) -> int:
        """Return the seed of one rank's data for another."""
        return sender + receiver * self.ranks

    def piece(self, buffer: Any, rank: int) -> Any:
        """Return the part of a buffer that belongs to a rank."""
        return buffer[rank * self.part : (rank + 1) * self.part]

    def summed(self, receiver: int) -> Any:
        """Return the sum of all ranks' data for one receiver; cached, since it never changes."""
        if receiver not in self._expected:
            total = self.pattern(self.seed(0, receiver))
            for rank in range(1, self.ranks):
                total += self.pattern(self.seed(rank, receiver))
            self._expected[receiver] = total
        return self._expected[receiver]

    def _call(self, *names: str) -> Any:
        """Return the first of these functions that this torch has: the names changed with 1.13 and with 2.13."""
        return next(getattr(self.dist, name) for name in names if hasattr(self.dist, name))

    def _buffer(self, largest: int, share: float) -> Any:
        if not share:
            return None
        count = largest // ELEMENT_BYTES if share == 1.0 else largest // ELEMENT_BYTES // self.ranks + 1
        return self.torch.empty(count, dtype=self.torch.float32, device=self.device)


class AllReduce(Operation):
    """All-reduce: every rank gets the sum."""

    name, redop, sides, segmented = "all_reduce", "sum", ("in_place",), False

    def factor(self) -> float:
        return 2 * (self.ranks - 1) / self.ranks

    def shares(self) -> Tuple[float, float]:
        return 1.0, 0.0

    def prepare(self) -> None:
        fill(self.source, self.pattern(self.seed(self.rank, 0)))

    def run(self) -> None:
        self.dist.all_reduce(self.source)

    def wrong(self) -> int:
        return mismatches(self.source, self.summed(0))


class Broadcast(Operation):
    """Broadcast: every rank gets the data of rank 0."""

    name, root, sides, segmented = "broadcast", 0, ("in_place",), False

    def factor(self) -> float:
        return 1.0

    def shares(self) -> Tuple[float, float]:
        return 1.0, 0.0

    def prepare(self) -> None:
        fill(self.source, self.pattern(self.rank))

    def run(self) -> None:
        self.dist.broadcast(self.source, 0)

    def wrong(self) -> int:
        return mismatches(self.source, self.pattern(0))


class AllGather(Operation):
    """All-gather: every rank gets the part of every rank."""

    name = "all_gather"

    def shares(self) -> Tuple[float, float]:
        return 1.0 / self.ranks, 1.0

    def prepare(self) -> None:
        self.target.zero_()
        fill(self._mine(), self.pattern(self.rank))

    def run(self) -> None:
        self._call("all_gather_single", "all_gather_into_tensor", "_all_gather_base")(self.target, self._mine())

    def wrong(self) -> int:
        counts = (mismatches(self.piece(self.target, r), self.pattern(r)) for r in range(self.ranks))
        return sum(counts)

    def _mine(self) -> Any:
        return self.piece(self.target, self.rank) if self.side == "in_place" else self.source[: self.part]


class ReduceScatter(Operation):
    """Reduce-scatter: every rank gets a part of the sum."""

    name, redop = "reduce_scatter", "sum"

    def shares(self) -> Tuple[float, float]:
        return 1.0, 1.0 / self.ranks

    def prepare(self) -> None:
        self.target.zero_()
        for receiver in range(self.ranks):
            fill(self.piece(self.source, receiver), self.pattern(self.seed(self.rank, receiver)))

    def run(self) -> None:
        self._call("reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base")(self._mine(), self.source)

    def wrong(self) -> int:
        return mismatches(self._mine(), self.summed(self.rank))

    def _mine(self) -> Any:
        return self.piece(self.source, self.rank) if self.side == "in_place" else self.target[: self.part]


class AllToAll(Operation):
    """All-to-all: every rank has a part for every rank."""

    name, sides = "all_to_all", ("out_of_place",)

    def prepare(self) -> None:
        self.target.zero_()
        for receiver in range(self.ranks):
            fill(self.piece(self.source, receiver), self.pattern(self.seed(self.rank, receiver)))

    def run(self) -> None:
        self.dist.all_to_all_single(self.target, self.source)

    def wrong(self) -> int:
        mine = (self.pattern(self.seed(sender, self.rank)) for sender in range(self.ranks))
        return sum(mismatches(self.piece(self.target, s), expected) for s, expected in enumerate(mine))


class SendRecv(Operation):
    """Send and receive: every rank sends to the next, so each link of the ring has one pair of GPUs."""

    name, sides, segmented = "sendrecv", ("out_of_place",), False

    def factor(self) -> float:
        return 1.0

    def prepare(self) -> None:
        self.target.zero_()
        fill(self.source, self.pattern(self.rank))

    def run(self) -> None:
        to, whence = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        send = self.dist.P2POp(self.dist.isend, self.source, to)
        receive = self.dist.P2POp(self.dist.irecv, self.target, whence)
        for work in self.dist.batch_isend_irecv([send, receive]):
            work.wait()

    def wrong(self) -> int:
        return mismatches(self.target, self.pattern((self.rank - 1) % self.ranks))


_ALL: List[Type[Operation]] = [AllReduce, AllGather, ReduceScatter, AllToAll, SendRecv, Broadcast]
OPERATIONS: Dict[str, Type[Operation]] = {kind.name: kind for kind in _ALL}
