"""A go is withheld if something was not judged or is implausible."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from checks.profiles import loader
from cli import explain
from tests.logs.logmaker import Maker, averaged, sequential, table_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("few_references")
EIGHT = Maker(gpus=8, rails=8, channels=8)
PROFILE = """
name: made
gpu: {{per_node: {gpus}}}
fabric: {{kind: ib, rails: {rails}, gdr: true}}
floors:
  - {{collective: all_reduce, algorithm: default, nodes: {nodes}, size: {size}, busbw_gbps: 100, topology: made up, source: "made up, 2026"}}
"""


def logged(busbw: object = 420.0, wrong: str = "0", size: int = 1 << 30, maker: Maker = EIGHT) -> str:
    """Return the log of a healthy job whose largest row holds these numbers."""
    text = "\n".join(table_of(maker)).replace("NVIDIA H100", "NVIDIA H100 80GB HBM3")
    out = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 13 and fields[0] == "1073741824":
            # matching time and algorithm bandwidth: 16 ranks have the factor 30/16
            algbw = float(busbw) * 16 / 30 if str(busbw).replace(".", "").isdigit() else 82.0
            side = f"{size / algbw / 1e3 if algbw else 0:.2f} {algbw:.2f} {busbw}"
            out.append(f"{size} {size // 4} float sum -1 {side} 0 {side} {wrong}".replace(" ", "  "))
        else:
            out.append(line)
    return sequential(maker.processes()).decode() + averaged("\n".join(out) + "\n")


def explained(capsys: pytest.CaptureFixture[str], path: Path, text: str, profile: str = "") -> dict:
    (path / "job.log").write_text(text)
    arguments = [str(path / "job.log"), "--format", "json"]
    if profile:
        (path / "profile.yaml").write_text(profile)
        arguments += ["--profile", str(path / "profile.yaml")]
    code = explain.main(arguments)
    job = json.loads(capsys.readouterr().out)["jobs"][0]
    assert code == {"go": 0, "no-go": 1, "inconclusive": 10}[job["verdict"]]
    return job


def profiled(gpus: int = 8, rails: int = 8, nodes: int = 2, size: str = "1G") -> str:
    return PROFILE.format(gpus=gpus, rails=rails, nodes=nodes, size=size)


def test_what_the_profile_asks_for_and_the_log_shows_is_a_go(tmp_path, capsys):
    assert explained(capsys, tmp_path, logged(), profiled())["verdict"] == "go"


@pytest.mark.parametrize(
    ("profile", "named"),
    [
        (profiled(size="8G"), "the floor of all_reduce (default) at 8G on 2 nodes"),
        (profiled(nodes=4), "the floor of all_reduce (default) at 1G on 4 nodes"),
        (profiled(gpus=16), "on 2 nodes of 16 GPUs"),
        (profiled(gpus=16), "the 8 rails of a host"),
    ],
)
def test_what_met_no_row_or_layout_is_named_and_no_go(profile, named, tmp_path, capsys):
    """A floor or a rail count that was not applied is listed and prevents go."""
    job = explained(capsys, tmp_path, logged(), profile)
    assert job["verdict"] == "inconclusive"
    assert "not judged against the profile" in job["sentence"]
    assert job["diagnosis"] == "not-judged"
    assert named in job["sentence"]


def test_many_floors_that_met_no_row_are_counted_and_hide_nothing(tmp_path, capsys):
    """Four GPUs per host against a shipped profile: the first sentence has the fraction, the list all floors."""
    text = logged("3.1", maker=Maker(hosts=("one", "two"), gpus=4))
    (tmp_path / "job.log").write_text(text)
    assert explain.main([str(tmp_path / "job.log"), "--format", "json", "--profile", "h100-ib"]) == 10
    job = json.loads(capsys.readouterr().out)["jobs"][0]
    assert job["diagnosis"] == "far-below-published", job["sentence"]
    assert "3.1 GB/s at 1G is 1% of 207.7 GB/s, the least that follows for 2 x 4 NVIDIA H100" in job["sentence"]
    assert "the log is of hosts with 4 GPUs, and profile h100-ib is of hosts with 8" in job["sentence"]
    assert "all 7 floors; no row of these logs has one; the 8 rails of a host" in job["sentence"]
    assert len(job["not_judged"]) == 9


def test_floors_that_met_a_row_judge_and_not_what_others_published(tmp_path, capsys):
    """Near miss: the profile's values for this platform take precedence over those published for another."""
    job = explained(capsys, tmp_path, logged("9.3"), profiled().replace("busbw_gbps: 100", "busbw_gbps: 9"))
    assert (job["verdict"], "published" in job["sentence"]) == ("go", False), job["sentence"]
    assert job["tables"][0]["nearest"]["kind"] == "floor"


