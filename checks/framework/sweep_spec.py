"""The job of a sweep, from the trial's own spec: a pod for each free node, fault rules, floors, leaves, budget.

If the runner is killed, the sweep's settings are in its folder, and its rounds in the coordinator's log. A run that
ends normally has both in its record and deletes this file. The log is untrusted text: content that does not parse as
consecutive rounds is dropped, and tested again.
"""

from __future__ import annotations

import base64
import json
import secrets
import shlex
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, cast

from checks.framework.outfolder import BEGUN, LOGS
from checks.rules import sweep_dcgm
from checks.rules.sweep_reading import done_of, numbered
from jobs.cluster.facts.inventory import Node
from jobs.cluster.json_types import checker, filled
from jobs.pod.sweep.judgement import matchings_of
from jobs.pod.sweep.model import Done, Fleet, Rules
from jobs.run.evidence import EvidenceReader
from jobs.run.stages.sweep import SweepRound
from jobs.trial.names import SpecError
from jobs.trial.parts import BenchSizes, Deadlines, Sweep
from jobs.trial.spec import TrialSpec
from reports.record import Run, write_atomically
from reports.schema import Cluster

from ..profiles.loader import Profile
from .options import Options

LARGEST = 64 << 20


class SweepShape(TypedDict):
    """The machines of a sweep: boot ids show whether a node is still the tested machine."""

    gpus_per_node: int
    image: str
    training: bool
    boots: dict[str, str]


class BegunSweep(SweepShape):
    """With the rounds of the run that it continues, and the end time of that run."""

    rounds: list[Any]  # each a SweepRound
    resumed: str | None


class BegunRun(TypedDict):
    """The state from which a sweep continues if its runner was killed."""

    run_id: str
    started: str
    simulated: bool
    cluster: Cluster
    profile_digest: str
    sweep: BegunSweep


_check = cache(lambda: checker(BegunRun))


def begin(folder: Path, run: Run, sweep: BegunSweep) -> None:
    """Write the state from which a sweep can continue."""
    begun: BegunRun = {
        "run_id": run.run_id,
        "started": run.started,
        "simulated": run.simulated,
        "cluster": run.cluster,
        "profile_digest": run.profile_digest,
        "sweep": sweep,
    }
    write_atomically(folder / BEGUN, json.dumps(begun, allow_nan=False) + "\n")


def end(folder: Path) -> None:
    """Delete the state: the run has ended normally."""
    (folder / BEGUN).unlink(missing_ok=True)


def begun(folder: Path) -> tuple[BegunRun, list[Done], tuple[str, ...]] | None:
    """Return the start parameters, the rounds, and the nodes that DCGM's diagnostics did not prove.

    None if no sweep was started in the folder.

    Raises ValueError for a file that no sweep wrote.
    """
    try:
        with (folder / BEGUN).open("rb") as file:
            content = json.loads(file.read(LARGEST))  # raises ValueError if it is not one
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"{BEGUN}: {error.strerror}") from error
    except RecursionError as error:
        raise ValueError(f"{BEGUN} is damaged: {error}") from error
    if problem := _check()(content):
        raise ValueError(f"{BEGUN} is damaged: {problem.strip()}")
    run: BegunRun = content
    rounds, problem = filled(list[SweepRound], run["sweep"]["rounds"])
    if problem:
        raise ValueError(f"{BEGUN} is damaged: sweep.rounds{problem}")
    history = [done_of(row) for row in rounds]
    stages, whole = _logged(folder, run["run_id"])
    rows = sorted(map(done_of, numbered(stages, "round")), key=lambda done: done.round.number)
    diagnosed = {str(told.get("node")): told for told in numbered(stages, "dcgm")}
    gpus = run["sweep"]["gpus_per_node"]
    bad = {node for node, told in diagnosed.items() if sweep_dcgm.left(node, told, gpus)}
    if diagnosed and not whole:  # missing lines may be about any node
        bad = {node for done in rows for test in done.round.tests if len(test) == 1 for node in test}
    return run, _contiguous([*history, *rows]), tuple(sorted(bad))


