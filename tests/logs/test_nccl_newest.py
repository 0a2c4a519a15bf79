"""Messages new in NCCL 2.28 in a healthy log: diagnostics, port failover, degraded NVLink."""

import pytest

from tests.logs.logmaker import Maker, sequential, table_of
from tests.table import table

MAKER = Maker(gpus=4, rails=4, channels=4, version="2.32.3")
LINES = sequential(MAKER.processes()).decode().splitlines()
TABLE = "\n".join(table_of(MAKER)) + "\n"
DIAG = "gpu-node-0:1000 NCCL DIAG "
INFO = "gpu-node-0:1007:1050 [1] NCCL INFO "


def with_line(line: str) -> str:
    """Return the healthy log with a line inserted in the middle."""
    half = len(LINES) // 2
    return "\n".join([*LINES[:half], line, *LINES[half:]]) + "\n" + TABLE


@table(
    "line",
    [
        DIAG + "[INFO] p2p: only 55/56 GPU-to-GPU peer accesses passed verification",
        DIAG + "[INFO] p2p: 4/6 directed GPU P2P edges verified (skipped indirect=3)",
        DIAG + "[INFO] p2p: write mismatch src=0 dst=1 expected=0x01 got=0x00 verify=0x00; run it again",
        DIAG + "[INFO] p2p: peer-memory import failed src=0 reason=invalid argument; look at the driver",
        DIAG + "[INFO] net bw: failed: no usable IB device in comm 0x1",
        DIAG
        + "[INFO] GPU inventory: count mismatch across 16 ranks in comm 0x1, rank(s) {8-15} differ from rank 0 (8)",
        DIAG + "[INFO] ECC: uncorrected volatile errors on rank(s) {2} (worst=1) across 8 ranks in comm 0x1",
        DIAG + "[INFO] NVLink: inactive link(s) on rank(s) {5} across 8 ranks in comm 0x1f",
        DIAG + "[INFO] NVLink: inconsistent link speeds on rank(s) {5} across 8 ranks in comm 0x1f",
        INFO + "MNNVL busId 0x1a000 NVLink fabric health reports DEGRADED_BANDWIDTH (healthMask 0x1)",
    ],
)
def test_a_problem_that_nccl_shows_as_information_is_quoted_and_no_go(judge, line):
    """nccl.unexplained: the job continues, but its diagnostics found a problem (ras/diagnostics.cc,
    diagnostics/p2p.cc)."""
    job = judge(with_line(line))
    assert (job["verdict"], job["diagnosis"]) == ("inconclusive", "unexplained")
    assert line.partition("NCCL ")[2].partition("] ")[2][:60].strip("[1 ") in job["sentence"]


@pytest.mark.parametrize(
    "line",
    [
        INFO
        + "NET/IB: ncclIbMark: Device 1 marked as failed. Initiating recovery? Yes (send comm=0x5, outstandingRecovery=1)",
        INFO + "NET/IB: ncclIbRun: Marking device 1 as permanently failed (send comm=0x5)",
        INFO + "NET/IB: ncclIbRun: Recovery for device 1 failed due to max attempts reached (send comm=0x5)",
        INFO + "NET/IB: ncclIbRun: Starting port recovery for send comm=0x5 devIndex=1",
    ],
)
def test_a_port_that_failed_and_was_replaced_is_reported(judge, line):
    """nccl.ib-recovered: since 2.28 another port takes over, and all its messages are information
    (net_ib/p2p_resiliency*.cc)."""
    job = judge(with_line(line))
    assert (job["verdict"], [fault["fault"] for fault in job["faults"]]) == ("no-go", ["nccl.ib-recovered"])


@table(
    "line",
    [
        DIAG + "=== NCCL Diagnostics ===",
        DIAG + "[OK]   p2p: verified P2P access in both directions between every GPU pair (56 peer accesses)",
        DIAG
        + "[INFO] p2p: temporarily enabled context-wide CUDA peer access rank=1 cudaDev=1; avoid concurrent CUDA use",
        DIAG + "[OK]   net bw: 380.1/385.0/390.2 Gbit/s min/median/max write bw (across 16 ranks) in comm 0x1",
        DIAG + "[OK]   ECC: no uncorrected volatile errors across 8 ranks in comm 0x1",
        DIAG + "[OK]   NVLink: 18 links per GPU, all active at consistent speed across 8 ranks in comm 0x1",
        DIAG + "NCCL diagnostics completed in 245.3 ms across 8 ranks",
        DIAG + "INFO RAS diagnostics skipped: NCCL_RAS_ENABLE=0",
        INFO + "MNNVL busId 0x1a000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0 degradedBw no",
        INFO
        + "NET/IB: ncclIbInit: Port recovery is disabled for the resiliency context on the send communicator (comm=0x5)",
        INFO + "NET/IB: ncclIbInit: Port recovery async thread exiting",
        INFO + "Symmetric memory is not supported. cuMemEnable 1, ginSupport 0, globalNicFused 0",
        INFO + "GIN/Plugin: Loaded gin plugin gdaki (v13)",
    ],
)
def test_what_is_well_stays_a_go(judge, line):
    assert judge(with_line(line))["verdict"] == "go"
