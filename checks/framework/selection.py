"""Selection and order of the checks: prerequisites first; deselected but required ones are added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.listing import nearest

CHECKS = Path(__file__).resolve().parents[1]
STAGES = ("preflight", "acceptance")
_COMMANDS = {"preflight": "preflight", "acceptance": "accept"}
_OPTIONS = {"training": " --training", "cpu": " --profile cpu-gloo"}
"""By marker: what a command must offer to run a check with this marker."""
OF_GPUS = frozenset(
    ("nodes.gpu", "gpu", "stack", "drains", "runtime", "rdma", "topology", "nccl", "training", "sweep", "observability")
)
"""Checks and families that a profile without GPUs leaves out, with this reason; ``cpu`` replaces them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declaration of a ``check`` marker."""

    id: str
    title: str
    stage: str
    requires: tuple[str, ...]  # must have passed, or been skipped for a stated reason
    unless_failed: tuple[str, ...]  # may be unknown (a tenant cannot list nodes), but must not have failed
    faults: tuple[str, ...]
    doc: str
    needs: tuple[str, ...] = ()  # keys of rules.rights.NEEDS: the API resources that it reads
    tenant: bool = False  # also runs for a tenant, with the tenant's view
    by_node: bool = False  # judges node by node: only nodes where a prerequisite failed are left out
    by_pair: tuple[str, ...] = ()  # subset of requires: a pair of nodes that failed there is left out
    proven_by: tuple[str, ...] = ()  # the checks that prove the same for a tenant, from inside the trial's pods
    own: bool = False  # a user's own check: its file is not part of this suite
    last: bool = False  # runs after all other checks of any stage: a trial, if there was one, proves the same

    @property
    def of_gpus(self) -> bool:
        """Whether it is about GPUs, their software or their fabric, which a trial on CPUs cannot test."""
        return not OF_GPUS.isdisjoint((self.id, self.id.partition(".")[0]))


_DECLARED = pytest.StashKey[Declaration | None]()


def declaration(item: pytest.Item) -> Declaration | None:
    """Return the item's declaration, or None for an ordinary test; its markers are read only once."""
    if _DECLARED not in item.stash:
        item.stash[_DECLARED] = _declared(item)
    return item.stash[_DECLARED]


def _declared(item: pytest.Item) -> Declaration | None:
    marker = item.get_closest_marker("check")
    if marker is None:
        return None
    check_id, title = marker.args
    stage = next((s for s in STAGES if item.get_closest_marker(s)), "acceptance")
    doc = getattr(getattr(item, "function", None), "__doc__", None) or ""
    return Declaration(
        id=check_id,
        title=title,
        stage=stage,
        requires=tuple(marker.kwargs.get("requires", ())),
        unless_failed=tuple(marker.kwargs.get("unless_failed", ())),
        faults=tuple(marker.kwargs.get("faults", ())),
        doc=_dedent(doc),
        needs=tuple(marker.kwargs.get("needs", ())),
        tenant=bool(marker.kwargs.get("tenant")),
        by_node=bool(marker.kwargs.get("by_node")),
        by_pair=tuple(marker.kwargs.get("by_pair", ())),
        proven_by=tuple(marker.kwargs.get("proven_by", ())),
        own=not item.path.is_relative_to(CHECKS),
        last=bool(marker.kwargs.get("last")),
    )


def order(selected: list[pytest.Item], collected: list[pytest.Item]) -> list[pytest.Item]:
    """Return the selected checks and their prerequisites in order, preflight first.

    Raises pytest.UsageError if checks require each other in a cycle or share an id.
    """
    by_id: dict[str, pytest.Item] = {}
    for item in collected:
        if (declared := declaration(item)) is None:
            continue
        if declared.id in by_id:
            raise pytest.UsageError(f"two checks have the id {declared.id}: {by_id[declared.id].nodeid}, {item.nodeid}")
        by_id[declared.id] = item
    done: dict[str, pytest.Item] = {}

    def visit(check_id: str, trail: tuple[str, ...]) -> None:
        if check_id in trail:
            raise pytest.UsageError("checks require each other: " + " -> ".join((*trail, check_id)))
        item = by_id.get(check_id)
        if check_id in done or item is None:
            return
        declared = declaration(item)
        for need in (*declared.requires, *declared.unless_failed) if declared else ():
            visit(need, (*trail, check_id))
        done[check_id] = item

    checks = [(d, i) for i in selected if (d := declaration(i))]
    for declared, _ in sorted(checks, key=lambda pair: (pair[0].last, STAGES.index(pair[0].stage))):
        visit(declared.id, ())
    return [i for i in selected if declaration(i) is None] + list(done.values())


def of_command(items: list[pytest.Item], *, sweeps: bool, trains: bool, cpus: bool) -> list[pytest.Item]:
    """Return the checks of `seatrial sweep`, or those of all other commands; preflight checks belong to both.

    Checks of training steps are dropped without --training, and checks of CPUs where there are GPUs.
    """

    def belongs(item: pytest.Item) -> bool:
        if (item.get_closest_marker("training") and not trains) or (item.get_closest_marker("cpu") and not cpus):
            return False
        if item.get_closest_marker("sweep"):
            return sweeps
        return not sweeps or item.get_closest_marker("acceptance") is None

    return [item for item in items if belongs(item)]


def asks_for_trial(config: pytest.Config) -> bool:
    """Return whether the command line accesses a cluster: a session without a check must then not succeed."""
    named = ("--kubeconfig", "--context", "--namespace", "--profile", "--nodes", "--image", "--out", "--check")
    return str(config.getoption("--cluster")) != "kubeconfig" or any(config.getoption(name) for name in named)


def elsewhere(everything: Iterable[pytest.Item], known: frozenset[str]) -> dict[str, str]:
    """Return the ids of the checks that this command does not run, each with the command that does."""
    commands = {}
    for item in everything:
        declared = declaration(item)
        if declared and declared.id not in known:
            command = "sweep" if item.get_closest_marker("sweep") else _COMMANDS[declared.stage]
            commands[declared.id] = command + "".join(o for m, o in _OPTIONS.items() if item.get_closest_marker(m))
    return commands


def pick(ids: Iterable[str], collected: list[pytest.Item], commands: Mapping[str, str]) -> list[pytest.Item]:
    """Return the checks with these ids; an unknown id is a usage error that names the nearest id, or its command."""
    by_id = {d.id: i for i in collected if (d := declaration(i))}
    return [by_id[one_of(check_id, by_id, "check", commands)] for check_id in ids]


def one_of(word: str, choices: Iterable[str], kind: str, commands: Mapping[str, str] | None = None) -> str:
    """Return a known word unchanged, else raise a usage error with the nearest valid one.

    If the word belongs to another of the ``commands``, the error names that command.
    """
    choices = sorted(choices)
    if word in choices:
        return word
    if commands and word in commands:
        raise pytest.UsageError(f"{kind} {word!r} is one of seatrial {commands[word]}, and not of this command")
    raise pytest.UsageError(f"unknown {kind} {word!r}{nearest(word, choices)}")


def _dedent(doc: str) -> str:
    lines = [line.strip() for line in doc.strip().splitlines()]
    return "\n".join(lines)