def how_on(folder: Path) -> str:
    """Explain how to continue an unfinished sweep of a folder; '' if it has no round."""
    try:
        killed = begun(folder)
    except ValueError:
        return ""
    if killed is None or not killed[1]:
        return ""
    count = len(killed[1])
    rounds_kept = f"{count} round{' of it is' if count == 1 else 's of it are'} kept"
    return f"; {rounds_kept}: seatrial sweep --resume {shlex.quote(str(folder))} continues from there"


def _logged(folder: Path, run_id: str) -> tuple[Mapping[str, Any], bool]:
    """Return the stages in the log of the first pod with rounds, and whether the log is complete."""
    for place in sorted((folder / LOGS).glob("*.log")):
        reader = EvidenceReader(run_id)
        with place.open("rb") as file:
            for line in file:
                reader.feed(line)
        evidence = reader.result()
        if numbered(evidence.stages, "round"):
            return evidence.stages, not evidence.missing
    return {}, True


def _contiguous(history: Sequence[Done]) -> list[Done]:
    """Return the rounds before the first missing one: later rounds were planned from it."""
    numbered = {done.round.number: done for done in reversed(history)}
    rounds: list[Done] = []
    while (each := numbered.get(len(rounds) + 1)) is not None:
        rounds.append(each)
    return rounds


LEAF_LABELS = (
    "network.topology.nvidia.com/leaf",
    "backend.coreweave.cloud/leafgroup",
    "ib.coreweave.cloud/leafgroup",
    "topology.k8s.aws/network-node-layer-4",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "oci.oraclecloud.com/host.network_block_id",
    "cloud.provider.com/topology-rack",
    "nvidia.com/gpu.clique",
)
"""Labels that name a node's leaf switch or NVLink domain, most exact first: of NVIDIA Topograph, CoreWeave, EKS (the
highest layer is the nearest to the node), GKE, OCI, of Kueue's documentation, and of the GPU operator."""
SPARE_ROUNDS = 8
"""Additional rounds, beyond those of a healthy fleet, for which the pods run if no budget ends them earlier."""
PAIR_BYTES, ALONE_BYTES = 2**30, 2**30
"""The largest message size if the profile names no row."""
STEP = 4
SIMULATED = {"settle_s": 6.0, "test_s": 20.0}
SIMULATED_POD_S = 0.5
"""Seconds for each pod on the embedded cluster: it starts them one after the other, all on this machine."""


@dataclass(frozen=True, slots=True)
class Floors:
    """The rows that pairs (Ring) and single nodes (NCCL's choice) are compared with: bytes and GB/s; None: no floor."""

    pair: tuple[int, float] | None
    alone: tuple[int, float] | None


def floors_of(profile: Profile) -> Floors:
    """Return the smallest rows for which the profile has a floor: a sweep tests many nodes, not large messages."""
    pair = profile.floor("all_reduce", "ring", 2)
    alone = profile.floor("all_reduce", "default", 1)
    rows = [(int(floor[0].size), float(floor[0].busbw_gbps)) if floor else None for floor in (pair, alone)]
    return Floors(rows[0], rows[1])


def leaves_of(nodes: Sequence[Node], label: str | None = None) -> dict[str, str]:
    """Return the leaf of each node by the first label that all of them have; {} without one.

    A label that puts each node, or all nodes, into one leaf is not used.
    """
    for name in (label,) if label else LEAF_LABELS:
        leaves = {node.name: node.labels[name] for node in nodes if node.labels.get(name)}
        if len(leaves) == len(nodes) and 1 < len(set(leaves.values())) < len(nodes):
            return leaves
    return {}


