"""The reading (reader/) and judging of logs of NCCL and the programs around it; needs no cluster, and only PyYAML.

    from seatrial.logs import explain

    (job,) = explain(Path("job.log"))             # the whole answer: verdict, sentence, faults with their remedies

A trial splits the same steps between the pods and the user's machine:

    partial = read(open_sources(["job.log"]))      # bytes in, a small state out; constant memory
    partial = merge([partial, ...])                # parts of one job, from several pods or files
    for job in conclude(partial): ...              # job documents: transports, faults, tables, verdict

The layers, each importing only those before it: reader, job (the owners of the state), diagnosis (its meaning),
bandwidth, document (the result), hang, explanation. The meaning of faults is in seatrial/faults.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .diagnosis.amd import report_amd
    from .diagnosis.conclusion import withhold
    from .diagnosis.faults import DIAGNOSES, failure_class_of
    from .document import conclude
    from .explanation import explain, judge_bandwidth, withhold_unread
    from .hang.collect import collect as collect_hang
    from .hang.collect import tail_of
    from .hang.document import conclude as conclude_hang
    from .hang.watchdog import watched
    from .parallel import read
    from .reader.errors import NcclLogError
    from .reader.state.partial import POD_BUDGET, Partial, merge
    from .sources import open_sources

__all__ = [
    "DIAGNOSES",
    "POD_BUDGET",
    "NcclLogError",
    "Partial",
    "collect_hang",
    "conclude",
    "conclude_hang",
    "explain",
    "failure_class_of",
    "judge_bandwidth",
    "merge",
    "open_sources",
    "read",
    "report_amd",
    "tail_of",
    "watched",
    "withhold",
    "withhold_unread",
]

_HOMES = {
    "DIAGNOSES": ".diagnosis.faults:DIAGNOSES",
    "NcclLogError": ".reader.errors:NcclLogError",
    "POD_BUDGET": ".reader.state.partial:POD_BUDGET",
    "Partial": ".reader.state.partial:Partial",
    "collect_hang": ".hang.collect:collect",
    "conclude": ".document:conclude",
    "conclude_hang": ".hang.document:conclude",
    "explain": ".explanation:explain",
    "failure_class_of": ".diagnosis.faults:failure_class_of",
    "judge_bandwidth": ".explanation:judge_bandwidth",
    "merge": ".reader.state.partial:merge",
    "open_sources": ".sources:open_sources",
    "read": ".parallel:read",
    "tail_of": ".hang.collect:tail_of",
    "report_amd": ".diagnosis.amd:report_amd",
    "watched": ".hang.watchdog:watched",
    "withhold": ".diagnosis.conclusion:withhold",
    "withhold_unread": ".explanation:withhold_unread",
}


@cache
def __getattr__(name: str) -> Any:
    """Import names on demand (PEP 562): most commands read no log, and the reader takes a third of their start."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place, _, part = _HOMES[name].partition(":")
    return getattr(import_module(place, __name__), part)
