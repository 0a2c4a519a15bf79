"""Validation of fieldRef and resourceFieldRef in environment and downward volumes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import Cause, invalid_value, required, unsupported

if TYPE_CHECKING:
    from ..values import Object

ENVIRONMENT = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
VOLUME = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
CONVERTIBLE = {
    *ENVIRONMENT,
    *VOLUME,
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.hostNetwork",
    "status.phase",
    "status.nominatedNodeName",
}
_SUBSCRIPT = re.compile(r"^(metadata\.(?:labels|annotations))\['(.*)'\]$")
RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)


def field_reference(reference: Object, at: str, allowed: tuple[str, ...]) -> list[Cause]:
    """Validate a fieldRef."""
    path = reference.get("fieldPath", "")
    if not path:
        return [required(f"{at}.fieldPath")]
    if _SUBSCRIPT.match(path):
        return []
    if path not in CONVERTIBLE:
        text = f"error converting fieldPath: field label not supported: {path}"
        return [invalid_value(f"{at}.fieldPath", path, text)]
    if path not in allowed:
        return [unsupported(f"{at}.fieldPath", path, sorted(allowed))]
    return []


def resource_reference(reference: Object, at: str, *, volume: bool) -> list[Cause]:
    """Validate a resourceFieldRef."""
    causes = []
    if volume and not reference.get("containerName"):
        causes.append(required(f"{at}.containerName"))
    resource = reference.get("resource", "")
    if not resource:
        causes.append(required(f"{at}.resource"))
    elif resource not in RESOURCES and not re.match(r"^(limits|requests)\.hugepages-", resource):
        causes.append(unsupported(f"{at}.resource", resource, RESOURCES))
    return causes
