"""The content of `explain` for a job, in parts.

Text, Markdown and page render the same parts.

The actions come first, then the evidence: events around the job, pairs of hosts, faults and numbers. The average bus
bandwidth is shown only together with its sweep of sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seatrial.faults.actions import in_words
from seatrial.logs.job_document import EvidenceLine, FoundFault, Row, Table
from seatrial.logs.job_document import JobDocument as Job

from .plain import plain

MAX_PAIRS = 16
MAX_ROWS = 40
MAX_PLACES = 8
MAX_AROUND = 40
MAX_NOT_SEEN = 12


class Below(NamedTuple):
    """The text below an item: ``code`` is quoted unchanged, a command or last lines."""

    label: str
    text: str
    code: bool = False


class Item(NamedTuple):
    """An item of a list: its text, and the texts below it."""

    text: str
    below: tuple[Below, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the content: title, first sentence, lines of logs, items, a table, and notes on all of it."""

    title: str = ""
    severity: str = ""  # severity of a fault: fatal, degraded, info
    fault: str = ""  # its id, and the reason of its creation
    lead: str = ""  # the first sentence
    quoted: Sequence[EvidenceLine] = ()
    items: Sequence[Item] = ()
    numbered: bool = False
    table: Sequence[Sequence[str]] = ()  # the first row has the headers
    notes: Sequence[str] = ()
    advice: Sequence[Below] = ()


def names_of(job: Job, room: int) -> str:
    """Return the first of a job's logs, and the number of others, within some columns."""
    files = job["files"]
    if not files:
        return ""
    text = plain(files[0], 300) + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    return text if len(text) <= room else "…" + text[-(room - 1) :]


def where(item: EvidenceLine, file: str) -> str:
    """Return the place of evidence; only a log's line has a number."""
    if not file:
        return f"line {item['line']}"
    return f"{file}:{item['line']}" if item["line"] else file


def parts(job: Job) -> Iterator[Part]:
    """Yield the parts of a job below its verdict."""
    yield from what_happened(job)
    yield from between_hosts(job)
    yield from what_is_wrong(job)


def what_happened(job: Job) -> Iterator[Part]:
    """Yield the advice, the facts about the job, the events around it, and the ranks that others wait for."""
    if standing := job.get("standing"):
        title = f"Job {plain(standing['job'], 253)} in {plain(standing['namespace'], 253)}: {standing['state']}"
        yield Part(title=title, items=[Item(plain(line, 600)) for line in standing["ranks"]])
    if job["causes"]:
        yield _causes(job)
    elif _asks_for_more(job):
        yield Part(title="What to do", lead=f"Run it again: {job['advice']}.")
    if job["nccl_lines"] or "standing" not in job:
        yield Part(lead=" · ".join(_facts(job)))
    if job.get("around"):
        yield Part(title="Events around it (UTC)", items=list(_around(job)))
    if job.get("manifest"):
        yield Part(title="Missing in the pod template", items=list(_lacking(job)))
    if job.get("places"):
        yield Part(title="Ranks that block the job", items=list(_places(job)))


def what_is_wrong(job: Job) -> Iterator[Part]:
    """Yield the faults with their evidence, the benchmark's numbers, and the facts missing in the log."""
    for fault in job["faults"]:
        asked = fault["fault"] == "nccl.no-evidence" and _asks_for_more(job)
        yield _fault(fault, shown_above=asked or fault is _main(job))
    for table in job["tables"]:
        yield _benchmark(table)
    if not_judged := job.get("not_judged"):
        yield Part(
            title="Not judged against the profile", items=[Item(plain(text, 200)) for text in not_judged[:MAX_NOT_SEEN]]
        )
    if job["advice"] and not _asks_for_more(job):
        yield Part(title="Next time", lead=f"{job['advice']}.")
    if not_seen := job.get("not_seen"):
        yield Part(title="Not seen", items=[Item(text) for text in not_seen[:MAX_NOT_SEEN]])


def _asks_for_more(job: Job) -> bool:
    """Return whether a log shows too little, so that only another run helps; a hang may still be inspected."""
    too_little = job["verdict"] == "inconclusive" and not job["causes"] and "late_ranks" not in job
    return too_little and bool(job["advice"])


def _main(job: Job) -> FoundFault | None:
    """Return the fault of the first cause."""
    first = job["causes"][0]["fault"] if job["causes"] else ""
    return next((fault for fault in job["faults"] if first and first in (fault["fault"], fault["why"])), None)


def _causes(job: Job) -> Part:
    """Return the remaining causes, each with its confirmation and its remedy."""
    several = len(job["causes"]) > 1
    fault = _main(job)
    return Part(
        title="Likely causes, most likely first" if several else "What to do",
        items=[
            Item(cause["cause"] if several else "", (Below("confirm", cause["confirm"], code=True),))
            for cause in job["causes"]
        ],
        numbered=several,
        advice=[Below("remedy", fault["remedy"]), *(_action(fault) if "action" in fault else ())] if fault else [],
    )


