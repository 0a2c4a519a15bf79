"""The remaining causes, ranked, each with a command that rules it out: faults of a job in, causes out.

First the possible causes of the worst fault, those that the log's circumstances support before others, without those
that the log rules out; then the further faults, and other observations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...faults.catalogue import catalogue, fault_catalogue, having
from ..job_document import MOST_CAUSES
from ..reader.events.transports import TCP
from ..reader.state.process import channels_in
from .fallbacks import gpus_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ...faults.variants import Detail
    from ..job_document import Cause, FoundFault
    from .judge import Judgement


class Signs:
    """The circumstances in a log that distinguish causes: its link layer, whether the job had worked before.

    Each is evaluated on demand.
    """

    def __init__(self, judgement: Judgement) -> None:
        self._judgement = judgement
        self._known: dict[str, bool | None] = {}

    def get(self, name: str) -> bool | None:
        """Return whether a sign of CIRCUMSTANCES is present; None if the log does not show it."""
        if name not in self._known:
            self._known[name] = CIRCUMSTANCES[name](self._judgement)
        return self._known[name]


def _roce(judgement: Judgement) -> bool | None:
    view = judgement.view
    return True if view.transport == "roce" else False if view.transport == "ib" and view.link_shown() else None


def _running(judgement: Judgement) -> bool | None:
    """Return whether ranks were connected before a failure; None if the log does not show their progress."""
    job = judgement.job
    if "connected" in job.flags or any(table["rows"] for table in judgement.tables):
        return True
    return False if any(job.started.values()) and not any(job.completed.values()) else None


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _rails_crossed(judgement: Judgement) -> bool:
    """Return whether the log shows both ends of an edge with different NICs."""
    ends: dict[tuple[str, int, int, int], dict[str, set[str]]] = {}
    for item in judgement.view.crossings:
        if item.connector.kind == "net" and item.connector.side and item.transport not in TCP:
            sides = ends.setdefault((item.comm, item.src, item.dst, item.connector.conn), {})
            sides.setdefault(item.connector.side, set()).add(item.carrier.device)
    return any(len(sides) == 2 and sides["s"].isdisjoint(sides["r"]) for sides in ends.values())


def _geforce(judgement: Judgement) -> bool | None:
    """Return whether GeForce cards are listed; None if no line names the GPUs."""
    names = gpus_named(judgement)
    return any("GeForce" in name for name in names) if names else None


_FIRST = 3  # operations that a program may complete before its first one of any size (a barrier, a check of sizes)
_PCIE_CHANNELS = 4  # NCCL's searches take 2 to 4 over PCIe, 8 and more over NVSwitch (graph/search.cc)


def _over_pcie(judgement: Judgement) -> bool | None:
    """Return whether a host's GPUs use P2P without NVLink and waited in their first operations; False if none does."""
    job, view = judgement.job, judgement.view
    if view.nodes != 1 or not view.local["p2p"] or not job.flags.isdisjoint(("nvlink", "nvls")):
        return False
    connections = [mask for proc in job.procs for edges in proc.edges.values() for mask in edges.values()]
    waited = [number for source in job.sources.values() for numbers in source.watch.values() for number in numbers]
    if max(map(channels_in, connections), default=0) > _PCIE_CHANNELS or any(
        table["rows"] for table in judgement.tables
    ):
        return False
    return min(waited) <= _FIRST if waited else _no_row(judgement) or None


def _first_operation(judgement: Judgement) -> bool:
    """Return whether ranks waited in their very first operation, in a job without hosts or channels in its log."""
    job = judgement.job
    waited = [number for source in job.sources.values() for numbers in source.watch.values() for number in numbers]
    return min(waited, default=2) <= 1 and judgement.view.nodes is None and not any(proc.edges for proc in job.procs)


def _no_row(judgement: Judgement) -> bool:
    """Return whether a benchmark's ranks are connected and its table has begun, but has no row yet."""
    begun = [table for table in judgement.tables if table["columns"]]
    return bool(begun) and "connected" in judgement.job.flags and not any(table["rows"] for table in judgement.tables)


