"""The training steps: their formula and memory, their command line, and a real run on CPUs if torch is installed."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from checks.rules.training_evidence import contradiction
from jobs.pod.bench import model, training
from jobs.pod.stages.training import Meanwhile, _window, grown
from tests.by_hand import misfit


def test_operations_and_memory_of_a_step() -> None:
    """Six for each multiplying parameter and each token, plus attention; the default fits into 24 GiB."""
    shape = model.Shape(layers=1, hidden=4, heads=1, sequence=8, batch=2, vocabulary=16)
    assert model.parameters(shape) == (12 * 16 + 16 * 4 + 8 * 4 + 16 * 4, 12 * 16 + 16 * 4)
    assert model.flops(shape) == 16 * (6 * (12 * 16 + 16 * 4) + 12 * 4 * 8)
    assert model.memory_bytes(model.GPU, 2) < training.MOST_MEMORY


def test_the_command_line_is_checked(capsys) -> None:
    """Steps come in rounds of five."""
    with pytest.raises(SystemExit):
        training.parse(["--steps=2"])
    assert "steps >= 5" in capsys.readouterr().err
    assert training.parse(["--soak=60"]).soak == 60


def test_what_is_reported_is_bounded() -> None:
    """An hour of steps is thinned evenly; of losses the first and last are kept."""
    assert len(training.thinned([float(i) for i in range(100_000)])) <= training.MOST_KEPT
    assert training.ends([float(i) for i in range(100)]) == [*map(float, range(10)), *map(float, range(90, 100))]


@pytest.mark.parametrize(("slower", "noise", "steps"), [(1, 0.01, 40), (1.11, 0.01, 40), (1, 1, 240)])
def test_steps_are_added_where_noise_hides_who_is_slow(slower: float, noise: float, steps: int) -> None:
    """If the first forty show the slow rank, or that no rank is slow, no steps are added."""
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
    """The first such loss is kept, counted over all steps of the rank's single-GPU part."""
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
    """Medians of samples within the steps; a throttle reason is kept even if it is over."""
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
    """A monotonic clock times the steps; the wall clock only assigns samples to them."""
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
    """An earlier fault remains reported; an earlier healthy sample says nothing about the end."""
    watch = Meanwhile("nvidia", {"PATH": str(tmp_path)})
    watch.last = [
        {"index": 0, "throttle": [], "ecc_uncorrected_volatile": 0, "remap_failure": False, "recovery_action": "None"},
        {"index": 1, "throttle": ["hw_slowdown"], "ecc_uncorrected_volatile": 2, "recovery_action": "Reset"},
    ]
    sick = dict(watch.last[1])
    watch.stop(0)
    assert watch.last == [{**dict.fromkeys(watch.last[0]), "index": 0}, sick]


def told(folder: Path, count: int = 2) -> list[dict]:
    """Return the result of each rank."""
    return [json.loads((folder / f"facts.{local}").read_text()) for local in range(count)]


@pytest.fixture
def trained(ranks, tmp_path: Path):
    """Run the training steps with the shortest parameters; return the ranks' exits."""

    def run(*options: str, before: str = "", **env: str):
        facts = str(tmp_path / "facts")
        return ranks.run("train", "--steps=5", *options, before=before, SEATRIAL_BENCH_FACTS=facts, **env)

    return run


@pytest.mark.slow
def test_real_ranks_train_on_cpus(trained, tmp_path: Path) -> None:
    """Two ranks over gloo, DDP and FSDP2: the loss falls identically in both, products repeat, and the record accepts
    it."""
    ended = trained("--fsdp-on-cpu")
    assert [each.code for each in ended] == [0, 0], ended[0].err
    ranks = told(tmp_path)
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
    assert [each["mode"] for each in ranks[0]["modes"]] == ["ddp", "fsdp2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "error", "code", "why"),
    [
        ("fsdp2", "TypeError('got an unexpected keyword')", 0, "TypeError: got an unexpected keyword"),
        ("fsdp2", "RuntimeError('CUDA out of memory')", 1, ""),
        ("ddp", "TypeError('got an unexpected keyword')", 1, ""),
    ],
)
def test_only_a_torch_whose_fsdp2_is_another_one_goes_without(
    trained, tmp_path: Path, mode: str, error: str, code: int, why: str
) -> None:
    """Errors of CUDA and NCCL are a failure in every mode; earlier measurements are kept."""
    fails = (
        f"from seatrial_pod.bench import training\ndef fails(*_):\n    raise {error}\ntraining.Training.{mode} = fails"
    )
    ended = trained("--fsdp-on-cpu", before=fails)
    assert [each.code for each in ended] == [code] * 2, ended[0].err
    for rank in told(tmp_path):
        modes = {each["mode"]: each for each in rank["modes"]}
        assert rank["products"]
        assert ("ddp" in modes) == (mode == "fsdp2")
        assert modes.get("fsdp2", {}).get("why", "") == why
        assert all(each["steps"] == (5 if name == "ddp" else 0) for name, each in modes.items())


