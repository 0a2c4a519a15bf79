"""Evidence that is not NCCL's own: PyTorch, launchers, Slurm, signals, nccl-tests' errors.

A job that stopped making progress (watchdog, time limit) hangs; a job with a process that ended with an error crashed.
Lines of a launcher that only repeat it ("primary job terminated") are consequences.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Optional, Set, Tuple, Union

from ..lines.clean import printable
from ..lines.patterns import DIGITS, HEX_DIGITS, AnyOf, Patterns, needed
from ..lines.prefix import launcher_tag
from . import left_out, trouble, unheaded
from .symptoms import BENIGN, CAUSE, CONSEQUENCE, FOREIGN_WORDS, SYMPTOMS, Symptom, classify, may_show
from .trouble import FAILURES, FRAME, WORDS, reports_failure

if TYPE_CHECKING:
    from ..state.process import Source

_WATCHDOG = re.compile(
    rb"\[(?:(PG[^\]]{0,120}) )?Rank (\d{1,7})\]\s+Watchdog caught collective operation timeout: "
    rb"WorkNCCL\(SeqNum=(\d{1,15})"
)
# after it, with the group that the line before does not name (PyTorch 2.8 and later)
_DETECTED = re.compile(
    rb"\[(PG[^\]]{0,120}) Rank (\d{1,7})\]\s+failure detected by watchdog at work sequence id: (\d{1,15})"
)
_NEXT = re.compile(rb"(?=\[rank\d{1,7}\]:)|(?<!\]:)(?=\[E(?:\d{4}| ProcessGroup))")  # reports without a line end
_WATCHDOG_ANY = (
    rb"Watchdog caught collective operation timeout|watchdog got stuck|failure detected by watchdog"
    rb"|Timeout at NCCL work|ProcessGroupNCCL watchdog hang|due to (?:a )?collective timeout"
    rb"|no heartbeat of its watchdog|Heartbeat monitor timed out"
    rb"|Timed out waiting \d{1,9}ms for (?:send|recv) operation to complete"
    rb"|Watchdog timeout \(self\.watchdog_timeout|RPC call to \w{1,40} timed out"  # texts of SGLang and vLLM
)
# vLLM's pynccl names the library it loaded; torch.cuda.nccl.version() is a tuple.
_APP_NCCL = re.compile(
    rb"\busing nccl==(\d{1,2}\.\d{1,3}\.\d{1,3})\b"
    rb"|\b(?:NCCL|Nccl|nccl)(?: [Vv]ersion)?\s?[=:]?\s?\((\d{1,2}), (\d{1,3}), (\d{1,3})\)"
)
_OLD_WARN = re.compile(rb"\.(?:h|cu|cc):\d{1,5} WARN ")  # NCCL 2.2 and older; the head may be missing
_APP_WORLD = re.compile(rb"\b(?:world[_ ]size|WORLD_SIZE)\s*[=:]\s*(\d{1,6})\b", re.IGNORECASE)
# gloo::rendezvous: '[Gloo] Rank 9 is connected to 15 peer ranks. Expected number of connected peer ranks is : 15'
_GLOO_PEERS = re.compile(
    rb"\[Gloo\] Rank \d{1,7} is connected to \d{1,7} peer ranks\. Expected number [^:]{1,60}: (\d{1,6})"
)
_RAS_ROW = re.compile(rb"\s*(\d{1,6})\s+[\d-]{1,13}\s+[\d-]{1,13}\s+\d{1,7}\s+(\d{1,7})\s*$")
_SIGNALS: Tuple[Tuple[str, bytes], ...] = (
    (
        "time-limit",
        rb"CANCELLED AT .* DUE TO TIME LIMIT|DUE TO TIME LIMIT|Job step aborted.*time limit|exceeded time limit",
    ),
    ("not-read", rb"\(not read: "),  # the text inserted at the place where reading of a stream stopped
    ("test-timeout", rb"Test timeout \(\d+s\)"),
    ("dead-peer", rb"RAS declaring peer .* as DEAD"),
    ("test-failure", rb"Test (?:NCCL|CUDA) failure"),
    ("test-stack", rb"\.\. \S+ pid \d+: Test failure"),
    (
        "nccl-error",
        rb"(?:Runtime|Accelerator)Error: (?:Failed: )?CUDA error|\bCUDA(?:RT)? (?:driver )?error: (?!no error)"
        rb"|\bCUDA runtime error in |\bCUDA failure \d{1,4}: "
        rb"|NCCL communicator was aborted|Some NCCL operations have failed or time|DistBackendError: NCCL error"
        rb"|NCCL error in:|NCCL_ERROR_(?!IN_PROGRESS)[A-Z]{5}"
        rb"|\bNCCL Error [1-6]: "
        rb"|ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclRemoteError|ncclInvalid(?:Usage|Argument)"
        rb"|^NCCL error |Failed[,:] NCCL error \S{1,200}:\d{1,6} '"
        rb"|: NCCL (?:failure|error)[ :]|unhandled (?:system|cuda) error"
        rb"|is setting up NCCL communicator .* got error",
    ),
    ("gloo-error", rb"\[rank\d{1,7}\]: RuntimeError: \[\S{1,200}/gloo/transport/"),
    (
        "signal",
        rb"(?:died from|terminated with) signal (?:6|7|8|11)\b"
        rb"|dumped core|Segmentation fault|SIGSEGV|SIGABRT|Signal: (?:Segmentation"
        rb"|Aborted|Bus)|GPU has fallen off the bus|exited on signal (?:6|7|8|11)\b|Fatal Python error"
        rb"|\(core dumped\)|terminate called |double free or corruption|stack smashing detected"
        rb"|free\(\): invalid "
        rb"|free\(\): corrupted |Memory access fault by GPU|malloc\(\): |munmap_chunk\(\): "
        rb"|corrupted (?:size vs\. prev_size|double-linked)"
        rb"|Assertion `[^'`]{1,300}['`] failed|\.\w{1,3}:\d{1,5}\] Check failed: |==== backtrace \(tid",
    ),
    ("oom-kill", rb"oom[-_]kill|[Oo]ut of memory: Kill|OOMKilled"),
    (
        "launch-failed",
        rb"not enough slots available|There are not enough slots|ORTE (?:was unable|does not know)"
        rb"|unable to reliably start|Host key verification failed|mpirun was unable to (?:launch|find)"
        rb"|prte was unable|Invalid number of GPUs|invalid sizes for|could not find (?:an )?executable",
    ),
    (
        "terminated",
        rb"noticed that process rank|exited with non-zero status|a non-zero exit code"
        rb"|srun: error: .*(?:task|Terminated|Killed|Exited with exit code)|process 1? ?returned"
        rb"|has exited due to process rank|BAD TERMINATION OF|MPI_ABORT was invoked|exitcode *: -?[1-9]\d* \(pid"
        rb"|failed \(exitcode: -?[1-9]|exits with return code = (?!-(?:2|15)\b)-?[1-9]"
        rb"|elastic\.multiprocessing\.errors\.\w*ChildFailedError"
        rb"|\bException [^\n]{0,60}detected by watchdog|\*\*\* Process received signal|Fatal error in P?MPI_"
        rb"|^Abort\(\d{1,10}\) on node |processes terminated badly",
    ),
    # Ends that need not be a failure (a user, a launcher that cleans up), and errors that were caught. None makes a go.
    (
        "ended",
        rb"(?:^|\]:? |>: ?|Z )(?:\S{1,80}: line \d+: +\d+ )?(?:Killed|Terminated|Bus error|Aborted)\b"
        rb"|CANCELLED AT |(?:terminated|exited|exits) with (?:exit |return )?(?:code|status)[=: ]{1,3}-?[1-9]"
        rb"|(?:[Ee]xit|[Rr]eturn) (?:code|status):? -?[1-9]|Node failure on |[Ee]xit signal"
        rb"|node was low on resource|(?:[Rr]eceived|[Cc]aught|[Ss]ending) (?:signal (?:SIG)?[A-Z1-9]|SIG[A-Z])"
        rb"|closed by remote host"
        rb"|Forwarding signal \d|Force Terminated|Job step aborted|closing signal SIG"
        rb"|Error waiting on exit barrier"
        rb"|\[[EF]\d{0,4} (?:[\d:.]{1,24} )?\w{1,80}\.cpp:\d"  # torch's own errors (c10/util/Logging.cpp)
        rb"|\b(?:FATAL|CRITICAL|panic): |NCCL[^\n]{0,60}(?:timed out|timeout detected|hang detected)"
        rb"|NCCL watchdog timeout(?! ?(?:of|is|set to|to|[:=]) ?\d)"
        rb"|[Cc]ollectives? timed out|gloo/transport/\S{1,60}:\d{1,5}\] "
        rb"|Received \d{1,2} death signal|usually means the child failed",
    ),
    ("traceback", rb"Traceback \(most recent call last\)"),
    # the kernel's own texts about a GPU, a NIC or a PCI device (nvidia.ko, mlx5_core, pcieport); "Link up" is not one
    # of them
    (
        "xid",
        rb"NVRM: (?:Xid|GPU at |.{0,80}(?:fail|error|fallen|lost))|nvidia-nvswitch\d{1,3}: SXid"
        rb"|[Uu]ncorrectable ECC error encountered|pcieport .{1,40}AER: |fell off the bus"
        rb"|mlx5_core .{1,80}(?:Link down|health|compromised|fail|error|err\()"
        rb"|Unable to determine the device handle",
    ),
    # The output of a rank's own program: torchrun's table of exit codes
    # (torch/distributed/elastic/multiprocessing/errors) names no cause unless the program uses its @record, and prints
    # its own ChildFailedError. torch puts the rank before uncaught exceptions (torch/distributed/distributed_c10d.py,
    # _distributed_excepthook); others may have been caught.
    (
        "uncaught",
        rb"# seatrial bench: rank \S+ failed: "
        rb"|\[rank\d{1,7}\]: (?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ",
    ),
    (
        "exception",
        rb"(?:^|\]:? ?|>: ?|\) |^E {2,8}"
        rb")(?!\S*ChildFailedError)(?:[A-Za-z_]\w*\.)*(?:_?[A-Z]\w*(?:Error|Exception)|Exception(?=:))"
        rb"(?:\([\w.]{1,80}\))?(?:: |\s*$)"
        rb"|(?:^|\]: )(?:KeyboardInterrupt|SystemExit: [1-9]|StopIteration)"
        rb"|(?:^|\]:? )(?:[A-Za-z_]\w*\.)+[A-Z]\w*"
        rb"(?:NotFound|Timeout|Expired|BadZipFile|Refused|Closed|Exhausted|OutOfResources): ",
    ),
    # of torch's compiler and of others that name an exception by its event
    ("exception", rb"(?:^|\]:? )(?:[A-Za-z_]\w*\.)+[A-Z]\w{2,60}(?:Failed|Unsupported|Invalid): "),
)
# A GPU's name as nvidia-smi, torch and engines print it, and its compute capability in a dump of NCCL's topology.
_GPU = re.compile(
    rb"\bGeForce(?=[ -](?:[GR]TX?|MX|\d))|\b(?:Tesla|Quadro)(?=[ -][A-Z])|\bA100(?=-(?:SXM|PCI))"
    rb"|\bNVIDIA[ -](?!GeForce)(?:RTX|TITAN|[A-Z]{1,2}\d{1,4}S?)\b(?!/)|<gpu dev=\"\d{1,3}\" (sm=\"\d{2,3}\")"
)
NAMES_GPU = "gpu-name "
_MOST_NAMES = 16
# Lines that are examined in detail.
_WORDS = (
    rb"#|NCCL|RCCL|(not read: |RAS decl|WARN |TIME LIMIT|Timeout at|Test |Terminated|DistBackend|DUE TO"
    rb"|Segmentation|Signal: |ORTE |Host key|Invalid num|Avg bus|CANCELLED|] INFO |PRTE|WORLD_SIZE|_perf"
    rb"|world_size|slots|non-zero| with PID|dumped core|kill|watchdog|executable|exitcode|invalid sizes"
    rb"| pid |usbw|usBw|usBW|us BW|algbw: |average bandwidth of |---- Performance of |nccl=(| Pid "
    rb"|Collective test|using nccl==|libibverbs: W|PollConnect: |ocalGid | dgid |[Gloo] Rank|per process  "
    rb"|core dumped|terminate called|double free|Forwarding signal|xit code|xit status|with code "
    rb"|with status |Traceback (|Heartbeat m|received signal|due to process|BAD TERM|Force Term|.cpp:"
    rb"|ncclSystem|ncclInternal|ncclRemote|ncclInvalid|was unable|reliably start|gloo/transport/"
    rb"|death signal|SIG|NVRM: |mlx|AER: |fell off|fallen off|rrectable ECC|determine the device|KeyboardI"
    rb"|SystemExit|StopIter|Memory access f|version mism|FullMesh|MNNVL |Assertion `|stack smash|malloc()"
    rb"|free(): |eturn code|eturn status|low on resource|losed by remote|aught sig|ending sig|xit signal"
    rb"|node was|subset of ranks|publickey|Duplicate GPU|Address already|CUDA-capable|libnccl-net"
    rb"|new thread|waiting for clients|shared memory (shm)|shared memory seg|NVML dev|UCX ret|+0x"
    rb"|] Check failed|backtrace (tid|NotFound: |Timeout: |Expired: |BadZipFile: |Refused: |Closed: |Exhausted: "
    rb"|what(): |Failed: |Unsupported: |Invalid: |OutOfResources: |GeForce|Tesla|Quadro|A100-SXM|A100-PCI"
    rb"|NVIDIA RTX|NVIDIA TITAN|NVIDIA A|NVIDIA B|NVIDIA G|NVIDIA H|NVIDIA L|NVIDIA T|gpu.product|<gpu dev="
).split(b"|")
# Of a stack's frames: the number before an address, and that of a line without the comma of Python's tracebacks.
_FRAMES = tuple(b"%d%s" % (digit, behind) for behind in (b" 0x0000", b" in ") for digit in range(10))
DCGM = b"dcgmi diag> "
"""The beginning of a line about a result of DCGM's diagnostics (seatrial/logs/json_reports.py)."""
DIAGNOSIS = re.compile(rb'"DCGM (?:GPU )?Diagnostic"\s*:|\| Diagnostic {2,}\| Result')
"""The beginning of a DCGM report that was not converted: it is wrapped in a form that hides it."""
# A line with content has at least one of these words.
MATTERS = tuple(
    dict.fromkeys(
        (*_WORDS, DCGM, b'"DCGM ', b"| Diagnostic ", *left_out.WORDS, *_FRAMES, *WORDS, *FOREIGN_WORDS, *unheaded.WORDS)
    )
)
# Every operation begins with the program's request to NCCL, which is not needed here.
UNLESS = {**trouble.UNLESS, b"NCCL": b" CALL "}
MATTER = AnyOf(MATTERS, UNLESS)


