"""Is every row of the catalogue's symptom table covered, or left with a reason?"""

from __future__ import annotations

import io

import pytest

from jobs.nccl import DIAGNOSES, conclude, fault_catalogue, read
from jobs.nccl.job_document import Expected
from jobs.pod.nccl_reader.events.symptoms import SYMPTOMS
from tests.nccl.logmaker import Maker, sequential

A, B = "gpu-node-0:1000:1000 [0] ", "gpu-node-1:1014:1014 [0] "
INFO, WARN = "NCCL INFO ", "misc/x.cc:10 NCCL WARN "
HEALTHY = sequential(Maker().processes()).decode()
SOCKETS = sequential(Maker(net="Socket").processes()).decode()
STARTED = sequential(Maker(stop="init").processes()).decode()
NO_GDR = sequential(Maker(gdr=False).processes()).decode()
ALONE = sequential(Maker(hosts=("gpu-node-0",)).processes()).decode()


def failing(text: str, code: int = 2) -> str:
    """Return a job whose first process warns and fails while it starts."""
    return STARTED + f"\n{A}{WARN}{text}\n{A}{INFO}init.cc:903 -> {code}\n"


def sockets(first: str, env: str = "") -> str:
    """Return a job on sockets whose ranks said something first."""
    heads = [line.split("NCCL INFO")[0] for line in SOCKETS.splitlines() if "Using network" in line]
    return (
        "".join(f"{head}{INFO}{first}\n" for head in heads if first)
        + "".join(f"{head}{INFO}{env}\n" for head in heads if env)
        + SOCKETS
    )


