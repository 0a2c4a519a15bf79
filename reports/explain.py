"""The judgement of an NCCL log as text for a terminal or JSON: job documents in, one document out.

One sentence first, then what to do, then the evidence: who talked to whom, what is wrong, and the numbers. The average
bus bandwidth is only ever shown together with the sweep that it is an average of. Text fits 80 columns; colour is used
only when asked for.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from jobs.nccl.job_document import EvidenceLine, FoundFault, Pair, Row, Table
from jobs.nccl.job_document import JobDocument as Job

from .schema import Verdict

Paint = Mapping[str, Callable[[str], str]]

WIDTH = 80
SCHEMA = 1
MAX_PAIRS = 16
MAX_ROWS = 40
MAX_PLACES = 8
MAX_AROUND = 40
MAX_NOT_SEEN = 12

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_COLOURS = {"go": "32", "no-go": "31", "inconclusive": "33", "fatal": "31", "degraded": "33", "info": "36", "head": "1"}
_PAINTED = {kind: f"\x1b[{code}m{{}}\x1b[0m".format for kind, code in _COLOURS.items()}
_PLAIN = dict.fromkeys(_COLOURS, str)


def to_json(jobs: Sequence[Job], *, color: bool = False) -> str:  # noqa: ARG001 -- JSON has no colour
    """Return the JSON document, ``{"schema": 1, "jobs": [...]}``, as text; it never holds NaN."""
    return json.dumps({"schema": SCHEMA, "jobs": list(jobs)}, indent=2, allow_nan=False) + "\n"


def plain(value: object, limit: int = 400) -> str:
    """Return a value as one line that no terminal acts upon."""
    text = _CONTROL.sub("", str(value).replace("\t", " ").replace("\n", " "))
    return text if len(text) <= limit else text[: limit - 1] + "…"


# -- text
# ----------------------------------------------------------------------------------------------------------------------
def to_text(jobs: Sequence[Job], *, color: bool = False, width: int = WIDTH) -> str:
    """Return what a person reads in a terminal."""
    paint = _PAINTED if color else _PLAIN
    blocks = [_job_text(job, paint, width) for job in jobs]
    if len(jobs) > 1:
        counts = {name: sum(job["verdict"] == name for job in jobs) for name in Verdict}
        said = ", ".join(f"{count} {paint[name](name)}" for name, count in counts.items() if count)
        blocks.append(f"{len(jobs)} jobs: {said}")
    return ("\n" + "─" * width + "\n\n").join(blocks) + "\n"


def _job_text(job: Job, paint: Paint, width: int) -> str:
    lines = [f"{paint[job['verdict']](job['verdict'].upper())}  {shown_names(job, width - len(job['verdict']) - 2)}"]
    lines += _wrap(job["sentence"], width, "")
    if failure_class := job.get("failure_class"):
        lines += _wrap(f"Failure class: {failure_class}", width, "")
    if job["causes"]:
        lines += _todo_text(job, paint, width)
    lines += ["", *_wrap(" · ".join(facts(job)), width, "")]
    if job.get("around"):
        lines += _around_text(job, paint, width)
    if job.get("places"):
        lines += _places_text(job, paint, width)
    if job["pairs"]:
        lines += _pairs_text(job, paint, width)
    for fault in job["faults"]:
        lines += _fault_text(fault, paint, width, told_above=fault is main(job))
    for table in job["tables"]:
        lines += _table_text(table, paint, width)
    if job["advice"]:
        lines += ["", *_wrap(f"Next time: {job['advice']}.", width, "")]
    for text in job.get("not_seen", ())[:MAX_NOT_SEEN]:
        lines += _wrap(f"Not seen: {text}", width, "  ", "")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def shown_names(job: Job, room: int) -> str:
    """Return the first of a job's logs, and how many more there are, in some columns."""
    files = job["files"]
    if not files:
        return ""
    text = plain(files[0], 300) + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    return text if len(text) <= room else "…" + text[-(room - 1) :]


