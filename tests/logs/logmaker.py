"""Makes NCCL logs of many versions, in the line forms of NCCL's source.

A job is a dict of processes, (host, pid) -> lines, so that tests can tag, interleave, split and truncate it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field


@dataclass
class Maker:
    """One job on some hosts; each field controls one part of the log."""

    version: str = "2.28.9+cuda13.0"
    hosts: tuple[str, ...] = ("gpu-node-0", "gpu-node-1")
    gpus: int = 2
    net: str = "IB"  # as "Using network" prints it
    link: str = "IB"  # link layer of the devices
    rails: int = 2
    gdr: bool = True
    channels: int = 2
    pxn: bool = False
    socket_ranks: tuple[int, ...] = ()  # ranks that found no device
    no_gdr_hosts: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    stop: str = ""  # "init": killed before Init COMPLETE, "channels": before the first collective
    comm_id: int = 0xFC119181E70BB2BA

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("+")[0].split("."))

    @property
    def ranks(self) -> int:
        return len(self.hosts) * self.gpus

    def host(self, rank: int) -> str:
        return self.hosts[rank // self.gpus]

    def pid(self, rank: int) -> int:
        return 1000 + 7 * rank

    def processes(self) -> dict[tuple[str, int], list[str]]:
        return {(self.host(rank), self.pid(rank)): self.lines(rank) for rank in range(self.ranks)}

    def lines(self, rank: int) -> list[str]:
        head = f"{self.host(rank)}:{self.pid(rank)}:{self.pid(rank)} [{rank % self.gpus}] NCCL INFO "
        return [
            head + text if not text.startswith("NCCL version") or self.number >= (2, 22) else text
            for text in self.texts(rank)
        ]

    def texts(self, rank: int) -> list[str]:
        new = self.number
        where = f"eth0:10.0.0.{self.hosts.index(self.host(rank)) + 1}<0>"
        out = [f"{name} set by environment to {value}." for name, value in self.env.items()]
        if new >= (2, 24):
            out.append(f"Bootstrap: Using {where}")
        elif new >= (2, 8):
            out.append(f"Bootstrap : Using {where}")
        elif new >= (2, 4, 8):
            out.append(f"Bootstrap : Using [0]{where}")
        else:
            out.append(f"NET/Socket : Using [0]{where}")
        if new >= (2, 22) or rank == 0:
            out.append(f"NCCL version {self.version}")
        out += self.network(rank, where)
        comm = f"comm 0x55{rank:06x}"
        ident = f" commId 0x{self.comm_id:016x}" if new >= (2, 16) else ""
        verb = "ncclCommInitRank " if new >= (2, 21) else ""
        if new >= (2, 18, 3):
            out.append(
                f"{verb}{comm} rank {rank} nranks {self.ranks} cudaDev {rank % self.gpus} nvmlDev {rank % self.gpus} busId 1a000{ident} - Init START"
            )
        if self.stop == "init":
            return out
        if new >= (2, 20):
            out.append(
                f"{comm} rank {rank} nRanks {self.ranks} nNodes {len(self.hosts)} localRanks {self.gpus} localRank {rank % self.gpus} MNNVL 0"
            )
        if new >= (2, 5) and rank == 0:
            out.append(f"Channel 00/{self.channels:02d} :" + "".join(f" {item:4d}" for item in range(self.ranks)))
        done = f"{verb}{comm} rank {rank} nranks {self.ranks} cudaDev {rank % self.gpus} busId 1a000{ident} - Init COMPLETE"
        edges = [] if self.stop == "channels" else self.edges(rank)
        lazy = new >= (2, 22)
        out += [done, *edges] if lazy else [*edges, done]
        if self.stop == "channels":
            return out
        if new >= (2, 24):
            out.append(
                f"Connected all rings, use ring PXN {int(self.pxn)} GDR {int(self.gdr and rank not in self.socket_ranks)}"
            )
        elif new >= (2, 8):
            out.append("Connected all rings")
        out.append(f"{comm} rank {rank} nranks {self.ranks} cudaDev {rank % self.gpus} busId 1a000 - Destroy COMPLETE")
        return out

    def network(self, rank: int, where: str) -> list[str]:
        new, out = self.number, []
        if self.net in ("IB", "Socket"):
            out.append(
                "NET/Plugin: Could not find: libnccl-net.so"
                if new >= (2, 22)
                else "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation"
            )
        if rank in self.socket_ranks or self.net == "Socket":
            out.append("NET/IB : No device found.")
            if new >= (2, 24):
                out.append(f"NET/IB : Using [RO]; OOB {where}")
            out.append(f"NET/Socket : Using [0]{where}")
            name = "Socket"
        elif self.net in ("AWS Libfabric", "Libfabric"):
            out.append("NET/OFI Selected provider is efa, fabric is efa (found 32 nics)")
            name = self.net
        else:
            devices = " ".join(f"[{index}]mlx5_{index}:1/{self.link}" for index in range(self.rails))
            out.append(f"NET/IB : Using {devices} [RO]; OOB {where}")
            name = self.net
        if new >= (2, 6, 4):
            out.append(f"Using network {name}")
        return out

    def edges(self, rank: int) -> list[str]:
        left, right = (rank - 1) % self.ranks, (rank + 1) % self.ranks
        out = []
        for channel in range(self.channels):
            for src, dst in ((left, rank), (rank, right)):
                if src == dst:
                    continue
                same_host = self.host(src) == self.host(dst)
                if same_host and dst == rank:
                    continue
                out.append(self.edge(channel, src, dst, rank, same_host))
        return out

    def edge(self, channel: int, src: int, dst: int, rank: int, same_host: bool) -> str:
        new = self.number
        word = "Ring" if new < (2, 7) else "Channel"
        number = f"{channel:02d}/0" if new >= (2, 12) else f"{channel:02d}"
        mark = (
            (lambda item: f"{item}[{item % self.gpus}]")
            if new >= (2, 18)
            else (lambda item: f"{item}[{(item + 1) * 0x1A000:x}]")
            if new >= (2, 5)
            else str
        )
        text = f"{word} {number} : {mark(src)} -> {mark(dst)}"
        if same_host:
            return text + (" via P2P/CUMEM/read" if new >= (2, 18) else " via P2P/IPC")
        side = "[receive]" if dst == rank else "[send]"
        socket = rank in self.socket_ranks or self.net == "Socket"
        net = "Socket" if socket else self.net
        device = 0 if socket else channel % self.rails
        proxy = f"({rank + 1})" if self.pxn and not socket else ""
        gdr = "/GDRDMA" if self.gdr and not socket and self.host(rank) not in self.no_gdr_hosts else ""
        return f"{text} {side} via NET/{net}/{device}{proxy}{gdr}"


TABLE = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    69.55   15.08   26.38       0    68.58   15.29   26.76       0
  1073741824     268435456     float     sum      -1   12234    87.77  153.60       0   12227    87.82  153.68       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 90.105
#
# Collective test concluded: all_reduce_perf
"""


