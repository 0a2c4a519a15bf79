"""Which faults does a job have, and why? The rules, from how it ended, over its network and nodes, to its results.

One broken thing is one fault: a cause that explains another fault is reported inside it, and consequences are not reported.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Set, Tuple

from .judge import DEADLY, Judgement
from .signals import watch_summary
from .state import Note, Proc
from .symptoms import SYMPTOMS
from .transports import RDMA, TCP
from .view import compact_devices

_CAUSES = tuple(dict.fromkeys(item.fault for item in SYMPTOMS if item.role == "cause"))
_DEGRADED = tuple(dict.fromkeys(item.fault for item in SYMPTOMS if item.role == "degraded"))


# -- how it ended --------------------------------------------------------------------------------------------------------------
def judge_ending(judgement: Judgement) -> None:
    """Report a hang, a crash with its first cause, or a log that ends too early."""
    cause = first_cause(judgement)
    if cause is not None and (judgement.crash or judgement.hang or cause[0] in DEADLY or cause[0].startswith("nccl.ib-")):
        name, note, procs = cause
        judgement.add(name, _subject(judgement, procs), judgement.line(note))
        if judgement.hang:
            judgement.add("nccl.hang", "the job", _hang_evidence(judgement), cause="it followed the fault above: %s" % judgement.faults[0]["title"].lower())
        return
    waited = judgement.event("watchdog")
    if judgement.hang or (waited and judgement.crash):
        watch = {rank: numbers for source in judgement.job.sources.values() for rank, numbers in source.watch.items()}
        judgement.add("nccl.hang", "the job", _hang_evidence(judgement), cause=_hang_cause(watch))
        return
    if judgement.crash:
        for event, fault in (("launch-failed", "nccl.launch-failed"), ("oom-kill", "nccl.oom-killed")):
            note = judgement.event(event)
            if note is not None:
                judgement.add(fault, "the job", judgement.line(note))
                return
        judgement.add("nccl.crash", _crash_subject(judgement), _crash_evidence(judgement))
        return
    _judge_truncation(judgement)


def first_cause(judgement: Judgement) -> "Optional[Tuple[str, Note, List[Proc]]]":
    """Return the cause that was seen first: of each process its first warning that is a cause, over processes the earliest line.

    Warnings after the first error trace of a process are consequences (catalogue 1.1), unless nothing stood before it.
    """
    found = []  # type: List[Tuple[bool, int, int, str, Note]]
    for proc in judgement.job.procs:
        trace = proc.notes.get("trace")
        for name, note in proc.notes.items():
            if name in _CAUSES:
                late = trace is not None and (note.source, note.line) > (trace.source, trace.line)
                found.append((late, note.source, note.line, name, note))
    if not found:
        for source in judgement.job.sources.values():
            for event, note in source.events.items():
                if event.startswith("symptom ") and event[8:] in _CAUSES:
                    found.append((event[8:] == "nccl.cuda-failure", note.source, note.line, event[8:], note))
    if not found:
        return None
    _, _, _, name, note = min(found, key=lambda item: item[:4])
    return name, note, [proc for proc in judgement.job.procs if name in proc.notes]


def _hang_evidence(judgement: Judgement) -> List[Dict[str, Any]]:
    lines = []
    for name in ("watchdog", "time-limit", "test-timeout", "dead-peer"):
        lines.extend(judgement.line(judgement.event(name)))
    return lines


def _hang_cause(watch: "Dict[str, List[int]]") -> Optional[str]:
    text = watch_summary(watch)
    if text is None:
        return None
    if "different operations" in text:
        return text + ": the ranks lost step with each other, which is a fault of the program"
    return text + ": a rank that is not among them is missing, or the network stalled"


def _crash_evidence(judgement: Judgement) -> List[Dict[str, Any]]:
    lines = []
    for name in ("warn", "trace"):
        note, _ = judgement.earliest(name)
        lines.extend(judgement.line(note))
    for name in ("test-failure", "nccl-error", "signal", "test-stack", "terminated"):
        lines.extend(judgement.line(judgement.event(name)))
    return lines


def _crash_subject(judgement: Judgement) -> str:
    note, procs = judgement.earliest("warn")
    if note is None:
        note, procs = judgement.earliest("trace")
    first = [proc for proc in procs if note is not None and (proc.notes.get("warn") is note or proc.notes.get("trace") is note)]
    return _subject(judgement, first) if first else "the job"


def _judge_truncation(judgement: Judgement) -> None:
    """A table without its end, or ranks that began and never finished, in a log that shows no failure."""
    open_tables = [table for table in judgement.tables if not table["complete"] and (table["rows"] or table["columns"])]
    if open_tables and not judgement.job.flag("destroyed") and _has_config(open_tables[-1]):
        rows = len(open_tables[-1]["rows"])
        judgement.add("nccl.log-truncated", "the table of %s" % (open_tables[-1]["collective"] or "the benchmark"), [], cause="the table ends after %d rows, without its last lines" % rows)
        return
    started = {(key, rank) for proc in judgement.job.procs for (key, rank), comm in proc.comms.items() if comm.started}
    ended = {(key, rank) for proc in judgement.job.procs for (key, rank), comm in proc.comms.items() if comm.completed}
    if started - ended and any(key.startswith("0x") for key, _ in started):
        judgement.add("nccl.log-truncated", "the job", [], cause="%d of %d ranks began to initialise and are not seen to finish" % (len(started - ended), len(started)))


def _has_config(table: Dict[str, Any]) -> bool:
    return bool(table["config"]) or bool(table["collective"])


# -- the network ---------------------------------------------------------------------------------------------------------------
def judge_network(judgement: Judgement) -> None:
    """Report sockets, mixtures, missing GPUDirect and missing rails; or that the log does not show them."""
    view = judgement.view
    _judge_versions(judgement)
    if judgement.has("nccl.launch-failed"):
        return
    if view.mixed_crossings() or view.mixed_selection():
        _judge_mixture(judgement)
    elif view.fallback:
        _judge_sockets(judgement)
    elif view.transport in RDMA:
        _judge_rdma(judgement)
    _judge_expected(judgement)
    if not view.crossings and view.transport != "none" and not judgement.faults:
        judgement.add("nccl.no-evidence", "the job", [], cause=_what_is_missing(judgement))


def _what_is_missing(judgement: Judgement) -> str:
    lines = sum(source.nccl_lines for source in judgement.job.sources.values())
    if not lines:
        return "there is no line of NCCL's in the log: NCCL_DEBUG was not set, or its output went elsewhere (NCCL_DEBUG_FILE)"
    if judgement.view.transport != "unknown":
        return "a network was selected (%s), but no channel line shows that data crossed it: the log ends before the first collective" % judgement.view.transport
    return "NCCL printed %d lines, and none of them is a channel between hosts" % lines


def _judge_versions(judgement: Judgement) -> None:
    if judgement.has("nccl.version-mismatch"):
        return
    seen = {}  # type: Dict[str, List[Proc]]
    for key in judgement.job.world:
        for proc in judgement.job.members[key].values():
            for version in proc.facts.get("version", ()):
                seen.setdefault(version.partition("+")[0], []).append(proc)
        if len(seen) > 1:
            few = min(seen.values(), key=len)
            texts = ["%s on %s" % (version, _subject(judgement, procs)) for version, procs in sorted(seen.items())]
            judgement.add("nccl.version-mismatch", _subject(judgement, few), [], cause="different libraries: " + "; ".join(texts))
            return
        seen = {}


def _judge_mixture(judgement: Judgement) -> None:
    view = judgement.view
    if view.mixed_crossings():
        bad = {item.proc for item in view.crossings if item.transport in TCP}
        good = {item.proc for item in view.crossings if item.transport not in TCP}
        culprits = [proc for proc in judgement.job.procs if proc in bad and view.selected.get(proc) in TCP] or sorted(bad - good, key=_order) or sorted(bad, key=_order)
    else:
        culprits = [proc for proc in judgement.job.procs if view.selected.get(proc) in TCP]
    why, evidence, cause = why_sockets(judgement, culprits)
    counts = {name: 0 for name in view.counts()}
    counts.update(view.counts())
    text = cause or None
    judgement.faults[:] = [fault for fault in judgement.faults if fault["fault"] != "nccl.mixed-transport"]
    judgement.add("nccl.mixed-transport", _subject(judgement, culprits), evidence, why=why, cause=text)


def _judge_sockets(judgement: Judgement) -> None:
    view = judgement.view
    procs = [proc for proc in judgement.job.procs if view.selected.get(proc) == "socket"] or [item.proc for item in view.crossings if item.transport == "socket"]
    why, evidence, cause = why_sockets(judgement, procs)
    subject = _pairs_text(judgement) or _subject(judgement, procs)
    judgement.add("nccl.socket-fallback", subject, evidence, why=why, cause=cause)


# The decision list of the catalogue (2, "WHY-a-fallback"): first hit wins.
_WHY = (
    "nccl.plugin-broken", "nccl.plugin-too-old", "nccl.ofi-no-provider", "nccl.ib-disabled", "nccl.libibverbs-missing", "nccl.ib-open",
    "nccl.ib-filter", "nccl.ib-no-device", "nccl.plugin-missing", "nccl.plugin-init-failed",
)  # fmt: skip


def why_sockets(judgement: Judgement, procs: "List[Proc]") -> "Tuple[Optional[str], List[Dict[str, Any]], Optional[str]]":
    """Return why these processes use sockets: the fault that explains it, its evidence, and a cause in words."""
    for variable in ("NCCL_NET", "NCCL_NET_PLUGIN"):
        values = {proc.env[variable] for proc in procs if variable in proc.env}
        if variable == "NCCL_NET" and any(value.lower() == "socket" for value in values):
            return "nccl.net-env", [], "NCCL_NET=Socket is set"
        if variable == "NCCL_NET_PLUGIN" and values & {"none", "None"}:
            return "nccl.net-env", [], "NCCL_NET_PLUGIN=none is set"
    providers = {value for proc in procs for value in proc.facts.get("provider", ())}
    if any(value.startswith(("tcp", "sockets", "udp")) for value in providers):
        return "nccl.ofi-provider", [], "the libfabric plugin selected the provider %s" % sorted(providers)[0]
    for why in _WHY:
        if why == "nccl.ib-disabled":
            off = [proc for proc in procs if proc.env.get("NCCL_IB_DISABLE") not in (None, "0")]
            if off:
                return why, [], "NCCL_IB_DISABLE=%s is set" % off[0].env["NCCL_IB_DISABLE"]
            continue
        note = _first_note("nccl.ib-no-device" if why == "nccl.ib-filter" else why, procs)
        if note is None:
            continue
        if why == "nccl.ib-filter":
            filters = sorted({proc.env["NCCL_IB_HCA"] for proc in procs if "NCCL_IB_HCA" in proc.env})
            if not filters:
                continue
            cause = "NCCL_IB_HCA=%s is set and no usable device is left: the filter matches none, or there is none at all" % filters[0]
            return why, judgement.line(note), cause
        if why == "nccl.plugin-missing" and not _needs_plugin(procs):
            continue
        if why == "nccl.ib-no-device" and _needs_plugin(procs) and _first_note("nccl.plugin-missing", procs) is not None:
            return "nccl.plugin-missing", judgement.line(note) + judgement.line(_first_note("nccl.plugin-missing", procs)), None
        return why, judgement.line(note), None
    return None, [], None


def _first_note(name: str, procs: "List[Proc]") -> Optional[Note]:
    notes = sorted([proc.notes[name] for proc in procs if name in proc.notes], key=lambda note: (note.source, note.line))
    return notes[0] if notes else None


def _needs_plugin(procs: "List[Proc]") -> bool:
    """Say whether the host's interfaces belong to a fabric that NCCL only reaches through a plugin (Slingshot's hsn)."""
    names = {text.split(" ")[0] for proc in procs for fact in ("boot", "oob", "socket") for text in proc.facts.get(fact, ())}
    return any(name.startswith("hsn") for name in names)


def _judge_rdma(judgement: Judgement) -> None:
    view = judgement.view
    if view.gdr is False:
        why, evidence, cause = why_no_gdr(judgement)
        judgement.add("nccl.gdr-off", _pairs_text(judgement) or "the job", evidence, why=why, cause=cause)
    elif view.gdr_mixed:
        sides = {}  # type: Dict[str, Set[bool]]
        for item in view.crossings:
            if item.key[5] == "net":
                sides.setdefault(judgement.job.node_of[item.proc], set()).add(bool(item.key[8]))
        bad = sorted(node for node, found in sides.items() if found == {False}) or sorted(node for node, found in sides.items() if False in found)
        why, evidence, cause = why_no_gdr(judgement)
        if view.direction_only():
            cause = "one direction has no GPUDirect on every host alike: GDR reads are off (NCCL_NET_GDR_READ, or a GPU before Ampere without NVLink)"
        judgement.add("nccl.gdr-mixed", ", ".join(bad[:4]) or "the job", evidence, why=why, cause=cause)
    _judge_rails(judgement)


def why_no_gdr(judgement: Judgement) -> "Tuple[Optional[str], List[Dict[str, Any]], Optional[str]]":
    """Return why GPUDirect is off, as far as the log says."""
    for proc in judgement.job.procs:
        level = proc.env.get("NCCL_NET_GDR_LEVEL", "")
        if level in ("LOC", "0") or proc.env.get("NCCL_IB_CUDA_SUPPORT") == "0":
            return "nccl.gdr-env", [], "NCCL_NET_GDR_LEVEL=%s is set" % level if level else "NCCL_IB_CUDA_SUPPORT=0 is set"
    for name in ("nccl.gdr-no-module", "nccl.gdr-distance", "nccl.topology-virtual"):
        note, _ = judgement.earliest(name)
        if note is not None:
            return name, judgement.line(note), None
    return None, [], None


def rails(judgement: Judgement) -> "Dict[str, Dict[str, Any]]":
    """Count the network devices that carry channels per host, and how many the host offers (of the link layer in use)."""
    view = judgement.view
    hosts = {}  # type: Dict[str, Dict[str, Any]]
    for proc in judgement.job.procs:
        node = judgement.job.node_of[proc]
        entry = hosts.setdefault(node, {"used": set(), "offered": None, "ranks": 0})
        entry["ranks"] += 1
        if proc.hcas:
            entry["offered"] = max(entry["offered"] or 0, len(proc.hcas))
    for item in view.crossings:
        if item.key[5] == "net" and item.transport not in TCP:
            hosts[judgement.job.node_of[item.proc]]["used"].add(item.device)
    return hosts


def _judge_rails(judgement: Judgement) -> None:
    if not any(item.key[5] == "net" for item in judgement.view.crossings):
        return
    counted = rails(judgement)
    wanted = judgement.expect.get("rails")
    best = max(len(entry["used"]) for entry in counted.values())
    most = max(entry["ranks"] for entry in counted.values())
    full = judgement.view.ranks is not None and sum(entry["ranks"] for entry in counted.values()) >= judgement.view.ranks
    for node, entry in sorted(counted.items()):
        used = len(entry["used"])
        if wanted is not None and entry["ranks"] == most and used < int(wanted):
            missing = "%d of %d rails carry channels: %s" % (used, int(wanted), ", ".join(compact_devices(entry["used"])[:12]) or "none")
            judgement.add("nccl.rail-missing", node, [], cause=missing)
        elif wanted is None and full and entry["ranks"] == most and used < best and _offers_fewer(counted, entry):
            missing = "%d rails carry channels here and %d on another host (%s)" % (used, best, ", ".join(compact_devices(entry["used"])[:12]))
            judgement.add("nccl.rail-missing", node, [], cause=missing)


def _offers_fewer(counted: "Dict[str, Dict[str, Any]]", entry: "Dict[str, Any]") -> bool:
    """Say whether a host also lists fewer devices than another: NCCL alone may well choose differently per host."""
    offers = [other["offered"] for other in counted.values() if other["offered"] is not None]
    return entry["offered"] is not None and bool(offers) and entry["offered"] < max(offers)


def _judge_expected(judgement: Judgement) -> None:
    """Compare with what the profile expects."""
    expect, view = judgement.expect, judgement.view
    fabric = expect.get("fabric")
    if fabric and view.crossings and view.transport != fabric and view.transport not in TCP and not view.mixed_crossings():
        judgement.add("nccl.wrong-fabric", _pairs_text(judgement) or "the job", [], cause="%s was expected and %s is used" % (fabric, view.transport))


# -- inside the nodes ----------------------------------------------------------------------------------------------------------
def judge_node(judgement: Judgement) -> None:
    """Report what degrades the work inside nodes."""
    for name in _DEGRADED:
        note, procs = judgement.earliest(name)
        if note is not None and not judgement.has(name):
            judgement.add(name, _subject(judgement, procs), judgement.line(note))
    view = judgement.view
    if view.local_net and not judgement.has("nccl.net-intra-node") and view.single:
        procs = [item.proc for item in view.local_net]
        judgement.add("nccl.net-intra-node", _subject(judgement, procs), [], cause=_intra_cause(judgement))
    fabric = [proc for proc in judgement.job.procs if proc.has("flag", "fabric")]
    if fabric and view.crossings and not view.local["mnnvl"] and (view.nodes or 0) > 1 and view.transport in TCP:
        judgement.add("nccl.mnnvl-unused", _subject(judgement, fabric), [])


def _intra_cause(judgement: Judgement) -> Optional[str]:
    for variable in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"):
        if any(proc.env.get(variable) == "1" for proc in judgement.job.procs):
            return "%s=1 is set" % variable
    return None


# -- results -------------------------------------------------------------------------------------------------------------------
def judge_results(judgement: Judgement) -> None:
    """Report wrong data, numbers that are none, and bandwidth that the benchmark itself calls too low or that falls."""
    for table in judgement.tables:
        what = table["collective"] or "the benchmark"
        bad = [row for row in table["rows"] for side in ("out_of_place", "in_place") if row[side] and (row[side]["wrong"] or 0) > 0]
        if bad or (table["out_of_bounds"] or 0) > 0 or table["out_of_bounds_ok"] is False:
            line = table["wrong_line"] or [table["line"], ""]
            count = table["out_of_bounds"] if not bad else sum((row[side] or {}).get("wrong") or 0 for row in bad for side in ("out_of_place", "in_place"))
            judgement.add("nccl.wrong-results", what, _table_line(judgement, table, line), cause="%s values were wrong" % (count if count is not None else "some"))
        if table["avg_ok"] is False:
            judgement.add("nccl.low-bandwidth", what, [], cause="the average bus bandwidth of %s GB/s is below the minimum that was set (NCCL_TESTS_MIN_BW)" % table["avg_busbw"])
        elif _falls(table):
            peak, last = _peak_and_last(table)
            judgement.add("nccl.bandwidth-falls", what, [], cause="the bus bandwidth falls from %.4g to %.4g GB/s as messages grow" % (peak, last))
        if table["odd"]:
            judgement.add("nccl.odd-numbers", what, [], cause="; ".join(table["odd"][:3]))


def _table_line(judgement: Judgement, table: Dict[str, Any], line: "List[Any]") -> List[Dict[str, Any]]:
    for source in judgement.job.sources.values():
        if any(item is table for item in source.tables):
            return [{"file": source.name, "line": line[0], "text": line[1]}]
    return []


def busbw(table: Dict[str, Any]) -> "List[Tuple[int, float]]":
    """Return (size, best bus bandwidth of the row) for every readable row."""
    points = []
    for row in table["rows"]:
        values = [row[side]["busbw_gbps"] for side in ("out_of_place", "in_place") if row[side] and row[side]["busbw_gbps"] is not None]
        if values and math.isfinite(max(values)):
            points.append((int(row["size_bytes"]), float(max(values))))
    return points


def _peak_and_last(table: Dict[str, Any]) -> Tuple[float, float]:
    points = busbw(table)
    return max(value for _, value in points), max(points)[1]


def _falls(table: Dict[str, Any]) -> bool:
    """Say whether bandwidth collapses with size: the largest message, of at least 64 MiB, gives less than 40 % of the peak.

    Healthy curves rise and stay: over the corpus' healthy tables the largest size gives more than 85 % of the peak, the sick
    link of row 72 gives 12 %.
    """
    points = busbw(table)
    if len(points) < 4:
        return False
    size, last = max(points)
    peak = max(value for _, value in points)
    return size >= 64 << 20 and peak > 1.0 and last < 0.4 * peak


# -- words ---------------------------------------------------------------------------------------------------------------------
def _order(proc: Proc) -> "Tuple[str, int]":
    return proc.host or "", proc.pid or 0


def _subject(judgement: Judgement, procs: "List[Proc]") -> str:
    """Name processes for a person: hosts, and their ranks where it is not all of the host."""
    if not procs:
        return "the job"
    nodes = {}  # type: Dict[str, List[Proc]]
    for proc in sorted(set(procs), key=_order):
        nodes.setdefault(judgement.job.node_of[proc] or "(host not shown)", []).append(proc)
    totals = {}  # type: Dict[str, int]
    for node in judgement.job.node_of.values():
        totals[node or "(host not shown)"] = totals.get(node or "(host not shown)", 0) + 1
    texts = []
    for node, members in sorted(nodes.items()):
        ranks = sorted({comm.rank for proc in members for comm in proc.comms.values() if comm.nranks == judgement.job.nranks})
        if len(members) < totals.get(node, 0) and ranks:
            texts.append("%s (rank %s)" % (node, ", ".join(str(rank) for rank in ranks[:8]) + (", ..." if len(ranks) > 8 else "")))
        else:
            texts.append(node)
    return ", ".join(texts[:4]) + (" and %d more" % (len(texts) - 4) if len(texts) > 4 else "")


def _pairs_text(judgement: Judgement) -> str:
    pairs = sorted({tuple(sorted((item.src_node, item.dst_node))) for item in judgement.view.crossings if item.src_node and item.dst_node})  # type: ignore[type-var]
    texts = ["%s - %s" % pair for pair in pairs[:3]]
    return ", ".join(texts) + (" and %d more pairs" % (len(pairs) - 3) if len(pairs) > 3 else "")
