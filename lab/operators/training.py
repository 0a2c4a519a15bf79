"""The Training Operator: a master and workers, with torch's environment variables.

Names, labels, variables, conditions and messages are those of kubeflow/training-operator v1.8
(pkg/controller.v1/pytorch and pkg/controller.v1/common). Only the master has a Service; elastic jobs are not simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..apiserver.schema.values import clone, epoch
from .conditions import find, holds, put_job
from .gang import GROUPS, decorate, pod_group
from .parts import OwnerController, headless, phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..apiserver.store import Store
    from ..controlplane import Controller

Object = dict[str, Any]
KEY, LABEL = "pytorchjobs.kubeflow.org", "training.kubeflow.org/"
ROLES = ("Master", "Worker")
CONTAINER, PORT_NAME, PORT = "pytorch", "pytorchjob-port", 23456
INIT_IMAGE = "alpine:3.10"
WAIT = (
    "err=1; for i in $(seq 100); do if nslookup {master}; then err=0 && break; fi; echo waiting for master; "
    "sleep 2; done; exit $err"
)


def start(store: Store, world: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Controller, ...]:
    """Return the operator."""
    del world
    return (PyTorchJobController(store, given.get("gang", "")),)


class PyTorchJobController(OwnerController):
    """The controller of PyTorchJobs."""

    key, component, owns = KEY, "pytorchjob-controller", ("pods", "services")

    def __init__(self, store: Store, gang: str) -> None:
        super().__init__(store)
        self._gang = gang  # --gang-scheduler-name

    def reconcile(self, obj: Object) -> float | None:
        """Reconcile one job."""
        policy = obj["spec"].setdefault("runPolicy", {})
        obj.setdefault("status", {})
        name, now = obj["metadata"]["name"], self.store.now()
        if policy.get("managedBy") not in (None, "kubeflow.org/training-operator"):
            return None
        put_job(obj, "Created", True, "PyTorchJobCreated", f"PyTorchJob {name} is created.", now)
        again = None
        if holds(obj, "Succeeded", "Failed"):
            again = self._after(obj)
        elif policy.get("suspend"):
            self._suspend(obj)
        else:
            again = self._run(obj)
        self.write(obj)
        return again

    def _roles(self, obj: Object) -> list[tuple[str, Object, int]]:
        specs = obj["spec"]["pytorchReplicaSpecs"]
        return [(role, specs[role], int(specs[role].get("replicas") or 1)) for role in ROLES if role in specs]

    # -- three states of a job

    def _suspend(self, obj: Object) -> None:
        self._clear(obj, "All")
        name, now, status = obj["metadata"]["name"], self.store.now(), obj["status"]
        for role in list(status.get("replicaStatuses") or {}):
            status["replicaStatuses"][role] = {}
        message = f"PyTorchJob {name} is suspended."
        if find(obj, "Running"):
            put_job(obj, "Running", False, "PyTorchJobSuspended", message, now)
        if put_job(obj, "Suspended", True, "PyTorchJobSuspended", message, now):
            self.event(obj, "Normal", "PyTorchJobSuspended", message)
        status.pop("startTime", None)

    def _after(self, obj: Object) -> float | None:
        """Clean up after an ended job: its pods by the policy, and the job itself after its TTL."""
        policy = obj["spec"]["runPolicy"]
        self._clear(obj, policy.get("cleanPodPolicy") or "None")
        seconds = policy.get("ttlSecondsAfterFinished")
        if seconds is None:
            return None
        left = epoch(obj["status"].get("completionTime") or self.store.now()) + float(seconds) - self.store.clock()
        if left <= 0:
            self.remove(KEY, obj)
            return None
        return left

    def _clear(self, obj: Object, policy: str) -> None:
        if policy == "None":
            return
        for pod in self.owned(obj):
            if policy == "All" or phase(pod) in ("Running", "Pending"):
                self.remove("pods", pod)
        for service in self.owned(obj, "services"):
            self.remove("services", service)
        if self._gang:
            for group in self.owned(obj, GROUPS):
                self.remove(GROUPS, group)

    def _run(self, obj: Object) -> float | None:
        name, now, status = obj["metadata"]["name"], self.store.now(), obj["status"]
        status.setdefault("startTime", now)
        if find(obj, "Suspended"):
            message = f"PyTorchJob {name} is resumed."
            if put_job(obj, "Suspended", False, "PyTorchJobResumed", message, now):
                self.event(obj, "Normal", "PyTorchJobResumed", message)
                status["startTime"] = now
        if self._gang:
            self.ensure(obj, GROUPS, pod_group(obj, sum(count for _, _, count in self._roles(obj))))
        again = self._deadline(obj)
        if holds(obj, "Failed"):
            return None
        pods: dict[str, list[Object]] = {}
        for role, _, count in self._roles(obj):
            for index in range(count):
                pod = self.ensure(obj, "pods", self._pod(obj, role, index))
                if pod is not None:
                    pods.setdefault(role, []).append(pod)
            if role == "Master":
                self.ensure(obj, "services", self._service(obj))
        for role, spec, count in self._roles(obj):
            self._count(obj, role, spec, count, pods.get(role, []))
        return again

    def _deadline(self, obj: Object) -> float | None:
        seconds, name = obj["spec"]["runPolicy"].get("activeDeadlineSeconds"), obj["metadata"]["name"]
        if seconds is None:
            return None
        left = epoch(obj["status"]["startTime"]) + float(seconds) - self.store.clock()
        if left > 0:
            return left
        self._clear(obj, "Running")
        self._fail(obj, f"Job {name} has failed because it was active longer than specified deadline")
        return None

    def _fail(self, obj: Object, message: str) -> None:
        now = self.store.now()
        obj["status"].setdefault("completionTime", now)
        if put_job(obj, "Failed", True, "PyTorchJobFailed", message, now):
            self.event(obj, "Normal", "PyTorchJobFailed", message)

    def _count(self, obj: Object, role: str, spec: Object, count: int, pods: list[Object]) -> None:
        """Count a role's pods and update the job's conditions."""
        where = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        phases, now = [phase(pod) for pod in pods], self.store.now()
        failed, running, succeeded = (phases.count(word) for word in ("Failed", "Running", "Succeeded"))
        counts = {"active": running, "succeeded": succeeded, "failed": failed}
        obj["status"].setdefault("replicaStatuses", {})[role] = {key: n for key, n in counts.items() if n}
        leads = role == "Master" or "Master" not in obj["spec"]["pytorchReplicaSpecs"]
        if leads and running:
            put_job(obj, "Running", True, "PyTorchJobRunning", f"PyTorchJob {where} is running.", now)
        if leads and succeeded == count:
            message = f"PyTorchJob {where} is successfully completed."
            obj["status"].setdefault("completionTime", now)
            if put_job(obj, "Succeeded", True, "PyTorchJobSucceeded", message, now):
                self.event(obj, "Normal", "PyTorchJobSucceeded", message)
        if failed and not holds(obj, "Succeeded"):
            if spec.get("restartPolicy") == "ExitCode" and all(map(_retryable, pods)):
                message = f"PyTorchJob {where} is restarting because {failed} {role} replica(s) failed."
                put_job(obj, "Restarting", True, "PyTorchJobRestarting", message, now)
                for pod in pods:
                    if phase(pod) == "Failed":
                        self.remove("pods", pod)
            else:
                self._fail(obj, f"PyTorchJob {where} is failed because {failed} {role} replica(s) failed.")

    # -- pods

    def _port(self, obj: Object) -> int:
        first = obj["spec"]["pytorchReplicaSpecs"].get("Master") or obj["spec"]["pytorchReplicaSpecs"]["Worker"]
        for container in first["template"]["spec"]["containers"]:
            for port in container.get("ports") or []:
                if container["name"] == CONTAINER and port.get("name") == PORT_NAME:
                    return int(port["containerPort"])
        return PORT

    def _labels(self, obj: Object, role: str, index: int) -> dict[str, str]:
        labels = {
            "operator-name": "pytorchjob-controller",
            "job-name": obj["metadata"]["name"],
            "replica-type": role.lower(),
            "replica-index": str(index),
        }
        return {LABEL + key: value for key, value in labels.items()}

    def _service(self, obj: Object) -> Object:
        labels, port = self._labels(obj, "Master", 0), self._port(obj)
        made = headless(
            f"{obj['metadata']['name']}-master-0", labels, ports=[{"name": PORT_NAME, "port": port, "targetPort": port}]
        )
        made["metadata"]["labels"] = labels
        return made

    def _pod(self, obj: Object, role: str, index: int) -> Object:
        name = obj["metadata"]["name"]
        replica_spec = obj["spec"]["pytorchReplicaSpecs"][role]
        template = clone(replica_spec["template"])
        meta, spec = template.setdefault("metadata", {}), template["spec"]
        meta["name"] = f"{name}-{role.lower()}-{index}"
        meta.setdefault("labels", {}).update(self._labels(obj, role, index))
        if role == "Master":
            meta["labels"][LABEL + "job-role"] = "master"
        policy = replica_spec.get("restartPolicy") or "OnFailure"
        spec["restartPolicy"] = "Never" if policy == "ExitCode" else policy
        variables = self._environment(obj, role, index)
        for container in spec["containers"]:
            container.setdefault("env", []).extend({"name": key, "value": value} for key, value in variables.items())
            if container["name"] == CONTAINER and not any(
                port.get("name") == PORT_NAME for port in container.get("ports") or []
            ):
                container.setdefault("ports", []).append({"name": PORT_NAME, "containerPort": PORT})
        if role == "Worker" and "Master" in obj["spec"]["pytorchReplicaSpecs"]:
            amounts = {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}}
            spec.setdefault("initContainers", []).append(
                {
                    "name": "init-pytorch",
                    "image": INIT_IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "resources": amounts,
                    "command": ["sh", "-c", WAIT.format(master=f"{name}-master-0")],
                }
            )
        if self._gang:
            decorate(template, name)
        return dict(template)

    def _environment(self, obj: Object, role: str, index: int) -> dict[str, str]:
        """Return the variables of both conventions: torch's own, and torchrun's PET_ variables."""
        name, roles = obj["metadata"]["name"], self._roles(obj)
        total = sum(count for _, _, count in roles)
        processes = str(obj["spec"].get("nprocPerNode") or "auto")
        env = {"PYTHONUNBUFFERED": "1"}
        if any(each == "Master" for each, _, _ in roles):
            rank = index + 1 if role == "Worker" else 0
            master, port = f"{name}-master-0", str(self._port(obj))
            world = total * (int(processes) if processes.isdigit() else 1)
            env |= {
                "PET_MASTER_PORT": port,
                "MASTER_PORT": port,
                "PET_MASTER_ADDR": master,
                "MASTER_ADDR": master,
                "WORLD_SIZE": str(world),
                "RANK": str(rank),
                "PET_NODE_RANK": str(rank),
            }
        return env | {"PET_NPROC_PER_NODE": processes, "PET_NNODES": str(total)}


def _retryable(pod: Object) -> bool:
    """Return whether an exit code is retryable with the policy ExitCode: from 128 on (pkg/util/train/train_util.go)."""
    ended = [(c.get("state") or {}).get("terminated") or {} for c in pod["status"].get("containerStatuses") or []]
    return phase(pod) != "Failed" or any(int(each.get("exitCode", 0)) >= 128 for each in ended)
