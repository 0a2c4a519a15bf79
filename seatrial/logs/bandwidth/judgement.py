"""A job's benchmark compared with its references: the fields of its tables, and the verdict without a profile.

A low number alone is never no-go, since no profile states the order; it is not go either (nccl.below-published). One
case is no-go: hosts with eight data centre GPUs that are as slow as published results of such hosts over TCP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..diagnosis.conclusion import call_below, call_odd, call_peers_off, call_slow, withhold
from ..job_document import FloorRow, JobDocument, Reference, Table, WireUse
from .hardware import NOTHING_SAID, Hardware, Said, collective_of
from .physics import GIB, TOLERANCE, intra_node_limit_gbps, limit_gbps, links_gbps, ring_limit_gbps, wire_limit_gbps
from .published import TCP, Published, family, is_card, published, rows_of, size_text
from .reference import FAR, LOW, Floors, points_of, refer_table

_NEAR_TCP = 2.5
"""3.15 and 3.76 GB/s are published for IPoIB and TCP; a 100 Gb/s Ethernet port carries at most 12.5 GB/s in all."""
_FAR_BELOW = 0.05
"""Share of the published bandwidth of the same hosts with RDMA: one rail of eight, or no GPUDirect, is still faster."""
_AS_WIRE_LIMIT = ("all_reduce", "alltoall", "sendrecv")
"""For the others wire_limit_gbps returns a Ring's limit; any algorithm sends as much as for an all_reduce."""
_CHOOSES = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_P2P_NCHANNELS",
    "NCCL_NTHREADS",
    "NCCL_BUFFSIZE",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_NET_GDR_LEVEL",
)
"""Settings that override NCCL's own choice (NCCL user guide, environment variables: each recommends its default)."""


def compare(job: JobDocument, known: Said = NOTHING_SAID, floors: Floors | None = None) -> None:
    """Add to each table its references and the traffic of the links; report impossible and low bandwidths.

    ``floors`` returns a profile's floors for a table: then only these rows decide whether it is too slow.
    """
    if job["verdict"] == "go" and (off := _peers_off(job)):
        names = tuple(job["gpus"])
        if links_gbps(names) and not any(map(_shares_nothing, names)):
            call_peers_off(job, f"{off}, though NVLink connects {names[0]}")
        elif not (names or job["intra_node"]["p2p"]):
            withhold(job, "not-judged", f"{off}; the log does not show whether NVLink or PCIe joins its GPUs")
    for table in job["tables"]:
        hardware = refer_table(job, table, known, floors)
        table["wire"] = _wire(job, table, hardware, known)
        if impossible := _above_the_hardware(job, table, hardware):
            call_odd(job, impossible)
        low = [row for row in table["reference"] if row["ratio"] < 1]
        if any(fault["fault"] == "nccl.low-bandwidth" for fault in job["faults"]):
            continue
        if low:
            call_slow(job, table, _below_floor(hardware, low))
        elif not floors and (tcp := _looks_like_tcp(table, hardware)):
            call_slow(job, table, tcp)
    if job["diagnosis"] == "healthy-rdma" and any(
        (wire := table["wire"]) is not None and wire["above_wire"] for table in job["tables"]
    ):
        job["diagnosis"] = "healthy-nvlink-limited"


def judge(job: JobDocument, not_judged: str = "") -> None:
    """Make a go inconclusive if it is far below its references, or a profile's demands were not judged.

    The first sentence then reports this, and also a speed that was not judged for lack of a reference. A no-go is
    unchanged.
    """
    if job["verdict"] == "no-go":
        return
    low = [table for table in job["tables"] if _is_low(job, table)]
    worst = min(low, key=lambda table: _ratio(table["nearest"]), default=None)
    shown = [table["nearest"] for table in job["tables"] if table["rows"]]
    text = _below(job, worst) if worst else ""
    if worst:
        call_below(job, worst, text, {name: sign(job, worst) for name, sign in SIGNS.items()})
    if job["verdict"] == "go" and (worst or not_judged):
        far = worst is not None and _ratio(worst["nearest"]) < FAR
        diagnosis = "far-below-published" if far else "below-published" if worst else "not-judged"
        also = f"not judged against the profile: {not_judged}" if not_judged else ""
        withhold(job, diagnosis, "; ".join(filter(None, (text, also))))
    elif job["verdict"] == "go":
        # nothing is published for these GPUs, or the collective is unknown: equally slow others prove little
        if shown and all(each["kind"] in ("none", "elsewhere") and not each["rows"] for each in shown):
            job["sentence"] = f"{job['sentence'].rstrip('.')}; {shown[0]['sentence']}."
        elif unnamed := next((t for t in job["tables"] if t["rows"] and not collective_of(t)), None):
            job["sentence"] = f"{job['sentence'].rstrip('.')}; {unnamed['nearest']['sentence']}."
    elif text or (shown and job["diagnosis"] in ("table-only", "odd-numbers")):
        also = text or shown[0]["sentence"]
        job["sentence"] += f" {also[0].upper()}{also[1:]}."


