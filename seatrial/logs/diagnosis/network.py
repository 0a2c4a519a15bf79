"""Faults of the network: sockets, mixtures, missing GPUDirect, versions, another fabric; or no evidence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..intra_node import channels_by_path, wrong_paths
from ..job_document import NETWORK_NAMES
from ..reader.events.transports import RDMA, TCP
from .fallbacks import why_no_gdr, why_sockets, without_gpudirect
from .rails import judge_ports, judge_rails
from .subjects import pairs_text, process_order, subject_of

if TYPE_CHECKING:
    from ..job_document import EvidenceLine
    from ..reader.state.process import Proc
    from .judge import Judgement


def judge_network(judgement: Judgement) -> None:
    """Report sockets, mixtures, missing GPUDirect and missing rails; or that the log does not show them."""
    view = judgement.view
    if judgement.has("nccl.launch-failed"):
        return
    completed = any(table["complete"] for table in judgement.tables)
    if view.mixed or view.mixed_selection:
        _judge_mixture(judgement)
    elif view.disagreeing and not completed:
        _judge_ends(judgement)
    elif view.fallback and judgement.expect.fabric != "socket" and not view.chosen_alone():
        _judge_sockets(judgement)
    elif view.transport in RDMA and len(view.networks) > 1 and not completed and any(plugins := view.mixed_plugins()):
        _judge_plugins(judgement, *plugins)
    elif view.transport in RDMA:
        if judgement.expect.gdr is not False and (view.gdr is False or view.gdr_mixed):
            _judge_gdr(judgement)
        judge_rails(judgement)
    if judgement.expect.fabric is not None:
        _judge_fabric(judgement, judgement.expect.fabric)
    other_faults = [fault for fault in judgement.faults if fault["fault"] != "nccl.gdr-unsupported"]
    if not (view.connectors or other_faults) and view.transport != "none":
        why, evidence = _hint(judgement)
        judgement.add("nccl.no-evidence", "the job", evidence, cause=_what_is_missing(judgement), why=why)
    judgement.apply(_LAYOUT)


def _judge_evenness(judgement: Judgement) -> None:
    """Report hosts of one job with different numbers of ranks, which is rarely intended."""
    hosts = {host["name"]: len(host["ranks"]) for host in judgement.hosts if host["name"] and host["ranks"]}
    if len(set(hosts.values())) < 2 or sum(hosts.values()) != judgement.view.ranks:
        return
    fewest = min(hosts, key=lambda name: (hosts[name], name))
    most = max(hosts, key=lambda name: hosts[name])
    text = "%d ranks run on %s, %d on %s" % (hosts[fewest], fewest, hosts[most], most)
    judgement.add("nccl.uneven-hosts", fewest, [], cause=text)


# Obstacles between a process and its fabric, independent of its choice: reported if the log does not show that.
_HINTS = (
    "nccl.plugin-broken",
    "nccl.ofi-no-provider",
    "nccl.plugin-too-old",
    "nccl.ib-open",
    "nccl.plugin-init-failed",
    "nccl.gdrcopy",
)


def _hint(judgement: Judgement) -> tuple[str | None, list[EvidenceLine]]:
    """Return the first sign of trouble in a log that does not show its result."""
    alone = judgement.view.chosen_alone()
    for name in () if alone else _HINTS:
        note = judgement.earliest(name)[0] or judgement.event("symptom " + name)
        if note is not None and judgement.view.transport == "unknown":
            return name, judgement.line(note)
    if alone or judgement.view.transport in TCP:  # chosen networks; the log does not show that they carried data
        why, evidence, _ = why_sockets(judgement, judgement.job.procs)
        return why, evidence
    return None, []


def _what_is_missing(judgement: Judgement) -> str:
    lines = sum(source.nccl_lines for source in judgement.job.sources.values())
    if not lines:
        return (
            "the log has no line that NCCL printed itself: NCCL_DEBUG was not set, or its output went elsewhere "
            "(NCCL_DEBUG_FILE)"
        )
    if judgement.view.transport != "unknown":
        return (
            "a network was selected (%s), but no channel line shows that data crossed it: the log ends before the "
            "first collective" % judgement.view.transport
        )
    if lines == 1:
        return "NCCL printed one line, which is not a channel between hosts"
    return "NCCL printed %d lines, and none of them shows a channel between hosts" % lines


_WHOLE_VERSION = re.compile(r"(?:RCCL )?\d{1,2}\.\d{1,3}\.\d{1,3}(?![\w<>.:])")
"""A torn line's part of a version (``2.286``, ``2.28.92<0>``) is not another version."""


