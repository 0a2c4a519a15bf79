"""Table cells of nodes, namespaces, events, configuration, role bindings, quotas and budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cells import NONE, age, age_of, name_of

if TYPE_CHECKING:
    from .schema.values import Object


def node(obj: Object, now: float) -> list[Any]:
    """Format a table row of nodes."""
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
    """Format a table row of namespaces."""
    return [name_of(obj), obj.get("status", {}).get("phase", ""), age_of(obj, now)]


def event(obj: Object, now: float) -> list[Any]:
    """Format a table row of events."""
    about, source = obj.get("involvedObject", {}), obj.get("source", {})
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    series = obj.get("series") or {}
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    count = series.get("count") or obj.get("count") or 1
    last_seen = age(last, now)
    target = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    by = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance")
    by = f"{by}, {host}" if host else by
    text = obj.get("message", "").strip()
    return [
        last_seen,
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


def config_map(obj: Object, now: float) -> list[Any]:
    """Format a table row of config maps."""
    return [name_of(obj), len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age_of(obj, now)]


def secret(obj: Object, now: float) -> list[Any]:
    """Format a table row of secrets."""
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or {}), age_of(obj, now)]


def service_account(obj: Object, now: float) -> list[Any]:
    """Format a table row of service accounts."""
    return [name_of(obj), len(obj.get("secrets") or []), age_of(obj, now)]


def quota(obj: Object, now: float) -> list[Any]:
    """Format a table row of quotas."""
    hard, used = obj.get("status", {}).get("hard") or {}, obj.get("status", {}).get("used") or {}
    shown = {name: f"{name}: {used.get(name, '0')}/{amount}" for name, amount in sorted(hard.items())}
    limits = [text for name, text in shown.items() if name.startswith("limits.")]
    requests = [text for name, text in shown.items() if not name.startswith("limits.")]
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, now)]


def binding(obj: Object, now: float) -> list[Any]:
    """Format a table row of bindings."""
    reference = obj.get("roleRef", {})
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or []:
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        by_kind.setdefault(subject.get("kind", ""), []).append(name)
    wide = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name_of(obj), f"{reference.get('kind')}/{reference.get('name')}", age_of(obj, now), *wide]


def priority_class(obj: Object, now: float) -> list[Any]:
    """Format a table row of priority classes."""
    policy = obj.get("preemptionPolicy", "PreemptLowerPriority")
    return [name_of(obj), obj.get("value", 0), bool(obj.get("globalDefault", False)), age_of(obj, now), policy]


def budget(obj: Object, now: float) -> list[Any]:
    """Format a table row of budgets."""
    spec = obj.get("spec", {})
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    shown = ["N/A" if amount is None else str(amount) for amount in (low, high)]
    return [name_of(obj), *shown, obj.get("status", {}).get("disruptionsAllowed", 0), age_of(obj, now)]
