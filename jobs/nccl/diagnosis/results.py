"""What degrades the nodes, and what the numbers say: faults inside hosts, wrong data, bandwidth that falls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...pod.nccl_reader.events.symptoms import SYMPTOMS
from ...pod.nccl_reader.events.transports import TCP
from ..rows import bandwidths, sides
from .causes import refine
from .subjects import subject_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..job_document import EvidenceLine, ReadTable, Side
    from .judge import Judgement

_DEGRADED = tuple(dict.fromkeys(item.fault for item in SYMPTOMS if item.role == "degraded"))
# A cause, and what it is called where the job went on: NCCL_IGNORE_DISABLED_P2P goes around a broken NVLink. That a
# port failed and another one took over is told as information (net_ib/p2p_resiliency*.cc).
_WENT_ON = {"nccl.nvlink-broken": "nccl.p2p-off", "info:nccl.nvlink-broken": "nccl.p2p-off"}
_TOOK_OVER = {"info:nccl.ib-given-up": "nccl.ib-recovered"}


def judge_node(judgement: Judgement) -> None:
    """Report what lines say of the work inside nodes that degrades it."""
    went_on = _WENT_ON if judgement.ended_badly else {**_WENT_ON, **_TOOK_OVER}
    for said, name in (*((name, name) for name in _DEGRADED), *went_on.items()):
        note, procs = judgement.earliest(said)
        if note is not None and not judgement.has(name, said):
            why, text = refine(judgement, name, note)
            judgement.add(name, subject_of(judgement, procs), judgement.line(note), why=why, cause=text)


def judge_local_network(judgement: Judgement) -> None:
    """Report channels inside hosts that go over the network."""
    if not judgement.has("nccl.net-intra-node"):
        procs = [item.proc for item in judgement.view.local_net]
        judgement.add("nccl.net-intra-node", subject_of(judgement, procs), [], cause=_intra_cause(judgement))


def judge_nvlink_fabric(judgement: Judgement) -> None:
    """Report sockets between hosts of one NVLink fabric."""
    view = judgement.view
    fabric = [proc for proc in judgement.job.procs if proc.has("flag", "fabric")]
    if view.pairs and not view.local["mnnvl"] and (view.nodes or 0) > 1 and view.transport in TCP:
        judgement.add("nccl.mnnvl-unused", subject_of(judgement, fabric), [])


def _intra_cause(judgement: Judgement) -> str | None:
    for variable in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"):
        if "1" in judgement.job.env[variable]:
            return "%s=1 is set" % variable
    return None


def _ranks_said(judgement: Judgement) -> int:
    """Return how many ranks the program speaks of, where all of this one host's communicators are smaller; else 0."""
    said, shown = max(judgement.job.numbers.get("world", ()), default=0), judgement.view.ranks
    return said if judgement.view.nodes == 1 and shown is not None and said > shown else 0


def _hosts_apart(judgement: Judgement) -> list[str]:
    """Return the hosts of a log where each has whole communicators of its own, and none spans two; else nothing."""
    hosts: dict[str, set[str]] = {}
    for proc in judgement.job.procs:
        for key, _ in proc.comms:
            hosts.setdefault(key, set()).add(judgement.job.node_of[proc])
    whole = all(key.startswith("0x") and len(on) == 1 for key, on in hosts.items())
    every = set().union(*hosts.values()) if hosts else set()
    return sorted(every) if whole and len(every) > 1 else []


# -- results -----------------------------------------------------------------------------------------------------------
def judge_runs(judgement: Judgement) -> None:
    """Report a log of several runs that is read as one."""
    twice = judgement.event("separate-runs")
    if twice is not None:
        judgement.add("nccl.separate-runs", "the job", judgement.line(twice))
    elif (apart := _hosts_apart(judgement)) and judgement.verdict() == "go":
        shown = ", ".join(apart[:4]) + (", ..." if len(apart) > 4 else "")
        cause = "every communicator lies within one host (%s), so the hosts never spoke to each other" % shown
        judgement.add("nccl.separate-runs", "the job", [], cause=cause)
    elif (said := _ranks_said(judgement)) and judgement.verdict() == "go":
        cause = "the program speaks of %d ranks, and the largest communicator has %d" % (
            said,
            judgement.view.ranks or 0,
        )
        judgement.add("nccl.separate-runs", "the job", judgement.line(judgement.event("world %d" % said)), cause=cause)


