"""Symptoms that no line of NCCL's shows: what torch, CUDA, launchers, engines and the kernel say for themselves.

Each is (fault, role, pattern), as in symptoms.SYMPTOMS, behind those of environment.py. The words are those of torch
(torch/csrc/distributed/c10d: socket.cpp, TCPStore.cpp, ProcessGroupNCCL.cpp, reducer.cpp; torch/distributed,
torch/cuda, torch/utils/data; third_party/gloo), of cudaGetErrorString and nvmlErrorString, of libnvidia-container,
ld.so(8), Open MPI's help-*.txt, Hydra, Slurm, ssh(1), Ray, vLLM, SGLang, DeepSpeed and Megatron, and of the kernel
(mlx5_core, aer.c).
"""

from __future__ import annotations

from typing import Tuple

from ..lines.patterns import needed
from .environment import ENVIRONMENT
from .programs import PROGRAMS
from .starts import STARTS

# Names of CUDA's errors, as others than NCCL print them (cuda.h: CUresult; driver_types.h: cudaError).
CUDA_NAMES: Tuple[Tuple[str, str, bytes], ...] = (
    ("nccl.fabric-manager", "cause", rb"CUDA_ERROR_SYSTEM_NOT_READY"),
    ("nccl.driver-mismatch", "cause", rb"(?:CUDA_ERROR_SYSTEM_DRIVER|cudaErrorSystemDriver)_?M(?:ismatch|ISMATCH)"),
    ("nccl.gpu-xid", "cause", rb"CUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE"),
    (
        "nccl.no-gpu",
        "cause",
        rb"CUDA_ERROR_(?:INVALID_DEVICE\b|NO_DEVICE)|(?:cuda|hip)Error(?:InvalidDevice\b|NoDevice)"
        rb"|no ROCm-capable device",
    ),
    ("nccl.cuda-driver", "cause", rb"cudaErrorInsufficientDriver|CUDA_ERROR_UNSUPPORTED_PTX|cudaErrorUnsupportedPtx"),
    (
        "nccl.cuda-arch",
        "cause",
        rb"CUDA_ERROR_(?:NO_BINARY_FOR_GPU|INVALID_IMAGE)|cudaErrorNoKernelImage|hipErrorNoBinaryForGpu"
        rb"|Unable to find code object for|No compatible code objects found|Cannot retrieve Static function"
        rb"|Triton Error .{1,30}image is invalid",
    ),
    (
        "nccl.kernel-fault",
        "cause",
        rb"CUDA_ERROR_(?:ILLEGAL|MISALIGNED|ASSERT|HARDWARE_STACK|INVALID_PC)"
        rb"|(?:cuda|hip)Error(?:Illegal|Misaligned|Assert\b|HardwareStack|InvalidPc)",
    ),
    ("nccl.p2p-refused", "cause", rb"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED|(?:cuda|hip)ErrorPeerAccessUnsupported"),
    ("nccl.cuda-symbols", "cause", rb"CUDA_ERROR_STUB_LIBRARY|cudaErrorStubLibrary|CUDA driver is a stub library"),
    ("nccl.cuda-mps", "cause", rb"CUDA_ERROR_MPS_|cudaErrorMps"),
    ("nccl.cuda-init", "cause", rb"CUDA_ERROR_NOT_INITIALIZED"),
    ("nccl.cuda-memory", "cause", rb"hipErrorOutOfMemory"),
    ("nccl.gpu-busy", "cause", rb"cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE"),
    ("nccl.driver-state", "cause", rb"CUDA_ERROR_UNKNOWN|(?:cuda|hip)ErrorUnknown"),
    ("nccl.gpu-mapping", "cause", rb"CUDA_ERROR_MAP_FAILED|cudaErrorMapBufferObjectFailed"),
    ("nccl.cuda-driver", "cause", rb"CUDA_ERROR_COMPAT_NOT_SUPPORTED|cudaErrorCompatNotSupported"),
    (
        "nccl.cuda-failure",
        "cause",
        rb"CUDA_ERROR_(?:LAUNCH_|CONTAINED|INVALID_|OPERATING_SYSTEM|TIMEOUT|NOT_FOUND|CONTEXT_IS|EXTERNAL_DEVICE)"
        rb"|(?:cuda|hip)ErrorLaunch(?:Failure|Timeout)|cudaErrorContained|cudaErrorOperatingSystem",
    ),
)