@pytest.mark.slow
def test_a_torch_without_fsdp2_trains_without(trained, tmp_path: Path) -> None:
    ended = trained(
        "--fsdp-on-cpu", before="from seatrial_pod.bench import training; training.fully_shard_of = lambda _: None"
    )
    assert [each.code for each in ended] == [0, 0], ended[0].err
    assert [[each["mode"] for each in rank["modes"]] for rank in told(tmp_path)] == [["ddp"], ["ddp"]]


DIVERGES = """
from seatrial_pod.bench import training
one = training.Steps.one
def diverges(self):
    loss = one(self)
    wrapped = isinstance(self.model, torch.nn.parallel.DistributedDataParallel)
    return loss * float("nan") if rank == 1 and wrapped == {shared} and self.made > {steps} else loss
training.Steps.one = diverges
"""


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_the_first_step_without_a_finite_loss_is_reported_for_its_rank(trained, tmp_path: Path, shared: bool) -> None:
    """A non-finite loss in single-GPU steps is a fault of this GPU, in shared steps it is not; the file stays JSON."""
    ended = trained(before=DIVERGES.format(shared=shared, steps=12))
    assert [each.code for each in ended] == [0, 0], ended[0].err
    well, ill = told(tmp_path)
    assert [well["bad_step"], well["modes"][0]["bad_step"]] == [None, None]
    assert [ill["bad_step"], ill["modes"][0]["bad_step"]] == ([None, 12] if shared else [12, None])
    assert all(math.isfinite(each) for each in ill["losses"] + ill["modes"][0]["losses"])


@pytest.mark.slow
def test_a_wrong_product_is_counted_where_it_was_made(trained, tmp_path: Path) -> None:
    """One bit of one product of rank 1 differs; its digest is still that of all."""
    before = """
real, calls = torch.equal, []
def equal(one, other):
    calls.append(1)
    if rank == 1 and len(calls) == 7:
        one.view(torch.int32).view(-1)[5] ^= 1
    return real(one, other)
torch.equal = equal
"""
    ended = trained(before=before)
    assert [each.code for each in ended] == [0, 0], ended[0].err
    well, ill = told(tmp_path)
    assert [each["differs"] for each in well["products"]] == [0, 0]
    assert [each["differs"] for each in ill["products"]] == [1, 0]
    assert [each["digest"] for each in ill["products"]] == [each["digest"] for each in well["products"]]


@pytest.mark.slow
@pytest.mark.parametrize(("share", "batch", "layers"), [(0.9, 2, 2), (0.49, 1, 1), (0.01, 0, 0)])
def test_the_model_follows_the_memory_of_the_fullest_rank(
    trained, tmp_path, share: float, batch: int, layers: int
) -> None:
    """All ranks have the same model: first the batch shrinks, then the layers; with too little for one layer there are
    no steps."""
    whole = int(share * model.memory_bytes(model.CPU, 4) / training.FREE_SHARE) * 2
    ended = trained(
        before=f"from seatrial_pod.bench import training; training.free_memory = lambda: {whole} if rank else 1 << 40"
    )
    ranks = told(tmp_path)
    if batch:
        assert [each.code for each in ended] == [0, 0], ended[0].err
        assert [(each["shape"]["batch"], each["shape"]["layers"]) for each in ranks] == [(batch, layers)] * 2
    else:
        assert [each.code for each in ended] == [1, 1]
        assert "the smallest model needs" in ended[0].out


@pytest.mark.slow
def test_a_soak_goes_on_until_its_time_is_over_and_ends_before_the_limit(trained, tmp_path: Path) -> None:
    """A soak has more steps than requested; the probe's limit takes precedence, on all ranks if it does on one."""
    before = "from seatrial_pod.bench import training; left = [1000.0] * (6 if rank else 60)\n"
    before += "training.time_left = lambda: left.pop() if left else 0.0"
    ended = trained("--soak=100000", before=before)
    assert [each.code for each in ended] == [0, 0], ended[0].err
    counts = [rank["modes"][0]["steps"] for rank in told(tmp_path)]
    assert counts == [6 * training.ROUND] * 2


NOISY = """
from seatrial_pod.bench import training
training.SETTLE_S = 100000.0
training.time_left = lambda: 100000.0
several = training.Steps.several
def steady(self, count):
    times, losses = several(self, count)
    return [10 * (1 + {noise} * ((place * (1 + rank) + rank) % 5)) for place, _ in enumerate(times)], losses
training.Steps.several = steady
"""


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "more"), [(0.0, False), (2.0, True)])
def test_all_ranks_add_steps_where_noise_hides_who_is_slow(trained, tmp_path: Path, noise: float, more: bool) -> None:
    """All ranks add equally many steps; steps without variation need no more."""
    ended = trained(before=NOISY.format(noise=noise))
    assert [each.code for each in ended] == [0, 0], ended[0].err
    counts = [len(rank["compute_ms"]) for rank in told(tmp_path)]
    assert counts == [training.MOST_KEPT if more else 5] * 2