def _ratio(nearest: Reference) -> float:
    return nearest["ratio"] or 0.0


def _is_low(job: JobDocument, table: Table) -> bool:
    nearest = table["nearest"]
    carried = family(job["inter_node_transport"])  # the transport TCP explains more than the slow rate
    return nearest["kind"] not in ("floor", "none") and _ratio(nearest) < LOW and carried != TCP


_PARTS = (
    "quarter fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth "
    "seventeenth eighteenth nineteenth"
).split()


def _below(job: JobDocument, table: Table) -> str:
    """Return a large distance of a table below its reference, as text, and possible causes in the log."""
    nearest = table["nearest"]
    what = "this hardware reaches" if nearest["kind"] == "published" else "such hardware is known to reach"
    part = round(1 / _ratio(nearest)) if _ratio(nearest) > 0.05 else 20
    named = dict(enumerate(_PARTS, 4)).get(part, "twentieth or less")
    much = f"a{'n' if named[0] == 'e' else ''} {named}"
    head = f"the bandwidth is {much} of what {what}" if _ratio(nearest) < FAR else f"the bandwidth is below what {what}"
    settings = _settings(job, table)[:3]
    why = [f"{', '.join(settings)} {'is' if len(settings) == 1 else 'are'} set"] if settings else []
    if _rails_unused(job, table):
        why.append("{} of {} NICs of a host carry data".format(*_rails(job, table)))
    sentence = nearest["sentence"].partition("; others: ")[0]  # the table's own line names the others, too
    return f"{head}: {sentence}; {' and '.join(why) or 'the log does not show why'}"


def _settings(job: JobDocument, table: Table) -> list[str]:
    """Return the job's settings that override NCCL's choice, or keep it from using all NICs."""
    names = [name for name in _CHOOSES if name in job["env"]]
    if "NCCL_IB_HCA" in job["env"] and _rails_unused(job, table):
        names.append("NCCL_IB_HCA")
    return [f"{name}={value if isinstance(value := job['env'][name], str) else ' or '.join(value)}" for name in names]


def _rails(job: JobDocument, table: Table) -> tuple[int, int]:
    """Return how many NICs of a host carry data, and how many it or the published host has; 0 if unknown."""
    hosts = [host for host in job["rails"]["per_host"].values() if host["used"]]
    if job["nodes"] == 1 or not hosts:
        return 0, 0
    known = table["published"]
    rails = next((e.rails for e in published() if known and str(e) == known["topology"] and e.fabric != "efa"), None)
    offered = max(host["offered"] or 0 for host in hosts)
    return min(host["used"] for host in hosts), max(offered, rails or 0)  # an EFA host groups its devices


def _rails_unused(job: JobDocument, table: Table) -> bool | None:
    used, most = _rails(job, table)
    return used < most if most else False if job["nodes"] == 1 else None


def _setting(job: JobDocument, table: Table) -> bool | None:
    return bool(_settings(job, table)) or (False if job["env"] else None)


def _gdr_off(job: JobDocument, _: Table) -> bool | None:
    return False if job["nodes"] == 1 else None if job["gdr"] is None else not job["gdr"]


SIGNS: Mapping[str, Callable[[JobDocument, Table], bool | None]] = {
    "setting": _setting,
    "rails-unused": _rails_unused,
    "gdr-off": _gdr_off,
    "several-hosts": lambda job, _: False if job["nodes"] == 1 else None,
    "one-host": lambda job, _: None if job["nodes"] == 1 else False,
}
"""Conditions that distinguish the causes of nccl.below-published (seatrial/faults/logs/job.yaml, ``when``)."""


