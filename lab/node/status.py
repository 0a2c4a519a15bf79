"""The status of a pod, from the states of its containers.

Pure functions from the spec and the state of each container to phase, conditions and container statuses, in the format
and with the reasons of a 1.36 kubelet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
EPOCH = "1970-01-01T00:00:00Z"


@dataclass(slots=True)
class ContainerState:
    """The kubelet's state of one container."""

    name: str
    waiting: Object | None = field(default_factory=dict)
    running: Object | None = None
    terminated: Object | None = None
    last: Object = field(default_factory=dict)
    ready: bool = False
    started: bool = False
    restarts: int = 0
    image_id: str = ""
    container_id: str = ""
    created: bool = False

    def state(self) -> Object:
        """The state field: exactly one of waiting, running, terminated."""
        if self.running is not None:
            return {"running": self.running}
        if self.terminated is not None:
            return {"terminated": self.terminated}
        return {"waiting": self.waiting or {}}

    def wait(self, reason: str, message: str = "") -> None:
        """Set the state to waiting; an earlier end becomes the last state."""
        if self.terminated is not None:
            self.last = {"terminated": self.terminated}
        self.running = self.terminated = None
        self.waiting = {"reason": reason, **({"message": message} if message else {})}
        self.ready = self.started = False

    def not_again(self) -> None:
        """Set the state to its last end, since the restart for which it waited is cancelled."""
        if self.running is None and self.terminated is None and self.last:
            self.terminated, self.last = self.last["terminated"], {}


def is_sidecar(container: Object) -> bool:
    """Return whether an init container is a native sidecar."""
    return container.get("restartPolicy") == "Always"


def reported(image: str, image_id: str) -> str:
    """Return containerd's name of a created container's image: with its tag, else the image's id.

    An image that was pulled by digest has no tag (containerd, internal/cri/server/container_status.go).
    """
    if not image_id or "/" not in image:
        return image
    if "@" in image:
        return image_id
    first = image.partition("/")[0]
    named = image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"
    return named if ":" in named.rpartition("/")[2] else f"{named}:latest"


def container_status(container: Object, state: ContainerState) -> Object:
    """Return one element of containerStatuses."""
    resources = container.get("resources") or {}
    status: Object = {
        "name": state.name,
        "state": state.state(),
        "lastState": state.last,
        "ready": state.ready,
        "restartCount": state.restarts,
        "image": reported(container["image"], state.image_id),
        "imageID": state.image_id,
        "started": state.started,
    }
    if state.container_id:
        status["containerID"] = state.container_id
    if state.created:
        if resources.get("requests"):
            status["allocatedResources"] = resources["requests"]
        status["resources"] = {k: resources[k] for k in ("limits", "requests") if resources.get(k)}
    mounts = [
        {
            "name": m["name"],
            "mountPath": m["mountPath"],
            **({"readOnly": True, "recursiveReadOnly": "Disabled"} if m.get("readOnly") else {}),
        }
        for m in container.get("volumeMounts") or []
    ]
    if mounts:
        status["volumeMounts"] = mounts
    if state.created:
        status["user"] = {"linux": {"uid": 0, "gid": 0, "supplementalGroups": [0]}}
    return status


def condition(
    kind: str, holds: bool, now: str, old: Object, *, reason: str = "", message: str = "", generation: int = 1
) -> Object:
    """Return a pod condition; its transition time changes with its status only."""
    status = "True" if holds else "False"
    before = next((c for c in old.get("conditions") or [] if c["type"] == kind), None)
    moment = before["lastTransitionTime"] if before and before["status"] == status else now
    return {
        "type": kind,
        "observedGeneration": generation,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": moment,
        **({"reason": reason} if reason else {}),
        **({"message": message} if message else {}),
    }


def _init_phase(pod: Object, states: dict[str, ContainerState]) -> str:
    """Return Pending or Failed while init containers run; empty after their end."""
    for container in pod["spec"].get("initContainers") or []:
        state = states[container["name"]]
        ended = state.terminated
        if is_sidecar(container):
            if not state.started and ended is None:
                return "Pending"
        elif ended is None or ended["exitCode"] != 0:
            return "Failed" if ended and pod["spec"].get("restartPolicy") == "Never" else "Pending"
    return ""


