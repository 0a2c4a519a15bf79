"""Server-side apply: merge by type, conflicts between managers, removal of fields that are left out.

Follows sigs.k8s.io/structured-merge-diff `merge.Updater.Apply` and its conflict texts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .schema import fieldsets
from .schema.errors import ApiError
from .schema.fieldsets import child, granular, item_key
from .schema.values import clone

if TYPE_CHECKING:
    from .schema.fieldsets import Manager, Path, Paths
    from .schema.kinds import Kind
    from .schema.requests import Request
    from .schema.types import Field
    from .schema.values import Object
    from .store import Store


def apply(store: Store, kind: Kind, applied: Object, subresource: str, request: Request) -> tuple[Object, bool]:
    """Apply a configuration; return (the object, whether it was created)."""
    meta = applied["metadata"]
    meta.pop("managedFields", None)
    old = store.get(kind.key, meta.get("namespace", ""), meta["name"])
    request.apply = True
    known = fieldsets.root(kind)
    who = (request.manager, "Apply", kind.api_version, subresource)
    skip = () if subresource == "status" else ("status",)
    claims = fieldsets.stripped(fieldsets.of({k: v for k, v in applied.items() if k not in skip}, known))
    if old is None:
        if subresource:
            raise ApiError(404, "NotFound", f'{kind.key} "{meta["name"]}" not found')
        fresh = clone(applied)
        fieldsets.write(fresh, {who: claims}, {}, store.clock())
        return store.create(kind.key, fresh, meta.get("namespace"), request=request), True
    owned = fieldsets.managers(old)
    mine = owned.pop(who, set())
    live = {key: value for key, value in old.items() if key not in skip}
    merged = _merge(live, {k: v for k, v in applied.items() if k not in skip}, known)
    _settle(owned, live, merged, known, force=request.force)
    dropped = mine - claims - {path for paths in owned.values() for path in paths}
    for path in sorted(dropped, key=len, reverse=True):
        if not any(claim[: len(path)] == path for claim in claims):
            _remove(merged, path, known)
    owned[who] = claims
    if skip and "status" in old:
        merged["status"] = old["status"]
    merged["metadata"].setdefault("resourceVersion", old["metadata"]["resourceVersion"])
    fieldsets.write(merged, owned, old, store.clock())
    return store.replace(kind.key, merged, subresource or None, request=request), False


def _merge(live: Any, applied: Any, known: Field) -> Any:
    if not (granular(live, known) and granular(applied, known)):
        return clone(applied)
    if isinstance(applied, dict):
        merged = dict(live)
        for key, value in applied.items():
            merged[key] = _merge(live[key], value, child(known, key)) if key in live else clone(value)
        return merged
    inner = known.items
    have = {item_key(item, known): item for item in live}
    asked = {item_key(item, known): item for item in applied}
    result = []
    for key, item in have.items():
        both = key in asked and inner is not None and not known.is_set
        result.append(_merge(item, asked[key], inner) if both and inner is not None else item)
    return result + [clone(item) for key, item in asked.items() if key not in have]


def _settle(owned: dict[Manager, Paths], live: Object, merged: Object, known: Field, *, force: bool) -> None:
    """Find changed fields that other managers own: raise a conflict, or take the fields over by force."""
    changed = {path for what, path in fieldsets.compare(live, merged, known) if what != "removed"}
    conflicts: list[tuple[Manager, Path]] = []
    for who, paths in owned.items():
        clash = paths & changed
        conflicts += [(who, path) for path in sorted(clash)]
        if force:
            owned[who] = paths - clash
    if conflicts and not force:
        raise _conflict(conflicts)


def _manager(who: Manager) -> str:
    text = json.dumps(who[0])
    if who[3]:
        text += f' with subresource "{who[3]}"'
    return text if who[1] == "Apply" else f"{text} using {who[2]}"


def _conflict(conflicts: list[tuple[Manager, Path]]) -> ApiError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_manager(who)}", "field": shown(path)}
        for who, path in conflicts
    ]
    if len(conflicts) == 1:
        who, path = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {_manager(who)}: {shown(path)}"
    else:
        lines = []
        for manager in sorted({who for who, _ in conflicts}):
            lines.append(f"conflicts with {_manager(manager)}:")
            lines += [f"- {shown(path)}" for who, path in conflicts if who == manager]
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", message, {"causes": causes})


def shown(path: Path) -> str:
    """Format a path as in conflict texts: .spec.containers[name="c"].image."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items()) + "]"
        else:
            text += f"[={rest}]"
    return text


def _remove(obj: Any, path: Path, known: Field) -> None:
    """Remove one field, and its map or struct if that becomes empty."""
    element, rest = path[0], path[1:]
    if element.startswith("f:"):
        key = element[2:]
        if not isinstance(obj, dict) or key not in obj:
            return
        if rest:
            inner = child(known, key)
            before = bool(obj[key])
            _remove(obj[key], rest, inner)
            if before and obj[key] in ({}, []) and inner.code != "@":
                del obj[key]
        else:
            del obj[key]
    elif isinstance(obj, list):
        at = next((index for index, item in enumerate(obj) if item_key(item, known) == element), None)
        if at is None:
            return
        if rest and known.items is not None:
            _remove(obj[at], rest, known.items)
        elif not rest:
            del obj[at]
