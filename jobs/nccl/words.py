"""How is a result said? One diagnosis out of a closed list, and one sentence for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict

from .transports import RDMA, TCP

if TYPE_CHECKING:
    from .judge import Judgement

_DIAGNOSIS_OF = (
    ("nccl.wrong-results", "wrong-results"),
    ("nccl.version-mismatch", "version-mismatch"),
    ("nccl.launch-failed", "launch-failed"),
    ("nccl.mixed-transport", "mixed-transport"),
    ("nccl.hang", "hang"),
)
_NETWORK_OF = (
    ("nccl.socket-fallback", "socket"),
    ("nccl.gdr-off", "rdma-without-gpudirect"),
    ("nccl.gdr-mixed", "gpudirect-mixed"),
    ("nccl.rail-missing", "rail-missing"),
    ("nccl.wrong-fabric", "wrong-fabric"),
)


def diagnosis_of(judgement: Judgement, verdict: str) -> str:  # noqa: PLR0911 -- one return per form
    """Return the one diagnosis of a job, out of DIAGNOSES."""
    view = judgement.view
    for fault, diagnosis in _DIAGNOSIS_OF:
        if judgement.has(fault):
            return diagnosis
    if any(fault["severity"] == "fatal" for fault in judgement.faults) or judgement.crash:
        return "crash"
    for fault, diagnosis in _NETWORK_OF:
        if judgement.has(fault):
            return diagnosis
    if judgement.has("nccl.low-bandwidth", "nccl.bandwidth-falls"):
        return "rdma-but-slow" if view.crossings and view.transport in RDMA else "slow"
    if verdict == "no-go":
        return "degraded"
    if judgement.has("nccl.log-truncated"):
        return "truncated"
    if view.ranks == 1:
        return "single-rank"
    if verdict == "go":
        return (
            "healthy-single-node"
            if view.transport == "none"
            else "healthy-nvlink-fabric"
            if view.transport == "mnnvl"
            else "healthy-rdma"
        )
    if view.transport in TCP:
        return "tcp-plugin"
    if view.transport not in {"none", "unknown"}:
        return "selected-only"
    return "table-only" if any(table["rows"] for table in judgement.tables) else "no-evidence"


def _size_text(document: Dict[str, Any]) -> str:
    ranks, nodes = document["ranks"], document["nodes"]
    if ranks is None and nodes is None:
        return "This job (size not shown)"
    if ranks is None:
        return "This job on %d host%s" % (nodes, "" if nodes == 1 else "s")
    text = "%d rank%s" % (ranks, "" if ranks == 1 else "s")
    return text if nodes is None else "%s on %d host%s" % (text, nodes, "" if nodes == 1 else "s")


_NAMES = {
    "ib": "InfiniBand",
    "roce": "RoCE",
    "efa": "EFA",
    "cxi": "Slingshot (cxi)",
    "gib": "gIB (RoCE)",
    "ucx": "UCX",
    "tcpx": "GPUDirect-TCPX",
    "fastrak": "GPUDirect-TCPXO (FasTrak)",
    "fastsocket": "FastSocket (TCP)",
    "socket": "plain TCP sockets",
    "mnnvl": "multi-node NVLink",
    "verbs-ofi": "verbs through libfabric",
    "other": "a plugin this tool does not know",
}


def sentence_of(document: Dict[str, Any], judgement: Judgement) -> str:  # noqa: PLR0911 -- one return per form
    """Say the whole result in one sentence."""
    size = _size_text(document)
    worst = judgement.faults[0] if judgement.faults and judgement.faults[0]["severity"] != "info" else None
    network = _NAMES.get(document["inter_node_transport"], "")
    if worst is not None:
        title = (
            worst["title"][0].lower() + worst["title"][1:]
            if not worst["title"].startswith(("RDMA", "NVL", "NCCL", "GPU", "CUDA", "UCX", "InfiniBand"))
            else worst["title"]
        )
        where = "" if worst["subject"] == "the job" else " (%s)" % worst["subject"]
        cause = (worst["cause"] or "").rstrip(".")
        return "%s: %s%s; %s." % (size, title, where, cause)
    if document["verdict"] == "go" and document["inter_node_transport"] == "none":
        return "%s: the ranks of this host are connected and nothing speaks against it." % size
    if document["verdict"] == "go":
        gdr = {True: " with GPUDirect RDMA", None: ""}.get(document["gdr"], "")
        return "%s: data crosses hosts over %s%s, and nothing in the log speaks against it." % (size, network, gdr)
    if document["diagnosis"] == "single-rank":
        return "One rank: nothing was sent, so this log proves nothing about the network."
    if document["truncated"]:
        return "%s: the log ends too early to judge (%s)." % (size, judgement.faults[0]["cause"])
    if document["diagnosis"] == "selected-only":
        return "%s: %s was selected, but the log does not show that data crossed it." % (size, network)
    if document["diagnosis"] == "tcp-plugin":
        return "%s: data crosses hosts over %s; RDMA is not in use." % (size, network)
    if document["diagnosis"] == "table-only":
        return "%s: there are numbers, but the log does not show what carried the data." % size
    if document["inter_node_transport"] == "none":
        return "%s: nothing crosses hosts, and the log does not show that the run completed." % size
    return "%s: the log does not show which transport was used, so it cannot be judged." % size
