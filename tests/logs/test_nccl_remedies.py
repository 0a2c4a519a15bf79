"""Lines that once got another fault's advice: their fault, the remedy, and a near miss of each."""

from __future__ import annotations

import pytest

from seatrial.faults.catalogue import fault_catalogue
from tests.logs.symptom_rows import HEALTHY, NO_GDR, failing
from tests.logs.test_nccl_causes import judged
from tests.table import table

GPU_CDI = "Error: CDI device injection failed: unresolvable CDI devices "
POSIX = "[1712.1] [c7:2019617:0]       mm_posix.c:195  UCX  ERROR "
RAILS = "accept_wait_for_connection:4909 NCCL WARN NET/OFI Unexpected number of remote rails for dev 3. Expected 4 but got 3"
MNNVL = failing("MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel")
REGISTER = failing("Call to ibv_reg_mr_iova2 failed with error Input/output error")
ASLEEP = "ClusterUUID and CliqueId are NOT set for GPUs on this node.\nThe IMEX daemon will not be started.\n"
REFUSED = "[ 12.3] NVRM: dma-buf attach failed: topology not supported for mapping type FORCE_PCIE\n"
EMPTY = "/sbin/ldconfig.real: File /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.82.07 is empty, not checked.\n"
NO_GPU = "RuntimeError: No CUDA GPUs are available\n"


@table(
    "log, fault, helps",
    [
        # a container's devices: of a NIC, and, as near misses, of a GPU
        (GPU_CDI + "nvidia.com/net-rdma=0000:af:00.0", "nccl.cdi-device", "restart the device plugin's pod"),
        (GPU_CDI + "nvidia.com/net-pci=0000:af:02.0, nvidia.com/net-pci=0000:af:02.1", "nccl.cdi-device", "restart"),
        (GPU_CDI + "management.nvidia.com/gpu=GPU-e78e68c0", "nccl.no-gpu", "request as many GPUs"),
        (GPU_CDI + "k8s.gpu.nvidia.com/device=gpu-1", "nccl.no-gpu", "request as many GPUs"),
        # UCX without shared memory, and UCX without something else
        (f"{POSIX}Not enough memory to write total of 4208440835 bytes.", "nccl.shm-full", "on /dev/shm"),
        (
            f"{POSIX}shm_open(file_name=/ucx_shm_posix_3 flags=0xc2) failed: No such file",
            "nccl.shm-permission",
            "mount",
        ),
        (f"{POSIX}shm_open(file_name=/ucx_shm_posix_3 flags=0x2) failed: No such file", "nccl.shm-attach", "share IPC"),
        (f"{POSIX}open(file_name=/proc/7/fd/20 flags=0x0) failed: Permission denied", "nccl.shm-attach", "PROC_LINK"),
        (f"{POSIX}rdma_create_event_channel failed: No such device", "nccl.ucx-error", "16 MiB or more of /dev/shm"),
        # NVLink between hosts
        (MNNVL + ASLEEP, "nccl.imex-asleep", "bring the fabric up"),
        (MNNVL, "nccl.mnnvl-failed", "use a ComputeDomain"),
        (
            "[CUDA_ERROR_NOT_SUPPORTED] operation not supported in expression cuMemSetAccess((CUdeviceptr) buffer, size, "
            "&desc, 1 ) on h, rank = 8 in MultinodeMemoryAllocationUnicast",
            "nccl.imex-import",
            "another job's ComputeDomain has nodes of the same clique",
        ),
        ("CUDA_ERROR_NOT_SUPPORTED in cuMemSetAccess of one host", "nccl.cuda-unsupported", ""),
        # a NIC that the driver does not allow to access GPU memory
        (NO_GDR + REFUSED, "nccl.dmabuf-topology", "NVreg_GrdmaPciTopoCheckOverride=1"),
        (NO_GDR + REFUSED.replace("topology not", "PCI topology not"), "nccl.dmabuf-topology", "NVreg_Grdma"),
        (REGISTER + REFUSED, "nccl.dmabuf-topology", "NVreg_GrdmaPciTopoCheckOverride=1"),
        (REGISTER, "nccl.gdr-register", "align driver and OFED"),
        # empty libraries
        ("ImportError: libcuda.so.1: file too short", "nccl.cuda-symbols", "empty libcuda and libnvidia files"),
        ("OSError: /lib/libnvidia-ml.so.1: file too short", "nccl.cuda-symbols", "empty libcuda and libnvidia files"),
        (EMPTY + NO_GPU, "nccl.cuda-symbols", "empty libcuda and libnvidia files"),
        (NO_GPU, "nccl.no-gpu", "request as many GPUs"),
        # libfabric with different numbers of NICs
        (f"h:1:1 [3] {RAILS}", "nccl.nic-count", "OFI_NCCL_FORCE_NUM_RAILS"),
        (
            "h:1:1 [3] NCCL WARN NET/OFI Numer of forced rails (3) not a multiple of numer of rails (2)",
            "nccl.nic-count",
            "OFI_NCCL_FORCE_NUM_RAILS",
        ),
        ("h:1:1 [3] NCCL WARN NET/OFI Unexpected control message", "nccl.plugin-failed", "one release"),
    ],
)
def test_a_line_gets_the_advice_of_its_own_cause(log, fault, helps):
    """The first cause and its remedy are checked."""
    assert judged(log)["causes"][0]["fault"] == fault
    assert helps in fault_catalogue()[fault].remedy


@pytest.mark.parametrize("line", [EMPTY, ASLEEP])
def test_what_is_shown_with_a_healthy_job_is_no_fault_of_it(line):
    """ldconfig mentions files that the runtime has covered; a node without inter-node NVLink needs no daemon."""
    job = judged(line + HEALTHY)
    assert (job["verdict"], job["faults"]) == ("go", [])
