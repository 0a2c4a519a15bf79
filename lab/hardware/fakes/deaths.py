"""Logs and exit codes of a collective in which a process fails with an NCCL error.

The rank named by the world prints its error (`collective.dies`); the others lose their connections and later print
NCCL's messages about that. All of them end with torch's exception, as torchrun reports it.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from . import failures, nccllog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .options import Options

# ncclResult: torch's text for it, and its additional explanation (torch/csrc/distributed/c10d/NCCLUtils.cpp).
ERRORS = {
    1: ("unhandled cuda error", "ncclUnhandledCudaError: Call to CUDA function failed."),
    2: (
        "unhandled system error",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
    ),
    3: ("internal error", "ncclInternalError: Internal check failed."),
    5: ("invalid usage", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."),
    6: (
        "remote process exited or there was a network error",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    ),
}
# Delay of the other ranks' errors, as in real logs.
LATER_S = 0.3


def due(behaviour: Mapping[str, Any], options: Options) -> bool:
    """Return whether this collective fails: one inside a node does only if the world says so."""
    dies = behaviour.get("dies") or {}
    enough = options.nodes >= int(dies.get("span", 2))
    return bool(dies) and (enough or dies.get("scope") == "node")


def play(
    job: Mapping[str, Any],
    options: Options,
    mine: Sequence[dict[str, Any]],
    logs: Sequence[nccllog.RankLog],
    behaviour: Mapping[str, Any],
    node: str,
) -> int:
    """Let the named ranks fail, then the others of this node."""
    dies = behaviour["dies"]
    victims = [rank for rank in mine if _is_victim(rank, dies, node)]
    if not victims:
        time.sleep(LATER_S)
    result = int(dies.get("result", 6))
    for log, rank in zip(logs, mine, strict=True):
        if rank in victims:
            for text in (dies["text"], *dies.get("then", ())):
                log.alarm(dies.get("place", "transport/net_ib/p2p.cc:612"), text)
            log.note("INIT NET", f"transport/net.cc:1306 -> {result}")
            log.note("INIT NET", f"proxy.cc:749 -> {result} [Progress Thread]")
        else:
            other = next(each["host"] for each in job["ranks"] if each is not rank)
            log.alarm("misc/socket.cc:57", f"socketProgress: Connection closed by remote peer {other}<53735>")
            log.note("INIT NET", "proxy.cc:1724 -> 6")
        log.close()
    sys.stdout.flush()
    reason = dies["text"] if victims else "socketProgress: Connection closed by remote peer"
    return failures.nccl(options, victims or mine, reason, job["nccl"], *ERRORS[result if victims else 6])


def _is_victim(rank: Mapping[str, Any], dies: Mapping[str, Any], node: str) -> bool:
    if dies.get("nodes") and node not in dies["nodes"]:
        return False
    return rank["rank"] in dies["ranks"] if dies.get("ranks") else bool(dies.get("nodes")) or rank["rank"] == 0
