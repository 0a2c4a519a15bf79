"""A single run of a collective's program, and the analysis of its logs.

The program gets the static rendezvous of the Indexed Job's environment. Its ranks write NCCL's log to one file each,
which the shipped analyzer reduces to a few kilobytes in the pod. A collective of scope `node` runs on every node
independently: no rank waits for another.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from seatrial.logs.reader import redact

from . import children, programs, rdma
from .barrier import Barrier
from .capture import Capture, causes
from .deadline import Watch
from .files import json_object
from .spec import Identity, Trial

Analyze = Callable[[List[str]], Dict[str, Any]]

TAIL_CHARS = 2000
PROGRESS_S = 5.0
TERM_GRACE_S = 3.0
PEER_GRACE_S = 15.0  # after a peer has failed, wait for this rank's own failure: it may be more specific
READY_S = 120.0  # ranks end the previous stage at different times: analysis, and killing of hanging processes
# Variables that torchrun, or the operator of another kind of job, sets for its children.
FOREIGN = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK")
TALKATIVE = ("INFO", "ABORT", "TRACE")  # levels that include INFO's lines (NCCL, debug.cc)
SUBSYSTEMS = ("INIT", "BOOTSTRAP", "ENV", "NET", "GRAPH", "TUNING")
_RANK = re.compile(r"^(?:# seatrial bench: rank \S+ failed: |\[rank\d+\]: )")
OF_MPIRUN = ("OMPI_", "PMI_", "PMIX_", "PRTE_")
FOREIGN_PREFIXES = ("PET_", "TORCHELASTIC_", "OMPI_", "PMI_", "PMIX_", "SLURM_")


def blank(chosen: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the stage's data before anything is known."""
    unknown = dict.fromkeys("program facts command exit stopped seconds world_size nccl error".split())
    known = {key: chosen[key] for key in ("name", "op", "scope", "repeats")}
    empty: Dict[str, Any] = {"env": {}, "nccl_conf": {}, "logs": [], "rdma_counters": {}}
    return dict(unknown, timed_out=False, output_tail="", output_bytes=0, log_bytes=0, **known, **empty)


