"""Kueue admits whole workloads or none, and explains refusals in its own words."""

import pytest

from lab.apiserver.store import ApiError
from tests.waiting import in_no_time

WORKLOADS = "workloads.kueue.x-k8s.io"
QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: h100}
spec: {nodeLabels: {pool: a}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: gpus}
spec:
  namespaceSelector: {}
  queueingStrategy: STRATEGY
  preemption: {withinClusterQueue: PREEMPTION}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {clusterQueue: gpus}
"""


def queues(strategy="BestEffortFIFO", preemption="Never"):
    return QUEUES.replace("STRATEGY", strategy).replace("PREEMPTION", preemption)


def job(name, pods=2, gpus=8, queue="team", **labels):
    containers = [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {**({"kueue.x-k8s.io/queue-name": queue} if queue else {}), **labels}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": containers}},
        },
    }


def workload(bench, name):
    return next(w for w in bench.store.list(WORKLOADS) if w["metadata"]["ownerReferences"][0]["name"] == name)


def said(bench, name):
    return bench.conditions(WORKLOADS, workload(bench, name)["metadata"]["name"])


def pods(bench, name):
    return [p for p in bench.store.list("pods", "default") if p["metadata"]["labels"].get("job-name") == name]


def test_a_job_that_fits_is_resumed_on_the_nodes_of_its_flavor(bench):
    """The webhook suspends the job at creation; quota, admission, node labels of the flavor, events are Kueue's."""

    async def run():
        async with bench("kueue") as lab:
            lab.apply(queues())
            assert lab.apply(job("train"))["spec"]["suspend"] is True
            await lab.until(lambda: len(pods(lab, "train")) == 2, "pods")
            await lab.quiet()
            conditions = said(lab, "train")
            assert conditions["QuotaReserved"] == ("True", "QuotaReserved", "Quota reserved in ClusterQueue gpus")
            assert conditions["Admitted"] == ("True", "Admitted", "The workload is admitted")
            assert workload(lab, "train")["status"]["admission"] == {
                "clusterQueue": "gpus",
                "podSetAssignments": [
                    {
                        "name": "main",
                        "count": 2,
                        "flavors": {"nvidia.com/gpu": "h100"},
                        "resourceUsage": {"nvidia.com/gpu": "16"},
                    }
                ],
            }
            assert workload(lab, "train")["metadata"]["name"].startswith("job-train-")
            assert pods(lab, "train")[0]["spec"]["nodeSelector"] == {"pool": "a"}
            reasons = [reason for reason, _ in lab.events("train")]
            assert sorted(r for r in reasons if r != "SuccessfulCreate") == [
                "CreatedWorkload",
                "Resumed",
                "Started",
                "Suspended",
            ]
            queue = lab.store.get("localqueues.kueue.x-k8s.io", "default", "team")["status"]
            assert (queue["pendingWorkloads"], queue["reservingWorkloads"], queue["admittedWorkloads"]) == (0, 1, 1)
            assert queue["flavorsUsage"] == [{"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "16"}]}]
            assert lab.conditions("localqueues.kueue.x-k8s.io", "team")["Active"] == (
                "True",
                "Ready",
                "Can submit new workloads to localQueue",
            )
            for pod in pods(lab, "train"):
                lab.finish(pod["metadata"]["name"])
            await lab.until(lambda: said(lab, "train")["Finished"])
            assert said(lab, "train")["Finished"][:2] == ("True", "Succeeded")

    in_no_time(run())


def test_what_does_not_fit_starts_no_pod_and_the_next_one_waits_by_strategy(bench):
    """The message names flavor and amount; BestEffortFIFO lets a smaller one pass, StrictFIFO does not."""

    async def run(strategy):
        async with bench("kueue") as lab:
            lab.apply(queues(strategy))
            lab.apply(job("first"))
            await lab.until(lambda: said(lab, "first")["Admitted"])
            lab.apply(job("huge", pods=3))
            lab.apply(job("second", pods=1))
            await lab.until(lambda: said(lab, "huge"))
            await lab.quiet()
            assert said(lab, "huge")["QuotaReserved"] == (
                "False",
                "Pending",
                "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, "
                "previously considered podsets requests (0) + current podset request (24) > maximum capacity (16)",
            )
            expected = (
                {}
                if strategy == "StrictFIFO"
                else {
                    "QuotaReserved": (
                        "False",
                        "Pending",
                        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed",
                    )
                }
            )
            assert said(lab, "second") == expected
            assert not pods(lab, "huge")
            lab.store.delete("jobs.batch", "default", "first", propagation="Background")
            await lab.quiet()
            assert ("Admitted" in said(lab, "second")) == (strategy == "BestEffortFIFO")

    for strategy in ("BestEffortFIFO", "StrictFIFO"):
        in_no_time(run(strategy))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda lab: lab.store.delete("localqueues.kueue.x-k8s.io", "default", "team"),
            "LocalQueue team doesn't exist",
        ),
        (
            lambda lab: lab.store.mutate(
                "clusterqueues.kueue.x-k8s.io", None, "gpus", lambda q: q["spec"].update(stopPolicy="Hold")
            ),
            "ClusterQueue gpus is inactive",
        ),
        (lambda lab: lab.store.delete("clusterqueues.kueue.x-k8s.io", None, "gpus"), "ClusterQueue gpus doesn't exist"),
        (lambda lab: lab.store.delete("resourceflavors.kueue.x-k8s.io", None, "h100"), "ClusterQueue gpus is inactive"),
        (
            lambda lab: lab.store.mutate(
                "localqueues.kueue.x-k8s.io", "default", "team", lambda q: q["spec"].update(stopPolicy="Hold")
            ),
            "LocalQueue team is inactive",
        ),
    ],
    ids=["no-local-queue", "stopped", "no-cluster-queue", "no-flavor", "stopped-local-queue"],
)
def test_a_queue_that_is_shut_says_so_on_the_workload(bench, change, message):
    """QuotaReserved is False with reason Inadmissible."""

    async def run():
        async with bench("kueue") as lab:
            lab.apply(queues())
            change(lab)
            lab.apply(job("train"))
            condition = await lab.until(lambda: said(lab, "train")["QuotaReserved"])
            assert condition == ("False", "Inadmissible", message)
            assert not pods(lab, "train")

    in_no_time(run())


