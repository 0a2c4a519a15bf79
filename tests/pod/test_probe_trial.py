"""The whole probe as a process: two pods on two loopback addresses, with simulated tools of a GPU image."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.pod.stages.capture import causes
from jobs.pod.stages.collective import _log_settings
from jobs.trial.pod import GRACE_S
from seatrial import logs as nccl
from tests.waiting import HANG_S, until

DATA = Path(__file__).parent / "data"
RECORDED = Path(__file__).parents[1] / "logs" / "data" / "torchrun"


def test_a_healthy_trial_shows_every_stage(pods) -> None:
    """All specified stages arrive in order on both ranks, and the termination message summarises them."""
    stages_of = pods.run()
    for rank in (0, 1):
        stages = stages_of[rank]
        assert list(stages) == [
            "start",
            "runtime",
            "rdma",
            "topology",
            "dns",
            "port",
            "network",
            "collective.ring",
            "collective.default",
            "end",
        ]
        assert stages["start"]["node"] == f"gpu-node-{rank}"
        assert stages["start"]["env"]["WORLD_SIZE"] == "2"
        assert [gpu["name"] for gpu in stages["runtime"]["gpus"]] == ["NVIDIA H200"] * 2
        assert [peer["pod_ip_matches"] for peer in stages["dns"]["peers"]] == [True, True]
        (peer,) = stages["port"]["peers"]
        assert (peer["outbound"], peer["inbound"], peer["index"]) == (True, True, 1 - rank)
        assert abs(peer["clock_skew_s"]) < 1
        ring = stages["collective.ring"]
        assert (ring["exit"], ring["timed_out"], ring["world_size"]) == (0, False, 4)
        assert len(ring["logs"]) == 2
        assert ring["log_bytes"] > 0
        assert ring["env"]["NCCL_ALGO"] == "Ring"
        assert "NCCL_ALGO" not in stages["collective.default"]["env"]
        message = json.loads((pods.scratch / f"message{rank}").read_text())
        assert message["stages"]["port"] == "ok"
        assert message["lines"] >= 8
    assert "algorithm Ring" in stages_of[0]["collective.ring"]["output_tail"]
    assert [path.name for path in pods.scratch.iterdir() if path.is_dir()] == [], (
        "nothing is left in the scratch folder"
    )


def test_the_analyzer_travels_with_the_probe(pods) -> None:
    """Each collective has the shipped analyzer's partial verdict, from which the suite can conclude."""
    pods.trial.update(gpus_per_node=1)
    stages_of = pods.run(FAKE_LOGS=str(DATA), FAKE_TABLE=str(DATA / "bench-table.txt"))
    assert [stages_of[rank]["collective.ring"]["error"] for rank in (0, 1)] == [None, None]
    partials = [nccl.Partial.from_dict(stages_of[rank]["collective.ring"]["nccl"]) for rank in (0, 1)]
    (job,) = nccl.conclude(nccl.merge(partials))
    assert (job["nccl_version"], job["ranks"], job["nodes"]) == ("2.28.9+cuda13.0", 2, 2)
    assert (job["inter_node_transport"], job["socket_fallback"]) == ("socket", True)
    rows = job["tables"][0]["rows"]
    assert [row["size_bytes"] for row in rows] == [1 << 20, 1 << 30]
    assert [row["out_of_place"] for row in rows] == [None, None]
    assert rows[1]["in_place"]["busbw_gbps"] == 480.21
    assert rows[1]["in_place"]["wrong"] == 0


def test_a_hanging_collective_ends_in_time_with_its_evidence(pods) -> None:
    """A hang costs the collective's time-out once: the next collective is skipped, and no process remains."""
    late = pods.clock("collective")
    pods.hang()
    late.touch()
    stages_of = {rank: pods.stages(rank) for rank in (0, 1)}
    for rank in (0, 1):
        ring = stages_of[rank]["collective.ring"]
        assert ring["timed_out"] is True
        assert ring["exit"] is None
        assert len(ring["logs"]) == 2
        assert "asked to end" not in ring["output_tail"]
        assert nccl.conclude(nccl.Partial.from_dict(ring["nccl"]))[0]["hang"] is True
        assert "did not end" in stages_of[rank]["collective.default"]["skipped"]