def test_what_was_not_applied_is_listed_whatever_the_verdict(tmp_path, capsys):
    """A log that is no-go for another reason also lists them, in the document and in the text."""
    text = "\n".join(line for line in logged().splitlines() if " via NET/" not in line) + "\n"
    job = explained(capsys, tmp_path, text, profiled(size="8G"))
    assert (job["verdict"], job["diagnosis"] == "not-judged") == ("inconclusive", False)
    assert any("the floor of all_reduce (default) at 8G" in each for each in job["not_judged"])
    explain.main([str(tmp_path / "job.log"), "--profile", str(tmp_path / "profile.yaml")])
    assert "Not judged against the profile\n  the floor of all_reduce" in capsys.readouterr().out
    assert explained(capsys, tmp_path, logged(), profiled())["not_judged"] == []


def test_a_fabric_that_nothing_crossed_is_not_judged(tmp_path, capsys):
    job = explained(capsys, tmp_path, logged(maker=Maker(hosts=("one",), gpus=8)), profiled(nodes=1))
    assert (job["verdict"], "the fabric ib, since no data crosses hosts" in job["sentence"]) == ("inconclusive", True)


def test_sums_that_no_one_checked_are_no_go_with_a_profile(tmp_path, capsys):
    job = explained(capsys, tmp_path, logged(wrong="N/A"), profiled())
    assert (job["verdict"], "#wrong has no count" in job["sentence"]) == ("inconclusive", True)


@pytest.mark.parametrize(("busbw", "wrong"), [("-153.6", "0"), ("nan", "0"), ("153.6", "nan"), ("153.6", "-1")])
def test_numbers_that_are_none_are_never_a_go(busbw, wrong, tmp_path, capsys):
    """An invalid number is never go, also if the other side of the row is valid."""
    for profile in ("", profiled()):
        assert explained(capsys, tmp_path, logged(busbw, wrong), profile)["verdict"] != "go"


@pytest.mark.parametrize(
    ("busbw", "diagnosis"),
    [
        (9.3, "far-below-published"),
        (100.0, "far-below-published"),
        (120.0, "below-published"),
        (300.0, "below-published"),
        (380.0, "healthy-rdma"),
        (460.0, "healthy-rdma"),
    ],
)
def test_a_small_fraction_of_what_is_published_is_said_first(busbw, diagnosis, tmp_path, capsys):
    """2 % of the published rate for this hardware was once go."""
    job = explained(capsys, tmp_path, logged(busbw))
    go = diagnosis == "healthy-rdma"
    assert (job["verdict"], job["diagnosis"]) == ("go" if go else "inconclusive", diagnosis)
    assert ("GB/s that are published for 2 x 8 H100, InfiniBand" in job["sentence"]) != go
    assert (f"{busbw:g} GB/s at 1G" in job["sentence"]) != go


@pytest.mark.parametrize("maker", [Maker(gpus=8, link="RoCE"), Maker(gpus=4), Maker(gpus=4, net="AWS Libfabric")])
@pytest.mark.parametrize(
    ("busbw", "verdict"), [(5.0, "inconclusive"), (60.0, "inconclusive"), (130.0, "inconclusive"), (200.0, "go")]
)
def test_another_layout_or_fabric_than_any_published_is_compared_more_loosely(maker, busbw, verdict, tmp_path, capsys):
    """Four H100 per host over this fabric are not published; half of the rate of eight, or of others, is no-go."""
    assert explained(capsys, tmp_path, logged(busbw, maker=maker))["verdict"] == verdict


def test_fewer_gpus_a_host_are_expected_to_reach_less(tmp_path, capsys):
    """The published rate for eight per host is scaled to the log's number."""
    assert explained(capsys, tmp_path, logged(160.0, maker=Maker(gpus=8, link="RoCE")))["verdict"] == "inconclusive"
    assert explained(capsys, tmp_path, logged(160.0, maker=Maker(gpus=4)))["verdict"] == "go"


FACTORS = {
    "all_reduce": 2.0,
    "all_gather": 1.0,
    "alltoall": 1.0,
    "sendrecv": 1.0,
}  # bus over algorithm bandwidth, many ranks