def judge_versions(judgement: Judgement) -> None:
    """Report ranks of one communicator that run different versions of NCCL."""
    if judgement.has("nccl.version-mismatch"):
        return
    procs_of: dict[str, list[Proc]] = {}
    for key in judgement.job.world:
        for proc in judgement.job.members[key].values():
            for version in filter(_WHOLE_VERSION.match, proc.facts.get("version", ())):
                procs_of.setdefault(version.partition("+")[0], []).append(proc)
        if len(procs_of) > 1:
            few = min(procs_of.values(), key=len)
            texts = [
                "%s on %s" % (version, subject_of(judgement, procs)) for version, procs in sorted(procs_of.items())
            ]
            judgement.add(
                "nccl.version-mismatch",
                subject_of(judgement, few),
                [],
                cause="different libraries: " + "; ".join(texts),
            )
            return
        procs_of = {}


def judge_forms(judgement: Judgement) -> None:
    """Report different texts about a missing plugin: before 2.22 only they show the versions of ranks other than 0."""
    if judgement.has("nccl.version-mismatch"):
        return
    nodes: dict[str, set[str]] = {}
    for proc in judgement.job.procs:
        nodes.setdefault(judgement.job.node_of[proc], set()).update(proc.facts.get("plugin-form", ()))
    forms = {node: node_forms for node, node_forms in nodes.items() if node and len(node_forms) == 1}
    if len({next(iter(node_forms)) for node_forms in forms.values()}) > 1:
        texts = ["%s on %s" % (next(iter(node_forms)), node) for node, node_forms in sorted(forms.items())]
        text = "the hosts word the same message as different versions do: NCCL " + "; ".join(texts[:4])
        judgement.add("nccl.version-mismatch", min(forms), [], cause=text)


def _judge_mixture(judgement: Judgement) -> None:
    view = judgement.view
    if view.mixed:
        bad = {item.proc for item in view.crossings if item.transport in TCP}
        good = {item.proc for item in view.crossings if item.transport not in TCP}
        culprits = (
            [proc for proc in judgement.job.procs if proc in bad and view.selected.get(proc) in TCP]
            or sorted(bad - good, key=process_order)
            or sorted(bad, key=process_order)
        )
    else:
        culprits = [proc for proc in judgement.job.procs if view.selected.get(proc) in TCP]
    why, evidence, cause = why_sockets(judgement, culprits)
    text = cause or None
    if _other_run(judgement, culprits):
        text = "the log holds several runs, and one of them used sockets" + (": %s" % cause if cause else "")
    judgement.faults[:] = [fault for fault in judgement.faults if fault["fault"] != "nccl.mixed-transport"]
    evidence = evidence + _shown(judgement, culprits)
    judgement.add("nccl.mixed-transport", subject_of(judgement, culprits), evidence, why=why, cause=text)


def _judge_ends(judgement: Judgement) -> None:
    """Report edges with different networks at sender and receiver; the rarer network is the suspect."""
    ends = judgement.view.disagreeing
    sender, receiver = ends[0]
    procs = {item.proc for pair in ends for item in pair}
    names: dict[str, set[Proc]] = {}
    for pair in ends:
        for item in pair:
            names.setdefault(item.connector.net, set()).add(item.proc)
    few = min(sorted(names), key=lambda name: len(names[name]))
    cause = "the ends of %d network edges name different networks, such as %d -> %d: sent over %s, received over %s" % (
        len(ends),
        sender.src,
        sender.dst,
        sender.connector.net,
        receiver.connector.net,
    )
    judgement.add(
        "nccl.mixed-transport", subject_of(judgement, sorted(names[few] or procs, key=process_order)), [], cause=cause
    )


