"""What did the benchmark measure? Reads the tables of nccl-tests, rccl-tests and of benches that print the same form.

Columns are found by the header line, counted from the right: the left side can have empty fields (catalogue 3.2). Tags
stand inside rows, and a row can be torn: rank 0 prints its left half before the measurement and the rest after it, with
other ranks' lines in between. Nothing unreadable ever becomes a zero.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from .clean import ANSI_BYTES, name, printable
from .rows import (
    ENDS,
    SIDES,
    TYPE,
    is_label,
    is_numeric,
    labels_of,
    longest_gap,
    note_odd,
    number,
    side_of,
    side_width,
    sides_of,
    strip_tags,
    type_at,
    value_count,
)

if TYPE_CHECKING:
    from .state import Source

MAX_ROWS = 4096
MAX_ALL_ROWS = 20_000  # of one stream
MAX_TABLES = 512
MAX_HEADER = 1024  # of a line with a '#'; the widest header of nccl-tests has some 250 characters
MAX_RANK_LINES = 65_536

_RANK = re.compile(
    rb"#\s+Rank\s+(\d{1,7})\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d{1,10})\s+on\s+(\S+)\s+device\s+(\d{1,5})\s+\[([0-9a-fA-Fx"
    rb":.]+)\]\s*(.*)"
)
_LIBRARY = re.compile(rb"#\s+nccl-tests version\s+(\S+)(?:.{0,200}nccl-library=(\d{4,6}))?")
_TEST = re.compile(rb"#\s+Collective test starting:\s+(\S+)")
_CONFIG = re.compile(
    rb"(minBytes|maxBytes|step|warmup iters|iters|agg iters|validation|graph):?\s+([0-9.]+)(?:\((\w+)\))?"
)
_BOUNDS = re.compile(rb"Out of bounds values\s*:\s*([^\s\",]+)\s*(OK|FAILED)?")
_AVERAGE = re.compile(rb"Avg bus bandwidth\s*:\s*([^\s\",]+)\s*(OK|FAILED)?")
_COLLECTIVE = re.compile(
    rb"\b(all_reduce|all_gather|reduce_scatter|broadcast|alltoallv?|all_to_all|sendrecv|hypercube|gather|scatter"
    rb"|reduce)(?:_bias)?(?:_perf)?(?:_mpi)?\b"
)
_BENCH_NCCL = re.compile(rb"#.{0,200}\bbench\b.{0,200}\bnccl (\d+\.\d+(?:\.\d+)?\S*)")
PERF = re.compile(
    rb"\b(all_reduce|all_gather|reduce_scatter|broadcast|alltoallv?|sendrecv|hypercube|gather|scatter"
    rb"|reduce)(?:_bias)?_perf(?:_mpi)?\b"
)
_FIRST_NAMES = {"bytes": "size", "N": "count", "op": "redop"}  # in the first releases, with "res" for "error"
_DEFAULT = ("time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong")


def library_version(code: int) -> str:
    """Spell NCCL's version code: 22807 is 2.28.7, 2708 is 2.7.8 (nccl.h, NCCL_VERSION)."""
    if code < 10000:
        return "%d.%d.%d" % (code // 1000, code % 1000 // 100, code % 100)
    return "%d.%d.%d" % (code // 10000, code % 10000 // 100, code % 100)


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


class TableReader:
    """Collects the tables of one stream; lines arrive in order, NCCL's own lines already taken out."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.table: Optional[Dict[str, Any]] = None
        self.open_left: Optional[Tuple[int, bytes]] = None  # the left half of a torn row
        self.full = False  # no more tables are kept
        self._rows = 0
        self._known: Dict[bytes, Tuple[List[str], Dict[str, Any]]] = {}  # lines of rows that were read
        self._waited = 0  # lines since the left half
        self.version: Optional[str] = None
        self.collective: Optional[str] = None

    # -- lines that begin with '#' -------------------------------------------------------------------------------------
    def header(self, raw: bytes, line: int) -> bool:  # noqa: PLR0911 -- one return per form
        """Read a line with a '#'; say whether it was one of the benchmark's."""
        raw = ANSI_BYTES.sub(b"", raw[:MAX_HEADER]) if b"\x1b" in raw else raw[:MAX_HEADER]
        if b"algbw" in raw and b"busbw" in raw:
            return self._columns(raw, line)
        rank = _RANK.search(raw)
        if rank:
            return self._rank(rank, line)
        library = _LIBRARY.search(raw)
        if library:
            self._close()
            self.version = library_version(int(library.group(2))) if library.group(2) else None
            return True
        test = _TEST.search(raw)
        if test:
            self._close()
            self.collective = _collective(test.group(1))
            return True
        if (b"nThread" in raw and b"minBytes" in raw) or (b"Bytes" in raw and b"iters:" in raw):
            self._start(line)["config"] = _config(raw)
            return True
        bench = _BENCH_NCCL.search(raw)
        if bench:
            self._close()
            self.version = name(bench.group(1))
            self.collective = _collective(raw)
            return True
        return self.footer(raw, line)

    def footer(self, raw: bytes, line: int) -> bool:
        """Read the lines behind a table."""
        bounds = _BOUNDS.search(raw)
        if bounds:
            table = self._current(line)
            count = number(bounds.group(1))
            table["out_of_bounds"] = None if count is None or not math.isfinite(count) else int(count)
            table["out_of_bounds_ok"] = None if bounds.group(2) is None else bounds.group(2) == b"OK"
            if count or bounds.group(2) == b"FAILED":
                table["wrong_line"] = table["wrong_line"] or [line, printable(raw)]
            return True
        average = _AVERAGE.search(raw)
        if average:
            table = self._current(line)
            value = number(average.group(1))
            table["avg_busbw"] = value if value is not None and math.isfinite(value) else None
            if value is not None and not math.isfinite(value):
                note_odd(table, "the average bus bandwidth is %s" % average.group(1).decode("ascii", "replace"))
            table["avg_ok"] = None if average.group(2) is None else average.group(2) == b"OK"
            table["complete"] = True
            table["avg_line"] = line
            return True
        if b"Collective test concluded" in raw:
            if self.table is not None and self.table["avg_busbw"] is not None:
                self.table["complete"] = True
            self._close()
            return True
        return False

    def command(self, raw: bytes) -> None:
        """Note which test a command line starts, for tables that do not say."""
        found = PERF.search(raw)
        if found and (self.table is None or not self.table["rows"]):
            self.collective = found.group(1).decode("ascii")
            if self.table is not None:
                self.table["collective"] = self.collective

    def _columns(self, raw: bytes, line: int) -> bool:
        table = self.table
        if table is None or table["rows"] or table["complete"]:
            table = self._start(line)
        words = ANSI_BYTES.sub(b"", raw).split()
        texts = [word.decode("ascii", "replace") for word in words]
        first = next((index for index, word in enumerate(texts) if word in SIDES), None)
        if first is None:
            return False
        table["columns"] = ["error" if word == "res" else word for word in texts[first:]]
        left = [_FIRST_NAMES.get(word, word) for word in texts[:first]]
        table["left"] = [word for word in left if word in ("size", "count", "type", "redop", "root")]
        table["line"] = line
        return True

    def _rank(self, match: re.Match[bytes], line: int) -> bool:
        if self.table is not None and (self.table["rows"] or self.table["complete"]):
            self._close()
        if len(self.source.ranks) < MAX_RANK_LINES:
            rank, _, pid, host, device, bus, gpu = match.groups()
            self.source.ranks.setdefault(
                int(rank), [name(host), int(pid), int(device), name(bus), printable(gpu, 60), line]
            )
        return True

    # -- rows ----------------------------------------------------------------------------------------------------------
    def row(self, raw: bytes, line: int) -> bool:  # noqa: PLR0911 -- one return per form
        """Read a line that holds a data type's name; say whether it was a row, or the left half of one."""
        if self.full or (raw in self._known and self._repeat(raw)):
            return True
        text = strip_tags(raw)
        tokens = text.split()
        at = type_at(tokens)
        if at is None:
            return False
        columns = self._right_columns()
        right = tokens[at + 1 :]
        left_words = self.table.get("left") if self.table else None
        spare = 2 if left_words is None else max(0, len(left_words) - 3)
        size, count, kind = tokens[at - 2], tokens[at - 1], tokens[at]
        extra: List[bytes] = []
        while right and len(right) > 0 and len(extra) < spare and is_label(right[0], len(right), len(columns)):
            extra.append(right.pop(0))
        if not right:
            self._abandon()
            self.open_left, self._waited = (line, text), 0
            return True
        if self.table is None and not (len(right) in (4, 8) and all(is_numeric(item) for item in right)):
            return False
        if len(right) > len(columns):
            right = right[: len(columns)] if not all(is_numeric(item) for item in right) else right[-len(columns) :]
        if not all(is_numeric(item) for item in right[: value_count(columns)]):
            self._current(line)["unreadable"] += 1
            return True
        in_place_only = len(columns) >= 8 and len(right) == side_width(columns) and longest_gap(text) >= 30
        if len(right) not in (len(columns), value_count(columns)) and not in_place_only:
            if len(right) < len(columns):
                self._abandon()
                self.open_left, self._waited = (line, text), 0  # the rest may follow
                return True
        odd = len(self._current(line)["odd"])
        row = self._append(line, size, count, kind, extra, right, columns, in_place_only)
        sound = row is not None and len(self._current(line)["odd"]) == odd and not _is_wrong(row)
        if row is not None and sound and len(self._known) < MAX_ROWS:
            self._known[raw] = (columns, row)
        return True

    def _repeat(self, raw: bytes) -> bool:
        """Append a row whose line was read before under the same header."""
        columns, row = self._known[raw]
        if self.table is None or self.table["columns"] != columns or len(self.table["rows"]) >= MAX_ROWS:
            return False
        if self._rows >= MAX_ALL_ROWS:
            return False
        self._abandon()
        self._rows += 1
        self.table["rows"].append(row)
        return True

    def is_open(self) -> bool:
        """Say whether a table has begun and not ended."""
        return self.table is not None and not self.table["complete"] and not self.full

    def squeezed(self, raw: bytes) -> bool:
        """Say whether the line may be a row of the open table whose blanks a copy has squeezed."""
        return self.is_open() and raw.rstrip()[-1:] in ENDS

    def fragment(self, raw: bytes) -> bool:
        """Read numbers that may be the rest of a torn row.

        As many as are missing, at the end of a line without other numbers.
        """
        if self.open_left is None:
            return False
        self._waited += 1
        if self._waited > 2000:  # the other half never came
            self._abandon()
            return False
        if raw.rstrip()[-1:] not in ENDS:
            return False
        tokens = strip_tags(raw).split()
        start, left = self.open_left
        columns = self._right_columns()
        at = type_at(strip_tags(left).split()) or 0
        have = (
            len(strip_tags(left).split())
            - at
            - 1
            - len([word for word in (self.table or {}).get("left") or () if word in ("redop", "root")])
        )
        need = value_count(columns) - max(0, have)
        rest = tokens[-need:] if 0 < need <= len(tokens) else tokens
        front = tokens[: -len(rest)] if len(tokens) > len(rest) else []
        if (
            not rest
            or not all(is_numeric(item) for item in rest)
            or (front and is_numeric(front[-1]))
            or len(front) > 8
        ):
            return False
        self.open_left = None
        if self.row(left.rstrip() + b" " + b" ".join(rest), start):
            return True
        self.open_left = (start, left)
        return False

    def torn_left(self, text: bytes, line: int) -> None:
        """Take the left half of a row that another process's line was glued to."""
        if TYPE.search(text):
            self.row(text, line)

    def _abandon(self) -> None:
        """Count a left half whose right half never came."""
        if self.open_left is not None and self.table is not None:
            self.table["unreadable"] += 1
        self.open_left = None

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
            "size_bytes": int(size),
            "count": int(count) if count.isdigit() else int(float(count)),
            "type": kind.decode("ascii", "replace"),
            "redop": redop,
            "root": root,
            "out_of_place": None,
            "in_place": None,
        }  # type: Dict[str, Any]
        sides = sides_of(columns)
        if in_place_only:
            row["in_place"] = side_of(right, sides[-1] if len(sides) == 1 else sides[0], table, row)
        else:
            for side, fields in zip(("out_of_place", "in_place"), sides):  # noqa: B905 -- one side, or two
                row[side] = side_of(right, fields, table, row)
        if _is_wrong(row):
            table["wrong_line"] = table["wrong_line"] or [
                line,
                printable(b" ".join([size, count, kind, *extra, *right])),
            ]
        table["rows"].append(row)
        return row

    # -- which table ---------------------------------------------------------------------------------------------------
    def _right_columns(self) -> List[str]:
        columns = self.table["columns"] if self.table else []
        return list(columns) or list(_DEFAULT)

    def _current(self, line: int) -> Dict[str, Any]:
        return self.table if self.table is not None else self._start(line)

    def _start(self, line: int) -> Dict[str, Any]:
        collective, version = self.collective, self.version
        config = (
            self.table["config"]
            if self.table is not None and not self.table["rows"] and not self.table["complete"]
            else {}
        )
        self._close()
        self.collective, self.version = collective, version
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
        if (
            self.table is not None
            and not self.table["rows"]
            and self.table["avg_busbw"] is None
            and not self.table["columns"]
        ):
            if self.source.tables and self.source.tables[-1] is self.table:
                self.source.tables.pop()
        self.table = None
        self.collective = None

    def finish(self) -> None:
        """Close the last table at the end of the stream."""
        self._close()


def _is_wrong(row: Dict[str, Any]) -> bool:
    return any(row[side] and row[side]["wrong"] for side in ("out_of_place", "in_place"))


def _collective(text: bytes) -> Optional[str]:
    found = _COLLECTIVE.search(text.replace(b"_perf", b" ").replace(b"_mpi", b" "))
    return found.group(1).decode("ascii") if found else None


def _config(raw: bytes) -> Dict[str, Any]:
    config: Dict[str, Any] = {}
    for match in _CONFIG.finditer(raw):
        value = number(match.group(2))
        key = match.group(1).decode("ascii").replace(" ", "_")
        if value is not None and math.isfinite(value):
            config[key] = int(value)
        if match.group(3):
            config["step_kind"] = match.group(3).decode("ascii", "replace")
    return config
