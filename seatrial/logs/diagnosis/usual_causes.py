"""Usual causes of an NCCL error that the log shows by name only, as NCCL_DEBUG was not set.

They are alternatives of nccl.crash, each with the text that the line must have, the most usual first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...faults.catalogue import fault_catalogue
from .quotes import follows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job_document import Cause
    from .judge import Judgement
    from .ranking import Signs


def with_usual_causes(causes: Sequence[Cause], judgement: Judgement, signs: Signs) -> list[Cause]:
    """Return a job's causes with the usual causes of an NCCL error that no other line explains."""
    faults = judgement.faults
    if not faults or faults[0]["fault"] not in _GRAPH:
        return list(causes)
    given = _given_graph(judgement)
    if faults[0]["fault"] != "nccl.crash" or _said_more(judgement):
        return [*causes[:1], *given, *causes[1:]]
    text = "\n".join(line["text"] for line in faults[0]["evidence"])
    usual: list[Cause] = [
        {"fault": "nccl.crash", "cause": "no line names the failure; mostly " + each.cause, "confirm": each.confirm}
        for each in fault_catalogue()["nccl.crash"].alternatives
        if each.said and re.search(each.said, text) and not (each.when and signs.get(each.when) is False)
    ]
    usual = given + usual
    if not usual:
        return list(causes)
    slow = [cause for cause in causes[1:] if cause["fault"].startswith("nccl.bandwidth")]  # a low bandwidth ends no job
    return [
        *(cause for cause in causes[1:] if cause not in slow),
        *usual,
        *slow,
    ]  # the first cause only quotes the error


_GRAPH = frozenset(("nccl.crash", "nccl.internal", "nccl.ranks-differ", "nccl.topology-search"))  # a graph may end so


def _given_graph(judgement: Judgement) -> list[Cause]:
    """Return NCCL_GRAPH_FILE's graph as a cause: it is written for experiments, and fits one kind of machine."""
    files = sorted(judgement.job.env["NCCL_GRAPH_FILE"] - {""})
    if not files:
        return []
    text = (
        "NCCL_GRAPH_FILE=%s is set, and a graph file fits only the number and kind of GPUs for which it was made"
        % files[0]
    )
    return [
        {"fault": "nccl.graph-file", "cause": text, "confirm": "unset NCCL_GRAPH_FILE; cat /etc/nccl.conf ~/.nccl.conf"}
    ]


_OWN_USAGE = re.compile(r"ncclInvalid(?:Usage|Argument)|invalid (?:usage|argument)")


def _said_more(judgement: Judgement) -> bool:
    """Return whether NCCL warned, or a line shows a lost peer or its consequences in addition to the error.

    A process that reports a usage error of NCCL exits by itself, and its peers lose the connection.
    """
    if judgement.earliest("warn")[0] or judgement.event("last-error"):
        return True
    gone, error = follows(judgement), judgement.event("nccl-error")
    return gone is not None and not (error is not None and _OWN_USAGE.search(error.text))
