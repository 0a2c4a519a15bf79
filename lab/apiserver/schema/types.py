"""The structure of the built-in kinds: fields, their types, and how their lists merge.

Read from types.json, one compact notation per field:
  s string  i integer  n number  b boolean  q quantity  x int-or-string  t time  T micro time  y base64  o anything
  @Type  a struct     [..  a list of     {..  a map of     ! at the end: required
  |merge:KEY strategic merge by KEY   |retain  strategy retainKeys   |map:K1,K2 keyed list   |set   |atomic  one piece
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

from . import quantity
from .errors import bad_request

GO = {"s": "string", "i": "int32", "n": "float64", "b": "bool", "y": "[]uint8", "q": "resource.Quantity"}


@dataclass(frozen=True, slots=True)
class Field:
    """The type of one field."""

    code: str  # a letter of the notation; "@" struct, "[" list, "{" map
    type_name: str = ""
    items: Field | None = None
    merge_key: str | None = None  # strategic merge: "" for a list of plain values
    retain: bool = False
    keys: tuple[str, ...] = ()
    is_set: bool = False
    atomic: bool = False
    required: bool = False


Struct = dict[str, Field]


@functools.cache
def _document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(resources.files(__package__).joinpath("types.json").read_text())
    return loaded


@functools.cache
def field(notation: str) -> Field:
    """Parse one notation."""
    required = notation.endswith("!")
    body, *marks = notation.removesuffix("!").split("|")
    named = dict(mark.partition(":")[::2] for mark in marks)
    code = body[0]
    items = None
    if code in "[{":
        inner = body[1:] + ("|atomic" if "atomic" in named and code == "[" else "")
        items = field(inner)
    return Field(
        code,
        body[1:] if code == "@" else "",
        items,
        named.get("merge"),
        "retain" in named,
        tuple(named["map"].split(",")) if "map" in named else (),
        "set" in named,
        "atomic" in named and code != "[",
        required,
    )


@functools.cache
def _builtin(name: str) -> Struct:
    return {key: field(notation) for key, notation in _document()["types"][name].items()}


def struct(name: str) -> Struct:
    """Return the fields of a named type."""
    return _CUSTOM[name] if name.startswith("custom:") else _builtin(name)


@functools.cache
def of_kind(api_version: str, kind: str) -> str:
    """Return the type name of a kind, or "" for a kind without a known structure."""
    name: str = _document()["kinds"].get(f"{api_version}.{kind}", "")
    return name


def kinds() -> dict[str, str]:
    """Return apiVersion.Kind -> type name."""
    type_names: dict[str, str] = _document()["kinds"]
    return type_names


class Decoder:
    """A converter from a client's object to the server's form: known fields, canonical quantities, no nulls.

    Collects unknown fields in `unknown`; raises 400 for a value of the wrong type.
    """

    def __init__(self, kind: str, version: str) -> None:
        self.kind = kind
        self.version = version
        self.unknown: list[str] = []

    def decode(self, value: Any, type_name: str, path: str = "") -> dict[str, Any]:
        """Decode a struct."""
        if not isinstance(value, dict):
            raise self._wrong(value, path, type_name.split(".", 1)[1])
        fields = struct(type_name)
        obj: dict[str, Any] = {}
        for key, given in value.items():
            where = f"{path}.{key}" if path else key
            known = fields.get(key)
            if known is None:
                self.unknown.append(where)
            elif given is not None:
                decoded = self._value(given, known, where)
                if decoded is not None:
                    obj[key] = decoded
        return obj

    def _value(self, value: Any, known: Field, path: str) -> Any:
        code = known.code
        if code == "@":
            return self.decode(value, known.type_name, path)
        if code == "[":
            return self._list(value, known, path)
        if code == "{":
            return self._map(value, known, path)
        return self._scalar(value, code, path)

    def _list(self, value: Any, known: Field, path: str) -> Any:
        assert known.items is not None
        if not isinstance(value, list):
            raise self._wrong(value, path, "[]" + self._go(known.items))
        # A null for a struct or a string is an empty value, as Go decodes it; elsewhere it is omitted.
        empty = {"@": {}, "s": ""}.get(known.items.code)
        items = (empty if item is None else item for item in value)
        return [
            self._value(item, known.items, f"{path}[{index}]") for index, item in enumerate(items) if item is not None
        ] or None

    def _map(self, value: Any, known: Field, path: str) -> Any:
        assert known.items is not None
        if not isinstance(value, dict):
            raise self._wrong(value, path, "map[string]" + self._go(known.items))
        mapping = {}
        empty = {"s": "", "q": "0"}.get(known.items.code)
        for key, given in value.items():
            item = empty if given is None else given
            if item is not None:
                mapping[key] = self._value(item, known.items, f"{path}.{key}")
        return mapping or None

    def _scalar(self, value: Any, code: str, path: str) -> Any:
        if code == "o":
            return value
        if code == "q":
            return self._quantity(value, path)
        if code == "x":
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise self._wrong(value, path, "intstr.IntOrString")
            return value
        if code == "i" and isinstance(value, float) and value.is_integer():
            return int(value)
        expected = {"i": int, "n": (int, float), "b": bool}.get(code, str)
        if not isinstance(value, expected) or (isinstance(value, bool) and code != "b"):  # type: ignore[arg-type]
            raise self._wrong(value, path, GO.get(code, "v1.Time" if code in "tT" else "string"))
        if code == "y":
            self._base64(value)
        if code in "tT" and not _TIME.match(value):
            text = (
                f'parsing time "\\"{value}\\"" as "2006-01-02T15:04:05Z07:00": cannot parse "\\"{value}\\"" as "2006"'
            )
            raise bad_request(self._prefix() + text)
        return value

    def _quantity(self, value: Any, path: str) -> str:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise self._wrong(value, path, "resource.Quantity")
        try:
            return quantity.canonical(str(value))
        except ValueError:
            raise bad_request(
                f"{self._prefix()}quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ) from None

    def _base64(self, value: str) -> None:
        try:
            base64.b64decode(value.replace("\n", ""), validate=True)
        except (binascii.Error, ValueError):
            raise bad_request(f"{self._prefix()}illegal base64 data at input byte 0") from None

    def _go(self, known: Field) -> str:
        return known.type_name.split(".", 1)[1] if known.code == "@" else GO.get(known.code, "interface {}")

    def _prefix(self) -> str:
        return f'{self.kind} in version "{self.version}" cannot be handled as a {self.kind}: '

    def _wrong(self, value: Any, path: str, go: str) -> Exception:
        names = {dict: "object", list: "array", str: "string", bool: "bool"}
        shown = names.get(type(value), "number")
        plain = re.sub(r"\[\d+\]", "", path)
        return bad_request(
            f"{self._prefix()}json: cannot unmarshal {shown} into Go struct field {self.kind}.{plain} of type {go}"
        )


_TIME = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")


# -- custom kinds

_CUSTOM: dict[str, Struct] = {}


def of_custom(kind: Any) -> Field:
    """Return the type of a custom kind's objects, read from its schema."""
    name = f"custom:{kind.api_version}.{kind.kind}:{id(kind.schema)}"
    if name not in _CUSTOM:
        _CUSTOM[name] = {}
        fields = {
            key: _from_schema(part, f"{name}.{key}")
            for key, part in ((kind.schema or {}).get("properties") or {}).items()
        }
        fields["metadata"] = field("@meta.v1.ObjectMeta")
        _CUSTOM[name].update(fields)
    return Field("@", name)


def _from_schema(schema: Any, name: str) -> Field:
    if not isinstance(schema, dict):
        return Field("o")
    if schema.get("x-kubernetes-int-or-string"):
        return Field("x")
    kind = schema.get("type", "")
    if kind == "array":
        style = schema.get("x-kubernetes-list-type", "atomic")
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if style == "map" else ()
        return Field("[", items=_from_schema(schema.get("items"), f"{name}[]"), keys=keys, is_set=style == "set")
    if kind == "object":
        return _object_schema(schema, name)
    return Field({"string": "s", "integer": "i", "number": "n", "boolean": "b"}.get(kind, "o"))


def _object_schema(schema: dict[str, Any], name: str) -> Field:
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    if isinstance(schema.get("additionalProperties"), dict):
        return Field("{", items=_from_schema(schema["additionalProperties"], f"{name}{{}}"), atomic=atomic)
    if schema.get("properties"):
        _CUSTOM[name] = {key: _from_schema(part, f"{name}.{key}") for key, part in schema["properties"].items()}
        return Field("@", name, atomic=atomic)
    return Field("o", atomic=atomic)