def judge_tables(judgement: Judgement) -> None:
    """Report wrong data, numbers that are none, and bandwidth that the benchmark itself calls too low or that falls."""
    for table in judgement.tables:
        what = table["collective"] or "the benchmark"
        bad = [side["wrong"] for row in table["rows"] for side in sides(row) if side["wrong"]]
        if bad or (table["out_of_bounds"] or 0) > 0 or table["out_of_bounds_ok"] is False:
            line = table["wrong_line"] or [table["line"], ""]
            count = sum(bad) if bad else table["out_of_bounds"]
            wrong = "%s values were wrong" % (count if count is not None else "some") + _unlike_gpus(judgement)
            chunks = _chunk_sizes(judgement)
            judgement.add(
                "nccl.wrong-results",
                what,
                _table_line(judgement, table, line),
                why="nccl.chunk-size" if chunks else None,
                cause="%s, and %s is set" % (wrong, ", ".join(chunks)) if chunks else wrong,
            )
        if table["avg_ok"] is False:
            judgement.add(
                "nccl.low-bandwidth",
                what,
                [],
                cause="the average bus bandwidth of %s GB/s is below the minimum that was set (NCCL_TESTS_MIN_BW)"
                % table["avg_busbw"],
            )
        elif _falls(table):
            peak, last = _peak_and_last(table)
            judgement.add(
                "nccl.bandwidth-falls",
                what,
                [],
                cause="the bus bandwidth falls from %.4g to %.4g GB/s as messages grow" % (peak, last),
            )
        odd = table["odd"] + _unreasonable(table, judgement.view.ranks)
        if odd:
            judgement.add("nccl.odd-numbers", what, [], cause="; ".join(odd[:3]))


def _unlike_gpus(judgement: Judgement) -> str:
    """Say which kinds of GPUs a benchmark lists, where it lists more than one: NCCL's kernels differ by generation."""
    kinds = sorted({str(line[4]) for line in judgement.job.rank_lines.values() if len(line) > 4 and line[4]})
    return ", and its GPUs are of several kinds (%s)" % ", ".join(kinds[:4]) if len(kinds) > 1 else ""


def _chunk_sizes(judgement: Judgement) -> list[str]:
    """Return the settings by which NCCL moves more in a step than its buffers hold: wrong data, and fast."""
    names = ("NCCL_CHUNK_SIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE")
    set_to = {(name, value) for name in names for value in judgement.job.env[name]}
    return ["%s=%s" % item for item in sorted(set_to)[:4]]


# One order of magnitude above the fastest NVLink domain of 2026 (932 GB/s over 64 GPUs, reference-busbw.yaml).
_MOST_GBPS = 10_000.0


def _unreasonable(table: ReadTable, ranks: int | None) -> list[str]:
    """Return numbers that no hardware gives: beyond any fabric, or nothing for a large message of several ranks."""
    texts = []
    for size, value in busbw(table):
        if value > _MOST_GBPS:
            texts.append("busbw at %d bytes is %g GB/s" % (size, value))
        elif value == 0 and size >= 64 << 20 and ranks != 1:
            texts.append("busbw at %d bytes is 0" % size)
    if table["unreadable"] and table["complete"]:  # of one that was cut, the last row is half of one
        texts.append("%d of its rows cannot be read" % table["unreadable"])
    texts += _ends(table)
    texts += _uneven(table)
    for row in table["rows"]:  # each side: the better one of a row may hide that the other is none
        for side in sides(row):
            if row["count"] is not None:
                texts += _contradicting(row["size_bytes"], side, table["collective"], ranks)
            numbers = {"busbw": side["busbw_gbps"], "algbw": side["algbw_gbps"], "time": side["time_us"]}
            for key, number in numbers.items():
                if number is not None and number < 0:
                    texts.append("%s at %d bytes is %g" % (key, row["size_bytes"], number))
    return texts[:8]


