"""One row of a benchmark's table: tags removed, the data type found, the sides read from the right.

Forms: ``size count type [redop] [root]`` and per side ``time algbw busbw #wrong`` (``error`` before 2.13). Values may
be ``1.8e+07``, ``nan``, ``inf`` or ``N/A``; values that are not finite become None and are noted.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Optional, Pattern, Tuple

from ..lines.clean import ANSI_BYTES, printable

_NAMES = (
    rb"(?:float|half|double|bfloat16|u?int(?:8|32|64)?|u?char|float(?:16|32|64|8_e[45]m[23])"
    rb"|f(?:p)?8_?e[45]m[23]\w*|fp8_\w+|bf16|fp16|fp32|fp64)"
)
TYPE = re.compile(rb"[\s,;|]" + _NAMES + rb"(?:[\s,;|]|$)")
_FIGURES = rb"\s+(\d{1,15}(?:\.\d{1,9})?)" * 3 + rb"\s+0"
_USUAL = re.compile(
    rb"\s*(\d{1,18})\s+(\d{1,18})\s+(" + _NAMES + rb")\s+([a-z]+)\s+(-?\d{1,9})" + _FIGURES * 2 + rb"\s*"
)
USUAL_LEFT = ["size", "count", "type", "redop", "root"]
_SEPARATORS = (b" ", b"\t", b"\n", b"\r", b"\x0b", b"\x0c", b",", b";", b"|")
_BEGIN = b"float half double bf uint char uchar fp8_ fp8e fp16 fp32 fp64 f8_ f8e int8 int32 int64".split()
# One of these is wherever TYPE matches, in a line with its end: the text next to a name, and how that begins.
TYPE_WORDS = tuple(
    before + name for before in _SEPARATORS for name in (*_BEGIN, *(b"int" + behind for behind in _SEPARATORS))
)
_ANY_TAG = re.compile(rb"\[\d+,\d+\]<std(?:out|err|diag)>: ?")
_LEFT_TAG = re.compile(
    rb"^(?:\s{0,6}\d{1,6}: |\s{0,8}\d{1,9}\t(?!\s*\d+\s+[a-z])"
    rb"|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}|\[(?:default|rank)\d+\]:"
    rb"|\[pod/[^\]\s]{1,253}\] |\(\w[^()]{0,80}pid=\d+[^()]{0,80}\) "
    rb"|\[?\d{4}-\d\d-\d\d[T ][0-9:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? ?|\s{0,4}\| )+"
)
_PIECE_TAG = re.compile(rb"(?<=[\d./A])\[\d{1,6}\](?=\s)")  # MPICH's -prepend-rank, before every piece of a row
_SEPARATED = re.compile(rb"\s*[\"']?\d+[\"']?\s?([,;])\s?[\"']?\d[^\s,;]*\s?\1\s?[\"']?[a-z]")  # size, count, type
_ROOT = re.compile(rb"-?\d{1,11}\Z")
_ROUNDED = re.compile(rb"(?i)\d(?:\.\d{1,6})?e\+?\d{1,2}\Z")  # a spreadsheet's form of a large count
ENDS = frozenset((b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"A"))
SIDES = frozenset(("time", "cputime"))


_COUNTED = ("size(", "count(")  # size(B), count(elems)
_GROUPED = re.compile(rb"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?\Z")  # such as 1,048,576
_COMMA = re.compile(rb"-?\d+,\d+(?:e[+-]?\d+)?\Z")  # 69,55: the decimal comma of a locale or a spreadsheet
_UNIT = re.compile(rb"(\d{1,12}(?:\.\d{1,6})?)([KMGT])(?:i?B)?\Z", re.IGNORECASE)
_UNITS = {b"K": 1 << 10, b"M": 1 << 20, b"G": 1 << 30, b"T": 1 << 40}


def number(text: bytes, average: bool = False) -> Optional[float]:
    """Read a printed number; None for N/A and any other text. ``nan`` and ``inf`` are returned as such.

    A row has no values with three decimals, so ``1,234`` in it is above a thousand; an average has six digits, so its
    comma is a decimal one.
    """
    if b"," in text:
        if _COMMA.match(text) and (average or not _GROUPED.match(text)):
            text = text.replace(b",", b".")
        elif _GROUPED.match(text):
            text = text.replace(b",", b"")
    try:
        return None if b"_" in text else float(text.rstrip(b"*%"))  # rccl-tests marks values above its threshold
    except ValueError:
        return None


def whole(token: bytes) -> Optional[int]:
    """Read a size or a count: digits, grouped digits, a spreadsheet's rounding (``2.7E+08``), or ``8K``, ``1GiB``."""
    if token.isdigit():
        return int(token) if len(token) <= 20 else None
    if _GROUPED.match(token):
        return int(float(token.replace(b",", b"")))
    unit = _UNIT.match(token)
    if unit:
        return int(float(unit.group(1)) * _UNITS[unit.group(2).upper()])
    return int(float(token)) if _ROUNDED.match(token) else None


