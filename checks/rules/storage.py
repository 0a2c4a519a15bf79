"""Storage rules: data read, results and checkpoints written, from every node and fast enough.

The API shows which PVCs are bound and who may mount them; only the pod itself shows that the files exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from jobs.cluster.facts.claims import Claim, Class
from jobs.run.result import TrialResult
from jobs.run.stages.network import Bucket, Burst, CredentialFacts, StorageStage, TriedPath
from jobs.trial.spec import TrialSpec
from reports.plain import format_size
from reports.record import Finding

from ..profiles.schema import StoragePath, StorageSection
from ..profiles.yaml_schema import Size
from .findings import compared, failed, first_match, passed, unknown
from .ranks import Rank, each_rank, every_stage, place
from .semantics import NOT_TRIED, between_nodes, changes, small_files, tried_paths, view

MANY_READ, MANY_WRITE = ("ReadWriteMany", "ReadOnlyMany"), ("ReadWriteMany",)
"""Access modes with which pods of several nodes may mount a PVC (kubernetes.io, Persistent Volumes: Access Modes)."""
LATER = "WaitForFirstConsumer"
FULL = ("ENOSPC", "EDQUOT")
SHOWN = 3
SCRATCH = "scratch"
"""The probe's name for node-local space."""


# -- API objects -------------------------------------------------------------------------------------------------------


def claim_findings(
    storage: StorageSection, nodes: int, claims: Mapping[str, Claim], classes: Mapping[str, Class]
) -> Iterator[Finding]:
    """Judge each PVC of the profile, and the classes that it names; only the first fault of a PVC is reported."""
    for name in storage.classes:
        yield _class(classes[name])
    for asked_path in storage.paths:
        if asked_path.claim:
            claim = claims[asked_path.claim]
            yield _claim(asked_path, claim, classes.get(claim.storage_class or ""), nodes)


def _class(storage_class: Class) -> Finding:
    subject, expected = f"storageclass/{storage_class.name}", "exists"
    if storage_class.hidden:
        return unknown(subject, f"not seen: {storage_class.hidden}", expected)
    observed = (
        f"provisioner {storage_class.provisioner}, {storage_class.binding}"
        if storage_class.exists
        else "the StorageClass does not exist"
    )
    return compared(subject, storage_class.exists, observed, expected, "storage.class-missing")


def _claim(path: StoragePath, claim: Claim, class_: Class | None, nodes: int) -> Finding:
    fits = MANY_WRITE if path.write else MANY_READ
    modes = ", ".join(claim.access_modes) or "no access mode"
    state = f"{claim.phase or 'not there'}, {modes}" + (f", {claim.size}" if claim.size else "")
    cannot = f"{state}: two nodes cannot mount it for {'writing' if path.write else 'reading'}"
    gone = class_.name if claim.phase != "Bound" and class_ and not class_.exists and not class_.hidden else ""
    later = claim.phase == "Pending" and class_ and class_.binding == LATER
    return first_match(
        f"persistentvolumeclaim/{claim.name}",
        "bound" + (f", {' or '.join(fits)}" if nodes > 1 else ""),
        (claim.hidden, None, f"not seen: {claim.hidden}"),
        (not claim.exists, False, "the PersistentVolumeClaim does not exist", "storage.claim-missing"),
        (nodes > 1 and not set(claim.access_modes) & set(fits), False, cannot, "storage.access-mode"),
        (gone, False, f"{state}: its StorageClass {gone} does not exist", "storage.class-missing"),
        (later, True, f"{state}: it is bound when the first pod uses it ({LATER})"),
        (claim.phase == "Bound", True, state),
        (True, False, state + (f"; {claim.event}" if claim.event else ""), "storage.claim-pending"),
    )


# -- the pods' view ----------------------------------------------------------------------------------------------------


