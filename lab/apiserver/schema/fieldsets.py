"""Field sets, as paths and as metadata.managedFields.

A path is a tuple of elements in the notation of FieldsV1: `f:name`, `k:{"name":"c"}` (an item of a keyed list),
`v:"x"` (an item of a set). Follows sigs.k8s.io/structured-merge-diff.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import types
from .values import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .kinds import Kind
    from .requests import Request
    from .types import Field
    from .values import Object

    Path = tuple[str, ...]
    Paths = set[Path]
    Manager = tuple[str, str, str, str]  # manager, operation, apiVersion, subresource

ANYTHING = types.Field("o")
# Fields without a manager (fieldmanager's stripped fields).
STRIPPED = {
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "generation",
            "managedFields",
            "resourceVersion",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        )
    ),
}
UNTRACKED = ("events",)  # written once and never applied: tracking them is not worth the bytes


def root(kind: Kind) -> Field:
    """Return the type of a kind's objects."""
    if kind.custom:
        return types.of_custom(kind)
    name = types.of_kind(kind.api_version, kind.kind)
    return types.Field("@", name) if name else ANYTHING


def child(known: Field, key: str) -> Field:
    """Return the type of a struct's or a map's member."""
    if known.code == "@":
        return types.struct(known.type_name).get(key, ANYTHING)
    if known.code == "{" and known.items is not None:
        return known.items
    return ANYTHING


def granular(value: Any, known: Field) -> bool:
    """Return whether a value's parts are owned separately."""
    if known.atomic:
        return False
    if isinstance(value, dict):
        return True
    return isinstance(value, list) and bool(known.keys or known.is_set)


def item_key(item: Any, known: Field) -> str:
    """Return the path element of an item of a keyed list or a set."""
    if known.is_set:
        return "v:" + json.dumps(item, separators=(",", ":"))
    inner = types.struct(known.items.type_name) if known.items is not None and known.items.code == "@" else {}
    key = {}
    for name in known.keys:
        value = item.get(name) if isinstance(item, dict) else None
        if value is None:
            value = {"protocol": "TCP"}.get(name, "" if inner.get(name, ANYTHING).code == "s" else 0)
        key[name] = value
    return "k:" + json.dumps(key, separators=(",", ":"), sort_keys=True)


def of(value: Any, known: Field, prefix: Path = ()) -> Iterator[Path]:
    """Yield the path of every field of a value (for a whole configuration: the fields that an applier owns)."""
    if not granular(value, known) or not value:
        yield prefix
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from of(item, child(known, key), (*prefix, f"f:{key}"))
    else:
        for item in value:
            at = (*prefix, item_key(item, known))
            yield at
            if not known.is_set and known.items is not None:
                yield from of(item, known.items, at)


def compare(old: Any, new: Any, known: Field, prefix: Path = ()) -> Iterator[tuple[str, Path]]:
    """Yield (added | modified | removed, path) of every field that differs."""
    if granular(old, known) and granular(new, known):
        before, after = _members(old, known), _members(new, known)
        for element, (value, inner) in after.items():
            at = (*prefix, element)
            if element not in before:
                yield from (("added", path) for path in _whole(value, inner, at, known))
            else:
                yield from compare(before[element][0], value, inner, at)
        for element, (value, inner) in before.items():
            if element not in after:
                yield from (("removed", path) for path in _whole(value, inner, (*prefix, element), known))
    elif old != new:
        yield "modified", prefix


def _members(value: Any, known: Field) -> dict[str, tuple[Any, Field]]:
    if isinstance(value, dict):
        return {f"f:{key}": (item, child(known, key)) for key, item in value.items()}
    inner = known.items or ANYTHING
    return {item_key(item, known): (item, types.Field("s") if known.is_set else inner) for item in value}


def _whole(value: Any, known: Field, at: Path, parent: Field) -> Iterator[Path]:
    """Yield the paths of a value that is added or removed as a whole, including its own."""
    if granular(value, known) and value:
        if known.code != "@" or parent.code == "[":
            yield at
        for element, (item, inner) in _members(value, known).items():
            yield from _whole(item, inner, (*at, element), known)
    else:
        yield at


