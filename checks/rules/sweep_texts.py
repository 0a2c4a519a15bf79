"""Texts of a sweep's findings: the element at fault, a rail's NIC, grown port counters, nodes to cordon."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from jobs.cluster.json_types import empty
from jobs.cluster.redact import safe
from jobs.listing import first_of
from jobs.pod.sweep.model import Finding as Accusation
from jobs.run.stages.sweep import SweptCard, SweptHardware
from reports.record import Finding

from .findings import failed
from .swept import Swept

FAULTS = {"node": "sweep.node", "rail": "sweep.rail", "uplink": "sweep.uplink", "pair": "sweep.pair"}
EXPECTED = "the level of the other nodes, and the profile's floor"
SHOWN = 8
MOST_TEXT = 600
NO_HARDWARE, NO_CARD = empty(SweptHardware), empty(SweptCard)


def accused(swept: Swept, each: Accusation) -> Finding:
    """Write one finding as text: the element, its rail by device name, the reason, and the level of the rest."""
    subject, node = " - ".join(each.names), each.names[0]
    hardware = swept.hardware.get(node, NO_HARDWARE)
    if each.kind == "uplink":
        subject = " and ".join(f"uplink of {name}" for name in each.names)
    devices = devices_of(swept.rails if each.kind == "rail" else {}, node, each.rails)
    if devices:
        subject += f" rail {', '.join(devices)}"
    parts = [each.why]
    if rest := rest_of(swept.section, each.names, swept.leaves):
        parts.append(f"all others at {rest:.2f}")
    if each.kind == "node":
        said = [text for nodes, texts in swept.said.items() if node in nodes for text in texts]
        parts += [*dict.fromkeys(said[:2]), *slowed_of(hardware)]
    parts += filter(None, (card_of(hardware, name) for name in devices))
    if each.kind != "uplink":
        parts += written(swept, each.names, devices)
        parts += [text for name in each.names if (text := _grown(swept, name, devices if each.kind == "rail" else ()))]
    return failed(subject, "; ".join(parts)[:MOST_TEXT], EXPECTED, FAULTS[each.kind])


def written(swept: Swept, names: Collection[str], devices: Collection[str] = ()) -> Iterator[str]:
    """Describe the RDMA writes, without NCCL, of the tests with these nodes (only of these devices, if given).

    If the writes of a slow rail are slow, the link is at fault; if they are fast, it is not.
    """
    for pair, by_nic in swept.writes.items():
        chosen = {nic: ways for nic, ways in by_nic.items() if not devices or nic in devices}
        values = [way for ways in chosen.values() for way in ways if isinstance(way, int | float)]
        if values and set(names) <= set(pair):
            nics = safe(next(iter(chosen)), 40) if len(chosen) == 1 else f"{len(chosen)} NICs"
            shown = " to ".join(dict.fromkeys(f"{value:g}" for value in (min(values), max(values))))
            yield f"RDMA writes of {nics}, {' - '.join(pair)}: {shown} Gb/s"


def seen_again(swept: Swept) -> Iterator[str]:
    """Describe how to reproduce an uplink's fault: with two nodes of its leaf and two of another, none at fault."""
    for each in swept.blame.findings:
        mates = [node for node in swept.proven if swept.leaves.get(node) in each.names[:1]]
        partners = [node for node in swept.proven if swept.leaves.get(node, each.names[0]) not in each.names[:1]]
        if each.kind == "uplink" and len(mates) > 1 and len(partners) > 1:
            nodes = ",".join(map(shlex.quote, (*mates[:2], *partners[:2])))
            yield f"to see the uplink of {each.names[0]} again: seatrial sweep --on {nodes}"


def rest_of(section: Mapping[str, Any], names: Collection[str], leaves: Mapping[str, str]) -> float | None:
    """Return the median share of all pairs without these nodes and leaves; None if there are none."""
    inside = set(names)
    shares = [
        test["share"]
        for test in section["tests"]
        if len(test["nodes"]) == 2 and "share" in test and not inside & _touched(test["nodes"], leaves)
    ]
    return round(median(shares), 4) if shares else None


