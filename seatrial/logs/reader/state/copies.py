"""Independent copies of a program, distinguished from one job by the ranks that each process lists.

nccl-tests built without MPI runs a whole benchmark in every process that a launcher starts. Each lists its own rank 0,
and the headers, rows and averages of all are mixed in one stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Optional, Tuple

from ..lines.clean import name

if TYPE_CHECKING:
    from .process import Source

EVENT = "separate-runs"
LISTS = "lists "  # a host, in a rank list after a first one with other hosts
_MOST_LISTED = 8  # hosts that are reported of a list
_Place = Tuple[int, bytes]


class Copies:
    """Follows the rank lists of one stream."""

    def __init__(self, source: Source, index: int) -> None:
        self._source = source
        self._index = index
        self._listed: Dict[int, Tuple[bytes, bytes]] = {}  # rank -> host and pid, since the last row
        self._twice: Optional[_Place] = None  # a rank that another process lists, too
        self._later: Optional[_Place] = None  # the same after a header: a copy, or the next run of a session
        self._headed = False  # whether a header was read since the last row
        self._other: Optional[_Place] = None  # a rank that the stream's first list gives to another host

    def rank(self, rank: int, host: bytes, pid: bytes, place: _Place) -> None:
        """Take one line of a rank list; listed before any header by another host, a rank belongs to a copy."""
        known = self._listed.get(rank, (host, pid))
        if known != (host, pid) and self._headed:
            self._later, self._headed, self._listed = place, False, {}
        elif known != (host, pid):
            if self._later is None:
                self._twice = self._twice or place
            if known[0] != host:
                self._note(self._twice)
        self._listed[rank] = (host, pid)

    def other_host(self, place: _Place) -> None:
        """Take a rank that the stream's first rank list gives to another host."""
        self._other = self._other or place

    def header(self, again: bool) -> None:
        """Take a header of columns; ``again``: the table has one, and no row."""
        if again:
            self._note(self._twice)
        self._headed = True

    def average(self, again: bool) -> None:
        """Take an average; ``again``: the table has one."""
        if again:
            self._note(self._twice or self._later)
        else:
            self.row()

    def row(self) -> None:
        """Take a row: ranks listed before it are settled."""
        if not self._listed:
            return
        hosts = sorted({host for host, _ in self._listed.values()})
        first = {line[0] for line in self._source.ranks.values()} if self._other is not None else ()
        if self._other is not None and max(len(hosts), len(first)) > 1:
            for host in hosts[:_MOST_LISTED]:
                self._source.note(LISTS + (name(host) or ""), self._index, *self._other)
        self._listed, self._headed, self._other = {}, False, None

    def next_table(self) -> None:
        """Start again after a table with rows."""
        self._twice = self._later = None

    def _note(self, place: Optional[_Place]) -> None:
        if place is not None:
            self._source.note(EVENT, self._index, *place)
