"""Damaged evidence fields: no check ends in a program error, and no fault is hidden."""

import functools
import gzip
import importlib
import inspect
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from checks.framework.evidence import Blocked, CannotTell, CheckFailed, Evidence
from checks.framework.options import Options
from checks.framework.selection import STAGES
from checks.framework.trial_spec import build_spec
from checks.profiles.loader import load_profile
from checks.rules.collectives import conclude_collectives, conclude_nodes
from jobs.cluster.facts.inventory import Inventory
from jobs.diagnosis.state import JobState, Replica
from jobs.pod.stages import dcgm, perftest
from jobs.run.evidence import EvidenceReader
from lab.hardware.fakes.dcgm import document
from seatrial.logs.reader import dcgm as diag
from tests.table import table

PLACE = Path(__file__).parents[1] / "jobs/data/evidence"
FAMILIES = ("bandwidth", "images", "intra_node", "job", "nccl", "network")
FAMILIES += ("rdma", "rendezvous", "runtime", "storage", "topology")
GIVEN = {"trial", "spec", "profile", "managed", "evidence", "node_jobs", "nccl_jobs", "cluster", "resources_here"}
ODD = (None, True, False, 0, -1, 3, 2**70, 10**400, -1e308, math.nan, math.inf, "", "x", "NaN", "8" * 400, [], [None])
ODD += ([[]], [0], ["x"], [{}], {}, {"a": None}, {"index": 0}, [[[]]], "\x00\x1b[31m", "../../etc", 1.5)

TRIES = 6


@functools.cache
def real():
    """The stages of both ranks, as their probes printed them in a healthy trial with storage."""
    stages_of = {}
    for rank in (0, 1):
        lines = gzip.decompress((PLACE / f"rank-{rank}.jsonl.gz").read_bytes()).splitlines()
        reader = EvidenceReader(json.loads(lines[0])["run"])
        for line in lines:
            reader.feed(line)
        assert reader.result().complete
        stages_of[rank] = {**reader.result().stages, "dcgm": diagnosed(), "perftest": written(rank)}
    return stages_of


def written(rank):
    """What a probe prints of RDMA writes from its eight NICs to the other rank's."""
    names = [f"mlx5_{number}" for number in range(8)]
    each = {"peer": 1 - rank, "memory": "host", "gbit_s": 392.0, "passed": None, "far": False, "error": None}
    writes = [{**each, "nic": name, "peer_nic": name} for name in names]
    return {
        **perftest.blank(),
        "tool": "ib_write_bw",
        "found": True,
        "gpu_memory": False,
        "nics": names,
        "writes": writes,
    }


def diagnosed():
    """What a probe prints of DCGM's diagnostics of eight healthy GPUs."""
    version, results, _ = diag.read(
        json.dumps(document({"gpu": {"driver": "580.95.05"}, "gpus": [{}] * 8}, 1)).encode()
    )
    return {**dcgm.blank(1), "found": True, "exit": 0, "version": version, "results": results}


def arrived(rank, stages):
    """Return these stages as the launcher reads them from a pod."""
    reader, number = EvidenceReader("abc"), 0
    for name, data in stages.items():
        text = json.dumps(data)
        pieces = [text[at : at + 6000] for at in range(0, len(text), 6000)]
        for part, chunk in enumerate(pieces, 1):
            number += 1
            message = {"seatrial": 1, "run": "abc", "rank": rank, "n": number, "stage": name, "seconds": 1}
            reader.feed(json.dumps({**message, "part": part, "parts": len(pieces), "chunk": chunk}))
    return reader.result()


@functools.cache
def checks():
    """The checks that judge nothing but the evidence of the ranks: (id, function)."""
    functions = []
    for family in FAMILIES:
        for function in vars(importlib.import_module(f"checks.test_{family}")).values():
            marks = {mark.name: mark for mark in getattr(function, "pytestmark", ())}
            if STAGES[1] in marks and set(inspect.signature(function).parameters) <= GIVEN:
                functions.append((marks["check"].args[0], function))
    assert len(functions) > 35
    return functions


@functools.cache
def own_profile():
    """The profile of that trial."""
    return load_profile(str(PLACE / "profile.yaml"))


def judged(profile, trial):
    """Return the results of the log reader's own parts."""
    return {"nccl_jobs": conclude_collectives(trial, profile), "node_jobs": conclude_nodes(trial, profile)}


@functools.cache
def healthy():
    """Undamaged evidence and its results; computed once, since it takes most of the time."""
    evidence = {rank: arrived(rank, data) for rank, data in real().items()}
    return evidence, judged(own_profile(), SimpleNamespace(evidence=evidence))


def outcomes(rank=0, **damaged):
    """Return the outcome of each check if one rank prints these stages differently: id -> outcome.

    Every check is judged as if unblocked; the second value is the text about that rank's evidence.
    """
    profile, (evidence, jobs) = own_profile(), healthy()
    heard = arrived(rank, damaged)
    rest = {name: data for name, data in evidence[rank].stages.items() if name not in damaged}
    evidence = {**evidence, rank: replace(evidence[rank], stages={**rest, **heard.stages}, problem=heard.problem)}
    analysed = any("nccl" in data for data in damaged.values())
    return dict(ended(evidence, profile, None if analysed else jobs)), heard.problem