def _other_run(judgement: Judgement, culprits: list[Proc]) -> bool:
    """Return whether those on sockets share no communicator, and no process, with the others."""
    job = judgement.job
    own = {key for proc in culprits for key, _ in proc.comms if key in job.world}
    with_them = {proc for key in own for proc in job.members[key].values()}
    foreign = [key for key in job.world if key not in own]
    return bool(own and foreign) and not any(proc in with_them for key in foreign for proc in job.members[key].values())


def _judge_peers(judgement: Judgement) -> None:
    """Report hosts with GPUs that use only the host's memory although NVLink connects them or other hosts use P2P.

    Without NVLink, and in a virtual machine, shared memory may be the only path. Hosts are compared only if all their
    ranks show their channels, and only with hosts of as many ranks: if GPUs are attached to two CPUs, every host has
    both kinds.
    """
    job = judgement.job
    intra_node = judgement.view.intra_node
    hosts = {
        host["name"]: len(host["ranks"])
        for host in judgement.hosts
        if host["name"] and len(host["ranks"]) > 1 and set(host["ranks"]) <= set(host["connected"])
    }
    if judgement.has("nccl.p2p-off"):
        return
    linked = {job.node_of[proc] for proc in job.procs if proc.has("flag", "nvlink")}
    if judgement.expect.intra_node == "p2p":
        _judge_profile_peers(judgement)
        return
    for name in [name for name in hosts if intra_node.get(name) == {"shm"}]:
        peers = [other for other in hosts if hosts[other] == hosts[name] and intra_node.get(other) == {"p2p"}]
        if not (peers or name in linked):
            continue
        own = [proc for proc in job.procs if job.node_of[proc] == name]
        env = sorted({f"{key}={proc.env[key]}" for proc in own for key in _P2P_SETTINGS if key in proc.env})
        text = "shared memory carries all channels inside this host, "
        text += f"and P2P those inside {peers[0]}" if peers else "though NVLink connects its GPUs"
        judgement.add("nccl.p2p-off", name, [], cause=text + ("; %s is set here" % " and ".join(env) if env else ""))


def _judge_profile_peers(judgement: Judgement) -> None:
    """Report hosts with a channel that does not use P2P although the profile expects P2P for all."""
    view, job = judgement.view, judgement.job
    used = channels_by_path(view.paths())
    if not wrong_paths(used, "p2p") or judgement.has("nccl.net-intra-node"):
        return
    nodes = sorted(node for node, kinds in view.intra_node.items() if "shm" in kinds)
    nodes = nodes or sorted({item.node for item in view.local_net})
    env = sorted({f"{key}={value}" for key in _P2P_SETTINGS for value in job.env[key]})
    counts = ", ".join(f"{count} by {path}" for path, count in used.items())
    text = f"channels inside the hosts: {counts} (the profile expects P2P on every channel)"
    judgement.add(
        "nccl.p2p-off", _some(nodes) or "the job", [], cause=text + (f"; {', '.join(env)} is set" if env else "")
    )


_P2P_SETTINGS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")


def _judge_sockets(judgement: Judgement) -> None:
    view = judgement.view
    procs = [proc for proc in judgement.job.procs if view.selected.get(proc) == "socket"] or [
        item.proc for item in view.crossings if item.transport == "socket"
    ]
    why, evidence, cause = why_sockets(judgement, procs)
    subject = pairs_text(judgement) or subject_of(judgement, procs)
    judgement.add("nccl.socket-fallback", subject, evidence + _shown(judgement, procs), why=why, cause=cause)


def _shown(judgement: Judgement, procs: list[Proc]) -> list[EvidenceLine]:
    """Return the line that shows sockets: a channel, or a process's choice."""
    for kind in ("line via-socket", "line chose-socket"):
        if note := judgement.job.first_note(kind, procs):
            return judgement.line(note)
    return []


