"""What `ibv_devinfo` says of the RDMA devices, asked only where sysfs shows none: rdma-core may know better.

Its text is stable over the years (rdma-core libibverbs/examples/devinfo.c): blocks that start with `hca_id:`, ports
inside them that start with `port:`, `name: value` lines in both.
"""

from __future__ import annotations

import re
import shutil
from typing import Any, Dict, List, Mapping

from . import command
from .files import whole

TIMEOUT_S = 10.0
# 4 lanes of each signalling rate (ibv_port_attr.active_width and active_speed; rdma-core prints them in words).
LANES = {"1X": 1, "2X": 2, "4X": 4, "8X": 8, "12X": 12}


def ask(env: Mapping[str, str]) -> List[Dict[str, Any]]:
    """Return the ports of all devices in the `rdma` stage's form; nothing where the program is not there."""
    tool = shutil.which("ibv_devinfo", path=env.get("PATH"))
    if tool is None:
        return []
    answer = command.run([tool, "-v"], TIMEOUT_S, 1 << 20)
    return parse(answer.out.decode("utf-8", "replace")) if answer.exit == 0 else []


def parse(text: str) -> List[Dict[str, Any]]:
    """Read the text of `ibv_devinfo -v`."""
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
