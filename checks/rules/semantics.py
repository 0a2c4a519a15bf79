"""Rules of shared paths: locks, renames, attributes and small files of one node, as seen by the next node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobs.cluster.json_types import empty
from jobs.run.result import TrialResult
from jobs.run.stages.network import LockTry, TriedPath
from jobs.trial.spec import TrialSpec
from reports.record import Finding
from seatrial.faults.catalogue import read_text
from seatrial.faults.variants import Variant

from ..profiles.schema import StoragePath, StorageSection
from .findings import compared, unknown
from .ranks import every_stage, place

LOCKS = {"flock": "flock", "posix": "fcntl byte-range lock"}
UNSUPPORTED = ("ENOLCK", "ENOSYS", "ENOTSUP", "EOPNOTSUPP")
"""Error codes of a file system without locks, or without its lock service (flock(2), fcntl(2), mount.lustre(8))."""
NOT_TRIED = empty(TriedPath)
HUNG = "no answer"
SLOWEST = "small files: at least"


def tried_paths(trial: TrialResult, rank: int) -> dict[str, TriedPath]:
    """Return a rank's report of each path, by name."""
    paths = every_stage(trial, rank)["storage"]["paths"]
    return {str(each["name"]): each for each in paths}


def mount(path: TriedPath) -> str:
    """Return a path's file system, with the mount options that affect locks and caches."""
    options = ",".join(path["options"])
    return f"{path['fs'] or 'unknown file system'}{f' ({options})' if options else ''}"


def view(trial: TrialResult, spec: TrialSpec, rank: int, path: StoragePath) -> str:
    """Name a node's view of the next node's files, since it is unknown which of the two mounts is wrong."""
    return f"{place(trial, rank)} -> {place(trial, (rank + 1) % spec.nodes)} {path.path}"


# -- the next node's view ----------------------------------------------------------------------------------------------


def changes(path: TriedPath, peer: str) -> tuple[bool | None, str, str]:
    """Judge a node's view of the next node's changes, such as a rename: (ok, fault, observed)."""
    missing, torn, versions = path["swap_missing"], path["swap_torn"], path["swap_versions"]
    if missing or torn:
        how = [f"{count} times {what}" for count, what in ((missing, "no file"), (torn, "a part of one")) if count]
        return False, "storage.rename-torn", f"{mount(path)}: {' and '.join(how)} while {peer} replaced it by rename"
    if path["attributes_ok"] is False:
        seen = path["attributes_seen"] or "other attributes"
        return False, "storage.stale-metadata", f"{mount(path)}: {seen} of a file that {peer} closed 10 s ago"
    for key, what in (("small_missing", "listed"), ("small_bad", "read")):
        if bad := path.get(key):
            return False, "storage.stale-metadata", f"{mount(path)}: {bad} files of {peer} are not {what}"
    small = (path["small_missing"], path["small_bad"], path["small_read"])
    open_points = {
        "renames": (versions or 0) < 2 or None in (missing, torn),
        "attributes": path["attributes_ok"] is None,
        "small files": None in small or not path["small_read"],
    }
    if left := [name for name, is_open in open_points.items() if is_open]:
        why = f" ({path['semantics_error']})" if path["semantics_error"] else ""
        return None, "", f"not measured: {', '.join(left)}{why}"
    return True, "", f"{versions} versions of a replaced file, size and time after close, {small[2]} small files"


def small_files(subject: str, path: TriedPath, floor: float) -> Finding:
    """Judge the slower rate of creating small files here and reading those of the next node."""
    expected = f"{SLOWEST} {floor:g}"
    steps = {
        "created": (path["small_files"], path["small_made_s"]),
        "read": (path["small_read"], path["small_read_s"]),
        "removed": (path["small_removed"], path["small_removed_s"]),
    }
    rates = {what: count / seconds for what, (count, seconds) in steps.items() if count and seconds}
    if len(rates) < len(steps):
        return unknown(subject, "small files: not measured", expected, unit="files/s")
    slowest = min(rates, key=lambda what: rates[what])
    shown = ", ".join(f"{what} at {rate:.0f}" for what, rate in rates.items())
    ok = rates[slowest] >= floor
    return compared(subject, ok, f"small files: {shown}", expected, "storage.small-files-slow", unit="files/s")


