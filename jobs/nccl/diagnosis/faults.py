"""What can a log show to be wrong, what does it usually mean, what confirms it, and what mends it?

Severity: ``fatal`` (the job cannot run or its results are wrong), ``degraded`` (it runs, but not on what was paid for),
``info`` (says how far the judgement goes). A ``why`` explains another fault (sockets, no GPUDirect) and is reported
inside it. Sources: files of NCCL (as of 2.28), of nccl-tests and of the plugins, and issue threads.
"""

from __future__ import annotations

from . import faults_cause, faults_job, faults_why

FAULTS: dict[str, dict[str, str]] = dict(faults_job.FAULTS)
FAULTS.update(faults_why.FAULTS)
FAULTS.update(faults_cause.FAULTS)

DIAGNOSES: tuple[str, ...] = (
    "healthy-rdma",  # several hosts, RDMA with GPUDirect (or a fabric of its own) on every channel that the log shows
    "healthy-nvlink-limited",  # two hosts, and more than their wires carry: NVLink limits the algorithm that NCCL chose
    "healthy-nvlink-fabric",  # several hosts inside one NVLink domain
    "healthy-single-node",  # one host, and its ranks connected
    "single-rank",  # one rank: nothing was sent
    "table-only",  # numbers without evidence of what carried them
    "tcp-plugin",  # a TCP plugin on purpose (FastSocket): works, no RDMA
    "socket",  # plain TCP between hosts
    "mixed-transport",
    "rdma-without-gpudirect",
    "gpudirect-mixed",
    "rail-missing",
    "wrong-fabric",
    "rdma-but-slow",
    "slow",  # low bandwidth, transport not shown
    "degraded",  # another degrading fault
    "wrong-results",
    "version-mismatch",
    "hang",
    "crash",
    "launch-failed",
    "truncated",
    "odd-numbers",  # a benchmark's numbers cannot be true
    "shown-in-part",  # RDMA on every channel that the log shows, but not every rank shows one
    "separate-runs",  # each process ran a job of its own: nothing crossed hosts
    "selected-only",  # a network was chosen, but no channel shows its use
    "no-evidence",
)