def matters(raw: bytes) -> bool:
    """Return whether a line has one of the words that require a detailed examination."""
    return MATTER.contained_in(raw)


_SPEAKS = (
    rb"NCCL|CUDA|UCX|NET/OFI|libibverbs: W|PollConnect: |NVRM: Xid|waiting for clients|client socket has timed"
    rb"|cudaError|rror 802|DeepEP |ollective mismatch|Detected mismatch between coll|NVSHMEM|nvshmem|remote transport"
    rb"|RendezvousTimeout|server socket has|shared memory|start new thread|SXid|mlx5_core"
    rb"|Memory access fault|library version mismatch|connectFullMesh|NET/IB ?: Got completion|MNNVL \(cliqueSize"
    rb"|Detected mixed local|gai error|host not found: |gaierror|undefined symbol: p?nccl|libnccl\b"
    rb"|libcudart\b|libcuda\b|forked subprocess|shut down too early|c10d\] (?:send|recv)|DataLoader worker|OOM killer"
    rb"|low on memory"
    rb"|oom[-_]kill|(?<![A-Z_])OUT_OF_MEMORY|exitcode: -[79]\b|return code = -[79]\b|SIGBUS|signal 7|NVIDIA driver"
    rb"|NVML"
    rb"|monitoredBarrier|DDP expects|appears not to match|no GPUs found!|got signal: |handle for GPU|RmInitAdapter"
    rb"|NVRM: Xid|got completion with error|desired GPU mem|the cache blocks|number of required GPUs|subset of ranks"
    rb"|environment variable |loopback address|initializing process group|Rendezvous\w{5,10}Error|wait timeout after"
    rb"|MPI_I|ssh: |publickey|PMI_KVS|mpi/pmix|_init failed|PML add|No backend type|DUE TO PREEMPT"
    rb"|[sS]ocket[A-Z]\w{3,20}: |exceeded error retry|Call to (?:recv|send) (?:from|to) |Bootstrap Root ?: "
    rb"|NET/(?:IB|Socket) ?: (?:Got|[Uu]nable|[Nn]o )"
    rb"|cudaGetDeviceCount|NV_ERR_RESET_REQUIRED|Duplicate GPU detected|RuntimeError: Address already in use"
)  # words of NCCL and of the layers below it
_RAS_HEAD = b"(total)   per node  per process"  # heading in NCCL RAS's summary (ras/client_support.cc); its row follows
_LAST_ERROR = re.compile(rb"Last error:\s*$|Last error:\s*(\S.*)")
_MAX_WATCH = 65_536
MOST = 2048  # maximum number of bytes of a line that are examined

