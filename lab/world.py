"""The initial objects of the cluster: nodes, operators' objects on them, and additions of a scenario.

Everything is an object: operators' pods have no processes. Labels, capacity, conditions and addresses are those that a
kubelet with GPU and RDMA device plugins, GPU feature discovery and node feature discovery report (api-contract
recordings of node objects; published `kubectl get node -o yaml` of HGX H100 nodes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import operators
from .apiserver.schema.kinds import Kind
from .apiserver.schema.values import rfc3339
from .format import ScenarioError, merge, node_names, pool_nodes
from .node.attachments import definitions
from .workloads import Workloads, free_pod_name, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .apiserver.store import Store

Object = dict[str, Any]
# Age of the cluster in seconds: nodes and operators are older than the simulating process.
AGE_S = 41 * 86400

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
        self._pool_of: dict[str, str] = {}
        self._images = {gpus: self._image_list(gpus=gpus) for gpus in (False, True)}

    def furnish(self) -> None:
        """Store all objects; ScenarioError for an object that the server would reject."""
        with_gpus, without = node_names(self.world)
        self._pool_of = {node: pool for pool, nodes in pool_nodes(self.world).items() for node in nodes}
        for name in (*with_gpus, *without):
            self._node(name, gpus=name in with_gpus)
        namespaces = {workload.get("namespace", "default") for workload in self.world.get("workloads", {}).values()}
        for name in sorted(namespaces):
            if self.store.get("namespaces", None, name) is None:
                self.store.create("namespaces", {"metadata": {"name": name}})
        self._objects()
        workloads = Workloads(self.store, self.nodes, self.gpu_nodes, self._address, self._host, self.born)
        for name, workload in self.world.get("workloads", {}).items():
            workloads.add(name, workload)
        self._crowd(**(self.world.get("crowd") or {}))

    def _crowd(self, pods: int = 0, events: int = 0, namespaces: int = 0) -> None:
        """Create the other objects of a used cluster: other teams' namespaces, ended pods, events."""
        for number in range(namespaces):
            self.store.create("namespaces", {"metadata": {"name": f"team-{number}"}})
        ended = {"phase": "Succeeded", "startTime": self.born, "conditions": []}
        container = {"name": "main", "image": "registry.example/team/tool:1.0"}
        places = list(self.nodes) or [""]
        for number in range(pods):
            name = free_pod_name(self.store, "default", f"nightly-{number // 3}-", str(number))
            spec = {"nodeName": places[number % len(places)], "containers": [container], "restartPolicy": "Never"}
            self.store.load("pods", {"metadata": {"name": name}, "spec": spec, "status": ended}, "default")
        for number in range(events):
            node = self.store.get("nodes", None, places[number % len(places)])
            if node is not None:
                self.store.event(
                    node, "Warning", f"Noise{number}", f"something harmless happened {number} times", "kubelet"
                )

    def _node(self, name: str, *, gpus: bool) -> None:
        number, now = len(self.nodes), self.store.now()
        self.nodes[name] = number
        gpu, fabric = self.world["gpu"], self.world["fabric"]
        pool = (self.world.get("pools") or {}).get(self._pool_of.get(name, ""), {})
        labels = {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name[:63],  # maximum length of a label value
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
                "uid": identity("node", name),
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
                    "machineID": identity("machine", name).replace("-", ""),
                    "systemUUID": identity("system", name),
                    "bootID": identity("boot", name),
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
        """Return a node's own address."""
        number = self.nodes[node] + 11
        return f"10.200.{number // 256}.{number % 256}"

    def _image_list(self, *, gpus: bool) -> list[Object]:
        images = [{"names": ["registry.k8s.io/pause:3.10.1"], "sizeBytes": 320448}]
        for workload in self.world.get("workloads", {}).values():
            entry = {"names": [workload["image"]], "sizeBytes": 40_000_000 + sum(workload["image"].encode()) * 20_000}
            if (gpus or workload.get("where") != "gpu") and entry not in images:
                images.append(entry)
        return sorted(images, key=lambda image: -image["sizeBytes"])

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
        """Register a custom kind at once: objects of it may follow in the same world."""
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
