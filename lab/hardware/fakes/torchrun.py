"""Fake torchrun: a collective over the GPUs of a pod.

Simulates `torchrun` and the bench that it launches: the rendezvous is real TCP, the ranks are simulated. Each rank
chooses its network by the environment and the devices of its pod, writes NCCL's log, and rank 0 prints the bench's
table. The faults of the world (`collective` in the node's state) take effect here.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from . import bench, checkpoint, deaths, failures, nccllog, net, paths, state, topology, traffic, training
from .options import Options, UsageError, parse
from .rendezvous import Rendezvous, RendezvousError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Timeout in seconds: torch's default for the static rendezvous.
_TIMEOUT_S = 600


def main(arguments: list[str] | None = None) -> int:
    """Run the job on this node; return torchrun's exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments, os.environ)
    except UsageError as error:
        print(f"usage: torchrun [options] training_script ...\ntorchrun: error: {error}", file=sys.stderr)
        return 2
    world = state.load()
    world["mnnvl"] = world.get("mnnvl") if options.nodes > 1 else None  # inside a node no rank needs an IMEX channel
    if options.nodes > 1:  # an image's own wrapper of torchrun may set another number of processes
        options = options._replace(local=int(world["collective"].get("processes", options.local)))
    failures.announce_threads(options.local)
    me = describe_node(options, world)
    if not _on_cpus() and options.local > len(world["gpus"]):
        return failures.invalid_device(options, me, len(world["gpus"]))
    rendezvous = Rendezvous(options.address, options.port, options.node, options.nodes, options.timeout_s or _TIMEOUT_S)
    try:
        if checkpoint.asked_for(options):
            return checkpoint.play(sys.argv[1:], options, rendezvous, world)
        job = agree(rendezvous.all_gather(me), options, world)
        perform = training.play if options.program == "train" else play
        code = perform(job, options, world, [rank for rank in job["ranks"] if rank["node"] == options.node])
        rendezvous.barrier()
    except RendezvousError as error:
        return failures.rendezvous(str(error))
    finally:
        rendezvous.close()
    return code


def describe_node(options: Options, world: Mapping[str, Any]) -> dict[str, Any]:
    """Return this node's data for the other nodes: its ranks with their networks."""
    host, interfaces = world.get("hostname") or socket.gethostname(), _interfaces(options, world)
    oob = net.pick_interface(os.environ, interfaces)
    ranks = []
    for local in range(options.local):
        number = options.node * options.local + local
        gpu = world["gpus"][local] if local < len(world["gpus"]) else {"bus_id": "00000000:00:00.0", "cpus": "0-95"}
        choice = net.choose(os.environ, world, number, interfaces)
        domain, bus, slot = gpu["bus_id"].split(":")
        device, function = slot.split(".")
        ranks.append(
            {
                "rank": number,
                "local": local,
                "node": options.node,
                "host": host.split(".", 1)[0],
                "pid": os.getpid() + 2 + local * 2,
                "core": 2 + local * 3,
                "comm": "0x" + _digest(host, number)[:8],
                "vendor": world["gpu"].get("vendor", "nvidia"),
                "clique": (world.get("mnnvl") or {}).get("clique", ""),
                "bus": f"{int(bus + device + function, 16):x}",
                "pci": f"{domain[-4:]}:{bus}:{device}".lower(),
                "gpu": "CPU" if _on_cpus() else world["gpu"]["name"],
                "cpus": gpu.get("cpus", "0-95"),
                "interface": list(oob) if oob else None,
                "interfaces": interfaces,
                "nccl": _version(world, built=True),
                "network": choice.network,
                "devices": choice.devices,
                "gdr": choice.gdr,
                "failure": choice.failure,
                "intra": _intra(world, choice),
                "nvls": _nvls(world),
                "nvlink_scale": world["gpu"].get("nvlink_scale", 1.0),
                "wrong": gpu.get("wrong", 0),
                **training.describe(gpu, world["gpu"]),
                "name": world.get("node", ""),
            }
        )
    return {"node": options.node, "ranks": ranks, "gpus": len(world["gpus"])}


