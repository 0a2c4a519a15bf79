"""Evidence in a short excerpt of a log, and its limits."""

from itertools import pairwise

import pytest

from tests.logs.logmaker import Maker, sequential
from tests.logs.symptom_rows import HEALTHY


@pytest.mark.parametrize(
    "line",
    [
        "gpu-node-0:1:2 [2] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
        "[2026-01-01 00:00:00] gpu-node-0:1:2 [2] transport/nvls.cc:598 NCCL WARN Cuda failure 999 'unknown error'",
        "transport/nvls.cc:165 NCCL WARN Cuda failure 'invalid argument'",
    ],
    ids=["head", "timestamp", "without-head"],
)
def test_a_cuda_failure_is_named_by_its_place(judge, line):
    """The text shows only a failed call; the source position shows that it was for multicast (NVIDIA/nccl#1672)."""
    assert [fault["fault"] for fault in judge(line + "\n")["faults"]] == ["nccl.nvls-failed"]


def test_a_nic_without_a_pci_path_is_no_error(judge):
    """Up to 2.5, NCCL traces an unknown distance and continues (NVIDIA/nccl#367)."""
    head = "gpu-node-0:1:1 [0] NCCL INFO "
    job = judge(
        f"{head}Could not find real path of /sys/class/net/eth0/device\n{head}include/net.h:19 -> 2\n{head}Ring 00 : 7 -> 0 [receive] via NET/Socket/0\n"
    )
    assert (job["crash"], job["diagnosis"]) == (False, "socket")
    assert judge(f"{head}include/net.h:27 -> 2\n")["crash"] is True


def test_hosts_that_only_report_failures_need_not_be_all(judge):
    warn = "{}:1:2 [0] transport/net_ib/p2p.cc:648 NCCL WARN NET/IB: Got completion from peer 10.0.0.9<40554> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1) vendor_err=129 localGid ::ffff:10.1.0.2 remoteGids ::ffff:10.1.0.4\n"
    network_line = "{}:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
    failed = warn.format("node-a") + warn.format("node-b")
    assert judge(failed)["nodes"] is None
    assert judge(failed + network_line.format("node-a") + network_line.format("node-b"))["nodes"] == 2


def test_an_old_ring_order_names_all_ranks(judge):
    """Before 2.8 the channel's number has no total."""
    assert judge("gpu-node-0:1:1 [0] NCCL INFO Channel 00 :    0   3   1   2\n")["ranks"] == 4
    assert judge("gpu-node-0:1:1 [0] NCCL INFO Channel 00 :    0   3   1\n")["ranks"] is None


def test_a_plugins_provider_is_the_choice_of_an_old_nccl(judge):
    """Before 2.6.4 no process prints its choice."""
    old = "a:1:1 [0] NCCL INFO NET/OFI Selected Provider is efa;ofi_rxr\nb:1:1 [0] NCCL INFO NET/OFI Selected Provider is efa;ofi_rxr\n"
    assert (judge(old)["inter_node_transport"], judge(old)["verdict"]) == ("efa", "inconclusive")
    assert (
        judge(old + "a:1:1 [0] NCCL INFO Using network Socket\nb:1:1 [0] NCCL INFO Using network Socket\n")[
            "inter_node_transport"
        ]
        == "socket"
    )


def test_tags_inside_a_row_are_no_part_of_it(judge):
    """MPICH's -prepend-rank tags every piece that the program writes."""
    table = (
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
        "[0]      1048576        262144     float     sum      -1[0]     80.0   13.11   24.58      0[0]     81.0   12.95   24.27      0\n"
    )
    (row,) = judge(table)["tables"][0]["rows"]
    assert (row["out_of_place"]["busbw_gbps"], row["in_place"]["busbw_gbps"], row["in_place"]["wrong"]) == (
        24.58,
        24.27,
        0,
    )


