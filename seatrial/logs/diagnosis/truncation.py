"""A log that stops before the job does: ranks that never come up, tables and edges without their other end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from ...faults.catalogue import formed
from ..job.crossings import between
from ..reader.state.process import channels_in
from .quotes import quoted

if TYPE_CHECKING:
    from ..job.view import View
    from ..job_document import ReadTable
    from ..reader.state.process import Note, Proc
    from .judge import Judgement


def judge_truncation(judgement: Judgement) -> None:
    """Report a log that shows no failure and stops before the job does, by its first sign."""
    if judgement.ended_badly or judgement.event("separate-runs"):  # copies interleave their headers and ends
        return
    subject, missing = "the job", ""
    table = _table_without_end(judgement) if judgement.tables else None
    if table is not None:
        subject = "the table of %s" % (table["collective"] or "the benchmark")
        missing = "the table ends after %d row%s, without its last lines" % (
            len(table["rows"]),
            "" if len(table["rows"]) == 1 else "s",
        )
        if not table["rows"]:
            missing = "the table ends before its first row: the log was cut, or the first collective hangs"
    if not missing and (left := judgement.event("not-read")) is not None:
        missing = left.text[left.text.rfind("(not read: ") + 1 :].rstrip(")")
    if not missing and (left := judgement.event("left-out")) is not None and judgement.verdict() == "go":
        missing = "lines were left out of it, as one says: %s" % left.text
    for needed, sign in _SIGNS_OF_A_CUT:
        if not missing and judgement.shows[needed]:
            missing = sign(judgement.view)
    if missing:
        judgement.add("nccl.log-truncated", subject, [], cause=missing)


def judge_cut_channels(judgement: Judgement) -> None:
    """Report a log with truncated channel lines, or with unknown transports: what is missing may show a fault."""
    if judgement.verdict() != "go":
        return
    if (unknown := judgement.earliest("line channel-unknown")[0]) is not None:
        told = formed("nccl.unexplained", unknown.text)
        variant = told.variant if told else None
        cause = "%s: %s" % (told.cause if told else "the log says", quoted(unknown))
        judgement.add("nccl.unexplained", "the job", judgement.line(unknown), cause=cause, variant=variant)
    elif (cut := _cut_channels(judgement)) is not None:
        text = "the lines of channels are cut, by a page or a pager"
        judgement.add("nccl.log-truncated", "the job", judgement.line(cut), cause=text)


def _cut_channels(judgement: Judgement) -> Note | None:
    """Return the first truncated channel line, if there are more of them than processes tear."""
    notes = [proc.notes["line channel-cut"] for proc in judgement.job.noted.get("line channel-cut", [])]
    cut = sum({id(note): note.count for note in notes}.values())  # processes may share a line
    edges = (connections for proc in judgement.job.procs for connections in proc.edges.values()) if cut else ()
    shown = sum(channels_in(mask) for connections in edges for mask in connections.values())
    return judgement.earliest("line channel-cut")[0] if cut > _TORN * shown else None


def _unfinished_start(view: View) -> str:
    """Count the ranks that began to initialise and never finished."""
    started, completed = view.job.started, view.job.completed
    missing = sum(len(ranks - completed[key]) for key, ranks in started.items())
    if not missing or not any(ranks and key.startswith("0x") for key, ranks in started.items()):
        return ""
    began = sum(map(len, started.values()))
    return "%d of %d ranks began to initialise and are not seen to finish" % (missing, began)


def _table_without_end(judgement: Judgement) -> ReadTable | None:
    """Return the last table without an end.

    It is the table in which a stream ends although those before are complete: its tests never completed. The same holds
    for a single table with its beginning; otherwise an excerpt of a completed job left out the missing part.
    """
    streams = [cast("list[ReadTable]", source.tables) for source in judgement.job.sources.values()]
    cut = [
        tables[-1]
        for tables in streams
        if tables and not tables[-1]["complete"] and (tables[-2]["complete"] if tables[1:] else _begun(tables[-1]))
    ]
    if not cut and not judgement.job.destroyed(judgement.job.world):
        cut = [table for table in judgement.tables if not table["complete"] and (table["rows"] or table["columns"])]
    return cut[-1] if cut and (_begun(cut[-1]) or cut[-1]["collective"]) else None


def _begun(table: ReadTable) -> bool:
    """Return whether the log has a table's beginning, or a table without rows."""
    return bool(table["config"]) or (bool(table["columns"]) and not table["rows"])


def _half_shown(view: View) -> str:
    """Compare the two ends of each network edge: both ranks print the same channels, unless a log was truncated.

    A truncation may hide the only socket. Sender and receiver have each printed their end since NCCL 2.4. If the other
    end's process is not in the log at all, nothing is compared.
    """
    pairs = [*view.pairs.values(), *(between(view.local_net).values() if view.local_net else ())]
    if all(pair.sent == pair.received for pair in pairs):
        return ""
    edges: dict[tuple[str, int, int, int], list[int]] = {}
    for pair in pairs:
        for end, ends in enumerate((pair.sent, pair.received)):
            for (comm, src, dst, conn, transport), mask in ends.items():
                here = view.job.members.get(comm)
                if here and src in here and dst in here and transport not in view.local:
                    edges.setdefault((comm, src, dst, conn), [0, 0])[end] |= mask
    torn = {key: channels_in(sent ^ received) for key, (sent, received) in edges.items() if sent != received}
    shown = sum(channels_in(mask) for masks in edges.values() for mask in masks)
    if sum(torn.values()) <= _TORN * shown:
        return ""
    _, src, dst, _ = min(torn)
    return "%d of %d network edges show channels at one end only, such as %d -> %d" % (len(torn), len(edges), src, dst)


# Processes that write to one pipe sometimes tear each other's lines (1 of 65 channel lines of a healthy log); more
# missing lines were truncated.
_TORN = 0.05
_CONFIRMS = (2, 8)  # since 2.8.3 every rank closes its channels with a line such as 'Connected all rings'


def _unconfirmed(view: View) -> str:
    """Count the ranks that set up ring or tree channels over the network and never report them as connected."""
    over = {
        proc
        for proc, connectors in view.connectors.items()
        if any(connector[1:3] == (0, "net") for connector, _, _ in connectors.values())
    }
    crossing = over | {item.proc for item in view.local_net if item.connector[1:3] == (0, "net")}
    silent = [proc for proc in crossing if not proc.has("flag", "connected")]
    if not silent or (len(silent) == len(crossing) and not all(_version(proc) >= _CONFIRMS for proc in crossing)):
        return ""
    return "%d of %d ranks set up channels and are not seen to connect them all" % (len(silent), len(crossing))


def _version(proc: Proc) -> tuple[int, ...]:
    """Return the major and minor version that a process printed, or nothing."""
    versions = [re.match(r"(\d+)\.(\d+)", text) for text in proc.facts.get("version", ())]
    return max((tuple(int(part) for part in match.groups()) for match in versions if match), default=())


_SIGNS_OF_A_CUT = (  # each sign with the kind of evidence that it needs
    ("communicators", _unfinished_start),
    ("communicators", _half_shown),
    ("connections", _unconfirmed),
)
