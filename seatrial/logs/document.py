"""The builder of the job document: the one form that checks, reports and the command line read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from ..faults.catalogue import formed, having
from ..faults.variants import Detail
from .bandwidth.hardware import of_other_kind
from .diagnosis.causes import refine
from .diagnosis.conclusion import diagnosis_of, further_signs, sentence_of, signs_shown
from .diagnosis.defects import slow_causes, slow_versions, with_defects
from .diagnosis.diagnosed import judge_dcgm
from .diagnosis.judge import Judgement, Rules
from .diagnosis.network import judge_forms, judge_network, judge_versions
from .diagnosis.numbers import busbw, counted
from .diagnosis.quotes import meant, quoted, trouble_said
from .diagnosis.rails import rails_used
from .diagnosis.ranking import Signs, quoted_cause, rank
from .diagnosis.results import judge_local_network, judge_node, judge_nvlink_fabric, judge_runs, judge_tables
from .diagnosis.separate_jobs import report_single
from .diagnosis.termination import judge_ending
from .diagnosis.truncation import judge_cut_channels, judge_truncation
from .diagnosis.usual_causes import with_usual_causes
from .job.attempts import comes_earlier, last_attempt
from .job.device_order import compact_devices
from .job.jobs import Job
from .job.streams import group
from .job.view import View
from .job_document import MOST_CAUSES, NOTHING, Cause, Expected, Init, JobDocument, Pair, ReadTable, Row, Table
from .reader.events.symptoms import CONSEQUENCE, WHY
from .reader.events.transports import RDMA, TCP
from .reader.scan import uncollected
from .reader.state.partial import Partial
from .reader.state.process import Note, channels_in
from .rows import sides

_RULES: Rules = (  # each rule with the kind of evidence that it needs
    ("trouble", judge_ending),
    ("what a cut ends", judge_truncation),
    ("versions", judge_versions),
    ("forms of a message", judge_forms),
    ("anything", judge_network),
    ("trouble", judge_node),
    ("network inside a host", judge_local_network),
    ("NVLink fabric", judge_nvlink_fabric),
    ("runs", judge_runs),
    ("tables", judge_tables),
    ("cut channels", judge_cut_channels),
    ("DCGM", judge_dcgm),
)
_MOST_GPU_NAMES = 16
ADVICE = (
    "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET,GRAPH,TUNING, and keep the whole log of "
    "every rank"
)


def conclude(
    partial: Partial,
    expect: Expected = NOTHING,
    one_job: bool | Collection[str] = False,
    next_to_dumps: Iterable[Collection[str]] = (),
) -> list[JobDocument]:
    """Return the job documents of a partial, in the order of the streams.

    ``expect`` are a profile's demands on a log. ``one_job`` treats all streams (or only those of these names) as one
    job, when the launcher knows that they are one; ``next_to_dumps``: those in the folder of a job's dumps.
    """
    with uncollected():
        documents = [_document(_judged(job, expect)) for job in group(partial, one_job, next_to_dumps)]
        if len(documents) > 1:
            report_single(documents)
        return documents


def _judged(job: Job, expect: Expected) -> Judgement:
    """Return the judgement of a job; for a failed and restarted one, that of its last attempt.

    If the log shows the processes of an earlier attempt, the last one must be complete, or have come up. Demands on
    other GPUs than the log's are dropped.
    """
    listed = {str(line[4]) for line in job.rank_lines.values() if len(line) > 4 and line[4]} if expect.products else ()
    expect = NOTHING if listed and of_other_kind(listed, expect.products) else expect
    judgement = Judgement(View(job), expect)
    _judge(judgement)
    again = last_attempt(job) if judgement.ended_badly else None
    if again is None or not comes_earlier(judgement.faults[0]["evidence"], again):
        return judgement
    last = Judgement(View(again), expect)
    if not last.ended_well and (len(again.comms) == len(job.comms) or not last.proven()):
        return judgement
    last.report_earlier(judgement)
    _judge(last)
    return judgement if last.ended_badly else last


def _document(judgement: Judgement) -> JobDocument:
    view, job = judgement.view, judgement.job
    version, versions = _version(judgement)
    verdict = judgement.verdict()
    diagnosis = diagnosis_of(judgement, verdict)
    passed_over = judgement.passed_over() if verdict == "inconclusive" else None
    explained = judgement.has("nccl.unexplained", "nccl.restarted") or not (job.procs or judgement.tables)
    if verdict == "inconclusive" and passed_over is None and not explained:
        passed_over = judgement.unexplained()
    if passed_over is not None:
        judgement.add(
            "nccl.unexplained", "the job", judgement.line(passed_over), cause="the log says: %s" % quoted(passed_over)
        )
    # One host is the whole job only if the job's size is known.
    shown = bool(view.connectors) or (view.transport == "none" and view.ranks is not None and not view.ranks_by_device)
    gpus = Counter(str(line[4]) for line in job.rank_lines.values() if len(line) > 4 and line[4])
    averages = _averages(judgement.tables) if judgement.tables else {}
    hang, fatal = diagnosis == "hang" or judgement.hang, any(each["severity"] == "fatal" for each in judgement.faults)
    document: JobDocument = {
        "files": [source.name for source in job.sources.values()],
        "nccl_lines": sum(source.nccl_lines for source in job.sources.values()),
        "verdict": verdict,
        "diagnosis": diagnosis,
        "sentence": "",
        "inter_node_transport": view.transport,
        "gdr": view.gdr,
        "socket_fallback": view.fallback,
        "mixed": view.mixed
        or view.mixed_selection
        or view.gdr_mixed
        or judgement.has("nccl.version-mismatch", "nccl.mixed-transport"),
        "ranks": view.ranks,
        "nodes": view.nodes,
        "gpus": dict(sorted(list(gpus.items())[:_MOST_GPU_NAMES])),
        "platforms": sorted(job.facts["platform"]),
        "nccl_version": version,
        "nccl_versions": versions,
        "avg_busbw": next(iter(averages.values()), None),
        "avg_busbw_all": averages,
        "hang": hang,
        "crash": judgement.crash or (fatal and not hang and not judgement.finished),
        "faults": judgement.faults,
        "causes": [] if verdict == "go" else _causes(judgement, diagnosis, versions, gpus),
        "tables": _tables(judgement) if judgement.tables else [],
        "pairs": _pairs(judgement),
        "hosts": judgement.hosts,
        "rails": {
            "per_host": {
                host["name"] or "": {"used": len(rails_used([host])), "offered": host["rails_offered"]}
                for host in judgement.hosts
                if job.procs
            }
        },
        "intra_node": judgement.view.paths(),
        "sharp": True if view.switched or "collnet" in job.flags else None,
        "wires_gbps": _wires(judgement) if job.facts["wire"] else None,
        "bootstrap": {"interfaces": _addresses(job.facts["boot"]) if job.facts["boot"] else {}},
        "init": _init(judgement),
        "truncated": judgement.has("nccl.log-truncated"),
        "evidence_shown": shown,
        "advice": None if shown else ADVICE,
        "env": {  # as printed; several values if processes differ
            name: next(iter(values)) if len(values) == 1 else sorted(values)[:8]
            for name, values in sorted(job.env.items())
            if values
        },
        "compacted": False,
    }
    judgement.faults += slow_versions(document) if document["tables"] else []
    if judgement.has("nccl.low-bandwidth") and document["causes"]:
        document["causes"] = [*slow_causes(judgement.faults), *document["causes"]][:MOST_CAUSES]
    document["sentence"] = sentence_of(document, judgement)
    if passed_over is not None and quoted(passed_over) not in document["sentence"]:
        document["sentence"] += " It also says: %s." % quoted(passed_over)
    return document


def _judge(judgement: Judgement) -> None:
    judgement.apply(_RULES)
    if judgement.job.limited and not judgement.has("nccl.log-truncated"):
        judgement.add("nccl.log-truncated", "the job", [], cause="the log holds more than is read or kept of one log")
    if judgement.shows["strange lines"] and judgement.verdict() == "go" and (odd := judgement.unexplained()):
        judgement.add("nccl.unexplained", "the job", judgement.line(odd), cause="the log says: %s" % quoted(odd))
    if judgement.shows["last words"] and judgement.verdict() == "go" and (end := judgement.event("ending")):
        judgement.add("nccl.unexplained", "the job", judgement.line(end), cause="the log ends with: %s" % quoted(end))
    order = ("fatal", "degraded", "info")  # equal severities keep the order in which the rules ran
    judgement.faults.sort(key=lambda fault: order.index(fault["severity"]))


_FOLLOWS = "; it follows from the end of the process at the other end: read that one's log"


def _causes(judgement: Judgement, diagnosis: str, versions: list[str], gpus: Collection[str]) -> list[Cause]:
    signs, faults = Signs(judgement), judgement.faults
    causes = rank(faults, signs, _further(judgement, diagnosis))
    causes = with_usual_causes(with_defects(causes, faults, versions, gpus), judgement, signs)[:MOST_CAUSES]
    note = None if causes else trouble_said(judgement)
    if note is None:
        return causes
    known = [_details_of(judgement, name, said) for name, said in judgement.causes if said is note]
    role, _, fault = note.shows.partition(" ")
    if role == WHY and (said := formed(fault, note.text)) is not None:
        known.append((fault, said))
    gone = _FOLLOWS if role == CONSEQUENCE else ""
    return rank((), signs, known) or [quoted_cause(quoted(note) + meant(note.text) + gone)]


def _further(judgement: Judgement, diagnosis: str) -> list[tuple[str, Detail]]:
    """Return other faults in the lines of a failed job; if there are none, signs of trouble.

    Each has the details of its line.
    """
    unheaded = [name for name, _ in judgement.unheaded() if name]
    if judgement.ended_badly:
        if judgement.causes:  # the first is reported as a fault
            return [_details_of(judgement, name, note) for name, note in judgement.causes[1:MOST_CAUSES]]
        return _signs(judgement, unheaded or further_signs(judgement))
    if diagnosis != "no-evidence" or judgement.view.ranks == 1:
        return []
    warned = [
        _details_of(judgement, name, note) for name, note in judgement.causes if name in having("blame", "warning")
    ]
    return warned or _signs(judgement, unheaded or signs_shown(judgement)[:1])


def _signs(judgement: Judgement, names: Iterable[str]) -> list[tuple[str, Detail]]:
    """Return signs of trouble, each with the values in its line."""
    notes = ((name, judgement.earliest(name)[0] or judgement.event("symptom " + name)) for name in names)
    return [(name, (note and formed(name, note.text)) or Detail()) for name, note in notes]


def _details_of(judgement: Judgement, name: str, note: Note) -> tuple[str, Detail]:
    said = refine(judgement, name, note)
    return said.why or name, said


# -- parts -------------------------------------------------------------------------------------------------------------
def _version(judgement: Judgement) -> tuple[str | None, list[str]]:
    """Return NCCL's version as printed (by most processes), and every version in the log."""
    counts = dict(judgement.job.facts["version"])
    for source in judgement.job.sources.values():
        for name in source.events:
            if name.startswith("version "):
                counts[name[8:]] = counts.get(name[8:], 0) + 1
    for table in judgement.tables:
        if table["version"] and not any(text.partition("+")[0].endswith(table["version"]) for text in counts):
            counts[table["version"]] = counts.get(table["version"], 0) + 1
    full = {text.partition("+")[0] for text in counts if "+" in text}
    counts = {text: count for text, count in counts.items() if "+" in text or text not in full}
    if not counts:
        return None, []
    best = sorted(counts, key=lambda text: (-counts[text], text))
    return best[0], sorted(counts)


