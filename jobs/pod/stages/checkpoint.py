"""Checkpoint evidence: a sharded state of all ranks, saved as in training, flushed and verified.

The program is bench/checkpoint.py (torch.distributed.checkpoint), started like a collective. The probe does the rest:
it examines the paths, flushes node-local files to durable storage, reads them back on another node, records each step's
state next to it, and removes everything. Then a rank is killed while it writes the next step, and the job loads the
newest verified step. Leftovers of a killed run are recognised by its mark and removed by the next run.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from seatrial.logs.reader import redact

from . import collective, host, programs, storage
from .barrier import Barrier
from .deadline import Watch
from .files import names_in, pieces, replace
from .spec import Identity, Trial

SAVED, TORN = 2, 3  # the verified step, and the one in which a rank is killed; step 1 is a warm-up
MARK = "seatrial-checkpoint"
OURS = re.compile(r"\.seatrial-[a-z0-9][a-z0-9-]*-checkpoint")
DONE = "checkpoint.done"
STALE_S = 1800.0  # by the file system's own clock; a stage ends within 900 s (trial/parts.py)
PIECE = 4 << 20


def blank() -> Dict[str, Any]:
    """Return the stage's keys, all unknown."""
    return {"error": None, "places": [], "ranks": [], "states": [], "cleaned": []}


