"""RDMA writes between neighbouring ranks, before NCCL: perftest's ib_write_bw from each NIC to the peer's, both ways.

One write at a time crosses a pair of ranks, so that a NIC has its link to itself. The ranks agree through the
rendezvous's connections: who receives starts the program on a port that the kernel picked and tells it, who sends
measures. With EFA, whose NICs have no such writes, fi_pingpong of libfabric shows whether messages pass; it measures
no bandwidth. Both programs are those of the image, and so is what they print: bounded, and without credentials.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from seatrial.logs.reader import redact

from . import command, rdma
from .barrier import Barrier
from .deadline import Watch
from .files import content, first_line
from .rendezvous import Rendezvous

TOPIC = "perftest"
WRITE, PINGPONG = "ib_write_bw", "fi_pingpong"
HOST = "host"
GPU_FLAGS = {"nvidia": "--use_cuda", "amd": "--use_rocm"}  # of a perftest that was built with them
DMABUF = "--use_cuda_dmabuf"
PEERMEM = ("sys/module/nvidia_peermem", "sys/module/nv_peer_mem")
MOST_NICS = 32  # of p5 (AWS: EFA interfaces of an instance)
OFFER_S = 15.0  # for the other rank to come from the stage before
LISTEN_S, READY_S = 8.0, 20.0  # for the program to listen; for the other rank to come from the last write, and say so
SPARE_S = 15.0  # of a write beside its time: the program's own second of waiting, memory, CUDA
END_S = 3.0
HELP_S = 10.0
MAX_BYTES, TEXT = 64 << 10, 300
# Four queue pairs of 1 MiB: one alone does not fill 400 Gb/s everywhere (linux-rdma/perftest#252, its maintainers).
QUEUE_PAIRS, SIZE = "4", str(1 << 20)
ROW = re.compile(r"(?:^|\s)(\d+)\s+(\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)\s*$")
UNIT = re.compile(r"BW average\[(\w+)/sec\]")
GBIT_S = {"Gb": 1.0, "MB": 8 * (1 << 20) / 1e9, "MiB": 8 * (1 << 20) / 1e9}  # its MB is 2^20 bytes (--report_gbits)
PINGED = re.compile(r"^\w+\s+\d+\s+=\d+\s+\S+\s+\S+\s+[\d.]+\s+[\d.]+\s+[\d.]+\s*$")
# What the programs print besides an error: the table, the frame and the settings of the test, and that clocks vary.
NO_ERROR = re.compile(
    r"^[-*\s]*$|Waiting for client|BW Test|#bytes|^[\w#*./ \t-]{1,40}\s: |address:|GID: |Conflicting CPU"
)
LONGEST_LINE = 300  # of what is read: none of theirs is longer
NOT_YET = b"Couldn't connect to"
V2, MAPPED = re.compile(r"v2", re.IGNORECASE), "0000:0000:0000:0000:0000:ffff:"


class Nic(NamedTuple):
    """A port that may be tested."""

    name: str
    port: int
    gid_index: Optional[int]

    @property
    def label(self) -> str:
        """As the findings name it."""
        return self.name if self.port == 1 else "%s:%d" % (self.name, self.port)


class Write(NamedTuple):
    """One write: from the sender's NIC to the receiver's, each with its GPU where GPU memory is written."""

    sender: int
    receiver: int
    nics: Tuple[str, str]
    memory: str

    @property
    def topic(self) -> str:
        """What both ranks call it."""
        return "%s.%d.%s.%s" % (TOPIC, self.sender, self.nics[0], self.memory)


def blank() -> Dict[str, Any]:
    """Return the stage's keys, all unknown."""
    return {"tool": None, "found": None, "gpu_memory": None, "nics": [], "writes": [], "left_out": [], "error": None}


def nics(layer: Optional[str], env: Mapping[str, str], root: str = "/") -> List[Nic]:
    """Return the active ports of this link layer that the pod may use and NCCL is not told to leave alone."""
    data = rdma.blank()
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
    """Return the GID that NCCL takes: the one it is told, else RoCE v2, of an IPv4 address where there is one."""
    told = env.get("NCCL_IB_GID_INDEX", "")
    if told.isdigit():
        return int(told)
    gids = [gid for gid in rdma.gids(root, port["name"], port["port"]) if V2.search(gid["type"] or "")]
    best = [gid for gid in gids if gid["gid"].startswith(MAPPED)]
    best += [gid for gid in gids if not gid["gid"].startswith("fe80:")]
    return next((gid["index"] for gid in best + gids), None)


