"""What breaks a job, or slows its nodes? RDMA at work, the bootstrap, shared memory, NVLink, GPUs."""

from __future__ import annotations

from .fault import add

FAULTS: dict[str, dict[str, str]] = {}


# -- RDMA at work ------------------------------------------------------------------------------------------------------
add(
    FAULTS,
    "nccl.ib-retry",
    "fatal",
    "The RDMA transport gave up on a peer",
    "the NIC got no answer (work completion 12 or 13): wrong GID index or subnet, MTU, VLAN or PFC on RoCE, rails "
    "that are not connected, a bad cable",
    "ib_write_bw between the two NICs (-x GID index on RoCE); show_gids; port counters",
    "NCCL_IB_GID_INDEX for RoCE v2, an exact NCCL_IB_HCA list, NCCL_CROSS_NIC=0 for separate rails; repair the link",
    "NVIDIA/nccl#426, #1664, #1405, #1814",
)
add(
    FAULTS,
    "nccl.ib-protection",
    "fatal",
    "The NIC was refused access to memory",
    "ACS or the IOMMU is in the way of peer traffic, or peermem is broken (work completion 4 or 10)",
    "lspci -vvv | grep ACSCtl; repeat with NCCL_NET_GDR_LEVEL=LOC",
    "disable ACS on the bridges, iommu=pt; reload nvidia-peermem",
    "net_ib/common.h (printIbWcStatusHint)",
)
add(
    FAULTS,
    "nccl.ib-error",
    "fatal",
    "An RDMA transfer failed",
    "a work completion with an error status",
    "grep 'status=' in the log; the numbers are those of ibv_wc_status",
    "test the path between the two NICs with ib_write_bw",
    "transport/net_ib.cc",
)
add(
    FAULTS,
    "nccl.ib-link-flap",
    "fatal",
    "An RDMA port went down or lost its table",
    "a link flap: cable, transceiver, switch port, or a GID change",
    "ibdiagnet or mlxlink on that port; dmesg | grep mlx5",
    "repair the link; NCCL_IB_TIMEOUT=22 NCCL_IB_RETRY_CNT=7 only bridge short outages",
    "net_ib (async events); NVIDIA/nccl#1814",
)
add(
    FAULTS,
    "nccl.ib-unreachable",
    "fatal",
    "A queue pair could not be connected",
    "no route between the GIDs: wrong GID index, VLAN, ARP, or NICs in different subnets",
    "show_gids on both hosts; ping between the NICs' addresses",
    "set NCCL_IB_GID_INDEX, repair routing, NCCL_CROSS_NIC=0",
    "NVIDIA/nccl-tests#185, NVIDIA/nccl#1131",
)
add(
    FAULTS,
    "nccl.ib-mixed-fabric",
    "fatal",
    "InfiniBand and RoCE ports are mixed",
    "NCCL picked NICs of different link types, often a management bond",
    "ibv_devinfo | grep -E 'hca_id|link_layer'",
    "name the data NICs exactly in NCCL_IB_HCA, or exclude the others with '^'",
    "net_ib/connect.cc",
)
add(
    FAULTS,
    "nccl.ib-memlock",
    "fatal",
    "Memory could not be pinned for RDMA",
    "the locked-memory limit of the container is too small",
    "ulimit -l inside the container",
    "raise memlock to unlimited for the container runtime, or add IPC_LOCK",
    "NVIDIA/nccl-tests#206; ibvwrap.cc",
)
add(
    FAULTS,
    "nccl.gdr-register",
    "fatal",
    "GPU memory could not be registered with the NIC",
    "peermem or DMA-BUF refused it: driver and OFED do not fit, or the BAR is too small",
    "dmesg | grep -i -E 'peermem|dmabuf'",
    "align driver and OFED; reload nvidia-peermem; try NCCL_DMABUF_ENABLE=0",
    "net_ib/reg.cc",
)
add(
    FAULTS,
    "nccl.mr-register",
    "fatal",
    "The libfabric plugin could not register memory",
    "GPU memory registration was refused: container and host libfabric do not fit",
    "fi_info -p efa -c FI_HMEM",
    "use the host's libfabric and plugin versions in the image",
    "aws-ofi-nccl (register_mr_buffers)",
)
add(
    FAULTS,
    "nccl.net-forced",
    "fatal",
    "The network that was asked for is not there",
    "NCCL_NET names a network that cannot be initialised",
    "env | grep NCCL_NET; ibv_devinfo",
    "unset NCCL_NET, or make that network available",
    "plugin/net.cc (ncclNetInit)",
)
add(
    FAULTS,
    "nccl.ucx-error",
    "fatal",
    "The UCX plugin failed",
    "UCX reported an error below NCCL",
    "ucx_info -d; UCX_LOG_LEVEL=info",
    "select transports and devices UCX supports here (UCX_TLS, UCX_NET_DEVICES), or use NET/IB",
    "ucx_plugin.c",
)
add(
    FAULTS,
    "nccl.gin-failed",
    "fatal",
    "Device-initiated networking failed",
    "GIN (GDAKI) could not set up its queue pairs",
    "dmesg | grep -i mlx5; ofed_info -s",
    "NCCL_GIN_ENABLE=0, or align DOCA, driver and firmware",
    "net_ib/gdaki; NVIDIA/nccl#2237",
)
add(
    FAULTS,
    "nccl.tcpx-stall",
    "degraded",
    "GPUDirect-TCPX stalls",
    "the receive-datapath manager is missing or of another version",
    "kubectl logs POD --all-containers | grep -i rxdm",
    "run the rxdm side car of the plugin's version on every node",
    "google/nccl-plugin-gpudirecttcpx#1",
)
add(
    FAULTS,
    "nccl.pxn-off",
    "degraded",
    "Traffic cannot be gathered over NVLink (PXN)",
    "the network plugin's interface (v4) is too old for it",
    "grep 'PXN Disabled' in the log",
    "upgrade the plugin",
    "graph/paths.cc",
)
add(
    FAULTS,
    "nccl.nic-count",
    "fatal",
    "Ranks see different numbers of NICs",
    "nodes differ in their NICs, or a device was not passed to one pod",
    "ibv_devices on every host; grep 'NET/IB' in the log of each",
    "repair the node with fewer NICs",
    "init.cc (2.30.3+)",
)

