"""Which objects does a trial become?

Plain dicts, never text templates. One Indexed Job with one pod per node, a headless Service that publishes the pods'
names before they are ready, and a ConfigMap with the probe; the Job owns the other two, so that its TTL takes all of
them. The pod is shaped like training's own: the probe only replaces the training program.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .trial import SpecError, TrialSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTAINER = "trial"
MANAGED_BY = "seatrial"
MOUNT = "/seatrial"
LABEL_MANAGED = "app.kubernetes.io/managed-by"
LABEL_RUN = "app.kubernetes.io/instance"
# kubernetes.io/docs/concepts/configuration/configmap: at most 1 MiB of data; the rest of the object needs some room.
_LARGEST_CONFIGMAP = 1_000_000
# What every rank logs, so that its transport can be judged (the NCCL user guide's environment variables).
_NCCL_EVIDENCE = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,GRAPH,TUNING"}
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclass(frozen=True, slots=True)
class Manifests:
    """The three objects, without owner references (the Job's uid is known only once it exists)."""

    job: dict[str, Any]
    service: dict[str, Any]
    configmap: dict[str, Any]

    def owned_by(self, uid: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """ConfigMap and Service with the created Job as their owner.

        Not blockOwnerDeletion: that needs a right on the Job's finalizers where the API server checks it.
        """
        name = self.job["metadata"]["name"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": False}
        made = []
        for item in (self.configmap, self.service):
            made.append(item | {"metadata": item["metadata"] | {"ownerReferences": [owner]}})
        return made[0], made[1]


def build(spec: TrialSpec, files: Mapping[str, str]) -> Manifests:
    """Turn a spec and the probe's files (path below /seatrial -> text) into objects; the Job is suspended."""
    texts = dict(files) | {"trial.json": json.dumps(trial_json(spec), indent=1)}
    keys = {path: path.replace("/", ".") for path in texts}
    if len(set(keys.values())) != len(keys):
        raise SpecError("two probe files would have the same name in the ConfigMap")
    size = sum(len(key) + len(texts[path].encode()) for path, key in keys.items())
    if size > _LARGEST_CONFIGMAP:
        raise SpecError(f"the probe's files are {size} bytes, more than a ConfigMap holds ({_LARGEST_CONFIGMAP})")
    meta = {"name": spec.job_name, "namespace": spec.namespace, "labels": labels(spec)}
    configmap = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "immutable": True,
        "data": {keys[path]: texts[path] for path in sorted(texts)},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            "clusterIP": "None",
            # Ranks must find each other before they are ready: readiness may well depend on the rendezvous.
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": spec.job_name},
            "ports": [{"name": "rendezvous", "port": spec.master_port, "protocol": "TCP"}],
        },
    }
    return Manifests(job=_job(spec, meta, keys), service=service, configmap=configmap)


def labels(spec: TrialSpec) -> dict[str, str]:
    """Labels of everything a run creates; `instance` is the run, `managed-by` what a sweep may delete."""
    return dict(spec.labels) | {
        "app.kubernetes.io/name": "seatrial",
        "app.kubernetes.io/component": "trial",
        LABEL_MANAGED: MANAGED_BY,
        LABEL_RUN: spec.run_id,
    }


def trial_json(spec: TrialSpec) -> dict[str, Any]:
    """What the probe reads: who its peers are, what to run, and how long."""
    times = spec.deadlines
    return {
        "schema": 1,
        "run": spec.run_id,
        "job": spec.job_name,
        "nodes": spec.nodes,
        "gpus_per_node": spec.gpus_per_node,
        "peers": spec.peers,
        "gpu_kind": spec.gpu_kind,
        "master_port": spec.master_port,
        "deadline_s": times.probe_s,
        "dns_timeout_s": times.dns_s,
        "port_timeout_s": times.port_s,
        "peer_wait_s": times.start_s,
        "collective_timeout_s": times.collective_s,
        "collectives": [{"name": item.name, "env": dict(item.env)} for item in spec.collectives],
        "bench": asdict(spec.bench),
    }


def environment(spec: TrialSpec) -> list[dict[str, Any]]:
    """The container's environment: both rendezvous conventions, identity, NCCL's evidence, then the user's own.

    WORLD_SIZE is the number of *nodes*, as NVIDIA TAO's containers read it; the probe removes it before torchrun.
    """
    fixed = {
        "WORLD_SIZE": str(spec.nodes),
        "NNODES": str(spec.nodes),
        "NUM_GPU_PER_NODE": str(spec.gpus_per_node),
        "NPROC_PER_NODE": str(spec.gpus_per_node),
        "MASTER_ADDR": spec.peers[0],
        "MASTER_PORT": str(spec.master_port),
        "SEATRIAL_RUN": spec.run_id,
    }
    fields = {
        "NODE_RANK": _INDEX,
        "SEATRIAL_NODE_NAME": "spec.nodeName",
        "SEATRIAL_POD_NAME": "metadata.name",
        "SEATRIAL_POD_IP": "status.podIP",
    }
    told: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in fixed.items()]
    told += [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": field}}} for key, field in fields.items()]
    told += [{"name": key, "value": value} for key, value in sorted((_NCCL_EVIDENCE | dict(spec.env)).items())]
    return told


def pod_template(spec: TrialSpec, keys: Mapping[str, str]) -> dict[str, Any]:
    """The pod as training would have it, with the probe as its program."""
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "subdomain": spec.job_name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": _pod_security(spec),
        "containers": [_container(spec)],
        "volumes": _volumes(spec, keys),
    }
    if spec.anti_affinity and spec.nodes > 1:
        term = {"labelSelector": {"matchLabels": {LABEL_RUN: spec.run_id}}, "topologyKey": "kubernetes.io/hostname"}
        pod["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if spec.host_network:
        # Without this policy a pod on the host's network asks the host's resolver, which knows no Services.
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    optional = {
        "nodeSelector": dict(spec.node_selector),
        "tolerations": [dict(item) for item in spec.tolerations],
        "imagePullSecrets": [{"name": name} for name in spec.pull_secrets],
        "runtimeClassName": spec.runtime_class,
        "schedulerName": spec.scheduler_name,
        "priorityClassName": spec.priority_class,
        "serviceAccountName": spec.service_account,
        # An init container that restarts is a native sidecar: it ends with the pod's main container.
        "initContainers": [dict(item) | {"restartPolicy": "Always"} for item in spec.sidecars],
    }
    pod |= {key: value for key, value in optional.items() if value}
    meta: dict[str, Any] = {"labels": labels(spec)}
    if spec.annotations:
        meta["annotations"] = dict(spec.annotations)
    return {"metadata": meta, "spec": pod}


def dry_pod(spec: TrialSpec) -> dict[str, Any]:
    """One pod of the trial as a Pod of its own, for a server-side dry run: a Job is accepted where its pods are not."""
    template = pod_template(spec, {"probe.py": "probe.py"})
    meta = template["metadata"] | {"generateName": f"{spec.job_name}-", "namespace": spec.namespace}
    # The Job controller sets the index that NODE_RANK refers to.
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    meta = meta | {"annotations": meta.get("annotations", {}) | index}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def to_yaml(manifests: Manifests) -> str:
    """Write the objects as one YAML stream in the order in which they are created."""
    import yaml  # noqa: PLC0415  (only for --print-manifests)

    objects = [manifests.job, manifests.configmap, manifests.service]
    return yaml.safe_dump_all(objects, sort_keys=False, default_flow_style=False, width=120)


def _job(spec: TrialSpec, meta: dict[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "suspend": True,
            "completionMode": "Indexed",
            "completions": spec.nodes,
            "parallelism": spec.nodes,
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(spec.deadlines.job_s),
            "ttlSecondsAfterFinished": int(spec.deadlines.ttl_s),
            # Ends the Job at once and names the pod when others take one away, instead of blaming its exit code.
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": pod_template(spec, keys),
        },
    }


def _container(spec: TrialSpec) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [{"name": "probe", "mountPath": MOUNT, "readOnly": True}]
    if spec.shm_bytes:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108  (a path in the pod)
    for size in sorted(spec.hugepages):
        path = "/dev/hugepages" if len(spec.hugepages) == 1 else f"/dev/hugepages-{size}"
        mounts.append({"name": f"hugepages-{size.lower()}", "mountPath": path})
    mounts += [dict(item) for item in spec.mounts]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": spec.image,
        "command": ["python3", f"{MOUNT}/probe.py"],
        "env": environment(spec),
        "ports": [{"name": "rendezvous", "containerPort": spec.master_port, "protocol": "TCP"}],
        "resources": _resources(spec),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]} | ({"add": list(spec.capabilities)} if spec.capabilities else {}),
        },
        "volumeMounts": mounts,
    }
    if spec.pull_policy:
        container["imagePullPolicy"] = spec.pull_policy
    return container


