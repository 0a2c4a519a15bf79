"""`kubectl get`: the columns and cells of a Table, and the metadata-only form of an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cells import Column, age
from .columns import COLUMNS, DEFAULT
from .schema.values import epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .schema.kinds import Kind
    from .schema.values import Object
    from .store import Store

NAME_TEXT = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow "
    "a client to request the generation of an appropriate name automatically."
)


def partial(obj: Object, version: str) -> Object:
    """Return an object's metadata only."""
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": obj["metadata"]}


def table(store: Store, kind: Kind, objects: Sequence[Object], version: str, include: str, meta: Object) -> Object:
    """Return a Table of objects; `include` is None, Metadata or Object."""
    columns, cells = _layout(kind)
    now = store.clock()
    rows: list[dict[str, Any]] = []
    for obj in objects:
        shown: Object | None = None
        if include == "Object":
            shown = obj
        elif include != "None":
            shown = partial(obj, version)
        rows.append({"cells": cells(obj, now), "object": shown})
    if len(objects) == 1 and not meta:
        meta = {"resourceVersion": objects[0]["metadata"].get("resourceVersion", "")}
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": meta,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": rows,
    }


def _definition(column: Column) -> Object:
    format_ = column.format or ("name" if column.name == "Name" else "")
    text = column.description or (NAME_TEXT if column.name == "Name" else f"{column.name} of the object.")
    return {
        "name": column.name,
        "type": column.type,
        "format": format_,
        "description": text,
        "priority": column.priority,
    }


def _layout(kind: Kind) -> tuple[Sequence[Column], Callable[[Object, float], list[Any]]]:
    if kind.custom:
        return _custom(kind)
    return COLUMNS.get(kind.store_key, DEFAULT)


# -- custom kinds


def _custom(kind: Kind) -> tuple[Sequence[Column], Callable[[Object, float], list[Any]]]:
    extra = kind.columns or ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)
    columns = [Column("Name")]
    for column in extra:
        text = (
            column.get("description") or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}"
        )
        columns.append(
            Column(column["name"], column["type"], column.get("priority", 0), column.get("format", ""), text)
        )

    def cells(obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], *(_cell(column, obj, now) for column in extra)]

    return columns, cells


def _cell(column: Object, obj: Object, now: float) -> Any:
    value = json_path(obj, column["jsonPath"])
    if value is None:
        return "" if column["type"] == "string" else None
    if column["type"] == "date":
        try:
            epoch(str(value))
        except ValueError:
            return "<invalid>"
        return age(str(value), now)
    if column["type"] == "string":
        return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return value


def json_path(obj: Any, path: str) -> Any:
    """Evaluate a simple JSONPath such as .status.conditions[?(@.type=="Ready")].status; None without a match."""
    at, rest = obj, path
    while rest and at is not None:
        if rest.startswith("[?(@."):
            condition, _, rest = rest[5:].partition(")]")
            key, _, value = condition.partition("==")
            value = value.strip().strip("\"'")
            items = at if isinstance(at, list) else []
            at = next((item for item in items if str(json_path(item, "." + key.strip())) == value), None)
        elif rest.startswith("["):
            subscript, _, rest = rest[1:].partition("]")
            if isinstance(at, list) and subscript.lstrip("-").isdigit():
                at = at[int(subscript)] if -len(at) <= int(subscript) < len(at) else None
            else:
                at = at.get(subscript.strip("\"'")) if isinstance(at, dict) else None
        else:
            rest = rest.removeprefix(".")
            name = ""
            while rest and rest[0] not in ".[":
                if rest.startswith("\\."):
                    name, rest = name + ".", rest[2:]
                else:
                    name, rest = name + rest[0], rest[1:]
            at = at.get(name) if isinstance(at, dict) else None
    return at
