"""Strict YAML into dataclasses: every refusal names the path and the nearest right word, in one line."""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import re
import types
import typing
from collections.abc import Collection
from pathlib import Path
from typing import Any, NewType, TypeAlias

import yaml

from jobs.listing import nearest

from .errors import ProfileError

HERE = Path(__file__).resolve().parent
MAX_BYTES = 1_000_000
"""A profile is a page; anything larger is not one."""

Size = NewType("Size", int)
"""Bytes. Written as in nccl-tests (8, 64K, 1M, 8G, powers of 1024), as 16Gi, or 'unlimited' (-1)."""

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"(\d+)\s*([KMGTkmgt]?)(?:i?B?)")  # never 'b': 8Gb are bits to everybody else
_EXPECTED = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Size: "a size like 8G or 16Gi",
}


Document: TypeAlias = dict[str, Any]
"""A mapping of a YAML file, before it is a profile, or on its way to be one."""


def require(ok: bool, name: str, text: str) -> None:
    """Refuse a record whose field ``name`` cannot be true; the loader puts the path in front."""
    if not ok:
        raise ValueError(f".{name} {text}")


def require_positive(record: object, *names: str) -> None:
    """Refuse a record in which one of these fields is a number that is not above 0; None is no number."""
    for name in names:
        value = getattr(record, name)
        require(value is None or value > 0, name, "must be above 0")


def require_known(name: str, what: str, value: str, choices: Collection[str]) -> None:
    """Refuse a field's word that is none of the choices, with the nearest of them."""
    if value not in choices:
        require(ok=False, name=name, text=f"unknown {what} {value!r}{nearest(value, choices)}")


def require_source(source: str, *numbers: object) -> None:
    """Refuse numbers (None: not given) of which a record's field `source` does not say whose they are."""
    given = any(number is not None for number in numbers)
    require(not given or bool(source.strip()), "source", "must say where the numbers come from")


class _Once(yaml.constructor.SafeConstructor):
    """Refuses a key that is written twice (YAML itself would keep the last one silently)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is there twice", key.start_mark)
                keys.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


class _Loader(_Once, yaml.SafeLoader):
    """The safe loader, made stricter: for what somebody wrote. It says exactly where it is wrong."""


class _OwnLoader(_Once, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same in C where it can be, ten times as fast, for the files of this package.

    The type is ignored because mypy takes no base that is chosen at run time; a PyYAML without libyaml lacks it.
    """


def read_yaml(path: Path) -> Document:
    """Read one YAML mapping. Raises ProfileError in one line, with the line number where there is one."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise ProfileError(f"{path.name}: more than {MAX_BYTES} bytes; this is no profile")
    try:
        loader = _OwnLoader if path.is_relative_to(HERE) else _Loader
        document = yaml.load(raw.decode("utf-8"), Loader=loader)  # noqa: S506 -- it is the safe loader, made stricter
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path.name}: not UTF-8 text (byte {error.start})") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        said = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ProfileError(f"{path.name}:{where} broken YAML: {said}") from error
    except RecursionError as error:
        raise ProfileError(f"{path.name}: nested too deeply") from error
    except ValueError as error:  # e.g. a date that does not exist
        raise ProfileError(f"{path.name}: broken YAML: {error}") from error
    if document is None:
        raise ProfileError(f"{path.name}: the file is empty")
    if not isinstance(document, dict):
        raise ProfileError(f"{path.name}: a mapping (key: value) is expected, not {_kind(document)}")
    return document


def build(hint: Any, value: Any, path: str) -> Any:
    """Convert a YAML value to the type ``hint``, or raise ProfileError that names ``path``."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        return None if value is None else build(inner[0], value, path)
    if dataclasses.is_dataclass(hint):
        return _record(typing.cast("type[Any]", hint), value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise ProfileError(f"{path or 'the file'}: a list is expected, not {_kind(value)}")
        return tuple(build(typing.get_args(hint)[0], v, f"{path}[{i}]") for i, v in enumerate(value))
    if origin in (dict, collections.abc.Mapping):
        return _mapping(typing.get_args(hint)[1], value, path)
    return value if hint is Any else _scalar(hint, value, path)


def _record(cls: type[Any], value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise ProfileError(f"{path or 'the file'}: a mapping (key: value) is expected, not {_kind(value)}")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in value:
        if key not in fields:
            where = f"{path}.{key}" if path else str(key)
            raise ProfileError(f"unknown key {where!r}{nearest(key, fields)}")
    for name, spec in fields.items():
        missing = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        if missing and name not in value:
            raise ProfileError(f"{path}: {name!r} is missing")
    made = {k: build(hints[k], v, f"{path}.{k}" if path else k) for k, v in value.items()}
    try:
        return cls(**made)
    except ProfileError:
        raise
    except ValueError as error:  # a record refuses a value that cannot be true: '.field why'
        text = str(error)
        colon = "" if text.startswith(".") else ": "
        raise ProfileError(f"{path}{colon}{text}" if path else text.lstrip(".")) from error


def _mapping(hint: Any, value: Any, path: str) -> Document:
    if not isinstance(value, dict):
        raise ProfileError(f"{path}: a mapping (key: value) is expected, not {_kind(value)}")
    for key in value:
        if not isinstance(key, str):
            raise ProfileError(f"{path}: the key {key!r} must be a text (put it in quotes)")
    return {k: build(hint, v, f"{path}.{k}") for k, v in value.items()}


def _scalar(hint: Any, value: Any, path: str) -> Any:
    if hint is Size:
        return parse_size(value, path)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        hint_text = " (put it in quotes)" if hint is str and not isinstance(value, (dict, list)) else ""
        raise ProfileError(f"{path}: {_EXPECTED[hint]} is expected, not {_kind(value)} {value!r:.60}{hint_text}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ProfileError(f"{path}: a finite number is expected, not {value}")
    return value


def parse_size(value: Any, path: str = "size") -> Size:
    """Return the bytes that '8G', '16Gi', '1048576', 1048576 or 'unlimited' (-1) stand for."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Size(value)
    if isinstance(value, str):
        if value == "unlimited":
            return Size(-1)
        if match := _SIZE.fullmatch(value.strip()):
            return Size(int(match[1]) * 1024 ** _UNITS[match[2].upper()])
    raise ProfileError(f"{path}: {_EXPECTED[Size]} is expected, not {_kind(value)} {value!r:.60}")


def _kind(value: Any) -> str:
    names = {
        dict: "a mapping",
        list: "a list",
        str: "the text",
        bool: "the truth value",
        int: "the number",
        float: "the number",
        type(None): "nothing",
    }
    return names.get(type(value), type(value).__name__)
