"""Hangs of real jobs over gloo, recorded by us (data/gloo-2.13): reported ranks, and ranks that must not be."""

import json
import os
import pickle
import shutil

import pytest

from cli.explain import main
from seatrial.logs.hang.pickles import loads
from tests.hang import recorded as hangs

DATA = hangs.DATA / "gloo-2.13"


@pytest.fixture
def explain(capsys):
    """Return a function: paths to (exit code, the only job's document)."""

    def run(*paths):
        code = main(["--format", "json", *map(str, paths)])
        (job,) = json.loads(capsys.readouterr().out)["jobs"]
        return code, job

    return run


def named(job):
    return {key: job[f"{key}_ranks"] for key in ("late", "waiting", "dead", "unknown") if job[f"{key}_ranks"]}


SLEEPER = {"late": [2], "waiting": [0, 1, 3]}


@pytest.mark.parametrize(
    ("case", "diagnosis", "ranks", "where"),
    [
        ("sleep_first", "hang-late", SLEEPER, ("default_pg", "all_reduce", 1)),
        ("async_sleep", "hang-late", SLEEPER, ("default_pg", "all_reduce", 4)),
        ("alltoall", "hang-late", SLEEPER, ("default_pg", "all_to_all", 4)),
        ("nested_sleep_world", "hang-late", SLEEPER, ("default_pg", "all_reduce", 4)),
        ("two_sleep", "hang-late", {"late": [1, 2], "waiting": [0, 3]}, ("default_pg", "all_reduce", 4)),
        ("monitored", "hang-late", {"late": [2], "waiting": [1, 3]}, (None, "monitored_barrier", None)),
        ("branch_gather", "hang-mismatch", SLEEPER, ("default_pg", "all_reduce", 4)),
        ("branch_skip", "hang-late", SLEEPER, ("default_pg", "all_reduce", 5)),
        ("branch_group", "hang-order", {"waiting": [0, 1, 2, 3]}, ("TP0", "all_reduce", 5)),
        ("sizes", "hang-mismatch", SLEEPER, ("default_pg", "all_reduce", 4)),
        ("dtype", "hang-mismatch", {"late": [2], "waiting": [0, 3], "unknown": [1]}, ("default_pg", "all_reduce", 4)),
        ("dies", "hang-dead", {"dead": [2], "waiting": [0, 1, 3]}, ("default_pg", "all_reduce", 4)),
        ("dies_nested", "hang-dead", {"dead": [2], "waiting": [0, 1, 3]}, ("DP1", "all_reduce", 4)),
        # the others timed out: gloo marks failed operations as retired, but their messages show that it is not complete
        ("timed_out", "hang-late", {"late": [0], "waiting": [1, 2, 3]}, ("default_pg", "broadcast", 4)),
        ("timed_out_pipeline", "hang-late", {"late": [1], "waiting": [0, 2, 3]}, ("TP0", "all_reduce", 4)),
        # rank 2 arrived after the others had given up, and failed in turn: its own error does not clear it
        ("timed_out_handled", "hang-late", SLEEPER, ("default_pg", "all_reduce", 4)),
        ("timed_out_chain", "hang-late", SLEEPER, ("TP1", "all_reduce", 4)),
        ("timed_out_monitored", "hang-late", {"late": [2], "waiting": [1, 3]}, (None, "monitored_barrier", None)),
        # rank 2 skipped the broadcast, whose root completes early; ranks 1 and 3 gave up in their next call
        ("timed_out_skipped", "hang-mismatch", SLEEPER, ("default_pg", "broadcast", 6)),
        # all gave up and ended: retired operations were not complete, as the dump of rank 3 shows
        ("sleeps_in_groups", "hang-late", {"late": [3], "waiting": [0, 1, 2, 4, 5]}, ("TP1", "all_reduce", 7)),
        ("unlike_in_groups", "hang-mismatch", {"waiting": [0, 1, 2, 3]}, ("TP1", "broadcast", 6)),
        (
            "gathers_unlike",
            "hang-mismatch",
            {"late": [3], "waiting": [1, 2], "unknown": [0]},
            ("default_pg", "all_gather", 5),
        ),
        ("logged", "hang-late", {"late": [3], "waiting": [0, 1, 2]}, ("default_pg", "all_reduce", 5)),
        ("logged_closed", "hang-dead", {"dead": [4], "waiting": [0, 1, 2, 3]}, ("default_pg", "all_reduce", 5)),
        # its recorder left an operation open that all others have completed
        ("raises", "hang-late", SLEEPER, ("default_pg", "all_reduce", 4)),
        # rank 2 called one more operation, or all others are late: the dumps are the same
        ("branch_extra", "hang-late", {"waiting": [2], "unknown": [0, 1, 3]}, ("default_pg", "all_reduce", 6)),
        # gloo does not record sends and receives: rank 3 waits in one for rank 2, and seems idle
        ("pipeline_sleep", "hang-late", {"waiting": [0, 1], "unknown": [2, 3]}, ("default_pg", "all_reduce", 1)),
    ],
)
def test_each_hang_names_its_rank(explain, case, diagnosis, ranks, where):
    code, job = explain(DATA / case)
    assert (code, job["diagnosis"], named(job)) == (1, diagnosis, ranks)
    assert tuple(job["stuck"].values()) == where
    assert job["ranks"] == max(rank for some in ranks.values() for rank in some) + 1


