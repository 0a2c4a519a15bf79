"""Names of processes and pairs of hosts, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..listing import first_of

if TYPE_CHECKING:
    from ..reader.state.process import Proc
    from .judge import Judgement


def process_order(proc: Proc) -> tuple[str, int]:
    """Return a stable sort order of processes."""
    return proc.host or "", proc.pid or 0


def subject_of(judgement: Judgement, procs: list[Proc]) -> str:
    """Name processes for a reader: hosts, and their ranks if these are not all of the host."""
    if not procs:
        return "the job"
    nodes: dict[str, list[Proc]] = {}
    for proc in sorted(set(procs), key=process_order):
        nodes.setdefault(judgement.job.node_of[proc] or "(host not shown)", []).append(proc)
    totals: dict[str, int] = {}
    for node in judgement.job.node_of.values():
        totals[node or "(host not shown)"] = totals.get(node or "(host not shown)", 0) + 1
    texts = []
    for node, members in sorted(nodes.items()):
        ranks = sorted(
            {comm.rank for proc in members for comm in proc.comms.values() if comm.nranks == judgement.job.nranks}
        )
        if len(members) < totals.get(node, 0) and ranks:
            texts.append(
                "%s (rank %s)"
                % (node, ", ".join(str(rank) for rank in ranks[:8]) + (", ..." if len(ranks) > 8 else ""))
            )
        else:
            texts.append(node)
    return first_of(texts, 4)


def pairs_text(judgement: Judgement) -> str:
    """Name the pairs of hosts that the network connects."""
    ends = {(item.src_node, item.dst_node) for item in judgement.view.crossings}
    pairs = sorted({tuple(sorted((src, dst))) for src, dst in ends if src and dst})
    texts = ["%s - %s" % pair for pair in pairs[:3]]
    return ", ".join(texts) + (
        " and %d more pair%s" % (len(pairs) - 3, "" if len(pairs) == 4 else "s") if len(pairs) > 3 else ""
    )
