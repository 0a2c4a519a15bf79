"""CustomResourceDefinitions, in the short form of crds/*.yaml.

The short form of a schema: `string`, `integer`, `boolean`, `number`, `quantity` (number or text), `time`, `any` (any
JSON), `object` (a map of anything); `A|B` is a choice; ` = x` after a type is its default; `[x]` is a list of x; a map
is an object, in which `name!` is required and `...` describes the values under any other name.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]
FOLDER = Path(__file__).parent / "crds"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
PRESERVE = "x-kubernetes-preserve-unknown-fields"
# A metav1.Condition, which most statuses have in a list.
CONDITIONS = [
    {
        "type!": "string",
        "status!": "True|False|Unknown",
        "reason": "string",
        "message": "string",
        "lastTransitionTime": "time",
        "lastUpdateTime": "time",
        "lastProbeTime": "time",
        "observedGeneration": "integer",
    }
]
SHORT_TYPES: dict[str, Object] = {
    "any": {PRESERVE: True},
    "object": {"type": "object", PRESERVE: True},
    "quantity": {"x-kubernetes-int-or-string": True},
    "time": {"type": "string", "format": "date-time"},
    **{word: {"type": word} for word in ("string", "integer", "boolean", "number")},
}


def definitions(name: str) -> list[Object]:
    """Return the definitions of one file in the format of the API server."""
    return [_definition(short) for short in _read(name)]


@functools.cache
def _read(name: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(yaml.load_all((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), Loader=_LOADER))


def _definition(short: Mapping[str, Any]) -> Object:
    kind, plural, group = short["kind"], short["plural"], short["group"]
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    if short.get("short"):
        names["shortNames"] = short["short"]
    if short.get("categories"):
        names["categories"] = short["categories"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": short.get("scope", "Namespaced"),
            "versions": [_version(short, version, number == 0) for number, version in enumerate(short["versions"])],
        },
    }


def _version(short: Mapping[str, Any], name: str, stored: bool) -> Object:
    fields = {**short["fields"], "apiVersion": "string", "kind": "string", "metadata": "object"}
    schema = expand(fields)
    schema["properties"]["metadata"] = {"type": "object"}
    version: Object = {"name": name, "served": True, "storage": stored, "schema": {"openAPIV3Schema": schema}}
    subresources: Object = {}
    if "status" in short["fields"] and short.get("status", True):
        subresources["status"] = {}
    if short.get("scale"):
        subresources["scale"] = short["scale"]
    if subresources:
        version["subresources"] = subresources
    if short.get("columns"):
        version["additionalPrinterColumns"] = [_column(*column) for column in short["columns"].items()]
    return version


def _column(name: str, path: str) -> Object:
    """`path`: a JSON path; a word before it is the type, `wide` before it shows the column with -o wide only."""
    *modifiers, path = path.rsplit(" ", 1) if " " in path and not path.startswith(".") else [path]
    wide = modifiers[:1] == ["wide"] or (bool(modifiers) and "wide" in modifiers[0].split())
    kinds = [word for word in (modifiers[0].split() if modifiers else []) if word != "wide"]
    column: Object = {"name": name, "type": kinds[0] if kinds else "string", "jsonPath": path}
    if path == ".metadata.creationTimestamp":
        column["type"] = "date"
    if wide:
        column["priority"] = 1
    return column


def expand(short: Any) -> Object:
    """Return the structural schema for a short form."""
    if isinstance(short, str):
        return _short_type(short)
    if isinstance(short, list):
        return {"type": "array", "items": expand(short[0])}
    if short == {"conditions"}:
        return expand(CONDITIONS)
    schema: Object = {"type": "object"}
    if "..." in short:
        schema["additionalProperties"] = expand(short["..."])
    properties = {key.removesuffix("!"): expand(part) for key, part in short.items() if key != "..."}
    if properties:
        schema["properties"] = properties
    needed = [key.removesuffix("!") for key in short if key.endswith("!")]
    if needed:
        schema["required"] = needed
    return schema


def _short_type(text: str) -> Object:
    text, _, default = text.partition(" = ")
    if text == "conditions":
        return expand(CONDITIONS)
    schema: Object = dict(SHORT_TYPES[text]) if text in SHORT_TYPES else {"type": "string", "enum": text.split("|")}
    if default:
        schema["default"] = yaml.safe_load(default)
    return schema