# -- bootstrap ---------------------------------------------------------------------------------------------------------
add(
    FAULTS,
    "nccl.bootstrap-interface",
    "fatal",
    "No network interface for the bootstrap",
    "NCCL_SOCKET_IFNAME matches no interface on this host",
    "ip -br addr; env | grep NCCL_SOCKET_IFNAME",
    "use a prefix that every host has (eth), or an exclusion (^lo,docker)",
    "bootstrap.cc",
)
add(
    FAULTS,
    "nccl.bootstrap-unroutable",
    "fatal",
    "The bootstrap uses an interface that other hosts cannot reach",
    "a bridge or tunnel of this host (docker0, virbr0, veth, ...) was picked",
    "ip -br addr on both hosts",
    "set NCCL_SOCKET_IFNAME to the interface that connects the hosts, or exclude: ^lo,docker,virbr,veth",
    "pytorch/pytorch#68893; NVIDIA/nccl#529",
)
add(
    FAULTS,
    "nccl.ib-recovered",
    "degraded",
    "RDMA transfers failed and were recovered",
    "a link that flaps, or a path that loses packets: the job went on, at a price",
    "grep . /sys/class/infiniband/*/ports/*/counters/link_downed; dmesg | grep mlx5 on the hosts of the evidence lines",
    "repair the link before it fails for good",
    "net_ib/p2p_resiliency_recovery.cc (2.30)",
)
add(
    FAULTS,
    "nccl.no-route",
    "fatal",
    "A peer's address cannot be reached",
    "firewall between the nodes, or an interface that is not routed",
    "ip route get <address>; nc -vz <address> <port>",
    "open the port range between the nodes, or set NCCL_SOCKET_IFNAME to a routed interface",
    "NVIDIA/nccl#1105; sgl-project/sglang#3820",
)
add(
    FAULTS,
    "nccl.connect-refused",
    "fatal",
    "A peer refused the connection",
    "the peer died first, another interface was announced, or a firewall rejects it",
    "grep -m1 'NCCL WARN' in the log of that peer; nc -vz <address> <port>",
    "repair the peer; set NCCL_SOCKET_IFNAME; open the ports",
    "pytorch/pytorch#38702",
)
add(
    FAULTS,
    "nccl.connect-timeout",
    "fatal",
    "Connecting to a peer timed out",
    "packets are dropped between the nodes (NetworkPolicy, firewall, security group)",
    "nc -vz <address> <port> between the pods",
    "allow all ports between the pods of a job",
    "NVIDIA/nccl-tests#15",
)
add(
    FAULTS,
    "nccl.wrong-peer",
    "degraded",
    "Something else answered on NCCL's port",
    "a port scanner or another job connected",
    "env | grep -E 'NCCL_COMM_ID|MASTER_PORT' in the pods of both jobs",
    "give each job its own port; keep scanners off",
    "misc/socket.cc",
)
add(
    FAULTS,
    "nccl.rank-count",
    "fatal",
    "The ranks disagree on the size of the job",
    "two jobs share a port, or a wrong world size or duplicate rank",
    "env | grep -E 'WORLD_SIZE|RANK|MASTER_PORT' in every pod",
    "give every rank its own number and the job its own port",
    "bootstrap.cc",
)
add(
    FAULTS,
    "nccl.socket-address",
    "fatal",
    "A socket was opened without an address",
    "the peer's address never arrived: ranks do not post matching operations",
    "grep -n -E 'ncclGroup(Start|End)' in the program; every rank must group its sends and receives",
    "wrap them in ncclGroupStart and ncclGroupEnd",
    "misc/socket.cc",
)
add(
    FAULTS,
    "nccl.message-truncated",
    "fatal",
    "Ranks disagree on message sizes",
    "different code, NCCL versions or settings on the ranks",
    "env | grep NCCL_ in every pod; grep 'NCCL version' in the log",
    "run the same image and settings everywhere",
    "net_socket.cc",
)
add(
    FAULTS,
    "nccl.collective-mismatch",
    "fatal",
    "Ranks call different collectives",
    "the application's ranks took different paths",
    "TORCH_DISTRIBUTED_DEBUG=DETAIL in a second run names the ranks and operations",
    "repair the application",
    "NVIDIA/nccl#296",
)
add(
    FAULTS,
    "nccl.duplicate-gpu",
    "fatal",
    "Two ranks use the same GPU",
    "no device is selected per rank",
    "env | grep -E 'CUDA_VISIBLE_DEVICES|LOCAL_RANK' in every rank",
    "torch.cuda.set_device(LOCAL_RANK), and as many ranks as GPUs",
    "init.cc; horovod/horovod#3929",
)
add(
    FAULTS,
    "nccl.files-limit",
    "fatal",
    "Too many open files",
    "the nofile limit is too small for this many connections",
    "ulimit -n",
    "raise nofile to 65536 or more",
    "proxy.cc",
)
add(
    FAULTS,
    "nccl.launch-failed",
    "fatal",
    "The launcher could not start the job",
    "not enough slots or GPUs, or a host that cannot be reached",
    "kubectl logs job/NAME, the launcher's: its first lines name the host",
    "correct the host file, slots or GPU count",
    "Open MPI; nccl-tests common.cu",
)
add(
    FAULTS,
    "nccl.oom-killed",
    "fatal",
    "A process was killed for memory",
    "the container's memory limit",
    "kubectl describe pod; dmesg | grep -i oom",
    "raise the memory limit",
    "kernel",
)

