"""What a failing line holds beyond its kind: addresses of a failed connection, an errno, the size of a segment.

Given the fault that a line speaks of, and the line, return the fault that explains it and the cause in words.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...pod.nccl_reader.state.seen import Note
    from .judge import Judgement

_ADDRESS = r"([0-9a-fA-F]{0,4}[:.][0-9a-fA-F:.]{2,44})"
# 'localGid A remoteGids B hca mlx5_1' (ncclIbTest, 2.19 and later), 'local GID A, remote GID B' (ncclIbRtrQp); both of
# Ethernet only: net_ib prints no GID of InfiniBand, whose subnets are all fe80::/64.
_GIDS = re.compile(r"(?i)local ?GID:? *" + _ADDRESS + r",? +remote ?GIDs? *" + _ADDRESS + r"(?:.{0,20}?hca (\S+))?")
_PEER = re.compile(r"[Cc]onnect(?:ing)? to (?:peer )?" + _ADDRESS)
_ROUTED = ("nccl.ib-retry", "nccl.ib-protection", "nccl.ib-error", "nccl.ib-unreachable")
_REFUSED = ("nccl.connect-refused", "nccl.connect-timeout", "nccl.no-route")
_CUDA = ("nccl.cuda-failure", "nccl.nvls-failed", "nccl.nvls-silent")
# What CUDA says of a kernel's own code (CUDA runtime API, cudaError 700, 710 and 714 to 718); 719 may be the GPU's end.
_KERNEL = re.compile(
    r"(?i)illegal memory access|illegal instruction|misaligned address|device-side assert"
    r"|(?:cuda failure|cuda error:?) (?:700|710|71[4-8])\b|Memory access fault by GPU"
)
_NVLS = ("nccl.nvls-failed", "nccl.nvls-silent")
_NO_MEMORY = re.compile(r"RC: -?12\b|Cannot allocate memory")
_EMPTY_GID = re.compile(r"local ?G[Ii][Dd]:? *::(?=[ ,]|$)")
_IMPORTS = "transport/p2p.cc"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def refine(judgement: Judgement, fault: str, note: Note) -> tuple[str | None, str | None]:  # noqa: PLR0911 -- one return per form
    """Return (why, cause) of a fault by its line; (None, None) where the line says no more than its kind."""
    if fault in _ROUTED:
        return _gids(note.text, judgement.event("gids"), note)
    if fault == "nccl.ib-mixed-fabric" and _EMPTY_GID.search(note.text):
        return "nccl.gid-empty", None
    if fault == "nccl.mr-register" and _NO_MEMORY.search(note.text):
        bare = judgement.earliest("nccl.gdrcopy")[0] or judgement.event("symptom nccl.gdrcopy")
        also = "; GDRCopy's device cannot be opened here, either" if bare else ""
        return "nccl.mr-memory", "the kernel or the card had no memory to pin (ENOMEM)" + also
    if fault in _NVLS and re.search(r"CUDA error 2\b|Cuda failure 2\b", note.text):
        return "nccl.nvls-slots", None
    if fault in ("nccl.cuda-failure", "nccl.mnnvl-failed") and _IMPORTS in note.text and "mnnvl" in judgement.job.flags:
        return "nccl.imex-import", _importers(judgement, fault)
    if fault in _REFUSED:
        match = _PEER.search(note.text)
        peer = _address(match[1]) if match else None
        if peer is not None and peer.is_link_local:
            return "nccl.bootstrap-link-local", (
                f"the peer announced {peer}, a link-local address, which is good on its own host only: NCCL took an "
                "interface that no other host can reach (EKS Pod Identity's pod-id-link0 is one)"
            )
        if peer is not None and fault == "nccl.connect-refused":
            return None, (
                f"nothing listens at {peer} any more: the process there ended first (read its log), another interface "
                "was announced, or a firewall rejects it"
            )
    if fault == "nccl.cuda-failure" and _KERNEL.search(note.text):
        return "nccl.kernel-fault", None
    if fault == "nccl.shm-attach" and re.search(r"\(size 0\)|/dev/shm/nccl-\W", note.text):
        return "nccl.shm-name", None
    if fault in _CUDA and re.search(r"\b802\b|system not yet initialized", note.text):
        return "nccl.fabric-manager", None
    return None, None


def _importers(judgement: Judgement, fault: str) -> str | None:
    """Say on which hosts of several the import of a peer's memory failed."""
    failed = {judgement.job.node_of[proc] for proc in judgement.job.procs if fault in proc.notes} - {""}
    every = set(judgement.job.node_of.values()) - {""}
    if not failed or failed == every:
        return None
    names = ", ".join(sorted(failed)[:4])
    return f"{names} could not import a peer's GPU memory, which is {len(failed)} of {len(every)} hosts of this log"


def _gids(text: str, other: Note | None, note: Note) -> tuple[str | None, str | None]:
    """Compare the two ends of a failed connection; a line that was wrapped holds them in its second half."""
    match = _GIDS.search(text)
    if match is None and other is not None and other.source == note.source and 0 <= other.line - note.line <= 2:
        match = _GIDS.search(other.text)
    if match is None:
        return None, None
    ends = _address(match[1]), _address(match[2])
    local, remote = ends
    if local is None or remote is None:
        return None, None
    card = f" ({match[3]})" if match[3] else ""
    if local.is_link_local or remote.is_link_local:
        return "nccl.gid-link-local", (
            f"the connection ran from {local}{card} to {remote}: a link-local address is not routed and says that this "
            "card has no other one, or that NCCL_IB_GID_INDEX names the wrong entry"
        )
    if _network(local) != _network(remote):
        return "nccl.gid-subnets", (
            f"the connection ran from {local}{card} to {remote}, another subnet: two rails that nothing connects, "
            "unless this fabric routes between its subnets (then GID index, MTU, VLAN or PFC)"
        )
    return None, None


def _address(text: str) -> Address | None:
    try:
        address: Address = ipaddress.ip_address(text.rstrip(".:") if not text.endswith("::") else text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _network(address: Address) -> object:
    """Return an address's subnet as fabrics are numbered: a /24 for each rail, or an IPv6 /64 (RFC 4291)."""
    bits = 24 if address.version == 4 else 64
    return ipaddress.ip_network((address, bits), strict=False)
