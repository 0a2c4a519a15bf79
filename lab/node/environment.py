"""The environment variables of a container.

Service links, then envFrom, then env, later ones winning; `$(NAME)` is expanded in values, command and args from
what is defined so far, `$$` escapes.  A missing ConfigMap or key is a `ConfigError` with the kubelet's text.
"""

from __future__ import annotations

import base64
import math
import re
from typing import TYPE_CHECKING, Any

from ..apiserver.schema.quantity import value as parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Object = dict[str, Any]
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]\Z")


class ConfigError(Exception):
    """The reason why a container waits with CreateContainerConfigError; str() is the waiting message."""


def expand(text: str, env: dict[str, str]) -> str:
    """Replace $(NAME) if NAME is defined; $$ is one dollar sign."""

    def one(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return env.get(match[1], match[0])

    return _REFERENCE.sub(one, text)


def config_data(obj: Object) -> dict[str, bytes]:
    """Return keys and contents of a ConfigMap or a Secret."""
    if obj.get("kind") == "Secret":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    contents = {key: value.encode() for key, value in (obj.get("data") or {}).items()}
    contents.update({key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()})
    return contents


def divided(quantity: str, divisor: str) -> int:
    """Return a quantity in units of `divisor`, rounded up, as the downward API shows it."""
    return math.ceil(parse(quantity) / (parse(divisor) or 1))


def field(pod: Object, path: str) -> str:
    """Return the value of a downward API field of a pod."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    match = _SUBSCRIPT.match(path)
    if match:
        return str((meta.get(match[1]) or {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        return "\n".join(f'{k}="{_escape(v)}"' for k, v in sorted((meta.get(path[9:]) or {}).items()))
    values = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName"),
        "status.podIP": status.get("podIP"),
        "status.hostIP": status.get("hostIP"),
        "status.podIPs": ",".join(ip["ip"] for ip in status.get("podIPs") or []),
        "status.hostIPs": ",".join(ip["ip"] for ip in status.get("hostIPs") or []),
    }
    return str(values.get(path) or "")


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource(pod: Object, container: Object, reference: Object, allocatable: Object) -> str:
    """Return the value of a resourceFieldRef; the default of a limit is the node's allocatable."""
    named = reference.get("containerName")
    if named:
        every = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
        container = next((c for c in every if c["name"] == named), container)
    kind, _, name = reference["resource"].partition(".")
    amounts = container.get("resources") or {}
    amount = (amounts.get(kind) or {}).get(name)
    if amount is None and kind == "limits":
        amount = allocatable.get(name, "0")
    return str(divided(amount or "0", reference.get("divisor") or "1"))


def service_links(services: Iterable[Object]) -> dict[str, str]:
    """Return the variables of services with a cluster address: NAME_SERVICE_HOST and the docker link ones."""
    env: dict[str, str] = {}
    for service in services:
        address, ports = service["spec"].get("clusterIP"), service["spec"].get("ports") or []
        if not address or address == "None" or not ports:
            continue
        name = service["metadata"]["name"].upper().replace("-", "_")
        first = ports[0]
        env[f"{name}_SERVICE_HOST"] = address
        env[f"{name}_SERVICE_PORT"] = str(first["port"])
        for port in ports:
            if port.get("name"):
                env[f"{name}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(port["port"])
        protocol = first.get("protocol", "TCP").lower()
        env[f"{name}_PORT"] = f"{protocol}://{address}:{first['port']}"
        for port in ports:
            protocol = port.get("protocol", "TCP").lower()
            prefix = f"{name}_PORT_{port['port']}_{protocol.upper()}"
            env[prefix] = f"{protocol}://{address}:{port['port']}"
            env[f"{prefix}_PROTO"], env[f"{prefix}_PORT"] = protocol, str(port["port"])
            env[f"{prefix}_ADDR"] = address
    return env


class Environment:
    """The environment of one container."""

    def __init__(
        self,
        pod: Object,
        container: Object,
        lookup: Callable[[str, str], Object | None],
        allocatable: Object,
        base: dict[str, str],
    ) -> None:
        self._pod, self._container, self._lookup, self._allocatable = pod, container, lookup, allocatable
        self.env = dict(base)

    def build(self) -> dict[str, str]:
        """Resolve envFrom and env; ConfigError with the kubelet's message."""
        for source in self._container.get("envFrom") or []:
            for key, value in self._from(source).items():
                self.env[source.get("prefix", "") + key] = value
        for variable in self._container.get("env") or []:
            resolved = self._value(variable)
            if resolved is not None:
                self.env[variable["name"]] = resolved
        return self.env

    def _from(self, source: Object) -> dict[str, str]:
        key, reference = (
            ("configmaps", source["configMapRef"])
            if source.get("configMapRef")
            else ("secrets", source.get("secretRef") or {})
        )
        obj = self._lookup(key, reference.get("name", ""))
        if obj is None:
            if reference.get("optional"):
                return {}
            raise ConfigError(f'{key[:-1]} "{reference.get("name", "")}" not found')
        return {k: v.decode(errors="replace") for k, v in config_data(obj).items()}

    def _value(self, variable: Object) -> str | None:
        source = variable.get("valueFrom")
        if not source:
            return expand(variable.get("value") or "", self.env)
        if "fieldRef" in source:
            return field(self._pod, source["fieldRef"]["fieldPath"])
        if "resourceFieldRef" in source:
            return resource(self._pod, self._container, source["resourceFieldRef"], self._allocatable)
        if "configMapKeyRef" in source:
            return self._key("configmaps", "ConfigMap", source["configMapKeyRef"])
        return self._key("secrets", "Secret", source.get("secretKeyRef") or {})

    def _key(self, key: str, kind: str, reference: Object) -> str | None:
        obj = self._lookup(key, reference.get("name", ""))
        if obj is None:
            if reference.get("optional"):
                return None
            raise ConfigError(f'{key[:-1]} "{reference.get("name", "")}" not found')
        data = config_data(obj)
        if reference["key"] not in data:
            if reference.get("optional"):
                return None
            where = f"{self._pod['metadata']['namespace']}/{reference.get('name', '')}"
            raise ConfigError(f"couldn't find key {reference['key']} in {kind} {where}")
        return data[reference["key"]].decode(errors="replace")
