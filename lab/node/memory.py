"""The memory limit of a container, and the OOM kill.

Without privileges there are no cgroups. So the limit is written to the files where a program reads it, and checked from
outside: a container above it is killed as by the kernel's OOM killer.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from ..apiserver.schema.quantity import value as parse
from .pod_context import ContainerContext

Object = dict[str, Any]
INTERVAL_S = 0.2
CPU_PERIOD_US = 100_000
"""The kernel's default period of cpu.max."""


def cgroup(folder: Path, spec: Object) -> list[Object]:
    """Return a mount of /sys/fs/cgroup with the limits of a container, in cgroup v2's files."""
    limits = (spec.get("resources") or {}).get("limits") or {}
    place = folder / "cgroup"
    place.mkdir(exist_ok=True)
    memory = str(int(parse(limits["memory"]))) if "memory" in limits else "max"
    cpu = str(int(parse(limits["cpu"]) * CPU_PERIOD_US)) if "cpu" in limits else "max"
    texts = {"memory.max": memory, "cpu.max": f"{cpu} {CPU_PERIOD_US}", "cgroup.controllers": "cpu memory pids"}
    for name, text in texts.items():
        (place / name).write_text(text + "\n")
    return [{"source": str(place), "target": "/sys/fs/cgroup", "readonly": True}]


def machine_bytes() -> int:
    """Return the memory of this machine: a larger limit cannot be reached here."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def jobs(container: ContainerContext) -> list[Coroutine[Any, Any, None]]:
    """Return the watcher if there is a limit that this machine could exceed."""
    limit = ((container.spec.get("resources") or {}).get("limits") or {}).get("memory")
    if limit is None or parse(limit) >= machine_bytes():
        return []
    return [_watch(container, int(parse(limit)))]


async def _watch(container: ContainerContext, limit: int) -> None:
    process, network = container.process, container.worker.kubelet.network
    while process is not None and not process.exited.done():
        await asyncio.sleep(INTERVAL_S)
        if await network.memory(process) > limit and not process.exited.done():
            container.killed_by = "OOMKilled"
            process.signal(signal.SIGKILL)
            return
