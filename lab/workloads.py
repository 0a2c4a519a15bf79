"""Workloads that exist when the cluster starts: their controllers and pods, as objects without processes."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING, Any

from .apiserver.schema.values import ALPHABET
from .format import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .apiserver.store import Store

Object = dict[str, Any]
# Pods without a process have the upper addresses of a node's range; the kubelet allocates the lower ones.
FIRST_ADDRESS = 200


def identity(*parts: str) -> str:
    """Return a UUID that is the same in every run of this world."""
    digest = hashlib.sha256("/".join(parts).encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-a{digest[17:20]}-{digest[20:32]}"


def free_pod_name(store: Store, namespace: str, prefix: str, seed: str) -> str:
    """Return a pod name in the format of generateName, the same in every run of this world.

    Like the API server, which retries when a generated name is in use (KEP-4420), it never returns a name in use.
    """
    letters = random.Random(f"{namespace}/{prefix}/{seed}")  # noqa: S311 - names, not secrets
    while store.get("pods", namespace, name := prefix + "".join(letters.choices(ALPHABET, k=5))):
        pass
    return name


class Workloads:
    """The initial workloads on the nodes of a world."""

    def __init__(
        self,
        store: Store,
        nodes: Mapping[str, int],
        gpu_nodes: Sequence[str],
        address: Callable[[int, int], str],
        host: Callable[[str], str],
        born: str,
    ) -> None:
        """`address(node, number)`: the address of a node's n-th pod; `host(node)`: the node's own."""
        self._store, self._nodes, self._gpu_nodes = store, nodes, gpu_nodes
        self._address, self._host, self._born = address, host, born
        self._pods: dict[str, int] = {}

    def add(self, name: str, workload: Mapping[str, Any]) -> None:
        """Load one workload of a scenario; ScenarioError for an unknown kind."""
        kind, namespace = workload.get("kind", "DaemonSet"), workload.get("namespace", "default")
        places = self._gpu_nodes if workload.get("where") == "gpu" else list(self._nodes)
        places = [node for node in places if node in workload["nodes"]] if workload.get("nodes") else places
        if kind == "Deployment":
            desired = workload.get("replicas", 1)
            places = [places[number % len(places)] for number in range(desired)] if places else []
        else:
            desired = len(places)
        labels = {"app": name, **workload.get("labels", {})}
        broken = workload.get("broken", {})
        bad = [node for node in places if broken.get(node, broken.get("*"))]
        template = {"metadata": {"labels": labels}, "spec": self._pod_spec(name, workload)}
        owner = self._owner(name, kind, namespace, workload, template, desired, len(places) - len(bad))
        for number, node in enumerate(places):
            trouble = broken.get(node, broken.get("*", ""))
            prefix = f"{owner['name']}-"
            pod = (
                f"{prefix}{number}" if workload.get("ordinal") else free_pod_name(self._store, namespace, prefix, node)
            )
            self._pod(pod, namespace, node, owner, template, trouble)

    def _pod_spec(self, name: str, workload: Mapping[str, Any]) -> Object:
        resources: Object = {}
        if workload.get("requests"):
            limits = {key: value for key, value in workload["requests"].items() if "/" in key}
            resources = {"requests": dict(workload["requests"]), **({"limits": limits} if limits else {})}
        return {
            "containers": [
                {
                    "name": name,
                    "image": workload["image"],
                    "imagePullPolicy": "IfNotPresent",
                    "resources": resources,
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "tolerations": [{"operator": "Exists"}],
            "priority": 0,
        }

    def _owner(
        self,
        name: str,
        kind: str,
        namespace: str,
        workload: Mapping[str, Any],
        template: Object,
        desired: int,
        good: int,
    ) -> Object:
        """Create the owner of the pods; return its ownerReference."""
        api_version = workload.get("api_version", "apps/v1")
        served = self._store.kinds.of(api_version, kind)
        if served is None:
            raise ScenarioError(f"workloads: {name}: no kind {kind!r} in {api_version!r}")
        spec: Object = {"template": template, "selector": {"matchLabels": template["metadata"]["labels"]}}
        if kind == "DaemonSet":
            spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
            status: Object = {
                "currentNumberScheduled": desired,
                "desiredNumberScheduled": desired,
                "numberMisscheduled": 0,
                "numberReady": good,
                "numberAvailable": good,
                "updatedNumberScheduled": desired,
                "observedGeneration": 1,
                **({"numberUnavailable": desired - good} if desired > good else {}),
            }
        else:
            spec["replicas"] = desired
            status = {
                "replicas": desired,
                "readyReplicas": good,
                "availableReplicas": good,
                "updatedReplicas": desired,
                "observedGeneration": 1,
            }
        uid = identity(kind, namespace, name)
        meta = {
            "name": name,
            "uid": uid,
            "creationTimestamp": self._born,
            "generation": 1,
            "labels": template["metadata"]["labels"],
        }
        self._store.load(served.key, {"metadata": meta, "spec": spec, "status": status}, namespace)
        owner = {
            "apiVersion": api_version,
            "kind": kind,
            "name": name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return self._replica_set(owner, namespace, template, desired, good) if kind == "Deployment" else owner

    def _replica_set(self, owner: Object, namespace: str, template: Object, desired: int, good: int) -> Object:
        """Create the ReplicaSet of a Deployment, which owns the pods."""
        digest = identity("template", owner["name"]).replace("-", "")[:10]
        labels = {**template["metadata"]["labels"], "pod-template-hash": digest}
        name, uid = f"{owner['name']}-{digest}", identity("ReplicaSet", namespace, owner["name"])
        template["metadata"]["labels"] = labels
        self._store.load(
            "replicasets.apps",
            {
                "metadata": {
                    "name": name,
                    "uid": uid,
                    "creationTimestamp": self._born,
                    "generation": 1,
                    "labels": labels,
                    "ownerReferences": [owner],
                },
                "spec": {"replicas": desired, "selector": {"matchLabels": labels}, "template": template},
                "status": {
                    "replicas": desired,
                    "fullyLabeledReplicas": desired,
                    "readyReplicas": good,
                    "availableReplicas": good,
                    "observedGeneration": 1,
                },
            },
            namespace,
        )
        return {**owner, "kind": "ReplicaSet", "name": name, "uid": uid}

    def _pod(self, name: str, namespace: str, node: str, owner: Object, template: Object, trouble: str) -> None:
        spec = {**template["spec"], "nodeName": node}
        ready = "False" if trouble else "True"
        self._pods[node] = self._pods.get(node, -1) + 1
        ip, host = self._address(self._nodes[node], FIRST_ADDRESS + self._pods[node]), self._host(node)
        container = template["spec"]["containers"][0]
        why = f"back-off 5m0s restarting failed container={container['name']} pod={name}_{namespace}"
        waiting = {"waiting": {"reason": trouble, "message": why}}
        last = {
            "terminated": {"exitCode": 1, "reason": "Error", "startedAt": self._born, "finishedAt": self._store.now()}
        }
        self._store.load(
            "pods",
            {
                "metadata": {
                    "name": name,
                    "uid": identity("pod", namespace, name),
                    "creationTimestamp": self._born,
                    "generateName": f"{owner['name']}-",
                    "labels": template["metadata"]["labels"],
                    "ownerReferences": [owner],
                },
                "spec": spec,
                "status": {
                    "phase": "Running",
                    "hostIP": host,
                    "hostIPs": [{"ip": host}],
                    "podIP": ip,
                    "podIPs": [{"ip": ip}],
                    "startTime": self._born,
                    "qosClass": "Burstable" if container["resources"] else "BestEffort",
                    "conditions": [
                        {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": self._born}
                        for kind, status in (
                            ("PodReadyToStartContainers", "True"),
                            ("Initialized", "True"),
                            ("Ready", ready),
                            ("ContainersReady", ready),
                            ("PodScheduled", "True"),
                        )
                    ],
                    "containerStatuses": [
                        {
                            "name": container["name"],
                            "image": container["image"],
                            "ready": not trouble,
                            "started": not trouble,
                            "imageID": f"sha256:{hashlib.sha256(container['image'].encode()).hexdigest()}",
                            "containerID": f"containerd://{hashlib.sha256(name.encode()).hexdigest()}",
                            "restartCount": 212 if trouble else 0,
                            "lastState": last if trouble else {},
                            "state": waiting if trouble else {"running": {"startedAt": self._born}},
                        }
                    ],
                },
            },
            namespace,
        )
