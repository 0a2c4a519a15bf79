"""Content negotiation, and the encoding of each form.

Forms: plain JSON, Table (kubectl get), PartialObjectMetadata(List), and YAML. Protobuf alone is rejected with 406.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from aiohttp import web

from .schema.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JSON = "application/json"
YAML = "application/yaml"
LARGE, PIECE = 1 << 20, 1 << 18
"""Size in bytes from which a response is written in pieces, and size of a piece. One write of 81 MB over TLS costs
asyncio 330 ms of CPU time, pieces cost 42 ms (benchmarks/sim_size.py), and other requests are served in between."""
META_VERSIONS = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class Form:
    """A negotiated representation."""

    media: str = JSON
    shape: str = ""  # "", Table, PartialObjectMetadata
    version: str = "v1"

    @property
    def content_type(self) -> str:
        """The Content-Type header (the server does not repeat the parameters of meta.k8s.io forms)."""
        return self.media


def _clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    clauses = []
    for clause in accept.split(","):
        media, *parameters = [part.strip() for part in clause.split(";")]
        pairs = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if media:
            clauses.append((media.lower(), pairs))
    return clauses


def negotiate(accept: str | None, *, shapes: bool = True) -> Form:
    """Choose a form for an Accept header; 406 if no requested form can be served."""
    for media, pairs in _clauses(accept or "*/*"):
        requested = pairs.get("as", "")
        if media in ("*/*", "application/*"):
            kind = JSON
        elif media in (JSON, YAML):
            kind = media
        else:
            continue
        if not requested:
            return Form(kind)
        shape = requested.removesuffix("List") if requested.startswith("PartialObject") else requested
        known = shape in ("Table", "PartialObjectMetadata") and pairs.get("g") == "meta.k8s.io"
        if shapes and known and pairs.get("v") in META_VERSIONS:
            return Form(kind, shape, pairs["v"])
    media_types = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    raise ApiError(406, "NotAcceptable", f"only the following media types are accepted: {media_types}")


def dumps(value: Any) -> bytes:
    """Encode a value as compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def respond(
    value: Any,
    form: Form = Form(),
    code: int = 200,
    warnings: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return a response with one value."""
    if form.media == YAML:
        body = yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode()
    else:
        body = dumps(value) + b"\n"
    return raw(body, form, code, warnings, headers)


def raw(
    body: bytes,
    form: Form = Form(),
    code: int = 200,
    warnings: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return a response with encoded bytes."""
    response = web.Response(status=code, body=body, headers={"Content-Type": form.content_type, **(headers or {})})
    response.headers["Cache-Control"] = "no-cache, private"
    for text in dict.fromkeys(warnings):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


async def whole(request: web.BaseRequest, parts: list[bytes], form: Form) -> web.StreamResponse:
    """Return a response of many parts; a large one is written in pieces, so that it is never copied as a whole."""
    size = sum(map(len, parts))
    if size < LARGE:
        return raw(b"".join(parts), form)
    headers = {"Content-Type": form.content_type, "Cache-Control": "no-cache, private", "Content-Length": str(size)}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    piece: list[bytes] = []
    held = 0
    for part in parts:
        piece.append(part)
        held += len(part)
        if held >= PIECE:
            await response.write(b"".join(piece))
            piece, held = [], 0
    await response.write(b"".join(piece))
    await response.write_eof()
    return response


def refuse(error: ApiError) -> web.Response:
    """Return the response with an error's Status; a 429 has a Retry-After header."""
    headers = {}
    if error.details.get("retryAfterSeconds"):
        headers["Retry-After"] = str(error.details["retryAfterSeconds"])
    return respond(error.status(), code=error.code, headers=headers)


def text(body: str, code: int = 200) -> web.Response:
    """Return plain text."""
    headers = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    return web.Response(status=code, body=body.encode(), headers=headers)


def page_not_found() -> web.Response:
    """Return the response for a path that the server does not serve."""
    return text("404 page not found\n", 404)
