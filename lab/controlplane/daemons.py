"""The DaemonSet controller: one pod on every node that matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..apiserver.schema.values import clone
from .endpoints import is_ready
from .owned import ENDED, WorkloadController, available_in, controller_of, new_pod, template_hash
from .rollout import share
from .scheduler import placement

if TYPE_CHECKING:
    from ..apiserver.store import Store
    from .queue import Key

Object = dict[str, Any]
HASH, GENERATION = "controller-revision-hash", "pod-template-generation"
TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""Tolerations of DaemonSet pods (https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/)."""


class DaemonSetController(WorkloadController):
    """The controller of all DaemonSets."""

    key, kind, component = "daemonsets.apps", "DaemonSet", "daemonset-controller"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._furnished: dict[str, set[str]] = {}
        """By uid, the nodes of initial sets, whose templates do not select their nodes."""

    def start(self) -> None:
        """Watch; new and changed nodes need their pods."""
        super().start()
        self._furnished = {d["metadata"]["uid"]: set() for d in self.store.list(self.key)}
        for pod in self.store.list("pods") if self._furnished else ():
            owner = controller_of(pod)
            if owner is not None and owner["uid"] in self._furnished:
                self._furnished[owner["uid"]].add(pod["spec"].get("nodeName", ""))
        self._ends.append(self.store.subscribe("nodes", self._node))

    def _node(self, change: str, node: Object, old: Object | None) -> None:
        if (
            change == "MODIFIED"
            and old is not None
            and node["spec"] == old["spec"]
            and (node["metadata"].get("labels") == old["metadata"].get("labels"))
        ):
            return
        for daemon_set in self.store.list(self.key):
            if daemon_set["metadata"]["uid"] not in self._furnished:
                self.queue.add((daemon_set["metadata"]["namespace"], daemon_set["metadata"]["name"]))

    def sync(self, key: Key) -> float | None:
        """Keep one pod on each node, from the current template."""
        daemon_set = self.living(key)
        if daemon_set is None:
            return None
        digest = template_hash(daemon_set["spec"]["template"])
        nodes = {n["metadata"]["name"] for n in self.store.list("nodes") if self._wants(daemon_set, n)}
        by_node: dict[str, list[Object]] = {}
        for pod in self.pods(daemon_set):
            by_node.setdefault(_node_of(pod), []).append(pod)
        failed = ""
        for node in sorted(nodes - set(by_node)):
            failed = failed or self.create(daemon_set, _pod_for(daemon_set, node, digest))
        for node, pods in by_node.items():
            living = [p for p in pods if not p["metadata"].get("deletionTimestamp")]
            surplus = living[1:] if node in nodes else living
            for pod in [*surplus, *(p for p in living[:1] if node in nodes and p["status"].get("phase") in ENDED)]:
                self.remove(daemon_set, pod)
        self._replace_old(daemon_set, digest)
        again = self._status(daemon_set, nodes, digest)
        return self.queue.failed(key) if failed else again

    def _wants(self, daemon_set: Object, node: Object) -> bool:
        furnished = self._furnished.get(daemon_set["metadata"]["uid"])
        if furnished is not None:
            return node["metadata"]["name"] in furnished
        pod = {"spec": daemon_set["spec"]["template"]["spec"]}
        tolerations = [*(pod["spec"].get("tolerations") or []), *_tolerations(pod["spec"])]
        return placement.selects(pod, node) and all(
            placement.tolerates(tolerations, taint)
            for taint in (node.get("spec") or {}).get("taints") or []
            if taint["effect"] != "PreferNoSchedule"
        )

    def _replace_old(self, daemon_set: Object, digest: str) -> None:
        """Delete outdated pods in a rolling update, at most maxUnavailable at a time."""
        strategy = daemon_set["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate" or daemon_set["metadata"]["uid"] in self._furnished:
            return
        pods = self.active(daemon_set)
        room = max(1, share((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1), len(pods), up=True))
        room -= sum(not is_ready(p) for p in pods) + sum(
            1 for p in self.pods(daemon_set) if p["metadata"].get("deletionTimestamp")
        )
        outdated = sorted((p for p in pods if (p["metadata"].get("labels") or {}).get(HASH) != digest), key=is_ready)
        for pod in outdated:
            if is_ready(pod) and room <= 0:
                break
            room -= is_ready(pod)
            self.remove(daemon_set, pod)

    def _status(self, daemon_set: Object, nodes: set[str], digest: str) -> float | None:
        pods = self.active(daemon_set)
        placed = [p for p in pods if _node_of(p) in nodes]
        waits = [available_in(p, daemon_set["spec"].get("minReadySeconds", 0), self.store.clock()) for p in placed]
        available = sum(w == 0 for w in waits)
        furnished = daemon_set["metadata"]["uid"] in self._furnished
        updated = sum(furnished or (p["metadata"].get("labels") or {}).get(HASH) == digest for p in placed)
        status = {
            "currentNumberScheduled": len(placed),
            "numberMisscheduled": len(pods) - len(placed),
            "desiredNumberScheduled": len(nodes),
            "numberReady": sum(map(is_ready, placed)),
            "observedGeneration": daemon_set["metadata"].get("generation", 1),
        }
        optional = {
            "updatedNumberScheduled": updated,
            "numberAvailable": available,
            "numberUnavailable": len(nodes) - available,
        }
        status |= {name: count for name, count in optional.items() if count}
        self.write(daemon_set, status)
        return min((w for w in waits if w), default=None)


def _tolerations(spec: Object) -> list[Object]:
    taints = [
        *TOLERATED,
        *([("node.kubernetes.io/network-unavailable", "NoSchedule")] if spec.get("hostNetwork") else []),
    ]
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints]


def _node_of(pod: Object) -> str:
    """Return the node on which a pod runs, or for which it was created."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    return next((f["values"][0] for t in terms for f in t.get("matchFields") or []), "")


def _pod_for(daemon_set: Object, node: str, digest: str) -> Object:
    """Return the pod for one node: the scheduler places it by its affinity to the node's name."""
    generation = str(daemon_set["metadata"].get("generation", 1))
    pod = new_pod(daemon_set, **{HASH: digest, GENERATION: generation})
    spec = pod["spec"]
    held = clone((spec.get("affinity") or {}).get("nodeAffinity") or {})
    field = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    terms = (held.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or [{}]
    held["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [{**term, "matchFields": field} for term in terms]
    }
    spec["affinity"] = {**(spec.get("affinity") or {}), "nodeAffinity": held}
    spec["tolerations"] = [*(spec.get("tolerations") or []), *_tolerations(spec)]
    return pod
