"""The command line of a collective in this image: torch's launcher with the bench, or nccl-tests.

`auto` chooses torch if the image has it, because it needs neither sshd nor an operator. The real nccl-tests run
standalone only on one node. Over several nodes they need mpirun and an MPIJob's workers (the first rank starts them for
all).
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import command
from .spec import Identity, Trial

# The names of nccl-tests' and rccl-tests' programs (github.com/NVIDIA/nccl-tests, README: "Running").
BINARIES = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "sendrecv": "sendrecv_perf",
    "broadcast": "broadcast_perf",
}
# Their directories in images if not on PATH: built from source (/opt, /workspace), coreweave's, rccl-tests'.
FOLDERS = (
    "/opt/nccl-tests/build",
    "/opt/nccl_tests/build",
    "/usr/local/bin",
    "/usr/local/nccl-tests/build",
    "/nccl-tests/build",
    "/workspace/nccl-tests/build",
    "/opt/rccl-tests/build",
    "/opt/rccl-tests",
)
NO_TORCH = "neither torchrun nor a Python with torch is in this image"
FORWARDED = ("NCCL_", "RCCL_", "UCX_", "FI_", "OFI_")


class Plan:
    """The start of one collective on this rank; `argv` is None if another rank starts it for this one."""

    def __init__(self, program: str, argv: Optional[List[str]], env: Optional[Dict[str, str]] = None) -> None:
        self.program, self.argv, self.env = program, argv, env or {}


def plan(
    trial: Trial, me: Identity, chosen: Mapping[str, Any], env: Mapping[str, str], archive: str
) -> Tuple[Optional[Plan], str]:
    """Return how this rank takes part in a collective, or why it cannot."""
    if chosen.get("command"):
        return Plan("command", list(chosen["command"]), _conventions(trial, me)), ""
    problem = NO_TORCH
    if trial.program != "nccl-tests":
        launcher = torch_launcher(env)
        if launcher:
            meet = rendezvous(trial, me, alone=chosen["scope"] == "node")
            return Plan("torch", [*launcher, *meet, *_bench(archive, trial, chosen)]), ""
    if trial.program != "torch":
        binary = find(BINARIES[chosen["op"]], env)
        if binary:
            return _nccl_tests(binary, trial, me, chosen, env)
        problem = "%s, nor nccl-tests' %s" % (NO_TORCH, BINARIES[chosen["op"]])
        if trial.program == "nccl-tests":
            problem = "nccl-tests' %s is not in this image" % BINARIES[chosen["op"]]
    return None, problem


def _conventions(trial: Trial, me: Identity) -> Dict[str, str]:
    """Return the variables with which torchrun needs no options, as a user's own job has them (job_spec.py)."""
    if trial.launcher not in ("indexed", "mpijob"):
        return {}  # an operator sets its own
    values = (trial.nodes, trial.ranks_per_node, me.rank, trial.peers[0], trial.master_port)
    names = ("NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
    return dict({"PET_%s" % name: str(value) for name, value in zip(names, values)}, NODE_RANK=str(me.rank))


def training(trial: Trial, me: Identity, env: Mapping[str, str], archive: str) -> Tuple[Optional[List[str]], str]:
    """Return the command line that starts this node's ranks of the training steps, or why they cannot be started."""
    launcher, asked = torch_launcher(env), trial.training
    if launcher is None or asked is None:
        return None, NO_TORCH
    options = [archive, "train", "--steps=%d" % asked["steps"], "--seed=%d" % asked["seed"]]
    options.append("--soak=%d" % asked["soak_s"])
    return [*launcher, *rendezvous(trial, me), *options], ""


def torch_launcher(env: Mapping[str, str]) -> Optional[List[str]]:
    """Return the command line of torchrun; None if the image has no torch."""
    program = shutil.which("torchrun", path=env.get("PATH"))
    if program:
        return [program]
    question = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for python in (shutil.which("python3", path=env.get("PATH")), sys.executable, "/opt/conda/bin/python3"):
        if python and command.run([python, "-c", question], 20, 4096).exit == 0:
            return [python, "-m", "torch.distributed.run"]
    return None


def find(name: str, env: Mapping[str, str]) -> Optional[str]:
    """Return the path of a program, on PATH or in the usual directories of nccl-tests."""
    path = os.pathsep.join((env.get("PATH", ""), *FOLDERS))
    return shutil.which(name, path=path)


def rendezvous(trial: Trial, me: Identity, *, alone: bool = False) -> List[str]:
    """Return torchrun's static rendezvous; a single node uses its own address."""
    return [
        "--nnodes=%d" % (1 if alone else trial.nodes),
        "--nproc-per-node=%d" % trial.ranks_per_node,
        "--node-rank=%d" % (0 if alone else me.rank),
        "--master-addr=%s" % ((me.pod_ip or "127.0.0.1") if alone else trial.peers[0]),
        "--master-port=%d" % trial.master_port,
    ]


def _bench(archive: str, trial: Trial, chosen: Mapping[str, Any]) -> List[str]:
    sweep = chosen["bench"] or trial.bench
    options = [archive, "measure"]
    options += ["--min-bytes=%d" % sweep["min_bytes"], "--max-bytes=%d" % sweep["max_bytes"]]
    options += ["--factor=%d" % sweep["factor"], "--iters=%d" % sweep["iters"], "--warmup=%d" % sweep["warmup"]]
    if chosen["op"] != "all_reduce":
        options.append("--op=%s" % chosen["op"])
    if chosen["repeats"] > 1:
        options.append("--cycles=%d" % chosen["repeats"])
    return options + list(chosen.get("options", ()))


def _nccl_tests(
    binary: str, trial: Trial, me: Identity, chosen: Mapping[str, Any], env: Mapping[str, str]
) -> Tuple[Optional[Plan], str]:
    sweep, gpus = chosen["bench"] or trial.bench, trial.ranks_per_node
    options = ["-b", str(sweep["min_bytes"]), "-e", str(sweep["max_bytes"]), "-f", str(sweep["factor"])]
    options += ["-n", str(sweep["iters"]), "-w", str(sweep["warmup"]), "-c", "1"]
    if chosen["repeats"] > 1:
        options += ["-N", str(chosen["repeats"])]
    if chosen["scope"] == "node" or trial.nodes == 1:
        return Plan("nccl-tests", [binary, *options, "-g", str(gpus)]), ""
    mpirun = find("mpirun", env)
    if mpirun is None or trial.launcher != "mpijob":
        missing = "no mpirun is in this image" if mpirun is None else "the trial was not started as an MPIJob"
        return None, "%s: nccl-tests run over several nodes with mpirun in an MPIJob only, and %s" % (NO_TORCH, missing)
    if me.rank:
        return Plan("nccl-tests", None), ""
    hosts = ",".join("%s:%d" % (peer, gpus) for peer in trial.peers)
    head = [mpirun, "--allow-run-as-root", "-np", str(trial.nodes * gpus), "--host", hosts, "--bind-to", "none"]
    forwarded = sorted({*chosen["env"], *(name for name in env if name.startswith(FORWARDED))} | {"NCCL_DEBUG_FILE"})
    for name in [*forwarded, *(name for name in ("PATH", "LD_LIBRARY_PATH") if name in env)]:
        head += ["-x", name]
    # The setting of the MPI Operator for its own launcher (pkg/controller/mpi_job_controller.go).
    rsh = {"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10"}
    return Plan("nccl-tests", [*head, binary, *options, "-g", "1"], rsh), ""
