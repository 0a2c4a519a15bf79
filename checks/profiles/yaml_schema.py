"""Strict YAML into dataclasses: every error names the path and the nearest valid word, in one line."""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import re
import types
import typing
from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NewType, TypeAlias

import yaml

from jobs.cluster.json_types import kind_of
from jobs.listing import nearest

from .errors import Problem, ProfileError

HERE = Path(__file__).resolve().parent
MAX_BYTES = 1_000_000
"""Maximum size of a profile in bytes; a larger file is rejected."""

Size = NewType("Size", int)
"""A size in bytes. Written as in nccl-tests (8, 64K, 1M, 8G, powers of 1024), as 16Gi, or 'unlimited' (-1)."""

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"(\d+)\s*([KMGTkmgt]?)(?:i?B?)")  # never 'b': 8Gb usually means bits
_EXPECTED = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Size: "a size like 8G or 16Gi",
}


_REFUSED: ContextVar[list[str] | None] = ContextVar("_REFUSED", default=None)
"""The errors of a record that is being built; None if they are not collected."""

Document: TypeAlias = dict[str, Any]
"""A profile as the mapping of its YAML file: not yet validated, or about to be written."""


def require(ok: bool, name: str, text: str) -> None:
    """Reject a record with an invalid field ``name``; the loader prepends the path, and collects all errors."""
    if ok:
        return
    refused = _REFUSED.get()
    if refused is None:
        raise ValueError(f".{name} {text}")
    refused.append(f".{name} {text}")


def require_positive(record: object, *names: str) -> None:
    """Reject a record in which one of these fields is not above 0; None is allowed."""
    for name in names:
        value = getattr(record, name)
        require(value is None or value > 0, name, "must be above 0")


def require_known(name: str, what: str, value: str, choices: Collection[str]) -> None:
    """Reject a value outside a field's choices, with the nearest choice."""
    if value not in choices:
        require(ok=False, name=name, text=f"unknown {what} {value!r}{nearest(value, choices)}")


def require_source(source: str, *numbers: object) -> None:
    """Reject numbers (None: not given) if the record's field `source` is empty."""
    given = any(number is not None for number in numbers)
    require(not given or bool(source.strip()), "source", "must name the source of the numbers")


class _Once(yaml.constructor.SafeConstructor):
    """A constructor that rejects duplicate keys (YAML itself would silently keep the last one)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} appears twice", key.start_mark)
                keys.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


class _Loader(_Once, yaml.SafeLoader):
    """The safe loader, made stricter for users' files. Its errors name the exact place."""


