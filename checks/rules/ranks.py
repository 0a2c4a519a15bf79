"""Lookups that every rule of a trial shares: the ranks, their nodes, their probes' reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Concatenate, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

from jobs.run.stages import COLLECTIVE, NOTHING, STAGES, Stages

from .findings import unknown

if TYPE_CHECKING:
    from jobs.run.result import TrialResult
    from jobs.run.stages.hardware import RdmaPort
    from jobs.run.stages.programs import CollectiveRun, ProgramFacts
    from jobs.trial.spec import TrialSpec
    from reports.record import Finding

_Stage = TypeVar("_Stage")
_Args = ParamSpec("_Args")


def place(trial: TrialResult, rank: int) -> str:
    """Name the node that a rank ran on; its pod, or 'rank N', if the node is unknown."""
    pod = next((replica.pod for replica in trial.replicas if replica.index == rank), "")
    return node_of(trial, rank) or pod or f"rank {rank}"


def node_of(trial: TrialResult, rank: int) -> str:
    """Return the node that a rank ran on; '' if it is unknown."""
    return next((replica.node for replica in trial.replicas if replica.index == rank), "")


def stages(trial: TrialResult, rank: int) -> Stages:
    """Return the output of a rank's probe, stage by stage; empty if none arrived."""
    evidence = trial.evidence.get(rank)
    return cast("Stages", evidence.stages) if evidence else {}


def every_stage(trial: TrialResult, rank: int) -> Stages:
    """Return the same with all stages: of one that did not arrive nothing is known."""
    return NOTHING | stages(trial, rank)


def rdma_ports(trial: TrialResult, rank: int) -> list[RdmaPort]:
    """Return the ports of a rank's RDMA devices; empty if it reported none."""
    return every_stage(trial, rank)["rdma"]["devices"] or []


def ran(trial: TrialResult, rank: int, name: str) -> CollectiveRun | None:
    """Return a rank's report of one collective; None if it did not arrive."""
    evidence = trial.evidence.get(rank)
    return cast("CollectiveRun | None", evidence.stages.get(COLLECTIVE + name)) if evidence else None


def facts(trial: TrialResult, rank: int, name: str) -> ProgramFacts | None:
    """Return the file that a collective's program wrote next to its table; None without one."""
    result = ran(trial, rank, name)
    return result["facts"] if result else None


def missing_stage(trial: TrialResult, rank: int, name: str) -> str:
    """Explain by the evidence why a stage is missing."""
    evidence = trial.evidence.get(rank)
    if evidence is None:
        return "this rank sent no evidence"
    if evidence.missing:
        return f"no evidence of stage {name}: {len(evidence.missing)} lines of the pod's log are missing"
    return f"no evidence of stage {name}: the probe ended before it"


def silent(trial: TrialResult, rank: int, name: str) -> Finding:
    """Return the finding about a rank with a missing stage: unknown, with the reason."""
    return unknown(place(trial, rank), missing_stage(trial, rank, name))


class Rank(NamedTuple, Generic[_Stage]):
    """One rank of a trial, its node, and its report of a stage."""

    trial: TrialResult
    spec: TrialSpec
    number: int
    node: str
    data: _Stage


_OfRank: TypeAlias = "Callable[Concatenate[Rank[_Stage], _Args], Iterator[Finding]]"
_OfAll: TypeAlias = "Callable[Concatenate[TrialResult, TrialSpec, _Args], Iterator[Finding]]"


def each_rank(stage: type[_Stage]) -> Callable[[_OfRank[_Stage, _Args]], _OfAll[_Args]]:
    """Turn a rule about one rank's report of a stage into a rule about all; a rank without it is unknown."""
    name = next(name for name, reported in STAGES.items() if reported is stage)

    def decorate(rule: _OfRank[_Stage, _Args]) -> _OfAll[_Args]:
        def judge(
            trial: TrialResult, spec: TrialSpec, /, *args: _Args.args, **named: _Args.kwargs
        ) -> Iterator[Finding]:
            for rank in range(spec.nodes):
                if (data := cast("_Stage | None", stages(trial, rank).get(name))) is None:
                    yield silent(trial, rank, name)
                else:
                    yield from rule(Rank(trial, spec, rank, place(trial, rank), data), *args, **named)

        return judge

    return decorate


def hosts(trial: TrialResult) -> dict[str, str]:
    """Map the host names that NCCL prints (the pods' own) to node names; host names of another job are omitted.

    A name that pods on two nodes have (cloned machines, pods with host network) is omitted, too.
    """
    by_host: dict[str, set[str]] = {}
    for rank in trial.evidence:
        start = every_stage(trial, rank)["start"]
        if (name := start["hostname"]) and (node := node_of(trial, rank)):
            by_host.setdefault(str(name).partition(".")[0], set()).add(node)
    return {name: nodes.pop() for name, nodes in by_host.items() if len(nodes) == 1}


def pods(trial: TrialResult) -> dict[str, str]:
    """Map each pod with evidence to its node, independent of its host name; pods on unknown nodes are omitted."""
    names = {replica.index: replica.pod for replica in trial.replicas}
    placed = {rank: node for rank in trial.evidence if stages(trial, rank) and (node := node_of(trial, rank))}
    return {str(names.get(rank) or f"rank {rank}"): node for rank, node in placed.items()}


def dns_seconds(trial: TrialResult) -> dict[str, float]:
    """Return by node the time until a rank had resolved all of its peers; ranks that never did are omitted."""
    seconds = {}
    for rank in trial.evidence:
        peers = every_stage(trial, rank)["dns"]["peers"]
        waits = [peer["seconds_to_first_answer"] for peer in peers]
        known = [wait for wait in waits if wait is not None]
        if known and len(known) == len(waits):
            seconds[place(trial, rank)] = max(known)
    return seconds