def ended(evidence, profile, jobs):
    """Yield (id, outcome) of each check for the evidence (rank -> evidence); jobs: the result of ``judged``."""
    spec = build_spec(profile, Options(), run_id="abc", namespace="team")
    replicas = tuple(Replica(index=i, pod=f"p-{i}", node=f"gpu-node-{i}", phase="Succeeded") for i in evidence)
    pods = tuple(
        SimpleNamespace(index=i, name=f"p-{i}", node=f"gpu-node-{i}", images={}, annotations={}, began="", ended="")
        for i in evidence
    )
    trial = SimpleNamespace(
        job="t",
        state=JobState.COMPLETE,
        replicas=replicas,
        analysis=None,
        evidence=evidence,
        logs={},
        attempts=1,
        interrupted=(),
        pods=pods,
    )
    trial.launcher, trial.seconds, trial.warnings, trial.events = "indexed", 9.0, (), ()
    given = {
        "trial": trial,
        "spec": spec,
        "profile": profile,
        "managed": "",
        "cluster": Inventory((), ()),
        "resources_here": frozenset(),
        **(jobs or judged(profile, trial)),
    }
    for check_id, function in checks():
        parameters = inspect.signature(function).parameters
        try:
            function(**{name: Evidence() if name == "evidence" else given[name] for name in parameters})
            yield check_id, "passed"
        except CheckFailed:
            yield check_id, "failed"
        except (CannotTell, Blocked):
            yield check_id, "unknown"
        except pytest.skip.Exception:
            yield check_id, "skipped"


def places(value, path=()):
    """Yield every path in a document, few of them from the log reader's part."""
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value[:12]):
            yield from places(each, (*path, number))


def damage(dice, data):
    """Return a copy of a stage's data with one damaged value, and its path."""
    data = json.loads(json.dumps(data))
    where = [path for path in places(data) if path]
    shallow = [path for path in where if path[0] != "nccl"]
    *way, last = dice.choice(shallow if shallow and dice.random() < 0.8 else where)
    holder = functools.reduce(lambda at, key: at[key], way, data)
    what = dice.randrange(8)
    if what == 0:
        del holder[last]
    elif what == 1 and isinstance(holder, list):
        holder.insert(dice.randrange(len(holder) + 1), dice.choice([*ODD, holder[last]]))
    elif what == 2:
        holder[last] = {"x": holder[last]}
    elif what == 3:
        holder[last] = [holder[last], holder[last]]
    elif what == 4:
        *_, other = dice.choice(where)
        holder[last] = other
    else:
        holder[last] = dice.choice(ODD)
    return data, (*way, last)


def chosen(dice):
    """Choose a rank and a stage; rarely a collective, since its analysis is slow."""
    rank = dice.choice((0, 1))
    names = list(real()[rank])
    few = [name for name in names if not name.startswith("collective.")]
    return rank, dice.choice(few if dice.random() < 0.9 else names)


def test_healthy_evidence_is_healthy():
    """Each check passes, or does not apply to this trial."""
    outcome_of, problem = outcomes()
    assert not problem
    assert {check for check, how in outcome_of.items() if how not in ("passed", "skipped")} == set()


@table("seed", range(60))
def test_damaged_evidence_breaks_no_check(seed):
    """Data in a form that the probe never prints is refused and reported; other data is judged without an exception."""
    dice = random.Random(seed)
    rank, stage = chosen(dice)
    data, where = damage(dice, real()[rank][stage])
    outcome_of, problem = outcomes(rank, **{stage: data})
    if problem:
        assert outcome_of["job.started"] == "unknown", (where, problem)


def change(data, way, value):
    """A copy of the data with one value changed."""
    data = json.loads(json.dumps(data))
    *above, last = way
    functools.reduce(lambda at, key: at[key], above, data)[last] = value
    return data


FAULTS = {
    "rendezvous.dns": ("dns", ("peers", 1, "addresses"), []),
    "rendezvous.port": ("port", ("listening",), False),
    "network.ports": ("network", ("peers", 0, "ports", 1, "ok"), False),
    "runtime.gpus": ("runtime", ("nvidia_smi", "exit"), 9),
    "runtime.uniform": ("runtime", ("driver",), "470.1.1"),
    "runtime.health": ("runtime", ("gpus", 2, "remap_failure"), True),
    "runtime.fabric": ("runtime", ("gpus", 4, "fabric_status"), "Failure"),
    "runtime.nvlinks": ("runtime", ("gpus", 5, "nvlinks_active"), 12),
    "runtime.dcgm": ("dcgm", ("results", 0, "status"), "fail"),
    "runtime.limits": ("start", ("shm_bytes",), 2**26),
    "rdma.devices": ("rdma", ("devices", 6, "state"), "DOWN"),
    "rdma.bandwidth": ("perftest", ("writes", 3, "gbit_s"), 196.0),
    "topology.affinity": ("topology", ("paths", 0, "path"), "SYS"),
    "storage.paths": ("storage", ("paths", 1, "read_back_ok"), False),
    "storage.shared": ("storage", ("paths", 1, "peer_file_ok"), False),
    "storage.locks": ("storage", ("paths", 1, "flock", "refused"), False),
    "nccl.completed": ("collective.ring", ("exit",), 1),
}
"""Check -> a fault in a rank's evidence: stage, field and value."""


@pytest.mark.parametrize("check", FAULTS)
def test_damage_with_a_fault_hides_it_from_no_one(check):
    """The check does not pass, whatever else in the stage is changed."""
    stage, way, value = FAULTS[check]
    faulty = change(real()[0][stage], way, value)
    assert outcomes(**{stage: faulty})[0][check] in ("failed", "unknown")
    dice = random.Random(check)
    for _ in range(TRIES):
        data, where = damage(dice, faulty)
        if way[: len(where)] == where:
            continue  # the fault itself is damaged
        outcome_of, problem = outcomes(**{stage: data})
        assert outcome_of[check] != "passed" or (problem and outcome_of["job.started"] == "unknown"), (where, problem)
