"""The distances of this pod's GPUs and NICs: `nvidia-smi topo -m`, and the PCI tree of sysfs.

The levels are the tool's: PIX, PXB, PHB, NODE, SYS, from near to far. If it shows no NIC (or is missing: AMD), they are
derived from sysfs. ACS is in the extended PCI configuration, which the kernel shows only to privileged processes
(drivers/pci/pci-sysfs.c: 64 bytes for all others), so it is mostly unknown.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from . import command, gpus, rdma
from .deadline import Watch
from .files import content, first_line, names_in, whole

LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
TIMEOUT_S = 30.0
MAX_MATRIX = 12_000
_HEAD = re.compile(r"GPU\d+|NIC\d+|mlx\d+_\d+|bnxt_re\d+|irdma\d+|rdmap\w+")
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
ACS_CAPABILITY, ACS_CONTROL = 0x000D, 6  # PCI Express Base Specification, "ACS Extended Capability"
ACS_REDIRECT = 0x04 | 0x08  # P2P Request Redirect, P2P Completion Redirect: they send GPU-NIC traffic through the root


def read(
    data: Dict[str, Any],
    *,
    runtime_gpus: Sequence[Mapping[str, Any]],
    env: Mapping[str, str],
    watch: Watch,
    root: str = "/",
) -> None:
    """Fill the `topology` stage's data; `runtime_gpus`: the GPUs of the runtime stage, with their bus ids."""
    data["gpus"] = [_gpu(root, gpu) for gpu in runtime_gpus] or _amd(root)
    data["nics"] = [_nic(root, name) for name in dict.fromkeys(name for name, _ in rdma.ports(root))]
    links: Dict[Tuple[str, str], str] = {}
    tool = gpus.find(env)
    if tool is not None and runtime_gpus:
        answer = command.run([tool, "topo", "-m"], min(TIMEOUT_S, max(1.0, watch.left())), 1 << 20)
        text = answer.out.decode("utf-8", "replace")
        if answer.exit == 0:
            data["matrix"] = re.sub(r"\x1b\[[0-9;]*m", "", text)[:MAX_MATRIX]
            links = parse(text)
            data["source"] = "nvidia-smi"
        else:
            data["error"] = answer.error or " ".join(text[:400].split()) or "nvidia-smi topo -m: exit %s" % answer.exit
    _paths(data, links)
    data["acs"] = _acs(data)
    data["rows"] = _rows(data, links)
    data["signature"] = hashlib.sha256("\n".join(data["rows"]).encode()).hexdigest()[:16] if data["rows"] else None
    for entry in data["gpus"] + data["nics"]:
        del entry["place"], entry["base"]


def parse(text: str) -> Dict[Tuple[str, str], str]:
    """Parse the matrix: (row, column) -> PIX, NV18, SYS, ...; NICs under their device names.

    Old drivers print the device names in the matrix, newer ones NIC0 with a legend below. Columns are tabs; copied text
    has blanks.
    """
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    legend = dict(re.findall(r"^\s*(NIC\d+):\s*(\S+)\s*$", text, re.MULTILINE))
    columns: List[str] = []
    links: Dict[Tuple[str, str], str] = {}
    for line in lines:
        if not columns:
            columns = [legend.get(cell, cell) for cell in _cells(line) if _HEAD.fullmatch(cell)]
            continue
        cells = _cells(line)
        if not cells or not _HEAD.fullmatch(cells[0]):
            if links:
                break
            continue
        row = legend.get(cells[0], cells[0])
        for column, cell in zip(columns, cells[1:]):
            if cell != "X":
                links[(row, column)] = cell
    return links


def _cells(line: str) -> List[str]:
    return [cell.strip() for cell in re.split(r"\t+|\s{2,}", line.strip())]


def _gpu(root: str, gpu: Mapping[str, Any]) -> Dict[str, Any]:
    bus = _normal(str(gpu.get("bus_id") or ""))
    base, place = _place(root, os.path.join("sys/bus/pci/devices", bus)) if bus else ("", [])
    return {"index": gpu.get("index"), "bus_id": bus or None, "numa": _numa(base, place), "base": base, "place": place}


def _nic(root: str, name: str) -> Dict[str, Any]:
    base, place = _place(root, os.path.join("sys/class/infiniband", name, "device"))
    bus = place[-1] if place else None
    return {"name": name, "bus_id": bus, "numa": _numa(base, place), "base": base, "place": place}


