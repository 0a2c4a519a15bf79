"""The output of a sweep's coordinator and agents: the fields of their stages."""

from __future__ import annotations

from typing import TypedDict

from .hardware import DcgmStage
from .kinds import Count, NodeNames, Record
from .programs import TrainingSteps


class SweepFleet(TypedDict):
    """The connected nodes by rank: `gone` is an absent one's reason, `rails` its network devices in NCCL's order."""

    nodes: list[str]
    gone: dict[str, str]
    ranks: dict[str, Count] | None
    rails: dict[str, list[str]]
    restored: Count | None


class SweepAgent(TypedDict):
    """The pod's own report of a failed connection to the coordinator: address and result."""

    address: str | None
    error: str | None


class SweptCard(TypedDict):
    """An RDMA device: PCI address and serial number, or its GUID."""

    pci: str | None
    serial: str | None
    guid: str | None


class SweptGpu(TypedDict):
    """A GPU while its node was tested alone; MHz before, at least during, and after."""

    index: Count | None
    uuid: str | None
    serial: str | None
    mhz: list[float]
    throttle: list[str]


class SweptHardware(TypedDict):
    """The identity of a node's GPUs and NICs."""

    gpus: list[SweptGpu]
    cards: dict[str, SweptCard]


class SweepTest(TypedDict):
    """A test: GB/s of all rails together and of each; `why` has the texts of single nodes.

    `writes`: by NIC the RDMA writes of a pair in Gb/s, from its second node to the first and back.
    """

    nodes: NodeNames
    outcome: str | None
    busbw: float | None
    rails: Record
    rows: list[Record]
    copies: Record
    reported: list[str] | None
    at: list[str]
    why: dict[str, str]
    errors: dict[str, dict[str, Count]]
    writes: dict[str, Record]
    hardware: SweptHardware | None
    asked: Count | None


class SweepRound(TypedDict):
    """A round, in seconds; `at`: since the coordinator's start."""

    number: Count | None
    stage: Count | None
    seconds: float | None
    at: float | None
    tests: list[SweepTest]


class SweepTraining(TrainingSteps):
    """The training steps of a node alone, with some of the steps' times."""

    node: str | None


class SweepDcgm(DcgmStage):
    """DCGM's diagnostics of a node alone."""

    node: str | None


class SweepEnd(TypedDict):
    """The reason why the sweep ended before its plan; empty if the plan was completed."""

    why: str | None