def column_names(raw: bytes) -> List[str]:
    """Return the words of a header line as nccl-tests spells them: ``AlgBw``, ``oop_busbw`` and ``time(us)`` too."""
    fields = re.split(rb"[\s,;|]+", ANSI_BYTES.sub(b"", raw).strip())
    names = []
    for word in fields:
        text = word.decode("ascii", "replace").strip("\"'`*")
        if not text or (text.startswith("(") and text.endswith(")")):  # (us), (GB/s)
            continue
        low = text.lower()
        low = "algbw" if low == "algobw" else low.partition("(")[0] if low.startswith(_COUNTED) else low
        known = next((name for name in ("algbw", "busbw", "cputime", "time", "wrong", "redop") if name in low), None)
        if known and low not in ("timestamp", known):
            text = {"wrong": "#wrong"}.get(known, known)
        names.append(low if low in ("size", "count", "type", "redop", "root", known) and known != "wrong" else text)
    return names


def strip_tags(raw: bytes) -> bytes:
    """Remove launcher tags from a row, wherever they are."""
    if b"\x1b" in raw:
        raw = ANSI_BYTES.sub(b" ", raw)
    if b'"' in raw:  # a list of lines in JSON or YAML, as Ansible prints one
        raw = raw.replace(b'"', b" ").rstrip(b", \t")
    if b"[" in raw[24:]:
        raw = _PIECE_TAG.sub(b" ", raw)
    raw = _LEFT_TAG.sub(b" ", _ANY_TAG.sub(b" ", raw), count=1)
    for mark in (b";", b","):  # in a row of a CSV file the mark separates fields, and is no decimal comma
        if raw.count(mark) >= 6 and _SEPARATED.match(raw):
            return raw.replace(mark, b" ")
    return raw.replace(b"|", b" ").replace(b"`", b" ") if b"|" in raw or b"`" in raw else raw  # Markdown of a report


def type_at(tokens: List[bytes]) -> Optional[int]:
    """Find the data type: the first known name with a size and a count before it."""
    for index in range(2, min(len(tokens), 14)):
        if whole(tokens[index - 1]) is None or whole(tokens[index - 2]) is None:
            continue
        if TYPE.match(b" " + tokens[index]):
            return index
    return None


def is_label(token: bytes, remaining: int, columns: int) -> bool:
    """Return whether the token right of the type is a redop or a root, not a measurement."""
    if token.isalpha() and token not in (b"nan", b"inf", b"NaN"):
        return True
    if remaining <= 1 and token.lstrip(b"-").isdigit():
        return True
    return (remaining > columns and token.lstrip(b"-").isdigit()) or token == b"-1"


def is_numeric(token: bytes) -> bool:
    """Return whether the token is in the place of a measurement."""
    return token == b"N/A" or number(token) is not None


def value_count(columns: List[str]) -> int:
    """Count the columns with numbers; a timestamp (-S) has a date and a time."""
    return len([word for word in columns if word != "timestamp"])


