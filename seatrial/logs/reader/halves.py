"""Detects a line without an end that has half of another line's content: 2.2 for 2.21.5, no GPUDirect yet.

A killed job, a full buffer and a truncated copy end a log within a line. A version, size or network in this half is
then not different from a complete one with the same beginning.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from .state.channels import Connection, connector_of
from .state.partial import Partial
from .state.process import Proc, Source
from .tables.headings import AVERAGE
from .tables.rows import TYPE, number, strip_tags

_NAMING = ("version ", "world ", "hosts ")
"""Prefixes of events that are followed by a name."""

_NAMES_ONLY = (*_NAMING, "gpu ", "operations of ", "mention", "line via-")
"""Prefixes of events and notes that report no failure."""

_NUMBERS = re.compile(rb"[\d.\s]*\Z")
_NEAR = 0.01, 0.02  # the tolerances of of_other_rows (seatrial/logs/diagnosis/numbers.py)
Named = Tuple[str, str]
"""The names in the state, by kind: a fact, a setting, a size, a network."""


def is_half_row(line: bytes, before: bytes, table: Optional[Dict[str, Any]]) -> bool:
    """Return whether a line is less than a row of the open table, or an average that is not that of its rows.

    A row has as many fields as the header or the row before it, and its last field as many decimals.
    """
    if b"Avg bus bandwidth" in line:
        return _is_half_average(line, table["rows"] if table else [])
    fields, above = strip_tags(line).split(), strip_tags(before).split()
    typed, like = TYPE.search(line) is not None, TYPE.search(before) is not None
    if typed and not like and table is not None and not table["rows"]:
        return len(fields) < len(table.get("left", ())) + len(table["columns"])
    if not fields or not above or not ((typed and like) or (_NUMBERS.match(line) and _NUMBERS.match(before))):
        return False
    return len(fields) < len(above) or (len(fields) == len(above) and _digits(fields[-1]) < _digits(above[-1]))


def _digits(figure: bytes) -> int:
    return len(figure.partition(b".")[2])


def _is_half_average(line: bytes, rows: List[Dict[str, Any]]) -> bool:
    """Return whether an average at the end is incomplete, or is not that of the rows."""
    average = AVERAGE.search(line)
    if average is not None and average.group(2) is not None:
        return False
    said = number(average.group(1), average=True) if average is not None else None
    sides = [side for row in rows for side in (row["out_of_place"], row["in_place"]) if side]
    values = [side["busbw_gbps"] for side in sides if side["busbw_gbps"] is not None]
    if not said or not values:
        return not said
    mean = sum(values) / len(values)
    return math.isfinite(said) and abs(said - mean) > _NEAR[0] * mean + _NEAR[1]


def says_more(line: Partial) -> bool:
    """Return whether a line does more than name something: torch's errors end with NCCL's version."""
    events = [event for source in line.sources for event in source.events]
    notes = [note for proc in line.procs.values() for note in proc.notes]
    return not all(name.startswith(_NAMES_ONLY) for name in (*events, *notes))


def says_half(line: Partial, known: Partial, connections: Iterable[Connection]) -> bool:
    """Return whether a line, read by itself, has only the beginning of a known name.

    ``connections`` are those that the same stream shows.
    """
    named = _named(line.procs.values(), line.sources)
    whole = _named(known.procs.values(), known.sources) if named else set()
    half = any(
        kind == other and name != text and text.startswith(name)
        for kind, name in named - whole
        for other, text in whole
    )
    shown = [each for proc in line.procs.values() for edges in proc.edges.values() for each in edges]
    return half or (bool(shown) and _without_its_end(_networks(shown), _networks(connections)))


def _named(procs: Iterable[Proc], sources: Iterable[Source]) -> Set[Named]:
    """Return the names in processes and streams."""
    found: Set[Named] = set()
    for proc in procs:
        found.update((fact, text) for fact, texts in proc.facts.items() for text in texts)
        found.update(proc.env.items())
        found.update(("ranks", str(comm.nranks)) for comm in proc.comms.values())
    for source in sources:
        events = (name.partition(" ") for name in source.events if name.startswith(_NAMING))
        found.update((kind, text) for kind, _, text in events)
    return found


def _networks(connections: Iterable[Connection]) -> Set[Tuple[str, bool]]:
    """Return the networks of connections, each with whether GPUDirect follows it."""
    connectors = (connector_of(text) for _, _, text in connections)
    return {(each.net, bool(each.gdr)) for each in connectors if each.kind == "net"}


def _without_its_end(line: Set[Tuple[str, bool]], known: Set[Tuple[str, bool]]) -> bool:
    """Return whether a line shows a network without GPUDirect although all known lines of it have it."""
    return any(not gdr and (net, False) not in known and (net, True) in known for net, gdr in line)
