"""The hosts of a job, and which network devices carry its channels: counted from channel lines, never from a banner."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...pod.nccl_reader.events.transports import TCP
from .device_order import compact_devices

if TYPE_CHECKING:
    from ...pod.nccl_reader.state.seen import Proc
    from ..job_document import Host
    from .view import View

NONE: frozenset[Any] = frozenset()


def hosts_of(view: View) -> list[Host]:
    """Return the hosts of a job: their ranks, versions, and the network devices that carry channels between hosts."""
    job = view.job
    nodes: dict[str, list[Proc]] = {}
    for proc in job.procs:
        nodes.setdefault(job.node_of[proc], []).append(proc)
    used: dict[str, dict[int, frozenset[str]]] = {}
    gdr: dict[str, frozenset[bool]] = {}
    for item in view.carriers:
        node = job.node_of[item.proc]
        own = item.key[2] if item.key[3] == "r" and item.key[2] >= 0 else item.key[1]
        if item.key[5] in ("net", "collnet") and item.transport not in TCP:
            rails_of = used.setdefault(node, {})
            if item.device not in rails_of.get(own, NONE):
                rails_of[own] = joined(rails_of.get(own, NONE), item.device)
            if bool(item.key[8]) not in gdr.get(node, NONE):
                gdr[node] = joined(gdr.get(node, NONE), bool(item.key[8]))
    hosts: list[Host] = []
    world = set(job.world)
    for node, procs in sorted(nodes.items()):
        ranks = sorted({rank for proc in procs for (key, rank) in proc.comms if key in world})
        speak = {rank for proc in procs if proc.edges for (key, rank) in proc.comms if key in world}
        connected = speak or {
            dst if direction == "r" and dst >= 0 else src
            for proc in procs
            for (_, src, dst, direction, *_rest) in proc.edges
        }
        versions = sorted({text for proc in procs for text in proc.facts.get("version", ())})
        nets = sorted({net for proc in procs for net in proc.facts.get("net", ())})
        states = gdr.get(node, NONE)
        hosts.append(
            {
                "name": node or None,
                "ranks": ranks,
                "connected": sorted(connected),
                "version": versions[0] if len(versions) == 1 else versions or None,
                "network": nets[0] if len(nets) == 1 else nets or None,
                "gdr": None if not states else "mixed" if len(states) > 1 else next(iter(states)),
                "rails": {str(rank): compact_devices(names) for rank, names in sorted(used.get(node, {}).items())},
                "rails_offered": max([len(proc.hcas) for proc in procs] or [0]) or None,
            }
        )
    if not hosts and job.rank_lines:
        for name in sorted({str(line[0]) for line in job.rank_lines.values()}):
            mine = sorted(rank for rank, line in job.rank_lines.items() if str(line[0]) == name)
            hosts.append(
                {
                    "name": name,
                    "ranks": mine,
                    "connected": [],
                    "version": None,
                    "network": None,
                    "gdr": None,
                    "rails": {},
                    "rails_offered": None,
                }
            )
    return hosts


@lru_cache(maxsize=4096)
def joined(known: frozenset[Any], *values: Any) -> frozenset[Any]:
    """Return a set with some more, the one that all have who know the same: a large job has many pairs and ranks."""
    return known.union(values)
