"""Get, list with pages and selectors, watch; as JSON, Table or metadata only."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from . import versions
from .answers import Form, dumps, raw, respond, whole
from .options import ListOptions, make_token, token_expired
from .schema import selectors
from .schema.errors import ApiError
from .store import FIRST_REVISION
from .tables import partial, table
from .watches import Watch, bookmark_line, event_line, object_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiohttp import web

    from .call import Call
    from .schema.values import Object
    from .store import Stored


def get(call: Call) -> web.Response:
    """Return one object."""
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


def _snapshot(call: Call, revision: int | None, start: str) -> Iterator[Stored]:
    store, key = call.store, call.kind.key
    if revision is None or revision >= store.history(key).latest or revision < 0:
        if call.namespace is None and start:  # a further page of all objects
            everything = store.ordered(key)
            return iter(everything[bisect_right(everything, start, key=_place) :])
        return store.scan(key, call.namespace)
    if revision < FIRST_REVISION:
        return iter(())  # before the first object of this cluster
    return store.scan_at(key, call.namespace, revision)


async def list_objects(call: Call) -> web.StreamResponse:
    """Return a list, or one page of it."""
    form = call.form()
    options = ListOptions.read(call.query)
    selects = options.label_selector or options.field_selector
    chosen = selection(call, options) if selects else None  # the snapshot contains this namespace only
    store = call.store
    if options.match != "Exact" and options.resource_version and int(options.resource_version) > store.revision:
        raise _too_new(int(options.resource_version), store.revision)
    revision = options.revision if options.revision and options.revision > 0 else store.revision
    try:
        everything = _snapshot(call, options.revision, options.start)
        if options.start:
            everything = (stored for stored in everything if _place(stored) > options.start)
        selected = list(everything) if chosen is None else [stored for stored in everything if chosen(stored)]
    except ApiError as error:
        if error.code == 410 and options.start:
            raise token_expired(options.start) from None
        raise
    meta: Object = {"resourceVersion": str(revision)}
    if options.limit and len(selected) > options.limit:
        meta["continue"] = make_token(revision, _place(selected[options.limit - 1]))
        if not options.label_selector and not options.field_selector:
            meta["remainingItemCount"] = len(selected) - options.limit
        selected = selected[: options.limit]
    if form.shape or form.media != "application/json" or call.kind.stored_as:
        return _shaped_list(call, form, selected, meta)
    head = dumps({"kind": call.kind.lists, "apiVersion": call.kind.api_version, "metadata": meta})
    parts = [head[:-1] + b',"items":[']
    if call.kind.custom:
        item = object_head(call.kind)
        items = [item + s.raw[1:] for s in selected]
    else:
        items = [s.raw for s in selected]
    for each in items:
        parts += (each, b",")
    parts[len(parts) - bool(items) :] = [b"]}\n"]
    return await whole(call.request, parts, form)


def _place(stored: Stored) -> str:
    return f"{stored.namespace}/{stored.name}"


def _too_new(asked: int, current: int) -> ApiError:
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return ApiError(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details)


def _shaped_list(call: Call, form: Form, selected: list[Stored], meta: Object) -> web.Response:
    objects = [versions.served(call.kind, stored.obj) for stored in selected]
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
    """Stream changes."""
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
