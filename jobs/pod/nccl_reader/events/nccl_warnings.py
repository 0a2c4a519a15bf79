"""Symptoms in the words of NCCL's own warnings, and of the AWS OFI plugin's: what no pattern before them takes.

Each is (fault, role, pattern), as in symptoms.SYMPTOMS, behind which they are tried. They come from the WARN(...) texts
of libnccl.so 2.18 to 2.30 and of aws-ofi-nccl (NCCL_OFI_WARN); a comment names the file of NCCL's sources.
"""

from __future__ import annotations

from typing import Tuple

# Tried before the errno of a connection between hosts, which it is not (misc/ipcsocket.cc).
LOCAL_SOCKET = ("nccl.local-socket", "cause", rb"UDS: (?:Socket creation|Binding to|Sending|Receiving)")
NCCL_WARNINGS: Tuple[Tuple[str, str, bytes], ...] = (
    LOCAL_SOCKET,
    # -- NCCL takes another value, or does without, and says so: init.cc, tuning.cc, net_socket.cc, xml.cc, profiler.cc
    (
        "",
        "benign",
        rb"is being ignored because it is not a power|is larger than (?:#channels upper limit|maxCTAs) "
        rb"|NCCL_CGA_CLUSTER_SIZE value -?\d{1,9} is too big|is not a valid value 0/1, set it to 0"
        rb"|Unsetting POLICY_EFFICIENCY|User asked for a m(?:in|ax)imum of -?\d{1,9} channels"
        rb"|Invalid NCCL_\w{1,40} -?\d{1,9} \(m(?:ust be a multiple|inimum|aximum)|not dumping topology"
        rb"|is greater than the maximum allowed, setting|Ignoring SHM locality|Continue without profiler"
        rb"|GPUs per node, disabling CollNet|ignoring NCCL_ALGO=COLLNET|due to old driver, disabling"
        rb"|SHARP group create: |sharp_coll_caps_query failed|SHARP .{0,40}Datatypes not supported"
        rb"|Resiliency (?:is enabled on a .{1,40} with a single device|requires pre-posted)|Encountered a stale CQE"
        rb"|Ignoring error on flush request|using NCCL_NETDEVS_POLICY_AUTO instead"
        rb"|exceeds buffer max \d{1,12}, clamping",
    ),
    # -- settings: graph/tuning.cc, graph/topo.cc, net_ib/init.cc
    (
        "nccl.setting-invalid",
        "cause",
        rb"Unrecognized (?:element|prefix) token|All entries except the first must have a prefix"
        rb"|NCCL_WORK_FIFO_DEPTH=\S{1,24} is too"
        rb"|NCCL_GIN_\w{1,10}_POOL_SIZE has|invalid for family|Unknown netDevs policy"
        rb"|network devices = -?\d{1,9} for policy|NCCL_SOCKET_MAGIC invalid value",
    ),
    (
        "nccl.nic-fusion",
        "cause",
        rb"TOPO/NET ?: |NET/TOPO ?: |Specified fused NIC|NET/IB ?: (?:Trying to merge multiple|Can't make virtual NIC"
        rb"|Cannot (?:allocate any more virtual|use physical)|Trying to use non-existent virtual"
        rb"|Requested properties for vNic)",
    ),
    ("nccl.ib-mixed-fabric", "cause", rb"Can't merge net devices with different link_layer"),
    # -- the graph: rings.cc, connect.cc, paths.cc, search.cc, topo.cc, xml.cc
    (
        "nccl.ranks-differ",
        "cause",
        rb"ring \d{1,5} does not (?:loop back to start|contain rank)|tree already has \d"
        rb"|requires NIC \S{1,20} but that NIC"
        rb"|should be a divis[eo]r of the number of ranks",
    ),
    (
        "nccl.topology-too-large",
        "cause",
        rb"tried to create too many nodes of type|ran out of room to store found nodes|ncclTopoGetDevNodes : too many",
    ),
    (
        "nccl.topology-unreadable",
        "cause",
        rb"XML Parse ?:|Error : (?:name|value) .{1,400} too long|could not find CPU numa ID"
        rb"|No NVML device handle\. Skipping|non-zero bits in MLOPart",
    ),
    (
        "nccl.topology-search",
        "cause",
        rb"Could not find (?:node of type|id [0-9a-f]|local GPU with rank)|Set CPU affinity : unable to find"
        rb"|not found in the list of system hostHashes|Add (?:NVLink|PCI Link|C2c) error|yet have different netMasks"
        rb"|ncclTopo(?:RankToIndex|DevToRank) could not find",
    ),
    # -- the operating system and the driver: os/linux.cc, shmutils.cc, ipcsocket.cc, nvmlwrap.cc, cudawrap.cc
    (
        "nccl.process-limit",
        "cause",
        rb"(?:pthread_create failed|Thread creation failed).{0,40}(?:temporarily unavailable|error 11\b)",
    ),
    (
        "nccl.bootstrap-interface",
        "cause",
        rb"NET/IB ?: No IP interface found|no device found after excluding|Call to getifaddrs failed"
        rb"|Call to bind failed ?: ?Cannot assign",
    ),
    (
        "nccl.connect-failed",
        "cause",
        rb"onnect to \S{1,80} returned (?:Software caused|Cannot assign|Operation not permitted|Permission denied"
        rb"|Invalid argument).{0,60} exceeded error",
    ),
    ("nccl.connect-timeout", "cause", rb"exceeded (?:error retry count|timeouts|retries) ?[\(a]|PollConnect poll\(\) "),
    ("nccl.connect-failed", "cause", rb"onnect (?:to \S{1,80} )?failed ?:|PollConnect to \S{1,80} failed"),
    (
        "nccl.wrong-peer",
        "cause",
        rb"\[Proxy [sS]ervice\] Too many connections|\[Service thread\] Unknown command"
        rb"|Unknown command \d{1,9} from local",
    ),
    (
        "nccl.shm-full",
        "cause",
        rb"failed to create shared memory file|Could not map \S{1,200} size \d|Failed to create /dev/shm",
    ),
    ("nccl.gpu-lost", "cause", rb"nvml\w{2,60}\([^)]{0,80}\) failed: GPU is lost"),
    (
        "nccl.no-gpu",
        "cause",
        rb"nvmlInit\w{0,20}\([^)]{0,80}\) failed: Unknown|nvml(?:Init|DeviceGet(?:Count"
        rb"|HandleBy))\w{0,20}\([^)]{0,80}\) failed: (?:Not Found|Insufficient Perm|Driver Not Loaded"
        rb"|Invalid Argument|No permission)"
        rb"|nvmlDeviceGetCount\(\) reported more",
    ),
    (
        "nccl.driver-state",
        "cause",
        rb"nvml\w{2,60}\([^)]{0,80}\) failed: |Failed to (?:set|create) CUDA (?:device|context)",
    ),
    (
        "nccl.cuda-symbols",
        "cause",
        rb"Failed to find CUDA library|Failed to load CUDA missing symbol|cuDriverGetVersion failed"
        rb"|CUDA some PFN functions"
        rb"|Retrieve \w{1,80} (?:version \d{1,9} )?failed with|NCCL cannot be captured in a graph if either",
    ),
    (
        "nccl.oom-killed",
        "cause",
        rb"[mc]alloc\([^)]{1,60}\) returned null|Allocation failed at |MemManager: Failed to (?:allocate|grow)",
    ),
    ("nccl.cuda-memory", "cause", rb"No suitable space found to accommodate"),
    (
        "nccl.system-call",
        "cause",
        rb"ibv_get_async_event failed"
        rb"|Call to (?!ibv_|mlx5|connect|recv|send|close|shutdown)[a-z_2]{4,30}(?: [A-Z_ ]{1,20})? failed ?: ?"
        rb"|sched_[gs]etaffinity failed with|Thread (?:creation|join) failed|Poll failed: |poll\(\) failed with error"
        rb"|Socket creation failed ?:|Error waiting for pthread_join|Accept failed: |std::random_device failed",
    ),
    # -- verbs: net_ib/*.cc, ibvwrap.cc, mlx5dvwrap.cc, ibvsymbols.cc
    ("nccl.ib-open", "why", rb"Call to ibv_(?:query_(?:device|port)|fork_init)\b.{0,3}failed"),
    ("nccl.verbs-provider", "why", rb"misc/(?:ibv|mlx5dv)wrap\.cc:\d{1,5} NCCL WARN .{0,12}lib wrapper not"),
    ("nccl.gdr-register", "cause", rb"(?:ibv|mlx5dv)_reg_(?:dmabuf_)?mr\S{0,20} failed"),
    ("nccl.ib-error", "cause", rb"ibv_(?:post_send|post_recv|poll_cq|query_qp)\(?\)? (?:failed|returned)"),
    (
        "nccl.ib-given-up",
        "cause",
        rb"communicator encountered a fatal error"
        rb"|NET/IB: .{0,60}(?:Got CQE with error|The error is fatal|marked as failed|Maximum number of probing"
        rb"|Could not find a (?:replacement QP|functional device)|permanently failed|failed due to max attempts"
        rb"|(?:Starting port|Port) recovery (?:for \w{4} comm|(?:attempt #\d{1,9} )?failed)|Fatal error\. Detected \d"
        rb"|Recovery for device"
        rb"|message (?:sequence )?timeout"
        rb"|[Ff]ailed to (?:re(?:set|store) |init |set ECE|modify to|post |poll |handle |drain |transition)"
        rb"|Work completion error on recovery)",
    ),
    (
        "nccl.message-truncated",
        "cause",
        rb"posted incorrect receive info|Sender expected a 'send' request but got|could not retr\w{3,5} a request",
    ),
    ("nccl.ib-create", "cause", rb"mlx5dv_create_qp failed|Call to ibv_(?:query|set)_ece failed"),
    ("nccl.gid-changed", "cause", rb"NET/IB.{1,80}GID table change"),
    # -- plugins: plugin/net.cc, coll_net.cc, net.cc; aws-ofi-nccl
    (
        "nccl.plugin-invalid",
        "cause",
        rb"plugin returned invalid value for max\w{3,12}Bytes|Unknown device code index"
        rb"|number of devices (?:of an uninitialized|for netPlugin)|CollNet sizes: want|(?:send"
        rb"|recv)ProxyConnect: reqSize"
        rb"|fails to share parent comms .{0,20}sharp|PXN should not use host buffers"
        rb"|Invalid GIN \w{1,8} backend version"
        rb"|GIN plugin \S{1,40} returned invalid",
    ),
    ("nccl.nic-count", "cause", rb"NET/OFI (?:Unexpected number of remote rails|Num\w{2,4} of forced rails)"),
    ("nccl.ofi-error", "cause", rb"NET/OFI .*Cannot continue"),
    ("nccl.mr-register", "cause", rb"NET/OFI .*(?:register|MR).{0,80}RC: ?-?[1-9]"),
    (
        "nccl.ofi-error",
        "cause",
        rb"NET/OFI .*(?:[Cc]ould ?n[o']t|[Uu]nable|[Ff]ailed|[Ff]ailure|Error|Call to).{0,200}RC: ?-?[1-9]",
    ),
    (
        "nccl.ofi-no-provider",
        "why",
        rb"EFA provider requires at least libfabric|Couldn't find any optimal provider"
        rb"|Failed to initialize \w{4,12} protocol|NCCL_OFI_NIC_DUP_CONNS set on",
    ),
    (
        "nccl.plugin-failed",
        "cause",
        rb"NET/OFI (?!.{0,120}ignoring)(?:Invalid |Unexpected |Unable to |Failed to (?!initialize GDRCopy|close "
        rb"|remove )"
        rb"|Couldn't |Error (?!opening file|while checking|getting)|Cannot |Received (?:unexpected|invalid))",
    ),
    (
        "nccl.gdrcopy-failed",
        "cause",
        rb"misc/gdrwrap\.cc:\d{1,5} NCCL WARN (?:Failed to open|dlsym failed)|gdr_(?:pin_buffer|map|get_info"
        rb"|copy_(?:to|from)_mapping)\w{0,4}\(.{1,160} failed: |GDRCOPY lib wrapper",
    ),
    # -- Google's plugins: nccl-plugin-gpudirect-tcpxo (fastrak_offload/init.cc, common.cc, fastrak_plugin.cc) and -tcpx
    (
        "nccl.rxdm",
        "cause",
        rb"RxDM not ready|NIC mappings from RxDM|NET/GPUDirectTCPX.{0,80}(?:ailed|rror).{0,40}(?:rx|buffer) manager"
        rb"|NET/FasTrak .{0,80}(?:buffer manager|buffer_mgr)",
    ),
    ("nccl.plugin-interface", "cause", rb"NET/FasTrak .{0,60}(?:No interfaces found|is never discovered before)"),
    (
        "nccl.plugin-versions",
        "cause",
        rb"NET/FasTrak .{0,60}VERSION MISMATCH|fi_version mismatch|protocol version mismatch",
    ),
    ("nccl.setting-invalid", "cause", rb"NET/FasTrak .{0,60}PXN is not supported"),
    (
        "nccl.plugin-failed",
        "cause",
        rb"NET/FasTrak .{0,60}(?:Failed to |No FasTrak index|No PCI Address|SEVERE: |Could not )",
    ),
    # -- the UCX plugin: nccl-rdma-sharp-plugins (ucx_plugin.c, ucx_rma_plugin.c)
    (
        "nccl.ucx-error",
        "cause",
        rb"[Ff]ailed to (?:initialize|init|create|connect|get|query) (?:UC[PTX]|ucp|ucx)|UCX returned|UCX connect",
    ),
    # -- NVLink between hosts: mnnvl.cc
    ("nccl.mnnvl-failed", "cause", rb"MNNVL is not supported on this system"),
    # -- the device API: dev_runtime.cc, gin/*.cc, rma/*.cc, sym*.cc
    (
        "nccl.gin-failed",
        "cause",
        rb"GIN Error (?:detected|on gin context)|NET/IB/GIN|DOCA (?:Error|failure)|GIN Symmetric register failed"
        rb"|Error on GFD",
    ),
    (
        "nccl.device-api",
        "cause",
        rb"No GIN-capable devices|User requested GIN but|Unable to use GIN|GIN (?:is disabled|not supported)"
        rb"|GIN contexts? \(\d|No shared contexts are available|Multicast support requested for team"
        rb"|Multimem pointer requested|does not support symmetric memory|RMA (?:proxy|CE) (?:is not|backend)"
        rb"|RMA proxy is not supported|min local net count is zero|GIN plugin v\d{1,3} does not support"
        rb"|GIN_IB_PROXY does not support|Unsupported signalOp|Hierarchical CE collective not supported"
        rb"|unsupported location type|VA represented by|span multiple physical segments",
    ),
    # -- the program: init.cc, group.cc, enqueue.cc, argcheck.cc, dev_runtime.cc, mem_manager.cc
    (
        "nccl.library",
        "cause",
        rb"NCCL library version is too old|compiled with too old version of NCCL"
        rb"|initialized via NCCL_\w{1,40}INITIALIZER",
    ),
    ("nccl.collective-mismatch", "cause", rb"symmetric registration check failed on rank|Elastic GIN: rank"),
    (
        "nccl.invalid-usage",
        "cause",
        rb"Invalid device (?:count requested|-?\d)|invalid device count|rank -?\d{1,9} exceeds ndev"
        rb"|improper usage of nccl"
        rb"|before the previous operation returned ncclSuccess|ncclGroupEnd: not in a group|can be CUDA graph captured"
        rb"|Streams given to a communicator within|recv to self without a matching"
        rb"|does not match type given to reduction|operator unknown to this communicator|corrupted comm object"
        rb"|FP8 reduction support begins|parent comm netName|does not match the parent"
        rb"|ncclCommGrow: (?!magic)|bcastGrowHandle|bootstrapInit: handles|ncclCommGetUniqueId should not"
        rb"|Invalid config \w{1,40}(?:/max channels)? attribute value|Invalid config min/max|window has a NULL user"
        rb"|Could not find communicator matching window|lsaRank -?\d{1,9} is not in|is not within valid range of ranks"
        rb"|is invalid \(must be 0\)|ncclPutSignal: |ncclWaitSignal: |does not satisfy symmetric registration"
        rb"|Memory (?:suspend|resume) not supported|MemManager: (?:Already suspended|Not in suspended|Suspend not"
        rb"|Resume not|MemStats not)|invalid pointer \S{1,24} / size|NCCL_COMM_ID cannot be used"
        rb"|is not being captured by"
        rb"|alignment -?\d{1,20} is not power of 2|NCCL_SIM_INFO_INIT|valid \[IPv6\]:port pair",
    ),
    ("nccl.socket-address", "cause", rb"Net : unsupported IP family"),
    ("nccl.rank-count", "cause", rb"localId -?\d{1,9} is out of range|ncclCommGrow: magic mismatch"),
    ("nccl.no-transport", "cause", rb"has no transport for (?:send|recv)"),
    ("nccl.no-algorithm", "cause", rb"Net registration invalid algorithm"),
    # -- what cannot happen, and did
    (
        "nccl.internal",
        "cause",
        rb"Internal error : |P2p schedule creation has bugs|Unknown (?:pattern|collnet pattern) |Invalid regBufType"
        rb"|Sendrecv plan not aligned|Failed to determine (?:intra proc|local) ranks|ran out of channel space"
        rb"|Proxy response for opId|Couldn't find opId|Attempting to dequeue|Could not find pool of op"
        rb"|List loop at element"
        rb"|Inactive op has next|Proxy append|incomplete proxy op chain|P2p operation is neither"
        rb"|Mismatched response size"
        rb"|(?:pass NULL|unexpected|wrong) socket|ncclSocket\w{4,24}: (?:pass NULL|invalid|socket (?:is invalid|state)"
        rb"|file descriptor is -1|unexpected|wrong)|Unexpected connections are not empty|unable to allocate (?:requests"
        rb"|subtasks)|test called with NULL request|called when comm->|Listencomm in unknown state|inside cache of \d"
        rb"|connect already connected|Expected graph id=|Intrusive address map pointer|Invalid key size|->events=\{"
        rb"|IBV_WC_RECV_RDMA_WITH_IMM and req|Invalid request index|Unrecognized request|No allocation found at offset"
        rb"|MCBasePtr|does not exist in shadow pool|peerBuff is NULL|Cannot get (?:gin type|backend version)"
        rb"|Not enough space to get elements|MemManager: (?:Cannot|Buffer ptr|FABRIC handle|Could not find matching"
        rb"|Unknown handle)|KV Convert to str|NET/Socket ?: ncclNetSocketListen|Unexpected GoToPrevState"
        rb"|XML Export Channel|Invalid argument (?:desc|comm) |exceeds device/fn maxSharedMem|invalid IPC peer"
        rb"|NET/IB: .{0,60}(?:Attempting to (?:initiate|repost|free)|Unsupported (?:type of|completion)|Invalid wr_id"
        rb"|Cannot replace QP|Failed to initialize a resiliency|Unknown completion)",
    ),
)