# The content that SignalReader.line takes from a line: symptoms (the first counts), names of events, as in _SIGNALS,
# and these.
_VERSION, _WATCHED, _LAST, _SPEAKING = "version", "watchdog", "last error", "speaks"
_UNHEADED = "unheaded"  # the text of an NCCL warning without its head
_LINE: Patterns[Union[str, Symptom]] = Patterns(
    (
        (_VERSION, _APP_NCCL.pattern),
        (_WATCHED, _WATCHDOG_ANY),
        (_LAST, _LAST_ERROR.pattern),
        (_SPEAKING, _SPEAKS),
        (_SPEAKING, _OLD_WARN.pattern),
        *((item, item.pattern) for item in SYMPTOMS),
        *_SIGNALS,
        *FAILURES,
        (_UNHEADED, unheaded.NAMES_ITSELF),
        ("frame", FRAME),
        ("gpu", _GPU.pattern),
        ("what", rb"^.{0,60}what\(\): "),  # text of an uncaught C++ exception, after "terminate called"
        ("sizes", rb"ocalGid | dgid |\[Gloo\] Rank|" + re.escape(_RAS_HEAD)),
    )
)
_EVENTS = tuple(what for what, _ in _SIGNALS)  # the first that a line shows counts
_SAYS_MASKED = AnyOf(
    word.translate(DIGITS)
    for word in (
        *(word for _, pattern in _SIGNALS for word in needed(pattern)),
        *(
            word
            for each in (_WATCHDOG.pattern, _WATCHDOG_ANY, _OLD_WARN.pattern, _SPEAKS, _LAST_ERROR.pattern)
            for word in needed(each)
        ),
        *WORDS,
        *FOREIGN_WORDS,
        *(b"_size", b"_SIZE", b"ocalGid ", b" dgid ", b"[Gloo] Rank", _RAS_HEAD),
    )
)


