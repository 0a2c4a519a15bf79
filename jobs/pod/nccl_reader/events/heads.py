"""Who wrote a line: what stands in front of ``NCCL INFO``, reduced to the head that names its process.

A stamp or a launcher's tag that never comes twice would make every head a new one; what in front of a head names no
process is taken off (the same text with other digits is taken off without a further look).
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional, Set, Tuple

from ..lines.prefix import launcher_tag, parse_head
from ..tables.rows import TYPE

DIGITS = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
_COLUMN = re.compile(rb"(?:u?int|u?char|b?float|half|double|bf|fp|f)[0-9]")  # a data type, whatever its digits
_KEPT = 65_536  # heads that are known
_PLAIN = 1024  # shapes of what is taken off
_LONGEST = 300

Process = Tuple[Optional[str], Optional[int], str]  # host and pid; else the launcher's tag, or the device


class Seen(NamedTuple):
    """A head: what stands for it, and the process that it names."""

    head: bytes
    process: Process


class Heads:
    """Knows heads by their bytes."""

    def __init__(self) -> None:
        self._seen: Dict[bytes, Optional[Seen]] = {}
        self._plain: Set[bytes] = set()  # what in front of a head says nothing, every digit a 0

    def find(self, left: bytes) -> Optional[Seen]:
        """Return the head in what stands left of a message; None where there is more than a head."""
        if left in self._seen:
            return self._seen[left]
        start = left.rfind(b" ", 0, left.rfind(b" [")) + 1
        if start and left[:start].translate(DIGITS) in self._plain:
            left = left[start:]
            if left in self._seen:
                return self._seen[left]
            start = 0
        seen = self._read(left, start)
        if len(self._seen) >= _KEPT:
            self._seen.clear()
        if len(left) <= _LONGEST:
            self._seen[left] = seen
        return seen

    def _read(self, left: bytes, start: int) -> Optional[Seen]:
        head = parse_head(left)
        if start and head.host is not None:
            front = left[:start]
            if TYPE.search(front):
                return None  # the left half of a table's row
            alone = parse_head(left[start:])
            if (alone.host, alone.pid, alone.dev) == (head.host, head.pid, head.dev) and alone.tag == head.tag:
                if not launcher_tag(front) and not _COLUMN.search(front) and len(self._plain) < _PLAIN:
                    self._plain.add(front.translate(DIGITS))
                left = left[start:]
        if b"NCCL" in left or len(left) > _LONGEST:
            return None
        if head.host is not None:
            return Seen(left, (head.host, head.pid, ""))
        return Seen(left, (None, None, head.tag or str(head.dev)))
