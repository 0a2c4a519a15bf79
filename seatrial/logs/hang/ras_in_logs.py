"""Find answers of NCCL RAS inside a log, and after a log collector's prefix of each line.

Except for its digits, the prefix of the answer's heading is also that of its other lines. The digits may be a line's
time or a pod's index.
"""

from __future__ import annotations

import contextlib
import re
from itertools import islice
from typing import TYPE_CHECKING

from . import ras, ras_text

if TYPE_CHECKING:
    from .model import Evidence

ANCHORS = (b"Communicators...", b'"communicators_count"')
MAX_SPAN = 8 << 20
"""Bytes of a log that are read from the first answer on."""
_MOST_PREFIXES = 8
_HEADING = re.compile(r"^(.{0,200}?)(?:Communicators\.\.\.|[ \t]*\"nccl_version\":)", re.MULTILINE)
_BEGIN = re.compile(r"^Communicators\.\.\.", re.MULTILINE)
_OBJECT = re.compile(r"^([ \t]*)\{\s*\n\s*\"nccl_version\"", re.MULTILINE)
_MOST_ANSWERS = 64


def read(evidence: Evidence, file: str, text: str) -> int:
    """Add the answers in a log's text; return how many there are. Truncated answers are skipped."""
    before = len(evidence.samples)
    fronts = {re.sub(r"\d+", r"\\d+", re.escape(match[1])) for match in _HEADING.finditer(text)}
    for front in sorted(fronts)[:_MOST_PREFIXES]:
        starts = re.compile(front)
        bare = "\n".join(line[match.end() :] for line in text.splitlines() if (match := starts.match(line)))
        for begin in islice(_BEGIN.finditer(bare), _MOST_ANSWERS):
            if "\n=====" in bare[begin.end() : begin.end() + 4000]:  # its underline
                ras_text.read_text(evidence, file, bare[begin.start() :])
                break
        for begin in islice(_OBJECT.finditer(bare), _MOST_ANSWERS):
            end = bare.find(f"\n{begin[1]}}}", begin.end())
            with contextlib.suppress(ValueError):
                ras.read_json(evidence, file, bare[begin.start() : end + len(begin[1]) + 2])
    return len(evidence.samples) - before
