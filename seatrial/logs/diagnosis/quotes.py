"""Quotes of the log, for messages without a rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...faults.catalogue import read_text
from ...faults.codes import nccl_results
from ...faults.xid import xids
from ..job.jobs import place
from .judge import FOLLOWS, LATER

if TYPE_CHECKING:
    from ..reader.state.process import Note
    from .judge import Judgement

SAID = ("test-failure", "nccl-error", "signal", "test-stack", "terminated")
_CLOSED = "gloo-error"  # usual event of a peer that ended
_TRACE_END = re.compile(r"-> (\d)\b")  # an ncclResult_t
_OPEN_END = re.compile(r" ?/ ?'$")  # nccl-tests shows two texts of an error, and the second may be empty
# The prefix of a message: tags, the process, the place in the source.
_MESSAGE = re.compile(
    r"^.*?(?=Test (?:NCCL|CUDA) failure)|^.*?NCCL (?:WARN|INFO) |^(?:\(\w+[^)]{0,40}\) ?|\[\S+\]:? ?)+"
    r"|^\s*what\(\):\s+|^Last error:\s*|^# seatrial bench: "
    r"|^[\[(]?(?:\d{4}-\d\d-\d\d[ T]|[EFIW]\d{4} |ERROR \d\d-\d\d )[^\]]{0,200}?\.(?:cc|cpp|cu|go|h|py):\d{1,5}[\]:] "
)
_CUDA = re.compile(r"(?i)cuda (?:\w+ )?(?:error|failure)|ncclUnhandledCudaError|-> 1\b")  # code 1 of ncclResult_t
_PEER = re.compile(r"(?:recv from|send to|remote peer) ([\w.:-]{2,253}<\d{1,5}>)")  # address of a closed socket
_LONGEST = 160
# Exit codes for a signal: launchers report its negative number (Python), or 128 plus it (a shell).
_CODE = re.compile(r"(?i)(?:exit|return)(?:ed with)?(?: ?code| status)\W{1,6}(?:-(\d{1,2})\b|1(2[89]|[3-5]\d)\b)")
_XID = re.compile(r"NVRM: Xid \([^)]{4,40}\): (\d{1,3})\b")


def quoted(note: Note) -> str:
    """Return a line's message without its prefix, and without truncated words."""
    text = _OPEN_END.sub("'", _MESSAGE.sub("", note.text).strip(" ."))
    if len(text) <= _LONGEST:
        return text
    return text[:_LONGEST].rpartition(" ")[0].rstrip(" .,;:") + " [...]"


def meant(text: str) -> str:
    """Explain a number in a line: a launcher's code for a signal, or an Xid."""
    xid = _XID.search(text)
    if xid is not None and int(xid[1]) in xids():
        return " (in NVIDIA's catalog: %s)" % xids()[int(xid[1])].meaning
    code = _CODE.search(text)
    number = 128 + int(code[1]) if code and code[1] else int("1" + code[2]) if code else 0
    said = read_text("exit", "exit code %d" % number) if number else None
    known_cause = said.cause if said and said.cause else ""
    return " (%s)" % known_cause if known_cause and known_cause.split(":")[0] not in text else ""


def trouble_said(judgement: Judgement) -> Note | None:
    """Return the errors of a log without evidence: the end of a program before possible failures."""
    ends = (judgement.event(name) for name in ("uncaught", "exception"))
    note = next((note for note in ends if note is not None), None) or judgement.unexplained()
    if note is None or not note.text.endswith("Traceback (most recent call last):"):
        return note
    behind = [said for said in map(judgement.event, ("ended", "trouble")) if said and place(said) > place(note)]
    return min(behind, key=place, default=note)  # a traceback's first line shows nothing


def follows(judgement: Judgement) -> Note | None:
    """Return the first line that only reports another rank's end."""
    notes = [note for note, _ in map(judgement.earliest, FOLLOWS) if note is not None]
    return min(notes, key=place, default=None) or judgement.event("last-error follows")


def _exception(judgement: Judgement) -> Note | None:
    """Return the exception that ended a rank's program; a possibly caught one only without another."""
    return judgement.event("uncaught") or (None if follows(judgement) else judgement.event("exception"))


def crash_lines(judgement: Judgement) -> list[Note]:
    """Return the lines that show how a job without a known cause ended."""
    notes = [judgement.earliest("warn")[0], judgement.earliest("trace")[0], judgement.event("last-error")]
    notes.extend(map(judgement.event, SAID[:-1]))
    if notes[0] is None:
        notes += [follows(judgement), _exception(judgement)]
    notes.append(judgement.event(SAID[-1]))
    shown = [note for note in notes if note is not None]
    closed = judgement.event(_CLOSED)
    return shown or ([closed] if closed is not None else [])


