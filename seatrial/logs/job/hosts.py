"""The hosts of a job, and the network devices of their channels: counted from channel lines, never from a banner."""

from __future__ import annotations

from ..job_document import Host
from ..reader.events.transports import TCP
from ..reader.state.process import Proc
from .device_order import compact_devices
from .view import View


def hosts_of(view: View) -> list[Host]:
    """Return the hosts of a job: their ranks, versions, and the network devices that carry channels between hosts."""
    job = view.job
    nodes: dict[str, list[Proc]] = {}
    for proc in job.procs:
        nodes.setdefault(job.node_of[proc], []).append(proc)
    gdr: dict[str, set[bool]] = {}
    for proc, connectors in view.connectors.items():
        for connector, transport, _ in connectors.values():
            if connector.kind != "mnnvl" and transport not in TCP:
                gdr.setdefault(job.node_of[proc], set()).add(bool(connector.gdr))
    listed = {} if nodes else {rank: str(line[0]) for rank, line in job.rank_lines.items()}  # only a table's header
    nodes = nodes or {name: [] for name in listed.values()}
    hosts: list[Host] = []
    world = set(job.world)
    for node, procs in sorted(nodes.items()):
        members = {rank for proc in procs for (key, rank) in proc.comms if key in world}
        ranks = sorted(members) or sorted(rank for rank, name in listed.items() if name == node)
        connecting = members
        if not all(proc.edges for proc in procs):
            connecting = {rank for proc in procs if proc.edges for (key, rank) in proc.comms if key in world}
        connected = connecting or {
            dst if text[:1] == "r" and dst >= 0 else src
            for proc in procs
            for connections in proc.edges.values()
            for src, dst, text in connections
        }
        versions = sorted(set().union(*[proc.facts.get("version", ()) for proc in procs]))
        nets = sorted(set().union(*[proc.facts.get("net", ()) for proc in procs]))
        states = gdr.get(node, set())
        hosts.append(
            {
                "name": node if node or listed else None,
                "ranks": ranks,
                "connected": sorted(connected),
                "version": versions[0] if len(versions) == 1 else versions or None,
                "network": nets[0] if len(nets) == 1 else nets or None,
                "gdr": None if not states else "mixed" if len(states) > 1 else next(iter(states)),
                "rails": {
                    str(rank): compact_devices(names) for rank, names in sorted(view.rails.get(node, {}).items())
                },
                "rails_offered": max([len(proc.hcas) for proc in procs] or [0]) or None,
            }
        )
    return hosts