def _resources(spec: TrialSpec) -> dict[str, Any]:
    # Extended resources and hugepages cannot be overcommitted: request and limit must be equal.
    exact = {name: str(amount) for name, amount in sorted(spec.extended.items())}
    exact |= {f"hugepages-{size}": amount for size, amount in sorted(spec.hugepages.items())}
    requests = exact | {key: value for key, value in (("cpu", spec.cpu), ("memory", spec.memory)) if value}
    limits = exact | dict(spec.limits)
    return {key: value for key, value in (("limits", limits), ("requests", requests)) if value}


def _pod_security(spec: TrialSpec) -> dict[str, Any]:
    """As the restricted Pod Security Standard wants it, but for the user: stock training images run as root."""
    security: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if spec.run_as_user is not None:
        security |= {"runAsNonRoot": True, "runAsUser": spec.run_as_user}
    return security


def _volumes(spec: TrialSpec, keys: Mapping[str, str]) -> list[dict[str, Any]]:
    items = [{"key": key, "path": path} for path, key in sorted(keys.items())]
    volumes: list[dict[str, Any]] = [{"name": "probe", "configMap": {"name": spec.job_name, "items": items}}]
    if spec.shm_bytes:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(int(spec.shm_bytes))}})
    for size in sorted(spec.hugepages):
        medium = "HugePages" if len(spec.hugepages) == 1 else f"HugePages-{size}"
        volumes.append({"name": f"hugepages-{size.lower()}", "emptyDir": {"medium": medium}})
    return volumes + [dict(item) for item in spec.volumes]
