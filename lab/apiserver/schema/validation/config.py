"""Validation of ConfigMaps and Secrets."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

from ..errors import Cause, forbidden_field, invalid_value, required, too_long
from . import metadata

if TYPE_CHECKING:
    from ..values import Object


_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")


KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


MAX_DATA = 1024 * 1024


FROZEN = "field is immutable when `immutable` is set"


SECRET_NEEDS: dict[str, tuple[str, ...]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def config_map(obj: Object) -> list[Cause]:
    """Validate a ConfigMap."""
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    causes: list[Cause] = []
    size = 0
    for key, value in data.items():
        causes += [invalid_value(f"data[{key}]", key, text) for text in _key(key)]
        if key in binary:
            causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(value.encode())
    for key, value in binary.items():
        causes += [invalid_value(f"binaryData[{key}]", key, text) for text in _key(key)]
        size += _size(value)
    if size > MAX_DATA:
        causes.append(too_long("[]", MAX_DATA))
    return causes


def config_map_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a ConfigMap."""
    return _frozen(old, new, ("data", "binaryData"))


def _key(key: str) -> list[str]:
    messages = [metadata.length(253)] if len(key) > 253 else []
    if not _KEY.match(key):
        messages.append(KEY_TEXT)
    if key == ".":
        messages.append("must not be '.'")
    elif key == "..":
        messages.append("must not be '..'")
    elif key.startswith(".."):
        messages.append("must not start with '..'")
    return messages


def _size(value: str) -> int:
    return len(base64.b64decode(value))


def secret(obj: Object) -> list[Cause]:
    """Validate a Secret."""
    data = obj.get("data") or {}
    causes: list[Cause] = []
    for key in data:
        causes += [invalid_value(f"data[{key}]", key, text) for text in _key(key)]
    if sum(_size(value) for value in data.values()) > MAX_DATA:
        causes.append(too_long("data", MAX_DATA))
    kind = obj.get("type", "")
    for key in SECRET_NEEDS.get(kind, ()):
        if key not in data:
            causes.append(required(f"data[{key}]"))
        elif key.startswith(".docker"):
            causes += _docker(key, data[key])
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        causes += [required("data[username]"), required("data[password]")]
    if kind == "kubernetes.io/service-account-token":
        name = "kubernetes.io/service-account.name"
        if not (obj["metadata"].get("annotations") or {}).get(name):
            causes.append(required(f"metadata.annotations[{name}]"))
    return causes


def secret_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a Secret."""
    causes = []
    if old.get("type") != new.get("type"):
        causes.append(invalid_value("type", new.get("type"), "field is immutable"))
    return causes + _frozen(old, new, ("data",))


def _docker(key: str, value: str) -> list[Cause]:
    text = base64.b64decode(value).decode(errors="replace")
    try:
        json.loads(text)
    except ValueError:
        first = text.strip()[:1]
        why = f"invalid character '{first}' looking for beginning of value" if first else "unexpected end of JSON input"
        return [invalid_value(f"data[{key}]", "<secret contents redacted>", why)]
    return []


def _frozen(old: Object, new: Object, parts: tuple[str, ...]) -> list[Cause]:
    if not old.get("immutable"):
        return []
    causes = [] if new.get("immutable") else [forbidden_field("immutable", FROZEN)]
    return causes + [forbidden_field(part, FROZEN) for part in parts if (old.get(part) or {}) != (new.get(part) or {})]
