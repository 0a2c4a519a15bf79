"""The state of an analysis over some streams, JSON-able and bounded.

``merge(parts)`` is equal to one reading of everything: a part is a list of streams and the state of each process in
them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Tuple

from .channels import connector_of, connector_text
from .process import InternPool, channels_in, shared
from .wire import decode, encode

if TYPE_CHECKING:
    from .channels import Connection, Connector
    from .process import Proc, Source

POD_BUDGET = 200 * 1024  # bytes of JSON that a pod may return (the interface of trial evidence)


class Partial:
    """The state of an analysis over some sources."""

    __slots__ = ("compacted", "intern_pool", "limited", "procs", "sources")

    def __init__(self) -> None:
        self.sources: List[Source] = []
        self.procs: Dict[Tuple[int, str, int], Proc] = {}
        self.limited = False  # whether a bound was reached: missing facts may be in the unread or dropped part
        self.compacted = False
        self.intern_pool = InternPool()  # used only while streams are read

    def to_dict(self, budget: int = 0) -> Dict[str, Any]:
        """Return JSON-able data.

        With a budget in bytes, details are dropped (peers of point-to-point edges first) until it fits.
        """
        data = encode(self.sources, self.procs, self.limited, self.compacted)
        return data if not budget or _size(data) <= budget else _compact(self, budget)

    @classmethod
    def from_dict(cls, data: Dict[str, Any]) -> "Partial":
        """Read the output of to_dict; raises NcclLogError for anything else."""
        partial = cls()
        partial.sources, partial.procs, partial.limited, partial.compacted = decode(data)
        return partial

    def absorb(self, other: "Partial") -> None:
        """Append another part: its sources follow this part's in order."""
        shift = len(self.sources)
        self.sources.extend(other.sources)
        for source in other.sources:
            for note in source.events.values():
                note.source += shift
        for (index, host, pid), proc in other.procs.items():
            for note in proc.notes.values():
                note.source += shift
            if proc.last_error:
                proc.last_error = [proc.last_error[0] + shift, *proc.last_error[1:]]
            proc.sources = shared(item + shift for item in proc.sources)
            self.procs[(index + shift, host, pid)] = proc
        self.limited = self.limited or other.limited
        self.compacted = self.compacted or other.compacted


def merge(partials: Iterable[Partial]) -> Partial:
    """Join partials, as if everything had been read at once; the parts are copied, not changed."""
    whole = Partial()
    for part in partials:
        whole.absorb(Partial.from_dict(part.to_dict()))
    return whole


def _size(data: Any) -> int:
    return len(json.dumps(data, separators=(",", ":")))


def _compact(partial: Partial, budget: int) -> Dict[str, Any]:
    """Drop details, the least informative first, until the JSON form fits the budget."""
    small = Partial.from_dict(partial.to_dict())
    small.compacted = True
    steps: Tuple[Callable[[Partial], None], ...] = (
        _merge_p2p_peers,
        _merge_local_edges,
        _shorten_texts,
        _drop_environment,
        _drop_rank_lists,
        _drop_edges,
    )
    for step in steps:
        step(small)
        data = small.to_dict()
        if _size(data) <= budget:
            return data
    return data


def _fold(partial: Partial, within_node: Callable[[Connector], bool]) -> None:
    """Forget the ranks of channels inside a node."""
    for proc in partial.procs.values():
        for comm, connections in proc.edges.items():
            folded: Dict[Connection, int] = {}
            for connection, mask in connections.items():
                connector = connector_of(connection[2])
                key = (-1, -1, connector_text(connector._replace(side=""))) if within_node(connector) else connection
                folded[key] = folded.get(key, 0) | mask
            proc.edges[comm] = folded


def _merge_p2p_peers(partial: Partial) -> None:
    """Forget the local ranks of point-to-point channels inside a node."""
    _fold(partial, lambda connector: connector.conn == 1 and connector.kind in ("p2p", "shm"))


def _merge_local_edges(partial: Partial) -> None:
    _fold(partial, lambda connector: connector.kind in ("p2p", "shm"))


def _shorten_texts(partial: Partial) -> None:
    for proc in partial.procs.values():
        for note in proc.notes.values():
            note.text = note.text[:120]
    for source in partial.sources:
        for table in source.tables:
            table["rows"] = table["rows"][-64:]


def _drop_environment(partial: Partial) -> None:
    for proc in partial.procs.values():
        proc.env = {name: value[:60] for name, value in sorted(proc.env.items())[:24]}


def _drop_rank_lists(partial: Partial) -> None:
    for source in partial.sources:
        if len(source.ranks) > 512:
            source.ranks = dict(sorted(source.ranks.items())[:512])


def _drop_edges(partial: Partial) -> None:
    """Keep only each process's most frequent kinds of edges, as the last resort."""
    for proc in partial.procs.values():
        edges = [
            (connector.kind != "net", -channels_in(mask), comm, src, dst, connector, mask)
            for comm, connections in proc.edges.items()
            for (src, dst, text), mask in connections.items()
            for connector in (connector_of(text),)
        ]
        proc.edges = {}
        for _, _, comm, src, dst, connector, mask in sorted(edges)[:128]:
            proc.edges.setdefault(comm, {})[src, dst, connector_text(connector)] = mask