def of(collective: str, gpu: str, busbw: float, maker: Maker) -> str:
    """Return a healthy job's log with one 1 GiB row of another collective, on GPUs with this name."""
    log = logged(busbw, maker=maker).replace("H100 80GB HBM3", gpu).replace("all_reduce_perf", f"{collective}_perf")
    algbw = busbw / FACTORS[collective]
    side = f"{(1 << 30) / algbw / 1e3:.2f}  {algbw:.3f}  {busbw:.3f}  0"
    redop = "sum" if collective == "all_reduce" else "none"
    lines = [line for line in log.splitlines() if not line.startswith("     1048576")]
    row = f"1073741824  268435456  float  {redop}  -1  {side}  {side}"
    return averaged("\n".join(row if line.startswith("1073741824") else line for line in lines) + "\n")


ONE = Maker(gpus=8, rails=8, hosts=("one",))


@pytest.mark.parametrize(
    ("collective", "gpu", "maker", "low", "sound"),
    [
        ("all_gather", "H100 80GB HBM3", EIGHT, 200.0, 250.0),
        ("alltoall", "H100 80GB HBM3", EIGHT, 20.0, 30.0),
        ("sendrecv", "H100 80GB HBM3", EIGHT, 10.0, 20.0),
        ("all_gather", "A100-SXM4-80GB", ONE, 80.0, 180.0),
        ("all_reduce", "H100 80GB HBM3", Maker(gpus=4, hosts=("one",)), 200.0, 320.0),
        ("all_reduce", "B300 SXM6", ONE, 300.0, 450.0),
        ("all_reduce", "B300 SXM6", EIGHT, 60.0, 120.0),
        ("alltoall", "GH200 480GB", Maker(gpus=4), 5.0, 20.0),
    ],
)
def test_another_collective_or_newer_gpus_than_any_published_are_compared_more_loosely(
    collective, gpu, maker, low, sound, tmp_path, capsys
):
    """An all-to-all at 1 GB/s was once go if only the all-reduce of such hosts was published; and any on newer GPUs."""
    job = explained(capsys, tmp_path, of(collective, gpu, low, maker))
    assert (job["verdict"], f"{low:g} GB/s at 1G is" in job["sentence"]) == ("inconclusive", True), job["sentence"]
    assert explained(capsys, tmp_path, of(collective, gpu, sound, maker))["verdict"] == "go"


@pytest.mark.parametrize("gpu", ["L40S", "H100 PCIe", "V100-SXM2-32GB"])
def test_hosts_of_which_nothing_the_same_is_published_are_not_compared(gpu, tmp_path, capsys):
    job = explained(capsys, tmp_path, of("all_reduce", gpu, 1.0, EIGHT))
    assert (job["verdict"], job["tables"][0]["nearest"]["kind"]) == ("go", "none")
    assert "the speed was not judged" in job["sentence"].partition(". ")[0]


@pytest.mark.parametrize("name", loader.profile_names())
@pytest.mark.parametrize(
    ("busbw", "wrong"),
    [("-153.6", "0"), ("nan", "0"), ("inf", "0"), ("0.00", "0"), ("153.6", "N/A"), ("153.6", "nan"), ("7.6", "0")],
)
def test_no_shipped_profile_makes_a_go_of_such_numbers(name, busbw, wrong, tmp_path, capsys):
    for gpus in (4, 8):
        (tmp_path / "job.log").write_text(logged(busbw, wrong, maker=Maker(gpus=gpus)))
        explain.main([str(tmp_path / "job.log"), "--format", "json", "--profile", name])
        assert json.loads(capsys.readouterr().out)["jobs"][0]["verdict"] != "go"


NET = "gpu-node-0:1000:1000 [0] NCCL INFO         + NET[{rate:.1f}] - NET/{card}-0 (0/0/0/{rate:.6f})\n"


@pytest.mark.parametrize(
    ("rate", "busbw", "verdict"),
    [(50, 700, "go"), (50, 800, "inconclusive"), (25, 400, "inconclusive"), (25, 350, "go")],
)
def test_more_than_the_links_of_the_log_carry_is_no_go(rate, busbw, verdict, tmp_path, capsys):
    """nccl.odd-numbers: two hosts of eight GPUs send 8/15 of the bus bandwidth over eight cards, or sent less data than
    stated."""
    wires = "".join(NET.format(rate=rate, card=card) for card in range(8))
    job = explained(capsys, tmp_path, wires + logged(busbw))
    assert (job["wires_gbps"], job["verdict"]) == (8 * rate, verdict)
    assert ("prove nothing" in job["sentence"]) is (verdict != "go")
    assert (job["diagnosis"] == "odd-numbers") is (verdict != "go")


