"""What a line of a program's own end, or of a pod that did not start, holds beyond its kind; see LINE_DETAILS."""

from __future__ import annotations

_NOT_BUILT = (
    "an extension that is compiled at the start could not be: the compiler's lines above it say why (no nvcc or ninja, "
    "another CUDA or compiler than torch's, a library without what it asks for)"
)
PROGRAM_DETAILS: tuple[tuple[str, str, str | None, str | None], ...] = (
    (
        "nccl.rendezvous",
        "RendezvousClosedError",
        None,
        "the rendezvous of this id was closed: an earlier run with the same --rdzv_id left it so in the store "
        "(etcd), or the others ended while this agent came; start again with a new id",
    ),
    *(
        ("nccl.no-gpu", words, None, text)
        for words, text in (  # libnvidia-container (nvc_*.c), which says what it could not do in its own words
            *(
                (
                    words,
                    "the container runtime finds no driver on the node: it is not installed or not loaded, or "
                    "the driver's container is not ready yet",
                )
                for words in ("load library failed: libnvidia-ml", "driver not loaded", "driver rpc error")
            ),
            (
                "cgroup subsystem devices not found",
                "the NVIDIA container toolkit of the node is too old for its cgroups (v2): libnvidia-container 1.8 and "
                "later know them",
            ),
            (
                "unknown device",
                "the container asks for a GPU by a number or UUID that the node has not: it was replaced, or lost",
            ),
            *(
                (
                    words,
                    "the driver's own library (libnvidia-ml.so) is not in the container: it comes from the host, "
                    "by the NVIDIA runtime, to those containers that were given a GPU; is that runtime the default?",
                )
                for words in ("open libnvidia-ml", "start nvml", "NVML Shared Library")
            ),
        )
    ),
    *(
        (
            "nccl.oom-killed",
            words,
            None,
            "Ray's memory monitor ended workers, since the node's memory was nearly used up: fewer or smaller "
            "actors, or more memory",
        )
        for words in ("memory pressure", "System memory low", "RayOutOfMemory")
    ),
    (
        "nccl.cuda-failure",
        "Memory access fault by GPU",
        "nccl.kernel-fault",
        "a kernel used memory that this GPU cannot reach: a defect of the program or of a library, or a peer's "
        "memory where "
        "these GPUs have no P2P (HSA_FORCE_FINE_GRAIN_PCIE=1, a large BAR, iommu=pt; NCCL_P2P_DISABLE=1 goes without)",
    ),
    (
        "nccl.gpu-xid",
        "amdgpu",
        None,
        "AMD's driver reports an uncorrectable hardware error of this GPU (RAS): what RCCL and HIP say follows "
        "from it; reset the GPU or the node, and have it repaired if it comes back",
    ),
    (
        "nccl.driver-state",
        "HSA_STATUS_ERROR",
        None,
        "AMD's runtime cannot start on a GPU: the process may not open /dev/kfd or /dev/dri (groups video and "
        "render, the device plugin), or the driver or the GPU is in a bad state (dmesg | grep amdgpu)",
    ),
    *(
        (
            "nccl.library",
            "undefined symbol: " + words,
            None,
            "a compiled extension (flash_attn, transformer_engine, apex, a DeepSpeed op) was built for another "
            "torch than the one that is installed: build or install it anew for this one",
        )
        for words in ("_ZN3c1", "_ZNK3c1", "_ZN2at", "_ZNK2at", "_ZN5torch", "_ZNK5torch")
    ),
    *(
        ("nccl.library", words, None, text)
        for words, text in (
            (
                "compiled with different CUDA",
                "packages of different CUDA releases are mixed: install torch and its companions of one CUDA",
            ),
            *(
                (
                    words,
                    "the CUDA toolkit that compiles extensions is of another release than torch's: install that "
                    "of torch's (CUDA_HOME names it)",
                )
                for words in ("the version torch was compiled with", "the version that was used to compile")
            ),
            *((words, _NOT_BUILT) for words in ("building extension", "build stopped")),
            ("Ninja is required", "ninja, by which torch compiles extensions at the start, is not in the image"),
        )
    ),
    *(
        ("nccl.no-gpu", words, None, text)
        for words, text in (
            *(
                (
                    words,
                    "the device plugin calls the node's GPUs unhealthy, so that the kubelet gives a pod none: an "
                    "Xid, a lost GPU, or MIG instances that are gone (the plugin's log, dmesg on the node)",
                )
                for words in ("unhealthy devices", "no healthy devices")
            ),
            *(
                (
                    words,
                    "the node has fewer free GPUs than the pod asks for: the scheduler counted some that others "
                    "hold, or the device plugin had just been started again and had not named its devices",
                )
                for words in ("devices unavailable", "OutOf")
            ),
            (
                "rpc error",
                "the device plugin of the node did not give the kubelet the GPUs: it ended, hangs, or failed (its log "
                "says why)",
            ),
            (
                "CDI devices",
                "the container runtime knows no CDI device of that name: the node's CDI specification is missing "
                "or old (nvidia-ctk cdi generate), or the device is gone",
            ),
        )
    ),
    *(
        ("nccl.launch-failed", words, None, text)
        for words, text in (
            (
                "MountVolume",
                "a volume of the pod could not be mounted on its node: the event says why (server, secret, permission)",
            ),
            *(
                (
                    words,
                    "a volume of the pod could not be attached to its node: the event says why (another node "
                    "still holds it, a claim that is not there)",
                )
                for words in ("mount volumes", "AttachVolume", "Multi-Attach")
            ),
            *(
                (
                    words,
                    "a container of the pod could not be made: a Secret, ConfigMap or key that it names is not there",
                )
                for words in ("CreateContainer", "Error: secret", "Error: configmap", "couldn't find key")
            ),
            ("InvalidImageName", "the image's name has no form that the runtime takes"),
            (
                "exec format error",
                "the program is for another processor than the node's (an arm64 image on amd64, or the reverse), or a "
                "script without its first line",
            ),
            (
                "OutOf",
                "the kubelet refused the pod: its node has less CPU, memory or room for pods left than the scheduler "
                "counted",
            ),
            *(
                (
                    words,
                    "the container runtime could not start a container: what stands behind the last colon says "
                    "why (a hook such as the NVIDIA runtime's, a mount, a limit)",
                )
                for words in ("create failed", "exec failed", "containerd task", "shim task", "RunContainerError")
            ),
        )
    ),
    *(
        (
            "nccl.launch-failed",
            words,
            None,
            "a pod's network could not be set up on its node (CNI, multus, addresses): the event says why",
        )
        for words in ("SetupNetwork", "setup network for", "NetworkNotReady", "NetworkPluginNotReady")
    ),
    *(
        ("nccl.launch-failed", words, None, text)
        for words, text in (
            ("PersistentVolumeClaims", "a volume of the pod is bound to nothing yet: its claim waits for storage"),
            ("fulfill resource", "no kind of node that Ray's autoscaler may start has what the job asks for"),
            (
                "total desired GPUs",
                "Ray's cluster has fewer GPUs than the job asks for: nodes have not joined, or have left",
            ),
        )
    ),
    (
        "nccl.oom-killed",
        "MemoryPressure",
        None,
        "the kubelet evicted the pod, since its node was short of memory: other pods used it, or its request is "
        "too low",
    ),
    *(
        (
            "nccl.storage",
            words,
            None,
            "the kubelet evicted the pod, since its node was short of disk (ephemeral storage): images, logs, and what "
            "containers write beside their volumes; give it a request and a limit, and write to a volume",
        )
        for words in ("low on resource: ephemeral", "DiskPressure")
    ),
    *(
        ("nccl.storage", words, None, "the kernel could not read or write a disk of this node: it fails, or is gone")
        for words in ("EXT4-fs error", "XFS (", ", I/O error, dev", "blk_update_request")
    ),
    *(
        ("nccl.ended-outside", words, None, text)
        for words, text in (
            (
                "terminated soon",
                "Ray's autoscaler says that a node will be taken away: preemption, or the cluster is scaled down",
            ),
            *(
                (words, "the kubelet ends and restarts a container that does not answer its probe in time")
                for words in ("liveness probe", "startup probe")
            ),
            ("deadline", "the pod or job ran longer than its activeDeadlineSeconds"),
            *(
                (words, "the pod was evicted from its node: a drain, a taint, or a preemption")
                for words in ("DisruptionTarget", "TaintManagerEviction", "TerminationByKubelet")
            ),
        )
    ),
    *(
        (
            "nccl.rendezvous",
            words,
            None,
            "Ray's head (its GCS) does not answer at that address: it did not start or has ended, is of another "
            "version, or a firewall is between",
        )
        for words in ("connect to GCS", "ID from GCS", "GCS server")
    ),
    (
        "nccl.rendezvous",
        "GetKeyValue()",
        None,
        "XLA waited for the NCCL id of a group of devices: the process of its root device did not come to that "
        "program, ended, or forms other groups",
    ),
    (
        "nccl.library",
        "The cluster was started with",
        None,
        "this node has another version of Ray, Python or a library than the head: the same image on all",
    ),
    (
        "nccl.hang-late",
        "Termination timeout",
        None,
        "some devices of a clique did not come to XLA's rendezvous in time, and the process gave up: another is "
        "busy, ended, or runs another program",
    ),
    (
        "nccl.stalled-ranks",
        "may be stuck",
        None,
        "some devices of a clique do not come to XLA's rendezvous: a process is busy, ended, or runs another "
        "program, or NCCL's start hangs in those that came",
    ),
    (
        "nccl.process-killed",
        "connection error code 2",
        None,
        "a worker of Ray's ended without a word: mostly the kernel killed it, since the host's memory ran out "
        "(dmesg on its node), else a ray stop --force or a crash (its worker log)",
    ),
    *(
        (
            "nccl.oom-killed",
            words,
            None,
            "the program asked for more host memory than there is: the pod's limit, or the node's memory",
        )
        for words in ("std::bad_alloc", "_ArrayMemoryError")
    ),
    *(
        (
            "nccl.node-lost",
            words,
            None,
            "JAX's coordinator heard no more of a task: its process failed, was preempted or killed, or was too "
            "busy to answer",
        )
        for words in ("heartbeat timeout", "distributed service detected")
    ),
    *(
        (
            "nccl.node-lost",
            words,
            None,
            "Ray lost a node: it was taken away or failed, or its raylet ended (memory); ray status and "
            "raylet.out there",
        )
        for words in ("node has died", "was dead", "NodeDiedError")
    ),
    *(
        (
            "nccl.name-resolution",
            words,
            None,
            "the name of a server outside (a hub, a registry, a store of objects) does not resolve: these hosts "
            "have no DNS or no way to the outside, or need a proxy",
        )
        for words in ("Max retries", "urlopen error", "NameResolutionError", "http://", "https://")
    ),
    *(
        ("nccl.download", words, None, text)
        for words, text in (
            *(
                (words, "the server refuses too many requests at once: every rank fetches for itself")
                for words in ("429 ", "Too Many Requests")
            ),
            *(
                (
                    words,
                    "the server refuses this user: no token, one without the right, or a model that must be asked for",
                )
                for words in ("401 ", "403 ", "GatedRepo", "RepositoryNotFound")
            ),
            ("404 ", "the server has nothing of that name, or of that revision"),
        )
    ),
    (
        "nccl.checkpoint-mismatch",
        "torch.Size([0])",
        None,
        "tensors are empty: the model is cut by ZeRO-3 or FSDP, and its parts were saved or loaded without being "
        "gathered (stage3_gather_16bit_weights_on_model_save, zero_to_fp32.py; deepspeed.zero.Init while loading)",
    ),
    *(
        ("nccl.launch-failed", words, None, "a node cannot pull the image: " + text)
        for words, text in (
            ("no such host", "the name of its registry does not resolve there"),
            (": unauthorized", "the registry asks for a login (imagePullSecrets), or has no such image"),
            ("access denied", "the registry asks for a login (imagePullSecrets), or has no such image"),
            ("manifest unknown", "the registry has no such tag"),
            ("toomanyrequests", "the registry lets this address pull no more for now"),
            ("x509", "the registry's certificate is not trusted there"),
            ("i/o timeout", "the registry is not reached from there (firewall, proxy)"),
            ("connect: connection refused", "the registry is not reached from there (firewall, proxy)"),
            ("failed to copy: ", "it broke off, or the node's disk is full"),
            ("to pull image", "its name, its registry, or the right to read it"),
        )
    ),
    (
        "nccl.launch-failed",
        "import docker image",
        None,
        "the container's image could not be imported on a node: its name (that of a file begins with / or ./), "
        "its registry, the login for it, or the room for it; enroot's lines behind it say why",
    ),
    (
        "nccl.no-gpu",
        "run command",
        None,
        "the node has no driver: nvidia-smi is neither on the host nor in the driver's container (GPU operator)",
    ),
    (
        "nccl.collective-mismatch",
        "expects same model",
        None,
        "the ranks wrap different models: their parameters differ in number or shape, or a rank holds none",
    ),
)
