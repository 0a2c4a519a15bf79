"""The log of NCCL 2.28.9 for one rank, from its first line to the last.

Line formats, their order and their subsystems are as recorded with NCCL 2.28.9 under torch 2.11. The parts that a
single-GPU recording lacks (NICs, GPUDirect, rails, NVLink SHARP) are as in published logs of two H100 nodes.
`NCCL_DEBUG` (unset prints nothing), `NCCL_DEBUG_SUBSYS` and `NCCL_DEBUG_FILE` (%h, %p) act as in the real library.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from .net import Line, nic_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from . import topology

_LEVELS = {"": 0, "NONE": 0, "VERSION": 1, "WARN": 2, "INFO": 3, "ABORT": 3, "TRACE": 4}
_SUBSYSTEMS = [
    "INIT",
    "COLL",
    "P2P",
    "SHM",
    "NET",
    "GRAPH",
    "TUNING",
    "ENV",
    "ALLOC",
    "CALL",
    "PROXY",
    "NVLS",
    "BOOTSTRAP",
    "REG",
    "PROFILE",
    "RAS",
]
# The subsystems that are shown if NCCL_DEBUG_SUBSYS is not set (since NCCL 2.23).
_DEFAULT = {"INIT", "BOOTSTRAP", "ENV"}
# Variables that configure the log itself, or are printed where they are read.
_PRINTED_ELSEWHERE = {
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DEBUG_FILE",
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_SOCKET_IFNAME",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_HOSTID",
}


def shown(env: Mapping[str, str]) -> set:  # type: ignore[type-arg]  # set[str] does not exist in Python 3.8
    """Return the subsystems in `NCCL_DEBUG_SUBSYS`."""
    spec = env.get("NCCL_DEBUG_SUBSYS", "")
    if not spec:
        return set(_DEFAULT)
    names = {name.strip().upper() for name in spec.lstrip("^").split(",")}
    if spec.startswith("^"):
        return set() if "ALL" in names else set(_SUBSYSTEMS) - names
    return set(_SUBSYSTEMS) if "ALL" in names else names & set(_SUBSYSTEMS)


class RankLog:
    """The log of one rank, written to the file in `NCCL_DEBUG_FILE`, else to standard output."""

    def __init__(self, env: Mapping[str, str], *, host: str, pid: int, device: int, limit: int | None = None) -> None:
        """`limit`: bytes after which the file system is full."""
        self.level = _LEVELS.get(env.get("NCCL_DEBUG", "").upper(), 0)
        self.subsystems = shown(env)
        self.host, self.pid, self.device = host.split(".", 1)[0], pid, device
        self.left = limit
        self.file: TextIO | None = None
        path = env.get("NCCL_DEBUG_FILE", "")
        if path and self.level > 1:
            path = path.replace("%h", self.host).replace("%p", str(pid)).replace("%%", "%")
            try:
                self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed by close()
            except OSError:
                self.file = None  # then NCCL logs to standard output
        self.out: TextIO = self.file or sys.stdout
        # Since NCCL 2.26: the levels with a timestamp, and its format (by default that of WARN lines).
        levels = env.get("NCCL_DEBUG_TIMESTAMP_LEVELS", "WARN").upper().split(",")
        self.stamped = bool({"ALL", "INFO"}.intersection(levels))
        self.stamp = env.get("NCCL_DEBUG_TIMESTAMP_FORMAT", "[%F %T] ").replace("_", " ")

    def note(self, subsystems: str, text: str, thread: int = 0) -> None:
        """Write one INFO line, if its level and one of its subsystems are shown."""
        if self.level >= 3 and self.subsystems.intersection(subsystems.split()):
            when = time.strftime(self.stamp) if self.stamped else ""
            self._write(f"{when}{self.host}:{self.pid}:{self.pid + thread} [{self.device}] NCCL INFO {text}\n")

    def alarm(self, place: str, text: str) -> None:
        """Write one WARN line, preceded by an empty line and the time."""
        if self.level >= 2:
            now = time.strftime(self.stamp)
            self._write(f"\n{now}{self.host}:{self.pid}:{self.pid} [{self.device}] {place} NCCL WARN {text}\n")

    def bare(self, text: str) -> None:
        """Write a line without prefix (the version below INFO)."""
        self._write(text + "\n")

    def lines(self, lines: Iterable[Line]) -> None:
        """Write the lines that the choice of a network returned."""
        for subsystems, text in lines:
            if subsystems == "WARN":
                place, _, message = text.partition("|")
                self.alarm(place, message)
            else:
                self.note(subsystems, text)

    def close(self) -> None:
        """Flush, and close the file if there is one."""
        self.out.flush()
        if self.file:
            self.file.close()

    def _write(self, text: str) -> None:
        if self.left is not None:
            text, self.left = text[: self.left], max(0, self.left - len(text))
        self.out.write(text)


def begin(log: RankLog, job: Mapping[str, Any], rank: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """Write the lines from the first to the choice of the network."""
    version = rank["nccl"]
    library = "RCCL" if rank.get("vendor") == "amd" else "NCCL"
    if log.level in (1, 2) or (library == "RCCL" and log.level >= 1):  # RCCL never prefixes it
        if rank["rank"] == 0:
            log.bare(library + " version " + version)
        if library == "NCCL":
            return
    log.note("INIT ENV", "ENV/Plugin: Could not find: libnccl-env.so")
    if env.get("NCCL_SOCKET_IFNAME"):
        log.note("ENV", "NCCL_SOCKET_IFNAME set by environment to " + env["NCCL_SOCKET_IFNAME"])
    if rank["interface"]:
        log.note("BOOTSTRAP", "Bootstrap: Using {}:{}<0>".format(*rank["interface"]))
    if library == "RCCL":  # as in a published log of two MI250 nodes
        log.note("INIT", "Kernel version: 6.8.0-85-generic")
        log.note("INIT", "ROCr version 1.14")
    else:
        log.note("INIT", "cudaDriverVersion " + job["cuda_driver"])
        log.note("INIT", "NCCL version " + version)
    for name in sorted(env):
        if name.startswith("NCCL_") and name not in _PRINTED_ELSEWHERE and env[name]:
            number = env[name].lstrip("-").isdigit()
            log.note("ENV", "{} set by environment to {}{}".format(name, env[name], "." if number else ""))
    log.note("INIT ENV", "Comm config Blocking set to 1")


def say(log: RankLog, behaviour: Mapping[str, Any], rank: Mapping[str, Any], when: str, node: str) -> None:
    """Write the additional lines that the world defines for this rank at this point."""
    for line in behaviour.get("says") or ():
        if line.get("when", "network") != when or node not in (line.get("nodes") or (node,)):
            continue
        if rank["rank"] not in (line.get("ranks") or (rank["rank"],)):
            continue
        if line.get("level", "INFO") == "WARN":
            log.alarm(line.get("place", "misc/socket.cc:57"), line["text"])
        else:
            log.note(line.get("subsystem", "INIT"), line["text"])


def fail(log: RankLog) -> None:
    """Write the trace-back of a rank without a usable network (recorded with NCCL_NET=IB)."""
    for place in ("init.cc:421", "init.cc:1572"):
        log.note("INIT", place + " -> 5")
    log.note("INIT", "group.cc:76 -> 5 [Async thread]")
    for place in ("group.cc:537", "group.cc:743", "init.cc:2162"):
        log.note("INIT", place + " -> 5")


def initialise(log: RankLog, job: Mapping[str, Any], rank: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """Write the lines from `Init START` to `Init COMPLETE` and its timings."""
    plan = job["plan"]
    number, local = rank["rank"], rank["local"]
    who = "comm {comm} rank {rank} nranks {ranks} cudaDev {local} nvmlDev {local} busId {bus} commId {id}".format(
        comm=rank["comm"], rank=number, ranks=plan.ranks, local=local, bus=rank["bus"], id=job["comm_id"]
    )
    if rank["devices"]:
        log.note("INIT", f"DMA-BUF is available on GPU device {local}")
    log.note("INIT", f"ncclCommInitRankConfig {who} - Init START")
    if env.get("NCCL_HOSTID"):
        log.note("ENV", "NCCL_HOSTID set by environment to " + env["NCCL_HOSTID"])
    log.note("INIT RAS", "RAS client listening socket at 127.0.0.1<28028>")
    log.note(
        "BOOTSTRAP",
        f"Bootstrap timings total 0.0{number % 7 + 2}1{local}47 (create 0.000031, send 0.000114, "
        f"recv 0.0{number % 7 + 1}8{local}02, ring 0.00{local}544, delay 0.000001)",
    )
    _graph(log, job, rank)
    if rank.get("clique"):  # formats: NVIDIA/nccl#1769, GB200
        log.note(
            "INIT", f"MNNVL busId 0x{rank['bus']} fabric UUID {rank['clique']} cliqueId 0x7ffe state 3 healthMask 0xaa"
        )
    if job.get("mnnvl"):
        log.note("INIT", f"MNNVL 1 cliqueId 7ffe cliqueSize {plan.ranks} cliqueRank {number}")
    log.note(
        "INIT",
        "comm {} rank {} nRanks {} nNodes {} localRanks {} localRank {} MNNVL {}".format(
            rank["comm"], number, plan.ranks, plan.nodes, plan.local, number % plan.local, 1 if job.get("mnnvl") else 0
        ),
    )
    if rank["nvls"]:
        for head in range(plan.local):
            row = " ".join(f"{node * plan.local + head:2d}" for node in range(plan.nodes))
            log.note("INIT", f"NVLS Head {head:2d}: {row}")
    _neighbours(log, plan, number)
    log.note("INIT", "P2P Chunksize set to " + ("131072" if plan.nodes > 1 else "524288"))
    log.note("INIT", "PROFILER/Plugin: Could not find: libnccl-profiler.so")
    log.note(
        "INIT",
        "Check P2P Type isAllDirectP2p {0} directMode 0 isAllCudaP2p {0}".format(
            1 if rank["intra"].startswith("P2P") else 0
        ),
    )
    log.note("INIT", f"[Proxy Service] Device {local} CPU core {rank['core']}", thread=40 + local)
    log.note("INIT", f"[Proxy Service UDS] Device {local} CPU core {rank['core'] + 1}", thread=42 + local)
    log.note("INIT", "TUNER/Plugin: Could not find: libnccl-tuner.so")
    for name in ("NCCL_PROTO", "NCCL_ALGO"):
        if env.get(name):
            log.note("ENV", f"{name} set by environment to {env[name]}")
    log.note("INIT", f"threadThresholds 8/8/64 | {plan.ranks * 8}/8/64 | 512 | 512")
    log.note(
        "INIT",
        "{0} coll channels, {0} collnet channels, {1} nvls channels, {0} p2p channels, 2 p2p channels per peer".format(
            plan.channels, plan.channels if rank["nvls"] else 0
        ),
    )
    if number == 0:
        log.note("INIT", "CC Off, workFifoBytes 1048576")
    log.note("INIT", f"ncclCommInitRankConfig {who} - Init COMPLETE")
    parts = f"alloc 0.04, bootstrap 0.0{number % 7 + 2}, allgathers 0.01, topo 0.31, graphs 0.06, connections 0.12"
    log.note(
        "INIT PROFILE",
        f"Init timings - ncclCommInitRankConfig: rank {number} nranks {plan.ranks} total "
        f"1.{local}4 (kernels 0.31, {parts}, rest 0.02)",
    )


def _graph(log: RankLog, job: Mapping[str, Any], rank: Mapping[str, Any]) -> None:
    plan, local, nics = job["plan"], rank["local"], len(rank["devices"])
    buses = job["buses"][rank["node"]]
    nearest = [nic_of(rank["devices"], gpu) for gpu in range(len(buses))]
    rate = rank["devices"][0]["rate_gbps"] / 8 if nics else 1.2
    log.note("GRAPH", f"=== System : maxBw {rate:.1f} totalBw 480.0 ===")
    for gpu, bus in enumerate(buses):
        log.note("GRAPH", f"+ PCI[48.0] - GPU/0-{bus} ({rank['rank'] - local + gpu})")
        if rank["nvls"] or plan.local > 1:
            log.note("GRAPH", "            + NVL[360.0] - NVS/0")
        if nics:
            device = rank["devices"][nearest[gpu]]
            log.note("GRAPH", f"            + NET[{device['rate_gbps'] / 8:.1f}] - NET/0-{nearest[gpu]}")
    log.note("GRAPH", "==========================================")
    distance = "Enabled" if rank["gdr"] else "Disabled"
    for index in range(nics):
        near = nearest[local] == index
        text = f"(distance {4 if near else 7} <= {5 if near else 7}), read 1 mode Default"
        if near:
            log.note("NET", f"GPU Direct RDMA {distance} for GPU {local} / HCA {index} {text}")
    cpus = rank["cpus"]
    log.note(
        "INIT",
        f"ncclTopoGetCpuAffinity: Affinity for GPU {local} is {cpus}. (GPU affinity = {cpus} ; CPU affinity = 0-191).",
    )
    if rank["nvls"]:
        log.note("INIT", f"NVLS multicast support is available on dev {local} (NVLS_NCHANNELS 16)")
    kind = "NVL/PIX" if nics else "NVL/PHB"
    for pattern in (4, 3, 5) if rank["nvls"] else (4, 3):
        log.note(
            "GRAPH",
            f"Pattern {pattern}, crossNic 0, nChannels {plan.channels // 2}, bw {rate:.6f}/{rate:.6f}, "
            f"type {kind}, sameChannels 0",
        )


def _neighbours(log: RankLog, plan: topology.Plan, number: int) -> None:
    for channel, tree in enumerate(plan.trees):
        place = tree[number]
        log.note("GRAPH", "Tree {} : {} -> {} -> {}/{}/{}".format(channel, place.up, number, *place.down))
    if number == 0:
        for channel, ring in enumerate(plan.rings):
            start = ring.index(0)
            order = " ".join(str(each) for each in ring[start:] + ring[:start])
            log.note("INIT", f"Channel {channel:02d}/{plan.channels:02d} : {order}")
    for channel, ring in enumerate(plan.rings):
        at = ring.index(number)
        log.note("GRAPH", f"Ring {channel:02d} : {ring[at - 1]} -> {number} -> {ring[(at + 1) % len(ring)]}")
    trees = " ".join(
        "[{}] {}/{}/{}->{}->{}".format(c, *tree[number].down, number, tree[number].up)
        for c, tree in enumerate(plan.trees)
    )
    log.note("INIT", "Trees " + trees)


def connect(
    log: RankLog, job: Mapping[str, Any], rank: Mapping[str, Any], connections: list[tuple[str, list[topology.Hop]]]
) -> None:
    """Write the connections one after the other: "rings", "trees" or "nvls", each with all hops of all ranks."""
    for what, hops in connections:
        _ends(log, job, rank, hops)
        _connected(log, rank, what, pxn=any(hop.proxy is not None for hop in hops))


def _ends(log: RankLog, job: Mapping[str, Any], rank: Mapping[str, Any], hops: list[topology.Hop]) -> None:
    """Write the transport lines of this rank's ends of `hops`: receives over the network, then sends."""
    number, plan = rank["rank"], job["plan"]

    # RCCL prints the communicator after every connection.
    tail = " comm {} nRanks {:02d}".format(rank["comm"], plan.ranks) if rank.get("vendor") == "amd" else ""

    def at(other: int) -> str:
        return "{}[{}]".format(other, job["ranks"][other]["local"])

    def over_network(hop: topology.Hop, direction: str) -> str:
        nic = nic_of(rank["devices"], hop.rail or 0)
        proxy = f"({hop.proxy})" if direction == "send" and hop.proxy is not None and rank["network"] == "IB" else ""
        suffix = "/GDRDMA" if rank["gdr"] else ""
        return f"[{direction}] via NET/{rank['network']}/{nic}{proxy}{suffix}{tail}"

    for hop in hops:
        if hop.target == number and hop.rail is not None:
            log.note(
                "INIT NET",
                "Channel {:02d}/0 : {} -> {} {}".format(
                    hop.channel, at(hop.source), at(number), over_network(hop, "receive")
                ),
            )
    for hop in hops:
        if hop.source == number and hop.rail is not None:
            log.note(
                "INIT NET",
                "Channel {:02d}/0 : {} -> {} {}".format(
                    hop.channel, at(number), at(hop.target), over_network(hop, "send")
                ),
            )
    for hop in hops:
        if hop.source == number and hop.rail is None:
            log.note(
                "INIT P2P SHM",
                "Channel {:02d}/0 : {} -> {} via {}".format(
                    hop.channel,
                    at(number),
                    at(hop.target),
                    (rank["intra"] if job["ranks"][hop.target]["node"] == rank["node"] else "P2P/MNNVL") + tail,
                ),
            )


def _connected(log: RankLog, rank: Mapping[str, Any], what: str, *, pxn: bool) -> None:
    if what == "rings":
        gdr = 1 if rank["gdr"] else 0
        log.note("INIT", f"Connected all rings, use ring PXN {1 if pxn else 0} GDR {gdr}")
    elif what == "trees":
        log.note("INIT", "Connected all trees")
    else:
        log.note(
            "INIT NVLS",
            f"NVLS comm {rank['comm']} headRank {rank['local']} nHeads 8 nvlsRanks 8 buffSize "
            "1048576 nvlsPerRankSize 201326592 nvlsTotalSize 1610612736",
        )
        log.note("INIT", "Connected NVLS tree")


def finish(log: RankLog, job: Mapping[str, Any], rank: Mapping[str, Any]) -> None:
    """Write the last lines of a successful run."""
    log.note(
        "INIT",
        "comm {} rank {} nranks {} cudaDev {} busId {} - Destroy COMPLETE".format(
            rank["comm"], rank["rank"], job["plan"].ranks, rank["local"], rank["bus"]
        ),
    )
    log.note("INIT ENV", "ENV/Plugin: Closing env plugin ncclEnvDefault")
