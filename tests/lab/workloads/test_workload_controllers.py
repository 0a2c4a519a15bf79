"""Deployments and DaemonSets on a store whose pods become ready at once."""

from __future__ import annotations

import asyncio
import contextlib

from lab.apiserver.store import ApiError, Store
from lab.controlplane import Controllers
from lab.controlplane.scheduler.scheduler import Scheduler
from tests.waiting import in_no_time, seen

CAPACITY = {"cpu": "96", "memory": "512Gi", "pods": "110"}
READY = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]


class World:
    """A store, its controllers, and a kubelet that reports every pod as ready."""

    def __init__(self):
        self.now = 1_780_000_000.0
        self.store = Store(clock=lambda: self.now)
        self.broken: set[str] = set()
        for name in ("n-0", "n-1", "n-2"):
            labels = {"kubernetes.io/hostname": name, "pool": "a" if name != "n-2" else "b"}
            self.store.load(
                "nodes",
                {
                    "metadata": {"name": name, "labels": labels},
                    "spec": {},
                    "status": {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": READY},
                },
            )

    def nod(self, change, pod, _old):
        if change == "DELETED" or not pod["spec"].get("nodeName"):
            return
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            with contextlib.suppress(ApiError):
                self.store.delete("pods", meta["namespace"], meta["name"], grace=0)
        elif pod["status"].get("phase") == "Pending" and pod["spec"]["containers"][0]["image"] not in self.broken:
            ready = [{"type": "Ready", "status": "True", "lastTransitionTime": self.store.now()}]
            self.store.mutate(
                "pods",
                meta["namespace"],
                meta["name"],
                lambda p: p["status"].update(phase="Running", conditions=ready),
                "status",
            )

    async def __aenter__(self):
        self.parts = [Controllers(self.store), Scheduler(self.store)]
        self.store.subscribe("pods", self.nod)
        for part in self.parts:
            part.start()
        return self

    async def __aexit__(self, *_):
        for part in self.parts:
            part.close()

    def status(self, key, name):
        return self.store.get(key, "default", name).get("status") or {}

    def pods(self):
        return [p for p in self.store.list("pods", "default") if not p["metadata"].get("deletionTimestamp")]

    def images(self):
        return sorted(p["spec"]["containers"][0]["image"] for p in self.pods())

    def events(self, reason):
        return [e["message"] for e in self.store.list("events", "default") if e["reason"] == reason]


def run(test):
    """Run an async test in a fresh world."""

    async def main():
        async with World() as world:
            await test(world)

    in_no_time(main())


def workload(**spec):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "one"}]}}
    return {"metadata": {"name": "w"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec}}


def set_image(world, key, image):
    world.store.mutate(
        key,
        "default",
        "w",
        lambda d: (
            d["spec"]["template"]["spec"]["containers"][0].update(image=image),
            d["metadata"].update(generation=d["metadata"]["generation"] + 1),
        ),
    )


def condition(status, kind):
    return next((c["status"], c["reason"]) for c in status["conditions"] if c["type"] == kind)


def test_a_rollout_never_falls_below_what_must_be_available():
    """maxSurge and maxUnavailable are respected at every moment, and the rollout completes."""

    async def test(world):
        world.store.create("deployments.apps", workload(replicas=4), "default")
        await seen(lambda: world.status("deployments.apps", "w").get("availableReplicas") == 4)
        running = []
        world.store.subscribe(
            "pods", lambda *_: running.append(sum(p["status"].get("phase") == "Running" for p in world.pods()))
        )
        set_image(world, "deployments.apps", "two")
        await seen(
            lambda: (
                world.images() == ["two"] * 4
                and condition(world.status("deployments.apps", "w"), "Progressing")
                == ("True", "NewReplicaSetAvailable")
            )
        )
        assert min(running) >= 3
        assert max(running) <= 5
        assert (
            world.store.get("deployments.apps", "default", "w")["metadata"]["annotations"][
                "deployment.kubernetes.io/revision"
            ]
            == "2"
        )
        assert world.status("deployments.apps", "w")["updatedReplicas"] == 4

    run(test)


