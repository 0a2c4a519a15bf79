"""A table is judged by its own hardware and by the hardware that the user states, never by other hardware."""

from __future__ import annotations

import json
import re

import pytest

from checks.profiles.loader import load_profile
from cli import explain
from seatrial.logs.bandwidth.hardware import Hardware, Said, UnknownHardwareError, of_other_kind, said
from seatrial.logs.bandwidth.reference import refer
from tests.logs.logmaker import Maker, averaged, sequential, table_of, with_busbw

GIB = 1 << 30
pytestmark = pytest.mark.usefixtures("few_references")
EIGHT = Maker(gpus=8, rails=8, channels=8)


def rows(busbw: float, ranks: int = 16, collective: str = "all_reduce", *, sizes=(GIB, 2 * GIB, 4 * GIB)) -> str:
    """Return a table without its device list."""
    factor = 2 * (ranks - 1) / ranks
    lines = [f"# Collective test starting: {collective}_perf"]
    lines.append(
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
    )
    for at, size in enumerate(sizes):
        value = busbw * (1 + at / 100)
        side = f"{size * factor / value / 1e3:.2f}  {value / factor:.2f}  {value:.2f}  0"
        lines.append(f"  {size}  {size // 4}  float  sum  -1  {side}  {side}")
    return averaged("\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1", "#"]) + "\n")


def explained(capsys, path, text: str, *options: str) -> dict:
    (path / "table.log").write_text(text)
    explain.main([str(path / "table.log"), "--format", "json", *options])
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    return job


def test_a_table_that_names_nothing_says_what_to_pass(tmp_path, capsys):
    job = explained(capsys, tmp_path, rows(400.0))
    assert (job["verdict"], job["tables"][0]["nearest"]["kind"]) == ("inconclusive", "none")
    for option in ("--gpu 2x8xH100", "--nics 8x400", "--profile"):
        assert option in job["sentence"]
    job = explained(capsys, tmp_path, rows(400.0), "--gpu", "H100", "--nics", "8x400")
    assert ("--gpu 2x8xH100" in job["sentence"], "--nics" in job["sentence"]) == (True, False)


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        (("--gpu", "8xH100"), 16),
        (("--gpu", "8xh100", "--nics", "8x400"), 16),
        (("--gpu", "8xH100"), 64),
        (("--gpu", "2x8xH100"), 16),
        (("--profile", "h100-ib"), 64),
    ],
)
def test_a_table_is_judged_by_what_the_user_states(options, ranks, tmp_path, capsys):
    """The ratio of busbw and algbw, 2(n-1)/n, gives the number of ranks. The transport remains unknown."""
    job = explained(capsys, tmp_path, rows(40.0, ranks), *options)
    assert job["tables"][0]["nearest"]["kind"] == "published", job["sentence"]
    assert (job["verdict"], [f["fault"] for f in job["faults"]]) == (
        "inconclusive",
        ["nccl.no-evidence", "nccl.below-published"],
    )
    assert "does not show the transport. The bandwidth is a" in job["sentence"]
    sound = explained(capsys, tmp_path, rows(400.0, ranks), *options)
    assert [f["fault"] for f in sound["faults"]] == ["nccl.no-evidence"], sound["sentence"]
    assert "published" in sound["sentence"]


def test_floors_judge_a_table_of_as_many_ranks_as_the_profile_has(tmp_path, capsys):
    """nccl.low-bandwidth; with another number of hosts the table is compared with published figures, and the cluster is
    not at fault."""
    job = explained(capsys, tmp_path, rows(200.0), "--profile", "h100-ib")
    assert (job["verdict"], job["tables"][0]["nearest"]["kind"]) == ("no-go", "floor")
    assert explained(capsys, tmp_path, rows(200.0, 64), "--profile", "h100-ib")["verdict"] == "inconclusive"


