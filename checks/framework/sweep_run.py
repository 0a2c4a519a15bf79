"""The run of a sweep over the free nodes of a pool, and the judgement of its coordinator's log."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from checks.framework.evidence import Blocked
from checks.framework.options import Options
from checks.framework.sweep_spec import (
    BegunRun,
    BegunSweep,
    SweepShape,
    begun,
    leaves_of,
    rows_of,
    rules_of,
    sweep_spec,
)
from checks.profiles.loader import Profile
from checks.rules.capacity import confined, rooms
from checks.rules.pool import Pool
from checks.rules.sweep_dcgm import with_diagnostics
from checks.rules.sweep_reading import read_sweep
from checks.rules.sweep_training import with_training
from checks.rules.swept import Earlier, Swept, without
from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.redact import safe
from jobs.pod.sweep.model import Done
from jobs.pod.sweep.saved import saved
from jobs.run.result import TrialResult
from jobs.trial.names import SpecError
from jobs.trial.rooms import IN_USE
from jobs.trial.spec import TrialSpec
from reports.record import Run, read_json
from reports.schema import Record, RecordedSweep, RecordError

OLDEST = datetime.timedelta(hours=24)
"""Maximum age of the rounds that a sweep continues: results of the day before do not prove a node today."""
CLOCKS = datetime.timedelta(minutes=10)
"""Maximum clock skew between the machine that wrote a record and this one."""


def run_sweep(
    run: Callable[[TrialSpec], TrialResult],
    spec: TrialSpec,
    cluster: Inventory,
    pool: Pool,
    profile: Profile,
    options: Options,
    unfit: Mapping[str, tuple[str, ...]],
    earlier: Earlier | None = None,
    begin: Callable[[BegunSweep], None] = lambda _: None,
) -> Swept:
    """Run the sweep; `begin` is called with its start parameters: GPUs per node, image, boot ids, rounds so far.

    Raises Blocked if no node is free, or if the nodes of `earlier` have other GPUs.
    """
    boots = {node.name: node.boot for node in cluster.nodes} if cluster else {}
    if earlier:
        earlier = _of_today(earlier, spec, boots)
    if earlier and options.training:  # no record holds the nodes' own training results: they are tested alone again
        earlier = replace(earlier, history=[_in_pairs(done) for done in earlier.history])
    if earlier and earlier.undiagnosed:  # nor the results of DCGM's diagnostics
        if spec.dcgm is None:
            raise Blocked(f"run {earlier.run_id} has nodes that DCGM's diagnostics do not prove: resume it with them")
        earlier = replace(earlier, history=[_in_pairs(done, earlier.undiagnosed) for done in earlier.history])
    history = earlier.history if earlier else ()
    spec = confined(pool.without(unfit), spec)
    chosen = _chosen(spec, cluster, pool, profile, options, unfit)
    try:
        made = sweep_spec(spec, chosen.free, chosen.leaves, profile, options, history=history, busy=chosen.busy)
    except SpecError as error:
        raise pytest.UsageError(str(error)) from error
    assert made.sweep is not None
    shape: SweepShape = {
        "gpus_per_node": spec.gpus_per_node,
        "image": spec.image,
        "training": options.training,
        "boots": {node: boots[node] for node in sorted(boots.keys() & {*chosen.free, *chosen.left})},
    }
    resumed_of = earlier.ended.isoformat(timespec="seconds") if earlier else None
    begin({**shape, "rounds": rows_of(history), "resumed": resumed_of})
    swept = read_sweep(run(made), made.sweep, rules_of(made.sweep), chosen.left, earlier)
    swept = replace(swept, unlabelled=chosen.unlabelled)
    swept = with_diagnostics(swept, spec.gpus_per_node)
    if options.training:
        swept = with_training(swept, spec, profile.training)
    sizes = {"alone": made.sweep.alone.max_bytes, "pair": made.sweep.pair.max_bytes}
    return replace(swept, section={**swept.section, **shape, "sizes": sizes})


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The nodes of a sweep."""

    free: tuple[str, ...]
    busy: tuple[str, ...] = ()  # tested if they become free in time
    left: Mapping[str, str] = field(default_factory=dict)  # excluded nodes, and why
    leaves: Mapping[str, str] = field(default_factory=dict)
    unlabelled: tuple[str, ...] = ()  # nodes without the label that names their leaf


