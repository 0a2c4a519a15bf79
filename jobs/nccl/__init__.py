"""What does an NCCL log show, and what is wrong? A streaming analyzer of the standard library alone.

    partial = read(open_sources(["job.log"]))      # bytes in, a small state out; constant memory
    partial = merge([partial, ...])                # parts of one job, from several pods or files
    for job in conclude(partial): ...              # job documents: transports, faults, tables, verdict

The layers, each a folder that knows only those before it: lines (bytes become clean lines), state (what was seen),
tables (what a benchmark measured), events (what a line says), job (whose it is), diagnosis (what it means). scan drives
the reading, document writes the result. The package also runs as plain files inside a pod, on Python 3.8 and later:
``python3 -m nccl FILE...``.
"""

from .diagnosis.faults import DIAGNOSES, FAULTS
from .document import brief, conclude
from .errors import NcclLogError
from .lines.sources import open_sources
from .scan import read
from .state.partial import POD_BUDGET, Partial, merge

__all__ = [
    "DIAGNOSES",
    "FAULTS",
    "POD_BUDGET",
    "NcclLogError",
    "Partial",
    "brief",
    "conclude",
    "merge",
    "open_sources",
    "read",
]
