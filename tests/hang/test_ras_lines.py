"""Each line that NCCL RAS prints about ranks: none launched, GPUs with two numbers, states, errors, small
communicators."""

import os

import pytest

from tests.hang.ras_printer import Comm, Job, as_json, text

WORLD = list(range(8))
TP = [Comm([4 * n, 4 * n + 1, 4 * n + 2, 4 * n + 3], hash=f"{n + 2:016x}") for n in range(2)]


def looks(folder, job, form="text", number=3):
    """Write several answers, five seconds apart."""
    for look in range(number):
        path = folder / f"ras-{look}.{'txt' if form == 'text' else 'json'}"
        path.write_text(text(job) if form == "text" else as_json(job, stamp=f"2026-11-23 10:00:{5 * look:02}"))
        os.utime(path, (1_700_000_000 + 5 * look,) * 2)
    return folder


both = pytest.mark.parametrize("form", ["text", "json"])
devices = pytest.mark.parametrize("one_device", [False, True], ids=["cuda-is-nvml", "one-device"])


@both
@devices
@pytest.mark.parametrize("counts", [{3: 0}, {3: 0, 5: 0}, {3: 9}, {3: 9, 5: 9}, {3: 9, 5: 8}], ids=str)
def test_ranks_that_launched_less_or_nothing_at_all(explain, tmp_path, form, one_device, counts):
    """ "Rank 3 has not launched any operations", and a GPU with a different NVML index, have their own line forms."""
    job = Job(8, [Comm(WORLD, counts=counts)], one_device=one_device)
    code, document = explain(looks(tmp_path, job, form))
    least = {rank for rank, count in counts.items() if count == min(counts.values())}
    assert (code, document["diagnosis"], set(document["late_ranks"])) == (1, "hang-late", least), document["sentence"]
    assert set(document["waiting_ranks"]) == set(WORLD) - least
    assert f"GPU {'0 (NVML 3)' if one_device and 3 in least else ''}" in document["sentence"]


@both
@devices
@pytest.mark.parametrize("own_pid", [False, True], ids=["pids", "containers"])
@pytest.mark.parametrize("how", ["silent", "dead"])
def test_a_dead_process_is_its_world_rank_though_it_has_others_in_smaller_communicators(
    explain, tmp_path, form, one_device, own_pid, how
):
    """The text lists a dead process in each communicator with its rank there: rank 1 of the second part is rank 5 of
    the job."""
    job = Job(8, [Comm(WORLD), *TP], one_device=one_device, own_pid=own_pid and one_device, **{how: {5}})
    if own_pid:
        job.place = lambda rank: (f"10.0.0.{rank + 1}", 7, 0, 0)
    code, document = explain(looks(tmp_path, job, form, 1))
    assert (code, document["diagnosis"], document["dead_ranks"]) == (1, "hang-dead", [5]), document["sentence"]
    assert set(document["waiting_ranks"]) == set(WORLD) - {5}
    assert "process" not in document["sentence"].split("is dead")[0]


@both
def test_a_part_of_the_job_names_no_rank_of_the_world_by_its_own_numbers(explain, tmp_path, form):
    """Rank 1 of the second part did not arrive; in the whole job's communicator all launched equally many."""
    late = [TP[0], Comm(TP[1].members, counts={5: 9}, hash=TP[1].hash)]
    code, document = explain(looks(tmp_path, Job(8, [Comm(WORLD), *late]), form))
    assert (code, document["diagnosis"]) == (1, "hang-late"), document["sentence"]
    assert document["late_ranks"] == ([5] if form == "json" else []), document["sentence"]
    assert ("Rank 5" if form == "json" else "Process 105 (GPU 5 of 10.0.0.1)") in document["sentence"]