def table_of(maker: Maker) -> list[str]:
    """Return the benchmark's output of a job, its rank list first."""
    lines = [
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1073741824 step: 1024(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    for rank in range(maker.ranks):
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {maker.pid(rank):6d} on {maker.host(rank):>10} device {rank % maker.gpus:2d} [0000:{rank % maker.gpus + 16:02x}:00] NVIDIA H100"
        )
    return lines + TABLE.splitlines()


def sequential(processes: dict[tuple[str, int], list[str]]) -> bytes:
    """Return the processes one after the other."""
    return "".join(line + "\n" for lines in processes.values() for line in lines).encode()


def interleaved(processes: dict[tuple[str, int], list[str]], seed: int) -> bytes:
    """Return the processes' lines mixed, each process in its own order."""
    rng = random.Random(seed)
    queues = [list(lines) for lines in processes.values()]
    out = []
    while any(queues):
        out.append(rng.choice([queue for queue in queues if queue]).pop(0))
    return "".join(line + "\n" for line in out).encode()


def averaged(text: str) -> str:
    """Return a table's log with the average of its rows: busbw of both sides, as in nccl-tests."""
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+[a-z]", line)]
    printed = [fields[at] for fields in rows for at in (-6, -2)]
    values = [float(value) for value in printed if re.match(r"-?[\d.]+\Z", value)]
    return re.sub(r"(Avg bus bandwidth\s*:) \S+", rf"\1 {sum(values) / len(values):g}", text)


def with_busbw(table: list[str], busbw: float, size: int = 1 << 30, factor: float = 1.75) -> list[str]:
    """Return a table with this bus bandwidth in its largest row, and the matching time and algorithm bandwidth."""
    side = f"{size * factor / busbw / 1e3:.2f} {busbw / factor:.3f} {busbw:.3f} 0"
    row = f"  {size}  {size // 4}  float  sum  -1  {side}  {side}".replace(" ", "  ")
    changed = [row if line.lstrip().startswith("1073741824 ") else line for line in table]
    return averaged("\n".join(changed)).splitlines()


def before_the_end(log: str, line: str) -> str:
    """Insert a line before the last three of a log, since after the benchmark's end it would be a process's last."""
    lines = log.splitlines(keepends=True)
    return "".join([*lines[:-3], line + "\n", *lines[-3:]])
