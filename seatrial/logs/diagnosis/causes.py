"""The specific cause in a line of a failure: addresses of a failed connection, an errno, the size of a segment.

Given a line and its fault, the functions return the fault that explains it and the cause in words. Causes that the
words of a line show by themselves are in variants.py.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from ...faults.catalogue import formed, having, worded
from ...faults.codes import cuda_error
from ...faults.variants import Detail

if TYPE_CHECKING:
    from ..reader.state.process import Note
    from .judge import Judgement

_ADDRESS = r"([0-9a-fA-F]{0,4}[:.][0-9a-fA-F:.]{2,44})"
# 'localGid A remoteGids B hca mlx5_1' (ncclIbTest, 2.19 and later), 'local GID A, remote GID B' (ncclIbRtrQp); both for
# Ethernet only: net_ib prints no GID of InfiniBand, whose subnets are all fe80::/64.
_GIDS = re.compile(r"(?i)local ?GID:? *" + _ADDRESS + r",? +remote ?GIDs? *" + _ADDRESS + r"(?:.{0,20}?hca (\S+))?")
_PEER = re.compile(r"(?:[Cc]onnect(?:ing)? to (?:peer )?|dest_addr=)" + _ADDRESS)
_GLOO = re.compile(r"(?i)gloo|SO_ERROR")
# torch's store (socket.cpp): 'trying to connect to (0.0.0.0, 51216)', 'any network address of (localhost, 29500)'
_OWN_ADDRESS = re.compile(r"(?:connect to|network address of) [(\[](0\.0\.0\.0|127\.\d+\.\d+\.\d+|localhost)\]?[,:]")
# Messages of a system call (errno(3)) about a failed connection that was not refused.
_SYSTEM_SAYS = re.compile(r"onnect (?:to \S{1,80} )?(?:failed ?:|returned) ?([A-Z][A-Za-z ]{3,60}[a-z])")
_LOOPBACK = re.compile(r"connect \[?(?:127\.\d+\.\d+\.\d+|::1)\]?:")  # the peer that Gloo could not connect to
_PORT = re.compile(r"^(\d+(?:\.\d+){3}):\d+$")
# Addresses of Docker's own bridge (docker0, those of compose: its default pools), which many hosts share.
_OWN_BRIDGES = {ipaddress.ip_address("172.%d.0.1" % second) for second in range(17, 32)}
_DOCKER = ipaddress.ip_network("172.17.0.0/24")  # the first address of Docker's default bridge
_CUDA = ("nccl.cuda-failure", "nccl.nvls-failed", "nccl.nvls-silent", "nccl.p2p-refused")
_NVLS = ("nccl.nvls-failed", "nccl.nvls-silent")
_NO_MEMORY = re.compile(r"RC: -?12\b|Cannot allocate memory")
_EMPTY = ("nccl.ib-mixed-fabric", "nccl.ib-unreachable")
_EMPTY_GID = re.compile(r"local ?G[Ii][Dd]:? *::(?=[ ,]|$)|ibv_modify_qp failed .{0,12}No data available")
_IMPORTS, _SHARES = "transport/p2p.cc", "transport/shm.cc"
_NAMES_NOTHING = re.compile("Call to CUDA function failed|unhandled cuda error")
_NO_PEERMEM = "neither nvidia-peermem nor nv_peer_mem is loaded on this node, and NVSHMEM's NICs write to GPUs by it"
_NO_MLX5 = (
    "NVSHMEM's GPU-initiated transport (IBGDA) drives mlx5 NICs alone, and a device here is of another kind, or"
    " missing: NVSHMEM_IB_ENABLE_IBGDA=0, or NVSHMEM_HCA_LIST names the mlx5 ones"
)
_NO_WAY = (
    "NVSHMEM's NICs found no route to each other: on RoCE NVSHMEM_IB_GID_INDEX or NVSHMEM_HCA_LIST names a wrong "
    "entry or NIC, or NICs of the two ends are in different subnets"
)
_BY_ANOTHER = {  # event of another line that explains it, mostly of a lower library: its fault and the cause
    "nccl.nvshmem": (
        ("symptom nccl.gdr-no-module", "nccl.gdr-no-module", _NO_PEERMEM),
        ("unheaded nccl.ib-unreachable", None, _NO_WAY),
        ("symptom nccl.ib-no-device", None, _NO_MLX5),
    ),
    "nccl.ib-unreachable": (("symptom nccl.gid-empty", "nccl.gid-empty", None),),
    "nccl.imex-import": (("symptom nccl.imex-asleep", "nccl.imex-asleep", None),),
    "nccl.mnnvl-failed": (("symptom nccl.imex-asleep", "nccl.imex-asleep", None),),
    "nccl.gdr-register": (("symptom nccl.dmabuf-topology", "nccl.dmabuf-topology", None),),
    "nccl.mr-register": (("symptom nccl.dmabuf-topology", "nccl.dmabuf-topology", None),),
    "nccl.no-gpu": (("symptom nccl.cuda-symbols", "nccl.cuda-symbols", None),),
    "nccl.ofi-error": (("symptom nccl.cxi-service", "nccl.cxi-service", None),),  # Slingshot's provider
}
_REFUSED_ARGUMENT = (
    "CUDA refused an argument: mostly memory of another process that cannot be shared (a container that sees its "
    "own GPU alone, expandable_segments, an engine's sleep mode), or a driver older than the CUDA of the image"
)
_JOINED = re.compile(r"\(world_size=(\d{1,7}), (?:worker_count|num_workers_joined)=(\d{1,7})")
_SOUGHT = re.compile(r"trying to connect to [(\[]([\w.:-]{2,253}?)\]?[,:] ?(\d{1,5})")  # torch's socket.cpp
_CULPRIT = re.compile(r"Culprit rank (\d{1,7})")  # torchfrtrace
_NOT_THERE = re.compile(r"(Ranks? [\d, ]{1,200}\d) failed to pass monitoredBarrier")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def refine(judgement: Judgement, fault: str, note: Note) -> Detail:
    """Return the specific cause in a fault's line; None without one."""
    if (said := formed(fault, note.text)) is not None:
        return said
    below = _below(judgement, note) if fault == "nccl.launch-failed" else None
    return _by_words(judgement, fault, note) if below is None else below


