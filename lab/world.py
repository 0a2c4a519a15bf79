"""What is in the cluster when it starts: nodes, what the operators run on them, and what a scenario adds.

Everything is an object: no process stands behind the pods of operators. Labels, capacity, conditions and addresses are
those that a kubelet with GPU and RDMA device plugins, GPU feature discovery and node feature discovery report
(api-contract recordings of node objects; published `kubectl get node -o yaml` of HGX H100 nodes).
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING, Any

from . import operators
from .apiserver.schema.kinds import Kind
from .apiserver.schema.values import ALPHABET, rfc3339
from .format import ScenarioError, merge, node_names, pool_nodes
from .node.attachments import definitions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .apiserver.store import Store

Object = dict[str, Any]
#: How long the cluster has been there: nodes and operators are not as young as the process that plays them.
AGE_S = 41 * 86400
#: Pods without a process take the upper addresses of a node's range; the kubelet hands out the lower ones.
FIRST_ADDRESS = 200

CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


class World:
    """The objects of one scenario."""

    def __init__(self, store: Store, world: Mapping[str, Any], address: Callable[[int, int], str]) -> None:
        """`address(node, number)`: the address of a node's n-th pod."""
        self.store, self.world, self._address = store, operators.furnished(world), address
        self.born = rfc3339(store.clock() - AGE_S)
        self.nodes: dict[str, int] = {}
        self.gpu_nodes: list[str] = []
        self._pods: dict[str, int] = {}
        self._pool_of: dict[str, str] = {}
        self._images = {gpus: self._image_list(gpus=gpus) for gpus in (False, True)}

    def furnish(self) -> None:
        """Put everything into the store; ScenarioError for an object that the server would not take."""
        with_gpus, without = node_names(self.world)
        self._pool_of = {node: pool for pool, nodes in pool_nodes(self.world).items() for node in nodes}
        for name in (*with_gpus, *without):
            self._node(name, gpus=name in with_gpus)
        namespaces = {workload.get("namespace", "default") for workload in self.world.get("workloads", {}).values()}
        for name in sorted(namespaces):
            if self.store.get("namespaces", None, name) is None:
                self.store.create("namespaces", {"metadata": {"name": name}})
        self._objects()
        for name, workload in self.world.get("workloads", {}).items():
            self._workload(name, workload)
        self._crowd(**(self.world.get("crowd") or {}))

    def _crowd(self, pods: int = 0, events: int = 0, namespaces: int = 0) -> None:
        """What lies around in a cluster that is used: other teams' namespaces, pods that ended, events."""
        for number in range(namespaces):
            self.store.create("namespaces", {"metadata": {"name": f"team-{number}"}})
        ended = {"phase": "Succeeded", "startTime": self.born, "conditions": []}
        container = {"name": "main", "image": "registry.example/team/tool:1.0"}
        places = list(self.nodes) or [""]
        for number in range(pods):
            name = self._free_name("default", f"nightly-{number // 3}-", str(number))
            spec = {"nodeName": places[number % len(places)], "containers": [container], "restartPolicy": "Never"}
            self.store.load("pods", {"metadata": {"name": name}, "spec": spec, "status": ended}, "default")
        for number in range(events):
            node = self.store.get("nodes", None, places[number % len(places)])
            if node is not None:
                self.store.event(
                    node, "Warning", f"Noise{number}", f"something harmless happened {number} times", "kubelet"
                )

    def identity(self, *parts: str) -> str:
        """Return a UUID that is the same whenever this world is played."""
        digest = hashlib.sha256("/".join(parts).encode()).hexdigest()
        return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-a{digest[17:20]}-{digest[20:32]}"

    def _free_name(self, namespace: str, prefix: str, seed: str) -> str:
        """Return a pod name as generateName makes one, the same whenever this world is played.

        Like the API server, which tries again when a generated name is taken (KEP-4420), it never takes another's.
        """
        letters = random.Random(f"{namespace}/{prefix}/{seed}")  # noqa: S311 - names, not secrets
        while self.store.get("pods", namespace, name := prefix + "".join(letters.choices(ALPHABET, k=5))):
            pass
        return name

    def _node(self, name: str, *, gpus: bool) -> None:
        number, now = len(self.nodes), self.store.now()
        self.nodes[name] = number
        gpu, fabric = self.world["gpu"], self.world["fabric"]
        pool = (self.world.get("pools") or {}).get(self._pool_of.get(name, ""), {})
        labels = {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name[:63],  # as much as a label holds
            "kubernetes.io/os": "linux",
        }
        offered: dict[str, str] = {}
        if gpus:
            self.gpu_nodes.append(name)
            labels |= self.world.get("gpu_labels", {}) | self.world.get("fabric_labels", {}) | pool.get("labels", {})
            plain = operators.options(self.world).get("dra", {"device_plugin": True}).get("device_plugin")
            offered = {gpu["resource"]: str(gpu["count"])} if gpu.get("resource") and plain else {}
            if fabric.get("resource"):
                offered[fabric["resource"]] = str(fabric["shares"])
        ip, cidr = self._host(name), self._address(number, 0).rpartition(".")[0] + ".0/24"
        node: Object = {
            "metadata": {
                "name": name,
                "uid": self.identity("node", name),
                "creationTimestamp": self.born,
                "labels": labels,
                "annotations": {
                    "node.alpha.kubernetes.io/ttl": "0",
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                },
            },
            "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
            "status": {
                "capacity": offered,
                "allocatable": dict(offered),
                "conditions": [
                    {
                        "type": kind,
                        "status": status,
                        "lastHeartbeatTime": now,
                        "lastTransitionTime": self.born,
                        "reason": reason,
                        "message": message,
                    }
                    for kind, status, reason, message in CONDITIONS
                ],
                "addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": {
                    "machineID": self.identity("machine", name).replace("-", ""),
                    "systemUUID": self.identity("system", name),
                    "bootID": self.identity("boot", name),
                    "kubeletVersion": self.world["version"],
                },
                "images": self._images[gpus],
                "runtimeHandlers": [
                    {"name": handler, "features": {"recursiveReadOnlyMounts": True, "userNamespaces": True}}
                    for handler in (("", "runc", "nvidia") if gpus else ("", "runc"))
                ],
                "features": {"supplementalGroupsPolicy": True},
            },
        }
        changes = self.world.get("node_changes", {})
        special = self.world.get("gpu_node", {}) if gpus else {}
        for patch in (self.world["node"], special, pool.get("node", {}), changes.get("*", {}), changes.get(name, {})):
            node = merge(node, patch)
        self.store.load("nodes", node)

    def _host(self, node: str) -> str:
        """A node's own address."""
        number = self.nodes[node] + 11
        return f"10.200.{number // 256}.{number % 256}"

    def _image_list(self, *, gpus: bool) -> list[Object]:
        found = [{"names": ["registry.k8s.io/pause:3.10.1"], "sizeBytes": 320448}]
        for workload in self.world.get("workloads", {}).values():
            entry = {"names": [workload["image"]], "sizeBytes": 40_000_000 + sum(workload["image"].encode()) * 20_000}
            if (gpus or workload.get("where") != "gpu") and entry not in found:
                found.append(entry)
        return sorted(found, key=lambda image: -image["sizeBytes"])

    def _objects(self) -> None:
        for given in [*definitions(self.world["fabric"]), *self.world.get("objects", [])]:
            obj = merge({}, given)
            kind = self.store.kinds.of(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
            if kind is None:
                raise ScenarioError(f"objects: no kind {obj.get('kind')!r} in {obj.get('apiVersion')!r}")
            namespace = obj.get("metadata", {}).get("namespace", "default") if kind.namespaced else None
            if namespace and self.store.get("namespaces", None, namespace) is None:
                self.store.create("namespaces", {"metadata": {"name": namespace}})
            name = str(obj.get("metadata", {}).get("name") or "")
            if name and self.store.get(kind.key, namespace, name) is not None:
                self._change(kind.key, namespace, name, obj)
            elif "status" in obj:
                self.store.load(kind.key, obj, namespace)
            else:
                self.store.create(kind.key, obj, namespace)
            if kind.kind == "CustomResourceDefinition":
                self._serve(obj["spec"])

    def _change(self, key: str, namespace: str | None, name: str, patch: Object) -> None:
        """Change an object that every cluster has, such as the namespace default."""

        def write(obj: Object) -> None:
            changed = merge(obj, patch)
            obj.clear()
            obj.update(changed)

        self.store.mutate(key, namespace, name, write)

    def _serve(self, spec: Mapping[str, Any]) -> None:
        """Let the server know a custom kind at once: objects of it may follow in this very world."""
        for version in spec["versions"]:
            names, schema = spec["names"], version.get("schema", {}).get("openAPIV3Schema")
            kind = Kind(
                spec["group"],
                version["name"],
                names["kind"],
                names["plural"],
                spec["scope"] == "Namespaced",
                short_names=tuple(names.get("shortNames", ())),
                schema=schema,
                custom=True,
            )
            if (kind.group, kind.version, kind.plural) not in self.store.kinds.by_path:
                self.store.kinds.add(kind)

    def _workload(self, name: str, workload: Mapping[str, Any]) -> None:
        kind, namespace = workload.get("kind", "DaemonSet"), workload.get("namespace", "default")
        places = self.gpu_nodes if workload.get("where") == "gpu" else list(self.nodes)
        places = [node for node in places if node in workload["nodes"]] if workload.get("nodes") else places
        if kind == "Deployment":
            wanted = workload.get("replicas", 1)
            places = [places[number % len(places)] for number in range(wanted)] if places else []
        else:
            wanted = len(places)
        labels = {"app": name, **workload.get("labels", {})}
        broken = workload.get("broken", {})
        bad = [node for node in places if broken.get(node, broken.get("*"))]
        template = {"metadata": {"labels": labels}, "spec": self._pod_spec(name, workload)}
        owner = self._owner(name, kind, namespace, workload, template, wanted, len(places) - len(bad))
        for number, node in enumerate(places):
            trouble = broken.get(node, broken.get("*", ""))
            prefix = f"{owner['name']}-"
            pod = f"{prefix}{number}" if workload.get("ordinal") else self._free_name(namespace, prefix, node)
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
        wanted: int,
        good: int,
    ) -> Object:
        """Load what owns the pods; returns their ownerReference."""
        api_version = workload.get("api_version", "apps/v1")
        found = self.store.kinds.of(api_version, kind)
        if found is None:
            raise ScenarioError(f"workloads: {name}: no kind {kind!r} in {api_version!r}")
        spec: Object = {"template": template, "selector": {"matchLabels": template["metadata"]["labels"]}}
        if kind == "DaemonSet":
            spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
            status: Object = {
                "currentNumberScheduled": wanted,
                "desiredNumberScheduled": wanted,
                "numberMisscheduled": 0,
                "numberReady": good,
                "numberAvailable": good,
                "updatedNumberScheduled": wanted,
                "observedGeneration": 1,
                **({"numberUnavailable": wanted - good} if wanted > good else {}),
            }
        else:
            spec["replicas"] = wanted
            status = {
                "replicas": wanted,
                "readyReplicas": good,
                "availableReplicas": good,
                "updatedReplicas": wanted,
                "observedGeneration": 1,
            }
        uid = self.identity(kind, namespace, name)
        meta = {
            "name": name,
            "uid": uid,
            "creationTimestamp": self.born,
            "generation": 1,
            "labels": template["metadata"]["labels"],
        }
        self.store.load(found.key, {"metadata": meta, "spec": spec, "status": status}, namespace)
        owner = {
            "apiVersion": api_version,
            "kind": kind,
            "name": name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return self._replica_set(owner, namespace, template, wanted, good) if kind == "Deployment" else owner

    def _replica_set(self, owner: Object, namespace: str, template: Object, wanted: int, good: int) -> Object:
        """A Deployment's pods belong to its ReplicaSet."""
        digest = self.identity("template", owner["name"]).replace("-", "")[:10]
        labels = {**template["metadata"]["labels"], "pod-template-hash": digest}
        name, uid = f"{owner['name']}-{digest}", self.identity("ReplicaSet", namespace, owner["name"])
        template["metadata"]["labels"] = labels
        self.store.load(
            "replicasets.apps",
            {
                "metadata": {
                    "name": name,
                    "uid": uid,
                    "creationTimestamp": self.born,
                    "generation": 1,
                    "labels": labels,
                    "ownerReferences": [owner],
                },
                "spec": {"replicas": wanted, "selector": {"matchLabels": labels}, "template": template},
                "status": {
                    "replicas": wanted,
                    "fullyLabeledReplicas": wanted,
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
        ip, host = self._address(self.nodes[node], FIRST_ADDRESS + self._pods[node]), self._host(node)
        container = template["spec"]["containers"][0]
        why = f"back-off 5m0s restarting failed container={container['name']} pod={name}_{namespace}"
        waiting = {"waiting": {"reason": trouble, "message": why}}
        last = {
            "terminated": {"exitCode": 1, "reason": "Error", "startedAt": self.born, "finishedAt": self.store.now()}
        }
        self.store.load(
            "pods",
            {
                "metadata": {
                    "name": name,
                    "uid": self.identity("pod", namespace, name),
                    "creationTimestamp": self.born,
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
                    "startTime": self.born,
                    "qosClass": "Burstable" if container["resources"] else "BestEffort",
                    "conditions": [
                        {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": self.born}
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
                            "state": waiting if trouble else {"running": {"startedAt": self.born}},
                        }
                    ],
                },
            },
            namespace,
        )
