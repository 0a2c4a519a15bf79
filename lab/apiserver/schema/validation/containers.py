"""Validation of containers: names, images, ports, environment, mounts, resources, probes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import Cause, duplicate, forbidden_field, invalid_value, not_found_field, required, unsupported
from . import fields, metadata, resources, security

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..values import Object

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
MESSAGE_POLICIES = ("FallbackToLogsOnError", "File")
PROTOCOLS = ("SCTP", "TCP", "UDP")
_PORT_NAME = re.compile(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")


def containers(spec: Object, field: str, volumes: Collection[Any]) -> list[Cause]:
    """Validate the containers of a pod spec."""
    causes: list[Cause] = []
    names: set[str] = set()
    regular = spec.get("containers") or []
    if not regular:
        causes.append(required(f"{field}.containers"))
    host_network = bool(spec.get("hostNetwork"))
    for part, items in (("containers", regular), ("initContainers", spec.get("initContainers") or [])):
        for index, container in enumerate(items):
            at = f"{field}.{part}[{index}]"
            causes += _container(container, at, names, volumes, host_network=host_network)
            if part == "initContainers":
                causes += _init(container, at)
    return causes


def _container(
    container: Object, at: str, names: set[str], volumes: Collection[Any], *, host_network: bool
) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name", "")
    causes += metadata.own_name(name, at, names)
    image = container.get("image", "")
    if not image:
        causes.append(required(f"{at}.image"))
    elif image != image.strip():
        causes.append(invalid_value(f"{at}.image", image, "must not have leading or trailing whitespace"))
    causes += _ports(container.get("ports"), f"{at}.ports", host_network=host_network)
    causes += environment(container, at)
    causes += _mounts(container.get("volumeMounts"), f"{at}.volumeMounts", volumes)
    policy = container.get("imagePullPolicy", "")
    if policy not in PULL_POLICIES:
        causes.append(unsupported(f"{at}.imagePullPolicy", policy, PULL_POLICIES))
    causes += resources.requirements(container.get("resources") or {}, f"{at}.resources")
    policy = container.get("terminationMessagePolicy", "")
    if policy not in MESSAGE_POLICIES:
        causes.append(unsupported(f"{at}.terminationMessagePolicy", policy, MESSAGE_POLICIES))
    causes += security.of_container(container.get("securityContext"), f"{at}.securityContext")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe) is not None:
            causes += _probe(container[probe], f"{at}.{probe}", liveness=probe != "readinessProbe")
    return causes


def _init(container: Object, at: str) -> list[Cause]:
    if container.get("restartPolicy") == "Always":
        return []  # a sidecar: probes and hooks are allowed
    causes = []
    policy = container.get("restartPolicy")
    if policy and policy not in ("Always", "Never", "OnFailure"):
        causes.append(unsupported(f"{at}.restartPolicy", policy, ["Always"]))
    for name in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name) is not None:
            causes.append(
                forbidden_field(f"{at}.{name}", "may not be set for init containers without restartPolicy=Always")
            )
    return causes


def port_range(value: Any) -> str:
    """Return the error message for an invalid port number, or ""."""
    good = isinstance(value, int) and 1 <= value <= 65535
    return "" if good else "must be between 1 and 65535, inclusive"


def port_name(value: str) -> list[str]:
    """Return the error message for an invalid port name (IANA service name)."""
    messages = []
    if len(value) > 15:
        messages.append("must be no more than 15 characters")
    if not _PORT_NAME.match(value):
        messages.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", value):
        messages.append("must contain at least one letter (a-z)")
    if "--" in value:
        messages.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        messages.append("must not begin or end with a hyphen")
    return messages


def _ports(given: Any, field: str, *, host_network: bool) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(given or []):
        at = f"{field}[{index}]"
        name = port.get("name")
        if name:
            causes += [invalid_value(f"{at}.name", name, text) for text in port_name(name)]
            if name in names:
                causes.append(duplicate(f"{at}.name", name))
            names.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            causes.append(required(f"{at}.containerPort"))
        elif wrong := port_range(number):
            causes.append(invalid_value(f"{at}.containerPort", number, wrong))
        host = port.get("hostPort", 0)
        if host and (wrong := port_range(host)):
            causes.append(invalid_value(f"{at}.hostPort", host, wrong))
        if host_network and host != number:
            causes.append(
                invalid_value(f"{at}.hostPort", host, "must match `containerPort` when `hostNetwork` is true")
            )
        protocol = port.get("protocol", "")
        if not protocol:
            causes.append(required(f"{at}.protocol"))
        elif protocol not in PROTOCOLS:
            causes.append(unsupported(f"{at}.protocol", protocol, PROTOCOLS))
    return causes


ENV_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def environment(container: Object, at: str) -> list[Cause]:
    """Validate env and envFrom."""
    causes: list[Cause] = []
    for index, variable in enumerate(container.get("env") or []):
        where = f"{at}.env[{index}]"
        name = variable.get("name", "")
        if not name:
            causes.append(required(f"{where}.name"))
        elif "=" in name or not all(32 <= ord(c) < 127 for c in name):
            causes.append(invalid_value(f"{where}.name", name, ENV_TEXT))
        source = variable.get("valueFrom")
        if source is not None:
            causes += _source(variable, source, f"{where}.valueFrom")
    for index, source in enumerate(container.get("envFrom") or []):
        where = f"{at}.envFrom[{index}]"
        kinds = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        if not kinds:
            causes.append(invalid_value(where, "", "must specify one of: `configMapRef` or `secretRef`"))
        if len(kinds) > 1:
            causes.append(invalid_value(where, "", "may not have more than one field specified at a time"))
        causes += [required(f"{where}.{kind}.name") for kind in kinds if not source[kind].get("name")]
    return causes


def _source(variable: Object, source: Object, where: str) -> list[Cause]:
    causes: list[Cause] = []
    kinds = [kind for kind in SOURCES if source.get(kind) is not None]
    if variable.get("value"):
        causes.append(invalid_value(where, "", "may not be specified when `value` is not empty"))
    if not kinds:
        text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        causes.append(invalid_value(where, "", text))
    elif len(kinds) > 1:
        causes.append(invalid_value(where, "", "may not have more than one field specified at a time"))
    if source.get("fieldRef") is not None:
        causes += fields.field_reference(source["fieldRef"], f"{where}.fieldRef", fields.ENVIRONMENT)
    if source.get("resourceFieldRef") is not None:
        causes += fields.resource_reference(source["resourceFieldRef"], f"{where}.resourceFieldRef", volume=False)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        reference = source.get(kind)
        if reference is not None:
            if not reference.get("name"):
                causes.append(required(f"{where}.{kind}.name"))
            if not reference.get("key"):
                causes.append(required(f"{where}.{kind}.key"))
    return causes


def _mounts(given: Any, field: str, volumes: Collection[Any]) -> list[Cause]:
    causes: list[Cause] = []
    paths: set[str] = set()
    for index, mount in enumerate(given or []):
        at = f"{field}[{index}]"
        name, path = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            causes.append(required(f"{at}.name"))
        elif name not in volumes:
            causes.append(not_found_field(f"{at}.name", name))
        if not path:
            causes.append(required(f"{at}.mountPath"))
        elif path in paths:
            causes.append(invalid_value(f"{at}.mountPath", path, "must be unique"))
        paths.add(path)
        sub = mount.get("subPath", "")
        if sub.startswith("/"):
            causes.append(invalid_value(f"{at}.subPath", sub, "must be a relative path"))
        elif ".." in sub.split("/"):
            causes.append(invalid_value(f"{at}.subPath", sub, "must not contain '..'"))
    return causes


def _probe(probe: Object, at: str, *, liveness: bool) -> list[Cause]:
    causes: list[Cause] = []
    handlers = [name for name in ("exec", "httpGet", "tcpSocket", "grpc") if probe.get(name) is not None]
    if not handlers:
        causes.append(required(at, "must specify a handler type"))
    causes += [forbidden_field(f"{at}.{name}", "may not specify more than 1 handler type") for name in handlers[1:]]
    if "exec" in handlers and not probe["exec"].get("command"):
        causes.append(required(f"{at}.exec.command"))
    for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        value = probe.get(name)
        if value is not None and value < 0:
            causes.append(invalid_value(f"{at}.{name}", value, "must be greater than or equal to 0"))
    if liveness and probe.get("successThreshold", 1) != 1:
        causes.append(invalid_value(f"{at}.successThreshold", probe["successThreshold"], "must be 1"))
    return causes
