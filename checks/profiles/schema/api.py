"""Profile section `api`: how soon the API server must answer."""

from __future__ import annotations

from dataclasses import dataclass

from ..yaml_schema import require


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSection:
    """The control plane, as seen from where the trial is started."""

    latency_max_s: float | None = None  # of the median answer; none: it is shown and not judged

    def __post_init__(self) -> None:
        require(self.latency_max_s is None or self.latency_max_s > 0, "latency_max_s", "must be above 0")