class BenchRun:
    """The context of a collective on this pod."""

    def __init__(self, trial: Trial, me: Identity, watch: Watch, barrier: Barrier, place: str, archive: str) -> None:
        self.trial, self.me, self.watch, self.barrier = trial, me, watch, barrier
        self.place, self.archive = place, archive
        self.env: Mapping[str, str] = os.environ
        self.say: Callable[[str], None] = _silent
        self.analyze: Optional[Analyze] = None
        self.peer_grace_s = PEER_GRACE_S
        self.places: Set[str] = set()  # folders created in addition to `place`
        self.ahead = ""  # why further collectives are useless
        self._failed: Dict[str, str] = {}  # the collective that failed last, and why

    def run(self, data: Dict[str, Any], chosen: Mapping[str, Any]) -> str:
        """Run one collective and fill its data; return why it was skipped, or ''."""
        name, alone = str(chosen["name"]), chosen["scope"] == "node"
        plan, problem = programs.plan(self.trial, self.me, chosen, self.env, self.archive)
        go, why = self._agree(name, self.ahead or problem, alone=alone)
        if not go or plan is None:
            data["error"] = problem or None
            self.ahead = self.ahead or why
            return why
        spread = plan.program == "nccl-tests" and not alone
        env = dict(self.child_env(name, chosen["env"], spread=spread, own=bool(chosen.get("command"))), **plan.env)
        shown = [redact.redact(word) for word in plan.argv] if chosen.get("command") and plan.argv else plan.argv
        data["program"], data["command"], data["env"] = plan.program, shown, _settings(env)
        data["nccl_conf"] = _conf_files(env)
        data["world_size"] = (1 if alone else self.trial.nodes) * self.trial.ranks_per_node
        before = rdma.counters()
        if plan.argv is None:
            self._follow(data, name)
        else:
            self._start(data, name, plan.argv, env, alone=alone)
        data["rdma_counters"] = rdma.difference(before, rdma.counters())
        if not alone:
            self.barrier.announce_end("collective." + name, failure(data))
        self.ahead = self.ahead or self._repeats(data, name)
        if data["timed_out"]:
            self.ahead = "the collective before (%s) did not end within %.0f s" % (name, data["seconds"])
        started = data["output_bytes"] or os.path.exists(os.path.join(self.place, name + ".output"))
        if started or plan.argv is None:  # otherwise it could not even be started, and there is nothing to analyse
            data["facts"] = json_object(env["SEATRIAL_BENCH_FACTS"])
            self._analyze(data, name, env["NCCL_DEBUG_FILE"])
        return ""

    def _repeats(self, data: Mapping[str, Any], name: str) -> str:
        """Return why further collectives would only fail like this one, or ''.

        A failure before NCCL's first line (no usable GPU, a missing module) is independent of the collective. So is the
        same failure of two collectives in a row.
        """
        if not data["exit"]:
            return ""
        said = causes(data["output_tail"])
        cause = _RANK.sub("", said[0]) if said else "exit code %d" % data["exit"]
        if not any(os.path.getsize(path) for path in glob.glob(os.path.join(self.place, name + ".*.log"))):
            return "blocked by collective.%s, which failed before NCCL began: %s" % (name, cause)
        shape = re.sub(r"0x[0-9a-f]+|\d+", "0", cause)
        if said and shape == self._failed.get("cause"):
            return "blocked by collective.%s and collective.%s, with the same failure: %s" % (
                self._failed["name"],
                name,
                cause,
            )
        self._failed = {"name": name, "cause": shape}
        return ""

    def _agree(self, name: str, objection: str, *, alone: bool) -> Tuple[bool, str]:
        if alone:
            return not objection, objection
        # Collectives of scope node may have been slow on a node, or have hung until their deadline.
        patience = max(READY_S, self.trial.collective_timeout_s + 30)
        return self.barrier.agree("collective." + name, objection, min(patience, self.watch.left()))

    def _start(self, data: Dict[str, Any], name: str, argv: List[str], env: Mapping[str, str], *, alone: bool) -> None:
        """Run the program; if it rejects the options, repeat with the older spelling."""
        self._attempt(data, name, argv, env, alone=alone)
        again = _older_argv(argv, data) if data.get("program") != "command" else None
        if again and not self.watch.stopped():
            data["command"] = again
            self._attempt(data, name, again, env, alone=alone)

    def _follow(self, data: Dict[str, Any], name: str) -> None:
        """Wait for the end of the program that rank 0 started, also on this node."""
        began = time.monotonic()
        limit = began + self._limit_s()
        topic = "collective." + name
        while time.monotonic() < limit and not self.watch.stopped():
            ended, trouble = self.barrier.ended(topic, 0), self.barrier.trouble(topic)
            if ended is not None or trouble:
                data["stopped"] = ("rank 0: %s" % ended if ended else trouble) or None
                data["exit"] = None if data["stopped"] else 0
                break
            time.sleep(0.1)
        else:
            data["timed_out"] = True
        data["seconds"] = round(time.monotonic() - began, 3)

    def child_env(
        self, name: str, chosen: Mapping[str, str], *, spread: bool = False, own: bool = False
    ) -> Dict[str, str]:
        """Return the program's environment: the pod's, without other launchers' ranks, with this collective's settings.

        `spread`: one rank starts it on all nodes, so the logs need the same path everywhere. `own`: a user's program,
        which gets the environment of a job without the probe's mpirun.
        """
        without = OF_MPIRUN if own else FOREIGN_PREFIXES
        env = {
            key: value for key, value in self.env.items() if (own or key not in FOREIGN) and not key.startswith(without)
        }
        env.setdefault("OMP_NUM_THREADS", "1")
        for variable in ("USER", "LOGNAME"):  # torch needs a user name, which a random uid does not have
            env.setdefault(variable, "seatrial")
        if not os.access(env.get("HOME") or "/nonexistent", os.W_OK):
            env["HOME"] = self.place
        env.update({"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": self.place})
        env.update(_log_settings(env))
        env.update(chosen)
        env["NCCL_DEBUG_FILE"] = os.path.join(self._shared_place() if spread else self.place, name + ".%h.%p.log")
        env["SEATRIAL_BENCH_FACTS"] = os.path.join(self.place, name + ".facts.json")
        env["SEATRIAL_BENCH_UNTIL"] = "%.1f" % (time.monotonic() + max(1.0, self._limit_s() - 5))
        if self.trial.gpu_kind in ("none", "cpu"):
            env["SEATRIAL_BENCH_DEVICE"] = "cpu"
        return env

    def rank_facts(self, env: Mapping[str, str]) -> List[Dict[str, Any]]:
        """Return the output of each of this pod's ranks, in order; ranks without output are omitted."""
        paths = ["%s.%d" % (env["SEATRIAL_BENCH_FACTS"], local) for local in range(self.trial.ranks_per_node)]
        return [facts for facts in map(json_object, paths) if facts is not None]

    def _shared_place(self) -> str:
        """Return a folder of the same name on every node; the probe removes it at its end."""
        place = os.path.join("/tmp", "seatrial-%s" % self.trial.run)  # noqa: S108  (a path in the pod)
        os.makedirs(place, mode=0o700, exist_ok=True)
        self.places.add(place)
        return place

    def _limit_s(self) -> float:
        return min(self.trial.collective_timeout_s, max(1.0, self.watch.left()))

    def _attempt(
        self, data: Dict[str, Any], name: str, argv: List[str], env: Mapping[str, str], *, alone: bool
    ) -> None:
        began = time.monotonic()
        limit = began + self._limit_s()
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=None if data.get("program") == "command" else self.place,
                env=dict(env),
            )
        except OSError as error:
            data["error"] = "cannot start %s: %s" % (argv[0], error.strerror)
            return
        assert process.stdout is not None
        capture = Capture(process.stdout, os.path.join(self.place, name + ".output"))
        try:
            self._attend(data, "" if alone else "collective." + name, process, capture, limit)
        finally:
            if process.poll() is None:
                capture.ignore_rest()
            children.end(process, TERM_GRACE_S)
            capture.finish(5)
            # It is unknown whether a user's program would have completed.
            if data["timed_out"] and data.get("program") != "command":  # also in the log, which may be read alone
                # "exceeded time limit" is the scheduler's text that the reader of logs knows
                _append(capture.path, "# seatrial: the collective exceeded time limit; terminated by the probe")
            data["exit"] = None if data["timed_out"] or data["stopped"] else process.returncode
            data["seconds"] = round(time.monotonic() - began, 3)
            if data["exit"] == 0:
                data["output_tail"] = redact.redact(capture.last(2 * TAIL_CHARS))[-TAIL_CHARS:]
            else:
                data["output_tail"] = redact.redact(capture.tail(TAIL_CHARS))
            data["output_bytes"] = capture.bytes

    def _attend(
        self, data: Dict[str, Any], topic: str, process: subprocess.Popen[bytes], capture: Capture, limit: float
    ) -> None:
        """Wait for the end, the deadline, the probe's stop or a failed peer; print progress."""
        spoke = began = time.monotonic()
        peer_limit: Optional[float] = None
        while True:
            try:
                process.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                pass
            else:
                return
            now = time.monotonic()
            if self.watch.stopped():
                data["stopped"] = self.watch.reason
                data["timed_out"] = self.watch.expired()
                return
            if now >= limit:
                data["timed_out"] = True
                return
            trouble = self.barrier.trouble(topic) if topic else ""
            if trouble:
                peer_limit = peer_limit or now + self.peer_grace_s
                if now >= peer_limit:
                    data["stopped"] = trouble
                    return
            if now - spoke >= PROGRESS_S:
                spoke = now
                figures = (data["name"], now - began, limit - began, capture.last_line())
                self.say("%s: %.0f s of at most %.0f s: %s" % figures)

    def _analyze(self, data: Dict[str, Any], name: str, debug_file: str) -> None:
        """Turn the ranks' log files and the output into the analyzer's partial verdict."""
        prefix, place = name + ".", os.path.dirname(debug_file)
        logs = sorted(file for file in os.listdir(place) if file.startswith(prefix) and file.endswith(".log"))
        paths = [os.path.join(place, file) for file in logs]
        data["logs"] = logs[:256]
        data["log_bytes"] = sum(os.path.getsize(path) for path in paths)
        output = os.path.join(self.place, name + ".output")
        sources = ([output] if os.path.exists(output) else []) + paths
        if self.analyze is None:
            data["error"] = data["error"] or "the log analyzer was not shipped"
            return
        data["nccl"] = self.analyze(sources)
        if largest := _largest(data["nccl"]):
            self.say("collective.%s: %s" % (name, largest))
        for path in sources:  # frees space for the next collective
            os.unlink(path)


