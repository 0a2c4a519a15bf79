"""Checkpoint rules: saved by all ranks, flushed, read back on another node, outliving the job, resumed after a crash.

The results are projected to a model: the pause of training, its share of GPU time, the loss by a failure. These are
predictions from the measured rate at the trial's number of nodes, and are marked as such.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jobs.cluster.json_types import empty
from jobs.pod.bench import checkpoint
from jobs.run.result import TrialResult
from jobs.run.stages.programs import CheckpointPlace, CheckpointRun, CheckpointSave, CheckpointVerified
from jobs.trial.spec import TrialSpec
from reports.record import Finding
from reports.schema import RecordedCheckpoint, RecordedState

from ..profiles.schema import CheckpointSection, parameters
from .findings import compared, first_match, unknown
from .ranks import every_stage, missing_stage, place, stages
from .storage import format_gib

VERIFIED = "verified"
NOT_READ_BACK = empty(CheckpointVerified)
NOT_RESUMED = "checkpoint.not-resumed"
WAYS = (["writing", "durable", VERIFIED], ["writing", "local", "flushing", "durable", VERIFIED])
"""The valid sequences of a step's states: directly to the path, or staged on node-local storage."""
MEMORY = ("tmpfs", "ramfs")
FULL = re.compile(r"ENOSPC|EDQUOT|No space left on device|Disk quota exceeded")
REFUSED = re.compile(
    rf"{FULL.pattern}|\(E[A-Z]+\)|\[Errno \d+\]|Read-only file system|Permission denied|Input/output error"
)
"""Error texts of a file system; other errors may be caused by the image or by a lost peer."""
ANY_USER, REPLACE = 0o007, 0o002
ROUNDED = checkpoint.TENSORS * checkpoint.ROW_BYTES
"""The maximum difference in bytes between a rank's state and the request, since it has whole rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The totals over all ranks, in bytes and seconds."""

    ranks: int
    size: int
    pause_s: float  # the maximum over all ranks, from call to return
    flush_s: float  # the maximum over all nodes, 0 if nothing was flushed
    slowest_mb_s: float  # maximum for one rank's own file

    @property
    def mb_s(self) -> float:
        """MB/s of all ranks together while training is paused."""
        return self.size / self.pause_s / 1e6


def measured(trial: TrialResult, spec: TrialSpec) -> Measured | None:
    """Sum up the ranks' reports of the relevant step; None unless every rank reported once, with the requested size."""
    saves: list[CheckpointSave] = []
    flushed = 0.0
    for rank in range(spec.nodes):
        data = every_stage(trial, rank)["checkpoint"]
        own = saves_of(data, ranks_of(rank, spec))
        flush = data["flush"]["seconds"] or 0.0
        if not own or (_is_staged(data) and flush <= 0):  # the missing rank may be the slowest
            return None
        saves += own
        flushed = max(flushed, flush)
    pause, asked = max(s["pause_s"] or 0.0 for s in saves), spec.checkpoint.bytes if spec.checkpoint else 0
    least = max(1, asked - ROUNDED + 1)
    if not all((s["bytes"] or 0) >= least and (s["pause_s"] or 0) > 0 for s in saves):
        return None
    rates = [(s["bytes"] or 0) / max(s["write_s"] or pause, 1e-6) / 1e6 for s in saves]
    size = sum(s["bytes"] or 0 for s in saves)
    return Measured(ranks=len(saves), size=size, pause_s=pause, flush_s=flushed, slowest_mb_s=min(rates))


def ranks_of(pod: int, spec: TrialSpec) -> range:
    """Return the ranks of one pod."""
    own = max(1, spec.gpus_per_node)
    return range(pod * own, (pod + 1) * own)


def saves_of(data: CheckpointRun, ranks: Sequence[int]) -> list[CheckpointSave]:
    """Return the reports of a pod's ranks about the step to verify; [] unless each reported once."""
    reported = data["ranks"]
    saves = [save for each in reported for save in each["saves"] if save["step"] == _step(data)]
    known = Counter(each["rank"] for each in reported) == Counter(ranks) and len(saves) == len(ranks)
    return saves if known else []


