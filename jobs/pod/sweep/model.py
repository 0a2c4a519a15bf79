"""The types of a sweep: fleet, rules, tests, rounds, results and findings; all frozen.

A test's nodes are a tuple of one name (the node alone) or of two in sorted order (a pair).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Mapping, Optional, Tuple

Nodes = Tuple[str, ...]
Rails = FrozenSet[int]

MEASURED = "measured"
NO_END = "no end"
FAILED = "failed"
WRONG_SUMS = "wrong sums"
WRONG_TRANSPORT = "wrong transport"
NOTHING_MEASURED = "nothing"
AT_ONCE = (WRONG_SUMS, WRONG_TRANSPORT)
"""Outcomes that no later pass excuses."""
OUTCOMES = (MEASURED, NO_END, FAILED, NOTHING_MEASURED, *AT_ONCE)

INSIDE, ACROSS = "in a leaf", "across leaves"  # kinds of pairs


@dataclass(frozen=True)
class Rules:
    """The thresholds of faults. Shares are of the median of comparable tests; floors are busbw in GB/s.

    Defaults: docs/fleet.md. With noise of 2 % (sigma) a healthy test is below 0.93 once in 4,000 and below 0.90 once in
    3 million. With two proofs instead of three a sound node was found at fault in every twentieth simulated sweep.
    `bus`: a node alone has a bus between its GPUs; a single GPU has no bandwidth to judge, only a complete test.
    `rails` requires a pair to report each rail: without them nothing was measured. `matchings` is how often every node
    is paired before ambiguous results are repeated; 0: by the size of the fleet.
    """

    clears: float = 0.93
    accuses: float = 0.90
    proofs: int = 3
    partners_for_rate: int = 6
    most_partners: int = 12
    pair_floor: Optional[float] = None
    node_floor: Optional[float] = None
    alone: bool = True
    bus: bool = True
    rails: bool = False
    at_once: int = 0
    matchings: int = 0
    seed: int = 1


@dataclass(frozen=True)
class Fleet:
    """The nodes under test in test order, and the leaf of each if known.

    `gone` has the reasons why nodes cannot be tested (any more): busy, preempted, dead, released. Their earlier results
    remain. Nodes may join and leave between two rounds.
    """

    nodes: Nodes
    leaves: Mapping[str, str] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)

    def leaf(self, node: str) -> str:
        """Return the leaf of a node; '' if unknown."""
        return self.leaves.get(node, "")

    def crosses(self, nodes: Nodes) -> bool:
        """Return whether a test crosses leaves."""
        leaves = self.leaves
        return bool(leaves) and len({leaves.get(node, "") for node in nodes}) > 1

    def kind_of(self, nodes: Nodes) -> str:
        """Return the kind of tests with which a test is compared."""
        if len(nodes) == 1:
            return "alone"
        return ACROSS if self.crosses(nodes) else INSIDE


@dataclass(frozen=True)
class Round:
    """Tests on disjoint nodes that run at the same time; stage 0: nodes alone, the last: what is ambiguous."""

    number: int
    stage: int
    tests: Tuple[Nodes, ...]


@dataclass(frozen=True)
class Result:
    """The result of a test: busbw in GB/s over all rails and of each; `reported` names the nodes that reported.

    `at` names nodes with a wrong transport or wrong sums in their own log.
    """

    outcome: str
    busbw: Optional[float] = None
    rails: Tuple[Optional[float], ...] = ()
    reported: Nodes = ()
    at: Nodes = ()


@dataclass(frozen=True)
class Done:
    """A completed round with its results; `seconds` is its duration. A test without a result reported nothing."""

    round: Round
    results: Mapping[Nodes, Result]
    seconds: float = 0.0


@dataclass(frozen=True)
class Finding:
    """An element at fault: kind is node, rail (of a node), uplink (of a leaf) or pair; no rails: all of them."""

    kind: str
    names: Nodes
    rails: Tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Blame:
    """The result of a sweep: verdict is go, no-go or inconclusive, and `reasons` explains why it is not a go.

    `apart` has findings that no single element explains: groups of nodes, or rails, that are slow (kind groups), and
    noise. No element is then reported as at fault, and the verdict is not go.
    """

    verdict: str
    reasons: Tuple[str, ...]
    findings: Tuple[Finding, ...]
    flaky: Tuple[Nodes, ...]
    suspects: Dict[str, str]
    proven: Nodes
    not_tested: Dict[str, str]
    notes: Tuple[str, ...]
    apart: Tuple[Finding, ...] = ()
