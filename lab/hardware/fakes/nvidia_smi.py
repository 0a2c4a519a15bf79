"""Fake nvidia-smi: the GPUs of this pod.

The table, `-L`, `-q -x`, `--query-gpu`, `topo -m` and `nvlink -s`, formatted as in recordings with driver 580. Only the
GPUs allocated to the pod are shown. The world's `gpus` entry has the values of a GPU's health.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from . import pci, state
from .smi_query import UnknownFieldError, csv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REASONS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_power_cap", "sw_thermal_slowdown")
_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks"""


def main(arguments: list[str] | None = None) -> int:
    """Run one call; the exit codes are nvidia-smi's."""
    argv = sys.argv[1:] if arguments is None else arguments
    world = state.load()
    trouble = world["gpu"].get("smi_error")
    if trouble:
        print(trouble["text"])
        return int(trouble.get("exit", 255))
    if not world["gpus"]:
        print("No devices were found")
        return 6
    gpus = [_complete(gpu, number, world) for number, gpu in enumerate(world["gpus"])]
    chosen = _value(argv, "-i", "--id")
    if chosen is not None:
        names = chosen.split(",")
        gpus = [gpu for gpu in gpus if str(gpu["index"]) in names or gpu["uuid"] in names or gpu["bus_id"] in names]
        if not gpus:
            print("No devices were found")
            return 6
    return _answer(argv, gpus, world)


def _answer(argv: Sequence[str], gpus: list[dict[str, Any]], world: Mapping[str, Any]) -> int:
    if argv[:1] == ["topo"]:
        print(_topology(gpus, world))
    elif argv[:1] == ["nvlink"]:
        print(_nvlink(gpus))
    elif "-L" in argv or "--list-gpus" in argv:
        for gpu in gpus:
            print("GPU {index}: {name} (UUID: {uuid})".format(**gpu))
    elif any(word.startswith("--query-gpu") for word in argv):
        return _query(argv, gpus)
    elif "-q" in argv or "--query" in argv:
        if "-x" in argv or "--xml-format" in argv:
            print(_xml(gpus, world))
        else:
            print(_plain(gpus, world))
    elif argv and argv[0] not in ("-i", "--id") and not argv[0].startswith("--id="):
        print(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\nOption: {argv[0]}")
        return 2
    else:
        print(_table(gpus, world))
    return 0


def _value(argv: Sequence[str], short: str, long: str) -> str | None:
    for position, word in enumerate(argv):
        if word.startswith(long + "="):
            return word[len(long) + 1 :]
        if word in (short, long) and position + 1 < len(argv):
            return argv[position + 1]
    return None


SWITCHES = ("persistence", "mig", "remap_pending", "remap_failure", "throttle")
"""Keys of the world that nvidia-smi prints under other names."""


def _complete(gpu: Mapping[str, Any], number: int, world: Mapping[str, Any]) -> dict[str, Any]:
    """Return a GPU with all values that can be printed; healthy by default."""
    kind = world["gpu"]
    bus = gpu["bus_id"].split(":")[1]
    said = {**{key: kind[key] for key in SWITCHES if key in kind}, **gpu}  # for all GPUs of the node, or for this one
    throttle = set(said.get("throttle", ()))
    whole: dict[str, Any] = {
        "index": number,
        "minor": gpu.get("physical", number),
        "module": gpu.get("physical", number) + 1,
        "serial": f"16500000{int(bus, 16):05d}",
        "pdi": f"0x{int(bus, 16) * 0x1F3D5B79:016x}",
        "bus": bus,
        "board_id": f"0x{bus.lower()}00",
        "persistence": "Enabled" if said.get("persistence", True) else "Disabled",
        "mig": said.get("mig", "Disabled"),
        "recovery_action": "None",
        "ecc_volatile": 0,
        "ecc_aggregate": 0,
        "retired_pending": "N/A",
        "remap_pending": "Yes" if said.get("remap_pending") else "No",
        "remap_failure": "Yes" if said.get("remap_failure") else "No",
        "idle": "Not Active" if throttle else "Active",
        "temperature_c": 31 + number % 4,
        "power_w": 68.0 + number * 0.37,
        "nvlinks_active": kind["nvlinks"],
        "memory_free_mib": kind["memory_mib"] - 616,
    }
    whole.update({reason: "Active" if reason in throttle else "Not Active" for reason in _REASONS})
    whole.update({key: value for key, value in kind.items() if key not in SWITCHES})
    whole.update({key: value for key, value in gpu.items() if key not in SWITCHES and key != "index"})
    return whole


def _query(argv: Sequence[str], gpus: list[dict[str, Any]]) -> int:
    fields = _value(argv, "--query-gpu", "--query-gpu") or ""
    format_ = (_value(argv, "--format", "--format") or "").split(",")
    if "csv" not in format_:
        print("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.")
        return 2
    try:
        names = [name.strip() for name in fields.split(",")]
        for line in csv(gpus, names, head="noheader" not in format_, units="nounits" not in format_):
            print(line)
    except UnknownFieldError as error:
        print(f'Field "{error}" is not a valid field to query.\n')
        return 2
    return 0


def _xml(gpus: Sequence[Mapping[str, Any]], world: Mapping[str, Any]) -> str:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu.xml"), encoding="utf-8") as file:
        template = file.read()
    parts = []
    for gpu in gpus:
        text = template
        for key, value in gpu.items():
            text = text.replace(f"@{key}@", str(value))
        parts.append(text)
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
        f"\t<timestamp>{time.strftime('%a %b %d %H:%M:%S %Y')}</timestamp>\n"
        f"\t<driver_version>{world['gpu']['driver']}</driver_version>\n"
        f"\t<cuda_version>{world['gpu']['cuda']}</cuda_version>\n"
        f"\t<attached_gpus>{len(gpus)}</attached_gpus>\n" + "".join(parts) + "\n</nvidia_smi_log>"
    )