def _is_staged(data: CheckpointRun) -> bool:
    return any(each["state"] == "flushing" for each in data["states"])


def saved_findings(trial: TrialResult, spec: TrialSpec, asked: CheckpointSection) -> Iterator[Finding]:
    """Judge for each node whether its part was saved and the next node's read back; then the total rate."""
    for rank in range(spec.nodes):
        node, data = place(trial, rank), stages(trial, rank).get("checkpoint")
        if data is None:
            yield unknown(node, missing_stage(trial, rank, "checkpoint"), VERIFIED)
        elif data["skipped"]:
            yield unknown(node, f"not tried: {data['skipped']}", VERIFIED)
        else:
            yield _saved(trial, spec, rank, data)
    result = measured(trial, spec)
    if result is None and any(every_stage(trial, rank)["checkpoint"]["verified"] for rank in range(spec.nodes)):
        yield unknown("all ranks", "not every rank reported the bytes that it saved", "MB/s of all")
    if result and asked.mb_s:
        observed = (
            f"{result.mb_s:.0f} MB/s: {result.ranks} ranks saved {format_gib(result.size)} in {result.pause_s:.2f} s"
        )
        expected = f"at least {asked.mb_s:g} MB/s"
        yield compared("all ranks", result.mb_s >= asked.mb_s, observed, expected, "checkpoint.slow")


def _saved(trial: TrialResult, spec: TrialSpec, rank: int, data: CheckpointRun) -> Finding:
    node, peer = place(trial, rank), place(trial, (rank + 1) % spec.nodes)
    states = [str(each["state"]) for each in data["states"] if each["step"] == _step(data)]
    way = " > ".join(states) or "nothing was begun"
    error, told = str(data["error"] or ""), data["verified"]
    verified = told or NOT_READ_BACK
    bad, unread = verified["bad"], _unread(trial, spec, rank, verified)
    other = f"{', '.join(bad[:3])} of {peer} has another checksum here than where it was written"
    failed = "storage.full" if FULL.search(error) else "checkpoint.failed"
    why, speed = f"{way}: {error or 'it did not end in time'}", f"{verified['mb_s'] or 0:.0f} MB/s"
    return first_match(
        f"{node} -> {peer}" if bad else node,  # which of the two is wrong, the checksum does not show
        VERIFIED,
        (told is None or (error and not bad), False if REFUSED.search(error) else None, why, failed),
        (bad, False, f"{way}: {other}", "checkpoint.corrupt"),
        (verified["error"], None, f"{way}: {verified['error']}", "checkpoint.failed"),
        (not verified["seen"], None, f"{way}: the files of {peer} are not seen here"),
        (not verified["elsewhere"], None, f"{way}: read back where it was written, for the trial has one node"),
        (VERIFIED not in states, None, f"{way}: another node did not read it back"),
        (states not in WAYS, None, f"{way}: these states do not lead to a verified step"),
        (unread, None, f"{way}, and {unread}"),
        (True, True, f"{way}, {verified['files']} files of {peer} read back at {speed}"),
    )


def _unread(trial: TrialResult, spec: TrialSpec, rank: int, verified: CheckpointVerified) -> str:
    """Explain why a node's report does not prove that all of the next node's files were read; '' if it does."""
    other = (rank + 1) % spec.nodes
    peer, ranks = place(trial, other), ranks_of(other, spec)
    if verified["peer"] != other:
        return f"the files read are those of pod {verified['peer']}, not of {peer}"
    saved = sum(save["bytes"] or 0 for save in saves_of(every_stage(trial, other)["checkpoint"], ranks))
    if (verified["files"] or 0) < len(ranks):
        return f"{verified['files'] or 'no'} files of {peer} were read back, of its {len(ranks)} ranks"
    if not 0 < saved <= (verified["bytes"] or 0):
        return f"{verified['bytes'] or 0} bytes of {peer} were read back, but its ranks report {saved} saved"
    return "" if verified["ok"] else "it is not reported that all checksums match"


def _step(data: CheckpointRun) -> int:
    """Return the step to verify: the first one that was started."""
    return min((each["step"] or 0 for each in data["states"]), default=0)