_GDR = {True: "yes", False: "no", None: "not shown"}


def _facts(job: Job) -> Iterator[str]:
    """Yield short facts about a job."""
    yield f"NCCL {job['nccl_version']}" if job["nccl_version"] else "NCCL version not shown"
    yield _count(job["ranks"], "rank")
    yield "one host shows" if job["nodes"] == 1 and job["ranks"] is None else _count(job["nodes"], "host")
    yield f"between hosts: {job['inter_node_transport']}"
    yield f"GPUDirect: {_GDR[job['gdr']]}"
    local = job["intra_node"]
    channels = [f"{name.upper()} {local[name]}" for name in ("p2p", "shm", "net") if local[name]]
    channels += ["NVLS"] if local["nvls"] else []
    if channels:
        yield "inside: " + ", ".join(channels)
    if job["sharp"]:
        yield "SHARP in use"
    if interfaces := job["bootstrap"]["interfaces"]:
        yield "bootstrap: " + ", ".join(sorted(plain(name, 32) for name in interfaces)[:4])


def _count(number: int | None, word: str) -> str:
    if number is None:
        return f"{word}s not shown"
    return f"{number} {word}{'' if number == 1 else 's'}"


_EFFECTS = {"nccl.socket-fallback", "nccl.mixed-transport"}
_ROLES = {"failure": "the failure", "likely": "LIKELY THE CAUSE", "possible": "possible", "nearby": "only nearby"}


def _around(job: Job) -> Iterator[Item]:
    """Yield the events during the job, in order, each with its part in the failure."""
    for each in job.get("around", ())[:MAX_AROUND]:
        place = " on ".join(plain(part, 100) for part in (each["pod"], each["node"]) if part)
        role = _ROLES.get(each["role"], each["role"])
        below = (Below(role, plain(each["why"], 200)),) if each["why"] else ()
        yield Item(f"{plain(each['at'], 40)[:19].replace('T', ' ')}  {place}: {plain(each['text'], 300)}", below)


def _lacking(job: Job) -> Iterator[Item]:
    """Yield the missing parts of the workload's manifest, each with a log that shows its effect."""
    shown = {fault["fault"] for fault in job["faults"]} & _EFFECTS
    for each in job.get("manifest", ())[:MAX_PLACES]:
        sockets = "the log shows sockets; " if shown and each["fault"] == "manifest.no-rdma" else ""
        text = f"{each['fault']}: {sockets}{plain(each['observed'], 300)} (expected {plain(each['expected'], 200)})"
        yield Item(text, (Below("remedy", each["remedy"]),))


def _places(job: Job) -> Iterator[Item]:
    """Yield each late, dead or silent rank: its number, its place, its last lines."""
    for rank, place in list(job.get("places", {}).items())[:MAX_PLACES]:
        spot = [
            f"host {place['host']}" if place["host"] else "",
            f"GPU {place['gpu']}" if place["gpu"] is not None else "",
            f"process {place['pid']}" if place["pid"] else "",
            f"pod {place['pod']}" if place.get("pod") else "",
            f"node {place['node']}" if place.get("node") else "",
            f"pod state: {place['pod_state']}" if place.get("pod_state") else "",
            f"node state: {place['node_state']}" if place.get("node_state") else "",
        ]
        last_words = place.get("last_words", "")
        below = (Below("last words", last_words, code=True),) if last_words else ()
        yield Item(f"rank {rank}: {', '.join(plain(part, 200) for part in spot if part)}", below)


_SEEN = {"send": ", seen by the sender only", "receive": ", seen by the receiver only", "both": ""}
_GPUDIRECT = {True: "GPUDirect", False: "no GPUDirect", None: "", "mixed": "GPUDirect in part"}


def between_hosts(job: Job) -> Iterator[Part]:
    """Yield the pairs of hosts with their transports, those that differ from the rest first."""
    if not job["pairs"]:
        return
    kinds = [(tuple(sorted(pair["transports"])), pair["gdr"], pair["direction"]) for pair in job["pairs"]]
    counts = Counter(kinds)
    order = sorted(
        zip(kinds, job["pairs"], strict=True), key=lambda each: (counts[each[0]], each[1]["src"], each[1]["dst"])
    )
    items = []
    for _, pair in order[:MAX_PAIRS]:
        ends = f"{plain(pair['src'], 60)} → {plain(pair['dst'], 60)}{_SEEN[pair['direction']]}"
        carried = ", ".join(f"{name} x{count}" for name, count in pair["transports"].items())
        devices = [plain(name, 40) for name in pair["devices"]]
        shown = " ".join(devices[:8]) + (f" +{len(devices) - 8}" if len(devices) > 8 else "")
        cells = (carried, _GPUDIRECT[pair["gdr"]] + (", PXN" if pair["pxn"] else ""), shown)
        items.append(Item(ends, (Below("", "  ".join(filter(None, cells))),)))
    more = len(job["pairs"]) - MAX_PAIRS
    left = f"and {_count(more, 'more pair')}, the last kind repeated or listed in the JSON form"
    yield Part(title="Between hosts (channels by transport)", items=items, notes=[left] if more > 0 else [])