CIRCUMSTANCES: dict[str, Callable[[Judgement], bool | None]] = {
    "roce": _roce,
    "ib": lambda judgement: _not(_roce(judgement)),
    "running": _running,
    "starting": lambda judgement: _not(_running(judgement)),
    "interface-named": lambda judgement: bool(judgement.job.env["NCCL_SOCKET_IFNAME"]) or None,
    "nvlink-domain": lambda judgement: bool(judgement.view.nvlink_domain or "mnnvl" in judgement.job.flags) or None,
    "several-hosts": lambda judgement: False if judgement.view.nodes == 1 else None,
    "pcie-p2p": _over_pcie,
    "first-operation": _first_operation,
    "no-row": lambda judgement: _no_row(judgement) or None,
    "geforce": _geforce,
    "rails-crossed": _rails_crossed,
    "restarted": lambda judgement: judgement.event("symptom nccl.restarted") is not None,
    "iommu": lambda judgement: "nccl.iommu" in judgement.job.noted,
}
"""Conditions that the catalogue of faults may name with ``when``."""


def rank(
    faults: Sequence[FoundFault], signs: Signs | Mapping[str, bool | None], further: Iterable[tuple[str, Detail]] = ()
) -> list[Cause]:
    """Return the remaining causes, the most likely first.

    ``further`` are faults that lines mention, each with details from its line.
    """
    causes: list[Cause] = []
    for fault in faults:
        if fault["severity"] != "info" or fault["why"] is not None or fault["fault"] in having("blame", "suspect"):
            causes += _of(fault, signs) if not causes else [_own(fault)]
        elif fault["fault"] == "nccl.log-truncated" and signs.get("no-row") and not causes:
            causes += [_own(fault), *_alternatives("nccl.hang", signs)]
    named = {cause["fault"] for cause in causes} | {fault["fault"] for fault in faults}
    for name, said in further:
        if name not in named and len(causes) < MOST_CAUSES:
            named.add(name)
            entry = catalogue()[name]
            confirm = (said.variant and said.variant.confirm) or entry.confirm
            causes.append({"fault": name, "cause": f"{entry.title}: {said.cause or entry.meaning}", "confirm": confirm})
    return causes[:MOST_CAUSES]


def quoted_cause(words: str) -> Cause:
    """Return the cause of a log that shows no fault, but mentions trouble."""
    return {
        "fault": "nccl.unexplained",
        "cause": "the log says: %s" % words,
        "confirm": fault_catalogue()["nccl.unexplained"].confirm,
    }


def _of(fault: FoundFault, signs: Signs | Mapping[str, bool | None]) -> list[Cause]:
    """Return the finding, if it is more than the fault's meaning, and its possible causes."""
    name = fault["why"] or fault["fault"]
    alternatives = _alternatives(name, signs)
    specific = not (fault["cause"] or "").startswith(catalogue()[name].meaning) and name not in having("described")
    if not specific and alternatives:
        return alternatives
    return [_own(fault), *(each for each in alternatives if each["cause"] != fault["cause"])]


def _alternatives(name: str, signs: Signs | Mapping[str, bool | None]) -> list[Cause]:
    """Return a fault's causes from the catalogue, those supported by the circumstances first."""
    listed = (each for each in catalogue()[name].alternatives if not each.said)
    left = [each for each in listed if not each.when or signs.get(each.when) is not False]
    left.sort(key=lambda each: not (each.when and signs.get(each.when)))
    return [{"fault": name, "cause": each.cause, "confirm": each.confirm} for each in left]


def _own(fault: FoundFault) -> Cause:
    name = fault["why"] or fault["fault"]
    # a fact that a log does not show is not a cause; a sign that it shows is
    text = catalogue()[name].meaning if fault["fault"] == "nccl.no-evidence" else fault["cause"]
    return {"fault": name, "cause": text, "confirm": fault["confirm"]}
