"""The diagnosis of unschedulable pods: conditions that waiting can change, and others."""

import datetime

import pytest

from jobs.diagnosis.state import Issue
from jobs.diagnosis.symptoms import PodSymptom
from jobs.diagnosis.verdict import diagnose
from jobs.run.queueing import REFUSED_BY_GANG
from tests.jobs.objects import RUNS, condition, event, job, node, pod
from tests.table import table


@pytest.mark.parametrize(
    ("message", "hopeless"),
    [
        (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: 3 No preemption victims found.",
            False,
        ),
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 Insufficient nvidia.com/gpu.",
            False,
        ),
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 node(s) didn't match Pod's node affinity/selector. preemption: x",
            True,
        ),
        ("0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.", False),
        ("0/2 nodes are available: 2 node(s) were unschedulable. preemption: 0/2 nodes are available.", False),
        ("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. preemption: none", True),
        ("0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/4 nodes", False),
        ("no nodes available to schedule pods", True),
    ],
)
def test_whether_waiting_for_a_node_can_help(message, hopeless):
    """GPUs may become free, a selector that matches nothing will not; an active autoscaler changes that."""
    waiting = pod(
        1, "Pending", node="", conditions=[condition("PodScheduled", "False", reason="Unschedulable", message=message)]
    )
    _, replicas, analysis = diagnose(job(), [pod(0, main=RUNS), waiting], [])
    assert analysis.fault in {"job.unschedulable", "volume.mount"}
    assert analysis.hopeless == hopeless
    assert replicas[1].readiness_issue.message == message
    scaling = event("Pod", "t-1-abcde", "TriggeredScaleUp", "pod triggered scale-up", warning=False)
    assert not diagnose(job(), [pod(0, main=RUNS), waiting], [scaling])[2].hopeless


@pytest.mark.parametrize(
    ("reasons", "fault", "remedy"),
    [
        ("3 node(s) had volume node affinity conflict", "volume.mount", "in the zone of the volume"),
        ("1 node(s) had untolerated taint {a: b}, 2 node(s) had volume node affinity conflict", "volume.mount", "zone"),
        ("3 node(s) didn't find available persistent volumes to bind", "volume.mount", "StorageClass"),
        ('persistentvolumeclaim "a" bound to non-existent persistentvolume "pv"', "volume.mount", "create a volume"),
        ("2 Insufficient nvidia.com/gpu, 1 node(s) had volume node affinity conflict", "job.unschedulable", ""),
        ("3 node(s) didn't match Pod's node affinity/selector", "job.unschedulable", "nodeSelector"),
    ],
)
def test_a_volume_that_fits_no_node_has_the_advice_of_volumes(reasons, fault, remedy):
    """A selector or a taint is not the reason; where nodes lack free GPUs, these may be."""
    message = f"0/3 nodes are available: {reasons}. preemption: 0/3 nodes are available"
    asks = condition("PodScheduled", "False", reason="Unschedulable", message=message)
    _, _, analysis = diagnose(job(), [pod(0, main=RUNS), pod(1, "Pending", node="", conditions=[asks])], [])
    assert analysis.fault == fault
    assert remedy in analysis.remedy


def test_a_node_held_by_the_jobs_own_other_rank_will_not_become_free():
    """One node has no RDMA, the other runs rank 0, which waits for rank 1: waiting is pointless."""
    message = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 Insufficient rdma/hca. preemption: none"
    waiting = pod(
        1, "Pending", node="", conditions=[condition("PodScheduled", "False", reason="Unschedulable", message=message)]
    )
    waiting["spec"]["containers"][0]["resources"]["requests"]["rdma/hca"] = "1"
    pods = [pod(0, main=RUNS, node="n0"), waiting]
    _, _, analysis = diagnose(job(), pods, [], [node("n0"), node("n1", rdma=0)])
    assert analysis.hopeless and "n1 offers 0 of 0 rdma/hca" in analysis.suggestion
    assert not diagnose(job(), pods, [], [node("n0"), node("n1"), node("n2")])[2].hopeless


GPUS, TAINTED = (
    "Insufficient nvidia.com/gpu",
    "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }",
)
SEEN = [node("n0"), node("n1"), node("n2")]


