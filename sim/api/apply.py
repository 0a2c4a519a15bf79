"""Who owns which field? Server-side apply: field sets, conflicts, and what a manager leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..schema.values import clone
from . import patches

if TYPE_CHECKING:
    from ..schema.kinds import Kind
    from ..schema.requests import Request
    from ..schema.values import Object
    from ..store import Store


def apply(store: Store, kind: Kind, wanted: Object, subresource: str, request: Request) -> tuple[Object, bool]:
    """Apply a configuration; returns (the object, whether it was created)."""
    meta = wanted["metadata"]
    old = store.get(kind.key, meta.get("namespace", ""), meta["name"])
    if old is None:
        return store.create(kind.key, wanted, meta.get("namespace"), request=request), True
    new = patches.merge_patch(clone(old), wanted)
    return store.replace(kind.key, new, subresource or None, request=request), False
