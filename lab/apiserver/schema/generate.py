"""The generator of types.json: `python -m lab.apiserver.schema.generate DEFINITIONS.json`.

DEFINITIONS.json is `_definitions.json` of the PyPI project kubernetes-validate (Apache-2.0), which derives from the
OpenAPI document that Kubernetes publishes. Only facts are kept: field names, their types, merge keys. The notation is
explained in `types.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .kinds import builtin

PREFIX = "#/$defs/"
PLAIN = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "q",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "x",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "t",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "T",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "o",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "o",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "o",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps": "o",
}
SCALARS = {"integer": "i", "number": "n", "boolean": "b", "object": "o"}
ALSO = ("v1.Binding", "policy/v1.Eviction", "autoscaling/v1.Scale", "authentication.k8s.io/v1.TokenRequest")


def short(name: str) -> str:
    """Return `core.v1.Pod` for io.k8s.api.core.v1.Pod."""
    return ".".join(name.split(".")[-3:])


class Reader:
    """A collector of all types that are reachable from the served kinds."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self.definitions = definitions
        self.types: dict[str, dict[str, str]] = {}

    def notation(self, schema: dict[str, Any]) -> str:
        """Return one field's type in the compact notation."""
        reference = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", []) if "$ref" in part), "")
        if reference:
            return self.reference(reference.removeprefix(PREFIX))
        kinds = schema.get("type", "object")
        kind = next((k for k in kinds if k != "null"), "object") if isinstance(kinds, list) else kinds
        if kind == "array":
            return "[" + self.notation(schema["items"]) + self.marks(schema)
        if kind == "string":
            return "y" if schema.get("format") == "byte" else "s"
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            mark = "|atomic" if schema.get("x-kubernetes-map-type") == "atomic" else ""
            return "{" + self.notation(schema["additionalProperties"]) + mark
        return SCALARS[kind]

    def reference(self, name: str) -> str:
        """Collect a named type and return its reference for fields."""
        if name in PLAIN:
            return PLAIN[name]
        self.add(name)
        atomic = self.definitions[name].get("x-kubernetes-map-type") == "atomic"
        return "@" + short(name) + ("|atomic" if atomic else "")

    @staticmethod
    def marks(schema: dict[str, Any]) -> str:
        """Return the merge rules of a list, for strategic merge (`merge`) and for server-side apply (`map`, `set`)."""
        marks = ""
        strategy = schema.get("x-kubernetes-patch-strategy", "")
        if "merge" in strategy:
            marks += "|merge:" + schema.get("x-kubernetes-patch-merge-key", "")
        if "retainKeys" in strategy:
            marks += "|retain"
        keys = schema.get("x-kubernetes-list-map-keys")
        if keys:
            marks += "|map:" + ",".join(keys)
        elif schema.get("x-kubernetes-list-type") == "set":
            marks += "|set"
        return marks

    def add(self, name: str) -> None:
        """Collect a type once."""
        if short(name) in self.types:
            return
        fields: dict[str, str] = {}
        self.types[short(name)] = fields
        definition = self.definitions[name]
        needed = set(definition.get("required", []))
        for field, schema in sorted(definition.get("properties", {}).items()):
            strategy = "|retain" if schema.get("x-kubernetes-patch-strategy") == "retainKeys" else ""
            fields[field] = self.notation(schema) + strategy + ("!" if field in needed else "")


def main() -> None:
    """Write types.json next to this module."""
    definitions = json.loads(Path(sys.argv[1]).read_text())["$defs"]
    reader = Reader(definitions)
    by_kind: dict[str, str] = {}
    for name, definition in definitions.items():
        for gvk in definition.get("x-kubernetes-group-version-kind", []):
            group_version = f"{gvk['group']}/{gvk['version']}" if gvk["group"] else gvk["version"]
            by_kind.setdefault(f"{group_version}.{gvk['kind']}", name)
    gvks = [f"{kind.api_version}.{kind.kind}" for kind in builtin()] + list(ALSO)
    roots = {}
    for gvk in gvks:
        reader.add(by_kind[gvk])
        roots[gvk] = short(by_kind[gvk])
    lines = [f" {json.dumps(name)}: {json.dumps(fields)}" for name, fields in sorted(reader.types.items())]
    kinds = ",\n".join(f" {json.dumps(gvk)}: {json.dumps(name)}" for gvk, name in roots.items())
    text = '{"kinds": {\n' + kinds + '\n},\n"types": {\n' + ",\n".join(lines) + "\n}}\n"
    Path(__file__).with_name("types.json").write_text(text)


if __name__ == "__main__":
    main()
