"""A job: its streams, its processes and their nodes, before any judgement.

Two nodes can have the same host name (NCCL_HOSTID, or different addresses of one interface). Containers can make one
node look like two; then NCCL's own count decides.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from ..reader.state.process import Comm, Note, Proc, Source

_NONE: frozenset[str] = frozenset()


class Job:
    """One job: its streams, its processes (merged over streams), and their nodes."""

    def __init__(self, sources: dict[int, Source], procs: list[Proc], limited: bool = False) -> None:
        self.sources = sources
        self.limited = limited  # the log has more than was read or kept
        self.procs = procs
        self.node_of: dict[Proc, str] = _nodes(procs)
        self.members: dict[str, dict[int, Proc]] = {}  # communicator -> rank -> process
        self.comms: dict[str, list[Comm]] = {}
        for proc in procs:
            for (key, rank), comm in proc.comms.items():
                if key not in self.comms:
                    self.members[key], self.comms[key] = {}, []
                self.members[key].setdefault(rank, proc)
                self.comms[key].append(comm)
        # communicator -> ranks that began its set-up, and those that completed it
        self.started = {key: {comm.rank for comm in comms if comm.started} for key, comms in self.comms.items()}
        self.completed = {key: {comm.rank for comm in comms if comm.completed} for key, comms in self.comms.items()}
        self.nranks = max([comms[0].nranks for comms in self.comms.values()] or [0])
        self.world = [key for key, comms in self.comms.items() if comms[0].nranks == self.nranks]
        self.rank_lines: dict[int, list[object]] = {}  # rank of the world -> its line in a table's header
        self.events: dict[str, Note] = {}  # first occurrences of events in foreign lines, over the streams
        self.numbers: dict[str, set[int]] = {}  # the suffixes of events of one kind, such as "world 16"
        self.facts: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by kind, how many processes printed a text
        self.env: defaultdict[str, set[str]] = defaultdict(set)  # the values of a variable, as processes printed them
        counts = Counter(item for proc in procs for item in proc.facts.items())  # most processes share their facts
        for (fact, texts), count in counts.items():
            for text in sorted(texts):
                self.facts[fact][text] += count
        for env in {id(proc.env): proc.env for proc in procs}.values():
            for name, value in env.items():
                self.env[name].add(value)
        self.flags = self.facts["flag"].keys()
        self.noted: dict[str, list[Proc]] = {}  # by kind of line, the processes that printed one
        for name, each in [(name, proc) for proc in procs for name in proc.notes]:
            self.noted.setdefault(name, []).append(each)
        for source in sources.values():
            for rank, line in source.ranks.items():
                self.rank_lines.setdefault(rank, line)
            for name, note in source.events.items():
                known = self.events.setdefault(name, note)
                self.events[name] = known if known is note or known.order(name) < note.order(name) else note
                kind, _, number = name.rpartition(" ")
                if number.isdigit():
                    self.numbers.setdefault(kind, set()).add(int(number))
        self.rank_hosts = {rank: str(line[0]) for rank, line in self.rank_lines.items() if line and line[0]}

    def first_note(self, name: str, procs: list[Proc]) -> Note | None:
        """Return the first line of a kind that one of these processes printed."""
        first = None
        for proc in procs if name in self.noted else ():
            note = proc.notes.get(name)
            if note is not None and (first is None or note.order(name) < first.order(name)):
                first = note
        return first

    def member(self, comm: str, rank: int) -> Proc | None:
        """Return the process of a communicator's rank; None if the log does not show it."""
        members = self.members.get(comm)
        if members is None and not comm:
            for key in self.world:
                if rank in self.members[key]:
                    return self.members[key][rank]
            return None
        return members.get(rank) if members else None

    def ended(self, proc: Proc) -> bool:
        """Return whether a process destroyed or aborted all its communicators, or those with the whole job."""
        own_comms = {key for key, _ in proc.comms if key in self.world} or {key for key, _ in proc.comms}
        return bool(own_comms) and own_comms <= proc.facts.get("destroyed", _NONE) | proc.facts.get("aborted", _NONE)

    def largest(self, proc: Proc) -> tuple[str, ...]:
        """Return a process's communicators with the most ranks."""
        most = max((comm.nranks for comm in proc.comms.values()), default=0)
        return tuple(sorted({key for (key, _), comm in proc.comms.items() if comm.nranks == most}))

    def destroyed(self, keys: Collection[str]) -> bool:
        """Return whether one of these communicators ended normally: one of its ranks reported it.

        A rank also aborts its communicator when another rank failed, so all ranks must have aborted.
        """
        procs = [proc for key in keys for proc in self.members[key].values()]
        cleanly = any(not proc.facts.get("destroyed", _NONE).isdisjoint(keys) for proc in procs)
        return cleanly or (bool(procs) and all(map(self.ended, procs)))

    def left_by_all(self, keys: Collection[str]) -> bool:
        """Return whether every rank of these communicators ended: a dead rank prints nothing, while others do end."""
        ranks = [rank for key in keys for rank in self.members[key].values()]
        shown = all(len(self.members[key]) >= self.comms[key][0].nranks for key in keys)
        return shown and bool(ranks) and all(map(self.ended, ranks))

    def nodes_of_ranks(self) -> dict[str, dict[int, str]]:
        """Return communicator ("" if a line names none) -> rank -> node.

        Ranks of the world without a process have the host in a table's header.
        """
        nodes = {
            comm: {rank: self.node_of[proc] for rank, proc in ranks.items()} for comm, ranks in self.members.items()
        }
        nodes.setdefault("", {rank: node for key in reversed(self.world) for rank, node in nodes[key].items()})
        return nodes | {key: {**self.rank_hosts, **nodes[key]} for key in ("", *self.world)}