def _amd(root: str) -> List[Dict[str, Any]]:
    """Return AMD's GPUs by their render devices; their PCI location needs no tool."""
    devices: List[Dict[str, Any]] = []
    for name in (name for name in names_in(os.path.join(root, "dev/dri")) if name.startswith("renderD")):
        folder = os.path.join("sys/class/drm", name, "device")
        if first_line(os.path.join(root, folder, "vendor")) == "0x1002":
            base, place = _place(root, folder)
            bus, numa = place[-1] if place else None, _numa(base, place)
            devices.append({"index": len(devices), "bus_id": bus, "numa": numa, "base": base, "place": place})
    return devices


def _normal(bus: str) -> str:
    """Convert 00000000:1B:00.0 (nvidia-smi) to 0000:1b:00.0 (sysfs)."""
    match = _ADDRESS.fullmatch(bus.lower())
    return "%s:%s:%s.%s" % (match.group(1)[-4:], *match.groups()[1:]) if match else ""


def _place(root: str, path: str) -> Tuple[str, List[str]]:
    """Return a device's PCI path: a base folder, then the host bridge (pci0000:15), its bridges, the device."""
    parts = os.path.realpath(os.path.join(root, path)).split("/")
    first = next((at for at, part in enumerate(parts) if re.fullmatch(r"pci[0-9a-f]{4,}:[0-9a-f]{2}", part)), None)
    return ("/".join(parts[:first]), parts[first:]) if first is not None else ("", [])


def _numa(base: str, place: Sequence[str]) -> Optional[int]:
    return whole(first_line(os.path.join(base, *place, "numa_node"))) if place else None  # -1: no NUMA node


def _paths(data: Dict[str, Any], links: Mapping[Tuple[str, str], str]) -> None:
    derived, data["paths"] = 0, []
    for gpu in data["gpus"]:
        for nic in data["nics"]:
            word = links.get(("GPU%s" % gpu["index"], nic["name"]))
            if word not in LEVELS:
                word = distance(gpu["place"], nic["place"], gpu["numa"], nic["numa"])
                derived += word is not None
            if word is not None:
                data["paths"].append({"gpu": gpu["index"], "nic": nic["name"], "path": word})
    if derived:
        data["source"] = "sysfs"


def distance(one: Sequence[str], two: Sequence[str], numa_one: Optional[int], numa_two: Optional[int]) -> Optional[str]:
    """Classify the path between two devices as nvidia-smi does; None if sysfs does not show it."""
    if not one or not two:
        return None
    common = 0
    while common < min(len(one), len(two)) and one[common] == two[common]:
        common += 1
    if common > 1:  # below one root port: only bridges are in between, and a switch has two for each device
        return "PIX" if max(len(one), len(two)) - common <= 2 else "PXB"
    if common == 1:
        return "PHB"
    return None if None in (numa_one, numa_two) else "NODE" if numa_one == numa_two else "SYS"


def _rows(data: Mapping[str, Any], links: Mapping[Tuple[str, str], str]) -> List[str]:
    """Return one line for each GPU that is the same on machines of the same build, independent of NIC names."""
    ways = {(path["gpu"], path["nic"]): path["path"] for path in data["paths"]}
    rows = []
    for gpu in data["gpus"]:
        row = [links.get(("GPU%s" % gpu["index"], "GPU%s" % other["index"]), "") for other in data["gpus"]]
        near = ["NV" if word.startswith("NV") else word for word in row if word]
        nics = [ways.get((gpu["index"], nic["name"]), "?") for nic in data["nics"]]
        numa = "?" if gpu["numa"] is None else gpu["numa"]
        rows.append("GPU%s NUMA %s | %s | %s" % (gpu["index"], numa, " ".join(near), " ".join(nics)))
    return rows


def _acs(data: Mapping[str, Any]) -> Optional[List[Dict[str, Any]]]:
    """Return ACS of the bridges above the GPUs and NICs; None if none of them is readable."""
    bridges: Dict[str, str] = {}
    for entry in data["gpus"] + data["nics"]:
        for depth in range(2, len(entry["place"])):
            bridges[entry["place"][depth - 1]] = os.path.join(entry["base"], *entry["place"][:depth])
    switches = []
    for bus, folder in sorted(bridges.items()):
        control = acs_control(os.path.join(folder, "config"))
        if control is not None:
            switches.append({"bus_id": bus, "enabled": bool(control & ACS_REDIRECT), "control": control})
    return switches or None


def acs_control(path: str) -> Optional[int]:
    """Return the ACS control register of a device; None if it is missing or unreadable."""
    config, at = content(path, 4096), 0x100
    for _ in range(64):  # bounded, since the list may be circular
        if at < 0x100 or at + 8 > len(config):
            return None
        (head,) = struct.unpack_from("<I", config, at)
        if head & 0xFFFF == ACS_CAPABILITY:
            return int(struct.unpack_from("<H", config, at + ACS_CONTROL)[0])
        at = head >> 20
    return None
