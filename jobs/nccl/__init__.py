"""The host side of the analysis of NCCL logs; the reading is jobs/pod/nccl_reader.

    partial = read(open_sources(["job.log"]))      # bytes in, a small state out; constant memory
    partial = merge([partial, ...])                # parts of one job, from several pods or files
    for job in conclude(partial): ...              # job documents: transports, faults, tables, verdict

The layers, each knowing only those before it: job (whose the state is), diagnosis (what it means), document (the
result).
"""

from ..pod.nccl_reader.errors import NcclLogError
from ..pod.nccl_reader.state.partial import POD_BUDGET, Partial, merge
from .diagnosis.faults import DIAGNOSES, failure_class_of, fault_catalogue
from .diagnosis.words import call_odd, call_slow, withhold
from .document import conclude
from .hang.collect import collect as collect_hang
from .hang.collect import tail_of
from .hang.document import conclude as conclude_hang
from .hang.watchdog import watched
from .parallel import read
from .sources import open_sources

__all__ = [
    "DIAGNOSES",
    "POD_BUDGET",
    "NcclLogError",
    "Partial",
    "call_odd",
    "call_slow",
    "collect_hang",
    "conclude",
    "conclude_hang",
    "failure_class_of",
    "fault_catalogue",
    "merge",
    "open_sources",
    "read",
    "tail_of",
    "watched",
    "withhold",
]
