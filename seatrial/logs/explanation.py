"""The whole answer to logs: the Python interface of `seatrial explain`, for paths or text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain

from .bandwidth.hardware import NOTHING_SAID, Said
from .diagnosis.conclusion import withhold
from .diagnosis.faults import failure_class_of
from .document import conclude
from .hang.collect import collect, tail_of
from .hang.model import Evidence
from .hang.watchdog import watched
from .job_document import NOTHING, Expected, JobDocument
from .parallel import read
from .reader.errors import NcclLogError
from .reader.lines.clean import printable
from .sources import Source, Text, open_sources, open_text
from .unread_files import unread_below


def explain(
    *logs: os.PathLike[str] | Text, expect: Expected = NOTHING, known: Said = NOTHING_SAID
) -> list[JobDocument]:
    """Return the diagnosis of NCCL logs, one document for each job that they show.

    A log is a `pathlib.Path` of a file (.gz, too) or of a folder, including its dumps of a hang; or a text, `str` or
    `bytes`; or an iterable of lines, with or without line ends, such as an open file. The logs of one call are read
    together: those of one job make one document.

    `expect` are the demands on them (`job_document.Expected`), `known` the hardware if no line names it, as
    `bandwidth.hardware.said("8xH100", "8x400")` reads it: GPUs of a host, its NICs and their rate in Gb/s.

    A document (`job_document.JobDocument`, docs/explain.schema.json) has `verdict` ("go", "no-go" or "inconclusive"),
    `sentence`, and `faults`, the first cause first, each with the id `fault`, `severity`, `subject`, `evidence`,
    `confirm` and `remedy`. Bandwidths are in GB/s, sizes in bytes. Text without a line of NCCL is "inconclusive".

    Raises NcclLogError for unreadable input: a missing path, an empty log, binary data, no log at all; and for a text
    that is the name of a file. Call `seatrial.faults.own.use` for your own faults before the first call.
    """
    places = [os.fspath(log) for log in logs if isinstance(log, os.PathLike)]
    texts = [log for log in logs if not isinstance(log, os.PathLike)]
    for text in texts:
        if isinstance(text, str) and "\n" not in text and os.path.exists(text):
            raise NcclLogError("%s: this is a file: give pathlib.Path(...), or its text" % printable(text, 200))
    unread = [each for place in places if os.path.isdir(place) for each in unread_below(place)]
    hangs, files = collect(places)
    sources: list[Iterable[Source]] = [open_sources(files)] if files or not logs else []
    for number, text in enumerate(texts, 1):
        name = "(text)" if len(texts) == 1 else "(text %d)" % number
        sources.append([(name, watched(hangs[0], name, open_text(text, name), answers=True))])
    partial = read(chain.from_iterable(sources))
    jobs = conclude(partial, expect, next_to_dumps=[each.logs for each in hangs if each.files])
    if hangs != [Evidence()]:
        from .hang.document import conclude as conclude_hang  # noqa: PLC0415 -- most jobs do not hang

        jobs = conclude_hang(hangs, jobs, partial, tail_of)
    if any(job["tables"] or job["intra_node"]["shm"] for job in jobs):
        judge_bandwidth(jobs, known)
    if unread:
        withhold_unread(jobs, unread)
    for job in jobs:
        job["failure_class"] = failure_class_of(job) if job["faults"] else None
        if (job["nccl_version"] or "").startswith("RCCL"):
            from .diagnosis.amd import report_amd  # noqa: PLC0415 -- most logs are NVIDIA's

            report_amd(job)
    return jobs


def judge_bandwidth(jobs: list[JobDocument], known: Said) -> None:
    """Compare a benchmark's numbers with published ones; make an unsupported go inconclusive."""
    from .bandwidth.judgement import compare, judge  # noqa: PLC0415 -- most logs hold no benchmark

    for job in jobs:
        compare(job, known)
        judge(job)


def withhold_unread(jobs: list[JobDocument], unread: list[str]) -> None:
    """Make a go inconclusive if unread files may be logs of the job."""
    for job in jobs:
        more = " and %d more" % (len(unread) - 1) if len(unread) > 1 else ""
        text = "not read: %s%s; unpack compressed files, or name the logs" % (printable(unread[0], 300), more)
        withhold(job, "not-judged", text)
        job["not_seen"] = [*job.get("not_seen", ()), text]
