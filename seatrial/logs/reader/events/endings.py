"""The last line of a stream: the end of a benchmark, a completion, or the last line of a process that died.

A shell reports a death in its user's language and a program in its own words, so that no list is complete. But the ends
of complete logs are known: a benchmark's last lines, NCCL's own, or a line that reports completion.
"""

from __future__ import annotations

import re
from typing import List

from ..tables.rows import strip_tags
from .trouble import SAMPLE, reported_as_harmless

_MOST = 200  # bytes that are shown
_COMPLETED = re.compile(
    rb"(?i)\b(?:done|finish(?:ed|ing)?|complet(?:e|ed|ion)|success(?:ful(?:ly)?)?|succeeded|passed|ok|bye"
    rb"|sav(?:ed|ing)|elapsed|took|real|user|sys|logout|clean(?:ed|ing|up)?|destroy(?:ed|ing)?"
    rb"|shut(?:ting)? ?down|teardown|end(?:ed)?|stopp(?:ed|ing)|wr(?:ote|itten|iting)|summary|report|total"
    rb"|results?|upload(?:ed|ing)|copying|copied|clos(?:ed|ing)|exit(?:ed|ing)?(?: (?:with|code|status))*:? 0"
    rb"|[a-z]*time|average|statistics|timeouts"
    rb")\b"
)
# Ends that do not count: denied, caused by another, too early, of a part, or with a code.
_BAD_END = re.compile(
    rb"(?i)\b(?:not|never|\w+n't) (?:yet |be |been |all )*(?:done|finish|complet|succe|pass|ok\b|end|sav|wr[io]t)"
    rb"|\b(?:end|stopp|clos|destroy|exit|terminat|shut ?down|torn down)(?:ed)?,? by\b|\bstopped responding\b"
    rb"|\b(?:incomplete|premature|forc(?:ed|ibl[ey])|abort|abrupt|unexpected|early\b|power(?:ed|ing) off)"
    rb"|\b(?:preempted|gone|signal \d|core (?:dump|file|to)|time(?:d)? ?-?out\b|(?:time|memory|quota) exceeded)"
    rb"|\b(?:time|memory|wall(?:time)?) limit\b|\blost (?:\w+ )?(?:node|rank|worker|host|gpu|connection|contact)"
    rb"|\bno\W*$"
)
_BAD_CODE = re.compile(
    rb"(?i)\b(?:exit\w{0,6}|code|rc)\W{1,4}(?:(?:with|code|status|is)\W{1,3}){0,3}-?[1-9]\d{0,2}\b(?!\.\d)"
)
_PART = re.compile(rb"\b(\d+) ?(?:of|/) ?(?:the )?(\d+)\b.{0,30}(?:passed|succeeded|finished|completed|done|ok)\b")
# A collector's line for an empty one.
_PREFIX = re.compile(rb"(?:.*[:|>\]]|(?:[\dTZ]|(?![\x80-\xff])\W)*)?[^\w#\x80-\xff]{0,2}(?<!#)", re.DOTALL)
_BENCHMARK = re.compile(rb"^#|#\W*$|Avg bus|Out of bounds|Collective test")  # after any prefix
_DATE = re.compile(  # date(1), in the C locale and others, with or without a zone
    rb"[A-Z][a-z]{2},? +(?:[A-Z][a-z]{2} +\d{1,2}|\d{1,2} +[A-Z][a-z]{2})(?: +\d{4})?,? +\d\d:\d\d:\d\d(?: +[AP]M)?"
    rb"(?: +[A-Z+-][A-Z\d]{1,5})?(?: +\d{4})?"
)
_NUMBER = re.compile(rb"\d")
_PROMPT = re.compile(rb"[$#%>]\s*$")
_SHELL = re.compile(
    rb"[^\s:]{1,120}: (?:[^\W\d_]|[\x80-\xff]){1,24} \d{1,6}: +\d{1,8} \S"  # bash: SCRIPT: line N:  PID SIGNAL  COMMAND
    rb"|\[\d{1,3}\][+-]? +(?:\d{1,8} +)?(?!Done\b|done\b|Running\b|Exit 0)\S.* {2,}\S"  # messages of job control
)
_SIGNALS = re.compile(  # texts of strsignal(3), which a shell prints alone
    rb"(?:Hangup|Quit|Alarm clock|Terminated|Killed|Aborted|Stopped|Bus error|Broken pipe|CPU time limit exceeded"
    rb"|Illegal instruction|Floating point exception|User defined signal [12]|\^[C\\])(?: *\(.{1,40}\))?"
)


def last_words(data: bytes, benchmark: bool) -> bytes:
    """Return the last line of a stream if it reports no normal end; else nothing.

    ``data`` is the end of the stream. After a ``benchmark``'s table every unknown line counts. Elsewhere, since
    programs print arbitrary text, only a line in a shell's form counts, or one in a writing system that no program of
    the field uses.
    """
    lines = [text.rpartition(b"\r")[2].rstrip() for text in data.replace(b"\r\n", b"\n").split(b"\n")]
    bare = next((each for line in reversed(lines) if (each := _said(line, lines))), b"")
    if not bare or b"NCCL" in bare or _BENCHMARK.search(bare) or _PROMPT.search(bare) or _DATE.fullmatch(bare):
        return b""
    if _SHELL.match(bare) or _SIGNALS.fullmatch(bare):
        return bare[:_MOST]
    if not benchmark:
        foreign = len(bare.split()) <= 8 and sum(byte >= 0x80 for byte in bare) >= 2 and not _NUMBER.search(bare)
        return bare[:_MOST] if foreign else b""
    part = _PART.search(bare)
    bad = _BAD_END.search(bare) or _BAD_CODE.search(bare) or (part and part[1] != part[2])
    return bare[:_MOST] if bad or not (_COMPLETED.search(bare) or reported_as_harmless(bare)) else b""


def _said(line: bytes, lines: List[bytes]) -> bytes:
    """Return a line without its prefix; nothing for a passed-on empty line, or a record of a model's text."""
    bare = strip_tags(line).strip()
    prefix = any(len(other) > len(line) and other.startswith(line) for other in lines)
    return b"" if prefix or _PREFIX.fullmatch(bare) or SAMPLE.search(line) else bare
