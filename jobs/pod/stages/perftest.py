"""RDMA writes between neighbouring ranks, before NCCL: perftest's ib_write_bw from each NIC to the peer's, both ways.

Only one write at a time runs between a pair of ranks, so that each NIC has the full link. The ranks coordinate through
the rendezvous's connections. The receiver starts the program on a port that the kernel chose and sends its number; the
sender measures. With EFA, whose NICs lack such writes, libfabric's fi_pingpong tests whether messages pass; it measures
no bandwidth.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import command
from .barrier import Barrier
from .files import content
from .rdmaprogram import MOST_NICS, PINGPONG, SPARE_S, TEXT, WRITE, Program, pinged, plain, read, said
from .rendezvous import Rendezvous

TOPIC, MEET = "perftest", "perftest.meet"
HOST = "host"
OFFER_S = 15.0  # for the other rank to finish the previous stage
LISTEN_S, READY_S = 8.0, 20.0  # for the program to listen; for the other rank to finish the last write and report it
END_S = 3.0


class Write(NamedTuple):
    """One write: from the sender's NIC to the receiver's, each with its GPU if GPU memory is written."""

    sender: int
    receiver: int
    nics: Tuple[str, str]
    memory: str

    @property
    def topic(self) -> str:
        """The topic under which both ranks exchange messages."""
        return "%s.%d.%s.%s" % (TOPIC, self.sender, self.nics[0], self.memory)


def blank() -> Dict[str, Any]:
    """Return the stage's keys, all unknown."""
    return {"tool": None, "found": None, "gpu_memory": None, "nics": [], "writes": [], "left_out": [], "error": None}


def pairs(mine: Sequence[str], theirs: Sequence[str]) -> Tuple[List[Tuple[str, str]], List[str]]:
    """Return the NIC pairs that form rails, and the unpaired NICs; pair by name, or by order if no name is shared."""
    if len(mine) == len(theirs) and not set(mine) & set(theirs):
        return list(zip(mine, theirs)), []
    both = [name for name in mine if name in theirs]
    return [(name, name) for name in both], sorted((set(mine) | set(theirs)) - set(both))


