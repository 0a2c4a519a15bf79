"""The tables of one stream: the open one, its new rows, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ..lines.clean import printable
from ..state.copies import Copies
from .rows import is_numeric, labels_of, side_of, sides_of, type_at, whole

if TYPE_CHECKING:
    from ..state.process import Source
    from .forms import Form

MAX_ROWS = 4096
MAX_ALL_ROWS = 20_000  # bound for one stream
MAX_TABLES = 512

DEFAULT = ["time", "algbw", "busbw", "#wrong"] * 2


def new_table(line: int) -> Dict[str, Any]:
    """Return an empty table; its keys are those of a job document's tables, and some that only this package reads."""
    return {
        "collective": None,
        "rows": [],
        "out_of_bounds": None,
        "out_of_bounds_ok": None,
        "avg_busbw": None,
        "avg_ok": None,
        "complete": False,
        "config": {},
        "version": None,
        "line": line,
        "columns": [],
        "unreadable": 0,
        "odd": [],
        "wrong_line": None,
    }


class OpenTable:
    """The current table, and those before it."""

    def __init__(self, source: Source, index: int = 0) -> None:
        self.source = source
        self._index = index
        self._copies = Copies(source, index)
        self.table: Optional[Dict[str, Any]] = None
        self.open_left: Optional[Tuple[int, bytes]] = None  # the left half of a torn row
        self._swapped = False  # whether in-place is on the left
        self.full = False  # whether no more tables are kept
        self._rows = 0
        self._known: Dict[bytes, Tuple[List[str], Dict[str, Any]]] = {}  # lines of rows that were read
        self._waited = 0  # lines since the left half
        self._form: Optional[Form] = None  # form of the open table, if it is another bench's
        self._missed = 0  # lines that looked like rows but were not
        self._said: Dict[str, float] = {}  # the text so far of a bench without a table about its only result
        self.version: Optional[str] = None
        self.collective: Optional[str] = None  # collective of the next table, from the command that starts it
        self._title: Optional[str] = None  # the collective in another bench's title, for all tables below it

    def typeless(self) -> bool:
        """Return whether the open table has no column for a type; mscclpp-test's have none."""
        return self.is_open() and bool((self.table or {}).get("left")) and "type" not in (self.table or {})["left"]

    def is_open(self) -> bool:
        """Return whether a table has begun and not ended."""
        return self.table is not None and not self.table["complete"] and not self.full

    def _abandon(self) -> None:
        """Settle a left half without its right half: without a header it is a row of one side, else unreadable."""
        left, self.open_left = self.open_left, None
        if left is None or self.full:
            return
        if (self.table is None or not self.table["columns"]) and self._one_side(*left):
            return
        if self.table is not None:
            self.table["unreadable"] += 1

    def _one_side(self, line: int, text: bytes) -> bool:
        """Append a row of one side, as in an excerpt or a parser's sample without the header."""
        columns = list(DEFAULT[:4])
        tokens = text.split()
        at, right = type_at(tokens), tokens[-4:]
        if at is None or at + 5 > len(tokens) or not all(is_numeric(item) for item in right):
            return False
        return (
            self._append(line, tokens[at - 2], tokens[at - 1], tokens[at], tokens[at + 1 : -4], right, columns, False)
            is not None
        )

    def _append(
        self,
        line: int,
        size: bytes,
        count: bytes,
        kind: bytes,
        extra: List[bytes],
        right: List[bytes],
        columns: List[str],
        in_place_only: bool,
    ) -> Optional[Dict[str, Any]]:
        table = self._current(line)
        self._abandon()
        self._rows += 1
        if len(table["rows"]) >= MAX_ROWS or self._rows > MAX_ALL_ROWS:
            table["unreadable"] += 1
            return None
        redop, root = labels_of(extra, table.get("left"))
        row = {
            "size_bytes": whole(size) or 0,
            "count": whole(count),
            "type": kind.decode("ascii", "replace") or None,
            "redop": redop,
            "root": root,
            "out_of_place": None,
            "in_place": None,
        }  # type: Dict[str, Any]
        sides = sides_of(columns)
        names = ("in_place", "out_of_place") if table.get("swapped") else ("out_of_place", "in_place")
        if in_place_only:
            row[names[1]] = side_of(right, sides[-1] if len(sides) == 1 else sides[0], table, row)
        else:
            for side, fields in zip(names, sides):
                row[side] = side_of(right, fields, table, row)
        if is_wrong(row):
            table["wrong_line"] = table["wrong_line"] or [
                line,
                printable(b" ".join([size, count, kind, *extra, *right])),
            ]
        table["rows"].append(row)
        self._copies.row()
        return row

    # -- which table ---------------------------------------------------------------------------------------------------
    def _right_columns(self) -> List[str]:
        columns = self.table["columns"] if self.table else []
        return list(columns) or list(DEFAULT)

    def _current(self, line: int) -> Dict[str, Any]:
        return self.table if self.table is not None else self._start(line)

    def _start(self, line: int) -> Dict[str, Any]:
        collective, version = self.collective, self.version
        if collective is None and self.table is not None and not (self.table["rows"] or self.table["complete"]):
            collective = self.table["collective"]
        config = (
            self.table["config"]
            if self.table is not None and not self.table["rows"] and not self.table["complete"]
            else {}
        )
        if self.table is not None and (self.table["rows"] or self.table["complete"]):
            self._copies.next_table()
        self._close()
        self.collective, self.version = None, version  # the next benchmark of the stream is another one
        table = new_table(line)
        table["collective"], table["version"], table["config"] = collective, version, config
        if len(self.source.tables) < MAX_TABLES:
            self.source.tables.append(table)
        else:
            self.full = True
            self.open_left = None
        self.table = table
        return table

    def _close(self) -> None:
        self._abandon()
        if self._form is not None and self.table is not None and self.table["rows"]:
            self.table["complete"] = True  # these benches print no line that ends a table
        self._form, self._said = None, {}
        if (
            self.table is not None
            and not self.table["rows"]
            and self.table["avg_busbw"] is None
            and not self.table["columns"]
            and not self.table["wrong_line"]
        ):
            if self.source.tables and self.source.tables[-1] is self.table:
                self.source.tables.pop()
        self.table = None

    def finish(self) -> None:
        """Close the last table at the end of the stream; keep one announced after a whole one that never came."""
        announced = self.table
        if announced is None and self.open_left is None:
            return
        self._close()
        tables = self.source.tables
        if announced is None or self.full or not tables or not tables[-1]["complete"]:
            return
        if tables[-1] is not announced and (announced["config"] or announced["collective"]):
            tables.append(announced)


def is_wrong(row: Dict[str, Any]) -> bool:
    """Return whether a row counts wrong values."""
    return any(row[side] and row[side]["wrong"] for side in ("out_of_place", "in_place"))
