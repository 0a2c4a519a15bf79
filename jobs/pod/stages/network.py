"""Pod network evidence other than MASTER_PORT: packet sizes, ports, and a short TCP transfer.

Every rank opens an echo and a few ports, and sends their numbers to its peers through the rendezvous's connections. It
tries the peers' ports, and keeps its own open until all have finished. With more than four nodes a rank tries only its
two neighbours. Each direction of the ring is tested, and the cost does not grow with the job.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from typing import Any, Dict, List, Mapping, Optional

from . import pathmtu, transfer
from .barrier import Barrier
from .files import first_line, names_in, whole
from .rendezvous import Rendezvous

TOPIC = "network"
EVERY_PAIR = 4  # nodes; above that, neighbours only
OFFER_S = 10.0
DONE_S = 80.0  # a rank closes so long after its start; less than the stage's limit (run.py)
SENDINGS = 5  # repetitions while the CPUs of the two nodes are too busy to send or to receive
LONGEST_S = 2.0  # of one transfer
MAX_INTERFACES = 128
SIOCGIFADDR = 0x8915  # linux/sockios.h


def run(data: Dict[str, Any], rendezvous: Rendezvous, barrier: Barrier, settings: Optional[Mapping[str, Any]]) -> str:
    """Fill the `network` stage's data."""
    until = time.monotonic() + DONE_S
    settings = settings if isinstance(settings, Mapping) else {}
    data["interfaces"] = interfaces()
    data["port_range"] = list(transfer.local_range())
    seconds = data["seconds"] = min(LONGEST_S, max(0.0, float(settings.get("seconds", 1.0))))
    token = pathmtu.token_of(rendezvous.trial.run)
    host = rendezvous.me.pod_ip
    try:
        echo: Optional[pathmtu.Echo] = pathmtu.Echo(host, token)
    except OSError as error:
        echo, data["error"] = None, "no UDP: %s" % error.strerror
    ports = [int(port) for port in settings.get("ports") or () if isinstance(port, int)]
    listeners = transfer.Listeners(host, token, ports)
    data["error"] = data.get("error") or (None if listeners.ports else listeners.error)
    try:
        ranks = _peers(rendezvous)
        offer = {"udp": echo.port if echo else None, "ports": listeners.ports[:16]}
        for rank in ranks:
            barrier.post(rank, TOPIC, offer)
        data["peers"] = [_blank(rank, rendezvous.records[rank]["address"]) for rank in ranks]
        for record in data["peers"]:
            _try(record, rendezvous, barrier, token, seconds, settings)
        # No rank closes while a peer is still measuring.
        barrier.through(TOPIC, min(until - time.monotonic(), rendezvous.watch.left()))
    finally:
        listeners.close()
        if echo:
            echo.close()
    return "ok" if all(_fine(record) for record in data["peers"]) else "failed"


def _peers(rendezvous: Rendezvous) -> List[int]:
    nodes, me = rendezvous.trial.nodes, rendezvous.me.rank
    if nodes <= EVERY_PAIR:
        return [rank for rank in range(nodes) if rank != me]
    return sorted({(me - 1) % nodes, (me + 1) % nodes})


def _blank(rank: int, address: Optional[str]) -> Dict[str, Any]:
    unknown = ("first_mtu", "path_mtu", "learned_mtu", "df_ok", "mtu_error")
    sent = ("throughput_gbit_s", "peak_gbit_s", "cpu_wait")
    return dict(dict.fromkeys(unknown + sent), index=rank, address=address, ports=[], bytes=None, error=None)


def _try(
    record: Dict[str, Any],
    rendezvous: Rendezvous,
    barrier: Barrier,
    token: bytes,
    seconds: float,
    settings: Mapping[str, Any],
) -> None:
    offer = barrier.posted(TOPIC, record["index"], OFFER_S)
    if offer is None or not record["address"]:
        record["error"] = "it did not report its ports"
        return
    address = record["address"]
    chosen = [port for port in offer.get("ports") or [] if isinstance(port, int) and 0 < port < 65536][:16]
    record["ports"] = _dial_all(address, chosen, token)
    udp = offer.get("udp")
    if settings.get("mtu", True) is not False and isinstance(udp, int) and any(port["ok"] for port in record["ports"]):
        pathmtu.measure(record, address, udp, token, rendezvous.watch.stopped)
    reached = next((port["port"] for port in record["ports"] if port["ok"]), None)
    if reached is not None and seconds > 0:
        enough = settings.get("enough_gbit_s")
        _throughput(
            record, address, reached, token, seconds, float(enough) if isinstance(enough, (int, float)) else 0.0
        )