class _OwnLoader(_Once, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same loader in C if available, ten times as fast, for the files of this package.

    The type is ignored because mypy accepts no base class chosen at run time; a PyYAML without libyaml lacks it.
    """


def read_yaml(path: Path) -> Document:
    """Read one YAML mapping. Raises ProfileError in one line, with the line number if known."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"{error.strerror}", file=str(path)) from error
    if len(raw) > MAX_BYTES:
        raise ProfileError(f"more than {MAX_BYTES} bytes; this is not a profile", file=path.name)
    try:
        loader = _OwnLoader if path.is_relative_to(HERE) else _Loader
        document = yaml.load(raw.decode("utf-8"), Loader=loader)  # noqa: S506 -- it is the safe loader, made stricter
    except UnicodeDecodeError as error:
        raise ProfileError(f"not UTF-8 text (byte {error.start})", file=path.name) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        said = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ProfileError(f"{where}broken YAML: {said}", file=path.name) from error
    except RecursionError as error:
        raise ProfileError("nested too deeply", file=path.name) from error
    except ValueError as error:  # such as an invalid date
        raise ProfileError(f"broken YAML: {error}", file=path.name) from error
    if document is None:
        raise ProfileError("the file is empty", file=path.name)
    if not isinstance(document, dict):
        raise ProfileError(f"a mapping (key: value) is expected, not {kind_of(document)}", file=path.name)
    return document


def build(hint: Any, value: Any, path: str) -> Any:
    """Convert a YAML value to the type ``hint``; raise ProfileError with all errors at and below ``path``."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        return None if value is None else build(inner[0], value, path)
    if dataclasses.is_dataclass(hint):
        return _record(typing.cast("type[Any]", hint), value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise ProfileError(f"{path or 'the file'}: a list is expected, not {kind_of(value)}")
        inner = typing.get_args(hint)[0]
        return tuple(_built((i, inner, v, f"{path}[{i}]") for i, v in enumerate(value)).values())
    if origin in (dict, collections.abc.Mapping):
        return _mapping(typing.get_args(hint)[1], value, path)
    return value if hint is Any else _scalar(hint, value, path)


def _record(cls: type[Any], value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise ProfileError(f"{path or 'the file'}: a mapping (key: value) is expected, not {kind_of(value)}")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    places = {key: f"{path}.{key}" if path else str(key) for key in value}
    unknown = [
        Problem(f"unknown key {where!r}{nearest(key, fields)}", where)
        for key, where in places.items()
        if key not in fields
    ]
    problems = []
    for name, spec in fields.items():
        missing = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        if missing and name not in value:
            problems.append(Problem(f"{path}: {name!r} is missing", path))
    made: Document = {}
    try:
        made = _built((k, hints[k], v, places[k]) for k, v in value.items() if k in fields)
    except ProfileError as error:
        problems += error.problems
    record = None
    if not problems:
        try:
            record = _made(cls, made, path)
        except ProfileError as error:
            problems += error.problems
    if unknown or problems:
        raise ProfileError.of([*unknown, *problems])
    return record


def _made(cls: type[Any], made: Document, path: str) -> Any:
    """Return the record; raise ProfileError with all fields that it rejects."""
    refused: list[str] = []
    token = _REFUSED.set(refused)
    try:
        record = cls(**made)
    except ValueError as error:  # a record rejects an impossible value: '.field why'
        refused.append(str(error))
    except Exception:
        if not refused:  # otherwise the rejected fields explain the exception
            raise
    finally:
        _REFUSED.reset(token)
    if not refused:
        return record
    problems = []
    for text in refused:
        colon = "" if text.startswith(".") else ": "
        where = path + text.split(" ", 1)[0] if text.startswith(".") else path
        problems.append(Problem(f"{path}{colon}{text}" if path else text.lstrip("."), where.lstrip(".")))
    raise ProfileError.of(problems)


def _built(parts: Iterable[tuple[Any, Any, Any, str]]) -> dict[Any, Any]:
    """Build each value (key, type, value, path); raise ProfileError with all their errors."""
    built: dict[Any, Any] = {}
    problems: list[Problem] = []
    for key, hint, value, path in parts:
        try:
            built[key] = build(hint, value, path)
        except ProfileError as error:
            problems += [p if p.path else dataclasses.replace(p, path=path) for p in error.problems]
    if problems:
        raise ProfileError.of(problems)
    return built


def lines_of(file: Path, paths: Sequence[str]) -> list[int]:
    """Return the line of each key of a YAML file, or of its nearest parent; 0: not in the file."""
    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        root = None
    return [_line_of(root, path) for path in paths]


def _line_of(node: yaml.Node | None, path: str) -> int:
    line = 0
    while path and node is not None and (step := _step(node, path)):
        mark, node, path = step
        line = mark.line + 1
    return line


def _step(node: yaml.Node, path: str) -> tuple[yaml.Mark, yaml.Node, str] | None:
    """Descend by the first key or index of a path; return its position, its content, and the rest of the path."""
    if isinstance(node, yaml.SequenceNode) and (match := re.match(r"\[(\d+)\]\.?", path)):
        item = node.value[int(match[1])] if int(match[1]) < len(node.value) else None
        return (item.start_mark, item, path[match.end() :]) if item else None
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        name = str(key.value)
        if path == name or path.startswith((f"{name}.", f"{name}[")):
            return key.start_mark, value, path[len(name) :].removeprefix(".")
    return None


def _mapping(hint: Any, value: Any, path: str) -> Document:
    if not isinstance(value, dict):
        raise ProfileError(f"{path}: a mapping (key: value) is expected, not {kind_of(value)}")
    for key in value:
        if not isinstance(key, str):
            raise ProfileError(f"{path}: the key {key!r} must be a text (put it in quotes)")
    return _built((k, hint, v, f"{path}.{k}") for k, v in value.items())


def _scalar(hint: Any, value: Any, path: str) -> Any:
    if hint is Size:
        return parse_size(value, path)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        hint_text = " (put it in quotes)" if hint is str and not isinstance(value, (dict, list)) else ""
        raise ProfileError(f"{path}: {_EXPECTED[hint]} is expected, not {kind_of(value)} {value!r:.60}{hint_text}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ProfileError(f"{path}: a finite number is expected, not {value}")
    return value


def parse_size(value: Any, path: str = "size") -> Size:
    """Parse '8G', '16Gi', '1048576', 1048576 or 'unlimited' (-1) into bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Size(value)
    if isinstance(value, str):
        if value == "unlimited":
            return Size(-1)
        if match := _SIZE.fullmatch(value.strip()):
            return Size(int(match[1]) * 1024 ** _UNITS[match[2].upper()])
    raise ProfileError(f"{path}: {_EXPECTED[Size]} is expected, not {kind_of(value)} {value!r:.60}")