@pytest.mark.parametrize(
    ("pattern", "code", "ranks"),
    [
        ("*", 1, {"dead": [5], "waiting": [0, 1, 2, 3, 4, 6, 7]}),
        ("rank_*", 10, {"waiting": [0, 1, 2, 6], "unknown": [5]}),
    ],
)
def test_what_broke_is_not_behind_a_rank(explain, tmp_path, pattern, code, ranks):
    """gloo also marks failed operations as retired: rank 1, which still waits there, delays no rank."""
    for path in (DATA / "killed_in_groups").glob(pattern):
        shutil.copy2(path, tmp_path)
    exit_code, job = explain(tmp_path)
    assert (exit_code, named(job)) == (code, ranks), job["sentence"]


def test_a_process_that_ended_of_what_another_one_sent_it_is_dead_for_that(explain):
    """Rank 4 sums another type; rank 5 expects less data than it receives and ends, and the others wait or fail."""
    _, job = explain(DATA / "dtype_in_groups")
    assert (job["diagnosis"], named(job)) == ("hang-dead", {"dead": [5], "waiting": [0, 1, 2, 3, 4, 6, 7]})
    assert "sizes or types that differ between ranks of a group" in job["sentence"]


@pytest.mark.parametrize(
    ("case", "ranks"),
    [
        ("stopped", {"waiting": [0, 1, 3], "unknown": [2]}),
        ("nested_stopped", {"waiting": [0, 1, 3], "unknown": [2]}),
        ("healthy_idle", {}),
    ],
)
def test_what_dumps_alone_do_not_prove_is_left_open(explain, case, ranks):
    """A stopped rank writes no dump: the others do not show whether it arrived."""
    code, job = explain(DATA / case)
    assert (code, job["diagnosis"], named(job)) == (10, "hang-undecided", ranks)


def test_a_rank_that_failed_because_another_died_is_not_at_fault(explain, tmp_path):
    """Standard error is missing: rank 3 is in no operation, since its operation with rank 2 failed."""
    shutil.copytree(DATA / "dies_nested", tmp_path / "d", ignore=shutil.ignore_patterns("*.txt"))
    code, job = explain(tmp_path / "d")
    assert (code, named(job)) == (10, {"waiting": [1], "unknown": [2]})