# Row -> (log, fault that is expected first or None for "quiet", why). Rows that need none are in LEFT.
ROWS = {
    1: (SOCKETS, "nccl.socket-fallback", "nccl.ib-no-device"),
    2: (sockets("", "NCCL_IB_HCA set to mlx9"), "nccl.socket-fallback", "nccl.ib-filter"),
    3: (sockets("", "NCCL_IB_DISABLE set by environment to 1."), "nccl.socket-fallback", "nccl.ib-disabled"),
    4: (sockets("Failed to open libibverbs.so[.1]"), "nccl.socket-fallback", "nccl.libibverbs-missing"),
    5: (
        SOCKETS.replace("NET/IB : No device found.", "NET/IB : Using [RO]; OOB eth0:10.0.0.1<0>"),
        "nccl.socket-fallback",
        "nccl.ib-no-device",
    ),
    6: (
        sockets("NET/Plugin: libnccl-net-x.so: undefined symbol: fi_getinfo"),
        "nccl.socket-fallback",
        "nccl.plugin-broken",
    ),
    7: (
        sockets(
            "NET/Plugin: Failed to find ncclNetPlugin symbol (>= v5). ncclNetPlugin symbols v4 and lower are not supported."
        ),
        "nccl.socket-fallback",
        "nccl.plugin-too-old",
    ),
    8: (HEALTHY + f"{A}{INFO}NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.\n", None, None),
    9: (SOCKETS.replace("eth0:", "hsn0:"), "nccl.socket-fallback", "nccl.plugin-missing"),
    10: (sockets("NET/OFI aws-ofi-nccl initialization failed"), "nccl.socket-fallback", "nccl.ofi-no-provider"),
    11: (
        sequential(Maker(net="AWS Libfabric", socket_ranks=(3,)).processes()).decode(),
        "nccl.mixed-transport",
        "nccl.ib-no-device",
    ),
    12: (
        sequential(Maker(socket_ranks=(2, 3), stop="channels").processes()).decode()
        + f"\n{A}{WARN}socketFinalizeAccept: wrong type 4 != 3\n{A}{INFO}misc/socket.cc:1 -> 3\n",
        "nccl.mixed-transport",
        "nccl.ib-no-device",
    ),
    13: (
        sequential(Maker(net="AWS Libfabric", gdr=False).processes())
        .decode()
        .replace("provider is efa", "provider is tcp"),
        "nccl.socket-fallback",
        "nccl.ofi-provider",
    ),
    14: (
        HEALTHY.replace(
            f"{A}{INFO}NET/IB : Using",
            f"{A}{INFO}Initialized NET plugin AWS Libfabric\n{A}{INFO}plugin/net.cc:118 -> 2\n{A}{INFO}NET/IB : Using",
        ),
        None,
        None,
    ),
    15: (failing("Failed to initialize any NET plugin", 5), "nccl.net-forced", None),
    16: (NO_GDR, "nccl.gdr-off", None),
    17: (
        NO_GDR + f"{A}{INFO}NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)\n",
        "nccl.gdr-off",
        "nccl.gdr-no-module",
    ),
    18: (
        NO_GDR + f"{A}{INFO}GPU Direct RDMA Disabled for GPU 1a000 / HCA 0 (distance 7 > 4), read 0\n",
        "nccl.gdr-off",
        "nccl.gdr-distance",
    ),
    19: (sequential(Maker(net="AWS Libfabric", gdr=False).processes()).decode(), "nccl.gdr-off", None),
    20: (
        HEALTHY.replace("[send] via NET/IB/0/GDRDMA", "[send] via NET/IB/0").replace(
            "[send] via NET/IB/1/GDRDMA", "[send] via NET/IB/1"
        ),
        "nccl.gdr-mixed",
        None,
    ),
    21: (sequential(Maker(no_gdr_hosts=("gpu-node-1",)).processes()).decode(), "nccl.gdr-mixed", None),
    22: (NO_GDR + f"{A}{INFO}NCCL_NET_GDR_LEVEL set by environment to LOC\n", "nccl.gdr-off", "nccl.gdr-env"),
    23: (
        sequential(Maker(gdr=False, stop="channels").processes()).decode()
        + f"{A}{INFO}Connected all rings, use ring PXN 0 GDR 0\n",
        "nccl.gdr-off",
        None,
    ),
    24: (
        failing("NET/IB : Got completion from peer 10.0.0.2<4> with status=12 opcode=0 len=0 vendor err 129 (Recv)", 6),
        "nccl.ib-retry",
        None,
    ),
    25: (failing("NET/IB : mlx5_0:1 Got async event : port error", 6), "nccl.ib-link-flap", None),
    26: (
        failing("NET/IB : Got completion from peer 10.0.0.2<4> with status=12 opcode=0 len=0 vendor err 129 (Recv)", 6)
        + f"\n{A}{WARN}NET/IB : Got completion from peer 10.0.0.2<4> with status=5 opcode=1 len=0 vendor err 249 (Recv)\n",
        "nccl.ib-retry",
        None,
    ),
    27: (
        failing("NET/IB : Got completion from peer 10.0.0.2<4> with status=4 opcode=0 len=0 vendor err 81 (Send)", 6),
        "nccl.ib-protection",
        None,
    ),
    28: (failing("Call to ibv_modify_qp failed with error Network is unreachable"), "nccl.ib-unreachable", None),
    29: (
        failing("Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_0:1"),
        "nccl.ib-mixed-fabric",
        None,
    ),
    30: (failing("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"), "nccl.ib-memlock", None),
    31: (failing("Call to ibv_create_qp failed with error Cannot allocate memory"), "nccl.ib-memlock", None),
    32: (sockets("NET/IB : Unable to open device mlx5_0"), "nccl.socket-fallback", "nccl.ib-open"),
    34: (failing("Bootstrap : no socket interface found"), "nccl.bootstrap-interface", None),
    35: (
        failing("socketPollConnect: Connect to 172.17.0.1<4> returned 111(Connection refused)").replace(
            "Bootstrap: Using eth0", "Bootstrap: Using docker0"
        ),
        "nccl.connect-refused",
        "nccl.bootstrap-unroutable",
    ),
    36: (failing("Connect to 10.0.0.2<4> failed : Connection refused"), "nccl.connect-refused", None),
    37: (
        failing("socketPollConnect: Connect to 10.0.0.4<56849> returned 113(No route to host) errno 115"),
        "nccl.no-route",
        None,
    ),
    38: (failing("bootstrap: Connection timed out"), "nccl.connect-timeout", None),
    39: (
        failing("Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)")
        + f"\n{B}{WARN}socketProgress: Connection closed by remote peer gpu-node-0<3>\n{B}{INFO}proxy.cc:1 -> 6\n",
        "nccl.shm-full",
        None,
    ),
    40: (HEALTHY + f"\n{A}{WARN}socketFinalizeAccept: wrong magic 123 != 456\n", None, None),
    41: (failing("Message truncated : received 1024 bytes instead of 256", 3), "nccl.message-truncated", None),
    42: (
        failing("Mismatched NCCL version detected : rank 0 version 22203 rank 8 version 21805", 5),
        "nccl.version-mismatch",
        None,
    ),
    43: (
        sequential(
            {
                key: [
                    line.replace(
                        "NET/Plugin: Could not find: libnccl-net.so",
                        "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory No plugin found (libnccl-net.so), using internal implementation",
                    )
                    if key[0] == "gpu-node-1"
                    else line
                    for line in lines
                    if "version" not in line
                ]
                for key, lines in Maker().processes().items()
            }
        ).decode(),
        "nccl.version-mismatch",
        None,
    ),
    44: (failing("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10", 5), "nccl.duplicate-gpu", None),
    45: (failing("Call to posix_fallocate failed : No space left on device"), "nccl.shm-full", None),
    46: (
        failing("Error while attaching to shared memory segment /dev/shm/nccl-abc: No such file"),
        "nccl.shm-attach",
        None,
    ),
    47: (
        ALONE + f"{A}{INFO}P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case\n",
        "nccl.p2p-off",
        None,
    ),
    48: (ALONE.replace("via P2P/CUMEM/read", "[send] via NET/Socket/0"), "nccl.net-intra-node", None),
    49: (
        failing(
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation'", 1
        ),
        "nccl.nvls-failed",
        None,
    ),
    50: (
        ALONE
        + f"{A}{INFO}Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'x'. Proceeding without NVLS support.\n",
        "nccl.nvls-silent",
        None,
    ),
    51: (
        failing(
            "MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration"
        ),
        "nccl.mnnvl-failed",
        None,
    ),
    52: (
        SOCKETS + f"{A}{INFO}MNNVL busId 0x1a000 fabric UUID 9c3a.77 cliqueId 0x7ffe state 3 healthMask 0x0\n",
        "nccl.socket-fallback",
        "nccl.ib-no-device",
    ),
    53: (HEALTHY + f"{A}{INFO}Cannot initialize CollNet, using point-to-point network instead\n", None, None),
    54: (
        ALONE
        + f"{A}{INFO}P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.\n",
        None,
        None,
    ),
    55: (HEALTHY + f"{A}{INFO}PXN Disabled as plugin is v4\n", "nccl.pxn-off", None),
    56: (failing("Cuda failure 'out of memory'", 1), "nccl.cuda-memory", None),
    57: (failing("Cuda failure 'invalid device function'", 1), "nccl.cuda-arch", None),
    58: (
        failing("Mismatched collective detected, please check your collective calls at and around rank 1", 5),
        "nccl.collective-mismatch",
        None,
    ),
    59: (
        HEALTHY
        + "".join(
            f"[rank{rank}]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE\n"
            for rank in (0, 1, 3)
        ),
        "nccl.hang",
        None,
    ),
    60: (
        HEALTHY
        + "".join(
            f"[E ProcessGroupNCCL.cpp:458] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={80 + rank}, OpType=ALLREDUCE\n"
            for rank in (0, 1, 3)
        ),
        "nccl.hang",
        None,
    ),
    61: (
        failing("NET/OFI Unable to register memory (type = 2) for device 3. RC: -22, Error: Invalid argument"),
        "nccl.mr-register",
        None,
    ),
    62: (
        HEALTHY + f"\n{A}ncclResult_t tcpxCommProgress(tcpxComm*):1231 NCCL WARN rx ctrl timeout cnt 12\n",
        "nccl.tcpx-stall",
        None,
    ),
    63: (
        HEALTHY + f"\n{A}init.cc:115 NCCL WARN NUMA auto balancing enabled which can lead to variability\n",
        None,
        None,
    ),
    64: (
        HEALTHY
        + f"\n{A}graph/xml.h:10 NCCL WARN KV Convert to int : could not find value of '' in dictionary, falling back to 60\n",
        None,
        None,
    ),
    65: (
        NO_GDR
        + f"{A}{INFO}Topology detection: network path /sys/devices/x is not a PCI device (eth). Attaching to first CPU\n",
        "nccl.gdr-off",
        "nccl.topology-virtual",
    ),
    66: (
        HEALTHY
        + f"\n{A}graph/search.cc:1 NCCL WARN Could not find a path for pattern 4, falling back to simple order\n",
        "nccl.topology-odd",
        None,
    ),
    67: (failing("Detected mixed local Net device counts across ranks (min 1, max 8)", 5), "nccl.nic-count", None),
    68: (failing("Call to accept failed : Too many open files"), "nccl.files-limit", None),
    70: ("# Out of bounds values : 5 FAILED\n# Avg bus bandwidth : 1\n", "nccl.wrong-results", None),
    71: ("# Avg bus bandwidth : 1.5 FAILED\n", "nccl.low-bandwidth", None),
    75: (
        HEALTHY
        + f"\n{A}{WARN}NET/IB : Got completion from peer 10.0.0.2<4> with status=12 opcode=0 len=0 vendor err 129 (Recv)\n{A}{INFO}Port recovery succeeded\n",
        "nccl.ib-recovered",
        None,
    ),
}