@each_rank(StorageStage)
def path_findings(rank: Rank[StorageStage], storage: StorageSection) -> Iterator[Finding]:
    """Judge each path on each node: it exists, a data set is not empty, and it is writable if required."""
    asked = [*storage.paths]
    if storage.scratch:
        asked.append(StoragePath(name=SCRATCH, path=storage.scratch, write=True, bytes=Size(0)))
    hung, tried = str(rank.data["error"] or ""), tried_paths(rank.trial, rank.number)
    for path in asked:
        seen_path = tried.get(path.name)
        if seen_path is None:
            yield unknown(f"{rank.node} {path.path}", f"not tried{hung and ': '}{hung}")
            continue
        yield _path(f"{rank.node} {path.path}", seen_path, path, hung)
        if _unanswered(seen_path, write=path.write):
            hung = ""  # paths after the one that hangs were not tried


def _unanswered(path: TriedPath, *, write: bool) -> bool:
    """Return whether the test of a path was not completed, or never started."""
    if path["exists"] is None or (path["exists"] and path["free_bytes"] is None and not path["error"]):
        return True
    tried = write and path["exists"] and not path["error"]
    return bool(tried and None in (path["read_back_ok"], path["rename_ok"]))


def _path(subject: str, seen_path: TriedPath, asked_path: StoragePath, hung: str) -> Finding:
    write = asked_path.write
    expected = "there and writable" if write else "there and readable"
    error, code = str(seen_path["error"] or ""), str(seen_path["errno"] or "")
    as_seen = _observed(seen_path)
    fault, observed = "", as_seen
    ok: bool | None = True
    needed, free = _needed(asked_path), seen_path["free_bytes"]
    if _unanswered(seen_path, write=write):
        ok, fault = (False, "storage.hang") if hung else (None, "")
        observed = f"no answer: {hung or 'not tried'}"
    elif not seen_path["exists"]:
        ok, fault, observed = False, "storage.not-visible", error or "it is not in the pod"
    elif code in FULL or (write and free is not None and free < needed):
        ok, fault = False, "storage.full"
        expected, observed = f"{format_size(needed)} free", f"{as_seen}{'; ' + error if error else ''}"
    elif error or (write and seen_path["readonly"]):
        ok, fault, observed = False, "storage.read-only" if write else "storage.not-visible", f"{as_seen}; {error}"
    elif write and not (seen_path["rename_ok"] and seen_path["read_back_ok"]):
        ok, fault, observed = False, "storage.corrupt", f"{as_seen}; the data read back differs from the data written"
    elif asked_path.not_empty and seen_path["entries"] is None and not seen_path["read_mb_s"]:
        ok, observed = None, f"{as_seen}; it is unknown whether it is empty"
    elif asked_path.not_empty and seen_path["entries"] == 0:
        ok, fault, observed = False, "storage.not-visible", f"{as_seen}; it is empty"
    elif asked_path.files:
        ok, observed = _files(asked_path, seen_path)
        fault = "" if ok else "storage.files-missing"
        expected = f"{len(asked_path.files)} files of the profile can be read"
    return compared(subject, ok, observed, expected, fault)


def _files(asked_path: StoragePath, seen_path: TriedPath) -> tuple[bool | None, str]:
    """Judge the files that the profile names: (all can be read, or None if not all were tried, observation)."""
    asked, tried, bad = len(asked_path.files), seen_path["files_tried"] or 0, seen_path["files_bad"] or 0
    if bad:
        shown = _some(seen_path["files_bad_named"], bad)
        return False, f"{bad} of {asked} files cannot be read: {shown}"
    if tried and (seen_path["files_bad"] is None or seen_path["files_empty"] is None):
        return None, f"it is unknown which of {tried} files can be read"
    if tried < asked:
        return None, f"{tried} of {asked} files were tried before the time was up"
    if empty := seen_path["files_empty"]:
        shown = _some(seen_path["files_empty_named"], empty)
        return None, f"{empty} of {asked} files are empty, so no data was read from them: {shown}"
    return True, f"{_observed(seen_path)}, {tried} files can be read"


def _some(names: list[str], count: int) -> str:
    return "; ".join(names[:SHOWN]) + (f" and {count - SHOWN} more" if count > SHOWN else "")


def _needed(path: StoragePath) -> int:
    """Return the required free bytes: the profile's, else those that the trial writes."""
    return int(path.free_min) if path.free_min is not None else int(path.bytes)


