"""The fields of `nvidia-smi --query-gpu`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Gpu = Mapping[str, Any]
_REASON_BITS = {
    "idle": 0x1,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
"""The bits of nvmlClocksEventReasons (nvml.h)."""


class UnknownFieldError(Exception):
    """A field that nvidia-smi does not have."""


def _of(key: str) -> Callable[[Gpu], Any]:
    return lambda gpu: gpu[key]


def _always(value: Any) -> Callable[[Gpu], Any]:
    return lambda _gpu: value


def _reasons(gpu: Gpu) -> str:
    return "0x{:016X}".format(sum(bit for name, bit in _REASON_BITS.items() if gpu[name] == "Active"))


#: field -> (unit, value)
_FIELDS: dict[str, tuple[str, Callable[[Gpu], Any]]] = {
    "index": ("", _of("index")),
    "name": ("", _of("name")),
    "uuid": ("", _of("uuid")),
    "serial": ("", _of("serial")),
    "count": ("", _of("count")),
    "driver_version": ("", _of("driver")),
    "vbios_version": ("", _of("vbios")),
    "compute_cap": ("", _of("compute")),
    "pci.bus_id": ("", _of("bus_id")),
    "pci.bus": ("", lambda gpu: "0x" + gpu["bus"]),
    "memory.total": ("MiB", _of("memory_mib")),
    "memory.free": ("MiB", _of("memory_free_mib")),
    "memory.used": ("MiB", _always(0)),
    "memory.reserved": ("MiB", _always(616)),
    "ecc.mode.current": ("", _always("Enabled")),
    "ecc.mode.pending": ("", _always("Enabled")),
    "ecc.errors.corrected.volatile.total": ("", _always(0)),
    "ecc.errors.corrected.aggregate.total": ("", _always(0)),
    "ecc.errors.uncorrected.volatile.total": ("", _of("ecc_volatile")),
    "ecc.errors.uncorrected.aggregate.total": ("", _of("ecc_aggregate")),
    "retired_pages.pending": ("", lambda gpu: "[N/A]" if gpu["retired_pending"] == "N/A" else gpu["retired_pending"]),
    "retired_pages.double_bit.count": ("", _always("[N/A]")),
    "retired_pages.single_bit_ecc.count": ("", _always("[N/A]")),
    "clocks_event_reasons.active": ("", _reasons),
    "clocks_event_reasons.hw_slowdown": ("", _of("hw_slowdown")),
    "clocks_event_reasons.hw_thermal_slowdown": ("", _of("hw_thermal_slowdown")),
    "clocks_event_reasons.hw_power_brake_slowdown": ("", _of("hw_power_brake_slowdown")),
    "clocks_event_reasons.sw_power_cap": ("", _of("sw_power_cap")),
    "clocks_event_reasons.sw_thermal_slowdown": ("", _of("sw_thermal_slowdown")),
    "persistence_mode": ("", _of("persistence")),
    "mig.mode.current": ("", _of("mig")),
    "mig.mode.pending": ("", _of("mig")),
    "compute_mode": ("", _always("Default")),
    "pstate": ("", _always("P0")),
    "temperature.gpu": ("", _of("temperature_c")),
    "temperature.memory": ("", _of("temperature_c")),
    "power.draw": ("W", lambda gpu: f"{gpu['power_w']:.2f}"),
    "power.limit": ("W", lambda gpu: f"{gpu['power_limit_w']:.2f}"),
    "utilization.gpu": ("%", _always(0)),
    "utilization.memory": ("%", _always(0)),
    "clocks.sm": ("MHz", _always(345)),
    "clocks.max.sm": ("MHz", _always(1980)),
    "clocks.current.sm": ("MHz", _always(345)),
    "pcie.link.gen.current": ("", _always(5)),
    "pcie.link.gen.max": ("", _always(5)),
    "pcie.link.width.current": ("", _always(16)),
    "pcie.link.width.max": ("", _always(16)),
    "fabric.state": ("", _of("fabric_state")),
    "fabric.status": ("", _of("fabric_status")),
    "gpu_recovery_action": ("", _always("None")),
}
_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
    "clocks_throttle_reasons.hw_slowdown": "clocks_event_reasons.hw_slowdown",
    "clocks_throttle_reasons.hw_thermal_slowdown": "clocks_event_reasons.hw_thermal_slowdown",
    "clocks_throttle_reasons.hw_power_brake_slowdown": "clocks_event_reasons.hw_power_brake_slowdown",
    "clocks_throttle_reasons.sw_power_cap": "clocks_event_reasons.sw_power_cap",
    "clocks_throttle_reasons.sw_thermal_slowdown": "clocks_event_reasons.sw_thermal_slowdown",
}


def csv(gpus: Sequence[Gpu], names: list[str], *, head: bool, units: bool) -> Iterator[str]:
    """Return the lines of the output; raise `UnknownFieldError` before the first of them."""
    fields = []
    for name in names:
        if _ALIASES.get(name, name) not in _FIELDS:
            raise UnknownFieldError(name)
        fields.append((name, *_FIELDS[_ALIASES.get(name, name)]))
    if head:
        yield ", ".join(f"{name} [{unit}]" if unit else name for name, unit, _ in fields)
    for gpu in gpus:
        known = dict(gpu, count=len(gpus))
        yield ", ".join(f"{value(known)} {unit}".rstrip() if units else str(value(known)) for _, unit, value in fields)
