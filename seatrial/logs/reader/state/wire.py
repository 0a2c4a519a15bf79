"""The JSON form of a partial, small enough for a pod's standard output.

Environments, device lists and facts that many ranks share are written once and referenced by number; edges are short
texts.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Set, Tuple

from ..errors import NcclLogError
from ..lines.clean import printable
from .channels import Connector, connector_of, connector_text
from .process import Comm, Note, Proc, Source, shared

SCHEMA = 1


class _Pool:
    """Repeated values, each written once."""

    def __init__(self) -> None:
        self.items: List[Any] = []
        self._index: Dict[str, int] = {}

    def put(self, value: Any) -> int:
        key = json.dumps(value, sort_keys=True)
        if key not in self._index:
            self._index[key] = len(self.items)
            self.items.append(value)
        return self._index[key]


def encode(
    sources: List[Source], procs: Dict[Tuple[int, str, int], Proc], limited: bool, compacted: bool
) -> Dict[str, Any]:
    """Return the JSON form of a partial."""
    pool = _Pool()
    written = [_proc(key, proc, pool) for key, proc in sorted(procs.items())]
    return {
        "schema": SCHEMA,
        "limited": limited,
        "compacted": compacted,
        "sources": [_source(source) for source in sources],
        "procs": written,
        "pool": pool.items,
    }


def _source(source: Source) -> Dict[str, Any]:
    return {
        "name": source.name,
        "lines": source.lines,
        "bytes": source.bytes,
        "nccl_lines": source.nccl_lines,
        "cut": source.cut,
        "events": {name: note.to_list() for name, note in source.events.items()},
        "spans": dict(sorted(source.spans.items())),
        "watch": source.watch,
        "ranks": [[rank, *item] for rank, item in sorted(source.ranks.items())],
        "tables": source.tables,
        "tags": sorted(source.tags),
    }


def _proc(key: Tuple[int, str, int], proc: Proc, pool: _Pool) -> List[Any]:
    edges: Dict[str, List[str]] = {}
    for comm, connections in sorted(proc.edges.items()):
        for src, dst, connector, mask in sorted(
            (src, dst, connector_of(connector), mask) for (src, dst, connector), mask in connections.items()
        ):
            what = pool.put([comm, connector.kind, connector.net, connector.conn])
            edges.setdefault(str(what), []).append(
                "%d %d %s %d %d %d %x"
                % (src, dst, connector.side or "-", connector.dev, connector.gdr, connector.proxy, mask)
            )
    return [
        list(key),
        [proc.host, proc.pid],
        sorted(proc.tags),
        sorted(proc.devs),
        sorted(proc.sources),
        pool.put({name: sorted(values) for name, values in sorted(proc.facts.items())}),
        pool.put(proc.env),
        pool.put({str(index): device for index, device in sorted(proc.hcas.items())}),
        proc.ibs,
        [[name, comm.to_list()] for (name, _), comm in sorted(proc.comms.items())],
        edges,
        {name: note.to_list() for name, note in proc.notes.items()},
        _ranges(proc.ranks),
        proc.last_error,
    ]


def _ranges(numbers: Iterable[int]) -> str:
    """Write a set of numbers as ``0-7,9``."""
    out: List[List[int]] = []
    for number in sorted(numbers):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ",".join("%d-%d" % (low, high) if low != high else str(low) for low, high in out)


def _unranges(text: str) -> set[int]:
    numbers: Set[int] = set()
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        if int(high or low) - int(low) > 1_000_000:
            raise ValueError("a range of ranks is too long")
        numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def decode(data: Dict[str, Any]) -> Tuple[List[Source], Dict[Tuple[int, str, int], Proc], bool, bool]:
    """Read the JSON form; any violation of the schema is the same error."""
    try:
        schema = data["schema"]
        sources = [_read_source(item) for item in data["sources"]]
        procs = {}
        for item in data["procs"]:
            index, host, pid = item[0]
            procs[(int(index), str(host), int(pid))] = _read_proc(item, data["pool"])
        limited, compacted = bool(data["limited"]), bool(data["compacted"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise NcclLogError("NCCL evidence is damaged: %s" % printable(repr(error), 120)) from error
    if schema != SCHEMA:
        raise NcclLogError("NCCL evidence of schema %s; this seatrial reads %d" % (printable(str(schema), 20), SCHEMA))
    return sources, procs, limited, compacted


def _read_source(data: Dict[str, Any]) -> Source:
    source = Source(printable(str(data["name"]), 300))
    source.lines, source.bytes, source.nccl_lines = int(data["lines"]), int(data["bytes"]), int(data["nccl_lines"])
    source.cut = bool(data["cut"])
    source.events = {str(name): Note.from_list(note) for name, note in data["events"].items()}
    source.spans = {str(comm): [int(line) for line in lines[:2]] for comm, lines in data.get("spans", {}).items()}
    source.watch = {str(rank): [int(number) for number in numbers] for rank, numbers in data["watch"].items()}
    source.ranks = {int(item[0]): list(item[1:]) for item in data["ranks"]}
    source.tables = [dict(table) for table in data["tables"]]
    source.tags = {str(tag) for tag in data["tags"]}
    return source


def _read_proc(item: List[Any], pool: List[Any]) -> Proc:
    host, pid = item[1]
    proc = Proc(None if host is None else str(host), None if pid is None else int(pid))
    proc.tags, proc.devs = shared(str(tag) for tag in item[2]), shared(int(dev) for dev in item[3])
    proc.sources = shared(int(index) for index in item[4])
    proc.facts = {str(name): shared(str(value) for value in values) for name, values in pool[item[5]].items()}
    proc.env = {str(name): str(value) for name, value in pool[item[6]].items()}
    proc.hcas = {int(index): str(device) for index, device in pool[item[7]].items()}
    proc.ibs = {str(what): int(line) for what, line in item[8].items()}
    for name, fields in item[9]:
        comm = Comm.from_list(fields)
        proc.comms[(str(name), comm.rank)] = comm
    for what, texts in item[10].items():
        comm_name, kind, net, conn = pool[int(what)]
        connections = proc.edges.setdefault(str(comm_name), {})
        for text in texts:
            src, dst, direction, dev, gdr, proxy, mask = text.split(" ")
            side = "" if direction == "-" else str(direction)
            connector = connector_text(Connector(side, int(conn), str(kind), str(net), int(dev), int(gdr), int(proxy)))
            connector_of(connector)  # an untrusted text may hold anything
            connections[int(src), int(dst), connector] = int(mask, 16)
    proc.notes = {str(name): Note.from_list(note) for name, note in item[11].items()}
    proc.ranks = shared(_unranges(item[12]))
    proc.last_error = None if item[13] is None else [int(number) for number in item[13]]
    return proc
