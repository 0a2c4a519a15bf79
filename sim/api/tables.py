"""What does `kubectl get` show? The columns and cells of a Table, and the metadata-only form of an object.

Columns are those of k8s.io/kubernetes pkg/printers/internalversion; names, types and priorities as recorded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..schema.kinds import Kind
    from ..schema.values import Object
    from ..store import Store


def partial(obj: Object, version: str) -> Object:
    """Return an object's metadata only."""
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": obj["metadata"]}


def table(store: Store, kind: Kind, objects: Sequence[Object], version: str, include: str, meta: Object) -> Object:
    """Return a Table of objects; `include` is None, Metadata or Object."""
    rows: list[dict[str, Any]] = []
    for obj in objects:
        row: dict[str, Any] = {"cells": [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp", "")]}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = partial(obj, version)
        rows.append(row)
    columns = [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
        {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0},
    ]
    if len(objects) == 1 and not meta:
        meta = {"resourceVersion": objects[0]["metadata"].get("resourceVersion", "")}
    return {"kind": "Table", "apiVersion": f"meta.k8s.io/{version}", "metadata": meta, "columnDefinitions": columns, "rows": rows}


__all__ = ["json", "partial", "table"]