def test_a_mismatch_says_what_was_called(explain):
    assert "1 rank called gloo:all_gather" in explain(DATA / "branch_gather")[1]["sentence"]
    assert "1 rank called [[4]] ['Double']" in explain(DATA / "dtype")[1]["sentence"]


def test_the_few_that_are_ahead_may_be_wrong(explain):
    assert "or rank 2 called one operation more" in explain(DATA / "branch_extra")[1]["sentence"]
    assert "one operation more" not in explain(DATA / "two_sleep")[1]["sentence"]


@pytest.mark.parametrize(("waited", "code", "late"), [(0.5, 10, []), (30, 10, [2]), (301, 1, [2])])
def test_dumps_of_a_job_that_runs_are_no_hang(explain, tmp_path, waited, code, late):
    """Before the time-out (300 s here) one look cannot exclude a wait that ends; a mismatch is a hang at any time."""
    for case in ("sleep_first", "sizes"):
        shutil.copytree(DATA / case, tmp_path / case)
        for path in (tmp_path / case).glob("rank_*"):
            entries = loads(path.read_bytes())["entries"]
            if entries:
                last = entries[-1]["time_created_ns"] / 1e9 + waited
                os.utime(path, (last, last))
    exit_code, job = explain(tmp_path / "sleep_first")
    assert (exit_code, "too early" in job["sentence"], job["late_ranks"]) == (code, code == 10, late)
    assert explain(tmp_path / "sizes")[0] == 1


def ras(size, missing=(), count=5):
    """Return an NCCL RAS answer, as JSON, for a communicator in which some ranks no longer respond."""
    ranks = [
        {"rank": r, "host": "a", "pid": r, "cuda_dev": r, "collective_counts": {"AllReduce": count}}
        for r in range(size)
        if r not in missing
    ]
    gone = [{"rank": r, "host": "a", "pid": r, "cuda_dev": r, "status": {"considered_dead": True}} for r in missing]
    comm = {"hash": "0x1", "size": size, "ranks": ranks, "missing_ranks": gone}
    return json.dumps({"nccl_version": "2.29.1", "communicators": [comm]})


@pytest.mark.parametrize(
    ("case", "answers", "code", "dead", "said"),
    [
        ("stopped", [ras(4, [2])], 1, [2], ""),  # the dumps do not decide about rank 2, and RAS does
        ("sizes", [ras(4, [1])], 1, [1], "dead, but their dumps show them waiting"),
        ("sleep_first", [ras(8, [7])], 1, [], "a communicator of 8 ranks, the dumps of a job of 4"),
        ("sleep_first", [ras(4), ras(4, count=6), ras(4, count=7)], 10, [], "RAS advance between its samples"),
        ("sleep_first", [ras(4)], 1, [], "RAS says OK while the Flight Recorder"),
    ],
)
def test_answers_of_ras_that_contradict_the_dumps_are_said(explain, tmp_path, case, answers, code, dead, said):
    shutil.copytree(DATA / case, tmp_path / case)
    for number, answer in enumerate(answers):
        (tmp_path / case / f"ras-{number}.json").write_text(answer)
    exit_code, job = explain(tmp_path / case)
    assert (exit_code, job["dead_ranks"]) == (code, dead)
    assert len(job["contradictions"]) >= bool(said)
    assert said in " ".join(job["contradictions"])
    assert said in job["sentence"]


def test_a_rank_in_a_receive_that_gloo_does_not_record_may_look_late(explain):
    """Rank 3 waits for rank 2; no recorded operation shows it, and the sentence says so."""
    assert "gloo records no send and no receive" in explain(DATA / "pipeline_sleep")[1]["sentence"]
    assert "no send" not in explain(DATA / "sleep_first")[1]["sentence"]


