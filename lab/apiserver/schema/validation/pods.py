"""Validation of pods: PodSpec, pod templates, and updates of pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import Cause, duplicate, forbidden_field, invalid_value, required, unsupported
from ..values import clone
from . import affinity, containers, metadata, security, volumes

if TYPE_CHECKING:
    from ..values import Object

DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
PREEMPTION = ("Never", "PreemptLowerPriority")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod(obj: Object) -> list[Cause]:
    """Validate a Pod."""
    return pod_spec(obj.get("spec", {}), "spec", host_names=True)


def new_pod(obj: Object) -> list[Cause]:
    """Validate that a new Pod has no fields that only the server may set."""
    given = (obj.get("spec") or {}).get("ephemeralContainers")
    return [forbidden_field("spec.ephemeralContainers", "cannot be set on create")] if given else []


def ephemeral_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of the ephemeral containers: they are added, never changed or removed."""
    causes = []
    now = {c.get("name"): c for c in new["spec"].get("ephemeralContainers") or []}
    for container in old["spec"].get("ephemeralContainers") or []:
        if now.get(container["name"]) != container:
            word = "changed" if container["name"] in now else "removed"
            text = f'existing ephemeral containers "{container["name"]}" may not be {word}\n'
            causes.append(forbidden_field("spec.ephemeralContainers", text))
    return causes


def template(obj: Object, field: str) -> list[Cause]:
    """Validate a PodTemplateSpec."""
    meta = obj.get("metadata", {})
    causes = metadata.labels(meta.get("labels"), f"{field}.labels")
    causes += metadata.annotation_map(meta.get("annotations"), f"{field}.annotations")
    return causes + pod_spec(obj.get("spec", {}), f"{field}.spec")


def pod_spec(spec: Object, field: str, *, host_names: bool = False) -> list[Cause]:
    """Validate a PodSpec."""
    causes = volumes.volumes(spec.get("volumes"), f"{field}.volumes")
    wrong = {cause.field.split("]")[0] for cause in causes}  # an invalid volume cannot be mounted
    known = {
        volume.get("name")
        for index, volume in enumerate(spec.get("volumes") or [])
        if f"{field}.volumes[{index}" not in wrong
    }
    causes += security.of_pod(spec.get("securityContext"), f"{field}.securityContext")
    causes += containers.containers(spec, field, known)
    causes += _policies(spec, field)
    causes += metadata.labels(spec.get("nodeSelector"), f"{field}.nodeSelector")
    causes += _names(spec, field)
    causes += tolerations(spec.get("tolerations"), f"{field}.tolerations")
    causes += affinity.affinity(spec.get("affinity"), f"{field}.affinity")
    causes += _gates(spec, field, host_names=host_names)
    causes += _spread(spec.get("topologySpreadConstraints"), f"{field}.topologySpreadConstraints")
    return causes


