"""Profile section `bench`: the sweep over message sizes and the least that a row of it may show."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.listing import nearest
from jobs.trial.parts import OPERATIONS

from ..yaml_schema import Size, require

MI, EIGHT_GI = Size(2**20), Size(2**33)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSection:
    """The sweep of the collectives; the floors below name rows of it."""

    min: Size = MI
    max: Size = EIGHT_GI
    factor: int = 2
    iters: int = 20
    warmup: int = 5
    repeats: int = 3  # how often the sweep is run: three tell a slow fabric from one that wavers
    spread_max: float | None = None  # how far apart repeats of one row may lie: (largest - smallest) / median

    def __post_init__(self) -> None:
        require(0 < self.min <= self.max, "min", "must be above 0 and at most max")
        require(self.factor >= 2, "factor", "must be at least 2")
        require(self.iters >= 1, "iters", "must be at least 1")
        require(self.warmup >= 0, "warmup", "must not be negative")
        require(1 <= self.repeats <= 100, "repeats", "must be between 1 and 100")
        require(self.spread_max is None or 0 < self.spread_max < 1, "spread_max", "must be a share between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least bus bandwidth of one named row; out of place and in place must both reach it."""

    collective: str
    algorithm: str  # 'ring', or 'default' for whatever NCCL chose
    nodes: int
    size: Size
    busbw_gbps: float  # GB/s, 1e9 bytes per second, as nccl-tests prints it
    topology: str
    source: str

    def __post_init__(self) -> None:
        if self.collective not in OPERATIONS:
            known = nearest(self.collective, OPERATIONS)
            require(ok=False, name="collective", text=f"unknown collective {self.collective!r}{known}")
        require(self.algorithm in ("ring", "default"), "algorithm", f"must be ring or default, not {self.algorithm!r}")
        require(self.busbw_gbps > 0, "busbw_gbps", "must be above 0")
        require(self.nodes >= 1, "nodes", "must be at least 1")
        require(self.size > 0, "size", "must be above 0")
        for name in ("source", "topology"):
            require(bool(getattr(self, name).strip()), name, "must say where the number comes from")
