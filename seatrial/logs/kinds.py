"""Kinds of values in documents that Python's types do not express: jobs/cluster/json_types.py validates by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A group of values with a name."""

    name: str
    holds: Callable[[Any], bool]


Label = Annotated[str | float, Kind("a number or text", lambda value: isinstance(value, str | int | float))]