@both
def test_without_a_communicator_of_all_ranks_processes_are_named(explain, tmp_path, form):
    parts = [TP[0], Comm(TP[1].members, counts={5: 0}, hash=TP[1].hash)]
    code, document = explain(looks(tmp_path, Job(8, parts), form))
    assert (code, document["diagnosis"], document["late_ranks"], document["waiting_ranks"]) == (1, "hang-late", [], [])
    assert document["sentence"].startswith("Process 105 (GPU 5 of 10.0.0.1) never entered AllReduce 1 of communicator")
    assert document["faults"][0]["subject"] == "process 105 on 10.0.0.1"
    assert "--pid 105 " in document["causes"][0]["confirm"]
    assert document["nccl_version"] == ("2.28.9" if form == "text" else "2.29.1")


@pytest.mark.parametrize(
    ("first", "late", "unknown"), [({}, [5], []), ({1: 9}, [], [4, 5, 6, 7])], ids=["one-part", "two-parts"]
)
def test_who_waits_in_a_part_and_is_late_to_all_for_that_is_not_named(explain, tmp_path, first, late, unknown):
    """Ranks 4, 6 and 7 wait for 5 in their part, so none of the four reached the whole job's operation."""
    behind = dict.fromkeys(TP[1].members, 9)
    parts = [Comm(TP[0].members, counts=first, hash=TP[0].hash), Comm(TP[1].members, counts={5: 9}, hash=TP[1].hash)]
    job = Job(16, [Comm(list(range(16)), counts=behind), *parts])
    code, document = explain(looks(tmp_path, job))
    assert (code, document["late_ranks"], document["unknown_ranks"]) == (1, late, unknown), document["sentence"]
    assert late or "JSON" in document["sentence"]


@both
@pytest.mark.parametrize(
    ("states", "looked", "code", "late"),
    [
        ({3: "NOCOMM"}, 3, 1, [3]),
        ({3: "FINALIZE"}, 3, 1, [3]),
        ({3: "NOCOMM"}, 1, 10, [3]),
        ({3: "NOCOMM", **dict.fromkeys([0, 1, 2, 4, 5, 6, 7], "INIT")}, 3, 1, [3]),
        ({3: "ABORT"}, 3, 10, []),
        (dict.fromkeys([0, 1, 2, 4, 5, 6, 7], "NOCOMM"), 3, 1, []),
    ],
    ids=["gone", "finalized", "one-look", "never-created", "gave-up", "one-remains"],
)
def test_a_rank_that_left_the_communicator_is_late_and_not_dead(explain, tmp_path, form, states, looked, code, late):
    """A rank that answers RAS lives. If most left, the remaining one may have called one more."""
    exit_code, document = explain(looks(tmp_path, Job(8, [Comm(WORLD, states=states)]), form, looked))
    assert (exit_code, document["late_ranks"], document["dead_ranks"]) == (code, late, []), document["sentence"]
    assert not late or "Rank 3 (10.0.0.1 GPU 3) left " in document["sentence"]


@both
def test_errors_that_ranks_reported_are_said(explain, tmp_path, form):
    remote = dict.fromkeys([0, 1, 2, 4, 5, 6, 7], "Remote process error")
    job = Job(8, [Comm(WORLD, errors={**remote, 3: "Unhandled CUDA error"})])
    code, document = explain(looks(tmp_path, job, form, 1))
    assert code == 10
    assert "Rank 3 reported Unhandled CUDA error" in document["sentence"]


def test_a_table_of_processes_that_differ_shows_how_many_gpus_there_are(explain, tmp_path):
    """Two nodes with four and three processes: the job's table has another form, and its last number counts."""
    job = Job(7, [Comm(list(range(7)), counts={2: 9})])
    whole = text(job)
    begin, end = whole.index("  Nodes  Processes"), whole.index("Communicators...")
    table = """  Nodes  Processes         GPUs
          per node  per process
      1          4            1
      1          3            1

  Nodes  Processes         GPUs
(total)    (total)      (total)
      2          7            7

"""
    for look in range(3):
        (tmp_path / f"ras-{look}.txt").write_text(whole[:begin] + table + whole[end:])
        os.utime(tmp_path / f"ras-{look}.txt", (1_700_000_000 + 5 * look,) * 2)
    code, document = explain(tmp_path)
    assert (code, document["late_ranks"]) == (1, [2])