LEFT = {
    33: "a management bond among data NICs looks like any other device; rails are judged from channel lines against the profile",
    69: "nccl-tests reduces the largest size by itself: informational, the sweep is shown with the average",
    72: "no line: a property of the table (test_nccl_tables: bandwidth that collapses with size)",
    73: "no line: N/A is null (test_nccl_tables: unchecked results)",
    74: "no line: one rank is never go (test_one_rank_proves_nothing)",
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_symptom_table_is_concluded(row):
    """Symptom -> fault and why, as the catalogue says; quiet where it says so."""
    log, fault, why = ROWS[row]
    (job,) = conclude(read([("log", io.BytesIO(log.encode()))]))
    found = [(item["fault"], item["why"]) for item in job["faults"]]
    if fault is None:
        assert (found, job["verdict"]) == ([], "go")
    else:
        assert (fault, why) in found, found
        assert job["verdict"] == "no-go"


def test_every_row_is_covered_or_left_with_a_reason():
    """All 75 rows."""
    assert sorted([*ROWS, *LEFT]) == list(range(1, 76))


@pytest.mark.parametrize("row", [row for row, (_, fault, _) in ROWS.items() if fault])
def test_one_broken_thing_is_one_fault(row):
    """Consequences are not reported as causes beside the fault."""
    log, _, _ = ROWS[row]
    (job,) = conclude(read([("log", io.BytesIO(log.encode()))]))
    serious = [item["fault"] for item in job["faults"] if item["severity"] != "info"]
    allowed = {52: 2}  # an unused NVLink fabric besides sockets are two broken things
    assert len(serious) <= allowed.get(row, 1), serious


def test_one_rank_proves_nothing():
    """busbw is 0 by definition with one rank, and nothing was sent: neither go nor a fault."""
    (job,) = conclude(read([("log", io.BytesIO(sequential(Maker(hosts=("a",), gpus=1, channels=0).processes())))]))
    assert (job["verdict"], job["diagnosis"], job["inter_node_transport"], job["socket_fallback"]) == (
        "inconclusive",
        "single-rank",
        "none",
        False,
    )


def test_a_fault_says_what_confirms_it_and_what_mends_it():
    """Every entry is whole: title, severity, meaning, confirmation, remedy, source; ids are stable words."""
    for ident, entry in fault_catalogue().items():
        assert ident.startswith("nccl.")
        assert all((entry.title, entry.meaning, entry.confirm, entry.remedy, entry.source)), ident
        assert entry.severity in ("fatal", "degraded", "info")


def test_every_symptom_speaks_of_a_fault_of_the_catalogue():
    """No pattern names a fault that nobody can look up; consequences are never reported."""
    unknown = {item.fault for item in SYMPTOMS if item.role not in ("benign", "consequence")} - set(fault_catalogue())
    assert unknown == set()


def test_the_names_that_others_rely_on_exist():
    """Checks and scenarios key on these."""
    assert {
        "nccl.socket-fallback",
        "nccl.mixed-transport",
        "nccl.gdr-off",
        "nccl.gdr-mixed",
        "nccl.rail-missing",
        "nccl.hang",
        "nccl.crash",
        "nccl.log-truncated",
        "nccl.wrong-results",
        "nccl.version-mismatch",
        "nccl.no-evidence",
        "nccl.low-bandwidth",
        "nccl.wrong-fabric",
    } <= set(fault_catalogue())
    assert len(set(DIAGNOSES)) == len(DIAGNOSES)


def test_the_evidence_of_a_fault_is_a_line_that_can_be_found():
    """File, line number and text as they are in the log."""
    log = ROWS[45][0]
    (job,) = conclude(read([("job.log", io.BytesIO(log.encode()))]))
    (item,) = job["faults"][0]["evidence"]
    assert item["file"] == "job.log"
    assert log.splitlines()[item["line"] - 1] == item["text"]


def test_the_first_cause_wins_over_later_ones():
    """The first warning before the first error trace is the cause; what other ranks say later is not."""
    log = (
        failing("Call to posix_fallocate failed : No space left on device")
        + f"\n{B}{WARN}Call to ibv_modify_qp failed with error Connection timed out\n{B}{INFO}init.cc:1 -> 2\n"
    )
    (job,) = conclude(read([("log", io.BytesIO(log.encode()))]))
    assert [item["fault"] for item in job["faults"]] == ["nccl.shm-full"]


def test_what_the_profile_expects_is_compared(judge):
    """Fewer rails than the profile says, and another fabric than was paid for."""
    log = sequential(Maker(rails=2).processes())
    fewer = judge(log, expect=Expected(rails=8, fabric="ib"))
    other = judge(log, expect=Expected(rails=2, fabric="efa"))
    right = judge(log, expect=Expected(rails=2, fabric="ib", gdr=True))
    assert [(item["fault"], item["subject"]) for item in fewer["faults"]] == [
        ("nccl.rail-missing", "gpu-node-0"),
        ("nccl.rail-missing", "gpu-node-1"),
    ]
    assert [item["fault"] for item in other["faults"]] == ["nccl.wrong-fabric"]
    assert right["faults"] == []


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "efa was expected and ib is used"),
        (
            {"NCCL_NET_PLUGIN": "none"},
            "efa was expected and ib is used; NCCL_NET_PLUGIN=none is set (in the job's environment, or the image)",
        ),
    ],
    ids=["nothing set", "chosen"],
)
def test_another_fabric_names_what_chose_it(judge, env, said):
    """Whoever switched the fabric off in the environment need not look for broken cards."""
    job = judge(sequential(Maker(env=env).processes()), expect=Expected(fabric="efa"))
    assert [(item["fault"], item["cause"]) for item in job["faults"]] == [("nccl.wrong-fabric", said)]


