"""The bundled bench: its table, its correctness check, and a real run if torch is installed."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jobs.pod
from jobs.pod.bench import sweep
from jobs.pod.bench import table as tables
from jobs.pod.bench.operations import OPERATIONS
from jobs.trial import payload
from seatrial import logs as nccl
from tests.waiting import HANG_S

SAVED = ("--folder=/nonexistent", "--step=1", "--bytes=4096")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.004, "0.00"),
        (12.345, "12.35"),
        (12345.678, "12345.7"),
        (1234567.8, "1234568"),
        (12345678.9, "1.2e+07"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_fit_their_columns(value: float, text: str) -> None:
    """Numbers have as many decimals as fit into seven characters, then the exponent, as in nccl-tests."""
    assert tables.fit(value, 7) == text


def test_the_command_line_is_checked(capsys) -> None:
    """A factor without an end is a usage error; sizes are whole elements."""
    with pytest.raises(SystemExit):
        sweep.parse(["--factor", "1"])
    assert "factor >= 2" in capsys.readouterr().err
    options = sweep.parse(["--min-bytes", "1026", "--max-bytes", "16"])
    assert (options.min_bytes, options.max_bytes) == (1024, 1024)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return the pod's files in a folder as the kubelet creates it: a dated folder, ..data pointing to it, and a link
    for each name."""
    dated = tmp_path / "volume" / "..2025_11_20_16_00_00.1"
    dated.mkdir(parents=True)
    (dated / payload.ARCHIVE).write_bytes(payload.archive(payload.files()))
    (dated.parent / "..data").symlink_to(dated.name)
    mounted = dated.parent / payload.ARCHIVE
    mounted.symlink_to(f"..data/{payload.ARCHIVE}")
    return mounted


@pytest.mark.parametrize("program", [("measure", "--iters=1"), ("train",), ("checkpoint", "--mode=save", *SAVED)])
def test_without_torch_the_reason_is_printed(program: tuple[str, ...], archive: Path, tmp_path: Path) -> None:
    """Without torch in the image the bench prints one line with the reason and fails."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    done = subprocess.run(
        [sys.executable, archive, *program],
        env={"PYTHONPATH": str(tmp_path), "RANK": "3"},
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 1
    assert b"# seatrial bench: rank 3 failed: ImportError: no torch here" in done.stdout


def test_the_archive_hides_no_package(archive: Path, tmp_path: Path) -> None:
    """torch gets the image's `stages`, `bench` and `seatrial` when it imports packages with these names."""
    names = {path.name for path in Path(jobs.pod.__file__).parent.iterdir() if path.is_dir()} - {"__pycache__"}
    names |= {"reader", "seatrial"}
    assert "bench" in names
    for name in names:
        (tmp_path / f"{name}.py").write_text("installed = True")
    said = "".join(f"import {name}; assert {name}.installed\n" for name in names)
    (tmp_path / "torch.py").write_text(f"{said}raise ImportError('reached')")
    command = [sys.executable, archive, "measure"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, timeout=HANG_S, check=False)
    assert b"ImportError: reached" in done.stdout


def table(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.strip() and line.strip()[0].isdigit()]


@pytest.mark.slow
def test_real_torchrun_measures_and_checks(pods, torch_python: str, tmp_path: Path) -> None:
    """Two pods of two ranks with real torchrun over gloo, without numpy, measure every size of both collectives without
    a wrong value."""
    (pods.bin / "torchrun").unlink()
    (pods.bin / "nvidia-smi").unlink()
    launcher = shutil.which("torchrun", path=str(Path(torch_python).parent))
    pods.bin.joinpath("torchrun").symlink_to(launcher or pytest.skip("this torch has no torchrun"))
    pods.trial.update(gpu_kind="cpu")
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('no numpy here')")  # torch does not require it
    stages_of = pods.run(PYTHONPATH=str(tmp_path))
    for name in ("collective.ring", "collective.default"):
        assert [stages_of[rank][name]["exit"] for rank in (0, 1)] == [0, 0], stages_of[0][name]["output_tail"]
        output = stages_of[0][name]["output_tail"]
        rows = table(output)
        assert [int(row[0]) for row in rows] == [1024, 4096, 16384, 65536, 262144, 1048576]
        assert all(row[2:5] == ["float", "sum", "-1"] and row[5:9] == ["N/A"] * 4 and row[12] == "0" for row in rows)
        assert "# Out of bounds values : 0 OK" in output
        assert "#  Rank  3 Group  0 Pid" in output