def _chosen(
    spec: TrialSpec,
    cluster: Inventory,
    pool: Pool,
    profile: Profile,
    options: Options,
    unfit: Mapping[str, tuple[str, ...]],
) -> _Chosen:
    """Choose the nodes. Raises Blocked if none is free."""
    if "nodes" in cluster.not_seen:  # a tenant: only the scheduler knows which nodes are free
        if not options.on:
            raise Blocked("the nodes are not visible to this account: name those to sweep with --on NODE,NODE")
        return _Chosen(tuple(dict.fromkeys(options.on)))
    rest = rooms(cluster, pool.nodes, spec, pool.parts)
    left = {room.node: room.observed for room in rest if room.fault}
    left |= {node: f"excluded by {', '.join(names)}" for node, names in unfit.items()}
    known = {room.node for room in rest}
    nodes = [node for node in pool.nodes if node.name in known and node.name not in left]
    if only := {name: place for place, name in enumerate(options.trial_on)}:  # in exactly this order
        absent = dict.fromkeys(only.keys() - {node.name for node in pool.nodes}, "not a node of the pool")
        left = {name: why for name, why in {**absent, **left}.items() if name in only}
        nodes = sorted((node for node in nodes if node.name in only), key=lambda node: only[node.name])
    taken = {room.node for room in rest if room.fault in IN_USE and room.node in left}
    busy = tuple(node.name for node in pool.nodes if node.name in taken and _may_wait(spec, options))
    if not nodes:
        first = "; ".join(f"{node}: {why}" for node, why in list(left.items())[:4])
        raise Blocked(f"no node is free for a sweep: {first or 'the pool has none'}")
    tested = [*nodes, *(node for node in pool.nodes if node.name in busy)]
    label = profile.topology.leaf_label
    return _Chosen(
        free=tuple(node.name for node in nodes),
        busy=busy,
        left=left,
        leaves=leaves_of(tested, label),
        unlabelled=tuple(node.name for node in tested if label and not node.labels.get(label)),
    )


def _may_wait(spec: TrialSpec, options: Options) -> bool:
    """Return whether pods wait for busy nodes.

    Raises pytest.UsageError if they would wait for ever, or for other nodes.
    """
    if options.take_in and spec.queue is not None:
        raise pytest.UsageError("--take-in: a queue admits all pods of a sweep or none, so no pod can wait for a node")
    if options.take_in and not options.scale:
        raise pytest.UsageError("--take-in cannot be combined with --no-scale: waiting pods would take released nodes")
    return options.take_in


def _of_today(earlier: Earlier, spec: TrialSpec, boots: Mapping[str, str]) -> Earlier:
    """Return a sweep without the tests of nodes that rebooted or report no boot id: these may be different machines.

    Raises Blocked if its GPUs or its image differ. If nodes are not visible, the comparison is not possible.
    """
    differs = []
    if earlier.gpus_per_node != spec.gpus_per_node:
        differs.append(f"tested {earlier.gpus_per_node} GPUs per node, this one tests {spec.gpus_per_node}")
    if earlier.image != spec.image:
        differs.append(f"ran {safe(earlier.image or 'an unknown image', 200)}, this one runs {spec.image}")
    if differs:
        raise Blocked(f"run {earlier.run_id} cannot be resumed: it {'; it '.join(differs)}")
    tested = {node for done in earlier.history for test in done.round.tests for node in test}
    anew = {node for node in tested & boots.keys() if not boots[node] or earlier.boots.get(node) != boots[node]}
    return replace(earlier, anew=tuple(sorted(anew)), history=[without(done, anew) for done in earlier.history])


def _in_pairs(done: Done, nodes: Collection[str] | None = None) -> Done:
    """Return a round without its tests of single nodes, of all of them or of those given."""
    tests = tuple(test for test in done.round.tests if len(test) > 1 or (nodes is not None and test[0] not in nodes))
    return replace(done, round=replace(done.round, tests=tests), results={test: done.results[test] for test in tests})


def resumed(folder: Path, *, training: bool = False) -> Earlier:
    """Return the sweep that was recorded or started in a folder. Raises pytest.UsageError for any other folder.

    A sweep with nodes that trained alone continues with `training` only: otherwise its training results would be lost.
    """
    try:
        earlier = _earlier_in(folder)
    except (RecordError, ValueError) as error:
        raise pytest.UsageError(f"--resume {folder}: {error}") from error
    if earlier.training and not training:
        raise pytest.UsageError(f"--resume {folder}: its nodes trained alone, too: give --training")
    return earlier


