"""Volcano starts whole gangs or none, and reports the missing resource of each pod and group."""

import pytest

from lab.apiserver.store import ApiError
from tests.waiting import in_no_time

GROUPS = "podgroups.scheduling.volcano.sh"


def pod(name, gpus=8, group="train", **spec):
    notes = {"scheduling.k8s.io/group-name": group} if group else {}
    containers = [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes, "labels": {}},
        "spec": {"schedulerName": "volcano", "containers": containers, **spec},
    }


def group(name="train", members=2, **spec):
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": members, **spec},
    }


def node(bench, name):
    return bench.store.get("pods", "default", name)["spec"].get("nodeName")


def scheduled(bench, name):
    return bench.conditions("pods", name)["PodScheduled"]


def test_a_gang_that_fits_starts_and_its_group_runs(bench):
    """Volcano binds both pods, the group's condition Scheduled is true, its queue counts it."""

    async def run():
        async with bench("volcano") as lab:
            for obj in (group(), pod("a"), pod("b")):
                lab.apply(obj)
            await lab.until(lambda: node(lab, "a") and node(lab, "b"))
            assert node(lab, "a") != node(lab, "b")
            for name in ("a", "b"):
                lab.run(name)
            await lab.until(lambda: lab.store.get(GROUPS, "default", "train")["status"]["running"] == 2)
            status = lab.store.get(GROUPS, "default", "train")["status"]
            assert status["phase"] == "Running"
            assert [(c["type"], c["reason"]) for c in status["conditions"]][-1] == (
                "Scheduled",
                "tasks in gang are ready to be scheduled",
            )
            await lab.until(
                lambda: (
                    lab.store.get("queues.scheduling.volcano.sh", None, "default")["status"]["allocated"]
                    == {"nvidia.com/gpu": "16"}
                )
            )
            for name in ("a", "b"):
                lab.finish(name)
            await lab.until(lambda: lab.store.get(GROUPS, "default", "train")["status"]["phase"] == "Completed")

    in_no_time(run())


def test_a_gang_that_does_not_fit_gets_no_node_at_all(bench):
    """One of three pods has no room: none is bound; the group and each pod have Volcano's message."""

    async def run():
        async with bench("volcano") as lab:
            lab.apply(group(members=3))
            for name in ("a", "b", "c"):
                lab.apply(pod(name))
            message = "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; Pending: 1 Unschedulable, 2 Schedulable"
            await lab.until(
                lambda: any(
                    c["message"] == message for c in lab.store.get(GROUPS, "default", "train")["status"]["conditions"]
                ),
                message,
            )
            await lab.quiet()
            assert lab.store.get(GROUPS, "default", "train")["status"]["phase"] == "Inqueue"
            assert [node(lab, name) for name in ("a", "b", "c")] == [None, None, None]
            assert scheduled(lab, "c") == (
                "False",
                "Unschedulable",
                "0/2 nodes are unavailable: 2 Insufficient nvidia.com/gpu.",
            )
            assert scheduled(lab, "a")[1] == "Schedulable"
            assert ("Unschedulable", message) in lab.events("train")
            lab.store.delete("pods", "default", "c")
            lab.apply(pod("c", gpus=0))
            await lab.until(lambda: all(node(lab, name) for name in ("a", "b", "c")))

    in_no_time(run())


def test_a_queue_holds_back_what_exceeds_it(bench):
    """A group with minResources waits in phase Pending while its queue's capability is smaller."""

    async def run():
        async with bench("volcano") as lab:
            lab.apply(
                {
                    "apiVersion": "scheduling.volcano.sh/v1beta1",
                    "kind": "Queue",
                    "metadata": {"name": "small"},
                    "spec": {"capability": {"nvidia.com/gpu": "8"}},
                }
            )
            for obj in (group(queue="small", minResources={"nvidia.com/gpu": "16"}), pod("a"), pod("b")):
                lab.apply(obj)
            await lab.until(lambda: ("Unschedulable", "queue resource quota insufficient") in lab.events("train"))
            await lab.quiet()
            assert lab.store.get(GROUPS, "default", "train")["status"]["phase"] == "Pending"
            assert "Pending: 2 Undetermined" in scheduled(lab, "a")[2]
            lab.store.mutate(
                "queues.scheduling.volcano.sh",
                None,
                "small",
                lambda q: q["spec"]["capability"].update({"nvidia.com/gpu": "16"}),
            )
            await lab.until(lambda: node(lab, "a") and node(lab, "b"))

    in_no_time(run())


def test_closed_and_missing_queues_are_refused(bench):
    """The webhook refuses the group's creation."""

    async def run():
        async with bench("volcano") as lab:
            with pytest.raises(ApiError, match=r'denied the request: unable to find queue: .*"nope" not found'):
                lab.apply(group(queue="nope"))
            await lab.quiet()
            lab.store.mutate(
                "queues.scheduling.volcano.sh", None, "default", lambda q: q["status"].update(state="Closed"), "status"
            )
            with pytest.raises(ApiError, match="queue `default` status is `Closed`"):
                lab.apply(group())

    in_no_time(run())


def test_pods_without_a_group_get_one(bench):
    """A pod that only names the scheduler gets its own PodGroup with one member."""

    async def run():
        async with bench("volcano") as lab:
            lab.apply(pod("single", group=None))
            await lab.until(lambda: node(lab, "single"))
            (made,) = lab.store.list(GROUPS)
            assert made["metadata"]["name"].startswith("podgroup-")
            assert made["spec"]["minMember"] == 1

    in_no_time(run())
