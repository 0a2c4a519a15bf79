"""Two sides of sweeps: the bandwidth of each node and pair, and the nodes, uplinks and pairs at fault.

A sweep itself names the elements at fault; one that was not tested again does not count as repaired. A node's samples
are those of its pairs, except pairs that another element at fault explains. Its tests alone have a separate row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..record import ALONE
from ..schema import Record, RecordedSweep, elements
from .regression import RowGroup, Rows, Samples

OF_ELEMENTS = frozenset({"sweep.node", "sweep.rail", "sweep.uplink", "sweep.pair", "sweep.suspect"})
"""Faults that are compared for each element."""
AT_FAULT, SUSPECT, NOT_TESTED, UNDECIDED, PROVEN = "at fault", "suspect", "not tested", "undecided", "proven"
RANK = (PROVEN, NOT_TESTED, SUSPECT, UNDECIDED, AT_FAULT)
PAIRS, PAIR = "pairs of this node", "pair"


def sweeps(side: Sequence[Record]) -> list[RecordedSweep]:
    """Return the sweeps of a side."""
    return [sweep for record in side if (sweep := record["sweep"])]


def sweep_rows(side: Sequence[Record], other: Sequence[Record]) -> Samples:
    """Return the samples of nodes alone, of each node's pairs, and of those pairs that the other side tested, too."""
    samples: Samples = {}
    shared = {pair for sweep in sweeps(other) for pair, _ in _pairs(sweep)}
    for sweep in sweeps(side):
        in_run: dict[tuple[RowGroup, int], list[float]] = {}
        for size, group, value in _samples(sweep, shared):
            in_run.setdefault((group, size), []).append(value)
        for (group, size), values in in_run.items():
            rows: Rows = samples.setdefault(group, {})
            rows.setdefault(size, []).append(values)
    return samples


def _samples(sweep: RecordedSweep, shared: set[tuple[str, ...]]) -> Iterator[tuple[int, RowGroup, float]]:
    sizes = sweep.get("sizes", {})
    alone, paired = (sizes.get(name, 0) for name in ("alone", "pair"))
    if min(alone, paired) < 1:
        return  # a record of a version that did not store the message size
    for nodes, value in _measured(sweep):
        if len(nodes) == 1:
            yield alone, RowGroup(nodes, "all_reduce", ALONE), value
    bad, leaves = _at_fault(sweep), _leaves(sweep)
    for pair, value in _pairs(sweep):
        for node in pair:
            partners = set(pair) - {node}
            ways = {leaves.get(name, "") for name in pair}
            if not (partners & bad or pair in bad or (len(ways) > 1 and ways & bad)):
                yield paired, RowGroup((node,), "all_reduce", PAIRS), value
        if pair in shared:
            yield paired, RowGroup(pair, "all_reduce", PAIR), value


def _pairs(sweep: RecordedSweep) -> Iterator[tuple[tuple[str, ...], float]]:
    return ((nodes, value) for nodes, value in _measured(sweep) if len(nodes) == 2)


def _measured(sweep: RecordedSweep) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the tests with a measurement, in GB/s."""
    for test in sweep.get("tests", []):
        value = test.get("busbw_gbps", 0.0)
        if 0 < value < math.inf:
            yield tuple(sorted(test.get("nodes", []))), value


def _at_fault(sweep: RecordedSweep) -> set[object]:
    """Return the names of nodes and leaves at fault, and the pairs."""
    named = [(finding["kind"], finding["names"]) for finding in sweep.get("findings", [])]
    return {tuple(sorted(names)) for kind, names in named if kind == "pair"} | {
        name for kind, names in named if kind != "pair" for name in names
    }


def _leaves(sweep: RecordedSweep) -> dict[str, str]:
    return {row["name"]: row["leaf"] for row in elements(sweep)["nodes"]}


def states(side: Sequence[Record]) -> dict[str, tuple[str, str]]:
    """Return each element's worst state in the side's sweeps, and its description."""
    by_subject: dict[str, tuple[str, str]] = {}
    for sweep in sweeps(side):
        why = {" - ".join(each["names"]): str(each["why"]) for each in sweep.get("findings", [])}
        here = {row["name"]: row["state"] for row in elements(sweep)["nodes"]}
        here |= {f"uplink of {row['leaf']}": row["state"] for row in elements(sweep)["uplinks"]}
        here |= {" - ".join(pair): PROVEN for pair, _ in _pairs(sweep)}
        here |= {" - ".join(row["nodes"]): row["state"] for row in elements(sweep)["pairs"]}
        for name, state in here.items():
            rank = RANK.index(state) if state in RANK else 0  # a flaky element has passed
            if name not in by_subject or rank > RANK.index(by_subject[name][0]):
                by_subject[name] = (RANK[rank], why.get(name.removeprefix("uplink of "), ""))
    return by_subject


def turned(before: Sequence[Record], after: Sequence[Record]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the relevant changes of each element: kind, element, state before, state after, and reason."""
    old, new = states(before), states(after)
    for name in dict.fromkeys([*old, *new]):
        (was, _), (now, why) = (side.get(name, ("not in the sweep", "")) for side in (old, new))
        if was == now:
            continue
        if now == AT_FAULT:
            yield "worse", name, was, now, why
        elif was == AT_FAULT:
            yield ("better" if now == PROVEN else "unclear"), name, was, now, ""
        elif was == PROVEN and (" - " not in name or now in RANK):  # another sweep draws different pairs
            yield "unclear", name, was, now, why
