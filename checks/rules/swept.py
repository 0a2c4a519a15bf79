"""A judged sweep, and the one that it continued."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from jobs.cluster.redact import safe
from jobs.diagnosis.state import ERR_INFRA, FailureAnalysis
from jobs.pod.sweep.decode import GO, INCONCLUSIVE, NO_GO
from jobs.pod.sweep.model import Blame, Done, Nodes
from jobs.pod.sweep.section import AT_FAULT, NOT_TESTED
from jobs.run.stages.sweep import SweepDcgm, SweepTest, SweepTraining, SweptHardware
from reports.record import Finding

MOST_TEXT = 400


def without(done: Done, nodes: Collection[str]) -> Done:
    """Return a round without the tests in which one of these nodes took part."""
    tests = tuple(test for test in done.round.tests if not set(nodes).intersection(test))
    return replace(done, round=replace(done.round, tests=tests), results={test: done.results[test] for test in tests})


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A sweep that another one continues, with place and time from its record."""

    run_id: str
    started: datetime
    ended: datetime  # the end of the oldest run whose rounds are included
    history: Sequence[Done]
    gpus_per_node: int
    image: str
    boots: Mapping[str, str]  # by visible node: boot id of the tested machine
    simulated: bool
    cluster: Mapping[str, Any]
    profile_digest: str
    training: bool = False  # whether its nodes also trained alone
    undiagnosed: tuple[str, ...] = ()  # nodes with a fault by DCGM's diagnostics, or an inconclusive result
    chained: bool = False  # it continued another sweep itself
    anew: tuple[str, ...] = ()  # rebooted nodes: their earlier results do not count

    def __str__(self) -> str:
        return f"run {self.run_id}, {self.started:%Y-%m-%d %H:%M} UTC" + (
            ", and the sweep that it continued" * self.chained
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A sweep with its verdict."""

    job: str
    asked: tuple[str, ...]  # the nodes for which a pod was created
    tested: tuple[str, ...]  # the nodes that reported a result
    left: Mapping[str, str]  # excluded nodes of the pool, and why
    blame: Blame
    section: Mapping[str, Any]
    leaves: Mapping[str, str]
    rails: Mapping[str, Sequence[str]]  # by node: its network devices, in NCCL's order
    rounds: int
    problem: str = ""  # why the sweep did not complete
    failure: FailureAnalysis | None = None  # failure of the job, if it is the reason
    end: SweepTest | None = None  # the job over all nodes that passed
    said: Mapping[Nodes, tuple[str, ...]] = field(default_factory=dict)  # the nodes' reports of their tests
    writes: Mapping[Nodes, Mapping[str, Sequence[Any]]] = field(default_factory=dict)  # by pair and NIC: RDMA, Gb/s
    hardware: Mapping[str, SweptHardware] = field(default_factory=dict)  # by node: its GPUs and NICs
    training: Mapping[str, SweepTraining] = field(default_factory=dict)  # by node: its training steps alone
    dcgm: Mapping[str, SweepDcgm] = field(default_factory=dict)  # by node: DCGM's diagnostics of it
    errors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by node: port counters that grew
    paths: Mapping[Nodes, frozenset[str]] = field(default_factory=dict)  # pairs, and how their tests were graded
    misplaced: Mapping[str, str] = field(default_factory=dict)  # nodes on which no reporting pod of ours ran, and why
    unlabelled: tuple[str, ...] = ()  # nodes without the label that the profile names for their leaf
    earlier: Earlier | None = None
    kept: tuple[Finding, ...] = ()  # comparison of the nodes before and after the sweep
    only_earlier: tuple[str, ...] = ()  # nodes that reported in the earlier run only

    @property
    def fault(self) -> str:
        """The fault that ended the job; '' without one."""
        return self.failure.fault if self.failure else ""

    @property
    def at(self) -> str:
        """The node that was lost and ended the job; '' without one."""
        return self.failure.subject if self.failure and self.fault == "node.lost" else ""

    @property
    def infra(self) -> bool:
        """Whether the cluster kept the job from running, and not a third party."""
        failure = self.failure
        return failure is not None and failure.err_class == ERR_INFRA and not failure.disrupted

    @property
    def proven(self) -> tuple[str, ...]:
        """The nodes that passed all tests; `blame` covers the rounds only."""
        return tuple(self.section["proven"])


def with_findings(swept: Swept, by_node: Mapping[str, Sequence[Finding]]) -> Swept:
    """Return the sweep with its section updated by these findings: which nodes are at fault, and which remain proven.

    The findings are by node, about facts that rounds do not show; a failed one is a fault of the node, any other makes
    it inconclusive. All later readers of the proven nodes (texts, the record, marks, metrics, history) use this
    section.
    """
    bad = {node: own for node in by_node if (own := [finding for finding in by_node[node] if finding.ok is False])}
    section = dict(swept.section)
    open_ = {node: _why(node, by_node[node]) for node in section["proven"] if node in by_node and node not in bad}
    rows = [_fault_of_node(node, own) for node, own in bad.items()]
    section["proven"] = [node for node in section["proven"] if node not in by_node]
    section["findings"] = [*section["findings"], *rows]
    section["suspects"] = {node: why for node, why in section["suspects"].items() if node not in bad}
    section["not_tested"] = {n: why for n, why in section["not_tested"].items() if n not in bad} | open_
    section["reasons"] = [*section["reasons"], *(f"node {row['names'][0]}: {row['why']}" for row in rows)]
    section["reasons"] += [f"not proven {node}: {why}" for node, why in open_.items()]
    section["verdict"] = (
        NO_GO if rows else section["verdict"] if section["verdict"] != GO or not open_ else INCONCLUSIVE
    )
    states = dict.fromkeys(open_, NOT_TESTED) | dict.fromkeys(bad, AT_FAULT)
    elements = section["elements"]
    nodes = [{**row, "state": states.get(row["name"], row["state"])} for row in elements["nodes"]]
    section["elements"] = {**elements, "nodes": nodes}
    return replace(swept, section=section)


def _fault_of_node(node: str, bad: Sequence[Finding]) -> dict[str, Any]:
    return {"kind": "node", "names": [node], "rails": [], "why": _why(node, bad), "fault": bad[0].fault}


def _why(node: str, findings: Sequence[Finding]) -> str:
    """Describe a node and its GPUs."""
    observed_of = [(each.subject.removeprefix(node).strip(), each.observed) for each in findings]
    return safe("; ".join(f"{gpu}: {observed}" if gpu else observed for gpu, observed in observed_of), MOST_TEXT)
