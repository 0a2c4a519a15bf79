"""The rows of a sweep in report.json, which section.py writes and reports/ reads."""

from __future__ import annotations

from typing import List, Optional, TypedDict


class FindingRow(TypedDict):
    """An element at fault: kind node, rail (of a node), uplink (of a leaf) or pair; no rails: all of them.

    Under `apart` no element is at fault. Kind groups has the nodes of a group that is slow or fails with the others;
    kind noise has all nodes.
    """

    kind: str
    names: List[str]
    rails: List[int]
    why: str


class LevelRow(TypedDict):
    """The reference of a kind of tests; rail null: all rails together."""

    kind: str
    rail: Optional[int]
    busbw_gbps: float


class RoundRow(TypedDict):
    """A round, and the number of its tests by outcome."""

    number: int
    stage: int
    seconds: float
    tests: int
    passed: int
    failed: int
    unclear: int
    nothing: int
    repeated: bool


class _Nodes(TypedDict):
    round: int
    nodes: List[str]
    outcome: str


class TestRow(_Nodes, total=False):
    """A test. Omitted are unmeasured values, `reported` if all nodes did, `at` if no node is named."""

    busbw_gbps: float
    rails_gbps: List[Optional[float]]
    reported: List[str]
    at: List[str]
    share: float


class NodeRow(TypedDict):
    """A node; shares are the best of its pairs without a bad uplink, so that a bad partner does not lower them."""

    name: str
    leaf: str
    state: str
    tests: int
    passed: int
    failed: int
    share: Optional[float]
    rails: List[float]


class UplinkRow(TypedDict):
    """A leaf's uplink, by its tests across leaves without a node at fault."""

    leaf: str
    state: str
    tests: int
    failed: int
    share: Optional[float]
    rails: List[float]


class PairRow(TypedDict):
    """A pair that ever failed and that no node or uplink explains; every other pair is only in `tests`."""

    nodes: List[str]
    state: str
    tests: int
    failed: int
    share: Optional[float]


class Elements(TypedDict):
    """All elements that can be at fault."""

    nodes: List[NodeRow]
    uplinks: List[UplinkRow]
    pairs: List[PairRow]