def _by_words(judgement: Judgement, fault: str, note: Note) -> Detail:
    """Return the cause of a fault by the addresses and words of its line and of the job's other lines."""
    if (known := _of_job(judgement, fault, note)) is not None:
        return Detail(*known)
    if (said := worded(fault, note.text)) is not None:
        return said
    return Detail(*_of_rest(judgement, fault, note))


def _of_job(judgement: Judgement, fault: str, note: Note) -> tuple[str | None, str | None] | None:  # noqa: PLR0911 -- one return per form
    """Return (why, cause) from the line's addresses and the job's other lines; None if they do not show it."""
    if fault in _EMPTY and _EMPTY_GID.search(note.text):
        return "nccl.gid-empty", None
    if fault.startswith("nccl.ib-") and fault in having("scope", "hosts"):
        ends = _gids(note.text, judgement.event("gids"), note)
        if any(ends) or fault not in _BY_ANOTHER:
            return ends
    if fault == "nccl.mr-register" and _NO_MEMORY.search(note.text):
        bare = judgement.earliest("nccl.gdrcopy")[0] or judgement.event("symptom nccl.gdrcopy")
        also = "; GDRCopy's device cannot be opened here, either" if bare else ""
        return "nccl.mr-memory", "the kernel or the NIC had no memory to pin (ENOMEM)" + also
    if fault in ("nccl.cuda-failure", "nccl.mnnvl-failed") and _IMPORTS in note.text and "mnnvl" in judgement.job.flags:
        return "nccl.imex-import", _importers(judgement, fault)
    by_gloo = fault == "nccl.bootstrap-unroutable" or (fault in having("stage", "connect") and _GLOO.search(note.text))
    if by_gloo and (judgement.event("symptom nccl.loopback-name") or _LOOPBACK.search(note.text)):
        return "nccl.loopback-name", None
    if fault in having("stage", "connect"):
        return _refused(fault, note)
    if (explained := next((each for each in _BY_ANOTHER.get(fault, ()) if judgement.event(each[0])), None)) is not None:
        return explained[1:]
    return None


def _of_rest(judgement: Judgement, fault: str, note: Note) -> tuple[str | None, str | None]:
    """Return (why, cause) of a line that matches no variant."""
    if fault == "nccl.shm-attach" and re.search(r"\(size 0\)|/dev/shm/nccl-\W", note.text):
        return "nccl.shm-name", None
    if (fault == "nccl.rendezvous" or fault in having("stage", "connect")) and (
        match := _OWN_ADDRESS.search(note.text)
    ):
        return None, _own_address(match[1])
    if fault == "nccl.connect-failed" and (match := _SYSTEM_SAYS.search(note.text)):
        return None, f"{match[1]}: the system gave the connection up"
    if (named := _of_named(fault, note.text)) is not None:
        return named
    why = _of_cuda(judgement, fault, note) if fault in _CUDA else None
    refused = why is None and fault == "nccl.cuda-failure" and "invalid argument" in _cuda_said(judgement, note)
    return why, _REFUSED_ARGUMENT if refused else None


_CONTAINER = re.compile(r"pyxis: |create failed|(?:shim|containerd) task|enroot|CreateContainer")


