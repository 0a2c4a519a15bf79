"""`accept --command`: the user's own program runs in the trial's pods, and is judged by its log."""

import json
import shlex

import pytest

from tests.program import seatrial

TRAIN = "torchrun bench.py measure --max-bytes=8589934592 --iters=2"


@pytest.fixture
def accept(tmp_path):
    def run(command, scenario="healthy", *more):
        done = seatrial(
            "accept", "--cluster", f"sim:{scenario}", "--out", str(tmp_path / "out"), "--command", command, *more
        )
        return done, json.loads((tmp_path / "out" / "report.json").read_text())

    return run


def outcomes(record):
    return {check["id"]: check["outcome"] for check in record["checks"] if check["id"].startswith("nccl.")}


def finding(record, check_id):
    (check,) = [check for check in record["checks"] if check["id"] == check_id]
    return check["findings"][0], check["notes"]


def test_a_program_that_shows_the_fabric_is_go_and_no_acceptance(accept):
    """Transport, rails and bandwidth are judged; a gate refuses the run, since other checks did not run."""
    done, record = accept(TRAIN)
    assert done.returncode == 0, done.stdout + done.stderr
    got = outcomes(record)
    for name in ("completed", "transport", "gdr", "ranks", "rails", "fabric", "bandwidth-default", "correctness"):
        assert got[f"nccl.{name}"] == "passed", name
    assert got["nccl.bandwidth-ring"] == got["nccl.bandwidth-node"] == "skipped"
    assert record["scope"] == "partial" and record["selection"].startswith("--command ")


def test_a_program_on_sockets_is_no_go(accept):
    done, record = accept(TRAIN, "socket-fallback")
    assert done.returncode == 1, done.stdout
    assert outcomes(record)["nccl.transport"] == "failed"
    assert finding(record, "nccl.transport")[0]["fault"] == "nccl.socket-fallback"


@pytest.mark.slow
def test_a_program_below_the_floors_is_no_go(accept):
    done, record = accept(TRAIN, "low-bandwidth")
    assert done.returncode == 1, done.stdout
    assert outcomes(record)["nccl.bandwidth-default"] == "failed"


def test_a_program_with_a_traceback_is_reported_by_its_last_words(accept):
    """No fault is raised, since the network was not judged."""
    script = 'raise ValueError("no shard 7")'
    done, record = accept(f"python3 -c '{script}'")
    assert done.returncode == 10, done.stdout
    found, notes = finding(record, "nccl.completed")
    assert (found["ok"], found["fault"]) == (None, "nccl.own-program")
    assert "exit code 1" in found["observed"] and "ValueError: no shard 7" in found["observed"]
    assert any(note.endswith("ValueError: no shard 7") for note in notes)
    image, said = record["trial"]["image"], shlex.quote(f"python3 -c '{script}'")
    assert record["faults"]["nccl.own-program"]["confirm"] == (f"seatrial job run --image {image} --gpus 1 -- {said}")
    assert outcomes(record)["nccl.transport"] == "blocked" or finding(record, "nccl.transport")[0]["ok"] is None


@pytest.mark.parametrize("command", ["true", pytest.param("echo all is well", marks=pytest.mark.slow)])
def test_a_program_that_shows_nothing_is_never_green(accept, command):
    done, record = accept(command)
    assert done.returncode == 10, done.stdout
    for name in ("nccl.completed", "nccl.transport"):
        found, _ = finding(record, name)
        assert (found["ok"], found["fault"]) == (None, "nccl.nothing-shown")
    assert "passed" not in {state for name, state in outcomes(record).items() if name != "nccl.other"}


HOST_NETWORK = "extends: h100-ib\npod: {host_network: true}\n"


@pytest.mark.parametrize("printed", [False, True], ids=["written", "printed"])
def test_on_the_hosts_network_only_what_ranks_write_to_their_files_counts(accept, tmp_path, printed):
    """The log of an earlier run names the same hosts: what a program prints may be a copy of it."""
    (tmp_path / "profile.yaml").write_text(HOST_NETWORK)
    command = f"env -u NCCL_DEBUG_FILE {TRAIN}" if printed else TRAIN
    done, record = accept(command, "healthy", "--profile", str(tmp_path / "profile.yaml"))
    assert done.returncode == (10 if printed else 0), done.stdout + done.stderr
    found, _ = finding(record, "nccl.transport")
    assert (found["ok"], found["fault"]) == ((None, "nccl.nothing-shown") if printed else (True, ""))


def test_a_program_without_a_table_has_shown_no_bandwidth(accept):
    done, record = accept(f"{TRAIN} > /dev/null")
    assert done.returncode == 10, done.stdout
    got = outcomes(record)
    assert (got["nccl.completed"], got["nccl.transport"]) == ("passed", "passed")
    assert got["nccl.bandwidth-default"] == got["nccl.correctness"] == "error"


@pytest.mark.slow
def test_a_program_that_goes_on_is_not_taken_for_a_hang(accept):
    done, record = accept("sleep 300")
    assert done.returncode == 10, done.stdout
    found, _ = finding(record, "nccl.completed")
    assert found["ok"] is None and "still running after" in found["observed"]


def test_the_program_finds_what_a_job_of_its_own_would(accept):
    """The program has both rendezvous conventions, the image's own folder, and NCCL's log."""
    done, record = accept("echo $WORLD_SIZE $NODE_RANK $PET_NNODES $PET_NODE_RANK $NPROC_PER_NODE $NCCL_DEBUG; exit 3")
    assert done.returncode == 10
    _, notes = finding(record, "nccl.completed")
    said = {note.partition(": ")[2] for note in notes}
    assert said <= {"2 0 2 0 8 INFO", "2 1 2 1 8 INFO"} and said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("accept", "--command", " "), "--command is empty"),
        (("preflight", "--command", "true"), "--command is an option of seatrial accept"),
        (("sweep", "--command", "true"), "--command is an option of seatrial accept"),
    ],
    ids=["empty", "preflight", "sweep"],
)
def test_a_command_where_none_can_be_run_is_a_usage_error(arguments, words):
    done = seatrial(*arguments, "--cluster", "sim:healthy")
    assert done.returncode == 4 and words in done.stderr
