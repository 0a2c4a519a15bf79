"""Discovery: /api, /apis and the resource lists, plain and aggregated, and /version.

kubectl and client-go request the aggregated form (apidiscovery.k8s.io), older clients each group separately.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .schema.kinds import Kind, Kinds, Subresource

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"


def version_info(version: str) -> dict[str, Any]:
    """Return the body of /version for a version like v1.36.2."""
    major, minor, *_ = version.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": version,
        "gitCommit": hashlib.sha256(version.encode()).hexdigest()[:40],
        "gitTreeState": "clean",
        "buildDate": "2026-07-01T00:00:00Z",
        "goVersion": "go1.26.6",
        "compiler": "gc",
        "platform": "linux/amd64",
    }


def core_versions(server: str) -> dict[str, Any]:
    """Return the body of /api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}],
    }


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(kinds: Kinds) -> dict[str, Any]:
    """Return the body of /apis."""
    groups = [_group(name, list(versions)) for name, versions in kinds.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def one_group(kinds: Kinds, name: str) -> dict[str, Any] | None:
    """Return the body of /apis/GROUP, or None."""
    versions = kinds.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, list(versions))} if versions and name else None


def resource_list(kinds: Kinds, group: str, version: str) -> dict[str, Any] | None:
    """Return the body of /api/v1 or /apis/GROUP/VERSION, or None."""
    served = kinds.groups().get(group, {}).get(version)
    if not served:
        return None
    resources: list[dict[str, Any]] = []
    for kind in sorted(served, key=lambda kind: kind.plural):
        resources.append(_resource(kind))
        resources.extend(_subresource(kind, sub) for sub in sorted(kind.subresources, key=lambda sub: sub.name))
    body: dict[str, Any] = {"kind": "APIResourceList"}
    if group:
        body["apiVersion"] = "v1"
    return {**body, "groupVersion": f"{group}/{version}" if group else version, "resources": resources}


def _resource(kind: Kind) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular_name,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if "list" in kind.verbs:
        digest = hashlib.sha256(f"{kind.group}/{kind.version}/{kind.kind}".encode()).digest()
        entry["storageVersionHash"] = base64.b64encode(digest[:8]).decode()
    return entry


def _subresource(kind: Kind, sub: Subresource) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": f"{kind.plural}/{sub.name}", "singularName": "", "namespaced": kind.namespaced}
    if sub.group:
        entry["group"] = sub.group
        entry["version"] = sub.version
    entry["kind"] = sub.kind
    entry["verbs"] = list(sub.verbs)
    return entry


def wants_aggregated(accept: str) -> str:
    """Return the version of aggregated discovery that an Accept header lists first, or ""."""
    for clause in accept.split(","):
        parameters = {word.strip() for word in clause.split(";")}
        if "as=APIGroupDiscoveryList" in parameters and "g=apidiscovery.k8s.io" in parameters:
            for version in ("v2", "v2beta1"):
                if f"v={version}" in parameters:
                    return version
        elif clause.strip().startswith("application/json"):
            return ""
    return ""


def aggregated(kinds: Kinds, version: str, *, core: bool) -> tuple[bytes, str]:
    """Return (body, etag) of the aggregated document for /api (core) or /apis."""
    items = []
    for group, versions in kinds.groups().items():
        if (group == "") != core:
            continue
        entries = [
            {
                "version": name,
                "resources": [_discovered(kind) for kind in sorted(served, key=lambda k: k.plural)],
                "freshness": "Current",
            }
            for name, served in versions.items()
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": entries})
    document = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }
    body = json.dumps(document, separators=(",", ":")).encode()
    return body, '"' + hashlib.sha512(body).hexdigest().upper() + '"'


def _discovered(kind: Kind) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {
            "group": kind.group if kind.custom else "",
            "version": kind.version if kind.custom else "",
            "kind": kind.kind,
        },
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular_name,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": list(sub.verbs),
            }
            for sub in sorted(kind.subresources, key=lambda sub: sub.name)
        ]
    return entry
