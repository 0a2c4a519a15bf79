"""Fields that the server writes: status on creation, generated selectors, addresses; fields that are immutable.

These are the PrepareForCreate and PrepareForUpdate functions of the registry strategies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import addresses, qos
from .values import clone, rfc3339

if TYPE_CHECKING:
    from .kinds import Kind
    from .requests import Request
    from .seams import Objects
    from .values import Object

UID, NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
LEGACY_UID, LEGACY_NAME = "controller-uid", "job-name"
GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
FIRST_STATUS: dict[str, Object] = {
    "namespaces": {"phase": "Active"},
    "services": {"loadBalancer": {}},
    "persistentvolumeclaims": {"phase": "Pending"},
    "persistentvolumes": {"phase": "Pending"},
    "replicasets.apps": {"replicas": 0},
    "replicationcontrollers": {"replicas": 0},
    "daemonsets.apps": {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    "poddisruptionbudgets.policy": {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    },
    "ingresses.networking.k8s.io": {"loadBalancer": {}},
}
KEEPS_STATUS = ("nodes",)  # a kubelet registers a node with its status
PROTECTED = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
}


def create(store: Objects, kind: Kind, new: Object, request: Request) -> None:
    """Prepare an object for its creation."""
    key = kind.key
    if kind.sub("status") is not None and key not in KEEPS_STATUS and not (request.trusted and "status" in new):
        if kind.custom:
            new.pop("status", None)
        else:
            new["status"] = clone(FIRST_STATUS.get(key, {}))
    if key == "pods" and not (request.trusted and new.get("status", {}).get("phase")):
        new["status"] = {"phase": "Pending", "qosClass": qos.of(new["spec"])}
        if new["spec"].get("schedulingGates"):
            moment = rfc3339(store.clock())
            new["status"]["conditions"] = [{**GATED, "lastProbeTime": None, "lastTransitionTime": moment}]
    elif key == "namespaces":
        new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")
        new["spec"] = {"finalizers": ["kubernetes"]}
    elif key == "jobs.batch":
        _job_selector(new)
    elif key == "services":
        addresses.allocate(store, None, new)
    if key in PROTECTED:
        finalizers = new["metadata"].setdefault("finalizers", [])
        if PROTECTED[key] not in finalizers:
            finalizers.append(PROTECTED[key])


def _job_selector(job: Object) -> None:
    """Generate the selector and the labels that connect pods to their job, unless the user sets them."""
    meta, spec = job["metadata"], job["spec"]
    template = spec.setdefault("template", {}).setdefault("metadata", {})
    if not spec.get("manualSelector"):
        labels = template.setdefault("labels", {})
        for name, value in (
            (LEGACY_NAME, meta.get("name", "")),
            (NAME, meta.get("name", "")),
            (LEGACY_UID, meta["uid"]),
            (UID, meta["uid"]),
        ):
            labels.setdefault(name, value)
        selector = spec.setdefault("selector", {})
        selector.setdefault("matchLabels", {}).setdefault(UID, meta["uid"])
    if not meta.get("labels") and template.get("labels"):
        meta["labels"] = dict(template["labels"])  # SetDefaults_Job shares the template's labels


FIXED = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
    "selfLink",
)


def update(store: Objects, kind: Kind, old: Object, new: Object, request: Request) -> Object:
    """Return the new state with all fields restored that this path does not write."""
    body = {key: value for key, value in new.items() if key not in ("kind", "apiVersion")}
    new = {"apiVersion": old["apiVersion"], "kind": old["kind"], **body}
    meta, held = new["metadata"], old["metadata"]
    for fixed in FIXED:
        if fixed in held:
            meta[fixed] = held[fixed]
        else:
            meta.pop(fixed, None)
    if not request.trusted:
        _isolate(kind, old, new, request.subresource)
        if kind.key == "services" and not request.subresource:
            addresses.allocate(store, old, new)
        if kind.key == "namespaces" and request.subresource != "finalize":
            new["spec"] = clone(old.get("spec", {}))
    return new


def _isolate(kind: Kind, old: Object, new: Object, subresource: str) -> None:
    if subresource in ("status", "approval"):
        _restore(old, new, [part for part in {*old, *new} if part not in ("metadata", "status", "kind", "apiVersion")])
        if kind.custom:
            new["metadata"] = {**clone(old["metadata"]), "managedFields": new["metadata"].get("managedFields", [])}
            if not new["metadata"]["managedFields"]:
                del new["metadata"]["managedFields"]
        if kind.key == "pods":
            _restore_pod_status(old, new)
    elif subresource == "ephemeralcontainers":
        added = new.get("spec", {}).get("ephemeralContainers")
        _restore(old, new, ["spec", "status"])
        if added:
            new["spec"]["ephemeralContainers"] = added
        else:
            new["spec"].pop("ephemeralContainers", None)
    elif kind.sub("status") is not None:
        _restore(old, new, ["status"])
        if kind.key == "nodes":
            return


def _restore(old: Object, new: Object, parts: list[str]) -> None:
    for part in parts:
        if part in old:
            new[part] = clone(old[part])
        else:
            new.pop(part, None)


def _restore_pod_status(old: Object, new: Object) -> None:
    status: dict[str, Any] = new.setdefault("status", {})
    for condition in status.get("conditions") or []:
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    if old.get("status", {}).get("qosClass"):
        status["qosClass"] = old["status"]["qosClass"]


def desired_state(kind: Kind, obj: Object) -> Object:
    """Return the part of an object whose changes increment the generation."""
    desired = {part: value for part, value in obj.items() if part not in ("metadata", "status")}
    if kind.key == "pods":
        desired["spec"] = {key: value for key, value in desired.get("spec", {}).items() if key != "nodeName"}
    return desired
