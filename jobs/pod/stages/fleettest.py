"""One test of a sweep on this node: its programs run like a trial's collectives, their logs become a short result.

A node alone runs all_reduce over NVLink, copies and matrix products on each GPU, then all_reduce through its own NICs
(P2P and SHM off). With a single GPU it runs only copies and products. A pair, and the job at the end, run the nodes'
rails at once and then all ranks (NCCL_ALGO=Ring: the bandwidth is that of the links). If the image has them, DCGM's
diagnostics run on idle GPUs before a node's tests alone.
"""

from __future__ import annotations

import copy
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import collective, hardware, nodetraining
from .capture import causes
from .deadline import Watch
from .spec import Identity, Trial

ENDING_S = 20.0  # to terminate a program that hangs, and to read its log
MEASURED, NO_END, FAILED, NOTHING, STOPPED = "measured", "no end", "failed", "nothing", "stopped"
STOP_GRACE_S = 2.0  # after the coordinator's stop
OWN_NICS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
TCP_FABRICS = ("", "socket", "fastsocket")
NOT_NETWORKS = ("mnnvl",)
MOST_TEXT = 200
MOST_ROWS = 16
TRAFFIC = ("data", "packets", "bytes")


class Link:
    """The connection of a collective to the other nodes, represented by the coordinator."""

    def __init__(self, number: Any = None) -> None:
        self.number = number
        self.stopped = ""  # why this node must stop

    def agree(self, _topic: str, objection: str, _limit_s: float) -> Tuple[bool, str]:
        """Continue: the coordinator starts a test on all of its nodes at once."""
        return not objection, objection

    def announce_end(self, _topic: str, _failure: str) -> None:
        """Send nothing: the result goes to the coordinator."""

    def trouble(self, _topic: str) -> str:
        """Return why this node must stop."""
        return self.stopped

    def ended(self, _topic: str, _rank: int) -> Optional[str]:
        """Return None: no other rank starts this node's programs."""
        return None


def nothing(why: str) -> Dict[str, Any]:
    """Return the result of a test that measured nothing and finds no fault."""
    return {"state": NOTHING, "why": why[:MOST_TEXT]}


def run(
    trial: Trial, me: Identity, watch: Watch, place: str, archive: str, order: Mapping[str, Any], link: Link
) -> Dict[str, Any]:
    """Run a test ordered by the coordinator; return this node's results, small enough for a line."""
    own = copy.copy(trial)
    own.peers = [str(order.get("address"))] * max(1, int(order.get("count") or 1))
    own.nodes = len(own.peers)
    own.master_port = int(order["port"])
    own.collective_timeout_s = float(order["limit_s"])
    assert own.sweep is not None
    mine = Identity(int(order.get("rank") or 0), me.pod_ip, me.node, me.pod)
    bench = collective.BenchRun(own, mine, watch, link, place, archive)  # type: ignore[arg-type]  # as much of a barrier
    bench.analyze, bench.peer_grace_s = summarize, STOP_GRACE_S
    if order.get("what") != "alone":
        options = ["--rails=1"] if order.get("what") == "pair" else []
        chosen = _chosen("pair", "job", {"NCCL_ALGO": "Ring"}, own.sweep["pair"], options)
        result = _one(bench, chosen, own.sweep, across=True)
        if order.get("writes") and own.perftest and result["state"] == MEASURED:  # else the peer may not join
            result["writes"] = _writes(own, mine, watch, order, link)
        return result
    diagnosed: Dict[str, Any] = {}
    if order.get("diagnose") and own.dcgm:
        diagnosed["dcgm"] = _diagnosed(own.dcgm, watch, place, link)
        if link.stopped or watch.stopped():  # incomplete results mean nothing: all tests run again when it returns
            why = "its diagnostics: %s" % (link.stopped or watch.reason)
            return {"state": STOPPED, "why": why[:MOST_TEXT], "seconds": 0.0, "wrong": 0}
    clocks = hardware.Clocks(os.environ, watch)
    clocks.start()
    try:
        result = _alone(bench, own, link)
        if order.get("train") and own.training:
            why = "" if result["state"] == MEASURED else "its other tests alone: %s" % result["state"]
            result["training"] = steps = nodetraining.train(bench, why)
            if steps["stopped"]:  # by a drain, or since its pod is preempted: all tests run again when it returns
                result.update(state=STOPPED, why=("its steps alone: %s" % steps["stopped"])[:MOST_TEXT])
    finally:
        gpus = clocks.end()
    return dict(result, hardware={"gpus": gpus, "cards": hardware.nics()}, **diagnosed)