@pytest.mark.parametrize("hosts", [2, 4])
@pytest.mark.parametrize(
    ("redop", "root", "factor", "named"),
    [
        ("sum", -1, lambda n: 2 * (n - 1) / n, "all_reduce"),
        ("sum", -1, lambda n: (n - 1) / n, "reduce_scatter"),
        ("sum", -1, lambda _: 1.0, "sendrecv"),
        ("sum", 0, lambda _: 1.0, "reduce"),
        ("none", 0, lambda _: 1.0, "broadcast"),
        ("none", -1, lambda n: (n - 1) / n, None),
    ],
)
def test_an_older_benchmarks_table_is_of_the_collective_that_its_columns_tell(
    hosts, redop, root, factor, named, tmp_path, capsys
):
    """nccl-tests before 2.17.6 prints no name; all_gather and alltoall look the same, and a go names its basis."""
    maker = Maker(hosts=tuple(f"h-{at}" for at in range(hosts)), gpus=8, rails=8, channels=8)
    table = with_busbw(table_of(maker), 60.0, factor=factor(maker.ranks))
    row = next(line for line in table if line.lstrip().startswith("1073741824 "))
    unnamed = [line for line in table if "Collective test" not in line and not line.lstrip().startswith("1048576 ")]
    new = re.sub(r"sum +-1", f"{redop}  {root}", row)
    text = averaged("\n".join(new if line == row else line for line in unnamed) + "\n")
    job = explained(capsys, tmp_path, sequential(maker.processes()).decode() + text)
    assert job["tables"][0]["collective"] == named
    assert ("an unknown collective" in job["sentence"]) == (named is None), job["sentence"]


def test_network_cards_that_the_user_states_replace_what_others_had(tmp_path, capsys):
    """Four cards of 200 Gb/s carry a quarter of eight of 400, so 90 GB/s is healthy there."""
    for nics, low in (("4x200", False), ("8x400", True)):
        job = explained(capsys, tmp_path, rows(90.0), "--gpu", "8xH100", "--nics", nics)
        assert ("nccl.below-published" in [f["fault"] for f in job["faults"]]) == low, job["sentence"]


@pytest.mark.parametrize(("nics", "fault"), [("1x400", "nccl.below-published"), ("8x50", None)])
def test_fewer_cards_than_a_log_shows_at_work_excuse_no_speed(nics, fault, tmp_path, capsys):
    """Eight cards carry the data; the log does not show their rate."""
    table = "\n".join(with_busbw(table_of(EIGHT), 40.0, factor=1.875)) + "\n"
    job = explained(capsys, tmp_path, sequential(EIGHT.processes()).decode() + table, "--nics", nics)
    assert [found["fault"] for found in job["faults"]] == ([fault] if fault else []), job["sentence"]


def test_a_sentence_about_a_table_that_names_no_hosts_names_none(tmp_path, capsys):
    job = explained(capsys, tmp_path, rows(40.0), "--profile", "h100-ib")
    assert (job["verdict"], job["sentence"].split(":")[0]) == ("no-go", "A job of unknown size")


@pytest.mark.parametrize("options", [("--gpu", "8x"), ("--nics", "8"), ("--nics", "0x400"), ("--nics", "8xfast")])
def test_what_is_no_hardware_is_a_usage_error(options, tmp_path, capsys):
    (tmp_path / "table.log").write_text(rows(40.0))
    assert explain.main([str(tmp_path / "table.log"), *options]) == 4
    assert options[0] in capsys.readouterr().err


def test_what_the_user_states_is_read():
    assert said("2x8xB200", "8x400") == Said(gpu="B200", gpus_per_node=8, nodes=2, nics=8, wires_gbps=400.0)
    assert said("RTX PRO 6000", "") == Said(gpu="RTX PRO 6000")
    assert said("", "") == Said()
    with pytest.raises(UnknownHardwareError):
        said("8xH100", "400")


@pytest.mark.parametrize(
    ("log", "profile", "named"),
    [
        (EIGHT, "mi300x", "the log is of NVIDIA H100, and profile mi300x of *MI300X*, so none of its floors apply"),
        (EIGHT, "b200-mpi-slinky", "the log is of NVIDIA H100, and profile b200-mpi-slinky of NVIDIA-B200*"),
        (Maker(gpus=4), "h100-ib", "the log is of hosts with 4 GPUs, and profile h100-ib is of hosts with 8"),
    ],
)
@pytest.mark.parametrize("busbw", [420.0, 40.0])
@pytest.mark.parametrize("shown", [True, False], ids=["channels", "bare"])
def test_other_hardware_than_the_profiles_is_not_judged_by_it(log, profile, named, busbw, shown, tmp_path, capsys):
    table = "\n".join(with_busbw(table_of(log), busbw, factor=2 - 2 / log.ranks)) + "\n"
    text = (sequential(log.processes()).decode() if shown else "") + table
    job = explained(capsys, tmp_path, text, "--profile", profile)
    assert (job["verdict"], job["tables"][0]["reference"]) == ("inconclusive", []), job["sentence"]
    assert named in " ".join(job["not_judged"])
    assert named in job["sentence"] or not shown
    assert {f["fault"] for f in job["faults"]} <= {"nccl.no-evidence", "nccl.below-published"}
    assert ("nccl.below-published" in [f["fault"] for f in job["faults"]]) == (busbw < 100)


