"""A node without power becomes Unknown, and its pods are evicted like on a real cluster
(api-contract/recordings/node-lost)."""

import asyncio
from types import SimpleNamespace

from lab.apiserver.store import Store
from lab.controlplane import Controllers
from lab.node.heartbeat import GRACE_S, RENEW_S, beat
from tests.waiting import in_no_time


def test_a_silent_node_is_unknown_and_its_pods_are_not_ready():
    """After an unrenewed lease the node is Ready Unknown with the recorded message, then tainted; its pods get the
    event NodeNotReady."""

    async def go():
        store = Store(clock=lambda: 1_800_000_000.0 + asyncio.get_running_loop().time())
        controllers = Controllers(store)
        controllers.start()
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        store.load("nodes", {"metadata": {"name": "n"}, "spec": {}, "status": {"conditions": ready}})
        store.load(
            "pods",
            {
                "metadata": {"name": "p", "namespace": "default"},
                "spec": {
                    "nodeName": "n",
                    "containers": [],
                    "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
                },
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            },
        )
        kubelet = SimpleNamespace(store=store, offline=set())
        task = asyncio.create_task(beat(kubelet))
        await asyncio.sleep(1.5 * RENEW_S)
        assert store.get("leases.coordination.k8s.io", "kube-node-lease", "n")["spec"]["holderIdentity"] == "n"
        kubelet.offline.add("n")
        await asyncio.sleep(GRACE_S - RENEW_S)
        assert store.get("nodes", None, "n")["status"]["conditions"][0]["status"] == "True"
        assert not store.list("events", "default")
        await asyncio.sleep(2 * RENEW_S)
        node = store.get("nodes", None, "n")
        (condition,) = node["status"]["conditions"]
        assert (condition["status"], condition["reason"], condition["message"]) == (
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        )
        assert {(t["key"], t["effect"]) for t in node["spec"]["taints"]} == {
            ("node.kubernetes.io/unreachable", "NoSchedule"),
            ("node.kubernetes.io/unreachable", "NoExecute"),
        }
        assert store.get("pods", "default", "p")["status"]["conditions"][0]["status"] == "False"
        assert [e["message"] for e in store.list("events", "default")] == ["Node is not ready"]
        kubelet.offline.clear()
        await asyncio.sleep(RENEW_S)
        assert "taints" not in store.get("nodes", None, "n")["spec"]
        task.cancel()
        controllers.close()

    in_no_time(go())
