"""Validation of volumes: a name, exactly one source, and the required fields of each source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import quantity
from ..errors import Cause, forbidden_field, invalid_value, required, unsupported
from . import fields, metadata

if TYPE_CHECKING:
    from ..values import Object

HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
NEEDS = {
    "hostPath": ("path",),
    "configMap": ("name",),
    "secret": ("secretName",),
    "persistentVolumeClaim": ("claimName",),
    "nfs": ("server", "path"),
    "csi": ("driver",),
}


def volumes(given: Any, field: str) -> list[Cause]:
    """Validate the volumes of a pod spec."""
    causes: list[Cause] = []
    names: set[str] = set()
    for index, volume in enumerate(given or []):
        at = f"{field}[{index}]"
        name = volume.get("name", "")
        sources = [key for key in volume if key != "name"]
        if not sources:
            causes.append(required(at, "must specify a volume type"))
        for extra in sources[1:]:
            causes.append(forbidden_field(f"{at}.{extra}", "may not specify more than 1 volume type"))
        if sources:
            causes += _source(sources[0], volume[sources[0]] or {}, f"{at}.{sources[0]}")
        causes += metadata.own_name(name, at, names)
    return causes


def _source(kind: str, source: Object, at: str) -> list[Cause]:
    causes = [required(f"{at}.{name}") for name in NEEDS.get(kind, ()) if not source.get(name)]
    if kind == "hostPath":
        path, type_ = source.get("path", ""), source.get("type", "")
        if ".." in path.split("/"):
            causes.append(invalid_value(f"{at}.path", path, "must not contain '..'"))
        if type_ not in HOST_PATH_TYPES:
            causes.append(unsupported(f"{at}.type", type_, HOST_PATH_TYPES))
    mode = source.get("defaultMode")
    if mode is not None and not 0 <= mode <= 0o777:
        text = "must be a number between 0 and 0777 (octal), both inclusive"
        causes.append(invalid_value(f"{at}.defaultMode", mode, text))
    if quantity.value(source.get("sizeLimit") or "0") < 0:
        causes.append(forbidden_field(f"{at}.sizeLimit", "SizeLimit field must be a valid resource quantity"))
    if kind in ("configMap", "secret"):
        causes += _items(source.get("items"), f"{at}.items")
    if kind == "downwardAPI":
        causes += _downward(source.get("items"), at)
    if kind == "projected":
        causes += _projected(source, at)
    return causes


def _items(given: Any, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(given or []):
        at = f"{field}[{index}]"
        if not item.get("key"):
            causes.append(required(f"{at}.key"))
        causes += _path(item.get("path", ""), f"{at}.path")
    return causes


def _path(path: str, at: str) -> list[Cause]:
    if not path:
        return [required(at)]
    if path.startswith("/"):
        return [invalid_value(at, path, "must be a relative path")]
    if ".." in path.split("/"):
        return [invalid_value(at, path, "must not contain '..'")]
    if path.startswith(".."):
        return [invalid_value(at, path, "must not start with '..'")]
    return []


def _downward(given: Any, at: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, item in enumerate(given or []):
        where = f"{at}[{index}]"
        if not item.get("path"):
            causes.append(required(f"{at}.path"))
        if item.get("fieldRef") is not None:
            causes += fields.field_reference(item["fieldRef"], f"{at}.fieldRef", fields.VOLUME)
        elif item.get("resourceFieldRef") is not None:
            causes += fields.resource_reference(item["resourceFieldRef"], f"{at}.resourceFieldRef", volume=True)
        else:
            causes.append(required(where, "one of fieldRef and resourceFieldRef is required"))
    return causes


def _projected(source: Object, at: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, part in enumerate(source.get("sources") or []):
        where = f"{at}.sources[{index}]"
        token = part.get("serviceAccountToken")
        if token is not None:
            if token.get("expirationSeconds", 3600) < 600:
                text = "may not specify a duration less than 10 minutes"
                causes.append(
                    invalid_value(f"{where}.serviceAccountToken.expirationSeconds", token["expirationSeconds"], text)
                )
            if not token.get("path"):
                causes.append(required(f"{where}.serviceAccountToken.path"))
        for kind in ("configMap", "secret"):
            if part.get(kind) is not None and not part[kind].get("name"):
                causes.append(required(f"{where}.{kind}.name"))
    return causes