def sides_of(columns: List[str]) -> List[Dict[str, int]]:
    """Return the place of each column, per side."""
    sides: List[Dict[str, int]] = []
    for index, word in enumerate(columns):
        if word in SIDES or (word == "algbw" and not sides):
            sides.append({})
        if sides:
            sides[-1].setdefault("time" if word in SIDES else word, index)
    return sides


def side_width(columns: List[str]) -> int:
    """Count the columns of one side."""
    starts = [index for index, word in enumerate(columns) if word in SIDES]
    return starts[1] - starts[0] if len(starts) > 1 else len(columns)


def longest_gap(text: bytes) -> int:
    """Return the longest run of blanks inside a row: an empty out-of-place side is 32 of them."""
    longest = 0
    for match in re.finditer(rb"\s+", text.strip()):
        longest = max(longest, match.end() - match.start())
    return longest


def labels_of(extra: List[bytes], left: Optional[List[str]]) -> Tuple[Optional[str], Optional[int]]:
    """Return redop and root from the text between the type and the measurements."""
    redop = root = None
    for token in extra:
        if _ROOT.match(token):
            root = int(token)
        else:
            redop = token.decode("ascii", "replace")
    if left is not None and "root" not in left:
        root = None
    return redop, root


# Other text in these columns is of another row, in a torn line: nccl-tests prints the count by %g, where no whole
# number has a point without an exponent, and the error by %.0le (common.cu).
_COUNT, _ERROR = re.compile(rb"^[^.]+$|e", re.IGNORECASE), re.compile(rb"e|nan|inf", re.IGNORECASE)


def side_of(
    tokens: List[bytes], fields: Dict[str, int], table: Dict[str, Any], row: Dict[str, Any]
) -> Optional[Dict[str, Any]]:
    """Return one side of a row; None if it is empty."""

    def measured(word: str, least: float = -math.inf, form: Optional[Pattern[bytes]] = None) -> Optional[float]:
        if word not in fields or fields[word] >= len(tokens):
            return None
        value = number(tokens[fields[word]])
        printed = value is None or value < 1 or form is None or form.search(tokens[fields[word]]) is not None
        if printed and (value is None or (least <= value < math.inf and value > -math.inf)):
            return value
        shown = tokens[fields[word]].decode("ascii", "replace")
        note_odd(table, "%s at %d bytes is %s" % (word, row["size_bytes"], shown))
        return None

    side: Dict[str, Any] = {}
    for word, key in (("time", "time_us"), ("algbw", "algbw_gbps"), ("busbw", "busbw_gbps")):
        side[key] = measured(word)
    # Before 2.13 the check is the largest error, not a count: the accepted one depends on the ranks (numbers.py).
    count, error = measured("#wrong", 0, _COUNT), measured("error", 0, _ERROR)
    side["wrong"] = math.ceil(count) if count is not None else 0 if error == 0 else None
    if error:
        side["error"] = error
    return None if all(value is None for value in side.values()) else side


def usual_row(raw: bytes) -> Optional[Dict[str, Any]]:
    """Read a row in nccl-tests' usual form: whole, with plain numbers and nothing wrong; None for any other."""
    match = _USUAL.fullmatch(raw)
    if match is None:
        return None
    size, count, kind, redop, root, time, algbw, busbw, again, again_algbw, again_busbw = match.groups()
    return {
        "size_bytes": int(size),
        "count": int(count),
        "type": kind.decode(),
        "redop": redop.decode(),
        "root": int(root),
        "out_of_place": {"time_us": float(time), "algbw_gbps": float(algbw), "busbw_gbps": float(busbw), "wrong": 0},
        "in_place": {
            "time_us": float(again),
            "algbw_gbps": float(again_algbw),
            "busbw_gbps": float(again_busbw),
            "wrong": 0,
        },
    }


def note_odd(table: Dict[str, Any], text: str) -> None:
    """Keep a number that cannot be a measurement, as text."""
    if len(table["odd"]) < 8:
        table["odd"].append(printable(text, 120))