def says(line: bytes) -> bool:
    """Return whether SignalReader.line takes anything from a line that does not continue another."""
    if (b"_size" in line or b"_SIZE" in line) and _APP_WORLD.search(line) is not None:
        return True
    return len(line) > MOST or any(map(_is_heard, _LINE.matches(line))) or left_out.reports_lines_left_out(line)


def _is_heard(what: Union[str, Symptom]) -> bool:
    """Return whether a line without NCCL's head with this event has content: NCCL's own words must name a cause."""
    return isinstance(what, str) or not what.nccls or what.role == CAUSE


def tells(line: bytes) -> bool:
    """Return whether an NCCL line of this form may show more than names, whatever its digits are."""
    rest = line.replace(b"NCCL", b"").replace(b"NET/OFI", b"")
    masked = rest.translate(DIGITS)
    said = (
        matters(masked) or _SAYS_MASKED.contained_in(masked) or may_show(rest.translate(HEX_DIGITS)) or b" RC: " in line
    )
    return bool(said or _OLD_WARN.search(line) or _APP_NCCL.search(line)) or classify(line) is not None


TROUBLE = frozenset((*_EVENTS, "watchdog", "trouble"))  # events that contradict a job


def shows_event(line: bytes) -> bool:
    """Return whether a foreign line shows one of these events by name."""
    return not TROUBLE.isdisjoint(_LINE.matches(line))


