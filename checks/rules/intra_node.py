"""Intra-node rules: the path between the GPUs of one node, compared with the path of this kind of node.

SHM is normal on PCIe machines and a fault on NVLink machines: only the profile defines which. Judged from each node's
run alone, so that the finding names the node and not its peer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from reports.record import Finding
from seatrial.logs.intra_node import channels_by_path, wrong_paths
from seatrial.logs.job_document import JobDocument

from .findings import compared, unknown
from .ranks import place

SPOKEN = {
    "p2p": "peer-to-peer",
    "shm": "shared memory (through the host)",
    "mnnvl": "multi-node NVLink",
    "net": "the network",
}


def path_findings(
    trial: TrialResult, spec: TrialSpec, jobs: Mapping[int, JobDocument | None], expected_path: str
) -> Iterator[Finding]:
    """Judge the channels between the GPUs of each node: one finding for each node."""
    for rank in range(spec.nodes):
        yield _path(place(trial, rank), jobs.get(rank), expected_path)


def _path(node: str, job: JobDocument | None, expected_path: str) -> Finding:
    expected = f"{SPOKEN[expected_path]} on every channel"
    used = channels_by_path(job["intra_node"]) if job else {}
    if not used:
        cut = job is not None and job["truncated"]
        observed = "the log was cut before it shows a channel" if cut else "the log shows no channel inside the node"
        fault = "nccl.log-truncated" if cut else "nccl.no-evidence"
        return unknown(node, observed, expected, fault=fault)
    observed = ", ".join(f"{count} channels by {SPOKEN[path]}" for path, count in used.items())
    if job and job["intra_node"]["nvls"]:
        observed += ", NVLink SHARP"
    ok = not wrong_paths(used, expected_path)
    why = "" if ok else _why(job)
    return compared(node, ok, observed + (f" ({why})" if why else ""), expected, "nccl.intra-node-path")


def _why(job: JobDocument | None) -> str:
    """Describe the reason that the log shows: a setting in the environment."""
    env = job["env"] if job else {}
    named = [f"{name}={env[name]}" for name in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") if name in env]
    return f"{', '.join(named)} is set" if named else ""
