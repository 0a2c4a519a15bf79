"""Validation of foreign JSON against a type: a pod's output, the API server's responses, a record's file.

A type is a TypedDict, ``list[T]``, ``dict[str, T]``, ``T | None``, a Literal, a StrEnum, a plain type, or a kind of
values (``Annotated[int, Kind(...)]``). An object without a class is written as ``{"key": T}`` (a key that ends in ! is
required) and a list of such as ``[{...}]``. Null means absent; other keys are ignored.

``filled`` also gives a document every key of its type, so that readers need no defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeGuard,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from seatrial.logs.kinds import Kind

from .redact import safe

LARGEST = 2**64
"""Port counters have 64 bits; no reported number is larger."""

Check = Callable[[Any], str]
"""Describes where and how a value differs from its type: "peers[0].index is the text 'x', not a count"; else ''."""


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number within LARGEST."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def is_whole(value: object) -> bool:
    """Return whether a value is an integer within LARGEST."""
    return isinstance(value, int) and is_number(value)


Count = Annotated[int, Kind("a count", lambda value: is_whole(value) and value >= 0)]
_PLAIN = {
    str: Kind("text", lambda value: isinstance(value, str)),
    bool: Kind("true or false", lambda value: isinstance(value, bool)),
    int: Kind("a whole number", is_whole),
    float: Kind("a number", is_number),
}
_WHOLLY = (str, bool)
"""Types of field that need only a check of the value's own type."""
_SHOWN = {dict: "a mapping", list: "a list", str: "the text", bool: "the truth value", NoneType: "null"}
_SHOWN |= {int: "the number", float: "the number"}


def checker(hint: Any) -> Check:  # noqa: PLR0911 -- one for each form of a type
    """Return a validator of a type."""
    form, inner = get_origin(hint), get_args(hint)
    if form is Annotated:
        return checker(hint.__metadata__[0])
    if isinstance(hint, dict):
        return _object({key.removesuffix("!"): (each, key.endswith("!")) for key, each in hint.items()})
    if is_typeddict(hint):
        hints = get_type_hints(hint, include_extras=True)
        return _object({key: (each, key in hint.__required_keys__) for key, each in hints.items()})
    if form is NotRequired:
        return checker(inner[0])
    if isinstance(hint, list) or form is list:
        return _entries(list, (inner or hint)[0], lambda number: f"[{number}]")
    if form is dict:
        return _entries(dict, inner[1], lambda key: f"[{safe(key, 80)!r}]")
    if form in (Union, UnionType):
        (one,) = (checker(each) for each in inner if each is not NoneType)
        return lambda value: "" if value is None else one(value)
    if hint in (Any, object):
        return lambda _: ""
    return _single(_kind(hint))


def _kind(hint: Any) -> Kind:
    if isinstance(hint, Kind):
        return hint
    if hint in _PLAIN:
        return _PLAIN[hint]
    allowed = sorted(str(word) for word in (get_args(hint) if get_origin(hint) is Literal else hint))
    return Kind(f"one of {', '.join(allowed)}", lambda value: isinstance(value, str) and value in allowed)


def _single(kind: Kind) -> Check:
    name, holds = kind.name, kind.holds
    return lambda value: "" if holds(value) else _is(value, name)


def _object(types: dict[str, tuple[Any, bool]]) -> Check:
    fields = [
        (key, _wholly(hint), checker(hint), needed and get_origin(hint) is not NotRequired)
        for key, (hint, needed) in types.items()
    ]

    def differs(value: Any) -> str:
        if not isinstance(value, dict):
            return _is(value, "a mapping")
        for key, plain, test, needed in fields:
            inner = value.get(key)
            if type(inner) is plain or (inner is None and not needed):
                continue
            if key not in value:
                return f"{key} is missing"
            if problem := test(inner):
                return at(key, problem)
        return ""

    return differs


def _wholly(hint: Any) -> Any:
    return next((each for each in _WHOLLY if hint in (each, each | None)), None)


def _entries(kind: type[list[Any] | dict[str, Any]], of: Any, place: Callable[[Any], str]) -> Check:
    test, wholly = checker(of), {of} if of in _WHOLLY else None

    def differs(value: Any) -> str:
        if not isinstance(value, kind):
            return _is(value, _SHOWN[kind])
        if wholly and set(map(type, value.values() if isinstance(value, dict) else value)) <= wholly:
            return ""
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if problem := test(inner):
                return at(place(key), problem)
        return ""

    return differs


_EMPTY = {str: "", int: 0, float: 0.0, bool: False}
_Filler = Callable[[Any], Any]
_T = TypeVar("_T")
_check = cache(checker)


def filled(hint: Any, document: Any) -> tuple[Any, str]:
    """Return a document with every key of its TypedDicts, and its first mismatch in one line; '' without one.

    What is missing or null is None where the type allows it (``T | None``), else the empty value of the type.
    """
    made = _filler(hint)(document)
    return made, _check(hint)(made)


def empty(kind: type[_T]) -> _T:
    """Return an object of a TypedDict of which nothing is known."""
    return cast("_T", filled(kind, {})[0])


@cache
def _filler(hint: Any) -> _Filler:
    """Return a function that replaces null and missing values by the type's empty value; other values stay.

    Made once for each type: a record holds thousands of values of a few dozen types.
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
    return {key: item if item is None else fill(item) for key, item in (value or {}).items()}


def _word(word_of: Mapping[str, str], value: Any) -> Any:
    return word_of.get(value, value) if isinstance(value, str) else value


def _plain(empty: object, value: Any) -> Any:
    return empty if value is None else value


def at(key: str, problem: str) -> str:
    """Prefix the error with the name of its place."""
    return f"{key}{'' if problem.startswith(('[', ' ')) else '.'}{problem}"


def kind_of(value: Any) -> str:
    """Name what a value is: "a list", "the number"."""
    return _SHOWN.get(type(value), type(value).__name__)


def _is(value: Any, expected: str) -> str:
    shown = "" if value is None or isinstance(value, dict | list) else f" {safe(repr(value), 60)}"
    return f" is {kind_of(value)}{shown}, not {expected}"
