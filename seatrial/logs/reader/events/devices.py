"""Network devices that NCCL lists: the ``NET/IB : Using`` line.

An empty list is printed too from 2.24.3 on (``NET/IB : Using [RO]; OOB ..``): only an index in brackets is a device.
"""

from __future__ import annotations

import re
from typing import Dict

from ..lines.clean import name

_HCA = re.compile(rb"\[(\d{1,3})\]\s?(?:=?\{)?([A-Za-z0-9_.+-]{1,64}:\d+(?::[\w.]+){0,2}(?:/[A-Za-z]+)?(?:/SHARP)?)")
_HCA_MERGED = re.compile(rb"\[(\d{1,3})\]=\{([^{}]{1,400})\}")


def listed_devices(text: bytes) -> Dict[int, str]:
    """Return index -> ``mlx5_0:1/IB``; merged ports (2.20 to 2.23) become ``mlx5_0:1+mlx5_1:1/RoCE``."""
    listed = text.split(b"; OOB", 1)[0]
    if listed not in _LISTED:
        if len(_LISTED) >= 512:
            _LISTED.clear()
        _LISTED[listed] = _devices(listed)
    return _LISTED[listed]


_LISTED: Dict[bytes, Dict[int, str]] = {}  # the hosts of a job list the same devices


def _devices(listed: bytes) -> Dict[int, str]:
    merged: Dict[int, str] = {}
    for index, inner in _HCA_MERGED.findall(listed):
        ports = [port for _, port in _HCA.findall(inner)]
        if ports:
            link = ports[-1].rpartition(b"/")[2]
            merged[int(index)] = name(b"+".join(port.rpartition(b"/")[0] for port in ports) + b"/" + link) or ""
    if merged:
        return merged
    return {int(index): name(device) or "" for index, device in _HCA.findall(listed)}
