"""URLs: the verb, the resource, the name and the namespace of a request (RequestInfo).

The rules are those of k8s.io/apiserver `request.RequestInfoFactory`; a path without a resource is kept unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .access import Attributes

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}
NAMESPACE_PARTS = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class Route:
    """The parsed path of a request."""

    method: str
    path: str
    verb: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""  # the path after the subresource (of a proxy)

    @property
    def is_resource(self) -> bool:
        """Whether the path is that of a resource."""
        return bool(self.resource)

    def attributes(self) -> Attributes:
        """Return the attributes for the authorizer."""
        if not self.is_resource:
            return Attributes(self.verb, path=self.path)
        return Attributes(self.verb, self.group, self.resource, self.subresource, self.namespace, self.name)


def is_true(value: str | None) -> bool:
    """Parse a boolean query parameter as Go's strconv.ParseBool does (a bare `?watch` counts as true)."""
    return value is not None and value.lower() in ("", "1", "t", "true")


def route(method: str, path: str, query: Mapping[str, str]) -> Route:
    """Parse a request line."""
    parts = [part for part in path.split("/") if part]
    plain = Route(method, path, _VERBS.get(method, method.lower()))
    if len(parts) >= 2 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return plain
    watching = bool(rest) and rest[0] == "watch"
    if watching:
        rest = rest[1:]
    if not rest:
        return Route(method, path, plain.verb, group, version)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in NAMESPACE_PARTS:
            rest = rest[2:]
    resource, name, subresource, *more = (*rest, "", "")[: max(len(rest), 3)]
    if not name:
        if plain.verb == "get":
            verb = "watch" if watching or is_true(query.get("watch")) else "list"
        else:
            verb = "deletecollection" if plain.verb == "delete" else plain.verb
    else:
        verb = "watch" if watching else plain.verb
    return Route(
        method,
        path,
        verb,
        group,
        version,
        namespace,
        resource,
        name,
        subresource,
        "/".join(part for part in more if part),
    )