def _touched(nodes: Sequence[str], leaves: Mapping[str, str]) -> set[str]:
    ways = {leaves.get(node, "") for node in nodes}
    return {*nodes, *(ways if len(ways) > 1 else ())}


def devices_of(rails: Mapping[str, Sequence[str]], node: str, numbers: Sequence[int]) -> list[str]:
    """Return the device names of rails on the node; their numbers if the node does not report them."""
    names = rails.get(node, ())
    return [names[rail] if rail < len(names) else str(rail) for rail in numbers]


def card_of(hardware: SweptHardware, name: str) -> str:
    """Return the identity of a rail's device: serial number or GUID, PCI address; '' if unknown."""
    card = hardware["cards"].get(name, NO_CARD)
    labels = (("serial", card["serial"]), ("GUID", card["guid"]), ("PCI", card["pci"]))
    shown = ", ".join(f"{word} {safe(value, 60)}" for word, value in labels if value)
    return f"{name}: {shown}" if shown else ""


def slowed_of(hardware: SweptHardware) -> list[str]:
    """Return the GPUs that were throttled while the node was tested alone, and why."""
    texts = []
    for gpu in hardware["gpus"]:
        if reasons := ", ".join(safe(reason, 40) for reason in gpu["throttle"][:4]):
            mhz = list(gpu["mhz"])
            clock = f" at {mhz[1]:g} MHz" if len(mhz) == 3 else ""
            labels = (("serial", gpu["serial"]), ("UUID", gpu["uuid"]))
            label = next((f" ({word} {safe(value, 60)})" for word, value in labels if value), "")
            index = "?" if gpu["index"] is None else gpu["index"]
            texts.append(f"GPU {index}{label} was throttled by {reasons}{clock}")
    return texts[:SHOWN]


def _grown(swept: Swept, node: str, devices: Collection[str] = ()) -> str:
    """Name the port counters of a node, or of these devices of it, that grew in its tests; '' if there are none."""
    counts = swept.errors.get(node, {})
    texts = [f"{safe(n, 80)} {v}" for n, v in sorted(counts.items()) if not devices or n.partition("/")[0] in devices]
    return f"{node}: port counters that grew: {', '.join(texts[:SHOWN])}" if texts else ""


def notes(swept: Swept) -> Iterator[str]:
    """List proven nodes, flaky tests, excluded nodes, and nodes to cordon."""
    blame = swept.blame
    yield f"proven: {names_of(swept.proven)}"
    yield from blame.notes
    for pair in blame.flaky:
        yield f"flaky, not counted as a fault: {' - '.join(pair)} failed and then passed"
    for node in swept.tested:
        for text in slowed_of(swept.hardware.get(node, NO_HARDWARE)):
            yield f"{node}: {text}"
        if text := _grown(swept, node):
            yield text
    if swept.left:
        yield "not in the sweep: " + "; ".join(f"{node} ({why})" for node, why in list(swept.left.items())[:SHOWN])
    if swept.only_earlier:
        yield f"not tested in this run, and counted by the rounds of {swept.earlier}: {names_of(swept.only_earlier)}"
    if swept.earlier and swept.earlier.anew:
        anew = names_of(swept.earlier.anew)
        yield f"tested again, because their machines restarted, or may have, after {swept.earlier}: {anew}"
    if cordon := dict.fromkeys(f["names"][0] for f in swept.section["findings"] if f["kind"] in ("node", "rail")):
        yield f"to keep other workloads off the nodes at fault: kubectl cordon {' '.join(cordon)}"


def names_of(names: Sequence[str]) -> str:
    """Format a number of nodes with the first names."""
    return f"{len(names)} node{'' if len(names) == 1 else 's'}" + (f" ({first_of(names, SHOWN)})" if names else "")