@table(
    "reasons, nodes, blame",
    [
        (f"3 {GPUS}", SEEN, None),
        (f"3 {GPUS}", [], None),  # a tenant cannot distinguish GPUs in use from missing ones
        (f"{TAINTED}, 2 {GPUS}", SEEN, None),
        (f"{TAINTED}, 2 {GPUS}", [], None),
        ("3 Insufficient amd.com/gpu", [], None),
        ("3 Insufficient rdma/hca", SEEN, None),  # all nodes offer it
        ("3 Insufficient rdma/hca", [], "ERR_INFRA"),
        (f"3 {GPUS}", [node("n0"), node("n1", gpus=0), node("n2", gpus=7)], "ERR_INFRA"),
        (f"1 Insufficient cpu, 2 {GPUS}", SEEN, "ERR_INFRA"),
        (f"1 Insufficient memory, 2 {GPUS}", [], "ERR_INFRA"),
        (f"3 Insufficient cpu, 3 {GPUS}", SEEN, None),  # the holder of the GPUs also holds the rest
        (f"3 {GPUS}, 3 Insufficient rdma/hca", [], None),
        (f"{TAINTED}, 1 Insufficient memory, 2 {GPUS}", [], None),
        (f"1 {GPUS}, 3 Insufficient rdma/hca", [], "ERR_INFRA"),  # two nodes have GPUs left
        (f"3 Insufficient cpu, 2 {GPUS}", SEEN, "ERR_INFRA"),
        (f"3 {GPUS}, 1 node(s) were unschedulable", SEEN, "ERR_INFRA"),
        ("3 node(s) had untolerated taint {a: b}", [], "ERR_INFRA"),
        ("3 node(s) were unschedulable", SEEN, "ERR_INFRA"),
    ],
)
def test_devices_that_other_workloads_use_are_not_the_clusters_fault(reasons, nodes, blame):
    """A busy cluster is healthy; a device that is not offered, or a lack of CPU, is an infrastructure fault."""
    message = f"0/3 nodes are available: {reasons}. preemption: 0/3 nodes are available: 3 No preemption victims found."
    waiting = pod(
        1, "Pending", node="", conditions=[condition("PodScheduled", "False", reason="Unschedulable", message=message)]
    )
    for resource in ("nvidia.com/gpu", "rdma/hca"):
        if f"Insufficient {resource}" in message:
            waiting["spec"]["containers"][0]["resources"]["requests"][resource] = "8" if "gpu" in resource else "1"
    analysis = diagnose(job(), [pod(0, main=RUNS, node="n0"), waiting], [], nodes)[2]
    assert (analysis.fault, analysis.err_class) == ("job.unschedulable", blame)
    assert ("other workloads use the requested resources" in analysis.suggestion) is (blame is None)


@pytest.mark.parametrize(
    ("taint", "hopeless"),
    [("node.kubernetes.io/not-ready", False), ("node.cilium.io/agent-not-ready", False), ("example.com/team", True)],
)
def test_taints_that_the_scheduler_does_not_name_are_read_from_the_nodes(taint, hopeless):
    """Kubernetes 1.36 reports "untolerated taint(s)": a joining node loses its taint, a team's taint remains."""
    message = "0/2 nodes are available: 2 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/2 nodes are available"
    waiting = pod(
        0, "Pending", node="", conditions=[condition("PodScheduled", "False", reason="Unschedulable", message=message)]
    )
    joining = node("n1", taints=[{"key": taint, "effect": "NoSchedule"}])
    team = node("n0", taints=[{"key": "example.com/team", "effect": "NoSchedule"}])
    assert diagnose(job(1), [waiting], [], [team, joining])[2].hopeless == hopeless


