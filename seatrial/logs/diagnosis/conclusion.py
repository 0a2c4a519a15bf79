"""The diagnosis from a closed list, and the sentence for the reader."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ...faults.catalogue import fault_catalogue, having
from ..job_document import MOST_CAUSES, NETWORK_NAMES
from ..reader.events.transports import RDMA, TCP
from .defects import slow_causes
from .diagnosed import diagnosis_said
from .fallbacks import without_gpudirect
from .faults import found_fault, lowered
from .interfaces import link_local_interfaces, virtual_sockets
from .quotes import ended_in_cuda, quoted, trouble_said, warning_said
from .ranking import rank

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..job_document import FoundFault, JobDocument, Table, Verdict
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
    ("nccl.separate-runs", "separate-runs"),
)

_UNSURE_OF = (
    ("nccl.log-truncated", "truncated"),
    ("nccl.odd-numbers", "odd-numbers"),
    ("nccl.restarted", "restarted"),
    ("nccl.unexplained", "unexplained"),
)


def diagnosis_of(judgement: Judgement, verdict: Verdict) -> str:  # noqa: PLR0911 -- one return per form
    """Return the one diagnosis of a job, one of DIAGNOSES."""
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
        return "rdma-but-slow" if view.connectors and view.transport in RDMA else "slow"
    if verdict == "no-go":
        return "degraded"
    unsure = next((diagnosis for fault, diagnosis in _UNSURE_OF if judgement.has(fault)), None)
    if unsure is not None or view.ranks == 1:
        return unsure or "single-rank"
    if judgement.not_shown:
        return "shown-in-part"
    if view.transport in TCP and view.connectors:
        return "tcp-plugin"
    if verdict == "go":
        return {"none": "healthy-single-node", "mnnvl": "healthy-nvlink-fabric"}.get(view.transport, "healthy-rdma")
    if view.transport not in {"none", "unknown"}:
        return "shown-in-part" if view.connectors else "selected-only"
    return "table-only" if any(table["rows"] for table in judgement.tables) else "no-evidence"


def call_slow(document: JobDocument, table: Table, cause: str) -> None:
    """Add to a finished document that an external comparison found a table's bandwidth too low.

    A fault that the transport explains keeps its diagnosis.
    """
    alone = all(fault["severity"] == "info" for fault in document["faults"])
    fault = _add(document, "nccl.low-bandwidth", table["collective"] or "the benchmark", cause)
    document["verdict"] = "no-go"
    if alone and document["diagnosis"] not in ("hang", "crash"):
        rdma = document["evidence_shown"] and document["inter_node_transport"] not in TCP | {"none", "unknown"}
        document["diagnosis"] = "rdma-but-slow" if rdma else "slow"
        document["sentence"] = f"{_size_text(document)}: {lowered(fault['title'])}; {cause}."


def call_odd(document: JobDocument, cause: str) -> None:
    """Add to a finished document that an external comparison found a benchmark's numbers impossible."""
    _add(document, "nccl.odd-numbers", "the benchmark", cause)
    if document["verdict"] == "go":
        why = "the benchmark's numbers prove nothing: %s" % cause
        withhold(document, "odd-numbers", why)


def call_peers_off(document: JobDocument, cause: str) -> None:
    """Make a go a no-go if GPUs do not use the links between them that their models have."""
    fault = _add(document, "nccl.p2p-off", "the job", cause)
    document["verdict"], document["diagnosis"] = "no-go", "degraded"
    document["sentence"] = f"{_size_text(document)}: {lowered(fault['title'])}; {cause}."


def call_below(document: JobDocument, table: Table, cause: str, signs: Mapping[str, bool | None]) -> None:
    """Add to a finished document that a table is below its references; the caller decides about the verdict."""
    _add(document, "nccl.below-published", table["collective"] or "the benchmark", cause, signs)


def _add(
    document: JobDocument, name: str, subject: str, cause: str, signs: Mapping[str, bool | None] = MappingProxyType({})
) -> FoundFault:
    fault = found_fault(name, subject, [], cause=cause)
    document["faults"].append(fault)
    known = slow_causes(document["faults"]) if name in ("nccl.low-bandwidth", "nccl.below-published") else []
    document["causes"] = [*document["causes"], *known, *rank([fault], signs)][:MOST_CAUSES]
    return fault


def withhold(document: JobDocument, diagnosis: str, why: str) -> None:
    """Make a go inconclusive, with one of DIAGNOSES and the reason; any other verdict is unchanged."""
    if document["verdict"] != "go":
        return
    hosts, carried = document["nodes"] or 0, document["inter_node_transport"]
    over = f", {NETWORK_NAMES[carried]} between them" if hosts > 1 and carried in NETWORK_NAMES else ""
    document["verdict"], document["diagnosis"] = "inconclusive", diagnosis
    document["sentence"] = f"{_size_text(document)}{over}: {why}."


