"""The image's programs that test RDMA: ib_write_bw of perftest, and with EFA fi_pingpong of libfabric.

Defines their usable NICs, command lines and CPU placement, and parses their output: untrusted, so bounded, and without
credentials.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from seatrial.logs.reader import redact

from . import command, rdma
from .deadline import Watch
from .files import first_line

WRITE, PINGPONG = "ib_write_bw", "fi_pingpong"
GPU_FLAGS = {"nvidia": "--use_cuda", "amd": "--use_rocm"}  # of a perftest that was built with them
DMABUF = "--use_cuda_dmabuf"
PEERMEM = ("sys/module/nvidia_peermem", "sys/module/nv_peer_mem")
MOST_NICS = 32  # of p5 (AWS: EFA interfaces of an instance)
SPARE_S = 15.0  # added to a write test's duration: the program's initial second of waiting, memory, CUDA
HELP_S = 10.0
MAX_BYTES, TEXT = 64 << 10, 300
# Four queue pairs of 1 MiB: a single one does not reach 400 Gb/s everywhere (linux-rdma/perftest#252, its maintainers).
QUEUE_PAIRS, SIZE = "4", str(1 << 20)
ROW = re.compile(r"(?:^|\s)(\d+)\s+(\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s*$")
UNIT = re.compile(r"BW average\[(\w+)/sec\]")
GBIT_S = {"Gb": 1.0, "MB": 8 * (1 << 20) / 1e9, "MiB": 8 * (1 << 20) / 1e9}  # its MB is 2^20 bytes (--report_gbits)
PINGED = re.compile(r"^\w+\s+\d+\s+=\d+\s+\S+\s+\S+\s+[\d.]+\s+[\d.]+\s+[\d.]+\s*$")
# Output other than errors: the table, the frame and the settings of the test, and the note that clocks vary.
NO_ERROR = re.compile(
    r"^[-*\s]*$|Waiting for client|BW Test|#bytes|^[\w#*./ \t-]{1,40}\s: |address:|GID: |Conflicting CPU"
)
LONGEST_LINE = 300  # of a parsed line: none of theirs is longer
V2, MAPPED = re.compile(r"v2", re.IGNORECASE), "0000:0000:0000:0000:0000:ffff:"


class Nic(NamedTuple):
    """A port that may be tested."""

    name: str
    port: int
    gid_index: Optional[int]

    @property
    def label(self) -> str:
        """The port's name in findings."""
        return self.name if self.port == 1 else "%s:%d" % (self.name, self.port)


def nics(layer: Optional[str], env: Mapping[str, str], root: str = "/") -> List[Nic]:
    """Return the active ports of this link layer that the pod may use and NCCL_IB_HCA does not exclude."""
    data: Dict[str, Any] = {}
    rdma.read(data, root=root, env={})
    wanted = env.get("NCCL_IB_HCA") or ""
    chosen = []
    for port in data["devices"] or []:
        fits = port["state"] == "ACTIVE" and port["usable"] is not False and isinstance(port["port"], int)
        same = port["link_layer"] == layer if layer else port["link_layer"] not in ("InfiniBand", "Ethernet")
        if fits and same and (not wanted or rdma.lets_through(wanted, port["name"], port["port"])):
            index = gid_index(root, port, env) if layer == "Ethernet" else None
            chosen.append(Nic(port["name"], port["port"], index))
    return chosen[:MOST_NICS]


def gid_index(root: str, port: Mapping[str, Any], env: Mapping[str, str]) -> Optional[int]:
    """Return the GID index that NCCL uses: that of its setting, else RoCE v2, preferably of an IPv4 address."""
    told = env.get("NCCL_IB_GID_INDEX", "")
    if told.isdigit():
        return int(told)
    gids = [gid for gid in rdma.gids(root, port["name"], port["port"]) if V2.search(gid["type"] or "")]
    best = [gid for gid in gids if gid["gid"].startswith(MAPPED)]
    best += [gid for gid in gids if not gid["gid"].startswith("fe80:")]
    return next((gid["index"] for gid in best + gids), None)


