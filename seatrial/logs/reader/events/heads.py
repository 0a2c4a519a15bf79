"""The writer of a line: the text before ``NCCL INFO``, reduced to the process that it names.

With a stamp or a launcher's tag, the text before a head differs in every line. The place of the process number in it
does not depend on the digits: it is determined once for the text with every digit a 0.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional, Set, Tuple

from ..lines.clean import ANSI_BYTES, name
from ..lines.patterns import DIGITS, HEX_DIGITS
from ..lines.prefix import GLUED_TIME, Head, Process, parse_head, process_of, tag_in
from ..tables.rows import TYPE
from .signals import fails_within, shows_event

# A head without preceding text or a glued time.
ALONE = re.compile(rb"([A-Za-z0-9][A-Za-z0-9._-]{0,254}):(\d{1,10}):\d{1,20} \[(\d{1,4})\] ")
_GLUED_TAG = re.compile(rb"[>\]]:(?=[^:\]>]{1,255}:\d{1,10}:\d{1,20} \[\d{1,4}\] $)")  # tags of mpirun and torchrun
_COLUMN = re.compile(rb"(?:u?int|u?char|b?float|half|double|bf|fp|f)[0-9]")  # a data type, whatever its digits
_KEPT = 65_536  # heads that are known
_FRONTS = 16_384  # shapes of the text before a head
_LONGEST = 300

_Tag = Tuple[str, int, int]  # launcher of the prefix, "" for none, and begin and end of its process number


class ReadHead:
    """A head, the process that it names, and the caller's data for it."""

    __slots__ = ("head", "owner", "process")

    def __init__(self, head: Head, process: Process) -> None:
        self.head, self.process = head, process
        self.owner: Any = None


class Heads:
    """Knows heads by their bytes."""

    def __init__(self) -> None:
        self._alone: Dict[bytes, ReadHead] = {}
        self._same: Dict[Tuple[bytes, ...], ReadHead] = {}  # heads by host, pid and device
        self._whole: Dict[bytes, Optional[ReadHead]] = {}
        self._tagged: Dict[Tuple[Head, str], ReadHead] = {}
        self._clean: Set[bytes] = set()  # shapes of heads without another process's failure in them
        self._fronts: Dict[bytes, Optional[_Tag]] = {}  # tags by the text with every digit a 0; None: not by that alone

    def find(self, left: bytes) -> Tuple[Optional[ReadHead], bool]:
        """Return the head in the text left of a message; None if the text is more than a head.

        Also return whether the same head may precede another message: it has no stamp.
        """
        alone = ALONE.fullmatch(left)  # most heads have no prefix
        if alone is not None and b"NCCL" not in left:
            return self._named(alone.groups()), True
        start = left.rfind(b" ", 0, left.rfind(b" [")) + 1
        read = self._usual(left[start:]) if start else None
        if read is None and not start:
            tag = _GLUED_TAG.search(left)
            start = tag.end() if tag else 0
            read = self._usual(left[start:]) if tag else None
        if read is not None and start:
            front = left[:start]
            shape = front.translate(DIGITS)
            tagged = self._fronts[shape] if shape in self._fronts else self._front(front, shape)
            if tagged is not None:
                return (self._with(read, tagged, front), True) if tagged[0] else (read, False)
            read = None
        if read is None:
            read = self._whole[left] if left in self._whole else self._read(left)
        if len(self._alone) + len(self._whole) + len(self._tagged) >= _KEPT:
            self._alone, self._whole, self._tagged, self._same = {}, {}, {}, {}
        return read, True

    def _usual(self, alone: bytes) -> Optional[ReadHead]:
        """Return the head of the usual form."""
        read = self._alone.get(alone)
        if read is None:
            usual = ALONE.fullmatch(alone)
            if usual is None or b"NCCL" in alone:
                return None
            read = self._alone[alone] = self._named(usual.groups())
        return read

    def _named(self, parts: Tuple[bytes, ...]) -> ReadHead:
        """Return the head of a host, a pid and a device."""
        read = self._same.get(parts)
        if read is None:
            host, pid, dev = parts
            known = (name(host, 255), int(pid))
            read = self._same[parts] = ReadHead(Head(*known, int(dev), ""), (*known, ""))
        return read

    def _with(self, read: ReadHead, tag: _Tag, front: bytes) -> ReadHead:
        """Return a head with its preceding tag."""
        launcher, begin, end = tag
        key = (read.head, launcher + ":" + front[begin:end].decode("utf-8", "replace"))
        if key not in self._tagged:
            self._tagged[key] = ReadHead(read.head._replace(tag=key[1]), read.process)
        return self._tagged[key]

    def _front(self, front: bytes, shape: bytes) -> Optional[_Tag]:
        """Return where texts of this form number a process; None if the form does not show it."""
        odd = TYPE.search(front) or _COLUMN.search(front) or ANSI_BYTES.search(front) or shows_event(front)
        tag = None
        if not odd and b"\x1b" not in front and b"NCCL" not in front and len(front) <= _LONGEST:
            tag = tag_in(GLUED_TIME.sub(b" ", front)) or ("", 0, 0)
            for time in GLUED_TIME.finditer(front):
                longer = time.end() - time.start() - 1 if time.start() < tag[1] else 0
                tag = (tag[0], tag[1] + longer, tag[2] + longer)
        if len(self._fronts) >= _FRONTS:
            self._fronts.clear()
        self._fronts[shape] = tag
        return tag

    def _read(self, left: bytes) -> Optional[ReadHead]:
        """Read a text unlike any other, or with more than a head."""
        head = parse_head(left)
        read = None
        start = left.rfind(b" ", 0, left.rfind(b" [")) + 1
        if not (head.host is not None and start and TYPE.search(left[:start])):  # not the left half of a table's row
            shape, read = left.translate(HEX_DIGITS), ReadHead(head, process_of(head))
            # More than a head: another NCCL line, or the failure of one that lost its end.
            if b"NCCL" in left or len(left) > _LONGEST or fails_within(left, shape, self._clean):
                read = None
        if len(left) <= _LONGEST:
            self._whole[left] = read
        return read
