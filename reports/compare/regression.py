"""Bandwidth regressions: the statistical rule that distinguishes a changed bandwidth from noise.

Bandwidth is compared for each set of nodes and collective, on the logarithm of after over before of each row. A row's
value is the median of its samples in a run (both buffers, all repeats), and the mean of that over the runs of a side.

- Rows of at least 1 GiB (of a sweep that ends below 4 GiB: of a quarter of its largest) are judged together, since what
  slows the links slows all of them: the change is the mean over the rows. It is reported if it is at least 6 % (5 %
  if each side has three runs), more than three standard errors, and each side has three samples: no single noisy
  number decides. 6 % is above the 5.8 % that a number can lose when each side may be 3 % off; published repeats on one
  fabric stay within that.
- Each of those rows is judged alone, too, so that one slow size does not hide in the mean: 10 % (5 % with three
  runs) and four standard errors. So is the only row of a collective.
- Rows from 64 MiB up to there depend on latency and on the algorithm that NCCL chooses: the same rules from 15 % on.
- Rows below 64 MiB show latency: the same rules from a halving on, if a row had 0.1 GB/s or more (a table rounds
  to 0.01).

The standard error is the largest that the scatter of samples, of rows and of runs gives; a sample scatters by at least
1 % (clocks, congestion). A change of 10 % or more within three standard errors is unclear.

Training steps and checkpoints are rates of a whole job, compared between runs on the same nodes. A run's rate of
training steps is TFLOP/s of each GPU, for the median of its steps. A change is reported from 10 % on, or from 6 % on if
each side has three runs. Between these limits one run a side is inconclusive: twelve series of one GPU had medians 1.5
% apart (docs/training.md), and the rule of bandwidth has the same limits.

A checkpoint's rate is MB/s of all ranks together, in runs that saved the same number of bytes. Shared storage varies
more than GPUs do. A rate within 20 % of another is the same: SNIA's Solid State Storage Performance Test Specification
calls a device steady if its rounds stay within 20 % of their average. Beyond 20 %, a change is reported if each side
has three runs and their ranges do not overlap. With fewer runs it is reported only if the rate has halved or doubled,
and is otherwise inconclusive.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..plain import format_size
from ..record import ALONE, measured, samples_of
from ..schema import Record
from .proofs import nodes_of

LEAST_CHANGE, LEAST_CHANGE_OF_RUNS, LEAST_CHANGE_MEDIUM, LEAST_CHANGE_SMALL = (
    math.log(1 / (1 - share)) for share in (0.06, 0.05, 0.15, 0.5)
)
LEAST_RATE_SMALL = 0.1
MATTERS = math.log(1 / 0.9)
"""The change that a gate must not miss: one of this size within the noise is unclear."""
NOTICEABLE = math.log(1 / 0.85)
"""The same for one row with too few samples of its own."""
LEAST_SCATTER = 0.01
ERRORS, ERRORS_OF_A_ROW = 3.0, 4.0
LEAST_SAMPLES = 3
LEAST_RUNS = 3
LEAST_SIZE, LEAST_SIZE_MEDIUM = 1 << 30, 64 << 20
OF_A_MEDIAN = math.pi / 2
"""The ratio of a median's variance to a mean's, for many samples; for three it is 1.35."""
NAMED = 4
"""The nodes that a subject names; if there are more, it names the first and the last."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A unit of comparison: a set of nodes, a collective and its kind of run."""

    nodes: tuple[str, ...]
    collective: str
    run: str  # ring, default, sendrecv, ...; node: of one node alone

    def __str__(self) -> str:
        return f"{self.where}: {self.collective} {self.run}"

    @property
    def alone(self) -> bool:
        """Whether one node was measured alone: NVLink, and no network."""
        return self.run == ALONE

    @property
    def where(self) -> str:
        """The nodes as a short text."""
        if len(self.nodes) > NAMED:
            return f"{len(self.nodes)} nodes ({self.nodes[0]} to {self.nodes[-1]})"
        return " - ".join(self.nodes) or "all nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthRow:
    """The verdict of one group, with the mean of the rows that were compared on both sides; GB/s."""

    group: RowGroup
    kind: str  # worse | better | same | unclear | appeared
    reported_before: str
    reported_after: str
    change: float | None = None  # relative: -0.1 is 10 % less; None: not compared
    error: float | None = None  # one standard error of the change
    note: str = ""
    sizes: str = ""  # the compared sizes, if not those of at least 1 GiB

    @property
    def subject(self) -> str:
        """The subject."""
        return f"{self.group}, {self.sizes}" if self.sizes else str(self.group)

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON types; ``change`` and ``error`` are shares, null if nothing was compared."""
        return {
            "nodes": self.group.where,
            "collective": self.group.collective,
            "run": self.group.run,
            "sizes": self.sizes,
            "kind": self.kind,
            "change": None if self.change is None else round(self.change, 5),
            "error": None if self.error is None else round(self.error, 5),
            "before": self.reported_before,
            "after": self.reported_after,
            "note": self.note,
        }


Rows = dict[int, list[list[float]]]
"""By size in bytes: the samples of each run, in GB/s."""
Samples = dict[RowGroup, Rows]


def bandwidth_rows(side: Sequence[Record], *, least: int = LEAST_SIZE) -> Samples:
    """Collect every sample of bus bandwidth (GB/s) of rows of at least ``least`` bytes, by group and size."""
    samples: Samples = {}
    for record in side:
        in_run: dict[tuple[RowGroup, int], list[float]] = {}
        names = nodes_of(record)
        for run, job in measured(record):
            hosts = tuple(sorted({names.get(str(h["name"]), str(h["name"])) for h in job["hosts"]}))
            for table in job["tables"]:
                group = RowGroup(hosts, table["collective"] or "all_reduce", run)
                for row in table["rows"]:
                    if row["size_bytes"] >= least:
                        in_run.setdefault((group, row["size_bytes"]), []).extend(samples_of(row))
        for (group, size), values in in_run.items():
            if values:
                samples.setdefault(group, {}).setdefault(size, []).append(values)
    return samples


def judge(before: Samples, after: Samples) -> Iterator[BandwidthRow]:
    """Compare each group that both sides measured; a group that is no longer measured is unclear.

    Single nodes come first: a node with slow internal links cannot saturate the network.
    """
    split = [{group: _split(rows) for group, rows in side.items()} for side in (before, after)]
    usual = _usual([rows for side in split for parts in side.values() for rows in parts])
    for group in sorted(dict.fromkeys([*before, *after]), key=lambda group: not group.alone):
        old, new = (side.get(group, ({}, {})) for side in split)
        if not any(old):
            yield BandwidthRow(
                group=group, kind="appeared", reported_before=_as_text({}), reported_after=_as_text(new[0])
            )
            continue
        yield _large(group, old[0], new[0], usual)
        if change := _medium(group, old[1], new[1], usual):
            yield change
        elif any(new) and (missing := sorted(old[1].keys() - {*new[0], *new[1]})):
            note = f"not measured in the second run: {', '.join(map(format_size, missing))}"
            yield BandwidthRow(
                group=group,
                kind="unclear",
                reported_before=_as_text(old[1]),
                reported_after=_as_text(new[1]),
                note=note,
                sizes=_span(missing),
            )


def judge_small(before: Samples, after: Samples) -> Iterator[BandwidthRow]:
    """Compare the rows below 64 MiB of each group; yield only regressions and rows that have doubled."""
    for group, rows in before.items():
        new = {size: runs for size, runs in after.get(group, {}).items() if size < LEAST_SIZE_MEDIUM}
        old = {s: runs for s, runs in rows.items() if s in new and math.exp(_value(runs)) >= LEAST_RATE_SMALL}
        if old and (part := _part(group, old, new, 0.0, LEAST_CHANGE_SMALL)).kind != "same":
            yield replace(part, sizes=_span(sorted(old)))


def compared(before: Samples, after: Samples) -> str:
    """Name the rows that both sides measured; '' if there are none."""
    both = {group: before[group].keys() & after[group].keys() for group in before.keys() & after.keys()}
    sizes = sorted({size for each in both.values() for size in each})
    runs = sum(bool(each) for each in both.values())
    return f"bandwidth was compared at {_span(sizes)}, in {runs} runs of collectives" if sizes else ""


def _split(rows: Rows) -> tuple[Rows, Rows]:
    """Split rows into those that show the links (the largest ones of a short sweep) and those below."""
    least = min(LEAST_SIZE, max(rows) // 4)
    return (
        {s: r for s, r in rows.items() if s >= least},
        {s: r for s, r in rows.items() if LEAST_SIZE_MEDIUM <= s < least},
    )


def _large(group: RowGroup, old: Rows, new: Rows, usual: float) -> BandwidthRow:
    """Judge the large rows; one that is no longer measured is unclear."""
    if not old.keys() & new.keys():
        note = "not measured on both sides: different nodes, different rows, or a trial that ended earlier"
        return BandwidthRow(
            group=group, kind="unclear", reported_before=_as_text(old), reported_after=_as_text(new), note=note
        )
    part = _part(group, old, new, usual, LEAST_CHANGE)
    if (missing := sorted(old.keys() - new.keys())) and part.kind != "worse":
        return replace(
            part, kind="unclear", note=f"not measured in the second run: {', '.join(map(format_size, missing))}"
        )
    return part


def _medium(group: RowGroup, old: Rows, new: Rows, usual: float) -> BandwidthRow | None:
    """Judge the rows below the large ones; return a row only for a regression."""
    both = sorted(old.keys() & new.keys())
    part = _part(group, old, new, usual, LEAST_CHANGE_MEDIUM) if both else None
    if part is None or part.kind == "same":
        return None
    return replace(part, sizes=_span(both))


def _span(sizes: Sequence[int]) -> str:
    return f"{format_size(sizes[0])} to {format_size(sizes[-1])}" if len(sizes) > 1 else format_size(sizes[0])


def _part(group: RowGroup, old: Rows, new: Rows, usual: float, least: float) -> BandwidthRow:
    """Judge rows together and each alone; the worst result is the verdict."""
    together = _judged(group, old, new, usual, least=least)
    if together.kind == "worse":
        return together
    alone = {
        size: _judged(group, {size: old[size]}, {size: new[size]}, usual, least=least, errors=ERRORS_OF_A_ROW)
        for size in sorted(old.keys() & new.keys(), reverse=True)
    }
    for kind in ("worse", "unclear"):
        for size, row in alone.items():
            if row.kind == kind == "worse" or (row.kind == kind and (row.change or 0) < math.expm1(-NOTICEABLE)):
                note = f"the rows of {format_size(size)} alone: {row.note}"
                return replace(row, note=note)
    return together


def _judged(
    group: RowGroup, old: Rows, new: Rows, usual: float, *, least: float, errors: float = ERRORS
) -> BandwidthRow:
    """Judge rows together; ``usual`` is the usual scatter of a sample in these records."""
    sizes = sorted(old.keys() & new.keys())
    old, new = ({size: side[size] for size in sizes} for side in (old, new))
    changes = [_value(new[size]) - _value(old[size]) for size in sizes]
    change = statistics.fmean(changes)
    error = _error(old, new, changes, usual)
    counts = _count(old), _count(new)
    if least == LEAST_CHANGE:
        repeated = min(len(side[s]) for side in (old, new) for s in sizes) >= LEAST_RUNS
        least = LEAST_CHANGE_OF_RUNS if repeated else MATTERS if len(sizes) == 1 else LEAST_CHANGE
    reported_before, reported_after = _as_text(old), _as_text(new)
    shown = change_of(reported_before, reported_after)
    kind, note = "same", ""
    if abs(change) >= least and min(counts) < LEAST_SAMPLES:
        kind, note = "unclear", f"{min(counts)} samples on one side: repeat the run before anything is concluded"
    elif abs(change) >= least and abs(change) > errors * error:
        kind = "worse" if change < 0 else "better"
        rows = f"{len(sizes)} rows" if len(sizes) > 1 else "1 row"
        note = f"{percent(shown)} over {rows}, standard error {100 * error:.1f} %"
    elif abs(change) >= max(least, MATTERS):
        kind, note = "unclear", f"one standard error is {100 * error:.0f} %: repeat the run"
    return BandwidthRow(
        group=group,
        kind=kind,
        change=shown,
        error=error,
        note=note,
        reported_before=reported_before,
        reported_after=reported_after,
    )


def _value(runs: list[list[float]]) -> float:
    """Return the logarithm of a row's bandwidth: the mean over the runs of each run's median."""
    return statistics.fmean(math.log(statistics.median(values)) for values in runs)


def _count(rows: Rows) -> int:
    return sum(len(values) for runs in rows.values() for values in runs)


def _error(old: Rows, new: Rows, changes: list[float], usual: float) -> float:
    """Return one standard error of the mean change: the largest of those of samples, rows and runs."""
    sides = (old, new)
    many = all(len(values) >= LEAST_SAMPLES for side in sides for runs in side.values() for values in runs)
    scatter = max(LEAST_SCATTER, usual, _scatter([v for side in sides for runs in side.values() for v in runs]))
    of_samples = scatter * math.sqrt((OF_A_MEDIAN if many else 1.0) * sum(1 / _count(side) for side in sides))
    of_rows = statistics.stdev(changes) / math.sqrt(len(changes)) if len(changes) > 1 else 0.0
    return max(of_samples, of_rows, math.sqrt(sum(_of_runs(side) ** 2 for side in sides)))


def _of_runs(side: Rows) -> float:
    """Return the standard error from the scatter between the runs of a side; 0 for a single run."""
    count = min(len(runs) for runs in side.values())
    if count < 2:
        return 0.0
    means = [statistics.fmean(math.log(statistics.median(runs[n])) for runs in side.values()) for n in range(count)]
    return statistics.stdev(means) / math.sqrt(count)


def _usual(groups: Sequence[Rows]) -> float:
    """Return the usual scatter of a sample in these records: the median over all groups that show it."""
    shown = [_scatter([values for runs in rows.values() for values in runs]) for rows in groups]
    return statistics.median([scatter for scatter in shown if scatter] or [0.0])


def _scatter(runs: list[list[float]]) -> float:
    """Return the relative spread of a sample around the median of its row and run; 0 if no row has two samples.

    Estimated from the mean absolute deviation; a row of n samples loses a degree of freedom to its own median.
    """
    deviations = [abs(math.log(v / statistics.median(values))) for values in runs if len(values) > 1 for v in values]
    freedom = sum(len(values) - 1 for values in runs if len(values) > 1)
    return math.sqrt(math.pi / 2) * sum(deviations) / freedom if freedom else 0.0


def percent(share: float) -> str:
    """Write a change."""
    return f"{100 * share:+.1f} %"


def figure(rate: float) -> str:
    """Write a rate with at least four digits, so that two of them show a change of 0.1 %."""
    return f"{rate:#.4g}".rstrip(".") if rate < 1000 else f"{rate:.0f}"


def change_of(before: str, after: str) -> float:
    """Return the relative change between two texts that begin with a figure: of the shown figures only."""
    return float(after.split(maxsplit=1)[0]) / float(before.split(maxsplit=1)[0]) - 1


def _as_text(rows: Rows) -> str:
    """Write the geometric mean over the rows, which is the judged value."""
    if not rows:
        return "not measured"
    sizes = sorted(rows)
    mean = math.exp(statistics.fmean(map(_value, rows.values())))
    return f"{figure(mean)} GB/s {'over' if len(sizes) > 1 else 'at'} {_span(sizes)}"


Key = tuple[tuple[str, ...], int]
"""The nodes, and the bytes, which must be the same, too."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The value of a rate in a run, and the relative changes that are noticed, and reported for one run a side."""

    area: str
    unit: str
    of: Callable[[Record], tuple[Key, float] | None]
    share: Callable[[float, float], float]  # relative change of the rates before and after
    noticed: float
    called: float
    apart: bool  # whether the ranges of several runs a side must not overlap


