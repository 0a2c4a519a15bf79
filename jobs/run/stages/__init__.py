"""The output of a rank's probe: the fields of each stage, for readers and for the validation on input.

Every field is there: what the probe left out, or gave as null, is filled in on arrival (``jobs/run/evidence.py``): a
list or mapping as an empty one, a single value as None, which is unknown. Where a list may be None, its absence differs
from an empty one. Fields that are not named here are ignored.
"""

from __future__ import annotations

from typing import TypedDict, cast, get_type_hints

from ...cluster.json_types import empty
from .hardware import DcgmStage, EndStage, PerftestStage, RdmaStage, RuntimeStage, StartStage, TopologyStage
from .network import DnsStage, EndpointsStage, NetworkStage, PortStage, StorageStage
from .programs import CheckpointRun, CollectiveRun, TrainingRun
from .sweep import SweepAgent, SweepDcgm, SweepEnd, SweepFleet, SweepRound, SweepTest, SweepTraining

COLLECTIVE = "collective."


class Stages(TypedDict, total=False):
    """The output of a rank's probe, stage by stage; a collective's stage is ``collective.NAME``."""

    start: StartStage
    runtime: RuntimeStage
    rdma: RdmaStage
    topology: TopologyStage
    dns: DnsStage
    port: PortStage
    network: NetworkStage
    perftest: PerftestStage
    endpoints: EndpointsStage
    storage: StorageStage
    dcgm: DcgmStage
    training: TrainingRun
    checkpoint: CheckpointRun
    end: EndStage


NOTHING = cast("Stages", {name: empty(hint) for name, hint in get_type_hints(Stages).items()})
"""Stages of which nothing is known."""

STAGES = {**get_type_hints(Stages), COLLECTIVE: CollectiveRun}
"""Stages of a trial by name; those of collectives begin with the same word."""

NUMBERED = {
    "sweep.agent.": SweepAgent,
    "sweep.fleet.": SweepFleet,
    "sweep.round.": SweepRound,
    "sweep.training.": SweepTraining,
    "sweep.dcgm.": SweepDcgm,
}
SWEEP_STAGES = {**NUMBERED, "sweep.job": SweepTest, "sweep.end": SweepEnd}
"""Stages of a sweep by name; numbered ones begin with the same word."""