# -- locks -------------------------------------------------------------------------------------------------------------


def lock_findings(trial: TrialResult, spec: TrialSpec, storage: StorageSection) -> tuple[list[Finding], list[str]]:
    """Judge the locks of each shared path: its findings, or notes if they fail and the profile requires none."""
    judged: list[Finding] = []
    notes: list[str] = []
    for path in between_nodes(storage):
        of_path = list(_of_path(trial, spec, path))
        if path.locks or all(each.ok for each in of_path):
            judged += of_path
        else:
            notes += [f"{each.subject}: {each.observed}" for each in of_path if not each.ok]
    return judged, notes


def between_nodes(storage: StorageSection) -> tuple[StoragePath, ...]:
    """Return the paths that all nodes share and write."""
    return tuple(path for path in storage.paths if path.shared and path.write)


def _of_path(trial: TrialResult, spec: TrialSpec, path: StoragePath) -> Iterator[Finding]:
    for rank in range(spec.nodes):
        other = (rank + 1) % spec.nodes
        peer, here = place(trial, other), tried_paths(trial, rank).get(path.name, NOT_TRIED)
        there = tried_paths(trial, other).get(path.name, NOT_TRIED)
        where = mount(here) if mount(here) == mount(there) else f"{mount(here)} here, {mount(there)} on {peer}"
        for kind, what in LOCKS.items():
            mine, held = _lock_of(here, kind), _lock_of(there, kind)
            ok, fault, observed = _lock(mine, held, peer, ranges=kind == "posix")
            expected = f"{what}: refused while {peer} holds it, granted after its release"
            observed = f"{where}: {what} {observed}"
            own = mine["error"] or not mine["held"]
            subject = f"{place(trial, rank)} {path.path}" if own else view(trial, spec, rank, path)
            yield compared(subject, ok, observed, expected, fault)


def _lock_of(path: TriedPath, kind: str) -> LockTry:
    return path["flock"] if kind == "flock" else path["posix"]


def _lock(mine: LockTry, held: LockTry, peer: str, *, ranges: bool) -> tuple[bool | None, str, str]:
    """Judge one lock on one node: (ok, fault, observed); ``ranges``: a lock of some bytes; others must be free."""
    error, refused, seconds = str(mine["error"] or ""), mine["refused"], mine["freed_s"] or 0
    apart = mine["apart"] if ranges else True
    ok: bool | None = None
    fault, observed = "", "not measured"
    if error:
        fault = "storage.locks-failed" if error in UNSUPPORTED or error.startswith(HUNG) else ""
        observed = f"failed: {error}"
    elif not mine["held"] or not held["held"]:
        observed = f"not measured: {peer if mine['held'] else 'this node'} did not get its own"
    elif refused is False:
        fault, observed = "storage.locks-local", f"granted while {peer} holds it"
    elif apart is False:
        fault, observed = "storage.locks-failed", f"refused, also for bytes that {peer} does not hold"
    elif refused and mine["freed"] is False:
        fault, observed = "storage.locks-stuck", f"refused {seconds:.0f} s after {peer} released it"
    elif refused and mine["freed"] and apart:
        ok, observed = True, f"refused while {peer} holds it, granted {seconds:.2f} s after its release"
    return (False if fault else ok), fault, observed


def lock_advice(findings: Iterable[Finding]) -> Iterator[tuple[str, Variant]]:
    """Yield the advice for a file system by fault, if it fits all findings of the fault."""
    by_fault: dict[str, set[Variant | None]] = {}
    for each in findings:
        if each.ok is False:
            said = read_text("filesystem", each.observed)
            fits = said is not None and said.why == each.fault
            by_fault.setdefault(each.fault, set()).add(said.variant if said and fits else None)
    for fault, variants in by_fault.items():
        only = next(iter(variants))
        if len(variants) == 1 and only is not None:
            yield fault, only
