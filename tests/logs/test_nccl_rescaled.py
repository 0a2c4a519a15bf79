"""Every published measurement is judged correctly at any fraction: never go far below it, and go near it.

The logs have the correct transport and scaled numbers: the hardware of each row of the data file, all its sizes, all
collectives.
"""

from __future__ import annotations

import io
import re
from dataclasses import replace

from reports import explain_forms
from seatrial.logs import conclude, read
from seatrial.logs.bandwidth.hardware import Hardware
from seatrial.logs.bandwidth.judgement import compare, judge
from seatrial.logs.bandwidth.published import TCP, published, size_text
from seatrial.logs.bandwidth.reference import LOW, refer
from tests.examples import rest_is_slow
from tests.logs.logmaker import Maker, averaged, sequential

SHARES = (0.05, 0.15, 0.25, 0.5, 0.65, 0.69, 0.85, 1.0)
ROWS = [entry for entry in published() if entry.fabric != TCP]
NETS = {
    "ib": {"net": "IB"},
    "roce": {"net": "IB", "link": "RoCE"},
    "efa": {"net": "AWS Libfabric"},
    "fastrak": {"net": "FasTrak"},
    "none": {"net": "IB"},
}
FACTORS = {"all_reduce": lambda n: 2 * (n - 1) / n, "sendrecv": lambda _: 1.0, "broadcast": lambda _: 1.0}
MOST = 32
"""Ranks of a complete log; for larger jobs the hardware is judged without a log."""


def highest(entry) -> float:
    """Return the factor by which the nearest row may exceed this one, since sources differ for the same hardware."""
    hardware = hardware_of(entry)
    return max(refer(hardware, {size: 1.0})["expected_gbps"] / entry.by_size[size] for size in entry.by_size)


def hardware_of(entry) -> Hardware:
    return Hardware(
        gpu=f"NVIDIA {entry.gpu} {entry.memory}".strip(),
        gpus_per_node=entry.gpus_per_node,
        nodes=entry.nodes,
        fabric=entry.fabric,
        nics=entry.rails,
        platforms=(entry.platform,) if entry.platform else (),
        collective=entry.collective,
        algorithm=entry.algorithm,
        forced=entry.algorithm == "ring",
    )


def log_of(entry, share: float) -> str:
    """Return the complete log of a healthy transport, whose table has the row's numbers times a fraction."""
    env = {"NCCL_ALGO": "Ring"} if entry.algorithm == "ring" else {}
    rails = entry.rails if entry.rails and entry.fabric != "efa" else 8
    maker = Maker(
        hosts=tuple(f"node-{index}" for index in range(entry.nodes)),
        gpus=entry.gpus_per_node,
        rails=rails,
        channels=rails,
        env=env,
        **NETS[entry.fabric],
    )
    ranks, lines = maker.ranks, []
    factor = FACTORS.get(entry.collective, lambda n: (n - 1) / n)(ranks)
    redop = "sum" if entry.collective in ("all_reduce", "reduce_scatter", "reduce") else "none"
    for size, value in sorted(entry.by_size.items()):
        side = f"{size * factor / value / share / 1e3:.2f}  {value * share / factor:.2f}  {value * share:.2f}"
        lines.append(f"  {size}  {size // 4}  float  {redop}  -1  {side}  0  {side}  0")
    gpu = f"NVIDIA {entry.gpu} {entry.memory}".strip()
    head = [
        f"# Collective test starting: {entry.collective}_perf",
        "# Using devices",
        *(
            f"#  Rank {rank:2d} Group  0 Pid {maker.pid(rank):6d} on {maker.host(rank):>10} device {rank % maker.gpus:2d}"
            f" [0000:{rank % maker.gpus + 16:02x}:00] {gpu}"
            for rank in range(ranks)
        ),
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
    ]
    tail = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1", "#"]
    return sequential(maker.processes()).decode() + averaged("\n".join([*head, *lines, *tail]) + "\n")


def judged(text: str):
    (job,) = conclude(read([("job.log", io.BytesIO(text.encode()))]))
    compare(job)
    judge(job)
    return job


SMALL = [entry for entry in ROWS if entry.nodes * entry.gpus_per_node <= MOST and entry.fabric in NETS]


@rest_is_slow(4)
def test_the_log_of_a_published_row_is_go_near_to_it_and_never_far_below(every):
    for entry in SMALL[::every]:
        for share in SHARES:
            job = judged(log_of(entry, share))
            nearest = job["tables"][0]["nearest"]
            assert nearest["kind"] == "published", nearest["sentence"]
            told = " ".join(explain_forms.to_markdown([job]).replace("\\", "").split())
            assert nearest["rows"][0]["source"] in told, told
            if share < LOW:
                assert job["verdict"] == "inconclusive", job["sentence"]
                assert [fault["fault"] for fault in job["faults"]] == ["nccl.below-published"]
                assert "the bandwidth is" in job["sentence"].partition(". ")[0]
                assert len(job["causes"]) > 2
            elif share >= 0.85 * highest(entry):
                assert (job["verdict"], job["faults"]) == ("go", []), job["sentence"]


def test_a_row_is_its_own_nearest_reference():
    """The result does not depend on size or number of rows; the lower limit of a healthy one is 85 % of it."""
    for entry in ROWS:
        for size, value in entry.by_size.items():
            for share in SHARES:
                nearest = refer(hardware_of(entry), {size: value * share})
                assert nearest["kind"] == "published", (size_text(size), nearest["sentence"])
                assert nearest["ratio"] < LOW or share >= LOW, nearest["sentence"]
                assert nearest["ratio"] >= LOW or share < 0.85 * highest(entry), nearest["sentence"]


def test_no_row_contradicts_the_others_of_its_hardware():
    """Sources for one kind of hardware that differ by more than this need a distinguishing field (rails, platform)."""
    for entry in ROWS:
        assert highest(entry) <= 0.85 / LOW, str(entry)


def test_one_row_that_is_fast_hides_no_slow_ones():
    """10 % up to 4 GiB and 100 % at 8 GiB is not a level; a curve that rises late is one."""
    (entry,) = [e for e in ROWS if (str(e), e.collective) == ("2 x 8 H100, InfiniBand", "all_reduce")]
    top = max(entry.by_size)
    for share, low in ((0.1, True), (0.5, True), (0.68, False)):
        points = {top >> step: entry.at(top >> step) * (share if step else 1.0) for step in range(4)}
        nearest = refer(hardware_of(entry), points)
        assert (nearest["ratio"] < LOW) == low, nearest["sentence"]


def test_parts_of_a_gpu_are_compared_with_no_whole_one():
    hardware = Hardware(gpu="NVIDIA H100 80GB HBM3 MIG 1g.10gb", gpus_per_node=8, nodes=2, fabric="ib")
    assert refer(hardware, {8 << 30: 20.0})["kind"] == "none"
    assert refer(replace(hardware, gpu="NVIDIA H100 80GB HBM3"), {8 << 30: 20.0})["kind"] == "published"


def test_a_go_by_older_gpus_says_so_in_its_sentence():
    """Nothing is published for B300 over InfiniBand, so a fifth of its rate is still as fast as A100."""
    entry = next(e for e in ROWS if (str(e), e.collective) == ("2 x 8 A100, InfiniBand", "all_reduce"))
    text = log_of(entry, 1.0)
    job = judged(re.sub(r"NVIDIA A100[^\n]*", "NVIDIA B300 SXM6 AC", text))
    assert job["verdict"] == "go"
    assert "older GPUs of 2 x 8 A100" in job["sentence"]
    assert "older" not in judged(text)["sentence"]
