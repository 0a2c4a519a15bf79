"""What can a log show to be wrong, what does it usually mean, what confirms it, and what mends it?

Ids are stable: reports and dashboards key on them. Severity: ``fatal`` (the job cannot run or its results are wrong),
``degraded`` (it runs, but not on what was paid for), ``info`` (says how far the judgement goes). A ``why`` explains another
fault (sockets, no GPUDirect) and is reported inside it. Sources: NCCL file names as of 2.28, nccl-tests, or issue threads.
"""

from __future__ import annotations

from typing import Dict

FAULTS = {}  # type: Dict[str, Dict[str, str]]


def _fault(ident: str, severity: str, title: str, cause: str, confirm: str, remedy: str, source: str) -> None:
    FAULTS[ident] = {"title": title, "severity": severity, "cause": cause, "confirm": confirm, "remedy": remedy, "source": source}


# -- what the job as a whole shows -------------------------------------------------------------------------------------------
_fault(
    "nccl.socket-fallback", "degraded", "Ranks on different hosts talk over plain TCP sockets",
    "NCCL found no usable RDMA network and fell back to sockets; the log does not say why",
    "ibv_devinfo (or fi_info -p efa) inside the same container; then grep 'NET/' in the log of one rank",
    "make the RDMA devices, their libraries and NCCL's network plugin visible in the pod; compare with a pod where it works",
    "catalogue 1.3, 1.5; NVIDIA/nccl#952",
)  # fmt: skip
_fault(
    "nccl.mixed-transport", "fatal", "Ranks of one job use different transports",
    "some ranks reached the RDMA network and others did not, so the slowest path sets the pace or the two sides cannot connect",
    "compare the 'Using network' and 'via NET/' lines of a good and of a bad rank",
    "repair the ranks that fell back (device, plugin or permission on that node); the other ranks are healthy",
    "aws/aws-ofi-nccl#715, NVIDIA/nccl-tests#188",
)  # fmt: skip
_fault(
    "nccl.gdr-off", "degraded", "RDMA works, but without GPUDirect",
    "data is staged through host memory: the channel lines carry no /GDRDMA",
    "lsmod | grep nvidia_peermem; NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH shows 'GPU Direct RDMA ... Disabled' with the reason",
    "load nvidia-peermem (or use the open kernel modules with DMA-BUF); check the GPU-NIC distance with nvidia-smi topo -m",
    "graph/paths.cc:ncclTopoCheckGdr; NVIDIA/nccl#1537, #1939",
)  # fmt: skip
_fault(
    "nccl.gdr-mixed", "degraded", "GPUDirect works for some connections and not for others",
    "one host, or one direction, has no GPUDirect: peermem missing on a node, or reads switched off",
    "lsmod | grep nvidia_peermem on every host; compare the hosts in the pair matrix",
    "load nvidia-peermem on the host without it; where only sends lack it, NCCL_NET_GDR_READ=1",
    "NVIDIA/nccl#897; graph/paths.cc",
)  # fmt: skip
_fault(
    "nccl.rail-missing", "degraded", "A host uses fewer network rails than it should",
    "a NIC, cable or device request is missing: fewer devices carry channels there than expected",
    "ibstat on that host; compare the device lists of the hosts; check the pod's RDMA resource request",
    "bring the port up, or request all devices; do not infer rails from bandwidth",
    "channel lines, catalogue 1.5",
)  # fmt: skip
_fault(
    "nccl.wrong-fabric", "degraded", "The data runs over another fabric than expected",
    "the transport in the channel lines is not the one the profile names",
    "compare the pair matrix with the profile's fabric; ibv_devinfo shows the link layer",
    "select the right devices with NCCL_IB_HCA, or load the fabric's own plugin",
    "catalogue 1.5",
)  # fmt: skip
_fault(
    "nccl.hang", "fatal", "A collective never finished",
    "ranks waited until a watchdog or a time limit ended the job: one rank is missing, or the network stalls",
    "compare the last operation of every rank; py-spy or the flight recorder on the rank that is behind",
    "look at the rank that is missing or behind; if all wait in the same operation, test the links between the hosts",
    "pytorch/pytorch#118369; hiyouga/LlamaFactory#7396",
)  # fmt: skip
_fault(
    "nccl.crash", "fatal", "The job ended with an error",
    "a process failed; the first warning before the first error trace is the best lead",
    "read the evidence line; repeat with NCCL_DEBUG=INFO if it shows no NCCL warning",
    "repair what the first warning names; later messages of other ranks are consequences",
    "checks.h; catalogue 1.1",
)  # fmt: skip
_fault(
    "nccl.log-truncated", "info", "The log ends before the job does",
    "the end is missing: rotated away, cut by a size limit, or the job was killed",
    "compare the number of ranks that began with those that finished; look for the end of the table",
    "read the log from the container's start, or let every rank write its own NCCL_DEBUG_FILE",
    "structure of the log (catalogue 1.10)",
)  # fmt: skip
_fault(
    "nccl.wrong-results", "fatal", "The collective delivered wrong data",
    "data corruption: a bad GPU, NIC, cable or switch, or a library bug",
    "repeat on each pair of hosts; then with NCCL_P2P_DISABLE=1, and with NCCL_NET_GDR_LEVEL=LOC",
    "take the component that every failing pair shares out of service",
    "nccl-tests common.cu (out of bounds)",
)  # fmt: skip
_fault(
    "nccl.version-mismatch", "fatal", "Ranks run different NCCL versions",
    "different images or libraries on the nodes",
    "compare the 'NCCL version' lines; ldconfig -p | grep nccl in each pod",
    "run the same image, by digest, everywhere",
    "init.cc (2.23.4+); NVIDIA/nccl-tests#185",
)  # fmt: skip
_fault(
    "nccl.no-evidence", "info", "The log does not show what carried the data",
    "NCCL printed no channel lines here: NCCL_DEBUG was not INFO, or the lines went elsewhere",
    "grep -c 'NCCL INFO' in the log; look for NCCL_DEBUG and NCCL_DEBUG_FILE in the job's environment",
    "run again with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET,GRAPH,TUNING",
    "catalogue 1.0, 1.5",
)  # fmt: skip
_fault(
    "nccl.low-bandwidth", "degraded", "The bus bandwidth is below what this hardware gives",
    "a slow or congested link, a wrong algorithm or protocol setting, or a GPU that is throttled",
    "repeat the row with NCCL_ALGO=Ring; sweep pairs of hosts; check port counters",
    "isolate the slow pair; check link rate, PFC and adaptive routing on its path",
    "nccl-tests util.cu (NCCL_TESTS_MIN_BW)",
)  # fmt: skip
_fault(
    "nccl.bandwidth-falls", "degraded", "The bus bandwidth falls as messages grow",
    "a congested or flapping link, or a PFC storm: large messages lose more than small ones gain",
    "sweep pairs of hosts at 1 GiB; read the discard and pause counters of ports and switches",
    "take the link that every slow pair shares out of service",
    "measured on real logs (a run that fell from 8.8 to 1.1 GB/s)",
)  # fmt: skip
_fault(
    "nccl.odd-numbers", "info", "The table holds numbers that cannot be measurements",
    "nan, inf or values beyond any hardware: a timer or a single-rank run",
    "repeat the test with more iterations",
    "do not judge this run by these rows",
    "nccl-tests common.cu",
)  # fmt: skip

