"""Request bodies: read within the limit, decoded from JSON or YAML, checked for their kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml
from aiohttp import web

from . import protobuf
from .schema.errors import ApiError, bad_request, invalid, invalid_value

if TYPE_CHECKING:
    from .schema.kinds import Kind
    from .schema.values import Object

LIMIT = 3 * 1024 * 1024  # MaxRequestBodyBytes of the API server
BODY: Any = web.RequestKey("sim.body", bytes) if hasattr(web, "RequestKey") else "sim.body"  # 3.14 warns about text
YAML_TYPES = ("application/yaml", "application/apply-patch+yaml", "text/yaml", "application/x-yaml")


async def read(request: web.BaseRequest) -> bytes:
    """Read the body, which may be requested again; 413 above the limit."""
    cached: bytes | None = request.get(BODY)
    if cached is not None:
        return cached
    parts: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > LIMIT:
            raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {LIMIT}")
        parts.append(chunk)
    body = request[BODY] = b"".join(parts)
    return body


def media_type(request: web.BaseRequest) -> str:
    """Return the Content-Type without parameters."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _unsupported(media: str) -> ApiError:
    accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return ApiError(415, "UnsupportedMediaType", text) if media else bad_request("no kind is registered")


class _Pairs(dict[str, Any]):
    """A decoded JSON object that remembers duplicate keys."""

    twice: tuple[str, ...] = ()

    @classmethod
    def read(cls, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        plain = dict(pairs)
        if len(plain) == len(pairs):
            return plain
        names = [name for name, _ in pairs]
        obj = cls(plain)
        obj.twice = tuple(dict.fromkeys(name for name in names if names.count(name) > 1))
        return obj


def duplicates(value: Any, path: str = "") -> list[str]:
    """Return a message for every duplicate field in a JSON body."""
    errors: list[str] = []
    if isinstance(value, dict):
        prefix = f"{path}." if path else ""
        errors += [f'duplicate field "{prefix}{name}"' for name in getattr(value, "twice", ())]
        for key, item in value.items():
            if isinstance(item, (dict, list)):
                errors += duplicates(item, prefix + key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            errors += duplicates(item, f"{path}[{index}]")
    return errors


def decode(raw: bytes, media: str) -> Any:
    """Decode JSON, YAML or protobuf; 400 for invalid text, 415 for another media type."""
    if media == protobuf.MEDIA:
        return protobuf.decode(raw)
    if media in ("", "application/json", "*/*"):
        try:
            return json.loads(raw, object_pairs_hook=_Pairs.read)
        except ValueError as error:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if media in YAML_TYPES:
        try:
            return json.loads(json.dumps(yaml.load(raw, Loader=_Loader)))  # noqa: S506 - derived from SafeLoader
        except (yaml.YAMLError, ValueError, TypeError) as error:
            raise bad_request(f"yaml: {str(error).splitlines()[0]}") from None
    raise _unsupported(media)


class _Loader(yaml.SafeLoader):
    """A YAML loader as in Kubernetes: timestamps stay text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def mapping(raw: bytes, media: str) -> Object:
    """Decode a body that must be an object."""
    value = decode(raw, media)
    if not isinstance(value, dict):
        raise bad_request(
            "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct"
        )
    return value


def of_kind(body: Object, kind: Kind) -> Object:
    """Check that a body has the kind of the path; missing apiVersion and kind are implied."""
    version, name = body.get("apiVersion") or kind.api_version, body.get("kind") or kind.kind
    if (version, name) != (kind.api_version, kind.kind):
        if kind.custom and version == kind.api_version:
            where = body.get("metadata", {}).get("name", "") if isinstance(body.get("metadata"), dict) else ""
            raise invalid(name, kind.group, where, [invalid_value("kind", name, f"must be {kind.kind}")])
        shown = json.dumps(version)
        why = f"no kind {json.dumps(name)} is registered for version {shown} in scheme"
        raise bad_request(f"{name} in version {shown} cannot be handled as a {kind.kind}: {why}")
    if body.get("metadata") is None:
        return {**body, "metadata": {}}
    if not isinstance(body["metadata"], dict):
        why = f"json: cannot unmarshal string into Go struct field {kind.kind}.metadata of type v1.ObjectMeta"
        raise bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')
    return body
