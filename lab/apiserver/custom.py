"""Pruning of custom resources by their structural schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .schema.types import Decoder
from .schema.values import clone

if TYPE_CHECKING:
    from .schema.kinds import Kind
    from .schema.values import Object

ENVELOPE = ("apiVersion", "kind", "metadata")
PRESERVE = "x-kubernetes-preserve-unknown-fields"


def prune(kind: Kind, body: Object) -> tuple[Object, list[str]]:
    """Return (the object without fields that its schema does not define, the paths of those fields)."""
    unknown: list[str] = []
    schema = kind.schema or {PRESERVE: True}
    pruned = {key: clone(value) for key, value in body.items() if key in ENVELOPE}
    decoder = Decoder(kind.kind, kind.version)
    pruned["metadata"] = decoder.decode(body.get("metadata") or {}, "meta.v1.ObjectMeta", "metadata")
    unknown += decoder.unknown
    rest = {key: value for key, value in body.items() if key not in ENVELOPE}
    pruned.update(_pruned(rest, schema, "", unknown))
    return pruned, unknown


def _pruned(value: Any, schema: Any, path: str, unknown: list[str]) -> Any:
    if not isinstance(schema, dict):
        return clone(value)
    if isinstance(value, list):
        items = schema.get("items")
        return [_pruned(item, items, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    known = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    keep = schema.get(PRESERVE) or schema.get("x-kubernetes-embedded-resource")
    pruned: dict[str, Any] = {}
    for key, item in value.items():
        where = f"{path}.{key}" if path else key
        if key in known:
            pruned[key] = _pruned(item, known[key], where, unknown)
        elif extra is not None and extra is not False:
            pruned[key] = _pruned(item, extra, where, unknown)
        elif keep or (schema.get("x-kubernetes-embedded-resource") and key in ENVELOPE):
            pruned[key] = clone(item)
        else:
            unknown.append(where)
    return pruned