# -- why sockets -------------------------------------------------------------------------------------------------------------
_fault(
    "nccl.ib-disabled", "degraded", "RDMA was switched off", "NCCL_IB_DISABLE=1 is set",
    "env | grep NCCL_IB_DISABLE; cat /etc/nccl.conf ~/.nccl.conf", "unset NCCL_IB_DISABLE (it often comes with a copied recipe or the image)",
    "net_ib/init.cc; espnet/espnet#1940",
)  # fmt: skip
_fault(
    "nccl.net-env", "degraded", "The network was chosen by the environment", "NCCL_NET or NCCL_NET_PLUGIN is set",
    "env | grep NCCL_NET", "unset it, or name a network that is there", "plugin/net.cc",
)  # fmt: skip
_fault(
    "nccl.plugin-broken", "degraded", "The network plugin cannot be loaded", "a library or symbol that the plugin needs is missing",
    "ldd $(find / -name 'libnccl-net*.so' 2>/dev/null | head -1)",
    "put the plugin's libraries on LD_LIBRARY_PATH (/opt/amazon/efa/lib on AWS), or rebuild it for this CUDA", "plugin/plugin_open.cc",
)  # fmt: skip
_fault(
    "nccl.plugin-too-old", "degraded", "The network plugin is too old for this NCCL", "NCCL refuses plugins of interface version 4 and lower",
    "grep 'ncclNetPlugin symbol' in the log", "upgrade the plugin", "net.cc; NVIDIA/nccl#1519",
)  # fmt: skip
_fault(
    "nccl.plugin-missing", "degraded", "The fabric's network plugin is not installed",
    "no libnccl-net.so was found and there is no verbs device: EFA, Slingshot and Google's networks need their plugin",
    "find / -name 'libnccl-net*.so'; ls /dev/infiniband", "install the vendor's NCCL network plugin in the image", "NVIDIA/nccl#1126, #352",
)  # fmt: skip
_fault(
    "nccl.plugin-init-failed", "degraded", "The network plugin failed to start", "the plugin was found but refused to initialise",
    "grep -A3 'Failed to initialize NET plugin' in the log", "repair what the plugin complains about, or remove a stale plugin path", "plugin/net.cc",
)  # fmt: skip
_fault(
    "nccl.ofi-no-provider", "degraded", "The libfabric plugin found no fabric provider",
    "no EFA device in the pod, the wrong libfabric first in LD_LIBRARY_PATH, or no support for GPU memory",
    "fi_info -p efa -t FI_EP_RDM -c FI_HMEM inside the pod", "request vpc.amazonaws.com/efa, and use the EFA installer's libfabric",
    "aws/aws-ofi-nccl#715, #889",
)  # fmt: skip
_fault(
    "nccl.ofi-provider", "degraded", "The libfabric plugin runs over a provider without RDMA",
    "it selected tcp, sockets or verbs;ofi_rxm instead of the fabric's own provider",
    "grep 'Selected provider' in the log; fi_info -p efa", "FI_PROVIDER=efa on nodes that have it, or remove the plugin so that NET/IB is used",
    "aws-ofi-nccl (provider selection)",
)  # fmt: skip
_fault(
    "nccl.libibverbs-missing", "degraded", "libibverbs is not in the image", "NCCL could not open libibverbs.so",
    "ldconfig -p | grep libibverbs", "install libibverbs1 and ibverbs-providers (rdma-core) in the image", "misc/ibvsymbols.cc; NVIDIA/nccl#1410",
)  # fmt: skip
_fault(
    "nccl.ib-open", "degraded", "An RDMA device cannot be opened", "the device cgroup or permissions keep the process from it",
    "ls -l /dev/infiniband; ibv_devinfo", "pass /dev/infiniband/uverbsN to the container (RDMA device plugin)", "net_ib/init.cc",
)  # fmt: skip
_fault(
    "nccl.ib-filter", "degraded", "NCCL_IB_HCA matches no device", "NCCL_IB_HCA is set and no usable device is left",
    "compare NCCL_IB_HCA with ibv_devices", "correct the list: a name is a prefix, '=' is exact, '^' excludes", "net_ib/init.cc (matchIfList)",
)  # fmt: skip
_fault(
    "nccl.ib-no-device", "degraded", "No usable RDMA device is visible",
    "no ACTIVE verbs port in the container: no /dev/infiniband, no rdma-core provider, no RDMA resource requested, or no such hardware",
    "ibv_devinfo inside the container", "request the RDMA resource (device plugin or SR-IOV), pass /dev/infiniband, install ibverbs-providers",
    "net_ib/init.cc; NVIDIA/nccl#952, nccl-tests#188",
)  # fmt: skip