def _below(judgement: Judgement, note: Note) -> Detail | None:
    """Return the message of a runtime's hook or mount, if a launcher only reports that a container did not start."""
    if _CONTAINER.search(note.text) is None:
        return None
    for hook in ("nccl.no-gpu", "nccl.driver-state"):
        said = judgement.event("symptom " + hook)
        if said is not None and "nvidia-container-cli" in said.text:
            return refine(judgement, hook, said)._replace(why=hook)
    reason = judgement.event("symptom nccl.container")
    detail = None if reason is None else formed("nccl.container", reason.text)
    return None if detail is None else detail._replace(why="nccl.container")


# The meaning of a status (cublasStatus_t, cudnnStatus_t); the libraries of a release use the same names.
_NO_ROOM = ("NOT_INITIALIZED", "ALLOC_FAILED", "INTERNAL_ERROR")
_NOT_FIT = ("INVALID_VALUE", "NOT_SUPPORTED", "ARCH_MISMATCH", "VERSION_MISMATCH", "BAD_PARAM")
_STATUS = re.compile(r"\b(CU[A-Z]{3,8})_STATUS_(?!SUCCESS)([A-Z]+(?:_[A-Z]+){0,4})(?: when calling .?(\w{3,60}))?")
_LIBRARIES = {"CUBLAS": "cuBLAS", "CUDNN": "cuDNN", "CUFFT": "cuFFT", "CUSOLVER": "cuSOLVER", "CUSPARSE": "cuSPARSE"}


def _of_library(library: str, status: str, call: str | None) -> str:
    """Name the library, the refused call, and the usual meaning of its status."""
    name = _LIBRARIES.get(library, library)
    what = f"{name} ({call}) says {status}" if call else f"{name} says {status}"
    if status.startswith(_NO_ROOM):
        return what + ": mostly the GPU has no memory left for it, else another release of the library was found"
    if status.startswith(_NOT_FIT):
        return what + ": mostly a library of another CUDA release was found first (LD_LIBRARY_PATH)"
    return what + ": a library that does not fit this GPU or driver was found first, or an earlier kernel failed"


def _of_named(fault: str, text: str) -> tuple[str | None, str] | None:
    """Return (why, cause) of a fault with a line that counts or names the ranks, or the library that failed."""
    if fault == "nccl.cuda-library" and (match := _STATUS.search(text)):
        return None, _of_library(*match.groups())
    if fault == "nccl.rendezvous" and (match := _SOUGHT.search(text)):
        return None, (
            "nothing answered at %s, port %s, where rank 0 or its store is expected: that pod did not start or "
            "has ended, "
            "the name leads to an old address, or a policy or firewall drops the connection" % match.groups()
        )
    if fault == "nccl.rendezvous" and (match := _JOINED.search(text)):
        why = "nccl.too-many-processes" if int(match[2]) > int(match[1]) else None
        return why, "WORLD_SIZE is %s, and %s joined" % match.groups()
    if fault == "nccl.collective-mismatch" and (culprits := _CULPRIT.findall(text)):
        ranks = ("rank " if len(culprits) == 1 else "ranks ") + ", ".join(dict.fromkeys(culprits))
        return None, f"{ranks} called something else than the rank that torchfrtrace compared them with"
    if fault == "nccl.hang-late" and (match := _NOT_THERE.search(text)):
        return None, "%s did not reach the barrier in time" % match[1].lower()
    return None


def _own_address(address: str) -> str:
    """Describe the fault of a rendezvous at an address that is local on each host."""
    if address == "0.0.0.0":  # noqa: S104 -- read, not bound
        return "0.0.0.0 was given as the address of rank 0: a process can listen at it, but none can connect to it"
    return (
        f"the address of rank 0 (MASTER_ADDR, the rendezvous endpoint) is {address}, the same on each host: ranks of"
        " other hosts look for rank 0 at themselves; on one host, rank 0 did not start, or ended"
    )


def peer_of(text: str) -> Address | None:
    """Return the address that a line could not connect to."""
    match = _PEER.search(text)
    return address_of(_PORT.sub(r"\1", match[1])) if match else None