def addressed(procs: list[Proc]) -> bool:
    """Return whether hosts can be distinguished.

    Each process printed host and address, and none has a host id set by the user.
    """
    return all(proc.host is not None and proc.facts.get("boot") for proc in procs) and not renamed(procs)


def renamed(procs: list[Proc]) -> bool:
    """Return whether a process reports a host id set by the user, so that NCCL may count one host as several."""
    return any(proc.facts.get("hostid") or "NCCL_HOSTID" in proc.env for proc in procs)


def twice_ranked(proc: Proc) -> set[int]:
    """Return the ranks that a process has in several communicators."""
    ranks = [rank for _, rank in proc.comms]
    several = len(set(ranks)) < len(ranks)
    return {rank for rank, count in Counter(ranks).items() if count > 1} if several else set()


def place(note: Note) -> tuple[int, int]:
    """Return a note's position: its stream and line."""
    return note.source, note.line


# -- processes ---------------------------------------------------------------------------------------------------------
def merged(items: list[tuple[tuple[int, str, int], Proc]]) -> list[Proc]:
    """Merge the same process over streams, and heads with a torn host (``rexnode1`` next to ``node1``, same pid)."""
    merged: dict[tuple[object, ...], Proc] = {}
    own: set[tuple[object, ...]] = set()  # changeable copies: a partial's processes are not modified

    def join(key: tuple[object, ...], other: Proc) -> None:
        if key not in own:
            own.add(key)
            merged[key] = _copy(merged[key])
        merged[key].merge(other)

    printed_hosts = {host for (_, host, _), _ in items}
    whole_of = _glued_hosts(printed_hosts) if any(map(_GLUE.match, printed_hosts)) else {}
    for (index, printed, pid), part in items:
        host, proc = whole_of.get(printed, printed), part
        if host != printed:
            proc = _copy(part)
            proc.host = host
        key: tuple[object, ...] = (host, pid) if proc.pid is not None else (index, host, pid)
        if key in merged:
            join(key, proc)
        else:
            merged[key] = proc
    used: dict[str | None, int] = {}
    by_pid: dict[int | None, dict[str, tuple[object, ...]]] = {}
    for key, proc in merged.items():
        used[proc.host] = used.get(proc.host, 0) + 1
        if proc.pid is not None and proc.host:
            by_pid.setdefault(proc.pid, {})[proc.host] = key
    for hosts in by_pid.values():
        if len(hosts) > 1:
            for torn, whole in _torn_hosts(hosts, used):
                if hosts[torn] in merged and hosts[whole] in merged:
                    join(hosts[whole], merged.pop(hosts[torn]))
    return list(merged.values())


