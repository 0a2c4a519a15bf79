"""The bundled bench: its table, its correctness check, and the real thing where torch is installed."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import nccl
from jobs import pod as probes
from jobs.pod.bench import sweep
from jobs.pod.bench import table as tables
from jobs.pod.bench.operations import OPERATIONS
from tests.ports import free_port
from tests.waiting import HANG_S

BENCH = Path(probes.__file__).parent / "measure.py"


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
    """As many decimals as fit into seven characters, then the exponent, as nccl-tests prints them."""
    assert tables.fit(value, 7) == text


def test_the_command_line_is_checked(capsys) -> None:
    """A factor that would never end is a usage error; sizes are whole elements."""
    with pytest.raises(SystemExit):
        sweep.parse(["--factor", "1"])
    assert "factor >= 2" in capsys.readouterr().err
    options = sweep.parse(["--min-bytes", "1026", "--max-bytes", "16"])
    assert (options.min_bytes, options.max_bytes) == (1024, 1024)


def test_without_torch_the_reason_is_printed(tmp_path: Path) -> None:
    """No torch in the image: one line with the reason, and a failure."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    done = subprocess.run(
        [sys.executable, BENCH, "--iters=1"],
        env={"PYTHONPATH": str(tmp_path), "RANK": "3"},
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 1
    assert b"# seatrial bench: rank 3 failed: ImportError: no torch here" in done.stdout


@pytest.mark.parametrize("mounted", [False, True])
def test_the_benchs_folder_does_not_hide_packages(tmp_path: Path, mounted: bool) -> None:
    """`nccl` and `stages` beside the bench must not be what torch gets when it imports a package of that name."""
    here = tmp_path / "seatrial"
    (here / "nccl").mkdir(parents=True)
    (here / "nccl" / "__init__.py").write_text("raise ImportError('the wrong nccl')")
    shutil.copy(BENCH, here / "measure.py")
    shutil.copytree(BENCH.parent / "bench", here / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    if mounted:  # as the kubelet lays out a ConfigMap: a dated folder, ..data pointing to it, and a link for each name
        dated = tmp_path / "volume" / "..2025_11_20_16_00_00.1"
        dated.parent.mkdir()
        here = here.rename(dated).parent
        (here / "..data").symlink_to(dated.name)
        for name in ("measure.py", "nccl", "bench"):
            (here / name).symlink_to(f"..data/{name}")
    installed = tmp_path / "installed"
    (installed / "nccl").mkdir(parents=True)
    (installed / "nccl" / "__init__.py").write_text("")
    (installed / "torch.py").write_text("import nccl; raise ImportError('reached')")
    env = {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, here / "measure.py"], env=env, capture_output=True, timeout=HANG_S, check=False
    )
    assert b"ImportError: reached" in done.stdout


def table(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.strip() and line.strip()[0].isdigit()]


@pytest.mark.slow
def test_real_torchrun_measures_and_checks(pods, torch_python: str) -> None:
    """Two pods of two ranks with real torchrun over gloo: every size, nothing wrong, both collectives one after the other."""
    (pods.bin / "torchrun").unlink()
    (pods.bin / "nvidia-smi").unlink()
    launcher = shutil.which("torchrun", path=str(Path(torch_python).parent))
    pods.bin.joinpath("torchrun").symlink_to(launcher or pytest.skip("this torch has no torchrun"))
    pods.trial.update(gpu_kind="cpu")
    stages_of = pods.run()
    for name in ("collective.ring", "collective.default"):
        assert [stages_of[rank][name]["exit"] for rank in (0, 1)] == [0, 0], stages_of[0][name]["output_tail"]
        output = stages_of[0][name]["output_tail"]
        rows = table(output)
        assert [int(row[0]) for row in rows] == [1024, 4096, 16384, 65536, 262144, 1048576]
        assert all(row[2:5] == ["float", "sum", "-1"] and row[5:9] == ["N/A"] * 4 and row[12] == "0" for row in rows)
        assert "# Out of bounds values : 0 OK" in output
        assert "#  Rank  3 Group  0 Pid" in output


@pytest.mark.slow
def test_a_gpu_that_torch_cannot_use_is_a_failure(torch_python: str) -> None:
    """On a GPU machine the bench never measures the CPU instead."""
    code = "import sys, torch; sys.exit(torch.cuda.is_available())"
    if subprocess.run([torch_python, "-c", code], check=False).returncode:
        pytest.skip("torch finds a GPU here")
    done = subprocess.run([torch_python, BENCH], capture_output=True, timeout=HANG_S, check=False, env={"RANK": "0"})
    assert done.returncode == 1
    assert b"finds no usable GPU" in done.stdout


