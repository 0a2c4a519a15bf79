"""Lines of a program, a launcher or the kernel that speak of a failure in words that no rule knows.

What says that something failed keeps a job from being called healthy, whoever says it; the line is quoted, and nobody
is accused. Left out is what says that nothing happened (0 errors), what its own level calls a warning or less, and what
was tried again.
"""

from __future__ import annotations

import re

from ..lines.words import needed

# Said at any level.
_SAID = re.compile(
    rb"(?:[Jj]ob|[Tt]raining|[Ww]orker|[Pp]rocess|[Nn]ode|[Rr]ank|[Ee]ngine|[Ss]cheduler|[Aa]ctor|[Cc]ontainer"
    rb"|[Ss]tep)\b[^.:;]{0,40} (?:[Ff]ailed|FAILED|died|crashed|diverged|aborted|was killed|(?:is )?unreachable"
    rb"|hit an exception)\b|\bdue to (?:failure|exception|error)|\b[Hh]ang detected"
    rb"|failed for remote transport|(?:died|exited) unexpectedly|Watchdog timeout|Restarting worker group"
    rb"|Could not resolve hostname"
    rb"|:\d{1,5}: (?:non-zero status: |NULL value )"  # NVSHMEM (common/util.h: NVSHMEMI_NZ_ERROR_JMP, _NULL_ERROR_JMP)
    rb"|^F\d{4} [\d:.]{8,20} .{0,100}\.cc:\d"  # glog's fatal level
    rb"|[Ll][Oo][Ss][Ss]\W{0,6}(?:(?:[Ii][Ss]|became|value) {1,2})?[:=]? ?(?:nan|NaN|NAN|=inf|: inf)\b"
    rb"|\b(?:NaN|nan) (?:loss|grad)"
    rb"|[Nn]orm\W{1,4}(?:nan|NaN|NAN)\b|[Ff]ound (?:nan|NaN|NAN)\b"
)
# Words of failure, as far as the line does not take them back.
_WORD = re.compile(
    rb"(?<![\w./=-])(?:[Ee]rrors?|ERRORS?|[Ff]ailed|FAILED|[Ff]ailures?|FAILURE|[Ff]atal|FATAL|[Aa]bort(?:ed|ing)"
    rb"|ABORT(?:ED|ING)|[Cc]rashed|CRASHED|died|Died|[Kk]illed|[Ee]xception|[Uu]nhandled|[Uu]ncaught|[Uu]nreachable"
    rb"|[Cc]orrupt(?:ed|ion)|[Ee]victed|[Dd]iverged|[Tt]imed out|[Oo]ut of (?:host )?memory|OOM"
    rb"|std::bad_alloc|[Cc]ommand not found|No such file or directory|Permission denied)(?![\w/-])"
)
_LOWER = re.compile(rb"\b(?:INFO|DEBUG|TRACE)\b|WARN|[Ww]arning\b|^(?:\[rank\d{1,7}\]:)?\[?[IWD]\d{4} |^#")
_AGAIN = re.compile(
    rb"\b[Rr]etry(?:ing)?\b|[Ii]gnor(?:ed?|ing)\b|[Rr]ecovered\b|[Ff]all(?:ing)?[ -]?back\b|couldn't chdir"
)
_IF = re.compile(rb"\W*(?:If|When|In case) ")
_NONE = re.compile(
    rb"(?i)(?<![\w.-])(?:no|0(?= )|zero|without|never|be|not|if|on|any|or|whether|unless|ignore"
    rb"|max|mean|relative|absolute)\W{1,2}(?:\w{1,20} ){0,2}$"
)
_ZERO = re.compile(
    rb"(?i)(?: \w{1,20})?\s?\W{0,2}[:=.]*\s*(?:0(?![.\w])|\d*\.\d+(?![.\d])|\de-\d|none\b|false\b|null\b|<|\[\]|\{\})"
)
_STARTS = 60  # bytes in front of a word that may take it back

_ALSO = (
    rb"unexpectedly|Watchdog|arting worker|resolve host|: nan|=nan|ss nan|rm nan|NaN|NAN|=inf|: inf|ang detected"
    rb"|non-zero status|NULL value"
).split(b"|")
WORDS = (*needed(_WORD.pattern), *_ALSO)  # of which such a line holds one


def speaks_of_failure(raw: bytes) -> bool:
    """Say whether a line speaks of something that failed, and does not take it back."""
    if not any(word in raw for word in WORDS) or _IF.match(raw):
        return False
    if _SAID.search(raw):
        return True
    found = [match for match in _WORD.finditer(raw) if not _taken_back(raw, match)]
    return bool(found) and _LOWER.search(raw) is None and _AGAIN.search(raw) is None


def _taken_back(raw: bytes, word: re.Match[bytes]) -> bool:
    before = raw[max(0, word.start() - _STARTS) : word.start()]
    return _NONE.search(before) is not None or _ZERO.match(raw, word.end()) is not None
