"""The history of scheduled runs in a ConfigMap: each node's trials, each run's measurements."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace

from seatrial.faults.actions import heaviest

STRIKES = 2
MOST_NODES, MOST_RUNS, MOST_FAULTS = 2000, 20, 10
"""Bounds of the history, which is in one ConfigMap; the nodes tested or seen longest ago are dropped first."""
WEEK_S, MOST_WEEKS = 7 * 86400.0, 8
"""A node's trials and failures are counted by week, for two months: long enough for intermittent failures."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The history of one node; times in seconds since 1970, 0 for never."""

    tested: float = 0.0
    passed: float = 0.0
    strikes: int = 0
    suspect: bool = False
    faults: tuple[str, ...] = ()
    seen: float = 0.0  # time when it was first seen in the pool
    action: str = ""  # the action after its last failure: a word of seatrial.faults.actions
    weeks: tuple[tuple[int, int, int], ...] = ()  # (week since 1970, trials, failures), the newest last

    def counted(self, now: float, *, failed: bool) -> tuple[tuple[int, int, int], ...]:
        """Return the weeks with one more trial."""
        week = int(now // WEEK_S)
        known = {at: (trials, failures) for at, trials, failures in self.weeks}
        trials, failures = known.get(week, (0, 0))
        known[week] = (trials + 1, failures + failed)
        return tuple((at, *known[at]) for at in sorted(known) if week - MOST_WEEKS < at <= week)

    def score(self, now: float) -> tuple[int, int]:
        """Return trials and failures of the last eight weeks."""
        week = int(now // WEEK_S)
        recent = [each for each in self.weeks if week - MOST_WEEKS < each[0] <= week]
        return sum(each[1] for each in recent), sum(each[2] for each in recent)

    @property
    def bad(self) -> bool:
        """Whether the node is bad: two strikes in a row."""
        return self.strikes >= STRIKES

    @property
    def good(self) -> bool:
        """Whether the node is known to be good: it passed, and has no failure since."""
        return self.passed > 0 and not self.strikes and not self.suspect


@dataclass(frozen=True, slots=True)
class Past:
    """The summary of one run: end, verdict and measurements (GB/s, by group and size)."""

    run_id: str
    ended: float
    verdict: str
    faults: tuple[str, ...] = ()
    samples: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """The history of the nodes and of the last runs."""

    nodes: Mapping[str, Watched] = field(default_factory=dict)
    past: tuple[Past, ...] = ()
    last_success: float = 0.0

    @classmethod
    def read(cls, data: Mapping[str, object]) -> NodeHistory:
        """Read the output of ``to_dict``; unreadable parts are dropped."""
        entries, runs = data.get("nodes"), data.get("past")
        nodes = {
            str(name): _watched(entry)
            for name, entry in (entries.items() if isinstance(entries, dict) else ())
            if isinstance(entry, dict)
        }
        past = tuple(_past(entry) for entry in (runs if isinstance(runs, list) else ()) if isinstance(entry, dict))
        return cls(nodes, past[-MOST_RUNS:], number(data.get("last_success")))

    def to_dict(self) -> dict[str, object]:
        """Return the history as plain JSON types."""
        return {
            "schema": 1,
            "nodes": {name: asdict(node) for name, node in self.nodes.items()},
            "past": [asdict(run) for run in self.past],
            "last_success": self.last_success,
        }

    @property
    def bad(self) -> tuple[str, ...]:
        """The bad nodes."""
        return tuple(sorted(name for name, node in self.nodes.items() if node.bad))

    @property
    def judged(self) -> dict[str, bool]:
        """The nodes known to be bad (True) or good (False)."""
        return {name: node.bad for name, node in sorted(self.nodes.items()) if node.bad or node.good}

    @property
    def actions(self) -> dict[str, str]:
        """The actions for the bad nodes, if known."""
        return {name: node.action for name, node in sorted(self.nodes.items()) if node.bad and node.action}

    def of(self, names: Collection[str]) -> NodeHistory:
        """Return the history of these nodes only."""
        return replace(self, nodes={name: node for name, node in self.nodes.items() if name in names})

    def watching(self, pool: Collection[str], now: float) -> NodeHistory:
        """Add all nodes of a pool, with the time first seen: a node that is never idle for a trial is known, too."""
        fresh = {name: Watched(seen=now) for name in sorted(pool) if name not in self.nodes}
        room = max(0, MOST_NODES - len(self.nodes))
        return replace(self, nodes={**self.nodes, **dict(list(fresh.items())[:room])})

    def series(self, now: float) -> dict[str, tuple[float, int, int]]:
        """Return for each node when it was last tested (else first seen), and its score; longest ago first."""
        scores = {name: (node.tested or node.seen, *node.score(now)) for name, node in self.nodes.items()}
        return dict(sorted(scores.items(), key=lambda item: item[1][0]))


def bounded(state: NodeHistory, largest: int = 800_000) -> str:
    """Write the state as JSON of at most so many bytes: drop measurements first, then the nodes tested longest ago."""
    text = json.dumps(state.to_dict())
    if len(text) > largest:
        state = replace(state, past=tuple(replace(run, samples={}) for run in state.past))
    while len(text := json.dumps(state.to_dict())) > largest and state.nodes:
        newest = sorted(state.nodes.items(), key=lambda item: -item[1].tested)
        state = replace(state, nodes=dict(newest[: len(newest) * 3 // 4]))
    return text


def number(value: object) -> float:
    """Return a finite number, else 0: manual edits of the ConfigMap must not end a run."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e12 else 0.0


def _watched(entry: Mapping[str, object]) -> Watched:
    tested, passed, strikes, seen = (number(entry.get(key)) for key in ("tested", "passed", "strikes", "seen"))
    suspect, faults = entry.get("suspect") is True, _texts(entry.get("faults"))
    action = str(heaviest((str(entry.get("action")),)) or "")
    return Watched(tested, passed, int(strikes), suspect, faults, seen, action, _weeks(entry.get("weeks")))


def _weeks(value: object) -> tuple[tuple[int, int, int], ...]:
    rows = [row for row in value if isinstance(row, list) and len(row) == 3] if isinstance(value, list) else []
    whole = [(int(number(at)), int(number(trials)), int(number(failures))) for at, trials, failures in rows]
    return tuple(row for row in whole if 0 <= row[2] <= row[1])[-MOST_WEEKS:]


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(word)[:100] for word in value[:MOST_FAULTS]) if isinstance(value, list) else ()


def _past(entry: Mapping[str, object]) -> Past:
    samples = entry.get("samples")
    rates = {
        str(group): {str(size): number(v) for size, v in rows.items() if str(size).isdigit() and number(v) > 0}
        for group, rows in (samples.items() if isinstance(samples, dict) else ())
        if isinstance(rows, dict)
    }
    return Past(
        str(entry.get("run_id")),
        number(entry.get("ended")),
        str(entry.get("verdict")),
        _texts(entry.get("faults")),
        rates,
    )
