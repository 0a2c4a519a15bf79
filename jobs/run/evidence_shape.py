"""The shape of what a rank's probe prints: every stage's fields, checked once where they come in.

Anybody who can write to a pod's output can print a line that looks like evidence. A stage whose fields have other types
or bounds than the probe gives them is not taken at all, so that no rule meets it. A field may be null or missing:
unknown. Fields that are not listed are nobody's to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from ..cluster.redact import safe
from ..cluster.unstructured import as_map
from ..pod.nccl_reader.errors import NcclLogError
from ..pod.nccl_reader.state.partial import Partial
from .stages import COLLECTIVE, NUMBERED, STAGES, SWEEP_STAGES
from .stages.kinds import COUNT, FIGURE, FLAG, LABEL, LARGEST, LOG_PART, NUMBER, RECORD, TEXT, WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Required:
    """An object in which none of these fields is missing; some more may be there."""

    fields: dict[str, object]
    more: dict[str, object]


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map with text as keys and one shape of values."""

    values: object


BY_PREFIX = (COLLECTIVE, *NUMBERED)
RANK = "rank, host, process, device, bus, name and line"
_PLAIN = {str: TEXT, bool: FLAG, float: NUMBER}
_TEXTS = (TEXT,)

_SIDE = Required(dict.fromkeys(("time_us", "algbw_gbps", "busbw_gbps", "wrong"), FIGURE), {})
_ROW: dict[str, object] = {
    **dict.fromkeys(("type", "redop"), TEXT),
    **dict.fromkeys(("size_bytes", "count", "root"), FIGURE),
    **dict.fromkeys(("out_of_place", "in_place"), _SIDE),
}
_TABLE: dict[str, object] = {
    **dict.fromkeys(("collective", "version"), TEXT),
    **dict.fromkeys(("out_of_bounds_ok", "avg_ok", "complete"), FLAG),
    **dict.fromkeys(("out_of_bounds", "avg_busbw", "line", "unreadable"), FIGURE),
    **dict.fromkeys(("columns", "odd"), _TEXTS),
    "wrong_line": RECORD,
    "config": MapOf(LABEL),
    "rows": [Required(_ROW, {})],
}
_SOURCE: dict[str, object] = {
    "tables": [Required(_TABLE, {"swapped": FLAG, "left": _TEXTS, "avg_line": FIGURE})],
    "ranks": [RANK],
}


def _shape(hint: Any) -> object:
    """Return what a value of a type must look like: the name of a kind, or containers of such."""
    if get_origin(hint) is Annotated:
        kind = hint.__metadata__[0]
        return {"sources": [_SOURCE]} if kind == LOG_PART else kind
    if get_origin(hint) is list:
        return [_shape(get_args(hint)[0])]
    if get_origin(hint) is dict:
        return MapOf(_shape(get_args(hint)[1]))
    if hint in _PLAIN:
        return _PLAIN[hint]
    fields = {name: _shape(each) for name, each in get_type_hints(hint, include_extras=True).items()}
    required = {name: fields.pop(name) for name in list(fields) if name in hint.__required_keys__}
    return Required(required, fields) if required else fields


def misfit(stage: str, data: dict[str, object]) -> str:
    """Return where a stage's data is not as the probe gives it, and how; '' where it is, or nobody reads the stage."""
    shape = _shapes().get(next((name for name in BY_PREFIX if stage.startswith(name)), stage), {})
    return _differs(data, shape, stage) or _unread(data.get("nccl"), stage)


@cache
def _shapes() -> dict[str, object]:
    return {stage: _shape(kind) for stage, kind in {**STAGES, **SWEEP_STAGES}.items()}


def _unread(found: object, stage: str) -> str:
    """Say why the log reader cannot read its own part back."""
    if found:
        try:
            Partial.from_dict(as_map(found))
        except NcclLogError as error:
            return f"{stage}.nccl: {error}"
    return ""


def _differs(value: object, shape: object, where: str) -> str:
    """Return the first place, in the order of the text, at which a value is not of a shape."""
    if value is None:
        return ""
    if isinstance(shape, str):
        return "" if _is(value, shape) else f"{where} is not {shape}"
    inner: Iterable[tuple[str, object, object]]
    if isinstance(shape, list | tuple):
        if not isinstance(value, list):
            return f"{where} is no list"
        inner = ((f"{where}[{number}]", each, shape[0]) for number, each in enumerate(value))
    elif not isinstance(value, dict):
        return f"{where} is no object"
    elif isinstance(shape, Required):
        if lost := [key for key in shape.fields if key not in value]:
            return f"{where} lacks {lost[0]}"
        inner = ((f"{where}.{key}", value.get(key), each) for key, each in {**shape.fields, **shape.more}.items())
    elif isinstance(shape, MapOf):
        inner = ((f"{where}.{safe(key, 60)}", each, shape.values) for key, each in value.items())
    else:
        inner = ((f"{where}.{key}", value.get(key), each) for key, each in as_map(shape).items())
    return next((said for at, each, of in inner if (said := _entry(each, of, at, shape))), "")


def _entry(value: object, of: object, where: str, shape: object) -> str:
    """Look into a container: an entry of a list is never null."""
    return f"{where} is null" if value is None and isinstance(shape, list | tuple) else _differs(value, of, where)


def _is(value: object, kind: str) -> bool:
    """Tell whether a value is of a kind, and within bounds."""
    return _KINDS[kind](value)


def _is_rank(value: object) -> bool:
    """Tell whether a table's line about a rank can be read: numbers where it is compared with processes."""
    return isinstance(value, list) and len(value) == 7 and all(isinstance(value[at], int) for at in (0, 2, 6))


def _is_record(value: object) -> bool:
    return isinstance(value, list) and all(each is None or isinstance(each, str | int | float) for each in value)


def is_number(value: object) -> bool:
    """Tell whether a value is a number that a probe may tell: finite, and of a size that things have."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


_KINDS: dict[str, Callable[[object], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    FLAG: lambda value: isinstance(value, bool),
    NUMBER: is_number,
    WHOLE: lambda value: is_number(value) and isinstance(value, int),
    COUNT: lambda value: is_number(value) and isinstance(value, int) and value >= 0,
    LABEL: lambda value: isinstance(value, str | int | float),
    FIGURE: lambda value: isinstance(value, int | float) and abs(value) < 1e300,
    RECORD: _is_record,
    RANK: _is_rank,
}
