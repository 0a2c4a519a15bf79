"""Faults of API requests, drawn from a seed, for any scenario.

A healthy cluster only shows how a client behaves without errors. A client that retries idempotent requests survives all
of these faults: the same request is rejected at most `patience` times in a row. injection.py injects them.

    sim:healthy?api-faults=storm&seed=7         # or  seatrial sim healthy --api-faults storm:7
    api_faults: {kind: storm, seed: 7, reset: 0.2}      # in a scenario file: a kind, and what differs from it
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ..format import ScenarioError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

# Maximum share of faulty requests; an API server without any response is another scenario (api-down).
MOST = 0.5


@dataclass(frozen=True, slots=True)
class ApiFaults:
    """A kind of API faults: the probability of each for one request (0 to 0.5), and its parameters."""

    name: str = "calm"
    seed: int = 0
    throttle: float = 0.0  # 429 with Retry-After, before the request is processed
    retry_after_s: int = 1
    error: float = 0.0  # a burst of 500 or 503 begins: this request and the next ones of its kind
    burst: int = 2  # maximum length of a burst
    reset: float = 0.0  # the connection breaks; for a write, in half of the cases after it was done
    latency: float = 0.0  # the response is delayed
    latency_s: float = 0.3  # maximum delay
    watch_end: float = 0.0  # a watch ends early
    watch_gone: float = 0.0  # a watch is answered with ERROR 410 Expired
    watch_twice: float = 0.0  # an event of a watch is sent twice
    watch_late: float = 0.0  # an event of a watch is delayed, and sent after later ones
    watch_lag: float = 0.0  # a whole watch is delayed, with its events in order
    late_s: float = 1.0  # maximum delay of an event or a watch
    stale: float = 0.0  # a list shows an older state, with that state's resourceVersion
    stale_revisions: int = 8  # by how many revisions it is older
    log_cut: float = 0.0  # a log stream ends in the middle of a line
    cut: float = 0.0  # a body is truncated: the connection breaks, or a proxy ends the response after half of it
    drip: float = 0.0  # the response is sent in small pieces with pauses
    patience: int = 2

    @classmethod
    def parse(cls, text: str) -> ApiFaults:
        """Parse NAME[:SEED]; ScenarioError with the nearest valid name."""
        name, colon, seed = text.partition(":")
        if name not in KINDS:
            raise ScenarioError(f"unknown API faults {name!r}{nearest(name, KINDS)}")
        if colon and not seed.isdigit():
            raise ScenarioError(f"API faults {text!r}: the seed must be a whole number")
        return replace(KINDS[name], seed=int(seed or 0))

    @classmethod
    def read(cls, given: Any, where: str) -> ApiFaults:
        """Parse the `api_faults:` of a scenario file: NAME[:SEED], or a map of `kind` and values that differ."""
        if isinstance(given, str):
            return cls.parse(given)
        known = {each.name: each for each in fields(cls) if each.name != "name"}
        changes: dict[str, Any] = {}
        for key, value in given.items():
            if key == "kind":
                continue
            if key not in known:
                raise ScenarioError(f"{where}: api_faults: unknown key {key!r}{nearest(str(key), [*known, 'kind'])}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise ScenarioError(f"{where}: api_faults: {key} must be a number, not {value!r}")
            if key in CHANCES and value > MOST:
                raise ScenarioError(f"{where}: api_faults: {key} is a probability of at most {MOST:g}, not {value!r}")
            changes[key] = value if isinstance(known[key].default, float) else int(value)
        return replace(cls.parse(str(given.get("kind", "calm"))), **changes)

    def __str__(self) -> str:
        return f"{self.name}:{self.seed}"


# The faults of one request.
CHANCES = (
    "throttle",
    "error",
    "reset",
    "latency",
    "watch_end",
    "watch_gone",
    "watch_twice",
    "watch_late",
    "watch_lag",
    "stale",
    "log_cut",
    "cut",
    "drip",
)
KINDS: Mapping[str, ApiFaults] = {
    kind.name: kind
    for kind in (
        ApiFaults("calm"),
        ApiFaults("throttled", throttle=0.25),
        ApiFaults("errors", error=0.12),
        ApiFaults("resets", reset=0.12),
        ApiFaults("slow", latency=0.5, drip=0.15),
        ApiFaults("short-watches", watch_end=0.5, watch_gone=0.3),
        ApiFaults("stale", stale=0.4),
        ApiFaults("torn-logs", log_cut=0.5),
        ApiFaults("cut-bodies", cut=0.15),
        ApiFaults("repeated-events", watch_twice=0.5),
        ApiFaults("late-events", watch_late=0.4),
        ApiFaults("lagging-watches", watch_lag=0.5, late_s=3.0),
        ApiFaults(
            "storm",
            throttle=0.08,
            error=0.04,
            reset=0.04,
            latency=0.2,
            watch_end=0.25,
            watch_gone=0.1,
            watch_twice=0.1,
            watch_late=0.05,
            watch_lag=0.2,
            stale=0.1,
            log_cut=0.25,
            cut=0.03,
            drip=0.05,
        ),
    )
}
