"""Symptoms of what stands around NCCL: the machine under it, CUDA, torch, launchers.

Each is (fault, role, pattern), as in symptoms.SYMPTOMS, before which they are tried. The words are those of NCCL's own
messages (the strings of libnccl.so), of cudaGetErrorString, of torch (c10/cuda/CUDACachingAllocator.cpp,
torch/csrc/distributed/c10d: socket.cpp, TCPStore.cpp, ProcessGroupNCCL.cpp, reducer.cpp; torch/utils/data/_utils), of
getaddrinfo(3), ld.so(8) and of the launchers.
"""

from __future__ import annotations

from typing import Tuple

ENVIRONMENT: Tuple[Tuple[str, str, bytes], ...] = (
    # -- the machine: what the kernel, /sys, a topology file and the verbs show
    ("nccl.topology-nic", "cause", rb"Attribute \w{1,40} of node nic not found"),
    ("nccl.graph-file", "cause", rb"XML Import Channel|XML Graph has wrong version|Could not open XML graph file"),
    ("nccl.nvlink-broken", "cause", rb"NVLINK connected GPUs.{1,120}hardware issue"),
    ("nccl.nvlink-error", "cause", rb"NVRM: Xid \([^)]{4,40}\): (?:45\b.{1,120}previous Xid )?1(?:4[4-9]|50)\b"),
    ("nccl.gpu-lost", "cause", rb"Unable to determine the device handle for GPU|RmInitAdapter failed"),
    (
        "nccl.topology-unreadable",
        "cause",
        rb"[Cc]ould not find real path of /sys|Attribute \w{1,40} of node \w{1,40} not found"
        rb"|XML (?:Parse error|Topology has wrong|Mismatch :)|Could not open XML topology file",
    ),
    (
        "nccl.topology-search",
        "cause",
        rb"No path computed to go from|could not find CPU|Failed to find reverse path"
        rb"|Could not find (?:NET with|net id|NIC for rank|rev link|any local path|gpu rank|intermediate GPU)",
    ),
    ("nccl.roce-version", "cause", rb"ncclIbRoceGetVersionNum"),
    (
        "nccl.gpu-reset",
        "cause",
        rb"NV_ERR_RESET_REQUIRED|NVRM: Xid \([^)]{4,40}\): 154\b.{1,80}(?:Reset|Reboot) Required",
    ),
    ("nccl.peer-limit", "cause", rb"peer mapping resources exhausted|Cuda failure 711\b"),
    ("nccl.topology-too-large", "cause", rb"too many (?:XML subnodes|Topo links)|XML parser is limited to"),
    ("nccl.ib-card", "cause", rb"local catastrophic error|async fatal event: (?!port)"),
    ("nccl.ib-protection", "cause", rb"local access violation work queue error"),
    (
        "nccl.ib-error",
        "cause",
        rb"async fatal event on (?:CQ|QP|SRQ)|async event ?: ?(?:CQ error|SRQ cat|.{0,16}local work queue)",
    ),
    ("nccl.ib-memlock", "cause", rb"BTL failed to initialize while trying to allocate some locked memory"),
    ("nccl.gid-empty", "cause", rb"ibv_query_gid failed|UCX  ERROR Invalid gid\["),
    ("nccl.gid-empty", "why", rb"^ ?GID: (?:00:){15}00$"),  # perftest
    ("nccl.nic-fusion", "cause", rb"Attempted to merge incompatible devices"),  # topo.cc then leaves them apart
    ("nccl.ib-netdev", "cause", rb"ibv_modify_qp failed.{1,20}(?:No such device|with 19 )"),
    (
        "nccl.ib-create",
        "cause",
        rb"ibv_(?:create_qp|create_cq|alloc_pd)\S* failed with (?!(?:error )?(?:Cannot alloc|12\b))",
    ),
    ("nccl.ib-error", "cause", rb"mlx5: \S{1,80} got completion with error"),
    ("nccl.verbs-provider", "why", rb"couldn't open config directory|does not support the kernel ABI"),
    ("nccl.message-truncated", "cause", rb"Got completion.*(?:status=(?:\w+\()?1\)?(?:[ ,]|$)|error 1, )"),
    (
        "nccl.shm-permission",
        "cause",
        rb"(?:shm_open|/dev/shm/|shared memory (?:segment|object)).{0,240}(?:[Pp]ermission denied|Read-only file)"
        rb"|Permission denied: .{0,4}/dev/shm",
    ),
    ("nccl.no-transport", "cause", rb"No transport found for rank"),
    ("nccl.no-algorithm", "cause", rb"no algorithm/protocol available"),
    ("nccl.version-mismatch", "cause", rb"NCCL version mismatch with remote peer"),
    ("nccl.ofi-error", "cause", rb"NET/OFI Unable to insert remote address"),
    (
        "nccl.bus-error",
        "cause",
        rb"exitcode: -7\b|Signal 7 \(SIGBUS\)|return code = -7\b|signal 7 \(Bus|signal: Bus error(?!.*shared mem)"
        rb"|received signal SIGBUS, |\*\*\* SIGBUS \(|Fatal Python error: Bus error",
    ),
    (
        "nccl.oom-killed",
        "cause",
        rb"DataLoader worker \(pid[^)]{1,80}\) is killed by signal: Killed|running low on memory"
        rb"|[Oo]ut of memory: Kill"
        rb"|Detected \d{1,6} oom[-_]kill|(?<![A-Z_])OUT_OF_MEMORY|Failed to malloc \d|OOMKilled|oom-kill:",
    ),
    ("nccl.process-killed", "cause", rb"exitcode: -9\b|return code = -9\b|SIGKILL by OOM killer"),
    # -- CUDA
    (
        "nccl.cuda-memory",
        "cause",
        rb"less than desired GPU memory utilization|No available memory for the cache blocks",
    ),
    ("nccl.gpu-busy", "cause", rb"devices?(?:\(s\) is/are| are) busy or unavailable"),
    (
        "nccl.cuda-arch",
        "cause",
        rb"(?:CUDA|Cuda|cuda) (?:error|failure).{0,60}(?:named symbol not found|kernel image is invalid)",
    ),
    ("nccl.cuda-driver", "cause", rb"PTX was compiled with an unsupported toolchain"),
    ("nccl.cuda-init", "cause", rb"Cannot re-initialize CUDA in forked subprocess"),
    ("nccl.fabric-manager", "cause", rb"(?:CUDA[^']{1,250}|Test CUDA failure .{1,60})system not yet initialized"),
    (
        "nccl.no-gpu",
        "cause",
        rb"number of required GPUs exceeds|CUDA (?:runtime )?error[^']{0,250}: invalid device ordinal"
        rb"|No (?:CUDA|HIP) GPUs are available|no GPUs found!"
        rb"|Found no NVIDIA driver|NVML Shared Library Not Found|Failed to open libnvidia-ml|Failed to load CUDA driver"
        rb"|Failed to initialize NVML: (?:Unknown Error|Insufficient Perm|could not load)",
    ),
    ("nccl.p2p-refused", "cause", rb"cudaIpc(?:Get|Open)MemHandle failed|failed to peer with device"),
    ("nccl.peer-gone", "consequence", rb"driver shutting down"),  # cudaErrorCudartUnloading: this process is exiting
    ("", "consequence", rb"Tried to allocate more than 1EB"),  # a size that was never received: the collective failed
    # -- torch and the loader
    (
        "nccl.library",
        "cause",
        rb"Invalid config \w{1,40} attribute value -?\d{7}|argument not initialized via NCCL_CONFIG_INIT"
        rb"|Unable to load NCCL library|undefined symbol: p?nccl[A-Z]"
        rb"|error while loading shared libraries: lib(?:nccl|cudart)\b"
        rb"|(?<!dlerror: )lib(?:nccl|cudart)\.so[.\d]*: cannot open shared object|package doesn't have NCCL built in",
    ),
    (  # the driver's own library: no part of the image
        "nccl.cuda-symbols",
        "cause",
        rb"error while loading shared libraries: libcuda\.so"
        rb"|(?<!dlerror: )libcuda\.so[.\d]*: cannot open shared object",
    ),
    (
        "nccl.collective-mismatch",
        "cause",
        rb"DDP expects same model across all ranks|appears not to match s(?:izes|trides) of the same param",
    ),
    ("nccl.hang-late", "cause", rb"failed to pass monitoredBarrier"),
    ("nccl.stalled-ranks", "cause", rb"by subset of ranks and are waiting for remainder"),
    (
        "nccl.no-launcher",
        "cause",
        rb"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set",
    ),
    (
        "nccl.loopback-name",
        "cause",
        rb"Using the loopback address as fallback|Unable to resolve hostname to a \(local\) address",
    ),
    (
        "nccl.invalid-usage",
        "cause",
        rb"Tensors must be CUDA and dense|No backend type associated with device type"
        rb"|permitted when stream is capturing|has already been destroyed|Invalid NCCL_COMM_ID"
        rb"|nonblocking communicators are not allowed",
    ),
    (
        "nccl.no-unique-id",
        "cause",
        rb"ncclUniqueId from \[?\d{1,7}\]? via c10d key-value store.{1,160}(?:[Tt]imeout|[Ss]ocket Timeout)",
    ),
    (
        "nccl.store-gone",
        "cause",
        rb"TCPStore server has shut down too early|c10d\] (?:send|recv)\w{3,20} failed on SocketImpl"
        rb"|ncclUniqueId from \[?\d{1,7}\]? via c10d key-value store.{1,160}(?:reset by peer|Broken pipe|closed)",
    ),
    ("nccl.ports-used-up", "cause", rb"Call to bind failed ?: ?Address already in use"),
    (
        "nccl.port-in-use",
        "cause",
        rb"(?:EADDRINUSE|errno: 98\b).{0,20}in use|(?:Error: .{0,60}|\bbind failed: )Address already in use"
        rb"|Tried to launch distributed communication on port",  # accelerate (utils/launch.py)
    ),
    (
        "nccl.name-resolution",
        "cause",
        rb"gai error: -\d|host not found: |ssh: Could not resolve hostname|error encountered when getting address info"
        rb"|socket\.gaierror: ",
    ),
    (
        "nccl.rendezvous",
        "cause",
        rb"socket has failed to (?:listen|bind).{1,200}Cannot assign requested address"
        rb"|Timed out initializing process group in store|RendezvousC(?:onnection|losed)Error"
        rb"|wait timeout after \d{1,9}ms, keys: ",
    ),
    ("nccl.socket-address", "cause", rb"Address family not supported"),
    ("nccl.launch-failed", "cause", rb"ssh: connect to host|Permission denied(?: \(publickey|, please try again)"),
    (
        "nccl.mpi",
        "cause",
        rb"Fatal error in P?MPI_Init|MPI_INIT failed|PMI_KVS_Get returned|mpi/pmix\w{0,4}: .{0,250}collective timeout"
        rb"|(?:orte|ompi|opal|prte|pmix)_init failed|PML add procs failed",
    ),
    ("nccl.ended-outside", "cause", rb"SignalException: Process \d{1,9} got signal: (?:1|2|15)\b|DUE TO PREEMPTION"),
)
