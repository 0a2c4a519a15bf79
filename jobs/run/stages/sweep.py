"""The output of a sweep's coordinator and agents: the fields of their stages."""

from __future__ import annotations

from typing import TypedDict

from .hardware import DcgmStage
from .kinds import Count, Record
from .programs import TrainingSteps


class SweepFleet(TypedDict, total=False):
    """The connected nodes by rank: `gone` is an absent one's reason, `rails` its network devices in NCCL's order."""

    nodes: list[str]
    gone: dict[str, str]
    ranks: dict[str, Count]
    rails: dict[str, list[str]]
    restored: Count


class SweepAgent(TypedDict, total=False):
    """The pod's own report of a failed connection to the coordinator: address and result."""

    address: str
    error: str


class SweptCard(TypedDict, total=False):
    """An RDMA device: PCI address and serial number, or its GUID."""

    pci: str
    serial: str
    guid: str


class SweptGpu(TypedDict, total=False):
    """A GPU while its node was tested alone; MHz before, at least during, and after."""

    index: Count
    uuid: str
    serial: str
    mhz: list[float]
    throttle: list[str]


class SweptHardware(TypedDict, total=False):
    """The identity of a node's GPUs and NICs."""

    gpus: list[SweptGpu]
    cards: dict[str, SweptCard]


class _Test(TypedDict):
    nodes: list[str]


class SweepTest(_Test, total=False):
    """A test: GB/s of all rails together and of each; `why` has the texts of single nodes.

    `writes`: by NIC the RDMA writes of a pair in Gb/s, from its second node to the first and back.
    """

    outcome: str
    busbw: float
    rails: Record
    rows: list[Record]
    copies: Record
    reported: list[str]
    at: list[str]
    why: dict[str, str]
    errors: dict[str, dict[str, Count]]
    writes: dict[str, Record]
    hardware: SweptHardware
    asked: Count


class SweepRound(TypedDict, total=False):
    """A round, in seconds; `at`: since the coordinator's start."""

    number: Count
    stage: Count
    seconds: float
    at: float
    tests: list[SweepTest]


class SweepTraining(TrainingSteps, total=False):
    """The training steps of a node alone, with some of the steps' times."""

    node: str


class SweepDcgm(DcgmStage, total=False):
    """DCGM's diagnostics of a node alone."""

    node: str


class SweepEnd(TypedDict, total=False):
    """The reason why the sweep ended before its plan; empty if the plan was completed."""

    why: str
