"""Are a log's numbers put beside what was published for that hardware, and never held against it without need?"""

from __future__ import annotations

import io

import pytest
import yaml

from checks.profiles.loader import load_profile
from checks.rules.reference import judge_by
from jobs.nccl import conclude, read
from jobs.nccl.bandwidth.judgement import compare, judge
from jobs.nccl.bandwidth.published import published
from reports import explain_forms
from tests.nccl.logmaker import Maker, sequential, table_of, with_busbw

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
def test_a_row_is_shown_beside_the_published_one():
    """Same GPU, as many of them, as many hosts, the same fabric, collective and size."""
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
        (Maker(gpus=4, rails=4), "NVIDIA H100 80GB HBM3"),
        (Maker(gpus=8, net="AWS Libfabric", rails=8, hosts=("a", "b", "c")), "NVIDIA H100 80GB HBM3"),
    ],
)
def test_other_hardware_is_not_compared(maker, gpu):
    """A card is no board, four GPUs are no eight, three hosts are no two."""
    assert judged(maker, gpu, 300.0)["tables"][0]["published"] is None


@pytest.mark.usefixtures("few_references")
def test_a_number_below_what_was_published_is_no_go_and_no_accusation():
    """Without a profile nobody said what this cluster must give; and what others get was not seen here."""
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
    """No line shows the transport: 3.5 GB/s of 467 is TCP, one rail of eight is still more."""
    job = judged(EIGHT, "NVIDIA H100 80GB HBM3", busbw, debug=False)
    assert (job["inter_node_transport"], job["verdict"]) == ("unknown", verdict)
    if verdict == "no-go":
        (fault,) = [fault for fault in job["faults"] if fault["severity"] != "info"]
        assert fault["fault"] == "nccl.low-bandwidth"
        assert "SkyPilot" in fault["cause"]
        assert "Azure/aks-rdma-infiniband" in fault["cause"]


def test_a_small_message_proves_nothing():
    """Latency is not bandwidth."""
    assert judged(EIGHT, "NVIDIA H100 80GB HBM3", 3.5, size=1 << 20, debug=False)["verdict"] == "inconclusive"


def test_a_profile_speaks_instead_where_there_is_one():
    """Its floors decide; the suspicion is for those who have none."""
    job = judged(EIGHT, "NVIDIA H100 80GB HBM3", 3.5, debug=False, profile=load_profile("h100-ib"))
    assert [fault["cause"] for fault in job["faults"] if "SkyPilot" in (fault["cause"] or "")] == []


def test_what_the_wires_carried_at_least_is_told():
    """Of 467 GB/s on two hosts of eight, 8/15 crossed: 31 GB/s a GPU."""
    assert judged(EIGHT, "NVIDIA H100 80GB HBM3", 467.0)["tables"][0]["wire"]["gpu_gbit_s"] == pytest.approx(
        467 * 8 / 15 / 8 * 8, abs=0.1
    )


def test_every_published_number_is_whole_and_has_its_source(shared):
    """Nothing here that is not in the collected references."""
    reference = yaml.safe_load((shared / "reference-busbw.yaml").read_text())
    numbers = {float(value) for entry in reference for value in entry["busbw_gbps"].values()}
    assert len(published()) > 20
    for entry in published():
        assert entry.source
        assert set(entry.by_size.values()) <= numbers, entry