def pairs(mine: Sequence[str], theirs: Sequence[str]) -> Tuple[List[Tuple[str, str]], List[str]]:
    """Return which NICs are a rail: those of one name, or by their order where as many have others; and who is left."""
    if len(mine) == len(theirs) and not set(mine) & set(theirs):
        return list(zip(mine, theirs)), []
    both = [name for name in mine if name in theirs]
    return [(name, name) for name in both], sorted((set(mine) | set(theirs)) - set(both))


def edges(rank: int, nodes: int) -> List[Tuple[int, int]]:
    """Return this rank's pairs of neighbours in the order of all: first (0, 1), (2, 3), ..., then (1, 2), ..."""
    known = [(low, low + 1) for low in (rank - 1, rank) if low >= 0 and low + 1 < nodes]
    return sorted(known, key=lambda edge: edge[0] % 2)


class Program:
    """The image's program for this fabric: its command line, and a run of it beside its NIC."""

    def __init__(self, asked: Mapping[str, Any], env: Mapping[str, str], watch: Watch, root: str = "/") -> None:
        self.layer: Optional[str] = asked["layer"] or None
        self.name = WRITE if self.layer else PINGPONG
        self.seconds, self.watch, self.root = int(asked["seconds"]), watch, root
        # CUDA numbers the GPUs as nvidia-smi does only where it is told to (CUDA C++ programming guide).
        self.env = dict(env, CUDA_DEVICE_ORDER="PCI_BUS_ID")
        self.path = shutil.which(self.name, path=env.get("PATH")) or ""
        self.nics = nics(self.layer, env, root) if self.path else []
        self.help = ""

    @property
    def labels(self) -> List[str]:
        """The NICs that may be tested; none without the program."""
        return [nic.label for nic in self.nics]

    def gpu_memory(self, kind: str) -> List[str]:
        """Return how the program is told to use a GPU's memory; nothing where it is not built so."""
        flag = GPU_FLAGS.get(kind, "")
        if not self.path or self.name != WRITE:
            return []
        answer = command.run([self.path, "--help"], HELP_S, MAX_BYTES, self.env)
        self.help = (answer.out + answer.err).decode("utf-8", "replace")
        if not flag or flag not in self.help:
            return []
        loaded = any(os.path.isdir(os.path.join(self.root, each)) for each in PEERMEM)
        return [flag, *([DMABUF] if kind == "nvidia" and DMABUF in self.help and not loaded else [])]

    def words(self, label: str) -> List[str]:
        """Return the command of one side, without port, peer and GPU."""
        nic = next(each for each in self.nics if each.label == label)
        if self.name == PINGPONG:
            return [self.path, "-e", "rdm", "-p", "efa", "-d", "%s-rdm" % nic.name]
        words = [self.path, "-d", nic.name, "-i", str(nic.port), "-F", "--report_gbits"]
        words += ["-q", QUEUE_PAIRS, "-s", SIZE, "-D", "%d" % self.seconds]
        words += ["-x", str(nic.gid_index)] if nic.gid_index is not None else []
        # What NCCL would write with: the same traffic class and level meet the same queues of the switches.
        for name, flag in (("NCCL_IB_TC", "--tclass"), ("NCCL_IB_SL", "-S"), ("NCCL_IB_PKEY", "--pkey_index")):
            if self.env.get(name, "").isdigit():
                words += [flag, self.env[name]]
        return words

    def run(self, words: Sequence[str], label: str, limit_s: float, over: Callable[[], bool]) -> command.Answer:
        """Run the program near its NIC: its buffer lies in the memory of the CPUs that it may use."""
        before = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, (before & self._near(label)) or before)
            return command.run(words, limit_s, MAX_BYTES, self.env, over)
        finally:
            os.sched_setaffinity(0, before)

    def far(self, label: str) -> bool:
        """Say whether this pod may use no CPU beside the NIC: its buffer is then in the other socket's memory."""
        near = self._near(label)
        return bool(near) and not near & os.sched_getaffinity(0)

    def _near(self, label: str) -> Set[int]:
        return local_cpus(label.partition(":")[0], self.root)