def test_one_host_of_an_unknown_job_proves_nothing(judge):
    """Traffic between hosts is not shown."""
    assert judge("gpu-node-0:1:1 [3] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n")["sentence"].startswith(
        "Only one host shows"
    )


def test_the_distance_is_the_reason_where_it_is_named(judge):
    """Version 2.4 puts both reasons after NET/IB's name."""
    text = "a:1:1 [2] NCCL INFO NET/IB : GPU Direct RDMA Disabled for GPU 2[2] / HCA 0 ({})\na:1:1 [2] NCCL INFO Ring 00 : 6 -> 2 [receive] via NET/IB/0\n"
    assert judge(text.format("distance 3 >= 2"))["faults"][0]["why"] == "nccl.gdr-distance"
    assert judge(text.format("no module or not supported by GPU"))["faults"][0]["why"] == "nccl.gdr-no-module"


def test_a_host_without_infiniband_has_no_broken_plugin(judge):
    """Since 2.28 the built-in InfiniBand transport prints it on every host without a card (plugin/net.cc)."""
    head = "a:1:1 [0] NCCL INFO "
    job = judge(
        f"{head}NET/IB : No device found.\n{head}Failed to initialize NET plugin IB\n{head}Initialized NET plugin Socket\nRuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1\n"
    )
    assert [fault["fault"] for fault in job["faults"]] == ["nccl.crash"]


def test_a_missing_symbol_is_the_reason_whatever_the_others_say(judge):
    """The lines have no prefix, as in a bug report."""
    job = judge(
        "NET/Plugin: libnccl-net.so: /lib/libc.so.6: version `GLIBC_2.38' not found\nNET/IB : No device found.\nFailed to initialize NET plugin IB\nInitialized NET plugin Socket\nChannel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n"
    )
    assert [(fault["fault"], fault["why"]) for fault in job["faults"]] == [
        ("nccl.socket-fallback", "nccl.plugin-broken")
    ]
    assert "((" not in job["sentence"]


def test_fastraks_abort_is_its_own_fault(judge):
    """Google's plugin ends the process itself."""
    assert (
        judge("a:1:1 [0] plugin.cc:1 NCCL WARN NET/FasTrak plugin initialization failed\n")["faults"][0]["fault"]
        == "nccl.plugin-abort"
    )


@pytest.mark.parametrize("host", ["nid001264", "x1000c1s2b0n0"])
def test_the_plugins_provider_is_slingshot_on_a_cray(judge, host):
    """Host names of HPE Cray EX show it; AWS has other names."""
    line = "{}:1:1 [0] NCCL INFO Channel 01/1 : 4[0] -> 0[0] [receive] via NET/AWS Libfabric/7/GDRDMA/Shared\n"
    assert judge(line.format(host))["inter_node_transport"] == "cxi"
    assert judge(line.format("ip-10-0-0-1"))["inter_node_transport"] == "efa"


def test_a_warning_of_the_first_releases_needs_no_head(judge):
    """NCCL 2.0 prints the file but not the process."""
    job = judge(
        "[0] include/socket.h:185 WARN Call to connect failed : Connection refused\nNCCL failure program.cu:110 'unhandled system error'\n"
    )
    assert (job["crash"], job["faults"][0]["fault"]) == (True, "nccl.connect-refused")


def test_cards_that_one_host_was_asked_to_use_cross_no_host(judge):
    """P2P and shared memory are disabled, so four GPUs of one host use its own NIC, which fails."""
    ranks = "".join(f"#   Rank  {rank} Pid   10 on gpu-node-0 device  {rank} [0x{rank}7] A100\n" for rank in range(2))
    head = "gpu-node-0:10:11 [0] "
    lines = f"{head}NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>\n{head}NCCL INFO Using network IB\n{head}transport/net_ib.cc:818 NCCL WARN NET/IB : Got completion with error 4, opcode 8983, len 0, vendor err 81\n{head}NCCL INFO transport/net.cc:357 -> 2\n"
    job = judge(ranks + lines)
    assert (job["inter_node_transport"], job["nodes"], job["faults"][0]["fault"]) == ("none", 1, "nccl.ib-protection")


