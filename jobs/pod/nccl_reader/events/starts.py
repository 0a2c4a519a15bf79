"""Symptoms of a start that failed below the program: Slurm's own errors, container runtimes, kernel modules, verbs.

Each is (fault, role, pattern), as in symptoms.SYMPTOMS, behind those of programs.py. The words are those of Slurm
(src/common/slurm_errno.c, plugins/auth/munge), enroot and pyxis, runc (libcontainer), Apptainer, modprobe(8) and the
module loader (kernel/module), PMIx and Open MPI (help-mca-base.txt), oneCCL (internal_kvs.cpp), UCX (ib_device.c,
ib_mlx5_dv.c), and of programs whose numbers became NaN (Megatron-LM, DeepSpeed, fairseq, detectron2, DETR, Lightning).
"""

from __future__ import annotations

from typing import Tuple

STARTS: Tuple[Tuple[str, str, bytes], ...] = (
    # -- Slurm's errors, by its table of them
    (
        "nccl.launch-failed",
        "cause",
        rb"[Mm]unge (?:encode|decode) failed|munged is up, restart|authentication error\s*$"
        rb"|Protocol authentication error"
        rb"|Job credential (?:expired|revoked|replayed)|Invalid job credential|Unable to contact slurm controller"
        rb"|Incompatible versions of client and server|violates accounting/QOS policy"
        rb"|node configuration is not available"
        rb"|Invalid generic resource|Invalid (?:account or account/partition|partition name)"
        rb"|Invalid node name specified"
        rb"|Job/step already completing",
    ),
    # -- the container around a process: enroot's and pyxis' log, runc, Apptainer
    (
        "nccl.container",
        "cause",
        rb"enroot-\w{4,16}: failed to |\[ERROR\] (?:Failed to|No such|Invalid|Could not) .{1,80}(?:enroot|squashfs"
        rb"|image)"
        rb"|mkdir: cannot create directory .{1,120}enroot|Could not process JSON input"
        rb"|FATAL: {1,3}container creation failed"
        rb"|FATAL: {1,3}(?:could not open image|[Uu]nable to handle \w{4,8}://|[Ww]hile (?:making|extracting) image)"
        rb"|unable to start container process: (?!.{0,400}nvidia-container-cli)",
    ),
    # -- kernel modules
    (
        "nccl.gdr-no-module",
        "why",
        rb"Module nv(?:idia)?[-_]peer_?mem not found|could not insert 'nv(?:idia)?[-_]peer_?mem'"
        rb"|nv(?:idia)?[-_]peer_?mem: (?:disagrees about version|Unknown symbol)",
    ),
    (
        "nccl.driver-state",
        "cause",
        rb"Module nvidia(?:[-_](?:uvm|drm|modeset))? not found|could not insert '?nvidia(?:[-_](?:uvm|drm|modeset))?'?:"
        rb"|nvidia(?:[-_](?:uvm|modeset))?: (?:disagrees about version|Unknown symbol|version magic)",
    ),
    # -- the kernel module refuses a NIC (nvidia/nv-dmabuf.c); libraries without content (ldconfig, ld.so)
    ("nccl.dmabuf-topology", "why", rb"NVRM: dma-buf attach failed: (?:PCI )?topology not supported"),
    ("nccl.cuda-symbols", "cause", rb"lib(?:cuda|nvidia-[\w-]{2,30})\.so[.\d]{0,20}: file too short"),
    ("nccl.cuda-symbols", "why", rb"lib(?:cuda|nvidia-ml)\.so[.\d]{0,20} is empty, not checked"),
    # -- UCX's shared memory (mm_posix.c, mm_ep.c): 0x40 in the flags is O_CREAT, of a file that it makes itself
    (
        "nccl.shm-permission",
        "cause",
        rb"UCX  ERROR .{0,3}shm_open\(file_name=.{1,200} flags=0x[\da-f]{0,6}[4-7c-f][\da-f]\) failed: No such file",
    ),
    ("nccl.shm-full", "cause", rb"UCX  ERROR .{0,3}Not enough memory to write total of"),
    (
        "nccl.shm-attach",
        "cause",
        rb"UCX  ERROR .{0,3}open\(file_name=/proc/\d{1,9}/fd/|mm ep failed to connect to remote FIFO",
    ),
    # -- MPI's components, oneCCL's start, verbs below UCX
    ("nccl.mpi", "cause", rb"^(?:\[[\w,<>.: ]{1,40}\] ?)?Framework: {1,4}(?:psec|gds|pml|btl|mtl|ess|plm|schizo)\b"),
    ("nccl.bootstrap-interface", "cause", rb"CCL_ERROR\| .{0,80}can't find interface|fill_local_host_ip: can't"),
    ("nccl.ib-unreachable", "cause", rb"ibv_create_ah\(.{1,200} failed|Failed to create address handle"),
    ("nccl.ib-memlock", "cause", rb"Ib failure: Cannot allocate memory"),  # of MSCCL++
    # -- what a launcher or an engine tells of a process' end, and who ended it: a status of wait(2), a signal(7)
    ("nccl.process-killed", "cause", rb"[Ee]xit ?[Cc]ode[:=] ?-9\b|unexpectedly failed with exitcode=9\b"),
    ("nccl.ended-outside", "cause", rb"Received [12] death signal|closing signal SIG(?:HUP|INT)\b"),
    ("nccl.not-all-came", "why", rb"Waiting in store based barrier to initialize"),
    # -- files, by errno(3): an exception that may have been caught, so that it explains and does not accuse
    (
        "nccl.file-access",
        "why",
        rb"(?:PermissionError|FileNotFoundError|IsADirectoryError|NotADirectoryError): \[Errno \d{1,3}\] ",
    ),
    ("nccl.file-broken", "cause", rb"RuntimeError: storage has wrong size: expected"),
    ("nccl.rendezvous", "cause", rb"The (?:hostname|port number) of the rendezvous endpoint '"),
    # -- tensors of the program's own, as torch words what does not go together; it may have been caught, too
    (
        "nccl.tensors-differ",
        "why",
        rb"uniform dtype but got|got mixed torch\.Tensor and DTensor|expected scalar type \w{3,10} but found"
        rb"|Expected all tensors to be on the same device|mat1 and mat2 (?:shapes cannot|must have)"
        rb"|The size of tensor a \(\d|Sizes of tensors must match|stack expects each tensor to be equal size",
    ),
    # -- the driver's library and the CUDA toolkit, for what is compiled at the start (Triton, Inductor)
    ("nccl.cuda-symbols", "cause", rb"libcuda\.so cannot found|cannot find -lcuda\b"),
    ("nccl.library", "cause", rb"`ptxas` was searched in|Cannot find ptxas|nvcc: (?:command )?not found"),
    # -- Open MPI between the processes (btl_tcp_endpoint.c, oob_tcp_sendrecv.c)
    (
        "nccl.mpi",
        "cause",
        rb"btl_tcp_endpoint\.c.{1,80}connect\(\) to .{1,60} failed"
        rb"|tcp_peer_send_blocking: send\(\) to socket \d{1,6} failed",
    ),
    # -- GPUs and places that a scheduler does not give: Volcano, Kueue, the quota of a namespace, vLLM on one host
    (
        "nccl.launch-failed",
        "cause",
        rb"tasks in gang unschedulable|queue resource quota insufficient|couldn't assign flavors"
        rb"|insufficient unused quota"
        rb"|forbidden: exceeded quota",
    ),
    (
        "nccl.no-gpu",
        "cause",
        rb"is less than than? max local gpu count|larger than the number of (?:visible|local) GPUs",
    ),
    ("nccl.ib-no-device", "why", rb"missing RDMA device spec for device"),  # Mellanox' shared device plugin
    # -- sizes that the program itself finds wrong
    (
        "nccl.parallel-sizes",
        "cause",
        rb"Error: .{0,160}(?:divisible by|a multiple of) .{0,40}(?:size|parallel|world|stage|ranks|GPUs|devices)",
    ),
    # -- numbers
    (
        "nccl.not-a-number",
        "cause",
        rb"[Ff]ound (?:NaN|nan|Inf|inf)(?:/Inf)? in (?:local|param|the grad|grad)|Loss is (?:nan|inf|NaN)[,.!] ?[Ss]top"
        rb"|FloatingPointError: |Loss became infinite or NaN|loss scale already at minimum|Minimum loss scale reached"
        rb"|loss returned in `\w{4,20}` is (?:nan|inf|NaN)|probability tensor contains either `inf`",
    ),
)