@pytest.mark.slow
def test_a_gpu_that_torch_cannot_use_is_a_failure(ranks) -> None:
    """On a GPU machine the bench never falls back to the CPU."""
    (ended,) = ranks.run(
        "measure", ranks=1, before="torch.cuda.is_available = lambda: False", SEATRIAL_BENCH_DEVICE="cuda"
    )
    assert ended.code == 1
    assert "finds no usable GPU" in ended.out


@pytest.mark.slow
def test_a_rank_without_a_gpu_of_its_own_is_a_failure(ranks) -> None:
    """With more ranks than visible GPUs two of them would share one, and halve its numbers."""
    gpus = "torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 1"
    ended = ranks.run("measure", before=f"{gpus}; torch.cuda.set_device = exit", SEATRIAL_BENCH_DEVICE="cuda")
    assert "local rank 1 has no GPU: torch sees 1" in ended[1].out
    assert [each.code for each in ended] == [0, 1]


WRONG_VALUES = """
from seatrial_pod.bench import operations as values
cpu = torch.device("cpu")
patterns = [values.pattern(torch, cpu, 16, rank) for rank in range(16)]
assert len({tuple(p[:50].tolist()) for p in patterns}) == 16 and len(set(patterns[0].tolist())) > 8000
expected = sum(patterns)
assert float(expected.max()) < values.EXACT
assert torch.equal(expected.double(), sum(p.double() for p in patterns))
for count in (1, 100, values.PERIOD, values.PERIOD * 3 + 5):
    part = torch.empty(count); values.fill(part, expected)
    assert values.mismatches(part, expected) == 0
    for place in (0, count // 2, count - 1):
        kept = part[place].item()
        for wrong in (kept + 1, float("nan")):
            part[place] = wrong
            assert values.mismatches(part, expected) == 1, (count, place)
        part[place] = kept
    if count > 5000:
        assert values.mismatches(torch.roll(part, 4096), expected) > count // 2
exit()
"""


@pytest.mark.slow
def test_a_single_wrong_value_is_counted(ranks) -> None:
    """The check detects one wrong value among many, at any position, and a NaN; the pattern differs by rank and by
    position."""
    (ended,) = ranks.run("measure", ranks=1, before=WRONG_VALUES)
    assert ended.code == 0, ended.err


SLOW_NETWORK = """
import os, time
from seatrial_pod.bench import sweep
real = torch.distributed.all_reduce
def slow(tensor, op=torch.distributed.ReduceOp.SUM):
    if tensor.numel() > 1000:
        time.sleep(tensor.numel() * 4 / 4e6)
    return real(tensor, op=op)
torch.distributed.all_reduce = slow
os.environ["SEATRIAL_BENCH_UNTIL"] = str(time.monotonic() + 12)
sweep.LEAST_S = 0.2
"""


@pytest.mark.slow
def test_a_slow_network_is_measured_and_does_not_look_hung(ranks) -> None:
    """A link too slow for the whole sweep gets fewer repetitions, then smaller messages only, and a complete table
    before the deadline."""
    (ended,) = ranks.run("measure", "--min-bytes=262144", "--max-bytes=16777216", ranks=1, before=SLOW_NETWORK)
    assert ended.code == 0, ended.err
    sizes = [int(row[0]) for row in table(ended.out)]
    assert sizes[:4] == [262144, 524288, 1048576, 2097152]
    assert sizes[-1] < 16777216
    assert "of 20 iterations" in ended.out
    assert "are left out: one takes about" in ended.out
    assert "# Out of bounds values : 0 OK" in ended.out
    (job,) = nccl.conclude(nccl.read([("output", io.BytesIO(ended.out.encode()))]))
    assert job["tables"][0]["complete"]
    assert len(job["tables"][0]["rows"]) == len(sizes)
    assert not job["hang"]


