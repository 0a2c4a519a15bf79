"""What does the API do for each verb? Get, list, create, update, patch, delete and deletecollection on the store.

Everything is checked before it is stored; the answers carry the object as a client of that API version sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..schema import selectors, types
from ..schema.errors import ApiError, Cause, bad_request, expired, invalid, not_found, required
from ..schema.requests import Request
from ..schema.types import Decoder
from ..schema.values import clone
from ..store import FIRST_REVISION
from . import apply, bodies, custom, patches, versions
from .answers import Form, dumps, negotiate, raw, respond
from .options import DeleteOptions, ListOptions, dry_run, field_validation, make_token, token_expired
from .tables import partial, table
from .watches import Watch, bookmark_line, event_line, object_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiohttp import web

    from ..schema.kinds import Kind
    from ..schema.values import Object
    from ..store import Store, Stored
    from .access import User
    from .paths import Route

JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
    "set propagationPolicy=Orphan to suppress this warning"
)
# Kinds whose deletion always answers with the object (their REST storage has ReturnDeletedObject set).
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


class Call:
    """One request on its way: everything a verb needs to know."""

    def __init__(self, store: Store, request: web.BaseRequest, route: Route, kind: Kind, user: User) -> None:
        self.store = store
        self.request = request
        self.route = route
        self.kind = kind
        self.user = user
        self.query = request.rel_url.query
        self.warnings: list[str] = []

    @property
    def namespace(self) -> str | None:
        """The namespace to look in: None for all."""
        if not self.kind.namespaced:
            return ""
        return self.route.namespace or None

    def form(self, *, shapes: bool = True) -> Form:
        """Return the negotiated form."""
        return negotiate(self.request.headers.get("Accept"), shapes=shapes)

    def write(self, options_kind: str) -> Request:
        """Return the attributes of a write."""
        asked = dry_run(self.query.getall("dryRun", []), options_kind)
        manager = self.query.get("fieldManager", "") or self.request.headers.get("User-Agent", "unknown").split("/")[0][:128]
        request = Request(user=self.user.name, groups=self.user.groups, dry_run=asked, manager=manager)
        request.warnings = self.warnings
        return request

    def missing(self) -> ApiError:
        """Return the 404 for the object of this call."""
        return not_found(self.kind.plural, self.kind.group, self.route.name)

    def current(self) -> Object:
        """Return the object of this call; 404 if there is none."""
        found = self.store.get(self.kind.key, self.namespace, self.route.name)
        if found is None:
            raise self.missing()
        return found

    def decoded(self, body: Object, options_kind: str) -> Object:
        """Return what the server makes of a body: known fields only; complains as fieldValidation says."""
        how = field_validation(self.query, options_kind)
        if self.kind.custom:
            found, unknown = custom.prune(self.kind, body)
        else:
            decoder = Decoder(self.kind.kind, self.kind.version)
            found = decoder.decode(body, types.of_kind(self.kind.api_version, self.kind.kind))
            unknown = decoder.unknown
        if unknown and how == "Strict":
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            name, version = self.kind.kind, self.kind.version
            raise bad_request(f'{name} in version "{version}" cannot be handled as a {name}: strict decoding error: {listed}')
        if unknown and how == "Warn":
            self.warnings.extend(f'unknown field "{path}"' for path in unknown)
        return versions.stored(self.kind, found)

    def answer(self, obj: Object, code: int = 200) -> web.Response:
        """Return one object in the form that the client wants."""
        form = self.form()
        obj = versions.served(self.kind, obj)
        if form.shape == "Table":
            include = self.query.get("includeObject", "Metadata")
            return respond(table(self.store, self.kind, [obj], form.version, include, {}), form, code, self.warnings)
        if form.shape:
            return respond(partial(obj, form.version), form, code, self.warnings)
        return respond(obj, form, code, self.warnings)


# -- reading


def get(call: Call) -> web.Response:
    """Answer with one object."""
    form = call.form()
    if form.shape or form.media != "application/json" or call.kind.stored_as:
        return call.answer(call.current())
    stored = call.store.stored(call.kind.key, call.namespace, call.route.name)
    if stored is None:
        raise call.missing()
    return raw(object_head(call.kind) + stored.raw[1:] + b"\n", form)


def selection(call: Call, options: ListOptions) -> Callable[[Stored], bool]:
    """Return the predicate of a list or a watch: namespace, name, labels, fields."""
    checks: list[Callable[[Stored], bool]] = []
    namespace = call.namespace
    if call.kind.namespaced and namespace is not None:
        checks.append(lambda stored: stored.namespace == namespace)
    if options.label_selector:
        matches = selectors.labels(options.label_selector)
        checks.append(lambda stored: matches(stored.obj["metadata"].get("labels") or {}))
    if options.field_selector:
        fits = selectors.fields(options.field_selector, call.kind.key)
        checks.append(lambda stored: fits(stored.obj))
    return lambda stored: all(check(stored) for check in checks)


def _snapshot(call: Call, revision: int | None) -> Iterator[Stored]:
    store, key = call.store, call.kind.key
    if revision is None or revision >= store.revision or revision < 0:
        return store.scan(key, call.namespace)
    if revision < FIRST_REVISION:
        return iter(())  # before the first object of this cluster
    return store.scan_at(key, call.namespace, revision)


def list_objects(call: Call) -> web.Response:
    """Answer with a list, or one page of it."""
    form = call.form()
    options = ListOptions.read(call.query)
    chosen = selection(call, options)
    store = call.store
    if options.match != "Exact" and options.resource_version and int(options.resource_version) > store.revision:
        raise _too_new(int(options.resource_version), store.revision)
    revision = options.revision if options.revision and options.revision > 0 else store.revision
    try:
        everything = _snapshot(call, options.revision)
        found = [s for s in everything if (not options.start or _place(s) > options.start) and chosen(s)]
    except ApiError as error:
        if error.code == 410 and options.start:
            raise token_expired(options.start) from None
        raise
    meta: Object = {"resourceVersion": str(revision)}
    if options.limit and len(found) > options.limit:
        meta["continue"] = make_token(revision, _place(found[options.limit - 1]))
        if not options.label_selector and not options.field_selector:
            meta["remainingItemCount"] = len(found) - options.limit
        found = found[: options.limit]
    if form.shape or form.media != "application/json" or call.kind.stored_as:
        return _shaped_list(call, form, found, meta)
    head = dumps({"kind": call.kind.lists, "apiVersion": call.kind.api_version, "metadata": meta})
    if call.kind.custom:
        item = object_head(call.kind)
        return raw(head[:-1] + b',"items":[' + b",".join(item + s.raw[1:] for s in found) + b"]}\n", form)
    return raw(head[:-1] + b',"items":[' + b",".join(s.raw for s in found) + b"]}\n", form)


def _place(stored: Stored) -> str:
    return f"{stored.namespace}/{stored.name}"


def _too_new(asked: int, current: int) -> ApiError:
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1}
    return ApiError(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details)


def _shaped_list(call: Call, form: Form, found: list[Stored], meta: Object) -> web.Response:
    objects = [versions.served(call.kind, stored.obj) for stored in found]
    if form.shape == "Table":
        include = call.query.get("includeObject", "Metadata")
        return respond(table(call.store, call.kind, objects, form.version, include, meta), form)
    if form.shape:
        items = [partial(obj, form.version) for obj in objects]
        kind, version = "PartialObjectMetadataList", f"meta.k8s.io/{form.version}"
    else:
        plain = call.kind.custom or form.media != "application/json"
        items = [obj if plain else {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")} for obj in objects]
        kind, version = call.kind.lists, call.kind.api_version
    return respond({"kind": kind, "apiVersion": version, "metadata": meta, "items": items}, form)


async def watch(call: Call) -> web.StreamResponse:
    """Stream what changes."""
    form = call.form()
    options = ListOptions.read(call.query)
    chosen = selection(call, options)
    if call.route.name:
        inner, name = chosen, call.route.name
        chosen = lambda stored: stored.name == name and inner(stored)  # noqa: E731
    head, kind = object_head(call.kind), call.kind
    shaped: tuple[str, str] | None = None
    if form.shape == "Table":
        shaped = ("Table", f"meta.k8s.io/{form.version}")
        include = call.query.get("includeObject", "Metadata")

        def encode(name: str, stored: Stored) -> bytes:
            rows = table(call.store, kind, [versions.served(kind, stored.obj)], form.version, include, {})
            return dumps({"type": name, "object": rows}) + b"\n"
    elif form.shape:
        shaped = ("PartialObjectMetadata", f"meta.k8s.io/{form.version}")

        def encode(name: str, stored: Stored) -> bytes:
            return dumps({"type": name, "object": partial(versions.served(kind, stored.obj), form.version)}) + b"\n"
    elif kind.stored_as:

        def encode(name: str, stored: Stored) -> bytes:
            return dumps({"type": name, "object": versions.served(kind, stored.obj)}) + b"\n"
    else:

        def encode(name: str, stored: Stored) -> bytes:
            return event_line(name, head, stored)

    label = f"{kind.api_version}/{kind.kind}/{form.shape}/{call.query.get('includeObject', '')}"
    bookmark = (lambda revision: bookmark_line(kind, revision, shaped)) if options.bookmarks else None
    version = options.resource_version
    initial = version in ("", "0") or options.send_initial
    revision = None if initial else int(version)
    if revision is not None and options.revision is not None:
        revision = options.revision
    stream = Watch(call.store, kind, chosen, form=label, encode=encode, bookmark=bookmark)
    return await stream.serve(
        call.request, revision, initial=initial, send_initial_end=options.send_initial, seconds=options.timeout_s
    )


# -- writing


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
        raise bad_request("namespace may not be set on this type of object") if False else bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
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
    stored = call.store.create(call.kind.key, obj, call.route.namespace or None, request=request)
    return call.answer(stored, 201)


async def update(call: Call) -> web.Response:
    """Replace an object, or one of its subresources."""
    body = bodies.of_kind(bodies.mapping(await bodies.read(call.request), bodies.media_type(call.request)), call.kind)
    request = call.write("UpdateOptions")
    obj = call.decoded(body, "UpdateOptions")
    _names(call, obj)
    old = call.current()
    if call.kind.custom and not obj["metadata"].get("resourceVersion"):
        cause = Cause("metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0: must be specified for an update")
        raise invalid(call.kind.plural, call.kind.group, call.route.name, [cause])
    if not call.kind.namespaced:
        obj["metadata"].pop("namespace", None)
    assert old
    stored = call.store.replace(call.kind.key, obj, call.route.subresource or None, request=request)
    return call.answer(stored)


async def patch(call: Call) -> web.Response:
    """Patch an object, or one of its subresources."""
    media = bodies.media_type(call.request)
    content = await bodies.read(call.request)
    accepted = [patches.JSON_PATCH, patches.MERGE_PATCH, *([] if call.kind.custom else [patches.STRATEGIC]), patches.APPLY]
    if media not in accepted:
        raise _unknown_patch(media, accepted)
    if media == patches.APPLY:
        return _apply(call, bodies.mapping(content, media))
    request = call.write("PatchOptions")
    change = bodies.decode(content, "application/json")
    old = call.current()
    new = _patched(call, media, versions.served(call.kind, old), change)
    if new.get("metadata", {}).get("name", "") != call.route.name:
        shown = new.get("metadata", {}).get("name", "")
        raise bad_request(f"the name of the object ({shown}) does not match the name on the URL ({call.route.name})")
    obj = call.decoded(bodies.of_kind(new, call.kind), "PatchOptions")
    _names(call, obj)
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
    obj = call.decoded(bodies.of_kind(body, call.kind), "PatchOptions")
    obj.setdefault("metadata", {}).setdefault("name", call.route.name)
    _names(call, obj)
    request.force = call.query.get("force", "").lower() in ("true", "1", "t")
    stored, made = apply.apply(call.store, call.kind, obj, call.route.subresource, request)
    return call.answer(stored, 201 if made else 200)


# -- deleting


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
    details = {"name": old["metadata"]["name"], "group": call.kind.group, "kind": call.kind.plural, "uid": old["metadata"]["uid"]}
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
                call.store.delete(call.kind.key, stored.namespace, stored.name, options.grace, options.propagation, request=request)
            )
    items = [versions.served(call.kind, obj) for obj in deleted]
    if not call.kind.custom:
        items = [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items]
    meta = {"resourceVersion": str(call.store.revision)}
    return respond({"kind": call.kind.lists, "apiVersion": call.kind.api_version, "metadata": meta, "items": items}, call.form())


__all__ = ["Call", "create", "delete", "delete_collection", "expired", "get", "list_objects", "patch", "update", "watch"]
