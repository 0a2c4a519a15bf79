"""Lines of a program, a launcher or the kernel that mention a failure in words that no rule matches.

A line that reports a failure prevents a healthy judgement, whatever wrote it; the line is quoted, and no fault is
named. Some lines are excluded: those that report no failure (0 errors), a level of warning or less, retries or
alternatives, and a setting or a file that a shell's tool searched for.
"""

from __future__ import annotations

import re
from typing import Collection

from ..lines.patterns import needed

# Words that count at any level.
_SAID = (
    rb"(?:[Jj]ob|[Tt]raining|[Ww]orker|[Pp]rocess|[Nn]ode|[Rr]ank|[Ee]ngine|[Ss]cheduler|[Aa]ctor|[Cc]ontainer"
    rb"|[Ss]tep|GPU|[Ll]ink|[Dd]evice|[Pp]eer|[Hh]ost)s?\b"
    rb"(?![^.:;]{0,40}(?:\b(?:be|never|not) |[,(] ?(?:0|no) ))[^.:;]{0,40} (?:[Ff]ailed|FAILED|died|crashed|diverged"
    rb"|aborted|was killed|was preempted|(?:is )?unreachable|hit an exception|(?:(?:is|was|are) )?lost|hung"
    rb"|(?:is|has been) stuck|is hanging|(?:is |was )?(?:marked )?dead)\b|\bnot responding\b"
    rb"|\bdue to (?:an? )?(?:failure|exception|error|hang)|\b(?:[Hh]ang|[Dd]eadlock|[Ss]traggler|SDC|DBE) detected"
    rb"|\b[Dd]etected (?:an? )?(?:hang|deadlock|straggler)\b"
    rb"|\d seconds exceeded|called MPI_Abort"  # texts of XLA and MPICH
    rb"|NCCL DIAG \[INFO\] (?:.{1,200}(?:mismatch|failed|inactive|inconsistent|corrected volatile)"
    rb"|p2p: (?:only )?\d).*"  # NCCL_RUN_DIAGNOSTICS and RAS since 2.31: good results have [OK]
    rb"|\"nwrong\": (?:-|[1-9]|0\.\d*[1-9]|NaN).*|\"okay\": \"false\""  # a JSON report without its beginning
    rb"|\bOOMKill(?:ed|ing)\b|Memory cgroup out of memory|Warning +(?:Evicted|Preempted|NodeNotReady|SystemOOM)\b"
    rb"|failed for remote transport|(?:died|exited|disconnected) unexpectedly|unexpectedly disconnected"
    rb"|Watchdog timeout(?! (?:is |was )?set to \d)|[Bb]arrier timeout|Restarting worker group"
    rb"|Could not resolve hostname"
    rb"|has lost communication|\b[Ll]ost (?:connection|contact) (?:to|with)\b|Back-off restarting failed"
    rb"|\b(?:[Ff]atal|[Uu]nhandled|[Uu]ncaught|[Aa]n) (?:error|exception)(?: occurred|, exiting| in\b| at\b)"
    rb"|[Gg]iving up\b|[Gg]ave up\b|[Aa]bnormal(?:ly)? (?:termination|ended)|(?:[Ee]xiting|ended|finished) abnormally"
    rb"|(?:[Ss]tatus|STATUS|[Ss]tate|STATE|[Rr]esult|RESULT|[Pp]hase)['\"]?\s?[=:.]\s?['\"]?(?:FAIL|[Ff]ail)"
    rb"|\b(?:level|levelname|severity)\W{1,5}(?:error|ERROR|fatal|FATAL|panic|critical|CRITICAL)\b"
    rb"|:\d{1,5}: (?:non-zero status: |NULL value )"  # NVSHMEM (common/util.h: NVSHMEMI_NZ_ERROR_JMP, _NULL_ERROR_JMP)
    rb"|^F\d{4} [\d:.]{8,20} .{0,100}\.cc:\d"  # glog's fatal level
    rb"|^Timeout \(\d{1,3}:\d\d:\d\d\)!|^\+* ?exit [1-9]\d{0,2}\s*$|\b[Mm]issing ranks?\b:? ?\[?\d"
    rb"|(?:^|[\]:] )(?:pg|PG|[Pp]rocess group|[Cc]ollective|NCCL|[Ss]tore|[Rr]endezvous) timeout"
    rb"\s*(?:$|[!.]$|in |on |after )"
    rb"|^(?:\[rank\d{1,7}\]:)?\[?E\d{4} [\d:.]{8,20} \d{1,20} \S{0,80}torch/distributed/"
    rb"|soft lockup|blocked for more than \d|general protection fault|segfault at |[Kk]ernel panic"
    rb"|unable to handle page|\(most recent call first\)|^goroutine \d+ \[running\]"
    rb"|(?:[Ee]xited|\brc|\bret|\$\?|return ?code)\W{1,3}(?:with |code |signal ){0,2}-?[1-9]\d{0,2}\)?\s*$"
    rb"|\breturned\W{1,2}(?:-|(?:with |code |signal ){1,2})[1-9]\d{0,2}\s*$"
    rb"|\b[Rr]estarting (?:the )?(?:container|worker|pod|job|process|ranks?|training|agent|all)\b"
    rb"|\b(?:will be|was|were|been) restarted\b|\b[Rr]estart(?:s| count)\W{1,3}[1-9]"
    rb"|\b[Ss]ignal \d{1,2} received|(?:[Gg]ot|[Cc]aught) SIG[A-Z]|\bSIG[A-Z]{2,4} received"
    rb"|terminated (?:by|on|with|from) signal \w|cgroup out-of-memory|^\[\d{1,3}\][+-]? +Exit [1-9]"
    rb"|\bEXIT_?(?:CODE|STATUS)\W{1,3}[1-9]"
    rb"|[Ee]xiting with (?:code|status) [1-9]|BackoffLimitExceeded|\bNODE_FAIL\b"
    rb"|\b[Jj]ob\b.{0,30} (?:was |has been )?[Cc]ancell?ed\b|[Cc]ancell?ed by (?:user|signal)"
    rb"|[Pp]reemption notice (?:received|detected)"
    rb"|exceeded (?:its|the) (?:deadline|time limit|walltime)|[Ss]omething went wrong"
    rb"|\b[Ll]ink (?:is )?down\b(?! ?(?:events?|counte?r?|:? ?0))|\b[Nn]ode\S{0,40} is down\b"
    rb"|[Ll]ink (?:is )?flapp(?:ed|ing)"
    rb"|(?:[Ll]ink|PCIe|NIC|GPU|[Nn]ode)\b.{0,30}(?<!not) degraded\b|lowdown *: Active|GPU reset begin"
    rb"|[Ii]ncorrect results?(?: at| found| detected|:)|[Mm]ismatch (?:detected|found) at"
    rb"|[Rr]esults? do(?:es)? not match"
    rb"|AddressSanitizer: |==\d{1,7}== ?Invalid (?:read|write) of|^(?:[Ss]tack|[Bb]ack) ?trace:\s*$"
)
_NOT_A_NUMBER = (
    rb"[Ll][Oo][Ss][Ss]\W{0,6}(?:(?:[Ii][Ss]|became|value) {1,2})?[:=]? ?[+-]?(?:nan|NaN|NAN|inf|Inf|[Ii]nfinity)\b"
    rb"|[Nn]orm\W{0,4}(?:nan|NaN|NAN|inf|Inf|[Ii]nfinity)\b"
    rb"|\b(?:NaN|nan)s? (?:loss|grad|detected|encountered|found)|[Ff]ound (?:nan|NaN|NAN)\b"
)
# Words of failure, unless the line negates them.
_WORD = (
    rb"(?<![\w./=-])(?:[Ee]rrors?|ERRORS?|ERR|[Ff]ailed|FAIL(?:ED)?|[Ff]ailures?|FAILURE|[Ff]atal|FATAL"
    rb"|[Aa]bort(?:ed|ing)|ABORT(?:ED|ING)|Abort trap|[Cc]rashed|CRASHED|died|Died|[Kk]illed|[Ee]xceptions?"
    rb"|[Uu]nhandled|[Uu]ncaught|[Uu]nreachable|[Cc]orrupt(?:ed|ion)|[Ee]victed|[Pp]reempted|[Dd]iverged"
    rb"|[Tt]imed out|[Oo]ut of (?:host )?memory|OOM|panicked|PANIC|[Ss]egfault|[Ss]egmentation fault"
    rb"|Illegal instruction|[Dd]eadlock(?:ed)?|[Uu]nsuccessful(?:ly)?|[Ii]nterrupted|CUDA_ERROR_[A-Z_]{1,60}"
    rb"|(?:CUBLAS|CUDNN)_STATUS_(?!SUCCESS)[A-Z_]{1,60}|illegal memory access|(?:Node)?NotReady|\w{0,20}BackOff"
    rb"|FailedScheduling|No devices were found|Xid(?= \d)|[Ww]rong results?|(?:result|validation|checksum) mismatch"
    rb"|No space left on device|Read-only file system|Disk quota exceeded|Stale file handle"
    rb"|Transport endpoint is not connected"
    rb"|Too many open files|Cannot allocate memory|Connection re(?:set|fused)"
    rb"|[Cc]onnection (?:closed unexpectedly|lost)|Broken pipe|No route to host|Host is down|[Rr]etries exceeded"
    rb"|[Ee]xhausted all retries|MPI_ERRORS_ARE_FATAL"
    rb"|loss scale (?:already at|reached) minimum|[Mm]inimum loss scale reached|not completed?|not reached"
    rb"|[Uu]nable to complete|std::bad_alloc|CRITICAL(?= ?[|:\]])|[Uu]nhealthy|Hangup|DeadlineExceeded"
    rb"|[Nn]o heartbeats? (?:from|for)|(?:not reported|[Ll]ost|[Mm]issed) heartbeats?|[Hh]eartbeat timeout for"
    rb"|made no progress|[Nn]o progress (?:for|in)|did not (?:respond|answer)|[Tt]imeout waiting for"
    rb"|pure virtual method called"
    rb"|[Cc]ompletion error|in a bad state|specified backoff limit|[Ss]pot (?:[Ii]nstance )?[Ii]nterruption"
    rb"|TaintManagerEviction"
    rb"|[Cc]ommand not found|No such file or directory|Permission denied)"
    rb"(?![\w/-])"
)
_LOWER = re.compile(
    rb"(?<![=\w])(?:INFO|DEBUG|TRACE)\b|(?<!=)WARN|(?<!=)[Ww]arning\b|^(?:\[rank\d{1,7}\]:)?\[?[IWD]\d{4} |^# "
    rb"|level\W{1,4}(?:info|debug|warn)"
)
# Retries and alternatives, or messages of a terminal and the tools of a shell.
_HANDLED = re.compile(
    rb"\b[Rr]etry(?:ing)?\b(?! count)|[Tt]rying (?:again|next)|[Aa]ttempt \d+/\d+|[Ii]gnor(?:ed?|ing)\b"
    rb"|[Ss]kipp(?:ed|ing)\b| have sent help message help-mpi-btl-|base_help_aggregate"
    rb"|[Rr]ecovered\b|[Ff]all(?:ing)?[ -]?back\b|couldn't chdir|[,;] using |from scratch\b|[Nn]on-?fatal"
    rb"|Inappropriate ioctl|\b(?:TTY|tty)\b|^setlocale: |^(?:pip: )?ERROR: pip's dependency"
    rb"|^fatal: not a git repository"
    rb"|^fatal: detected dubious|^wandb: |^git describe |(?:[Ee]val|pass@\d{1,3}|[Aa]ccuracy)\b\W.{0,60}\d failed"
    rb"|^(?:ls|cat|rm|rmdir|tail|head|find|stat|grep|chmod|chown|mkdir): .*(?:No such file|Permission denied|exists)"
)
_SPOKEN = re.compile(
    rb"\W*(?:If|When|In case) "
    rb"|.{0,80}\b(?:[Pp]rompt|[Qq]uestion|[Aa]nswer|[Gg]enerat(?:ed|ion)|[Ss]ample)[\"']?\s?[:=]\s?\""
)  # possible future events, and a model's prompts and outputs
SAMPLE = re.compile(
    rb"(?<![\w-])((?:[Pp]rompt|[Cc]ompletion|[Qq]uestion|[Aa]nswer|[Ii]nstruction|[Gg]enerated[_ ]text|chosen|rejected)"
    rb"[\"']?\s?[:=]\s?)(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
)  # a whole string; a log under their names (message, text, content, error) is not a sample of a model's data
_NONE = re.compile(
    rb"(?i)(?<![\w.-])(?:(?:no|zero|without|with no|if|any|whether|unless|ignore)\W{1,2}(?:\w{1,20} ){0,2}"
    rb"|(?:never|be|not|on|or|will|may|might)\W{1,2}(?:been |an? )?"
    rb"|(?:will|would|may|might|can|could) (?:result in|lead to|cause|produce|raise) (?:\w{1,20} ){0,2})$"
)
_COUNTED = re.compile(rb"(?<![\w.-])0 (?:\w{1,20} ){0,2}$")
_NUMBERED = re.compile(
    rb"(?i)\b(?:rank|gpu|device|node|host|link|port|worker|job|step|process|task|pod|replica|stage|shard|channel|nic"
    rb"|cpu|group|epoch|index|id|on|at)\W{0,2}0 (?:\w{1,20} ){0,2}$"
)  # the 0 of "GPU 0 failed" is not a count
_ZERO = re.compile(
    rb"(?i)(?: (?!rank|gpu|node|host|device|link|port|worker|after|in |with)\w{1,20})?\s?\W{0,3}[:=.]*\s*"
    rb"(?:0(?=\s*(?:$|[^\s\w.])|\s+\w+\W{0,3}\d)|(?:none|false|null)(?: (?:found|seen|detected))?\s*(?:$|[^\s\w])"
    rb"|<N/A>|\[\]|\{\}|[\[{]\s*$)"
)
_OF_NUMBERS = re.compile(rb"(?i)\b(?:max|mean|relative|absolute) (?:\w{1,20} )?$")
_MEASURED = re.compile(rb"(?i)(?: \w{1,20})?\s?\W{0,2}[:=.]*\s*(?:\d*\.\d+(?![.\d])|\de-\d)")
# In a stack that follows a signal: the first frame that is neither of the C library nor of the printing library (Open
# MPI, UCX, Python's faulthandler).
FRAME = (
    rb"^(?:\[\S{1,80}\] ?| {1,4})\[? ?\d{1,3}\]? +/\S*/(?!lib(?:c|pthread|ucs|glog|stdc\+\+)[-.])"
    rb"[\w.+-]+\.so[\d.]*\(\S*\+0x"
    rb"|^ *\d{1,3} 0x0{4}[0-9a-f]{8,12} (?!killpg|gsignal|raise|abort|_|\?)\w+\(\)"
    rb'|^  File "[^"]{1,300}", line \d{1,7} in \w'
)
_SETTING = re.compile(
    rb"[ -](?:feedback|correction|compensation|analysis|rates?|bars|injection|log"
    rb"|(?:handlers?|handling)(?= to\b| mode| installed| enabled| registered|:|\s*$))"
)
_STARTS = 60  # bytes before a word that may negate it

