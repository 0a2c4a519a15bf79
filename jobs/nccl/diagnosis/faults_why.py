"""Why does a job use sockets, or no GPUDirect? Each is reported inside the fault that it explains."""

from __future__ import annotations

from .fault import add

FAULTS: dict[str, dict[str, str]] = {}


# -- why sockets -------------------------------------------------------------------------------------------------------
add(
    FAULTS,
    "nccl.ib-disabled",
    "degraded",
    "RDMA was switched off",
    "NCCL_IB_DISABLE=1 is set",
    "env | grep NCCL_IB_DISABLE; cat /etc/nccl.conf ~/.nccl.conf",
    "unset NCCL_IB_DISABLE (it often comes with a copied recipe or the image)",
    "net_ib/init.cc; espnet/espnet#1940",
)
add(
    FAULTS,
    "nccl.net-env",
    "degraded",
    "The network was chosen by the environment",
    "NCCL_NET or NCCL_NET_PLUGIN is set",
    "env | grep NCCL_NET",
    "unset it, or name a network that is there",
    "plugin/net.cc",
)
add(
    FAULTS,
    "nccl.plugin-broken",
    "degraded",
    "The network plugin cannot be loaded",
    "a library or symbol that the plugin needs is missing",
    "ldd $(find / -name 'libnccl-net*.so' 2>/dev/null | head -1)",
    "put the plugin's libraries on LD_LIBRARY_PATH (/opt/amazon/efa/lib on AWS), or rebuild it for this CUDA",
    "plugin/plugin_open.cc",
)
add(
    FAULTS,
    "nccl.plugin-too-old",
    "degraded",
    "The network plugin is too old for this NCCL",
    "NCCL refuses plugins of interface version 4 and lower",
    "grep 'ncclNetPlugin symbol' in the log",
    "upgrade the plugin",
    "net.cc; NVIDIA/nccl#1519",
)
add(
    FAULTS,
    "nccl.plugin-missing",
    "degraded",
    "The fabric's network plugin is not installed",
    "no libnccl-net.so was found and there is no verbs device: EFA, Slingshot and Google's networks need their plugin",
    "find / -name 'libnccl-net*.so'; ls /dev/infiniband",
    "install the vendor's NCCL network plugin in the image",
    "NVIDIA/nccl#1126, #352",
)
add(
    FAULTS,
    "nccl.plugin-init-failed",
    "degraded",
    "The network plugin failed to start",
    "the plugin was found but refused to initialise",
    "grep -A3 'Failed to initialize NET plugin' in the log",
    "repair what the plugin complains about, or remove a stale plugin path",
    "plugin/net.cc",
)
add(
    FAULTS,
    "nccl.plugin-abort",
    "fatal",
    "The network plugin ended the process",
    "the plugin found its network unusable and calls abort(), so that NCCL falls back to nothing",
    "kubectl logs POD --all-containers: the plugin's own lines, and its sidecar's",
    "start what the plugin complains about (on GPUDirect-TCPXO the receive data path manager), in a matching version",
    "google/nccl-plugin-gpudirecttcpx#1",
)
add(
    FAULTS,
    "nccl.ofi-no-provider",
    "degraded",
    "The libfabric plugin found no fabric provider",
    "no EFA device in the pod, the wrong libfabric first in LD_LIBRARY_PATH, or no support for GPU memory",
    "fi_info -p efa -t FI_EP_RDM -c FI_HMEM inside the pod",
    "request vpc.amazonaws.com/efa, and use the EFA installer's libfabric",
    "aws/aws-ofi-nccl#715, #889",
)
add(
    FAULTS,
    "nccl.ofi-provider",
    "degraded",
    "The libfabric plugin runs over a provider without RDMA",
    "it selected tcp, sockets or verbs;ofi_rxm instead of the fabric's own provider",
    "grep 'Selected provider' in the log; fi_info -p efa",
    "FI_PROVIDER=efa on nodes that have it, or remove the plugin so that NET/IB is used",
    "aws-ofi-nccl (provider selection)",
)
add(
    FAULTS,
    "nccl.libibverbs-missing",
    "degraded",
    "libibverbs is not in the image",
    "NCCL could not open libibverbs.so",
    "ldconfig -p | grep libibverbs",
    "install libibverbs1 and ibverbs-providers (rdma-core) in the image",
    "misc/ibvsymbols.cc; NVIDIA/nccl#1410",
)
add(
    FAULTS,
    "nccl.ib-open",
    "degraded",
    "An RDMA device cannot be opened",
    "the device cgroup or permissions keep the process from it",
    "ls -l /dev/infiniband; ibv_devinfo",
    "pass /dev/infiniband/uverbsN to the container (RDMA device plugin)",
    "net_ib/init.cc",
)
add(
    FAULTS,
    "nccl.ib-filter",
    "degraded",
    "NCCL_IB_HCA matches no device",
    "NCCL_IB_HCA is set and no usable device is left",
    "env | grep NCCL_IB_HCA; ibv_devices",
    "correct the list: a name is a prefix, '=' is exact, '^' excludes",
    "net_ib/init.cc (matchIfList)",
)
add(
    FAULTS,
    "nccl.ib-no-device",
    "degraded",
    "No usable RDMA device is visible",
    "no ACTIVE verbs port in the container: no /dev/infiniband, no rdma-core provider, no RDMA resource requested, or "
    "no such hardware",
    "ibv_devinfo inside the container",
    "request the RDMA resource (device plugin or SR-IOV), pass /dev/infiniband, install ibverbs-providers",
    "net_ib/init.cc; NVIDIA/nccl#952, nccl-tests#188",
)

# -- why no GPUDirect --------------------------------------------------------------------------------------------------
add(
    FAULTS,
    "nccl.gdr-no-module",
    "degraded",
    "GPUDirect is off for a NIC",
    "nvidia-peermem is not loaded or not registered, and there is no DMA-BUF",
    "lsmod | grep peermem; cat /sys/module/nvidia_peermem/version",
    "modprobe nvidia-peermem; after a new OFED rebuild the driver; or use the open modules",
    "net_ib/gdr.cc; NVIDIA/nccl#1537, #1343",
)
add(
    FAULTS,
    "nccl.gdr-distance",
    "degraded",
    "GPU and NIC are too far apart for GPUDirect",
    "the path between them is longer than the limit (PXB by default)",
    "nvidia-smi topo -m",
    "use a closer NIC, or try NCCL_NET_GDR_LEVEL=PHB and measure; in VMs give NCCL_TOPO_FILE",
    "graph/paths.cc",
)
add(
    FAULTS,
    "nccl.gdr-env",
    "degraded",
    "GPUDirect was switched off",
    "NCCL_NET_GDR_LEVEL or NCCL_IB_CUDA_SUPPORT says so",
    "env | grep -E 'NCCL_(NET_GDR|IB_CUDA)'",
    "unset it",
    "graph/paths.cc",
)
add(
    FAULTS,
    "nccl.topology-virtual",
    "degraded",
    "NCCL cannot see where the NIC is attached",
    "a virtual NIC without PCI topology: distances are unknown",
    "nvidia-smi topo -m; grep 'Topology detection' in the log",
    "give NCCL_TOPO_FILE from the cloud provider",
    "graph/xml.cc",
)