_SHAPES = 20_000


def fails_within(text: bytes, shape: bytes, clean: Set[bytes]) -> bool:
    """Return whether another process wrote such an event into a line; one line of each shape is examined.

    ``shape`` is the text with hexadecimal digits made 0; ``clean`` has the shapes of lines without such an event.
    """
    if shape in clean:
        return False
    if shows_event(text):
        return True
    if len(clean) >= _SHAPES:
        clean.clear()
    clean.add(shape)
    return False


def shows_trouble(line: bytes) -> bool:
    """Return whether a foreign line shows one of these events."""
    said = set(_LINE.matches(line))
    return not TROUBLE.isdisjoint(said) or reports_failure(line, said)


class SignalReader:
    """Collects the evidence of one stream that is not NCCL's own."""

    def __init__(self, source: Source, index: int) -> None:
        self.source = source
        self.index = index
        self._last_error = 0  # lines that still belong to "Last error:"
        self._summary = False  # the next line is the row of RAS's job summary

    def expects(self) -> bool:
        """Return whether the next line belongs to the event of the last one."""
        return self._last_error > 0 or self._summary

    def version(self, text: bytes, line: int, raw: bytes) -> None:
        """Take a version that is printed without a head: ``NCCL version 2.20.3+cuda12.2``."""
        label = (
            text.decode("ascii", "replace")
            .replace(" : ", " ")
            .replace("NCCL version ", "", 1)
            .replace("RCCL version ", "RCCL ", 1)
        )
        self.source.note("version " + printable(label.rstrip(".,;:)"), 60), self.index, line, raw)

    def left_out(self, raw: bytes, line: int) -> None:
        """Note a line by which a person marks an omission."""
        self.source.note("left-out", self.index, line, raw)

    def diagnosed(self, raw: bytes, line: int) -> None:
        """Take a DCGM result, whose words show no symptom of the job, or the beginning of an unread report."""
        said = raw[len(DCGM) :] if raw.startswith(DCGM) else b"open | a report of dcgmi diag is not read in this form"
        self.source.note("dcgm " + printable(said, 640), self.index, line, raw)

    def line(self, raw: bytes, line: int) -> None:
        """Read one line that is neither NCCL's nor a table's."""
        raw = raw[:MOST]
        self._sizes(raw, line)
        said = list(_LINE.matches(raw))
        symptoms = [what for what in said if isinstance(what, Symptom)]
        symptom = next(iter(symptoms), None)
        if self._last_error:
            self._after_last_error(symptom, raw, line)
        loaded = _APP_NCCL.search(raw) if _VERSION in said else None
        if loaded:
            text = b".".join(part for part in loaded.groups() if part is not None)
            self.source.note("version " + text.decode("ascii"), self.index, line, raw)
        if _WATCHED in said:
            self.source.note("watchdog", self.index, line, raw)
            self._watched(raw)
            return
        last = _LAST_ERROR.search(raw) if _LAST in said else None
        if last:
            self._last_error = 4
            if last.group(1):
                self._after_last_error(symptom, last.group(1), line)
        event = next((what for what in said if what in _EVENTS), "trouble" if reports_failure(raw, said) else None)
        if event is not None:
            self.source.note(event, self.index, line, raw, symptom.shows if symptom else "")
        notes: List[str] = [part for part in ("frame", "what") if part in said]
        if left_out.reports_lines_left_out(raw):
            notes.append("left-out")
        for part in notes:
            self.source.note(part, self.index, line, raw)
        self._gpus(raw if "gpu" in said else b"", line)
        if b"ocalGid " in raw or b" dgid " in raw:  # the second half of a wrapped line
            self.source.note("gids", self.index, line, raw)
        if _SPEAKING in said or not all(each.nccls for each in symptoms):
            self.mention(raw, line)
            self._symptom(symptom, raw, line)
        elif _UNHEADED in said or any(each.role == CAUSE for each in symptoms):
            fault = unheaded.fault_of(raw, symptom)
            if fault is not None:
                self.source.note("unheaded " + fault, self.index, line, raw)

    def _gpus(self, raw: bytes, line: int) -> None:
        """Take the kinds of the GPUs that a line names."""
        for match in _GPU.finditer(raw):
            name = match.group(1) or match.group()
            if sum(each.startswith(NAMES_GPU) for each in self.source.events) < _MOST_NAMES:
                self.source.note(NAMES_GPU + name.decode("ascii"), self.index, line, raw)

    def mention(self, raw: bytes, line: int) -> None:
        """Take a line that names NCCL, or a layer below it."""
        self.source.note("mention", self.index, line, raw[:MOST])

    def _sizes(self, raw: bytes, line: int) -> None:
        """Take the size of the job from the program, gloo's rendezvous, or the job summary of NCCL RAS."""
        row = _RAS_ROW.match(raw) if self._summary else None
        self._summary = _RAS_HEAD in raw
        peers = _GLOO_PEERS.search(raw) if b"[Gloo] Rank" in raw else None
        world = _APP_WORLD.search(raw) if b"_size" in raw or b"_SIZE" in raw else None
        if world and 1 <= int(world.group(1)) <= 200_000:
            self.source.note("world %d" % int(world.group(1)), self.index, line, raw)
        elif peers:
            self.source.note("world %d" % (int(peers.group(1)) + 1), self.index, line, raw)
        elif row:
            self.source.note("hosts %d" % int(row.group(1)), self.index, line, raw)
            self.source.note("world %d" % int(row.group(2)), self.index, line, raw)

    def _watched(self, raw: bytes) -> None:
        for piece in _NEXT.split(raw) if raw.count(b"Watchdog caught") > 1 else (raw,):
            match = _WATCHDOG.search(piece)
            if match and not (_OF_GROUP.search(piece) and not _GLOBAL_RANK.search(piece[:400])):
                self._watch(_waiting(match, piece), int(match.group(3)))
        detected = _DETECTED.search(raw)
        if detected:
            rank, _, group = _waiting(detected, raw).partition(" ")
            self._watch(rank + IN_GROUP + group, int(detected.group(3)))

    def _watch(self, rank: str, number: int) -> None:
        numbers = self.source.watch.get(rank)
        if numbers is not None:
            if number not in numbers and len(numbers) < 16:
                numbers.append(number)
        elif len(self.source.watch) < _MAX_WATCH:
            self.source.watch[rank] = [number]

    def _after_last_error(self, symptom: Optional[Symptom], raw: bytes, line: int) -> None:
        """Take NCCL's last error, which PyTorch puts on the line after "Last error:"."""
        self._last_error -= 1
        if symptom is not None and symptom.role == CONSEQUENCE:
            self.source.note("last-error follows", self.index, line, raw)
        elif symptom is None and self._last_error == 3 and raw.strip():
            self.source.note("last-error", self.index, line, raw)
        elif symptom is not None and symptom.fault == "nccl.cuda-failure":
            self.source.note("last-error cuda", self.index, line, raw)
        if self._symptom(symptom, raw, line):
            self._last_error = 0

    def _symptom(self, symptom: Optional[Symptom], raw: bytes, line: int) -> bool:
        if symptom is None or symptom.role == BENIGN:
            return False
        if symptom.role != CONSEQUENCE:
            self.source.note("symptom " + symptom.fault, self.index, line, _shown(raw, symptom.pattern), symptom.shows)
        return True

    def tag(self, raw: bytes) -> None:
        """Record which launcher's process printed a line."""
        if b": " in raw[:64] or b"]<std" in raw[:64]:
            tag = launcher_tag(raw[:200])
            if tag:
                self.source.tags.add(tag)