def _policies(spec: Object, field: str) -> list[Cause]:
    causes = []
    policy = spec.get("restartPolicy", "")
    if not policy:
        causes.append(required(f"{field}.restartPolicy"))
    elif policy not in RESTART_POLICIES:
        causes.append(unsupported(f"{field}.restartPolicy", policy, RESTART_POLICIES))
    policy = spec.get("dnsPolicy", "")
    if policy not in DNS_POLICIES:
        causes.append(unsupported(f"{field}.dnsPolicy", policy, DNS_POLICIES))
    elif policy == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        causes.append(required(f"{field}.dnsConfig", text))
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        causes.append(
            invalid_value(f"{field}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
        )
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2147483647:
        text = "must be between 1 and 2147483647, inclusive"
        causes.append(invalid_value(f"{field}.activeDeadlineSeconds", deadline, text))
    preemption = spec.get("preemptionPolicy")
    if preemption and preemption not in PREEMPTION:
        causes.append(unsupported(f"{field}.preemptionPolicy", preemption, PREEMPTION))
    return causes


def _names(spec: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    rules = (
        ("serviceAccountName", metadata.dns_subdomain),
        ("nodeName", metadata.dns_subdomain),
        ("hostname", metadata.dns_label),
        ("subdomain", metadata.dns_label),
        ("priorityClassName", metadata.dns_subdomain),
        ("runtimeClassName", metadata.dns_subdomain),
        ("schedulerName", metadata.qualified_name),
    )
    for name, rule in rules:
        value = spec.get(name)
        if value:
            causes += [invalid_value(f"{field}.{name}", value, text) for text in rule(value)]
    for index, alias in enumerate(spec.get("hostAliases") or []):
        for at, host in enumerate(alias.get("hostnames") or []):
            where = f"{field}.hostAliases[{index}].hostnames[{at}]"
            causes += [invalid_value(where, host, text) for text in metadata.dns_subdomain(host)]
    return causes


def tolerations(given: Any, field: str) -> list[Cause]:
    """Validate tolerations."""
    causes: list[Cause] = []
    for index, toleration in enumerate(given or []):
        at = f"{field}[{index}]"
        key, operator = toleration.get("key", ""), toleration.get("operator") or "Equal"
        if key:
            causes += [invalid_value(f"{at}.key", key, text) for text in metadata.qualified_name(key)]
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            causes.append(invalid_value(f"{at}.operator", toleration.get("operator", ""), text))
        seconds, effect = toleration.get("tolerationSeconds"), toleration.get("effect", "")
        if seconds is not None and effect != "NoExecute":
            causes.append(
                invalid_value(f"{at}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
            )
        if operator == "Exists" and toleration.get("value"):
            text = "value must be empty when `operator` is 'Exists'"
            causes.append(invalid_value(f"{at}.operator", toleration.get("value"), text))
        elif operator not in ("Equal", "Exists", "Lt", "Gt"):
            causes.append(unsupported(f"{at}.operator", operator, ["Equal", "Exists"]))
        elif operator == "Equal" and toleration.get("value"):
            causes += [
                invalid_value(f"{at}.operator", toleration["value"], t)
                for t in metadata.label_value(toleration["value"])
            ]
        if effect and effect not in EFFECTS:
            causes.append(unsupported(f"{at}.effect", effect, EFFECTS))
    return causes


def _gates(spec: Object, field: str, *, host_names: bool) -> list[Cause]:
    causes: list[Cause] = []
    names = set()
    for index, gate in enumerate(spec.get("schedulingGates") or []):
        name = gate.get("name", "")
        causes += [invalid_value(f"{field}.schedulingGates[{index}]", name, t) for t in metadata.qualified_name(name)]
        if name in names:
            causes.append(duplicate(f"{field}.schedulingGates[{index}]", name))
        names.add(name)
    if host_names and names and spec.get("nodeName"):
        causes.append(forbidden_field(f"{field}.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes


def _spread(given: Any, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, constraint in enumerate(given or []):
        at = f"{field}[{index}]"
        if constraint.get("maxSkew", 0) <= 0:
            causes.append(invalid_value(f"{at}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
        if not constraint.get("topologyKey"):
            causes.append(required(f"{at}.topologyKey", "can not be empty"))
        action = constraint.get("whenUnsatisfiable", "")
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            causes.append(unsupported(f"{at}.whenUnsatisfiable", action, ["DoNotSchedule", "ScheduleAnyway"]))
    return causes


# -- updates


def pod_change(old: Object, new: Object) -> list[Cause]:
    """Validate an update of a pod."""
    causes: list[Cause] = []
    before, after = old.get("spec", {}), clone(new.get("spec", {}))
    for part in ("containers", "initContainers"):
        mine, theirs = before.get(part) or [], after.get(part) or []
        if len(mine) != len(theirs):
            return [
                forbidden_field(
                    "spec.containers" if part == "containers" else "spec.initContainers",
                    "pod updates may not add or remove containers",
                )
            ]
        for index, (was, now) in enumerate(zip(mine, theirs, strict=True)):
            if not now.get("image"):
                causes.append(required(f"spec.{part}[{index}].image"))
            now["image"] = was.get("image")
    causes += _deadline_change(before, after)
    causes += _tolerations_change(before, after)
    for free in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        _same(before, after, free)
    if before.get("terminationGracePeriodSeconds", 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        _same(before, after, "terminationGracePeriodSeconds")
    if old.get("spec", {}).get("schedulingGates"):
        for free in ("nodeSelector", "affinity"):  # the node selection of a gated pod may be narrowed
            _same(before, after, free)
        gates = {gate["name"] for gate in before["schedulingGates"]}
        for index, gate in enumerate(new.get("spec", {}).get("schedulingGates") or []):
            if gate.get("name") not in gates:
                text = "only deletion is allowed, but found new scheduling gate '" + gate.get("name", "") + "'"
                causes.append(forbidden_field(f"spec.schedulingGates[{index}]", text))
    if before != after:
        causes.append(forbidden_field("spec", IMMUTABLE + _difference(before, after)))
    return causes


def _same(before: Object, after: Object, name: str) -> None:
    if name in before:
        after[name] = before[name]
    else:
        after.pop(name, None)


def _deadline_change(before: Object, after: Object) -> list[Cause]:
    was, now = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if now is not None and now < 0:
        return [invalid_value("spec.activeDeadlineSeconds", now, "must be greater than or equal to 0")]
    if was is None or was == now:
        return []
    if now is None:
        return [
            invalid_value("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
        ]
    if now > was:
        return [invalid_value("spec.activeDeadlineSeconds", now, "must be less than or equal to previous value")]
    return []


def _tolerations_change(before: Object, after: Object) -> list[Cause]:
    remaining = after.get("tolerations") or []
    for toleration in before.get("tolerations") or []:
        if toleration not in remaining and not any(_shortened(toleration, other) for other in remaining):
            text = "existing toleration can not be modified except its tolerationSeconds"
            return [forbidden_field("spec.tolerations", text)]
    return []


def _shortened(one: Object, other: Object) -> bool:
    names = ("key", "operator", "value", "effect")
    return all(one.get(name) == other.get(name) for name in names)


def _difference(before: Object, after: Object) -> str:
    """Name the fields that differ (the real server prints a diff of its Go structs)."""
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    return "\n" + "\n".join(f"-   {key}\n+   {key}" for key in changed)
