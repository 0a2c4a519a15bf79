"""Flight Recorder dumps of jobs with tensor, data and pipeline groups, made by simulating the job until it hangs."""

from __future__ import annotations

import json
import os
import pickle
import random

import pytest

from seatrial.logs.hang.collect import collect
from seatrial.logs.hang.decide import decide
from seatrial.logs.reader.errors import NcclLogError

AT_TIMEOUT = (601, 601)
"""The files' time: simulated operations are queued in the first nanoseconds of 1970, and time out after 600 s."""


def groups_of(ranks, tensor, pipeline):
    """Return the groups by key: the world, neighbours that share a layer, replicas of one stage."""
    replicas = ranks // (tensor * pipeline)
    groups = {"0": ("default_pg", list(range(ranks)))}
    for first in range(0, ranks, tensor):
        groups[str(len(groups))] = ("TP", list(range(first, first + tensor)))
    for stage in range(pipeline):
        for part in range(tensor):
            members = [stage * replicas * tensor + copy * tensor + part for copy in range(replicas)]
            groups[str(len(groups))] = ("DP", members)
    return groups


def play(groups, ranks, stops, steps=3):
    """Return each rank's record, and its current operation when no rank can continue.

    ``stops``: the number of operations after which a rank diverges.
    """
    order = {"TP": 0, "DP": 1, "default_pg": 2}
    mine = {
        rank: sorted((g for g in groups if rank in groups[g][1]), key=lambda g: order[groups[g][0]])
        for rank in range(ranks)
    }
    program = {
        rank: [g for _ in range(steps) for g in mine[rank] for _ in range(2 if groups[g][0] == "TP" else 1)]
        for rank in mine
    }
    entries, number = {rank: [] for rank in mine}, {rank: dict.fromkeys(mine[rank], 0) for rank in mine}
    arrived, stands = {}, {}
    moved = True
    while moved:
        moved = False
        for rank in mine:
            if rank in stands:
                if len(arrived[stands[rank]]) < len(groups[stands[rank][0]][1]):
                    continue
                entries[rank][-1]["state"] = "completed"
                del stands[rank]
            done = len(entries[rank])
            if done == len(program[rank]) or done == stops.get(rank):
                continue
            group = program[rank][done]
            number[rank][group] += 1
            stands[rank] = (group, number[rank][group])
            arrived.setdefault(stands[rank], set()).add(rank)
            entries[rank].append(
                {
                    "process_group": [group, groups[group][0]],
                    "collective_seq_id": number[rank][group],
                    "p2p_seq_id": 0,
                    "op_id": done + 1,
                    "profiling_name": "nccl:all_reduce",
                    "input_sizes": [[4]],
                    "output_sizes": [[4]],
                    "is_p2p": False,
                    "state": "started",
                    "time_created_ns": done,
                    "timeout_ms": 600000,
                }
            )
            moved = True
    return entries, stands


def dumped(folder, groups, entries, stands, number, *, as_json=False):
    """Write the dump of each rank in ``number``."""
    for rank in number:
        own = {key: group for key, group in groups.items() if rank in group[1]}
        last = {
            key: max((e["collective_seq_id"] for e in entries[rank] if e["process_group"][0] == key), default=0)
            for key in own
        }
        dump = {
            "version": "2.9",
            "pg_config": {
                key: {"name": key, "desc": text, "ranks": str(members)} for key, (text, members) in own.items()
            },
            "pg_status": {
                key: {
                    "last_enqueued_collective": last[key],
                    "last_started_collective": last[key],
                    "last_completed_collective": last[key] - (stands.get(rank, ("", 0))[0] == key),
                }
                for key in own
            },
            "entries": entries[rank],
        }
        data = json.dumps(dump).encode() if as_json else pickle.dumps(dump, protocol=2)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
        os.utime(folder / f"nccl_trace_rank_{rank}", AT_TIMEOUT)


def case(seed):
    """Return a layout, and one or two ranks that stop somewhere."""
    dice = random.Random(seed)
    ranks, tensor, pipeline = dice.choice([(8, 2, 2), (16, 4, 2), (16, 2, 2), (32, 8, 2), (64, 8, 4)])
    groups = groups_of(ranks, tensor, pipeline)
    late = dice.sample(range(ranks), dice.choice([1, 1, 2]))
    return ranks, groups, {rank: dice.randrange(1, 8) for rank in late}, dice


@pytest.mark.parametrize("seed", range(24))
def test_the_ranks_that_stopped_are_named_and_no_one_else(tmp_path, seed):
    """A rank that waits in an operation before its stop is not at fault."""
    ranks, groups, stops, _ = case(seed)
    entries, stands = play(groups, ranks, stops)
    dumped(tmp_path, groups, entries, stands, range(ranks), as_json=bool(seed % 2))
    made = decide(collect([str(tmp_path)])[0][0])
    assert (made.kind, made.late) == ("late", set(stops) - set(stands))
    assert made.waiting == set(stands)


