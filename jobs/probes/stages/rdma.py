"""Which RDMA devices did this pod get, and are their ports up? Read from sysfs, which needs no tool and no rights.

sysfs shows every device of the *node* in a pod without its own RDMA namespace: what the pod may use are the `uverbs`
files below /dev/infiniband. Both are reported; the profile says what is expected.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional, Tuple

from .host import first_line

__all__ = ["counters", "difference", "read"]

MAX_PORTS = 256
MAX_GIDS = 256
# Counters that show that traffic passed or that the link hurts
# (docs.kernel.org, ABI sysfs-class-infiniband; mlx5's hw_counters; EFA's byte counters).
WATCHED = (
    "port_xmit_data port_rcv_data port_rcv_errors port_xmit_discards symbol_error link_downed link_error_recovery"
    " local_link_integrity_errors excessive_buffer_overrun_errors port_xmit_wait out_of_sequence packet_seq_err"
    " local_ack_timeout_err rnr_nak_retry_err implied_nak_seq_err np_cnp_sent rp_cnp_handled roce_adp_retrans"
    " rx_icrc_encapsulated req_transport_retries_exceeded tx_bytes rx_bytes rdma_write_bytes rdma_read_bytes"
).split()


def read(data: Dict[str, Any], *, root: str = "/") -> None:
    """Fill the `rdma` stage's data."""
    devices = os.path.join(root, "sys/class/infiniband")
    data["uverbs"] = [name for name in _list(os.path.join(root, "dev/infiniband"))[0] if name.startswith("uverbs")]
    names, error = _list(devices)
    data["error"] = error
    data["devices"] = [_port(devices, name, port) for name, port in _ports(devices, names)]


def counters(root: str = "/") -> Dict[str, int]:
    """Return every watched counter as it stands: "mlx5_0/1/port_rcv_data" -> value."""
    devices = os.path.join(root, "sys/class/infiniband")
    values: Dict[str, int] = {}
    for name, port in _ports(devices, _list(devices)[0]):
        for group in ("counters", "hw_counters"):
            folder = os.path.join(devices, name, "ports", port, group)
            for counter in WATCHED:
                value = first_line(os.path.join(folder, counter))
                if value is not None and value.isdigit():
                    values["%s/%s/%s" % (name, port, counter)] = int(value)
    return values


def difference(before: Dict[str, int], after: Dict[str, int]) -> Dict[str, int]:
    """Return what moved; a counter that was reset in between is left out."""
    return {name: after[name] - before[name] for name in sorted(after) if after[name] > before.get(name, after[name])}


def _ports(devices: str, names: List[str]) -> List[Tuple[str, str]]:
    found = [(name, port) for name in names for port in _list(os.path.join(devices, name, "ports"))[0]]
    return found[:MAX_PORTS]


def _port(devices: str, name: str, port: str) -> Dict[str, Any]:
    folder = os.path.join(devices, name, "ports", port)
    state = first_line(os.path.join(folder, "state"))
    rate = re.match(r"([\d.]+)\s*Gb/sec", first_line(os.path.join(folder, "rate")) or "")
    gids = [
        first_line(os.path.join(folder, "gids", gid)) or "" for gid in _list(os.path.join(folder, "gids"))[0][:MAX_GIDS]
    ]
    return {
        "name": name,
        "port": int(port) if port.isdigit() else port,
        "state": state.rpartition(":")[2].strip() if state else None,  # "4: ACTIVE"
        "phys_state": (first_line(os.path.join(folder, "phys_state")) or "").rpartition(":")[2].strip() or None,
        "rate_gbps": float(rate.group(1)) if rate else None,
        "link_layer": first_line(os.path.join(folder, "link_layer")),
        "gid": any(gid.strip("0:") for gid in gids),
        "pkeys": _pkeys(folder),
    }


def _pkeys(folder: str) -> List[str]:
    """Return the partition keys by index (NCCL_IB_PKEY is such an index); zero means the entry is empty."""
    found = [
        first_line(os.path.join(folder, "pkeys", index)) or "" for index in _list(os.path.join(folder, "pkeys"))[0][:16]
    ]
    while found and not found[-1].replace("x", "").strip("0"):
        found.pop()
    return found


def _list(folder: str) -> Tuple[List[str], Optional[str]]:
    """Return the entries in natural order, and why there are none."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return [], None
    except OSError as error:
        return [], "cannot read %s: %s" % (folder, error.strerror)
    return sorted(
        names, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    ), None