OTHER_SOFTWARE: Tuple[Tuple[str, str, bytes], ...] = (
    *CUDA_NAMES,
    # -- what stands between a program and CUDA: HAMi's libvgpu and its forerunner (multiprocess_memory_limit.c)
    ("nccl.cuda-memory", "cause", rb"\[(?:HAMI-core|4pdvGPU) ERROR.{0,80}\]: ?Device \d{1,3} OOM"),
    (
        "nccl.cuda-interposer",
        "cause",
        rb"\[(?:HAMI-core|4pdvGPU) ERROR.{0,80}\]: ?Illegal device|/libvgpu/src/\w{1,40}/\w{1,40}\.c\b",
    ),
    # -- the kernel
    ("nccl.gpu-reset", "cause", rb"NVRM: Xid \([^)]{4,40}\): (?:62|110|143)\b"),  # Xid catalog: RESET_GPU
    ("nccl.gpu-lost", "cause", rb"NVRM: (?:GPU .{1,60})?fallen off the bus|(?:NVML|nvml|pynvml)\S{0,60}:? GPU is lost"),
    (
        "nccl.ib-card",
        "cause",
        rb"mlx5_core .{1,120}(?:compromised|firmware internal error|Fatal error \d|leak of a command resource"
        rb"|health recovery flow aborted)",
    ),
    ("nccl.ib-link-flap", "cause", rb"mlx5_core .{1,60}Port module event\[error\]"),
    ("nccl.ib-memlock", "cause", rb"mlx5_core .{1,120}status limits exceeded"),
    # of NVSentinel and the like, which read the kernel's log
    ("nccl.gpu-xid", "cause", rb"\(XID (?:48|63|64|74|79|94|95|119|120|140)\)"),
    (
        "nccl.pcie-error",
        "cause",
        rb"AER: (?:Multiple )?Uncorrect(?:ed|able)|pcieport .{1,40}DPC: |AER: can't recover"
        rb"|\[Hardware Error\]: event severity: fatal",
    ),
    # -- GPUs and their driver, before NCCL is asked
    (
        "nccl.driver-mismatch",
        "cause",
        rb"NVRM: API mismatch|[Dd]river/library version mismatch|NVML/RM version mismatch",
    ),
    (
        "nccl.cuda-driver",
        "cause",
        rb"NVIDIA driver on your system is too old|unsatisfied condition: (?:cuda|driver|brand)",
    ),
    (
        "nccl.fabric-manager",
        "cause",
        rb"\(\d{3}\) : system not yet initialized|driver interface version \S{1,20} doesn't match with driver version"
        rb"|fabric manager don't have matching versions|fabric manager instances finished their conf"
        rb"|to configure all the available GPUs or NVSw"
        rb"|nvidia-fabricmanager\b.{0,120}(?:had an error|[Ff]ailed)|Failed to start .{0,24}[Ff]abric ?[Mm]anager",
    ),
    (
        "nccl.driver-state",
        "cause",
        rb"CUDA unknown error - this may be due|Test CUDA failure .{1,60}'unknown error"
        rb"|detection error: nvml error: unknown",
    ),
    ("nccl.cuda-init", "cause", rb"CUDA driver initialization failed|rror \d{1,3}: initialization error"),
    (
        "nccl.no-gpu",
        "cause",
        rb"nvidia-container-cli(?:\.real)?: (?:\w{3,20} )?error|could not select device driver"
        rb"|not found: nvidia-container-cli"
        rb"|Failed to initialize NVML: Driver|NVMLError_DriverNotLoaded|^No devices were found"
        rb"|couldn't communicate with the NVIDIA driver|rror[ =:]{1,2}(?:\(?\d{1,3}\)? ?: )?invalid device ordinal"
        rb"|object on CUDA device \d{1,4} but torch\.cuda\.device_count|Device index must be less than device count"
        rb"|NVML_SUCCESS == r INTERNAL ASSERT|device < num_gpus INTERNAL|Torch not compiled with CUDA enabled"
        rb"|Current node has no GPU available"
        rb"|No available node types can fulfill"
        rb"|larger than the number of available GPUs|does not allocate any GPUs on the driver node"
        rb"|Cannot provide a placement group|Failed to infer device type|active drivers \("
        rb"|You requested gpu: .{1,80}|No supported gpu backend found",
    ),
    (
        "nccl.cuda-memory",
        "cause",
        rb"(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED when calling .cublasCreate"
        rb"|increase --mem-fraction-static"
        rb"|larger than the available KV cache memory"
        rb"|memory capacity is unbalanced",
    ),
    (
        "nccl.cuda-library",
        "cause",
        rb"(?:CUBLAS|CUDNN|CUFFT|CUSOLVER|CUSPARSE|CURAND)_STATUS_(?!SUCCESS)[A-Z]|(?:CUBLAS|CUDNN) error\(",
    ),
    ("nccl.cuda-arch", "cause", rb"is not compatible with the current PyTorch installation"),
    # torch's analyser of Flight Recorder dumps (tools/flight_recorder: torchfrtrace)
    (
        "nccl.collective-mismatch",
        "cause",
        rb"Culprit rank .{0,80}Error type: (?:SIZE_OR_SYNTAX|COLLECTIVE_(?:TYPE|DTYPE))",
    ),
    ("nccl.kernel-fault", "cause", rb"thread: \[\d{1,5},\d{1,5},\d{1,5}\] Assertion `"),
    (
        "nccl.cuda-failure",
        "cause",
        # torch's words, old torch's "cuda runtime error (N) : TEXT", TensorRT-LLM's "CUDA runtime error in CALL: TEXT",
        # ONNX Runtime's "CUDA failure N: TEXT"
        rb"(?:(?:CUDA|HIP) (?:(?:driver )?error|runtime error in .{1,200}|failure \d{1,4})"
        rb"|cuda runtime error \(\d{1,4}\) ?): "
        rb"(?:unknown error|initialization error|mapping of buffer"
        rb"|operation not (?:supported|permitted)"
        rb"|hardware stack error|invalid program counter|exclusive-thread device|peer access has not"
        rb"|Invalid access of peer|operation failed due to a previous error during capture|invalid argument"
        rb"|invalid resource handle|resource already mapped|OS call failed|unmapping of buffer|invalid device context"
        rb"|context is destroyed|the launch timed out|MPS |the MPS|the hardware resources required"
        rb"|.{0,20}Grid license)",
    ),
    # -- torch's processes meet
    (
        "nccl.rendezvous",
        "cause",
        rb"connect\(\) timed out|DistStoreError: Socket Timeout"
        rb"|Socket Timeout while waiting|Timeout waiting for key: |store based barrier to complete"
        rb"|RendezvousStateError|RendezvousGracefulExitError"
        rb"|Barrier_id: |Barrier timed out\. "  # of JAX's coordination service
        rb"|failed to connect to all addresses"  # of gRPC: JAX, TensorFlow
        rb"|failed to listen on any local network address.{1,80}EADDRNOTAVAIL",
    ),
    (
        "nccl.wrong-store",
        "cause",
        rb"failed to connect/validate to host|Validate magic number failed|Ping failed, invalid value returned"
        rb"|Stop_waiting response is expected",
    ),
    ("nccl.no-route", "cause", rb"failed to connect to any network address.{1,300}(?:No route to host|unreachable)"),
    ("nccl.connect-refused", "cause", rb"failed to connect to any network address.{1,300}Connection refused"),
    ("nccl.connect-timeout", "cause", rb"failed to connect to any network address.{1,300}Connection timed out"),
    (
        "nccl.store-gone",
        "cause",
        rb"Did the remote server shutdown or crash|(?:DistNetworkError|DistBackendError|got error): [Ff]ailed to recv"
        rb"|DistNetworkError: Broken pipe|store->get\(.{1,80}[Ff]ailed to recv"
        rb"|RuntimeError: (?:Connection reset by peer|Broken pipe|Socket Timeout)\s*$",
    ),
    (
        "nccl.name-resolution",
        "cause",
        rb"Name or service not known|Temporary failure in name resolution|getaddrinfo\(\) failed",
    ),
    (
        "nccl.no-launcher",
        "cause",
        rb"KeyError: '(?:LOCAL_RANK|RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'"
        rb"|Default process group has not been initialized",
    ),
    ("nccl.hang-late", "cause", rb"timed out in monitoredBarrier|reached monitoredBarrier, but received errors"),
    # -- gloo
    (
        "nccl.gloo-interface",
        "cause",
        rb"Unable to find (?:address|interface) for: |unsupported gloo device|ss1\.ss_family == ss2",
    ),
    ("nccl.no-route", "cause", rb"gloo/transport/.{1,160}No route to host"),
    ("nccl.connect-refused", "cause", rb"gloo/transport/.{1,160}Connection refused"),
    ("nccl.connect-timeout", "cause", rb"timed out connecting: SO_ERROR|RuntimeError: Connect timeout \["),
    # -- engines: vLLM's and SGLang's own all-reduce (csrc/custom_all_reduce.cuh), torch's symmetric memory
    (
        "nccl.custom-all-reduce",
        "cause",
        rb"[Cc]uda error \S{0,200}(?:custom_all_reduce|custom_allreduce|quick_all_reduce)\.\w{1,4}:\d",
    ),
    (
        "nccl.nvls-failed",
        "cause",
        rb"device does not support multicast|[Ff]ailed to create (?:a )?multicast (?:object|handle)"
        rb"|(?:in|of) symmetric memory multicast",
    ),
    (
        "nccl.duplicate-gpu",
        "cause",
        rb"detected allocations from overlapping devices from different ranks|\brank \d{1,7} both on CUDA device",
    ),
    # -- UCX (cuda_ipc_cache.c, Open MPI's pml_ucx.c), UCC (tl_cuda_cache.c), and whoever sets up queue pairs himself
    (
        "nccl.ucx-error",
        "cause",
        rb"cuda_ipc_\w{2,5}\.c:\d{1,5} +(?:UCX +)?Fatal: |ucp_ep_create\(.{1,30}failed|UCC  ERROR ",
    ),
    ("nccl.ib-unreachable", "cause", rb"[Ff]ailed to modify QP .{0,16}to RTR"),
    ("nccl.ib-create", "cause", rb"Couldn't create IB resource"),  # of perftest
    # -- Omni-Path and libfabric's psm3: ptl_am, psm_ep.c, psmx3_trx_ctxt.c
    (
        "nccl.psm",
        "cause",
        rb"PSM\d? can't open|\bpsm\d?_ep\.c:\d|/libpsm\d.{1,120}\) returned \d|psm\d_ep_(?:open|connect) returns \d",
    ),
    # -- libfabric, as it says so itself: prov/cxi/src (cxip_cq.c, cxip_rxc.c, cxip_nic.c), prov/efa/src
    ("nccl.efa-peer-gone", "cause", rb"reachable by EFA device but handshake failed"),
    (
        "nccl.ofi-error",
        "cause",
        rb"prov_errno: |OFI MTL is aborting|OFI Libfabric library call|OFI poll failed|BTL OFI will now abort",
    ),
    # -- NVLink between hosts, asked for by a program itself
    ("nccl.mnnvl-failed", "cause", rb"CUDA_ERROR_NOT_PERMITTED.{0,60}cuMemCreate"),
    ("nccl.imex-import", "cause", rb"cuMemImportFromShareableHandle\W{1,3}(?:invalid|operation not)"),
    ("nccl.imex-import", "cause", rb"cuMemSetAccess.{1,200} in Multinode"),  # nvbandwidth
    (
        "nccl.cxi-queue",
        "cause",
        rb"(?:Cassini )?[Ee]vent [Qq]ueue overflow detected|suspects a hang due to completion queue exhaustion"
        rb"|:cxi:\S{1,80}<warn> .{0,120}(?:LE resources not recovered|flow control)",
    ),
    (
        "nccl.cxi-service",
        "cause",
        rb":cxi:\S{1,80}<warn> .{0,160}(?:Permission denied|auth_key|cxil_alloc_svc|default rgroup and vni)",
    ),
    ("nccl.mr-memory", "cause", rb"libfabric:.{1,120}<warn> .{0,200}Cannot allocate memory"),
    # -- Google's receive data path manager, beside the plugin's own warnings (nccl_warnings.py)
    ("nccl.rxdm", "cause", rb"GPUs detected (?:in the PCI tree )?\d{1,3} is not equal to the actual number"),
    # -- NVSHMEM's transports (ibrc.cpp, ibdevx.cpp, ibgda.cpp)
    ("nccl.gdr-no-module", "why", rb"neither nv_peer_mem,? or nvidia_peermem detected|GPU RDMA without nvidia-peermem"),
    # -- Mooncake's transfer engine (rdma_transport.cpp, topology.cpp)
    ("nccl.ib-no-device", "why", rb"RdmaTransport: No available RNIC|No RDMA devices found, check your device"),
    # -- what the program asks for
    (
        "nccl.invalid-usage",
        "cause",
        rb"Tensors must be contiguous|must be equal to world_size times|must match number of collective participants"
        rb"|Cannot use ReduceOp\.\w{1,10} with NCCL|Unconvertible NCCL type|not supported for NCCL process group"
        rb"|is not registered, please create group with|is not part of (?:the )?group|default process group twice"
        rb"|ValueError: Invalid rank requested|RuntimeError: rank < 0"
        rb"|Cannot use list of tensors as input for \w{1,30} on different devices",
    ),
    (
        "nccl.ddp-unused",
        "cause",
        rb"Expected to have finished reduction in the prior iteration|Expected to mark a variable ready only once",
    ),
    (
        "nccl.parallel-sizes",
        "cause",
        rb"world[ _]size \(\d{1,7}\) is not (?:divisible by|equal to)|Check batch related parameters"
        rb"|should not be bigger than default world size"
        rb"|divisible by (?:the )?(?:tensor.parallel|tp_size|number of nodes)"
        rb"|tp_size \d{1,6} must be|AssertionError: \d{1,9} is not divisible by|Assertion failed: mpiSize == "
        rb"|MPI worldSize is expected|mpi size \d{1,6} not equal",
    ),
    (
        "nccl.library",
        "cause",
        rb"error while loading shared libraries: |(?:ImportError|OSError): \S{1,120}: cannot open shared object"
        rb"|^(?!.{0,300}NET/).{0,300}version `(?:GLIBC|GLIBCXX|CXXABI)_[\w.]{1,20}' not found|symbol lookup error: "
        rb"|undefined symbol: (?:__nv|cublas|cudnn|cu[A-Z])|package doesn't have \w{1,8} built in"
        rb"|undefined symbol: _ZNK?\d?(?:2at|3c10|5torch)|Could not load library lib|Unable to load any of \{lib",
    ),
    # -- limits of the machine and of the container
    (
        "nccl.shm-full",
        "cause",
        rb"unable to (?:write to|mmap|allocate shared memory).{0,60}file </?torch_|UCX  ERROR .{0,120}posix_fallocate"
        rb"|No space left on device.{0,20}/dev/shm",
    ),
    ("nccl.files-limit", "cause", rb"items of ancdata|Too many open files"),
    (
        "nccl.process-limit",
        "cause",
        rb"(?:Thread creation failed|pthread_create failed|fork|BlockingIOError|OSError).{0,40}Resource temporarily",
    ),
    (
        "nccl.oom-killed",
        "cause",
        rb": task \d{1,7}: Out Of Memory|DefaultCPUAllocator: can't allocate"
        rb"|OSError: \[Errno \d\d\] Cannot allocate memory"
        rb"|(?:^|\]: )MemoryError\b|low on resource: memory|xceeded (?:job )?memory limit",
    ),
    (
        "nccl.process-killed",
        "cause",
        rb"exited on signal (?=9\b)|died with <Signals\.SIGKILL"
        rb"|DataLoader worker \(pid\(s\) .{1,60} exited unexpectedly"
        rb"|worker died or was killed while executing a task by an unexpected system error",
    ),
    (
        "nccl.storage",
        "cause",
        rb"\[Errno (?:5|28|30|107|116|121|122)\] |unexpected pos \d{1,20} vs \d|PytorchStreamWriter failed writing"
        rb"|low on resource: ephemeral-storage|nfs: server \S{1,120} not responding",
    ),
    ("nccl.ib-memlock", "cause", rb"Failed to create a completion queue \(CQ"),  # Open MPI's help-mpi-btl-openib.txt
    ("nccl.cuda-unsupported", "cause", rb"CUDA_ERROR_NOT_SUPPORTED|hipErrorNotSupported"),  # behind what says what for
    # -- launchers and schedulers
    (
        "nccl.node-lost",
        "cause",
        rb"DUE TO NODE FAILURE|srun: error: Node failure on|Nodes \S{1,200} are still not ready|\bNodeNotReady\b"
        rb"|Task launch for .{1,80}(?:Communication connection failure|Socket timed out)"
        rb"|ORTE has lost communication|daemon has unexpectedly failed after launch"
        rb"|health check failed due to missing"
        rb"|marked dead because the detector|coordinator detected missing heartbeats"
        rb"|tasks? (?:is|are) unhealthy \(stopped sending heartbeats\)|Raylet failed\. Shutting down",
    ),
    (
        "nccl.ended-outside",
        "cause",
        rb"\*\*\* JOB \d{1,12} ON \S{1,200} CANCELLED AT \S{1,30} \*\*\*|\bPreempted by pod "
        rb"|Received Signals\.SIG(?:HUP|TERM|INT) death signal",
    ),
    (
        "nccl.mpi",
        "cause",
        rb"INVALID\] ORTE_ERROR_LOG"
        rb"|not built with SLURM's PMI|(?:OPAL|ORTE|PMIX) ERROR: |An error occurred in MPI_Init|plugin name for mpi/"
        rb"|pair of MPI processes are unable to reach|Open MPI (?:detected two|accepted a TCP|failed to TCP)"
        rb"|unable to complete a TCP connection|error during MPI_Init|No components were able to be opened"
        rb"|PML \w{1,10} cannot be selected|Local abort before MPI_INIT|HYDU_sock_connect",
    ),
    (
        "nccl.launch-failed",
        "cause",
        rb"kex_exchange_identification|Connection closed by \S{1,80} port|(?:orted|prted"
        rb"|\bsshd?): .{0,4}[Cc]ommand not found"
        rb"|(?:orted|prted|sshd?|kubectl): (?:not found|No such file)|detected an attempt to run as root"
        rb"|Command 'ssh .{1,200} non-zero exit status 255|not reachable via ssh"  # deepspeed/launcher/runner.py
        rb"|(?:mpirun|mpiexec|torchrun|srun|deepspeed|horovodrun|accelerate|python3?|_perf): .{0,4}"
        rb"(?:[Cc]ommand not found|not found)|executable file not found in"
        rb"|nodes are available: \d|[Ff]ailed ?(?:to )?[Cc]reate ?[Pp]od ?[Ss]and[Bb]ox|Err(?:or:? )?ImagePull"
        rb"|Back-off pulling image"
        rb"|salloc: error: |srun: fatal: |sbatch: error: "
        rb"|Unable to create step for job|Unable to (?:allocate resources|confirm allocation)"
        rb"|Batch job submission failed"
        rb"|aborted before step completely|task \d{1,7} launch failed|Application launch failed"
        rb"|slurmstepd: error: execve\(\)|ssh exited with exit code|launcher '\w{1,20}' not installed"
        rb"|Unable to find hostfile(?!, will proceed)|unable to open the hostfile|node not present in the allocation"
        rb"|launcher \(plm_rsh_agent|cannot create resource \"pods/exec\"|pyxis: (?:failed|couldn't|container start)"
        rb"|pyxis: seccomp .{1,9}fail"
        rb"|Unable to connect to the server: |^(?:error: )?(?:unable to upgrade connection|error dialing backend)"
        rb"|^Error from server (?:\([A-Z]\w{1,30}\))?: "
        rb"|mpirun was unable to|Host key verification failed|ORTE does not know how|slots available in the system",
    ),
)
# Of what is not NCCL's own.
NOT_NCCL: Tuple[Tuple[str, str, bytes], ...] = (*ENVIRONMENT, *OTHER_SOFTWARE, *PROGRAMS, *STARTS)
WORDS = tuple(dict.fromkeys(word for _, _, pattern in NOT_NCCL for word in needed(pattern)))  # a match holds one
