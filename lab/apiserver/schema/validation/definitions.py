"""Validation of CustomResourceDefinitions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import Cause, invalid_value, required, unsupported
from . import metadata

if TYPE_CHECKING:
    from ..values import Object


def definition(obj: Object) -> list[Cause]:
    """Validate a CustomResourceDefinition."""
    spec = obj.get("spec", {})
    names, group = spec.get("names", {}), spec.get("group", "")
    causes: list[Cause] = []
    if obj["metadata"].get("name") != f"{names.get('plural', '')}.{group}":
        text = 'must be spec.names.plural+"."+spec.group'
        causes.append(invalid_value("metadata.name", obj["metadata"].get("name", ""), text))
    if not group:
        causes.append(required("spec.group"))
    elif "." not in group:
        causes.append(invalid_value("spec.group", group, "should be a domain with at least one dot"))
    else:
        causes += [invalid_value("spec.group", group, text) for text in metadata.dns_subdomain(group)]
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        causes.append(unsupported("spec.scope", spec.get("scope", ""), ["Cluster", "Namespaced"]))
    versions = spec.get("versions") or []
    stored = [version for version in versions if version.get("storage")]
    if len(stored) != 1:
        causes.append(
            invalid_value("spec.versions", versions, "must have exactly one version marked as storage version")
        )
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            causes.append(required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required"))
        else:
            at = (
                "spec.validation.openAPIV3Schema"
                if len(versions) == 1
                else f"spec.versions[{index}].schema.openAPIV3Schema"
            )
            causes += _schema(version["schema"]["openAPIV3Schema"], at)
    for name in ("plural", "kind"):
        if not names.get(name):
            causes.append(required(f"spec.names.{name}"))
    return causes


TYPES = ("array", "boolean", "integer", "number", "object", "string")
NUMBERS = (
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)
LISTS = ("required", "enum", "allOf", "anyOf", "oneOf", "x-kubernetes-list-map-keys")


def _schema(schema: Any, path: str) -> list[Cause]:
    """Validate the form of a schema before objects are validated by it."""
    if not isinstance(schema, dict):
        return [invalid_value(path, schema, "must be an object")]
    causes: list[Cause] = []
    kind = schema.get("type", "")
    if not isinstance(kind, str) or (kind and kind not in TYPES):
        causes.append(unsupported(f"{path}.type", kind, TYPES))
    for name in NUMBERS:
        value = schema.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            causes.append(invalid_value(f"{path}.{name}", value, "must be a number"))
    causes += [
        invalid_value(f"{path}.{name}", schema[name], "must be a list")
        for name in LISTS
        if schema.get(name) is not None and not isinstance(schema[name], list)
    ]
    for name in ("required", "x-kubernetes-list-map-keys"):
        names = schema.get(name)
        if isinstance(names, list) and not all(isinstance(word, str) for word in names):
            causes.append(invalid_value(f"{path}.{name}", names, "must be a list of strings"))
    causes += _pattern(schema.get("pattern"), f"{path}.pattern")
    properties = schema.get("properties")
    if properties is not None and not isinstance(properties, dict):
        causes.append(invalid_value(f"{path}.properties", properties, "must be an object"))
        properties = None
    for name, part in (properties or {}).items():
        causes += _schema(part, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            causes += _schema(schema[name], f"{path}.{name}")
    return causes


def _pattern(pattern: Any, path: str) -> list[Cause]:
    if pattern is None:
        return []
    try:
        re.compile(pattern)
    except (re.error, TypeError):
        return [invalid_value(path, pattern, "must be a valid regular expression")]
    return []
