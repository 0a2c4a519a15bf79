"""Which columns has each kind, and what stands in them?

As k8s.io/kubernetes pkg/printers/internalversion prints them: names, order, priorities (1 is `-o wide`) and texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..schema.values import epoch
from . import podcells

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..schema.values import Object

    Cells = Callable[[Object, float], list[Any]]

NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a Table."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


def layout(names: str, wide: str = "") -> list[Column]:
    """Return columns from their names; a colon adds a type."""
    found = []
    for text, priority in ((names, 0), (wide, 1)):
        for entry in filter(None, text.split("|")):
            name, _, kind = entry.partition(":")
            found.append(Column(name, kind or "string", priority))
    return found


def duration(seconds: float) -> str:
    """Write a duration as k8s.io/apimachinery duration.HumanDuration does."""
    if seconds < -1:
        return "<invalid>"
    total = max(int(seconds), 0)
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    return f"{years}y{days % 365}d" if years < 8 and days % 365 else f"{years}y"


def age(stamp: str | None, now: float) -> str:
    """Return how long ago a time was."""
    return duration(now - epoch(stamp)) if stamp else "<unknown>"


def _age(obj: Object, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def pairs(given: Object | None) -> str:
    """Write labels as k=v,k=v."""
    return ",".join(f"{key}={value}" for key, value in sorted((given or {}).items())) or NONE


def selector(given: Object | None) -> str:
    """Write a LabelSelector as text."""
    if given is None:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((given.get("matchLabels") or {}).items())]
    for expression in given.get("matchExpressions") or []:
        key, operator, values = expression["key"], expression["operator"], ",".join(expression.get("values") or [])
        words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}"}
        parts.append(words.get(operator, key))
    return ",".join(parts) or NONE


def _containers(spec: Object) -> tuple[str, str]:
    containers = spec.get("containers") or []
    return ",".join(c["name"] for c in containers), ",".join(c.get("image", "") for c in containers)


def _template(obj: Object) -> Object:
    found: Object = obj["spec"].get("template", {}).get("spec", {})
    return found


# -- workloads


def _job(obj: Object, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    conditions = {c["type"] for c in status.get("conditions") or [] if c.get("status") == "True"}
    order = (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"), ("SuccessCriteriaMet", "SuccessCriteriaMet"))
    state = next((word for condition, word in order if condition in conditions), "Running")
    if obj["metadata"].get("deletionTimestamp") and state == "Running":
        state = "Terminating"
    succeeded = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        done = f"{succeeded}/{spec['completions']}"
    else:
        width = spec.get("parallelism", 1)
        done = f"{succeeded}/1 of {width}" if width > 1 else f"{succeeded}/1"
    took = ""
    if status.get("startTime"):
        end = epoch(status["completionTime"]) if status.get("completionTime") else now
        took = duration(end - epoch(status["startTime"]))
    names, images = _containers(_template(obj))
    return [_name(obj), state, done, took, _age(obj, now), names, images, selector(spec.get("selector"))]


def _cron_job(obj: Object, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    names, images = _containers(spec["jobTemplate"]["spec"]["template"]["spec"])
    last = age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else NONE
    zone = spec.get("timeZone") or NONE
    active = len(status.get("active") or [])
    return [_name(obj), spec["schedule"], zone, "True" if spec.get("suspend") else "False", active, last, _age(obj, now), names, images, NONE]


def _deployment(obj: Object, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    names, images = _containers(_template(obj))
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [_name(obj), ready, *counts, _age(obj, now), names, images, selector(spec.get("selector"))]


def _replica_set(obj: Object, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    names, images = _containers(_template(obj))
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(obj), *counts, _age(obj, now), names, images, selector(spec.get("selector"))]


def _daemon_set(obj: Object, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    names, images = _containers(_template(obj))
    keys = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable")
    counts = [status.get(key, 0) for key in keys]
    node = pairs(_template(obj).get("nodeSelector"))
    return [_name(obj), *counts, node, _age(obj, now), names, images, selector(spec.get("selector"))]


def _stateful_set(obj: Object, now: float) -> list[Any]:
    names, images = _containers(_template(obj))
    ready = f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"
    return [_name(obj), ready, _age(obj, now), names, images]


# -- cluster


def _node(obj: Object, now: float) -> list[Any]:
    status, labels = obj.get("status", {}), obj["metadata"].get("labels") or {}
    states = ["Ready" if c["status"] == "True" else "NotReady" for c in status.get("conditions") or [] if c["type"] == "Ready"]
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
    return [_name(obj), ",".join(states), ",".join(sorted(roles)) or NONE, _age(obj, now), info.get("kubeletVersion", ""), *wide]


def _namespace(obj: Object, now: float) -> list[Any]:
    return [_name(obj), obj.get("status", {}).get("phase", ""), _age(obj, now)]


def _event(obj: Object, now: float) -> list[Any]:
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
    return [seen, obj.get("type", ""), obj.get("reason", ""), target, about.get("fieldPath", ""), by, text, age(first, now), count, _name(obj)]


# -- network and configuration


def _ports(ports: Any) -> str:
    shown = []
    for port in ports or []:
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port['port']}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


def _service(obj: Object, now: float) -> list[Any]:
    spec = obj["spec"]
    outside = ",".join(spec.get("externalIPs") or [])
    if spec.get("type") == "ExternalName":
        outside = spec.get("externalName", "")
    elif spec.get("type") == "LoadBalancer":
        given = [i.get("ip") or i.get("hostname") for i in (obj.get("status", {}).get("loadBalancer") or {}).get("ingress") or []]
        outside = ",".join([*given, *(spec.get("externalIPs") or [])]) or "<pending>"
    address = spec.get("clusterIP") or NONE
    return [_name(obj), spec.get("type", ""), address, outside or NONE, _ports(spec.get("ports")), _age(obj, now), pairs(spec.get("selector"))]


def _endpoints(obj: Object, now: float) -> list[Any]:
    found = []
    for subset in obj.get("subsets") or []:
        addresses = [a["ip"] for a in subset.get("addresses") or []]
        ports = subset.get("ports") or []
        found += [f"{ip}:{port['port']}" for port in ports for ip in addresses] if ports else addresses
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return [_name(obj), (",".join(found[:3]) + more) or NONE, _age(obj, now)]


def _endpoint_slice(obj: Object, now: float) -> list[Any]:
    ports = [str(port.get("port", "*")) for port in obj.get("ports") or []]
    addresses = [address for endpoint in obj.get("endpoints") or [] for address in endpoint.get("addresses") or []]
    shown = [",".join(items[:3]) + (f" + {len(items) - 3} more..." if len(items) > 3 else "") or "<unset>" for items in (ports, addresses)]
    return [_name(obj), obj.get("addressType", ""), *shown, _age(obj, now)]


def _config_map(obj: Object, now: float) -> list[Any]:
    return [_name(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj, now)]


def _secret(obj: Object, now: float) -> list[Any]:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or {}), _age(obj, now)]


def _service_account(obj: Object, now: float) -> list[Any]:
    return [_name(obj), len(obj.get("secrets") or []), _age(obj, now)]


def _quota(obj: Object, now: float) -> list[Any]:
    hard, used = obj.get("status", {}).get("hard") or {}, obj.get("status", {}).get("used") or {}
    shown = {name: f"{name}: {used.get(name, '0')}/{amount}" for name, amount in sorted(hard.items())}
    limits = [text for name, text in shown.items() if name.startswith("limits.")]
    others = [text for name, text in shown.items() if not name.startswith("limits.")]
    return [_name(obj), ", ".join(others), ", ".join(limits), _age(obj, now)]


def _claim(obj: Object, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    modes = _modes(status.get("accessModes")) if spec.get("volumeName") else ""
    size = (status.get("capacity") or {}).get("storage", "") if spec.get("volumeName") else ""
    kind = spec.get("storageClassName") or ""
    attributes = spec.get("volumeAttributesClassName") or "<unset>"
    return [_name(obj), phase, spec.get("volumeName", ""), size, modes, kind, attributes, _age(obj, now), spec.get("volumeMode", "<unset>")]


def _modes(modes: Any) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short.get(mode, mode) for mode in modes or [])


def _volume(obj: Object, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    reference = spec.get("claimRef") or {}
    claim = f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    size = (spec.get("capacity") or {}).get("storage", "")
    front = [_name(obj), size, _modes(spec.get("accessModes")), spec.get("persistentVolumeReclaimPolicy", ""), phase, claim]
    return [*front, spec.get("storageClassName", ""), "<unset>", status.get("reason", ""), _age(obj, now), spec.get("volumeMode", "<unset>")]


def _storage_class(obj: Object, now: float) -> list[Any]:
    annotations = obj["metadata"].get("annotations") or {}
    name = _name(obj) + (" (default)" if annotations.get("storageclass.kubernetes.io/is-default-class") == "true" else "")
    expands = bool(obj.get("allowVolumeExpansion", False))
    return [name, obj.get("provisioner", ""), obj.get("reclaimPolicy", ""), obj.get("volumeBindingMode", ""), expands, _age(obj, now)]


def _stamped(obj: Object, now: float) -> list[Any]:
    del now
    return [_name(obj), obj["metadata"].get("creationTimestamp", "")]


def _binding(obj: Object, now: float) -> list[Any]:
    reference = obj.get("roleRef", {})
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or []:
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        by_kind.setdefault(subject.get("kind", ""), []).append(name)
    wide = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [_name(obj), f"{reference.get('kind')}/{reference.get('name')}", _age(obj, now), *wide]


def _simple(*paths: str) -> Cells:
    def cells(obj: Object, now: float) -> list[Any]:
        found: list[Any] = [_name(obj)]
        for path in paths:
            at: Any = obj
            for part in path.split("."):
                at = at.get(part) if isinstance(at, dict) else None
            found.append(at if at is not None else "")
        return [*found, _age(obj, now)]

    return cells


def _network_policy(obj: Object, now: float) -> list[Any]:
    return [_name(obj), selector(obj["spec"].get("podSelector")), _age(obj, now)]


def _priority_class(obj: Object, now: float) -> list[Any]:
    policy = obj.get("preemptionPolicy", "PreemptLowerPriority")
    return [_name(obj), obj.get("value", 0), bool(obj.get("globalDefault", False)), _age(obj, now), policy]


def _budget(obj: Object, now: float) -> list[Any]:
    spec = obj.get("spec", {})
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    shown = ["N/A" if amount is None else str(amount) for amount in (low, high)]
    return [_name(obj), *shown, obj.get("status", {}).get("disruptionsAllowed", 0), _age(obj, now)]


COLUMNS: dict[str, tuple[Sequence[Column], Cells]] = {
    "pods": (layout("Name|Ready|Status|Restarts|Age", "IP|Node|Nominated Node|Readiness Gates"), podcells.cells(age)),
    "jobs.batch": (layout("Name|Status|Completions|Duration|Age", "Containers|Images|Selector"), _job),
    "cronjobs.batch": (
        layout("Name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age", "Containers|Images|Selector"),
        _cron_job,
    ),
    "deployments.apps": (layout("Name|Ready|Up-to-date|Available|Age", "Containers|Images|Selector"), _deployment),
    "replicasets.apps": (
        layout("Name|Desired:integer|Current:integer|Ready:integer|Age", "Containers|Images|Selector"),
        _replica_set,
    ),
    "replicationcontrollers": (
        layout("Name|Desired:integer|Current:integer|Ready:integer|Age", "Containers|Images|Selector"),
        _replica_set,
    ),
    "daemonsets.apps": (
        layout(
            "Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector|Age",
            "Containers|Images|Selector",
        ),
        _daemon_set,
    ),
    "statefulsets.apps": (layout("Name|Ready|Age", "Containers|Images"), _stateful_set),
    "nodes": (
        layout("Name|Status|Roles|Age|Version", "Internal-IP|External-IP|OS-Image|Kernel-Version|Container-Runtime"),
        _node,
    ),
    "namespaces": (layout("Name|Status|Age"), _namespace),
    "events": (
        [
            *layout("Last Seen|Type|Reason|Object"),
            *layout("", "Subobject|Source"),
            *layout("Message"),
            *layout("", "First Seen|Count|Name"),
        ],
        _event,
    ),
    "services": (layout("Name|Type|Cluster-IP|External-IP|Port(s)|Age", "Selector"), _service),
    "endpoints": (layout("Name|Endpoints|Age"), _endpoints),
    "endpointslices.discovery.k8s.io": (layout("Name|AddressType|Ports|Endpoints|Age"), _endpoint_slice),
    "configmaps": (layout("Name|Data|Age"), _config_map),
    "secrets": (layout("Name|Type|Data|Age"), _secret),
    "serviceaccounts": (layout("Name|Secrets|Age"), _service_account),
    "resourcequotas": (layout("Name|Request|Limit|Age"), _quota),
    "limitranges": (layout("Name|Created At"), _stamped),
    "persistentvolumeclaims": (
        layout("Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age", "VolumeMode"),
        _claim,
    ),
    "persistentvolumes": (
        layout(
            "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age",
            "VolumeMode",
        ),
        _volume,
    ),
    "storageclasses.storage.k8s.io": (
        layout("Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age"),
        _storage_class,
    ),
    "roles.rbac.authorization.k8s.io": (layout("Name|Created At"), _stamped),
    "clusterroles.rbac.authorization.k8s.io": (layout("Name|Created At"), _stamped),
    "rolebindings.rbac.authorization.k8s.io": (layout("Name|Role|Age", "Users|Groups|ServiceAccounts"), _binding),
    "clusterrolebindings.rbac.authorization.k8s.io": (layout("Name|Role|Age", "Users|Groups|ServiceAccounts"), _binding),
    "customresourcedefinitions.apiextensions.k8s.io": (layout("Name|Created At"), _stamped),
    "leases.coordination.k8s.io": (layout("Name|Holder|Age"), _simple("spec.holderIdentity")),
    "runtimeclasses.node.k8s.io": (layout("Name|Handler|Age"), _simple("handler")),
    "priorityclasses.scheduling.k8s.io": (
        [*layout("Name|Value:integer|Global-Default:boolean|Age"), Column("PreemptionPolicy")],
        _priority_class,
    ),
    "networkpolicies.networking.k8s.io": (layout("Name|Pod-Selector|Age"), _network_policy),
    "poddisruptionbudgets.policy": (
        layout("Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age"),
        _budget,
    ),
}
DEFAULT: tuple[Sequence[Column], Cells] = (layout("Name|Age"), _simple())
