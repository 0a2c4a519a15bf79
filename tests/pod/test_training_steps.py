"""The training steps: their formula and memory, their command line, and the real thing on CPUs where torch is installed."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from checks.rules.training_evidence import contradiction
from jobs import pod as probes
from jobs.pod.bench import model, training
from jobs.pod.stages.training import Meanwhile, _window, grown
from jobs.run.evidence import misfit
from tests.ports import free_port
from tests.waiting import HANG_S

BENCH = Path(probes.__file__).parent / "measure.py"


def test_operations_and_memory_of_a_step() -> None:
    """Six for each parameter that multiplies and each token, attention besides; the default fits into 24 GiB."""
    shape = model.Shape(layers=1, hidden=4, heads=1, sequence=8, batch=2, vocabulary=16)
    assert model.parameters(shape) == (12 * 16 + 16 * 4 + 8 * 4 + 16 * 4, 12 * 16 + 16 * 4)
    assert model.flops(shape) == 16 * (6 * (12 * 16 + 16 * 4) + 12 * 4 * 8)
    assert model.memory_bytes(model.GPU, 2) < training.MOST_MEMORY


def test_the_command_line_is_checked(capsys) -> None:
    """Steps come in rounds of five."""
    with pytest.raises(SystemExit):
        training.parse(["--training", "--steps=2"])
    assert "steps >= 5" in capsys.readouterr().err
    assert training.parse(["--training", "--soak=60"]).soak == 60


def test_what_is_told_is_bounded() -> None:
    """An hour of steps is thinned evenly; of losses the ends are kept."""
    assert len(training.thinned([float(i) for i in range(100_000)])) <= training.MOST_KEPT
    assert training.ends([float(i) for i in range(100)]) == [*map(float, range(10)), *map(float, range(90, 100))]


@pytest.mark.parametrize(("slower", "noise", "steps"), [(1, 0.01, 40), (1.11, 0.01, 40), (1, 1, 240)])
def test_steps_are_added_where_noise_hides_who_is_slow(slower: float, noise: float, steps: int) -> None:
    """Where the first forty tell who is slow, or that nobody is, there are no more of them."""
    drawn = random.Random(1)
    one = object.__new__(training.Training)
    one.facts = {"compute_ms": [], "window": [0.0, 0.0], "losses": [], "bad_step": None}

    def all_ranks(own: list[float]) -> dict[int, list[float]]:
        return {rank: [50 * math.exp(drawn.gauss(0, noise)) for _ in own] for rank in range(3)} | {3: own}

    def several(count: int) -> tuple[list[float], list[float]]:
        return [50 * slower * math.exp(drawn.gauss(0, noise)) for _ in range(count)], []

    one.facts["compute_ms"] = several(40)[0]
    agreed = {"everyones": all_ranks, "least": int, "align": lambda: None, "tell": lambda _: None}
    for name, said in agreed.items():
        setattr(one, name, said)
    one.settle(SimpleNamespace(several=several, made=0))  # type: ignore[arg-type]
    assert len(one.facts["compute_ms"]) == steps
    assert (one.facts["window"][-1] > 0) == (steps > 40)


def test_a_loss_alone_that_is_not_finite_is_kept_with_its_step() -> None:
    """The first of them, counted over all steps that the rank made alone."""
    one = object.__new__(training.Training)
    one.facts = {"losses": [], "bad_step": None}
    for made, losses in ((0, [3.0] * 5), (5, [2.0, math.nan, 1.0]), (10, [math.inf])):
        one.by_itself(SimpleNamespace(several=lambda _, losses=losses: ([1.0], losses), made=made))  # type: ignore[arg-type]
    assert one.facts == {"losses": [3.0] * 5 + [2.0, 1.0], "bad_step": 6}


def test_reports_of_the_driver_that_were_there_before_are_not_the_steps() -> None:
    old, new = {"bus_id": "0", "xid": 79, "count": 2}, {"bus_id": "1", "xid": 48, "count": 1}
    assert grown([old], [{**old, "count": 3}, new]) == [{**old, "count": 1}, new]
    assert grown([old], [old]) == []
    assert grown(None, [new]) is None


def test_gpus_are_watched_while_the_steps_run(tmp_path: Path) -> None:
    """Medians of what was seen within the steps; what slows a GPU is kept though it has passed."""
    tool = tmp_path / "nvidia-smi"
    xml = (
        "<nvidia_smi_log><gpu id='0'><uuid>GPU-a</uuid><clocks_event_reasons>"
        "<clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown></clocks_event_reasons></gpu>"
        "</nvidia_smi_log>"
    )
    tool.write_text(f"""#!/bin/sh