def test_a_few_of_the_dumps_leave_open_which_side_is_wrong(explain):
    _, job = explain(*((DATA / "branch_extra" / f"rank_{rank}") for rank in (1, 2)))
    assert (job["late_ranks"], job["waiting_ranks"], job["unknown_ranks"]) == ([], [2], [0, 1, 3])
    assert "or rank 2 called one operation more" in job["sentence"]
    assert "There is no dump of ranks 0 and 3" in job["sentence"]


def test_a_rank_that_only_its_error_shows_counts_as_one_of_the_world(explain, tmp_path):
    """The dumps of ranks 0 and 1 know two ranks; rank 3 left an error on standard error, rank 2 nothing."""
    shutil.copytree(DATA / "dies_nested", tmp_path / "d", ignore=shutil.ignore_patterns("rank_3"))
    _, job = explain(tmp_path / "d")
    assert (job["ranks"], named(job)) == (4, {"waiting": [0, 1], "unknown": [2, 3]})


def test_words_of_a_time_out_with_dumps_are_no_jobs_of_their_own(explain):
    code, job = explain(*sorted((DATA / "timed_out").iterdir()))
    assert (code, named(job)) == (1, {"late": [0], "waiting": [1, 2, 3]})


@pytest.mark.parametrize("pattern", ["*", "*.txt"])
def test_files_that_are_named_one_by_one_are_one_job_as_their_folder_is(explain, pattern):
    """A shell's ``explain folder/*``: standard error of ranks next to their dumps is not a separate job."""
    code, job = explain(*sorted((DATA / "monitored").glob(pattern)))
    assert (code, job["diagnosis"], named(job)) == (1, "hang-late", {"late": [2], "waiting": [1, 3]})


def test_a_folder_with_the_words_of_torch_alone_is_read(capsys, tmp_path):
    """No dump and no NCCL line: gloo's message on standard error names the rank."""
    for path in (DATA / "monitored").glob("*.txt"):
        shutil.copy(path, tmp_path)
    assert main(["--format", "json", str(tmp_path)]) == 1
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert [2] in [job.get("late_ranks") for job in jobs]


def test_a_rank_that_went_on_is_in_no_operation(explain):
    """gloo's recorder does not mark every end: in this job, which completed, rank 0 has an open operation."""
    code, job = explain(DATA / "ended")
    assert (code, job["diagnosis"], named(job)) == (10, "hang-undecided", {})


def altered(folder, case, change):
    """Copy a case, and let ``change`` edit or (False) drop the entries of each dump."""
    shutil.copytree(DATA / case, folder)
    for rank in range(4):
        content = loads((folder / f"rank_{rank}").read_bytes())
        content["entries"] = [entry for entry in content["entries"] if change(rank, entry) is not False]
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    return folder


def test_a_dump_of_an_earlier_run_is_no_late_rank(explain, tmp_path):
    """All operations of rank 2 are an hour older: no operation was queued together."""

    def age(rank, entry):
        entry["time_created_ns"] -= 3600 * 10**9 if rank == 2 else 0

    _, job = explain(altered(tmp_path / "d", "timed_out_handled", age))
    assert (job["late_ranks"], "earlier run" in job["sentence"]) == ([], True), job["sentence"]


def test_who_waited_elsewhere_is_not_late(explain, tmp_path):
    """Rank 2 never reached TP1: therefore rank 3 was late for all others, and rank 2's state is unknown."""

    def never(rank, entry):
        return not (rank == 2 and entry["process_group"][1] == "TP1" and entry["collective_seq_id"] == 4)

    _, job = explain(altered(tmp_path / "d", "timed_out_chain", never))
    assert 3 not in job["late_ranks"], job["sentence"]


@pytest.mark.parametrize("change", [{"profiling_name": "gloo:broadcast"}, {"collective_seq_id": 7}])
def test_what_all_called_the_same_is_no_mismatch(explain, tmp_path, change):
    """These are near misses of the broadcast that rank 2 skipped."""

    def alike(rank, entry):
        if rank == 2 and entry["collective_seq_id"] == 6:
            entry.update(change)

    _, job = explain(altered(tmp_path / "d", "timed_out_skipped", alike))
    assert job["diagnosis"] != "hang-mismatch", job["sentence"]


