"""The sysfs of a node: NICs, GPUs, and the PCI bridges between them.

The files have the kernel's format: /sys/class/infiniband (drivers/infiniband/core/sysfs.c), infiniband_verbs, and the
PCI tree. The tree cannot be in /sys/devices without hiding the machine's own: its links point to /run/sim/sys instead.
Counters exist twice, as hard links: read-only for programs, and writable for a simulated collective.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Object = dict[str, Any]
# Places of the tree and the counters in a pod.
TREE, LIVE = "/run/sim/sys", "/run/sim/live"
PORT_STATES = {"DOWN": "1: DOWN", "INIT": "2: INIT", "ARMED": "3: ARMED", "ACTIVE": "4: ACTIVE"}
# Lanes and signalling of a rate, as named in sysfs (drivers/infiniband/core/sysfs.c).
RATES = {100: "100 Gb/sec (4X EDR)", 200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)", 800: "800 Gb/sec (4X XDR)"}
FIRMWARE, BOARD = "28.43.2026", "MT_0000000838"
TABLE = 8  # number of P_Key table entries that are written; the rest of mlx5's 128 are also empty
COUNTERS = [
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_packets",
    "port_rcv_packets",
    "port_rcv_errors",
    "port_xmit_discards",
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_xmit_wait",
]
HW_COUNTERS = [
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "implied_nak_seq_err",
    "roce_adp_retrans",
    "roce_slow_restart",
    "np_cnp_sent",
    "rp_cnp_handled",
    "rx_icrc_encapsulated",
    "req_transport_retries_exceeded",
]
EFA_COUNTERS = ["tx_bytes", "rx_bytes", "rdma_write_bytes", "rdma_read_bytes", "rx_drops"]
ACS_ON = 0x001D  # source validation, request and completion redirect, upstream forwarding


def gpu_places(gpu: Mapping[str, Any], nics: int) -> list[list[str]]:
    """Return each GPU's place: host bridge, root port, a switch's two ports, GPU; its NICs are below that switch."""
    return [_below_switch(int(bus, 16), _share(gpu, nics), 0, int(bus, 16), 0) for bus in gpu.get("bus_ids", [])]


def nic_places(gpu: Mapping[str, Any], devices: Sequence[Object], *, function: int = 0) -> list[tuple[list[str], int]]:
    """Return the place and NUMA node of each NIC: next to its GPU, or as set by its `slot` (gpu3, numa1)."""
    buses = [int(bus, 16) for bus in gpu.get("bus_ids", [])]
    share, places = _share(gpu, len(devices)), []
    for number, device in enumerate(devices):
        rail, slot = device["rail"], str(device.get("slot", ""))
        index = int(slot[3:]) if slot.startswith("gpu") else _gpu_next_to(rail, len(buses), len(devices))
        if slot.startswith("numa") or index >= len(buses):
            root = f"pci0001:{rail * 4:02x}"
            place = [root, f"0001:{rail * 4:02x}:01.0", f"0001:{rail * 4 + 1:02x}:00.{function}"]
            places.append((place, int(slot[4:]) if slot.startswith("numa") else device.get("numa", 0)))
            continue
        bus = buses[index]
        nth = 1 + number % share
        places.append((_below_switch(bus, share, nth, bus - share - 1 + nth, function), gpu["numa"][index]))
    return places


def _gpu_next_to(rail: int, gpus: int, nics: int) -> int:
    """Return the index of the GPU next to a NIC; above the last one for a further NIC (storage, management)."""
    return rail // (nics // gpus) if gpus and nics >= gpus else rail * gpus // max(1, nics)


def _share(gpu: Mapping[str, Any], nics: int) -> int:
    return max(1, nics // max(1, len(gpu.get("bus_ids", []))))


def _below_switch(gpu_bus: int, share: int, port: int, bus: int, function: int) -> list[str]:
    root = gpu_bus - share - 5
    switch = [f"0000:{root + 1:02x}:00.0", f"0000:{root + 2:02x}:{port:02x}.0"]
    return [f"pci0000:{root:02x}", f"0000:{root:02x}:01.0", *switch, f"0000:{bus:02x}:00.{function}"]


def entries(
    gpus: Iterable[Object], devices: Iterable[Object], *, amd: bool = False
) -> list[tuple[list[str], dict[str, str]]]:
    """Return place and files of every GPU and NIC, for `write_tree`; amdgpu has its error counters there."""
    places = []
    for gpu in gpus:
        files = {"numa_node": str(gpu["numa"]), "vendor": "0x1002" if amd else "0x10de", "class": "0x030200"}
        if amd:
            counts = {"umc": (gpu.get("ecc_volatile", 0), gpu.get("ecc_corrected", 0)), "gfx": (0, 0), "sdma": (0, 0)}
            files |= {f"ras/{block}_err_count": f"ue: {ue}\nce: {ce}" for block, (ue, ce) in counts.items()}
        places.append((gpu["place"], files))
    for device in devices:
        files = {"numa_node": str(device["numa"]), "vendor": "0x15b3", "class": "0x020700"}
        if device.get("interface"):
            files[f"net/{device['interface']}/mtu"] = str(device.get("mtu", 1500))
        places.append((device["place"], files))
    return places


def write_tree(
    folder: Path, entries: Iterable[tuple[list[str], Mapping[str, str]]], pci: Mapping[str, Any], tree: str = TREE
) -> None:
    """Write the PCI tree below `folder`/devices, and `folder`/bus with a link for each device.

    `tree`: the target of links. `entries`: place and files of each GPU and NIC. `pci`: readable (the whole
    configuration, not its first 64 bytes), acs (it is on).
    """
    config = bytes(64)
    if pci.get("readable"):
        capability = struct.pack("<IHH", 0x000D | 1 << 16, 0x5D, ACS_ON if pci.get("acs") else 0)
        config = config.ljust(0x100, b"\0") + capability.ljust(4096 - 0x100, b"\0")
    (folder / "bus").mkdir(parents=True, exist_ok=True)
    for place, files in entries:
        for depth in range(2, len(place) + 1):
            each = folder.joinpath("devices", *place[:depth])
            if each.exists():
                continue
            each.mkdir(parents=True)
            (each / "config").write_bytes(config)
            (folder / "bus" / place[depth - 1]).symlink_to("/".join([tree, "devices", *place[:depth]]))
        _write(folder.joinpath("devices", *place), files)


def write_devices(folder: Path, live: Path, devices: Iterable[Object], tree: str = TREE) -> None:
    """Write /sys/class/infiniband, each port's counters also to `live`; `tree`: target of links to the PCI tree."""
    live.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    for device in devices:
        place = folder / device["name"]
        _write(place, _port_files(device))
        if device.get("place"):
            (place / "device").symlink_to("/".join([tree, "devices", *device["place"]]))
        efa = device["link_layer"] == "Unknown"
        groups = {"counters": [] if efa else COUNTERS, "hw_counters": EFA_COUNTERS if efa else HW_COUNTERS}
        for group, names in groups.items():
            (place / "ports/1" / group).mkdir(parents=True, exist_ok=True)
            for name in names:
                counter = live / f"{device['name']}.{name}"
                counter.write_text(f"{_history(device, name)}\n", encoding="ascii")
                (place / "ports/1" / group / name).hardlink_to(counter)


