"""The checkpoint stage: saved, flushed, verified on another node, torn, resumed, removed; with torch if available."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from checks.profiles.schema import CheckpointSection
from checks.rules.checkpoint import resumed_findings, saved_findings
from jobs.pod.stages import checkpoint
from jobs.trial.parts import CheckpointSpec
from tests.waiting import HANG_S, until

# Simulates torchrun and the ranks of a checkpoint: files, facts, and a SIGKILL report.
STANDIN = r"""
import json, os, sys
told = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
steps = [int(word.partition("=")[2]) for word in sys.argv[1:] if word.startswith("--step=")]
node, local = int(told["node-rank"]), int(told["nproc-per-node"])
ranks = range(node * local, (node + 1) * local)
facts = {rank: {"rank": rank, "saves": []} for rank in ranks}
for step in steps:
    place = os.path.join(told["folder"], "step-%d" % step)
    for rank in ranks:
        name = os.path.join(place, "__%d_0.distcp" % rank)
        if told["mode"] == "load":
            open(name, "rb").close()
            facts[rank].update(loaded=step, wrong=0)
            continue
        os.makedirs(place, exist_ok=True)
        if os.environ.get("LOSES") == str(rank):
            continue
        with open(name, "wb") as file:
            file.write(os.urandom(int(told["bytes"]) // (2 if told["mode"] == "die" else 1)))
        facts[rank]["saves"].append({"step": step, "bytes": int(told["bytes"]), "pause_s": 0.1, "write_s": 0.1})
    if told["mode"] == "save" and node == 0:
        open(os.path.join(place, ".metadata"), "wb").close()
for number, rank in enumerate(ranks):
    with open("%s.%d" % (os.environ["SEATRIAL_BENCH_FACTS"], number), "w") as file:
        json.dump(facts[rank], file)
if os.environ.get("STAYS") == told["mode"]:
    import time
    time.sleep(6000)
sys.exit(1 if told["mode"] == "die" else 0)
"""
WAY = ["writing", "local", "flushing", "durable", "verified"]


def asks(path: Path, local: Path | None = None, **changes) -> dict:
    made = {"path": str(path), "local": str(local or ""), "shared": True, "kinds": {"path": "claim"}}
    return {**made, "bytes": 1 << 20, "limit_s": HANG_S, **changes}


def left(*folders: Path) -> list[str]:
    return [str(each) for folder in folders for each in folder.glob(".seatrial-*")]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Return a shared path and a node-local one."""
    made = tmp_path / "shared", tmp_path / "node"
    for each in made:
        each.mkdir()
    return made


def test_a_step_goes_from_writing_to_verified_and_a_torn_one_is_passed_over(pods, places) -> None:
    pods.tool("torchrun", STANDIN)
    pods.trial.update(checkpoint=asks(*places), collectives=[])
    for rank, stages in pods.run().items():
        saved = stages["checkpoint"]
        assert [each["state"] for each in saved["states"] if each["step"] == 2] == WAY
        assert (saved["verified"]["peer"], saved["verified"]["ok"]) == (1 - rank, True)
        assert saved["crash"]["torn"] is True
        assert (saved["resume"]["step"], saved["resume"]["wrong"]) == (2, 0)
        assert saved["resume"]["passed_over"] == [{"step": 3, "state": "writing", "at": None}]
        assert saved["flush"]["bytes"] >= 1 << 20
    assert left(*places) == []


@pytest.mark.parametrize("lost", ["0", "3"])
def test_a_step_that_lacks_the_file_of_a_rank_is_never_durable(pods, places, lost: str) -> None:
    """Every rank reported a successful save; a job that resumes from these files would lack a part of its state."""
    pods.tool("torchrun", STANDIN)
    pods.trial.update(checkpoint=asks(*places), collectives=[])
    for rank in range(2):
        pods.start(rank, LOSES=lost)
    checkpoints = [pods.stages(rank)["checkpoint"] for rank in range(2)]
    assert all(f"nothing of rank {lost}" in each["error"] for each in checkpoints)
    assert {each["states"][-1]["state"] for each in checkpoints} == {"flushing"}
    assert not any(each["verified"] or each["resume"] for each in checkpoints)
    assert left(*places) == []


@pytest.mark.parametrize(("does", "error"), [("vanishes", "ENOENT"), ("shrinks", ""), ("stays", None)])
def test_a_part_that_is_gone_or_cut_after_it_was_durable_is_not_verified(tmp_path: Path, does: str, error) -> None:
    """The other node reads the step back: a missing or shorter file does not match its writer's checksum."""
    one = object.__new__(checkpoint.Checkpoint)
    one.durable = str(tmp_path)
    one.me, one.trial = SimpleNamespace(rank=0), SimpleNamespace(nodes=2)  # type: ignore[assignment]
    one.watch = SimpleNamespace(stopped=lambda: False)  # type: ignore[assignment]
    step = tmp_path / "step-2"
    step.mkdir()
    parts = [step / "__2_0.distcp", step / "__3_0.distcp"]
    for part in parts:
        part.write_bytes(os.urandom(1 << 16))
    (tmp_path / "sums-1").write_text(json.dumps({each.name: checkpoint.digest(str(each)) for each in parts}))
    if does == "vanishes":
        parts[1].unlink()
    elif does == "shrinks":
        os.truncate(parts[1], 1 << 15)
    data: dict = {}
    one._verify(data, {})
    verified = data["verified"]
    assert verified["ok"] is (does == "stays")
    assert verified["bad"] == ([parts[1].name] if does == "shrinks" else [])
    assert (error or "") in (verified["error"] or "")


@pytest.mark.slow
def test_real_torch_saves_tears_and_resumes(pods, places, torch_python: str) -> None:
    """Two pods of two ranks over gloo save DTensors by torch.distributed.checkpoint; one rank is killed by SIGKILL, and
    all values are correct."""
    (pods.bin / "torchrun").unlink()
    launcher = shutil.which("torchrun", path=str(Path(torch_python).parent))
    pods.bin.joinpath("torchrun").symlink_to(launcher or pytest.skip("this torch has no torchrun"))
    pods.trial.update(checkpoint=asks(places[0], bytes=8 << 20, limit_s=600), collectives=[], gpu_kind="none")
    stages_of = pods.run()
    trial = SimpleNamespace(
        replicas=(), evidence={r: SimpleNamespace(stages=stages) for r, stages in stages_of.items()}
    )
    spec = SimpleNamespace(nodes=2, gpus_per_node=2, checkpoint=CheckpointSpec(path=str(places[0]), bytes=8 << 20))
    judged = [*saved_findings(trial, spec, CheckpointSection()), *resumed_findings(trial, spec)]  # type: ignore[arg-type]
    assert [each.ok for each in judged] == [True] * 4, judged
    for stages in stages_of.values():
        saved = stages["checkpoint"]
        assert saved["error"] is None
        assert [each["state"] for each in saved["states"] if each["step"] == 2] == ["writing", "durable", "verified"]
        assert all(each["saves"][-1]["bytes"] >= 8 << 20 for each in saved["ranks"])
        assert (saved["crash"]["torn"], saved["crash"]["exit"]) == (True, 1)
        assert (saved["resume"]["step"], saved["resume"]["wrong"], saved["resume"]["error"]) == (2, 0, None)
    assert left(*places) == []


def test_no_room_is_said_before_anything_is_written(pods, places) -> None:
    pods.tool("torchrun", STANDIN)
    pods.trial.update(checkpoint=asks(places[0], bytes=1 << 33), collectives=[])
    stage = pods.here / "stages" / "checkpoint.py"
    stage.write_text(
        stage.read_text().replace('self.asked["bytes"] * ranks * 3', 'self.asked["bytes"] * ranks * 3 << 20')
    )
    for stages in pods.run().values():
        assert "of the free space" in stages["checkpoint"]["skipped"]
    assert left(*places) == []


def test_a_pod_that_is_asked_to_stop_leaves_nothing(pods, places) -> None:
    pods.tool("torchrun", STANDIN)
    pods.trial.update(checkpoint=asks(*places), collectives=[])
    for rank in range(2):
        pods.start(rank, STAYS="save")
    until(lambda: len(list(places[1].glob(".seatrial-*/step-2/__*"))) == 4, "the files of all ranks")
    for process in pods.processes.values():
        process.send_signal(signal.SIGTERM)
    for rank in range(2):
        pods.stages(rank, code=143)
    assert left(*places) == []


def test_a_killed_runs_folder_is_removed_once_it_is_old_and_nothing_else(tmp_path: Path) -> None:
    """A leftover folder has our name and mark, and is older than any stage's limit by the file system's clock; all
    other files stay."""

    def folder(name: str, run: str | None, age_s: float) -> None:
        made = tmp_path / name
        made.mkdir()
        (made / "step-2").mkdir()
        if run is not None:
            (made / checkpoint.MARK).write_text(run + "\n")
            then = time.time() - age_s
            os.utime(made / checkpoint.MARK, (then, then))

    folder(".seatrial-dead-checkpoint", "dead", 4000)
    left_alone = {".seatrial-alive-checkpoint": ("alive", 1200), ".seatrial-foreign-checkpoint": ("other", 4000)}
    left_alone |= {".seatrial-new-checkpoint": ("new", 0)}
    left_alone |= {".seatrial-bare-checkpoint": (None, 0), "model-checkpoint": ("model", 4000), "step-2": (None, 0)}
    for name, contents in left_alone.items():
        folder(name, *contents)
    (tmp_path / ".seatrial-link-checkpoint").symlink_to(tmp_path / "model-checkpoint")
    assert checkpoint.leftovers(str(tmp_path)) == [".seatrial-dead-checkpoint"]
    assert {each.name for each in tmp_path.iterdir()} == {*left_alone, ".seatrial-link-checkpoint"}


def test_a_changed_byte_changes_the_checksum(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(os.urandom(5 << 20))
    assert checkpoint.copied(str(first), str(second)) == checkpoint.digest(str(second))
    with second.open("r+b") as file:
        file.seek(4 << 20)
        file.write(b"\0\0\0\0\0\0\0\0")
    assert checkpoint.digest(str(first)) != checkpoint.digest(str(second))


def test_states_that_cannot_be_read_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "step-2.state").write_text("verified\n")
    (tmp_path / "step-3.state").write_bytes(b"\xff\xfe")
    (tmp_path / "step-x.state").write_text("verified\n")
    assert checkpoint.states_of(str(tmp_path)) == {2: "verified"}
    assert checkpoint.states_of(str(tmp_path / "none")) == {}