# -- why no GPUDirect --------------------------------------------------------------------------------------------------------
_fault(
    "nccl.gdr-no-module", "degraded", "GPUDirect is off for a NIC", "nvidia-peermem is not loaded or not registered, and there is no DMA-BUF",
    "lsmod | grep peermem; cat /sys/module/nvidia_peermem/version", "modprobe nvidia-peermem; after a new OFED rebuild the driver; or use the open modules",
    "net_ib/gdr.cc; NVIDIA/nccl#1537, #1343",
)  # fmt: skip
_fault(
    "nccl.gdr-distance", "degraded", "GPU and NIC are too far apart for GPUDirect", "the path between them is longer than the limit (PXB by default)",
    "nvidia-smi topo -m", "use a closer NIC, or try NCCL_NET_GDR_LEVEL=PHB and measure; in VMs give NCCL_TOPO_FILE", "graph/paths.cc",
)  # fmt: skip
_fault(
    "nccl.gdr-env", "degraded", "GPUDirect was switched off", "NCCL_NET_GDR_LEVEL or NCCL_IB_CUDA_SUPPORT says so",
    "env | grep -E 'NCCL_(NET_GDR|IB_CUDA)'", "unset it", "graph/paths.cc",
)  # fmt: skip
_fault(
    "nccl.topology-virtual", "degraded", "NCCL cannot see where the NIC is attached", "a virtual NIC without PCI topology: distances are unknown",
    "nvidia-smi topo -m; grep 'Topology detection' in the log", "give NCCL_TOPO_FILE from the cloud provider", "graph/xml.cc",
)  # fmt: skip

