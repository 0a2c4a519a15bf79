"""What a rank's probe prints: the fields of each stage, for those who read them and for the check where they come in.

A field may be missing or null, which is unknown: read it with ``get``. Fields that are not named here are nobody's.
"""

from __future__ import annotations

from .hardware import EndStage, RdmaStage, RuntimeStage, StartStage, TopologyStage
from .network import DnsStage, NetworkStage, PortStage, StorageStage
from .programs import CheckpointRun, CollectiveRun, TrainingRun
from .sweep import SweepEnd, SweepFleet, SweepRound, SweepTest, SweepTraining

COLLECTIVE = "collective."
STAGES = {
    "start": StartStage,
    "runtime": RuntimeStage,
    "rdma": RdmaStage,
    "topology": TopologyStage,
    "dns": DnsStage,
    "port": PortStage,
    "network": NetworkStage,
    "storage": StorageStage,
    "training": TrainingRun,
    "checkpoint": CheckpointRun,
    COLLECTIVE: CollectiveRun,
    "end": EndStage,
}
"""Stages of a trial by name; those of collectives begin with the same word."""

NUMBERED = {"sweep.fleet.": SweepFleet, "sweep.round.": SweepRound, "sweep.training.": SweepTraining}
SWEEP_STAGES = {**NUMBERED, "sweep.job": SweepTest, "sweep.end": SweepEnd}
"""Stages of a sweep by name; those that are numbered begin with the same word."""
