"""Shared-path evidence: locks, attributes, renames and small files of one node, as the next node sees them.

Training stacks rely on them implicitly: caches of datasets and compilers lock files, checkpoints are completed by a
rename, loaders list files of another node. Every rank keeps its part in its own folder and examines the next rank's;
the ranks agree between the steps (storage.py). A lock call that does not return is abandoned.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from .deadline import Watch

LOCK_S = 10.0  # for both locks; an unreachable lock server blocks the caller (nfs(5): NLM, ports of lockd)
SMALL_FILES, SMALL_BYTES, SMALL_S = 128, 4096, 10.0  # one block each; EFS takes some ms for each, an object store 100
VERSIONS, PACE_S = 20, 0.01  # of a file that is replaced while it is read
KINDS = ("flock", "posix")
REFUSED = (errno.EAGAIN, errno.EACCES)  # fcntl(2), F_SETLK; flock(2) has EWOULDBLOCK, which is EAGAIN
RANGE, APART = (0, 100), (1000, 100)  # start and length: a locked range, and one outside it
FIRST, SECOND = (
    (100, 1_000_000_000),
    (200, 1_100_000_000),
)  # size and mtime, in whole seconds: all file systems have them
LINES = 64  # of a file that is replaced


class Semantics:
    """One rank's part at one path: its own folder, and the next rank's."""

    def __init__(self, mine: str, theirs: str, seeds: Tuple[str, str], watch: Watch) -> None:
        self.mine, self.theirs, self.seeds, self.watch = mine, theirs, seeds, watch
        self.facts: Dict[str, Any] = {}
        self._held: Dict[str, int] = {}
        self._swapped = threading.Event()
        self._swapper: Optional[threading.Thread] = None

    # -- before the next rank reads ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Lock two files, and write one with known size and time; raises OSError."""
        self._locks(self._hold)
        self._write("grown", FIRST, os.O_CREAT | os.O_EXCL)

    def _locks(self, does: Callable[[str, Dict[str, Any]], None]) -> None:
        """Call a function for both locks in parallel; abandon a call that exceeds the time, and report it."""
        facts = {}
        for kind in KINDS:
            known = self.facts.get(kind) or dict.fromkeys(("held", "refused", "apart", "freed", "freed_s", "error"))
            facts[kind] = dict(known)
        threads = [threading.Thread(target=does, args=(kind, facts[kind]), daemon=True) for kind in KINDS]
        for thread in threads:
            thread.start()
        limit = time.monotonic() + LOCK_S
        for kind, thread in zip(KINDS, threads):
            while thread.is_alive() and time.monotonic() < limit and not self.watch.stopped():
                thread.join(timeout=0.25)
            self.facts[kind] = dict(facts[kind])  # a copy: an abandoned call may still change its own
            if thread.is_alive() and not self.watch.stopped():
                self.facts[kind]["error"] = "no answer in %.0f s" % LOCK_S

    def _hold(self, kind: str, facts: Dict[str, Any]) -> None:
        descriptor = opened(os.path.join(self.mine, kind), os.O_CREAT | os.O_EXCL, facts)
        if descriptor is not None:
            self._held[kind] = descriptor
            facts["held"] = attempt(kind, descriptor, RANGE, facts)

    # -- while the next rank holds its locks ---------------------------------------------------------------------------

    def look(self) -> None:
        """Try the next rank's locks, and read its file, so that this node's caches have it."""
        self._locks(self._refused)
        state(os.path.join(self.theirs, "grown"))

    def _refused(self, kind: str, facts: Dict[str, Any]) -> None:
        if facts["error"]:  # of this rank's own lock: another attempt would add nothing
            return
        descriptor = opened(os.path.join(self.theirs, kind), 0, facts)
        if descriptor is not None:
            try:
                got = attempt(kind, descriptor, RANGE, facts)
                facts["refused"] = None if got is None else not got
                if kind == "posix" and facts["refused"]:
                    facts["apart"] = attempt(kind, descriptor, APART, facts)
            finally:
                os.close(descriptor)

    def doubt(self) -> None:
        """Reset doubtful results: a rank that has exited no longer holds a lock, and its files may be removed."""
        for kind in KINDS:
            if self.facts.get(kind) and self.facts[kind]["refused"] is False:
                self.facts[kind]["refused"] = None
        if self.facts.get("attributes_ok") is False:
            self.facts["attributes_ok"] = None
        for key in ("small_missing", "small_bad"):
            self.facts[key] = None

    # -- after this rank's files have been read ------------------------------------------------------------------------

    def change(self, small: int) -> str:
        """Release the locks, write so many small files, extend a file; return the expected state. Raises OSError."""
        self.release()
        folder = os.path.join(self.mine, "small")
        os.mkdir(folder, 0o700)  # new: no node has a cached listing of it
        block, began, made = self.seeds[0].encode("ascii", "replace").ljust(SMALL_BYTES, b"."), time.monotonic(), 0
        while made < small and time.monotonic() - began < SMALL_S and not self.watch.stopped():
            descriptor = os.open(os.path.join(folder, "%05d" % made), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, block)
            finally:
                os.close(descriptor)
            made += 1
        self.facts.update(small_files=made, small_made_s=round(time.monotonic() - began, 4))
        size: Optional[int] = None
        mtime: Optional[int] = None
        try:
            size, mtime = self._write("grown", SECOND, os.O_APPEND)
        except OSError as error:  # an object store that accepts only whole files differs from a full disk
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.facts["semantics_error"] = errno.errorcode.get(error.errno or 0)
        return json.dumps({"files": made, "size": size, "mtime": mtime})

    def _write(self, name: str, wanted: Tuple[int, int], flags: int) -> Tuple[int, Optional[int]]:
        """Write a file's next bytes, sync and close it, set its time; return its size, and its time if supported."""
        path = os.path.join(self.mine, name)
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | flags, 0o600)
        try:
            os.write(descriptor, b"x" * FIRST[0])
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.utime(path, (wanted[1], wanted[1]))
            known = int(os.stat(path).st_mtime)
        except OSError:  # some object stores keep no time
            known = 0
        return wanted[0], wanted[1] if known == wanted[1] else None

    def release(self) -> None:
        """Release the locks, before the folder is removed: NFS keeps an open file under another name."""
        self._swapped.set()
        if self._swapper is not None:
            self._swapper.join(timeout=LOCK_S)
        held, self._held = self._held, {}
        closers = [threading.Thread(target=os.close, args=(each,), daemon=True) for each in held.values()]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(timeout=LOCK_S)

    # -- the next rank's changes ---------------------------------------------------------------------------------------

    def seen(self, told: str, visible_s: float) -> None:
        """Check each change that the next rank reports, for at most so many seconds each."""
        try:
            told_facts = json.loads(told)
            files, size, mtime = (told_facts[key] for key in ("files", "size", "mtime"))
        except (ValueError, KeyError, TypeError):
            self.facts["semantics_error"] = "the next rank did not report its changes"
            return
        self._locks(self._freed)
        if size is not None:
            self._attributes(size, mtime, visible_s)
        self._small(files, visible_s)

    def _freed(self, kind: str, facts: Dict[str, Any]) -> None:
        if not facts["refused"]:
            return
        began = time.monotonic()
        descriptor = opened(os.path.join(self.theirs, kind), 0, facts)
        try:
            while descriptor is not None and not facts["freed"] and not self.watch.stopped():
                facts["freed"] = attempt(kind, descriptor, RANGE, facts)
                facts["freed_s"] = round(time.monotonic() - began, 3)
                if facts["freed"] is None or time.monotonic() - began > 0.8 * LOCK_S:
                    return
                time.sleep(0.02)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _attributes(self, size: Any, mtime: Any, visible_s: float) -> None:
        """Open the extended file until it has the new size and time: close-to-open consistency (nfs(5))."""
        wanted, began = (size, mtime), time.monotonic()
        while not self.watch.stopped():
            found = state(os.path.join(self.theirs, "grown"))
            if found is not None:
                same = found[0] == wanted[0] and mtime in (None, found[1])
                self.facts["attributes_ok"] = same
                self.facts["attributes_seen"] = None if same else "size %d, mtime %d" % found
            self.facts["attributes_s"] = round(time.monotonic() - began, 3)
            if self.facts["attributes_ok"] or time.monotonic() - began >= visible_s:
                return
            time.sleep(0.05)

    def _small(self, files: Any, visible_s: float) -> None:
        """List the small files until all exist, and read them."""
        folder, began = os.path.join(self.theirs, "small"), time.monotonic()
        names: List[str] = []
        while isinstance(files, int) and files and not self.watch.stopped():
            try:
                names = sorted(os.listdir(folder))
            except OSError as error:
                self.facts["semantics_error"] = errno.errorcode.get(error.errno or 0)
            self.facts["small_missing"] = max(0, files - len(names))
            if len(names) >= files or time.monotonic() - began >= visible_s:
                break
            time.sleep(0.05)
        began, read, bad = time.monotonic(), 0, 0
        for name in names[:SMALL_FILES]:
            if time.monotonic() - began >= SMALL_S or self.watch.stopped():
                break
            try:
                with open(os.path.join(folder, name), "rb", buffering=0) as stream:
                    whole = len(stream.read(SMALL_BYTES + 1)) == SMALL_BYTES
            except OSError:
                whole = False
            read, bad = read + whole, bad + (not whole)
        if names:
            self.facts.update(small_read=read, small_bad=bad, small_read_s=round(time.monotonic() - began, 4))

    def clear(self) -> None:
        """Remove this rank's small files, and time it; the rest is removed with the folder."""
        folder, began, removed = os.path.join(self.mine, "small"), time.monotonic(), 0
        try:
            for name in os.listdir(folder):
                if time.monotonic() - began >= SMALL_S or self.watch.stopped():
                    break
                os.unlink(os.path.join(folder, name))
                removed += 1
        except OSError as error:
            self.facts["semantics_error"] = errno.errorcode.get(error.errno or 0)
        self.facts.update(small_removed=removed, small_removed_s=round(time.monotonic() - began, 4))

    # -- a file that is replaced while the other node reads it ---------------------------------------------------------

    def first_version(self) -> None:
        """Write the first version of the file that will be replaced; raises OSError."""
        self._version(0)

    def swap(self, visible_s: float) -> str:
        """Replace this rank's file repeatedly, and read the next rank's until many versions were read.

        Replacing continues until `release`, because the next rank may still read. Returns an objection if no change was
        seen.
        """
        self._swapped.clear()
        self._swapper = threading.Thread(target=self._replacing, daemon=True)
        self._swapper.start()
        path, began = os.path.join(self.theirs, "swap"), time.monotonic()
        versions: Dict[int, None] = {}
        odd = {"swap_missing": 0, "swap_torn": 0}
        sure = dict(
            odd
        )  # a file missing at the end may have been removed with its folder: it counts only if it reappears
        while len(versions) < VERSIONS and time.monotonic() - began < visible_s and not self.watch.stopped():
            time.sleep(PACE_S / 4)
            try:
                with open(path, "rb", buffering=0) as stream:
                    number = version(stream.read(1 << 16), self.seeds[1])
            except FileNotFoundError:
                odd["swap_missing"] += bool(versions)
                continue
            except OSError:  # ESTALE: the opened version has been replaced, which NFS may report (nfs(5))
                continue
            if number is None:
                odd["swap_torn"] += bool(versions)
                continue
            versions[number] = None
            sure = dict(odd)
        self.facts.update(sure, swap_versions=len(versions))
        return "" if len(versions) > 1 else "no rename of the next rank was seen"

    def _replacing(self) -> None:
        number = 0
        try:
            while not self._swapped.wait(PACE_S) and not self.watch.stopped():
                number += 1
                self._version(number)
        except OSError as error:
            self.facts["semantics_error"] = errno.errorcode.get(error.errno or 0)

    def _version(self, number: int) -> None:
        part = os.path.join(self.mine, "swap.new")
        with open(part, "w", encoding="ascii") as stream:
            stream.write(("%s %08d\n" % (self.seeds[0], number)) * LINES)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, os.path.join(self.mine, "swap"))