def test_ranks_that_gave_up_are_said_to_have_waited(explain):
    """gloo counts sends and receives but records none: the late rank is unknown, but messages show waiting ranks."""
    code, job = explain(DATA / "timed_out_sends")
    assert (code, named(job)) == (1, {"waiting": [0, 1, 3]})  # their messages show the hang
    assert "waited for others" in job["sentence"], job["sentence"]


def test_a_rank_that_may_have_been_through_is_not_late(explain, tmp_path):
    """Rank 3's dump is older than the others' operations: it may have arrived since, and no failure is shown."""
    shutil.copytree(DATA / "sleeps_in_groups", tmp_path / "d")
    entries = [entry for rank in (1, 5) for entry in loads((tmp_path / "d" / f"rank_{rank}").read_bytes())["entries"]]
    os.utime(tmp_path / "d" / "rank_3", (before := max(e["time_created_ns"] for e in entries) / 1e9 - 1, before))
    _, job = explain(tmp_path / "d")
    assert 3 not in job["late_ranks"], job["sentence"]


def test_not_all_have_entered_where_nothing_shows_how_many_ranks_there_are(explain, tmp_path):
    """gloo's dumps list no members if there are several groups: they do not know rank 3, the last one."""
    code, job = explain(DATA / "last_killed_in_groups")
    assert (code, job["diagnosis"], named(job), job["ranks"]) == (1, "hang-dead", {"waiting": [0, 1, 2]}, None)
    assert job["sentence"].startswith("A process that left no dump is dead"), job["sentence"]
    shutil.copytree(DATA / "last_killed_in_groups", tmp_path / "d")
    for path in (tmp_path / "d").glob("log_*"):
        said = (DATA / "timed_out" / "log_1.txt").read_text()
        path.write_text(said.replace("[rank1]", f"[rank{path.stem[-1]}]"))
    code, job = explain(tmp_path / "d")
    assert (job["diagnosis"], job["dead_ranks"]) == ("hang", []), job["sentence"]
    assert "a rank without a dump may be late or dead" in job["sentence"], job["sentence"]


def test_a_rank_that_gave_up_leaves_open_which_side_is_wrong(explain, tmp_path):
    """Rank 2's message about its time-out does not change the result of the dumps."""
    shutil.copytree(DATA / "branch_extra", tmp_path / "d")
    said = (DATA / "timed_out" / "log_1.txt").read_text()
    (tmp_path / "d" / "log_2.txt").write_text(said.replace("[rank1]", "[rank2]"))
    code, job = explain(tmp_path / "d")
    assert (code, named(job)) == (1, {"waiting": [2], "unknown": [0, 1, 3]})
    assert "or rank 2 called one operation more" in job["sentence"]


def test_a_time_out_that_names_no_rank_proves_that_dumps_are_of_it(explain, tmp_path):
    """Copied dumps have the time of the copy; the dumps show the waiting ranks, and messages their time-out."""
    shutil.copytree(DATA / "logged", tmp_path / "d", copy_function=shutil.copy)
    assert explain(tmp_path / "d")[0] == 1
    for path in (tmp_path / "d").glob("log_*"):
        path.unlink()
    code, job = explain(tmp_path / "d")
    assert (code, job["late_ranks"]) == (10, [3])


def test_words_of_every_rank_with_its_dumps_are_one_job(explain):
    """Messages without ranks in the dumps' folder belong to that job."""
    assert len(explain(DATA / "logged")[1]["files"]) == 7


def test_words_with_the_dumps_of_two_jobs_are_of_either(capsys, tmp_path):
    shutil.copytree(DATA / "logged", tmp_path / "d")
    for path in (DATA / "sleep_first").glob("rank_*"):
        shutil.copy2(path, tmp_path / "d" / f"other_{path.name}")
    main(["--format", "json", str(tmp_path / "d")])
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert sorted(len(job["files"]) for job in jobs) == [1, 1, 1, 4, 4]