def _averages(tables: Iterable[ReadTable]) -> dict[str, float]:
    """Return the average of each table by its collective; the first of several tables of one collective."""
    averages: dict[str, float] = {}
    for table in tables:
        if table["avg_busbw"] is not None:
            averages.setdefault(table["collective"] or "table %d" % (len(averages) + 1), table["avg_busbw"])
    return averages


def _init(judgement: Judgement) -> Init:
    job = judgement.job
    return {
        "nranks": judgement.view.ranks,
        "started": len(set().union(*(job.started[key] for key in job.world))),
        "completed": len(set().union(*(job.completed[key] for key in job.world))),
        "communicators": len(job.comms),
    }


def _tables(judgement: Judgement) -> list[Table]:
    """Return the tables, each with its algorithm: NCCL_ALGO, else NCCL's output (subsystem TUNING)."""
    forced, printed = judgement.job.env["NCCL_ALGO"], judgement.job.facts["algorithm"]
    documents = []
    for table in judgement.tables:
        collective = (table["collective"] or "").replace("_", "").lower()
        used = forced or {text.split(" ")[1] for text in printed if text.split(" ")[0].lower() == collective}
        document = _table(table, next(iter(used)) if len(used) == 1 else None, counted(table, judgement.view.ranks))
        document["collective"] = document["collective"] or _collective(table, judgement.view.ranks)
        documents.append(document)
    return documents