def _judge_plugins(judgement: Judgement, own: list[str], plugin: list[str]) -> None:
    """Report hosts on NCCL's own verbs transport next to hosts on a plugin's: they may be incompatible."""
    text = "%s use NCCL's own verbs transport, %s a plugin's: one image has libnccl-net.so, the other does not"
    few = min(own, plugin, key=len)
    judgement.add("nccl.mixed-transport", _some(few), [], cause=text % (_some(own), _some(plugin)))


def _judge_gdr(judgement: Judgement) -> None:
    """Report channels between hosts without GPUDirect: all of them, or those of some hosts."""
    view, name, subject = judgement.view, "nccl.gdr-off", pairs_text(judgement)
    lacking = None if view.gdr_mixed else without_gpudirect(judgement)
    if lacking is not None and not judgement.expect.gdr:
        judgement.add("nccl.gdr-unsupported", subject or "the job", [], cause="%s: %s" % lacking)
        return
    why, evidence, cause = why_no_gdr(judgement)
    if lacking is not None:
        why, cause = None, "the profile expects GPUDirect RDMA; %s does not have it" % lacking[0]
    if view.gdr_mixed:
        with_it: dict[str, set[bool]] = {}
        for item in view.crossings:
            if item.connector.kind == "net":
                with_it.setdefault(item.node, set()).add(bool(item.connector.gdr))
        bad = sorted(node for node, each in with_it.items() if each == {False}) or sorted(
            node for node, each in with_it.items() if False in each
        )
        name, subject = "nccl.gdr-mixed", ", ".join(bad[:4])
        good = sorted(set(with_it) - set(bad))
        if cause is None and good and all(with_it[node] == {False} for node in bad):
            cause = "no channel of %s has GPUDirect, those of %s have it" % (_some(bad), _some(good))
            cause += "" if why else ": nvidia-peermem, or DMA-BUF, is missing on the former"
        if view.direction_only():
            cause = (
                "one direction has no GPUDirect on any host: GDR reads are off (NCCL_NET_GDR_READ, or a "
                "GPU before Ampere without NVLink)"
            )
    shown = judgement.line(judgement.earliest("line via-no-gdr")[0])
    judgement.add(name, subject or "the job", evidence + shown, why=why, cause=cause)


def _judge_hcas(judgement: Judgement) -> None:
    """Report devices for which NCCL reports GPUDirect off while it is on for others of their kind.

    Channels of these ranks may not use them, so that no channel line shows it. A port of another link type or rate is
    not a rail of the job.
    """
    view = judgement.view
    if judgement.has("nccl.gdr-off", "nccl.gdr-mixed") or judgement.expect.gdr is False or view.transport in TCP:
        return
    for node in sorted(set(judgement.job.node_of.values())):
        procs = [proc for proc in judgement.job.procs if judgement.job.node_of[proc] == node]
        on, off = ({device for proc in procs for device in proc.facts.get(fact, ())} for fact in ("gdr-on", "gdr-off"))
        kinds = {port.partition(":")[0]: kind for port, kind in view.devices.ports.get(node, {}).items()}
        listed = {device for proc in procs for device in proc.hcas.values()}
        links = {device.partition(":")[0]: device.rpartition("/")[2] for device in listed if "/" in device}
        rails = {(kinds.get(device), links.get(device)) for device in on}
        without = sorted(device for device in off - on if (kinds.get(device), links.get(device)) in rails)
        if without:
            text = "NCCL reports GPUDirect RDMA as disabled for %s and as enabled for %s"
            shown = judgement.line(judgement.job.first_note("nccl.gdr-no-module", procs))
            judgement.add(
                "nccl.gdr-hca-off", node or "the job", shown, cause=text % (_some(without), _some(sorted(on)))
            )


