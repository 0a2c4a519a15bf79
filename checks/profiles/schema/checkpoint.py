"""Profile section `checkpoint`: where and how large training saves its state, for `accept --checkpoint`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..yaml_schema import Size, require

PER_RANK = Size(2**28)
ADAM_BYTES = 14
"""Bytes saved for a parameter by mixed-precision Adam: 2 of bf16 weights, 4 of the fp32 copy, 4 and 4 of the moments
(Rajbhandari et al., ZeRO, arXiv:1910.02054, section 3.1, without the gradients, which are not saved)."""
SHORTEST_S = 60
_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSection:
    """Empty: the first shared path of `storage` that is written takes it, and nothing is judged but that it works."""

    path: str = ""  # name of a storage path with write: true, which must outlive the job
    local: str = ""  # name of the storage path, or scratch, to which it is saved first
    bytes: Size = PER_RANK  # of each rank
    mb_s: float | None = None  # MB/s (1e6 bytes) of all ranks together while training stands still
    pause_max_s: float | None = None  # how long a checkpoint of `model` may stop training
    model: str = ""  # parameters, such as 70B
    bytes_per_parameter: int = ADAM_BYTES
    interval_s: int = 1800  # between two checkpoints
    gather: bool = False  # rank 0 gathers the whole state, unsharded
    private: bool = False  # other teams must not be able to read or replace it
    source: str = ""  # whose numbers these are

    def __post_init__(self) -> None:
        for key in ("mb_s", "pause_max_s"):
            value = getattr(self, key)
            require(value is None or value > 0, key, "must be above 0")
        require(2**20 <= self.bytes <= 2**33, "bytes", "must be between 1Mi and 8Gi")
        require(not self.model or parameters(self.model) > 0, "model", "must be a number of parameters, such as 70B")
        require(self.bytes_per_parameter > 0, "bytes_per_parameter", "must be above 0")
        require(self.interval_s >= SHORTEST_S, "interval_s", f"must be at least {SHORTEST_S}")
        require(self.pause_max_s is None or bool(self.model), "pause_max_s", "needs model: of what a pause is")
        rates = self.mb_s is not None or self.pause_max_s is not None
        require(not rates or bool(self.source.strip()), "source", "must say where the numbers come from")


def parameters(text: str) -> int:
    """Read a size of a model: 70B, 1.5T, 350M; 0 where it is none."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([KMBT]?)", text.strip(), re.IGNORECASE)
    return round(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0