_ALSO = (
    rb"Timeout (|exit |issing rank| timeout|torch/distributed/| lost| stuck| hung| hanging|due to hang|C detected"
    rb"|E detected|etected |MPI_Abort|DIAG [INFO]|OOM|cgroup|nwrong|okay|Warning  |seconds exceeded"
    rb"| dead|not responding|g detected|k detected|r detected"
    rb"|for remote tr|unexpectedly|Watchdog|arrier timeout|arting worker|resolve host|ost con|ost communication"
    rb"|Back-off|exception|iving up|ave up|bnormal|fail|Fail|panic|critical|CRITICAL|NULL value|non-zero status"
    rb"|soft lockup|blocked for|rotection fault|ernel panic|handle page|recent call|goroutine|xited| rc="
    rb"|returncode|ret=|rc=| ret |ret:|$?|returned|estarting |estarted|estarts|estart count|ignal |ot SIG"
    rb"|aught SIG|preempted| Exit |EXIT|xiting with|BackoffLimit|NODE_FAIL"
    rb"|ancelled|anceled|reemption notice|exceeded its|exceeded the|omething went wrong| down|flapp|degraded|lowdown"
    rb"|GPU reset|ncorrect result|ismatch | not match"
    rb"|AddressSanitizer|nvalid read of|nvalid write of|ack trace|acktrace|tacktrace"
).split(b"|")
_NUMBERS = (
    *(
        b": nan",
        b"=nan",
        b" nan",
        b"NaN",
        b"NAN",
        b"=inf",
        b"= inf",
        b": inf",
        b"oss inf",
        b"orm inf",
        b"-inf",
        b"+inf",
    ),
    *(b" Inf", b"=Inf", b":Inf", b"nfinity", b'":inf', b"is inf", b"| inf", b"became inf", b"value inf"),
)
UNLESS = {b" nan": b" iterations"}  # Megatron's line of each step counts them
WORDS = tuple(dict.fromkeys((*needed(_WORD), *_ALSO, *_NUMBERS)))  # such a line holds one of them
_FAILED, _NAN, _WORDED = "failed", "not a number", "a word of failure"
FAILURES = ((_FAILED, _SAID), (_NAN, _NOT_A_NUMBER), (_WORDED, _WORD))