@pytest.mark.parametrize("seed", range(24))
def test_counts_of_ras_name_no_rank_that_waits_in_a_smaller_communicator(tmp_path, seed):
    """A rank that waits for a late one in a part of the job is also behind in the whole job's communicator."""
    ranks, groups, stops, _ = case(seed)
    entries, stands = play(groups, ranks, stops)
    comms = [
        {
            "hash": f"0x{int(key) + 1:x}",
            "size": len(members),
            "ranks": [
                {
                    "rank": place,
                    "host": f"node{rank // 8}",
                    "pid": 100 + rank,
                    "cuda_dev": rank % 8,
                    "collective_counts": {"AllReduce": sum(e["process_group"][0] == key for e in entries[rank])},
                }
                for place, rank in enumerate(members)
            ],
            "missing_ranks": [],
        }
        for key, (_, members) in groups.items()
    ]
    for number in range(3):
        answer = {"nccl_version": "2.29.1", "timestamp": str(number), "communicators": comms}
        (tmp_path / f"ras-{number}.json").write_text(json.dumps(answer))
    made = decide(collect([str(tmp_path)])[0][0])
    assert made.late and made.late <= set(stops) - set(stands)


@pytest.mark.parametrize("seed", range(100, 116))
def test_a_rank_whose_dump_is_missing_or_cut_is_neither_guilty_nor_cleared(tmp_path, seed):
    ranks, groups, stops, dice = case(seed)
    entries, stands = play(groups, ranks, stops)
    gone = set(dice.sample(range(ranks), 2))
    dumped(tmp_path, groups, entries, stands, range(ranks))
    for index, rank in enumerate(sorted(gone)):
        path = tmp_path / f"nccl_trace_rank_{rank}"
        if index:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    made = decide(collect([str(tmp_path)])[0][0])
    assert made.unknown == gone
    assert made.late <= set(stops) - set(stands) - gone
    assert not made.waiting & gone


@pytest.mark.parametrize(
    "shape",
    [
        {"version": "2.9", "pg_config": [], "pg_status": 3, "entries": {}},
        {"version": None, "pg_config": {"0": None}, "pg_status": {"0": None}, "entries": [None, 7, {}]},
        {"version": "9.9", "entries": [{"process_group": "x", "collective_seq_id": "y", "state": []}] * 3},
        {"version": "2.9", "pg_config": {"0": {"ranks": "[" * 5000}}, "entries": [{"state": "started"}]},
    ],
)
def test_a_dump_of_another_shape_raises_no_fault(tmp_path, shape):
    """With valid dumps a malformed one counts as missing; alone it is reported."""
    ranks, groups, stops, _ = case(3)
    entries, stands = play(groups, ranks, stops)
    dumped(tmp_path, groups, entries, stands, range(ranks))
    odd = next(rank for rank in range(ranks) if rank not in stops)
    (tmp_path / f"nccl_trace_rank_{odd}").write_bytes(pickle.dumps(shape, protocol=2))
    made = decide(collect([str(tmp_path)])[0][0])
    assert odd not in made.late | made.waiting or odd in stands
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "nccl_trace_rank_0").write_bytes(pickle.dumps(shape, protocol=2))
    try:
        made = decide(collect([str(alone)])[0][0])
    except NcclLogError:
        return
    assert not made.late
    assert not made.proven


def dump(rank, world=4):
    """Return the JSON of a rank's dump: it is in the world, and in the pair with its parity."""
    groups = {"0": list(range(world)), f"{1 + rank % 2}": list(range(rank % 2, world, 2)), f"{3 + rank}": [rank]}
    waits = (
        []
        if rank == 2
        else [
            {
                "record_id": 0,
                "process_group": ["0", "default_pg"],
                "collective_seq_id": 7,
                "profiling_name": "nccl:all_reduce",
                "state": "started",
                "time_created_ns": rank + 1,
            }
        ]
    )
    config = {
        name: {"name": name, "desc": "default_pg" if name == "0" else name, "ranks": str(ranks)}
        for name, ranks in groups.items()
    }
    return json.dumps({"version": "2.9", "pg_config": config, "entries": waits})


@pytest.mark.parametrize(
    ("names", "late", "unknown"),
    [
        ({0: "a/dump_0", 1: "a/dump_1", 2: "b/dump_0", 3: "b/dump_1"}, [2], []),  # each host numbers its own
        ({0: "dump_0", 1: "dump_1", 2: "dump_2", 3: "dump_3"}, [2], []),
        ({0: "dump_0", 1: "dump_1", 3: "dump_2"}, [], [2]),  # one dump has another rank's name
    ],
    ids=["per-host", "as-named", "misnamed"],
)
def test_the_groups_of_a_dump_say_whose_it_is(explain, tmp_path, names, late, unknown):
    for rank, name in names.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(dump(rank))
    _, job = explain(tmp_path)
    assert (job["late_ranks"], job["unknown_ranks"]) == (late, unknown), job["sentence"]