def _size_text(document: JobDocument, judgement: Judgement | None = None) -> str:
    ranks, nodes = document["ranks"], document["nodes"]
    if judgement and judgement.view.ranks_by_device and ranks is not None:
        return "A job (%d ranks of one host show)" % ranks
    if ranks is None:
        if nodes is None:
            return "A job of unknown size"
        return "A job of unknown size (one host shows)" if nodes == 1 else "A job on %d hosts" % nodes
    text = "%d rank%s" % (ranks, "" if ranks == 1 else "s")
    return text if nodes is None else "%s on %d host%s" % (text, nodes, "" if nodes == 1 else "s")


def sentence_of(document: JobDocument, judgement: Judgement) -> str:
    """Return the whole result in one sentence."""
    size = _size_text(document, judgement)
    if not document["nccl_lines"] and not judgement.tables and (diagnosed := diagnosis_said(judgement)):
        size = diagnosed
    bad = [fault for fault in judgement.faults if fault["severity"] != "info"]
    if bad:
        named = [fault for fault in bad if (fault["fault"], document["diagnosis"]) in _DIAGNOSIS_OF]
        if bad[0]["fault"] == "nccl.hang" and named and named[0] is not bad[0]:
            return _fault_sentence(size, named[0], judgement) + " A collective timed out."
        return _fault_sentence(size, bad[0], judgement)
    network = NETWORK_NAMES.get(document["inter_node_transport"], "")
    if document["verdict"] == "go" and document["inter_node_transport"] == "none":
        return "%s: the ranks of this host are connected and the log shows no fault." % size
    gdr = " with GPUDirect RDMA" if document["gdr"] else ""
    if judgement.has("nccl.gdr-unsupported"):
        gdr = " without GPUDirect RDMA (its GPUs do not support it)"
    if document["verdict"] == "go":
        return "%s: data crosses hosts over %s%s, and the log shows no fault." % (size, network, gdr)
    return _unsure_sentence(document, judgement, size, network, gdr) or _silent_sentence(document, judgement, size)


def _fault_sentence(size: str, worst: FoundFault, judgement: Judgement) -> str:
    title = lowered(worst["title"])
    if worst["fault"] == "nccl.socket-fallback" and not judgement.view.pairs:
        title = "NCCL chose plain TCP sockets between hosts"
    subject = worst["subject"]
    where = "" if subject == "the job" else " " + subject if subject.startswith("(") else " (%s)" % subject
    cause = (worst["cause"] or "").rstrip(".")
    return "%s: %s%s; %s." % (size, title, where, cause)


def _unsure_sentence(  # noqa: PLR0911, PLR0912 -- one return per form
    document: JobDocument, judgement: Judgement, size: str, network: str, gdr: str
) -> str:
    """Describe what the log covers; empty if only the job size is known."""
    said = document["diagnosis"]
    if said == "single-rank":
        return "One rank: nothing was sent, so this log proves nothing about the network."
    if document["truncated"]:
        return "%s: the log ends too early to judge (%s)." % (size, _cause_of(judgement, "nccl.log-truncated"))
    if said == "odd-numbers":
        return "%s: the benchmark's numbers prove nothing: %s." % (size, _cause_of(judgement, "nccl.odd-numbers"))
    of_ports = ("nccl.gdr-hca-off", "nccl.port-rate")
    if odd := next((fault for fault in judgement.faults if fault["fault"] in of_ports), None):
        return "%s: %s (%s); %s." % (size, lowered(odd["title"]), odd["subject"], odd["cause"])
    if said in ("restarted", "unexplained"):
        known = "" if said == "restarted" else "nothing is known to be wrong, and "
        over = " Data crosses hosts over %s%s." % (network, gdr) if network and judgement.view.connectors else ""
        return "%s: %s%s.%s" % (size, known, _cause_of(judgement, "nccl." + said), over)
    if said == "separate-runs":
        return "No job over several hosts: %s." % _cause_of(judgement, "nccl.separate-runs")
    if judgement.not_shown:
        hosts = ", ".join(judgement.not_shown[:3]) + (", ..." if len(judgement.not_shown) > 3 else "")
        return "%s: the log also holds a benchmark on other hosts (%s), and no channel of theirs." % (size, hosts)
    if said == "shown-in-part":
        carrier = network[0].upper() + network[1:]
        ranks, shown = document["ranks"], len({rank for host in document["hosts"] for rank in host["connected"]})
        few = "%d rank%s" % (shown, "" if shown == 1 else "s") if ranks is None else "%d of %d ranks" % (shown, ranks)
        missing = "it shows the channels of only %s" % (few if shown else "some of the ranks")
        if ranks is not None and shown >= ranks:
            missing = "not every rank shows how it reaches the other hosts"
        if ranks is not None and judgement.view.size_by_channels:
            missing = "no line shows how many ranks the job has"
        return "%s: %s%s carries the traffic that the log shows, but %s." % (size, carrier, gdr, missing)
    if said == "selected-only":
        mixed = _cause_of(judgement, "nccl.mixed-hcas")
        said = "%s: %s was selected, but the log does not show that data crossed it%s."
        return said % (size, network, mixed and "; " + mixed)
    if said == "tcp-plugin":
        return "%s: data crosses hosts over %s; RDMA is not in use." % (size, network)
    if said == "table-only":
        return "%s: there are numbers, but the log does not show the transport." % size
    return ""


