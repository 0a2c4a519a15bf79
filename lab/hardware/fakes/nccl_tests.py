"""Fake nccl-tests: one process with `-g` GPUs, or one for each rank below mpirun.

Simulates `all_reduce_perf` and its siblings. The ranks find each other through mpirun's all-gather and are then
simulated like torchrun's: each process writes the logs of its own ranks, and the first prints the table.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from typing import Any

from . import state, torchrun
from .allgather import ADDRESS, all_gather
from .options import Options

# program -> name of the collective in the bench
PROGRAMS = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
    "sendrecv_perf": "sendrecv",
    "broadcast_perf": "broadcast",
}
_OPTIONS = {
    "-b": "min_bytes",
    "-e": "max_bytes",
    "-f": "factor",
    "-n": "iters",
    "-w": "warmup",
    "-N": "cycles",
    "-g": "gpus",
    "-c": "check",
    "-t": "threads",
}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def main(arguments: list[str] | None = None) -> int:
    """Run one process; return the program's exit code."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    program = os.path.basename(sys.argv[0])
    given = _read(sys.argv[1:] if arguments is None else arguments)
    if given is None:
        print(f"USAGE: {program} \n\t[-t,--nthreads <num threads>] \n\t[-g,--ngpus <gpus per thread>]")
        return 1
    world = state.load()
    rank, size, local, locals_ = (
        _number(name, default)
        for name, default in (
            ("OMPI_COMM_WORLD_RANK", 0),
            ("OMPI_COMM_WORLD_SIZE", 1),
            ("OMPI_COMM_WORLD_LOCAL_RANK", 0),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", 1),
        )
    )
    gpus = given.pop("gpus")
    here = locals_ * gpus
    if (local + 1) * gpus > len(world["gpus"]):
        print(f"{socket.gethostname()}: Test CUDA failure common.cu:1012 'invalid device ordinal'")
        return 2
    options = Options(
        nodes=size // locals_,
        local=here,
        node=rank // locals_,
        address=_peer(),
        port=9,
        timeout_s=None,
        script=program,
        program="",
        bench={**given, "program": program, "op": PROGRAMS[program]},
    )
    if size == 1:
        world["mnnvl"] = None
    ranks = torchrun.describe_node(options, world)["ranks"][local * gpus : (local + 1) * gpus]
    parts = all_gather("nccl-tests", ranks) if size > 1 else [ranks]
    nodes: dict[int, dict[str, Any]] = {}
    for each in (each for part in parts for each in part):
        nodes.setdefault(each["node"], {"node": each["node"], "ranks": []})["ranks"].append(each)
    job = torchrun.agree([nodes[node] for node in sorted(nodes)], options, world)
    mine = [each for each in job["ranks"] if rank * gpus <= each["rank"] < (rank + 1) * gpus]
    code = torchrun.play(job, options, world, mine)
    if size > 1:
        all_gather("end", None)
    return code


def _read(arguments: list[str]) -> dict[str, int] | None:
    options = {"min_bytes": 32 << 20, "max_bytes": 32 << 20, "factor": 2, "iters": 20, "warmup": 1}
    options |= {"cycles": 1, "gpus": 1}
    rest = list(arguments)
    while rest:
        name = rest.pop(0)
        if name not in _OPTIONS or not rest:
            return None
        match = re.fullmatch(r"(\d+)([KMG]?)", rest.pop(0))
        if match is None:
            return None
        if _OPTIONS[name] not in ("check", "threads"):
            options[_OPTIONS[name]] = int(match[1]) * _UNITS.get(match[2], 1)
    return options


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def _peer() -> str:
    """Return the address by which the master is reached: mpirun's, else this pod's own."""
    match = re.search(r"tcp://([^:,]+)", os.environ.get(ADDRESS, ""))
    if match:
        return match[1]
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