def _fault(fault: FoundFault, *, shown_above: bool) -> Part:
    """Return the text of a fault; if its causes were ``shown_above``, without confirmation and remedy."""
    advice = [Below("cause", fault["cause"])]
    if not shown_above:
        advice += [Below("confirm", fault["confirm"], code=True), Below("remedy", fault["remedy"])]
        advice += _action(fault) if "action" in fault else ()
    return Part(
        severity=fault["severity"],
        fault=plain(fault["fault"], 60) + (f"  (why: {plain(fault['why'], 60)})" if fault["why"] else ""),
        lead=fault["title"] + ("" if fault["subject"] == "the job" else f": {fault['subject']}"),
        quoted=fault["evidence"],
        advice=advice,
    )


def _action(fault: FoundFault) -> Iterator[Below]:
    """Yield what to do with the node of a fault that has an action."""
    yield Below("action", f"{fault['action']}: {in_words(fault['action'])}")


# -- numbers
# ----------------------------------------------------------------------------------------------------------------------
HEADS = ("size", "type", "out-of-place GB/s", "wrong", "in-place GB/s", "wrong")


def _benchmark(table: Table) -> Part:
    title = f"Benchmark: {plain(table['collective'] or 'collective not named', 40)}"
    if table["algorithm"]:
        title += f", NCCL_ALGO={plain(table['algorithm'], 20)}"
    rows = [(_size(row["size_bytes"]), plain(row["type"], 9), *_values(row)) for row in table["rows"][-MAX_ROWS:]]
    more = len(table["rows"]) - MAX_ROWS
    left = [f"{_count(more, 'smaller row')} left out here: --format json has all."] if more > 0 else []
    return Part(title=title, table=[HEADS, *rows] if rows else [], notes=[*left, *_notes(table)])


def _size(number: float) -> str:
    """Return a size with a unit: 8 B, 64 KiB, 16 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:g} {unit}" if number == int(number) else f"{number:.1f} {unit}"
        number /= 1024
    return str(number)


def _values(row: Row) -> Iterator[str]:
    """Yield the numbers of a row: bus bandwidth and wrong values, out of place and in place."""
    for side in (row["out_of_place"], row["in_place"]):
        if side is None:
            yield from ("-", "-")
            continue
        busbw, wrong = side["busbw_gbps"], side["wrong"]
        yield "?" if busbw is None else f"{busbw:g}" if abs(busbw) >= 1e7 else f"{busbw:.2f}"
        yield "N/A" if wrong is None else f"{wrong:g}"


def _notes(table: Table) -> Iterator[str]:
    """Yield the notes below a table."""
    if table["peak_busbw_gbps"] is not None:
        yield (
            f"Bus bandwidth: peak {table['peak_busbw_gbps']:g} GB/s,"
            f" at the largest size {table['largest_busbw_gbps']:g} GB/s."
        )
    yield from _references(table)
    sweep = table["sweep"]
    if table["avg_busbw"] is not None:
        over = (
            f"over {_size(sweep['min_bytes'])} to {_size(sweep['max_bytes'])} ({_count(sweep['rows'], 'row')})"
            if sweep
            else "over rows that are not in the log"
        )
        yield f"Avg bus bandwidth {table['avg_busbw']:g} GB/s {over}: it depends on that sweep and is not judged."
    if not table["complete"]:
        yield "The table has no end in this log."
    if table["rows"] and not table["checked"]:
        yield "The results were not checked (#wrong is N/A)."
    if table["unreadable_rows"]:
        yield f"{_count(table['unreadable_rows'], 'row')} could not be read (truncated or interleaved lines)."


def _references(table: Table) -> Iterator[str]:
    """Yield how the numbers compare with the links and, with a profile, with the platform's figures."""
    wire = table.get("wire")
    if wire and wire["node_gbps"] is not None:
        rail = f", {wire['rail_gbit_s']:g} Gb/s a rail" if wire["rail_gbit_s"] else ""
        share = f", {wire['of_wire']:.0%} of the link rate" if wire["of_wire"] else ""
        yield f"Under Ring each host sends {wire['node_gbps']:g} GB/s{rail}{share}."
    elif wire and wire["above_wire"]:
        yield "That exceeds the link rate of a host: on two hosts NVLink limits this algorithm."
    if wire and wire["gpu_gbit_s"] and wire["node_gbps"] is None:
        yield f"At the peak each GPU's share of the links carried at least {wire['gpu_gbit_s']:g} Gb/s."
    if nearest := table.get("nearest"):
        yield f"{plain(nearest['sentence'], 800)}."
    for row in table.get("reference") or []:
        yield (
            f"{_size(row['size_bytes'])}: {row['busbw_gbps']:g} GB/s, {row['ratio']:.0%} of the"
            f" {row['floor_gbps']:g} GB/s that {plain(row['topology'], 60)} must give."
        )
