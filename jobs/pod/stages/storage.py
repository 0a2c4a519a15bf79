"""Storage evidence: data read, results and checkpoints written from this pod, on the real paths.

Written files are small, bounded by the profile and by a twentieth of the free space. They are in a separate folder
named after run and rank, which is removed at the end, at termination, and at the time limit. Nothing of the user's is
changed. Ranks agree before each shared step, so that no rank reads a file before it is written.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import threading
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from seatrial.logs.reader import redact

from . import job_inputs, objects
from .barrier import Barrier
from .deadline import Watch
from .files import pieces
from .semantics import SMALL_BYTES, SMALL_FILES, Semantics
from .spec import Identity, Trial

CHUNK = 4 << 20
FREE_SHARE = 0.05  # of the free space: the limit for all ranks together
AGREE_S = 30.0
VISIBLE_S = 10.0  # until another node's file is visible: NFS caches attributes for seconds (nfs(5): acregmin 3)
READ_BYTES = 64 << 20  # of a read-only data set
LISTED = 1000
OPTIONS = re.compile(  # mount options that affect locks and caches; others may hold a credential
    r"(no|local)?flock|(no)?lock|local_lock=\w+|(no)?brl|(no)?cto|(no)?ac|ac\w+=\d+|actimeo=\d+|lookupcache=\w+|vers=[\d.]+"
    r"|cache=\w+"
)


def blank_path(asked: Dict[str, Any]) -> Dict[str, Any]:
    """Return the initial record of a path."""
    result: Dict[str, Any] = dict.fromkeys(("exists", "error", "writable", "read_back_ok"))
    return dict(result, **{key: asked[key] for key in ("name", "path", "kind", "shared", "write")})


class Storage:
    """The stage on one rank."""

    def __init__(self, trial: Trial, me: Identity, watch: Watch, barrier: Barrier, places: Set[str]) -> None:
        self.trial, self.me, self.watch, self.barrier, self.places = trial, me, watch, barrier, places
        self.asked: Dict[str, Any] = trial.storage or {}
        self._in_use: Set[str] = set()  # by a peer, as far as this rank knows

    def run(self, data: Dict[str, Any]) -> str:
        """Fill the stage's data; everything written is removed again."""
        asked = self.asked
        data["credentials"] = job_inputs.credentials(asked["credentials"], os.environ, self.trial.launcher == "mpijob")
        # Buckets first: they need no other rank, and a path that hangs would block them.
        data["s3"] = [objects.reach(each, os.environ, self.watch) for each in asked["s3"]]
        data["paths"] = [blank_path(each) for each in asked["paths"]]
        try:
            for each, result in zip(asked["paths"], data["paths"]):
                if not self.watch.stopped():
                    self._path(each, result)
            self._burst(data)
        finally:
            self._tidy()
        bad = [result for result in data["paths"] if result["error"] or not result["exists"]]
        bad += [each for each in data["s3"] if each["error"]]
        bad += [each for each in data["credentials"] if each["present"] is False]
        return "failed" if bad else "ok"

    # -- one path ------------------------------------------------------------------------------------------------------

    def _path(self, asked: Dict[str, Any], result: Dict[str, Any]) -> None:
        path = asked["path"]
        try:
            os.stat(path)
            result["exists"] = True
            _, result["fs"], result["device"], result["readonly"], result["options"] = mounted(path)
            space = os.statvfs(path)
            result["free_bytes"], result["total_bytes"] = (
                space.f_bavail * space.f_frsize,
                space.f_blocks * space.f_frsize,
            )
            result["entries"] = listed(path)
            if asked["files"]:
                result.update(job_inputs.files(path, asked["files"], self.watch))
            if asked["write"]:
                self._write(asked, result)
            else:
                result["read_mb_s"] = sample(path, self.watch)
        except OSError as error:
            result["exists"] = bool(result["exists"])
            result["error"], result["errno"] = error_text(error), code(error)
        if asked["write"] and asked["shared"] and self.trial.nodes > 1:
            self._shared(asked, result)

    def _folder(self, asked: Dict[str, Any], rank: Optional[int] = None) -> str:
        """Return a rank's folder of this run below a path."""
        number = self.me.rank if rank is None else rank
        return os.path.join(asked["path"], ".seatrial-%s-%d" % (self.trial.run, number))

    def _write(self, asked: Dict[str, Any], result: Dict[str, Any]) -> None:
        """Write, fsync, rename and read back, like a checkpoint."""
        folder = self._folder(asked)
        result["writable"] = False
        os.mkdir(folder, 0o700)
        self.places.add(folder)
        result["writable"] = True
        size = self.bounded(asked["bytes"], result["free_bytes"], self.trial.nodes)
        result["write_bytes"] = size
        part, whole = os.path.join(folder, "part"), os.path.join(folder, "whole")
        seed = "%s/%d" % (self.trial.run, self.me.rank)
        seconds, result["fsync_s"] = written(part, size, seed, self.watch)
        result["write_mb_s"] = rate(size, seconds)
        os.replace(part, whole)
        result["rename_ok"] = os.path.exists(whole) and not os.path.exists(part)
        began = time.monotonic()
        result["read_back_ok"] = same(whole, size, seed, self.watch)
        result["read_mb_s"] = rate(size, time.monotonic() - began)
        with open(os.path.join(folder, "note"), "w", encoding="ascii") as note:
            note.write("first of %s, %d bytes\n" % (seed, size))

    def bounded(self, asked: int, free: int, writers: int) -> int:
        """Return the bytes of each of so many writers: at most their share of the free space."""
        return max(0, min(asked, int(free * FREE_SHARE / max(1, writers))))

    # -- visibility on other nodes -------------------------------------------------------------------------------------

    def _shared(self, asked: Dict[str, Any], result: Dict[str, Any]) -> None:
        """Read the next rank's files, and check how this node sees its locks and changes."""
        topic, peer = "storage.%s" % asked["name"], (self.me.rank + 1) % self.trial.nodes
        theirs, seeds = self._folder(asked, peer), tuple("%s/%d" % (self.trial.run, n) for n in (self.me.rank, peer))
        pair = Semantics(self._folder(asked), theirs, (seeds[0], seeds[1]), self.watch)
        try:
            if result["read_back_ok"]:
                pair.prepare()
        except OSError as error:
            result["error"], result["errno"] = error_text(error), code(error)
        ready = "" if result["read_back_ok"] and not result["error"] else "%s cannot be written" % asked["path"]
        try:
            go, _ = self.barrier.agree(topic + ".written", ready, self._patience())
            if go:  # otherwise a rank could not write: its own result reports that, and no rank reads missing files
                self._in_use.add(self._folder(asked))
                self._beside(result, pair, topic)
        finally:
            pair.release()
            result.update(pair.facts)
        if go and self.barrier.through(topic + ".done", self._patience()):  # another may still read
            self._in_use.discard(self._folder(asked))

    def _beside(self, result: Dict[str, Any], pair: Semantics, topic: str) -> None:
        """Read the next rank's files, and let it continue."""
        note = awaited(os.path.join(pair.theirs, "note"), "first of %s, " % pair.seeds[1], VISIBLE_S, self.watch)
        result["peer_file_ok"], result["peer_seconds"] = note is not None, note[0] if note else None
        if note is not None:
            whole = os.path.join(pair.theirs, "whole")
            try:  # read all of it: a file that is visible before its content is empty, but not wrong
                result["peer_file_ok"] = same(whole, int(note[1].split()[0]), pair.seeds[1], self.watch)
            except OSError as error:
                result["peer_file_ok"], result["error"] = False, error_text(error)
        if result["peer_file_ok"]:
            pair.look()
        objection = "" if result["peer_file_ok"] else "the files of the next rank are not visible"
        go, _ = self.barrier.agree(topic + ".read", objection, self._patience())
        if go:  # all ranks or none: a single one would wait for the others
            self._changed(result, pair, topic)
        else:
            pair.doubt()

    def _changed(self, result: Dict[str, Any], pair: Semantics, topic: str) -> None:
        """Change what the other node has read, and check whether it sees the change; replace a file while it reads."""
        try:
            most = self.bounded(SMALL_FILES * SMALL_BYTES, result["free_bytes"], self.trial.nodes)
            told = pair.change(most // SMALL_BYTES)
            with open(os.path.join(pair.mine, "next"), "w", encoding="ascii") as file:
                file.write("second of %s, %s\n" % (pair.seeds[0], told))
            os.replace(os.path.join(pair.mine, "next"), os.path.join(pair.mine, "note"))
            pair.first_version()
        except OSError as error:
            result["error"], result["errno"] = error_text(error), code(error)
        go, _ = self.barrier.agree(topic + ".renamed", "", self._patience())
        if not go:
            return
        note = awaited(os.path.join(pair.theirs, "note"), "second of %s, " % pair.seeds[1], VISIBLE_S, self.watch)
        result["peer_rename_ok"] = note is not None
        if note is not None:
            pair.seen(note[1], VISIBLE_S)
        objection = "" if note is not None else "a rename of the next rank is not visible"
        go, _ = self.barrier.agree(topic + ".seen", objection, self._patience())
        if not go:
            pair.doubt()
        else:
            pair.clear()
            self.barrier.agree(topic + ".swapped", pair.swap(VISIBLE_S), self._patience())

    def _patience(self) -> float:
        return min(AGREE_S + VISIBLE_S, self.watch.left())

    # -- all ranks at once ---------------------------------------------------------------------------------------------

    def _burst(self, data: Dict[str, Any]) -> None:
        """Write a checkpoint from every rank of every node at the same time, to the first writable path."""
        targets = [each for each in self.asked["paths"] if each["write"] and each["kind"] != "scratch"]
        if not self.asked["burst_bytes"] or not targets:
            return
        asked = next((each for each in targets if each["shared"]), targets[0])
        result = next(each for each in data["paths"] if each["name"] == asked["name"])
        objection = "" if result["writable"] and not result["error"] else "%s cannot be written" % asked["path"]
        go, why = self.barrier.agree("storage.burst", objection, self._patience())
        if not go:
            data["burst"] = {"path": asked["path"], "error": why}
            return
        writers = self.trial.ranks_per_node
        size = self.bounded(self.asked["burst_bytes"], result["free_bytes"], self.trial.nodes * writers)
        began = time.monotonic()
        took, problems = self._written_at_once(self._folder(asked), size, writers)
        seconds = time.monotonic() - began
        total = size * len(took)
        data["burst"] = {
            "path": asked["path"],
            "bytes": total,
            "writers": writers,
            "seconds": round(seconds, 4),
            "mb_s": rate(total, seconds),
            "slowest_rank_s": round(max(took), 4) if took else None,
            "error": error_text(problems[0]) if problems else None,
            # None at the time limit, which is not a fault of the file system
            "errno": next((code(error) for error in problems if error.errno != errno.EINTR), None),
        }

    def _written_at_once(self, folder: str, size: int, writers: int) -> Tuple[List[float], List[OSError]]:
        """Write so many files in parallel; return the seconds of each successful write, and the errors."""
        took: List[float] = []
        problems: List[OSError] = []

        def one(number: int) -> None:
            try:
                took.append(written(os.path.join(folder, "burst-%d" % number), size, "%d" % number, self.watch)[0])
            except OSError as error:
                problems.append(error)

        threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return took, problems

    def _tidy(self) -> None:
        """Remove the written files; those that a peer may still read are removed at the probe's end."""
        for place in [p for p in self.places - self._in_use if ".seatrial-%s-" % self.trial.run in p]:
            shutil.rmtree(place, ignore_errors=True)
            if not os.path.exists(place):
                self.places.discard(place)


# -- files -------------------------------------------------------------------------------------------------------------


def block_of(seed: str) -> bytes:
    """Return a chunk that is incompressible and unique to this rank."""
    piece = b"".join(hashlib.sha512(("%s/%d" % (seed, i)).encode()).digest() for i in range(1024))
    return piece * (CHUNK // len(piece))


def written(path: str, size: int, seed: str, watch: Watch) -> List[float]:
    """Write and fsync a file; return the seconds of both together, and of the fsync alone."""
    block, left = block_of(seed), size
    began = time.monotonic()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        while left > 0:
            if watch.stopped():
                raise InterruptedError(errno.EINTR, "stopped: %s" % watch.reason)
            left -= os.write(descriptor, block[: min(left, CHUNK)])
        synced = time.monotonic()
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    ended = time.monotonic()
    return [ended - began, round(ended - synced, 4)]


def same(path: str, size: int, seed: str, watch: Watch) -> bool:
    """Return whether a file has its writer's content; the kernel's cached copy is dropped first."""
    blocks, place = 2 * block_of(seed), 0
    for piece in pieces(path, CHUNK):
        if watch.stopped() or not blocks.startswith(piece, place % CHUNK):
            return False
        place += len(piece)
    return place == size


def sample(path: str, watch: Watch) -> Optional[float]:
    """Read the first files below a read-only path; return MB/s, or None if it is empty."""
    names = [path] if os.path.isfile(path) else first_files(path)
    began, got = time.monotonic(), 0
    for name in names:
        try:
            with open(name, "rb", buffering=0) as stream:
                while got < READ_BYTES and not watch.stopped():
                    piece = stream.read(CHUNK)
                    if not piece:
                        break
                    got += len(piece)
        except OSError:
            continue
    return rate(got, time.monotonic() - began) if got else None


def first_files(path: str) -> List[str]:
    """Return a few files below a folder, without walking all of it."""
    result: List[str] = []
    looked = 0
    for folder, _, names in os.walk(path):
        looked += 1
        result += [os.path.join(folder, name) for name in sorted(names)[:8]]
        if len(result) >= 8 or looked >= 32:
            break
    return result[:8]


def listed(path: str) -> Optional[int]:
    """Count the entries of a folder, up to a bound; raise OSError if it is not readable."""
    if not os.path.isdir(path):
        return None
    count = 0
    with os.scandir(path) as entries:
        for entry in entries:
            count += not entry.name.startswith(".seatrial-")
            if count >= LISTED:
                break
    return count


def awaited(path: str, text: str, limit_s: float, watch: Watch) -> Optional[Tuple[float, str]]:
    """Wait until a file starts with a text and is complete; return the seconds and the rest, None at the limit."""
    began = time.monotonic()
    while True:
        try:
            os.listdir(os.path.dirname(path))  # asks the server again if only the folder is cached
            with open(path, encoding="ascii", errors="replace") as stream:
                held = stream.read(4096)
                if held.startswith(text) and held.endswith("\n"):
                    return round(time.monotonic() - began, 3), held[len(text) :]
        except OSError:  # not written yet, or not yet visible on this node
            pass
        if time.monotonic() - began >= limit_s or watch.stopped():
            return None
        time.sleep(0.05)


def mounted(path: str, table: str = "/proc/mounts") -> List[Any]:
    """Return mount point, type, device, read-only flag and options of a path's file system.

    Only options that affect locks and caches are included. If the table is unreadable: '' and nulls.
    """
    best: List[Any] = ["", None, None, None, None]
    real = os.path.realpath(path)
    try:
        with open(table, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                fields = line.split()
                if len(fields) < 4:
                    continue
                point = fields[1].replace("\\040", " ")
                below = real == point or real.startswith(point.rstrip("/") + "/")
                if below and len(point) >= len(best[0]):
                    options = fields[3].split(",")
                    telling = [each for each in options if len(each) < 40 and OPTIONS.fullmatch(each)][:12]
                    best = [point, fields[2], redact.redact(fields[0])[:200], "ro" in options, telling]
    except OSError:  # unknown
        pass
    return best


def rate(size: int, seconds: float) -> Optional[float]:
    """Return MB/s (1e6 bytes); None without bytes or time."""
    return round(size / seconds / 1e6, 2) if size and seconds > 0 else None


def error_text(error: OSError) -> str:
    """Describe an error without the paths of the probe's own files."""
    return "%s (%s)" % (error.strerror or error, code(error) or "no code")


def code(error: OSError) -> Optional[str]:
    """Return the name of an errno: ENOSPC, EROFS, ..."""
    return errno.errorcode.get(error.errno or 0)