def crash_cause(judgement: Judgement) -> str | None:
    """Quote the log's end, and explain its significance."""
    warning, _ = judgement.earliest("warn")
    gone = follows(judgement)
    said = [note for note in (warning, *map(judgement.event, SAID)) if note is not None]
    note = min(said, key=place, default=None)
    if note is not None and note is judgement.event(SAID[-1]):
        note = _exception(judgement) or judgement.event("signal") or note  # launchers report which rank ended, not why
    own = judgement.event("uncaught")
    own = None if own is None or "/gloo/transport/" in own.text else own
    if note is not None and own is not None and note is judgement.event("signal") and _before(own, note):
        note = own  # the process ends with a signal because of it: threads that still run
    what = judgement.event("what")
    if note is not None and note.text.lstrip().startswith("terminate called") and _behind(note, what, 2):
        note = what  # the exception's own words
    error = judgement.event("nccl-error")
    if warning is not None and note is error and note is not None and "Xid" not in note.text:
        note = warning  # NCCL reported the program's error with its cause
    last = judgement.event("last-error")
    if warning is None and gone is not None and (note in (None, error) or place(gone) < place(note)):
        note = gone
    elif last is not None and note is error:
        note = last  # the text of NCCL's error follows
    note = note or judgement.earliest("trace")[0]
    if note is None and (closed := judgement.event(_CLOSED)) is not None:
        note, gone = own or closed, closed
    if note is None:
        return None
    text = quoted(note)
    if note is gone:
        signal = judgement.event("signal")
        died = _stack(judgement, signal) if signal is not None else ""
        cause = "the logged error follows from an earlier failure, which is not in the log (%s)" % text
        if signal is None and (peer := _PEER.search(text)):
            cause += "; mostly the process at %s ended first: read its log" % peer[1]
        cause += died and "; the process of the printed stack ended" + died.removeprefix(",")
    elif note is last or note is what or note in said or note is _exception(judgement):
        cause = "the first sign of it is: %s%s%s" % (text, meant(note.text), _stack(judgement, note))
    else:
        trace = _TRACE_END.search(text)
        result = nccl_results().get(int(trace[1])) if trace else None
        cause = "no warning is shown, only an error trace that begins at %s%s" % (
            text,
            " (%s)" % result.meaning if result else "",
        )
    kernels = judgement.event("xid")
    return cause + (_xid_words(kernels, note) if kernels else "") + later_run(judgement, note)


def is_xid(note: Note) -> bool:
    """Return whether a line of the kernel's is an Xid: others are about NICs and PCI devices, too."""
    return _XID.search(note.text) is not None


def _xid_words(kernels: Note, note: Note) -> str:
    """Quote the kernel's first line next to a job's end if it is an Xid, and the end's line has none already."""
    told = is_xid(kernels) and "Xid" not in note.text
    return "; the driver's log shows %s%s" % (quoted(kernels), meant(kernels.text)) if told else ""


def _before(one: Note, other: Note) -> bool:
    return one.source == other.source and one.line < other.line


_FRAME = re.compile(
    r"([\w.+-]+\.so[\d.]*)\((\w*)|0x[0-9a-f]+ (\w+\(\))|File \"(?:[^\"]*/)?([^\"/]+/[^\"/]+\", line \d+ in \w+)"
)
_NEAR = 40  # lines after a signal in which its stack may begin, between the output of other processes


def _stack(judgement: Judgement, note: Note) -> str:
    """Add to the signal's own text the library or function of the process."""
    frame = judgement.event("frame")
    if frame is None or frame.source != note.source or not 0 < frame.line - note.line <= _NEAR:
        return ""
    match = _FRAME.search(frame.text)
    return "" if match is None else ", in %s" % " of ".join(filter(None, match.groups()[::-1])).replace('"', "")


def _behind(note: Note, other: Note | None, most: int) -> bool:
    """Return whether another line closely follows one, in the same stream."""
    return other is not None and other.source == note.source and 0 <= other.line - note.line <= most


def ended_in_cuda(judgement: Judgement) -> bool:
    """Return whether a failing job's first sign of its end is a failed CUDA call."""
    notes = [note for note in crash_lines(judgement) if judgement.crash]
    first = min(notes, key=place, default=None)
    return first is not None and _CUDA.search(first.text) is not None


def later_run(judgement: Judgement, note: Note) -> str:
    """Return a note that a later run in the same log did not fail; else nothing."""
    ends = [table.get("avg_line", 0) for table in judgement.tables if table["complete"]]
    if len(judgement.job.sources) == 1 and max(ends, default=0) > note.line:
        return LATER
    return ""


def warning_said(judgement: Judgement) -> str:
    """Return the first warning of a log without other evidence."""
    note = judgement.earliest("warn")[0] or follows(judgement) or judgement.unexplained()
    return "" if note is None else "; it does warn: %s" % quoted(note)