def test_a_failed_rank_ends_the_collective_of_all(pods) -> None:
    """When one rank's command fails the others are stopped soon, before their deadline; secrets in its output are
    redacted."""
    run = pods.here / "stages" / "collective.py"
    run.write_text(run.read_text().replace("PEER_GRACE_S = 15.0", "PEER_GRACE_S = 0.5"))
    stages_of = pods.run(FAKE_MODE="crash")
    assert stages_of[1]["collective.ring"]["exit"] == 1
    assert "illegal memory access" in stages_of[1]["collective.ring"]["output_tail"]
    assert "abcdef123456" not in stages_of[1]["collective.ring"]["output_tail"]
    assert stages_of[0]["collective.ring"]["stopped"] == "rank 1: its command ended with exit code 1"
    assert stages_of[0]["collective.ring"]["timed_out"] is False


def test_the_cause_is_kept_where_torchruns_own_words_fill_the_end(pods) -> None:
    """torchrun's table of exit codes is longer than the kept end; the next collective would fail in the same way and is
    not run."""
    stages_of = pods.run(FAKE_MODE="recorded", FAKE_SAYS=str(RECORDED / "no-gpu.log"))
    for rank in (0, 1):
        ring, default = stages_of[rank]["collective.ring"], stages_of[rank]["collective.default"]
        assert ring["exit"] == 1 or ring["stopped"]
        assert "rank 1 failed: RuntimeError: torch 2.13.0+cpu finds no usable GPU" in ring["output_tail"]
        assert "Root Cause (first observed failure)" in ring["output_tail"]
        assert len(ring["output_tail"]) <= 2300
        assert "blocked by collective.ring, which failed before NCCL began: RuntimeError: torch" in default["skipped"]


def test_two_collectives_that_fail_the_same_way_are_enough(pods) -> None:
    """Within NCCL the first failure may concern the algorithm; two failures with the same text do not."""
    pods.trial["collectives"] = [dict(pods.trial["collectives"][0], name=name) for name in ("ring", "default", "third")]
    stages_of = pods.run(FAKE_MODE="late")
    assert stages_of[0]["collective.default"]["exit"] == 1
    assert (
        "blocked by collective.ring and collective.default, with the same failure: RuntimeError: CUDA error"
        in stages_of[0]["collective.third"]["skipped"]
    )


@pytest.mark.parametrize(
    ("name", "first"),
    [("no-gpu", "# seatrial bench: rank 1 failed: "), ("exception", "[rank2]: ValueError: "), ("signal", "")],
)
def test_the_lines_that_say_why_are_found(name: str, first: str) -> None:
    """A real torchrun's output yields the program's messages, each kind once, without torchrun's summary."""
    said = causes((RECORDED / f"{name}.log").read_text())
    assert len(said) == {"no-gpu": 1, "exception": 2, "signal": 0}[name]
    assert not said or said[0].startswith(first)
    assert not any("ChildFailedError" in line for line in said)


def test_workers_in_sessions_of_their_own_do_not_survive(pods) -> None:
    """torchrun's workers have their own sessions and may ignore SIGTERM: they are still ended."""
    pids = pods.scratch / "pids"
    stages_of = pods.run(FAKE_MODE="orphans", FAKE_PIDS=str(pids))
    assert stages_of[0]["collective.ring"]["exit"] == 0
    started = [int(line) for line in pids.read_text().split()]
    assert len(started) == 4
    assert not [pid for pid in started if pods.alive(pid)]


def test_endless_output_fills_nothing(pods) -> None:
    """Output is drained and bounded; its size is reported and its end is shown."""
    stages_of = pods.run(FAKE_MODE="spam")
    ring = stages_of[0]["collective.ring"]
    assert ring["exit"] == 0
    assert ring["output_bytes"] > 64 * 65536 - 1
    assert ring["output_tail"].rstrip().endswith("algorithm Ring")
    assert len(ring["output_tail"]) <= 2000


