"""How many rails carry data? Counted per host from channel lines, never from bandwidth and never from the banner.

A healthy host may find more devices than it uses (an EFA node lists 32 and uses 8), so only a profile, or a host that
also lists fewer devices than its peers, makes a missing rail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...pod.nccl_reader.events.transports import TCP
from ..job.view import compact_devices

if TYPE_CHECKING:
    from .judge import Judgement


def rails(judgement: Judgement) -> dict[str, dict[str, Any]]:
    """Count the network devices that carry channels per host.

    And how many the host offers (of the link layer in use).
    """
    view = judgement.view
    hosts: dict[str, dict[str, Any]] = {}
    job = judgement.job
    for proc in job.procs:
        node = job.node_of[proc]
        entry = hosts.setdefault(node, {"used": set(), "offered": None, "ranks": 0, "silent": 0})
        entry["ranks"] += max(1, len({rank for key, rank in proc.comms if key in job.world}))
        entry["silent"] += int(bool(proc.comms) and not proc.edges)
        if proc.hcas:
            entry["offered"] = max(entry["offered"] or 0, len(proc.hcas))
    for item in view.crossings:
        if item.key[5] == "net" and item.transport not in TCP:
            hosts[judgement.job.node_of[item.proc]]["used"].add(item.device)
    return hosts


def judge_rails(judgement: Judgement) -> None:
    """Report hosts that use fewer rails than the profile says, or than their peers with more devices."""
    if not any(item.key[5] == "net" for item in judgement.view.crossings):
        return
    counted = rails(judgement)
    wanted = judgement.expect.get("rails")
    best = max(len(entry["used"]) for entry in counted.values())
    most = max(entry["ranks"] for entry in counted.values())
    if most < int(judgement.expect.get("gpus_per_node") or 0):
        wanted = None  # a job on some of the GPUs needs some of the rails
    full = (
        judgement.view.ranks is not None and sum(entry["ranks"] for entry in counted.values()) >= judgement.view.ranks
    )
    for node, entry in sorted(counted.items()):
        used = len(entry["used"])
        if entry["silent"]:
            continue  # a log that was cut before the channels shows a rank, not its rails
        if wanted is not None and entry["ranks"] == most and used < int(wanted):
            missing = "%d of %d rails carry channels: %s" % (
                used,
                int(wanted),
                ", ".join(compact_devices(entry["used"])[:12]) or "none",
            )
            judgement.add("nccl.rail-missing", node, [], cause=missing)
        elif wanted is None and full and entry["ranks"] == most and used < best and _offers_fewer(counted, entry):
            missing = "%d rails carry channels here and %d on another host (%s)" % (
                used,
                best,
                ", ".join(compact_devices(entry["used"])[:12]),
            )
            judgement.add("nccl.rail-missing", node, [], cause=missing)


def _offers_fewer(counted: dict[str, dict[str, Any]], entry: dict[str, Any]) -> bool:
    """Say whether a host also lists fewer devices than another: NCCL alone may well choose differently per host."""
    offers = [other["offered"] for other in counted.values() if other["offered"] is not None]
    return entry["offered"] is not None and bool(offers) and entry["offered"] < max(offers)
