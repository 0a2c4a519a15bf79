"""Replaces NVIDIA's drivers and tools in an RCCL job's findings by AMD's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..job_document import JobDocument

_NO_PEER_MEMORY = (
    "the RDMA stack has no peer memory for amdgpu, and DMA-BUF is off (RCCL uses it with NCCL_DMABUF_ENABLE=1)"
)
_GIVE_PEER_MEMORY = "use the NIC's RDMA stack with peer memory, or NCCL_DMABUF_ENABLE=1 where the kernel has DMA-BUF"
_SHOW_PEER_MEMORY = "ls -d /sys/kernel/mm/memory_peers/amdkfd /sys/kernel/memory_peers/amdkfd /sys/memory_peers/amdkfd"
PHRASES = {
    "nvidia-peermem is not loaded, and DMA-BUF is not available": _NO_PEER_MEMORY,
    "nvidia-peermem is not loaded or not registered, and DMA-BUF is not available": _NO_PEER_MEMORY,
    "nvidia-peermem is loaded, and this NCCL (2.22.3 and older) looks for nv_peer_mem, its predecessor, alone": (
        "the kernel offers peer memory by another way than this RCCL looks for it"
    ),
    "lsmod | grep peermem; run once with NCCL 2.23 or later": "grep ib_register_peer_memory_client /proc/kallsyms",
    "load nvidia-peermem (or use the open kernel modules with DMA-BUF)": _GIVE_PEER_MEMORY,
    "modprobe nvidia-peermem; after a new OFED rebuild the driver; or use the open modules": _GIVE_PEER_MEMORY,
    "load nvidia-peermem on the host without it": "give that host the RDMA stack of the others",
    "lsmod | grep peermem; cat /sys/module/nvidia_peermem/version": _SHOW_PEER_MEMORY,
    "modinfo nvidia | grep -E '^(version|license)'": "modinfo amdgpu | grep ^version",
}
"""AMD's word for each word of the catalogue. ROCm/rccl, transport/net_ib (paths of peer memory; NCCL_DMABUF_ENABLE)."""
_COMMANDS = (
    (r"lsmod \| grep (?:-E '[^']*peermem[^']*'|\S*peermem)", _SHOW_PEER_MEMORY),
    (r"cat /sys/module/nvidia_peermem/version", "modinfo amdgpu | grep ^version"),
    (r"(?:re)?load nvidia-peermem", "give the NIC's RDMA stack peer memory for amdgpu"),
    (r"nvidia[-_]peermem", "peer memory for amdgpu"),
    (r"(dmesg \| grep [^;]*?)\b[Xx]id\b", r"\1amdgpu"),
    (r"nvidia-smi topo(?: -m| -p2p r)?", "amd-smi topology"),
    (r"nvidia-smi nvlink(?: -[se])?", "amd-smi xgmi"),
    (r"nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT", "amd-smi metric --ecc; amd-smi bad-pages"),
    (r"nvidia-smi -q -d ECC,PERFORMANCE", "amd-smi metric --ecc --clock"),
    (r"nvidia-smi -q -d ECC", "amd-smi metric --ecc"),
    (r"nvidia-smi -q -d POWER,UTILIZATION", "amd-smi metric --power --usage"),
    (r"nvidia-smi -q -d PERFORMANCE,CLOCK", "amd-smi metric --power --clock"),
    (r"nvidia-smi --query-gpu=memory\.used,memory\.total --format=csv", "amd-smi metric --mem-usage"),
    (r"nvidia-smi --query-gpu=driver_version --format=csv", "amd-smi version"),
    (r"nvidia-smi --query-gpu=name,compute_cap --format=csv", "amd-smi static --asic"),
    (r"nvidia-smi (?:--gpu-reset -i ID|-r\b)", "amd-smi reset --gpureset"),
    (r"nvidia-smi (?:-L|--query-gpu=\S+ --format=csv)", "amd-smi list"),
    (r"nvidia-smi pmon -c 1", "amd-smi process"),
    (r"nvidia-smi dmon", "amd-smi monitor"),
    (
        r"nvidia-smi -q \| grep -A3 'BAR1 Memory'",
        "lspci -vv | grep -A12 'Processing accel\\|Display contr' | grep Memory",
    ),
    (r"nvidia-smi -q \| grep -i -E 'xid\|ecc'", "amd-smi metric --ecc"),
    (r"nvidia-smi(?! -[qc])", "amd-smi"),
)
"""rocm.docs.amd.com/projects/amdsmi, the command line. Features of NVIDIA's GPUs only (MIG, the fabric's state) have no
counterpart, and are unchanged."""


def report_amd(job: JobDocument) -> None:
    """Replace NVIDIA's drivers and commands by AMD's in the texts about RCCL's log."""
    for fault in job["faults"]:
        fault["cause"], fault["confirm"] = of_amd(fault["cause"]), of_amd(fault["confirm"])
        fault["remedy"] = of_amd(fault["remedy"])
    for cause in job["causes"]:
        cause["cause"], cause["confirm"] = of_amd(cause["cause"]), of_amd(cause["confirm"])
    job["sentence"] = of_amd(job["sentence"])


def of_amd(text: str) -> str:
    """Return a text of the catalogue in the words of AMD's drivers and tools."""
    for ours, theirs in PHRASES.items():
        text = text.replace(ours, theirs)
    for pattern, theirs in _COMMANDS:
        text = re.sub(pattern, theirs, text)
    return text
