"""Reads NCCL logs into a small state that merges with others: what a trial's pod runs over its ranks' logs.

    partial = read([("rank0.log", stream), ...])   # bytes in, constant memory
    partial.to_dict(POD_BUDGET)                    # JSON out

The layers, each a folder that knows only those before it: lines (bytes become clean lines), state (what was seen),
tables (what a benchmark measured), events (what a line says); digest reduces a block of lines to events, scan applies
them. What the state means is judged elsewhere (jobs/nccl).
"""

from .errors import NcclLogError
from .scan import read
from .state.partial import POD_BUDGET, Partial

__all__ = ["POD_BUDGET", "NcclLogError", "Partial", "read"]
