"""Causes in NCCL's own warnings, one line for each wording, and near misses."""

from __future__ import annotations

import re

import pytest

from seatrial.logs import failure_class_of
from seatrial.logs.diagnosis.faults import lowered
from tests.logs.logmaker import Maker, table_of
from tests.logs.test_nccl_causes import HEALTHY, WARN, A, failing, fault_reasons, judged
from tests.table import table

SETTING, FUSION, DIFFER = "nccl.setting-invalid", "nccl.nic-fusion", "nccl.ranks-differ"
LINES = [
    # graph/tuning.cc, graph/topo.cc, net_ib/init.cc
    ('Unrecognized element token "rings" when parsing "rings,tree"', SETTING),
    (
        "TOPO/NET : Could not force merge NICs mlx5_0,mlx5_9. Please specify a valid NCCL_NET_FORCE_MERGE string.",
        FUSION,
    ),
    ("NET/IB : Trying to merge multiple devices together when NCCL_IB_MERGE_NICS=0. Please enable it", FUSION),
    (
        "NET/IB : Attempted to merge incompatible devices: [0]mlx5_0:1/IB and [1]mlx5_1:1/RoCE. Try selecting NICs",
        FUSION,
    ),
    # Google's plugins (fastrak_offload), the UCX plugin
    # graph/rings.cc, connect.cc, xml.cc, topo.cc
    ("Error : ring 2 does not loop back to start (7 != 2)", DIFFER),
    ("Internal error : tree already has 3 children (1 2 5)", DIFFER),
    # os/linux.cc, shmutils.cc, ipcsocket.cc, nvmlwrap.cc, cudawrap.cc, alloc.h
    ("Call to sched_getaffinity failed: Operation not permitted", "nccl.system-call"),
    ("Call to setsockopt failed : Operation not permitted", "nccl.system-call"),
    # net_ib/*.cc, ibvwrap.cc
    ("ibv_post_send() failed with error Cannot allocate memory, Bad WR 0x7f01, First WR 0x7f01", "nccl.ib-error"),
    ("NET/IB : mlx5_0:1 Got async event : GID table change", "nccl.gid-changed"),
    ("NET/MLX5: Call to mlx5dv_reg_dmabuf_mr failed with error Bad address", "nccl.gdr-register"),
    (
        "NET/IB: ncclIbTest: Got CQE with error (devIndex=0, req=0x7f01, comm=0x7f02 (recv), wr_id=0, qp_num=7)",
        "nccl.ib-given-up",
    ),
    # plugins
    ("gdr_pin_buffer(addr 7f01, size 65536) failed: 22", "nccl.gdrcopy-failed"),
    ("NET/OFI Invalid duplicate address 3 for peer rank 4", "nccl.plugin-failed"),
    ("NET/OFI Unexpected communicator type. Communicator type: 3", "nccl.plugin-failed"),
    # dev_runtime.cc, gin, mnnvl.cc
    # the program
    # impossible states
]


@table("said, fault", LINES)
def test_a_warning_names_the_cause_and_is_its_evidence(said, fault):
    """Messages of libnccl.so yield nccl.plugin-invalid, nccl.gdrcopy-failed, nccl.cuda-symbols, nccl.system-call,
    nccl.device-api."""
    job = judged(failing(said, 3))
    assert job["causes"][0]["fault"] == fault, job["sentence"]
    assert said in job["faults"][0]["evidence"][0]["text"]
    assert job["causes"][0]["confirm"]