@pytest.mark.parametrize(
    ("reason", "hopeless"), [("cannot allocate all claims", False), ("Insufficient nvidia.com/gpu", True)]
)
def test_what_no_node_counts_may_be_handed_out_by_other_means(reason, hopeless):
    """Kubernetes 1.36 can serve nvidia.com/gpu from ResourceSlices: only the scheduler's message shows that none is
    available."""
    message = f"0/1 nodes are available: 1 {reason}. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    waiting = pod(
        0, "Pending", node="", conditions=[condition("PodScheduled", "False", reason="Unschedulable", message=message)]
    )
    waiting["spec"]["containers"][0]["resources"]["requests"] |= {"nvidia.com/gpu": "8"}
    bare = node("n0")
    bare["status"] |= {"allocatable": {"cpu": "96"}, "capacity": {"cpu": "96"}}
    assert diagnose(job(1), [waiting], [], [bare])[2].hopeless == hopeless


@pytest.mark.parametrize(
    ("cpu", "memory", "hopeless"), [("96", "1Ti", False), ("7900m", "1Ti", True), ("96", "16Gi", True)]
)
def test_a_node_that_is_too_small_for_the_pods_cpu_or_memory_never_takes_it(cpu, memory, hopeless):
    """In a cluster in a box, or on an instance type with few cores, it is reported after a minute, with the missing
    amount."""
    message = "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. preemption: 0/1 nodes are available"
    waiting = pod(
        0, "Pending", node="", conditions=[condition("PodScheduled", "False", reason="Unschedulable", message=message)]
    )
    waiting["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": "8", "memory": "32Gi"}
    only = node("n0")
    only["status"]["allocatable"] |= {"cpu": cpu, "memory": memory}
    analysis = diagnose(job(1), [waiting], [], [only])[2]
    assert analysis.hopeless == hopeless
    assert f"the pod requests 8 cpu, n0 has {cpu} cpu" in analysis.suggestion


def test_a_pod_that_no_scheduler_has_looked_at_says_so():
    """Pending without a condition: its scheduler does not exist. Neither a short wait nor a silent queue shows that."""
    old, new = "2026-01-01T00:00:00Z", datetime.datetime.now(datetime.UTC).isoformat()
    silent = pod(0, "Pending", node="")
    silent["spec"]["schedulerName"] = "gone"
    silent["metadata"]["creationTimestamp"] = old
    _, replicas, analysis = diagnose(job(1), [silent], [], [], name="t")
    assert (analysis.fault, analysis.subject, analysis.err_class) == ("job.no-scheduler", "scheduler/gone", "ERR_INFRA")
    assert "schedulerName gone" in replicas[0].readiness_issue.message
    assert analysis.hopeless
    assert analysis.grace_s >= 30
    assert diagnose(job(1), [silent], [], [], name="t", gang=True)[2] is None
    silent["metadata"]["creationTimestamp"] = new
    assert diagnose(job(1), [silent], [], [], name="t")[2] is None


@pytest.mark.parametrize(
    ("reasons", "nodes", "blame"),
    [
        (f"2 {GPUS}", [], None),
        (f"{TAINTED}, 2 {GPUS}", [], None),
        (f"2 {GPUS}", SEEN, None),
        (f"2 {GPUS}", [node("n0"), node("n1", gpus=0)], "ERR_INFRA"),  # one free node is not enough
        (f"1 {GPUS}, 1 Insufficient rdma/hca", SEEN, "ERR_INFRA"),
        ("2 Insufficient rdma/hca", [], "ERR_INFRA"),
        ("2 node(s) had untolerated taint {a: b}", [], "ERR_INFRA"),
    ],
)
def test_a_gang_whose_pods_miss_only_gpus_in_use_is_not_the_clusters_fault(reasons, nodes, blame):
    """Volcano reports only that the group is not ready, but its pods report the missing resource."""
    message = f"0/2 nodes are unavailable: {reasons}."
    unbound = [condition("PodScheduled", "False", reason="Unschedulable", message=message)]
    pods = [pod(index, "Pending", node="", conditions=unbound) for index in (0, 1)]
    words = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable"
    issue = Issue("NotEnoughResources", words)
    group = PodSymptom(
        fault="gang.unschedulable", issue=issue, suggestion="", subject="podgroup/t", rank=REFUSED_BY_GANG
    )
    analysis = diagnose(job(), pods, [], nodes, queue=group, gang=True)[2]
    assert (analysis.fault, analysis.err_class) == ("gang.unschedulable", blame)