# -- RDMA at work ------------------------------------------------------------------------------------------------------------
_fault(
    "nccl.ib-retry", "fatal", "The RDMA transport gave up on a peer",
    "the NIC got no answer (work completion 12 or 13): wrong GID index or subnet, MTU, VLAN or PFC on RoCE, rails that are not connected, a bad cable",
    "ib_write_bw between the two NICs (-x GID index on RoCE); show_gids; port counters",
    "NCCL_IB_GID_INDEX for RoCE v2, an exact NCCL_IB_HCA list, NCCL_CROSS_NIC=0 for separate rails; repair the link",
    "NVIDIA/nccl#426, #1664, #1405, #1814",
)  # fmt: skip
_fault(
    "nccl.ib-protection", "fatal", "The NIC was refused access to memory",
    "ACS or the IOMMU is in the way of peer traffic, or peermem is broken (work completion 4 or 10)",
    "lspci -vvv | grep ACSCtl; repeat with NCCL_NET_GDR_LEVEL=LOC", "disable ACS on the bridges, iommu=pt; reload nvidia-peermem",
    "net_ib/common.h (printIbWcStatusHint)",
)  # fmt: skip
_fault(
    "nccl.ib-error", "fatal", "An RDMA transfer failed", "a work completion with an error status",
    "look up the status in the evidence line (ibv_wc_status)", "test the path between the two NICs with ib_write_bw", "transport/net_ib.cc",
)  # fmt: skip
_fault(
    "nccl.ib-link-flap", "fatal", "An RDMA port went down or lost its table", "a link flap: cable, transceiver, switch port, or a GID change",
    "ibdiagnet or mlxlink on that port; dmesg | grep mlx5", "repair the link; NCCL_IB_TIMEOUT=22 NCCL_IB_RETRY_CNT=7 only bridge short outages",
    "net_ib (async events); NVIDIA/nccl#1814",
)  # fmt: skip
_fault(
    "nccl.ib-unreachable", "fatal", "A queue pair could not be connected", "no route between the GIDs: wrong GID index, VLAN, ARP, or NICs in different subnets",
    "show_gids on both hosts; ping between the NICs' addresses", "set NCCL_IB_GID_INDEX, repair routing, NCCL_CROSS_NIC=0",
    "NVIDIA/nccl-tests#185, NVIDIA/nccl#1131",
)  # fmt: skip
_fault(
    "nccl.ib-mixed-fabric", "fatal", "InfiniBand and RoCE ports are mixed", "NCCL picked NICs of different link types, often a management bond",
    "ibv_devinfo | grep -E 'hca_id|link_layer'", "name the data NICs exactly in NCCL_IB_HCA, or exclude the others with '^'", "net_ib/connect.cc",
)  # fmt: skip
_fault(
    "nccl.ib-memlock", "fatal", "Memory could not be pinned for RDMA", "the locked-memory limit of the container is too small",
    "ulimit -l inside the container", "raise memlock to unlimited for the container runtime, or add IPC_LOCK", "NVIDIA/nccl-tests#206; ibvwrap.cc",
)  # fmt: skip
_fault(
    "nccl.gdr-register", "fatal", "GPU memory could not be registered with the NIC", "peermem or DMA-BUF refused it: driver and OFED do not fit, or the BAR is too small",
    "dmesg | grep -i -E 'peermem|dmabuf'", "align driver and OFED; reload nvidia-peermem; try NCCL_DMABUF_ENABLE=0", "net_ib/reg.cc",
)  # fmt: skip
_fault(
    "nccl.mr-register", "fatal", "The libfabric plugin could not register memory", "GPU memory registration was refused: container and host libfabric do not fit",
    "fi_info -p efa -c FI_HMEM", "use the host's libfabric and plugin versions in the image", "aws-ofi-nccl (register_mr_buffers)",
)  # fmt: skip
_fault(
    "nccl.net-forced", "fatal", "The network that was asked for is not there", "NCCL_NET names a network that cannot be initialised",
    "env | grep NCCL_NET; ibv_devinfo", "unset NCCL_NET, or make that network available", "plugin/net.cc (ncclNetInit)",
)  # fmt: skip
_fault(
    "nccl.ucx-error", "fatal", "The UCX plugin failed", "UCX reported an error below NCCL", "ucx_info -d; UCX_LOG_LEVEL=info",
    "select transports and devices UCX supports here (UCX_TLS, UCX_NET_DEVICES), or use NET/IB", "ucx_plugin.c",
)  # fmt: skip
_fault(
    "nccl.gin-failed", "fatal", "Device-initiated networking failed", "GIN (GDAKI) could not set up its queue pairs", "dmesg; DOCA and firmware versions",
    "NCCL_GIN_ENABLE=0, or align DOCA, driver and firmware", "net_ib/gdaki; NVIDIA/nccl#2237",
)  # fmt: skip
_fault(
    "nccl.tcpx-stall", "degraded", "GPUDirect-TCPX stalls", "the receive-datapath manager is missing or of another version",
    "kubectl logs of the rxdm side car", "run the rxdm side car of the plugin's version on every node", "google/nccl-plugin-gpudirecttcpx#1",
)  # fmt: skip
_fault(
    "nccl.pxn-off", "degraded", "Traffic cannot be gathered over NVLink (PXN)", "the network plugin's interface (v4) is too old for it",
    "grep 'PXN Disabled' in the log", "upgrade the plugin", "graph/paths.cc",
)  # fmt: skip
_fault(
    "nccl.nic-count", "fatal", "Ranks see different numbers of NICs", "nodes differ in their NICs, or a device was not passed to one pod",
    "compare the NET/IB device lists of the hosts", "repair the node with fewer NICs", "init.cc (2.30.3+)",
)  # fmt: skip