@pytest.mark.slow
def test_a_single_wrong_value_is_counted(torch_python: str) -> None:
    """The check sees one wrong value among many, at any place, and a NaN; the pattern differs by rank and by position."""
    code = f"""
import sys; sys.path.insert(0, {str(BENCH.parent)!r})
import torch
from bench import operations as values
cpu = torch.device("cpu")
patterns = [values.pattern(torch, cpu, 16, rank) for rank in range(16)]
assert len({{tuple(p[:50].tolist()) for p in patterns}}) == 16 and len(set(patterns[0].tolist())) > 8000
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
"""
    done = subprocess.run([torch_python, "-c", code], capture_output=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


SLOW_NETWORK = f"""
import os, sys, time
sys.path.insert(0, {str(BENCH.parent)!r})
from bench import program, sweep as bench
import torch, torch.distributed as dist
real = dist.all_reduce
def slow(tensor, op=dist.ReduceOp.SUM):
    if tensor.numel() > 1:
        time.sleep(tensor.numel() * 4 / 4e6)
    return real(tensor, op=op)
dist.all_reduce = slow
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1],
                  SEATRIAL_BENCH_DEVICE="cpu", SEATRIAL_BENCH_UNTIL=str(time.monotonic() + 12))
bench.LEAST_S = 0.2
options = bench.parse(["--min-bytes=262144", "--max-bytes=16777216"])
program.begin(torch, options.device)
bench.Bench(torch, options).run()
print("# left", bench.time_left() > 0)
"""


@pytest.mark.slow
def test_a_slow_network_is_measured_and_does_not_look_hung(torch_python: str, pods) -> None:
    """Too slow for the whole sweep: fewer repetitions, then smaller messages only, and a whole table before the deadline."""
    done = subprocess.run(
        [torch_python, "-c", SLOW_NETWORK, str(pods.trial["master_port"])],
        capture_output=True,
        timeout=HANG_S,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = [int(row[0]) for row in table(done.stdout)]
    assert sizes[:4] == [262144, 524288, 1048576, 2097152]
    assert sizes[-1] < 16777216
    assert "of 20 iterations" in done.stdout
    assert "are left out: one takes about" in done.stdout
    assert "# Out of bounds values : 0 OK" in done.stdout
    assert "# left True" in done.stdout
    (job,) = nccl.conclude(nccl.read([("output", io.BytesIO(done.stdout.encode()))]))
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
def test_every_collective_is_measured_and_checked(op: str, torch_python: str, tmp_path: Path) -> None:
    """Three real ranks over gloo: every size in both cycles, nothing wrong, the bytes of whole parts; the table is read."""
    facts = tmp_path / "facts.json"
    command = [
        torch_python,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=3",
        f"--master-port={free_port()}",
        BENCH,
        f"--op={op}",
        "--min-bytes=1200",
        "--max-bytes=5000",
        "--iters=1",
        "--warmup=0",
        "--cycles=2",
    ]
    env = {
        "PATH": os.environ["PATH"],
        "SEATRIAL_BENCH_DEVICE": "cpu",
        "SEATRIAL_BENCH_FACTS": str(facts),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, capture_output=True, timeout=HANG_S, check=False, env=env)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    (job,) = nccl.conclude(nccl.read([("out", io.BytesIO(done.stdout))]))
    (measured,) = job["tables"]
    assert measured["collective"] in (op, None)  # gloo is not NCCL, whose analyzer this is
    assert [row["size_bytes"] for row in measured["rows"]] == [1200, 2400, 4800] * 2
    assert measured["complete"]
    for row in measured["rows"]:
        assert {side for side in ("out_of_place", "in_place") if row[side]} == set(OPERATIONS[op].sides)
        assert {row[side]["wrong"] for side in OPERATIONS[op].sides} == {0}
    assert set(json.loads(facts.read_text())["first_us"]) == {"1200", "2400", "4800"}


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(OPERATIONS))
def test_what_another_rank_got_wrong_is_seen(op: str, torch_python: str, tmp_path: Path) -> None:
    """A rank whose library delivers one wrong value in each collective is counted in every row."""
    code = f"""
import sys; sys.path.insert(0, {str(BENCH.parent)!r})
from bench import operations, sweep
kind = operations.OPERATIONS[{op!r}]
run = kind.run
def broken(self):
    run(self)
    if self.rank == 1:
        buffer = self.target if self.target is not None else self.source
        mine = self._mine() if {op!r} == "reduce_scatter" else buffer
        mine[3] += 1
kind.run = broken
sys.exit(sweep.main({str(BENCH.parent)!r}))
"""
    script = tmp_path / "broken.py"
    script.write_text(code)
    command = [
        torch_python,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        f"--master-port={free_port()}",
        script,
        f"--op={op}",
        "--min-bytes=1024",
        "--max-bytes=2048",
        "--iters=1",
        "--warmup=0",
    ]
    env = {"PATH": os.environ["PATH"], "SEATRIAL_BENCH_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, timeout=HANG_S, check=False, env=env)
    rows = table(done.stdout.decode())
    assert len(rows) == 2, done.stderr.decode()[-2000:]
    assert all("1" in (row[8], row[12]) for row in rows), rows
    assert b"FAILED" in done.stdout