def _judge_link_types(judgement: Judgement) -> None:
    """Report devices of another link type than the others: degraded if channels use both types.

    If the log shows channels and none uses one, it is harmless.
    """
    view = judgement.view
    listed = {node: view.devices.link_types(node) for node in sorted(set(judgement.job.node_of.values()))}
    used = {node: {device for each in ranks.values() for device in each} for node, ranks in view.rails.items()}
    carrying = {
        node: {types[device] for device in used.get(node, ()) if device in types} for node, types in listed.items()
    }
    both = {node: types for node, types in listed.items() if len(set(types.values())) > 1}
    if view.nodes == 1 or (len(set().union(*carrying.values())) < 2 and (view.connectors or not both)):
        return
    if not both:
        fabrics = [
            _some([node for node, links in carrying.items() if kind in links]) + " over " + NETWORK_NAMES[kind.lower()]
            for kind in ("IB", "RoCE")
        ]
        judgement.add("nccl.mixed-rails", "the job", [], cause=" and ".join(fabrics) + ": nothing joins these fabrics")
        return
    by_type = {
        kind: {device for types in both.values() for device, link in types.items() if link == kind}
        for kind in ("RoCE", "IB")
    }
    odd = min(by_type, key=lambda kind: len(by_type[kind]))
    few, many = by_type.pop(odd), *by_type.values()
    text = "%s (%s) among %d %s devices: NCCL_IB_HCA=%s leaves out NICs that carry no data" % (
        _some(sorted(few)),
        NETWORK_NAMES[odd.lower()],
        len(many),
        NETWORK_NAMES[next(iter(by_type)).lower()],
        _without(few, many),
    )
    if not view.connectors:
        judgement.add("nccl.mixed-hcas", "the job", [], cause="NCCL lists " + text)
        return
    nodes = sorted(node for node, links in carrying.items() if odd in links and node)
    judgement.add("nccl.mixed-rails", _some(nodes) or "the job", [], cause="channels use " + text)


def _without(few: set[str], many: set[str]) -> str:
    """Return the value of NCCL_IB_HCA that excludes devices: it compares prefixes, unless an = precedes them."""
    names = sorted({device.partition(":")[0] for device in few})
    exact = any(device.startswith(name) for device in many for name in names)
    return ("^=" if exact else "^") + ",".join(names[:8])


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (" and %d more" % (len(names) - 3) if len(names) > 3 else "")


# Variables that change NCCL's choice of a network (NCCL documentation, Environment Variables).
_CHOOSE = ("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_HCA", "NCCL_MNNVL_ENABLE", "NCCL_IB_DISABLE")


def _judge_fabric(judgement: Judgement, fabric: str) -> None:
    """Compare the transport with the fabric of the profile; sockets and mixtures are separate faults."""
    view = judgement.view
    if fabric == view.transport or not view.pairs:
        return
    if judgement.has("nccl.socket-fallback", "nccl.mixed-transport"):
        return
    cause = "%s was expected and %s is used" % (fabric, view.transport)
    settings = sorted("%s=%s" % (name, value) for name in _CHOOSE for value in judgement.job.env[name])
    if settings:
        cause += "; %s is set (in the job's environment, or the image)" % ", ".join(settings)
    judgement.add("nccl.wrong-fabric", pairs_text(judgement) or "the job", [], cause=cause)


def _judge_split(judgement: Judgement) -> None:
    """Report that NCCL treats parts of a host as nodes."""
    split, nodes = judgement.view.split_nodes, judgement.view.nodes
    text = "NCCL counts %d nodes on %d hosts: parts of a host are nodes to it" % (split, nodes or 0)
    if nodes is None:
        text = (
            "NCCL counts %d nodes, and a GPU's index is beyond the ranks of one: parts of a host may be nodes,"
            " unless the job was given only the last GPUs of its hosts" % split
        )
    judgement.add("nccl.node-count", "the job", [], cause=text)


_LAYOUT = (
    ("port rates", judge_ports),
    ("devices without GPUDirect", _judge_hcas),
    ("network devices", _judge_link_types),
    ("ranks of hosts", _judge_evenness),
    ("shared memory", _judge_peers),
    ("split hosts", _judge_split),
)
