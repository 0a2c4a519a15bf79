"""A sweep as it was judged, and the one that it went on with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from jobs.diagnosis.state import ERR_INFRA, FailureAnalysis
from jobs.pod.sweep.model import Blame, Done, Nodes
from jobs.run.stages.sweep import SweepTest, SweepTraining, SweptHardware


def without(done: Done, nodes: Collection[str]) -> Done:
    """Return a round without the tests in which one of these nodes took part."""
    tests = tuple(test for test in done.round.tests if not set(nodes).intersection(test))
    return replace(done, round=replace(done.round, tests=tests), results={test: done.results[test] for test in tests})


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A sweep that another one goes on with, and what its record says of where and when it was."""

    run_id: str
    started: datetime
    ended: datetime  # of the oldest run whose rounds are among them
    history: Sequence[Done]
    gpus_per_node: int
    image: str
    boots: Mapping[str, str]  # of each node, as far as nodes were seen: which start of the machine was tested
    simulated: bool
    cluster: Mapping[str, Any]
    profile_digest: str
    training: bool = False  # whether its nodes trained alone, too
    chained: bool = False  # it went on with another sweep itself
    anew: tuple[str, ...] = ()  # nodes whose machine has started again since: what they showed does not count

    def __str__(self) -> str:
        return f"run {self.run_id}, {self.started:%Y-%m-%d %H:%M} UTC" + (", and what it went on with" * self.chained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A sweep as it was judged."""

    job: str
    asked: tuple[str, ...]  # the nodes that got a pod
    tested: tuple[str, ...]  # those that reported something
    left: Mapping[str, str]  # nodes of the pool that were left alone, and why
    blame: Blame
    section: Mapping[str, Any]
    leaves: Mapping[str, str]
    rails: Mapping[str, Sequence[str]]  # by node: its network devices, in NCCL's order
    rounds: int
    problem: str = ""  # why the sweep did not come to its end
    failure: FailureAnalysis | None = None  # of the job, where that is why
    end: SweepTest | None = None  # the job over all nodes that passed
    said: Mapping[Nodes, tuple[str, ...]] = field(default_factory=dict)  # what nodes said of their tests
    hardware: Mapping[str, SweptHardware] = field(default_factory=dict)  # by node: its GPUs and NICs
    training: Mapping[str, SweepTraining] = field(default_factory=dict)  # by node: its training steps alone
    errors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by node: port counters that grew
    paths: Mapping[Nodes, frozenset[str]] = field(default_factory=dict)  # pairs, and how their tests were graded
    misplaced: Mapping[str, str] = field(
        default_factory=dict
    )  # nodes on which no pod of ours was that reported, and why
    unlabelled: tuple[str, ...] = ()  # nodes without the label that the profile says names their leaf
    earlier: Earlier | None = None
    only_earlier: tuple[str, ...] = ()  # nodes that reported nothing in this run, and something in the earlier one

    @property
    def fault(self) -> str:
        """The fault that ended the job; '' for none."""
        return self.failure.fault if self.failure else ""

    @property
    def at(self) -> str:
        """The node at which the job ended, where it is one that was lost."""
        return self.failure.subject if self.failure and self.fault == "node.lost" else ""

    @property
    def infra(self) -> bool:
        """Whether the cluster kept the job from running, and no outsider did."""
        failure = self.failure
        return failure is not None and failure.err_class == ERR_INFRA and not failure.disrupted

    @property
    def proven(self) -> tuple[str, ...]:
        """The nodes that passed all that was asked of them; `blame` knows nothing of their training."""
        return tuple(self.section["proven"])
