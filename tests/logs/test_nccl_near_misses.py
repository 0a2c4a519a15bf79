"""Near misses of the symptom table: one for every row, or a reason for its absence."""

from __future__ import annotations

import io

from seatrial.logs import conclude, read
from tests.logs.logmaker import Maker, sequential
from tests.logs.symptom_rows import ALONE, HEALTHY, INFO, ROWS, WARN, A
from tests.table import table

EFA = sequential(Maker(net="AWS Libfabric").processes()).decode()


NVLS_OFF = "NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)"


# Row -> a line that resembles its own: the job remains "go", without a fault.
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


@table("row", NEAR_MISSES)
def test_what_only_looks_like_a_symptom_stays_quiet(row):
    """The line has the same words without a fault."""
    (job,) = conclude(read([("log", io.BytesIO(NEAR_MISSES[row].encode()))]))
    assert ([item["fault"] for item in job["faults"]], job["verdict"]) == ([], "go"), job["sentence"]


# Rows without a near miss: only the fault prints these words, or the row is quiet itself.
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
    """Every concluded row has a near miss or a reason."""
    assert sorted([*NEAR_MISSES, *WITHOUT]) == sorted(ROWS)