def _wrap(text: str, width: int, indent: str, first: str | None = None) -> list[str]:
    """Wrap text; long names are broken rather than let run over the edge."""
    start = indent if first is None else first
    lines = textwrap.wrap(
        plain(text, 1200), width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
    )
    return lines or [start.rstrip()]


PARTS = {"failure": "the failure", "likely": "LIKELY THE CAUSE", "possible": "possible", "nearby": "only nearby"}
"""What the parts in a failure are called."""
AROUND = "What happened around it (UTC)"


def around(job: Job) -> list[tuple[str, str, str, str, str]]:
    """Return what happened in the job's time: its part, the time of day, where, what, and why it has that part."""
    moments = job.get("around", ())[:MAX_AROUND]
    return [
        (
            PARTS.get(each["role"], each["role"]),
            plain(each["at"], 40)[:19].replace("T", " "),
            " on ".join(plain(part, 100) for part in (each["pod"], each["node"]) if part),
            plain(each["text"], 300),
            plain(each["why"], 200),
        )
        for each in moments
    ]


def _around_text(job: Job, paint: Paint, width: int) -> list[str]:
    lines = ["", paint["head"](AROUND)]
    for part, at, where, text, why in around(job):
        lines += _wrap(f"{at}  {where}: {text}", width, "    ", "  ")
        lines += _wrap(f"{part}: {why}", width, "      ", "    ") if why else []
    return lines


def places(job: Job) -> list[tuple[str, str, str]]:
    """Return of each late, dead or silent rank: its number, where it is, its last words."""
    rows = []
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
        rows.append((rank, ", ".join(plain(part, 200) for part in spot if part), place.get("last_words", "")))
    return rows


def _places_text(job: Job, paint: Paint, width: int) -> list[str]:
    lines = ["", paint["head"]("Ranks that do not come")]
    for rank, spot, last_words in places(job):
        lines += _wrap(f"rank {rank}: {spot}", width, "    ", "  ")
        lines += _wrap(f"last words: {last_words}", width, "      ", "    ") if last_words else []
    return lines


_GDR = {True: "yes", False: "no", None: "not shown"}


def facts(job: Job) -> list[str]:
    """Return what is known of a job in a few words each."""
    texts = [f"NCCL {job['nccl_version']}" if job["nccl_version"] else "NCCL version not shown"]
    texts.append(_count(job["ranks"], "rank"))
    texts.append(_count(job["nodes"], "host"))
    texts.append(f"between hosts: {job['inter_node_transport']}")
    texts.append(f"GPUDirect: {_GDR[job['gdr']]}")
    local = job["intra_node"]
    inside = [f"{name.upper()} {local[name]}" for name in ("p2p", "shm", "net") if local[name]]
    if local["nvls"]:
        inside.append("NVLS")
    if inside:
        texts.append("inside: " + ", ".join(inside))
    if job["sharp"]:
        texts.append("SHARP in use")
    interfaces = job["bootstrap"]["interfaces"]
    if interfaces:
        texts.append("bootstrap: " + ", ".join(sorted(plain(name, 32) for name in interfaces)[:4]))
    return texts


def _count(number: int | None, word: str) -> str:
    if number is None:
        return f"{word}s not shown"
    return f"{number} {word}{'' if number == 1 else 's'}"


_SEEN = {"send": ", seen by the sender only", "receive": ", seen by the receiver only", "both": ""}
_GPUDIRECT = {True: "GPUDirect", False: "no GPUDirect", None: "", "mixed": "GPUDirect in part"}