def _refused(fault: str, note: Note) -> tuple[str | None, str | None] | None:
    """Explain an unreachable peer by its address; None if the address explains nothing."""
    peer = peer_of(note.text)
    if peer is not None and peer.is_link_local:
        return "nccl.bootstrap-link-local", (
            f"the peer announced {peer}, a link-local address, valid on its own host only: NCCL took an "
            "interface that no other host can reach (EKS Pod Identity's pod-id-link0 is one)"
        )
    if peer is not None and peer.is_loopback and "UCX" in note.text:
        return "nccl.bootstrap-unroutable", (
            f"UCX was given {peer}, the peer's loopback address: a process on another host that connects to it reaches"
            " itself "
            "(UCX_NET_DEVICES names the interface); on the same one it had ended"
        )
    if peer in _OWN_BRIDGES:
        return "nccl.bootstrap-unroutable", (
            f"the peer announced {peer}, an address of Docker's own bridges (docker0, of compose), which many hosts"
            " have: a process that connects to it reaches its own host (NCCL_SOCKET_IFNAME; for MPI and UCX"
            " UCX_NET_DEVICES, "
            "btl_tcp_if_include)"
        )
    if peer is not None and fault != "nccl.connect-refused" and peer in _DOCKER:
        return "nccl.bootstrap-unroutable", (
            f"the peer announced {peer}, of the range of Docker's default bridge: its container does not have its "
            "host's network (--net=host), and no other machine reaches it there"
        )
    if peer is not None and fault == "nccl.connect-refused":
        return None, (
            f"nothing listens at {peer} any more: the process there ended first (read its log), another interface "
            "was announced, or a firewall rejects it"
        )
    return None


def _of_cuda(judgement: Judgement, fault: str, note: Note) -> str | None:
    """Return the cause of a failed CUDA call, by CUDA's error and the call's purpose."""
    said = _cuda_said(judgement, note)
    error = cuda_error(said)
    if error.fault == "nccl.fabric-manager":
        return error.fault
    if fault in _NVLS:
        return "nccl.nvls-slots" if error.fault == "nccl.cuda-memory" else None
    if _SHARES in said:
        return "nccl.cumem-host"
    if _IMPORTS in said and error.imports:
        return "nccl.p2p-refused" if fault == "nccl.cuda-failure" else None
    return error.fault or None if fault == "nccl.cuda-failure" else None


def _cuda_said(judgement: Judgement, note: Note) -> str:
    """Return CUDA's error of a failed call; after NCCL's error it is in the last error."""
    last = judgement.event("last-error cuda")
    return last.text if last is not None and _NAMES_NOTHING.search(note.text) else note.text


def _importers(judgement: Judgement, fault: str) -> str | None:
    """Name the hosts, if not all, on which the import of a peer's memory failed."""
    failed = {judgement.job.node_of[proc] for proc in judgement.job.noted.get(fault, ())} - {""}
    every = set(judgement.job.node_of.values()) - {""}
    if not failed or failed == every:
        return None
    names = ", ".join(sorted(failed)[:4])
    return f"{names} could not import a peer's GPU memory: {len(failed)} of {len(every)} hosts of this log"


def _gids(text: str, other: Note | None, note: Note) -> tuple[str | None, str | None]:
    """Compare the two ends of a failed connection; the second half of a wrapped line has them."""
    match = _GIDS.search(text)
    if match is None and other is not None and other.source == note.source and 0 <= other.line - note.line <= 2:
        match = _GIDS.search(other.text)
    if match is None:
        return _ucx_gid(note, other)
    ends = address_of(match[1]), address_of(match[2])
    local, remote = ends
    if local is None or remote is None:
        return None, None
    card = f" ({match[3]})" if match[3] else ""
    if local.is_link_local or remote.is_link_local:
        return "nccl.gid-link-local", (
            f"the connection ran from {local}{card} to {remote}: a link-local address is not routed and says that this "
            "NIC has no other one, or that NCCL_IB_GID_INDEX names the wrong entry"
        )
    if _network(local) != _network(remote):
        return "nccl.gid-subnets", (
            f"the connection ran from {local}{card} to {remote}, another subnet: two rails that nothing connects, "
            "unless this fabric routes between its subnets (then GID index, MTU, VLAN or PFC)"
        )
    return None, None


_DGID = re.compile(r" sgix (\d{1,3}) dgid (fe80:\S{2,40})")


def _ucx_gid(note: Note, other: Note | None) -> tuple[str | None, str | None]:
    """Report that a UCX path over RoCE led to a link-local GID, which UCX prints on the line after the error."""
    match = _DGID.search(other.text) if other is not None and "/RoCE" in note.text else None
    if match is None:
        return None, None
    return "nccl.gid-link-local", (
        f"UCX took GID {match[1]} and connected to {match[2]}: a link-local address is not routed "
        f"(UCX_IB_GID_INDEX, of "
        "NCCL NCCL_IB_GID_INDEX, names another entry, as of RoCE v2)"
    )


def address_of(text: str) -> Address | None:
    """Parse an IP address, ignoring a trailing full stop or colon; None if the text is not an address."""
    try:
        address: Address = ipaddress.ip_address(text.rstrip(".:") if not text.endswith("::") else text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _network(address: Address) -> object:
    """Return an address's subnet as fabrics are numbered: a /24 for each rail, or an IPv6 /64 (RFC 4291)."""
    bits = 24 if address.version == 4 else 64
    return ipaddress.ip_network((address, bits), strict=False)