class Checkpoint(collective.BenchRun):
    """The stage on one pod."""

    def __init__(self, trial: Trial, me: Identity, watch: Watch, barrier: Barrier, place: str, archive: str) -> None:
        own = copy.copy(trial)
        self.asked: Dict[str, Any] = trial.checkpoint or {}
        own.collective_timeout_s = self.asked["limit_s"] / 4
        super().__init__(own, me, watch, barrier, place, archive)
        name = ".seatrial-%s-checkpoint" % trial.run
        self.durable = os.path.join(self.asked["path"], name)
        self.staging = os.path.join(self.asked["local"], name) if self.asked["local"] else self.durable

    def work(self, data: Dict[str, Any], why: str) -> str:
        """Save, flush, verify, crash and resume; return the stage's status. `why`: a reason to skip everything."""
        data["where"] = self.asked["path"]
        data["memory_free"] = host.memory_free()
        problem = self._at_each_path(data, self._look)
        go, why = self._together("ready", why or problem)
        if not go:
            data["skipped"] = why
            return "skipped"
        try:
            go, why = self._together("prepared", self._at_each_path(data, self._prepare))
            if not go:
                data["skipped"] = why
                return "skipped"
            return self._states(data)
        finally:
            if self.barrier.through(DONE, self._patience()):  # another rank may still use the files until then
                for place in {self.staging, self.durable}:
                    shutil.rmtree(place, ignore_errors=True)
                    if not os.path.exists(place):
                        self.places.discard(place)

    def _together(self, topic: str, objection: str) -> Tuple[bool, str]:
        return self.barrier.agree("checkpoint." + topic, objection, self._patience())

    def _patience(self) -> float:
        return min(max(collective.READY_S, self.trial.collective_timeout_s), self.watch.left())

    def _at_each_path(self, data: Dict[str, Any], does: Callable[[Dict[str, Any], str, str], str]) -> str:
        """Call a function for each path, with its role and the run's folder; return why no checkpoint is possible."""
        problems = []
        for role, place in (("local", self.staging), ("path", self.durable)):
            if self.asked[role]:
                try:
                    problems.append(does(data, role, place))
                except OSError as error:
                    data["error"] = data["error"] or storage.error_text(error)
                    problems.append("%s: %s" % (self.asked[role], storage.error_text(error)))
        return next(filter(None, problems), "")

    def _look(self, data: Dict[str, Any], role: str, _place: str) -> str:
        """Remove leftovers of killed runs at a path, then examine it; write nothing of this run yet."""
        path = self.asked[role]
        data["places"].append(looked(role, path, self.asked))
        data["cleaned"] += leftovers(path)
        space = os.statvfs(path)
        needed = self.asked["bytes"] * self.trial.nodes * self.trial.ranks_per_node * 3
        if needed <= space.f_bavail * space.f_frsize * storage.FREE_SHARE:
            return ""
        return "%s: %d bytes would be more than %.0f %% of the free space" % (path, needed, 100 * storage.FREE_SHARE)

    def _prepare(self, _data: Dict[str, Any], _role: str, place: str) -> str:
        """Create this run's folder, with its mark."""
        os.makedirs(place, mode=0o700, exist_ok=True)
        self.places.add(place)
        with open(os.path.join(place, MARK), "w", encoding="ascii") as file:
            file.write(self.trial.run + "\n")
        return ""

    # -- save and verify ----------------------------------------------------------------------------------------------

    def _states(self, data: Dict[str, Any]) -> str:
        self._state(data, SAVED, "writing")
        ended = self._program("save", self.staging, [1, SAVED])
        data["ranks"], data["bytes"] = ended["ranks"], self.asked["bytes"]
        go, why = self._together("saved", _problem(ended))
        if not go:
            data["error"] = _problem(ended) or why
            return "failed"
        if self.staging != self.durable:
            self._state(data, SAVED, "local")
            self._state(data, SAVED, "flushing")
        sums, problem = self._flush(data)
        go, why = self._together("flushed", problem)
        if not go:
            data["error"] = problem or why
            return "failed"
        self._state(data, SAVED, "durable")
        self._verify(data, sums)
        go, _ = self._together("verified", "" if data["verified"]["ok"] else "the saved file was read back wrong")
        if go:
            self._state(data, SAVED, "verified")
        self._crash(data)
        self._resume(data)
        return "ok" if go and data["resume"]["wrong"] == 0 else "failed"

    def _state(self, data: Dict[str, Any], step: int, state: str) -> None:
        """Record a step's state in the evidence, and next to the step: rank 0 writes it atomically for all."""
        data["states"].append({"step": step, "state": state, "at": round(time.time(), 3)})
        if self.me.rank:
            return
        try:
            replace(os.path.join(self.durable, "step-%d.state" % step), state + "\n")
        except OSError as error:
            data["error"] = data["error"] or storage.error_text(error)

    def _program(self, mode: str, folder: str, steps: List[int]) -> Dict[str, Any]:
        """Run the program over all ranks; return its result with the facts of this pod's ranks."""
        name = "checkpoint-" + mode
        made = collective.blank({"name": name, "op": "checkpoint", "scope": "job", "repeats": 1})
        launcher = programs.torch_launcher(self.env)
        if launcher is None:
            return dict(made, error=programs.NO_TORCH, ranks=[])
        argv = [*launcher, *programs.rendezvous(self.trial, self.me), self.archive, "checkpoint"]
        argv += ["--mode=" + mode, "--folder=" + folder, "--bytes=%d" % self.asked["bytes"]]
        argv += ["--step=%d" % step for step in steps]
        env = self.child_env(name, {"NCCL_DEBUG": "WARN"})
        self._start(made, name, argv, env, alone=False)
        self.barrier.announce_end("collective." + name, "" if mode == "die" else _problem(made))
        made["ranks"] = self.rank_facts(env)
        return made

    def _flush(self, data: Dict[str, Any]) -> Tuple[Dict[str, str], str]:
        """Copy this node's files of the step to the durable path, synced; return their checksums and the problem.

        The index (.metadata) is copied last, and only by rank 0: a step without it does not count.
        """
        source, target = (os.path.join(each, "step-%d" % SAVED) for each in (self.staging, self.durable))
        sums: Dict[str, str] = {}
        began, size = time.monotonic(), 0
        try:
            os.makedirs(target, mode=0o700, exist_ok=True)
            names = self._mine(source)
            lost = [rank for rank in self._ranks() if not any(name.startswith("__%d_" % rank) for name in names)]
            if lost:
                return sums, "%s: nothing of rank %d" % (source, lost[0])
            for name in sorted(names, key=lambda name: (name == ".metadata", name)):
                place = os.path.join(source, name)
                sums[name] = copied(place, os.path.join(target, name) if source != target else "")
                size += os.path.getsize(place)
            replace(os.path.join(self.durable, "sums-%d" % self.me.rank), json.dumps(sums))
        except OSError as error:
            return sums, "%s: %s" % (self.durable, storage.error_text(error))
        if source != target:
            seconds = time.monotonic() - began
            data["flush"] = {"seconds": round(seconds, 4), "bytes": size, "mb_s": storage.rate(size, seconds)}
        return sums, ""

    def _ranks(self) -> range:
        own = self.trial.ranks_per_node
        return range(self.me.rank * own, (self.me.rank + 1) * own)

    def _mine(self, folder: str) -> List[str]:
        """Return the files that this pod's ranks wrote; a shared path also holds those of the others."""
        heads = tuple("__%d_" % rank for rank in self._ranks())
        names = [name for name in os.listdir(folder) if name.startswith(heads)]
        return names + (
            [".metadata"] if self.me.rank == 0 and os.path.exists(os.path.join(folder, ".metadata")) else []
        )

    def _verify(self, data: Dict[str, Any], own: Dict[str, str]) -> None:
        """Read the next node's files back from the durable path and compare their checksums."""
        peer = (self.me.rank + 1) % self.trial.nodes
        verified: Dict[str, Any] = {"peer": peer, "elsewhere": peer != self.me.rank, "seen": False, "ok": False}
        verified.update(files=0, bytes=0, bad=[], error=None, seconds=None, mb_s=None)
        data["verified"] = verified
        began, size = time.monotonic(), 0
        try:
            sums = own if peer == self.me.rank else self._sums_of(peer)
            verified["seen"] = sums is not None
            for name, expected in sorted((sums or {}).items()):
                place = os.path.join(self.durable, "step-%d" % SAVED, name)
                verified["files"] += 1
                size += os.path.getsize(place)
                if digest(place) != expected:
                    verified["bad"].append(name)
        except (OSError, ValueError) as error:
            verified["error"] = (
                storage.error_text(error) if isinstance(error, OSError) else redact.redact(str(error))[:200]
            )
        seconds = time.monotonic() - began
        verified.update(bytes=size, seconds=round(seconds, 4), mb_s=storage.rate(size, seconds))
        verified["bad"] = verified["bad"][:8]
        verified["ok"] = bool(verified["files"]) and not verified["bad"] and not verified["error"]

    def _sums_of(self, peer: int) -> Optional[Dict[str, str]]:
        place, until = os.path.join(self.durable, "sums-%d" % peer), time.monotonic() + storage.VISIBLE_S
        while not self.watch.stopped():
            try:
                os.listdir(self.durable)  # asks the server again if only the folder is cached
                with open(place, encoding="ascii") as file:
                    sums = json.loads(file.read(1 << 20))
                return {str(name): str(text) for name, text in sums.items() if "/" not in name}
            except FileNotFoundError:
                if time.monotonic() >= until:
                    return None
                time.sleep(0.1)
        return None

    # -- crash and resume ---------------------------------------------------------------------------------------------

    def _crash(self, data: Dict[str, Any]) -> None:
        """Kill the last rank while all write the next step."""
        self._state(data, TORN, "writing")
        ended = self._program("die", self.durable, [TORN])
        torn = os.path.join(self.durable, "step-%d" % TORN)
        last = self.trial.nodes * self.trial.ranks_per_node - 1
        index = os.path.exists(os.path.join(torn, ".metadata"))
        data["crash"] = {"step": TORN, "rank": last, "exit": ended["exit"], "torn": os.path.isdir(torn) and not index}

    def _resume(self, data: Dict[str, Any]) -> None:
        """Load the newest verified step; skip a newer unverified one, even if it looks complete."""
        resumed: Dict[str, Any] = {"step": None, "wrong": None, "seconds": None, "passed_over": [], "error": None}
        data["resume"] = resumed
        steps = states_of(self.durable)
        verified = [step for step, state in steps.items() if state == "verified"]
        resumed["step"] = max(verified) if verified else None
        resumed["passed_over"] = [{"step": s, "state": t} for s, t in steps.items() if s > (resumed["step"] or 0)]
        go, why = self._together("resume", "" if verified else "no step is verified")
        if not go:
            resumed["error"] = why
            return
        began = time.monotonic()
        ended = self._program("load", self.durable, [resumed["step"]])
        loaded = [each for each in ended["ranks"] if each.get("loaded") == resumed["step"]]
        resumed["seconds"] = round(time.monotonic() - began, 3)
        resumed["error"] = _problem(ended) or None
        if len(loaded) == self.trial.ranks_per_node:
            resumed["wrong"] = sum(int(each.get("wrong") or 0) for each in loaded)


