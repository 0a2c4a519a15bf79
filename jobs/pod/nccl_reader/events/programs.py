"""Symptoms of a program's own end and of its start: files, checkpoints, exit codes, and what a kubelet says of a pod.

Each is (fault, role, pattern), as in symptoms.SYMPTOMS, behind those of other_software.py. The words are those of torch
(caffe2/serialize/inline_container.cc; torch/serialization.py, torch/utils/cpp_extension.py, torch/nn/modules/module.py,
torch/distributed/checkpoint), Megatron's and DeepSpeed's checkpoints, safetensors (src/tensor.rs), Python's pickle and
zipfile, HDF5 and Parquet, Ray (memory_monitor.cc, node_manager.cc, gcs_rpc_client.h), XLA (service/rendezvous.cc), UCX
(ib_mlx5_log.c), the IMEX daemon, and the kubelet (pkg/kubelet: events/event.go, cm/devicemanager/manager.go,
lifecycle/predicate.go) and the runtimes below it.
"""

from __future__ import annotations

from typing import Tuple

PROGRAMS: Tuple[Tuple[str, str, bytes], ...] = (
    (
        "nccl.file-broken",
        "cause",
        rb"PytorchStreamReader failed|[Ff]ile might be corrupted|SafetensorError: |header or archive is corrupted"
        rb"|UnpicklingError: (?:invalid load key|pickle data was truncated|unpickling stack underflow)"
        rb"|EOFError: Ran out of input|BadZipFile: |\(truncated file: eof|[Pp]arquet magic bytes not found"
        rb"|Error -[35] while decompressing|filesize incompatible with header",
    ),
    (
        "nccl.checkpoint-mismatch",
        "cause",
        rb"rror\(s\) in loading state_dict for |Global shape mismatch for loaded|KeyError: MetadataIndex\("
        rb"|Loading a checkpoint for MP=|Missing key in checkpoint state_dict|Size mismatch between saved "
        rb"|checkpoint being loaded used a DP world size|with a different number of partitions",
    ),
    (
        "nccl.oom-killed",
        "cause",
        rb"std::bad_alloc|_ArrayMemoryError|killed due to memory pressure \(OOM|System memory low at node "
        rb"with|RayOutOfMemoryError",
    ),
    # -- a completion's status in words (ibv_wc_status_str of rdma-core), as Mooncake, NIXL, perftest and others say it
    (
        "nccl.ib-retry",
        "cause",
        rb"transport retry counter exceeded|RNR retry counter exceeded|: response timeout error",
    ),
    (
        "nccl.ib-protection",
        "cause",
        rb"local protection error|: local access error|remote access error|memory management operation error",
    ),
    ("nccl.ib-error", "cause", rb"local QP operation error|remote invalid request error|: remote operation error"),
    ("nccl.gid-empty", "cause", rb"GID is NULL, please check|No suitable GID found on"),
    ("nccl.gdr-register", "cause", rb"RdmaTransport: Failed to register memory"),
    ("nccl.ib-no-device", "why", rb"is not enumerated as an mlx5 device"),  # NVSHMEM (ibgda.cpp)
    (
        "nccl.gdr-register",
        "cause",
        rb"Couldn't (?:allocate|register(?: GPU)?) MR|ibv_reg_(?:dmabuf_)?mr.{0,12} failed: (?:Bad addr|Invalid arg)",
    ),
    # -- AMD's GPUs: the kernel (amdgpu, amdkfd), and the runtime's hsa_status_t (hsa.h, hsa_ext_amd.h)
    (
        "nccl.gpu-reset",
        "cause",
        rb"amdgpu .{0,40}GPU reset begin!|qcm fence wait loop timeout|HW Exception by GPU node-|\*ERROR\* ring "
        rb"\S{1,20} timeout",
    ),
    ("nccl.gpu-xid", "cause", rb"amdgpu .{1,40}uncorrectable hardware error"),
    ("nccl.gpu-lost", "cause", rb"Unable to change power state from D3\w{2,4} to D0, device inaccessible"),
    (
        "nccl.kernel-fault",
        "cause",
        rb"HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_APERTURE|MEMORY_FAULT|ILLEGAL_INSTRUCTION|INVALID_ISA)",
    ),
    ("nccl.driver-state", "cause", rb"HSA_STATUS_ERROR(?:_OUT_OF_RESOURCES)?: "),
    ("nccl.fabric-manager", "cause", rb"init failure: 802\b|returned 802\b"),
    # -- UCX over a Mellanox NIC: the syndrome of the completion, of mlx5 (include/linux/mlx5/device.h)
    ("nccl.ib-retry", "cause", rb"\(synd 0x1[56] vend "),
    ("nccl.ib-protection", "cause", rb"\(synd 0x(?:0?4|1[13]) vend "),
    ("nccl.ib-error", "cause", rb"\(synd 0x(?:0?[126]|10|12|14|22) vend "),
    # -- the IMEX daemon, asked for memory of another node's GPU; the pod that would run it (compute-domain-daemon)
    ("nccl.imex-asleep", "why", rb"The IMEX daemon will not be started|CliqueId are NOT set for GPUs"),
    (
        "nccl.imex-import",
        "cause",
        rb"Failed to get (?:new memory reference|export ref for UUID)|Received import response from node id",
    ),
    (
        "nccl.library",
        "cause",
        rb"compiled with different CUDA|does not match the version torch was compiled with"
        rb"|mismatches the version that was used to compile|Error building extension '|Ninja is required to load"
        rb"|ninja: build stopped",
    ),
    ("nccl.process-killed", "cause", rb"exit code:? 137\b|exited with code 137\b|Exit Code: {1,8}137\b"),
    # -- the kubelet could not give a pod its devices, or start its containers
    (
        "nccl.no-gpu",
        "cause",
        rb"could not load NVML library|Allocate failed due to|OutOfnvidia\.com|OutOfamd\.com|cannot allocate "
        rb"unhealthy devices|No GPU found in |unresolvable CDI devices (?=.{0,400}(?:gpu|mig)[^\s,=]{0,40}=)",
    ),
    ("nccl.cdi-device", "cause", rb"unresolvable CDI devices"),
    (
        "nccl.launch-failed",
        "cause",
        rb"ImagePullBackOff|ErrImagePull|MountVolume\.\w{5,16} failed|FailedAttachVolume|Unable to attach or mount "
        rb"volumes|Multi-Attach error"
        rb"|Error: (?:secret|configmap|couldn't find key) |CreateContainer(?:Config)?Error|RunContainerError"
        rb"|InvalidImageName|container create failed|failed to create (?:containerd|shim) task"
        rb"|OCI runtime (?:create|exec) failed|exec format error|OutOf(?:cpu|memory|pods)\b",
    ),
    (
        "nccl.launch-failed",
        "cause",
        rb"failed to (?:do request|authorize|copy): .{0,160}"
        rb"(?:no such host|unauthorized|access denied|is denied|x509|i/o timeout|connection refused|no space left)"
        rb"|manifest unknown|toomanyrequests: ",
    ),
    ("nccl.launch-failed", "cause", rb"Failed to pull image"),
    ("nccl.no-gpu", "cause", rb"failed to run command .?nvidia-smi"),
    ("nccl.process-limit", "cause", rb"thread: Resource temporarily unavailable"),
    (
        "nccl.launch-failed",
        "cause",
        rb"SetupNetwork|[Ff]ailed to setup network for|NetworkNotReady|NetworkPluginNotReady",
    ),
    (
        "nccl.launch-failed",
        "cause",
        rb"unbound immediate PersistentVolumeClaims|No available node types can fulfill|less than total desired GPUs",
    ),
    ("nccl.oom-killed", "cause", rb"node had condition: \[MemoryPressure"),
    (
        "nccl.storage",
        "cause",
        rb"node had condition: \[DiskPressure|EXT4-fs error|XFS \(.{1,40} I/O error|, I/O error, dev ",
    ),
    ("nccl.storage", "cause", rb"blk_update_request: (?:I/O|critical (?:medium|target)) error"),
    (
        "nccl.ended-outside",
        "cause",
        rb"will be terminated soon \(reason: (?!idle)|failed (?:liveness|startup) probe, will be restarted"
        rb"|longer than (?:the )?specified deadline|DisruptionTarget|TaintManagerEviction|TerminationByKubelet",
    ),
    # -- Ray's head (gcs_rpc_client.h, gcs_client.cc, node.py, worker.py), JAX's coordination service, and XLA's cliques
    (
        "nccl.rendezvous",
        "cause",
        rb"Failed to (?:connect to GCS|get cluster ID from GCS)(?!.{0,200}[Rr]etry)|[Uu]nable to connect to GCS"
        rb"|GCS server at \S{3,80} could not|GetKeyValue\(\) timed out|fetched the clique id .{0,40}fail",
    ),
    ("nccl.library", "cause", rb"Version mismatch: The cluster was started with"),
    ("nccl.stalled-ranks", "cause", rb"may be stuck\. Expected \d"),
    ("nccl.hang-late", "cause", rb"Termination timeout for `"),
    ("nccl.process-killed", "cause", rb"connection error code 2\. End of file"),  # Ray: a worker without a last word
    (
        "nccl.node-lost",
        "cause",
        rb"heartbeat timeout\. This indicates|because its node has died|node \(where this task was running\)\s+was dead"
        rb"|NodeDiedError|distributed service detected fatal errors",
    ),
    # -- what the program fetches: requests, urllib, huggingface_hub, botocore
    (
        "nccl.download",
        "cause",
        rb"Max retries exceeded with url|urlopen error |HfHubHTTPError|LocalEntryNotFoundError|GatedRepoError"
        rb"|RepositoryNotFoundError|couldn't connect to 'http|Could not fetch URL http|EndpointConnectionError"
        rb"|(?:Client|Server) Error: .{1,80} for url: http|NewConnectionError",
    ),
    (
        "nccl.nvlink-error",
        "cause",
        rb"CUDA error: .{0,12}(?:nvlink was detected|NVLink error)|CUDA_ERROR_NVLINK|cudaErrorNvlink",
    ),
    (
        "nccl.psm",
        "cause",
        rb"(?:PSM2?|psm3) .{0,40}(?:unable to open|was unable)|psm[23]?_ep_(?:connect|open)\w*(?:: | fail| return)",
    ),
    ("nccl.ofi-error", "cause", rb"fi_getinfo\S{0,3} ?(?:failed|error|returned|: -)"),
)
