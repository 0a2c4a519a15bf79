"""Stages of a probe that a test writes by hand: only the fields that matter to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobs.run.evidence import taken


class Stages(dict[str, Any]):
    """Has every field of the stages' types, as on arrival, whenever a stage is read; a test may change it in between."""

    def __getitem__(self, name: str) -> Any:
        stage = super().__getitem__(name)
        _complete(stage, taken(name, stage)[0])
        return stage

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 -- it would call itself

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        return [self[name] for name in self]

    def __iter__(self) -> Iterator[str]:  # makes dict's own | and ** read stages as above
        return super().__iter__()


def misfit(stage: str, data: dict[str, Any]) -> str:
    """Describe where a stage's data differs from the probe's format; '' if it fits."""
    return taken(stage, data)[1]


def _complete(given: Any, made: Any) -> None:
    if isinstance(given, dict) and isinstance(made, dict):
        for key, value in made.items():
            if given.get(key) is None:
                given[key] = value
            else:
                _complete(given[key], value)
    elif isinstance(given, list) and isinstance(made, list):
        for one, other in zip(given, made, strict=True):
            _complete(one, other)
