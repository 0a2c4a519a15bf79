"""A log's numbers are shown with published ones for that hardware, and fail it only if necessary."""

from __future__ import annotations

import io
import re
from collections import Counter
from itertools import pairwise

import pytest

from checks.profiles.loader import load_profile
from checks.rules.reference import judge_by
from reports import explain_forms
from seatrial.logs import conclude, read
from seatrial.logs.bandwidth.hardware import algorithm_of
from seatrial.logs.bandwidth.judgement import compare, judge
from seatrial.logs.bandwidth.physics import TOLERANCE, intra_node_limit_gbps, links_gbps, wire_limit_gbps
from seatrial.logs.bandwidth.published import Published, published
from seatrial.logs.job_document import NETWORK_NAMES
from tests.logs.logmaker import Maker, sequential, table_of, with_busbw

GIB = 1 << 30


def judged(maker: Maker, gpu: str, busbw: float, *, size: int = 8 * GIB, debug: bool = True, profile=None):
    """Return the job of a log whose table has one large row."""
    table = [line for line in table_of(maker) if "1048576  " not in line]
    text = "\n".join(with_busbw(table, busbw, size)).replace("NVIDIA H100", gpu) + "\n"
    log = (sequential(maker.processes()) if debug else b"") + text.encode()
    (job,) = conclude(read([("job.log", io.BytesIO(log))]))
    if profile is not None:
        judge_by([job], profile)
    else:
        compare(job)
        judge(job)
    return job


EIGHT = Maker(gpus=8, rails=8, channels=8)


@pytest.mark.usefixtures("few_references")
def test_a_row_is_shown_with_the_published_one():
    """The published row has the same GPU model and number, number of hosts, fabric, collective and size."""
    job = judged(EIGHT, "NVIDIA H100 80GB HBM3", 460.0)
    known = job["tables"][0]["published"]
    assert (known["published_gbps"], known["ratio"], known["topology"], known["source"]) == (
        467.0,
        0.985,
        "2 x 8 H100, InfiniBand",
        "Together documentation",
    )
    text = " ".join(explain_forms.to_text([job]).split())
    assert "460 GB/s at 8G is 99% of the 467 GB/s that are published for 2 x 8 H100, InfiniBand (Together" in text
    assert "others: 333 GB/s for 2 x 8 H100, GPUDirect-TCPXO (NVIDIA/aicr UAT" in text


@pytest.mark.parametrize(
    ("maker", "gpu"),
    [
        (EIGHT, "NVIDIA H100 PCIe"),
        (EIGHT, "NVIDIA H100 NVL"),
        (EIGHT, "NVIDIA L40"),
        (Maker(gpus=2, rails=2), "NVIDIA H100 80GB HBM3"),
        (Maker(gpus=8, net="AWS Libfabric", rails=8, hosts=("a", "b", "c")), "NVIDIA H100 80GB HBM3"),
    ],
)
def test_other_hardware_is_not_compared(maker, gpu):
    """A PCIe card is not an SXM board, and two GPUs or three hosts differ from eight or two."""
    assert judged(maker, gpu, 300.0)["tables"][0]["published"] is None


@pytest.mark.usefixtures("few_references")
def test_a_number_below_what_was_published_is_no_go_and_no_accusation():
    """Without a profile the expected rate is unknown, and published rates were measured elsewhere."""
    job = judged(EIGHT, "NVIDIA H100 80GB HBM3", 120.0)
    assert (job["verdict"], job["diagnosis"], job["tables"][0]["published"]["ratio"]) == (
        "inconclusive",
        "below-published",
        0.257,
    )
    assert [fault["fault"] for fault in job["faults"]] == ["nccl.below-published"]
    assert [cause["cause"][:20] for cause in job["causes"][:2]] == ["a setting keeps NCCL", "a GPU uses a NIC at "]


@pytest.mark.parametrize(
    ("busbw", "verdict"),
    [(3.5, "no-go"), (9.0, "no-go"), (12.5, "inconclusive"), (40.0, "inconclusive"), (467.0, "inconclusive")],
)
def test_only_tcp_explains_numbers_as_low_as_tcp(busbw, verdict):
    """No line shows the transport: 3.5 of 467 GB/s is TCP, one rail of eight is faster."""
    job = judged(EIGHT, "NVIDIA H100 80GB HBM3", busbw, debug=False)
    assert (job["inter_node_transport"], job["verdict"]) == ("unknown", verdict)
    if verdict == "no-go":
        (fault,) = [fault for fault in job["faults"] if fault["severity"] != "info"]
        assert fault["fault"] == "nccl.low-bandwidth"
        assert "SkyPilot" in fault["cause"]
        assert "Azure/aks-rdma-infiniband" in fault["cause"]


def test_a_small_message_proves_nothing():
    """A small message's time is latency, not bandwidth."""
    assert judged(EIGHT, "NVIDIA H100 80GB HBM3", 3.5, size=1 << 20, debug=False)["verdict"] == "inconclusive"