def test_a_torchrun_before_2_1_gets_underscores(pods) -> None:
    """Old torch knows --nproc_per_node only: the probe detects the usage error and retries."""
    stages_of = pods.run(FAKE_MODE="old")
    ring = stages_of[1]["collective.ring"]
    assert ring["exit"] == 0
    assert "--nproc_per_node=2" in ring["command"]


def test_without_torchrun_the_collective_is_skipped_on_all_ranks(pods) -> None:
    """Every rank reports an image without torch as such."""
    (pods.bin / "torchrun").unlink()
    for name in ("python3", "python"):
        pods.tool(name, "import sys; sys.exit(1)")
    run = pods.here / "stages" / "collective.py"
    run.write_text(run.read_text().replace('sys.executable, "/opt/conda/bin/python3"', '""'))
    stages_of = pods.run()
    for rank in (0, 1):
        assert "torchrun" in stages_of[rank]["collective.ring"]["skipped"]


def test_sigterm_prints_what_there_is(pods) -> None:
    """On SIGTERM the probe ends its children, prints the current stage and its end, and fails: 128 + SIGTERM."""
    processes = [pods.start(rank, FAKE_MODE="hang") for rank in (0, 1)]
    lines = []
    for line in processes[0].stdout:
        lines.append(line)
        if b"collective.ring starts" in line:
            break
    children = [f"/proc/{process.pid}/task" for process in processes]
    until(
        lambda: all(any(t.read_text() for t in Path(p).glob("*/children")) for p in children), "the collective of each"
    )
    for process in processes:
        process.send_signal(signal.SIGTERM)
    rest, _ = processes[0].communicate(timeout=HANG_S)
    stages = pods.evidence(b"".join(lines) + rest, 0)
    assert processes[0].returncode == 143
    assert stages["collective.ring"]["stopped"] == "SIGTERM"
    assert stages["collective.default"]["skipped"] == "stopped: SIGTERM"
    assert stages["end"]["stopped"] == "SIGTERM"
    assert processes[1].wait(timeout=HANG_S) == 143


def test_a_probe_that_is_asked_to_stop_ends_within_the_pods_grace_period(pods) -> None:
    """The evidence is printed, with the probe's own exit code, before SIGKILL, also if no child process obeys."""
    pods.trial.update(nodes=1, peers=["127.0.0.1"])
    pods.tool("nvidia-smi", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")
    process = pods.start(0)
    assert any(b'"stage":"start"' in line for line in process.stdout)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 143
    assert time.monotonic() - began < GRACE_S
    assert b'"stage":"end"' in rest
    assert json.loads((pods.scratch / "message0").read_text())["lines"]


def test_what_was_reported_in_full_is_not_undone_by_a_late_signal(pods) -> None:
    """A pod that is deleted during the probe's clean-up has completed its work: 0."""
    pods.trial.update(nodes=1, peers=["127.0.0.1"], collectives=[])
    run = pods.here / "stages" / "run.py"
    run.write_text(
        run.read_text().replace(
            "writer.message()", "writer.message(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.1)"
        )
    )
    process = pods.start(0)
    out, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert pods.evidence(out, 0)["end"]["stopped"] is None


@pytest.mark.parametrize("first", ["own", "namespace"])
def test_a_signal_before_the_first_stage_ends_the_probe_too(pods, first) -> None:
    """Python needs a moment to load the probe; a container's first process would ignore SIGTERM without a handler."""
    (pods.here / "stages" / "run.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(6000)\n")
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"] if first == "namespace" else []
    if alone and subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine grants no process namespaces")
    pods.seal()
    command = [*alone, sys.executable, str(pods.archive)]
    pods.processes[0] = process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout.readline() == b"importing\n"
    target = process.pid
    if alone:
        target = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    os.kill(target, signal.SIGTERM)
    assert process.wait(timeout=HANG_S) == 143


def test_the_probe_keeps_its_own_deadline(pods) -> None:
    """Before its deadline the probe has printed everything and ended, even if a collective would take longer."""
    late = pods.clock("deadline")
    pods.hang()
    late.touch()
    stages = pods.stages(0)
    assert stages["end"]["stopped"] == "the probe's own deadline"
    assert stages["collective.ring"]["timed_out"] is True
    assert stages["collective.ring"]["seconds"] < pods.trial["collective_timeout_s"]


def test_a_hung_nvidia_smi_is_left_behind(pods) -> None:
    """A hanging driver costs the query's time limit, and the later stages still run."""
    pods.tool("nvidia-smi", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")
    gpus = pods.here / "stages" / "gpus.py"
    gpus.write_text(gpus.read_text().replace("QUERY_TIMEOUT_S = 60", "QUERY_TIMEOUT_S = 1"))
    pods.trial["collectives"] = []
    stages_of = pods.run()
    smi = stages_of[0]["runtime"]["nvidia_smi"]
    assert smi["found"] is True
    assert smi["exit"] is None
    assert "did not end within 1 s" in smi["error"]
    assert stages_of[0]["port"]["peers"][0]["outbound"] is True


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema": 2}, "schema 2"),
        ({"peers": []}, "peers"),
        ({"nodes": 3}, "3 nodes but 2 peers"),
        ({"master_port": "x"}, "master_port"),
        ({"collectives": [{"name": "../x"}]}, "a collective needs a name"),
    ],
    ids=["schema", "peers", "nodes", "port", "collective"],
)
def test_a_wrong_trial_is_one_clear_line(pods, change, sentence) -> None:
    """An unusable trial.json ends the probe with one line that gives the reason, and no traceback."""
    pods.trial.update(change)
    process = pods.start(0)
    out, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 66
    assert sentence in out.decode()
    assert out.count(b"\n") == 1