CRASHES = {
    "warning": (
        "a:1:2 [0] graph/x.cc:1 NCCL WARN Something odd\na:1:2 [0] NCCL INFO init.cc:9 -> 3\n",
        "the first sign of it is: Something odd",
    ),
    "peer": (
        "\na:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer b<5>\na:1:2 [0] NCCL INFO misc/socket.cc:749 -> 6\n",
        "follows from an earlier failure, which is not in the log (socketProgress: Connection closed",
    ),
    "flush": (
        "a:1:2 [0] ib.c:1 NCCL WARN NET/IB : Got completion from peer 10.1.32.3<5> with error 5, opcode 0, len 0, vendor err 249\na:1:2 [0] NCCL INFO net.cc:1 -> 6\n",
        "follows from an earlier failure",
    ),
    "program": (
        "(pid=8) RuntimeError: NCCL error in: x.cpp:784, unhandled cuda error, NCCL version 2.7.8\n(pid=9) a:1:2 [0] graph/x.cc:1 NCCL WARN Something odd\n(pid=9) a:1:2 [0] NCCL INFO init.cc:9 -> 1\n",
        "the first sign of it is: Something odd",
    ),
    "last-follows": (
        "  what():  [PG 1 Rank 4] terminated: NCCL error: unhandled system error, NCCL version 2.22.3\nLast error:\nNET/IB: Got completion from peer 10.0.1.23<34696> with status=5 opcode=0 len=0 vendor err 249 (Recv)\n",
        "follows from an earlier failure, which is not in the log (NET/IB: Got",
    ),
    "last-unknown": (
        "  what():  [PG 1 Rank 4] terminated: NCCL error: unhandled system error, NCCL version 2.22.3\nLast error:\nSomething odd\n",
        "the first sign of it is: Something odd",
    ),
    "long": ("  what():  [PG 1 Rank 4] terminated: NCCL error: " + "unhandled " * 20 + "\n", "unhandled [...]"),
    "trace": (
        "a:1:2 [0] NCCL INFO bootstrap.cc:312 -> 3\n",
        "only an error trace that begins at bootstrap.cc:312 -> 3 (an internal error)",
    ),
    "event": (
        "a: Test NCCL failure common.cu:401 'internal error'\na:1:2 [0] graph/x.cc:1 NCCL WARN Something odd\na:1:2 [0] NCCL INFO init.cc:9 -> 1\n",
        "the first sign of it is: Test NCCL failure",
    ),
    "test": (
        "a: Test NCCL failure common.cu:401 'remote process exited / '\n",
        "the first sign of it is: Test NCCL failure common.cu:401 'remote process exited'",
    ),
}


@pytest.mark.parametrize("case", CRASHES)
def test_a_crash_is_reported_in_the_logs_own_words(judge, case):
    """Without a rule for the cause, the first error in the log is quoted instead of search advice."""
    text, said = CRASHES[case]
    job = judge(text)
    assert (job["crash"], said in job["sentence"]) == (True, True), job["sentence"]


@pytest.mark.parametrize(
    "text", ["graph/x.cc:1 NCCL WARN Something odd", "x.h:4 NCCL WARN Net : Connection closed by remote peer b<5>"]
)
def test_a_lone_warning_is_quoted(judge, text):
    """A single warning proves nothing, but it is the only content of the pasted line."""
    job = judge(f"a:1:2 [0] {text}\n")
    assert (job["verdict"], f"it does warn: {text.partition('WARN ')[2]}" in job["sentence"]) == (
        "inconclusive",
        True,
    ), job["sentence"]