def test_a_tcp_plugin_is_another_fabric_where_rdma_was_bought_and_right_where_it_was(judge):
    """FastSocket is no fallback of NCCL's, and still not what the profile names."""
    log = sequential(Maker(net="FastSocket", gdr=False).processes()).replace(b"NET/IB/", b"NET/FastSocket/")
    found = [judge(log, expect=Expected(fabric=kind)) for kind in ("ib", "fastsocket")]
    assert [[item["fault"] for item in job["faults"]] for job in found] == [["nccl.wrong-fabric"], []]
    assert [(job["verdict"], job["diagnosis"]) for job in found] == [("no-go", "wrong-fabric"), ("go", "tcp-plugin")]


def test_sockets_are_right_where_they_were_bought(judge):
    """A profile whose fabric is plain TCP says so, and nothing has fallen back."""
    log = sequential(Maker(socket_ranks=(0, 1, 2, 3)).processes())
    found = [judge(log, expect=Expected(fabric=kind)) for kind in (None, "ib", "socket")]
    faults = [[item["fault"] for item in job["faults"]] for job in found]
    assert faults == [["nccl.socket-fallback"], ["nccl.socket-fallback"], []]
    assert [job["verdict"] for job in found] == ["no-go", "no-go", "go"]


def test_gpudirect_that_nobody_bought_is_not_missing(judge):
    """A profile says that its fabric has none; without a profile, data that takes the detour is a fault."""
    log = sequential(Maker(gdr=False).processes())
    found = [judge(log, expect=Expected(gdr=gdr)) for gdr in (None, True, False)]
    assert [[item["fault"] for item in job["faults"]] for job in found] == [["nccl.gdr-off"], ["nccl.gdr-off"], []]


