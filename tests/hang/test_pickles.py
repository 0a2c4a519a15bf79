"""Dumps as pickle or JSON: no code in them is executed, and a truncated one is reported."""

import contextlib
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from seatrial.logs.hang.collect import collect
from seatrial.logs.hang.decide import decide
from seatrial.logs.hang.flight_recorder import parse
from seatrial.logs.hang.pickles import PickleRefusedError, loads
from tests.hang.recorded import DATA


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_a_pickle_with_a_global_is_refused_and_not_executed(explain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "_dump_0").write_bytes(pickle.dumps({"entries": [Evil()]}, protocol=2))
    code, said = explain(tmp_path / "_dump_0")
    assert code == 4
    assert "nothing was executed" in said
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("protocol", range(2, 6))
def test_every_global_is_refused_in_every_protocol(protocol):
    for value in (Evil(), {"a": Path("x")}, [1, {2, 3}], pytest):
        try:
            data = pickle.dumps(value, protocol)
        except TypeError:
            continue
        with pytest.raises(PickleRefusedError):
            loads(data)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_plain_data_is_read_as_pickle_reads_it(protocol):
    value = {"a": [1, -1, 1 << 40, 70000, 300, None, True, False, 1.5, ("x", "y"), ()], 3: {"ü": []}, "long": "z" * 999}
    assert loads(pickle.dumps(value, protocol)) == value


def test_cut_at_any_byte_and_with_huge_numbers_it_ends_in_a_word():
    whole = (DATA / "sleeps" / "rank_0").read_bytes()
    for end in range(len(whole)):
        with pytest.raises(PickleRefusedError):
            loads(whole[:end])
    for data in (b"\x80\x02]r\xff\xff\xff\xff.", b"\x80\x02X\xff\xff\xff\xffa.", b"\x80\x04\x8d" + b"\xff" * 8):
        with contextlib.suppress(PickleRefusedError):
            loads(data)  # a large memo index costs nothing here


def test_a_cut_dump_is_said_and_its_rank_is_unknown(explain, tmp_path):
    shutil.copytree(DATA / "sleeps", tmp_path / "d")
    whole = (tmp_path / "d" / "rank_1").read_bytes()
    (tmp_path / "d" / "rank_1").write_bytes(whole[: len(whole) // 2])
    code, job = explain(tmp_path / "d")
    assert (code, job["late_ranks"], job["unknown_ranks"]) == (10, [], [1])
    assert "cut" in job["sentence"]


def test_the_json_of_a_dump_says_the_same(explain, tmp_path):
    for rank in range(4):
        content = loads((DATA / "sleeps" / f"rank_{rank}").read_bytes())
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(content))
        shutil.copystat(DATA / "sleeps" / f"rank_{rank}", tmp_path / f"rank_{rank}.json")
    code, job = explain(tmp_path)
    assert (code, job["late_ranks"]) == (1, [1])


@pytest.mark.parametrize("data", [b"\x80\x02(.", b"\x80\x02(\x85.", b"\x80\x02.", b"\x80\x09N.", b"\x80\x02})K\x01s."])
def test_what_no_pickler_writes_is_refused(data):
    """A mark is not a value, a tuple takes nothing from before its mark, and a key is a text or a number."""
    with pytest.raises(PickleRefusedError):
        loads(data)


def laughs(depth=14):
    """Return a list that holds a list ten times, and so on: small in a file, but unlimited as text."""
    made = ["x"] * 10
    for _ in range(depth):
        made = [made] * 10
    return made


def itself():
    made = []
    made.append(made)
    return made


@pytest.mark.parametrize("bomb", [laughs, itself])
@pytest.mark.parametrize(
    "where",
    ["input_sizes", "input_dtypes", "profiling_name", "process_group", "state", "seq_id", "ranks", "desc", "pg_status"],
)
def test_lists_within_lists_that_a_memo_repeats_are_not_unfolded(tmp_path, bomb, where):
    """A pickle of some hundred bytes holds them: as text they would fill the memory, or never end."""
    for rank in range(4):
        entry = {
            "record_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": 1,
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[4]],
            "state": "scheduled",
            "time_created_ns": 1,
        }
        group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}
        dump = {"version": "2.9", "pg_config": {"0": group}, "pg_status": {}, "entries": [] if rank == 2 else [entry]}
        if rank == 1:
            ({"ranks": group, "desc": group, "pg_status": dump}.get(where, entry))[where] = bomb()
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    made = decide(collect([str(tmp_path)])[0][0])
    assert made.late <= {2}
    older = [{"pg_id": 0, "seq_id": bomb(), "profiling_name": "nccl:all_reduce", "state": "scheduled"}]
    (tmp_path / "dump_1").write_bytes(pickle.dumps(older, protocol=2))
    assert decide(collect([str(tmp_path)])[0][0]).late == {2}


def one_entry(**changes):
    group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
    entry = {
        "record_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
        "time_created_ns": 10**18,
    }
    return {"version": "2.9", "pg_config": {"0": group}, "pg_status": {}, "entries": [entry]} | changes


@pytest.mark.parametrize("name", ["dump_9999999", "fr_20261124", "fr_20261124.pickle"])
def test_a_number_that_is_no_rank_is_none(explain, tmp_path, name):
    """A date has eight digits; a rank of ten million once made a job of that size, in 5 GB."""
    (tmp_path / name).write_bytes(pickle.dumps(one_entry(pg_config={}), protocol=2))
    code, said = explain(tmp_path)
    assert (code, "ends in its rank" in said) == (4, True)


def test_an_entry_that_a_memo_repeats_a_million_times_is_refused(tmp_path):
    """Each costs two bytes in the file and microseconds to read: no recorder writes one twice."""
    repeated = one_entry()["entries"] * 100_000
    with pytest.raises(PickleRefusedError, match="many times"):
        parse("dump_0", pickle.dumps(one_entry(entries=repeated), protocol=2), {})
    parse("dump_0", pickle.dumps(one_entry(entries=[dict(each) for each in repeated[:1000]]), protocol=2), {})


def test_a_group_of_more_ranks_than_a_job_has_is_refused():
    ranks = {"0": {"name": "0", "desc": "default_pg", "ranks": f"[{'1, ' * 4_000_000}]"}}
    with pytest.raises(PickleRefusedError, match="1000000 ranks"):
        parse("dump_0", pickle.dumps(one_entry(pg_config=ranks), protocol=2), {})
