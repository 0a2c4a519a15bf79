"""Headers of nccl-tests, rccl-tests and benches of their form.

Every pattern also matches if a tracker's Markdown turned the leading ``#`` into a heading.
"""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Optional

from ..lines.patterns import AnyOf
from .rows import number

RANK = re.compile(
    rb"(?<![^\s#:>])Rank\s+(\d{1,7})\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d{1,10})\s+on\s+(\S+)\s+device\s+(\d{1,5})\s+"
    rb"(?:\[([0-9a-fA-Fx:.]+)\]\s*)?(.*)"
)
LIBRARY = re.compile(rb"(?<![^\s#])[nr]ccl-tests version\s+(\S+)(?:.{0,200}[nr]ccl-library=(\d{4,6}))?")
TEST = re.compile(rb"(?<![^\s#])Collective test starting:\s+(\S+)")
CONCLUDED = re.compile(rb"Collective test concluded(?::\s+(\S+))?")
CONFIG = re.compile(
    rb"(minBytes|maxBytes|step|warmup iters|iters|agg iters|validation|graph):?\s+([0-9.]+)(?:\((\w+)\))?"
)
BOUNDS = re.compile(rb"Out of bounds values\s*:\s*([^\s\"]+)\s*(OK|FAILED)?")
AVERAGE = re.compile(rb"Avg bus bandwidth\s*:\s*([^\s\"]+)\s*(OK|FAILED)?")
COLLECTIVE = re.compile(
    rb"\b(all_reduce|all_gather|reduce_scatter|broadcast|alltoallv?|all_to_all|sendrecv|hypercube|gather|scatter"
    rb"|reduce)(?:_bias)?(?:_perf)?(?:_mpi)?\b"
)
BENCH_NCCL = re.compile(rb"#.{0,200}\bbench\b.{0,200}\bnccl (\d+\.\d+(?:\.\d+)?\S*)")
PERF = re.compile(
    rb"\b(all_reduce|all_gather|reduce_scatter|broadcast|alltoallv?|sendrecv|hypercube|gather|scatter"
    rb"|reduce)(?:_bias)?_perf(?:_mpi)?\b"
)
COLUMNS = re.compile(rb"(?i)algbw.{0,60}busbw")
# A tracker's Markdown turns "# " into a heading, and shows the rest.
HEADLESS = re.compile(rb"nThread +\d|\bRank +\d.{0,80} Pid |ccl-tests version|Collective test|Out of bounds values")
_HEADING = AnyOf(
    (b"#", b"Performance of ", b"in-place", b"nThread", b" Pid ", b"-tests version", b"ive test", b"of bounds")
)
FIRST_NAMES = {"bytes": "size", "N": "count", "op": "redop"}  # in the first releases, with "res" for "error"


def may_head(raw: bytes) -> bool:
    """Return whether a line has any of the words that identify lines around a table's rows, also for forms.py."""
    low = raw.lower()
    return b"bw" in low or b"bandwidth" in low or _HEADING.contained_in(raw)


def library_version(code: int) -> str:
    """Convert NCCL's version code: 22807 is 2.28.7, 2708 is 2.7.8 (nccl.h, NCCL_VERSION)."""
    if code < 10000:
        return "%d.%d.%d" % (code // 1000, code % 1000 // 100, code % 100)
    return "%d.%d.%d" % (code // 10000, code % 10000 // 100, code % 100)


def collective_of(text: bytes) -> Optional[str]:
    """Return the collective that a program's name names."""
    match = COLLECTIVE.search(text.replace(b"_perf", b" ").replace(b"_mpi", b" "))
    return match.group(1).decode("ascii") if match else None


def config_of(raw: bytes) -> Dict[str, Any]:
    """Return the settings that a benchmark prints first."""
    config: Dict[str, Any] = {}
    for match in CONFIG.finditer(raw):
        value = number(match.group(2))
        key = match.group(1).decode("ascii").replace(" ", "_")
        if value is not None and math.isfinite(value):
            config[key] = int(value)
        if match.group(3):
            config["step_kind"] = match.group(3).decode("ascii", "replace")
    return config