def place_findings(trial: TrialResult, spec: TrialSpec, asked: CheckpointSection) -> Iterator[Finding]:
    """Judge the checkpoint's path: whether it outlives the job and the node, and which users may access it."""
    for rank in range(spec.nodes):
        node, data = place(trial, rank), stages(trial, rank).get("checkpoint")
        places = [each for each in (data["places"] if data else []) if each["role"] == "path"]
        if data is None or not places:
            why = missing_stage(trial, rank, "checkpoint") if data is None else data["skipped"] or "not looked at"
            yield unknown(node, str(why), "outlives the job")
            continue
        verified = data["verified"] or NOT_READ_BACK
        unseen = bool(verified["elsewhere"]) and not verified["seen"] and not verified["error"]
        peer, path = place(trial, (rank + 1) % spec.nodes), places[0]["path"]
        finding = _place(f"{node} {path}", places[0], asked, peer, unseen)
        if finding.fault == "checkpoint.node-local":  # which of the two mounts is wrong, it does not show
            finding = replace(finding, subject=f"{node} -> {peer} {path}")
        yield finding


def _place(subject: str, target: CheckpointPlace, asked: CheckpointSection, peer: str, unseen: bool) -> Finding:
    fs, mode = str(target["fs"] or "file system unknown"), int(target["mode"] or 0)
    required = {key: target.get(key) for key in ("fs", "mounted", *(["mode"] if asked.private else []))}
    unknown_keys = [key for key, value in required.items() if value is None or value == ""]
    as_seen = f"{fs}, {opened(target)}"
    in_memory = fs in MEMORY and target["kind"] != "claim"  # storage behind a PVC depends on its provisioner
    in_pod = target["kind"] == "scratch"
    where = "in memory" if in_memory else "in an emptyDir" if in_pod else "in the container's own file system"
    gone = in_memory or in_pod or target["mounted"] is False
    return first_match(
        subject,
        "outlives the job and its nodes" + (", not accessible to other users" if asked.private else ""),
        (gone, False, f"{fs}: it is {where}, and is deleted with the pod", "checkpoint.not-durable"),
        (unseen, False, f"{fs}: {peer} wrote under the same path, and nothing of it is here", "checkpoint.node-local"),
        (asked.private and mode & ANY_USER, False, as_seen, "checkpoint.exposed"),
        (True, None if unknown_keys else True, as_seen),
    )


def opened(target: CheckpointPlace) -> str:
    """Describe the access of other users by the mode: any client that mounts the volume with another uid."""
    mode = target["mode"]
    if mode is None:
        return "its mode is unknown"
    can = [word for bit, word in ((0o004, "read"), (REPLACE, "replace")) if mode & bit]
    if target["sticky"] and "replace" in can:
        can[can.index("replace")] = "add"
    return f"mode {mode:04o}: " + (
        f"any user may {' and '.join(can)} the files there" if can else "not accessible to other users"
    )