# -- files -------------------------------------------------------------------------------------------------------------


def looked(role: str, path: str, asked: Dict[str, Any]) -> Dict[str, Any]:
    """Describe a path: its file system, its permissions, and whether it is a separate mount."""
    mode = os.stat(path).st_mode
    point, fs, device, readonly, _ = storage.mounted(path)
    kind = asked["kinds"].get(role) or "path"
    own = kind != "path" or point != "/"
    facts = {"role": role, "path": path, "kind": kind, "fs": fs, "device": device, "readonly": readonly, "mounted": own}
    return dict(facts, mode=stat.S_IMODE(mode), sticky=bool(mode & stat.S_ISVTX), shared=asked["shared"])


def leftovers(parent: str) -> List[str]:
    """Remove leftovers of killed runs below a path: our folders with our mark, unused for long.

    Their age is the difference of two files' times on the same file system. Returns their names; raises OSError if no
    file can be created.
    """
    gone = []
    with tempfile.TemporaryFile(prefix=".seatrial-", dir=parent) as file:
        now = os.fstat(file.fileno()).st_mtime
    for name in sorted(os.listdir(parent)):
        place = os.path.join(parent, name)
        if not OURS.fullmatch(name) or os.path.islink(place):
            continue
        try:
            with open(os.path.join(place, MARK), encoding="ascii") as file:
                ours = ".seatrial-%s-checkpoint" % file.readline(200).strip() == name
            age = now - os.stat(os.path.join(place, MARK)).st_mtime
        except (OSError, ValueError):
            continue
        if ours and age > STALE_S:
            shutil.rmtree(place, ignore_errors=True)
            gone.append(name)
    return gone[:16]


