"""Create, update, patch and apply: bodies are checked against the path, then stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import apply, bodies, escalation, patches, versions
from .schema import types
from .schema.errors import ApiError, Cause, bad_request, forbidden_field, invalid, required
from .schema.values import clone

if TYPE_CHECKING:
    from aiohttp import web

    from .call import Call
    from .schema.values import Object


RBAC = "rbac.authorization.k8s.io"
# AllowCreateOnUpdate and AllowUnconditionalUpdate of the registry strategies.
CREATES_ON_UPDATE = frozenset(
    {
        *("services", "endpoints", "events", "limitranges", "leases.coordination.k8s.io"),
        *(f"{plural}.{RBAC}" for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")),
    }
)
NEEDS_REVISION = frozenset(
    {
        "leases.coordination.k8s.io",
        "poddisruptionbudgets.policy",
        "runtimeclasses.node.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
    }
)


def _names(call: Call, body: Object) -> None:
    """Check the name and the namespace of a body against the path."""
    meta = body.get("metadata")
    if not isinstance(meta, dict):
        meta = body["metadata"] = {}
    space = meta.get("namespace")
    if call.kind.namespaced and space and space != call.route.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if call.kind.namespaced:
        meta["namespace"] = call.route.namespace
    elif space:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if call.route.name:
        if meta.get("name") and meta["name"] != call.route.name:
            raise bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({call.route.name})"
            )
        if not meta.get("name"):
            raise bad_request(f"name is required in the object at {call.route.path}")


async def create(call: Call) -> web.Response:
    """Create an object."""
    body = bodies.of_kind(bodies.mapping(await bodies.read(call.request), bodies.media_type(call.request)), call.kind)
    request = call.write("CreateOptions")
    obj = call.decoded(body, "CreateOptions")
    _names(call, obj)
    if obj["metadata"].get("resourceVersion"):
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    escalation.guard(call, obj)
    stored = call.store.create(call.kind.key, obj, call.route.namespace or None, request=request)
    return call.answer(stored, 201)


async def update(call: Call) -> web.Response:
    """Replace an object, or one of its subresources."""
    body = bodies.of_kind(bodies.mapping(await bodies.read(call.request), bodies.media_type(call.request)), call.kind)
    request = call.write("UpdateOptions")
    obj = call.decoded(body, "UpdateOptions")
    _names(call, obj)
    escalation.guard(call, obj)
    if call.kind.key in CREATES_ON_UPDATE and not call.route.subresource and call.existing() is None:
        return call.answer(call.store.create(call.kind.key, obj, call.route.namespace or None, request=request), 201)
    call.current()
    if (call.kind.custom or call.kind.key in NEEDS_REVISION) and not obj["metadata"].get("resourceVersion"):
        text = "Invalid value: 0: must be specified for an update"
        cause = Cause("metadata.resourceVersion", "FieldValueInvalid", text)
        raise invalid(call.kind.plural, call.kind.group, call.route.name, [cause])
    if not call.kind.namespaced:
        obj["metadata"].pop("namespace", None)
    stored = call.store.replace(call.kind.key, obj, call.route.subresource or None, request=request)
    return call.answer(stored)


async def patch(call: Call) -> web.Response:
    """Patch an object, or one of its subresources."""
    media = bodies.media_type(call.request)
    content = await bodies.read(call.request)
    accepted = [
        patches.JSON_PATCH,
        patches.MERGE_PATCH,
        *([] if call.kind.custom else [patches.STRATEGIC]),
        patches.APPLY,
    ]
    if media not in accepted:
        raise _unknown_patch(media, accepted)
    if media == patches.APPLY:
        return _apply(call, bodies.mapping(content, media))
    request = call.write("PatchOptions")
    if "force" in call.query:
        text = "may not be specified for non-apply patch"
        raise invalid("PatchOptions", "meta.k8s.io", "", [forbidden_field("force", text)])
    change = bodies.decode(content, "application/json")
    old = call.current()
    new = _patched(call, media, versions.served(call.kind, old), change)
    if new.get("metadata", {}).get("name", "") != call.route.name:
        shown = new.get("metadata", {}).get("name", "")
        raise bad_request(f"the name of the object ({shown}) does not match the name on the URL ({call.route.name})")
    obj = call.decoded(bodies.of_kind(new, call.kind), "PatchOptions")
    _names(call, obj)
    escalation.guard(call, obj)
    stored = call.store.replace(call.kind.key, obj, call.route.subresource or None, request=request)
    return call.answer(stored)


def _unknown_patch(media: str, accepted: list[str]) -> ApiError:
    if media in (patches.STRATEGIC, patches.APPLY):
        text = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    else:
        text = "415: Unsupported Media Type"
    return ApiError(415, "UnsupportedMediaType", text)


def _patched(call: Call, media: str, old: Object, change: Any) -> Object:
    if media == patches.JSON_PATCH:
        new = patches.json_patch(old, change)
    else:
        if not isinstance(change, dict):
            raise bad_request("json: cannot unmarshal array into Go value of type map[string]interface {}")
        if media == patches.MERGE_PATCH:
            new = patches.merge_patch(clone(old), change)
        else:
            new = patches.strategic(clone(old), change, types.of_kind(call.kind.api_version, call.kind.kind))
    if not isinstance(new, dict):
        raise bad_request("json: cannot unmarshal into Go value of type struct")
    return new


def _apply(call: Call, body: Object) -> web.Response:
    request = call.write("PatchOptions")
    request.manager = call.query.get("fieldManager", "")
    if not request.manager:
        raise invalid("PatchOptions", "meta.k8s.io", "", [required("fieldManager", "is required for apply patch")])
    if not body.get("apiVersion") or not body.get("kind"):
        raise bad_request("Object 'Kind' is missing in the applied object")
    obj = call.decoded(bodies.of_kind(body, call.kind), "PatchOptions", applied=True)
    obj.setdefault("metadata", {}).setdefault("name", call.route.name)
    _names(call, obj)
    escalation.guard(call, obj)
    request.force = call.query.get("force", "").lower() in ("true", "1", "t")
    stored, made = apply.apply(call.store, call.kind, obj, call.route.subresource, request)
    return call.answer(stored, 201 if made else 200)
