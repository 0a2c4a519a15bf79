"""Rendezvous rules: each rank's view of each peer, for every pair and direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jobs.cluster.json_types import empty
from jobs.listing import first_of
from jobs.pod.stages.dns import NOT_THERE
from jobs.run.result import TrialResult
from jobs.run.stages.network import DnsPeer, DnsStage, PortPeer
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from .findings import failed, passed, unknown
from .ranks import Rank, each_rank, every_stage, missing_stage, place, stages

MAX_SKEW_S = 5.0
"""Clock differences above this are reported: NCCL does not depend on them, but logs of two nodes cannot be merged."""


LONG_DENIED_S = 5.0
"""Longer than endpoints take to be published; CoreDNS' kubernetes plugin has this default time to live."""


NOT_LOOKED_UP, NOT_DIALLED = empty(DnsPeer), empty(PortPeer)
SILENT_SERVER = ("timeout", "unreachable")
"""The probe's errors for a name if its server did not answer, or was unreachable."""
NO_WAY = ("no answer within", "no route to host", "network is unreachable", "host is unreachable")
"""Errors of a connection without any response; a refused connection has one."""


CONVENTIONS = ("WORLD_SIZE", "NUM_GPU_PER_NODE", "NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables that launch scripts of both conventions read (NVIDIA TAO on Kubernetes, rendezvous variables; torchrun's
options)."""


def convention_notes(trial: TrialResult, spec: TrialSpec) -> Iterator[str]:
    """Name the missing variables with which training scripts of a rank find their peers.

    An MPIJob's workers share one template, and mpirun sets their number.
    """
    names = [name for name in CONVENTIONS if name != "NODE_RANK" or spec.launcher != "mpijob"]
    for rank in range(spec.nodes):
        env = every_stage(trial, rank)["start"]["env"]
        gone = [name for name in names if env is not None and not env.get(name)]
        if gone:
            yield (
                f"{place(trial, rank)}: {', '.join(gone)} {'is' if len(gone) == 1 else 'are'} not set in the pod; a "
                "launch script that reads them starts alone"
            )


def arrow(trial: TrialResult, source: int, target: int) -> str:
    """Name a directed pair by its nodes."""
    return f"{place(trial, source)} -> {place(trial, target)}"


@each_rank(DnsStage)
def dns_findings(rank: Rank[DnsStage]) -> Iterator[Finding]:
    """Judge each rank's resolved address of every rank, including its own: rank 0 also connects to its own name."""
    trial, names = rank.trial, replace(rank.spec, attempt=rank.trial.attempts).peers  # each attempt has different names
    lookups = {str(p["index"]): p for p in rank.data["peers"]}
    for peer, name in enumerate(names):
        found = _lookup(arrow(trial, rank.number, peer), lookups.get(str(peer)), _pod_ip(trial, peer), name)
        silent_server = lookups.get(str(peer), NOT_LOOKED_UP)["error"] in SILENT_SERVER
        if found.fault == "dns.unresolved" and silent_server and (cut_off := _cut_off(trial, rank.spec, rank.number)):
            found = replace(found, observed=f"{found.observed}; {cut_off}", fault="network.unreachable")
        yield found


def _cut_off(trial: TrialResult, spec: TrialSpec, rank: int) -> str:
    """Name the ranks that know this rank's address and get no response from it; '' if there are none, or one gets one.

    A DNS server that does not answer this rank is behind the same network: DNS is only the first to need it.
    """
    seen = {other: _peer(trial, other, rank) or NOT_DIALLED for other in range(spec.nodes) if other != rank}
    dialled = {other: peer for other, peer in seen.items() if peer["address"]}
    if any(peer["outbound"] or peer["inbound"] for peer in seen.values()):
        return ""
    lost = [other for other, peer in dialled.items() if str(peer["outbound_error"]).startswith(NO_WAY)]
    if not lost:
        return ""
    address = dialled[lost[0]]["address"]
    return f"{first_of((place(trial, each) for each in lost), 4)} got no answer from its address {address} either"


