"""Holds the nodes that a sweep's log names against where the API server says that its pods were.

Who a node is, its own pod says; on whose word a node is proven or blamed must have run there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from jobs.run.stages.sweep import SweepFleet


def misplaced(
    placed: Mapping[str, Collection[int]], fleets: Iterable[SweepFleet], reported: Collection[str]
) -> dict[str, str]:
    """Return the nodes that results or agents name and on which the pod that says so never was, and why.

    `placed`: node and indexes of the pods that were bound to it; `fleets`: what the coordinator told of its agents.
    """
    claimed: dict[str, set[int]] = {node: set() for node in reported}
    for fleet in fleets:
        for node, rank in (fleet.get("ranks") or {}).items():
            claimed.setdefault(str(node), set()).add(rank)
    elsewhere = {}
    for node, ranks in sorted(claimed.items()):
        there = set(placed.get(node, ()))
        if not there:
            elsewhere[node] = "results name it, and by the API server no pod of the sweep ran on it"
        elif ranks - there:
            said, known = (", ".join(map(str, sorted(each))) for each in (ranks - there, there))
            elsewhere[node] = (
                f"the pod with index {said} says that it runs on it; by the API server that with index {known} did"
            )
    return elsewhere
