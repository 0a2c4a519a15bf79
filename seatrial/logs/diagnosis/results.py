"""Degraded nodes and the benchmark's results: faults inside hosts, wrong data, falling bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..reader.events.symptoms import SYMPTOMS
from ..reader.events.transports import TCP
from ..rows import copies, of_one_rank, sides
from .causes import refine
from .numbers import fall, of_other_rows, sound_rows, too_large_errors, unreasonable
from .subjects import subject_of

if TYPE_CHECKING:
    from ..job_document import EvidenceLine, ReadTable
    from .judge import Judgement

_DEGRADED = tuple(dict.fromkeys(item.fault for item in SYMPTOMS if item.role == "degraded"))
# A cause, and its name if the job continued: NCCL_IGNORE_DISABLED_P2P bypasses a broken NVLink. A failed port with
# another one taking over is reported as information (net_ib/p2p_resiliency*.cc).
_WENT_ON = {"nccl.nvlink-broken": "nccl.p2p-off", "info:nccl.nvlink-broken": "nccl.p2p-off"}
_TOOK_OVER = {"info:nccl.ib-given-up": "nccl.ib-recovered"}


def judge_node(judgement: Judgement) -> None:
    """Report lines about degraded operation inside nodes."""
    went_on = _WENT_ON if judgement.ended_badly else {**_WENT_ON, **_TOOK_OVER}
    for said, name in (*((name, name) for name in _DEGRADED), *went_on.items()):
        note, procs = judgement.earliest(said)
        if note is not None and not judgement.has(name, said):
            detail = refine(judgement, name, note)
            judgement.add(name, subject_of(judgement, procs), judgement.line(note), **detail._asdict())


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
    """Return how many ranks the program mentions, if all of this one host's communicators are smaller; else 0."""
    said, shown = max(judgement.job.numbers.get("world", ()), default=0), judgement.view.ranks
    return said if judgement.view.nodes == 1 and shown is not None and said > shown else 0


def _hosts_apart(judgement: Judgement) -> list[str]:
    """Return the hosts of a log if each has whole communicators of its own, and none spans two; else nothing."""
    hosts: dict[str, str] = {}  # hosts by communicator
    for proc in judgement.job.procs:
        for key, _ in proc.comms:
            if not key.startswith("0x") or hosts.setdefault(key, host := judgement.job.node_of[proc]) != host:
                return []
    every = set(hosts.values())
    return sorted(every) if len(every) > 1 else []


# -- results -----------------------------------------------------------------------------------------------------------
def judge_runs(judgement: Judgement) -> None:
    """Report a log of several runs that is read as one."""
    twice = judgement.event("separate-runs")
    if twice is not None:
        judgement.add("nccl.separate-runs", "the job", judgement.line(twice))
    elif times := max((copies(table["rows"]) for table in judgement.tables if _of_copies(table)), default=0):
        cause = "every bus bandwidth is 0 and a size is there %d times: at least %d processes, each a job of one rank"
        judgement.add("nccl.separate-runs", "the job", [], cause=cause % (times, times))
    elif (apart := _hosts_apart(judgement)) and judgement.verdict() == "go":
        shown = ", ".join(apart[:4]) + (", ..." if len(apart) > 4 else "")
        cause = "every communicator is within one host (%s), so the hosts never communicated" % shown
        judgement.add("nccl.separate-runs", "the job", [], cause=cause)
    elif (said := _ranks_said(judgement)) and judgement.verdict() == "go":
        cause = "the program reports %d ranks, and the largest communicator has %d" % (said, judgement.view.ranks or 0)
        judgement.add("nccl.separate-runs", "the job", judgement.line(judgement.event("world %d" % said)), cause=cause)


def _of_copies(table: ReadTable) -> bool:
    """Return whether several processes, each a job of one rank, printed a table."""
    return of_one_rank(table["rows"]) and copies(table["rows"]) > 1


def _ranks_of(judgement: Judgement, table: ReadTable) -> int | None:
    """Return how many ranks printed a table: 1 if it shows so and is not of the whole job, else the job's."""
    further = any(other["rows"] and not of_one_rank(other["rows"]) for other in judgement.tables)
    alone = of_one_rank(table["rows"]) and (judgement.view.ranks is None or further)
    return 1 if alone else judgement.view.ranks


def judge_tables(judgement: Judgement) -> None:
    """Report wrong data, values that are not numbers, and bandwidth that falls or that the benchmark calls too low."""
    for table in judgement.tables:
        what = table["collective"] or "the benchmark"
        ranks = _ranks_of(judgement, table)
        wrong_rows = [row for row in table["rows"] if any(side["wrong"] for side in sides(row))]
        sound = sound_rows(table, ranks) if wrong_rows else []
        bad = [side["wrong"] for row in sound for side in sides(row) if side["wrong"]]
        large = too_large_errors(table, ranks)
        if bad or large or (table["out_of_bounds"] or 0) > 0 or table["out_of_bounds_ok"] is False:
            line = table["wrong_line"] or [table["line"], ""]
            count = sum(bad) if bad else table["out_of_bounds"]
            wrong = large[0] if large else "%s values were wrong" % (count if count is not None else "some")
            wrong += _unlike_gpus(judgement)
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
        elif fall(table) and (drop := fall(table, sound_rows(table, ranks))):
            cause = "the bus bandwidth falls from %.4g to %.4g GB/s as messages grow to %d bytes"
            judgement.add("nccl.bandwidth-falls", what, [], cause=cause % drop)
        odd = table["odd"] + unreasonable(table, ranks)
        odd += (
            [] if judgement.event("separate-runs") or _of_copies(table) else of_other_rows(table)
        )  # copies interleave their rows and ends
        if odd:
            judgement.add("nccl.odd-numbers", what, [], cause="; ".join(odd[:3]))


def _unlike_gpus(judgement: Judgement) -> str:
    """Name the kinds of GPUs of a benchmark that lists more than one: NCCL's kernels differ by generation."""
    kinds = sorted({str(line[4]) for line in judgement.job.rank_lines.values() if len(line) > 4 and line[4]})
    return ", and its GPUs are of several kinds (%s)" % ", ".join(kinds[:4]) if len(kinds) > 1 else ""


def _chunk_sizes(judgement: Judgement) -> list[str]:
    """Return the settings by which NCCL moves more in a step than its buffers hold, which gives fast but wrong data."""
    names = ("NCCL_CHUNK_SIZE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE")
    set_to = {(name, value) for name in names for value in judgement.job.env[name]}
    return ["%s=%s" % item for item in sorted(set_to)[:4]]


def _table_line(judgement: Judgement, table: ReadTable, line: list[Any]) -> list[EvidenceLine]:
    for source in judgement.job.sources.values():
        if any(item is table for item in source.tables):
            return [{"file": source.name, "line": line[0], "text": line[1]}]
    return []