def copied(source: str, target: str) -> str:
    """Copy a file and sync it, or only read it without a target; return the SHA-256 of its content."""
    made = hashlib.sha256()
    with open(source, "rb", buffering=0) as reader:
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) if target else -1
        try:
            while True:
                piece = reader.read(PIECE)
                if not piece:
                    break
                made.update(piece)
                rest = memoryview(piece)
                while target and rest:
                    rest = rest[os.write(out, rest) :]
            if target:
                os.fsync(out)
        finally:
            if target:
                os.close(out)
    return made.hexdigest()


def digest(path: str) -> str:
    """Return the SHA-256 of a file, read with the kernel's cached copy dropped."""
    made = hashlib.sha256()
    for piece in pieces(path, PIECE):
        made.update(piece)
    return made.hexdigest()


def states_of(folder: str) -> Dict[int, str]:
    """Return the recorded state of each step; unreadable states are omitted."""
    states = {}
    for name in names_in(folder):
        match = re.fullmatch(r"step-(\d{1,9})\.state", name)
        if match:
            try:
                with open(os.path.join(folder, name), encoding="ascii") as file:
                    states[int(match.group(1))] = file.readline(40).strip()
            except (OSError, ValueError):
                continue
    return states


def _problem(ended: Dict[str, Any]) -> str:
    """Explain why a program did not complete, by its own last lines; '' if it did."""
    if ended["error"] or ended["timed_out"] or ended["stopped"]:
        return str(ended["error"] or ended["stopped"] or "it did not end within %.0f s" % ended["seconds"])
    if ended["exit"]:
        said = [line for line in ended["output_tail"].splitlines() if "failed: " in line]
        return "exit code %s%s" % (ended["exit"], ": " + said[0][:300] if said else "")
    return ""
