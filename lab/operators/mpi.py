"""The MPI Operator: workers that run sshd, and a launcher Job that runs mpirun.

Objects, conditions, reasons and messages are those of kubeflow/mpi-operator v0.6
(pkg/controller/mpi_job_controller.go). The launcher connects to the workers by ssh, through the names of one headless
Service.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ..apiserver.schema.values import clone
from ..controlplane.endpoints import is_ready
from .conditions import find, holds, put_job
from .gang import decorate, pod_group
from .parts import OwnerController, headless, phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..apiserver.store import Store
    from ..controlplane import Controller

Object = dict[str, Any]
KEY, JOBS = "mpijobs.kubeflow.org", "jobs.batch"
LABEL = "training.kubeflow.org/"
SSH_FILES = (("ssh-privatekey", "id_rsa"), ("ssh-publickey", "id_rsa.pub"), ("ssh-publickey", "authorized_keys"))
LAUNCHER_ENV = {
    "OpenMPI": {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    },
    "Intel": {
        "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
    },
    "MPICH": {"HYDRA_HOST_FILE": "/etc/mpi/hostfile", "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"},
}
SLOTS_ENV = {"OpenMPI": "OMPI_MCA_orte_set_default_slots", "Intel": "I_MPI_PERHOST"}


def start(store: Store, world: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Controller, ...]:
    """Return the operator; without a definition that serves v2beta1 it does nothing, as in reality."""
    del world
    served = store.kinds.by_path.get(("kubeflow.org", "v2beta1", "mpijobs"))
    return (MPIJobController(store, given.get("gang", "")),) if served else ()


def suspended(job: Object) -> bool:
    """Return whether the job must have no pods."""
    return bool((job["spec"].get("runPolicy") or {}).get("suspend"))


class MPIJobController(OwnerController):
    """The controller of MPIJobs."""

    key, component = KEY, "mpi-job-controller"
    owns = ("pods", "jobs.batch", "configmaps")

    def __init__(self, store: Store, gang: str) -> None:
        super().__init__(store)
        self._gang = gang  # --gang-scheduling

    def reconcile(self, obj: Object) -> float | None:
        """Reconcile one job."""
        meta, now = obj["metadata"], self.store.now()
        name, where = meta["name"], f"{meta['namespace']}/{meta['name']}"
        policy = obj["spec"].setdefault("runPolicy", {})
        if policy.get("managedBy") not in (None, "kubeflow.org/mpi-operator"):
            return None
        status = obj.setdefault("status", {})
        if not status.get("conditions"):
            put_job(obj, "Created", True, "MPIJobCreated", f"MPIJob {where} is created.", now)
            self.event(obj, "Normal", "MPIJobCreated", f"MPIJob {where} is created.")
        if holds(obj, "Succeeded", "Failed") and status.get("completionTime"):
            if policy.get("cleanPodPolicy", "None") in ("All", "Running"):
                self._clean(obj)
            self.write(obj)
            return None
        if not status.get("startTime") and not suspended(obj):
            status["startTime"] = now
        launcher = self.store.get(JOBS, meta["namespace"], f"{name}-launcher")
        workers: list[Object] = []
        if launcher is None or not holds(launcher, "Complete", "Failed"):
            made = self._parts(obj, launcher)
            if made is None:
                return None
            launcher, workers = made
        if suspended(obj):
            self._clean(obj)
            workers = []
        self._status(obj, launcher, workers)
        self.write(obj)
        return None

    def _parts(self, obj: Object, launcher: Object | None) -> tuple[Object | None, list[Object]] | None:
        """Create missing objects: Service, ConfigMap, Secret, workers, launcher."""
        name, spec = obj["metadata"]["name"], obj["spec"]
        label = {LABEL + "operator-name": "mpi-operator", LABEL + "job-name": name}
        service = headless(name, label)
        service["metadata"]["labels"] = {"app": name}
        secret = self.store.get("secrets", obj["metadata"]["namespace"], f"{name}-ssh")
        parts = [
            ("services", service),
            ("configmaps", self._config(obj)),
            *([] if secret else [("secrets", ssh_secret(name))]),
        ]
        for key, body in parts:
            held = self.ensure(obj, key, body)
            if held is None:
                return None
            if key == "configmaps" and held["data"] != body["data"]:
                self.change(key, held, lambda c, data=body["data"]: c.update(data=data))  # type: ignore[misc]
        workers: list[Object] = []
        if not suspended(obj):
            if self._gang:
                self.ensure(obj, "podgroups.scheduling.volcano.sh", pod_group(obj, self._count(obj) + 1))
            for index in range(self._count(obj)):
                worker = self.ensure(obj, "pods", self._worker(obj, index))
                if worker is None:
                    return None
                workers.append(worker)
        waits = spec.get("launcherCreationPolicy") == "WaitForWorkersReady" and not all(map(is_ready, workers))
        if launcher is None and not waits:
            launcher = self.ensure(obj, JOBS, self._launcher(obj))
        elif launcher is not None and bool(launcher["spec"].get("suspend")) != suspended(obj):
            template = self._launcher(obj)["spec"]["template"]["spec"]
            self.change(JOBS, launcher, lambda j: self._align(j, obj, template))
        return launcher, workers

    @staticmethod
    def _align(job: Object, obj: Object, template: Object) -> None:
        """Suspend the launcher together with its MPIJob; its node selection may have changed in the meantime."""
        job["spec"]["suspend"] = suspended(obj)
        for part in ("nodeSelector", "tolerations"):
            if template.get(part):
                job["spec"]["template"]["spec"][part] = template[part]

    def _count(self, obj: Object) -> int:
        return int((obj["spec"]["mpiReplicaSpecs"].get("Worker") or {}).get("replicas") or 0)

    def _hosts(self, obj: Object) -> list[str]:
        name, space = obj["metadata"]["name"], obj["metadata"]["namespace"]
        workers = [f"{name}-worker-{index}.{name}.{space}.svc" for index in range(self._count(obj))]
        return [f"{name}-launcher.{name}.{space}.svc", *workers] if obj["spec"].get("runLauncherAsWorker") else workers

    def _config(self, obj: Object) -> Object:
        """Return the ConfigMap: host file, and the script that lists running workers (Horovod's elastic discovery)."""
        meta, slots = obj["metadata"], obj["spec"].get("slotsPerWorker", 1)
        row = "{} slots={}" if obj["spec"].get("mpiImplementation", "OpenMPI") == "OpenMPI" else "{}:{}"
        running = sorted(p["metadata"]["name"] for p in self.owned(obj) if phase(p) == "Running")
        lines = [f"echo {pod}.{meta['name']}.{meta['namespace']}.svc" for pod in running]
        return {
            "metadata": {"name": f"{meta['name']}-config", "labels": {"app": meta["name"]}},
            "data": {
                "hostfile": "".join(row.format(host, slots) + "\n" for host in self._hosts(obj)),
                "discover_hosts.sh": "\n".join(["#!/bin/sh", *lines, ""]),
            },
        }

    # -- pods

    def _template(self, obj: Object, role: str) -> Object:
        """Set the common parts of launcher and workers."""
        name, kind = obj["metadata"]["name"], role.capitalize()
        replica_spec = obj["spec"]["mpiReplicaSpecs"][kind]
        template = clone(replica_spec["template"])
        meta, spec = template.setdefault("metadata", {}), template["spec"]
        meta.setdefault("labels", {}).update(
            {LABEL + "operator-name": "mpi-operator", LABEL + "job-name": name, LABEL + "job-role": role}
        )
        spec["subdomain"] = name
        if spec.get("hostNetwork"):
            spec["dnsPolicy"] = "ClusterFirstWithHostNet"
        policy = replica_spec.get("restartPolicy") or ("OnFailure" if role == "launcher" else "Never")
        spec["restartPolicy"] = "Never" if policy == "ExitCode" else policy
        main = spec["containers"][0]
        main.setdefault("env", []).append({"name": "K_MPI_JOB_ROLE", "value": role})
        mode = {"defaultMode": 0o600} if obj["spec"].get("sshAuthMountPath") == "/root/.ssh" else {}
        spec.setdefault("volumes", []).append(
            {
                "name": "ssh-auth",
                "secret": {
                    "secretName": f"{name}-ssh",
                    **mode,
                    "items": [{"key": key, "path": path} for key, path in SSH_FILES],
                },
            }
        )
        main.setdefault("volumeMounts", []).append(
            {"name": "ssh-auth", "mountPath": obj["spec"].get("sshAuthMountPath", "/root/.ssh")}
        )
        if self._gang:
            decorate(template, name)
        return dict(template)

    def _worker(self, obj: Object, index: int) -> Object:
        name = f"{obj['metadata']['name']}-worker-{index}"
        template = self._template(obj, "worker")
        template["metadata"]["labels"][LABEL + "replica-index"] = str(index)
        template["metadata"]["name"] = template["spec"]["hostname"] = name
        main = template["spec"]["containers"][0]
        if not main.get("command") and not main.get("args"):
            main["command"] = ["/usr/sbin/sshd", "-De"]
        return template

    def _launcher(self, obj: Object) -> Object:
        name, policy = obj["metadata"]["name"], obj["spec"]["runPolicy"]
        template, kind = self._template(obj, "launcher"), obj["spec"].get("mpiImplementation", "OpenMPI")
        template["spec"]["hostname"] = f"{name}-launcher"
        main = template["spec"]["containers"][0]
        env = dict(LAUNCHER_ENV[kind])
        if kind in SLOTS_ENV:
            env[SLOTS_ENV[kind]] = str(obj["spec"].get("slotsPerWorker", 1))
        if not obj["spec"].get("runLauncherAsWorker"):  # otherwise mpirun would find GPUs that are not the launcher's
            env |= {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
        main["env"] += [{"name": key, "value": value} for key, value in env.items()]
        template["spec"]["volumes"].append(
            {
                "name": "mpi-job-config",
                "configMap": {
                    "name": f"{name}-config",
                    "items": [
                        {"key": "hostfile", "path": "hostfile", "mode": 0o444},
                        {"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": 0o555},
                    ],
                },
            }
        )
        main["volumeMounts"].append({"name": "mpi-job-config", "mountPath": "/etc/mpi"})
        if (obj["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]).get("restartPolicy"):
            self.event(
                obj,
                "Warning",
                "SetPodTemplateRestartPolicy",
                "Restart policy in pod template overridden by restart policy in replica spec",
            )
        spec: Object = {"template": template}
        for part in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"):
            if policy.get(part) is not None:
                spec[part] = policy[part]
        if suspended(obj):
            spec["suspend"] = True
        return {"metadata": {"name": f"{name}-launcher", "labels": {"app": name}}, "spec": spec}

    def refused(self, owner: Object, kind: str, body: Object, why: str) -> None:
        """Record the operator's event for a pod that the API server rejected."""
        role = {"Pod": "worker", "Job": "launcher"}.get(kind)
        if role is None:
            super().refused(owner, kind, body, why)
        else:
            self.event(owner, "Warning", "MPIJobFailed", f"{role} pod created failed: {why}")

    def _clean(self, obj: Object) -> None:
        """Delete the workers; with the policy Running those that have ended stay."""
        only = (obj["spec"].get("runPolicy") or {}).get("cleanPodPolicy") == "Running"
        for pod in self.owned(obj):
            if not only or phase(pod) in ("Running", "Pending"):
                self.remove("pods", pod)
        if self._gang:
            for group in self.owned(obj, "podgroups.scheduling.volcano.sh"):
                self.remove("podgroups.scheduling.volcano.sh", group)
        obj["status"].setdefault("replicaStatuses", {})["Worker"] = {}

    # -- status

    def _status(self, obj: Object, launcher: Object | None, workers: list[Object]) -> None:
        now, meta, status = self.store.now(), obj["metadata"], obj["status"]
        where = f"{meta['namespace']}/{meta['name']}"
        counts = status.setdefault("replicaStatuses", {})
        if suspended(obj):
            if put_job(obj, "Suspended", True, "MPIJobSuspended", "MPIJob suspended", now):
                self.event(obj, "Normal", "MPIJobSuspended", "MPIJob suspended")
        elif find(obj, "Suspended") and put_job(obj, "Suspended", False, "MPIJobResumed", "MPIJob resumed", now):
            self.event(obj, "Normal", "MPIJobResumed", "MPIJob resumed")
            status["startTime"] = now
        running = 0
        if launcher is not None:
            pods = [p for p in self.owned(launcher) if phase(p) == "Running"]
            running, held = len(pods), counts.setdefault("Launcher", {})
            held.clear()
            if (launcher.get("status") or {}).get("failed"):
                held["failed"] = launcher["status"]["failed"]
            if holds(launcher, "Complete"):
                held["succeeded"] = 1
                self._succeed(obj, launcher, where, now)
            elif holds(launcher, "Failed"):
                self._fail(obj, launcher, now)
            elif running:
                held["active"] = running
        phases = [phase(each) for each in workers]
        counts["Worker"] = {
            key: phases.count(word)
            for key, word in (("active", "Running"), ("succeeded", "Succeeded"), ("failed", "Failed"))
            if phases.count(word)
        }
        evicted = sum((each.get("status") or {}).get("reason") == "Evicted" for each in workers)
        if evicted:
            put_job(obj, "Failed", True, "MPIJobEvicted", f"{evicted}/{len(workers)} workers are evicted", now)
        if suspended(obj):
            put_job(obj, "Running", False, "MPIJobSuspended", f"MPIJob {where} is suspended.", now)
        elif (
            running
            and phases.count("Running") == len(workers)
            and put_job(obj, "Running", True, "MPIJobRunning", f"MPIJob {where} is running.", now)
        ):
            self.event(obj, "Normal", "MPIJobRunning", f"MPIJob {where} is running")

    def _succeed(self, obj: Object, launcher: Object, where: str, now: str) -> None:
        message = f"MPIJob {where} successfully completed."
        obj["status"].setdefault("completionTime", launcher["status"].get("completionTime", now))
        if put_job(obj, "Succeeded", True, "MPIJobSucceeded", message, now):
            self.event(obj, "Normal", "MPIJobSucceeded", message)

    def _fail(self, obj: Object, launcher: Object, now: str) -> None:
        failed = find(launcher, "Failed") or {}
        reason, message = failed.get("reason", "MPIJobFailed"), failed.get("message", "")
        last = max(
            (p for p in self.owned(launcher) if phase(p) == "Failed"),
            key=lambda p: str(p["metadata"]["creationTimestamp"]),
            default=None,
        )
        if reason == "BackoffLimitExceeded" and last is not None:
            reason += "/" + last["status"].get("reason", "")
            message += ": " + last["status"].get("message", "")
        obj["status"].setdefault("completionTime", now)
        if put_job(obj, "Failed", True, reason, message, now):
            self.event(obj, "Warning", reason, message)


def ssh_secret(name: str) -> Object:
    """Return a new key pair of the operator's type (ECDSA P-521)."""
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n"
    data = {"ssh-privatekey": private, "ssh-publickey": public}
    return {
        "metadata": {"name": f"{name}-ssh", "labels": {"app": name}},
        "type": "kubernetes.io/ssh-auth",
        "data": {part: base64.b64encode(text).decode() for part, text in data.items()},
    }
