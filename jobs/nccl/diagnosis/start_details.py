"""What a line of a start that failed holds beyond its kind, by tables: errno, Slurm's errors, ld.so's versions.

Each form is (fault, expression, the fault that explains it, the cause), where ``{}`` of the cause is what the
expression's groups hold.
"""

from __future__ import annotations

import re

# What errno(3) says at the end of a line, and what that mostly means where a container or a process is started.
_ERRNO = (
    ("no space left on device", "the node's disk is full (images, logs, /tmp), or has no inodes left"),
    ("disk quota exceeded", "a quota is used up"),
    (
        "permission denied",
        "the user may not read or write there: the rights of the path, root_squash of NFS, SELinux or AppArmor",
    ),
    (
        "operation not permitted",
        "the right is missing (a capability, user namespaces, seccomp), or the file system does not allow it",
    ),
    ("read-only file system", "the file system is mounted read-only: by intent, or after an error of its disk"),
    ("no such file or directory", "that path is not there: not on this node, not mounted, or not in the image"),
    ("not a directory", "a file is mounted onto a directory, or the reverse"),
    ("exec format error", "the program is for another processor than the node's"),
    ("device or resource busy", "something else still holds it: an older container, or a mount"),
    ("cannot allocate memory", "the node or the cgroup has no memory left"),
    (
        "argument list too long",
        "the environment or the arguments are too long (thousands of Services: enableServiceLinks)",
    ),
    ("input/output error", "a disk or the server of a network file system fails"),
    ("stale file handle", "the mount of a network file system went stale: mount it again"),
    ("transport endpoint is not connected", "a FUSE mount lost its process: mount it again"),
    ("too many open files", "the limit of open files, or of inotify watches, is reached"),
)
_LIBRARIES = {
    "GLIBC": "built for a newer C library than this system has: take one that is built for it, or a newer image",
    "GLIBCXX": "built for a newer libstdc++ than the one found first: conda's against the system's (LD_LIBRARY_PATH)",
    "CXXABI": "built for a newer libstdc++ than the one found first: conda's against the system's (LD_LIBRARY_PATH)",
    "FABRIC": "built for a newer libfabric than the one found first (LD_LIBRARY_PATH): take those of one EFA installer",
    "IBVERBS": "built for a newer rdma-core than this image has: take both of one release",
    "MLX5": "built for a newer rdma-core than this image has: take both of one release",
    "EFA": "built for a newer rdma-core than this image has: take both of one release",
}
_CLOCKS = (
    "the credential of the step was too old when slurmd saw it: the clocks of the nodes differ, or slurmd was busy"
)
_SLURM = (
    (
        r"(?i)munge (?:encode|decode) failed|munged is up|authentication error",
        "Slurm cannot authenticate: munged does not run on this host, its socket is not in the container, or the "
        "keys or "
        "clocks of the hosts differ (munge -n | ssh NODE unmunge)",
    ),
    (r"credential expired", _CLOCKS),
    (
        r"credential (?:revoked|replayed)|Invalid job credential",
        "slurmd refuses the step's credential, since munge or Slurm has another key on that node, or since slurmd "
        "was started again meanwhile",
    ),
    (
        r"contact slurm controller",
        "slurmctld does not answer: it is down, or a firewall or another slurm.conf is between",
    ),
    (r"Incompatible versions", "this host has another version of Slurm than its controller"),
    (
        r"accounting/QOS policy|node configuration is not available|Invalid (?:generic|account|partition|node name)",
        "the scheduler does not give the job what it asks for: an account, partition, QOS or number of GPUs that "
        "is not there",
    ),
    (
        r"already completing",
        "the job was ending already when this step was to start: its time or another step was over",
    ),
)
_MODULE = r"(?:could not insert|Module) '?([\w-]{3,40})'?(?: not found|: )"
_ENDED = (
    (
        r"got signal: 1\b|Received (?:1|Signals\.SIGHUP) death|signal SIGHUP",
        "SIGHUP: the terminal or the login from which "
        "the job was started was closed; start it detached (a Job, sbatch, setsid, tmux: nohup does not suffice "
        "for torchrun)",
    ),
    (
        r"got signal: 2\b|Received (?:2|Signals\.SIGINT) death|signal SIGINT",
        "SIGINT: somebody pressed Ctrl-C, or the launcher or scheduler interrupted it",
    ),
)
_PATH = r"(?:[^']*: )?'([^']{1,200})'"
_FILES = (
    (
        r"\[Errno 2\].*?'([^']{1,200})' -> '",
        "{} went away while this rank used it: several ranks or nodes share a cache on one file system, and "
        "another moved it; "
        "give each node a cache of its own (TRITON_CACHE_DIR, TORCH_EXTENSIONS_DIR)",
    ),
    (
        r"\[Errno 2\]" + _PATH,
        "{} is not there for this rank: its volume is not mounted on that node, another rank has not made it "
        "yet, or the path "
        "is wrong",
    ),
    (
        r"\[Errno (?:1|13)\]" + _PATH,
        "the user of this process may not read or write {}: the container runs as another user, its HOME cannot "
        "be written, "
        "or the folder is another user's (HOME, HF_HOME, TRITON_CACHE_DIR, TORCH_EXTENSIONS_DIR name one)",
    ),
)
_BTL = (
    "MPI took an interface or address that the hosts do not reach each other by ({}): a bridge of Docker's, "
    "another network "
    "of the pods; btl_tcp_if_include and oob_tcp_if_include name the right one"
)
FORMS: tuple[tuple[str, re.Pattern[str], str | None, str], ...] = (
    *(("nccl.file-access", re.compile(words), None, text) for words, text in _FILES),
    (
        "nccl.tensors-differ",
        re.compile(r"Error: (.{3,160})"),
        None,
        "the program's own tensors do not go together ({}): the dtype, device or shape of the model, its data or its "
        "precision setting, and no matter of the network",
    ),
    (
        "nccl.rendezvous",
        re.compile(r"of the rendezvous endpoint '(.{1,80}?)(?:' ?$|' must|'$)"),
        None,
        "the address of the rendezvous that the launcher was given is none ({}): a stray quote or character, or "
        "a variable "
        "of the shell that is empty",
    ),
    (
        "nccl.launch-failed",
        re.compile(r"nodes are available: (.{3,160}?)(?:\. preemption|\.? *$)"),
        None,
        "no node takes a pod of the job ({}): GPUs that are free and healthy, taints, affinity and quota decide; "
        "a node whose "
        "device plugin is down offers no GPU",
    ),
    (
        "nccl.cuda-symbols",
        re.compile(r"cannot found|-lcuda"),
        None,
        "what is compiled at the start (Triton, Inductor) finds no libcuda.so to link with: the driver's library "
        "has no such "
        "name on the loader's path (ldconfig, LIBRARY_PATH to its folder or to CUDA's stubs), or the container "
        "has no driver",
    ),
    (
        "nccl.library",
        re.compile(r"ptxas|nvcc: "),
        None,
        "the CUDA toolkit's compiler (ptxas, nvcc) is not in the image or not in the PATH: a devel image, or "
        "TRITON_PTXAS_PATH "
        "and CUDA_HOME",
    ),
    ("nccl.mpi", re.compile(r"(connect\(\) to .{1,60} failed: .{1,60})"), None, _BTL),
    ("nccl.mpi", re.compile(r"(tcp_peer_send_blocking: .{1,60})"), None, _BTL),
    (
        "nccl.launch-failed",
        re.compile(r"gang unschedulable|quota"),
        None,
        "the scheduler holds the job back: the queue's or the namespace's quota is smaller than what it asks "
        "for, or not all "
        "pods of the group find a place at once",
    ),
    (
        "nccl.no-gpu",
        re.compile(r"resource request \{.{0,80}'node:([\w.:-]{2,80})'"),
        None,
        "Ray has no node of the address {} with a GPU free: it joined under another address (VLLM_HOST_IP, "
        "--node-ip-address), "
        "or others hold its GPUs",
    ),
    (
        "nccl.no-gpu",
        re.compile(r"number of required GPUs exceeds|max local gpu count|number of (?:visible|local) GPUs"),
        None,
        "the program asks for more ranks than the host or the cluster has GPUs: nodes have not joined, or a "
        "launcher over "
        "several hosts is needed (Ray, --nnodes)",
    ),
    (
        "nccl.no-gpu",
        re.compile(r"GPUs on the driver node|Current node has no GPU"),
        None,
        "Ray's placement leaves the node where the program runs without a GPU: others hold them, or it joined "
        "under another "
        "address (VLLM_HOST_IP)",
    ),
    (
        "nccl.ib-no-device",
        re.compile(r"missing RDMA device spec for device (\S+?),? RDMA device \W{0,3}(\w+)"),
        None,
        "the device plugin finds no {1} of the NIC {0} on its node: ib_umad is not loaded, or the NIC's driver "
        "offers none",
    ),
    (
        "nccl.nvshmem",
        re.compile(r"non-zero status: 7: Connection timed out|status: 7 bootstrap"),
        None,
        "NVSHMEM's processes did not reach each other in its bootstrap: another interface was taken "
        "(NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME), a firewall, or a process that did not come",
    ),
    *(("nccl.ended-outside", re.compile(words), None, text) for words, text in _ENDED),
    (
        "nccl.not-all-came",
        re.compile(r"store based barrier.*?\(world_size=(\d{1,7}), (?:worker_count|num_workers_joined)=(\d{1,7})"),
        None,
        "{1} of {0} processes had come to torch's first barrier and waited for the others: those did not start, "
        "ended, or "
        "are given another WORLD_SIZE",
    ),
    (
        "nccl.parallel-sizes",
        re.compile(r"Error: (.{3,160}?(?:divisible by|multiple of) .{1,80}?)[.\s]*$"),
        None,
        "the sizes that the program is given do not fit each other ({}): the layers, heads, batch or processes are no "
        "multiple of a parallel size",
    ),
    (
        "nccl.driver-state",
        re.compile(r"nvidia-container-cli(?:\.real)?: (\w{3,20} error: .{3,160}?)(?:: unknown)?[.\"]*$"),
        None,
        "the container toolkit could not ask the driver for its GPUs ({}): the toolkit does not fit the driver, "
        "or the driver "
        "is in a bad state (does nvidia-smi work on that node?)",
    ),
    *(("nccl.launch-failed", re.compile(words), None, text) for words, text in _SLURM),
    *(
        (
            fault,
            re.compile(r"version `(%s_[\w.]{1,20})' not found(?: \(required by (?:\S*/)?([^/\s)]+))?" % name),
            None,
            "a library asks for {}, which is not there: {} is " + text,
        )
        for fault in ("nccl.library", "nccl.plugin-broken")
        for name, text in _LIBRARIES.items()
    ),
    (
        "nccl.no-gpu",
        re.compile(r"nvidia-container-cli(?:\.real)?: initialization error: change root failed"),
        None,
        "the root of the driver that the container toolkit is configured with is not there: the driver's "
        "container is not "
        "ready (/run/nvidia/driver), or nvidia-container-cli's root names another path than the driver's",
    ),
    (
        "nccl.no-gpu",
        re.compile(r"nvidia-container-cli(?:\.real)?: initialization error: driver rpc error"),
        None,
        "the container toolkit's helper that asks the driver failed or timed out (driver rpc error): the driver is not "
        "loaded, hangs, or takes long to start (nvidia-smi on the node; nvidia-persistenced keeps it loaded)",
    ),
    (
        "nccl.no-gpu",
        re.compile(
            r"nvidia-container-cli(?:\.real)?: ((?:container|mount|ldcache) error: "
            r"(?!cgroup subsystem).{3,200}?)(?:: unknown)?[.\"]*$"
        ),
        None,
        "the hook that brings the driver into the container could not change its files ({}): the rights of the image's "
        "folder, or a container toolkit with a defect or too old for this image",
    ),
    (
        "nccl.gdr-no-module",
        re.compile(_MODULE),
        None,
        "the module {} could not be loaded: it was not built for this kernel, or for another OFED than the one "
        "that runs "
        "(dmesg | grep peermem); GPUDirect then needs DMA-BUF",
    ),
    (
        "nccl.driver-state",
        re.compile(_MODULE),
        None,
        "the module {} could not be loaded: it was not built for the kernel that runs, an older one is still "
        "loaded, or the "
        "node has no GPU that it knows (dmesg | grep -i nvrm)",
    ),
    (
        "nccl.mpi",
        re.compile(r"Framework: +psec"),
        None,
        "PMIx in this image lacks the security component that the launcher's uses, mostly munge: "
        "PMIX_MCA_psec=native on "
        "both sides, or an image with it",
    ),
    (
        "nccl.mpi",
        re.compile(r"Framework: +(\w{2,12})"),
        None,
        "MPI asks for a component of its framework {} that is not in this image or cannot be loaded: launcher "
        "and image "
        "are of different builds",
    ),
    (
        "nccl.bootstrap-interface",
        re.compile(r"host_ip: can't|can't find interface"),
        None,
        "oneCCL finds no interface but loopback: the container has no network, or FI_TCP_IFACE or CCL_KVS_IFACE "
        "names none "
        "of its interfaces",
    ),
    (
        "nccl.ib-unreachable",
        re.compile(r"ibv_create_ah\(.*? dgid=(\S+).*? on (\S{1,40}) failed"),
        None,
        "the NIC did not find the way to {0}: that address is in no subnet that {1} reaches, or a device of "
        "another network "
        "was taken (UCX_NET_DEVICES, NCCL_IB_HCA)",
    ),
)


def last_words(text: str) -> str:
    """Return what stands at the end of a chain of errors, each behind a colon: what failed, and why."""
    parts = text.strip().rstrip(".\"'").removesuffix(": unknown").split(": ")
    words = parts[-1]
    for part in reversed(parts[:-1]):
        if len(words) + len(part) > 140 or part.endswith("error"):
            break
        words = f"{part}: {words}"
    return words[-200:]


def formed(fault: str, text: str) -> tuple[str | None, str] | None:
    """Return (why, cause) of a line by the first form that it has; None where it has none."""
    for kind, expression, why, cause in FORMS:
        if kind == fault and (match := expression.search(text)):
            return why, cause.format(*("it" if part is None else part for part in match.groups()))
    if fault == "nccl.container":
        return None, container(text)
    return None


def container(text: str) -> str:
    """Say what a container runtime says at the end of its line, and what the errno there mostly means."""
    words = last_words(text)
    said = next((meaning for end, meaning in _ERRNO if end in text.lower()), None)
    return "the container could not be set up on its node (%s)%s" % (words, ": " + said if said else "")
