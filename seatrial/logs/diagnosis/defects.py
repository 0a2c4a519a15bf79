"""Defects of NCCL versions that explain a fault: a likely cause if the log names an affected version.

They are in the fault's entry (seatrial.faults.catalogue.Defect). Defects that cost bandwidth show in no line and are
here: version, GPU, hosts and collective identify them, and a table that is no faster than they allow. Sources: NCCL's
release notes, and the named issue.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ...faults.catalogue import catalogue
from ..rows import bandwidths
from .faults import found_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ..job_document import Cause, FoundFault, JobDocument, Table

Version = tuple[int, ...]


class SlowDefect(NamedTuple):
    """A defect that costs bandwidth, with the collectives and GPUs (regular expressions) that it was seen with."""

    collectives: str
    gpus: str
    hosts: int  # minimum number of hosts
    since: Version
    before: Version  # the version with the fix; () if none is known
    cause: str
    confirm: str
    at_most: float = float("inf")  # highest bus bandwidth with the defect, GB/s: a faster table is not affected
    algorithms: str = ""  # affected algorithms; an algorithm that no line shows may be affected
    setting: str = "$."  # NAME=value that avoids it


SLOW_VERSION = "nccl.slow-version"
SLOW_DEFECTS = (
    SlowDefect(
        "^all_reduce$",
        r"\bB300\b",
        3,
        (2, 25),
        (2, 30, 3),
        "gives about 200 GB/s with NVLSTree on more than two hosts of B300, where Ring gives 760 (NVIDIA/nccl#2035; "
        "repaired in 2.30.3)",
        "NCCL_ALGO=Ring on the same hosts; then NCCL 2.30.3 or later",
        at_most=400.0,
        algorithms="(?i)^nvls_?tree$",
        setting="^NCCL_NVLS_ENABLE=0$",
    ),
    SlowDefect(
        "^(all_reduce|all_gather|reduce_scatter)$",
        r"\bA40\b",
        1,
        (2, 16),
        (2, 16, 5),
        "builds rings ten times slower on AMD hosts with GPUs joined in pairs by NVLink (NVIDIA/nccl#770; "
        "repaired in 2.16.5)",
        "run once with NCCL 2.15.5, or with 2.16.5 or later",
        at_most=3.0,  # a tenth of the possible PCIe 4.0 rate
    ),
    SlowDefect(
        "^alltoall$",
        r"\bH800\b",
        3,
        (2, 19),
        (2, 21),
        "gives 37 GB/s of alltoall on three to eight hosts of H800, where 2.18 gives 50 (NVIDIA/nccl#1316)",
        "unset NCCL_NCHANNELS_PER_NET_PEER; run once with NCCL 2.18, or later than 2.20",
        at_most=45.0,
    ),
)
_LARGE = 64 << 20
"""Smaller rows are bound by latency."""
_NUMBERS = re.compile(r"(?:^|\s)(\d{1,2})\.(\d{1,3})(?:\.(\d{1,3}))?")


def with_defects(
    causes: Sequence[Cause], faults: Sequence[FoundFault], versions: Sequence[str], gpus: Collection[str]
) -> list[Cause]:
    """Return a job's causes with the defect of its NCCL version, after the most likely cause.

    ``versions`` are those that the log names, ``gpus`` the names of GPUs: a defect of other GPUs explains nothing. A
    defect explains the worst of the faults by the lines that show it.
    """
    if not faults:
        return list(causes)
    name, text = faults[0]["why"] or faults[0]["fault"], "\n".join(line["text"] for line in faults[0]["evidence"])
    defects: list[Cause] = [
        {"fault": name, "cause": f"NCCL {version.partition('+')[0]} {each.cause}", "confirm": each.confirm}
        for version in versions
        for each in catalogue()[name].defects
        if _has(version, _numbers(each.since), _numbers(each.before)) and re.search(each.says, text)
        if not (each.gpus and gpus) or any(re.search(each.gpus, gpu) for gpu in gpus)
    ]
    return [*causes[:1], *defects[:1], *causes[1:]]


def slow_versions(job: JobDocument) -> list[FoundFault]:
    """Return the defects that cost a job's tables bandwidth, one remark each: they are not a no-go by themselves."""
    faults = []
    for table in job["tables"]:
        for each, version in _slow(job, table):
            cause = f"NCCL {version.partition('+')[0]} {each.cause}"
            found = found_fault(SLOW_VERSION, table["collective"] or "the benchmark", [], cause=cause)
            found["confirm"] = each.confirm
            faults.append(found)
    return faults


def slow_causes(faults: Iterable[FoundFault]) -> list[Cause]:
    """Return the findings of slow_versions, as causes of a low bandwidth."""
    return [
        {"fault": SLOW_VERSION, "cause": fault["cause"], "confirm": fault["confirm"]}
        for fault in faults
        if fault["fault"] == SLOW_VERSION
    ]


def _slow(job: JobDocument, table: Table) -> Iterator[tuple[SlowDefect, str]]:
    large = [value for row in table["rows"] if row["size_bytes"] >= _LARGE for value in bandwidths(row)]
    settings = [f"{name}={value}" for name, value in job["env"].items()]
    for each in SLOW_DEFECTS if large else ():
        versions = [version for version in job["nccl_versions"] if _has(version, each.since, each.before)]
        on_them = job["gpus"] and all(re.search(each.gpus, gpu) for gpu in job["gpus"])
        if not versions or not on_them or (job["nodes"] or 0) < each.hosts or max(large) > each.at_most:
            continue
        off = any(re.search(each.setting, text) for text in settings)
        other = table["algorithm"] and not re.search(each.algorithms, table["algorithm"])
        if re.search(each.collectives, table["collective"] or "") and not off and not other:
            yield each, versions[0]


def _has(version: str, since: Version, before: Version) -> bool:
    number = () if version.startswith("RCCL") else _numbers(version)
    return number >= since and (not before or number < before) and number != ()


def _numbers(version: str) -> Version:
    """Return the numbers of a version; () if the text has none."""
    match = _NUMBERS.search(version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()
