"""Rails that carry data, counted per host from channel lines, never from bandwidth or the banner.

A healthy host may list more devices than it uses (an EFA node lists 32 and uses 8). So a rail is missing only by a
profile, or on a host that also lists fewer devices than its peers, or uses at most a quarter of theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..job.device_order import compact_devices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..job_document import Host
    from .judge import Judgement


def rails_used(hosts: Iterable[Host]) -> set[str]:
    """Return the network devices that carry channels on hosts, which may be one host as several jobs saw it."""
    return {device for host in hosts for devices in host["rails"].values() for device in devices}


def rails_missing(used: set[str], expected: int, filters: set[str]) -> str:
    """Return how many of a host's required rails carry channels, or '' if none is missing.

    ``filters`` are the values of NCCL_IB_HCA, by which NCCL excludes devices.
    """
    if len(used) >= expected:
        return ""
    chosen = ", ".join(f"NCCL_IB_HCA={value}" for value in sorted(filters))
    text = f"{len(used)} of {expected} rails carry channels: {', '.join(compact_devices(used)[:12]) or 'none'}"
    return text + (
        f"; {chosen} is set (in the job's environment, or the image) and chooses among them" if chosen else ""
    )


_FEW = 0.25
"""The share of rails of a peer with as many ranks and devices: NCCL gives every host's channels a NIC next to a GPU."""


def _in_one_ring(judgement: Judgement) -> bool:
    """Return whether a communicator of all ranks shows channels of each: parts of a job may reach a host by one NIC."""
    view = judgement.view
    return any(len(view.shown.get(key, ())) == view.ranks for key in ("", *judgement.job.world))


def judge_ports(judgement: Judgement) -> None:
    """Report ports with channels that are slower than in the profile, or than the other ports with channels.

    NCCL prints the rate of each port from its active width and speed (transport/net_ib, ncclIbSpeed), which shows a
    cable or a transceiver that trained lower. Without a profile, half or more of the ports at the lower rate may be the
    design: that is a remark, but not a go.
    """
    ports, expect = judgement.view.devices.ports, judgement.expect
    used = {host["name"] or "": rails_used([host]) for host in judgement.hosts}
    carrying = {
        (node, device): speed
        for node, devices in ports.items()
        for device, (_, speed) in devices.items()
        if device in used.get(node, ())
    }
    if not carrying:
        return
    rate, source = max(carrying.values()), "the fastest one that carries channels"
    if expect.device_gbit_s is not None:
        rate, source = round(expect.device_gbit_s * 1000), "the profile"
    slow = {place: speed for place, speed in carrying.items() if speed < rate}
    for node in sorted({node for node, _ in slow}):
        named = [f"{device} at {slow[on, device] / 1000:g} Gb/s" for on, device in sorted(slow) if on == node]
        text = f"{', '.join(named[:8])} (expected {rate / 1000:g} Gb/s, the rate of {source})"
        judgement.add("nccl.port-rate", node or "the job", [], cause=text)
        if expect.device_gbit_s is None and 2 * len(slow) >= len(carrying):
            judgement.faults[-1]["severity"] = "info"


def judge_rails(judgement: Judgement) -> None:
    """Report hosts that use fewer rails than the profile requires, or than their peers with more devices."""
    if not any(
        connector.kind == "net"
        for connectors in judgement.view.connectors.values()
        for connector, _, _ in connectors.values()
    ):
        return
    hosts, expect = judgement.hosts, judgement.expect
    ranks = {id(host): max(len(host["ranks"]), len(host["connected"])) for host in hosts}
    most, best = max(ranks.values()), max(len(rails_used([host])) for host in hosts)
    # a job on some of the GPUs needs some of the rails
    rails = expect.rails if most >= (expect.gpus_per_node or 0) else None
    full = judgement.view.ranks is not None and sum(ranks.values()) >= judgement.view.ranks
    offers = [host["rails_offered"] or 0 for host in hosts]
    filters = judgement.job.env["NCCL_IB_HCA"]
    for host in hosts:
        if ranks[id(host)] < most or set(host["ranks"]) - set(host["connected"]):
            continue  # a log truncated before the channels shows a rank, not its rails
        used, missing = rails_used([host]), ""
        if rails is not None:
            missing = rails_missing(used, rails, filters)
        elif (
            full
            and used
            and (  # traffic between hosts uses one: if none shows, its lines are missing
                (len(used) < best and 0 < (host["rails_offered"] or 0) < max(offers))
                or (len(used) <= _FEW * best and host["rails_offered"] == max(offers) and _in_one_ring(judgement))
            )
        ):  # NCCL may choose differently, but not by this much
            missing = "%d rail%s channels here and %d on another host (%s)" % (
                len(used),
                " carries" if len(used) == 1 else "s carry",
                best,
                ", ".join(compact_devices(used)[:12]),
            )
        if missing:
            closed = [
                proc.notes["nccl.ib-open"]
                for proc in judgement.job.noted.get("nccl.ib-open", ())
                if (judgement.job.node_of[proc] or None) == host["name"]
            ]
            judgement.add(
                "nccl.rail-missing",
                host["name"] or "the job",
                judgement.line(closed[0]) if closed else [],
                why="nccl.ib-open" if closed else None,
                cause=missing + ("; a device of it is there and does not open" if closed else ""),
            )