def _steps(record: Record) -> tuple[Key, float] | None:
    steps = record["training"]
    if steps and steps.get("tflops", 0) > 0:
        return (tuple(sorted({rank["node"] for rank in steps["ranks"]})), 0), steps["tflops"]
    return None


def _checkpoint(record: Record) -> tuple[Key, float] | None:
    saved = record["checkpoint"]
    if saved and saved.get("mb_s", 0) > 0:
        return (tuple(sorted({each["node"] for each in saved.get("nodes", [])})), saved.get("bytes", 0)), saved["mb_s"]
    return None


def _of_before(was: float, now: float) -> float:
    return abs(now / was - 1)


def _of_faster(was: float, now: float) -> float:
    return 1 - min(was, now) / max(was, now)


RATES = (
    Rate("training", "TFLOP/s a GPU", _steps, _of_before, noticed=0.06, called=0.10, apart=False),
    Rate("checkpoint", "MB/s of all ranks", _checkpoint, _of_faster, noticed=0.20, called=0.50, apart=True),
)


def changed(
    rate: Rate, before: Sequence[Record], after: Sequence[Record]
) -> Iterator[tuple[tuple[str, ...], float, float, bool | None]]:
    """Yield nodes, the rate before and after, and whether that is worse: None if it is within the noise."""
    old, new = _by_key(rate, before), _by_key(rate, after)
    for key in sorted(old.keys() & new.keys()):
        was, now = statistics.median(old[key]), statistics.median(new[key])
        share = rate.share(was, now)
        apart = not rate.apart or max(old[key]) < min(new[key]) or max(new[key]) < min(old[key])
        sure = share >= rate.called or (apart and min(len(old[key]), len(new[key])) >= LEAST_RUNS)
        if share >= rate.noticed:
            yield key[0], was, now, now < was if sure else None


def _by_key(rate: Rate, side: Sequence[Record]) -> dict[Key, list[float]]:
    """Return the rate of each run that reports one."""
    values: dict[Key, list[float]] = {}
    for key, value in filter(None, map(rate.of, side)):
        values.setdefault(key, []).append(value)
    return values