def write_verbs(folder: Path, devices: Iterable[Object]) -> None:
    """Write /sys/class/infiniband_verbs: the uverbs file of each device."""
    folder.mkdir(parents=True, exist_ok=True)
    for device in devices:
        _write(folder / f"uverbs{device['rail']}", {"ibdev": device["name"]})


def write_interfaces(folder: Path, interfaces: Iterable[Object]) -> None:
    """Write /sys/class/net."""
    for each in interfaces:
        files = {"mtu": str(each["mtu"]), "flags": "0x1003", "operstate": "up", "speed": "10000"}
        _write(folder / each["name"], files)


def _history(device: Object, counter: str) -> int:
    """Return a counter's value since the start of the node: traffic, and one additional link-up."""
    if counter in ("port_xmit_data", "port_rcv_data", "tx_bytes", "rx_bytes"):
        return 731_000_000_000 + 104_729 * int(device["rail"])
    return 1 if counter == "link_downed" else 0


def _port_files(device: Object) -> dict[str, str]:
    """Return the files of a device with one port."""
    infiniband, guid, up = device["link_layer"] == "InfiniBand", device["guid"], device["state"]
    managed = infiniband and up in ("ARMED", "ACTIVE")  # a subnet manager has configured the port
    files = {
        "node_guid": guid,
        "fw_ver": str(device.get("fw", FIRMWARE)),
        "board_id": BOARD,
        "node_type": "1: CA",
        "ports/1/state": PORT_STATES[up],
        "ports/1/phys_state": "5: LinkUp" if up != "DOWN" else "3: Disabled",
        "ports/1/rate": RATES.get(device["rate_gbps"], f"{device['rate_gbps']:g} Gb/sec"),
        "ports/1/link_layer": device["link_layer"],
        "ports/1/lid": hex(device["rail"] + 12) if managed else "0xffff" if infiniband else "0x0",
        "ports/1/sm_lid": "0x1" if managed else "0x0",
    }
    pkeys = [str(key) for key in device.get("pkeys", ["0xffff"])]
    for index in range(TABLE):
        files[f"ports/1/pkeys/{index}"] = pkeys[index] if index < len(pkeys) else "0x0000"
    gids = {0: "0000:0000:0000:0000:0000:0000:0000:0000"}
    if device.get("gid", True):
        gids[0] = f"fe80:0000:0000:0000:{guid}"
        if device["link_layer"] == "Ethernet":  # a GID for each address and RoCE version, IPv4 last
            own = device.get("address") or f"172.16.{device['rail']}.{1 + int(guid[:2], 16) % 250}"
            gids |= {1: gids[0], 2: _mapped(own), 3: _mapped(own)}
    for index, gid in gids.items():
        files[f"ports/1/gids/{index}"] = gid
        if device["link_layer"] != "Unknown":
            files[f"ports/1/gid_attrs/types/{index}"] = "IB/RoCE v1" if infiniband or index % 2 == 0 else "RoCE v2"
        if device.get("interface"):
            files[f"ports/1/gid_attrs/ndevs/{index}"] = device["interface"]
    return files


def _mapped(address: str) -> str:
    return "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*map(int, address.split(".")))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    made: set[Path] = set()
    for name, text in files.items():
        path = folder / name
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        path.write_text(f"{text}\n", encoding="ascii")