# -- single operations ---------------------------------------------------------------------------------------------


def opened(path: str, flags: int, facts: Dict[str, Any]) -> Optional[int]:
    """Open a file to lock it, for writing as NFS requires (flock(2)); on failure set the error and return None."""
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600)
    except OSError as error:
        facts["error"] = errno.errorcode.get(error.errno or 0, "no code")
        return None


def attempt(kind: str, descriptor: int, part: Tuple[int, int], facts: Dict[str, Any]) -> Optional[bool]:
    """Try a lock without waiting; return True if acquired, False if another holds it, None with an error."""
    try:
        if kind == "flock":
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, part[1], part[0])
    except OSError as error:
        if error.errno in REFUSED:
            return False
        facts["error"] = errno.errorcode.get(error.errno or 0, "no code")
        return None
    return True


def state(path: str) -> Optional[Tuple[int, int]]:
    """Open a file and return its size and time; None if it cannot be opened."""
    try:
        with open(path, "rb", buffering=0) as stream:
            found = os.fstat(stream.fileno())
    except OSError:
        return None
    return found.st_size, int(found.st_mtime)


def version(content: bytes, seed: str) -> Optional[int]:
    """Return the version number of a file's content; None for incomplete content."""
    lines = content.decode("ascii", "replace").splitlines()
    text, _, number = lines[0].rpartition(" ") if lines else ("", "", "")
    whole = len(lines) == LINES and len(set(lines)) == 1 and content.endswith(b"\n") and text == seed
    return int(number) if whole and number.isdigit() else None