def _append(path: str, line: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n%s\n" % line)
    except OSError:  # a full disk: the evidence reports it, too
        return


def _largest(analysis: Any) -> str:
    """Return the largest measured message and its bus bandwidth as a progress text; '' without one."""
    sources = analysis.get("sources", ()) if isinstance(analysis, dict) else ()
    rows = [row for source in sources for table in source.get("tables", ()) for row in table["rows"]]
    rates: Dict[int, float] = {}
    for row in rows:
        for side in (row["out_of_place"], row["in_place"]):
            if side and side["busbw_gbps"]:
                rates[row["size_bytes"]] = max(rates.get(row["size_bytes"], 0.0), side["busbw_gbps"])
    if not rates:
        return ""
    size, unit = max(rates), "B"
    rate = rates[size]
    for larger in ("KiB", "MiB", "GiB"):
        if size % 1024:
            break
        size, unit = size // 1024, larger
    return "%d %s %.1f GB/s" % (size, unit, rate)


def _silent(_text: str) -> None:
    """Print nothing."""


def failure(data: Mapping[str, Any]) -> str:
    """Describe how this rank's part failed, for the other ranks."""
    if data["timed_out"]:
        return "its command did not end in time"
    if data["stopped"]:
        return "it was stopped (%s)" % data["stopped"]
    if data["error"]:
        return str(data["error"])
    return "its command ended with exit code %s" % data["exit"] if data["exit"] else ""


def _log_settings(env: Mapping[str, str]) -> Dict[str, str]:
    """Return NCCL's log settings with which it reports its transports, overriding those of pod, image or webhook.

    Training uses a quiet log (WARN), but without these lines a trial has no evidence. Higher levels are kept.
    """
    level = env.get("NCCL_DEBUG", "").upper()
    subsystems = env.get("NCCL_DEBUG_SUBSYS", "").upper()
    names = [name for name in subsystems.lstrip("^").split(",") if name]
    if subsystems.startswith("^"):
        excluded = [name for name in names if name not in SUBSYSTEMS and name != "ALL"]
        asked = "^" + ",".join(excluded) if excluded else "ALL"
    else:
        asked = subsystems if "ALL" in names else ",".join(dict.fromkeys(list(SUBSYSTEMS) + names))
    return {"NCCL_DEBUG": level if level in TALKATIVE else "INFO", "NCCL_DEBUG_SUBSYS": asked}


def _settings(env: Mapping[str, str]) -> Dict[str, str]:
    return redact.environment({key: value for key, value in env.items() if key.startswith(("NCCL_", "UCX_", "FI_"))})


def _conf_files(env: Mapping[str, str]) -> Dict[str, str]:
    """Return NCCL's own configuration files: an image may suppress the log there (docs.nvidia.com, NCCL: nccl.conf)."""
    files = {}
    for path in (env.get("NCCL_CONF_FILE"), os.path.expanduser("~/.nccl.conf"), "/etc/nccl.conf"):
        try:
            with open(path or "", encoding="utf-8", errors="replace") as stream:
                files[str(path)] = redact.redact(stream.read(4096))
        except OSError:
            continue
    return files


def _older_argv(argv: List[str], data: Mapping[str, Any]) -> Optional[List[str]]:
    """Return the command line for an older program, if it has just rejected this one."""
    said = data["output_tail"]
    if data["exit"] == 2 and "unrecognized arguments: --" in said:
        return [_underscored(word) for word in argv]  # torch before 2.1 accepts these options only with underscores
    if data["exit"] and "-N" in argv and "invalid option -- 'N'" in said:
        at = argv.index("-N")  # nccl-tests before 2.13 have no cycles
        return argv[:at] + argv[at + 2 :]
    return None


def _underscored(word: str) -> str:
    option, equals, value = word.partition("=")
    return option[:2] + option[2:].replace("-", "_") + equals + value if word.startswith(("--n", "--m")) else word
