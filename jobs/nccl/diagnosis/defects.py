"""Defects of NCCL's versions that explain a fault: where the log names a version that has one, it is a likely cause.

Each is (fault, what its lines say, the first version with it, the first without it, the cause, what shows it). Sources:
NCCL's release notes, and the issue that is named. Those that cost bandwidth show in no line: version, GPU, hosts and
collective name them, and a table that is no faster than they leave it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..rows import bandwidths
from .faults import found_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ..job_document import Cause, FoundFault, JobDocument, Table

Version = tuple[int, ...]
_UPGRADE = "run once with a later NCCL (LD_PRELOAD=.../libnccl.so.2, or pip install -U nvidia-nccl-cu12)"
_HEAP = (
    r"free\(\): (?:invalid|corrupted)|double free|corrupted (?:size|double)|(?:malloc|munmap_chunk)\(\): "  # of glibc
)
_BLACKWELL = r"Blackwell|\bG?B(?:10|[1-3]00)\b|RTX 50[5-9]0"


class Defect(NamedTuple):
    """A defect that some versions have."""

    fault: str
    says: str  # a regular expression that one of the fault's lines matches
    since: Version
    before: Version  # repaired in this one; () where none is known to be
    cause: str
    confirm: str = _UPGRADE
    gpus: str = ""  # a regular expression of the GPUs that have it


class SlowDefect(NamedTuple):
    """A defect that costs bandwidth, with the collectives and GPUs (regular expressions) that it was seen with."""

    collectives: str
    gpus: str
    hosts: int  # at least
    since: Version
    before: Version  # repaired in this one; () where none is known to be
    cause: str
    confirm: str
    at_most: float = float("inf")  # GB/s of bus bandwidth that it leaves: a faster table does not have it
    algorithms: str = ""  # that have it; one that no line shows may be one of them
    setting: str = "$."  # NAME=value that keeps NCCL from it


DEFECTS = (
    Defect(
        "nccl.ports-used-up",
        "",
        (2, 7),
        (2, 19, 4),
        "connects to all peers of an alltoall at once and runs out of ports (2.19.4 connects in steps)",
    ),
    Defect(
        "nccl.ranks-differ",
        "does not loop back",
        (2, 19),
        (2, 20),
        "works out other rings on each rank where the kernel does not tell a link's speed (NVIDIA/nccl#1020)",
    ),
    Defect(
        "nccl.gdr-no-module",
        "",
        (2, 0),
        (2, 9, 8),
        "knows nv_peer_mem only; nvidia-peermem is recognised from 2.9.8 on",
        "lsmod | grep -E 'nv_peer_mem|nvidia_peermem'; a later NCCL with the same module",
    ),
    Defect(
        "nccl.gdr-no-module",
        "",
        (2, 9, 8),
        (2, 23, 4),
        "does not always recognise nvidia-peermem where the module is loaded (NVIDIA/nccl#1676)",
        "lsmod | grep nvidia_peermem: if it is loaded, run once with a later NCCL",
    ),
    Defect(
        "nccl.local-socket",
        "",
        (2, 18),
        (2, 20, 5),
        "gives the local sockets of communicators that were split the same name (NVIDIA/nccl#1185)",
    ),
    Defect(
        "nccl.collective-mismatch",
        "",
        (2, 7),
        (2, 7, 8),
        "reports a mismatch of collectives where ncclSend and ncclRecv are used rightly (release notes of 2.7.8)",
    ),
    Defect(
        "nccl.crash",
        r"\bras(?:Msg|Net|Peers|Thread|Coll|Conn)\w*|ras/\w+\.cc",
        (2, 24),
        (),
        "can fail in its RAS thread (NVIDIA/nccl#1996)",
        "NCCL_RAS_ENABLE=0",
    ),
    Defect(
        "nccl.crash",
        _HEAP,
        (2, 18),
        (2, 20),
        "writes past its tables where NVLS meets NICs of two ports (NVIDIA/nccl#1043)",
        "NCCL_NVLS_ENABLE=0; then a later NCCL",
    ),
    Defect(
        "nccl.crash",
        _HEAP,
        (2, 20),
        (2, 25),
        "is older than Blackwell and does not know its NVLink domains over hosts (NVIDIA/nccl#1611)",
        gpus=_BLACKWELL,
    ),
    Defect(
        "nccl.cuda-failure",
        "invalid argument",
        (2, 18),
        (2, 19, 3),
        "cannot share memory with CUDA IPC that the program has shared before, as vLLM does (NVIDIA/nccl#957)",
    ),
    Defect(
        "nccl.cuda-failure",
        r"include/shm\.h:\d.*invalid argument",
        (2, 3),
        (2, 6),
        "cannot always register its shared memory with CUDA (pytorch/pytorch#37325)",
    ),
    *(
        Defect(
            fault,
            "invalid argument",
            (2, 25),
            (2, 26),
            "asks for more shared memory of a kernel than GeForce cards of Blackwell have (NVIDIA/nccl-tests#287)",
            gpus=r"RTX 50[5-9]0",
        )
        for fault in ("nccl.cuda-failure", "nccl.crash")
    ),
    Defect(
        "nccl.ib-protection",
        "",
        (2, 20, 3),
        (),
        "takes each NIC's own MTU, and NICs of different MTU cannot talk: "
        "before, the smaller of both was taken (NVIDIA/nccl#1524)",
        "ibv_devinfo | grep active_mtu on both hosts; ip -br link",
    ),
    Defect(
        "nccl.cuda-arch",
        "",
        (2, 0),
        (2, 25),
        "has no code for GPUs later than Hopper (Blackwell needs 2.25 and CUDA 12.8)",
        "nvidia-smi --query-gpu=name,compute_cap --format=csv",
        _BLACKWELL,
    ),
    Defect(
        "nccl.topology-search",
        "Could not find NET with id",
        (2, 25),
        (2, 27),
        "can miss a NIC that its own search has chosen (NVIDIA-NeMo/Speech#13996: 2.27.3 finds it)",
    ),
    Defect(
        "nccl.topology-odd",
        "Could not find a path for pattern",
        (2, 25),
        (),
        "joins the GPUs of some A100 hosts to a slow path, which 2.22 does not (NVIDIA/nccl#1876)",
        "NCCL_PXN_DISABLE=1, which gives them their bandwidth back",
        r"\bA100\b",
    ),
)
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
        "builds rings ten times slower on AMD hosts whose GPUs are joined in pairs by NVLink (NVIDIA/nccl#770; "
        "repaired in 2.16.5)",
        "run once with NCCL 2.15.5, or with 2.16.5 or later",
        at_most=3.0,  # a tenth of what PCIe 4.0 could leave
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
"""Rows below it are bound by latency."""
_NUMBERS = re.compile(r"(?:^|\s)(\d{1,2})\.(\d{1,3})(?:\.(\d{1,3}))?")


def with_defects(
    causes: Sequence[Cause], faults: Sequence[FoundFault], versions: Sequence[str], gpus: Collection[str]
) -> list[Cause]:
    """Return a job's causes with the defect that its NCCL has, which stands behind the likeliest of them.

    ``versions`` are those that the log names, ``gpus`` the names of GPUs: one that only others have explains nothing.
    A defect explains the worst of the faults by the lines that show it.
    """
    if not faults:
        return list(causes)
    name, text = faults[0]["why"] or faults[0]["fault"], "\n".join(line["text"] for line in faults[0]["evidence"])
    defects: list[Cause] = [
        {"fault": name, "cause": f"NCCL {version.partition('+')[0]} {each.cause}", "confirm": each.confirm}
        for version in versions
        for each in DEFECTS
        if each.fault == name and _has(version, each) and re.search(each.says, text)
        if not (each.gpus and gpus) or any(re.search(each.gpus, gpu) for gpu in gpus)
    ]
    return [*causes[:1], *defects[:1], *causes[1:]]


def slow_versions(job: JobDocument) -> list[FoundFault]:
    """Return the defects that cost a job's tables bandwidth, one remark each: they make nothing no-go by themselves."""
    faults = []
    for table in job["tables"]:
        for each, version in _slow(job, table):
            cause = f"NCCL {version.partition('+')[0]} {each.cause}"
            found = found_fault(SLOW_VERSION, table["collective"] or "the benchmark", [], cause=cause)
            found["confirm"] = each.confirm
            faults.append(found)
    return faults