def test_a_rollout_that_cannot_start_stops_and_says_so():
    """Old pods continue to serve; after the deadline the condition reports it."""

    async def test(world):
        world.store.create("deployments.apps", workload(replicas=4, progressDeadlineSeconds=10), "default")
        await seen(lambda: world.status("deployments.apps", "w").get("availableReplicas") == 4)
        world.broken.add("bad")
        set_image(world, "deployments.apps", "bad")
        await seen(lambda: world.images().count("bad") == 2)
        assert world.images().count("one") == 3
        world.now += 11
        world.store.mutate(
            "deployments.apps", "default", "w", lambda d: d["metadata"].setdefault("labels", {}).update(x="y")
        )
        await seen(
            lambda: (
                condition(world.status("deployments.apps", "w"), "Progressing") == ("False", "ProgressDeadlineExceeded")
            )
        )

    run(test)


def test_a_replica_set_that_a_quota_stops_says_why():
    """FailedCreate is reported as event and as condition, up to the Deployment."""

    async def test(world):
        world.store.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}, "default")
        world.store.create("deployments.apps", workload(replicas=3), "default")
        await seen(lambda: world.events("FailedCreate"))
        assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in world.events("FailedCreate")[0]
        await seen(
            lambda: condition(world.status("deployments.apps", "w"), "ReplicaFailure") == ("True", "FailedCreate")
        )

    run(test)


def test_a_daemon_set_has_a_pod_on_each_node_it_selects():
    """Cordoned nodes get a pod, tainted ones do not; a new node gets its pod, a relabelled one loses it."""

    async def test(world):
        body = workload()
        body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "a"}
        world.store.mutate("nodes", None, "n-1", lambda n: n["spec"].update(unschedulable=True))
        world.store.create("daemonsets.apps", body, "default")
        await seen(lambda: sorted(p["spec"].get("nodeName", "") for p in world.pods()) == ["n-0", "n-1"])
        await seen(lambda: world.status("daemonsets.apps", "w").get("numberAvailable") == 2)
        world.store.mutate("nodes", None, "n-2", lambda n: n["metadata"]["labels"].update(pool="a"))
        await seen(lambda: world.status("daemonsets.apps", "w").get("desiredNumberScheduled") == 3)
        world.store.mutate("nodes", None, "n-2", lambda n: n["metadata"]["labels"].update(pool="b"))
        await seen(lambda: len(world.pods()) == 2)
        set_image(world, "daemonsets.apps", "two")
        await seen(lambda: world.images() == ["two", "two"])

    run(test)


def test_furniture_is_left_alone_until_it_changes():
    """A world's running workloads are adopted unchanged; a deleted pod is recreated."""

    async def test(world):
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "f", "uid": "u", "controller": True}
        template = {
            "metadata": {"labels": {"f": "f"}},
            "spec": {"containers": [{"name": "c", "image": "a"}], "restartPolicy": "Always"},
        }
        # the set exists before the controllers start
        fresh = World()
        fresh.store.load(
            "daemonsets.apps",
            {
                "metadata": {"name": "f", "uid": "u"},
                "spec": {"selector": {"matchLabels": {"f": "f"}}, "template": template},
                "status": {},
            },
            "default",
        )
        meta = {"name": "f-1", "labels": {"f": "f"}, "ownerReferences": [owner]}
        fresh.store.load(
            "pods",
            {"metadata": meta, "spec": {**template["spec"], "nodeName": "n-0"}, "status": {"phase": "Running"}},
            "default",
        )
        async with fresh:
            await asyncio.sleep(60)
            assert len(fresh.pods()) == 1
            fresh.store.delete("pods", "default", "f-1", grace=0)
            await seen(lambda: [p["spec"].get("nodeName") for p in fresh.pods()] == ["n-0"])

    run(test)