_SHOWN = 320  # bytes of a line that are shown (lines.clean.printable)


def _shown(raw: bytes, pattern: bytes) -> bytes:
    """Return the part of a line to show around a pattern's match, which may be at the end of a long line."""
    match = re.search(pattern, raw) if len(raw) > _SHOWN else None
    if match is None or match.end() <= _SHOWN:
        return raw
    begin = raw.find(b" ", max(0, match.start() - _SHOWN // 2), match.start())
    return b"[...]" + raw[begin if begin >= 0 else match.start() :]


_GLOBAL_RANK = re.compile(rb"\[rank(\d{1,7})\]")
# "terminated with exception" repeats a smaller group's time-out, without the rank in the job
_OF_GROUP = re.compile(rb"\[PG (?!(?:ID \d{1,9} PG GUID )?0[ (])[^\]]{1,120}\] Process group watchdog")
SOME_GROUP = "?"
IN_GROUP = " in "
"""The separator of a rank and the group of its failure: a time-out that another line reports, or an error."""


def _waiting(watchdog: re.Match[bytes], raw: bytes) -> str:
    """Return the rank that waited and, after a blank, its process group, if that is not the whole job.

    The rank in the message is that of the group; the line's prefix has the job's (PyTorch 2.3 and later).
    """
    whole = _GLOBAL_RANK.search(raw[:400])
    rank = (whole or watchdog).group(1 if whole else 2)
    group = printable(watchdog.group(1), 120) if watchdog.group(1) else ""
    if not group and rank != watchdog.group(2):
        group = SOME_GROUP
    return rank.decode("ascii") + (" " + group if group else "")
