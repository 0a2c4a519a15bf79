"""The network devices of a job: the meaning of names and numbers in channel lines."""

from __future__ import annotations

import re
import sys
from functools import cached_property
from typing import NamedTuple

from ..reader.events.transports import family
from ..reader.state.channels import Connector, connector_of
from ..reader.state.process import Proc
from .jobs import Job


class Carrier(NamedTuple):
    """The transport of an edge: the connector as printed, the transport of its network, and the device's name."""

    connector: Connector
    transport: str
    device: str


class Devices:
    """The devices that processes list; a process that lists none uses those of its node, or of the job."""

    def __init__(self, job: Job) -> None:
        self._node_of = job.node_of
        self._on_node: dict[str, dict[int, str]] = {}
        self._all: dict[int, str] = {}
        for proc in job.procs:
            if proc.hcas.keys() - self._all.keys():
                self._all = {**proc.hcas, **self._all}
            known = self._on_node.setdefault(job.node_of[proc], proc.hcas)  # the device list that most have, mostly all
            if proc.hcas.keys() - known.keys():
                self._on_node[job.node_of[proc]] = {**proc.hcas, **known}
        self.links = {value for proc in job.procs for value in proc.facts.get("link", ())}  # link types in the log
        self._said: dict[str, dict[int, str]] = {}  # node -> index -> device, from lines other than the list
        self.ports: dict[str, dict[str, tuple[str, int]]] = {}  # node -> device -> link type, Mb/s
        for proc in job.procs:
            for text in sorted(proc.facts.get("port", ())):
                device, _, speed = text.partition(" ")
                port, _, link = device.partition("/")
                self.ports.setdefault(job.node_of[proc], {})[port] = (link, int(speed))
            for text in sorted(proc.facts.get("device", ())):  # the entry with the link type sorts last
                index, _, device = text.partition(" ")
                self._said.setdefault(job.node_of[proc], {})[int(index)] = device
        named = {*self._all.values(), *",".join(job.env["NCCL_IB_HCA"]).split(",")} - {""}
        named |= _uniform(self._said) if self._said else set()
        self.links |= {link_type(device) for device in named if not device.startswith("^")} - {""}
        if "gids" in job.events:  # net_ib prints GIDs for Ethernet only
            self.links.add("RoCE")
        self._providers = {value for proc in job.procs for value in proc.facts.get("provider", ())}
        self._procs = job.procs
        self.known: dict[Proc, dict[str, Carrier]] = {}  # one dict for all processes that see the same devices
        shared: dict[tuple[object, ...], dict[str, Carrier]] = {}
        for proc in job.procs:  # most share one list, which lives as long as they do
            listed: object = id(proc.hcas) if proc.hcas else job.node_of[proc] if self._all else None
            self.known[proc] = shared.setdefault((listed, proc.facts.get("provider")), {})

    def carrier(self, proc: Proc, text: str) -> Carrier:
        """Return the device of a process's connector; an unlisted device is named by its index."""
        connector = connector_of(text)
        if connector.kind in ("net", "collnet"):
            net, dev = "IB" if connector.kind == "collnet" else connector.net, connector.dev
            verbs = family(net) == "verbs"
            lists = (proc.hcas, self._on_node.get(self._node_of[proc], {}), self._all)
            device = next((listed[dev] for listed in lists if dev in listed), "") if verbs and dev >= 0 else None
            index = "%s/%d" % (net, dev) if dev >= 0 else net
            name = sys.intern(device.replace("/SHARP", "").rpartition("/")[0] or device) if device else index
            if verbs and not device:
                device = self._said.get(self._node_of[proc], {}).get(dev, "")
            carrier = Carrier(connector, self.transport(proc, net, device), name)
            if verbs and proc.hcas and dev not in proc.hcas:  # the device as its node, or any other, lists it
                return carrier
        else:
            carrier = Carrier(connector, connector.kind, connector.net)
        self.known[proc][text] = carrier
        return carrier

    def transport(self, proc: Proc, net: str = "IB", device: str | None = None) -> str:
        """Return the transport of a network's name, by the process's other lines.

        ``device`` is the device as listed, "" if no list names it; None: any of the network's. The result for verbs is
        ``ib`` or ``roce``, and ``ib`` if no line shows the link layer; for libfabric it is the transport of its
        provider.
        """
        kind = family(net)
        if kind == "ofi":
            return self.provider(proc)
        if kind != "verbs":
            return kind
        listed = proc.hcas or self._on_node.get(self._node_of[proc]) or self._all
        devices = [*listed.values()] if device is None else [device] if device else []
        links = [link for each in devices if (link := link_type(each))]
        if links:
            return "roce" if links.count("RoCE") * 2 > len(links) else "ib"
        return "roce" if self.links == {"RoCE"} else "ib"

    def link_types(self, node: str) -> dict[str, str]:
        """Return the devices that a node lists, named as in channels, with the link type if known."""
        listed = self._on_node.get(node, {}).values()
        return {each.replace("/SHARP", "").rpartition("/")[0]: link for each in listed if (link := link_type(each))}

    def provider(self, proc: Proc) -> str:
        """Return the fabric that the libfabric plugin uses.

        Its provider decides; AWS's name alone does not (Slingshot uses it, too).
        """
        for values in (proc.facts.get("provider", frozenset()), self._providers):
            for value in sorted(values):
                for start, transport in _PROVIDERS:
                    if value.startswith(start):
                        return transport
        return "cxi" if self._slingshot else "efa"

    @cached_property
    def _slingshot(self) -> bool:
        return any(map(_on_slingshot, self._procs))


