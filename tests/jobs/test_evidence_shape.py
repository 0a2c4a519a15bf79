"""The structure of evidence: the probe's data is accepted, other data is refused and reported."""

import json
import math
from pathlib import Path
from types import NoneType
from typing import get_args, get_origin, get_type_hints, is_typeddict

import pytest

from jobs.pod.stages import collective, dcgm, perftest, rdma, smi
from jobs.run.evidence import STAGES, parse, taken
from jobs.run.stages import SWEEP_STAGES
from seatrial.logs import open_sources, read
from tests.by_hand import misfit
from tests.table import table

TESTS = Path(__file__).parents[1]
CHOSEN = {"name": "ring", "op": "all_reduce", "scope": "job", "repeats": 1}
BLANK = {
    "dcgm": dcgm.blank(1),
    "perftest": perftest.blank(),
    "collective.ring": collective.blank(CHOSEN),
    "collective.node": {"skipped": "names that do not resolve"},
    "dns": {"error": "the stage's record kept changing"},
    "start": {"python": "3.6.8", "error": "Python 3.6.8 is too old for the probe, which needs 3.8 or newer"},
    "of a later release": {"peers": 7},
}


@table("stage", BLANK)
def test_what_a_stage_prints_before_it_knows_anything_is_taken(stage):
    assert misfit(stage, BLANK[stage]) == ""


def test_what_the_tools_tell_is_taken():
    """Evidence with nvidia-smi's XML of a real GPU, rocm-smi's blank, and ibv_devinfo's text is accepted."""
    smi_facts, _ = smi.read((TESTS / "pod/data/h200-q-x.xml").read_bytes())
    assert smi_facts["gpus"]
    assert misfit("runtime", {"gpus": [*smi_facts["gpus"], smi.blank(0)], "driver": smi_facts["driver"]}) == ""
    said = "hca_id: mlx5_0\n\tport:\t1\n\t\tstate:\tPORT_ACTIVE (4)\n\t\tactive_width:\t4X (2)\n\t\tactive_speed:\t100.0 Gbps (128)\n"
    assert len(ports := rdma.devinfo_ports(said)) == 1
    assert misfit("rdma", {"devices": ports}) == ""


@pytest.mark.parametrize("log", sorted((TESTS / "logs/data/recorded").glob("*.log"))[:6], ids=lambda path: path.stem)
def test_what_the_log_reader_made_of_real_logs_is_taken(log):
    document = json.loads(json.dumps(read(open_sources([str(log)])).to_dict()))
    assert misfit("collective.ring", {"nccl": document}) == ""
    document["sources"][0]["tables"] = [{"rows": "none"}]
    assert "nccl.sources[0].tables[0].collective is missing" in misfit("collective.ring", {"nccl": document})


@table(
    "stage, data, said",
    [
        ("sweep.round.3", {"tests": "none"}, "sweep.round.3.tests is the text 'none', not a list"),
        (
            "sweep.round.3",
            {"tests": [{"outcome": "measured"}]},
            "sweep.round.3.tests[0].nodes is a list, not the names of its nodes",
        ),
        (
            "sweep.round.3",
            {"tests": [{"nodes": ["a"], "rails": 7}]},
            "sweep.round.3.tests[0].rails is the number 7, not a list",
        ),
        ("sweep.fleet.1", {"rails": {"a": "mlx5_0"}}, "sweep.fleet.1.rails['a'] is the text 'mlx5_0', not a list"),
        ("sweep.job", {"nodes": ["a"], "rows": [7]}, "sweep.job.rows[0] is the number 7, not a list"),
        ("dns", {"peers": 7}, "dns.peers is the number 7, not a list"),
        ("dns", {"peers": [None]}, "dns.peers[0] is null, not a mapping"),
        ("dns", {"peers": [{"index": -1}]}, "dns.peers[0].index is the number -1, not a count"),
        (
            "network",
            {"peers": [{"peak_gbit_s": math.nan}]},
            "network.peers[0].peak_gbit_s is the number nan, not a number",
        ),
        (
            "network",
            {"peers": [{"peak_gbit_s": math.inf}]},
            "network.peers[0].peak_gbit_s is the number inf, not a number",
        ),
        ("start", {"shm_bytes": 10**400}, "start.shm_bytes is the number 1000"),
        ("start", {"shm_bytes": True}, "start.shm_bytes is the truth value True, not a whole number"),
        ("start", {"env": {"RANK": 0}}, "start.env['RANK'] is the number 0, not text"),
        ("runtime", {"nvidia_smi": "found"}, "runtime.nvidia_smi is the text 'found', not a mapping"),
        ("collective.ring", {"nccl": {"schema": 1}}, "collective.ring.nccl: NCCL evidence is damaged"),
    ],
)
def test_another_shape_is_refused_and_named(stage, data, said):
    assert misfit(stage, data).startswith(said)


def skeleton(hint, leaf):
    """A value of a type in which every list and mapping of objects has one, and each object what ``leaf`` makes of it."""
    of = [each for each in (get_args(hint) or (hint,)) if each is not NoneType][-1]
    if not is_typeddict(of):
        return skeleton(of, leaf) if get_args(of) else None
    made = leaf({key: skeleton(each, leaf) for key, each in get_type_hints(of).items()})
    return {list: lambda: [made], dict: lambda: {"x": made}}.get(get_origin(hint), lambda: made)()


def leaves(value):
    if isinstance(value, dict | list) and value:
        return [leaf for each in (value.values() if isinstance(value, dict) else value) for leaf in leaves(each)]
    return [value]


@pytest.mark.parametrize("stage", [*STAGES, *SWEEP_STAGES])
def test_what_a_probe_leaves_out_or_gives_as_null_is_unknown(stage):
    """No number is 0, no text empty, no flag false by it; wherever it is missing, an object has every field."""
    hint = {**STAGES, **SWEEP_STAGES}[stage]
    null = taken(stage, skeleton(hint, lambda made: made))[0]
    gone = taken(stage, skeleton(hint, lambda made: {key: each for key, each in made.items() if each is not None}))[0]
    assert null == gone
    assert {json.dumps(leaf) for leaf in leaves(null)} <= {"null", "[]", "{}"}
    assert set(taken(stage, {})[0]) == set(get_type_hints(hint))


def test_a_null_in_a_list_or_a_mapping_is_not_a_value():
    assert misfit("rdma", {"devices": [{"errors": {"symbol_error": None}}]}).endswith("is null, not a count")
    assert misfit("runtime", {"gpus": [None]}).endswith("is null, not a mapping")
    assert misfit("start", {"env": {"RANK": None}}).endswith("is null, not text")


def test_a_stage_that_is_refused_is_not_there_and_the_rank_is_not_complete():
    lines = [
        {"seatrial": 1, "run": "r", "rank": 0, "n": n, "stage": s, "seconds": 10**400, "data": d}
        for n, s, d in ((1, "dns", {"peers": 7}), (2, "end", {}))
    ]
    evidence = parse([json.dumps(line) for line in lines], "r")
    assert (list(evidence.stages), evidence.complete, evidence.problem) == (
        ["end"],
        False,
        "not in the probe's format: dns.peers is the number 7, not a list",
    )
    assert evidence.seconds == {}
    assert set(BLANK) - {"of a later release", "collective.ring", "collective.node"} <= set(STAGES)
