"""Adds missing keys of a TypedDict to a JSON document, with empty values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from jobs.cluster.json_types import checker

_EMPTY = {str: "", int: 0, float: 0.0, bool: False}
_Filler = Callable[[Any], Any]
_check = cache(checker)


def filled(hint: type, document: Mapping[str, Any]) -> tuple[Any, str]:
    """Return a document with every key of a TypedDict, and its first mismatch in one line ('' without one)."""
    made = _filler(hint)(document)
    return made, _check(hint)(made)


@cache
def _filler(hint: Any) -> _Filler:
    """Return a function that replaces null and missing values by the type's empty value; others are unchanged.

    Built once for each type: a record holds thousands of values of a few dozen types.
    """
    if is_typeddict(hint):
        fillers = {key: _filler(each) for key, each in get_type_hints(hint).items()}
        return partial(_with_every_key, fillers, hint.__required_keys__)
    kind, inner = get_origin(hint), get_args(hint)
    holders = {list: _list, dict: _mapping, Union: _optional, UnionType: _optional}
    if kind in holders:
        *_, of = (each for each in inner if each is not NoneType)
        return partial(holders[kind], _filler(of))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return partial(_word, {str(word): word for word in hint})
    return partial(_plain, _EMPTY.get(hint))


def _with_every_key(fillers: Mapping[str, _Filler], required: frozenset[str], value: Any) -> Any:
    if not isinstance(value, Mapping | NoneType):
        return value
    made = dict(value or {})
    for key, fill in fillers.items():
        item = made.get(key)
        if item is None and key not in required:
            made.pop(key, None)
        else:
            made[key] = fill(item)
    return made


def _optional(fill: _Filler, value: Any) -> Any:
    return None if value is None else fill(value)


def _list(fill: _Filler, value: Any) -> Any:
    if not isinstance(value, list | NoneType):
        return value
    return [item if item is None else fill(item) for item in value or ()]


def _mapping(fill: _Filler, value: Any) -> Any:
    if not isinstance(value, dict | NoneType):
        return value
    return {key: fill(item) for key, item in (value or {}).items()}


def _word(word_of: Mapping[str, str], value: Any) -> Any:
    return word_of.get(value, value) if isinstance(value, str) else value


def _plain(empty: object, value: Any) -> Any:
    return empty if value is None else value