def test_more_than_the_links_of_the_profile_or_the_links_of_the_gpus_carry_is_no_go(tmp_path, capsys):
    """nccl.odd-numbers: the limit of eight rails of 200 Gb/s, and of 450 GB/s of NVLink."""
    profile = profiled().replace("gdr: true", "gdr: true, rail_gbit_s: 200")
    assert explained(capsys, tmp_path, logged(300), profile)["verdict"] == "go"
    assert "200 GB/s of network" in explained(capsys, tmp_path, logged(400), profile)["sentence"]
    assert explained(capsys, tmp_path, logged(800))["verdict"] == "go"
    assert "the links of NVIDIA H100" in explained(capsys, tmp_path, logged(900))["sentence"]


def test_links_that_are_guessed_limit_nothing(tmp_path, capsys):
    """NCCL assumes 10 Gb/s for a virtual interface without a rate; sockets have no link limit."""
    sockets = Maker(gpus=8, rails=8, channels=8, socket_ranks=tuple(range(16)))
    job = explained(capsys, tmp_path, NET.format(rate=1.25, card=0) + logged(9, maker=sockets))
    assert job["wires_gbps"] is None
    assert "prove nothing" not in job["sentence"]


@pytest.mark.parametrize(("redop", "verdict"), [("sum", "go"), ("none", "inconclusive")])
def test_a_table_without_a_name_is_held_against_what_it_can_be(redop, verdict, tmp_path, capsys):
    """Without a reduction in the table, the floor of an all-reduce matched no row."""
    text = "".join(line for line in logged().splitlines(keepends=True) if "Collective test" not in line)
    job = explained(capsys, tmp_path, text.replace("  sum  ", f"  {redop}  "), profiled())
    assert job["verdict"] == verdict


# -- P2P disabled on every host ----------------------------------------------------------------------------------------
def without_peers(env: dict[str, str], gpu: str, hosts: tuple[str, ...]) -> str:
    """Return a healthy job's log whose GPUs use host memory between them; no table without a name."""
    maker = Maker(gpus=8, rails=8, channels=8, hosts=hosts, env=env)
    channels = sequential(maker.processes()).decode().replace("via P2P/CUMEM/read", "via SHM/direct/direct")
    return channels + ("\n".join(table_of(maker)).replace("NVIDIA H100", gpu) + "\n" if gpu else "")


@pytest.mark.parametrize("env", [{}, {"NCCL_P2P_DISABLE": "1"}], ids=["not-set", "disabled"])
@pytest.mark.parametrize("hosts", [("one",), ("one", "two")], ids=["one-host", "two-hosts"])
@pytest.mark.parametrize(
    ("gpu", "verdict"),
    [
        ("", "inconclusive"),  # neither a GPU name nor a number that shows the cost
        ("NVIDIA H100 80GB HBM3", "no-go"),
        ("NVIDIA A100-SXM4-80GB", "no-go"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "go"),
        ("NVIDIA H100 PCIe", "go"),
        ("NVIDIA L40S", "go"),
    ],
)
def test_memory_of_the_host_alone_is_no_go_where_the_gpus_have_links(gpu, verdict, hosts, env, tmp_path, capsys):
    """P2P is disabled uniformly: no host differs from another, and the job runs."""
    job = explained(capsys, tmp_path, without_peers(env, gpu, hosts))
    assert job["verdict"] == verdict, job["sentence"]
    assert ("shared memory carries all channels" in job["sentence"]) is (verdict != "go")
    assert ("NCCL_P2P_DISABLE=1" in job["sentence"]) is (verdict != "go" and bool(env))
    assert [fault["fault"] for fault in job["faults"]] == ["nccl.p2p-off"] * (verdict == "no-go")


@pytest.mark.parametrize(
    ("gpu", "peers", "verdict"),
    [
        ("NVIDIA H100 80GB HBM3", 1, "no-go"),
        ("NVIDIA H100 80GB HBM3", 31, "no-go"),
        ("NVIDIA B200", 31, "no-go"),
        ("NVIDIA H100 80GB HBM3", 32, "go"),  # a few pairs may lack P2P
        ("NVIDIA H100 80GB HBM3", 48, "go"),
        ("NVIDIA L40S", 1, "go"),  # GPUs on two CPUs: host memory between those, P2P below each
        ("", 1, "go"),
    ],
)
def test_memory_that_carries_more_channels_than_p2p_is_no_go_where_the_gpus_have_links(
    gpu, peers, verdict, tmp_path, capsys
):
    text = without_peers({}, gpu, ("one",)).replace("12234    87.77  153.60", " 4697   228.57  400.00")
    text = averaged(text) if gpu else text
    channels = text.count("via SHM/direct/direct")
    job = explained(capsys, tmp_path, text.replace("via SHM/direct/direct", "via P2P/CUMEM", channels * peers // 64))
    assert job["verdict"] == verdict
    assert ("shared memory carries" in job["sentence"]) is (verdict != "go")
