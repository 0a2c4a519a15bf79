"""Several equal jobs on separate hosts that were given together and may have been intended as one.

A benchmark runs on each host alone on purpose. A training program may have been started without the others: torchrun
without --nnodes runs on each host, and is healthy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .conclusion import withhold
from .faults import found_fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job_document import JobDocument


def report_single(documents: Sequence[JobDocument]) -> None:
    """Report healthy jobs on one host each, of equal size and version, with no traffic between them.

    Without a benchmark's numbers they do not prove that the intended job runs: inconclusive.
    """
    by_shape: dict[tuple[int | None, str | None], list[JobDocument]] = {}
    for document in documents:
        if document["verdict"] == "go" and document["nodes"] == 1 and document["hosts"]:
            by_shape.setdefault((document["ranks"], document["nccl_version"]), []).append(document)
    for (ranks, _), group in by_shape.items():
        hosts = {document["hosts"][0]["name"] for document in group}
        if len(hosts) < 2 or len(hosts) < len(group):
            continue
        said = "%d hosts each ran a separate job of %s ranks, and nothing crossed between them" % (len(hosts), ranks)
        for document in group:
            if any(table["rows"] for table in document["tables"]):
                document["sentence"] += " " + said + "."
                continue
            cause = said + ": if one job over them was meant, they never communicated"
            document["faults"].append(found_fault("nccl.separate-runs", "the job", [], cause=cause))
            withhold(document, "separate-runs", cause)