def phase(pod: Object, states: dict[str, ContainerState], *, ending: bool = False) -> str:
    """Return the phase for the containers' states (getPhase of the kubelet); `ending`: no restart follows."""
    spec = pod["spec"]
    policy = "Never" if ending else spec.get("restartPolicy", "Always")
    mains_end = all(states[c["name"]].terminated for c in spec["containers"])
    held = "" if ending and mains_end else _init_phase(pod, states)
    if held:
        return held
    mains = [states[c["name"]] for c in spec["containers"]]
    if any(s.running is None and s.terminated is None and not s.last for s in mains):
        return "Pending"
    if any(s.terminated is None for s in mains):
        return "Running"
    good = all(s.terminated is not None and s.terminated["exitCode"] == 0 for s in mains)
    if policy == "Always" or (policy == "OnFailure" and not good):
        return "Running"
    return "Succeeded" if good else "Failed"


def _readiness(pod: Object, states: dict[str, ContainerState], pod_phase: str) -> tuple[bool, str, str]:
    if pod_phase == "Succeeded":
        return False, "PodCompleted", ""
    if pod_phase == "Failed":
        return False, "PodFailed", ""
    sidecars = [c["name"] for c in pod["spec"].get("initContainers") or [] if is_sidecar(c)]
    names = [*sidecars, *(c["name"] for c in pod["spec"]["containers"])]
    unready = [name for name in names if not states[name].ready]
    if unready:
        return False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    return True, "", ""


def _initialised(pod: Object, states: dict[str, ContainerState], pod_phase: str) -> tuple[bool, str, str]:
    missing = []
    for container in pod["spec"].get("initContainers") or []:
        state = states[container["name"]]
        done = state.started if is_sidecar(container) else state.terminated and state.terminated["exitCode"] == 0
        if not done and not (is_sidecar(container) and state.terminated):
            missing.append(container["name"])
    if pod_phase == "Succeeded":
        return True, "PodCompleted", ""
    if missing:
        return False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(missing)}]"
    return True, "", ""


def pod_status(
    pod: Object,
    states: dict[str, ContainerState],
    now: str,
    *,
    sandbox: bool,
    host_ip: str,
    pod_ip: str = "",
    override: Object | None = None,
    ending: bool = False,
) -> Object:
    """Return the whole status; `override` has phase, reason and message that the kubelet itself sets.

    A pod has no terminal phase before its sandbox is removed (the status manager holds it back).
    """
    old = pod.get("status") or {}
    spec = pod["spec"]
    generation = pod["metadata"].get("generation", 1)
    override = None if sandbox else override
    pod_phase = (override or {}).get("phase") or phase(pod, states, ending=ending)
    held = sandbox and pod_phase in ("Succeeded", "Failed")
    ready, why, what = _readiness(pod, states, pod_phase)
    initialised, init_why, init_what = _initialised(pod, states, pod_phase)
    gates = [g["conditionType"] for g in spec.get("readinessGates") or []]
    closed = [
        g for g in gates if not any(c["type"] == g and c["status"] == "True" for c in old.get("conditions") or [])
    ]
    pod_why, pod_what = (
        ("ReadinessGatesNotReady", f'corresponding condition of pod readiness gate "{closed[0]}" does not exist.')
        if ready and closed
        else (why, what)
    )
    conditions = [
        condition("PodReadyToStartContainers", sandbox, now, old, generation=generation),
        condition("Initialized", initialised, now, old, reason=init_why, message=init_what, generation=generation),
        condition("Ready", ready and not closed, now, old, reason=pod_why, message=pod_what, generation=generation),
        condition("ContainersReady", ready, now, old, reason=why, message=what, generation=generation),
    ]
    ours = {c["type"] for c in conditions} | {"PodScheduled"}
    scheduled = next((c for c in old.get("conditions") or [] if c["type"] == "PodScheduled"), None)
    conditions.append(scheduled or condition("PodScheduled", True, now, old, generation=generation))
    conditions += [c for c in old.get("conditions") or [] if c["type"] not in ours]
    status: Object = {
        "observedGeneration": generation,
        "phase": old.get("phase", "Pending") if held else pod_phase,
        "conditions": conditions,
        **{k: v for k, v in (override or {}).items() if k != "phase"},
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        **({"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]} if pod_ip else {}),
        "startTime": old.get("startTime") or now,
    }
    for key, containers in (
        ("initContainerStatuses", spec.get("initContainers")),
        ("containerStatuses", spec["containers"]),
    ):
        if containers:
            status[key] = [container_status(c, states[c["name"]]) for c in containers]
    extra = [c for c in spec.get("ephemeralContainers") or [] if c["name"] in states]
    if extra:
        status["ephemeralContainerStatuses"] = [
            {**container_status(c, states[c["name"]]), "ready": False} for c in extra
        ]
    status["qosClass"] = old.get("qosClass") or "BestEffort"
    for key in ("allocatedResources", "resources", "nominatedNodeName", "resourceClaimStatuses"):
        if key in old:
            status[key] = old[key]
    return status
