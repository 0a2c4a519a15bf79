"""The head of a line: the prefixes of launchers, log shippers and NCCL itself before the message.

NCCL's own head is ``host:pid:tid [dev] `` (debug.cc:ncclDebugLog); ``dev`` is a CUDA ordinal of the calling thread, not
a rank. The head is searched from the right, anywhere in the line, because tags, timestamps, ANSI codes and torn lines
precede it in any order.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Tuple

from .clean import ANSI_BYTES, name

# A host has no ":" and no blanks; reporters put <names> or {names} in its place; text glued to its front ends in > ] )
# or |.
_HEAD = re.compile(
    rb"(<[^<>\s:]{1,80}>|\{[^{}\s:]{1,80}\}|[^\s:>\]\"|)\x1b]{0,255}):(\d{1,10}):(\d{1,20}) \[(\d{1,4})\] "
)
_DEV_ONLY = re.compile(rb"(?:^|[\s:>\])])\[(\d{1,4})\] (?:\S.*)?$")
_MPI_TAG = re.compile(rb"\[(\d+),(\d+)\]<std(?:out|err|diag)>:")  # mpirun --tag-output; Open MPI 5 adds a blank
_SRUN_TAG = re.compile(rb"(?:^|[\])Z|\t] ?)\s{0,6}(\d{1,6}): ")  # srun -l, right aligned
_TORCH_TAG = re.compile(rb"\[(?:default|rank)(\d+)\]:")  # torchrun --tee
_RAY_TAG = re.compile(rb"\(\w[^()]{0,80}?pid=(\d+)[^()]{0,80}\)")
_POD_TAG = re.compile(rb"\[pod/([^\]\s]{1,253})\]")  # kubectl logs --prefix

# A time glued to the next text (CloudWatch), which would otherwise end in the host's name.
GLUED_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)")


class Head(NamedTuple):
    """The text before a message; None for missing parts."""

    host: Optional[str]
    pid: Optional[int]
    dev: Optional[int]
    tag: str  # launcher's name of the process: "mpi:5", "srun:3", "torch:0"; empty without one


Process = Tuple[Optional[str], Optional[int], str]
"""The identity of a process in a stream: host and pid; without them the launcher's tag, or else the device."""


def process_of(head: Head) -> Process:
    """Return the process that a head names."""
    if head.host is not None and head.pid is not None:
        return head.host, head.pid, ""
    return None, None, head.tag or ("" if head.dev is None else "dev:%d" % head.dev)


def parse_head(left: bytes) -> Head:
    """Parse the head from the text left of ``NCCL INFO``."""
    if len(left) > 1024:
        left = left[-1024:]
    if b"\x1b" in left or b"[0m" in left or b"[3" in left:
        left = ANSI_BYTES.sub(b"", left)
    if b"T" in left and GLUED_TIME.search(left):
        left = GLUED_TIME.sub(b" ", left)
    last = None
    for match in _HEAD.finditer(left):
        last = match
    if last is not None:
        host = name(last.group(1), 255) or None  # a name of control characters does not count
        return Head(host, int(last.group(2)), int(last.group(4)), launcher_tag(left[: last.start()] or left))
    only = _DEV_ONLY.search(left)
    return Head(None, None, int(only.group(1)) if only else None, launcher_tag(left))


_TAGS = (("mpi", _MPI_TAG), ("torch", _TORCH_TAG), ("srun", _SRUN_TAG), ("ray", _RAY_TAG), ("pod", _POD_TAG))


def tag_in(left: bytes) -> Optional[Tuple[str, int, int]]:
    """Find where a launcher numbers its process: the launcher, begin and end; None if none does."""
    for kind, pattern in _TAGS:
        match = pattern.search(left)
        if match:
            return (kind, *match.span(match.lastindex or 1))
    return None


def launcher_tag(left: bytes) -> str:
    """Name the process as its launcher did, or return an empty text."""
    tag = tag_in(left)
    return tag[0] + ":" + left[tag[1] : tag[2]].decode("utf-8", "replace") if tag else ""


def torn_at(text: bytes) -> Optional[int]:
    """Find the beginning of a second head inside a message; None without one.

    Two processes that write at the same time produce one physical line.
    """
    if b" NCCL " not in text:
        return None
    for match in _HEAD.finditer(text):
        level = text.find(b"NCCL ", match.end())
        if level >= 0 and text[level + 5 : level + 10] in (b"INFO ", b"WARN "):
            return match.start()
    return None