_UNEVEN, _LARGE = 4.0, 64 << 20
"""A row's two runs do the same work: over real tables they differ by 1.33 at most from 64 MiB on."""


def _uneven(table: ReadTable) -> Iterator[str]:
    """Yield the rows of large messages whose two runs, out of place and in place, are far apart."""
    for row in table["rows"]:
        values = bandwidths(row)
        if row["size_bytes"] >= _LARGE and len(values) > 1 and max(values) > _UNEVEN * min(values) > 0:
            yield "busbw at %d bytes is %g GB/s out of place and %g in place" % (row["size_bytes"], *values)


def _ends(table: ReadTable) -> Iterator[str]:
    """Yield what the table's last lines say and cannot be."""
    average, wrong = table["avg_busbw"], table["out_of_bounds"]
    if wrong is not None and wrong < 0:
        yield "%d values are out of bounds" % wrong
    if average is not None and average < 0:
        yield "the average bus bandwidth is %g" % average
    elif average and not table["rows"] and table["columns"] and not table["unreadable"]:
        yield "%g GB/s is the average of no row" % average


_MOST_FACTOR, _ROUNDED = 2.0, 0.1
"""busbw is at most twice algbw, and algbw is size over time (nccl-tests, doc/PERFORMANCE.md), printed with 3 digits."""


def _contradicting(size: int, side: Side, collective: str | None, ranks: int | None) -> list[str]:
    """Say which numbers of one row of nccl-tests cannot stand together: another unit, or a hand that changed one."""
    time, algbw, busbw = side["time_us"], side["algbw_gbps"], side["busbw_gbps"]
    timed = size / time / 1e3 if time and time >= 100 else 0.0  # what algbw has to be; GB/s
    if algbw is None or max(algbw, timed) < 1:
        return []
    texts = []
    if time == 0 and size > 0:
        texts.append("%d bytes took no time" % size)
    least = (1 - _ROUNDED) * algbw  # two ranks: 1; the factor of one is 0
    if collective == "all_reduce" and (ranks or 0) > 1 and busbw is not None and 0 < busbw < least and algbw >= 10:
        texts.append(
            "busbw at %d bytes is %g and algbw %g GB/s, and of all_reduce the factor is 1 at least"
            % (size, busbw, algbw)
        )
    if busbw == 0 and (ranks or 0) > 1:
        texts.append("busbw at %d bytes is 0 and algbw %g GB/s" % (size, algbw))
    if busbw is not None and busbw > algbw * _MOST_FACTOR * (1 + _ROUNDED):
        texts.append(
            "busbw at %d bytes is %g and algbw %g GB/s, and no collective has a factor above 2" % (size, busbw, algbw)
        )
    if timed and abs(timed - algbw) > _ROUNDED * algbw:
        texts.append("%d bytes in %g us are %.4g GB/s, and algbw says %g" % (size, time or 0, timed, algbw))
    return texts


def _table_line(judgement: Judgement, table: ReadTable, line: list[Any]) -> list[EvidenceLine]:
    for source in judgement.job.sources.values():
        if any(item is table for item in source.tables):
            return [{"file": source.name, "line": line[0], "text": line[1]}]
    return []


def busbw(table: ReadTable) -> list[tuple[int, float]]:
    """Return (size, best bus bandwidth of the row) for every readable row."""
    points = []
    for row in table["rows"]:
        values = bandwidths(row)
        if values and math.isfinite(max(values)):
            points.append((int(row["size_bytes"]), float(max(values))))
    return points


def _peak_and_last(table: ReadTable) -> tuple[float, float]:
    points = busbw(table)
    return max(value for _, value in points), max(points)[1]


def _falls(table: ReadTable) -> bool:
    """Say whether bandwidth collapses with size: a message of 64 MiB or more gives less than 40 % of the peak.

    Healthy curves rise and stay: over the corpus' healthy tables the largest size gives more than 85 % of the peak, the
    sick link of row 72 gives 12 %.
    """
    points = busbw(table)
    if len(points) < 4:
        return False
    size, last = max(points)
    peak = max(value for _, value in points)
    return size >= 64 << 20 and peak > 1.0 and last < 0.4 * peak
