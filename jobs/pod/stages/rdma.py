"""RDMA evidence: this pod's devices and their ports, read from sysfs, which needs no tool and no permissions.

sysfs shows every device of the *node* in a pod without its own RDMA namespace. The pod may use only those with a
`uverbs` file below /dev/infiniband. Both are reported; the profile has the expectation.

`ibv_devinfo` is called only if sysfs shows no device and the image has it: rdma-core may find more. Its text is stable
(rdma-core libibverbs/examples/devinfo.c): blocks that start with `hca_id:`, ports inside them that start with `port:`,
`name: value` lines in both.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import command
from .files import first_line, names_in, whole

TIMEOUT_S = 10.0
# Gb/s of 4 lanes by signalling rate (ibv_port_attr.active_width and active_speed; rdma-core prints them in words).
LANES = {"1X": 1, "2X": 2, "4X": 4, "8X": 8, "12X": 12}


def devinfo(env: Mapping[str, str]) -> List[Dict[str, Any]]:
    """Return the ports of all devices in the `rdma` stage's form; nothing if the program is missing."""
    tool = shutil.which("ibv_devinfo", path=env.get("PATH"))
    if tool is None:
        return []
    answer = command.run([tool, "-v"], TIMEOUT_S, 1 << 20)
    return devinfo_ports(answer.out.decode("utf-8", "replace")) if answer.exit == 0 else []


def devinfo_ports(text: str) -> List[Dict[str, Any]]:
    """Parse the text of `ibv_devinfo -v`."""
    ports: List[Dict[str, Any]] = []
    device: Dict[str, str] = {}
    port: Dict[str, str] = {}
    for line in text.splitlines():
        match = re.match(r"\s*([A-Za-z_]+(?:\[\s*\d+\])?):\s*(.*)", line)
        if match is None:
            continue
        key, value = match.group(1), match.group(2).strip()
        if key == "hca_id":
            device, port = {"name": value}, {}
        elif key == "port":
            port = {"port": value}
            ports.append(_record(device, port))
        elif port:
            port[key] = value
            ports[-1] = _record(device, port)
        else:
            device[key] = value
    return ports


def _record(device: Mapping[str, str], port: Mapping[str, str]) -> Dict[str, Any]:
    gids = [value.split()[0].rstrip(",") for key, value in sorted(port.items()) if key.startswith("GID") and value]
    gids = [gid for gid in gids if gid.strip("0:")]
    unknown = dict.fromkeys(("phys_state", "netdev", "mtu", "usable"))
    return dict(
        unknown,
        name=device.get("name", ""),
        port=int(port["port"]) if port.get("port", "").isdigit() else 1,
        state=re.sub(r"^PORT_|\s*\(\d+\)$", "", port.get("state", "")) or None,
        rate_gbps=_rate(port),
        link_layer=port.get("link_layer") or None,
        gid=bool(gids),
        gids=[{"index": None, "gid": gid, "type": None} for gid in gids[:4]],
        pkeys=[],
        lid=whole(port.get("port_lid")),
        sm_lid=whole(port.get("sm_lid")),
        fw=device.get("fw_ver"),
        board=device.get("board_id"),
        counters=0,
        errors={},
    )


def _rate(port: Mapping[str, str]) -> Any:
    """Return lanes times the speed of one: "active_width: 4X (2)", "active_speed: 100.0 Gbps (128)"."""
    lanes = LANES.get(port.get("active_width", "").split(" ")[0])
    speed = re.match(r"([\d.]+)\s*Gbps", port.get("active_speed", ""))
    return lanes * float(speed.group(1)) if lanes and speed else None


MAX_PORTS = 256
MAX_GIDS = 256
SHOWN_GIDS = 8
MAX_PKEYS = 128  # the size of mlx5's table (docs.nvidia.com, MLNX_OFED: up to 128 P_Keys a port)
# Counters of traffic and of link errors (docs.kernel.org, ABI sysfs-class-infiniband; mlx5's hw_counters; EFA's byte
# counters).
TRAFFIC = "port_xmit_data port_rcv_data tx_bytes rx_bytes rdma_write_bytes rdma_read_bytes".split()
WATCHED = (
    TRAFFIC
    + (
        "port_rcv_errors port_xmit_discards symbol_error link_downed link_error_recovery"
        " local_link_integrity_errors excessive_buffer_overrun_errors port_xmit_wait out_of_sequence packet_seq_err"
        " local_ack_timeout_err rnr_nak_retry_err implied_nak_seq_err np_cnp_sent rp_cnp_handled roce_adp_retrans"
        " roce_slow_restart rx_icrc_encapsulated req_transport_retries_exceeded rx_drops"
    ).split()
)


def read(data: Dict[str, Any], *, root: str = "/", env: Optional[Mapping[str, str]] = None) -> None:
    """Fill the `rdma` stage's data."""
    devices = os.path.join(root, "sys/class/infiniband")
    given, _ = _list(os.path.join(root, "dev/infiniband"))
    data["uverbs"] = [name for name in given if name.startswith("uverbs")]
    names, data["error"] = _list(devices)
    usable = _usable(root, data["uverbs"])
    data["source"] = "sysfs"
    data["devices"] = [dict(_port(devices, name, port), usable=usable.get(name)) for name, port in ports(root, names)]
    if not data["devices"]:
        answer = devinfo(os.environ if env is None else env)
        if answer:
            data["source"], data["devices"] = "ibv_devinfo", answer[:MAX_PORTS]


def ports(root: str = "/", names: Optional[List[str]] = None) -> List[Tuple[str, str]]:
    """Return every port of every device, as (device, port)."""
    devices = os.path.join(root, "sys/class/infiniband")
    names = _list(devices)[0] if names is None else names
    names_and_ports = [(name, port) for name in names for port in _list(os.path.join(devices, name, "ports"))[0]]
    return names_and_ports[:MAX_PORTS]


