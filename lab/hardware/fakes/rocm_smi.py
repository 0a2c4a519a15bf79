"""Fake rocm-smi: the GPUs of this pod.

The fields and their spelling are those of ROCm 6 on MI300X (`rocm-smi --showproductname --showmeminfo vram ... --json`,
github.com/ROCm/rocm_smi_lib, python_smi_tools). Only the GPUs allocated to the pod are shown.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any

from . import state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RULE = "=" * 28


def main(arguments: list[str] | None = None) -> int:
    """Run one call."""
    argv = sys.argv[1:] if arguments is None else arguments
    world = state.load()
    trouble = world["gpu"].get("smi_error")
    if trouble:
        print(trouble["text"])
        return int(trouble.get("exit", 1))
    if not world["gpus"]:
        print("ERROR:root:Driver not initialized (amdgpu not found in modules)")
        return 2
    cards = {f"card{number}": _card(gpu, argv, world) for number, gpu in enumerate(world["gpus"])}
    if "--showdriverversion" in argv or not argv:
        cards["system"] = {"Driver version": world["gpu"]["driver"]}
    if "--json" in argv:
        print(json.dumps(cards))
        return 0
    print(f"\n\n{_RULE} ROCm System Management Interface {_RULE}")
    for name, fields in cards.items():
        label = f"GPU[{name[4:]}]" if name.startswith("card") else name
        for field, value in fields.items():
            print(f"{label}\t\t: {field}: {value}")
    print(f"{_RULE} End of ROCm SMI Log {_RULE}")
    return 0


def _card(gpu: Mapping[str, Any], argv: Sequence[str], world: Mapping[str, Any]) -> dict[str, str]:
    kind = world["gpu"]
    everything = not [word for word in argv if word.startswith("--show")]
    card: dict[str, str] = {}
    if everything or "--showuniqueid" in argv:
        card["Unique ID"] = "0x" + hashlib.sha256(str(gpu["uuid"]).encode()).hexdigest()[:16]
    if everything or "--showproductname" in argv:
        card |= {
            "Card Series": kind["name"],
            "Card Model": "0x74a1",
            "GFX Version": kind.get("architecture", "gfx942"),
            "Card Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]",
        }
    if "--showmeminfo" in argv:
        total = int(kind["memory_mib"]) << 20
        card |= {"VRAM Total Memory (B)": str(total), "VRAM Total Used Memory (B)": str(297 << 20)}
    if "--showbus" in argv:
        card["PCI Bus"] = str(gpu["bus_id"])[-12:]
    if "--showvbios" in argv:
        card["VBIOS version"] = str(gpu.get("vbios", kind.get("vbios", "113-M3000100-102")))
    if "--showtemp" in argv:
        heat = float(gpu.get("temperature_c", 41))
        card["Temperature (Sensor junction) (C)"] = f"{heat:.1f}"
        card["Temperature (Sensor memory) (C)"] = f"{heat - 5:.1f}"
    if "--showpendingpages" in argv:
        card["Pending page"] = "0x00000000001f3a00" if gpu.get("retired_pending") else "None"
    return card