def test_a_more_important_workload_evicts_and_the_evicted_one_comes_back(bench):
    """LowerPriority preemption suspends the victim's job, whose conditions name the preemptor; later it runs again."""

    async def run():
        async with bench("kueue") as lab:
            lab.apply(queues(preemption="LowerPriority"))
            lab.apply(
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta1",
                    "kind": "WorkloadPriorityClass",
                    "metadata": {"name": "high"},
                    "value": 1000,
                }
            )
            lab.apply(job("low"))
            await lab.until(lambda: len(pods(lab, "low")) == 2)
            lab.apply(job("urgent", **{"kueue.x-k8s.io/priority-class": "high"}))
            await lab.until(lambda: len(pods(lab, "urgent")) == 2, "the urgent one's pods")
            conditions = said(lab, "low")
            assert conditions["Evicted"][:2] == ("True", "Preempted")
            assert conditions["Preempted"][1] == "InClusterQueue"
            assert "due to prioritization in the ClusterQueue" in conditions["Evicted"][2]
            assert conditions["Requeued"][0] == "True"
            assert lab.store.get("jobs.batch", "default", "low")["spec"]["suspend"] is True
            assert "nodeSelector" not in lab.store.get("jobs.batch", "default", "low")["spec"]["template"]["spec"]
            lab.store.delete("jobs.batch", "default", "urgent", propagation="Background")
            await lab.until(lambda: len(pods(lab, "low")) == 2 and said(lab, "low")["Evicted"][0] == "False")

    in_no_time(run())


def test_a_cohort_lends_what_is_unused(bench):
    """A queue of a cohort borrows, and the ClusterQueue's status has the amount."""

    async def run():
        async with bench("kueue", nodes=4) as lab:
            other = (
                queues()
                .replace("name: gpus", "name: other")
                .replace("nominalQuota: 16", "nominalQuota: 8")
                .replace("clusterQueue: gpus", "clusterQueue: other")
                .replace("name: team", "name: mine")
                .replace("namespaceSelector", "cohort: all\n  namespaceSelector")
            )
            lab.apply(queues().replace("namespaceSelector", "cohort: all\n  namespaceSelector"))
            lab.apply("---".join(other.split("---")[1:]))
            lab.apply(job("big", pods=3, queue="mine"))
            await lab.until(lambda: len(pods(lab, "big")) == 3)
            await lab.quiet()
            status = lab.store.get("clusterqueues.kueue.x-k8s.io", None, "other")["status"]
            assert status["flavorsUsage"] == [
                {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "24", "borrowed": "16"}]}
            ]

    in_no_time(run())


def test_jobs_without_a_queue_are_left_alone_unless_the_namespace_has_a_default_one(bench):
    """The LocalQueue named default takes jobs without a queue (Kueue 0.10 and newer)."""

    async def run():
        async with bench("kueue") as lab:
            assert not lab.apply(job("free", queue=None))["spec"].get("suspend")
            lab.apply(queues().replace("name: team", "name: default"))
            assert lab.apply(job("taken", queue=None))["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
            await lab.until(lambda: not lab.store.get("jobs.batch", "default", "taken")["spec"]["suspend"])
            with pytest.raises(ApiError, match="field is immutable"):
                running = lab.store.get("jobs.batch", "default", "taken")
                lab.store.replace(
                    "jobs.batch",
                    {**running, "metadata": {**running["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "x"}}},
                )

    in_no_time(run())


def test_pods_that_do_not_start_in_time_give_their_quota_back(bench):
    """waitForPodsReady: PodsReady is WaitForStart, then the workload is evicted and waits before its next turn."""

    async def run():
        async with bench({"kueue": {"wait_for_pods_ready_s": 0.2}}, gpus=1) as lab:
            lab.apply(queues())
            lab.apply(job("train"))
            condition = await lab.until(lambda: said(lab, "train")["Evicted"])
            assert condition[:2] == ("True", "PodsReadyTimeout")
            assert said(lab, "train")["PodsReady"][:2] == ("False", "WaitForStart")
            await lab.until(lambda: said(lab, "train")["QuotaReserved"][0] == "False")
            assert workload(lab, "train")["status"]["requeueState"]["count"] == 1

    in_no_time(run())


def test_a_job_that_is_deleted_takes_its_workload_along(bench):
    """Foreground deletion waits for the Workload, whose finalizer Kueue removes; the quota is free again."""

    async def run():
        async with bench("kueue") as lab:
            lab.apply(queues())
            lab.apply(job("waits", pods=3))
            lab.apply(job("runs"))
            await lab.until(lambda: said(lab, "waits")["QuotaReserved"] and said(lab, "runs")["Admitted"])
            for name in ("waits", "runs"):
                lab.store.delete("jobs.batch", "default", name, propagation="Foreground")
            await lab.until(
                lambda: not lab.store.list("jobs.batch", "default") and not lab.store.list(WORKLOADS), "nothing left"
            )

    in_no_time(run())
