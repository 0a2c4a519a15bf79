"""Which lines say nothing, told by their shape: what they are with every number made 0.

A shape says nothing where no line of that shape can: the words that are looked for are masked as the line is, so that a
shape may be taken for one that says something when it does not, and never the other way.
"""

from __future__ import annotations

import re
from typing import Optional

from ..lines.words import HEX_DIGITS, any_of
from ..tables.rows import TYPE
from .facts import STARTS
from .kinds import KINDS, LANES, SILENT
from .messages import MAX_TEXT
from .others import says
from .signals import matters
from .symptoms import may_show

_MASKED_STARTS = frozenset(start.translate(HEX_DIGITS) for start in (*STARTS, *LANES))
_SAYING = (b" nranks ", b" nRanks ", b" nvls channels", b"> Algo ", b"+ NET[", b"+ NVL[")
_SAYS = any_of(word.translate(HEX_DIGITS) for word in _SAYING)
_TRACE = re.compile(rb"\S{1,160}:0+ (?:\([^()]{1,120}\) )?-> 0")  # facts._TRACE, masked
_TIMINGS = b"Init timings"  # no letter of it is masked
_ROW = re.compile(rb"\s{0,32}\d{1,19}\s+\d{1,19}\s+[a-z]\w+\s")  # a row whose blanks a copy has squeezed
_TYPE = re.compile(rb"[\s,;|](?:float|half|double|bf|u?int|u?char|fp?\d)")  # how rows.TYPE begins, whatever its digits


def is_quiet(shape: bytes) -> bool:
    """Say whether no message of NCCL of this shape, hexadecimal digits made 0, says anything that is judged."""
    if b" NCCL " in shape or len(shape) > MAX_TEXT:
        return False
    if KINDS.get(shape[:4]) == SILENT or shape.startswith(_TIMINGS):
        return True
    if shape[:4] in _MASKED_STARTS or _SAYS.search(shape) is not None:
        return False
    return _TRACE.match(shape) is None and not may_show(shape)


def line_says(raw: bytes) -> Optional[bool]:
    """Say whether a line that is not NCCL's holds one of the words that matter, or looks like a table's row.

    None says more than False: no line that differs in its digits alone does either (no word that matters has a digit).
    """
    matter = matters(raw)
    if matter and says(raw):
        return True
    wide = b"  " in raw or b"\r" in raw
    if not (wide or raw[:1] in b"0123456789 \t") or _TYPE.search(raw) is None:
        return False if matter else None
    return (wide or _ROW.match(raw) is not None) and TYPE.search(raw) is not None
