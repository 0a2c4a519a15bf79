"""One request: store, route, user and query, and the decoding of bodies and encoding of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import bodies, custom, versions
from .answers import Form, negotiate, respond
from .options import dry_run, field_validation
from .schema import types
from .schema.errors import ApiError, bad_request, not_found
from .schema.requests import Request
from .schema.types import Decoder
from .tables import partial, table

if TYPE_CHECKING:
    from aiohttp import web

    from .access import User
    from .paths import Route
    from .schema.kinds import Kind
    from .schema.values import Object
    from .store import Store


class Call:
    """One request: all data that a verb needs."""

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
        """The namespace of the request: None for all."""
        if not self.kind.namespaced:
            return ""
        return self.route.namespace or None

    def form(self, *, shapes: bool = True) -> Form:
        """Return the negotiated form."""
        return negotiate(self.request.headers.get("Accept"), shapes=shapes)

    def write(self, options_kind: str) -> Request:
        """Return the attributes of a write."""
        asked = dry_run(self.query.getall("dryRun", []), options_kind)
        manager = (
            self.query.get("fieldManager", "") or self.request.headers.get("User-Agent", "unknown").split("/")[0][:128]
        )
        request = Request(user=self.user.name, groups=self.user.groups, dry_run=asked, manager=manager)
        request.warnings = self.warnings
        return request

    def missing(self) -> ApiError:
        """Return the 404 for the object of this call."""
        return not_found(self.kind.plural, self.kind.group, self.route.name)

    def existing(self) -> Object | None:
        """Return the object of this call; None if it does not exist."""
        return self.store.get(self.kind.key, self.namespace, self.route.name)

    def current(self) -> Object:
        """Return the object of this call; 404 without one."""
        obj = self.existing()
        if obj is None:
            raise self.missing()
        return obj

    def decoded(self, body: Object, options_kind: str, *, applied: bool = False) -> Object:
        """Decode a body to the server's form, with known fields only; report unknown ones by fieldValidation."""
        how = field_validation(self.query, options_kind)
        if self.kind.custom:
            obj, unknown = custom.prune(self.kind, body)
        else:
            decoder = Decoder(self.kind.kind, self.kind.version)
            obj = decoder.decode(body, types.of_kind(self.kind.api_version, self.kind.kind))
            unknown = decoder.unknown
        if unknown and applied:
            raise self._undeclared(body, unknown)
        problems = [f'unknown field "{path}"' for path in unknown] + bodies.duplicates(body)
        if problems and how == "Strict":
            name, version = self.kind.kind, self.kind.version
            why = f"strict decoding error: {', '.join(problems)}"
            raise bad_request(f'{name} in version "{version}" cannot be handled as a {name}: {why}')
        if how == "Warn":
            self.warnings.extend(problems)
        return versions.stored(self.kind, obj)

    def _undeclared(self, body: Object, unknown: list[str]) -> ApiError:
        """Return the error for an applied configuration with unknown fields (text of structured-merge-diff)."""
        texts = [f".{path}: field not declared in schema" for path in unknown]
        listed = texts[0] if len(texts) == 1 else "errors:" + "".join(f"\n  {text}" for text in texts)
        name = (body.get("metadata") or {}).get("name", "")
        kind = f"{self.kind.group}/{self.kind.version}, Kind={self.kind.kind}"
        place = f"{self.route.namespace}/{name}; {kind}"
        return ApiError(500, "", f"failed to create typed patch object ({place}): {listed}")

    def answer(self, obj: Object, code: int = 200) -> web.Response:
        """Return one object in the requested form."""
        form = self.form()
        obj = versions.served(self.kind, obj)
        if form.shape == "Table":
            include = self.query.get("includeObject", "Metadata")
            return respond(table(self.store, self.kind, [obj], form.version, include, {}), form, code, self.warnings)
        if form.shape:
            return respond(partial(obj, form.version), form, code, self.warnings)
        return respond(obj, form, code, self.warnings)