def _throughput(
    record: Dict[str, Any], address: str, port: int, token: bytes, seconds: float, enough_gbit_s: float
) -> None:
    """Send; if the rate was too low, repeat for longer, and again while a busy CPU may be the cause."""
    for sending in range(SENDINGS):
        _send(record, address, port, token, min(LONGEST_S, 4 * seconds) if sending else seconds)
        best = record["peak_gbit_s"] or 0.0
        if record["error"] or best >= enough_gbit_s or (sending and not _hindered(record, enough_gbit_s)):
            return


def _send(record: Dict[str, Any], address: str, port: int, token: bytes, seconds: float) -> None:
    """Send over a new connection: an earlier one would have to learn the path MTU measured since.

    The highest peak of all transfers is kept. `cpu_wait` is the share of the time, 0 to 1, in which one of both ends
    waited for a CPU. It is None if a kernel does not report it.
    """
    line, record["error"] = transfer.dial(address, port, token)
    if line is None:
        return
    with line:
        counted = transfer.send(line, seconds)
    record["bytes"], record["error"] = counted.get("bytes"), counted.get("error")
    if counted.get("bytes") and counted.get("seconds"):
        gbit, took, waited = counted["bytes"] * 8 / 1e9, counted["seconds"], counted.get("cpu_wait_s")
        record["throughput_gbit_s"] = round(gbit / took, 4)
        record["peak_gbit_s"] = max(record["peak_gbit_s"] or 0.0, counted.get("peak_gbit_s") or 0.0)
        record["cpu_wait"] = None if waited is None else min(1.0, round(waited / took, 3))


def _hindered(record: Mapping[str, Any], enough: float) -> bool:
    """Return whether the network may have carried enough in the time without the waits for a CPU."""
    mean, waited = record["throughput_gbit_s"], record["cpu_wait"]
    return mean is not None and waited is not None and mean >= enough * (1 - waited)


def _dial_all(address: str, ports: List[int], token: bytes) -> List[Dict[str, Any]]:
    """Connect to all in parallel: a dropped SYN costs seconds each."""
    results: Dict[int, Any] = {}

    def one(port: int) -> None:
        results[port] = transfer.dial(address, port, token)

    workers = [threading.Thread(target=one, args=(port,), daemon=True) for port in ports]
    for worker in workers:
        worker.start()
    limit = time.monotonic() + 3 * transfer.CONNECT_S
    for worker in workers:
        worker.join(timeout=max(0.0, limit - time.monotonic()))
    answers = []
    for port in ports:
        line, error = results.get(port, (None, "no answer in time"))
        if line is not None:
            line.close()
        answers.append({"port": port, "ok": line is not None, "error": error})
    return answers


def _fine(record: Mapping[str, Any]) -> bool:
    hole = record["df_ok"] is False and record["learned_mtu"] != record["path_mtu"]
    return not record["error"] and not hole and all(port["ok"] for port in record["ports"])


def interfaces(root: str = "/") -> List[Dict[str, Any]]:
    """Return the pod's network interfaces, without the loopback."""
    folder = os.path.join(root, "sys/class/net")
    entries = []
    for name in names_in(folder)[:MAX_INTERFACES]:
        place = os.path.join(folder, name)
        flags = first_line(os.path.join(place, "flags")) or "0x0"
        if name == "lo" or not os.path.isdir(place):  # bonding_masters is a file
            continue
        state = first_line(os.path.join(place, "operstate"))
        entries.append(
            {
                "name": name,
                "mtu": whole(first_line(os.path.join(place, "mtu"))),
                "addresses": addresses(name),
                "up": _is_up(flags, state),
                "speed_mbit": whole(first_line(os.path.join(place, "speed"))) or None,
            }
        )
    return entries


def _is_up(flags: str, state: Optional[str]) -> bool:
    try:
        return bool(int(flags, 16) & 1) and state != "down"
    except ValueError:
        return False


def addresses(name: str) -> List[str]:
    """Return an interface's first IPv4 address; IPv6 has no equivalent ioctl."""
    import fcntl  # noqa: PLC0415  (some minimal Pythons are built without it)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            answer = fcntl.ioctl(line.fileno(), SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
        except OSError:
            return []
    return [socket.inet_ntoa(answer[20:24])]
