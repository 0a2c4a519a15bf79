"""Table cells of nodes, events, Services, claims, bindings and other kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cells import NONE, age, age_of, name_of, pairs, selector

if TYPE_CHECKING:
    from .cells import Cells
    from .schema.values import Object


def node(obj: Object, now: float) -> list[Any]:
    """Print a row of nodes."""
    status, labels = obj.get("status", {}), obj["metadata"].get("labels") or {}
    states = [
        "Ready" if c["status"] == "True" else "NotReady" for c in status.get("conditions") or [] if c["type"] == "Ready"
    ]
    states = states or ["Unknown"]
    if obj.get("spec", {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = {label.removeprefix(prefix) for label in labels if label.startswith(prefix)}
    roles |= {value for label, value in labels.items() if label == "kubernetes.io/role" and value}
    addresses = {a["type"]: a["address"] for a in reversed(status.get("addresses") or [])}
    info = status.get("nodeInfo", {})
    system = [info.get(key) or "<unknown>" for key in ("osImage", "kernelVersion", "containerRuntimeVersion")]
    wide = [addresses.get("InternalIP", NONE), addresses.get("ExternalIP", NONE), *system]
    return [
        name_of(obj),
        ",".join(states),
        ",".join(sorted(roles)) or NONE,
        age_of(obj, now),
        info.get("kubeletVersion", ""),
        *wide,
    ]


def namespace(obj: Object, now: float) -> list[Any]:
    """Print a row of namespaces."""
    return [name_of(obj), obj.get("status", {}).get("phase", ""), age_of(obj, now)]


def event(obj: Object, now: float) -> list[Any]:
    """Print a row of events."""
    about, source = obj.get("involvedObject", {}), obj.get("source", {})
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    series = obj.get("series") or {}
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    count = series.get("count") or obj.get("count") or 1
    seen = age(last, now)
    target = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    by = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance")
    by = f"{by}, {host}" if host else by
    text = obj.get("message", "").strip()
    return [
        seen,
        obj.get("type", ""),
        obj.get("reason", ""),
        target,
        about.get("fieldPath", ""),
        by,
        text,
        age(first, now),
        count,
        name_of(obj),
    ]


def _ports(ports: Any) -> str:
    shown = []
    for port in ports or []:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port['port']}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


def service(obj: Object, now: float) -> list[Any]:
    """Print a row of services."""
    spec = obj["spec"]
    outside = ",".join(spec.get("externalIPs") or [])
    if spec.get("type") == "ExternalName":
        outside = spec.get("externalName", "")
    elif spec.get("type") == "LoadBalancer":
        given = [
            i.get("ip") or i.get("hostname")
            for i in (obj.get("status", {}).get("loadBalancer") or {}).get("ingress") or []
        ]
        outside = ",".join([*given, *(spec.get("externalIPs") or [])]) or "<pending>"
    address = spec.get("clusterIP") or NONE
    return [
        name_of(obj),
        spec.get("type", ""),
        address,
        outside or NONE,
        _ports(spec.get("ports")),
        age_of(obj, now),
        pairs(spec.get("selector")),
    ]


def endpoints(obj: Object, now: float) -> list[Any]:
    """Print a row of endpointss."""
    found: list[str] = []
    for subset in obj.get("subsets") or []:
        addresses = [a["ip"] for a in subset.get("addresses") or []]
        ports = subset.get("ports") or []
        found += [f"{ip}:{port['port']}" for port in ports for ip in addresses] if ports else addresses
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return [name_of(obj), (",".join(found[:3]) + more) or NONE, age_of(obj, now)]


def endpoint_slice(obj: Object, now: float) -> list[Any]:
    """Print a row of endpoint slices."""
    ports = [str(port.get("port", "*")) for port in obj.get("ports") or []]
    addresses = [address for endpoint in obj.get("endpoints") or [] for address in endpoint.get("addresses") or []]
    shown = [
        ",".join(items[:3]) + (f" + {len(items) - 3} more..." if len(items) > 3 else "") or "<unset>"
        for items in (ports, addresses)
    ]
    return [name_of(obj), obj.get("addressType", ""), *shown, age_of(obj, now)]


def config_map(obj: Object, now: float) -> list[Any]:
    """Print a row of config maps."""
    return [name_of(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age_of(obj, now)]


def secret(obj: Object, now: float) -> list[Any]:
    """Print a row of secrets."""
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or {}), age_of(obj, now)]


def service_account(obj: Object, now: float) -> list[Any]:
    """Print a row of service accounts."""
    return [name_of(obj), len(obj.get("secrets") or []), age_of(obj, now)]


def quota(obj: Object, now: float) -> list[Any]:
    """Print a row of quotas."""
    hard, used = obj.get("status", {}).get("hard") or {}, obj.get("status", {}).get("used") or {}
    shown = {name: f"{name}: {used.get(name, '0')}/{amount}" for name, amount in sorted(hard.items())}
    limits = [text for name, text in shown.items() if name.startswith("limits.")]
    others = [text for name, text in shown.items() if not name.startswith("limits.")]
    return [name_of(obj), ", ".join(others), ", ".join(limits), age_of(obj, now)]


def claim(obj: Object, now: float) -> list[Any]:
    """Print a row of claims."""
    spec, status = obj["spec"], obj.get("status", {})
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    modes = _modes(status.get("accessModes")) if spec.get("volumeName") else ""
    size = (status.get("capacity") or {}).get("storage", "") if spec.get("volumeName") else ""
    kind = spec.get("storageClassName") or ""
    attributes = spec.get("volumeAttributesClassName") or "<unset>"
    return [
        name_of(obj),
        phase,
        spec.get("volumeName", ""),
        size,
        modes,
        kind,
        attributes,
        age_of(obj, now),
        spec.get("volumeMode", "<unset>"),
    ]


def _modes(modes: Any) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short.get(mode, mode) for mode in modes or [])


def volume(obj: Object, now: float) -> list[Any]:
    """Print a row of volumes."""
    spec, status = obj["spec"], obj.get("status", {})
    reference = spec.get("claimRef") or {}
    claim = f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    size = (spec.get("capacity") or {}).get("storage", "")
    front = [
        name_of(obj),
        size,
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        claim,
    ]
    return [
        *front,
        spec.get("storageClassName", ""),
        "<unset>",
        status.get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode", "<unset>"),
    ]


def storage_class(obj: Object, now: float) -> list[Any]:
    """Print a row of storage classs."""
    annotations = obj["metadata"].get("annotations") or {}
    name = name_of(obj) + (
        " (default)" if annotations.get("storageclass.kubernetes.io/is-default-class") == "true" else ""
    )
    expands = bool(obj.get("allowVolumeExpansion", False))
    return [
        name,
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", ""),
        obj.get("volumeBindingMode", ""),
        expands,
        age_of(obj, now),
    ]


def stamped(obj: Object, now: float) -> list[Any]:
    """Print a name and when it was created."""
    del now
    return [name_of(obj), obj["metadata"].get("creationTimestamp", "")]


def binding(obj: Object, now: float) -> list[Any]:
    """Print a row of bindings."""
    reference = obj.get("roleRef", {})
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or []:
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        by_kind.setdefault(subject.get("kind", ""), []).append(name)
    wide = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name_of(obj), f"{reference.get('kind')}/{reference.get('name')}", age_of(obj, now), *wide]


def simple(*paths: str) -> Cells:
    """Return a function that prints the values at some paths."""

    def cells(obj: Object, now: float) -> list[Any]:
        found: list[Any] = [name_of(obj)]
        for path in paths:
            at: Any = obj
            for part in path.split("."):
                at = at.get(part) if isinstance(at, dict) else None
            found.append(at if at is not None else "")
        return [*found, age_of(obj, now)]

    return cells


def network_policy(obj: Object, now: float) -> list[Any]:
    """Print a row of network policys."""
    return [name_of(obj), selector(obj["spec"].get("podSelector")), age_of(obj, now)]


def priority_class(obj: Object, now: float) -> list[Any]:
    """Print a row of priority classs."""
    policy = obj.get("preemptionPolicy", "PreemptLowerPriority")
    return [name_of(obj), obj.get("value", 0), bool(obj.get("globalDefault", False)), age_of(obj, now), policy]


def budget(obj: Object, now: float) -> list[Any]:
    """Print a row of budgets."""
    spec = obj.get("spec", {})
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    shown = ["N/A" if amount is None else str(amount) for amount in (low, high)]
    return [name_of(obj), *shown, obj.get("status", {}).get("disruptionsAllowed", 0), age_of(obj, now)]
