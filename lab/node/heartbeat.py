"""Node leases and the Ready condition.

Every powered node renews its Lease; without renewals the control plane sets the node's conditions to Unknown after a
while.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ..apiserver.schema.errors import ApiError
from ..apiserver.schema.values import epoch, rfc3339_micro
from .services import NodeServices

Object = dict[str, Any]
LEASES, NAMESPACE = "leases.coordination.k8s.io", "kube-node-lease"
RENEW_S, DURATION_S = 10, 40
"""nodeLeaseDurationSeconds is 40; a kubelet renews after a quarter of that."""
GRACE_S = 50
"""--node-monitor-grace-period of kube-controller-manager."""
MOST_NODES = 200
"""Maximum number of nodes with leases: more would keep a large idle cluster busy with renewals."""
LOST = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
BACK = {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}


async def beat(kubelet: NodeServices) -> None:
    """Renew the leases while the kubelet runs, and mark nodes without renewals."""
    lost: set[str] = set()
    while True:
        nodes = [n["metadata"]["name"] for n in kubelet.store.list("nodes")]
        for node in nodes if len(nodes) <= MOST_NODES else ():
            if node in kubelet.offline:
                if node not in lost and _silent_for(kubelet, node) > GRACE_S:
                    lost.add(node)
                    lose(kubelet, node)
                continue
            _renew(kubelet, node)
            if node in lost:
                lost.discard(node)
                _mark(kubelet, node, BACK)
        await asyncio.sleep(RENEW_S)


def _renew(kubelet: NodeServices, node: str) -> None:
    store = kubelet.store
    now = rfc3339_micro(store.clock())
    if store.mutate(LEASES, NAMESPACE, node, lambda lease: lease["spec"].update(renewTime=now)) is not None:
        return
    owner = store.get("nodes", None, node)
    if owner is None:
        return
    reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner["metadata"]["uid"]}
    body = {
        "metadata": {"name": node, "ownerReferences": [reference]},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": DURATION_S, "renewTime": now},
    }
    with contextlib.suppress(ApiError):
        store.create(LEASES, body, NAMESPACE, user=f"system:node:{node}")


def _silent_for(kubelet: NodeServices, node: str) -> float:
    lease = kubelet.store.get(LEASES, NAMESPACE, node)
    return kubelet.store.clock() - epoch(lease["spec"]["renewTime"]) if lease else 0.0


def _mark(kubelet: NodeServices, node: str, change: Object) -> None:
    now = kubelet.store.now()

    def write(obj: Object) -> None:
        for condition in obj["status"].get("conditions") or []:
            if condition["type"] == "Ready":
                condition.update(change, lastTransitionTime=now)

    kubelet.store.mutate("nodes", None, node, write, "status")


def regain(kubelet: NodeServices, node: str) -> None:
    """Post the node's status as its kubelet does after a recovery."""
    _mark(kubelet, node, BACK)


def lose(kubelet: NodeServices, node: str) -> None:
    """Set the node to Unknown and its pods to not ready, as the node lifecycle controller does."""
    _mark(kubelet, node, LOST)
    now = kubelet.store.now()
    for pod in kubelet.store.list("pods"):
        if pod["spec"].get("nodeName") != node or pod["status"].get("phase") in ("Succeeded", "Failed"):
            continue

        def unready(obj: Object) -> None:
            for condition in obj["status"].get("conditions") or []:
                if condition["type"] == "Ready" and condition["status"] == "True":
                    condition.update(status="False", lastTransitionTime=now)

        kubelet.store.mutate("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], unready, "status")
        kubelet.store.event(pod, "Warning", "NodeNotReady", "Node is not ready", "node-controller")
