"""The facts of a job, without judgement: transports between nodes, GPUDirect, rails, sizes.

The order of evidence: channel lines, then the selected network, then device lists. Facts that none of them shows are
None. Ranks of a channel line are those of its communicator; they are mapped to nodes before an edge counts as "between
nodes".
"""

from __future__ import annotations

from functools import cached_property

from ...faults.catalogue import having
from ..job_document import IntraNode
from ..reader.events.transports import RDMA, TCP, family
from ..reader.state.channels import Connection, connector_of
from ..reader.state.process import Proc, channels_in
from .crossings import Crossing, Edge, between
from .devices import Carrier, Devices
from .jobs import Job, addressed, renamed, twice_ranked
from .sizes import (
    hosts_hidden,
    joined_ranks,
    list_cut,
    most_on_one_host,
    ranks_by_device,
    ranks_of,
    remote_trouble,
    silent,
    size_by_channels,
    split_hosts,
    table_nodes,
)


class View:
    """The facts of one job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._crossed: list[Edge] = []
        self._inner: dict[str, str] = {}  # connectors inside hosts, as text -> their kind
        self.local_net: list[Crossing] = []
        self.connectors: dict[Proc, dict[str, Carrier]] = {}  # connectors of a process's edges to other hosts
        self.rails: dict[str, dict[int, set[str]]] = {}  # node -> its ranks -> devices that carry their edges to others
        self.intra_node: dict[str, set[str]] = {}  # node -> the transports of channels inside it: p2p, shm
        self.shown: dict[str, set[int]] = {}  # communicator -> its ranks that show a channel
        self.split_nodes = 0  # NCCL's nNodes if there are fewer hosts
        self.local: dict[str, int] = {"p2p": 0, "shm": 0, "mnnvl": 0}
        self.switched: list[Crossing] = []  # edges that switches reduce (SHARP): they have one end
        self.disagreeing: list[tuple[Crossing, Crossing]] = []  # both ends of an edge, if they name different networks
        # NCCL itself counted one node; or it counts all hosts of an NVLink domain as one, which is not one host
        printed = [comm for key in job.world for comm in job.comms[key] if comm.nnodes]
        one = bool(printed) and all(comm.nnodes == 1 for comm in printed)
        mnnvl = [comm for comm in printed if comm.mnnvl]
        self.ranks = ranks_of(job)
        self.size_by_channels = size_by_channels(job)
        alone = one and bool(mnnvl) and most_on_one_host(job, self.ranks or 0)
        self.single = one and (alone or not mnnvl)
        self.nvlink_domain = one and len(mnnvl) == len(printed) and not alone
        self.table_nodes = table_nodes(job) if job.rank_lines else None
        self.list_cut = bool(job.rank_lines) and list_cut(job)
        self.devices = Devices(job)
        # Since 2.6.4 every process names its network; before, only a plugin that found its provider names it.
        self.networks = job.facts["net"]
        self.verbs_used = not job.noted.keys().isdisjoint(_TRANSFERS)
        self.counts: dict[str, int] = {}  # channels by transport over the edges that cross nodes
        nodes = job.nodes_of_ranks()
        for proc in job.procs:
            for comm, connections in proc.edges.items():
                self._connections(proc, comm, connections, nodes.get(comm) or {})
        self.pairs = between(self._crossed)  # crossing channels, by the hosts of sender and receiver
        if (
            len(
                {
                    connector.net
                    for connectors in self.connectors.values()
                    for connector, _, _ in connectors.values()
                    if connector.kind == "net"
                }
            )
            > 1
        ):
            self._disagree()
        self.mixed = bool(self.counts.keys() & TCP) and bool(self.counts.keys() - TCP)  # some sockets, others not
        self._placed = len({rank for key in job.world for rank in job.members[key]})  # ranks with a node
        self.ranks_by_device = self.ranks is None and bool(ranks_by_device(job))
        self.ranks = self.ranks or ranks_by_device(job) or None
        self.selected: dict[Proc, str | None] = {proc: selected(proc, self) for proc in job.procs}
        self.chosen = {value for value in self.selected.values() if value is not None}
        sockets = self.chosen & TCP  # some processes chose them, and others did not
        self.mixed_selection = not self.nvlink_domain and bool(sockets) and sockets != self.chosen
        self.nodes = self._nodes()
        self.transport = self._transport()
        self.fallback = self._fallback()
        self.gdr, self.gdr_mixed = self._gdr()

    # -- edges ---------------------------------------------------------------------------------------------------------
    def _connections(self, proc: Proc, comm: str, connections: dict[Connection, int], nodes: dict[int, str]) -> None:
        """Take the edges of a process in a communicator with ranks on these nodes."""
        here, twice = self.job.node_of[proc], twice_ranked(proc) if len(proc.comms) > 1 else set()
        listed = {} if proc.comms else self.job.rank_hosts  # from the table if nothing else shows it
        carriers, local, inner = self.devices.known[proc], self.local, self._inner
        node_kinds, shown = self.intra_node.setdefault(here, set()), self.shown.setdefault(comm, set())
        connectors: dict[str, Carrier] = {}
        for (src, dst, text), mask in connections.items():
            within = inner.get(text)
            if within is not None:
                shown.add(src)
                node_kinds.add(within)
                local[within] += channels_in(mask)
                continue
            carrier = carriers.get(text) or self.devices.carrier(proc, text)
            side, _, kind = carrier[0][:3]
            own = dst if side == "r" and dst >= 0 else src
            shown.add(own)
            if kind in local:
                local[kind] += channels_in(mask)
                if kind != "mnnvl":
                    node_kinds.add(kind)
                    if side != "r":
                        inner[text] = kind
                    continue
            host = here
            if listed:
                host = listed.get(src if side == "s" else dst, here)
                host = here if host == proc.host else host
            src_node = host if side == "s" else nodes.get(src)
            dst_node = host if side == "r" else nodes.get(dst)
            edge = (proc, here, comm, src, dst, mask, src_node, dst_node, carrier)
            if kind == "collnet":
                self.switched.append(Crossing(*edge))
            elif self.single or (
                src_node == dst_node and src_node and (not twice or self._certain(twice, comm, (src, dst, text)))
            ):
                if kind == "net":
                    self.local_net.append(Crossing(*edge))
                continue
            else:
                self._crossed.append(edge)
            transport = carrier[1]
            connectors[text] = carrier
            self.counts[transport] = self.counts.get(transport, 0) + channels_in(mask)
            if kind != "mnnvl" and transport not in TCP:
                self.rails.setdefault(here, {}).setdefault(own, set()).add(carrier[2])
        if connectors:
            self.connectors[proc] = {**self.connectors.get(proc, {}), **connectors}

    @cached_property
    def crossings(self) -> list[Crossing]:
        """The edges between hosts, as each end printed them."""
        return [Crossing(*edge) for edge in self._crossed]

    def _certain(self, twice: set[int], comm: str, connection: Connection) -> bool:
        """Return whether a network edge belongs to the assumed communicator: its ends are on the assumed nodes.

        A channel line names no communicator. If its process has that rank in several, the other end must show the edge,
        too.
        """
        src, dst, text = connection
        connector = connector_of(text)
        own, other = (src, dst) if connector.side == "s" else (dst, src)
        if own not in twice:
            return True
        member = self.job.member(comm, other)
        opposite = (src, dst, "r" if connector.side == "s" else "s", "net")
        connections = {} if member is None else member.edges.get(comm, {})
        return any(
            (src, dst, connector_of(text).side, connector_of(text).kind) == opposite for src, dst, text in connections
        )

    def _disagree(self) -> None:
        """Find the edges with incompatible networks at their ends."""
        net = [item for item in self.crossings if item.connector.kind == "net" and item.connector.side]
        if len({_wire_format(name) for name in {item.connector.net for item in net}}) < 2:
            return
        ends: dict[tuple[str, int, int, int], dict[str, Crossing]] = {}
        for item in net:
            ends.setdefault((item.comm, item.src, item.dst, item.connector.conn), {})[item.connector.side] = item
        for both in ends.values():
            if len(both) == 2 and _wire_format(both["s"].connector.net) != _wire_format(both["r"].connector.net):
                self.disagreeing.append((both["s"], both["r"]))

    # -- nodes ---------------------------------------------------------------------------------------------------------
    def _nodes(self) -> int | None:  # noqa: C901, PLR0911, PLR0912 -- one return per form
        job = self.job
        printed = max([comm.nnodes for key in job.world for comm in job.comms[key]] or [0])
        mnnvl = any(comm.mnnvl for key in job.world for comm in job.comms[key])
        hosts = {job.node_of[proc] for proc in job.procs if proc.host is not None}
        table = self.table_nodes
        complete = bool(self.ranks) and self._placed >= (self.ranks or 0)
        if printed and mnnvl:  # NCCL counts a whole NVLink domain as one node
            known = complete and all(proc.host is not None for proc in job.procs)
            known = known or table is not None or len(hosts) > 1 or most_on_one_host(job, self.ranks or 0)
            return max(printed, len(hosts), table or 0) if known else None
        if complete and printed > len(hosts) > 1 and addressed(job.procs):
            self.split_nodes = printed  # number of nodes if NCCL treats parts of one host as nodes
            return len(hosts)
        if printed > len(hosts) and not complete and split_hosts(job) and not renamed(job.procs):
            self.split_nodes = printed
            return None
        if printed and table is not None and len(job.rank_lines) > job.nranks:
            return max(printed, table)  # the list is of a larger job, without this communicator
        if printed:
            return printed
        table = table or max(job.numbers.get("hosts", ()), default=None)  # counted by the job summary of NCCL RAS
        if table is not None and len(hosts) <= table:
            return table
        if self.list_cut and not complete and len(job.procs) < (self.ranks or 0):
            return None
        if len(hosts) > 1:
            return len(hosts) if complete or not hosts_hidden(job) else None
        if self.ranks == 1:
            return 1
        if self._crossed:
            return 2 if self.ranks == 2 else None
        if hosts and (complete or self.ranks_by_device):
            return 1
        if job.rank_lines:
            return None
        if self.chosen & {*RDMA, "fastsocket"}:
            return None
        if (self.ranks or 0) > _OF_ONE_HOST and not complete and not self.local_evidence():
            return None  # no line shows the place of the other ranks
        if self.chosen_alone():
            return None
        if hosts and not (remote_trouble(job) or silent(job) or "fabric" in job.flags or hosts_hidden(job)):
            return 1
        return 1 if self.local_evidence() else None

    def alone(self) -> bool:
        """Return whether the log places every rank on the one host: a single visible host need not be the only one.

        The evidence is NCCL's own count of nodes, a whole rank list, or the ranks' channels inside the host; without
        these, the same host name for all of them.
        """
        if any(comm.nnodes for key in self.job.world for comm in self.job.comms[key]) or self.table_nodes == 1:
            return True
        groups = joined_ranks(self.job)
        if groups:
            return len(groups) == 1 and len(groups[0]) >= (self.ranks or 1)
        named = all(proc.host is not None for proc in self.job.procs)
        return named and self._placed >= (self.ranks or 1)

    def chosen_alone(self) -> bool:
        """Return whether sockets were chosen, and neither a size nor a channel shows traffic between hosts."""
        hosts = {self.job.node_of[proc] for proc in self.job.procs}
        shown = self.connectors or self.local_net or sum(self.local.values())
        return "socket" in self.chosen and not (self.ranks or shown or len(hosts) > 1)

    def local_evidence(self) -> bool:
        """Return whether the log shows only events that occur inside one node."""
        marked = any(name in self.job.noted or "symptom " + name in self.job.events for name in having("scope", "host"))
        return (marked or self.local["p2p"] > 0 or self.local["shm"] > 0) and not self._crossed

    def paths(self) -> IntraNode:
        """Count the channels between ranks of the same host by transport."""
        flags = self.job.flags
        return {
            "p2p": self.local["p2p"],
            "shm": self.local["shm"],
            "mnnvl": self.local["mnnvl"],
            "net": sum(channels_in(item.mask) for item in self.local_net),
            "nvls": True if "nvls" in flags else False if "no-nvls-channels" in flags else None,
        }

    # -- conclusions ---------------------------------------------------------------------------------------------------
    def _transport(self) -> str:
        counts = self.counts
        if counts:
            best = [name for name in sorted(counts, key=lambda name: (-counts[name], name)) if name not in TCP]
            return best[0] if best else max(sorted(counts), key=lambda name: counts[name])
        if self.ranks == 1 or (self.nodes == 1 and (self.alone() or not remote_trouble(self.job))):
            return "none"
        if self.nvlink_domain:  # the network that a rank names next to it carries nothing
            return "mnnvl"
        if self.chosen_alone():
            return "unknown"
        if not self.chosen:
            return self.devices.transport(self.job.procs[0]) if self.verbs_used and self.link_shown() else "unknown"
        return next(iter(self.chosen)) if len(self.chosen) == 1 else "unknown"

    def link_shown(self) -> bool:
        """Return whether a failed transfer shows the link layer.

        From 2.18 on its line has GIDs on RoCE, and none on InfiniBand.
        """
        texts = [note.text for proc in self.job.procs for note in proc.notes.values() if "Got completion" in note.text]
        return any("status=" in text for text in texts) or len(self.devices.links) == 1

    def mixed_plugins(self) -> tuple[list[str], list[str]]:
        """Return the nodes with NCCL's own verbs transport and those with a plugin's, if both are present."""
        nodes: dict[str, set[str]] = {}
        for proc in self.job.procs:
            for net in proc.facts.get("net", ()):
                if family(net) == "verbs":
                    nodes.setdefault(self.job.node_of[proc], set()).add("own" if net == "IB" else "plugin")
        own = sorted(node for node, kinds in nodes.items() if kinds == {"own"})
        plugin = sorted(node for node, kinds in nodes.items() if kinds == {"plugin"})
        return (own, plugin) if own and plugin else ([], [])

    def _fallback(self) -> bool | None:
        if self.counts:
            return "socket" in self.counts
        if self.ranks == 1 or self.nvlink_domain:
            return False
        if self.nodes == 1:  # nothing crosses hosts, whatever network was chosen for it
            return False if self.chosen or self.transport != "unknown" else None
        if "socket" in self.chosen:
            return True
        return False if self.chosen or self.transport != "unknown" or self.verbs_used else None

    def _gdr(self) -> tuple[bool | None, bool]:  # noqa: PLR0911 -- one return per kind of evidence
        carriers = {id(item): item for connectors in self.connectors.values() for item in connectors.values()}.values()
        net = [item for item in carriers if item.connector.kind != "mnnvl"]
        if net:
            rdma = [item for item in net if item.transport not in TCP]
            # Google's TCPX and FasTrak move GPU memory by design; their channel lines were never seen with the suffix.
            rdma = [item for item in rdma if item.connector.gdr or item.transport not in ("tcpx", "fastrak")] or rdma
            if all(item.transport in ("tcpx", "fastrak") and not item.connector.gdr for item in rdma) and rdma:
                return None, False
            if not rdma:
                return False, False
            used = {bool(item.connector.gdr) for item in rdma}
            return self._gdr_of(rdma) if len(used) > 1 else (used.pop(), False)
        if self.transport in TCP:
            return False, False
        if self.nodes is not None and self.nodes > 1 and self.transport in RDMA:
            rings = {value[-1] for value in self.job.facts["ring"]}
            if rings:
                return "1" in rings, len(rings) > 1
        if self.transport in RDMA:  # no channel line: NCCL's own decision per GPU and NIC, or no capable NIC
            if "gdr-pair" in self.job.flags:
                return True, False
            if "gdr-hca-off" in self.job.flags and "gdr-hca" not in self.job.flags:
                return False, False
        return None, False

    def _gdr_of(self, carriers: list[Carrier]) -> tuple[bool, bool]:
        """Return whether GPUDirect is used if not all channels have it, and whether they differ.

        A whole direction without it is one setting.
        """
        per_side: dict[tuple[str, str], set[bool]] = {}
        for proc, connectors in self.connectors.items():
            for connector in [item.connector for item in connectors.values() if item in carriers]:
                per_side.setdefault((self.job.node_of[proc], connector.side), set()).add(bool(connector.gdr))
        directions: dict[str, set[bool]] = {}
        for (_, direction), gdr_seen in per_side.items():
            directions.setdefault(direction, set()).update(gdr_seen)
        return all(True in gdr_seen for gdr_seen in directions.values()) or any(
            gdr_seen == {True} for gdr_seen in directions.values()
        ), True

    def direction_only(self) -> bool:
        """Return whether on all hosts GPUDirect is off for sends and on for receives (GDR read)."""
        directions: dict[str, set[bool]] = {}
        for item in self.crossings:
            if item.connector.kind == "net" and item.transport not in TCP:
                directions.setdefault(item.connector.side, set()).add(bool(item.connector.gdr))
        return directions == {"s": {False}, "r": {True}}


def _wire_format(net: str) -> str:
    """Return the network that an end reports: NCCL's own verbs and a plugin's are not compatible."""
    return "IB" if net == "IB" else family(net)


# Lines by which NET/IB reports a transfer.
_TRANSFERS = ("nccl.ib-retry", "nccl.ib-error", "nccl.ib-flushed", "nccl.ib-protection")
_OF_ONE_HOST = 8  # GPUs of common hosts; hosts with 16 are rare


def selected(proc: Proc, view: View) -> str | None:
    """Return the transport that a process chose, by its own lines; None if they do not show it."""
    nets = sorted(proc.facts.get("net", ()))
    if nets:
        kinds = [view.devices.transport(proc, net) for net in nets]
        rdma = [kind for kind in kinds if kind not in TCP]
        return rdma[0] if rdma else kinds[0]
    if proc.hcas:
        return view.devices.transport(proc)
    listed = proc.facts.get("listed", frozenset())
    for name in sorted(listed):
        kind = family(name)
        if kind not in ("socket", "verbs", "other"):
            return view.devices.transport(proc, name)
    if proc.facts.get("provider") and "nccl.ofi-no-provider" not in proc.notes and not view.networks:
        return view.devices.provider(proc)
    if "Socket" in listed and (proc.ibs or _verbs_ruled_out(proc)):
        return (
            "socket"  # before 2.6.4 there is no "Using network"; alone the line may be the bootstrap's (2.4.2 to 2.4.7)
        )
    # From 2.28 on networks are tried in turn, sockets last, until one is initialised (plugin/net.cc, ncclNetInit).
    return "socket" if "Socket" in proc.facts.get("loaded", ()) else None


def _verbs_ruled_out(proc: Proc) -> bool:
    return proc.env.get("NCCL_IB_DISABLE") not in (None, "0") or "nccl.libibverbs-missing" in proc.notes