@table(
    "said, fault",
    [
        ("Call to connect to 10.1.1.2<4> failed : Connection refused", "nccl.connect-refused"),
        ("Call to socket failed: Address family not supported by protocol", "nccl.socket-address"),
        ("Call to pipe failed: Too many open files", "nccl.files-limit"),
        ("Call to pthread_create failed: Resource temporarily unavailable", "nccl.process-limit"),
        ("nvmlInit_v2() failed: Driver/library version mismatch", "nccl.driver-mismatch"),
        ("Call to ibv_reg_mr failed with error Cannot allocate memory", "nccl.ib-memlock"),
        ("NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument", "nccl.ofi-error"),
        ("NET/OFI Unable to register memory (type = 2) for device 0. RC: -22", "nccl.mr-register"),
        ("NET/OFI Error opening file: /sys/devices/virtual/dmi/id/product_name", "nccl.crash"),
        ("Error : ring 3 has no name", "nccl.crash"),
        ("Retrieve the log of rank 3 before it failed", "nccl.crash"),
    ],
)
def test_what_a_pattern_before_them_says_more_of_stays_its_own(said, fault):
    assert fault_reasons(failing(said, 2))[0][0] == fault


@pytest.mark.parametrize(
    "said",
    [
        "CUDA some PFN functions not found in the library",
        "Unable to use GIN: Peermem is not supported, and device 0 does not support DMA-BUF.",
        "Call to sched_getaffinity failed: Operation not permitted",
        "NET/IB: Ip address '10.1.1.2' is invalid for family AF_INET6, ignoring address",
        "NET/OFI Failed to parse the topology",
        "NET/IB: ncclIbTest: Got CQE with error (devIndex=0, req=0x7f01, comm=0x7f02 (recv), wr_id=0, qp_num=7)",
        "ncclSocketSend: socket state (7) is not ready",
    ],
)
def test_what_nccl_may_overcome_follows_what_it_cannot(said):
    """The earlier line is not the cause if a later one stops the job."""
    job = judged(failing(said + f"\n{A}{WARN}Error : too many XML nodes (max 1024)", 3))
    assert job["causes"][0]["fault"] == "nccl.topology-too-large"


@pytest.mark.parametrize(
    ("said", "who"),
    [
        ("Trying to recv to self without a matching send", "program"),
        ('Unrecognized element token "rings" when parsing "rings"', "program"),
        ("Call to pipe failed: Operation not permitted", "infrastructure"),
        ("gdr_map(handle 7f01, size 65536) failed: 22", "infrastructure"),
        ("Proxy append mismatch", None),
        ("Error : ring 2 does not loop back to start (7 != 2)", None),
    ],
)
def test_whose_failure_a_warning_is(said, who):
    assert failure_class_of(judged(failing(said, 3))) == who


@table(
    "said",
    [
        "NCCL_WORK_FIFO_BYTES=100 is being ignored because it is not a power of 2.",
        "minCTAs 64 is larger than #channels upper limit 32, cap it to 32",
        "User asked for a minimum of 64 channels, limiting to 32",
        "NET/Socket : NCCL_SOCKET_NTHREADS is greater than the maximum allowed, setting to 16",
        "Profiler init failed with error (3). Continue without profiler.",
        "Unable to open /tmp/topo.xml, not dumping topology.",
        "SHARP group create: No resources(-10)",
        "NET/IB : mlx5_0:1 Got async event : SM change",
        "NET/IB : mlx5_0:1 Got non-fatal async event: last WQE reached(16)",
        "socketFinalizeAccept: wrong magic 0x42 != 0x9",
        "Cuda failure 4 'driver shutting down'",
    ],
)
def test_what_nccl_replaces_or_goes_on_with_costs_no_healthy_job_its_go(said):
    job = judged(HEALTHY + f"\n{A}{WARN}{said}\n")
    assert (job["verdict"], job["causes"]) == ("go", [])


@pytest.mark.parametrize("said", ["LID change", "P_Key change"])
def test_a_port_that_changes_its_address_proves_no_healthy_job(said):
    job = judged(HEALTHY + f"\n{A}{WARN}NET/IB : mlx5_0:1 Got async event : {said}\n")
    assert job["verdict"] == "inconclusive"


@table("said, fault", LINES)
def test_no_job_with_such_a_warning_is_proven_healthy(said, fault):
    assert judged(HEALTHY + f"\n{A}{WARN}{said}\n")["verdict"] != "go"


