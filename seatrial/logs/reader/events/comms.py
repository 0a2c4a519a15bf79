"""Lines of communicators: rank, size, id, and whether the set-up began or ended.

Forms: ``comm 0x.. rank 0 nranks 2 cudaDev 0 .. commId 0x.. - Init START`` (2.18.3+), ``- Init COMPLETE`` (2.4.2+),
``rank 2 nRanks 8 nNodes 4 localRanks 2 localRank 0 MNNVL 0`` (2.20.3+), ``Destroy`` and ``Abort``, and ``ncclCommSplit
comm 0x.. .. parent 0x.. splitCount 1 color 7 key 1- Init START``: no blank before the dash, and no id; parent, count
and color are the same on all its ranks.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Dict, Optional, Tuple

_RANK = re.compile(rb"\brank (\d{1,7}) n[rR]anks (\d{1,7})\b")
_COMM = re.compile(rb"\bcomm (0x[0-9a-fA-F]+)")
_COMM_ID = re.compile(rb"\bcommId (0x[0-9a-fA-F]+)")
_SPLIT = re.compile(rb"\bparent (0x[0-9a-fA-F]+) (?:splitCount (\d{1,9}) )?color (-?\d{1,12})\b")
_ENDING = re.compile(rb"(?<=[ \d])- (?:(Init|Destroy|Abort|Revoke) )?(START|COMPLETE)\b")
_NODES = re.compile(rb"n[nN]odes (\d{1,6}) localRanks (\d{1,5})(?: localRank \d+)?(?: MNNVL (\d))?")


# The forms of 2.12 to 2.30 as printed: the text before the pointer, and after the rank.
_OPENING = re.compile(rb"(?:\[Rank \d{1,7}\] )?(?:\w{1,40} )?comm")
_COMMON_FORM = re.compile(
    rb"n[rR]anks (\d{1,7}) (?:nNodes (\d{1,6}) localRanks (\d{1,5}) localRank \d{1,5} MNNVL (\d)"
    rb"|cudaDev \d{1,4} (?:[\w-]{1,24} \d{1,4} )?busId [0-9a-fA-F]{1,12} (?:commId (0x[0-9a-fA-F]{1,16}) )?- "
    rb"(Init|Destroy|Abort) (START|COMPLETE))"
)
_POINTER = b"0123456789abcdefABCDEF"

COMMUNICATORS = frozenset((b"nccl", b"comm", b"[Ran"))  # beginnings of these messages


class _Numbers(Dict[bytes, int]):
    """Numbers by their digits: all users share one object, since a large job has each rank in many places."""

    def __missing__(self, digits: bytes) -> int:
        number = int(digits)
        if len(self) < _MOST:
            self[digits] = number
        return number


_MOST = 65_536
RANKS = _Numbers()

Step = Tuple[int, bytes, bool, str, Optional[Tuple[int, int, int]], bytes, str]
"""The facts of a line with a rank about a communicator: size; Init, Destroy, Abort, Revoke, or empty if the line
reports no step; whether that is done; id; nodes, local ranks and MNNVL; the pointer of the split communicator; the
part of it, as count of splits and color."""
CommLine = Tuple[int, bytes, Step]
"""One line about a communicator: rank, pointer, and the part that most ranks share."""


def parse_common_form(text: bytes) -> Optional[CommLine]:
    """Read a line of one of the usual forms; None for any other. A tenth of a large log's lines are of these forms."""
    head, _, tail = text.partition(b" rank ")
    digits, _, rest = tail.partition(b" ")
    step = _step(rest)
    if step is None or not digits.isdigit() or len(digits) > 7:
        return None
    opening, _, pointer = head.rpartition(b" ")
    if not 3 <= len(pointer) <= 18 or pointer[:2] != b"0x" or pointer[2:].strip(_POINTER) or not _opens(opening):
        return None
    rank = RANKS[digits]
    return (rank, pointer, step) if rank < step[0] else None


@lru_cache(maxsize=1024)
def _opens(text: bytes) -> bool:
    return _OPENING.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _step(text: bytes) -> Optional[Step]:
    """Read the text after the rank in a line of a usual form."""
    match = _COMMON_FORM.fullmatch(text)
    if match is None:
        return None
    nranks, nodes, local, mnnvl, ident, what, step = match.groups()
    counts = None if nodes is None else (int(nodes), int(local), int(mnnvl))
    return int(nranks), what or b"", step == b"COMPLETE", _ident(ident), counts, b"", ""


def parse_communicator(text: bytes) -> Optional[CommLine]:
    """Read a communicator's line; None if it is not one."""
    comm_line = parse_common_form(text)
    rank = _RANK.search(text) if comm_line is None else None
    if rank is None or int(rank.group(1)) >= int(rank.group(2)):
        return comm_line
    ending = _ENDING.search(text)
    pointer, ident, nodes = _COMM.search(text), _COMM_ID.search(text), _NODES.search(text)
    split = None if ident else _SPLIT.search(text)
    step = (
        int(rank.group(2)),
        (ending.group(1) or b"Init") if ending else b"",
        ending is not None and ending.group(2) == b"COMPLETE",
        _ident(ident.group(1) if ident else None),
        (int(nodes.group(1)), int(nodes.group(2)), int(nodes.group(3) or 0)) if nodes else None,
        split.group(1) if split else b"",
        (b"%s.%s" % (split.group(2) or b"", split.group(3))).decode("ascii") if split else "",
    )
    return int(rank.group(1)), pointer.group(1) if pointer else b"", step


@lru_cache(maxsize=256)
def _ident(ident: Optional[bytes]) -> str:
    return "" if ident is None else sys.intern(ident.decode("ascii").lower())