@pytest.mark.parametrize(
    ("op", "factor", "sides"),
    [
        ("all_reduce", 1.875, ["in_place"]),
        ("all_gather", 0.9375, ["out_of_place", "in_place"]),
        ("reduce_scatter", 0.9375, ["out_of_place", "in_place"]),
        ("all_to_all", 0.9375, ["out_of_place"]),
        ("sendrecv", 1.0, ["out_of_place"]),
        ("broadcast", 1.0, ["in_place"]),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(op: str, factor: float, sides: list[str]) -> None:
    """16 ranks: the factors of nccl-tests' doc/PERFORMANCE.md; torch measures the sides that its call has."""

    class Torch:
        distributed = None

    operation = OPERATIONS[op](Torch, None, 0, 16)
    assert operation.factor() == factor
    assert list(operation.sides) == sides


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(OPERATIONS))
def test_every_collective_is_measured_and_checked(op: str, ranks, tmp_path: Path) -> None:
    """Three real ranks over gloo: every size in both cycles, no wrong value, sizes rounded to whole parts; the table is
    read."""
    facts = tmp_path / "facts.json"
    sizes = ["--min-bytes=1200", "--max-bytes=5000", "--iters=1", "--warmup=0", "--cycles=2"]
    ended = ranks.run("measure", f"--op={op}", *sizes, ranks=3, SEATRIAL_BENCH_FACTS=str(facts))
    assert [each.code for each in ended] == [0] * 3, ended[0].err
    assert [f"#  Rank  {rank} Group  0 Pid" in ended[0].out for rank in range(4)] == [True] * 3 + [False]
    (job,) = nccl.conclude(nccl.read([("out", io.BytesIO(ended[0].out.encode()))]))
    (measured,) = job["tables"]
    assert measured["collective"] in (op, None)  # gloo is not NCCL, which this analyzer is for
    assert [row["size_bytes"] for row in measured["rows"]] == [1200, 2400, 4800] * 2
    assert measured["complete"]
    for row in measured["rows"]:
        assert {side for side in ("out_of_place", "in_place") if row[side]} == set(OPERATIONS[op].sides)
        assert {row[side]["wrong"] for side in OPERATIONS[op].sides} == {0}
    assert set(json.loads(facts.read_text())["first_us"]) == {"1200", "2400", "4800"}


BROKEN = """
from seatrial_pod.bench import operations
kind = operations.OPERATIONS[{op!r}]
run = kind.run
def broken(self):
    run(self)
    if self.rank == 1:
        buffer = self.target if self.target is not None else self.source
        mine = self._mine() if {op!r} == "reduce_scatter" else buffer
        mine[3] += 1
kind.run = broken
"""


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(OPERATIONS))
def test_what_another_rank_got_wrong_is_seen(op: str, ranks) -> None:
    """A rank with one wrong value in each collective is counted in every row."""
    sizes = ["--min-bytes=1024", "--max-bytes=2048", "--iters=1", "--warmup=0"]
    ended = ranks.run("measure", f"--op={op}", *sizes, before=BROKEN.format(op=op))
    rows = table(ended[0].out)
    assert len(rows) == 2, ended[0].err
    assert all("1" in (row[8], row[12]) for row in rows), rows
    assert "FAILED" in ended[0].out


# -- context of the table ----------------------------------------------------------------------------------------------

RAIL_3_ADDS_ONE = """
real = torch.distributed.all_reduce
def broken(tensor, group=None, **more):
    real(tensor, group=group, **more)
    tensor += group is not None and rank == 3 and tensor.numel() > 100
torch.distributed.all_reduce = broken
"""


@pytest.mark.slow
@pytest.mark.parametrize(("before", "wrong"), [("", 0), (RAIL_3_ADDS_ONE, 1)])
def test_each_rail_is_measured_and_checked(ranks, tmp_path: Path, before: str, wrong: int) -> None:
    """Two nodes of two ranks: a bandwidth for each of the two rails; wrong sums of one rank are counted."""
    facts = tmp_path / "facts.json"
    options = ["--rails=1", "--max-bytes=4194304", "--iters=1", "--warmup=1"]
    ended = ranks.run("measure", *options, ranks=4, local=2, before=before, SEATRIAL_BENCH_FACTS=str(facts))
    assert [each.code for each in ended] == [0] * 4, ended[0].err
    told = json.loads(facts.read_text())
    assert len(told["rails"]) == 2
    assert all(each > 0 for each in told["rails"])
    assert told["rails_bytes"] == 1 << 20
    assert told["rails_wrong"] == wrong * (1 << 18)


