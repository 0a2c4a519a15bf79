"""CustomResourceDefinitions: their status, the kinds that they serve, defaults of their objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .kinds import OBJECT_VERBS, Kind, Subresource
from .values import clone, rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .values import Object

KEY = "customresourcedefinitions.apiextensions.k8s.io"


def kinds(definition: Object) -> Iterator[Kind]:
    """Yield a kind for each served version, the stored one first."""
    spec = definition["spec"]
    names = spec["names"]
    versions = sorted((v for v in spec["versions"] if v.get("served")), key=lambda v: not v.get("storage"))
    for version in versions:
        subresources = []
        given = version.get("subresources") or {}
        if given.get("status") is not None:
            subresources.append(Subresource("status", names["kind"], OBJECT_VERBS))
        if given.get("scale") is not None:
            subresources.append(Subresource("scale", "Scale", OBJECT_VERBS, "autoscaling", "v1"))
        yield Kind(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            tuple(subresources),
            singular=names.get("singular", ""),
            list_kind=names.get("listKind", ""),
            schema=(version.get("schema") or {}).get("openAPIV3Schema"),
            columns=tuple(version.get("additionalPrinterColumns") or ()),
            custom=True,
        )


def established(definition: Object, seconds: float) -> Object:
    """Return the status of a definition whose names are accepted."""
    spec = definition["spec"]
    time = rfc3339(seconds)
    stored = next(version["name"] for version in spec["versions"] if version.get("storage"))
    known = definition.get("status", {}).get("storedVersions") or []
    conditions = [
        {
            "type": "NamesAccepted",
            "status": "True",
            "lastTransitionTime": time,
            "reason": "NoConflicts",
            "message": "no conflicts found",
        },
        {
            "type": "Established",
            "status": "True",
            "lastTransitionTime": time,
            "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
        },
    ]
    versions = [*known, stored] if stored not in known else known
    return {"conditions": conditions, "acceptedNames": clone(spec["names"]), "storedVersions": versions}


def fill(kind: Kind, obj: Object) -> None:
    """Set the defaults of a custom kind's schema, in place."""
    _fill(obj, kind.schema or {})


def _fill(value: Any, schema: Any) -> None:
    if not isinstance(schema, dict):
        return
    if isinstance(value, list):
        for item in value:
            _fill(item, schema.get("items"))
    elif isinstance(value, dict):
        for key, part in (schema.get("properties") or {}).items():
            if isinstance(part, dict) and "default" in part and value.get(key) is None:
                value[key] = clone(part["default"])
            if key in value:
                _fill(value[key], part)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            for key, item in value.items():
                if key not in (schema.get("properties") or {}):
                    _fill(item, extra)
