"""OpenAPI v3 documents for tools, one for each group and version.

kubectl reads them for `explain`, and as a sign that the server validates fields. They are generated from types.json,
and from the schemas of custom kinds; descriptions are left out.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

from .schema import types

if TYPE_CHECKING:
    from .schema.kinds import Kind, Kinds
    from .schema.types import Field

    Schema = dict[str, Any]

SCALARS: dict[str, Schema] = {
    "s": {"type": "string"},
    "i": {"type": "integer", "format": "int64"},
    "n": {"type": "number", "format": "double"},
    "b": {"type": "boolean"},
    "y": {"type": "string", "format": "byte"},
    "q": {"oneOf": [{"type": "string"}, {"type": "number"}], "x-kubernetes-int-or-string": True},
    "x": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "t": {"type": "string", "format": "date-time"},
    "T": {"type": "string", "format": "date-time"},
    "o": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
WRITES = {"post": "CreateOptions", "put": "UpdateOptions", "patch": "PatchOptions"}
METHODS = {"get": ("get", "get"), "update": ("put", "put"), "patch": ("patch", "patch"), "delete": ("delete", "delete")}
COLLECTION = {"list": ("get", "list"), "create": ("post", "post"), "deletecollection": ("delete", "deletecollection")}


def index(kinds: Kinds) -> Schema:
    """Return the body of /openapi/v3: the paths of the documents."""
    paths = {}
    for group, versions in kinds.groups().items():
        for version in versions:
            name = f"apis/{group}/{version}" if group else f"api/{version}"
            digest = hashlib.sha256(f"{name}:{kinds.changed}".encode()).hexdigest().upper()
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
    return {"paths": paths}


def document(kinds: Kinds, group: str, version: str, release: str) -> Schema | None:
    """Return the document of a group and version, or None."""
    served = kinds.groups().get(group, {}).get(version)
    if not served:
        return None
    schemas: dict[str, Schema] = {}
    paths: dict[str, Schema] = {}
    for kind in served:
        name = _kind_schema(kind, schemas)
        prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
        collection = (
            f"{prefix}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{prefix}/{kind.plural}"
        )
        paths[collection] = _operations(kind, COLLECTION, name)
        paths[f"{collection}/{{name}}"] = _operations(kind, METHODS, name)
    info = {"title": "Kubernetes", "version": release}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _gvk(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _operations(kind: Kind, methods: dict[str, tuple[str, str]], name: str) -> Schema:
    operations: Schema = {}
    for verb, (method, action) in methods.items():
        if verb not in kind.verbs:
            continue
        parameters = [_parameter("pretty", "string")]
        if method in WRITES:
            parameters += [_parameter(word, "string") for word in ("dryRun", "fieldManager", "fieldValidation")]
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
        operation: Schema = {
            "operationId": f"{action}{kind.group.replace('.', '')}{kind.version}{kind.kind}",
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _gvk(kind),
        }
        if method in WRITES:
            operation["requestBody"] = {"content": {"*/*": content["application/json"]}, "required": True}
        operations[method] = operation
    return operations


def _parameter(name: str, kind: str) -> Schema:
    return {"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}}


def _kind_schema(kind: Kind, schemas: dict[str, Schema]) -> str:
    if kind.custom:
        name = ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
        properties = dict((kind.schema or {}).get("properties") or {})
        properties |= {"apiVersion": SCALARS["s"], "kind": SCALARS["s"], "metadata": _reference("meta.v1.ObjectMeta")}
        _add("meta.v1.ObjectMeta", schemas)
        schemas[name] = {**(kind.schema or {"type": "object"}), "properties": properties}
    else:
        type_name = types.of_kind(kind.api_version, kind.kind)
        name = _full(type_name)
        _add(type_name, schemas)
    schemas[name] = {**schemas[name], "x-kubernetes-group-version-kind": [_gvk(kind)]}
    return name


@functools.cache
def _full(type_name: str) -> str:
    prefix = "io.k8s.apimachinery.pkg.apis." if type_name.startswith("meta.") else "io.k8s.api."
    return prefix + type_name


def _reference(type_name: str) -> Schema:
    return {"allOf": [{"$ref": f"#/components/schemas/{_full(type_name)}"}], "default": {}}


def _add(type_name: str, schemas: dict[str, Schema]) -> None:
    name = _full(type_name)
    if name in schemas:
        return
    schema: Schema = {"type": "object"}
    schemas[name] = schema
    fields = types.struct(type_name)
    needed = [key for key, known in fields.items() if known.required]
    if needed:
        schema["required"] = needed
    schema["properties"] = {key: _field(known, schemas) for key, known in fields.items()}


def _field(known: Field, schemas: dict[str, Schema]) -> Schema:
    if known.code == "@":
        _add(known.type_name, schemas)
        schema = _reference(known.type_name)
        return {**schema, "x-kubernetes-map-type": "atomic"} if known.atomic else schema
    if known.code not in "[{":
        return SCALARS[known.code]
    assert known.items is not None
    inner = _field(known.items, schemas)
    if known.code == "{":
        return {"type": "object", "additionalProperties": inner}
    schema = {"type": "array", "items": inner}
    if known.keys:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(known.keys)}
    elif known.is_set:
        schema["x-kubernetes-list-type"] = "set"
    else:
        schema["x-kubernetes-list-type"] = "atomic"
    if known.merge_key is not None:
        schema["x-kubernetes-patch-strategy"] = "merge"
        if known.merge_key:
            schema["x-kubernetes-patch-merge-key"] = known.merge_key
    return schema