def test_an_attempt_that_failed_before_a_good_run_is_reported_as_one(judge):
    """The verdict is still no-go, but the text shows that a later attempt succeeded."""
    row = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n  1073741824     268435456     float     sum      -1   4500.1  238.60  238.60      0   4490.2  239.10  239.10      0\n"
    job = judge(
        "worker-1: Test CUDA failure common.cu:892 'system not yet initialized'\n"
        + row
        + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 238.85\n"
    )
    assert (job["verdict"], job["sentence"].endswith("a later run in the same log completed.")) == ("no-go", True)


def test_a_failed_benchmark_inside_a_jsons_string_is_read(judge):
    """A failed benchmark has no table; an operator's log holds its output as one string."""
    output = "# nThread 1 nGpus 2 minBytes 8 maxBytes 8\n#  Rank  0 Group  0 Pid 9 on w device  0 [0x8a] H100\n#  Rank  1 Group  0 Pid 9 on w device  1 [0x8b] H100\nw: Test NCCL failure common.cu:1 'unhandled cuda error'\n"
    job = judge('{"level":"fatal","output":"' + output.replace("\n", "\\n") + '"}\n')
    assert (job["ranks"], job["nodes"], job["crash"]) == (2, 1, True)


WATCHDOG = "[rank{}]:[E218 04:54:22.8 ProcessGroupNCCL.cpp:616] [{}Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600045 milliseconds before timing out.\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([(13, "", 1, 216), (15, "", 1, 57)], "several communicators"),
        ([(0, "PG ID 1 PG GUID 3 ", 0, 216), (0, "PG ID 2 PG GUID 7 ", 0, 57)], "several communicators"),
        ([(0, "PG ID 1 PG GUID 3 ", 0, 216), (9, "PG ID 1 PG GUID 3 ", 1, 215)], "those at the lower number"),
        ([(0, "", 0, 216), (1, "", 1, 215)], "those at the lower number"),
        ([(0, "", 0, 216), (1, "", 1, 216), (0, "", 0, 217)], "ranks 0, 1 waited in operation 216"),
        ([(4, "", 4, 7)], "rank 4 waited in operation 7"),
    ],
    ids=["subgroups", "named-groups", "one-named-group", "whole-job", "first-of-several", "one-rank"],
)
def test_operations_are_compared_inside_a_process_group(judge, lines, said):
    """Every group has its own counter, so 216 in one and 57 in another are not a program fault."""
    job = judge("".join(WATCHDOG.format(*line) for line in lines))
    assert (job["hang"], said in job["sentence"]) == (True, True), job["sentence"]


@pytest.mark.parametrize(("devices", "fallback"), [((0,), True), ((0, 1), False), ((0, 2), True), ((1,), True)])
def test_sockets_on_one_host_are_a_fallback_where_devices_are_missing(judge, devices, fallback):
    """Consecutive devices from 0 may be the whole job on one host; a single device or a gap leaves its size unknown."""
    lines = [
        f"gpu-node-0:{dev}:{dev} [{dev}] NCCL INFO {text}\n"
        for dev in devices
        for text in ("NET/IB : No device found.", "Using network Socket")
    ]
    assert judge("".join(lines))["socket_fallback"] is fallback


def test_sockets_of_one_host_and_no_size_are_no_fault_and_name_their_cause(judge):
    """nccl.no-evidence: a healthy single-host job prints the same; a second host or a stated size is a fallback."""
    lines = "NCCL INFO NET/IB : No device found.\n{0}NCCL INFO Using network Socket\n"
    job = judge("a:1:1 [0] " + lines.format("a:1:1 [0] "))
    assert (job["verdict"], job["socket_fallback"], job["inter_node_transport"]) == ("inconclusive", True, "unknown")
    assert (job["nodes"], job["gdr"], job["causes"][0]["fault"]) == (None, None, "nccl.ib-no-device")
    assert "/dev/infiniband" in job["causes"][0]["cause"]
    two = "".join(f"{host}:1:1 [0] " + lines.format(f"{host}:1:1 [0] ") for host in "ab")
    assert (judge(two)["verdict"], judge(two)["diagnosis"]) == ("no-go", "socket")
    sized = "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 16 cudaDev 0 busId 1000 - Init START\n"
    assert judge("a:1:1 [0] " + lines.format("a:1:1 [0] ") + sized)["diagnosis"] == "socket"


