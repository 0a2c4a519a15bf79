"""The scheduler explains an unschedulable pod in kube-scheduler 1.36's words (api-contract, scheduling-*)."""

import asyncio

import pytest

from lab.apiserver.store import Store
from lab.controlplane.scheduler.scheduler import Scheduler
from tests.waiting import in_no_time


def node(name, *, gpus=8, taints=(), labels=None, unschedulable=False):
    spec = {"taints": list(taints)} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}},
    }


def pod(name, gpus=0, **spec):
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "c", "image": "a", "resources": {"limits": limits, "requests": limits}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Pending"},
    }


def schedule(nodes, pods, then=lambda store: None):
    """Let the scheduler process these objects once; return the store."""

    async def run():
        store = Store()
        for n in nodes:
            store.load("nodes", n)
        scheduler = Scheduler(store)
        scheduler.start()
        for p in pods:
            store.load("pods", p)
        await asyncio.sleep(0.02)
        then(store)
        await asyncio.sleep(0.02)
        scheduler.close()
        return store

    return in_no_time(run())


def message(store, name):
    conditions = store.get("pods", "default", name)["status"]["conditions"]
    return next(c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False")


TWO = [node("a"), node("b")]
HEAD, TAIL = "0/2 nodes are available: ", " no new claims to deallocate, preemption: 0/2 nodes are available: "
NO_VICTIMS = "2 No preemption victims found for incoming pod."
NO_HELP = "2 Preemption is not helpful for scheduling."


def affinity(kind, **labels):
    return {
        kind: {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
            ]
        }
    }


@pytest.mark.parametrize(
    ("nodes", "wish", "expected"),
    [
        pytest.param(TWO, pod("p", gpus=9), f"{HEAD}2 Insufficient nvidia.com/gpu.{TAIL}{NO_HELP}", id="too-many-gpus"),
        pytest.param(
            TWO,
            pod("p", nodeSelector={"no": "such"}),
            f"{HEAD}2 node(s) didn't match Pod's node affinity/selector.{TAIL}{NO_HELP}",
            id="selector",
        ),
        pytest.param(
            [node("a", taints=[{"key": "k", "effect": "NoSchedule"}]), node("b", unschedulable=True)],
            pod("p"),
            f"{HEAD}1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.{TAIL}{NO_HELP}",
            id="taints",
        ),
        pytest.param(
            TWO,
            pod("p", affinity=affinity("podAffinity", no="body")),
            f"{HEAD}2 node(s) didn't match pod affinity rules.{TAIL}{NO_HELP}",
            id="pod-affinity",
        ),
        pytest.param(
            TWO,
            pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]),
            f'{HEAD}persistentvolumeclaim "missing" not found. not found',
            id="claim",
        ),
        pytest.param([], pod("p"), "no nodes available to schedule pods", id="no-nodes"),
        pytest.param(
            TWO,
            pod("p", gpus=9, preemptionPolicy="Never"),
            f"{HEAD}2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: not eligible due to "
            "preemptionPolicy=Never.",
            id="never-preempts",
        ),
    ],
)
def test_an_unschedulable_pod_says_why_in_the_schedulers_words(nodes, wish, expected):
    """The condition and the event have the recorded text, and the pod gets no node."""
    store = schedule(nodes, [wish])
    assert message(store, "p") == expected
    assert "nodeName" not in store.get("pods", "default", "p")["spec"]
    events = store.list("events")
    assert [(e["type"], e["reason"], e["message"], e["reportingComponent"]) for e in events] == [
        ("Warning", "FailedScheduling", expected, "default-scheduler")
    ]


def test_a_pod_runs_as_soon_as_gpus_are_given_back():
    """Extended resources are counted exactly: the third pod waits until one of the first two ends."""
    pods = [pod("a", gpus=8), pod("b", gpus=8), pod("c", gpus=1)]
    store = schedule(TWO, pods, then=lambda s: s.delete("pods", "default", "a", grace=0))
    assert store.get("pods", "default", "c")["spec"]["nodeName"] in ("a", "b")


def test_full_nodes_are_no_preemption_victims():
    """A pod that would fit an empty node gets the message that no eviction helps."""
    store = schedule(TWO, [pod("a", gpus=8), pod("b", gpus=8), pod("c", gpus=1)])
    assert message(store, "c") == f"{HEAD}2 Insufficient nvidia.com/gpu.{TAIL}{NO_VICTIMS}"


def test_required_anti_affinity_puts_the_pods_of_a_job_on_different_nodes():
    """Anti-affinity on the host name spreads them; a third pod finds no node."""
    apart = {"affinity": affinity("podAntiAffinity", job="x")}
    pods = [pod(name, **apart) for name in "abc"]
    for p in pods:
        p["metadata"]["labels"] = {"job": "x"}
    store = schedule(TWO, pods)
    assert {store.get("pods", "default", n)["spec"].get("nodeName") for n in "ab"} == {"a", "b"}
    assert message(store, "c").startswith(f"{HEAD}2 node(s) didn't match pod anti-affinity rules.")


def test_a_higher_priority_preempts_and_the_victim_is_marked():
    """The victim is deleted with the condition DisruptionTarget, and the preemptor gets the node."""
    low, high = pod("low", gpus=8, priority=0), pod("high", gpus=8, priority=1000)
    low["spec"]["nodeName"] = "a"
    low["status"]["phase"] = "Running"
    low["metadata"]["finalizers"] = ["example.com/look"]
    store = schedule([node("a")], [low, high])
    victim = store.get("pods", "default", "low")
    assert victim["metadata"]["deletionTimestamp"]
    assert victim["status"]["conditions"][0]["reason"] == "PreemptionByScheduler"
    assert store.get("pods", "default", "high")["status"]["nominatedNodeName"] == "a"


def test_a_bound_pod_carries_the_zone_of_its_node():
    """PodTopologyLabels: zone and region are copied to the pod when it is bound (recordings/happy-two-nodes)."""
    store = schedule([node("a", labels={"topology.kubernetes.io/zone": "z1"})], [pod("p")])
    stored = store.get("pods", "default", "p")
    assert stored["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z1"}
    assert [(c["type"], c["status"]) for c in stored["status"]["conditions"]] == [("PodScheduled", "True")]