_DIGIT = 0.02
"""With two decimals, n ranks are distinguishable if the algorithm bandwidth is above n times this."""


def _collective(table: ReadTable, ranks: int | None) -> str | None:
    """Identify a collective by its columns and numbers: bus bandwidth is algorithm bandwidth times a factor.

    Redop, root and factor (nccl-tests, doc/PERFORMANCE.md) differ; those of all_gather and alltoall do not.
    """
    if not ranks or ranks < 3:
        return None
    part = (ranks - 1) / ranks
    operands = set()
    for row in table["rows"]:
        side = row["out_of_place"] or row["in_place"]
        algbw, carried = (side["algbw_gbps"] or 0.0, side["busbw_gbps"]) if side else (0.0, None)
        if carried is not None and algbw > max(1.0, ranks * _DIGIT):
            ratio = carried / algbw
            factor = min((2 * part, part, 1.0), key=lambda each: abs(each - ratio))
            operands.add((row["redop"] not in (None, "none"), row["root"] not in (None, -1), factor))
    names = {
        (True, False, 2 * part): "all_reduce",
        (True, False, part): "reduce_scatter",
        (True, False, 1.0): "sendrecv",
        (True, True, 1.0): "reduce",
        (False, True, 1.0): "broadcast",
    }
    return names.get(operands.pop()) if len(operands) == 1 else None


