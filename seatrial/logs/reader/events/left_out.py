"""Lines by which a collector, a pager, a limit or an editor reports that lines of a log are missing.

No list of wordings is complete, so a line is recognised by its parts. One is a word of removal next to a count of lines
or bytes, or next to the log itself. Another is one of these in a line enclosed in brackets, dots or dashes. A count of
0, and "truncated: no", report nothing. Texts of a program about its data (samples, tokens, batches) have none of these
nouns.
"""

from __future__ import annotations

import re
from typing import FrozenSet, List

from ..lines.patterns import AnyOf

_MOST = 400  # bytes: a notice is short
_STRONG = frozenset(
    b"truncated truncating truncation omitted omitting elided trimmed snipped clipped shortened suppressed suppressing"
    b" dropped discarded redacted skipped skipping abbreviated abridged collapsed purged snip".split()
)
"""Words that are not about a merely deleted file or value."""
_OF_TESTS = frozenset((b"skipped", b"skipping", b"dropped", b"discarded", b"collapsed"))  # also of tests and batches
_REMOVED = _STRONG | frozenset(
    b"removed deleted hidden lost missed missing cut gone drop dropping shown left thrown".split()
)
_SHOWN = frozenset(b"shown displayed printed delivered forwarded collected received stored".split())
_ITEMS = frozenset(b"line lines message messages character characters chars byte bytes kb mb gb kib mib gib".split())
_RECORDS = frozenset(b"records events entries rows".split())
"""Words about a log if its collector is named, or in a notice without another explanation; elsewhere about data."""
_COLLECTORS = frozenset(
    b"fluent fluentd fluentbit vector promtail loki filebeat logstash otel otelcol alloy rsyslogd journald".split()
)
_LOG = frozenset(b"log logs output stdout stderr journal".split())
_LIMITED = frozenset(b"rotated limited exceeded exceeds exceed".split())
_BETWEEN = frozenset(
    b"of the a were was is are has have been be may be and also got output log logs to from more other similar kernel"
    b" not previous container pod last first too long it they because rate size limit this cell file files line lines"
    b" message messages".split()
)
_TOKEN = re.compile(rb"[A-Za-z]+|\d[\d.,]*")
_ENCLOSED = re.compile(rb"\s{0,8}[^\w\s]{1,12}\s?(.*[^\s])\s?[^\w\s]{1,12}\s*$", re.DOTALL)
_NOT = frozenset(b"no none false not never without".split())
_RULE = frozenset(b"every daily hourly weekly when if after at by".split())
"""Words before the time of a log's next rotation, not of a past one."""
_FIXED = re.compile(
    rb"^-- ?(?:More|MORE) ?--|^\s*\.\.\.skipping\.\.\."  # marks of more(1) and less(1)
    rb"|\b(?:[Ss]howing|[Oo]nly)(?: only)?(?: the)? (?:last|first|tail|end)(?: and(?: the)? (?:last|first))?"
    rb"(?: of(?: the)?)?(?: [1-9][\d.,]*)? ?(?:lines|messages|characters|bytes|[KMG]i?B|logs?|output)\b"
    rb"|\b(?:[Uu]nable to|[Ff]ailed to|[Cc]ould not|[Cc]annot) (?:retrieve|get|read|fetch|stream)"
    rb"(?: (?:the|container|pod|previous)){0,2} logs?\b"  # the kubelet's text for kubectl logs
    rb"|\b[Mm]ore like (?:this|these)\b|^\W{0,4}[Cc]ontinued (?:in|from|on)\b|\b[Tt]oo much output\b"
    rb"|^\W{0,6}(?:and )?[1-9]\d{0,11} more (?:lines|messages)\W{0,6}$"
    rb"|^\W{0,12}(?:snip|cut here|etc\.?)\W{0,12}$|^\W{1,12}(?:excerpt|abridged)\W{1,12}$"
    rb"|^\W{1,12}(?:etc\.?|(?:and )?(?:the )?same (?:for|on|from)) .{0,60}\b(?:ranks|hosts|nodes|GPUs|workers)\W*$"
    rb"|\blogrotate\b.{0,40}\btruncat|\xe7\x9c\x81\xe7\x95\xa5|\xe6\x88\xaa\xe6\x96\xad"  # Chinese and Japanese words
)
# Every such line has one of these.
WORDS = (
    rb"runcat|mitted|mitting|lided|rimmed|nipped|lipped|hortened|uppress|ropped|iscarded|edacted|kipp"
    rb"|bbreviated|ollapsed|snip|emoved|eleted|hidden| lost|missed|missing| cut|cut here|drop messages"
    rb"|dropping messages|not shown| left out|otated|imited|xceed|more lines|more messages|more bytes"
    rb"|more characters|--More|--MORE|-- More|-- MORE|..skipping..|howing |nly last |nly the last "
    rb"|etrieve |o get |o read |ot read |annot read |o fetch |o stream |ore like th|ontinued "
    rb"|oo much output|(etc|[etc|etc.|abridged|xcerpt|urged|thrown|same for|same on|same from|nly first |nly the first "
    rb"|not displayed|not delivered|not forwarded|dropping events|dropping records"
    rb"|RUNCAT|MITTED|LIDED|RIMMED|SNIP| CUT|ROPPED|UPPRESS|EMOVED"
    b"|\xe7\x9c\x81\xe7\x95\xa5|\xe6\x88\xaa\xe6\x96\xad"
).split(b"|")
_GATE = AnyOf(WORDS)
_DOTTED = rb"(?:\.\.\.|\xe2\x80\xa6)"
MARK = rb"[\[(<]?" + _DOTTED + rb"(?:[^\n]{0,3}\d[^\n]{1,120}" + _DOTTED + rb")?[\])>]?"
"""A separate line by which an editor marks an omission: dots, or a count in any language between dots."""
MARKED = re.compile(MARK)