class Program:
    """The image's program for this fabric: its command line, and a run of it near its NIC."""

    def __init__(self, asked: Mapping[str, Any], env: Mapping[str, str], watch: Watch, root: str = "/") -> None:
        self.layer: Optional[str] = asked["layer"] or None
        self.name = WRITE if self.layer else PINGPONG
        self.seconds, self.watch, self.root = int(asked["seconds"]), watch, root
        # CUDA uses the GPU numbers of nvidia-smi only with this setting (CUDA C++ programming guide).
        self.env = dict(env, CUDA_DEVICE_ORDER="PCI_BUS_ID")
        self.path = shutil.which(self.name, path=env.get("PATH")) or ""
        self.nics = nics(self.layer, env, root) if self.path else []
        self.help = ""

    @property
    def labels(self) -> List[str]:
        """The usable NICs; none without the program."""
        return [nic.label for nic in self.nics]

    def gpu_memory(self, kind: str) -> List[str]:
        """Return the options for a GPU's memory; none if the program was built without them.

        None either if it supports only a kernel module that the node lacks: NCCL registers such memory as a dma-buf.
        """
        flag = GPU_FLAGS.get(kind, "")
        if not self.path or self.name != WRITE:
            return []
        answer = command.run([self.path, "--help"], HELP_S, MAX_BYTES, self.env)
        self.help = (answer.out + answer.err).decode("utf-8", "replace")
        if not flag or flag not in self.help:
            return []
        if kind != "nvidia" or any(os.path.isdir(os.path.join(self.root, each)) for each in PEERMEM):
            return [flag]
        return [flag, DMABUF] if DMABUF in self.help else []

    def words(self, label: str) -> List[str]:
        """Return the command of one side, without port, peer and GPU."""
        nic = next(each for each in self.nics if each.label == label)
        if self.name == PINGPONG:
            return [self.path, "-e", "rdm", "-p", "efa", "-d", "%s-rdm" % nic.name]
        words = [self.path, "-d", nic.name, "-i", str(nic.port), "-F", "--report_gbits"]
        words += ["-q", QUEUE_PAIRS, "-s", SIZE, "-D", "%d" % self.seconds]
        words += ["-x", str(nic.gid_index)] if nic.gid_index is not None else []
        # NCCL's own settings: the same traffic class and level use the same switch queues.
        for name, flag in (("NCCL_IB_TC", "--tclass"), ("NCCL_IB_SL", "-S"), ("NCCL_IB_PKEY", "--pkey_index")):
            if self.env.get(name, "").isdigit():
                words += [flag, self.env[name]]
        return words

    def run(self, words: Sequence[str], label: str, limit_s: float, over: Callable[[], bool]) -> command.Answer:
        """Run the program near its NIC: its buffer is in the memory of the CPUs that it may use."""
        before = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, (before & self._near(label)) or before)
            return command.run(words, limit_s, MAX_BYTES, self.env, over)
        finally:
            os.sched_setaffinity(0, before)

    def far(self, label: str) -> bool:
        """Return whether this pod may use no CPU near the NIC: its buffer is then in the other socket's memory."""
        near = self._near(label)
        return bool(near) and not near & os.sched_getaffinity(0)

    def _near(self, label: str) -> Set[int]:
        return local_cpus(label.partition(":")[0], self.root)


def local_cpus(device: str, root: str = "/") -> Set[int]:
    """Return the CPUs of a NIC's NUMA node: "0-23,48-71" (docs.kernel.org, ABI sysfs-bus-pci, local_cpulist)."""
    cpus: Set[int] = set()
    text = first_line(os.path.join(root, "sys/class/infiniband", device, "device/local_cpulist")) or ""
    for first, last in re.findall(r"(\d{1,5})(?:-(\d{1,5}))?", text):
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def read(text: str) -> Optional[float]:
    """Return the average of ib_write_bw's last row in Gb/s; its table may contain warnings."""
    unit = UNIT.search(text)
    rows = [match for match in map(ROW.search, lines_of(text[unit.end() :])) if match] if unit else []
    if unit is None or not rows or unit.group(1) not in GBIT_S:
        return None
    return round(float(rows[-1].group(4)) * GBIT_S[unit.group(1)], 2)


def lines_of(text: str) -> List[str]:
    """Return the lines within the length limit."""
    return [line for line in text.splitlines() if len(line) <= LONGEST_LINE]


def said(answer: command.Answer) -> str:
    """Return a program's error messages, without the frame of the test and its settings."""
    lines = lines_of((answer.err + b"\n" + answer.out).decode("utf-8", "replace"))
    errors = [" ".join(line.split()) for line in lines if not NO_ERROR.search(line) and not ROW.search(line)]
    return "; ".join([*([answer.error] if answer.error else []), *dict.fromkeys(errors)])


def plain(text: str) -> str:
    """Return a text as one bounded line without credentials."""
    return redact.redact(" ".join(text[: 4 * TEXT].split()))[:TEXT]


def pinged(text: str) -> bool:
    """Return whether fi_pingpong's table has a row: its messages made the round trip."""
    return any(map(PINGED.search, lines_of(text)))
