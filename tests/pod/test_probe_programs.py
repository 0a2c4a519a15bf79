"""The program of a collective: torch if available, nccl-tests if they can run, else the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobs.pod.stages import programs, spec

if TYPE_CHECKING:
    from pathlib import Path

ME = spec.Identity(1, "10.0.0.2", "gpu-node-1", "pod-1")
FIRST = spec.Identity(0, "10.0.0.1", "gpu-node-0", "pod-0")


@pytest.fixture
def image(tmp_path: Path, monkeypatch):
    """Create an image with only the named programs."""
    monkeypatch.setattr(programs, "FOLDERS", (str(tmp_path / "build"),))
    torchrun = tmp_path / "torchrun"
    monkeypatch.setattr(programs, "torch_launcher", lambda _: [str(torchrun)] if torchrun.exists() else None)

    def make(*names: str) -> dict[str, str]:
        for name in names:
            file = tmp_path / ("build/" if name.endswith("_perf") else "") / name
            file.parent.mkdir(exist_ok=True)
            file.write_text("#!/bin/sh\n")
            file.chmod(0o755)
        return {"PATH": str(tmp_path), "NCCL_DEBUG": "INFO", "LD_LIBRARY_PATH": "/x"}

    return make


def asked(raw: dict, **changes) -> spec.Trial:
    chosen = {"name": "ring", "op": "all_reduce", "env": {"NCCL_ALGO": "Ring"}, "repeats": 2}
    whole = {key: changes[key] for key in ("launcher", "program") if key in changes}
    return spec.Trial(dict(raw, collectives=[dict(chosen, **changes)], **whole))


def plan(given: spec.Trial, env: dict[str, str], me: spec.Identity = FIRST):
    return programs.plan(given, me, given.collectives[0], env, "/seatrial")


def test_torch_is_taken_where_there_is_one(image, trial) -> None:
    """auto selects the bundled bench, with the requested operation and cycles."""
    command, problem = plan(asked(trial, op="sendrecv"), image("torchrun", "sendrecv_perf"))
    assert (command.program, problem) == ("torch", "")
    assert command.argv[-2:] == ["--op=sendrecv", "--cycles=2"]
    assert "--nnodes=2" in command.argv


def test_a_node_alone_meets_at_its_own_address(image, trial) -> None:
    """Every node is node 0 of a separate job, at its own address."""
    command, _ = plan(asked(trial, scope="node"), image("torchrun"), ME)
    assert {"--nnodes=1", "--node-rank=0", "--master-addr=10.0.0.2"} <= set(command.argv)


def test_nccl_tests_run_alone_without_anything(image, trial) -> None:
    """On one node the program needs neither mpirun nor torch."""
    command, _ = plan(asked(trial, scope="node", op="all_to_all"), image("alltoall_perf"), ME)
    assert command.program == "nccl-tests"
    assert command.argv[0].endswith("build/alltoall_perf")
    assert command.argv[-4:] == ["-N", "2", "-g", "2"]


def test_the_first_rank_starts_nccl_tests_for_all(image, trial) -> None:
    """In an MPIJob rank 0 runs mpirun over all peers and forwards NCCL's variables; the others wait for its end."""
    env = image("all_reduce_perf", "mpirun")
    command, _ = plan(asked(trial, launcher="mpijob"), env)
    command_line = " ".join(command.argv)
    assert "-np 4 --host 127.0.0.1:2,127.0.0.2:2" in command_line
    assert all(
        f"-x {name}" in command_line for name in ("NCCL_ALGO", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "LD_LIBRARY_PATH")
    )
    assert command_line.endswith("-N 2 -g 1")
    assert plan(asked(trial, launcher="mpijob"), env, ME)[0].argv is None


@pytest.mark.parametrize(
    ("names", "changes", "why"),
    [
        ((), {}, "nor nccl-tests' all_reduce_perf"),
        (("all_reduce_perf", "mpirun"), {}, "not started as an MPIJob"),
        (("all_reduce_perf",), {"launcher": "mpijob"}, "no mpirun is in this image"),
        (("all_reduce_perf",), {"program": "torch"}, "neither torchrun nor a Python with torch"),
        (("torchrun",), {"program": "nccl-tests"}, "all_reduce_perf is not in this image"),
    ],
)
def test_why_nothing_can_run_is_said(image, trial, names, changes, why) -> None:
    """Each reason includes advice."""
    command, problem = plan(asked(trial, **changes), image(*names))
    assert command is None
    assert why in problem