def _table(table: ReadTable, algorithm: str | None, rows: list[Row]) -> Table:
    points = busbw(table)
    sizes = [size for size, _ in points]
    return {
        "collective": table["collective"],
        "algorithm": algorithm,
        "rows": rows,
        "out_of_bounds": table["out_of_bounds"],
        "avg_busbw": table["avg_busbw"],
        "complete": table["complete"],
        "peak_busbw_gbps": max((value for _, value in points), default=None),
        "largest_busbw_gbps": max(points)[1] if points else None,
        "sweep": {"min_bytes": min(sizes), "max_bytes": max(sizes), "rows": len(rows)} if sizes else None,
        "unreadable_rows": table["unreadable"],
        "library_version": table["version"],
        "checked": any(side["wrong"] is not None for row in rows for side in sides(row)),
    }


def _pairs(judgement: Judgement) -> list[Pair]:
    """Return the matrix of hosts: the transport of each ordered pair, by sender and receiver."""
    pairs: list[Pair] = []
    for (src_node, dst_node), pair in sorted(judgement.view.pairs.items()):
        counts: dict[str, int] = {}
        for key, mask in pair.channels().items():
            counts[key[4]] = counts.get(key[4], 0) + channels_in(mask)
        carriers = pair.carriers.values()
        sides = {"send" if connector.side == "s" else "receive" for connector, _, _ in carriers}
        # only the sender prints a peer-to-peer channel (p2pSendSetup in p2p.cc)
        both = len(sides) > 1 or any(transport == "mnnvl" for _, transport, _ in carriers)
        gdr = {
            bool(connector.gdr)
            for connector, transport, _ in carriers
            if connector.kind == "net" and transport not in TCP
        }
        pairs.append(
            {
                "src": src_node,
                "dst": dst_node,
                "direction": "both" if both else next(iter(sides)),
                "transports": dict(sorted(counts.items())),
                "devices": compact_devices({device for _, _, device in carriers}),
                "gdr": "mixed" if len(gdr) > 1 else next(iter(gdr), None),
                "pxn": any(connector.proxy >= 0 for connector, _, _ in carriers),
            }
        )
    return pairs


def _wires(judgement: Judgement) -> float | None:
    """Return the highest rate of a host's NICs in GB/s; NCCL only guesses the rate of sockets."""
    if judgement.view.transport not in RDMA - {"mnnvl"}:
        return None
    rates = [[float(text.split(" ")[1]) for text in proc.facts.get("wire", ())] for proc in judgement.job.procs]
    most = max(map(sum, rates), default=0.0)
    return round(most, 3) if 0 < most < float("inf") else None


def _addresses(printed: Iterable[str]) -> dict[str, list[str]]:
    """Return the bootstrap addresses of processes, by interface, from lines such as "eth0 10.0.0.1"."""
    interfaces: dict[str, list[str]] = {}
    for text in printed:
        interface, _, address = text.partition(" ")
        known = interfaces.setdefault(interface, [])
        if address and address not in known and len(known) < 16:
            known.append(address)
    return {name: sorted(addresses) for name, addresses in sorted(interfaces.items())}