# -- inside a node -----------------------------------------------------------------------------------------------------
add(
    FAULTS,
    "nccl.shm-full",
    "fatal",
    "/dev/shm is too small",  # noqa: S108 -- a title, no path in use
    "NCCL's shared memory segments do not fit (64 MB is the container default)",
    "df -h /dev/shm",
    "mount an emptyDir of medium Memory on /dev/shm (docker: --shm-size=1g); remove stale /dev/shm/nccl-*",
    "misc/shmutils.cc; NVIDIA/nccl#290, #525",
)
add(
    FAULTS,
    "nccl.shm-attach",
    "fatal",
    "A shared memory segment of a peer is not there",
    "ranks of one host run in different containers",
    "ls /dev/shm in both containers",
    "share IPC, or NCCL_SHM_DISABLE=1, or give each its own NCCL_HOSTID",
    "vllm-project/vllm#18831",
)
add(
    FAULTS,
    "nccl.p2p-off",
    "degraded",
    "GPUs with NVLink do not use it",
    "P2P is off: ACS, IOMMU, a VM, MIG or NCCL_P2P_DISABLE",
    "nvidia-smi topo -p2p r",
    "disable ACS, unset NCCL_P2P_DISABLE",
    "graph/paths.cc",
)
add(
    FAULTS,
    "nccl.net-intra-node",
    "degraded",
    "GPUs of one host talk over the network",
    "P2P and shared memory are both off, or two containers look like two hosts",
    "env | grep -E 'NCCL_(P2P|SHM)_DISABLE'",
    "enable P2P or SHM; share IPC between the containers",
    "transport.cc (P2P, SHM, NET are tried in that order); NCCL user guide, NCCL_SHM_DISABLE",
)
add(
    FAULTS,
    "nccl.nvls-failed",
    "fatal",
    "NVLink SHARP (NVLS) could not be set up",
    "Fabric Manager is not running, the NVSwitches are in a bad state, or an IMEX channel is missing",
    "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric",
    "restart nvidia-fabricmanager or reboot; NCCL_NVLS_ENABLE=0 avoids it",
    "transport/nvls.cc; NVIDIA/nccl#1788, #1672",
)
add(
    FAULTS,
    "nccl.nvls-silent",
    "degraded",
    "NCCL gave up NVLink SHARP (NVLS) silently",
    "as for a failed set-up, but NCCL 2.27 and 2.28 go on without it",
    "systemctl status nvidia-fabricmanager",
    "restart nvidia-fabricmanager or reboot",
    "transport/nvls.cc (2.27 to 2.28)",
)
add(
    FAULTS,
    "nccl.mnnvl-failed",
    "fatal",
    "Multi-node NVLink does not work",
    "the IMEX daemon or channel is missing in the container",
    "ls /dev/nvidia-caps-imex-channels; nvidia-imex-ctl -q",
    "start nvidia-imex, use a ComputeDomain; NCCL_MNNVL_ENABLE=0 avoids it",
    "mnnvl.cc",
)
add(
    FAULTS,
    "nccl.mnnvl-unused",
    "degraded",
    "The NVLink domain is not used between hosts",
    "the GPUs see a fabric, yet NCCL treats the hosts as separate (MNNVL 0)",
    "nvidia-smi -q | grep -A5 Fabric on every host",
    "check cliqueId and ClusterUUID; start nvidia-imex",
    "init.cc (fillInfo)",
)
add(
    FAULTS,
    "nccl.topology-odd",
    "degraded",
    "NCCL found no good topology",
    "odd sets of GPUs or NICs",
    "nvidia-smi topo -m; NCCL_GRAPH_DUMP_FILE=/tmp/graph.xml in a second run",
    "give whole nodes; check NCCL_CROSS_NIC",
    "graph/search.cc",
)
add(
    FAULTS,
    "nccl.cuda-memory",
    "fatal",
    "The GPU is out of memory",
    "no room for NCCL's buffers",
    "nvidia-smi",
    "leave room; NCCL_BUFFSIZE; fewer communicators",
    "alloc.h",
)
add(
    FAULTS,
    "nccl.cuda-arch",
    "fatal",
    "NCCL has no code for this GPU",
    "NCCL was built without this architecture",
    "nvidia-smi --query-gpu=name,compute_cap --format=csv; cuobjdump --list-elf libnccl.so.2",
    "use an image whose NCCL is new enough for this GPU (its release notes name the architectures)",
    "enqueue.cc",
)
add(
    FAULTS,
    "nccl.cuda-failure",
    "fatal",
    "A CUDA call failed",
    "the GPU or its driver failed below NCCL",
    "nvidia-smi -q | grep -i -E 'xid|ecc'; dmesg | grep Xid",
    "check the GPU named in the evidence; reset or drain the node if it has Xid errors",
    "checks.h",
)
