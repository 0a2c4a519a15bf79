"""Test values of the collectives: whole numbers that differ by rank, segment and position."""

from __future__ import annotations

from typing import Any

PERIOD = 65521  # a prime: NCCL's chunks are powers of two, so a misplaced chunk never lands on the same values
LARGEST_VALUE = 8191
EXACT = 1 << 24  # float32 holds every whole number up to here, so the sum is exact in any order
CHECK_ROWS = 1024  # rows of PERIOD values compared at once: 64 MB of scratch memory


def pattern(torch: Any, device: Any, ranks: int, seed: int) -> Any:
    """Return one period of values; those of two seeds differ at every position."""
    modulus = max(2, min(LARGEST_VALUE, EXACT // ranks))
    index = torch.arange(PERIOD, dtype=torch.int64, device=device)
    return ((index * 40503 // 7 + seed * 97) % modulus).to(torch.float32)


def fill(part: Any, values: Any) -> None:
    """Write the values over and over, without scratch memory."""
    period = values.numel()
    whole = part.numel() // period * period
    if whole:
        part[:whole].view(-1, period).copy_(values)
    if whole < part.numel():
        part[whole:].copy_(values[: part.numel() - whole])


def mismatches(part: Any, expected: Any) -> int:
    """Count the values that are not exactly as expected (a NaN is not)."""
    period = expected.numel()
    whole = part.numel() // period * period
    count = int((part[whole:] != expected[: part.numel() - whole]).sum())
    rows = part[:whole].view(-1, period)
    for first in range(0, rows.shape[0], CHECK_ROWS):
        count += int((rows[first : first + CHECK_ROWS] != expected).sum())
    return count
