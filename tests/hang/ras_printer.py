"""Prints NCCL RAS answers for a made job, like src/ras/client_support.cc of 2.28: the verbose text, and JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

LETTERS = {"NOCOMM": 0, "INIT": 1, "RUNNING": 2, "FINALIZE": 3, "ABORT": 4}


@dataclass
class Comm:
    """A communicator: its members by world rank, and its differences from `launched` AllReduce on all of them."""

    members: list[int]
    launched: int = 10
    counts: dict[int, int] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    hash: str = "1bdb83b038775869"


@dataclass
class Job:
    """Ranks on hosts of eight; with `one_device`, each process sees one GPU: device 0 in CUDA, its index in NVML."""

    ranks: int
    comms: list[Comm]
    silent: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    one_device: bool = False
    own_pid: bool = False
    """Every process has pid 7, as in containers."""

    def place(self, rank: int) -> tuple[str, int, int, int]:
        """Return host, process, CUDA device and NVML device."""
        return (
            f"10.0.0.{rank // 8 + 1}",
            7 if self.own_pid else 100 + rank,
            0 if self.one_device else rank % 8,
            rank % 8,
        )

    def gpu(self, rank: int) -> str:
        _, _, cuda, nvml = self.place(rank)
        return f"{cuda}" if cuda == nvml else f"{cuda} (NVML {nvml})"

    def managed(self, rank: int) -> str:
        host, pid, *_ = self.place(rank)
        return f"GPU {self.gpu(rank)} managed by process {pid} on node {host}"

    def process(self, rank: int) -> str:
        host, pid, *_ = self.place(rank)
        return f"  Process {pid} on node {host} managing GPU {self.gpu(rank)}"


def _sides(job: Job, comm: Comm, values: dict[int, str], many: str, one: str) -> list[str]:
    """Return the lines of ranks by state, the most frequent first; the minority is named."""
    lines = []
    for value, count in sorted(Counter(values.values()).items(), key=lambda item: -item[1]):
        if count > 1:
            lines.append("  " + many.format(count=count, value=value))
        for place, rank in enumerate(comm.members):
            if values.get(rank) == value and (count == 1 or count < len(comm.members) / 2):
                lines.append(
                    f"  Rank {place} -- {job.managed(rank)}"
                    if count > 1
                    else "  " + one.format(place=place, value=value) + f" -- {job.managed(rank)}"
                )
    return lines


def _errors(job: Job, comm: Comm) -> str:
    states, away = {comm.states.get(r, "RUNNING") for r in comm.members}, job.silent | job.dead
    mismatch = len(states) > 1 or len({comm.counts.get(r, comm.launched) for r in comm.members if r not in away}) > 1
    statuses = ["INCOMPLETE"] * bool(away & set(comm.members)) + ["ERROR"] * bool(comm.errors) + ["MISMATCH"] * mismatch
    return ",".join(statuses) or "OK"


def text(job: Job, version: str = "2.28.9", took: str = "0.002") -> str:
    """Return the answer to VERBOSE STATUS."""
    nodes = -(-job.ranks // 8)
    lines = [
        f"NCCL version {version} compiled with CUDA 12.8",
        "CUDA runtime version 12080, driver version 12080",
        "",
        "Job summary",
        "===========",
        "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"{nodes:7d}  {min(job.ranks, 8):9d}  {1:11d}  {job.ranks:9d}  {job.ranks:7d}",
        "",
        f"Communicators... ({took}s)",
        "=============",
        "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
    ]
    groups: list[list[Comm]] = []
    for comm in sorted(job.comms, key=lambda comm: -len(comm.members)):
        if (
            groups
            and len(groups[-1][0].members) == len(comm.members)
            and _errors(job, groups[-1][0]) == _errors(job, comm)
        ):
            groups[-1].append(comm)
        else:
            groups.append([comm])
    for number, group in enumerate(groups):
        size = len(group[0].members)
        state = max((s for comm in group for s in ["RUNNING", *comm.states.values()]), key=LETTERS.__getitem__)
        lines.append(
            f"{number:5d}  {len(group):8d}  {1:8d}  {min(size, 8)!s:>8}  {size:8d}  {size * len(group):8d}  {state:>8}"
            f"  {_errors(job, group[0]):>6}"
        )
    lines += ["", "Errors", "======", ""]
    for title, away, more in (
        ("INCOMPLETE", job.silent, "  Missing communicator data from {} job process{}"),
        ("DEAD", job.dead, "  {} job process{} considered dead (unreachable via the RAS network)"),
    ):
        if away:
            plural = ("es are" if len(away) > 1 else " is") if title == "DEAD" else "es" * (len(away) > 1)
            lines += [title, more.format(len(away), plural), *map(job.process, sorted(away)), ""]
    warnings: list[str] = []
    for number, group in enumerate(groups):
        for index, comm in enumerate(group):
            name, statuses = f"#{number}-{index} ({comm.hash})", _errors(job, comm)
            lost = [rank for rank in comm.members if rank in job.silent | job.dead]
            if lost:
                lines += [
                    f"{name} INCOMPLETE",
                    f"  Missing communicator data from {len(lost)} rank{'s' * (len(lost) > 1)}",
                ]
                lines += [f"  Rank {comm.members.index(rank)} -- {job.managed(rank)}" for rank in lost] + [""]
            if comm.errors:
                many = len(comm.errors) > 1
                lines += [f"{name} ERROR", f"  Asynchronous error{'s' * many} on {len(comm.errors)} rank{'s' * many}"]
                lines += [
                    *_sides(job, comm, comm.errors, "{count} ranks reported {value}", "Rank {place} reported {value}"),
                    "",
                ]
            if "MISMATCH" in statuses:
                warnings.append(f"{name} MISMATCH")
                warnings += _mismatch(job, comm)
    return "\n".join([*lines, "Warnings", "========", "", *warnings]) + "\n"


def _mismatch(job: Job, comm: Comm) -> list[str]:
    here = [rank for rank in comm.members if rank not in job.silent | job.dead]
    states = {rank: comm.states.get(rank, "RUNNING") for rank in here}
    lines = []
    if len(set(states.values())) > 1:
        lines.append("  Communicator ranks have different status")
        lines += _sides(job, comm, states, "{count} ranks have status {value}", "Rank {place} has status {value}")
    counts = {rank: comm.counts.get(rank, comm.launched) for rank in here if states[rank] != "NOCOMM"}
    if len(set(counts.values())) > 1:
        said = {
            rank: f"launched up to operation {n}" if n else "not launched any operations" for rank, n in counts.items()
        }
        lines.append("  Communicator ranks have different AllReduce operation counts")
        lines += [*_sides(job, comm, said, "{count} ranks have {value}", "Rank {place} has {value}"), ""]
    return lines


def as_json(job: Job, version: str = "2.29.1", stamp: str = "2026-11-23 10:00:00") -> str:
    """Return the answer after SET FORMAT json."""
    codes = {"Unhandled CUDA error": 1, "System error": 2, "Internal error": 3, "Remote process error": 6}
    comms = []
    for comm in job.comms:
        ranks: list[object] = []
        missing: list[object] = []
        for place, rank in enumerate(comm.members):
            host, pid, cuda, nvml = job.place(rank)
            entry = {"rank": place, "host": host, "pid": pid, "cuda_dev": cuda, "nvml_dev": nvml}
            state = comm.states.get(rank, "RUNNING")
            if rank in job.silent | job.dead or state == "NOCOMM":
                away = {"unresponsive": state != "NOCOMM", "considered_dead": rank in job.dead}
                missing.append({**entry, "status": away})
                continue
            status: dict[str, int] = {
                "init_state": 7 if state == "INIT" else 0,
                "async_error": codes.get(comm.errors.get(rank, ""), 0),
                "finalize_called": state == "FINALIZE",
                "destroy_flag": False,
                "abort_flag": state == "ABORT",
            }
            counts = {"Broadcast": 0, "AllReduce": comm.counts.get(rank, comm.launched)}
            ranks.append({**entry, "status": status, "collective_counts": counts})
        comms.append(
            {
                "hash": f"0x{comm.hash}",
                "secondary_hash": "0x1:0x2",
                "size": len(comm.members),
                "ranks_count": len(ranks),
                "missing_ranks_count": len(missing),
                "ranks": ranks,
                "missing_ranks": missing,
            }
        )
    answer = {
        "nccl_version": version,
        "cuda_runtime_version": 12080,
        "timestamp": stamp,
        "communicators_count": len(comms),
    }
    return json.dumps({**answer, "communicators": comms, "ras": {"timeouts_count": 0}}, indent=2)