def _cause_of(judgement: Judgement, name: str) -> str:
    """Return the cause of a reported fault; '' if it was not reported."""
    return next((fault["cause"] for fault in judgement.faults if fault["fault"] == name), "")


# Obstacles between a process and its fabric, or GPUDirect, to report if the log does not show the result.
_SIGNS = (
    "nccl.iommu",
    "nccl.plugin-broken",
    "nccl.ofi-no-provider",
    "nccl.plugin-too-old",
    "nccl.ib-open",
    "nccl.verbs-provider",
    "nccl.libibverbs-missing",
    "nccl.gdr-no-module",
    "nccl.dmabuf-topology",
    "nccl.imex-asleep",
    "nccl.cuda-symbols",
    "nccl.ib-no-device",
    "nccl.not-all-came",
)
_SAID_ALWAYS = ("nccl.libibverbs-missing", "nccl.gdr-no-module", "nccl.ib-no-device")  # also without such a NIC


def signs_shown(judgement: Judgement) -> list[str]:
    """Return obstacles between the job's processes and their peers or fabric, even without consequences."""
    came_up = any(judgement.job.completed.values())
    connect = sorted(having("stage", "connect"))  # a rank retries (misc/socket.cc: "retrying (3/34)")
    tried = [] if came_up else [name for name in connect if "info:" + name in judgement.job.noted]
    if not came_up and judgement.view.nodes != 1 and link_local_interfaces(judgement):
        tried.append("nccl.bootstrap-link-local")
    signs = [name for name in _SIGNS if name in judgement.job.noted or judgement.event("symptom " + name)]
    if "nccl.gdr-no-module" in signs and without_gpudirect(judgement):
        signs.remove("nccl.gdr-no-module")
    return tried + signs


def further_signs(judgement: Judgement) -> list[str]:
    """Return faults around a job on more than one host that ended without a known cause.

    If a CUDA call failed, the network is not the cause.
    """
    if judgement.view.nodes == 1 or ended_in_cuda(judgement):
        return []
    names = [name for name in signs_shown(judgement) if name not in _SAID_ALWAYS]
    return ["nccl.bootstrap-unroutable", *names] if virtual_sockets(judgement) else names


def _silent_sentence(document: JobDocument, judgement: Judgement, size: str) -> str:  # noqa: PLR0911 -- one return per form
    """Report that the log has nothing to judge, and its remaining content."""
    alone = judgement.view.chosen_alone()
    if alone or (document["inter_node_transport"] == "none" and not document["evidence_shown"]):
        said = "%s, and the size of the job is unknown: this log proves nothing about the network%s."
        seen = signs_shown(judgement)
        shown = "; it does show: %s" % lowered(fault_catalogue()[seen[0]].title) if seen else ""
        what = "NCCL chose plain TCP sockets" if alone else "Only one host shows"
        return said % (what, shown or warning_said(judgement))
    if document["inter_node_transport"] == "none":
        return "%s: nothing crosses hosts, and the log does not show that the run completed." % size
    if document["avg_busbw"] is not None:
        said = "%s: of the benchmark, only the average of %s GB/s is shown, and not the transport."
        return said % (size, document["avg_busbw"])
    if judgement.tables or judgement.job.rank_lines:
        return "%s: a benchmark began, but the log shows neither numbers nor the transport." % size
    if not document["nccl_lines"] and diagnosis_said(judgement):
        return "%s; there is no NCCL log here, so nothing of a job is judged." % size
    if not any(source.nccl_lines for source in judgement.job.sources.values()):
        unheaded = [note for _, note in judgement.unheaded()]
        mention = next(iter(unheaded), None) or judgement.event("mention")
        if mention is None:
            trouble = trouble_said(judgement)
            said = "" if trouble is None else "; it does show: %s" % quoted(trouble)
            return "Nothing in this log is NCCL's or a benchmark's, so there is nothing to judge%s." % said
        said = "No line of this log begins like NCCL's lines, so there is nothing to judge; it does show: %s."
        return said % quoted(mention)
    hint = next(
        (why for fault in judgement.faults if fault["fault"] == "nccl.no-evidence" and (why := fault["why"])), None
    )
    said = warning_said(judgement)
    hint = hint or (None if said else next(iter(signs_shown(judgement)), None))
    if hint is not None:
        said = "; it does show: %s" % lowered(fault_catalogue()[hint].title)
    return "%s: the log does not show which transport was used, so it cannot be judged%s." % (size, said)