@pytest.mark.parametrize(
    "said",
    [
        "dlvsym failed on mlx5dv_reg_dmabuf_mr - libmlx5.so: undefined symbol: mlx5dv_reg_dmabuf_mr, version MLX5_1.25",
        "rank 0 failed to NET register userbuff 0x7f01 buffSize 64 GDR flag 1",
        "NET/IB: recv: The error is not fatal. Trying to continue...",
        "Unable to use GIN: Peermem is not supported, nor DMA-BUF.",
        "nvmlDeviceGetGpuFabricInfoV() failed: Not Supported",
        "transport/nvls.cc:190 Cuda failure 1 'invalid argument'",
    ],
)
def test_what_nccl_shows_as_information_is_no_cause(said):
    job = judged(HEALTHY + f"{A}NCCL INFO {said}\n")
    assert (job["verdict"], job["causes"]) == ("go", [])


@table(
    "said, verdict",
    [
        ("Call to ibv_create_qp failed with error Invalid argument", "inconclusive"),
        ("Call to ibv_modify_qp failed with 110 Connection timed out", "inconclusive"),
        ("NET/IB : Attempted to merge incompatible devices: [0]mlx5_0:1/IB and [1]mlx5_1:1/RoCE", "inconclusive"),
        ("Call to ibv_get_async_event failed", "inconclusive"),
        ("NET/IB : mlx5_0:1 GID table changed", "inconclusive"),
        ("Cuda failure 700 'an illegal memory access was encountered'", "inconclusive"),
        ("Failed to CUDA calloc 512 bytes", "inconclusive"),
        ("socketFinalizeAccept from 10.0.0.2<4>: wrong type 3 != 7", "inconclusive"),
        (
            "socketPollConnect: connect to 10.0.0.2<4> returned Connection refused, exceeded error retry count after 35"
            " attempts",
            "inconclusive",
        ),
        ("NET/IB : mlx5_0:1 Got async event : port error", "no-go"),
        ("NET/IB : mlx5_0:1 async fatal event: local catastrophic error", "no-go"),
        ("NET/IB: Got completion from peer 10.0.0.2<4> with status=12 opcode=0 len=0 vendor err 129", "no-go"),
    ],
)
def test_a_job_that_came_to_its_end_is_at_fault_only_of_a_link_that_broke(said, verdict):
    """A warning of a completed process is quoted; one of a process outside the job is not excused."""
    warning = f"{A}{WARN}{said}"
    job = judged(HEALTHY + f"\n{warning}\n")
    assert job["verdict"] == verdict
    assert said[:30] in job["sentence"] + str(job["faults"][0]["evidence"])
    if "CUDA" in said.upper():
        assert judged(HEALTHY + "\n" + warning.replace(":1000:1000", ":999:999") + "\n")["verdict"] == "no-go"


def test_what_a_job_overcame_is_quoted_also_where_other_evidence_is_missing():
    table = "\n".join(table_of(Maker())) + "\n"
    rank = re.search(r"Rank +0 .*Pid +(\d+) on +(\S+) device", table)
    said = f"{rank[2]}:{rank[1]}:{rank[1]} [0] misc/x.cc:3 NCCL WARN Cuda failure 700 'an illegal memory access'"
    assert judged(table)["diagnosis"] == "table-only"
    job = judged(table + said + "\n")
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "table-only")
    assert job["sentence"].endswith("It also says: Cuda failure 700 'an illegal memory access'.")
    assert job["faults"][-1]["evidence"][0]["text"] == said


@pytest.mark.parametrize(
    ("title", "lower_case"),
    [
        ("DDP waits", "DDP waits"),
        ("A rank is late", "a rank is late"),
        ("InfiniBand", "InfiniBand"),
        ("Gloo finds none", "Gloo finds none"),
        ("NCCL's own", "NCCL's own"),
        ("/dev/shm is full", "/dev/shm is full"),
    ],
)
def test_a_title_inside_a_sentence_keeps_its_names(title, lower_case):
    assert lowered(title) == lower_case
