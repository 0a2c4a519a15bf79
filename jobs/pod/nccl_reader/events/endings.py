"""The last line of a stream: the end of a benchmark, a completion, or the last word of a process that died.

A shell reports a death in its user's language and a program in its own words, so that no list holds them. What is
known is how a log ends that is whole: with a benchmark's last lines, NCCL's own, or a line that reports completion.
"""

from __future__ import annotations

import re
from typing import List

from ..tables.rows import strip_tags
from .trouble import told_as_harmless

_MOST = 200  # bytes that are shown
_COMPLETED = re.compile(
    rb"(?i)\b(?:done|finish(?:ed|ing)?|complet(?:e|ed|ion)|success(?:ful(?:ly)?)?|succeeded|passed|ok|bye"
    rb"|sav(?:ed|ing)|elapsed|took|real|user|sys|logout|clean(?:ed|ing|up)?|destroy(?:ed|ing)?"
    rb"|shut(?:ting)? ?down|teardown|end(?:ed)?|stopp(?:ed|ing)|wr(?:ote|itten|iting)|summary|report|total"
    rb"|results?|uploaded|clos(?:ed|ing)|exit(?:ed|ing)?(?: (?:with|code|status))*:? 0|[a-z]*time|average"
    rb"|statistics|timeouts"
    rb")\b"
)
# A collector's, of an empty line.
_PREFIX = re.compile(rb"(?:.*[:|>\]]|(?:[\dTZ]|(?![\x80-\xff])\W)*)?[^\w#\x80-\xff]{0,2}(?<!#)", re.DOTALL)
_BENCHMARK = re.compile(rb"^#|#\W*$|Avg bus|Out of bounds|Collective test")  # behind any prefix
_NUMBER = re.compile(rb"\d")
_PROMPT = re.compile(rb"[$#%>]\s*$")
_SHELL = re.compile(
    rb"[^\s:]{1,120}: (?:[^\W\d_]|[\x80-\xff]){1,24} \d{1,6}: +\d{1,8} \S"  # bash: SCRIPT: line N:  PID SIGNAL  COMMAND
    rb"|\[\d{1,3}\][+-]? +(?:\d{1,8} +)?(?!Done\b|done\b|Running\b|Exit 0)\S.* {2,}\S"  # of job control
)
_SIGNALS = re.compile(  # strsignal(3), which a shell prints alone
    rb"(?:Hangup|Quit|Alarm clock|Terminated|Killed|Aborted|Stopped|Bus error|Broken pipe|CPU time limit exceeded"
    rb"|Illegal instruction|Floating point exception|User defined signal [12]|\^[C\\])(?: *\(.{1,40}\))?"
)


def last_words(data: bytes, benchmark: bool) -> bytes:
    """Return the last line of a stream where it reports no good end; nothing where it does.

    ``data`` is the end of the stream. Behind a ``benchmark``'s table whatever is unknown counts; elsewhere, where a
    program writes what it likes, a line by its form as a shell's, or in a script that no program of the field uses.
    """
    lines = [text.rpartition(b"\r")[2].rstrip() for text in data.replace(b"\r\n", b"\n").split(b"\n")]
    bare = next((each for line in reversed(lines) if (each := _said(line, lines))), b"")
    if not bare or b"NCCL" in bare or _BENCHMARK.search(bare) or _PROMPT.search(bare):
        return b""
    if _SHELL.match(bare) or _SIGNALS.fullmatch(bare):
        return bare[:_MOST]
    if not benchmark:
        foreign = len(bare.split()) <= 8 and sum(byte >= 0x80 for byte in bare) >= 2 and not _NUMBER.search(bare)
        return bare[:_MOST] if foreign else b""
    return b"" if _COMPLETED.search(bare) or told_as_harmless(bare) else bare[:_MOST]


def _said(line: bytes, lines: List[bytes]) -> bytes:
    """Return what stands in a line behind its prefix; nothing where an empty one was passed on."""
    bare = strip_tags(line).strip()
    empty = _PREFIX.fullmatch(bare) or any(len(other) > len(line) and other.startswith(line) for other in lines)
    return b"" if empty else bare
