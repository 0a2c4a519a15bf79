"""Ranks and nodes of a job, from NCCL's lines, the table's header or rings.

The last resort are the devices of one host.
"""

from __future__ import annotations

from typing import Any

from ...faults.catalogue import having
from ..reader.state.channels import connector_of
from ..rows import copies, of_one_rank
from .jobs import Job


def table_nodes(job: Job) -> int | None:
    """Count hosts in the table's header; None if a host names one GPU twice: two hosts of one name, or a shared GPU.

    Only a full PCI address identifies a GPU: the short form before 2.14.1 omits its domain, and GH200 has one GPU per
    domain. Of a truncated list only the named hosts are known, unless their devices account for all ranks.
    """
    if not _whole_list(job):
        return None
    hosts = set()
    gpus = set()
    for line in job.rank_lines.values():
        host, pid, device, bus = str(line[0]), line[1], line[2], str(line[3])
        hosts.add(host)
        if bus.count(":") < 2:
            continue
        if (host, device, bus) in gpus:
            return None
        gpus.add((host, device, bus))
        del pid
    return len(hosts)


def list_cut(job: Job) -> bool:
    """Return whether the table's header, if there is one, omits ranks: nothing is known about those."""
    return len(job.rank_lines) <= max(job.rank_lines) or len(job.rank_lines) < _at_least(job)


def _whole_list(job: Job) -> bool:
    if not list_cut(job):
        return True
    hosts = {str(line[0]) for line in job.rank_lines.values()}
    devices = max(int(str(line[2])) for line in job.rank_lines.values()) + 1  # devices per host; every host has as many
    return len(hosts) * devices == max(job.rank_lines) + 1 >= _at_least(job)


def _by_ratio(job: Job) -> int:
    """Return the minimum number of ranks from an all-reduce's numbers: bus over algorithm bandwidth is 2(n-1)/n.

    With three printed digits the quotient distinguishes 8 ranks from 16, but not hundreds from thousands.
    """
    if "separate-runs" in job.events:  # each copy has its own list
        return 0
    sent = any(_sent(row) for source in job.sources.values() for table in source.tables for row in table["rows"])
    sides = [
        row[side]
        for source in job.sources.values()
        for table in source.tables
        for row in table["rows"]
        for side in ("out_of_place", "in_place")
    ]
    quotients = [
        side["busbw_gbps"] / side["algbw_gbps"]
        for side in sides
        if side and (side["algbw_gbps"] or 0) >= 10 and side["busbw_gbps"] is not None
    ]
    least = min(quotients, default=0.0)
    return int(2 / (2 - min(least, 1.97)) * 0.8) if least > 1.05 else 2 * sent


def _sent(row: dict[str, Any]) -> bool:
    """Return whether a row is of an all-reduce or reduce-scatter that sent data: for one rank, both rates are 0."""
    if row["redop"] in (None, "none") or row["root"] not in (None, -1):
        return False
    return any(row[side] and (row[side]["busbw_gbps"] or 0) > 0.05 for side in ("out_of_place", "in_place"))


def hosts_hidden(job: Job) -> bool:
    """Return whether there may be more hosts than the log names.

    That is so if no line of a launcher's task names a host, or if the log has only failures: an excerpt, which does not
    show the other processes.
    """
    tasks = {tag for source in job.sources.values() for tag in source.tags}
    known = {tag for proc in job.procs for tag in proc.tags}
    if known and any(tag.startswith(("srun:", "mpi:")) for tag in tasks - known):
        return True
    of_failures = {"flag", "link", "version"}  # a failed transfer shows the link layer
    return all(
        proc.notes and not proc.facts.keys() - of_failures and not proc.edges and not proc.comms for proc in job.procs
    )


def remote_trouble(job: Job) -> bool:
    """Return whether a line mentions another host: a failed connection or transfer."""
    remote = having("scope", "hosts") | {"nccl.ib-flushed"}
    mnnvl = "1" in job.env["NCCL_MNNVL_ENABLE"]
    return mnnvl or not job.noted.keys().isdisjoint(remote)


def most_on_one_host(job: Job, ranks: int) -> bool:
    """Return whether one host has more than half of all ranks, by its devices: all hosts have as many devices."""
    devices: dict[str, set[int]] = {}
    for proc in job.procs:
        devices.setdefault(job.node_of[proc], set()).update(dev for dev in proc.devs if dev >= 0)
    return len(devices) == 1 and all(2 * len(hosts_devices) > ranks > 0 for hosts_devices in devices.values())