def pairs(job: Job) -> list[tuple[Pair, tuple[str, str, str]]]:
    """Return the pairs of hosts, those first that differ from the rest.

    Beside each are cells: what carried its data, GPUDirect, and the devices.
    """
    kinds = [(tuple(sorted(pair["transports"])), pair["gdr"], pair["direction"]) for pair in job["pairs"]]
    counts = Counter(kinds)
    order = sorted(
        zip(kinds, job["pairs"], strict=True), key=lambda each: (counts[each[0]], each[1]["src"], each[1]["dst"])
    )
    rows = []
    for _, pair in order[:MAX_PAIRS]:
        carried = ", ".join(f"{name} x{count}" for name, count in pair["transports"].items())
        devices = [plain(name, 40) for name in pair["devices"]]
        shown = " ".join(devices[:8]) + (f" +{len(devices) - 8}" if len(devices) > 8 else "")
        rows.append((pair, (carried, _GPUDIRECT[pair["gdr"]] + (", PXN" if pair["pxn"] else ""), shown)))
    return rows


def _pairs_text(job: Job, paint: Paint, width: int) -> list[str]:
    lines = ["", paint["head"]("Between hosts (channels by transport)")]
    for pair, cells in pairs(job):
        ends = f"{plain(pair['src'], 60)} → {plain(pair['dst'], 60)}{_SEEN[pair['direction']]}"
        lines += _wrap(ends, width, "    ", "  ")
        lines += _wrap("  ".join(filter(None, cells)), width, "      ", "    ")
    if (more := len(job["pairs"]) - MAX_PAIRS) > 0:
        lines.append(f"  and {more} more pairs, the last kind repeated or listed in the JSON form")
    return lines


def _fault_text(fault: FoundFault, paint: Paint, width: int, *, told_above: bool) -> list[str]:
    head = f"{paint[fault['severity']](fault['severity'].upper())}  {plain(fault['fault'], 60)}"
    why = f"  (why: {plain(fault['why'], 60)})" if fault["why"] else ""
    lines = ["", head + why]
    lines += _wrap(f"{fault['title']}: {fault['subject']}", width, "  ", "  ")
    for item in fault["evidence"]:
        spot = where(item, plain(item["file"] or "", 200).rpartition("/")[2])
        lines += _wrap(f"{spot}  {item['text']}", width, "    ", "  | ")
    advice = {"cause": fault["cause"]} if told_above else {key: fault[key] for key in ("cause", "confirm", "remedy")}
    for name, text in advice.items():
        lines += _wrap(text, width, " " * 11, f"  {name:<9}")
    return lines


def main(job: Job) -> FoundFault | None:
    """Return the fault of which the first of the causes is."""
    first = job["causes"][0]["fault"] if job["causes"] else ""
    return next((fault for fault in job["faults"] if first and first in (fault["fault"], fault["why"])), None)


def _todo_text(job: Job, paint: Paint, width: int) -> list[str]:
    """Return the causes that remain, each with what tells it from the next, and what helps."""
    causes = job["causes"]
    several = len(causes) > 1
    lines = ["", paint["head"]("Likely causes, the first one first" if several else "What to do")]
    for number, cause in enumerate(causes, 1):
        if several:
            lines += _wrap(cause["cause"], width, "    ", f"  {number} ")
        lines += _wrap(cause["confirm"], width, " " * 13, "    confirm  ")
    fault = main(job)
    return lines + (_wrap(fault["remedy"], width, " " * 11, "  remedy   ") if fault else [])


def where(item: EvidenceLine, file: str) -> str:
    """Return where evidence stands; what is no line of a log has no number."""
    if not file:
        return f"line {item['line']}"
    return f"{file}:{item['line']}" if item["line"] else file


