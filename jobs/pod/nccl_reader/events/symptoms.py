"""The symptom table as patterns, in the order in which they are tried.

A consequence (a peer that went away, a flushed work request) is never a cause, and what only looks alarming stays
quiet: both are named here, so that no other pattern takes them. Numbers are the rows of the
catalogue's symptom table (section 2).
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from ..lines.patterns import HEX_DIGITS, AnyOf, Patterns, needed
from .nccl_warnings import LOCAL_SOCKET, NCCL_WARNINGS
from .other_software import NOT_NCCL

CAUSE = "cause"  # by itself the reason of a failure
WHY = "why"  # explains a choice (sockets, no GPUDirect); a fault only together with that choice
DEGRADED = "degraded"  # works, but worse than the hardware could
CONSEQUENCE = "consequence"  # another rank failed first
BENIGN = "benign"


class Symptom(NamedTuple):
    """One kind of line: the fault it speaks of, what role it plays, and the rows of the catalogue it covers."""

    fault: str
    role: str
    pattern: bytes
    rows: Tuple[int, ...]
    words: Tuple[bytes, ...]  # of which every match holds one


def _symptom(fault: str, role: str, pattern: bytes, *rows: int) -> Symptom:
    return Symptom(fault, role, pattern, rows, needed(pattern))


# The first match wins. Benign and secondary lines come first where a later pattern would also take them.
SYMPTOMS: Tuple[Symptom, ...] = (
    # -- benign, however they look
    _symptom("", BENIGN, rb"NUMA auto balancing enabled|HSA_FORCE_FINE_GRAIN_PCIE|amdgpu driver|MSCCL", 63),
    _symptom("nccl.iommu", WHY, rb"Missing \"?iommu=pt"),  # of RCCL
    _symptom("", BENIGN, rb"kvConvertTo|KV Convert to int", 64),
    _symptom("", BENIGN, rb"(?:GIN|TUNER|PROFILER|ENV|RMA)/Plugin ?:"),
    _symptom("", BENIGN, rb"Could not load libgdrapi|Need to force simple protocol"),
    *(_symptom(*each) for each in (LOCAL_SOCKET, *NOT_NCCL)),
    _symptom("nccl.gdrcopy", WHY, rb"[Ff]ailed to initialize GDRCopy|Failed to open gdr handle"),
    _symptom(
        "nccl.ep-timeout", CAUSE, rb"NCCL EP timeout for|DeepEP (?:\w+ ){0,4}timeout|DeepEP error: .{0,20}timeout"
    ),
    # libfabric's words for the codes of the EFA device (prov/efa/src/efa_errno.h), as aws-ofi-nccl quotes them
    _symptom("nccl.efa-unreachable", CAUSE, rb"NET/OFI .*completed with error.*Unreachable remote"),
    _symptom(
        "nccl.efa-peer-gone",
        CAUSE,
        rb"NET/OFI .*completed with error.*(?:Unresponsive re(?:ceiver|mote)|receiver queue pair number)",
    ),
    _symptom(
        "nccl.gpu-xid",
        CAUSE,
        rb"NVRM: Xid \([^)]{4,40}\): (?:48|64|74|79|94|95|119|120|140)\b|SXid \([^)]{4,40}\): \d{1,6}, Fatal"
        rb"|(?:CUDA error: |Cuda failure ).{0,8}uncorrectable (?:ECC|NVLink) error"
        rb"|cudaError(?:ECC|Nvlink)Uncorrectable",
    ),
    _symptom(
        "nccl.p2p-refused",
        CAUSE,
        rb"peer access is not supported|failed to open CUDA IPC handle|hipIpc(?:Get|Open)MemHandle failed",
    ),
    _symptom("nccl.bootstrap-unroutable", CAUSE, rb"Gloo connectFullMesh failed"),
    _symptom("nccl.ib-link-flap", CAUSE, rb"mlx5_core .{1,80}Link down"),
    _symptom(
        "nccl.nvshmem",
        CAUSE,
        rb"init failed for (?:remote )?transport|nvshmem\S{1,200}:\d{1,5}: (?:non-zero status|NULL value)"
        rb"|(?:NVSHMEM|nvshmem)[^/:]{1,40} failed",
    ),
    _symptom("nccl.port-in-use", CAUSE, rb"server socket has failed to (?:listen|bind).{1,200}(?:EADDRINUSE|in use)"),
    _symptom("nccl.shm-full", CAUSE, rb"out of shared memory|insufficient shared memory \(shm\)"),
    _symptom(
        "nccl.process-limit",
        CAUSE,
        rb"pthread_create.{1,40}(?:Resource temporarily|returned 11)|can't start new thread",
    ),
    _symptom(
        "nccl.invalid-usage",
        CAUSE,
        rb"Invalid rank requested|invalid root \d|invalid type \d|invalid reduction operation|argument is NULL"
        rb"|is not a valid pointer|mismatchs with NCCL device",
    ),
    # before the first line of NCCL: torch's store (TCPStore.cpp, socket.cpp)
    _symptom(
        "nccl.rendezvous",
        CAUSE,
        rb"waiting for clients\. \d+/\d+ clients joined"
        rb"|client socket has timed out after .{1,60} while trying to connect|RendezvousTimeoutError",
    ),
    _symptom("nccl.fabric-manager", CAUSE, rb"[Ee]rror 802: system not yet initialized|cudaErrorSystemNotReady"),
    _symptom("nccl.no-gpu", CAUSE, rb"no CUDA-capable device is detected|Test CUDA failure .*invalid device ordinal"),
    _symptom(
        "nccl.cuda-driver",
        CAUSE,
        rb"CUDA driver version is insufficient|not supported in the installed CUDA driver"
        rb"|forward compatibility was attempted on non supported|unsupported display driver / cuda driver",
    ),
    _symptom(
        "",
        BENIGN,
        rb"Failed to find nccl(?:Net|CollNet|Tuner|Profiler|Env)Plugin_v\d+ symbol|Failed to find symbol nccl\w+_v\d+",
        8,
    ),
    _symptom("", BENIGN, rb"Communicator has \d+ nodes which is less than CollNet node threshold", 53),
    _symptom("", BENIGN, rb"NET/Socket : GPU Direct RDMA Disabled"),
    _symptom("", BENIGN, rb"retrying \d+/\d+ after|Port recovery succeeded", 75),
    _symptom("", BENIGN, rb"NCCL_NVLS_NCHANNELS|NVLS_NCHANNELS|cudaDriverVersion|Library dmabuf"),
    # What NCCL calls non-fatal (ncclIbAsyncThreadMain) and no link that broke: a port came up, the subnet manager moved
    # or swept, a queue pair was closed (ibv_event_type_str of rdma-core). Traffic goes on. Not so where LID or P_Key
    # changed: NCCL calls these non-fatal, too, but its queue pairs keep the old ones.
    _symptom(
        "",
        BENIGN,
        rb"async event ?: ?(?:SM change|client rereg|port active|send queue drained"
        rb"|last WQE reached|SRQ limit|path migrated|communication est)",
    ),
    # -- consequences of another rank's end
    _symptom("nccl.ib-flushed", CONSEQUENCE, rb"status=(?:\w+\()?5\)? |with error 5, |vendor err(?:=| )249", 26),
    _symptom(
        "nccl.peer-gone",
        CONSEQUENCE,
        rb"[Cc]onnection closed by remote peer|Socket recv failed|Failed to execute operation"
        rb"|\[Service thread\] (?:Error|Could not|Accept failed)"
        rb"|Could not receive (?:type|message)|remote process (?:has )?exited|connection reset by peer"
        rb"|Connection reset by peer"
        rb"|Error encountered progressing operation|Proxy Call to rank|ncclProxyClientGetFd|failed to (?:send"
        rb"|receive) .* peer"
        rb"|Broken pipe|Connection closed by peer \[|Socket send failed|recv failed.*[Bb]ootstrap"
        rb"|socketProgressOpt.*abort"
        rb"|Proxy .*op(?:eration)? .*abort",
        39,
    ),
    # -- process and launcher level
    _symptom("nccl.duplicate-gpu", CAUSE, rb"Duplicate GPU detected|Multiple [Rr]anks are using the same GPU", 44),
    _symptom("nccl.version-mismatch", CAUSE, rb"Mismatched NCCL version detected", 42),
    _symptom("nccl.message-truncated", CAUSE, rb"[Mm]essage truncated|collective mismatch error,? local size", 41),
    _symptom(
        "nccl.collective-mismatch",
        CAUSE,
        rb"[Mm]ismatched collective|Collective mismatch|caused by a collective mismatch"
        rb"|Detected mismatch between collectives",
        58,
    ),
    # -- shared memory and local peers
    _symptom(
        "nccl.shm-attach",
        CAUSE,
        rb"attaching to shared memory segment|shm_open.*No such file|Could not open /dev/shm/nccl"
        rb"|unlink shared memory .{1,80}failed",
        46,
    ),
    _symptom(
        "nccl.shm-full",
        CAUSE,
        rb"posix_fallocate failed|failed to extend /dev/shm|creating shared memory segment|/dev/shm.*No space left",
        45,
    ),
    _symptom(
        "nccl.nvls-silent",
        DEGRADED,
        rb"(?:NVLS|NVLink SHARP).*Proceeding without NVLS|Proceeding without NVLS support",
        50,
    ),
    _symptom(
        "nccl.nvls-failed",
        CAUSE,
        rb"NVLink SHARP \(NVLS\) Multicast|transport/nvls\.cc:\d+ .*NCCL WARN|Cuda failure 401\b|cuMulticast\w+ failed",
        49,
    ),
    _symptom("nccl.mnnvl-failed", CAUSE, rb"MNNVL .*not working|Check the IMEX|IMEX channel", 51),
    _symptom("nccl.p2p-off", DEGRADED, rb"P2P is disabled between NVLINK connected GPUs", 47),
    _symptom("", BENIGN, rb"P2P is disabled between connected GPUs", 54),
    # -- why sockets: plugins, verbs, filters
    _symptom("nccl.net-forced", CAUSE, rb"Error: network .{1,80} not found|Failed to initialize any NET plugin", 15),
    _symptom(
        "nccl.plugin-too-old",
        WHY,
        rb"Failed to find ncclNetPlugin symbol|ncclNetPlugin symbols v\d and lower are not supported",
        7,
    ),
    _symptom(
        "nccl.plugin-broken",
        WHY,
        rb"NET/Plugin ?:.{0,200}(?:undefined symbol|cannot open shared object file: (?!No such)|invalid ELF|wrong ELF"
        rb"|version `[^']+' not found)"
        rb"|NET/Plugin ?:.{0,120}lib(?!nccl-net)[a-z_]{2,40}\.so[.\d]*: cannot open shared object file",
        6,
    ),
    _symptom(
        "nccl.plugin-missing",
        WHY,
        rb"NET/Plugin ?: ?(?:dlerror=)?.{0,80}(?:No plugin found|Could not find: libnccl-net"
        rb"|Plugin load \([^)]*\) returned 2\b)|No network plugin found|No plugin found \(",
        9,
    ),
    _symptom(
        "nccl.ofi-no-provider",
        WHY,
        rb"aws-ofi-nccl initialization failed|aws-ofi-rccl initialization failed|Could not find any optimal provider"
        rb"|No eligible providers"
        rb"|NET/OFI (?:Failed to initialize \w{1,12} protocol|Only EFA provider is supported)"
        rb"|Couldn't open a fabric provider|Unable to find a protocol that worked|NET/OFI .*[Nn]o .*provider"
        rb"|NET/OFI .*fi_getinfo\(\) call failed",
        10,
    ),
    _symptom(
        "nccl.mr-register",
        CAUSE,
        rb"Unable to register memory|Failed to register memory|register_mr_buffers.*failed|NET/OFI .{0,160}RC: -?12\b",
        61,
    ),
    _symptom(
        "nccl.ofi-error",
        CAUSE,
        rb"NET/OFI .*completed with error|NET/OFI Couldn't (?:open|enable|bind|create)"
        rb"|NET/OFI Creating new endpoint .*failed",
    ),
    # libibverbs itself (init.c: verbs_load_drivers): the device is there, and its user-space half is not.
    _symptom(
        "nccl.verbs-provider",
        WHY,
        rb"no userspace device-specific driver found for|libibverbs: Warning: couldn't load driver",
    ),
    _symptom("nccl.libibverbs-missing", WHY, rb"(?:Failed to|Could not|Count not) open libibverbs", 4),
    _symptom(
        "nccl.ib-open",
        WHY,
        rb"NET/IB ?: Unable to open device|Unable to query (?:device|port)|ibv_open_device failed"
        rb"|could not open \S{1,40} \(.{1,80}errno \d",
        32,
    ),
    _symptom(
        "nccl.ib-no-device",
        WHY,
        rb"NET/IB ?: No device found|[Nn]et/IB: call to devices\(\) returned 0 devices|NET/IB ?: No IB device found",
        1,
        2,
    ),
    # The InfiniBand transport is a plugin like the others since 2.28, and fails so on every host without a NIC.
    _symptom("nccl.plugin-init-failed", WHY, rb"Failed to initialize NET plugin (?!Socket|IB\b)", 14),
    _symptom("nccl.plugin-abort", CAUSE, rb"NET/FasTrak.*(?:initialization failed|aborting)"),
    # -- verbs at work
    _symptom(
        "nccl.ib-mixed-fabric",
        CAUSE,
        rb"incompatible (?:collNet )?devices|NICs of only one link type|[Mm]ix(?:ed|ing) .*(?:IB|InfiniBand).*RoCE",
        29,
    ),
    _symptom(
        "nccl.ib-memlock",
        CAUSE,
        rb"ibv_(?:reg_mr\w*|create_qp|create_cq|reg_dmabuf_mr)\S* failed(?:.*(?:Cannot allocate memory|error 12\b"
        rb"|with 12 )|\s*$)",  # before 2.8 without an errno
        30,
        31,
    ),
    _symptom(
        "nccl.gdr-register",
        CAUSE,
        rb"ibv_reg_(?:dmabuf_)?mr\S* failed.*(?:Bad address|Invalid argument|Operation not (?:supported|permitted))",
        61,
    ),
    # with the GIDs of both ends, which NCCL prints of RoCE only, the link types do not differ
    _symptom(
        "nccl.ib-mixed-fabric", CAUSE, rb"ibv_modify_qp failed.*(?:Invalid argument|with 22 )(?!.*remote GID)", 29
    ),
    _symptom("nccl.ib-unreachable", CAUSE, rb"ibv_modify_qp failed", 28),
    _symptom(
        "nccl.ib-link-flap",
        CAUSE,
        rb"async (?:fatal|error) event|async event ?: ?(?:port|path migration)|\bport error"
        rb"|\b[Pp]ort .*(?:went|is) down",
        25,
    ),
    _symptom(
        "nccl.ib-protection", CAUSE, rb"Got completion.*(?:status=(?:\w+\()?(?:4|10)\)?(?:[ ,]|$)|error (?:4|10), )", 27
    ),
    _symptom(
        "nccl.ib-retry",
        CAUSE,
        rb"Got completion.*(?:status=(?:\w+\()?1[23]\)?(?:[ ,]|$)|error 1[23], |vendor err(?:=| )129)",
        24,
        25,
        75,
    ),
    _symptom("nccl.ib-error", CAUSE, rb"Got completion (?:from peer|with error)", 24),
    # -- bootstrap and sockets
    _symptom(
        "nccl.bootstrap-interface",
        CAUSE,
        rb"[Bb]ootstrap ?: no socket interface found|No usable listening interface|NET/Socket ?: no interface found"
        rb"|no device found matching|No interface found",
        34,
    ),
    _symptom(
        "nccl.no-route", CAUSE, rb"No route to host|returned 113\b|Network is unreachable|Host is unreachable", 37
    ),
    _symptom("nccl.connect-refused", CAUSE, rb"[Cc]onnection refused|returned 111\b", 36),
    _symptom(
        "nccl.connect-timeout",
        CAUSE,
        rb"(?:[Ss]ocket|[Bb]ootstrap|[Cc]onnect).*[Cc]onnection timed out|returned 110\b|Connect to .* timed out",
        38,
    ),
    _symptom("nccl.connect-failed", CAUSE, rb"Connect to .* failed"),  # by another errno than those above
    _symptom("nccl.mixed-transport", CAUSE, rb"wrong type \d+ != \d+", 12),
    _symptom("nccl.wrong-peer", CAUSE, rb"wrong magic|magic mismatch|invalid magic", 40),
    _symptom("nccl.rank-count", CAUSE, rb"mismatch in (?:rank count|info) from procs|has already checked in"),
    _symptom("nccl.socket-address", CAUSE, rb"neither AF_INET|unsupported address family"),
    _symptom("nccl.files-limit", CAUSE, rb"Too many open files", 68),
    # -- GPUs and topology
    _symptom(
        "nccl.cuda-memory",
        CAUSE,
        rb"[Oo]ut of memory|Failed to CUDA (?:host )?(?:calloc|malloc|alloc)|cudaErrorMemoryAllocation",
        56,
    ),
    _symptom("nccl.cuda-arch", CAUSE, rb"invalid device function|no kernel image", 57),
    _symptom(
        "nccl.nic-count-ignored",
        DEGRADED,
        rb"mixed local Net device counts.*Ignoring|extra devices of other ranks have no peer",
    ),
    _symptom("nccl.nic-count", CAUSE, rb"mixed local Net device counts", 67),
    _symptom("nccl.pxn-off", DEGRADED, rb"PXN Disabled as plugin is v4", 55),
    _symptom("nccl.topology-too-large", CAUSE, rb"too many XML nodes"),
    _symptom("nccl.topology-virtual", WHY, rb"Topology detection: network path .* is not a PCI device", 65),
    _symptom("nccl.topology-odd", DEGRADED, rb"Could not find a path for pattern", 66),
    _symptom("nccl.collnet-off", BENIGN, rb"Cannot initialize CollNet|SHARP coll init error", 53),
    _symptom("nccl.tcpx-stall", DEGRADED, rb"rx ctrl timeout|tx ctrl timeout", 62),
    _symptom("nccl.gin-failed", CAUSE, rb"DOCA failure|gdaki.*fail"),
    _symptom("nccl.ucx-error", CAUSE, rb"UCX error|UCX  ?ERROR"),
    _symptom(
        "nccl.cuda-failure",
        CAUSE,
        rb"Cuda failure|HIP failure|cudaError|unspecified launch failure|illegal memory access|device-side assert"
        rb"|CUDA error: (?:misaligned address|an illegal instruction)|Call to CUDA function failed"
        rb"|Memory access fault by GPU",
    ),
    # -- GPUDirect: why it is off
    _symptom("nccl.gdr-no-module", WHY, rb"NET/(?!Socket)[\w ]{1,40} ?: GPU Direct RDMA Disabled", 17),
    _symptom("nccl.gdr-distance", WHY, rb"GPU Direct RDMA Disabled for GPU.*\(distance \d+ > \d+\)", 18, 19),
    *(_symptom(*each) for each in NCCL_WARNINGS),
)

# Of a job that came to its end all the same, such a warning leaves nothing proven.
LASTING = frozenset(_symptom(*each) for each in NCCL_WARNINGS if each[1] != BENIGN)
_PATTERNS = Patterns((item, item.pattern) for item in SYMPTOMS)
_GATE = AnyOf(word.translate(HEX_DIGITS) for item in SYMPTOMS for word in item.words)  # most messages hold none


def may_show(shape: bytes) -> bool:
    """Say whether any message of this shape, its hexadecimal digits made 0, may show a symptom."""
    return _GATE.stands_in(shape)


def classify(text: bytes) -> Optional[Symptom]:
    """Return the symptom that a message shows, or None.

    Benign ones are returned too, so that they are not taken for unknown.
    """
    return next(_PATTERNS.matches(text[:1200]), None)
