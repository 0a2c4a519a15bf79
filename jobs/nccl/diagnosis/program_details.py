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
)