def _diagnosed(asked: Mapping[str, Any], watch: Watch, place: str, link: Link) -> Dict[str, Any]:
    from . import dcgm  # noqa: PLC0415

    return dcgm.alone(asked, place, os.environ, watch, lambda: bool(link.stopped) or watch.stopped())


def _writes(own: Trial, me: Identity, watch: Watch, order: Mapping[str, Any], link: Link) -> Dict[str, List[float]]:
    """Write over RDMA from each NIC of this pair to the other's, on the test's second port."""
    from . import railwrites, rdmaprogram  # noqa: PLC0415

    assert own.perftest is not None
    program = rdmaprogram.Program(own.perftest, os.environ, watch)

    def over() -> bool:
        return bool(link.stopped) or watch.stopped()

    rails = railwrites.ByRail(program, [str(label) for label in order["writes"]], own.master_port + 1, over)
    if me.rank == 0:
        rails.serve()
        return {}
    return rails.measure(str(order.get("address")))


def _alone(bench: collective.BenchRun, own: Trial, link: Link) -> Dict[str, Any]:
    assert own.sweep is not None
    first = _one(bench, _chosen("nvlink", "node", {}, own.sweep["alone"], ["--alone=1"]), own.sweep, across=False)
    if first["state"] != MEASURED or link.stopped or own.gpus_per_node < 2:
        return first
    own.master_port += 1
    nics = _one(bench, _chosen("cards", "node", OWN_NICS, own.sweep["pair"], []), own.sweep, across=True)
    merged = dict(first, cards=nics["state"], seconds=round(first["seconds"] + nics["seconds"], 1))
    merged["wrong"] = first["wrong"] + nics["wrong"]
    merged["rails"] = [nics.get("busbw")]
    merged["errors"] = nics.get("errors") or {}
    for key in ("transport", "why"):
        merged[key] = first.get(key) or nics.get(key) or ""
    return merged


def _chosen(
    name: str, scope: str, env: Mapping[str, str], bench: Mapping[str, int], options: List[str]
) -> Dict[str, Any]:
    chosen = {"name": name, "op": "all_reduce", "scope": scope, "env": dict(env), "repeats": 1}
    return dict(chosen, bench=dict(bench), options=options)


def _one(
    bench: collective.BenchRun, chosen: Mapping[str, Any], sweep: Mapping[str, Any], *, across: bool
) -> Dict[str, Any]:
    data = collective.blank(chosen)
    skipped = bench.run(data, chosen)
    if skipped:
        return dict(nothing(skipped), seconds=0.0, wrong=0)
    log = data["nccl"] or {}
    result: Dict[str, Any] = {
        "state": MEASURED,
        "why": "",
        "seconds": round(float(data["seconds"] or 0), 1),
        "wrong": int(log.get("wrong") or 0),
        "errors": _errors(data["rdma_counters"]),
    }
    leads = bench.me.rank == 0
    problem = _problem(data, log, table=leads)
    if problem:
        return dict(result, state=problem[0], why=problem[1][:MOST_TEXT])
    result["transport"] = _wrong_transport(log, sweep) if across else ""
    if across and not result["transport"] and _unseen(log, sweep):
        return dict(result, state=NOTHING, why="its log does not show the transport")
    facts = data["facts"] or {}
    if leads and any(row[2] is None for row in log["rows"]):
        return dict(result, state=NOTHING, why="its table does not say whether the sums were right")
    if not across and not isinstance(facts.get("differs"), int):
        return dict(result, state=NOTHING, why="its product of matrices was not repeated")
    if leads:
        result["rows"] = log["rows"][-MOST_ROWS:]
        if across or bench.trial.gpus_per_node > 1:  # one GPU has no bus to another
            result["busbw"] = max(log["rows"])[1]
        result["rails"] = [_number(value) for value in (facts.get("rails") or [])[:64]]
    if facts.get("differs"):
        result["why"] = "%s of %s products of the same matrices differ" % (facts["differs"], facts.get("products"))
    result["wrong"] += int(facts.get("differs") or 0) + int(facts.get("rails_wrong") or 0)
    if not across:
        result["products"] = int(facts.get("products") or 0)
    if facts.get("copies_gbps"):
        result["copies"] = [_number(value) for value in facts["copies_gbps"][:64]]
    return result