def test_a_host_that_lost_a_device_is_named_without_a_profile(judge):
    """Its peers list and use more devices."""
    whole, short = Maker(rails=4, channels=4).processes(), Maker(rails=3, channels=4).processes()
    job = judge(sequential({key: (whole if key[0] == "gpu-node-0" else short)[key] for key in whole}))
    assert [(item["fault"], item["subject"]) for item in job["faults"]] == [("nccl.rail-missing", "gpu-node-1")]


EFA = sequential(Maker(net="AWS Libfabric").processes()).decode()
NVLS_OFF = "NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)"

# Row -> what looks like its line and is none: the job stays "go", without a fault.
NEAR_MISSES = {
    1: ALONE + f"{A}{INFO}NET/IB : No device found.\n{A}{INFO}Using network Socket\n",
    2: HEALTHY + f"{A}{INFO}NCCL_IB_HCA set to mlx5_0,mlx5_1\n",
    3: HEALTHY + f"{A}{INFO}NCCL_IB_DISABLE set by environment to 0.\n",
    4: ALONE + f"{A}{INFO}Failed to open libibverbs.so[.1]\n",
    5: HEALTHY + f"{A}{INFO}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\n",
    6: HEALTHY
    + f"{A}{INFO}NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory\n",
    7: HEALTHY
    + f"{A}{INFO}NET/Plugin: Failed to find ncclCollNetPlugin symbol (>= v5). ncclCollNetPlugin symbols v4 and lower are not supported.\n",
    9: HEALTHY + f"{A}{INFO}NET/Plugin : No plugin found (libnccl-net.so), using internal implementation\n",
    10: EFA + f"{A}{INFO}NET/OFI Setting provider_filter to efa\n{A}{INFO}NET/OFI Failed to initialize GDRCopy\n",
    13: EFA + f"{A}{INFO}NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)\n",
    15: HEALTHY + f"{A}{INFO}NCCL_NET set by environment to IB\n",
    16: HEALTHY.replace("/GDRDMA", "/GDRDMA(PCI)/Shared"),
    17: HEALTHY + f"{A}{INFO}NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'\n",
    18: HEALTHY + f"{A}{INFO}GPU Direct RDMA Disabled for GPU 1a000 / HCA 7 (distance 7 > 4), read 0\n",
    22: HEALTHY + f"{A}{INFO}NCCL_NET_GDR_LEVEL set by environment to PHB\n",
    23: ALONE + f"{A}{INFO}Connected all rings, use ring PXN 0 GDR 0\n",
    24: HEALTHY
    + f"{A}{INFO}Call to ibv_modify_qp failed with 110 Connection timed out, retrying 1/34 after 100 msec of sleep\n",
    25: HEALTHY
    + f"\n{A}{WARN}NET/IB : mlx5_0:1 Got async event : client reregistration\n{A}{WARN}NET/IB : mlx5_1:1 Got async event : SM change\n",
    26: HEALTHY
    + f"\n{A}{WARN}NET/IB : Got completion from peer 10.0.0.2<4> with status=5 opcode=1 len=0 vendor err 249 (Recv)\n",
    34: HEALTHY + f"{A}{INFO}NCCL_SOCKET_IFNAME set by environment to eth0\n",
    35: HEALTHY.replace("Bootstrap: Using eth0", "Bootstrap: Using [0]docker0:172.17.0.1<0> [1]eth0"),
    36: HEALTHY + f"{A}{INFO}Call to connect returned Connection refused, retrying\n",
    37: HEALTHY
    + f"{A}{INFO}socketPollConnect: connect to 10.0.0.4<5> returned No route to host, retrying (1/34) after sleep for 100 msec\n",
    38: HEALTHY + f"{A}{INFO}Call to connect returned Connection timed out, retrying\n",
    39: HEALTHY + f"{A}{INFO}[Service thread] Connection closed by localRank 0\n",
    40: HEALTHY + f"{A}{INFO}RAS client listening socket at 127.0.0.1<28028>\n",
    42: HEALTHY + f"{A}{INFO}NCCL git version HEAD 0e5f77d\n",
    45: HEALTHY
    + f"{A}{INFO}cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation. This could be due to NUMA\n",
    47: ALONE + f"{A}{INFO}NCCL_P2P_LEVEL set by environment to NVL\n",
    48: ALONE.replace("via P2P/CUMEM/read", "via SHM/direct/direct"),
    49: HEALTHY + f"{A}{INFO}{NVLS_OFF}\n",
    50: ALONE + f"{A}{INFO}{NVLS_OFF}\n{A}{INFO}0 nvls channels, 16 p2p channels\n",
    51: HEALTHY + f"{A}{INFO}MNNVL busId 0x1a000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0\n",
    52: HEALTHY + f"{A}{INFO}MNNVL 0 cliqueId 0 cliqueSize 0\n",
    55: HEALTHY + f"{A}{INFO}Connected all rings, use ring PXN 0 GDR 1\n",
    59: HEALTHY + "[rank0]:[I1101 10:00:00.0 ProcessGroupNCCL.cpp:1] [PG 0 Rank 0] NCCL watchdog thread started!\n",
    61: EFA + f"{A}{INFO}NET/OFI Support for DMA-BUF registrations: false\n",
    70: ALONE + "# Out of bounds values : 0 OK\n# Avg bus bandwidth : 1\n",
    71: ALONE + "# Avg bus bandwidth : 1.5 OK\n",
}