# -- managedFields


def to_fields(paths: Iterable[Path]) -> Object:
    """Encode a set of paths as FieldsV1."""
    tree: Object = {}
    for path in sorted(paths):
        at = tree
        for element in path:
            at = at.setdefault(element, {})
        at.setdefault(".", {})
    return _plain(tree)


def _plain(tree: Object) -> Object:
    """Omit the dot of leaves: a leaf is an empty object, and an inner node that is owned itself has a dot."""
    plain: Object = {}
    for element, below in tree.items():
        if element == ".":
            continue
        rest = [name for name in below if name != "."]
        plain[element] = ({".": {}} if "." in below and rest else {}) | _plain(below)
    return plain


def from_fields(tree: Object, prefix: Path = ()) -> Iterator[Path]:
    """Yield the paths of FieldsV1."""
    for element, below in tree.items():
        if element == ".":
            yield prefix
        elif not below:
            yield (*prefix, element)
        else:
            yield from from_fields(below, (*prefix, element))


def managers(obj: Object) -> dict[Manager, Paths]:
    """Return the managers of an object's fields."""
    by_manager: dict[Manager, Paths] = {}
    for entry in obj.get("metadata", {}).get("managedFields") or []:
        who = (
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        by_manager[who] = set(from_fields(entry.get("fieldsV1") or {}))
    return by_manager


def write(new: Object, owned: dict[Manager, Paths], old: Object, seconds: float) -> None:
    """Write the managers into an object's metadata; an entry with unchanged fields keeps its time."""
    times: dict[Manager, str] = {}
    for entry in old.get("metadata", {}).get("managedFields") or []:
        who = (
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        times[who] = entry.get("time", "")
    before = managers(old)
    entries = []
    for who, paths in owned.items():
        if not paths:
            continue
        time = times[who] if before.get(who) == paths and times.get(who) else rfc3339(seconds)
        entry = {
            "manager": who[0],
            "operation": who[1],
            "apiVersion": who[2],
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields(paths),
        }
        if who[3]:
            entry["subresource"] = who[3]
        entries.append(entry)
    entries.sort(key=lambda entry: (entry["operation"], entry["time"], entry["manager"]))
    if entries:
        new["metadata"]["managedFields"] = entries
    else:
        new["metadata"].pop("managedFields", None)


def stripped(paths: Iterable[Path]) -> Paths:
    """Return the paths that a manager can own."""
    return {path for path in paths if path and path not in STRIPPED}


def track(kind: Kind, old: Object, new: Object, request: Request, seconds: float) -> None:
    """Assign the fields changed by an ordinary write (not an apply) to its manager."""
    if request.apply or not request.manager or kind.store_key in UNTRACKED:
        return
    given = new["metadata"].get("managedFields")
    if given in ([], [{}]) and old:
        new["metadata"].pop("managedFields", None)  # a client's way to reset ownership
        return
    owned = managers(old)
    who = (request.manager, "Update", kind.api_version, request.subresource)
    changed: dict[str, Paths] = {"added": set(), "modified": set(), "removed": set()}
    skip = set() if request.subresource == "status" else {"status"}
    before = {key: value for key, value in old.items() if key not in skip}
    after = {key: value for key, value in new.items() if key not in skip}
    for what, path in compare(before, after, root(kind)):
        changed[what].add(path)
    taken = stripped(changed["added"] | changed["modified"])
    gone = changed["removed"]
    mine = owned.pop(who, set())
    for other in owned:
        owned[other] = owned[other] - taken - gone
    owned[who] = (mine | taken) - gone
    write(new, owned, old, seconds)


def same_but_times(old: Object, new: Object) -> bool:
    """Return whether only the managed fields differ."""
    if old["metadata"].get("managedFields") == new["metadata"].get("managedFields"):
        return False
    return _without(old) == _without(new) and managers(old) == managers(new)


def _without(obj: Object) -> Object:
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}