def silent(job: Job) -> bool:
    """Return whether processes printed only their versions, and nothing about their host."""
    return all(
        not proc.facts.keys() - {"version", "driver", "git"}
        and not proc.edges
        and all(note.startswith(("env ", "line ")) for note in proc.notes)
        for proc in job.procs
    )


def ranks_of(job: Job) -> int | None:
    """Return the size of the job.

    It is that of the largest communicator, the table's header, a ring, or the program's own line.
    """
    listed = max(job.rank_lines) + 1 if job.rank_lines else 0
    listed = 0 if listed and listed < _at_least(job) else listed  # the list is truncated at its end
    if job.nranks or listed:
        return max(job.nranks, listed)
    printed = max(map(int, job.facts["nranks"]), default=0)
    if printed:
        return printed
    rings = max([len(proc.ranks) for proc in job.procs] or [0])
    return rings or _closed_ring(job) or _world(job) or _lone(job)


def _lone(job: Job) -> int | None:
    """Return 1 if the log shows only tables of one rank, each printed by one process."""
    tables = [table["rows"] for source in job.sources.values() for table in source.tables if table["rows"]]
    alone = tables and not job.procs and all(of_one_rank(rows) and copies(rows) == 1 for rows in tables)
    return 1 if alone else None


def _world(job: Job) -> int | None:
    """Return the size that the program itself printed."""
    worlds = job.numbers.get("world", ())
    return max(worlds if len(worlds) == 1 else job.numbers.get("operations of", ()), default=None)


def size_by_channels(job: Job) -> bool:
    """Return whether only channels show the job's size: those of an excerpt show its ranks only."""
    stated = job.nranks or job.rank_lines or job.facts["nranks"] or any(proc.ranks for proc in job.procs)
    return not stated and _world(job) is None


def split_hosts(job: Job) -> bool:
    """Return whether a GPU's index exceeds the ranks of a node: NCCL may count a host as several nodes.

    NVLink bridges split a host into pairs at least. Or the job has the last GPUs of its hosts.
    """
    local = max([comm.local for key in job.world for comm in job.comms[key]] or [0])
    return 1 < local <= max(job.numbers.get("gpu", ()), default=-1)


def _at_least(job: Job) -> int:
    """Return how many ranks the channels name, or the numbers require."""
    named = max(
        [
            rank
            for proc in job.procs
            for connections in proc.edges.values()
            for connection in connections
            for rank in connection[:2]
        ]
        or [-1]
    )
    return max(named + 1, _by_ratio(job))


def ranks_by_device(job: Job) -> int:
    """Count ranks by devices: one host, each device once and from 0 on. As far as such a log shows, that is the job."""
    hosts = {job.node_of[proc] for proc in job.procs}
    devs = [dev for proc in job.procs for dev in proc.devs]
    chosen = job.facts["net"].keys() - {"Socket"}
    if len(hosts) != 1 or len(devs) < 2 or chosen or any(proc.hcas for proc in job.procs):
        return 0
    if "fabric" in job.flags:  # the other hosts of an NVLink domain may be missing
        return 0
    if "nccl.ofi-no-provider" in job.noted:  # NCCL searched for a fabric between hosts
        return 0
    connections = [
        connection for proc in job.procs for connections in proc.edges.values() for connection in connections
    ]
    if any(
        max(src, dst) >= len(devs) or connector_of(connector).kind not in ("p2p", "shm")
        for src, dst, connector in connections
    ):
        return 0  # a channel names more ranks, or leaves the host
    return len(devs) if sorted(devs) == list(range(len(devs))) else 0


def joined_ranks(job: Job) -> list[set[int]]:
    """Return the groups of ranks that channels inside hosts join, over the communicators with the whole job."""
    groups: dict[int, set[int]] = {}
    for proc in job.procs:
        for comm, connections in proc.edges.items():
            for src, dst, connector in connections if not comm or comm in job.world else ():
                if connector_of(connector).kind in ("p2p", "shm") and min(src, dst) >= 0:
                    one, other = groups.setdefault(src, {src}), groups.setdefault(dst, {dst})
                    if one is not other:
                        one |= other
                        groups.update(dict.fromkeys(other, one))
    return list({id(group): group for group in groups.values()}.values())


def _closed_ring(job: Job) -> int:
    """Return how many ranks a ring contains, by channel lines alone (0: no ring is complete)."""
    following: dict[int, set[int]] = {}
    for proc in job.procs:
        for src, dst, _ in [connection for connections in proc.edges.values() for connection in connections]:
            if src >= 0 and dst >= 0:
                following.setdefault(src, set()).add(dst)
    size = len(following)
    if (
        size < 2
        or set(following) != set(range(size))
        or any(dst >= size for dsts in following.values() for dst in dsts)
    ):
        return 0
    return size
