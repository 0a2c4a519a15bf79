"""The rows of the catalogue's symptom table, each with an example log."""

from __future__ import annotations

from tests.logs.logmaker import Maker, sequential

A, B = "gpu-node-0:1000:1000 [0] ", "gpu-node-1:1014:1014 [0] "


INFO, WARN = "NCCL INFO ", "misc/x.cc:10 NCCL WARN "


HEALTHY = sequential(Maker().processes()).decode()


SOCKETS = sequential(Maker(net="Socket").processes()).decode()


STARTED = sequential(Maker(stop="init").processes()).decode()


NO_GDR = sequential(Maker(gdr=False).processes()).decode()


ALONE = sequential(Maker(hosts=("gpu-node-0",)).processes()).decode()


def failing(text: str, code: int = 2) -> str:
    """Return a job whose first process warns and fails during its start."""
    return STARTED + f"\n{A}{WARN}{text}\n{A}{INFO}init.cc:903 -> {code}\n"


def sockets(first: str, env: str = "") -> str:
    """Return a job on sockets whose ranks printed a line first."""
    heads = [line.split("NCCL INFO")[0] for line in SOCKETS.splitlines() if "Using network" in line]
    return (
        "".join(f"{head}{INFO}{first}\n" for head in heads if first)
        + "".join(f"{head}{INFO}{env}\n" for head in heads if env)
        + SOCKETS
    )


# Row -> (log, first expected fault or None for "quiet", why). Rows without a log are in LEFT.
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
