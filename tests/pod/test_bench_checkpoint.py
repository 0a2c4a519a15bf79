"""The checkpoint's program on real ranks: saved data is loaded, torn data and data of another step are not accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.pod.bench import checkpoint

SIZE = 1 << 20

pytestmark = pytest.mark.slow


@pytest.fixture
def runs(ranks, tmp_path: Path):
    """Return a function that runs the program in a mode over steps and returns the ranks' exits and files."""

    def run(mode: str, *steps: int, count: int = 2, before: str = "", **env: str):
        facts = [tmp_path / f"facts.{rank}" for rank in range(count)]
        for each in facts:
            each.unlink(missing_ok=True)
        options = [f"--mode={mode}", f"--folder={tmp_path}", f"--bytes={SIZE}", *(f"--step={step}" for step in steps)]
        ended = ranks.run(
            "checkpoint",
            *options,
            ranks=count,
            before=before,
            **{"SEATRIAL_BENCH_FACTS": str(tmp_path / "facts"), **env},
        )
        return ended, [json.loads(each.read_text()) for each in facts if each.exists()]

    return run


def test_what_all_ranks_saved_is_loaded(runs, tmp_path: Path) -> None:
    """Each rank has its own file of the requested size; both steps load, each with its own values."""
    ended, saved = runs("save", 1, 2, count=3)
    assert [each.code for each in ended] == [0] * 3, ended[0].out
    for rank, facts in enumerate(saved):
        assert [each["step"] for each in facts["saves"]] == [1, 2]
        assert facts["rank"] == rank
        assert all(each["bytes"] >= SIZE for each in facts["saves"])
        assert all(each["pause_s"] >= each["write_s"] > 0 for each in facts["saves"])
    assert (tmp_path / "step-2" / ".metadata").exists()
    for step in (1, 2):
        ended, loaded = runs("load", step, count=3)
        assert [each.code for each in ended] == [0] * 3, ended[0].out
        assert [(each["loaded"], each["wrong"]) for each in loaded] == [(step, 0)] * 3


def test_the_values_of_another_step_are_all_wrong(runs, tmp_path: Path) -> None:
    """Storage that returns older content is detected on every rank."""
    runs("save", 1)
    (tmp_path / "step-1").rename(tmp_path / "step-2")
    ended, loaded = runs("load", 2)
    assert [each.code for each in ended] == [0, 0], ended[0].out
    values = SIZE // 4
    assert all(each["wrong"] > 0.99 * values for each in loaded)


def test_a_changed_value_is_counted(runs, tmp_path: Path) -> None:
    runs("save", 1)
    file = tmp_path / "step-1" / "__1_0.distcp"
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4] = bytes(byte ^ 0x55 for byte in content[middle : middle + 4])
    file.write_bytes(content)
    ended, loaded = runs("load", 1)
    assert all(each.code or facts["wrong"] for each, facts in zip(ended[1:], loaded[1:] or [{}], strict=True))
    if not ended[0].code:
        assert loaded[0]["wrong"] == 0


def test_the_last_rank_dies_in_the_middle_and_no_index_is_left(runs, tmp_path: Path) -> None:
    """The others end with their own errors, and a part of the crashed rank's file exists."""
    ended, saved = runs("die", 3)
    assert [each.code for each in ended] == [1, -9]
    assert ended[0].out.startswith("# seatrial bench: rank 0 failed: ")
    assert saved == []
    assert not (tmp_path / "step-3" / ".metadata").exists()
    assert 0 < (tmp_path / "step-3" / "__1_0.distcp").stat().st_size < SIZE
    ended, loaded = runs("load", 3)
    assert [each.code for each in ended] == [1, 1]
    assert loaded == []


def test_a_file_that_cannot_be_written_is_every_ranks_failure(runs, tmp_path: Path) -> None:
    """The file system's error text reaches the judged line."""
    before = """
import os
real = os.fsync
def full(descriptor):
    if rank == 1:
        raise OSError(28, "No space left on device")
    real(descriptor)
os.fsync = full
"""
    ended, saved = runs("save", 1, before=before)
    assert [each.code for each in ended] == [1, 1]
    for rank, each in enumerate(ended):
        why = f"rank {rank} failed: at rank 1: OSError: [Errno 28] No space left on device\n"
        assert each.out == f"# seatrial bench: {why}"
    assert saved == []


def test_a_gpu_that_torch_cannot_use_is_a_failure(runs) -> None:
    ended, _ = runs("save", 1, count=1, before="torch.cuda.is_available = lambda: False", SEATRIAL_BENCH_DEVICE="cuda")
    assert ended[0].code == 1
    assert "finds no usable GPU" in ended[0].out


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        (None, "Failed: a b"),
        ({}, "Failed: a b"),
        (
            {3: (OSError(122, "Disk quota exceeded"), None), 7: (ValueError("x"), None)},
            "at rank 3: OSError: [Errno 122]",
        ),
    ],
)
def test_a_reason_is_one_line(failures: dict | None, said: str) -> None:
    """The judged line contains the reason without a traceback."""

    class Failed(BaseException):
        pass

    error = Failed("a\nb")
    error.failures = failures  # type: ignore[attr-defined]
    assert checkpoint.reason(error).startswith(said)
    assert "\n" not in checkpoint.reason(error)


def test_a_state_has_whole_rows() -> None:
    """checks/rules/checkpoint.py allows a rank to save slightly less than requested."""
    assert SIZE % (checkpoint.TENSORS * checkpoint.ROW_BYTES) == 0
