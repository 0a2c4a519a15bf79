"""Fake ibv_devinfo: the RDMA devices of this pod.

`ibv_devinfo`, `ibv_devices` and `ibstat`, with the output that is read. The devices are those of the pod's RDMA
resource; without it the programs print the real messages for a missing `/dev/infiniband`.
"""

from __future__ import annotations

import sys
from typing import Any

from . import state

_STATES = {
    "ACTIVE": ("PORT_ACTIVE (4)", "LinkUp"),
    "INIT": ("PORT_INIT (2)", "LinkUp"),
    "DOWN": ("PORT_DOWN (1)", "Disabled"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run `ibv_devinfo [-l] [-d DEVICE] [-v]`."""
    argv = sys.argv[1:] if arguments is None else arguments
    devices = _devices()
    if "-d" in argv and argv.index("-d") + 1 < len(argv):
        name = argv[argv.index("-d") + 1]
        devices = [device for device in devices if device["name"] == name]
        if not devices:
            print(f"IB device '{name}' wasn't found", file=sys.stderr)
            return 255
    if not devices:
        print("No IB devices found", file=sys.stderr)
        return 255
    if "-l" in argv or "--list" in argv:
        print(f"{len(devices)} HCAs found:")
        for device in devices:
            print("\t" + device["name"])
        print()
        return 0
    print("\n".join(_details(device) for device in devices))
    return 0


def devices_main(_arguments: list[str] | None = None) -> int:
    """Run `ibv_devices`."""
    print("    device          \t   node GUID\n    ------          \t----------------")
    for device in _devices():
        print(f"    {device['name']:<16}\t{_guid(device).replace(':', '')}")
    return 0


def ibstat_main(arguments: list[str] | None = None) -> int:
    """Run `ibstat [-l] [DEVICE]`."""
    argv = sys.argv[1:] if arguments is None else arguments
    names = [word for word in argv if not word.startswith("-")]
    devices = [device for device in _devices() if not names or device["name"] in names]
    if not devices:
        print("ibpanic: [1] main: stat of IB device failed: No such file or directory", file=sys.stderr)
        return 255
    for device in devices:
        if "-l" in argv:
            print(device["name"])
            continue
        up = device.get("state", "ACTIVE")
        guid = _guid(device).replace(":", "")
        print(
            f"CA '{device['name']}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.43.2026\n"
            f"\tHardware version: 0\n\tNode GUID: 0x{guid}\n\tSystem image GUID: 0x{guid}\n\tPort 1:\n"
            f"\t\tState: {'Active' if up == 'ACTIVE' else up.title()}\n\t\tPhysical state: {_STATES[up][1]}\n"
            f"\t\tRate: {device['rate_gbps']:g}\n\t\tBase lid: {device.get('rail', 0) + 12}\n\t\tLMC: 0\n"
            "\t\tSM lid: 1\n"
            f"\t\tCapability mask: 0xa751e848\n\t\tPort GUID: 0x{guid}\n\t\tLink layer: {device['link_layer']}"
        )
    return 0


def _devices() -> list[dict[str, Any]]:
    rdma = state.load()["rdma"]
    return list(rdma["devices"]) if rdma else []


def _guid(device: dict[str, Any]) -> str:
    return str(device.get("guid", f"a088:c203:00{device.get('rail', 0):02x}:1b40"))


def _details(device: dict[str, Any]) -> str:
    shown, _ = _STATES[device.get("state", "ACTIVE")]
    infiniband = device["link_layer"] == "InfiniBand"
    rows = [
        ("transport", "InfiniBand (0)"),
        ("fw_ver", "28.43.2026"),
        ("node_guid", _guid(device)),
        ("sys_image_guid", _guid(device)),
        ("vendor_id", "0x02c9"),
        ("vendor_part_id", "4129"),
        ("hw_ver", "0x0"),
        ("board_id", "MT_0000000838"),
        ("phys_port_cnt", "1"),
    ]
    port = [
        ("state", shown),
        ("max_mtu", "4096 (5)"),
        ("active_mtu", "4096 (5)"),
        ("sm_lid", "1" if infiniband else "0"),
        ("port_lid", str(device.get("rail", 0) + 12) if infiniband else "0"),
        ("port_lmc", "0x00"),
        ("link_layer", device["link_layer"]),
    ]
    lines = [f"hca_id:\t{device['name']}"]
    lines += [f"\t{name + ':':<32}{value}" for name, value in rows]
    lines.append(f"\t\tport:\t{device['port']}")
    lines += [f"\t\t\t{name + ':':<24}{value}" for name, value in port]
    return "\n".join(lines) + "\n"