def edges(rank: int, nodes: int) -> List[Tuple[int, int]]:
    """Return this rank's pairs of neighbours in the common order: first (0, 1), (2, 3), ..., then (1, 2), ..."""
    known = [(low, low + 1) for low in (rank - 1, rank) if low >= 0 and low + 1 < nodes]
    return sorted(known, key=lambda edge: edge[0] % 2)


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
        """Prepare; `paths`: the distance of each GPU to each NIC, from the topology stage."""
        self.rendezvous, self.barrier, self.asked, self.paths = rendezvous, barrier, asked, paths
        self.me, self.watch, self.program = rendezvous.me.rank, rendezvous.watch, program
        self.gpu: List[str] = []
        self.ends = 0.0

    def run(self, data: Dict[str, Any]) -> str:
        """Fill the `perftest` stage's data; a missing program is a result, not an error."""
        self.ends = time.monotonic() + min(self.asked["limit_s"], self.watch.left())
        program = self.program
        data.update(tool=program.name, found=bool(program.path), nics=program.labels)
        flags = program.gpu_memory(self.rendezvous.trial.gpu_kind)
        self.gpu = flags if self.asked["gpu"] else []
        near = [nic.label for nic in program.nics if self.gpu and nearest(self.paths, nic.name) is not None]
        data["gpu_memory"] = bool(near)
        offer = {"found": data["found"], "nics": data["nics"], "gpu": near}
        around = edges(self.me, self.rendezvous.trial.nodes)
        for edge in around:
            self.barrier.post(sum(edge) - self.me, TOPIC, offer)
        for edge in around:
            for write in self._planned(data, edge, offer):
                if not self._one(data, write):
                    break
        # A rank that has finished waits for the others: their writes share links with the collectives.
        self.barrier.through(TOPIC, self.ends + SPARE_S - time.monotonic())
        if not program.path:
            return "skipped"
        wrong = data["error"] or data["left_out"] or any(each["error"] for each in data["writes"])
        return "failed" if wrong else "ok"

    def _planned(self, data: Dict[str, Any], edge: Tuple[int, int], own: Mapping[str, Any]) -> Iterator[Write]:
        """Yield the writes between this rank and a neighbour: those that both support, in the same order on both."""
        other = sum(edge) - self.me
        if not own["found"]:
            return
        theirs = self.barrier.posted(TOPIC, other, max(0.0, min(OFFER_S, self._left())))
        if theirs is None or theirs.get("found") is not True:
            why = "it has no %s" % self.program.name if theirs else "it did not report its NICs"
            data["left_out"].append({"peer": other, "why": why})
            return
        named = [str(label)[:40] for label in theirs.get("nics") or [] if isinstance(label, str)][:MOST_NICS]
        low, high = (own["nics"], named) if self.me < other else (named, own["nics"])
        rails, left = pairs(low, high)
        if left:
            data["left_out"].append({"peer": other, "why": "no NIC of this name on both: %s" % ", ".join(left)[:TEXT]})
        if not rails:
            return
        # It is ready only from now on: this rank, or the other, may have been busy with another neighbour for a minute.
        self.barrier.post(other, MEET, {"here": True})
        if self.barrier.posted(MEET, other, max(0.0, self._left())) is None:
            data["left_out"].append({"peer": other, "why": "it had not finished with its other neighbour in time"})
            return
        close = [own["gpu"], [label for label in theirs.get("gpu") or [] if isinstance(label, str)]]
        ordered = close if self.me < other else close[::-1]
        ways = [edge] if self.program.name == PINGPONG else [edge, (edge[1], edge[0])]  # a ping-pong goes both ways
        both = [rail for rail in rails if rail[0] in ordered[0] and rail[1] in ordered[1]]
        for memory, chosen in ((HOST, rails), ("gpu", both)):
            for first, second in chosen:
                for sender, receiver in ways:
                    names = (first, second) if sender == edge[0] else (second, first)
                    yield Write(sender, receiver, names, memory)

    def _left(self) -> float:
        return min(self.ends - time.monotonic(), self.watch.left())

    # -- one write

    def _one(self, data: Dict[str, Any], write: Write) -> bool:
        """Send or receive; return False if the other rank no longer takes part, or the time is over."""
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
            end = self.barrier.posted(write.topic + ".end", other, min(READY_S, self._left()))
            parts = [str(each.get("error") or "")[:TEXT] for each in (record, ready, end or {})]
            record["error"] = plain("; ".join(filter(None, dict.fromkeys(parts))) or "the other rank did not listen")
            if end is None or end.get("stopped") is True or self.watch.stopped():
                record["error"] = "a pod was terminating, or gone"  # this also terminates the other rank's program
        return True

    def _receive(self, write: Write, words: Sequence[str]) -> None:
        """Start the program, send its port, and stop it when the sender has finished."""
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
            server.join(END_S)  # it prints its results, and exits by itself
        over.set()
        server.join(END_S)
        error = said(answers[0]) if answers and answers[0].exit != 0 else ""
        stopped = self.watch.stopped()
        self.barrier.post(write.sender, write.topic + ".end", {"error": plain(error), "stopped": stopped})

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
            record["passed"] = answer.exit == 0 and pinged(text)
            record["error"] = None if record["passed"] else plain(said(answer) or "exit code %s" % answer.exit)
            return
        record["gbit_s"] = read(text)
        if record["gbit_s"] is None or answer.exit != 0:
            record["gbit_s"] = None
            record["error"] = plain(said(answer) or "exit code %s, without a result" % answer.exit)


def nearest(paths: Sequence[Mapping[str, Any]], nic: str) -> Optional[int]:
    """Return the nearest and first GPU that shares a PCIe switch with a NIC; None without one.

    Otherwise the CPU's root complex is in between, and its rate differs from the port's.
    """
    order = {"PIX": 0, "PXB": 1}
    near = [(order[each["path"]], int(each["gpu"])) for each in paths if each["nic"] == nic and each["path"] in order]
    return min(near)[1] if near else None


def _free_port() -> int:
    """Return a port that the kernel has free: NCCL listens on such ports, too (stages/transfer.py)."""
    with socket.socket() as line:
        line.bind(("", 0))
        return int(line.getsockname()[1])


def listens(port: int) -> bool:
    """Return whether a process listens on a port, without connecting, which would start the measurement."""
    ending = re.compile(r"^\s*\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A " % port, re.MULTILINE)
    tables = (content(path, 1 << 20).decode("ascii", "replace") for path in ("/proc/net/tcp", "/proc/net/tcp6"))
    return any(ending.search(table) for table in tables)
