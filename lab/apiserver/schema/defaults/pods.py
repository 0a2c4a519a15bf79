"""Defaults of pods, pod templates, containers, probes and volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..values import Object

MODE = 420  # 0644


def pod(obj: Object) -> None:
    """Set the defaults of a Pod: those of a template, and those of a pod alone."""
    spec = obj.setdefault("spec", {})
    spec_defaults(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        resources = container.setdefault("resources", {})
        for name, limit in (resources.get("limits") or {}).items():
            requests = resources.get("requests")
            if requests is None:
                requests = resources["requests"] = {}
            requests.setdefault(name, limit)


def template(obj: Object) -> None:
    """Set the defaults of a PodTemplateSpec."""
    obj.setdefault("metadata", {})
    spec_defaults(obj.setdefault("spec", {}))


def spec_defaults(spec: Object) -> None:
    """Set the defaults of a PodSpec."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    host_network = bool(spec.get("hostNetwork"))
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(part) or []:
            _container(container, host_network=host_network)
    for volume in spec.get("volumes") or []:
        _volume(volume)
    for constraint in spec.get("topologySpreadConstraints") or []:
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")


def _container(container: Object, *, host_network: bool) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", pull_policy(container.get("image", "")))
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
        if host_network and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for variable in container.get("env") or []:
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
        resource = (variable.get("valueFrom") or {}).get("resourceFieldRef")
        if resource is not None:
            resource.setdefault("divisor", "0")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name) is not None:
            _probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _http(hook.get("httpGet"))


def pull_policy(image: str) -> str:
    """Return the default pull policy of an image: Always for :latest and for no tag."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "IfNotPresent" if tag and tag != "latest" else "Always"


def _probe(probe: Object) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    _http(probe.get("httpGet"))
    if probe.get("grpc") is not None:
        probe["grpc"].setdefault("service", "")


def _http(get: Any) -> None:
    if get is not None:
        get.setdefault("path", "/")
        get.setdefault("scheme", "HTTP")


def _volume(volume: Object) -> None:
    if not any(key != "name" for key in volume):
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if volume.get(source) is not None:
            volume[source].setdefault("defaultMode", MODE)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    for item in (volume.get("downwardAPI") or {}).get("items") or []:
        _downward(item)
    for source in (volume.get("projected") or {}).get("sources") or []:
        if source.get("serviceAccountToken") is not None:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or []:
            _downward(item)
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim is not None:
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _downward(item: Object) -> None:
    if item.get("fieldRef") is not None:
        item["fieldRef"].setdefault("apiVersion", "v1")
    if item.get("resourceFieldRef") is not None:
        item["resourceFieldRef"].setdefault("divisor", "0")
