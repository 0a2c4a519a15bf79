"""The last line of a stream: the end of a benchmark, a completion, or the last word of a process that died.

A shell reports a death in its user's language and a program in its own words, so that no list holds them. What is
known is how a log ends that is whole: with a benchmark's last lines, NCCL's own, or a line that reports completion.
"""

from __future__ import annotations

import re

from ..tables.rows import strip_tags

_MOST = 200  # bytes that are shown
_COMPLETED = re.compile(
    rb"(?i)\b(?:done|finish(?:ed|ing)?|complet(?:e|ed|ion)|success(?:ful(?:ly)?)?|succeeded|passed|ok|bye"
    rb"|sav(?:ed|ing)|elapsed|took|real|user|sys|logout|clean(?:ed|ing|up)?|destroy(?:ed|ing)?"
    rb"|shut(?:ting)? ?down|teardown|end(?:ed)?|stopp(?:ed|ing)|wr(?:ote|itten|iting)|summary|report|total"
    rb"|results?|uploaded|clos(?:ed|ing)|exit(?:ed|ing)?(?: (?:with|code|status))*:? 0|[a-z]*time|average"
    rb"|statistics|timeouts"
    rb")\b"
)
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
    line = next((text for text in reversed(data.splitlines()) if re.search(rb"[\w\x80-\xff]", strip_tags(text))), b"")
    bare = strip_tags(line).strip()
    if not bare or b"NCCL" in line or bare.startswith(b"#") or _PROMPT.search(bare):
        return b""
    if _SHELL.match(bare) or _SIGNALS.fullmatch(bare):
        return bare[:_MOST]
    words = bare.split()
    foreign = len(words) <= 8 and sum(byte >= 0x80 for byte in bare) >= 2 and not re.search(rb"\d", bare)
    if not foreign and (not benchmark or _COMPLETED.search(bare)):
        return b""
    return bare[:_MOST]
