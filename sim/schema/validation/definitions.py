"""Is the CustomResourceDefinition well-formed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Cause, invalid_value, required, unsupported
from . import metadata

if TYPE_CHECKING:
    from ..values import Object


def definition(obj: Object) -> list[Cause]:
    """Judge a CustomResourceDefinition."""
    spec = obj.get("spec", {})
    names, group = spec.get("names", {}), spec.get("group", "")
    found: list[Cause] = []
    if obj["metadata"].get("name") != f"{names.get('plural', '')}.{group}":
        text = 'must be spec.names.plural+"."+spec.group'
        found.append(invalid_value("metadata.name", obj["metadata"].get("name", ""), text))
    if not group:
        found.append(required("spec.group"))
    elif "." not in group:
        found.append(invalid_value("spec.group", group, "should be a domain with at least one dot"))
    else:
        found += [invalid_value("spec.group", group, text) for text in metadata.dns_subdomain(group)]
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        found.append(unsupported("spec.scope", spec.get("scope", ""), ["Cluster", "Namespaced"]))
    versions = spec.get("versions") or []
    stored = [version for version in versions if version.get("storage")]
    if len(stored) != 1:
        found.append(
            invalid_value("spec.versions", versions, "must have exactly one version marked as storage version")
        )
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            found.append(required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required"))
    for name in ("plural", "kind"):
        if not names.get(name):
            found.append(required(f"spec.names.{name}"))
    return found