def resumed_findings(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Judge for each node whether the job resumed from the newest verified step after a rank was killed."""
    expected = "resumed from the newest verified step"
    for rank in range(spec.nodes):
        node, data = place(trial, rank), every_stage(trial, rank)["checkpoint"]
        resume, crash = data["resume"], data["crash"]
        if resume is None or resume["step"] is None:
            why = (resume and resume["error"]) or data["skipped"] or data["error"] or "this step was not reached"
            yield unknown(node, f"not tried: {why}", expected)
            continue
        step, wrong, error = resume["step"], resume["wrong"], str(resume["error"] or "")
        killed = f"rank {crash['rank']} was killed while it wrote step {crash['step']}"
        over = ", ".join(f"step {s['step']} ({s['state']})" for s in resume["passed_over"])
        resumed = f"{killed}; resumed from step {step} (verified) in {resume['seconds'] or 0:.0f} s"
        resumed += f", passed over {over}" if over else ""
        newer = any(s["state"] == VERIFIED for s in resume["passed_over"])
        older = newer or (crash["step"] or 0) <= step or crash["rank"] is None
        alive = f"rank {crash['rank']} should have been killed while it wrote step {crash['step']}, and was not"
        another = f"{killed}; resumed from step {step}, and step {_step(data)} was to be verified"
        loaded, refused = f"{killed}; step {step} was verified", False if REFUSED.search(error) else None
        lost = f"{loaded}, but not loaded: {error or 'no rank reported a reason'}"
        yield first_match(
            node,
            expected,
            (not crash["torn"] or crash["exit"] == 0, None, alive),
            (step != _step(data), None, another),
            (older, None, f"{resumed}: this is not a resume from the newest verified step"),
            (wrong, False, f"{loaded}, and loaded with {wrong} wrong values", NOT_RESUMED),
            (wrong is None or error, refused, lost, NOT_RESUMED),
            (True, True, resumed),
        )


def section(trial: TrialResult, spec: TrialSpec) -> RecordedCheckpoint:
    """Return the record's section: the totals over all ranks, and the states that each node reached."""
    recorded: RecordedCheckpoint = {"nodes": []}
    if result := measured(trial, spec):
        recorded["ranks"], recorded["bytes"] = result.ranks, result.size
        recorded["pause_s"], recorded["flush_s"] = round(result.pause_s, 3), round(result.flush_s, 3)
        recorded["mb_s"], recorded["slowest_mb_s"] = round(result.mb_s, 1), round(result.slowest_mb_s, 1)
    for rank in range(spec.nodes):
        began: dict[int, float] = {}
        states: list[RecordedState] = []
        for each in every_stage(trial, rank)["checkpoint"]["states"]:
            step, at = int(each["step"] or 0), each["at"] or 0.0
            seconds = max(0.0, at - began.setdefault(step, at))
            states.append({"step": step, "state": str(each["state"]), "seconds": round(seconds, 3)})
        recorded["nodes"].append({"node": place(trial, rank), "states": states})
    return recorded


# -- projection to a model ---------------------------------------------------------------------------------------------


def model_findings(trial: TrialResult, asked: CheckpointSection, measured: Measured, model: str) -> Iterator[Finding]:
    """Predict pause, share and loss for a model of this size, and whether rank 0 could gather its state."""
    size = parameters(model) * asked.bytes_per_parameter
    pause, flush = size / measured.mb_s / 1e6, size * measured.flush_s / measured.size
    share = 100 * pause / (asked.interval_s + pause)
    observed = (
        f"{format_gib(size)} ({asked.bytes_per_parameter} bytes a parameter): every {asked.interval_s} s training "
        f"would pause {pause:.0f} s, {share:.1f} % of the GPUs' time; a failure would lose on average "
        f"{(asked.interval_s + pause) / 2 + flush:.0f} s and at most {asked.interval_s + pause + flush:.0f} s of work"
    )
    limit = asked.pause_max_s
    ok = limit is None or pause <= limit
    expected = f"at most {limit:g} s" if limit else "predicted at this trial's rate"
    yield compared(f"model {model}", ok, observed, expected, "checkpoint.slow")
    if asked.gather:
        free = every_stage(trial, 0)["checkpoint"]["memory_free"]
        fits = None if free is None else free >= size
        left = "free memory is unknown" if free is None else f"{format_gib(free)} left below its limit and on its node"
        memory, subject = f"{left}; the state of {model} unsharded is {format_gib(size)}", f"{place(trial, 0)} rank 0"
        yield compared(subject, fits, memory, "room to gather it", "checkpoint.gather-memory")


def warnings(trial: TrialResult, spec: TrialSpec) -> Iterator[str]:
    """Yield notes that are important but not judged, once for all nodes."""
    texts: set[str] = set()
    for rank in range(spec.nodes):
        data = every_stage(trial, rank)["checkpoint"]
        for each in data["places"]:
            if int(each["mode"] or 0) & ANY_USER and each["kind"] != "scratch":
                texts.add(f"WARNING: {each['path']} has {opened(each)}")
        texts |= {f"removed leftovers of a killed run: {name}" for name in data["cleaned"]}
        for bucket in every_stage(trial, rank)["storage"]["s3"]:
            if bucket["status"] == 200:  # an unsigned request: HeadBucket needs s3:ListBucket
                texts.add(f"WARNING: {bucket['uri']} allows anonymous access: its policy lets anyone list it")
    yield from sorted(texts)