# The remains of a torn line before a host: the end of a pointer, or of a thread's number.
_GLUE = re.compile(r"0x[0-9a-f]{4,16}|\d{4,12}")


def _glued_hosts(hosts: set[str]) -> dict[str, str]:
    """Return torn host -> whole one: another host of the job, with a number or a pointer prepended."""
    whole_of = {}
    for host in hosts:
        glue = _GLUE.match(host)
        for at in range(1, min(glue.end() + 1, len(host))) if glue else ():
            if host[at:] in hosts and _GLUE.fullmatch(host[:at]) and not host[at].isdigit():
                whole_of[host] = host[at:]
                break
    return whole_of


def _torn_hosts(hosts: Iterable[str], used: dict[str | None, int]) -> list[tuple[str, str]]:
    """Return (torn, whole) if one host name is the other with a prefix, or without its beginning.

    No other process may have the torn one. Every host of a cluster may use the same pids, so pairs are looked up.
    """
    known = set(hosts)
    ends = {host[at:]: host for host in sorted(known) if used.get(host, 0) > 1 for at in range(1, len(host))}
    pairs = []
    for host in sorted(known):
        if used.get(host, 0) <= 1:
            whole = next((host[at:] for at in range(1, len(host)) if host[at:] in known), ends.get(host))
            if whole is not None:
                pairs.append((host, whole))
    return pairs


def _copy(proc: Proc) -> Proc:
    fresh = Proc(proc.host, proc.pid)
    fresh.merge(proc)
    return fresh


# -- processes to nodes ------------------------------------------------------------------------------------------------
def _nodes(procs: list[Proc]) -> dict[Proc, str]:
    """Name the node of each process: its host, with a suffix if two nodes have one name."""
    by_host: dict[str, list[Proc]] = {}
    for proc in procs:
        by_host.setdefault(proc.host if proc.host is not None else "", []).append(proc)
    names: dict[Proc, str] = {}
    for host, members in by_host.items():
        if len({tuple([proc.facts.get(fact) for fact in _MARKS]) for proc in members}) == 1:  # most hosts are one node
            names.update(dict.fromkeys(members, host))
            continue
        marks = [min(proc.facts.get("hostid") or [""]) for proc in members]
        if len({mark for mark in marks if mark}) > 1:
            for proc, mark in zip(members, marks):  # noqa: B905 -- strict= came with Python 3.10
                names[proc] = "%s (%s)" % (host, mark) if mark else host
            continue
        printed = any(proc.facts.keys() & set(_ADDRESSES) for proc in members)
        clusters = _by_address(members) if printed else [("", members)]
        for address, cluster in clusters:
            for proc in cluster:
                names[proc] = host if len(clusters) == 1 else "%s (%s)" % (host, address)
    return names


_ADDRESSES = ("oob", "boot", "socket")  # facts: an interface and its address
_MARKS = ("hostid", *_ADDRESSES)


def _by_address(members: list[Proc]) -> list[tuple[str, list[Proc]]]:
    """Split processes of one host name if one interface has several addresses."""
    clusters: list[tuple[dict[str, str], list[Proc]]] = []
    silent: list[Proc] = []
    for proc in sorted(members, key=lambda item: item.pid or 0):
        addresses: dict[str, str] = {}
        for fact in _ADDRESSES:
            for text in sorted(proc.facts.get(fact, ())):
                interface, _, address = text.partition(" ")
                if interface != "lo" and address and "x" not in address.lower().replace("0x", ""):
                    addresses.setdefault(interface, address)
        if not addresses:
            silent.append(proc)
            continue
        for known, cluster in clusters:
            if all(known.get(interface, address) == address for interface, address in addresses.items()):
                known.update(addresses)
                cluster.append(proc)
                break
        else:
            clusters.append((addresses, [proc]))
    if not clusters:
        return [("", members)]
    for proc in silent:
        nearest = min(clusters, key=lambda item: min(abs((other.pid or 0) - (proc.pid or 0)) for other in item[1]))
        nearest[1].append(proc)
    return [(min(known.values()), cluster) for known, cluster in clusters]