case "$1" in -q) echo "<?xml version='1.0' ?>{xml}";; *) echo "0, GPU-a, 1755, 640.5, 61, [N/A]";; esac
""")
    tool.chmod(0o755)
    watch = Meanwhile("nvidia", {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    watch._look()
    watch._whole()
    tool.write_text(tool.read_text().replace("Active", "Not Active"))
    watch._look()
    watch._whole()
    (sample,) = watch.medians(None)
    assert (sample["sm_mhz"], sample["power_w"], sample["temperature_c"], sample["utilisation"]) == (
        1755,
        640.5,
        61,
        None,
    )
    assert sample["samples"] == 2
    assert watch.medians((0.0, 1.0)) == []
    assert watch.last[0]["throttle"] == ["hw_slowdown"]
    assert Meanwhile("none", {}).tool is None


def test_a_clock_that_is_set_back_changes_no_time_and_loses_no_sample(monkeypatch, tmp_path: Path) -> None:
    """Steps are timed by a clock that nobody sets; the wall clock says only which samples fell within them."""
    wall = iter([10_000.0, *(6_400.0 + each for each in range(20))])
    monkeypatch.setattr(training.time, "time", lambda: next(wall))
    one = object.__new__(training.Training)
    one.facts, one.window, one.rank, one.cuda = (
        {"compute_ms": [], "losses": [], "bad_step": None, "modes": []},
        [],
        1,
        False,
    )
    rounds = {"align": lambda: None, "tell": lambda _: None, "goes_on": lambda mode, *_: mode["steps"] < 20}
    for name, said in rounds.items():
        setattr(one, name, said)
    steps = SimpleNamespace(several=lambda count: ([50.0] * count, [1.0] * count), made=0, batch=None)
    monkeypatch.setattr(training, "Steps", lambda *_: steps)
    one.mode("ddp", None, steps, 0.0)  # type: ignore[arg-type]
    (mode,) = one.facts["modes"]
    assert (mode["step_ms"], one.facts["compute_ms"]) == ([50.0] * 20, [50.0] * 20)
    assert 0 <= mode["seconds"] < 3600
    assert one.facts["window"] == [10_000.0, 6_400.0]
    watch = Meanwhile("none", {})
    watch._samples = [(at, {"0 GPU-a": [1755.0, 640.0, 61.0, 99.0]}) for at in (10_000.0, 6_400.0)]
    (sample,) = watch.medians(_window([one.facts]))
    assert (sample["samples"], sample["sm_mhz"]) == (2, 1755.0)
    assert watch.medians((6_000.0, 6_500.0))[0]["samples"] == 1


def test_a_gpu_that_no_longer_answers_at_the_end_is_not_known_to_be_well(tmp_path: Path) -> None:
    """What an earlier look found wrong stands; what it found well says nothing of the end."""
    watch = Meanwhile("nvidia", {"PATH": str(tmp_path)})
    watch.last = [
        {"index": 0, "throttle": [], "ecc_uncorrected_volatile": 0, "remap_failure": False, "recovery_action": "None"},
        {"index": 1, "throttle": ["hw_slowdown"], "ecc_uncorrected_volatile": 2, "recovery_action": "Reset"},
    ]
    sick = dict(watch.last[1])
    watch.stop(0)
    assert watch.last == [{**dict.fromkeys(watch.last[0]), "index": 0}, sick]


@pytest.mark.slow
def test_real_ranks_train_on_cpus(torch_python: str, tmp_path: Path) -> None:
    """Two ranks over gloo, DDP and FSDP2: the loss falls alike in both, products repeat, and the record takes it."""
    command = [torch_python, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}", BENCH]
    environment = {**os.environ, "SEATRIAL_BENCH_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    environment["SEATRIAL_BENCH_FACTS"] = str(tmp_path / "facts")
    done = subprocess.run(
        [*command, "--training", "--steps=5", "--fsdp-on-cpu"],
        env=environment,
        capture_output=True,
        timeout=HANG_S,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ranks = [json.loads((tmp_path / f"facts.{local}").read_text()) for local in (0, 1)]
    assert misfit("training", {"ranks": ranks}) == ""
    assert contradiction(ranks, 2, 0, 2) == ""
    assert "model takes" in contradiction([{**rank, "flops": 2 * rank["flops"]} for rank in ranks], 2, 0, 2)
    for rank in ranks:
        assert all(each["made"] and not each["differs"] for each in rank["products"])
        assert len(rank["compute_ms"]) >= 5
        assert rank["bad_step"] is None
        assert rank["losses"][-1] < rank["losses"][0] < 6
        for mode in rank["modes"]:
            assert mode["steps"] >= 5
            assert mode["bad_step"] is None
            assert mode["losses"][-1] < mode["losses"][0] < 6
    first, *rest = ranks[0]["modes"]
    assert first["mode"] == "ddp"
    assert all(mode["losses"][:5] == pytest.approx(first["losses"][:5], rel=1e-3) for mode in rest)
    assert ranks[0]["products"][0]["digest"] == ranks[1]["products"][0]["digest"]