def reports_lines_left_out(line: bytes) -> bool:
    """Return whether a foreign line reports missing lines."""
    if len(line) > _MOST or not _GATE.contained_in(line):
        return False
    if _FIXED.search(line):
        return True
    tokens = [token.lower() for token in _TOKEN.findall(line)]
    if _counted(tokens) or _of_the_log(tokens):
        return True
    enclosed = _ENCLOSED.match(line)
    return enclosed is not None and _notice([token.lower() for token in _TOKEN.findall(enclosed.group(1))])


def _notice(tokens: List[bytes]) -> bool:
    """Return whether the words in brackets or dots are only a notice, not a program's sentence."""
    if len(tokens) <= 8 and _unshown(tokens) and not (_ITEMS | _RECORDS).isdisjoint(tokens):
        return True
    if len(tokens) > 8 or not _NOT.isdisjoint(tokens) or b"0" in tokens:
        return False
    said = set(tokens)
    if not _RECORDS.isdisjoint(said) and not said.isdisjoint((_STRONG - _OF_TESTS) | {b"hidden", b"thrown"}):
        return True
    counted = tokens[:1] != [] and tokens[0][:1].isdigit() and b"more" in said and not _ITEMS.isdisjoint(said)
    nouns = not (_ITEMS | _LOG).isdisjoint(said)
    return (
        counted or (nouns and not _REMOVED.isdisjoint(said)) or (tokens[:1] != [] and tokens[0] in _STRONG - _OF_TESTS)
    )


def _unshown(tokens: List[bytes]) -> bool:
    """Return whether a text reports something as not shown."""
    return any(token == b"not" and not _SHOWN.isdisjoint(tokens[at : at + 1]) for at, token in enumerate(tokens, 1))


def _counted(tokens: List[bytes]) -> bool:
    """Return whether a number of lines, messages or bytes, or a range of lines, is next to a word of removal."""
    return any(token[:1].isdigit() and token.strip(b"0.,") and _removed(tokens, at) for at, token in enumerate(tokens))


def _removed(tokens: List[bytes], at: int) -> bool:
    """Return whether the text before or after a number reports the counted things as removed."""
    items = _ITEMS if _COLLECTORS.isdisjoint(tokens) else _ITEMS | _RECORDS
    before, behind = tokens[max(at - 2, 0) : at], _next(tokens, at + 1, _BETWEEN - _ITEMS)
    item = tokens[behind : behind + 1]
    if before[1:] in ([b"messages"], [b"lines"]) and before[0] in _STRONG:  # text like "Dropped messages: 14"
        return True
    if before[-1:] in ([b"lines"], [b"line"]) and item and item[0][:1].isdigit():  # text like "lines 20 to 480"
        pass
    elif not item or item[0] not in items:
        return False
    elif before and before[-1] in _STRONG | {b"lost", b"missed"}:
        return True
    verb = _next(tokens, behind + 1, _BETWEEN - {b"not"})
    return _unshown(tokens[verb : verb + 2]) or not _REMOVED.isdisjoint(tokens[verb : verb + 1])


def _next(tokens: List[bytes], at: int, passed: FrozenSet[bytes]) -> int:
    """Return the place of the next word, from one on, that is not skipped."""
    while at < len(tokens) and tokens[at] in passed:
        at += 1
    return at


def _of_the_log(tokens: List[bytes]) -> bool:
    """Return whether a log or an output is reported as truncated, within a few words and not denied."""
    for at, token in enumerate(tokens):
        before, behind = tokens[at - 1 : at] if at else [], tokens[at + 1 : at + 2]
        of_log = token == b"messages" or (token in _RECORDS and not _COLLECTORS.isdisjoint(tokens))
        if of_log and before in ([b"drop"], [b"dropping"]):
            return True
        verb = _next(tokens, at + 1, _BETWEEN)
        said, then = tokens[verb : verb + 1], tokens[verb + 1 : verb + 2]
        if token not in _LOG or not said or not _NOT.isdisjoint((*before, *then)) or then == [b"0"]:
            continue
        lines = behind in ([b"lines"], [b"messages"])
        if said == [b"cut"] or said[0] in (_REMOVED if lines else _STRONG - {b"skipped", b"skipping"}):
            return True
        limited = said[0] in _LIMITED and (said[0] != b"limited" or any(word[:1].isdigit() for word in tokens[verb:]))
        if limited and _RULE.isdisjoint(then):
            return True
    return False