# -- bootstrap ---------------------------------------------------------------------------------------------------------------
_fault(
    "nccl.bootstrap-interface", "fatal", "No network interface for the bootstrap", "NCCL_SOCKET_IFNAME matches no interface on this host",
    "ip -br addr; env | grep NCCL_SOCKET_IFNAME", "use a prefix that every host has (eth), or an exclusion (^lo,docker)", "bootstrap.cc",
)  # fmt: skip
_fault(
    "nccl.no-route", "fatal", "A peer's address cannot be reached", "firewall between the nodes, or an interface that is not routed",
    "ip route get <address>; nc -vz <address> <port>", "open the port range between the nodes, or set NCCL_SOCKET_IFNAME to a routed interface",
    "NVIDIA/nccl#1105; sgl-project/sglang#3820",
)  # fmt: skip
_fault(
    "nccl.connect-refused", "fatal", "A peer refused the connection", "the peer died first, another interface was announced, or a firewall rejects it",
    "look for the earliest warning of that peer", "repair the peer; set NCCL_SOCKET_IFNAME; open the ports", "pytorch/pytorch#38702",
)  # fmt: skip
_fault(
    "nccl.connect-timeout", "fatal", "Connecting to a peer timed out", "packets are dropped between the nodes (NetworkPolicy, firewall, security group)",
    "nc -vz <address> <port> between the pods", "allow all ports between the pods of a job", "NVIDIA/nccl-tests#15",
)  # fmt: skip
_fault(
    "nccl.wrong-peer", "degraded", "Something else answered on NCCL's port", "a port scanner or another job connected", "compare NCCL_COMM_ID and ports of the jobs",
    "give each job its own port; keep scanners off", "misc/socket.cc",
)  # fmt: skip
_fault(
    "nccl.rank-count", "fatal", "The ranks disagree on the size of the job", "two jobs share a port, or a wrong world size or duplicate rank",
    "compare WORLD_SIZE, RANK and MASTER_PORT of the pods", "give every rank its own number and the job its own port", "bootstrap.cc",
)  # fmt: skip
_fault(
    "nccl.socket-address", "fatal", "A socket was opened without an address", "the peer's address never arrived: ranks do not post matching operations",
    "check that sends and receives are grouped on all ranks", "wrap them in ncclGroupStart and ncclGroupEnd", "misc/socket.cc",
)  # fmt: skip
_fault(
    "nccl.message-truncated", "fatal", "Ranks disagree on message sizes", "different code, NCCL versions or settings on the ranks",
    "compare images, NCCL versions and NCCL_* of the ranks", "run the same image and settings everywhere", "net_socket.cc",
)  # fmt: skip
_fault(
    "nccl.collective-mismatch", "fatal", "Ranks call different collectives", "the application's ranks took different paths", "TORCH_DISTRIBUTED_DEBUG=DETAIL",
    "repair the application", "NVIDIA/nccl#296",
)  # fmt: skip
_fault(
    "nccl.duplicate-gpu", "fatal", "Two ranks use the same GPU", "no device is selected per rank", "print CUDA_VISIBLE_DEVICES and LOCAL_RANK in every rank",
    "torch.cuda.set_device(LOCAL_RANK), and as many ranks as GPUs", "init.cc; horovod/horovod#3929",
)  # fmt: skip
_fault(
    "nccl.files-limit", "fatal", "Too many open files", "the nofile limit is too small for this many connections", "ulimit -n", "raise nofile to 65536 or more", "proxy.cc",
)  # fmt: skip
_fault(
    "nccl.launch-failed", "fatal", "The launcher could not start the job", "not enough slots or GPUs, or a host that cannot be reached", "read the launcher's message",
    "correct the host file, slots or GPU count", "Open MPI; nccl-tests common.cu",
)  # fmt: skip
_fault(
    "nccl.oom-killed", "fatal", "A process was killed for memory", "the container's memory limit", "kubectl describe pod; dmesg | grep -i oom", "raise the memory limit", "kernel",
)  # fmt: skip