def test_a_pod_without_an_index_says_so(pods) -> None:
    """Without a completion index no rank is assumed."""
    process = pods.start(0, JOB_COMPLETION_INDEX="", NODE_RANK="")
    out, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 66
    assert b"JOB_COMPLETION_INDEX" in out


def test_an_old_python_is_named(pods) -> None:
    """A Python before 3.8 gets a start stage with the requirement, not a syntax error."""
    pods.seal()
    old = next((Path.home() / ".pyenv" / "versions").glob("3.[67].*/bin/python"), None)
    if old is None:
        pytest.skip("no Python older than 3.8 below ~/.pyenv/versions")
    done = subprocess.run(
        [old, pods.archive], capture_output=True, timeout=HANG_S, env={"SEATRIAL_RUN": "r-test"}, check=False
    )
    assert done.returncode == 65
    assert "too old" in json.loads(done.stdout)["data"]["error"]


def test_a_torchrun_that_cannot_be_started_is_reported(pods) -> None:
    """A launcher for another architecture, or one without execute permission: its own reason, not a missing file."""
    pods.tool("torchrun", "").write_bytes(b"\x7fELF no program")
    stages_of = pods.run()
    for rank in (0, 1):
        assert stages_of[rank]["collective.ring"]["error"].startswith("cannot start ")
        assert "Exec format error" in stages_of[rank]["collective.ring"]["error"]


@pytest.mark.parametrize(
    ("env", "level", "subsystems"),
    [
        ({}, "INFO", {"INIT", "NET", "ENV"}),
        ({"NCCL_DEBUG": "warn"}, "INFO", {"INIT", "NET"}),
        ({"NCCL_DEBUG": "VERSION", "NCCL_DEBUG_SUBSYS": "COLL"}, "INFO", {"INIT", "NET", "COLL"}),
        ({"NCCL_DEBUG": "trace", "NCCL_DEBUG_SUBSYS": "all"}, "TRACE", {"ALL"}),
        ({"NCCL_DEBUG_SUBSYS": "^NET,COLL"}, "INFO", {"^COLL"}),
        ({"NCCL_DEBUG_SUBSYS": "^NET"}, "INFO", {"ALL"}),
        ({"NCCL_DEBUG_SUBSYS": "^ALL"}, "INFO", {"ALL"}),
    ],
)
def test_a_quiet_log_is_raised_for_the_collectives(env: dict, level: str, subsystems: set) -> None:
    """Whatever profile, image or webhook set, NCCL logs its transports; a higher level is kept."""
    settings = _log_settings(env)
    assert settings["NCCL_DEBUG"] == level
    assert subsystems <= set(settings["NCCL_DEBUG_SUBSYS"].split(","))
