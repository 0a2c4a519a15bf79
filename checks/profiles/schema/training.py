"""Profile section `training`: what the training steps of `accept --training` must reach."""

from __future__ import annotations

from dataclasses import dataclass

from ..yaml_schema import require


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSection:
    """Empty: the steps run, and are judged by each other alone."""

    tflops: float | None = None  # TFLOP/s (1e12) of each GPU in a step with all ranks, by the formula of the report
    batch: int | None = None  # sequences a step and GPU at which the floor was measured; other runs are not held to it
    exposed_max: float | None = None  # share of a step that communication may take without compute beside it
    source: str = ""  # whose numbers these are

    def __post_init__(self) -> None:
        require(self.tflops is None or self.tflops > 0, "tflops", "must be above 0")
        require(self.batch is None or self.batch > 0, "batch", "must be above 0")
        require(self.exposed_max is None or 0 < self.exposed_max < 1, "exposed_max", "must be a share between 0 and 1")
        given = self.tflops is not None or self.exposed_max is not None
        require(not given or bool(self.source.strip()), "source", "must say where the numbers come from")
