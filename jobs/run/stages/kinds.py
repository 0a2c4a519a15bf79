"""The kinds of values that a probe prints, each checked where it comes in (evidence_shape.py)."""

from __future__ import annotations

from typing import Annotated, Any

LARGEST = 2**64
"""Counters of ports have 64 bits; nothing that a probe tells is larger."""

TEXT, FLAG, NUMBER, WHOLE, COUNT = "text", "true or false", "a number", "a whole number", "a count"
LABEL = "a number or text"
FIGURE = "a figure"  # as a log had it: damaged ones may have any size
RECORD = "a list of numbers and text"
LOG_PART = "the log reader's part"

Whole = Annotated[int, WHOLE]  # -1 is without limit
Count = Annotated[int, COUNT]
Label = Annotated[str | float, LABEL]
Record = Annotated[list[Any], RECORD]  # an entry may be null: not measured
LogPart = Annotated[dict[str, Any], LOG_PART]  # read back by jobs.pod.nccl_reader
