"""The properties of single paths between nodes: `collective.paths`, and the measurements of each rail of a pair.

A path is slow for a communicator with a node of `nodes` and one of `to` (by default any other): a pair, a leaf's
uplink, or a node with any partner. `rails`: only these; `every: 2`: on the first, the third, ... use by a pod, counted
next to the pod's state.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from . import state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Object = dict[str, Any]
#: The share of a NIC's rate that an all_reduce of two ranks reaches.
REACHED = 0.93
COPIES_GBPS = 55.0  # host to GPU and back over PCIe gen5 x16


def between(paths: Iterable[Mapping[str, Any]], ranks: Sequence[Mapping[str, Any]]) -> list[Object]:
    """Return the paths of this communicator that are slow now; called once for each communicator."""
    names = {str(rank.get("name", "")) for rank in ranks}
    return [dict(path) for number, path in enumerate(paths) if _used(path, names) and _now(path, number)]


def _used(path: Mapping[str, Any], names: set[str]) -> bool:
    near = names & set(path.get("nodes", ()))
    far = names & set(path["to"]) if "to" in path else names - set(path.get("nodes", ()))
    return bool(near) and bool(far - near if "to" in path else far)


def _now(path: Mapping[str, Any], number: int) -> bool:
    every = int(path.get("every", 1))
    if every < 2:
        return True
    with open(os.path.join(os.path.dirname(state.path()), f"path-{number}-used"), "ab") as file:
        before = file.tell()
        file.write(b".")
    return before % every == 0


def facts(options: Mapping[str, Any], job: Mapping[str, Any], paths: Sequence[Mapping[str, Any]]) -> Object:
    """Return the additional file of the bench if rails, or a node alone, were requested."""
    ranks = job["ranks"]
    if options.get("alone"):
        wrong = sum(int(rank.get("wrong", 0)) for rank in ranks)
        return {"copies_gbps": [COPIES_GBPS] * len(ranks), "products": 2000, "differs": wrong}
    if not options.get("rails") or job["plan"].nodes < 2:
        return {}
    local = job["plan"].local
    return {"rails": [_rail(ranks, number, local, paths) for number in range(local)], "rails_wrong": 0}


def _rail(
    ranks: Sequence[Mapping[str, Any]], number: int, local: int, paths: Sequence[Mapping[str, Any]]
) -> float | None:
    rates = []
    for rank in ranks[number::local]:
        nics = {int(nic.get("rail", 0)): nic for nic in rank["devices"]}
        if number not in nics:
            return 1.2 if rank["network"] == "Socket" else None
        rates.append(float(nics[number]["rate_gbps"]))
    slow = [float(path.get("scale", 1.0)) for path in paths if number in path.get("rails", (number,))]
    seed = hashlib.sha256("/".join([str(number), *(str(rank["host"]) for rank in ranks)]).encode()).digest()
    return round(min(rates) / 8 * REACHED * min(slow, default=1.0) * (1 + (seed[0] / 255 - 0.5) * 0.012), 3)