def link_type(device: str) -> str:
    """Return RoCE or IB from a device's entry (``mlx5_0:1/RoCE``, also truncated), or its name; "" for neither."""
    name, _, printed = device.replace("/SHARP", "").partition("/")
    for link in _LINK_TYPES if printed else ():
        if link.lower().startswith(printed.lower()):
            return link
    match = _PERSISTENT.match(name)
    return "" if match is None else "RoCE" if match[1] == "roce" else "IB"


_LINK_TYPES = ("RoCE", "IB")
_PERSISTENT = re.compile(r"(roce|ib)(?:P\d{1,6})?(?:p\d{1,3}s\d|s\d|o\d|x[0-9a-f]{12})")
"""rdma-core's persistent names (kernel-boot/rdma_rename.c): link type, then PCI address, slot, board index or GUID."""


def _uniform(said: dict[str, dict[int, str]]) -> set[str]:
    """Return the devices whose link type applies to others.

    A single bond after the first device is a management interface, and does not count.
    """
    known = {(index, device) for devices in said.values() for index, device in devices.items()}
    names = {device for _, device in known}
    return names if len(names) > 1 or not any("bond" in device and index for index, device in known) else set()


# libfabric provider -> transport. Provider names: fi_info; over tcp or sockets the plugin is not RDMA.
_PROVIDERS = (
    ("efa", "efa"),
    ("cxi", "cxi"),
    ("tcp", "socket"),
    ("sockets", "socket"),
    ("udp", "socket"),
    ("verbs", "verbs-ofi"),
)


def _on_slingshot(proc: Proc) -> bool:
    """Return whether the host has Slingshot interfaces (hsn0, ...), its provider's settings, or an HPE Cray EX name.

    HPE Cray EX names a host by its node id (nid001234), or its location (x1000c1s2b0n0: cabinet, chassis, slot).
    """
    names = [text for fact in ("boot", "oob", "socket") for text in proc.facts.get(fact, ())]
    if any(name.startswith("hsn") for name in names) or any(name.startswith("FI_CXI") for name in proc.env):
        return True
    return proc.host is not None and _CRAY_NAME.match(proc.host) is not None


_CRAY_NAME = re.compile(r"nid\d{5,6}$|x\d{1,5}c\d{1,2}s\d{1,2}b\d{1,2}n\d{1,2}$")
