"""The admission plugins, in their order: rejections, and additions to new objects.

`mutate` runs before validation, `judge` after it, as in the API server; each module names the plugin that it
implements. Objects created by controllers are admitted here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import accounts, lifecycle, limits, placement, quota, security, storage, webhooks

if TYPE_CHECKING:
    from ..kinds import Kind
    from ..requests import Request
    from ..seams import Objects
    from ..values import Object


def mutate(store: Objects, kind: Kind, new: Object, request: Request) -> None:
    """Let the mutating plugins change a new object, or reject it."""
    lifecycle.namespace_takes(store, kind, new, request)
    if kind.key == "pods":
        limits.apply(store, new)
        accounts.service_account(store, new)
        placement.priority(store, new)
        placement.default_tolerations(new)
        placement.runtime_class(store, new)
    elif kind.key == "persistentvolumeclaims":
        storage.default_class(store, new)
    webhooks.mutate(store, kind, new, request)


def judge(store: Objects, kind: Kind, new: Object, request: Request) -> None:
    """Let the validating plugins reject a new object, or warn about it."""
    if kind.key in ("pods", "persistentvolumeclaims"):
        limits.judge(store, kind, new)
    security.judge(store, kind, new, request)
    webhooks.judge(store, kind, new, request)
    quota.judge(store, kind, new)


def judge_change(store: Objects, kind: Kind, old: Object, new: Object, request: Request) -> None:
    """Let the validating plugins reject an update, or warn about it."""
    if old.get("spec") != new.get("spec") and kind.key != "pods":
        security.judge(store, kind, new, request)
    if kind.key == "namespaces":
        security.relabelled(store, old, new, request)
