"""The kinds of values that a probe prints, in addition to plain ones."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from seatrial.logs.job_document import ReadTable
from seatrial.logs.kinds import Kind, Label

from ...cluster.json_types import Count

__all__ = ["Count", "Label", "LogPart", "NodeNames", "Record"]


def _is_rank(value: object) -> bool:
    """Return whether a table's line about a rank is readable: fields compared with processes must be numbers."""
    return isinstance(value, list) and len(value) == 7 and all(isinstance(value[each], int) for each in (0, 2, 6))


def _is_record(value: object) -> bool:
    return isinstance(value, list) and all(each is None or isinstance(each, str | int | float) for each in value)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


Record = Annotated[list[Any], Kind("a list of numbers and text", _is_record)]  # an entry may be null: not measured
NodeNames = Annotated[list[str], Kind("the names of its nodes", _are_names)]  # at least one
Rank = Annotated[list[Any], Kind("rank, host, process, device, bus, name and line", _is_rank)]


class _Source(TypedDict, total=False):
    """The parts of a stream that are read in addition to the log reader's."""

    tables: list[ReadTable]
    ranks: list[Rank]


class _LogPart(TypedDict, total=False):
    sources: list[_Source]


LogPart = Annotated[dict[str, Any], _LogPart]  # read back by seatrial.logs.reader