def without_samples(raw: bytes) -> bytes:
    """Return a line without a model's prompts and outputs, which may quote any error: strings under such a name."""
    return SAMPLE.sub(rb"\1''", raw) if b"'" in raw or b'"' in raw else raw


def reports_failure(raw: bytes, said: Collection[object]) -> bool:
    """Return whether a line with the FAILURES in ``said`` mentions one and does not negate it."""
    patterns = [pattern for name, pattern in ((_FAILED, _SAID), (_NAN, _NOT_A_NUMBER)) if name in said]
    if not (patterns or _WORDED in said) or _SPOKEN.match(raw):
        return False
    if any(not _taken_back(raw, match) for pattern in patterns for match in re.finditer(pattern, raw)):
        return True
    if _WORDED not in said:
        return False
    first = next((match for match in re.finditer(_WORD, raw) if not _taken_back(raw, match)), None)
    if first is None or _HANDLED.search(raw):
        return False
    level = _LOWER.search(raw)
    return level is None or level.start() > first.start()


def reported_as_failure(raw: bytes, pattern: bytes) -> bool:
    """Return whether a line reports the match of a pattern as a failure that happened now.

    Possible future failures, retried ones, and those that the program logs below error level do not count; a bare WARN
    at the start is NCCL's own.
    """
    level, matched = _LOWER.search(raw), re.search(pattern, raw)
    lower = (
        level is not None and matched is not None and level.start() < matched.start() and not raw.startswith(b"WARN ")
    )
    return not (lower or _SPOKEN.match(raw) or _HANDLED.search(raw))


def reported_as_harmless(raw: bytes) -> bool:
    """Return whether a line is a log record below level error, or reports a retry or a skipped step."""
    return raw[:1] == b"{" or any(form.search(raw) for form in (_LOWER, _HANDLED)) or _SPOKEN.match(raw) is not None


def _taken_back(raw: bytes, word: re.Match[bytes]) -> bool:
    before = raw[max(0, word.start() - _STARTS) : word.start()]
    counted = _COUNTED.search(before) is not None and _NUMBERED.search(before) is None
    if counted or _NONE.search(before) is not None or _ZERO.match(raw, word.end()) is not None:
        return True
    if word.group().lower() not in (b"error", b"errors", b"exception", b"exceptions", b"failure", b"failures"):
        return False
    return (
        _OF_NUMBERS.search(before) is not None
        or _MEASURED.match(raw, word.end()) is not None
        or _SETTING.match(raw, word.end()) is not None
    )