# -- inside a node -----------------------------------------------------------------------------------------------------------
_fault(
    "nccl.shm-full", "fatal", "/dev/shm is too small", "NCCL's shared memory segments do not fit (64 MB is the container default)", "df -h /dev/shm",
    "mount an emptyDir of medium Memory on /dev/shm (docker: --shm-size=1g); remove stale /dev/shm/nccl-*", "misc/shmutils.cc; NVIDIA/nccl#290, #525",
)  # fmt: skip
_fault(
    "nccl.shm-attach", "fatal", "A shared memory segment of a peer is not there", "ranks of one host run in different containers", "ls /dev/shm in both containers",
    "share IPC, or NCCL_SHM_DISABLE=1, or give each its own NCCL_HOSTID", "vllm-project/vllm#18831",
)  # fmt: skip
_fault(
    "nccl.p2p-off", "degraded", "GPUs with NVLink do not use it", "P2P is off: ACS, IOMMU, a VM, MIG or NCCL_P2P_DISABLE", "nvidia-smi topo -p2p r",
    "disable ACS, unset NCCL_P2P_DISABLE", "graph/paths.cc",
)  # fmt: skip
_fault(
    "nccl.net-intra-node", "degraded", "GPUs of one host talk over the network", "P2P and shared memory are both off, or two containers look like two hosts",
    "env | grep -E 'NCCL_(P2P|SHM)_DISABLE'", "enable P2P or SHM; share IPC between the containers", "catalogue row 48",
)  # fmt: skip
_fault(
    "nccl.nvls-failed", "fatal", "NVLink SHARP (NVLS) could not be set up", "Fabric Manager is not running, the NVSwitches are in a bad state, or an IMEX channel is missing",
    "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric", "restart nvidia-fabricmanager or reboot; NCCL_NVLS_ENABLE=0 avoids it",
    "transport/nvls.cc; NVIDIA/nccl#1788, #1672",
)  # fmt: skip
_fault(
    "nccl.nvls-silent", "degraded", "NCCL gave up NVLink SHARP (NVLS) silently", "as for a failed set-up, but NCCL 2.27 and 2.28 go on without it",
    "systemctl status nvidia-fabricmanager", "restart nvidia-fabricmanager or reboot", "transport/nvls.cc (2.27 to 2.28)",
)  # fmt: skip
_fault(
    "nccl.mnnvl-failed", "fatal", "Multi-node NVLink does not work", "the IMEX daemon or channel is missing in the container", "ls /dev/nvidia-caps-imex-channels; nvidia-imex-ctl -q",
    "start nvidia-imex, use a ComputeDomain; NCCL_MNNVL_ENABLE=0 avoids it", "mnnvl.cc",
)  # fmt: skip
_fault(
    "nccl.mnnvl-unused", "degraded", "The NVLink domain is not used between hosts", "the GPUs see a fabric, yet NCCL treats the hosts as separate (MNNVL 0)",
    "nvidia-smi -q | grep -A5 Fabric on every host", "check cliqueId and ClusterUUID; start nvidia-imex", "init.cc (fillInfo)",
)  # fmt: skip
_fault(
    "nccl.topology-odd", "degraded", "NCCL found no good topology", "odd sets of GPUs or NICs", "NCCL_GRAPH_DUMP_FILE", "give whole nodes; check NCCL_CROSS_NIC", "graph/search.cc",
)  # fmt: skip
_fault(
    "nccl.cuda-memory", "fatal", "The GPU is out of memory", "no room for NCCL's buffers", "nvidia-smi", "leave room; NCCL_BUFFSIZE; fewer communicators", "alloc.h",
)  # fmt: skip
_fault(
    "nccl.cuda-arch", "fatal", "NCCL has no code for this GPU", "NCCL was built without this architecture", "compare the GPU with NCCL's release notes", "a newer NCCL", "enqueue.cc",
)  # fmt: skip
_fault(
    "nccl.cuda-failure", "fatal", "A CUDA call failed", "the GPU or its driver failed below NCCL", "nvidia-smi -q | grep -i -E 'xid|ecc'; dmesg | grep Xid",
    "check the GPU named in the evidence; reset or drain the node if it has Xid errors", "checks.h",
)  # fmt: skip

DIAGNOSES = (
    "healthy-rdma",  # several hosts, RDMA with GPUDirect (or a fabric of its own) on every channel that the log shows
    "healthy-nvlink-fabric",  # several hosts inside one NVLink domain
    "healthy-single-node",  # one host, and its ranks connected
    "single-rank",  # one rank: nothing was sent
    "table-only",  # numbers without evidence of what carried them
    "tcp-plugin",  # a TCP plugin on purpose (FastSocket): works, no RDMA
    "socket",  # plain TCP between hosts
    "mixed-transport",
    "rdma-without-gpudirect",
    "gpudirect-mixed",
    "rail-missing",
    "wrong-fabric",
    "rdma-but-slow",
    "slow",  # low bandwidth, transport not shown
    "degraded",  # another degrading fault
    "wrong-results",
    "version-mismatch",
    "hang",
    "crash",
    "launch-failed",
    "truncated",
    "selected-only",  # a network was chosen, but no channel shows its use
    "no-evidence",
)