def test_a_setting_of_the_log_that_explains_it_comes_first(tmp_path, capsys):
    maker = Maker(gpus=8, rails=8, channels=8, env={"NCCL_PROTO": "LL"})
    table = "\n".join(with_busbw(table_of(maker), 100.0, factor=1.875)) + "\n"
    job = explained(capsys, tmp_path, sequential(maker.processes()).decode() + table)
    assert "NCCL_PROTO=LL is set" in job["sentence"]
    assert job["causes"][0]["cause"].startswith("a setting keeps NCCL from choosing")


def test_rails_that_carry_nothing_come_first_and_what_the_log_rules_out_is_no_cause(tmp_path, capsys):
    maker = Maker(gpus=8, rails=8, channels=4)
    table = "\n".join(with_busbw(table_of(maker), 100.0, factor=1.875)) + "\n"
    job = explained(capsys, tmp_path, sequential(maker.processes()).decode() + table)
    texts = [cause["cause"] for cause in job["causes"]]
    assert texts[0] == "not all NICs of a host carry data"
    assert job["sentence"].endswith("; 4 of 8 NICs of a host carry data.")
    assert not any("GPUDirect" in text for text in texts)


def test_small_messages_alone_are_no_speed(tmp_path, capsys):
    """Latency dominates below 64 MiB, so the go covers the transport only and says so."""
    table = [line for line in table_of(EIGHT) if not line.strip().startswith("1073741824")]
    text = sequential(EIGHT.processes()).decode() + averaged("\n".join(table) + "\n")
    job = explained(capsys, tmp_path, text)
    assert job["verdict"] == "go"
    assert "no row is of 64M or more, so latency decides and the speed was not judged" in job["sentence"]


H100 = Hardware(gpu="NVIDIA H100 80GB HBM3", gpus_per_node=8, nodes=2)


@pytest.mark.parametrize(
    ("hardware", "busbw", "kind"),
    [
        (Hardware(gpu="NVIDIA L40S", gpus_per_node=8, nodes=2, fabric="roce", wires_gbps=100.0), 40.0, "wires"),
        (Hardware(gpu="NVIDIA H20", gpus_per_node=8, nodes=1, fabric="none"), 100.0, "links"),
        (Hardware(gpu="NVIDIA B300 SXM6 AC", gpus_per_node=8, nodes=2, fabric="cxi"), 40.0, "elsewhere"),
        (Hardware(gpu="NVIDIA GeForce RTX 4090", gpus_per_node=8, nodes=2, fabric="roce"), 1.0, "none"),
        (Hardware(gpu="NVIDIA H100 80GB HBM3 MIG 1g.10gb", gpus_per_node=8, nodes=1, fabric="none"), 1.0, "none"),
        (Hardware(gpu="NVIDIA H100 PCIe", gpus_per_node=8, nodes=1, fabric="none"), 1.0, "none"),
        (Hardware(several_gpus=True, gpus_per_node=8, nodes=2, fabric="ib"), 1.0, "none"),
        (Hardware(gpu="NVIDIA H100", gpus_per_node=1, nodes=1, fabric="none"), 0.0, "none"),
    ],
)
def test_hardware_of_which_nothing_is_published_is_judged_by_what_it_carries(hardware, busbw, kind):
    nearest = refer(hardware, {8 * GIB: busbw})
    assert nearest["kind"] == kind, nearest["sentence"]
    assert kind == "none" or nearest["ratio"] < 0.7


@pytest.mark.parametrize(("gpu", "profile"), [("NVIDIA GH200 120GB", "h200-ib"), ("NVIDIA GB200", "b200-mpi-slinky")])
def test_a_profile_is_not_of_gpus_whose_names_end_as_its_own(gpu, profile):
    product = load_profile(profile).gpu.product
    assert of_other_kind([gpu], product) == [gpu]
    assert of_other_kind(["NVIDIA H200", "NVIDIA-H200-141GB", "H200"], load_profile("h200-ib").gpu.product) == []
