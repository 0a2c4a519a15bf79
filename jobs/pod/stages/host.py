"""The environment of this pod: Python, identity, environment conventions, the limits that affect NCCL.

Everything is read from /proc, cgroup files and the environment; unreadable values are null, never a guess.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from typing import Any, Dict, Mapping, Optional

from seatrial.logs.reader import redact

from .files import content, first_line

# TAO's table of rendezvous variables (both conventions) and those that Kubernetes and the manifests add.
CONVENTION = frozenset(
    "WORLD_SIZE NUM_GPU_PER_NODE NNODES NPROC_PER_NODE NODE_RANK MASTER_ADDR MASTER_PORT JOB_COMPLETION_INDEX"
    " SEATRIAL_RUN SEATRIAL_NODE_NAME SEATRIAL_POD_NAME SEATRIAL_POD_IP"
    " CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES LD_LIBRARY_PATH LD_PRELOAD".split()
)
PREFIXES = ("NCCL_", "UCX_", "FI_", "RCCL_", "OFI_NCCL_", "TORCH_NCCL_", "GLOO_")
UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as the largest page-aligned 63-bit number


def read(data: Dict[str, Any], *, env: Mapping[str, str], node: str, pod_ip: str, root: str = "/") -> None:
    """Fill the `start` stage's data; `root` is another root folder of /proc and /sys for tests."""
    data["python"] = platform.python_version()
    data["hostname"] = os.uname().nodename
    data["pod_ip"] = pod_ip or None
    data["node"] = node or None
    data["time"] = time.time()
    data["env"] = conventions(env)
    data["uid"] = os.getuid()
    data["kernel"] = os.uname().release
    data["cap_eff"] = _capabilities(root)
    data["memlock_bytes"] = _memlock()
    data["shm_bytes"] = _shm(os.path.join(root, "dev/shm"))
    data["memory_max"] = _memory_max(root)
    data["cpu_max"] = _cpu_max(root)


def conventions(env: Mapping[str, str]) -> Dict[str, str]:
    """Return the rendezvous conventions and the fabric libraries' settings, with secrets hidden."""
    chosen = {name: value for name, value in env.items() if name in CONVENTION or name.startswith(PREFIXES)}
    return redact.environment(chosen)


def _capabilities(root: str) -> Optional[str]:
    match = re.search(rb"^CapEff:\s*([0-9a-fA-F]+)", content(os.path.join(root, "proc/self/status")), re.MULTILINE)
    return match.group(1).decode("ascii") if match else None


def _memlock() -> int:
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def _shm(path: str) -> Optional[int]:
    try:
        numbers = os.statvfs(path)
    except OSError:
        return None
    return numbers.f_blocks * numbers.f_frsize


def _memory_max(root: str) -> Optional[int]:
    value = first_line(os.path.join(root, "sys/fs/cgroup/memory.max"))
    if value is None:
        value = first_line(os.path.join(root, "sys/fs/cgroup/memory/memory.limit_in_bytes"))
    if value == "max":
        return -1
    if value is None or not value.isdigit():
        return None
    return -1 if int(value) >= UNLIMITED else int(value)


def memory_free(root: str = "/") -> Optional[int]:
    """Return how many bytes this pod may still allocate: the rest of its cgroup's limit, or its node's if less."""
    match = re.search(rb"^MemAvailable:\s+(\d+) kB", content(os.path.join(root, "proc/meminfo")), re.MULTILINE)
    amounts = [int(match.group(1)) * 1024] if match else []
    most = _memory_max(root)
    for name in ("memory.current", "memory/memory.usage_in_bytes"):
        used = first_line(os.path.join(root, "sys/fs/cgroup", name))
        if most is not None and most >= 0 and used is not None and used.isdigit():
            amounts.append(max(0, most - int(used)))
            break
    return min(amounts) if amounts else None


def _cpu_max(root: str) -> Optional[float]:
    """Return the CPU limit in cores; null also means no limit."""
    value = first_line(os.path.join(root, "sys/fs/cgroup/cpu.max"))
    if value is not None:
        quota, _, period = value.partition(" ")
    else:
        quota = first_line(os.path.join(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us")) or ""
        period = first_line(os.path.join(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us")) or ""
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return int(quota) / int(period)