@pytest.mark.slow
def test_one_node_has_no_rails(ranks, tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    ended = ranks.run("measure", "--rails=1", "--max-bytes=1048576", "--iters=1", SEATRIAL_BENCH_FACTS=str(facts))
    assert [each.code for each in ended] == [0, 0], ended[0].err
    assert "rails" not in json.loads(facts.read_text())


ALONE = """
import json, os
from seatrial_pod.bench import alone, sweep
alone.COPY_BYTES, alone.SIDE, alone.SECONDS = 1 << 16, 64, 0.01
torch.cuda.synchronize = lambda device: None
real = torch.equal
torch.equal = lambda one, other: real(one, other) and rank != {differs}
whole = sweep.Bench.header
def measured(bench, largest):
    whole(bench, largest)
    bench.more.update(alone.measure(bench))
sweep.Bench.header = measured
"""


@pytest.mark.slow
@pytest.mark.parametrize(("differs", "share"), [("-1", 0), ("1", 0.5)])
def test_copies_and_products_of_a_gpu_alone_are_reported_for_all_ranks(
    ranks, tmp_path: Path, differs: str, share
) -> None:
    """On the CPU here, each rank has a rate, and every product of the rank with varying results is counted."""
    facts = tmp_path / "facts.json"
    before = ALONE.format(differs=differs)
    ended = ranks.run("measure", "--max-bytes=1048576", "--iters=1", before=before, SEATRIAL_BENCH_FACTS=str(facts))
    assert [each.code for each in ended] == [0, 0], ended[0].err + ended[0].out
    told = json.loads(facts.read_text())
    assert len(told["copies_gbps"]) == 2
    assert all(each > 0 for each in told["copies_gbps"])
    assert told["products"] >= 20
    assert (told["differs"] > 0) == (share > 0)
    assert told["differs"] >= 20 * bool(share)


@pytest.mark.slow
@pytest.mark.parametrize(("free", "said"), [(1 << 23, "Reducing maxBytes to 1048576"), (1 << 18, "do not fit into")])
def test_the_rank_with_the_least_memory_decides_on_the_largest_message(ranks, free: int, said: str) -> None:
    """Less than the smallest message is a failure; all other ranks have room."""
    before = f"from seatrial_pod.bench import sweep; sweep.free_memory = lambda: {free} if rank else 1 << 40"
    ended = ranks.run("measure", "--op=all_to_all", "--max-bytes=4194304", "--iters=1", before=before)
    assert said in ended[0].out
    assert [each.code for each in ended] == [int("fit" in said)] * 2
    assert {int(row[0]) for row in table(ended[0].out)} == (set() if "fit" in said else {1 << 20})


@pytest.mark.slow
def test_a_rank_that_fails_says_why_and_the_others_end(ranks) -> None:
    """No rank waits for the collective that one rank never joins."""
    before = """
from seatrial_pod.bench import operations
def fails(self):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
if rank == 1:
    operations.AllReduce.run = fails
"""
    ended = ranks.run("measure", "--max-bytes=1048576", "--iters=1", before=before)
    assert [each.code for each in ended] == [1, 1]
    assert "# seatrial bench: rank 1 failed: RuntimeError: CUDA error: an illegal memory access" in ended[1].out
    assert "# seatrial bench: rank 0 failed: " in ended[0].out


PRODUCTS = """
from seatrial_pod.bench import product
cpu = torch.device("cpu")
eighths = product.repeated(torch, cpu, "fp8", 64, 0.0)
assert bool(eighths["made"]) != bool(eighths.get("why")), eighths
def none(*_):
    raise RuntimeError("addmm is not implemented\\nfor this device")
product._multiplier = none
assert product.repeated(torch, cpu, "bf16", 64, 0.0) == {
    "kind": "bf16", "seed": 1, "side": 64, "made": 0, "differs": 0, "digest": None,
    "why": "RuntimeError: addmm is not implemented",
}
exit()
"""


@pytest.mark.slow
def test_a_number_format_that_a_device_lacks_has_no_products(ranks) -> None:
    """The reason is reported, and no difference is counted, since nothing is measured."""
    (ended,) = ranks.run("measure", ranks=1, before=PRODUCTS)
    assert ended.code == 0, ended.err