def _earlier_in(folder: Path) -> Earlier:
    there = (folder / "report.json").exists()
    if not (there and read_json(folder)["sweep"]) and (killed := begun(folder)):
        run, history, undiagnosed = killed  # no runner was left to write a record, or the record has no round
        before = run["sweep"].get("resumed")
        # Its end is unknown, so its age is counted from its start.
        earlier = _earlier(run, run["sweep"], history, _time(run["started"]), before)
        return replace(earlier, undiagnosed=undiagnosed)
    record = read_json(folder)
    sweep = record["sweep"]
    if not sweep:
        raise ValueError("that run was not a sweep")
    before = sweep["resumed"].get("ended", "") if "resumed" in sweep else None
    ended = _ended(_time(record["started"]), record["seconds"])
    earlier = _earlier(record, sweep, saved(sweep)[2], ended, before)
    return replace(earlier, undiagnosed=tuple(sweep.get("undiagnosed", ())))


def _earlier(
    run: Record | BegunRun,
    sweep: RecordedSweep | BegunSweep,
    history: Sequence[Done],
    ended: datetime.datetime,
    before: str | None,
) -> Earlier:
    """Return a sweep to continue; ``before``: the end of the sweep that it continued itself."""
    if "gpus_per_node" not in sweep:
        raise ValueError("the record does not say how many GPUs per node it tested")
    return Earlier(
        run_id=run["run_id"][:64],
        started=_time(run["started"]),
        ended=ended if before is None else min(ended, _time(before)),
        history=tuple(history),
        gpus_per_node=sweep["gpus_per_node"],
        image=sweep.get("image", ""),
        boots=sweep.get("boots", {}),
        training=sweep.get("training", False),
        simulated=run["simulated"],
        cluster=run["cluster"],
        profile_digest=run["profile_digest"],
        chained=before is not None,
    )


def fits(earlier: Earlier, run: Run, folder: Path, now: datetime.datetime | None = None) -> None:
    """Refuse a sweep of another cluster, profile or day. Raises pytest.UsageError with the difference."""
    if wrong := next(_differences(earlier, run, now or datetime.datetime.now(datetime.UTC)), None):
        raise pytest.UsageError(f"--resume {folder}: run {earlier.run_id} cannot be resumed: {wrong}")


def _differences(earlier: Earlier, run: Run, now: datetime.datetime) -> Iterator[str]:
    kinds = ["a simulated cluster" if each else "a real cluster" for each in (earlier.simulated, run.simulated)]
    if kinds[0] != kinds[1]:
        yield f"it is of {kinds[0]}, this run of {kinds[1]}"
    # A simulated cluster has a different address and certificate authority in each run.
    keys = ("scenario", "platform") if run.simulated else ("server", "ca")
    pairs = {key: (earlier.cluster.get(key), run.cluster.get(key)) for key in keys}
    for key, (old, new) in pairs.items():
        if ((old and new) or run.simulated) and old != new:
            yield f"its cluster's {key} is {str(old)[:200]}, this one's {new}"
    if not any(old and new for old, new in pairs.values()):
        yield "its record does not name its cluster"
    if earlier.profile_digest != run.profile_digest:
        asked = _brief(run.profile_digest)
        yield f"its profile ({_brief(earlier.profile_digest)}) differs from this one ({asked})"
    if now - earlier.ended > OLDEST:
        hours = OLDEST.total_seconds() / 3600
        yield f"it has rounds of a run that ended {earlier.ended:%Y-%m-%d %H:%M} UTC, more than {hours:g} hours ago"
    if earlier.ended - now > CLOCKS:
        yield f"its record says that it ended {earlier.ended:%Y-%m-%d %H:%M} UTC, which is in the future"


def _brief(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12] or "none"


def _time(text: Any) -> datetime.datetime:
    """Parse a time as UTC. Raises ValueError for an invalid time, or one without a time zone."""
    try:
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(datetime.UTC)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError("the record does not say when its run was")


def _ended(started: datetime.datetime, seconds: float) -> datetime.datetime:
    if seconds <= 0:
        raise ValueError("the record does not say how long its run took")
    try:
        return started + datetime.timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError("the record does not say how long its run took") from None
