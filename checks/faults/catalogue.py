"""What does a fault mean, how is it confirmed, what helps? The catalogue that every report quotes.

The texts of the cluster's faults lie in `catalogue/*.yaml`, a file per layer; those of an NCCL log are the analyzer's
own (jobs.nccl.FAULTS). Rule: a fault that a check can raise and the catalogue does not know is a test failure.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import nccl

from ..profiles.yaml_schema import build, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).resolve().parent
NCCL_LAYER = "11 NCCL"
DEVICES = "layer 9 RDMA (seatrial preflight and rdma.devices), then 11 NCCL"
MADE_IN = {
    "layer 6 Node runtime: the driver, its modules and services on the node": (
        "p2p-off",
        "nvls-failed",
        "nvls-silent",
        "mnnvl-failed",
        "mnnvl-unused",
        "gdr-no-module",
        "gdr-register",
        "cuda-memory",
        "cuda-failure",
        "duplicate-gpu",
    ),
    "layer 6 Node runtime: the limits of the container": (
        "shm-full",
        "shm-attach",
        "files-limit",
        "ib-memlock",
        "oom-killed",
        "net-intra-node",
    ),
    "layer 8 Pod network: policies, firewalls, the interface that NCCL chose": (
        "bootstrap-interface",
        "bootstrap-unroutable",
        "no-route",
        "connect-refused",
        "connect-timeout",
        "wrong-peer",
    ),
    "layer 9 RDMA: cards, ports and their error counters": (
        "ib-retry",
        "ib-error",
        "ib-link-flap",
        "ib-unreachable",
        "ib-mixed-fabric",
        "ib-recovered",
        "ib-open",
        "ib-no-device",
        "ib-filter",
        "nic-count",
        "ofi-no-provider",
        "gin-failed",
    ),
    "layer 10 Topology": ("gdr-distance", "topology-virtual", "topology-odd", "ib-protection"),
    "layer 16 Images: libraries, sidecars and environment, the profile's pod.env included": (
        "version-mismatch",
        "message-truncated",
        "plugin-broken",
        "plugin-too-old",
        "plugin-missing",
        "plugin-init-failed",
        "libibverbs-missing",
        "ofi-provider",
        "pxn-off",
        "cuda-arch",
        "ib-disabled",
        "net-env",
        "net-forced",
        "gdr-env",
        "mr-register",
        "plugin-abort",
        "tcpx-stall",
    ),
}
"""NCCL's log shows these, and another layer makes them: where to look first, and the faults (nccl.*) of that."""
LOOK = {f"nccl.{name}": layer for layer, names in MADE_IN.items() for name in names} | {
    "nccl.socket-fallback": DEVICES,
    "nccl.mixed-transport": DEVICES,
    "nccl.wrong-fabric": DEVICES,
    "nccl.rail-missing": DEVICES,
    "nccl.gdr-off": "layer 9 RDMA and the driver's modules on the node, then 10 Topology",
    "nccl.gdr-mixed": "layer 9 RDMA and the driver's modules on the node, then 10 Topology",
    "nccl.hang": "layer 8 Pod network, then 9 RDMA: links and ports of the ranks that wait",
    "nccl.low-bandwidth": "layer 11 NCCL (rails, GPUDirect), then 9 RDMA (rates, error counters)",
    "nccl.unstable": "layer 9 RDMA (error counters, congestion), then 6 Node runtime (clocks)",
    "job.start-timeout": "layer 14 Starting the job, then 5 GPU stack: who holds the GPUs",
    "job.unschedulable": "layer 14 Starting the job, then 5 GPU stack: who holds the GPUs",
    "queue.waiting": "layer 14 Launching and queueing, then 5 GPU stack: who holds the GPUs",
    "port.blocked": "layer 7 Rendezvous, then 8 Pod network: policies and firewalls",
    "dns.unresolved": "layer 7 Rendezvous: the cluster's DNS, then 8 Pod network",
    "topology.affinity": "layer 10 Topology",
    "storage.slow": "layer 15 Storage; utilisation in waves also comes from 11 and 12",
}
"""Where to look first, where that is not the layer in which the fault shows (the user's symptom-to-layer map)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What a catalogue file says of one fault."""

    title: str
    meaning: str
    confirm: str
    remedy: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One catalogue file: the layer in which an operator should look, and its faults."""

    layer: str
    faults: dict[str, Text]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An entry of the catalogue. ``confirm`` is a command with the placeholders that ``explain`` fills."""

    id: str
    layer: str
    title: str
    meaning: str
    confirm: str
    remedy: str
    source: str


def read_catalogue() -> Mapping[str, Fault]:
    """Read the whole catalogue: id to fault, in the order in which an operator should look."""
    layers: list[Layer] = [build(Layer, read_yaml(p), p.name) for p in FOLDER.glob("*.yaml")]
    layers.sort(key=lambda found: int(found.layer.split()[0]))
    own = {
        fault_id: Fault(id=fault_id, layer=found.layer, **asdict(text))
        for found in layers
        for fault_id, text in found.faults.items()
    }
    return own | {i: _from_analyzer(i, entry) for i, entry in nccl.FAULTS.items()}


def explain(fault_id: str, subject: str = "", namespace: str = "") -> dict[str, str]:
    """Return the catalogue entry as plain texts, its command filled in for the subject of a finding."""
    fault = FAULTS.get(fault_id)
    if fault is None:
        return {
            "id": fault_id,
            "title": fault_id,
            "meaning": "This fault has no entry in the catalogue.",
            "confirm": "",
            "remedy": "",
            "source": "",
            "layer": "",
        }
    entry = {key: str(value) for key, value in asdict(fault).items()}
    entry["look"] = LOOK.get(fault_id, f"layer {fault.layer}")
    for key in ("confirm", "remedy"):
        entry[key] = fill(entry[key], subject, namespace)
    return entry


def fill(text: str, subject: str = "", namespace: str = "") -> str:
    """Put subject, node, right and namespace into a command; what is not known stays as a word in capitals.

    The values come from the cluster and the command goes into somebody's shell: they are quoted for it.
    A finding's subject starts with the node's name where it is about a node; a right reads 'create jobs.batch in ns'.
    """
    words = subject.split()
    values = {
        "{subject}": shlex.quote(subject) if subject else "NAME",
        "{node}": shlex.quote(words[0]) if words else "NODE",
        "{right}": right_arguments(subject) or "VERB RESOURCE",
        "{namespace}": shlex.quote(namespace) if namespace else "NAMESPACE",
    }
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def right_arguments(subject: str) -> str:
    """Turn 'get pods/log in ns' into the arguments of kubectl auth can-i: 'get pods --subresource=log -n ns'."""
    right, _, namespace = subject.partition(" in ")
    verb, _, resource = right.partition(" ")
    if not resource:
        return ""
    name, _, sub = resource.partition("/")
    parts = [verb, name, f"--subresource={sub}" if sub else "", f"-n {namespace}" if namespace else ""]
    return " ".join(shlex.quote(w) for p in parts for w in p.split())


def _from_analyzer(fault_id: str, entry: Mapping[str, Any]) -> Fault:
    """Take over an entry of the log analyzer, which is shipped into pods and therefore keeps its own texts."""
    return Fault(
        id=fault_id,
        layer=NCCL_LAYER,
        title=str(entry["title"]),
        meaning=str(entry["cause"]),
        confirm=str(entry["confirm"]),
        remedy=str(entry["remedy"]),
        source=str(entry["source"]),
    )


FAULTS: Mapping[str, Fault] = read_catalogue()
"""The catalogue, read when this module is first imported; nothing that only lists or collects checks imports it."""
