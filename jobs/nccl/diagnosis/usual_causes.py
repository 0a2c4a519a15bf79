"""What mostly lies behind an error of NCCL of which the log shows the name alone, as NCCL_DEBUG was not set.

Each is (the error's words, what must not be known to be otherwise, the cause, what tells it from the others), the more
usual first. Sources: Lightning-AI/pytorch-lightning#4420, where NCCL's maintainer sorts what people come with;
NVIDIA/nccl#1092 (network errors of NCCL 2.18 and older are called internal ones); NCCL's guide, Troubleshooting.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .quotes import follows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job_document import Cause
    from .judge import Judgement
    from .ranking import Signs

_SYSTEM = r"ncclSystemError|unhandled system error"
_CUDA = r"ncclUnhandledCudaError|unhandled cuda error"
_NETWORK = (
    "NCCL took a network interface by which the other hosts are not reached (a bridge, another subnet, a container "
    "without its host's network)"
)
_INTERFACES = (
    "ip -br addr on every host; then NCCL_SOCKET_IFNAME=the one that connects them; NCCL_DEBUG=WARN names the call"
)
_SHARED = "the shared memory (/dev/shm) is too small for NCCL's segments (64 MB is the container default)"
USUAL_CAUSES = (
    (
        r"ncclInvalidUsage|invalid usage",
        "",
        "two ranks use the same GPU: no device is selected per rank",
        "print(torch.cuda.current_device()) in every rank; torch.cuda.set_device(local_rank)",
    ),
    (
        r"NCCL error in: .{1,200}, invalid argument, NCCL version",
        "",
        "a rank's number does not fit the number of ranks: the launcher starts more processes than the world size says",
        "print(rank, world_size) in every process; NCCL_DEBUG=WARN names the argument",
    ),
    (
        r"ncclInvalidArgument|invalid argument (?:\(run|, NCCL)",
        "",
        "two copies or versions of NCCL are in this process, or what the program hands over is of another communicator",
        "grep libnccl /proc/PID/maps | sort -u; NCCL_DEBUG=WARN names the argument",
    ),
    (_SYSTEM, "several-hosts", _NETWORK, _INTERFACES),
    (_SYSTEM, "", _SHARED, "df -h /dev/shm in the container; NCCL_DEBUG=WARN names the call"),
    (
        _CUDA,
        "",
        "GPUs may not open each other's memory here (P2P or CUDA IPC in a container, VM or WSL)",
        "NCCL_P2P_DISABLE=1 makes it run; NCCL_DEBUG=WARN names the CUDA error",
    ),
    (
        _CUDA,
        "",
        "the driver of the node does not fit the CUDA of the image, or the GPU has no memory left",
        "nvidia-smi; python -c 'import torch; print(torch.version.cuda)'",
    ),
    (r"ncclInternalError|internal error", "several-hosts", _NETWORK, _INTERFACES),
    (
        r"ncclRemoteError|remote process exited or there was a network error",
        "",
        "another rank ended first, and this is what its peers see of it",
        "look for the rank whose log ends first, or without this error; kubectl get pods; dmesg on its node",
    ),
)


def with_usual_causes(causes: Sequence[Cause], judgement: Judgement, signs: Signs) -> list[Cause]:
    """Return a job's causes with what mostly lies behind an end of which no line says more than NCCL's error."""
    faults = judgement.faults
    if not faults or faults[0]["fault"] not in _GRAPH:
        return list(causes)
    given = _given_graph(judgement)
    if faults[0]["fault"] != "nccl.crash" or _said_more(judgement):
        return [*causes[:1], *given, *causes[1:]]
    text = "\n".join(line["text"] for line in faults[0]["evidence"])
    usual: list[Cause] = [
        {"fault": "nccl.crash", "cause": "no line says what failed; mostly " + cause, "confirm": confirm}
        for pattern, needed, cause, confirm in USUAL_CAUSES
        if re.search(pattern, text) and not (needed and signs.get(needed) is False)
    ]
    usual = given + usual
    if not usual:
        return list(causes)
    slow = [cause for cause in causes[1:] if cause["fault"].startswith("nccl.bandwidth")]  # ends no job
    return [*(cause for cause in causes[1:] if cause not in slow), *usual, *slow]  # the first one only quotes the error


_GRAPH = frozenset(("nccl.crash", "nccl.internal", "nccl.ranks-differ", "nccl.topology-search"))  # a graph may end so


def _given_graph(judgement: Judgement) -> list[Cause]:
    """Return the graph that NCCL was given as a cause: it is made for an experiment, and fits one kind of machine."""
    files = sorted(judgement.job.env["NCCL_GRAPH_FILE"] - {""})
    if not files:
        return []
    text = (
        "NCCL_GRAPH_FILE=%s is set, and a graph fits the number and kind of GPUs alone that it was made for" % files[0]
    )
    return [
        {"fault": "nccl.graph-file", "cause": text, "confirm": "unset NCCL_GRAPH_FILE; cat /etc/nccl.conf ~/.nccl.conf"}
    ]


_OWN_USAGE = re.compile(r"ncclInvalid(?:Usage|Argument)|invalid (?:usage|argument)")


def _said_more(judgement: Judgement) -> bool:
    """Say whether NCCL warned, or a line tells more than the error: a peer that went away, what stands behind it.

    Who is told that it uses NCCL wrongly ends by itself, and its peers see it go away.
    """
    if judgement.earliest("warn")[0] or judgement.event("last-error"):
        return True
    gone, error = follows(judgement), judgement.event("nccl-error")
    return gone is not None and not (error is not None and _OWN_USAGE.search(error.text))
