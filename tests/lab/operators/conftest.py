"""A small world with operators, without GPUs and processes where possible."""

import asyncio

import pytest
import yaml

from lab import operators
from lab.apiserver.store import Store
from lab.controlplane import Controllers
from lab.controlplane.scheduler.scheduler import Scheduler
from tests.waiting import seen

PLATFORM = {"gpu": {"resource": "nvidia.com/gpu", "count": 8}, "fabric": {}}


class Bench:
    """A cluster without an API server and kubelets: objects, controllers, scheduler. Time passes instantly in it."""

    def __init__(self, *names, nodes=2, gpus=8, **world):
        self.passed = lambda: 0.0
        self.store = Store(clock=lambda: 1_800_000_000.0 + self.passed())
        self.world = {**PLATFORM, "operators": list(names), "node_name": "gpu-node-{n}", "nodes": nodes, **world}
        furnished = operators.furnished(self.world)
        for number in range(nodes):
            offer = {"cpu": "96", "memory": "1Ti", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
            self.store.load(
                "nodes",
                {
                    "metadata": {
                        "name": f"gpu-node-{number}",
                        "labels": {"kubernetes.io/hostname": f"gpu-node-{number}", "pool": "a"},
                    },
                    "spec": {},
                    "status": {
                        "capacity": offer,
                        "allocatable": offer,
                        "conditions": [{"type": "Ready", "status": "True"}],
                    },
                },
            )
        for obj in furnished.get("objects", []):
            self.apply(obj)

    def apply(self, obj):
        """Create an object, or all objects of a YAML text."""
        if isinstance(obj, str):
            return [self.apply(each) for each in yaml.safe_load_all(obj)]
        kind = self.store.kinds.of(obj["apiVersion"], obj["kind"])
        assert kind is not None, obj["kind"]
        space = obj["metadata"].get("namespace", "default") if kind.namespaced else None
        return self.store.create(kind.key, obj, space)

    async def __aenter__(self):
        self.passed = asyncio.get_running_loop().time
        self.controllers = Controllers(self.store, operators.start(self.store, self.world))
        self.scheduler = Scheduler(self.store)
        self.controllers.start()
        self.scheduler.start()
        self.store.subscribe("pods", self._bury)
        return self

    def _bury(self, change, pod, _):
        """Delete terminating pods like a kubelet, since none runs here."""
        meta = pod["metadata"]
        if change == "MODIFIED" and meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds"):
            self.store.delete("pods", meta["namespace"], meta["name"], grace=0, uid=meta["uid"])

    async def __aexit__(self, *_):
        self.controllers.close()
        self.scheduler.close()

    until = staticmethod(seen)

    async def quiet(self):
        """Wait until nothing changes any more."""
        before = None
        while self.store.revision != before:
            before = self.store.revision
            await asyncio.sleep(60)

    def finish(self, name, phase="Succeeded"):
        """End a pod."""
        code = 0 if phase == "Succeeded" else 1
        self.store.mutate(
            "pods",
            "default",
            name,
            lambda p: p["status"].update(
                phase=phase,
                containerStatuses=[
                    {
                        "name": c["name"],
                        "restartCount": 0,
                        "ready": False,
                        "state": {"terminated": {"exitCode": code, "finishedAt": self.store.now()}},
                    }
                    for c in p["spec"]["containers"]
                ],
            ),
        )

    def run(self, name):
        """Set a pod to running and ready."""
        self.store.mutate(
            "pods",
            "default",
            name,
            lambda p: p["status"].update(
                phase="Running",
                conditions=[*p["status"].get("conditions", []), {"type": "Ready", "status": "True"}],
                containerStatuses=[
                    {
                        "name": c["name"],
                        "restartCount": 0,
                        "ready": True,
                        "state": {"running": {"startedAt": self.store.now()}},
                    }
                    for c in p["spec"]["containers"]
                ],
            ),
        )

    def conditions(self, key, name, space="default"):
        """Return {type: (status, reason, message)} of an object."""
        obj = self.store.get(key, space, name) or {}
        return {
            c["type"]: (c["status"], c.get("reason"), c.get("message"))
            for c in (obj.get("status") or {}).get("conditions") or []
        }

    def events(self, name):
        """Return [(reason, message)] about an object."""
        return [
            (e["reason"], e["message"])
            for e in self.store.list("events", "default")
            if e["involvedObject"]["name"] == name
        ]


@pytest.fixture
def bench():
    return Bench