@pytest.mark.parametrize("devices", [(0, 1), (2, 3), (0, 1, 3)], ids=str)
def test_gpus_of_one_host_are_not_at_fault_for_sockets(judge, devices):
    """Channels are inside the host, so NCCL never uses the network.

    A gap in the CUDA devices (another job's GPUs, or missing lines) does not show a second host.
    """
    chose = (
        "gpu-node-0:1{0}:1 [{0}] NCCL INFO Failed to open libibverbs.so[.1]\n"
        "gpu-node-0:1{0}:1 [{0}] NCCL INFO Using network Socket\n"
    )
    channel = "gpu-node-0:1{0}:1 [{0}] NCCL INFO Channel 00 : {0}[{0}] -> {1}[{1}] via P2P/IPC\n"
    chosen = "".join(chose.format(device) for device in devices)
    job = judge(chosen + "".join(channel.format(*two) for two in pairwise(devices)))
    assert (job["nodes"], job["socket_fallback"]) == (1, False)
    assert (job["verdict"], job["faults"]) == ("inconclusive", [])


def test_a_host_whose_network_lines_are_not_read_misses_no_rail(judge):
    """A page split lines at spaces: one host's only complete line is not a measure for the others."""
    maker = Maker(gpus=4, rails=1)
    texts = sequential(maker.processes()).decode()
    whole = next(line for line in texts.splitlines() if "[send] via NET" in line)
    ring = "{0}:{1}:{1} [3] NCCL INFO Channel 03/0 : {2}[3] -> {3}[0] via P2P/CUMEM/read\n"
    rings = "".join(ring.format(maker.host(rank), maker.pid(rank), rank, rank - 3) for rank in (3, 7))
    job = judge(texts.replace(" via NET", " via\nNET") + rings + "NCCL INFO " + whole.partition("NCCL INFO ")[2] + "\n")
    assert job["hosts"][0]["rails"], "one line is read"
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "truncated")
    assert "the lines of channels are cut" in job["sentence"]


@pytest.mark.parametrize(("cut", "verdict"), [(1, "go"), (20, "inconclusive")])
def test_a_torn_line_of_a_channel_now_and_then_withholds_nothing(judge, cut, verdict):
    texts = sequential(Maker(gpus=8, channels=16, rails=8).processes()).decode()
    whole = next(line for line in texts.splitlines() if "[send] via NET" in line)
    torn = [whole.replace("Channel 00", f"Channel {20 + at}")[:-12] + "\n" for at in range(cut)]
    assert judge(texts + "".join(torn))["verdict"] == verdict


@pytest.mark.parametrize(
    ("was", "torn", "fault"),
    [
        ("NCCL version 2.28.9+cuda13.0", "NCCL version 2.28.92<0>", None),
        ("NCCL version 2.28.9+cuda13.0", "NCCL version 2.286", None),
        ("NCCL version 2.28.9+cuda13.0", "NCCL version 2.27.3+cuda13.0", "nccl.version-mismatch"),
        ("via NET/IB/0/GDRDMA", "via NET/IB/0/GDR70bb2ba - Init COMPLETE", None),
        ("via NET/IB/0/GDRDMA", "via NET/IB/0/GFO Channel 02/0", None),
        ("via NET/IB/0/GDRDMA", "via NET/IB/0", "nccl.gdr-mixed"),
        ("via NET/IB/0/GDRDMA", "via NET/IB/0/GDRDMA(PCI)", None),
    ],
)
def test_what_a_torn_line_makes_of_a_version_or_of_gpudirect_raises_no_fault(judge, was, torn, fault):
    faults = [item["fault"] for item in judge(HEALTHY.replace(was, torn, 1))["faults"] if item["severity"] != "info"]
    assert faults == ([fault] if fault else [])
