"""Known bandwidth defects of NCCL: reported by version, GPU, hosts and measured rate together."""

from __future__ import annotations

import pytest

from seatrial.logs.diagnosis.conclusion import call_slow
from tests.logs.logmaker import Maker, sequential, table_of, with_busbw
from tests.logs.test_nccl_causes import judged
from tests.table import table

HOSTS = tuple(f"gpu-node-{index}" for index in range(4))


def measured(
    version: str, gpu: str, hosts: int, busbw: float, collective: str = "all_reduce", env: dict[str, str] | None = None
) -> str:
    maker = Maker(hosts=HOSTS[:hosts], gpus=2, version=version + "+cuda12.4", env=env or {})
    factor = (2 if collective == "all_reduce" else 1) * (maker.ranks - 1) / maker.ranks
    table = "\n".join(with_busbw(table_of(maker), busbw, factor=factor)) + "\n"
    table = table.replace("NVIDIA H100", f"NVIDIA {gpu}").replace("all_reduce_perf", collective + "_perf")
    return sequential(maker.processes()).decode() + table


B300, A40, H800 = (
    ("2.29.7", "B300 SXM6 AC", 3, 200.0),
    ("2.16.2", "A40", 1, 1.2),
    ("2.20.5", "H800", 4, 37.0, "alltoall"),
)


@pytest.mark.parametrize(
    ("log", "issue"),
    [
        (measured(*B300), "nccl#2035"),
        (measured("2.27.3", *B300[1:]), "nccl#2035"),
        (measured(*B300, env={"NCCL_ALGO": "NVLSTree"}), "nccl#2035"),
        (measured(*A40), "nccl#770"),
        (measured(*A40, "reduce_scatter"), "nccl#770"),
        (measured(*H800), "nccl#1316"),
    ],
)
def test_a_version_that_is_known_to_be_slow_is_reported_and_decides_nothing(log, issue):
    job = judged(log)
    (remark,) = (fault for fault in job["faults"] if fault["fault"] == "nccl.slow-version")
    assert issue in remark["cause"]
    assert (remark["severity"], job["verdict"]) == ("info", "go")
    call_slow(job, job["tables"][0], "a third of what the profile asks for")
    assert job["verdict"] == "no-go"
    assert [cause["fault"] for cause in job["causes"]][:2] == ["nccl.slow-version", "nccl.low-bandwidth"]
    assert job["causes"][0]["confirm"] == remark["confirm"]


@table(
    "log",
    [
        measured("2.30.3", *B300[1:]),
        measured("2.24.3", *B300[1:]),
        measured("2.29.7", "B300 SXM6 AC", 2, 200.0),
        measured("2.29.7", "B200", 3, 200.0),
        measured("2.29.7", "B300 SXM6 AC", 3, 700.0),
        measured(*B300, "all_gather"),
        measured(*B300, env={"NCCL_ALGO": "Ring"}),
        measured(*B300, env={"NCCL_NVLS_ENABLE": "0"}),
        measured("2.16.5", *A40[1:]),
        measured("2.15.5", *A40[1:]),
        measured("2.16.2", "A100-SXM4-80GB", 1, 1.2),
        measured("2.16.2", "A40", 1, 12.0),
        measured(*A40, "sendrecv"),
        measured("2.18.3", *H800[1:]),
        measured("2.20.5", "H800", 2, 37.0, "alltoall"),
        measured("2.20.5", "H800", 4, 48.0, "alltoall"),
        measured("2.20.5", "H100 80GB HBM3", 4, 37.0, "alltoall"),
    ],
)
def test_another_version_gpu_size_or_speed_is_no_known_defect(log):
    job = judged(log)
    assert "nccl.slow-version" not in [fault["fault"] for fault in job["faults"]]
    call_slow(job, job["tables"][0], "a third of what the profile asks for")
    assert {cause["fault"] for cause in job["causes"]} == {"nccl.low-bandwidth"}


@pytest.mark.parametrize(
    ("version", "gpu", "known"),
    [
        ("2.27.3", "A100-SXM-64GB", True),
        ("2.25.1", "A100-SXM-64GB", True),
        ("2.22.3", "A100-SXM-64GB", False),
        ("2.27.3", "H100 80GB HBM3", False),
    ],
)
def test_a_path_that_a_version_does_not_find_is_its_defect(version, gpu, known):
    maker = Maker(version=version + "+cuda12.4")
    warned = "gpu-node-0:1000:1000 [0] graph/search.cc:1124 NCCL WARN Could not find a path for pattern 4, falling back to simple order\n"
    table = "\n".join(table_of(maker)).replace("NVIDIA H100", f"NVIDIA {gpu}")
    job = judged(sequential(maker.processes()).decode() + warned + table + "\n")
    assert ("nccl#1876" in str(job["causes"])) is known
