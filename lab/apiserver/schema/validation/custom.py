"""Validation of custom resources: the subset of OpenAPI v3 that structural schemas use.

Messages are those of k8s.io/apiextensions-apiserver (kube-openapi validation), for example "spec.n in body should be
greater than or equal to 1".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import Cause, duplicate, invalid_value, required, too_long, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..kinds import Kind
    from ..values import Object

TYPES = {"string": str, "boolean": bool, "object": dict, "array": list}
GO_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


def check(kind: Kind, obj: Object) -> list[Cause]:
    """Validate a custom resource."""
    if kind.schema is None:
        return []
    schema = {
        **kind.schema,
        "properties": {
            k: v
            for k, v in (kind.schema.get("properties") or {}).items()
            if k not in ("metadata", "kind", "apiVersion")
        },
    }
    body = {key: value for key, value in obj.items() if key not in ("metadata", "kind", "apiVersion")}
    return _value(body, schema, "")


def _value(value: Any, schema: Any, path: str) -> list[Cause]:
    if not isinstance(schema, dict) or (value is None and schema.get("nullable")):
        return []
    wrong = _type(value, schema, path)
    if wrong:
        return wrong
    judge = JUDGES.get(type(value))
    return _enum(value, schema, path) + (judge(value, schema, path) if judge else [])


def _type(value: Any, schema: Object, path: str) -> list[Cause]:
    if schema.get("x-kubernetes-int-or-string"):
        good = isinstance(value, (int, str)) and not isinstance(value, bool)
        return [] if good else [_wrong_type(path, value, "integer,string")]
    declared = schema.get("type")
    if not declared:
        return []
    if declared in ("integer", "number"):
        kinds: Any = int if declared == "integer" else (int, float)
        good = isinstance(value, kinds) and not isinstance(value, bool)
        good = good or (declared == "integer" and isinstance(value, float) and value.is_integer())
    else:
        good = isinstance(value, TYPES[declared])
    return [] if good else [_wrong_type(path, value, declared)]


def _wrong_type(path: str, value: Any, declared: str) -> Cause:
    shown = "null" if value is None else GO_NAMES[type(value)]
    text = f'Invalid value: "{shown}": {path} in body must be of type {declared}: "{shown}"'
    return Cause(path or "<nil>", "FieldValueTypeInvalid", text)


def _enum(value: Any, schema: Object, path: str) -> list[Cause]:
    allowed = schema.get("enum")
    if allowed is None or value in allowed:
        return []
    return [unsupported(path, value, [str(word) for word in allowed])]


def _number(value: float, schema: Object, path: str) -> list[Cause]:
    causes = []
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value <= low if schema.get("exclusiveMinimum") else value < low):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        causes.append(invalid_value(path, value, f"{path} in body should be {word} {low}"))
    if high is not None and (value >= high if schema.get("exclusiveMaximum") else value > high):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        causes.append(invalid_value(path, value, f"{path} in body should be {word} {high}"))
    factor = schema.get("multipleOf")
    if factor and value % factor:
        causes.append(invalid_value(path, value, f"{path} in body should be a multiple of {factor}"))
    return causes


def _string(value: str, schema: Object, path: str) -> list[Cause]:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is not None and len(value) > longest:
        return [too_long(path, longest)]
    if shortest is not None and len(value) < shortest:
        return [invalid_value(path, value, f"{path} in body should be at least {shortest} chars long")]
    if pattern and not re.search(pattern, value):
        return [invalid_value(path, value, f"{path} in body should match '{pattern}'")]
    return []


def _array(value: list[Any], schema: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        causes.append(Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items"))
    if least is not None and len(value) < least:
        causes.append(invalid_value(path, len(value), f"{path} in body should have at least {least} items"))
    for index, item in enumerate(value):
        causes += _value(item, schema.get("items"), f"{path}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("x-kubernetes-list-type") == "map" and keys:
        identities: list[Any] = []
        for index, item in enumerate(value):
            identity = {key: item.get(key) for key in keys} if isinstance(item, dict) else item
            if identity in identities:
                causes.append(duplicate(f"{path}[{index}]", identity))
            identities.append(identity)
    if schema.get("x-kubernetes-list-type") == "set":
        causes += [duplicate(f"{path}[{i}]", item) for i, item in enumerate(value) if item in value[:i]]
    return causes


def _object(value: Object, schema: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    prefix = f"{path}." if path else ""
    causes += [required(prefix + name) for name in schema.get("required") or [] if name not in value]
    known = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for key, item in value.items():
        if key in known:
            causes += _value(item, known[key], prefix + key)
        elif isinstance(extra, dict):
            causes += _value(item, extra, prefix + key)
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        causes.append(Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items"))
    if least is not None and len(value) < least:
        causes.append(invalid_value(path, len(value), f"{path} in body should have at least {least} properties"))
    for part in schema.get("allOf") or []:
        causes += _value(value, part, path)
    return causes


JUDGES: dict[type, Callable[[Any, Object, str], list[Cause]]] = {
    int: _number,
    float: _number,
    str: _string,
    list: _array,
    dict: _object,
}
