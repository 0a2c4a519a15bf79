"""JSON patch, JSON merge patch and strategic merge patch.

Strategic merge follows the merge keys of the types (`containers` by name, `env` by name, `ports` by port) and the
directives `$patch`, `$retainKeys`, `$setElementOrder/...` and `$deleteFromPrimitiveList/...`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonpatch
import jsonpointer

from .schema import types
from .schema.errors import ApiError, bad_request
from .schema.values import clone

if TYPE_CHECKING:
    from .schema.types import Field
    from .schema.values import Object

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
REJECTED = "the server rejected our request due to an error in our request"
MAX_OPERATIONS = 10_000  # operations in one JSON patch; a real server also returns 413 for more


def json_patch(old: Object, operations: Any) -> Any:
    """Apply an RFC 6902 patch; 422 if an operation fails."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > MAX_OPERATIONS:
        text = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise ApiError(413, "RequestEntityTooLarge", text)
    try:
        return jsonpatch.JsonPatch(operations).apply(clone(old))
    except jsonpatch.InvalidJsonPatch as error:
        raise ApiError(422, "Invalid", str(error) or REJECTED, {}) from None
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError):
        raise ApiError(422, "Invalid", REJECTED, {}) from None


def merge_patch(old: Any, patch: Any) -> Any:
    """Apply an RFC 7386 patch."""
    if not isinstance(patch, dict):
        return clone(patch)
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic(old: Object, patch: Object, type_name: str) -> Object:
    """Apply a strategic merge patch to an object of a known type."""
    merged = _struct(old, patch, types.struct(type_name) if type_name else {}, free=not type_name)
    return merged if merged is not None else {}


def _struct(old: Any, patch: Object, fields: dict[str, Field], *, free: bool = False) -> Object | None:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: clone(value) for key, value in patch.items() if key != "$patch" and value is not None}
    if directive == "delete":
        return None
    if directive not in (None, "merge"):
        raise bad_request(f"Wrong patch type, expected one of replace, delete, merge: got {json.dumps(directive)}")
    merged = dict(old) if isinstance(old, dict) else {}
    retain = patch.get("$retainKeys")
    if isinstance(retain, list):
        merged = {key: value for key, value in merged.items() if key in retain}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [item for item in merged.get(name) or [] if item not in value]
        elif key.startswith("$"):
            continue
        else:
            _assign(merged, key, value, None if free else fields.get(key), patch.get(f"$setElementOrder/{key}"))
    for key, order in patch.items():
        name = key.partition("/")[2]
        if key.startswith("$setElementOrder/") and name not in patch and isinstance(merged.get(name), list):
            merged[name] = _ordered(merged[name], order, fields.get(name))
    return merged


def _assign(merged: Object, key: str, value: Any, known: Field | None, order: Any) -> None:
    if value is None:
        merged.pop(key, None)
        return
    result = _value(merged.get(key), value, known)
    if result is None:
        merged.pop(key, None)
        return
    merged[key] = _ordered(result, order, known) if order is not None and isinstance(result, list) else result


def _value(old: Any, patch: Any, known: Field | None) -> Any:
    if isinstance(patch, dict):
        if known is not None and known.code == "@":
            return _struct(old, patch, types.struct(known.type_name))
        inner = known.items if known is not None and known.code == "{" else None
        if inner is not None and inner.code == "@":
            merged = dict(old) if isinstance(old, dict) else {}
            for key, value in patch.items():
                _assign(merged, key, value, inner, None)
            return merged
        return _struct(old, patch, {}, free=True)
    if isinstance(patch, list) and known is not None and known.merge_key is not None:
        return _list(old if isinstance(old, list) else [], patch, known)
    return clone(patch)


def go_text(value: Any) -> str:
    """Format a value as Go's %v does: map[a:1 b:[x y]]."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_text(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _list(old: list[Any], patch: list[Any], known: Field) -> list[Any]:
    key = known.merge_key
    if not key:
        return old + [item for item in patch if item not in old]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [clone(item) for item in patch if item.get("$patch") != "replace"]
    assert known.items is not None
    fields = types.struct(known.items.type_name)
    merged = list(old)
    for item in patch:
        if not isinstance(item, dict) or (key not in item and "$patch" not in item):
            raise ApiError(500, "", f"map: {go_text(item)} does not contain declared merge key: {key}")
        at = next(
            (i for i, have in enumerate(merged) if isinstance(have, dict) and have.get(key) == item.get(key)), None
        )
        if item.get("$patch") == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append(_struct({}, item, fields) or {})
        else:
            merged[at] = _struct(merged[at], item, fields) or {}
    return merged


def _ordered(items: list[Any], order: Any, known: Field | None) -> list[Any]:
    """Sort elements in the order of `$setElementOrder`; others stay after their neighbours."""
    if not isinstance(order, list):
        return items
    key = known.merge_key if known is not None else None

    def identity(item: Any) -> str:
        return json.dumps(item.get(key) if key and isinstance(item, dict) else item)

    identities = [identity(item) for item in order]
    named = sorted(
        (item for item in items if identity(item) in identities), key=lambda item: identities.index(identity(item))
    )
    if len(named) == len(items):
        return named
    queue = iter(named)
    return [next(queue) if identity(item) in identities else item for item in items]