def counters(root: str = "/") -> Dict[str, int]:
    """Return the value of every watched counter: "mlx5_0/1/port_rcv_data" -> value."""
    values: Dict[str, int] = {}
    for name, port in ports(root):
        folder = os.path.join(root, "sys/class/infiniband", name, "ports", port)
        for counter, value in _counters(folder).items():
            values["%s/%s/%s" % (name, port, counter)] = value
    return values


def difference(before: Dict[str, int], after: Dict[str, int]) -> Dict[str, int]:
    """Return the changes; a counter that was reset in between is omitted."""
    return {name: after[name] - before[name] for name in sorted(after) if after[name] > before.get(name, after[name])}


def _counters(folder: str) -> Dict[str, int]:
    values = {}
    for group in ("counters", "hw_counters"):
        place = os.path.join(folder, group)
        held = set(names_in(place))
        for counter in WATCHED:
            value = first_line(os.path.join(place, counter)) if counter in held else None
            if value is not None and value.isdigit():
                values[counter] = int(value)
    return values


def _usable(root: str, uverbs: List[str]) -> Dict[str, bool]:
    """Return for each device whether this pod was given its `uverbs` file; sysfs maps one to the other."""
    verbs = os.path.join(root, "sys/class/infiniband_verbs")
    owner = {name: first_line(os.path.join(verbs, name, "ibdev")) for name in _list(verbs)[0]}
    return {device: name in uverbs for name, device in owner.items() if device}


def _port(devices: str, name: str, port: str) -> Dict[str, Any]:
    device = os.path.realpath(os.path.join(devices, name, "device"))
    folder = os.path.join(devices, name, "ports", port)
    state = first_line(os.path.join(folder, "state"))
    rate = re.match(r"([\d.]+)\s*Gb/sec", first_line(os.path.join(folder, "rate")) or "")
    gids = _gids(folder)
    netdev = next((gid["netdev"] for gid in gids if gid["netdev"]), None) or _netdev(device)
    counts = _counters(folder)
    return {
        "name": name,
        "port": int(port) if port.isdigit() else port,
        "state": state.rpartition(":")[2].strip() if state else None,  # "4: ACTIVE"
        "phys_state": (first_line(os.path.join(folder, "phys_state")) or "").rpartition(":")[2].strip() or None,
        "rate_gbps": float(rate.group(1)) if rate else None,
        "link_layer": first_line(os.path.join(folder, "link_layer")),
        "gid": bool(gids),
        "gids": [{key: gid[key] for key in ("index", "gid", "type")} for gid in gids[:SHOWN_GIDS]],
        "pkeys": _pkeys(folder),
        "lid": _hexadecimal(first_line(os.path.join(folder, "lid"))),
        "sm_lid": _hexadecimal(first_line(os.path.join(folder, "sm_lid"))),
        "netdev": netdev,
        "mtu": whole(first_line(os.path.join(device, "net", netdev, "mtu"))) if netdev else None,
        "fw": first_line(os.path.join(devices, name, "fw_ver")),
        "board": first_line(os.path.join(devices, name, "board_id")),
        "counters": len(counts),
        "errors": {key: value for key, value in counts.items() if value and key not in TRAFFIC},
    }


def gids(root: str, name: str, port: int) -> List[Dict[str, Any]]:
    """Return the non-empty entries of a port's GID table."""
    return _gids(os.path.join(root, "sys/class/infiniband", name, "ports", str(port)))


def lets_through(spec: str, name: str, port: object = None) -> bool:
    """Return whether an interface list of NCCL includes a device.

    '^' excludes, '=' requires exact names, ':1' selects a port.
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca
    """
    exclude = spec.startswith("^")
    spec = spec[1:] if exclude else spec
    exact = spec.startswith("=")
    spec = spec[1:] if exact else spec
    named = False
    for entry in filter(None, spec.split(",")):
        device, _, number = entry.partition(":")
        same = name == device if exact else name.startswith(device)
        named = named or (same and (not number.isdigit() or port is None or int(number) == port))
    return named != exclude


def _gids(folder: str) -> List[Dict[str, Any]]:
    """Return the non-empty entries of the GID table, with their type and interface (RoCE)."""
    gids = []
    for index in _list(os.path.join(folder, "gids"))[0][:MAX_GIDS]:
        gid = first_line(os.path.join(folder, "gids", index)) or ""
        if not gid.strip("0:"):
            continue
        kind = first_line(os.path.join(folder, "gid_attrs/types", index))
        netdev = first_line(os.path.join(folder, "gid_attrs/ndevs", index))
        gids.append({"index": whole(index), "gid": gid, "type": kind, "netdev": netdev})
    return gids


def _netdev(device: str) -> Optional[str]:
    names = _list(os.path.join(device, "net"))[0]
    return names[0] if names else None


def _pkeys(folder: str) -> List[str]:
    """Return the partition keys by index (NCCL_IB_PKEY is such an index); zero means the entry is empty."""
    table = os.path.join(folder, "pkeys")
    pkeys = [first_line(os.path.join(table, index)) or "" for index in _list(table)[0][:MAX_PKEYS]]
    while pkeys and not pkeys[-1].replace("x", "").strip("0"):
        pkeys.pop()
    return pkeys


def _hexadecimal(text: Optional[str]) -> Optional[int]:
    try:
        return None if text is None else int(text, 16)
    except ValueError:
        return None


def _list(folder: str) -> Tuple[List[str], Optional[str]]:
    """Return the entries in natural order, and why they are missing."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return [], None
    except OSError as error:
        return [], "cannot read %s: %s" % (folder, error.strerror)
    return sorted(
        names, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    ), None