def sweep_spec(
    spec: TrialSpec,
    names: tuple[str, ...],
    leaves: Mapping[str, str],
    profile: Profile,
    options: Options,
    history: Sequence[Done] = (),
    busy: Sequence[str] = (),
) -> TrialSpec:
    """Return the job of a sweep over these nodes. Raises SpecError for an invalid one.

    A pod is created for each node that is `busy`: the node is tested if it becomes free in time, and the sweep does not
    wait for it.
    """
    floors, crowd_s = floors_of(profile), SIMULATED_POD_S * len(names) if options.simulated else 0.0
    rules = _rules(spec, names, profile, options)
    pace = {"test_s": min(120.0, spec.deadlines.collective_s)}
    if options.simulated:
        pace = {name: value + crowd_s for name, value in SIMULATED.items()}
    alone_s = (spec.training.extra_s if spec.training else 0.0) + (spec.dcgm.extra_s if spec.dcgm else 0.0)
    rounds = rules["matchings"] + 2 + SPARE_ROUNDS
    budget_s = options.budget_s or rounds * pace["test_s"] + 2 * alone_s
    probe_s = budget_s + 4 * pace["test_s"] + alone_s + 60
    start_s = spec.deadlines.start_s + crowd_s
    return replace(
        spec,
        nodes=max(1, len(names) + len(busy)),
        node_names=(*names, *busy),
        avoided=(),
        collectives=(),
        storage=(),
        s3=(),
        scratch="",
        network=None,
        deadlines=Deadlines(
            start_s=start_s,
            queue_s=spec.deadlines.queue_s,
            collective_s=pace["test_s"],
            probe_s=probe_s,
            job_s=start_s + probe_s + 120,
            ttl_s=spec.deadlines.ttl_s,
            lease_s=spec.deadlines.lease_s,
        ),
        sweep=Sweep(
            token=secrets.token_hex(24),
            nodes=names,
            leaves=dict(leaves),
            rules=rules,
            pair=_bench(spec.bench, floors.pair[0] if floors.pair else PAIR_BYTES),
            alone=_bench(spec.bench, floors.alone[0] if floors.alone else ALONE_BYTES),
            fabric=profile.fabric.kind or "",
            gdr=profile.fabric.gdr is True,
            end=options.scale,
            history=packed(history),
            budget_s=budget_s,
            **pace,
        ),
    )


def _rules(spec: TrialSpec, names: tuple[str, ...], profile: Profile, options: Options) -> dict[str, Any]:
    """Return the coordinator's input for its Rules (jobs/pod/sweep/model.py)."""
    floors = floors_of(profile)
    rules: dict[str, Any] = {
        "at_once": options.at_once,
        "bus": spec.gpus_per_node > 1,
        "rails": bool(profile.fabric.rails),
        "matchings": matchings_of(Fleet(names), Rules()),
        "pair_floor": floors.pair[1] if floors.pair else None,
        "node_floor": floors.alone[1] if floors.alone and spec.gpus_per_node > 1 else None,
    }
    if options.trial_on:  # for repeated sweeps of a part of the fleet: different partners in each run
        rules["seed"] = int.from_bytes(spec.run_id.encode()[-6:], "big")
    return rules


def _bench(bench: BenchSizes, largest: int) -> BenchSizes:
    return BenchSizes(
        min_bytes=max(4, largest // STEP**2), max_bytes=largest, factor=STEP, iters=bench.iters, warmup=bench.warmup
    )


def rows_of(history: Sequence[Done]) -> list[SweepRound]:
    """Return rounds as the coordinator prints and reads them."""
    rows = [
        {
            "number": done.round.number,
            "stage": done.round.stage,
            "seconds": done.seconds,
            "tests": [
                {
                    "nodes": nodes,
                    "outcome": result.outcome,
                    "busbw": result.busbw,
                    "rails": result.rails,
                    "reported": result.reported,
                    "at": result.at,
                }
                for nodes, result in done.results.items()
            ],
        }
        for done in history
    ]
    return cast("list[SweepRound]", rows)


def packed(history: Sequence[Done]) -> str:
    """Return rounds as the coordinator reads them. Raises SpecError if they do not fit into a ConfigMap."""
    if not history:
        return ""
    text = base64.b64encode(zlib.compress(json.dumps(rows_of(history), separators=(",", ":")).encode(), 9)).decode()
    if len(text) > MOST_HISTORY:
        raise SpecError(f"the sweep to continue is too large: {len(text)} bytes, at most {MOST_HISTORY}")
    return text


MOST_HISTORY = 350_000
"""Limit in bytes: a ConfigMap holds 1 MiB, of which the probe's files take half."""


def rules_of(made: Sweep) -> Rules:
    """Return the fault rules that the coordinator applies when it plans rounds."""
    return Rules(**{name: value for name, value in made.rules.items() if name in Rules.__dataclass_fields__})
