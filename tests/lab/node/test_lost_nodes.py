"""A node without power becomes Unknown, and its pods leave as on a real cluster (api-contract/recordings/node-lost)."""

import asyncio
from types import SimpleNamespace

from lab.apiserver.store import Store
from lab.controlplane import Controllers
from lab.node.heartbeat import GRACE_S, beat


class Clock:
    now = 1_800_000_000.0

    def __call__(self):
        return self.now


def test_a_silent_node_is_unknown_and_its_pods_are_not_ready(monkeypatch):
    """Lease not renewed -> Ready Unknown with the recorded words -> taints; event NodeNotReady on its pods."""
    monkeypatch.setattr("lab.node.heartbeat.RENEW_S", 0.01)

    async def go():
        clock = Clock()
        store = Store(clock=clock)
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
        await asyncio.sleep(0.05)  # the heartbeat is due in this loop before, as below
        assert store.get("leases.coordination.k8s.io", "kube-node-lease", "n")["spec"]["holderIdentity"] == "n"
        kubelet.offline.add("n")
        clock.now += GRACE_S + 1
        await asyncio.sleep(0.05)
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
        await asyncio.sleep(0.05)
        assert "taints" not in store.get("nodes", None, "n")["spec"]
        task.cancel()
        controllers.close()

    asyncio.run(go())
