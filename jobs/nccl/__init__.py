"""What does an NCCL log show, and what is wrong? A streaming analyzer of the standard library alone.

    partial = read(open_sources(["job.log"]))      # bytes in, a small state out; constant memory
    partial = merge([partial, ...])                # parts of one job, from several pods or files
    for job in conclude(partial): ...              # job documents: transports, faults, tables, verdict

The layers, each a module: sources and unwrap (bytes), prefix (who wrote a line), events, transports, table, signals
(what it says), state and partial (what was seen), jobs and view (whose it is), reasons and judge (what it means),
document (the result). The package also runs as plain files inside a pod (``python3 -m nccl FILE...``), on Python 3.8
and later.
"""

from .document import brief, conclude
from .errors import NcclLogError
from .faults import DIAGNOSES, FAULTS
from .partial import POD_BUDGET, Partial, merge
from .scan import read
from .sources import open_sources

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
