"""The identity of a node's GPUs and NICs, and the clocks of its GPUs during its test alone.

Read from nvidia-smi before, during and after the test, and from sysfs. A missing tool, or a missing permission to read
a NIC's vital product data (only root may), leaves facts unknown and is not an error.
"""

from __future__ import annotations

import os
import re
import threading
from typing import Any, Dict, List, Mapping

from . import command, gpus, smi
from .deadline import Watch
from .files import content, first_line, names_in

PERIOD_S = 2.0
QUERY_S = 20.0  # of one query: eight GPUs without persistence mode take as long
LAST_S = 10.0  # for the query after the test
MOST_NICS, MOST_GPUS = 16, 16  # as many as fit next to the result in one message
VPD_BYTES = 4096
PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
# Tags of vital product data (PCI Local Bus Specification 3.0, appendix I).
IDENTIFIER, READ_ONLY, END = 0x82, 0x90, 0x78


def nics(root: str = "/") -> Dict[str, Dict[str, str]]:
    """Return each RDMA device's PCI address and serial number; its GUID if the number is not readable."""
    place = os.path.join(root, "sys/class/infiniband")
    names = sorted(names_in(place), key=lambda name: (len(name), name))
    by_name = {}
    for name in names[:MOST_NICS]:
        nic = {}
        address = os.path.basename(os.path.realpath(os.path.join(place, name, "device")))
        if PCI.match(address):
            nic["pci"] = address
        serial = _serial(os.path.join(place, name, "device", "vpd"))
        guid = first_line(os.path.join(place, name, "node_guid"))
        if serial:
            nic["serial"] = serial
        elif guid and re.match(r"[0-9a-f:]{19}$", guid) and guid.strip("0:"):
            nic["guid"] = guid
        if nic:
            by_name[name[:40]] = nic
    return by_name


def _serial(path: str) -> str:
    """Return the serial number in a NIC's vital product data; '' without one."""
    data = content(path, VPD_BYTES)
    at = 0
    while at + 3 <= len(data) and data[at] != END:
        tag, size = data[at], data[at + 1] | data[at + 2] << 8
        if tag not in (IDENTIFIER, READ_ONLY):
            return ""
        if tag == READ_ONLY:
            return _keyword(data[at + 3 : at + 3 + size], b"SN")
        at += 3 + size
    return ""


def _keyword(fields: bytes, keyword: bytes) -> str:
    at = 0
    while at + 3 <= len(fields):
        name, size = fields[at : at + 2], fields[at + 2]
        if name == keyword and at + 3 + size <= len(fields):
            text = fields[at + 3 : at + 3 + size].decode("ascii", "replace").strip(" \0")
            return text if re.match(r"[\w.+/-]{1,40}$", text) else ""
        at += 3 + size
    return ""


class Clocks:
    """A thread that polls nvidia-smi, from before a test until after it."""

    def __init__(self, env: Mapping[str, str], watch: Watch) -> None:
        self._tool, self._watch = gpus.find(env), watch
        self._samples: List[List[Dict[str, Any]]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def start(self) -> None:
        """Start polling; the first query is before the test's load, since it delays programs."""
        if self._tool is not None:
            self._thread.start()

    def end(self) -> List[Dict[str, Any]]:
        """Return for each GPU: index, uuid, serial, MHz before, at least during and after, and throttle reasons."""
        self._over.set()
        if self._tool is not None:
            self._thread.join(LAST_S)
        samples = [each for each in list(self._samples) if each]
        if not samples:
            return []
        return [_summary(index, samples) for index in range(min(MOST_GPUS, len(samples[0])))]

    def _ask(self) -> None:
        assert self._tool is not None
        while not self._watch.stopped():
            last = self._over.is_set()
            answer = command.run([self._tool, "-q", "-x"], LAST_S if last else QUERY_S, smi.MAX_BYTES)
            self._samples.append(smi.read(answer.out)[0]["gpus"])
            if last or answer.exit is None:  # no further queries after a hang
                return
            self._over.wait(PERIOD_S)


def _summary(index: int, samples: List[List[Dict[str, Any]]]) -> Dict[str, Any]:
    own = [each[index] for each in samples if index < len(each)]
    clocks = [gpu["sm_mhz"] for gpu in own if gpu["sm_mhz"] is not None]
    slowed = {reason for gpu in own for reason in gpu["throttle"] or ()}
    gpu_facts = {key: own[0][key] for key in ("uuid", "serial") if own[0][key]}
    gpu_facts.update(index=index, throttle=sorted(slowed))
    if clocks:
        gpu_facts["mhz"] = [clocks[0], min(clocks[1:-1] or clocks), clocks[-1]]
    return gpu_facts
