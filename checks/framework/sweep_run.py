"""Runs the job of a sweep over the free nodes of a pool, and judges what its coordinator has told."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from checks.framework.evidence import Blocked
from checks.framework.sweep_spec import leaves_of, rules_of, sweep_spec
from checks.rules.capacity import confined, rooms
from checks.rules.sweep import Swept, read_sweep
from jobs.pod.sweep.saved import saved
from jobs.trial.spec import SpecError
from reports.record import RecordError, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from checks.framework.options import Options
    from checks.profiles.loader import Profile
    from checks.rules.pool import Pool
    from jobs.cluster.facts.inventory import Inventory
    from jobs.pod.sweep.model import Done
    from jobs.run.result import TrialResult
    from jobs.trial.spec import TrialSpec


def run_sweep(
    run: Callable[[TrialSpec], TrialResult],
    spec: TrialSpec,
    cluster: Inventory,
    pool: Pool,
    profile: Profile,
    options: Options,
    unfit: Mapping[str, tuple[str, ...]],
) -> Swept:
    """Run the sweep; raises Blocked where no node is free for it."""
    history = resumed(options.resume) if options.resume else []
    spec = confined(pool.without(unfit), spec)
    left: dict[str, str] = {}
    if "nodes" in cluster.not_seen:  # a tenant: who is free only the scheduler knows
        free, leaves = tuple(dict.fromkeys(options.on)), {}
        if not free:
            raise Blocked("the nodes are not ours to see: name those to sweep with --on NODE,NODE")
    else:
        rest = rooms(cluster, pool.nodes, spec, pool.parts)
        left = {room.node: room.observed for room in rest if room.fault}
        left |= {node: f"kept out by {', '.join(names)}" for node, names in unfit.items()}
        known = {room.node for room in rest}
        nodes = [node for node in pool.nodes if node.name in known and node.name not in left]
        free, leaves = tuple(node.name for node in nodes), leaves_of(nodes, profile.topology.leaf_label)
    if not free:
        first = "; ".join(f"{node}: {why}" for node, why in list(left.items())[:4])
        raise Blocked(f"no node is free for a sweep: {first or 'the pool has none'}")
    try:
        made = sweep_spec(spec, free, leaves, profile, options, history=history)
    except SpecError as error:
        raise pytest.UsageError(str(error)) from error
    assert made.sweep is not None
    return read_sweep(run(made), made.sweep, rules_of(made.sweep), history, left)


def resumed(folder: Path) -> list[Done]:
    """Return the rounds of an earlier sweep. Raises pytest.UsageError where its record holds none."""
    try:
        found = read_json(folder).get("sweep")
        return saved(found)[2] if found else _no_sweep()
    except (RecordError, ValueError) as error:
        raise pytest.UsageError(f"--resume {folder}: {error}") from error


def _no_sweep() -> NoReturn:
    raise ValueError("that run was no sweep")
