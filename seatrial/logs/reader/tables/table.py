"""The tables of nccl-tests, rccl-tests and of benches that print the same form.

Columns are found by the header line, counted from the right: the left side can have empty fields. Tags occur inside
rows, and a row can be torn: rank 0 prints its left half before the measurement and the rest after it, with other ranks'
lines in between. An unreadable value never becomes a zero.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Optional

from ..lines.clean import ANSI_BYTES, name, printable
from .forms import Form, bench_title, form_of, row_of, row_said, value_said
from .headings import (
    AVERAGE,
    BENCH_NCCL,
    BOUNDS,
    COLUMNS,
    CONCLUDED,
    FIRST_NAMES,
    HEADLESS,
    LIBRARY,
    PERF,
    RANK,
    TEST,
    collective_of,
    config_of,
    library_version,
    may_head,
)
from .opened import DEFAULT, MAX_ALL_ROWS, MAX_ROWS, OpenTable, is_wrong
from .rows import (
    ENDS,
    SIDES,
    TYPE,
    USUAL_LEFT,
    column_names,
    is_label,
    is_numeric,
    longest_gap,
    note_odd,
    number,
    side_width,
    strip_tags,
    type_at,
    usual_row,
    value_count,
    whole,
)

MAX_HEADER = 1024  # bytes of a line with a '#'; the widest header of nccl-tests has some 250 characters
MAX_RANK_LINES = 65_536

_FIGURE = re.compile(
    rb"-?(?:nan|inf|\d+(?:[.,]\d*)?(?:[eE][+-]?\d+)?)(?![\d.]|[A-FH-Za-z])"
)  # text that a web page appended
_SIDE = 4  # numbers; this many more than the header's columns are not a label before them
_MISSES = 200  # consecutive lines after which another bench's table is over


class TableReader(OpenTable):
    """Collects the tables of one stream; lines arrive in order, without NCCL's own lines."""

    # -- lines that begin with '#' -------------------------------------------------------------------------------------
    def header(self, raw: bytes, line: int) -> bool:  # noqa: PLR0911 -- one return per form
        """Read a line with a '#'; return whether it was one of the benchmark's."""
        raw = ANSI_BYTES.sub(b"", raw[:MAX_HEADER]) if b"\x1b" in raw else raw[:MAX_HEADER]
        if self._bench(raw, line):
            return True
        if COLUMNS.search(raw):
            return self._columns(raw, line)
        if b"in-place" in raw and b"out-of-place" in raw:  # above the columns; mscclpp-test has its sides swapped
            self._swapped = raw.find(b"in-place") < raw.find(b"out-of-place")
            return True
        if b"#" not in raw and not HEADLESS.search(raw):
            return False
        rank = RANK.search(raw)
        if rank:
            return self._rank(rank, line)
        library = LIBRARY.search(raw)
        if library:
            self._close()
            self.version = library_version(int(library.group(2))) if library.group(2) else None
            return True
        test = TEST.search(raw)
        if test:
            self._start(line)["collective"] = collective_of(test.group(1))
            return True
        if (b"nThread" in raw and b"minBytes" in raw) or (b"Bytes" in raw and b"iters:" in raw):
            self._start(line)["config"] = config_of(raw)
            return True
        bench = BENCH_NCCL.search(raw)
        if bench:
            self._close()
            self.version = name(bench.group(1))
            self.collective = collective_of(raw)
            return True
        return self.footer(raw, line)

    def _bench(self, raw: bytes, line: int) -> bool:
        """Read another bench's lines around its numbers: its title, its header, or its only result."""
        said = bench_title(raw)
        if said is not None:
            self._start(line)["collective"] = self._title = said.collective
            self._said = {} if said.payload is None else {"size": said.payload}
            if said.ranks:
                self.source.note("world %d" % said.ranks, self._index, line, raw)
            return True
        value = value_said(raw) if self._said else None
        if value is not None:
            self._said[value[0]] = value[1]
            if "busbw" in self._said and self.table is not None:
                said_row = row_said(self._said["size"], self._said.get("algbw"), self._said["busbw"])
                self.table["rows"].append(said_row)
                self.table["complete"], self._said = True, {}
            return True
        form = form_of(raw)
        if form is None:
            return False
        table = self.table if self.table is not None and not self.table["rows"] else self._start(line)
        table["collective"] = table["collective"] or self._title
        table["columns"], table["left"], table["line"] = ["time", "algbw", "busbw"], ["size"], line
        self._form, self._missed = form, 0
        return True

    def footer(self, raw: bytes, line: int) -> bool:
        """Read the lines after a table."""
        bounds = BOUNDS.search(raw)
        if bounds:
            table = self._current(line)
            count = number(bounds.group(1).rstrip(b",;"))
            if table["wrong_line"] and table["out_of_bounds"] is not None and not count:
                return True  # a later process without errors does not cancel an earlier one's
            table["out_of_bounds"] = None if count is None or not math.isfinite(count) else math.ceil(count)
            if table["out_of_bounds"] is None:
                note_odd(table, "the values out of bounds are %s" % bounds.group(1).decode("ascii", "replace"))
            table["out_of_bounds_ok"] = None if bounds.group(2) is None else bounds.group(2) == b"OK"
            if count or bounds.group(2) == b"FAILED":
                table["wrong_line"] = table["wrong_line"] or [line, printable(raw)]
            return True
        average = AVERAGE.search(raw)
        if average:
            table = self._current(line)
            value = _average_in(average.group(1))
            self._copies.average(again=table["avg_busbw"] is not None)
            if table["avg_busbw"] is not None:  # another process printed the same table: the first one is kept
                return True
            table["avg_busbw"] = value if value is not None and math.isfinite(value) else None
            if (value is None and average.group(1) != b"N/A") or not math.isfinite(value or 0):
                note_odd(table, "the average bus bandwidth is %s" % average.group(1).decode("ascii", "replace"))
            table["avg_ok"] = None if average.group(2) is None else average.group(2) == b"OK"
            table["complete"] = True
            table["avg_line"] = line
            return True
        concluded = CONCLUDED.search(raw)
        if concluded:
            if self.table is not None and concluded.group(1):  # the program's own name, also with a truncated head
                self.table["collective"] = collective_of(concluded.group(1)) or self.table["collective"]
            if self.table is not None and self.table["avg_busbw"] is not None:
                self.table["complete"] = True
            self._close()
            return True
        return False

    def command(self, raw: bytes) -> None:
        """Record which test a command line starts, for tables that do not name it."""
        names = set(PERF.findall(raw))
        if len(names) != 1:  # a command line that names several tests
            return
        named = names.pop().decode("ascii")
        if self.table is None or self.table["rows"] or self.table["complete"]:
            self.collective = named
        else:
            self.table["collective"] = named

    def _columns(self, raw: bytes, line: int) -> bool:
        table = self.table
        self._copies.header(again=table is not None and bool(table["columns"]) and not table["rows"])
        if table is None or table["rows"] or table["complete"]:
            table = self._start(line)
        texts = column_names(raw)
        first = next((index for index, word in enumerate(texts) if word in SIDES or word == "algbw"), None)
        if first is None:
            return False
        table["swapped"], self._swapped = self._swapped, False
        table["columns"] = ["error" if word == "res" else word for word in texts[first:]]
        left = [FIRST_NAMES.get(word, word) for word in texts[:first]]
        table["left"] = [word for word in left if word in ("size", "count", "type", "redop", "root")]
        table["line"] = line
        return True

    def _rank(self, match: re.Match[bytes], line: int) -> bool:
        if self.table is not None and (self.table["rows"] or self.table["complete"]):
            self._close()
        if len(self.source.ranks) < MAX_RANK_LINES:
            rank, _, pid, host, device, bus, gpu = match.groups()
            self._copies.rank(int(rank), host, pid, (line, match.string))
            first = self.source.ranks.setdefault(
                int(rank), [name(host), int(pid), int(device), name(bus), printable(gpu, 60), line]
            )
            if first[0] != name(host):
                self._copies.other_host((line, match.string))
        return True

    # -- rows ----------------------------------------------------------------------------------------------------------
    def row(self, raw: bytes, line: int) -> bool:  # noqa: PLR0911 -- one return per form
        """Read a line with a data type's name; return whether it was a row, or the left half of one."""
        if self.full or self._usual(raw) or (raw in self._known and self._repeat(raw)):
            return True
        text = strip_tags(raw)
        tokens = text.split()
        at = type_at(tokens)
        if at is None:
            return self.typeless() and self._typeless_row(tokens, text, line, raw)
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
        if len(right) == 2 * len(columns) and all(map(is_numeric, right)):  # the header may lack its second half
            columns = columns * 2
        if len(right) >= len(columns) + _SIDE and all(map(is_numeric, right)):
            self._current(line)["unreadable"] += 1
            return True
        if len(right) > len(columns):
            right = right[: len(columns)] if not all(is_numeric(item) for item in right) else right[-len(columns) :]
        if not all(is_numeric(item) for item in right[: value_count(columns)]):
            self._current(line)["unreadable"] += 1
            return True
        in_place_only = len(columns) >= 8 and len(right) == side_width(columns) and longest_gap(text) >= 30
        if len(right) not in (len(columns), value_count(columns)) and not in_place_only:
            if len(right) < len(columns):
                self._abandon()
                self.open_left, self._waited = (line, text), 0  # the right half may follow
                return True
        odd = len(self._current(line)["odd"])
        row = self._append(line, size, count, kind, extra, right, columns, in_place_only)
        sound = row is not None and len(self._current(line)["odd"]) == odd and not is_wrong(row)
        if row is not None and sound and len(self._known) < MAX_ROWS:
            self._known[raw] = (columns, row)
        return True

    def _usual(self, raw: bytes) -> bool:
        """Append a row with the usual form and header; return whether it was one."""
        table = self.table
        if table is None or table["columns"] != DEFAULT or table.get("left") != USUAL_LEFT or table["swapped"]:
            return False
        if self.open_left is not None or len(table["rows"]) >= MAX_ROWS or self._rows >= MAX_ALL_ROWS:
            return False
        row = usual_row(raw)
        if row is None:
            return False
        self._rows += 1
        table["rows"].append(row)
        self._copies.row()
        return True

    def _form_row(self, form: Form, raw: bytes, table: Dict[str, Any]) -> bool:
        """Read a row of another bench; its table ends after many consecutive lines that are not rows."""
        row = row_of(form, raw)
        if row is None:
            self._missed += 1
            if self._missed > _MISSES:
                self._close()
            return False
        self._missed = 0
        self._rows += 1
        if len(table["rows"]) < MAX_ROWS and self._rows <= MAX_ALL_ROWS:
            for side in (row["out_of_place"], row["in_place"]):
                for key in [
                    key for key, value in (side or {}).items() if value is not None and not math.isfinite(value)
                ]:
                    note_odd(table, "%s at %d bytes is %s" % (key.partition("_")[0], row["size_bytes"], side[key]))
                    side[key] = None
            table["rows"].append(row)
            return True
        table["unreadable"] += 1
        return True

    def _typeless_row(self, tokens: List[bytes], text: bytes, line: int, raw: bytes) -> bool:
        """Read a row by its header alone: as many numbers as the header has columns, or those of the right side."""
        table, columns = self._current(line), self._right_columns()
        if self._form is not None:
            return self._form_row(self._form, raw, table)
        left = len(table["left"])
        size, right = whole(tokens[0]) if tokens else None, tokens[left:]
        right_only = len(right) == side_width(columns) < len(columns) and longest_gap(text) >= 30
        right = right[: len(columns)]
        if size is None or not all(is_numeric(item) for item in tokens[: left + len(columns)]):
            return False
        if len(right) != len(columns) and not right_only:
            return False
        count = tokens[table["left"].index("count")] if "count" in table["left"] else b""
        self._append(line, tokens[0], count, b"", [], right, columns, right_only)
        return True

    def _repeat(self, raw: bytes) -> bool:
        """Append a row with a line that was read before under the same header."""
        columns, row = self._known[raw]
        if self.table is None or self.table["columns"] != columns or len(self.table["rows"]) >= MAX_ROWS:
            return False
        if self._rows >= MAX_ALL_ROWS:
            return False
        self._abandon()
        self._rows += 1
        self.table["rows"].append(row)
        return True

    def squeezed(self, raw: bytes) -> bool:
        """Return whether the line may be a row of the open table with blanks that a copy has squeezed."""
        if self._form is not None and self._form.piped and b"|" in raw:
            return self.is_open()
        return self.is_open() and raw.rstrip(b' \t\r|,;"`')[-1:] in ENDS

    def piped(self) -> bool:
        """Return whether the open table's rows may end in a bar: then any line may be one."""
        return self._form is not None and self.is_open()

    def fragment(self, raw: bytes) -> bool:
        """Read numbers that may be the rest of a torn row.

        They are as many as are missing, at the end of a line without other numbers.
        """
        if self.open_left is None:
            return False
        self._waited += 1
        if self._waited > 2000:  # the other half never came
            self._abandon()
            return False
        if raw.rstrip()[-1:] not in ENDS or may_head(raw):  # the average below the table is not a row's last number
            return False
        tokens = strip_tags(raw).split()
        start, left = self.open_left
        columns = self._right_columns()
        fields = strip_tags(left).split()
        have = len(fields) - (type_at(fields) or 0) - 1
        if self.table is not None and self.table["columns"]:
            have -= len([word for word in self.table.get("left") or () if word in ("redop", "root")])
        else:  # four values a side, after an operation, a root, both or none
            have -= have % 4
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
        """Take the left half of a row with another process's line appended to it."""
        if TYPE.search(text):
            self.row(text, line)


def _average_in(text: bytes) -> Optional[float]:
    """Return the number at the start of a text, without a unit or text that a web page appended."""
    figure = _FIGURE.match(text)
    return number(figure.group(), average=True) if figure else None