@pytest.mark.parametrize(
    ("front", "code", "diagnosis"), [("[rank1]: ", 1, "crash"), ("step 7, caught and tried again: ", 10, "no-evidence")]
)
def test_a_rank_that_ended_of_a_peer_that_closed_its_connection_is_a_crash(explain, tmp_path, front, code, diagnosis):
    """A single log without NCCL lines; torch's prefix of an error shows that it was not caught."""
    said = (DATA / "last_killed_in_groups" / "log_1.txt").read_text().partition("[rank1]: ")[2]
    (tmp_path / "log").write_text(f"Traceback (most recent call last):\n{front}{said}")
    exit_code, job = explain(tmp_path / "log")
    assert (exit_code, job["diagnosis"]) == (code, diagnosis), job["sentence"]


def test_of_two_ranks_without_a_dump_none_is_dead_for_a_closed_connection(explain, tmp_path):
    shutil.copytree(DATA / "logged_closed", tmp_path / "d", ignore=shutil.ignore_patterns("rank_1"))
    _, job = explain(tmp_path / "d")
    assert (job["dead_ranks"], job["unknown_ranks"]) == ([], [1, 4]), job["sentence"]


def test_a_rank_below_the_others_without_a_dump_is_one_of_the_job(explain, tmp_path):
    """Ranks 0 and 2 left no dump: rank 2, which was late, is not the only one that may be gone."""
    for name in ("rank_1", "rank_3", "log_1.txt", "log_2.txt"):
        shutil.copy2(DATA / "timed_out_chain" / name, tmp_path)
    _, job = explain(tmp_path)
    assert (job["dead_ranks"], job["unknown_ranks"]) == ([], [0, 2]), job["sentence"]


@pytest.mark.parametrize(
    "said", ["ValueError: bad sample", "RuntimeError: [/gloo/transport/tcp/pair.cc:5] Connection closed by peer"]
)
def test_what_the_late_rank_itself_ended_with_is_the_first_cause(explain, tmp_path, said):
    """The first cause is the late rank's exception; near miss: the loss of its peer does not explain its lateness."""
    shutil.copytree(DATA / "raises", tmp_path / "d")
    path = tmp_path / "d" / "log_2.txt"
    path.write_text(path.read_text().replace("ValueError: bad sample", said))
    _, job = explain(tmp_path / "d")
    own = said.startswith("ValueError")
    assert job["late_ranks"] == ([2] if own else [])
    assert ("bad sample" in str(job["causes"][:1])) == own, job["causes"]
    assert ("2" in job["places"] and "last_words" in job["places"]["2"]) == own


def test_a_rank_whose_dump_is_cut_is_not_called_dead(explain, tmp_path):
    """It wrote one: the rank that the others' standard error names remains the late one."""
    shutil.copytree(DATA / "monitored", tmp_path / "d", ignore=shutil.ignore_patterns("rank_0"))
    assert named(explain(tmp_path / "d")[1])["dead"] == [0]  # near miss: no dump at all
    whole = (DATA / "monitored" / "rank_0").read_bytes()
    (tmp_path / "d" / "rank_0").write_bytes(whole[: len(whole) // 2])
    code, job = explain(tmp_path / "d")
    assert (code, job["diagnosis"], named(job)) == (1, "hang-late", {"late": [2], "waiting": [1, 3], "unknown": [0]})


def test_a_hang_that_a_log_names_too_is_shown_once(explain):
    _, job = explain(DATA / "monitored")
    assert [fault["fault"] for fault in job["faults"]].count("nccl.hang-late") == 1
    causes = [cause["cause"] for cause in job["causes"]]
    assert len(causes) == len(set(causes))