def _problem(data: Mapping[str, Any], log: Mapping[str, Any], *, table: bool) -> Optional[Tuple[str, str]]:
    """Return a program's failure as state and text; None if it measured. Before NCCL starts it is not a fault."""
    begun = bool(log.get("lines"))
    if data["timed_out"]:
        why = "no end after %.0f s" % float(data["seconds"] or 0)
        return (NO_END, why) if begun else (NOTHING, why + "; it had not reached NCCL")
    if data["stopped"]:
        return STOPPED, str(data["stopped"])
    if data["error"] or data["exit"]:
        said = causes(str(data["output_tail"]))
        why = data["error"] or "exit code %s%s" % (data["exit"], ": " + said[0].strip() if said else "")
        return (FAILED if begun else NOTHING), str(why)
    if table and not log.get("rows"):
        return NOTHING, "its output holds no table"
    return None


def _wrong_transport(log: Mapping[str, Any], sweep: Mapping[str, Any]) -> str:
    """Describe wrong transports in this node's own log; '' if all match the profile."""
    if sweep["fabric"] in TCP_FABRICS:
        return ""
    if log.get("tcp"):
        return "%d channels through %s" % (log["tcp"], log.get("net") or "sockets")
    if sweep["gdr"] and log.get("no_gdr"):
        return "%d channels without GPUDirect" % log["no_gdr"]
    return ""


def _unseen(log: Mapping[str, Any], sweep: Mapping[str, Any]) -> bool:
    return sweep["fabric"] not in (*TCP_FABRICS, *NOT_NETWORKS) and not log.get("channels")


def _errors(grown: Mapping[str, Any]) -> Dict[str, int]:
    """Return the error counters of ports that increased, as device/counter."""
    grown_errors: Dict[str, int] = {}
    for device, counters in sorted((grown or {}).items()):
        for name, value in sorted(counters.items() if isinstance(counters, dict) else ()):
            if (
                isinstance(value, int)
                and value > 0
                and not any(word in name for word in TRAFFIC)
                and len(grown_errors) < 8
            ):
                grown_errors["%s/%s" % (str(device)[:32], str(name)[:40])] = value
    return grown_errors


def _number(value: Any) -> Optional[float]:
    return round(float(value), 3) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def summarize(paths: List[str]) -> Dict[str, Any]:
    """Return the shipped reader's findings in logs: rows as [size, busbw, wrong], channels by transport."""
    from seatrial.logs.reader.events import transports  # noqa: PLC0415
    from seatrial.logs.reader.scan import read  # noqa: PLC0415
    from seatrial.logs.reader.state import channels as edges  # noqa: PLC0415

    streams = [open(path, "rb") for path in paths]
    try:
        partial = read([(os.path.basename(path), stream) for path, stream in zip(paths, streams)])
    finally:
        for stream in streams:
            stream.close()
    summary: Dict[str, Any] = {"lines": 0, "rows": [], "wrong": 0, "channels": 0, "tcp": 0, "no_gdr": 0, "net": ""}
    for source in partial.sources:
        summary["lines"] += source.nccl_lines
        for table in source.tables:
            for row in table["rows"]:
                side = row["in_place"] or row["out_of_place"] or {}
                if side.get("busbw_gbps") is not None:
                    summary["rows"].append([row["size_bytes"], side["busbw_gbps"], side.get("wrong")])
                    summary["wrong"] += int(side.get("wrong") or 0)
    for proc in partial.procs.values():
        for (_, _, text), mask in [edge for masks in proc.edges.values() for edge in masks.items()]:
            connector = edges.connector_of(text)
            if connector.kind != "net":
                continue
            count = sum(1 for bit in bin(mask) if bit == "1")
            summary["channels"] += count
            if transports.family(connector.net) in transports.TCP:
                summary["tcp"], summary["net"] = summary["tcp"] + count, connector.net
            elif not connector.gdr:
                summary["no_gdr"] += count
    return summary