class Perftest:
    """The writes of one rank."""

    def __init__(
        self,
        rendezvous: Rendezvous,
        barrier: Barrier,
        asked: Mapping[str, Any],
        program: Program,
        paths: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Prepare; `paths`: how near each GPU is to each NIC, as the topology stage has found."""
        self.rendezvous, self.barrier, self.asked, self.paths = rendezvous, barrier, asked, paths
        self.me, self.watch, self.program = rendezvous.me.rank, rendezvous.watch, program
        self.gpu: List[str] = []
        self.ends = 0.0

    def run(self, data: Dict[str, Any]) -> str:
        """Fill the `perftest` stage's data; a program that is not there is an answer, not an error."""
        self.ends = time.monotonic() + min(self.asked["limit_s"], self.watch.left())
        program = self.program
        data.update(tool=program.name, found=bool(program.path), nics=program.labels)
        flags = program.gpu_memory(self.rendezvous.trial.gpu_kind)
        self.gpu = flags if self.asked["gpu"] else []
        beside = [nic.label for nic in program.nics if self.gpu and nearest(self.paths, nic.name) is not None]
        data["gpu_memory"] = bool(beside)
        offer = {"found": data["found"], "nics": data["nics"], "gpu": beside}
        around = edges(self.me, self.rendezvous.trial.nodes)
        for edge in around:
            self.barrier.post(sum(edge) - self.me, TOPIC, offer)
        for edge in around:
            for write in self._planned(data, edge, offer):
                if not self._one(data, write):
                    break
        # Who is through waits for the others: their writes share links with the collectives.
        self.barrier.through(TOPIC, self.ends + SPARE_S - time.monotonic())
        if not program.path:
            return "skipped"
        wrong = data["error"] or data["left_out"] or any(each["error"] for each in data["writes"])
        return "failed" if wrong else "ok"

    def _planned(self, data: Dict[str, Any], edge: Tuple[int, int], own: Mapping[str, Any]) -> Iterator[Write]:
        """Yield the writes between this rank and a neighbour: what both have, in the order that both make of it."""
        other = sum(edge) - self.me
        if not own["found"]:
            return
        theirs = self.barrier.posted(TOPIC, other, max(0.0, min(OFFER_S, self._left())))
        if theirs is None or theirs.get("found") is not True:
            why = "it has no %s" % self.program.name if theirs else "it did not say which NICs it has"
            data["left_out"].append({"peer": other, "why": why})
            return
        named = [str(label)[:40] for label in theirs.get("nics") or [] if isinstance(label, str)][:MOST_NICS]
        low, high = (own["nics"], named) if self.me < other else (named, own["nics"])
        rails, left = pairs(low, high)
        if left:
            data["left_out"].append({"peer": other, "why": "no NIC of this name on both: %s" % ", ".join(left)[:TEXT]})
        if not rails:
            return
        close = [own["gpu"], [label for label in theirs.get("gpu") or [] if isinstance(label, str)]]
        beside = close if self.me < other else close[::-1]
        ways = [edge] if self.program.name == PINGPONG else [edge, (edge[1], edge[0])]  # a ping-pong goes both ways
        both = [rail for rail in rails if rail[0] in beside[0] and rail[1] in beside[1]]
        for memory, chosen in ((HOST, rails), ("gpu", both)):
            for first, second in chosen:
                for sender, receiver in ways:
                    names = (first, second) if sender == edge[0] else (second, first)
                    yield Write(sender, receiver, names, memory)

    def _left(self) -> float:
        return min(self.ends - time.monotonic(), self.watch.left())

    # -- one write

    def _one(self, data: Dict[str, Any], write: Write) -> bool:
        """Send or receive; False where the other rank does not take part any more, or the time is up."""
        sends = write.sender == self.me
        other = write.receiver if sends else write.sender
        if self._left() < self.asked["seconds"]:
            why = "the time for all writes (%.0f s) was up" % self.asked["limit_s"]
            data["left_out"].append({"peer": other, "why": why})
            return False
        label = write.nics[0 if sends else 1]
        words = self.program.words(label)
        if write.memory != HOST:
            words += ["%s=%d" % (self.gpu[0], nearest(self.paths, label.partition(":")[0]) or 0), *self.gpu[1:]]
        if not sends:
            self._receive(write, words)
            return True
        record = {"peer": other, "nic": write.nics[0], "peer_nic": write.nics[1], "memory": write.memory}
        record.update(gbit_s=None, passed=None, far=None, error=None)
        ready = self.barrier.posted(write.topic, other, min(READY_S, self._left()))
        if ready is None:
            data["left_out"].append({"peer": other, "why": "it did not get ready for %s" % write.nics[1]})
            return False
        data["writes"].append(record)
        port = ready.get("port")
        record["far"] = ready.get("far") is True or self.program.far(write.nics[0])
        if isinstance(port, int):
            self._send(record, other, words, port)
        self.barrier.post(other, write.topic, {"over": True})
        if record["error"] or not isinstance(port, int):
            end = self.barrier.posted(write.topic + ".end", other, min(READY_S, self._left())) or {}
            parts = [str(each.get("error") or "")[:TEXT] for each in (record, ready, end)]
            record["error"] = plain("; ".join(filter(None, dict.fromkeys(parts))) or "the other rank did not listen")
        return True

    def _receive(self, write: Write, words: Sequence[str]) -> None:
        """Start the program, say where it listens, and end it when the sender is through."""
        over, port, limit_s = threading.Event(), _free_port(), min(self.asked["seconds"] + SPARE_S, self._left())
        answers: List[command.Answer] = []

        def serve() -> None:
            asked = [*words, "-B" if self.program.name == PINGPONG else "-p", str(port)]
            answers.append(self.program.run(asked, write.nics[1], limit_s, over.is_set))

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        until = time.monotonic() + LISTEN_S
        while server.is_alive() and not listens(port) and time.monotonic() < until and not self.watch.stopped():
            time.sleep(0.02)
        listening = server.is_alive() and listens(port)
        ready = {"port": port, "far": self.program.far(write.nics[1])} if listening else {"error": "it does not listen"}
        self.barrier.post(write.sender, write.topic, ready)
        if listening and self.barrier.posted(write.topic, write.sender, limit_s) is not None:
            server.join(END_S)  # it prints what it has seen, and ends by itself
        over.set()
        server.join(END_S)
        error = said(answers[0]) if answers and answers[0].exit != 0 else ""
        self.barrier.post(write.sender, write.topic + ".end", {"error": plain(error)})

    def _send(self, record: Dict[str, Any], other: int, words: Sequence[str], port: int) -> None:
        address = str(self.rendezvous.records[other]["address"])
        more = ["-P" if self.program.name == PINGPONG else "-p", str(port)]
        if ":" in address and self.program.name == WRITE:
            if "--ipv6-addr" not in self.program.help:
                record["error"] = "this ib_write_bw has no --ipv6-addr"
                return
            more.append("--ipv6-addr")
        elif ":" in address:
            more.append("-6")
        limit_s = max(1.0, min(self.asked["seconds"] + SPARE_S, self._left()))
        answer = self.program.run([*words, *more, address], record["nic"], limit_s, self.watch.stopped)
        text = answer.out.decode("utf-8", "replace")
        if self.program.name == PINGPONG:
            record["passed"] = answer.exit == 0 and any(map(PINGED.search, lines_of(text)))
            record["error"] = None if record["passed"] else plain(said(answer) or "exit code %s" % answer.exit)
            return
        record["gbit_s"] = read(text)
        if record["gbit_s"] is None or answer.exit != 0:
            record["gbit_s"] = None
            record["error"] = plain(said(answer) or "exit code %s, without a result" % answer.exit)


class ByRail:
    """The writes of two nodes of a sweep, rail by rail: one waits for each on a port that both know, one measures.

    Nothing but the coordinator connects the two. So what fails ends them: else one would wait for another NIC than the
    other writes from. The second way is the same run with the roles of the data exchanged (`--reversed`).
    """

    def __init__(self, program: Program, labels: Sequence[str], port: int, over: Callable[[], bool]) -> None:
        self.program, self.labels, self.port, self.over = program, labels, str(port), over
        self.limit_s = program.seconds + SPARE_S

    def serve(self) -> None:
        """Be written to, and write, until the other side is through or fails."""
        for label, way in self._runs():
            words = [*self.program.words(label), *way, "-p", self.port]
            if self.program.run(words, label, READY_S + self.limit_s, self.over).exit != 0:
                return

    def measure(self, address: str) -> Dict[str, List[float]]:
        """Return by NIC what went to the other node and what came, in Gb/s, as far as it was measured."""
        values: Dict[str, List[float]] = {}
        for label, way in self._runs():
            value = self._value([*self.program.words(label), *way, "-p", self.port, address], label)
            if value is None:
                break
            values.setdefault(label, []).append(value)
        return values

    def _runs(self) -> Iterator[Tuple[str, List[str]]]:
        known = [label for label in self.labels if label in self.program.labels]
        return ((label, way) for label in known for way in ([], ["--reversed"]))

    def _value(self, words: Sequence[str], label: str) -> Optional[float]:
        """Run it as soon as the other side listens."""
        until = time.monotonic() + READY_S
        while not self.over():
            answer = self.program.run(words, label, self.limit_s, self.over)
            if NOT_YET not in answer.err or time.monotonic() >= until:
                return read(answer.out.decode("utf-8", "replace")) if answer.exit == 0 else None
            time.sleep(0.1)
        return None


def nearest(paths: Sequence[Mapping[str, Any]], nic: str) -> Optional[int]:
    """Return the GPU that a NIC shares a PCIe switch with, the nearest and first; None where there is none.

    Elsewhere the CPU's root complex is between them, whose rate is not the port's.
    """
    order = {"PIX": 0, "PXB": 1}
    near = [(order[each["path"]], int(each["gpu"])) for each in paths if each["nic"] == nic and each["path"] in order]
    return min(near)[1] if near else None


def local_cpus(device: str, root: str = "/") -> Set[int]:
    """Return the CPUs of a NIC's NUMA node: "0-23,48-71" (docs.kernel.org, ABI sysfs-bus-pci, local_cpulist)."""
    cpus: Set[int] = set()
    text = first_line(os.path.join(root, "sys/class/infiniband", device, "device/local_cpulist")) or ""
    for first, last in re.findall(r"(\d{1,5})(?:-(\d{1,5}))?", text):
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _free_port() -> int:
    """Return a port that the kernel has free: NCCL listens on such ones, too (stages/transfer.py)."""
    with socket.socket() as line:
        line.bind(("", 0))
        return int(line.getsockname()[1])


def listens(port: int) -> bool:
    """Say whether something listens on a port; a connection would be taken for the sender's."""
    ending = re.compile(r"^\s*\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A " % port, re.MULTILINE)
    tables = (content(path, 1 << 20).decode("ascii", "replace") for path in ("/proc/net/tcp", "/proc/net/tcp6"))
    return any(ending.search(table) for table in tables)


def read(text: str) -> Optional[float]:
    """Return the average of ib_write_bw's last row in Gb/s; lines that warn may stand in its table."""
    unit = UNIT.search(text)
    rows = [match for match in map(ROW.search, lines_of(text[unit.end() :])) if match] if unit else []
    if unit is None or not rows or unit.group(1) not in GBIT_S:
        return None
    return round(float(rows[-1].group(4)) * GBIT_S[unit.group(1)], 2)


def lines_of(text: str) -> List[str]:
    """Return the lines that are short enough to be read."""
    return [line for line in text.splitlines() if len(line) <= LONGEST_LINE]


def said(answer: command.Answer) -> str:
    """Return what a program says of its failure: its errors, without the frame of the test and its settings."""
    lines = lines_of((answer.err + b"\n" + answer.out).decode("utf-8", "replace"))
    errors = [" ".join(line.split()) for line in lines if not NO_ERROR.search(line) and not ROW.search(line)]
    return "; ".join([*([answer.error] if answer.error else []), *dict.fromkeys(errors)])


def plain(text: str) -> str:
    """Return a text as one bounded line without credentials."""
    return redact.redact(" ".join(text[: 4 * TEXT].split()))[:TEXT]
