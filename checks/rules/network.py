"""Pod network rules in addition to MASTER_PORT: each direction is judged from the sender's side.

Rule: a path that silently drops large packets is the worst fault, since connections open and then hang. A path with a
smaller MTU than its interfaces that reports it (ICMP) is only smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jobs.cluster.json_types import empty
from jobs.run.result import TrialResult
from jobs.run.stages.network import EndpointsStage, Interface, NetworkPeer, NetworkStage, TriedEndpoint
from jobs.trial.spec import TrialSpec
from reports.record import Finding

from ..profiles.loader import Profile
from .findings import compared, failed, proven, unknown, unlike
from .ranks import Rank, each_rank, every_stage, missing_stage, place, stages
from .rendezvous import arrow

STAGE: Final = "network"
NOT_TRIED = empty(TriedEndpoint)
EVERY_PAIR = 4
"""Number of nodes up to which every pair is tried; with more, only two neighbours (jobs/pod/stages/network.py)."""


def directions(spec: TrialSpec) -> list[tuple[int, int]]:
    """Return the directed pairs of ranks that the probe tries."""
    nodes = spec.nodes
    if nodes <= EVERY_PAIR:
        return [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    return [(a, b) for a in range(nodes) for b in sorted({(a - 1) % nodes, (a + 1) % nodes})]


def port_findings(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Judge the ports that the kernel picks for NCCL, in every direction."""
    for source, target in directions(spec):
        yield _ports(arrow(trial, source, target), trial, source, target)


def _ports(subject: str, trial: TrialResult, source: int, target: int) -> Finding:
    record, why = _record(trial, source, target)
    first, last = _range(trial, source)
    expected = f"ports that the kernel picks ({first}-{last}) open between the pods, as NCCL needs"
    tried = record["ports"] if record else []
    if record is None or not tried:
        observed = why or str((record and record["error"]) or "no port was tried")
        return unknown(subject, observed, expected)
    if any(p["ok"] is None and not p["error"] for p in tried) and not any(p["ok"] is False for p in tried):
        observed = f"of {len(tried)} tried ports the open ones are unknown"
        return unknown(subject, observed, expected)
    shut = [p for p in tried if not p["ok"]]
    shown = ", ".join(f"{p['port']} {p['error'] or ''}".strip() for p in (shut or tried)[:4])
    observed = f"{len(tried) - len(shut)} of {len(tried)} open: {shown}" if shut else f"open: {shown}"
    return compared(subject, not shut, observed, expected, "network.ports-blocked")


def mtu_findings(trial: TrialResult, spec: TrialSpec, profile: Profile) -> Iterator[Finding]:
    """Judge packet sizes in every direction, then whether the pods' own interfaces agree."""
    for source, target in directions(spec):
        yield _mtu(arrow(trial, source, target), trial, (source, target), profile)
    yield from _unlike(trial, spec)


def _mtu(subject: str, trial: TrialResult, pair: tuple[int, int], profile: Profile) -> Finding:
    record, why = _record(trial, *pair)
    if record is None:
        return unknown(subject, why)
    first, fits, learned = record["first_mtu"], record["path_mtu"], record["learned_mtu"]
    least = profile.network.mtu
    size, origin = (least, f"profile {profile.name}") if least else (first, "as the interface says")
    expected = f"packets of {size} bytes pass unfragmented ({origin})"
    if fits is None:
        # UDP may be filtered; then what TCP carried in full-sized segments is what there is to see.
        cause = str(record["mtu_error"] or "it was not tried")
        carried = record["bytes"] or 0
        observed = f"packet sizes are not known ({cause}); TCP carried {carried / 1e6:.0f} MB"
        return proven(subject, carried > 1e6 and not least, observed, expected)
    if first is None or record["df_ok"] is None:
        observed = f"{fits} bytes pass; it is unknown whether the interface allows more"
        return unknown(subject, observed, expected)
    if record["df_ok"] is False and (learned is None or learned > fits):
        if learned is None:
            observed = f"packets larger than {fits} bytes do not pass; the network's response is unknown"
            return unknown(subject, observed, expected)
        observed = f"packets larger than {fits} bytes are dropped silently, although the interface allows {first}"
        return failed(subject, observed, expected, "network.mtu-blackhole")
    observed = f"{fits} bytes" + (f" of {first}; the network says so (ICMP)" if fits != first else "")
    return compared(subject, least is None or fits >= least, observed, expected, "network.mtu-mismatch")


def _unlike(trial: TrialResult, spec: TrialSpec) -> Iterator[Finding]:
    """Report the nodes whose pods have another MTU than most, or that the nodes differ."""
    known = {place(trial, rank): _own_mtu(trial, rank) for rank in range(spec.nodes)}
    own = {node: {"MTU": str(mtu)} if mtu else {} for node, mtu in known.items()}
    return (finding for finding in unlike(own, "network.mtu-mismatch") if not finding.ok)