@pytest.mark.parametrize("row", NEAR_MISSES)
def test_what_only_looks_like_a_symptom_stays_quiet(row):
    """The near miss of a row: the same words, and nothing wrong."""
    (job,) = conclude(read([("log", io.BytesIO(NEAR_MISSES[row].encode()))]))
    assert ([item["fault"] for item in job["faults"]], job["verdict"]) == ([], "go"), job["sentence"]


# Rows without a near miss: nothing but the fault itself prints such words, or the row is one that stays quiet.
WITHOUT = {
    8: "quiet itself",
    14: "quiet itself",
    53: "quiet itself",
    54: "quiet itself",
    63: "quiet itself",
    64: "quiet itself",
    11: "a mixture of ranks, no line",
    12: "NCCL prints it in that case only",
    19: "as row 16",
    20: "as row 16",
    21: "as row 16",
    27: "as row 26",
    28: "as row 24",
    29: "as row 24",
    30: "an errno in the line decides",
    31: "an errno in the line decides",
    32: "a warning of that case only",
    41: "a warning of that case only",
    43: "as row 9",
    44: "a warning of that case only",
    46: "a warning of that case only",
    56: "an error of that case only",
    57: "an error of that case only",
    58: "a warning of that case only",
    60: "as row 59",
    62: "a warning of that case only",
    65: "shown only where GPUDirect is off",
    66: "a warning of that case only",
    67: "a warning of that case only",
    68: "an errno in the line decides",
    75: "quiet itself but for what was recovered",
}


def test_every_row_has_a_near_miss_or_a_reason_for_none():
    """All rows that are concluded."""
    assert sorted([*NEAR_MISSES, *WITHOUT]) == sorted(ROWS)