def _observed(path: TriedPath) -> str:
    parts = [str(path["fs"] or "file system unknown")]
    if (free := path["free_bytes"]) is not None:
        parts.append(f"{format_gib(free)} free")
    for rate, text in ((path["write_mb_s"], "written"), (path["read_mb_s"], "read")):
        if rate is not None:
            parts.append(f"{text} at {rate:.0f} MB/s")
    return ", ".join(parts)


def format_gib(count: int) -> str:
    """Format a number of bytes."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def shared_findings(trial: TrialResult, spec: TrialSpec, storage: StorageSection) -> Iterator[Finding]:
    """Judge each node's view of the next node's files, for shared paths of the profile."""
    for rank in range(spec.nodes):
        peer, tried = place(trial, (rank + 1) % spec.nodes), tried_paths(trial, rank)
        for path in between_nodes(storage):
            yield _shared(view(trial, spec, rank, path), tried.get(path.name, NOT_TRIED), peer)


def _shared(subject: str, path: TriedPath, peer: str) -> Finding:
    expected = f"the files of {peer}, its renames and its changes"
    visible, renamed = path["peer_file_ok"], path["peer_rename_ok"]
    if visible is None:
        return unknown(subject, "not tried: a node could not write", expected)
    fault, observed, ok = "", "its rename was not tried", None
    if visible and renamed:
        ok, fault, observed = changes(path, peer)
    if not fault:
        observed = f"the file of {peer} after {path['peer_seconds'] or 0:.2f} s; {observed}"
    if not visible and path["peer_seconds"] is not None:
        fault, observed = "storage.corrupt", f"the files of {peer} are visible, but differ from its writes"
    elif not visible:
        fault, observed = "storage.not-shared", f"no file that {peer} wrote under the same path"
    elif renamed is False:
        fault, observed = "storage.stale-rename", f"the old content of a file that {peer} replaced 10 s ago"
    return Finding(subject=subject, ok=False if fault else ok, observed=observed, expected=expected, fault=fault)


def rate_findings(trial: TrialResult, spec: TrialSpec, storage: StorageSection) -> Iterator[Finding]:
    """Compare each path's rates on each node with the profile's."""
    for rank in range(spec.nodes):
        tried = tried_paths(trial, rank)
        for path in storage.paths:
            seen_path = tried.get(path.name, NOT_TRIED)
            if path.files_s is not None and spec.nodes > 1:
                yield small_files(f"{place(trial, rank)} {path.path}", seen_path, path.files_s)
            for key, floor in (("write_mb_s", path.write_mb_s), ("read_mb_s", path.read_mb_s)):
                if floor is not None:
                    yield _rate(f"{place(trial, rank)} {path.path}", key, seen_path.get(key), floor)


def _rate(subject: str, key: str, value: object, floor: float) -> Finding:
    what = "write and fsync" if key == "write_mb_s" else "read"
    expected = f"{what}: at least {floor:g}"
    if not isinstance(value, int | float):
        return unknown(subject, f"{what}: not measured", expected, unit="MB/s")
    return compared(subject, value >= floor, f"{what}: {value:.1f}", expected, "storage.slow", unit="MB/s")


def burst_findings(trial: TrialResult, spec: TrialSpec, storage: StorageSection) -> Iterator[Finding]:
    """Judge for each node the checkpoint that all ranks write at once."""
    for rank in range(spec.nodes):
        subject, burst = place(trial, rank), every_stage(trial, rank)["storage"]["burst"]
        expected = f"at least {storage.burst_mb_s:g}" if storage.burst_mb_s else "it ends"
        if burst is None:
            yield unknown(subject, "no burst was tried", expected)
        elif code := burst["errno"]:  # the file system rejected a write: later writes will fail, too
            fault = "storage.full" if code in FULL else "storage.read-only"
            observed = f"{burst['path']}: {burst['error']}, while {burst['writers']} ranks wrote"
            yield failed(subject, observed, "every rank's file", fault)
        elif burst["error"] or not burst["bytes"] or burst["mb_s"] is None:
            empty = "nothing was written: no space left" if burst["bytes"] == 0 else "bytes and duration are unknown"
            observed = f"{burst['path']}: {burst['error'] or empty}"
            yield unknown(subject, observed, expected)
        else:
            yield _burst(subject, burst, storage.burst_mb_s, expected)


def _burst(subject: str, burst: Burst, floor: float | None, expected: str) -> Finding:
    speed = float(burst["mb_s"] or 0.0)
    took, slowest = burst["seconds"] or 0.0, burst["slowest_rank_s"] or 0.0
    observed = (
        f"{speed:.0f} MB/s: {burst['writers']} ranks wrote {format_gib(burst['bytes'] or 0)} to "
        f"{burst['path']} in {took:.2f} s, the slowest in {slowest:.2f} s"
    )
    ok = floor is None or speed >= floor
    return compared(subject, ok, observed, f"{expected} MB/s" if floor else expected, "storage.burst-slow")


@each_rank(StorageStage)
def bucket_findings(rank: Rank[StorageStage], storage: StorageSection) -> Iterator[Finding]:
    """Judge each bucket on each node: it is reachable, exists, and has credentials in the pod."""
    node, buckets = rank.node, {str(each["uri"]): each for each in rank.data["s3"]}
    for bucket in storage.s3:
        found = buckets.get(bucket.uri)
        yield _bucket(f"{node} {bucket.uri}", found) if bucket.uri else _variables(node, bucket.names, found)


@each_rank(StorageStage)
def credential_findings(rank: Rank[StorageStage], storage: StorageSection) -> Iterator[Finding]:
    """Judge for each node whether every credential of the profile is set in the pod; no value is read."""
    credentials = {str(each["env"]): each for each in rank.data["credentials"]}
    for asked in storage.credentials:
        where = f"key {asked.key} of secret/{asked.secret}"
        yield _credential(f"{rank.node} {asked.env}", where, credentials.get(asked.env))


def _credential(subject: str, where: str, credential: CredentialFacts | None) -> Finding:
    expected = f"set, from {where}"
    if credential is None:
        return unknown(subject, "not tried", expected)
    if credential["present"] is None:
        why = "unknown: ranks that ssh starts do not have the container's environment (training's neither)"
        return unknown(subject, why, expected)
    if credential["present"]:
        return passed(subject, "set (its value was not read)", expected)
    return failed(subject, f"not set: {where} does not exist, or is empty", expected, "storage.credential-missing")


def _variables(node: str, names: Iterable[str], bucket: Bucket | None) -> Finding:
    """Judge the environment variables of a bucket that has no URI in the profile."""
    subject, expected = f"{node} S3 variables", f"set: {', '.join(names)}"
    if bucket is None or bucket["can_sign"] is None:
        return unknown(subject, "not reported", expected)
    observed = f"not set: {', '.join(bucket['missing'])}"
    if bucket["can_sign"]:
        observed = "all set (their values were not read); no uri in the profile, so no bucket was tried"
    return compared(subject, bucket["can_sign"], observed, expected, "storage.s3-no-credentials")


def _bucket(subject: str, bucket: Bucket | None) -> Finding:
    expected = "reached, with credentials"
    if bucket is None:
        return unknown(subject, "not tried", expected)
    fault, status = "", bucket["status"]
    signed = "keys in the environment" if bucket["can_sign"] else "no keys in the environment"
    observed = f"HTTP {status} from {bucket['endpoint'] or 'amazonaws.com'}, {signed}"
    reached = bucket["reachable"]
    if reached is None or (reached and None in (status, bucket["can_sign"])):
        return unknown(subject, "its result is unknown", expected)
    if not reached:
        fault, observed = "storage.s3-unreachable", str(bucket["error"] or "no answer")
    elif status == 404:
        fault = "storage.s3-bucket-missing"
    elif not bucket["can_sign"]:
        fault, observed = "storage.s3-no-credentials", f"{observed}; not set: {', '.join(bucket['missing'])}"
    return Finding(subject=subject, ok=not fault, observed=observed, expected=expected, fault=fault)