# -- NICs and links ---------------------------------------------------------------------------------------------------
def _peers_off(job: JobDocument) -> str:
    """Report hosts with more channels between GPUs through host memory than over P2P."""
    inside = job["intra_node"]
    if inside["shm"] <= inside["p2p"] or inside["mnnvl"] or inside["nvls"]:
        return ""
    settings = [f"{name}={job['env'][name]}" for name in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") if name in job["env"]]
    carried = f"{inside['shm']} of {inside['shm'] + inside['p2p']}" if inside["p2p"] else "all"
    return f"shared memory carries {carried} channels inside the hosts" + "".join(f", with {t}" for t in settings[:1])


def _shares_nothing(gpu: str) -> bool:
    """Return whether GPUs of this name have no external links: cards, or parts of a GPU (MIG user guide: no P2P)."""
    return is_card(gpu) or "MIG" in gpu.split()


def _above_the_hardware(job: JobDocument, table: Table, hardware: Hardware) -> str | None:
    """Describe a number above the limits of the job's NICs, from the log or the profile, or of its GPUs."""
    peak, nodes, per_node = table["peak_busbw_gbps"], hardware.nodes or 0, hardware.gpus_per_node or 0
    if peak is None or nodes * per_node < 2:
        return None
    wires = job["wires_gbps"] or hardware.wires_gbps
    apart = nodes > 1 and job["inter_node_transport"] not in ("none", "unknown", "mnnvl")
    if wires and apart and not job["sharp"] and not job["mixed"]:
        collective, algorithm = hardware.collective, hardware.algorithm
        limit = (
            wire_limit_gbps(collective, algorithm, wires, nodes=nodes, gpus_per_node=per_node)
            if collective in _AS_WIRE_LIMIT
            else limit_gbps("default", wires, nodes=nodes, gpus_per_node=per_node)
        )
        if peak > limit * TOLERANCE:
            return (
                f"{peak:g} GB/s of bus bandwidth exceeds {limit:.4g}, the limit of {wires:g} GB/s of network per host:"
                " the measured operation did not move the data, so check the results (-c 1)"
            )
    names = tuple(job["gpus"])
    links = links_gbps(names) if not any(map(is_card, names)) else None
    if links and peak > (limit := intra_node_limit_gbps(links, gpus=nodes * per_node)) * TOLERANCE:
        return f"{peak:g} GB/s of bus bandwidth exceeds {limit:.4g}, the limit of the links of {names[0]}"
    return None


def _wire(job: JobDocument, table: Table, hardware: Hardware, known: Said) -> WireUse | None:
    """Return the peak as a share of a host's link rate; None inside one host."""
    peak, limit = table["peak_busbw_gbps"], known.wires_gbps
    if peak is None or (job["nodes"] or 0) < 2 or table["collective"] not in ("all_reduce", None):
        return None
    least = _least_per_gpu(job, hardware, peak)
    if hardware.algorithm != "ring":
        above = limit is not None and job["nodes"] == 2 and peak > ring_limit_gbps(limit)
        return {
            "algorithm": "default",
            "node_gbps": None,
            "rail_gbit_s": None,
            "gpu_gbit_s": least,
            "of_wire": None,
            "above_wire": above,
        }
    rails = [host["used"] for host in job["rails"]["per_host"].values() if host["used"]]
    return {
        "algorithm": "ring",
        "node_gbps": peak,
        "rail_gbit_s": round(peak * 8 / min(rails), 1) if rails else None,
        "gpu_gbit_s": least,
        "of_wire": round(peak / limit, 3) if limit else None,
        "above_wire": False,
    }


def _least_per_gpu(job: JobDocument, hardware: Hardware, peak: float) -> float | None:
    """Return the minimum rate of each GPU's share of the links at the peak, in Gb/s, for any algorithm.

    No algorithm without in-network reduction sends less between hosts (``physics.tree_limit_gbps``).
    """
    nodes, per_node = hardware.nodes, hardware.gpus_per_node
    if not nodes or not per_node or nodes < 2 or job["sharp"]:
        return None
    return round(peak / limit_gbps("default", 1.0, nodes=nodes, gpus_per_node=per_node) * 8 / per_node, 1)


def _below_floor(hardware: Hardware, low: Sequence[FloorRow]) -> str:
    worst = min(low, key=lambda row: row["ratio"])
    return (
        f"{worst['busbw_gbps']:g} GB/s at {worst['size_bytes']} bytes under {hardware.algorithm};"
        f" {worst['topology']} gives at least {worst['floor_gbps']:g}"
    )


def _looks_like_tcp(table: Table, hardware: Hardware) -> str | None:
    """Explain why a table without a transport in the log can only be TCP's; None if it can be another's."""
    if hardware.fabric != "unknown" or (hardware.nodes or 0) < 2:
        return None
    rows = [(size, value) for size, value in points_of(table).items() if size >= GIB]
    asked = (hardware.nodes, hardware.gpus_per_node, hardware.collective, hardware.algorithm)
    fast = [e for e in rows_of(hardware.gpu) if (e.nodes, e.gpus_per_node, e.collective, e.algorithm) == asked]
    slow = [e for e in published() if e.fabric == TCP and e.collective == hardware.collective]
    if not rows or not fast or not slow:
        return None
    size, value = max(rows)
    least = min(fast, key=_most)
    if value > _NEAR_TCP * max(map(_most, slow)) or value > _FAR_BELOW * _most(least):
        return None
    figures = " and ".join(f"{_most(e):g} GB/s ({e.cited})" for e in slow[:3])
    return (
        f"{value:g} GB/s at {size_text(size)} is the bandwidth of such hosts over TCP, {figures}; {least} gives"
        f" {_most(least):g} ({least.cited})"
    )


def _most(entry: Published) -> float:
    return max(entry.busbw_gbps.values())