def _plain(gpus: Sequence[Mapping[str, Any]], world: Mapping[str, Any]) -> str:
    """Return the commonly read part of `-q`."""
    lines = [
        "",
        "==============NVSMI LOG==============",
        "",
        "Timestamp                                 : " + time.strftime("%a %b %d %H:%M:%S %Y"),
        "Driver Version                            : " + world["gpu"]["driver"],
        "CUDA Version                              : " + world["gpu"]["cuda"],
        "",
        f"Attached GPUs                             : {len(gpus)}",
    ]
    for gpu in gpus:
        lines += [
            f"GPU {gpu['bus_id']}",
            "    Product Name                          : {name}".format(**gpu),
            "    Product Architecture                  : {architecture}".format(**gpu),
            "    Persistence Mode                      : {persistence}".format(**gpu),
            "    MIG Mode",
            "        Current                           : {mig}".format(**gpu),
            "    GPU UUID                              : {uuid}".format(**gpu),
            "    ECC Errors",
            "        Volatile",
            "            DRAM Uncorrectable            : {ecc_volatile}".format(**gpu),
            "        Aggregate",
            "            DRAM Uncorrectable            : {ecc_aggregate}".format(**gpu),
            "    Remapped Rows",
            "        Pending                           : {remap_pending}".format(**gpu),
            "        Remapping Failure Occurred        : {remap_failure}".format(**gpu),
            "    Fabric",
            "        State                             : {fabric_state}".format(**gpu),
            "        Status                            : {fabric_status}".format(**gpu),
            "",
        ]
    return "\n".join(lines)


def _table(gpus: Sequence[Mapping[str, Any]], world: Mapping[str, Any]) -> str:
    driver, cuda = world["gpu"]["driver"], world["gpu"]["cuda"]
    wide = "+" + "-" * 89 + "+"
    columns = "+-----------------------------------------+------------------------+----------------------+"
    lines = [
        time.strftime("%a %b %d %H:%M:%S %Y") + "       ",
        wide,
        f"| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {cuda:<8} |",
        columns,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
    ]
    for gpu in gpus:
        power = f"{gpu['power_w']:.0f}W / {gpu['power_limit_w']:4d}W"
        memory = f"0MiB / {gpu['memory_mib']:6d}MiB"
        lines += [
            "| {:3d}  {:<25.25}      {:<4}| {:>18} Off | {:>20} |".format(
                gpu["index"],
                gpu["name"],
                "On" if gpu["persistence"] == "Enabled" else "Off",
                gpu["bus_id"],
                gpu["ecc_volatile"],
            ),
            f"| N/A  {gpu['temperature_c']:3d}C    P0  {power:>22} | {memory:>22} | {'0%      Default':>20} |",
            f"| {'':39} | {'':22} | {gpu['mig']:>20} |",
            columns,
        ]
    return "\n".join(
        [
            *lines,
            "",
            wide,
            "| Processes:                                                                              |",
            "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
            "|        ID   ID                                                               Usage      |",
            "|=========================================================================================|",
            "|  No running processes found                                                             |",
            wide,
        ]
    )


def _topology(gpus: Sequence[Mapping[str, Any]], world: Mapping[str, Any]) -> str:
    nics = (world["rdma"] or {}).get("devices", [])
    names = [f"GPU{gpu['index']}" for gpu in gpus] + [f"NIC{number}" for number in range(len(nics))]
    places = [*gpus, *nics]
    lines = ["\t\x1b[4m" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"]
    for row, name in enumerate(names):
        cells = []
        for column in range(len(names)):
            if row == column:
                cells.append(" X ")
            elif row < len(gpus) and column < len(gpus):
                cells.append(f"NV{min(gpus[row]['nvlinks_active'], gpus[column]['nvlinks_active'])}")
            else:
                cells.append(pci.word(places[row], places[column]))
        if row < len(gpus):
            cells += [str(gpus[row].get("cpus", "0-95")), str(gpus[row].get("numa", 0)), "", "N/A"]
        lines.append(name + "\t" + "\t".join(cells))
    lines.append(_LEGEND)
    if nics:
        lines += ["", "NIC Legend:", "", *(f"  NIC{number}: {nic['name']}" for number, nic in enumerate(nics))]
    return "\n".join(lines) + "\n"


def _nvlink(gpus: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for gpu in gpus:
        lines.append("GPU {index}: {name} (UUID: {uuid})".format(**gpu))
        for link in range(gpu["nvlinks"]):
            rate = f"{gpu['nvlink_gbps']:g} GB/s" if link < gpu["nvlinks_active"] else "<inactive>"
            lines.append(f"\t Link {link}: {rate}")
    return "\n".join(lines)