def shown_size(number: float) -> str:
    """Return a size as people write it: 8 B, 64 KiB, 16 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:g} {unit}" if number == int(number) else f"{number:.1f} {unit}"
        number /= 1024
    return str(number)


def shown_values(row: Row) -> list[str]:
    """Return the numbers of a row: bus bandwidth and wrong values, out of place and in place."""
    texts = []
    for side in (row["out_of_place"], row["in_place"]):
        if side is None:
            texts += ["-", "-"]
            continue
        busbw, wrong = side["busbw_gbps"], side["wrong"]
        texts.append("?" if busbw is None else f"{busbw:g}" if abs(busbw) >= 1e7 else f"{busbw:.2f}")
        texts.append("N/A" if wrong is None else f"{wrong:g}")
    return texts


_ROW = "  {:>10}  {:>9}  {:>17}  {:>5}  {:>13}  {:>5}".format


def _table_text(table: Table, paint: Paint, width: int) -> list[str]:
    title = f"Benchmark: {plain(table['collective'] or 'collective not named', 40)}"
    if table["algorithm"]:
        title += f", NCCL_ALGO={plain(table['algorithm'], 20)}"
    lines = ["", paint["head"](title)]
    rows = table["rows"]
    if rows:
        lines.append(_ROW("size", "type", "out-of-place GB/s", "wrong", "in-place GB/s", "wrong"))
    if len(rows) > MAX_ROWS:
        lines.append(f"  … {len(rows) - MAX_ROWS} smaller rows are in the JSON form")
    for row in rows[-MAX_ROWS:]:
        lines.append(_ROW(shown_size(row["size_bytes"]), plain(row["type"], 9), *shown_values(row)))
    for text in table_notes(table):
        lines += _wrap(text, width, "  ", "  ")
    return lines


def table_notes(table: Table) -> list[str]:
    """Return what is said below a table."""
    notes = []
    if table["peak_busbw_gbps"] is not None:
        notes.append(
            f"Bus bandwidth: peak {table['peak_busbw_gbps']:g} GB/s,"
            f" at the largest size {table['largest_busbw_gbps']:g} GB/s."
        )
    notes += _reference_notes(table)
    sweep = table["sweep"]
    if table["avg_busbw"] is not None:
        over = (
            f"over {shown_size(sweep['min_bytes'])} to {shown_size(sweep['max_bytes'])}"
            f" ({_count(sweep['rows'], 'row')})"
            if sweep
            else "over rows that are not in the log"
        )
        notes.append(
            f"Avg bus bandwidth {table['avg_busbw']:g} GB/s {over}: it depends on that sweep and is not judged."
        )
    if not table["complete"]:
        notes.append("The table has no end in this log.")
    if table["rows"] and not table["checked"]:
        notes.append("The results were not checked (#wrong is N/A).")
    if table["unreadable_rows"]:
        notes.append(f"{table['unreadable_rows']} rows could not be read (torn lines).")
    return notes


def _reference_notes(table: Table) -> list[str]:
    """Return how the numbers compare with the wires and, where a profile was named, with what the platform gives."""
    notes = []
    wire = table.get("wire")
    if wire and wire["node_gbps"] is not None:
        rail = f", {wire['rail_gbit_s']:g} Gb/s a rail" if wire["rail_gbit_s"] else ""
        share = f", {wire['of_wire']:.0%} of the wires" if wire["of_wire"] else ""
        notes.append(f"Under Ring that is what each host sends: {wire['node_gbps']:g} GB/s{rail}{share}.")
    elif wire and wire["above_wire"]:
        notes.append("That is more than the wires of a host carry: on two hosts NVLink limits this algorithm.")
    if wire and wire["gpu_gbit_s"] and wire["node_gbps"] is None:
        notes.append(f"At the peak each GPU's share of the wires carried at least {wire['gpu_gbit_s']:g} Gb/s.")
    known = table.get("published")
    if known:
        share = f"; {known['of_wire']:.0%} of what its wires allow" if known["of_wire"] else ""
        notes.append(
            f"Published for this kind of hardware ({plain(known['topology'], 60)}): {known['published_gbps']:g} GB/s at"
            f" {shown_size(known['size_bytes'])}. Here {known['busbw_gbps']:g}, {known['ratio']:.0%} of it{share}."
            f" No floor, only a comparison: {plain(known['source'], 120)}."
        )
    for row in table.get("reference") or []:
        notes.append(
            f"{shown_size(row['size_bytes'])}: {row['busbw_gbps']:g} GB/s, {row['ratio']:.0%} of the"
            f" {row['floor_gbps']:g} GB/s that {plain(row['topology'], 60)} must give."
        )
    return notes