def test_a_profile_decides_where_there_is_one():
    """The profile's floors decide; the comparison is for logs without a profile."""
    job = judged(EIGHT, "NVIDIA H100 80GB HBM3", 3.5, debug=False, profile=load_profile("h100-ib"))
    assert [fault["cause"] for fault in job["faults"] if "SkyPilot" in (fault["cause"] or "")] == []


def test_what_the_links_carried_at_least_is_reported():
    """Of 467 GB/s on two hosts of eight, 8/15 crossed: 31 GB/s per GPU."""
    assert judged(EIGHT, "NVIDIA H100 80GB HBM3", 467.0)["tables"][0]["wire"]["gpu_gbit_s"] == pytest.approx(
        467 * 8 / 15 / 8 * 8, abs=0.1
    )


COLLECTIVES = {"all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv"}


def test_every_published_row_is_whole_and_says_where_and_when_it_was_published():
    """A number needs a source, and an unknown term matches no log."""
    assert len(published()) > 80
    for entry in published():
        assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?|read 20\d\d-\d\d", entry.date), entry
        assert entry.source.strip(), entry
        assert entry.fabric in {*NETWORK_NAMES, "none", "tcp"}, entry
        assert (entry.fabric == "none") == (entry.nodes == 1), entry
        assert entry.collective in COLLECTIVES, entry
        assert entry.algorithm in ("default", "ring"), entry
        assert entry.by_size, entry
        assert (entry.rails is None) == (entry.rail_gbit_s is None), entry


def test_no_published_row_is_there_twice():
    """Same hardware, operation and source: otherwise the order in the file would decide."""
    keys = Counter(
        (e.gpu, e.nodes, e.gpus_per_node, e.fabric, e.collective, e.algorithm, e.source) for e in published()
    )
    assert [key for key, count in keys.items() if count > 1] == []


def within_the_hardware(entry: Published) -> bool:
    """Say whether a host's NICs and a GPU's links can carry a row, as far as their rates are known."""
    peak = max(entry.by_size.values())
    links = links_gbps((entry.gpu,))
    if links and peak > intra_node_limit_gbps(links, gpus=entry.nodes * entry.gpus_per_node) * TOLERANCE:
        return False
    if entry.node_gbps is None:
        return True
    layout = {"nodes": entry.nodes, "gpus_per_node": entry.gpus_per_node}
    return peak <= wire_limit_gbps(entry.collective, entry.algorithm, entry.node_gbps, **layout) * TOLERANCE


def test_no_published_row_is_above_what_its_network_and_links_carry():
    """No source here used in-network reduction between hosts, so a row above the link rate is a typo."""
    assert [str(entry) for entry in published() if not within_the_hardware(entry)] == []


@pytest.mark.parametrize(
    ("changes", "possible"),
    [
        ({"busbw_gbps": {"8G": 749.0}}, True),  # 400 GB/s per host, and Tree on two of them: 15/8
        ({"busbw_gbps": {"8G": 876.0}}, False),
        ({"busbw_gbps": {"8G": 410.0}, "algorithm": "ring"}, False),
        ({"busbw_gbps": {"8G": 95.0}, "collective": "alltoall"}, True),
        ({"busbw_gbps": {"8G": 100.0}, "collective": "alltoall"}, False),
        ({"busbw_gbps": {"8G": 1800.0}, "nodes": 1, "fabric": "none", "rails": None, "rail_gbit_s": None}, False),
    ],
)
def test_a_row_that_no_hardware_gives_is_found(changes, possible):
    """The near miss of each is a row that the same links carry."""
    usual = {"gpu": "B200", "nodes": 2, "gpus_per_node": 8, "fabric": "ib", "collective": "all_reduce"}
    rest = {"algorithm": "default", "rails": 8, "rail_gbit_s": 400.0, "source": "none", "date": "2026-11"}
    assert within_the_hardware(Published(**{**usual, **rest, **changes})) is possible


def test_published_values_rise_with_size():
    """Two sizes may differ by noise, so a larger one may be slightly slower."""
    for entry in published():
        values = [entry.by_size[size] for size in sorted(entry.by_size)]
        assert all(later >= 0.95 * earlier for earlier, later in pairwise(values)), entry
        assert values[-1] >= 0.95 * max(values), entry


@pytest.mark.parametrize(
    ("collective", "printed", "algorithm"),
    [
        ("all_reduce", "RING", "ring"),
        ("all_reduce", "TREE", "default"),
        ("sendrecv", "RING", "default"),
        ("all_to_all", "Ring", "default"),
        (None, None, "default"),
    ],
)
def test_sends_to_peers_have_no_algorithm_though_nccl_prints_a_ring(collective, printed, algorithm):
    """Otherwise no floor and no published row for them would match a log with TUNING lines."""
    assert algorithm_of({"collective": collective, "algorithm": printed}) == algorithm