def _interfaces(options: Options, world: Mapping[str, Any]) -> list[net.Interface]:
    """Return the pod's interfaces: eth0 with the address that reaches the master, then attached ones."""
    address = "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((options.address, options.port))
            address = probe.getsockname()[0]
        except OSError:
            pass  # the name does not resolve (yet); the rendezvous reports it
    attached = [net.Interface(each["name"], each["address"]) for each in world.get("interfaces", [])]
    return [net.Interface("eth0", address), *attached, net.Interface("lo", "127.0.0.1")]


def agree(nodes: list[dict[str, Any]], options: Options, world: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings on which all ranks agree."""
    ranks = [rank for node in nodes for rank in node["ranks"]]
    # Sockets use two channels, as recorded; two H100 nodes with a NIC per GPU use 16.
    wide = any(rank["devices"] for rank in ranks) or options.nodes == 1
    channels = 2 * options.local if wide else 2
    # With NVLink between nodes, NCCL treats all of them as one.
    mnnvl = options.nodes > 1 and all(r["clique"] == ranks[0]["clique"] != "" for r in ranks) and not _off("MNNVL")
    span, each = (1, len(ranks)) if mnnvl else (options.nodes, options.local)
    return {
        "plan": topology.lay(span, each, channels),
        "mnnvl": mnnvl,
        "ranks": ranks,
        "buses": {node["node"]: [rank["bus"] for rank in node["ranks"]] for node in nodes},
        "comm_id": "0x" + _digest(options.address, ranks[0]["pid"])[:16],
        "cuda_driver": "{}0{}0".format(*world["gpu"]["cuda"].split(".")),
        "torch": world["collective"].get("torch", "2.11.0"),
        "nccl": "" if _on_cpus() else _version(world),
        "library": "gloo" if _on_cpus() else "rccl" if world["gpu"].get("vendor") == "amd" else "nccl",
        "failed": [rank for rank in ranks if rank["failure"]],
    }


def play(job: dict[str, Any], options: Options, world: Mapping[str, Any], mine: list[dict[str, Any]]) -> int:
    """Simulate the ranks of this process: their logs, and the table if rank 0 is among them."""
    behaviour, speaks = world["collective"], any(rank["rank"] == 0 for rank in mine)
    if behaviour.get("replay"):
        return _replay(behaviour["replay"], options)
    mine = [] if _on_cpus() else mine  # gloo writes no log
    logs = [_log(rank, behaviour) for rank in mine]
    for log, rank in zip(logs, mine, strict=True):
        nccllog.begin(log, job, rank, os.environ)
        interfaces = [net.Interface(*each) for each in rank["interfaces"]]
        nccllog.say(log, behaviour, rank, "begin", world.get("node", ""))
        log.lines(net.choose(os.environ, world, rank["rank"], interfaces).lines)
        nccllog.say(log, behaviour, rank, "network", world.get("node", ""))
    if job["failed"]:
        return _fail(job, options, mine, logs)
    # Trees and the switch's reduction are for an all_reduce; other collectives use the ring.
    algorithm = _algorithm(job) if options.bench["op"] == "all_reduce" else "ring"
    connections = _connections(job["plan"], algorithm)
    for log, rank in zip(logs, mine, strict=True):
        nccllog.initialise(log, job, rank, os.environ)
        nccllog.connect(log, job, rank, connections)
    if speaks:
        print("\n".join(bench.header(options.bench, job)), flush=True)
    if deaths.due(behaviour, options):
        return deaths.play(job, options, mine, logs, behaviour, world.get("node", ""))
    if behaviour.get("hang") and (options.nodes > 1 or behaviour["hang"] == "node"):
        for log in logs:
            log.out.flush()
        _hang()
    sizes = bench.sizes_of(options.bench)
    behaviour = {**behaviour, "paths": paths.between(behaviour.get("paths", ()), job["ranks"])}
    table = _measure(job, options, sizes, algorithm, behaviour)
    if job["plan"].nodes > 1:
        traffic.count(world, _carriers(mine, world), sum(sizes) * options.bench.get("iters", 20))
    if speaks:
        for row in table:
            print(bench.line(row))
        print("\n".join(bench.footer(table)))
        _tell({**bench.facts(table, options.bench), **paths.facts(options.bench, job, behaviour["paths"])})
    for log, rank in zip(logs, mine, strict=True):
        log.note(
            "TUNING",
            "{}: {} Bytes -> Algo {} proto SIMPLE channel{{Lo..Hi}}={{0..{}}}".format(
                options.bench["op"].title().replace("_", ""),
                sizes[-1] if sizes else 0,
                _NAMES[algorithm],
                job["plan"].channels - 1,
            ),
        )
        nccllog.say(log, behaviour, rank, "end", world.get("node", ""))
        nccllog.finish(log, job, rank)
        log.close()
    sys.stdout.flush()
    return 0


_NAMES = {"ring": "RING", "tree": "TREE", "nvls": "NVLS_TREE"}


def _algorithm(job: Mapping[str, Any]) -> str:
    """Return Ring if requested; else NCCL's choice for large messages: the switch's reduction, or trees."""
    asked = os.environ.get("NCCL_ALGO", "").lower()
    exclude, names = asked.startswith("^"), asked.lstrip("^").replace("allreduce:", "").split(",")
    for name, choice in (("nvls", "nvlstree"), ("tree", "tree"), ("ring", "ring")):
        allowed = (choice in names or (choice == "nvlstree" and "nvls" in names)) != exclude if asked else True
        if allowed and (name != "nvls" or all(rank["nvls"] for rank in job["ranks"])):
            if name == "tree" and job["plan"].nodes == 1 and not asked:
                continue
            return name
    return "ring"


def _connections(plan: topology.Plan, algorithm: str) -> list[tuple[str, list[topology.Hop]]]:
    """Return the connections of the ranks in order, with all hops, which are the same for every rank."""
    made = []
    if algorithm == "ring" or plan.nodes == 1:  # the bench's first small messages always use the ring
        made.append(("rings", topology.ring_hops(plan)))
    if algorithm != "ring" and plan.nodes > 1:
        made.append(("trees", topology.tree_hops(plan)))
    if algorithm == "nvls":
        made.append(("nvls", topology.nvls_hops(plan) if plan.nodes > 1 else []))
    return made


def _measure(
    job: Mapping[str, Any], options: Options, sizes: list[int], algorithm: str, behaviour: Mapping[str, Any]
) -> list[bench.Row]:
    plan = job["plan"]
    op, between = options.bench["op"], plan.nodes > 1
    curve = bench.curve_of(job["ranks"], plan.nodes, algorithm, behaviour.get("curves", {}), op)
    scale, wrong = float(behaviour.get("bandwidth_scale", 1.0)), int(behaviour.get("wrong", 0))
    scale = scale if between else 1.0  # only the fabric is slow
    scale *= min([float(path.get("scale", 1.0)) for path in behaviour["paths"]], default=1.0)
    scale *= float(behaviour.get("op_scale", {}).get(op, 1.0)) if between else 1.0
    noise = float(behaviour.get("noise", 0.0)) if between else 0.0
    wrong = max([wrong if between and op in bench.REDOPS else 0, *(int(rank.get("wrong", 0)) for rank in job["ranks"])])
    seed = f"{job['ranks'][0]['host']}/{options.address}/{algorithm}/{op}"
    deviation = bench.Deviation(seed, scale, noise, wrong)
    sides = bench.BOTH_SIDES if options.bench.get("program") else bench.SIDES
    return bench.rows(op, sizes, plan.ranks, curve, int(options.bench["cycles"]), deviation, sides)


def _on_cpus() -> bool:
    """Return whether the bench measures CPUs: its ranks then use gloo over TCP."""
    return os.environ.get("SEATRIAL_BENCH_DEVICE") == "cpu"


def _tell(facts: Mapping[str, Any]) -> None:
    """Write the bench's requested files."""
    path = os.environ.get("SEATRIAL_BENCH_FACTS")
    if path:
        with open(path, "w", encoding="ascii") as file:
            json.dump(facts, file)


def _carriers(mine: list[dict[str, Any]], world: Mapping[str, Any]) -> set[str]:
    """Return the NICs that carry this node's data; a plugin's device represents several of them."""
    named = {str(nic["name"]) for rank in mine for nic in rank["devices"]}
    if named and world.get("plugin"):
        named |= {str(nic["name"]) for nic in (world["rdma"] or {}).get("devices", [])}
    return named


def _log(rank: Mapping[str, Any], behaviour: Mapping[str, Any]) -> nccllog.RankLog:
    return nccllog.RankLog(
        os.environ, host=rank["host"], pid=rank["pid"], device=rank["local"], limit=behaviour.get("log_limit_bytes")
    )


def _fail(job: Mapping[str, Any], options: Options, mine: list[dict[str, Any]], logs: list[nccllog.RankLog]) -> int:
    for log, rank in zip(logs, mine, strict=True):
        if rank["failure"]:
            nccllog.fail(log)
        log.close()
    return failures.nccl(options, mine, job["failed"][0]["failure"], job["nccl"])


def _replay(path: str, options: Options) -> int:
    """Print a recorded log on node 0; the other nodes print nothing."""
    if options.node == 0:
        with open(os.path.join(os.path.dirname(state.path()), path), "rb") as file:
            sys.stdout.buffer.writelines(file)
        sys.stdout.buffer.flush()
    return 0


def _intra(world: Mapping[str, Any], choice: net.Choice) -> str:
    """Return the connection between two GPUs of one node: NVLink, else shared memory, else the network."""
    asked = os.environ.get("NCCL_P2P_DISABLE", "0") in ("", "0") and os.environ.get("NCCL_P2P_LEVEL", "") != "LOC"
    if world["gpu"].get("p2p", True) and asked:
        return "P2P/CUMEM" if os.environ.get("NCCL_CUMEM_ENABLE", "1") != "0" else "P2P/IPC"
    if os.environ.get("NCCL_SHM_DISABLE", "0") in ("", "0"):
        return "SHM/direct/direct"
    if choice.devices:
        return f"NET/{choice.network}/0" + ("/GDRDMA" if choice.gdr else "")
    return "NET/Socket/0"


def _nvls(world: Mapping[str, Any]) -> bool:
    off = _off("NVLS") or os.environ.get("NCCL_P2P_DISABLE", "0") not in ("", "0")
    off = off or not world["gpu"].get("p2p", True)
    whole = len(world["gpus"]) == int(world["gpu"].get("nvls_gpus", 8))
    return not off and whole and bool(world["gpu"].get("nvls", True))


def _off(what: str) -> bool:
    return os.environ.get(f"NCCL_{what}_ENABLE", "") == "0"


def _version(world: Mapping[str, Any], *, built: bool = False) -> str:
    """Return the library's version; ``built``: with the suffix that the library prints."""
    version = str(world["collective"].get("nccl", "2.28.9"))
    if not built:
        return version
    return version + ("+hip6.4 HEAD:9d0a9ee" if world["gpu"].get("vendor") == "amd" else "+cuda13.0")


def _digest(*parts: Any) -> str:
    return hashlib.sha256("/".join(str(part) for part in parts).encode()).hexdigest()


def _hang() -> NoReturn:
    """Block in a collective that never ends, until it is terminated."""
    while True:
        time.sleep(3600)


def _terminated(number: int, _frame: Any) -> NoReturn:
    failures.terminated(number)
    sys.stdout.flush()
    os._exit(1)
