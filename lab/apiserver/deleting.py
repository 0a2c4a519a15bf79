"""Deletion of one object or a collection, with grace, preconditions and a propagation policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import bodies, versions
from .answers import respond
from .options import DeleteOptions, ListOptions
from .reading import selection
from .schema.requests import Request

if TYPE_CHECKING:
    from aiohttp import web

    from .call import Call
    from .schema.values import Object

JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
    "set propagationPolicy=Orphan to suppress this warning"
)
# Kinds whose deletion always returns the object (their REST storage has ReturnDeletedObject set).
RETURNS_OBJECT = frozenset(
    {
        "pods",
        "services",
        "serviceaccounts",
        "persistentvolumeclaims",
        "persistentvolumes",
        "podtemplates",
        "resourcequotas",
        "storageclasses.storage.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
    }
)


async def delete(call: Call) -> web.Response:
    """Delete an object."""
    options = await _delete_options(call)
    old = call.current()
    request = Request(user=call.user.name, groups=call.user.groups, dry_run=options.dry_run, warnings=call.warnings)
    last = call.store.delete(
        call.kind.key,
        call.namespace,
        call.route.name,
        options.grace,
        options.propagation,
        options.uid,
        resource_version=options.resource_version,
        request=request,
    )
    if call.kind.key == "jobs.batch" and options.propagation is None:
        call.warnings.append(JOB_WARNING)
    gone = options.dry_run and not last["metadata"].get("finalizers")
    gone = gone or call.store.get(call.kind.key, call.namespace, call.route.name) is None
    if call.kind.key in RETURNS_OBJECT or not gone:
        return call.answer(last)
    details = {
        "name": old["metadata"]["name"],
        "group": call.kind.group,
        "kind": call.kind.plural,
        "uid": old["metadata"]["uid"],
    }
    details = {key: value for key, value in details.items() if value}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return respond(status, call.form(), warnings=call.warnings)


async def _delete_options(call: Call) -> DeleteOptions:
    content = await bodies.read(call.request)
    body: Object | None = None
    if content:
        media = bodies.media_type(call.request)
        body = bodies.mapping(content, media if media != "application/x-www-form-urlencoded" else "")
    return DeleteOptions.read(call.query, call.query.getall("dryRun", []), body)


async def delete_collection(call: Call) -> web.Response:
    """Delete every object that is selected."""
    options = await _delete_options(call)
    chosen = selection(call, ListOptions.read(call.query))
    request = Request(user=call.user.name, groups=call.user.groups, dry_run=options.dry_run)
    deleted = []
    for stored in list(call.store.scan(call.kind.key, call.namespace)):
        if chosen(stored):
            deleted.append(
                call.store.delete(
                    call.kind.key, stored.namespace, stored.name, options.grace, options.propagation, request=request
                )
            )
    items = [versions.served(call.kind, obj) for obj in deleted]
    if not call.kind.custom:
        items = [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items]
    meta = {"resourceVersion": str(call.store.revision)}
    return respond(
        {"kind": call.kind.lists, "apiVersion": call.kind.api_version, "metadata": meta, "items": items}, call.form()
    )
