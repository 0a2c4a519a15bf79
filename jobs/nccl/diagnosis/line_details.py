"""What a line says beyond the kind of fault that it speaks of, by a word in it.

The words are those of the programs that say them: NCCL, torch, launchers, NVSHMEM, container runtimes.
"""

from __future__ import annotations

# cudaErrorPeerAccessUnsupported (CUDA runtime API)
_NO_PEER = "peer access is not supported"
_NO_PEER_CAUSE = (
    "CUDA has no peer access between these GPUs (consumer cards, a virtual machine, PCIe without P2P), or a process "
    "sees its own GPU alone"
)
LINE_DETAILS: tuple[tuple[str, str, str | None, str | None], ...] = (
    ("nccl.p2p-refused", "transport/shm.cc", "nccl.cumem-host", None),
    ("nccl.p2p-refused", _NO_PEER, None, _NO_PEER_CAUSE),
    ("nccl.custom-all-reduce", _NO_PEER, "nccl.p2p-refused", _NO_PEER_CAUSE + ": --disable-custom-all-reduce"),
    (
        "nccl.gdr-register",
        "ibv_reg_dmabuf_mr failed with error Operation not supported",
        None,
        "this node's RDMA driver or kernel is too old for DMA-BUF, and this NCCL did not fall back to nvidia-peermem: "
        "NCCL_DMABUF_ENABLE=0, or a newer OFED or NCCL",
    ),
    (
        "nccl.topology-search",
        "reverse path",
        None,
        "of two GPUs one has an NVLink to the other, and that one has none back: the driver's view of the links is "
        "not whole (a link is down, or a defect of this driver: nvidia-smi nvlink -s), or NCCL is too old for them",
    ),
    *(
        (
            "nccl.bootstrap-interface",
            words,
            None,
            "the address that NCCL_COMM_ID names is in none of the subnets of this host's interfaces, and NCCL takes "
            "an interface of it alone: name an address of a subnet that all hosts share, or do without NCCL_COMM_ID",
        )
        for words in ("same subnet", "No usable listening interface")
    ),
    (
        "nccl.rxdm",
        "equal to the actual number",
        None,
        "the RxDM finds fewer GPUs in the PCI tree of its container than CUDA has: the pod is not in its host's "
        "network and /sys does not show them all, or another network's interface took the slot of a GPU's card",
    ),
    (
        "nccl.launch-failed",
        "kubectl: ",
        None,
        "kubectl, by which this launcher starts processes in the workers, is not where it looks for it: MPI Operator "
        "v1 brings it to the launcher alone: workers cannot start others (-mca plm_rsh_no_tree_spawn 1); v2 uses ssh",
    ),
    (
        "nccl.invalid-usage",
        "must be CUDA and dense",
        None,
        "NCCL was given a tensor in the host's memory: move it to the GPU, or make a Gloo group for it",
    ),
    (
        "nccl.library",
        "libnvidia-ml.so",
        "nccl.no-gpu",
        "the driver's own library is not in the container: it comes from the host, by the NVIDIA runtime, to those "
        "containers that were given a GPU",
    ),
    *(
        ("nccl.library", words, None, "the image has no such library, or torch was built without it")
        for words in ("load NCCL library", "cannot open shared object", "load any of {lib")
    ),
    (
        "nccl.cuda-memory",
        "HAMI-core",
        None,
        "the share of the GPU's memory that the scheduler gave this container (HAMi: nvidia.com/gpumem) is used up",
    ),
    (
        "nccl.socket-address",
        "Address family not supported",
        "nccl.bootstrap-interface",
        "NCCL found no interface with an IP address that it can use: the container has no network, or not its host's, "
        "or NCCL_SOCKET_IFNAME fits none of its interfaces",
    ),
    (
        "nccl.shm-attach",
        "unlink shared memory",
        None,
        "systemd removed NCCL's files from /dev/shm: it took the job's user for one who had logged out "
        "(RemoveIPC=no in /etc/systemd/logind.conf)",
    ),
    (
        "nccl.ofi-error",
        "Unable to insert remote address",
        None,
        "the peer's EFA address cannot be reached: the security group does not allow all traffic to itself, in and "
        "out, or the two ends have different libfabrics",
    ),
    (
        "nccl.name-resolution",
        "ssh: ",
        None,
        "the launcher does not find a worker's name: its pod or Service is not there yet (start the launcher once all "
        "are, or let it try again), or the name's domain is not searched by the launcher's resolv.conf",
    ),
    *(
        (
            "nccl.library",
            words,
            None,
            "a library of another CUDA release is found first: take /usr/local/cuda and other environments off "
            "LD_LIBRARY_PATH, or install the wheels of one release",
        )
        for words in ("symbol: __nv", "symbol: cublas", "symbol: cudnn")
    ),
    *(
        (
            "nccl.library",
            words,
            None,
            "a library of another CUDA release is found first: take /usr/local/cuda and other environments off "
            "LD_LIBRARY_PATH, or install the wheels of one release",
        )
        for words in ("load library libcu", "any of {libcu")
    ),
    (
        "nccl.ucx-error",
        "no active messages transport",
        None,
        "UCX has no transport that reaches that peer: the NICs are not in the container or have no port up, or "
        "UCX_TLS and UCX_NET_DEVICES leave out what connects the hosts",
    ),
    *(
        (
            "nccl.ucx-error",
            words,
            None,
            "a process could not open a peer GPU's memory over CUDA IPC: UCX_TLS=^cuda_ipc avoids it; mostly an older "
            "UCX, or one of another CUDA",
        )
        for words in ("cuda_ipc", "ipc-cache", "cuIpc", "cuMemGetAddressRange")
    ),
    (
        "nccl.psm",
        "can't open",
        None,
        "PSM cannot open this NIC: libfabric chose psm3 or psm2 where it has none for it (FI_PROVIDER names another), "
        "or the NIC's device is not in the container",
    ),
    (
        "nccl.psm",
        "cuIpc",
        None,
        "PSM2 could not open a peer GPU's memory: its CUDA support and the job's CUDA do not fit (PSM2_CUDA=0, or "
        "another libpsm2)",
    ),
    (
        "nccl.ofi-error",
        "UNDELIVERABLE",
        None,
        "MPI's transport over libfabric could not deliver a message: a link of the fabric went down, or the node at "
        "the other end did",
    ),
    *(
        (
            "nccl.ofi-error",
            words,
            None,
            "MPI's own transport over libfabric gave up, before or beside NCCL: --mca pml ucx or ob1, or FI_PROVIDER "
            "names the provider that this cluster has",
        )
        for words in ("OFI MTL", "OFI Libfabric", "OFI poll", "BTL OFI")
    ),
    (
        "nccl.mpi",
        "TCP connection",
        None,
        "MPI's daemons cannot connect to each other: a firewall or policy between the hosts, or they took an interface "
        "that the others do not reach (oob_tcp_if_include, btl_tcp_if_include)",
    ),
    *(
        (
            "nccl.launch-failed",
            words,
            None,
            "Slurm could not start the tasks on the nodes: slurmd's log there says why; one reason is an --mpi= that "
            "this Slurm has no plugin for (srun --mpi=list)",
        )
        for words in (" launch failed", "before step completely")
    ),
    *(
        (
            "nccl.driver-mismatch",
            words,
            None,
            "the libcuda that the program found is not the driver's: in a container mostly the image's "
            "forward-compatibility library (/usr/local/cuda/compat on LD_LIBRARY_PATH), else a driver that was updated "
            "and not loaded again",
        )
        for words in ("SYSTEM_DRIVER_M", "SystemDriverM")
    ),
    (
        "nccl.no-gpu",
        "num_gpus",
        None,
        "the program asks for a GPU that this process does not see: CUDA_VISIBLE_DEVICES leaves it out, or the GPUs "
        "are MIG instances, of which CUDA shows one to a process",
    ),
    ("nccl.message-truncated", "Got completion", "nccl.ib-length", None),
    (
        "nccl.cuda-failure",
        "the launch timed out",
        None,
        "a kernel ran longer than the watchdog of a GPU that drives a display allows (a collective that waits is one)",
    ),
    ("nccl.cuda-failure", "peer access has not been enabled", "nccl.p2p-refused", None),
    (
        "nccl.cuda-failure",
        "Invalid access of peer GPU memory",
        None,
        "the memory of a peer went away while a kernel used it over NVLink: that rank ended first (read its log), or a "
        "GPU or its NVLink failed (dmesg | grep -i xid on the node)",
    ),
    (
        "nccl.gloo-interface",
        "ss_family",
        None,
        "the hosts announce addresses of different families, one IPv4 and one IPv6: let GLOO_SOCKET_IFNAME name an "
        "interface with addresses of one family on every host, or let their names resolve to one",
    ),
    (
        "nccl.launch-failed",
        "pyxis: ",
        None,
        "the container could not be started on a node: the lines of enroot behind it say why (image, mount, hook, its "
        "directories' permissions, or the NVIDIA container toolkit)",
    ),
    (
        "nccl.nvshmem",
        "modify_qp",
        None,
        "NVSHMEM's NICs found no route to each other: on RoCE NVSHMEM_IB_GID_INDEX or NVSHMEM_HCA_LIST names a wrong "
        "entry or NIC, or NICs of the two ends are in different subnets",
    ),
    (
        "nccl.nvshmem",
        "create ah",
        None,
        "the NIC gave NVSHMEM no address handle for the peer: NVSHMEM_IB_GID_INDEX names a wrong entry, or this "
        "NVSHMEM is older than the NIC (IBGDA)",
    ),
    (
        "nccl.nvshmem",
        "devx_uar",
        None,
        "the NIC's doorbells may not be mapped here (DEVX, which IBGDA needs): the container has not the rights "
        "(privileged, or the device files and IPC_LOCK), or the NIC's driver is too old",
    ),
    (
        "nccl.ib-memlock",
        "limits exceeded",
        None,
        "the NIC, or its virtual function, has no memory keys or queue pairs left: its own limit, not the container's",
    ),
    (
        "nccl.nvshmem",
        "IBGDA",
        None,
        "the driver of the node does not let a kernel ring the NIC's doorbell (IBGDA): NVreg_EnableStreamMemOPs=1 and "
        "PeerMappingOverride=1 are not set, or NVSHMEM and the NIC's driver do not fit",
    ),
    *(
        ("nccl.launch-failed", words, None, "the launcher cannot log in to another host by ssh: " + text)
        for words, text in (
            ("publickey", "its key is not among that user's authorized_keys there"),
            (
                "password: ",
                "it asks for a password, since its key is not among authorized_keys there, or may be read by others",
            ),
            (
                "denied, please try again",
                "it asks for a password, since its key is not among authorized_keys there, or may be read by others",
            ),
            ("Command 'ssh ", "it asks for a password, or no sshd answers there (a key, authorized_keys)"),
            ("not reachable via ssh", "it asks for a password, or no sshd answers there (a key, authorized_keys)"),
            ("Host key verification", "that host's key is not in known_hosts, or another one was expected"),
            ("ssh: connect to host", "no sshd answers at that address and port"),
            ("kex_exchange_identification", "its sshd hung up (MaxStartups, hosts.deny, or not up yet)"),
            ("Connection closed by", "its sshd hung up (MaxStartups, hosts.deny, or not up yet)"),
        )
    ),
    (
        "nccl.launch-failed",
        "sshd: ",
        None,
        "the image has no sshd, by which this launcher starts processes on the other hosts: take one with "
        "openssh-server, or a launcher that needs none (srun, torchrun)",
    ),
    *(
        ("nccl.launch-failed", words, None, text)
        for words, text in (
            (
                "are available: ",
                "a pod of the job was not scheduled: the event's reasons say why (GPUs asked for, taints, quota)",
            ),
            ("andbox", "a pod's network could not be set up on its node (CNI, multus, addresses): the event says why"),
            ("andBox", "a pod's network could not be set up on its node (CNI, multus, addresses): the event says why"),
            ("pulling image", "a node cannot pull the image: its name, its registry, or the right to read it"),
            ("ImagePull", "a node cannot pull the image: its name, its registry, or the right to read it"),
        )
    ),
    (
        "nccl.cuda-memory",
        "NOT_INITIALIZED",
        None,
        "the GPU has no memory left for cuBLAS's handle, which is what this error mostly says; else the process uses a "
        "GPU that it does not see",
    ),
    *(
        (
            "nccl.launch-failed",
            words,
            None,
            "the program that was to be started is not where this host looks for it: not in the image, not installed, "
            "or not in the PATH of a shell that is no login",
        )
        for words in (
            "executable file",
            ": not found",
            "orted",
            "prted",
            "ssh: not found",
            "plm_rsh_agent",
            "not installed",
            "ommand not found",
        )
    ),
    *(
        (
            "nccl.launch-failed",
            words,
            None,
            "the launcher starts processes in the workers by the API server (kubectl exec), and that cannot be "
            "reached, refuses, or does not reach the worker's kubelet",
        )
        for words in ("connect to the server", "from server", "upgrade connection", "dialing backend", "pods/exec")
    ),
    *(
        (
            "nccl.launch-failed",
            words,
            None,
            "the job asks for more than its allocation has, or for what the scheduler does not give it",
        )
        for words in (
            "Unable to create step",
            "salloc: ",
            "srun: fatal",
            "sbatch: ",
            "Unable to allocate",
            "slots available",
            "not present in the allocation",
        )
    ),
    *(
        (
            "nccl.no-gpu",
            words,
            None,
            "the container runtime could not give the container its GPUs: the node's driver is not loaded, or the "
            "NVIDIA container toolkit is not set up there (nvidia-smi on the node; nvidia-ctk runtime configure)",
        )
        for words in ("nvidia-container-cli", "could not select device driver", "NVML: could not load")
    ),
    (
        "nccl.no-gpu",
        "NVML: Unknown",
        None,
        "the container may not open its GPUs, or lost them while it ran: systemctl daemon-reload on a node whose "
        "containers' cgroups systemd manages takes them away (nvidia-container-toolkit's notice #48); start it again",
    ),
)
"""(fault, its words, the fault that explains it, the cause where the catalogue's own is not enough)."""