def _lookup(subject: str, record: DnsPeer | None, pod_ip: str | None, name: str) -> Finding:
    expected = f"{name} = {pod_ip}" if pod_ip else f"{name} resolves"
    if record is None:
        return unknown(subject, "this name was not looked up", expected)
    addresses = [str(a) for a in record["addresses"] or []]
    if record["addresses"] is None and not record["error"]:
        return unknown(subject, "the resolved address is unknown", expected)
    if not addresses:
        why = record["error"] or record["first_error"] or "no address"
        return failed(subject, f"{why} after {record['attempts']} attempts", expected, "dns.unresolved")
    observed = ", ".join(addresses) + f" after {record['seconds_to_first_answer']} s"
    if first := record["first_error"]:
        observed += f" (first {first}{_denied_by_cache(first, record['seconds_to_first_answer'])})"
    right = leads_to(addresses, pod_ip, record["pod_ip_matches"])
    if right is None:
        observed += "; the address of that pod is unknown"
        return unknown(subject, observed, expected)
    if not right:
        return failed(subject, observed, expected, "dns.wrong-address")
    return passed(subject, observed, expected)


def _denied_by_cache(first: object, seconds: object) -> str:
    """Explain a long wait that began with a negative response: the name existed, but caches still denied it."""
    if first not in NOT_THERE or not isinstance(seconds, int | float) or seconds < LONG_DENIED_S:
        return ""
    return "; caches keep the negative response to an early query (CoreDNS: 30 s)"


def leads_to(addresses: list[str], pod_ip: str | None, probe_says: bool | None) -> bool | None:
    """Return whether the addresses are the peer's, by its own report or the probe's; an additional one is wrong.

    None if neither reports one.
    """
    if not pod_ip:
        return probe_says
    same_family = [a for a in addresses if (":" in a) == (":" in pod_ip)]
    return same_family == [pod_ip]


def _pod_ip(trial: TrialResult, rank: int) -> str | None:
    address = every_stage(trial, rank)["start"]["pod_ip"]
    return str(address) if address else None


def port_findings(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Judge MASTER_PORT for every pair in both directions, by the connecting side, else by the listening one."""
    for source in range(spec.nodes):
        own = stages(trial, source).get("port")
        if own is not None and own["listening"] is False:
            observed = str(own["error"] or "not listening")
            yield failed(place(trial, source), observed, f"port {spec.master_port} is free in the pod", "port.in-use")
        for target in range(spec.nodes):
            if source != target:
                yield _direction(trial, spec, source, target)


def _direction(trial: TrialResult, spec: TrialSpec, source: int, target: int) -> Finding:
    subject = arrow(trial, source, target)
    expected = f"port {spec.master_port} (MASTER_PORT) open"
    dialled, heard = _peer(trial, source, target), _peer(trial, target, source)
    listening = every_stage(trial, target)["port"]["listening"]
    if dialled is not None:
        if dialled["outbound"]:
            observed = f"connected to {dialled['address']} in {dialled['outbound_seconds']} s"
            return passed(subject, observed, expected)
        observed = f"{dialled['address']}: {dialled['outbound_error'] or 'the result of dialling is missing'}"
        if dialled["outbound"] is None and not dialled["outbound_error"]:
            return unknown(subject, observed, expected)
        if listening is False:  # the other side reported it itself, and has the finding
            return unknown(subject, observed, expected)
        return failed(subject, observed, expected, "port.blocked")
    if heard is not None and heard["inbound"]:
        return passed(subject, "received by the other side", expected)
    return unknown(subject, missing_stage(trial, source, "port"), expected)


def _peer(trial: TrialResult, rank: int, peer: int) -> PortPeer | None:
    data = every_stage(trial, rank)["port"]
    return next((p for p in data["peers"] if p["index"] == peer), None)


def largest_skew_s(trial: TrialResult, spec: TrialSpec) -> float:
    """Return the largest clock difference to a peer that any rank measured, in seconds."""
    peers = [_peer(trial, a, b) or NOT_DIALLED for a in range(spec.nodes) for b in range(spec.nodes) if a != b]
    return max((abs(p["clock_skew_s"]) for p in peers if p["clock_skew_s"] is not None), default=0.0)
