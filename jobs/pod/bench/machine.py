"""The memory that this machine has left for messages, and the NUMA node of a GPU."""

from __future__ import annotations


def free_memory() -> int:
    """Return the free bytes of this machine, or of this container if that is less."""
    free = 1 << 30
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            free = next(int(line.split()[1]) * 1024 for line in stream if line.startswith("MemAvailable:"))
        limit, used = (number("/sys/fs/cgroup/memory." + name) for name in ("max", "current"))
        free = min(free, max(0, limit - used))
    except (OSError, ValueError, StopIteration):  # no such file, or "max": there is no limit
        pass
    return free


def number(path: str) -> int:
    """Return the whole number that a small file holds."""
    with open(path, encoding="ascii") as stream:
        return int(stream.read())


def bus_id(device: int) -> str:
    """Return the device's PCI address from the driver; torch tells it only in recent versions."""
    import ctypes  # noqa: PLC0415  (only here, and only with a GPU)

    text = ctypes.create_string_buffer(32)
    handle = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        known = driver.cuDeviceGet(ctypes.byref(handle), device) == 0
        if known and driver.cuDeviceGetPCIBusId(text, 32, handle) == 0:
            return text.value.decode("ascii", "replace").lower().rpartition(".")[0]
    except (OSError, AttributeError):
        pass
    return "unknown"
