"""Flight Recorder dumps of torch 2.2 and 2.3, in the forms that their TraceUtils.h wrote, and recorders that ran over."""

import os
import pickle

import pytest

from jobs.nccl.hang.collect import collect
from jobs.nccl.hang.decide import decide
from tests.hang.test_layouts import AT_TIMEOUT, case, dumped, groups_of, play

LATER = ("process_group", "collective_seq_id", "p2p_seq_id", "is_p2p", "timeout_ms", "output_sizes")


def older(folder, groups, entries, version):
    """Write all ranks' dumps: a bare list (2.2), without groups (1.1), with their members by the process's number (1.4)."""
    for rank, own in entries.items():
        mine = [key for key, group in groups.items() if rank in group[1]]
        made = []
        for number, entry in enumerate(own):
            old = {key: value for key, value in entry.items() if key not in LATER}
            old |= {"pg_id": mine.index(entry["process_group"][0]), "seq_id": entry["collective_seq_id"]}
            old |= {"record_id": number, "retired": entry["state"] == "completed", "time_created_ns": number + 1}
            if version == "2.2":
                old["time_created_us"] = old.pop("time_created_ns")
                del old["record_id"]
            made.append(old)
        dump = {"version": version, "entries": made}
        if version == "1.4":
            dump["pg_config"] = {number: groups[key][1] for number, key in enumerate(mine)}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(made if version == "2.2" else dump, protocol=2))
        os.utime(folder / f"nccl_trace_rank_{rank}", AT_TIMEOUT)


@pytest.mark.parametrize("version", ["2.2", "1.1", "1.4"])
@pytest.mark.parametrize("seed", range(12))
def test_older_dumps_name_the_rank_that_stopped_and_nobody_else(tmp_path, version, seed):
    """Numbers of groups count within a process: number 1 is another group on another rank."""
    ranks, groups, stops, _ = case(seed)
    entries, stands = play(groups, ranks, stops)
    older(tmp_path, groups, entries, version)
    made = decide(collect([str(tmp_path)])[0][0])
    guilty = set(stops) - set(stands)
    assert made.waiting == set(stands)
    if version == "1.4" or len(guilty) == 1:
        assert (made.kind, made.late) == ("late", guilty)
    else:
        assert (made.late, made.suspects) == (set(), guilty)


@pytest.mark.parametrize("version", ["2.2", "1.1", "1.4"])
def test_ranks_that_all_stand_in_parts_of_older_dumps_are_not_called_inside(tmp_path, version):
    """Both parts wait for nobody, as far as 2.2 and 1.1 tell; whether one holds up the other is not known there."""
    groups = groups_of(4, 2, 1)
    entries, _ = play(groups, 4, {1: 1, 3: 3})
    for own in entries.values():
        own[-1]["state"] = "scheduled"
    older(tmp_path, groups, entries, version)
    made = decide(collect([str(tmp_path)])[0][0])
    assert version == "1.4" or (made.kind, made.late, made.suspects) == ("undecided", set(), set())


def test_what_nccls_watchdog_retired_without_an_end_timed_out(tmp_path):
    """ "A retired but not completed event has timed out" (FlightRecorder.hpp), also in a copy: the rank stands in it."""
    groups = {"0": ("default_pg", list(range(4)))}
    entries, stands = play(groups, 4, {2: 1})
    for rank in stands:
        entries[rank][-1] |= {"retired": True, "state": "started"}
    dumped(tmp_path, groups, entries, stands, range(4))
    for path in tmp_path.iterdir():
        os.utime(path, (2_000_000_000,) * 2)
    made = decide(collect([str(tmp_path)])[0][0])
    assert (made.kind, made.late, made.waiting) == ("late", {2}, {0, 1, 3})


@pytest.mark.parametrize("missing", [3, 0])
def test_of_ranks_in_different_operations_the_one_that_left_out_a_call_is_named(explain, tmp_path, missing):
    """It waits for all in the next group's operation, and they in this one's for it; of two alone, nobody is named."""
    groups = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("TP", [0, 1, 2, 3])}
    entries, stands = play(groups, 4, {}, steps=1)
    for rank, own in entries.items():
        last = own.pop() if rank != missing else own.pop(1)
        own[-1]["state"] = "started"
        stands[rank] = (own[-1]["process_group"][0], own[-1]["collective_seq_id"])
        assert last
    dumped(tmp_path, groups, entries, stands, range(4))
    code, job = explain(tmp_path)
    assert (code, job["diagnosis"], job["late_ranks"]) == (1, "hang-order", [missing]), job["sentence"]
    assert job["sentence"].startswith(f"Rank {missing} waits in ")
    pair = tmp_path / "pair"
    pair.mkdir()
    few = {key: (name, [0, 3]) for key, (name, _) in groups.items()}
    dumped(pair, few, entries, stands, [0, 3])
    _, job = explain(pair)
    assert (job["diagnosis"], job["late_ranks"]) == ("hang-order", [])


def test_counters_tell_that_pending_operations_were_overwritten_where_nothing_complete_is_left(tmp_path):
    """All recorders hold pending operations only; that of rank 0 lacks the first one, in which it stands."""
    groups = {"0": ("default_pg", list(range(4)))}
    entries, stands = play(groups, 4, {2: 1}, steps=2)
    for rank, own in entries.items():
        for number, entry in enumerate(own):
            entry |= {"record_id": number, "pg_id": 0}
        entries[rank] = own[-1:] if rank in stands else []
    last = entries[0][0]
    entries[0] = [{**last, "record_id": 9, "collective_seq_id": 9, "profiling_name": "nccl:broadcast"}]
    dumped(tmp_path, groups, entries, stands, range(4))
    path = tmp_path / "nccl_trace_rank_0"
    dump = pickle.loads(path.read_bytes())
    dump["pg_status"]["0"]["last_completed_collective"] = 1
    path.write_bytes(pickle.dumps(dump, protocol=2))
    made = decide(collect([str(tmp_path)])[0][0])
    assert (made.unknown, made.late) == ({0}, {2})