def slow_causes(faults: Iterable[FoundFault]) -> list[Cause]:
    """Return what slow_versions found, as causes of a bandwidth that is too low."""
    return [
        {"fault": SLOW_VERSION, "cause": fault["cause"], "confirm": fault["confirm"]}
        for fault in faults
        if fault["fault"] == SLOW_VERSION
    ]


def _slow(job: JobDocument, table: Table) -> Iterator[tuple[SlowDefect, str]]:
    large = [value for row in table["rows"] if row["size_bytes"] >= _LARGE for value in bandwidths(row)]
    settings = [f"{name}={value}" for name, value in job["env"].items()]
    for each in SLOW_DEFECTS if large else ():
        versions = [version for version in job["nccl_versions"] if _has(version, each)]
        on_them = job["gpus"] and all(re.search(each.gpus, gpu) for gpu in job["gpus"])
        if not versions or not on_them or (job["nodes"] or 0) < each.hosts or max(large) > each.at_most:
            continue
        off = any(re.search(each.setting, text) for text in settings)
        other = table["algorithm"] and not re.search(each.algorithms, table["algorithm"])
        if re.search(each.collectives, table["collective"] or "") and not off and not other:
            yield each, versions[0]


def _has(version: str, defect: Defect | SlowDefect) -> bool:
    match = None if version.startswith("RCCL") else _NUMBERS.search(version)
    if match is None:
        return False
    number = tuple(int(part or 0) for part in match.groups())
    return number >= defect.since and (not defect.before or number < defect.before)