def _own_mtu(trial: TrialResult, rank: int) -> int | None:
    """Return the MTU of the interface with the pod's address; if it is not reported, that of the path to a peer."""
    own = _own(trial, rank)
    peers = every_stage(trial, rank)[STAGE]["peers"]
    values = [own["mtu"] if own else None, *(peer["first_mtu"] for peer in peers)]
    return next((mtu for mtu in values if mtu), None)


def interfaces(trial: TrialResult, rank: int) -> list[Interface]:
    """Return the probe's results for a pod's interfaces."""
    return every_stage(trial, rank)[STAGE]["interfaces"]


@each_rank(NetworkStage)
def secondary_findings(rank: Rank[NetworkStage], profile: Profile) -> Iterator[Finding]:
    """Judge the MTU of every interface that was attached to a pod in addition to its own."""
    least, own = profile.network.secondary_mtu or 0, _own(rank.trial, rank.number)
    attached = [each for each in interfaces(rank.trial, rank.number) if each is not own]
    if not attached:
        yield unknown(rank.node, "the pod has one interface only")
    for each in attached:
        mtu, name = each["mtu"], each["name"]
        ok = None if mtu is None or name is None else mtu >= least
        expected = f"at least {least} (profile {profile.name})"
        yield compared(f"{rank.node} {name}", ok, f"MTU {mtu}", expected, "network.secondary-mtu")


def _own(trial: TrialResult, rank: int) -> Interface | None:
    """Return the interface with the pod's address; eth0 if addresses cannot be read."""
    address, there = every_stage(trial, rank)["start"]["pod_ip"], interfaces(trial, rank)
    own = next((each for each in there if address and address in each["addresses"]), None)
    return own or next((each for each in there if each["name"] == "eth0"), None)


def rate_findings(trial: TrialResult, spec: TrialSpec, profile: Profile) -> Iterator[Finding]:
    """Judge one TCP connection in every direction by the profile's floor: its best moment, not its mean."""
    floor = profile.network.tcp_gbit_s or 0.0
    expected = f"at least {floor:g} Gb/s (profile {profile.name})"
    for source, target in directions(spec):
        subject = arrow(trial, source, target)
        record, why = _record(trial, source, target)
        if record is None:
            yield unknown(subject, why, expected)
            continue
        best = max((v for v in (record["peak_gbit_s"], record["throughput_gbit_s"]) if v), default=None)
        if best is None or (best < floor and record["error"]):
            error = str(record["error"] or "nothing was sent")
            yield compared(subject, False if "stalled" in error else None, error, expected, "network.slow")
            continue
        waited = record["cpu_wait"]
        if best < floor and waited is not None and (record["throughput_gbit_s"] or 0.0) >= floor * (1 - waited):
            observed = (
                f"{best:.2f} Gb/s, but one pod or the other waited for a CPU {waited:.0%} of the time, so this proves "
                "nothing about the network: the nodes are busy, or the pods' CPU limit is small"
            )
            yield unknown(subject, observed, expected)
            continue
        yield compared(subject, best >= floor, f"{best:.2f} Gb/s", expected, "network.slow")


def _record(trial: TrialResult, source: int, target: int) -> tuple[NetworkPeer | None, str]:
    """Return one rank's result for another rank, or the reason for its absence."""
    data = stages(trial, source).get(STAGE)
    if data is None:
        return None, missing_stage(trial, source, STAGE)
    for each in data["peers"]:
        if each["index"] == target:
            return each, ""
    return None, str(data["error"] or "this direction was not tried")


def _range(trial: TrialResult, rank: int) -> tuple[int, int]:
    ports = every_stage(trial, rank)[STAGE]["port_range"]
    return (ports[0], ports[1]) if ports and len(ports) == 2 else (32768, 60999)


@each_rank(EndpointsStage)
def endpoint_findings(rank: Rank[EndpointsStage]) -> Iterator[Finding]:
    """Judge for each node which of the profile's endpoints it could reach."""
    tried = {(each["endpoint"], each["forbidden"]): each for each in rank.data["tried"]}
    for asked in rank.spec.endpoints:
        record = tried.get((asked.text, asked.forbidden), NOT_TRIED)
        reached, by = record["reached"], " through the pod's proxy" if record["by"] == "proxy" else ""
        why = record["error"] or rank.data["error"] or "not reported"
        fault = "network.endpoint-open" if asked.forbidden else "network.endpoint-unreachable"
        yield compared(
            f"{rank.node} -> {asked.text}",
            None if reached is None else reached is not asked.forbidden,
            f"it answers{by}" if reached else f"no answer{by}: {why}",
            f"{'no answer' if asked.forbidden else 'an answer'} (profile, network.endpoints)",
            fault,
        )
