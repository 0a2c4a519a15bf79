"""Layer 14: launchers and admission for training, judged by the API's and the trial's evidence; near misses pass."""

from types import SimpleNamespace

import pytest

from checks.rules.job import start_findings
from checks.rules.queue import (
    admitted_findings,
    gang_findings,
    gang_refusal,
    hardware_findings,
    present_findings,
    too_many,
)
from jobs.diagnosis.state import FailureAnalysis, PodFacts, Replica
from jobs.run.queueing import QueueFacts
from jobs.trial.launch_stack import Flavor, FlavorTopology, LaunchStack, Serving
from jobs.trial.parts import Queue
from jobs.trial.spec import TrialSpec
from tests.table import table


def spec(**more):
    fields = {
        "run_id": "a",
        "namespace": "ns",
        "image": "i",
        "cpu": "8",
        "memory": "32Gi",
        "resources": {"rdma/hca": 1},
    }
    return TrialSpec(**(fields | {"queue": Queue(kind="kueue", name="team")} | more))


ACTIVE = {"conditions": [{"type": "Active", "status": "True", "reason": "Ready", "message": "ok"}]}
LOCAL = {"metadata": {"name": "team"}, "spec": {"clusterQueue": "gpus"}, "status": ACTIVE}
QUOTA = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "16", "rdma/hca": "8"}


def cluster(quota=QUOTA, status=ACTIVE, **more):
    flavor = {"name": "h100", "resources": [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]}
    groups = [{"coveredResources": list(quota), "flavors": [flavor]}]
    spec = {"resourceGroups": groups, "namespaceSelector": {}, **more}
    return {"metadata": {"name": "gpus"}, "spec": spec, "status": status}


def launch_stack(**more):
    return LaunchStack(**({"queue_served": Serving(("v1beta1",)), "local": LOCAL, "cluster": cluster()} | more))


def pod(name, image, *, ready=True, namespace="kueue-system"):
    return SimpleNamespace(
        name=name, namespace=namespace, images=(image,), ready=ready, trouble="" if ready else "CrashLoopBackOff"
    )


def bad(findings):
    return [(f.subject, f.fault) for f in findings if f.ok is not True]


def judged(launch_stack, trial_spec=None, pods=()):
    return bad(present_findings(launch_stack, trial_spec or spec(), pods))


RACK, HOST = "example.com/rack", "kubernetes.io/hostname"


@table(
    "levels, labels, nodes, fault",
    [
        ((RACK, HOST), {}, [{RACK: "r1", HOST: "a"}, {RACK: "r1", HOST: "b"}], None),
        ((RACK, HOST), {}, [{HOST: "a"}, {HOST: "b"}], "queue.topology"),
        ((RACK, HOST), {}, [{RACK: "r1", HOST: "a"}, {HOST: "b"}], "queue.topology"),  # one is not enough for two pods
        ((RACK, HOST), {}, [{RACK: "r1"}, {HOST: "b"}], "queue.topology"),  # each level is present, but never both
        ((RACK, HOST), {}, [{RACK: "r1", HOST: "a"}, {RACK: "r1", HOST: "b"}, {HOST: "cpu"}], None),
        ((RACK, HOST), {}, [{RACK: "r1", HOST: "a"}], None),  # another check reports too few nodes
        ((RACK, HOST), {"pool": "x"}, [{HOST: "a"}, {HOST: "b"}], ""),  # no node of the only flavor is visible
        ((RACK, HOST), {}, [], ""),
        ((HOST,), {"pool": "x"}, [{HOST: "a", "pool": "x"}, {HOST: "b", "pool": "x"}, {"pool": "y"}], None),
        (None, {}, [{RACK: "r1"}, {RACK: "r1"}], "queue.topology"),  # the topology does not exist
    ],
)
def test_nodes_of_a_flavor_have_the_labels_of_its_topology(levels, labels, nodes, fault):
    """Kueue ignores nodes without a label of each level, so no quota helps."""
    stack = launch_stack(topologies=(FlavorTopology("h100", labels, "racks", levels),))
    seen = [SimpleNamespace(name=f"n{number}", labels=each) for number, each in enumerate(nodes)]
    expected = [] if fault is None else [("resourceflavor/h100", fault)]
    assert bad(present_findings(stack, spec(), (), seen)) == expected


def test_a_flavor_of_other_nodes_is_not_judged():
    """Of two flavors one is for this pool's nodes; the other flavor's labels are not visible and not required."""
    stack = launch_stack(
        topologies=(
            FlavorTopology("h100", {"gpu": "h100"}, "racks", (HOST,)),
            FlavorTopology("a100", {"gpu": "a100"}, "racks", (RACK,)),
        )
    )
    seen = [SimpleNamespace(name=name, labels={HOST: name, "gpu": "h100"}) for name in "ab"]
    assert bad(present_findings(stack, spec(), (), seen)) == []


def test_a_queue_that_can_hold_the_trial_is_fine():
    """The queue is active, covers every resource, and has room for both pods."""
    assert judged(launch_stack()) == []


@table(
    "stack, expected",
    [
        ({"local": None, "cluster": None}, [("localqueue/team", "queue.missing")]),
        ({"cluster": None}, [("clusterqueue/gpus", "queue.missing")]),
        ({"cluster": cluster(stopPolicy="Hold")}, [("clusterqueue/gpus", "queue.stopped")]),
        ({"cluster": cluster(namespaceSelector=None)}, [("clusterqueue/gpus", "queue.namespace")]),
        ({"cluster": cluster(namespaceSelector={"matchLabels": {"team": "a"}})}, []),  # the queue reads its labels
        (
            {
                "cluster": cluster(
                    status={"conditions": [{"type": "Active", "status": "False", "reason": "FlavorNotFound"}]}
                )
            },
            [("clusterqueue/gpus", "queue.stopped")],
        ),
        (
            {"local": LOCAL | {"spec": LOCAL["spec"] | {"stopPolicy": "HoldAndDrain"}}},
            [("localqueue/team", "queue.stopped")],
        ),
        (
            {"cluster": cluster({k: v for k, v in QUOTA.items() if k != "rdma/hca"})},
            [("clusterqueue/gpus", "queue.uncovered")],
        ),
        ({"cluster": cluster(QUOTA | {"nvidia.com/gpu": "15"})}, [("clusterqueue/gpus", "queue.quota-short")]),
        ({"cluster": cluster(QUOTA | {"nvidia.com/gpu": "8"}, cohort="all")}, []),
        ({"cluster": cluster(stopPolicy="None")}, []),
        ({"queue_served": Serving(()), "local": None}, [("localqueues.kueue.x-k8s.io", "launcher.missing")]),
    ],
)
def test_what_is_wrong_with_a_queue_is_one_fault(stack, expected):
    """The first cause is reported, not its consequences; a cohort may lend the missing quota."""
    assert judged(launch_stack(**stack)) == expected


def test_a_tenant_who_sees_no_clusterqueue_judges_the_rest():
    """A hidden ClusterQueue is not a fault."""
    assert judged(launch_stack(cluster=None, not_seen={"cluster": "forbidden"})) == []
    assert judged(launch_stack(local=None, not_seen={"local": "forbidden"})) == [("localqueue/team", "")]


def test_a_controller_without_a_ready_pod_is_down():
    """One ready replica is enough; pods of other programs do not count."""
    down = pod("kueue-controller-manager-x", "registry.k8s.io/kueue/kueue:v0.14.4", ready=False)
    up = pod("kueue-controller-manager-y", "registry.k8s.io/kueue/kueue:v0.14.4")
    assert ("kueue-system/kueue-controller-manager-x", "operator.down") in judged(launch_stack(), pods=[down])
    (said,) = [f.observed for f in present_findings(launch_stack(), spec(), [down]) if f.fault == "operator.down"]
    assert said == "0 of 1 pods ready (CrashLoopBackOff)"
    assert judged(launch_stack(), pods=[down, up]) == []
    assert judged(launch_stack(), pods=[pod("x", "registry.example/kueue-dashboard:1", ready=False)]) == []


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("registry.k8s.io/kueue/kueue:v0.14.4", True),
        ("registry.redhat.io/kueue/kueue-rhel9@sha256:1", True),
        ("registry.k8s.io/kueue/kueueviz-backend:v0.14.4", False),
        ("registry.k8s.io/kueue/kueue-populator:v1", False),
    ],
)
def test_what_is_shown_with_a_controller_is_not_taken_for_it(image, known):
    """A running dashboard does not hide a manager that is down."""
    down, beside = (
        pod("kueue-controller-manager-x", image, ready=not known),
        pod("kueueviz-x", "registry.k8s.io/kueue/kueueviz-frontend:1"),
    )
    assert judged(launch_stack(), pods=(down, beside)) == (
        [("kueue-system/kueue-controller-manager-x", "operator.down")] if known else []
    )


@pytest.mark.parametrize(
    ("launcher", "served", "expected"),
    [
        ("mpijob", ("v1",), [("mpijobs.kubeflow.org", "mpi.wrong-version")]),
        ("mpijob", (), [("mpijobs.kubeflow.org", "launcher.missing")]),
        ("mpijob", ("v1", "v2beta1"), []),
        ("pytorchjob", ("v1",), []),
        ("trainjob", ("v1alpha1",), [("clustertrainingruntime/torch-distributed", "launcher.runtime-missing")]),
    ],
)
def test_a_launcher_must_be_served_in_its_operators_version(launcher, served, expected):
    """The TrainJob's runtime must exist, too."""
    assert judged(LaunchStack(served=Serving(served)), spec(launcher=launcher, queue=None)) == expected


def test_an_operator_that_may_not_be_asked_for_is_not_reported():
    """Without that permission the result is neither a pass nor a fault."""
    hidden = LaunchStack(served=Serving(not_seen="forbidden"))
    assert judged(hidden, spec(launcher="mpijob", queue=None)) == [("mpijobs.kubeflow.org", "")]


def test_volcanos_queue_must_be_open_and_large_enough():
    """The queue's capability bounds the sum of all jobs."""
    asked, served = spec(queue=Queue(kind="volcano", name="q")), Serving(("v1beta1",))
    assert judged(LaunchStack(queue_served=served), asked) == [("queue/q", "queue.missing")]
    for raw, fault in (
        ({"status": {"state": "Closed"}}, "queue.stopped"),
        ({"spec": {"capability": {"nvidia.com/gpu": 8}}}, "queue.quota-short"),
    ):
        assert judged(LaunchStack(queue_served=served, volcano=raw), asked) == [("queue/q", fault)]
    assert judged(LaunchStack(queue_served=served, volcano={"spec": {"capability": {"cpu": "64"}}}), asked) == []


# -- evidence of the trial ---------------------------------------------------------------------------------------------


def trial(**more):
    fields = {
        "queue": QueueFacts(kind="kueue", name="team", admitted_s=2.0),
        "analysis": None,
        "state": "Complete",
        "pods": (),
        "replicas": (Replica(index=0, node="a"), Replica(index=1, node="b")),
    }
    return SimpleNamespace(**(fields | more))


OUT = QueueFacts(kind="kueue", name="team")


def failed(fault, blame="ERR_INFRA", **more):
    return FailureAnalysis(fault=fault, subject="s", observed="o", expected="e", suggestion="", err_class=blame, **more)


@table(
    "result, expected",
    [
        (trial(), (True, "")),
        (trial(analysis=failed("queue.quota-short")), (False, "queue.quota-short")),
        (trial(analysis=failed("gang.partial")), (False, "gang.partial")),
        (trial(analysis=failed("queue.waiting", None)), (None, "queue.waiting")),
        (trial(analysis=failed("image.pull")), (True, "")),
        (trial(queue=OUT, analysis=failed("job.disrupted", None, disrupted=True)), (None, "job.disrupted")),
        (trial(analysis=failed("job.disrupted", None, disrupted=True)), (True, "")),
        (trial(queue=OUT), (None, "")),
        (trial(replicas=(Replica(index=0, node="a"), Replica(index=1))), (None, "")),
        (trial(replicas=(), analysis=failed("job.unschedulable")), (True, "")),
        (trial(replicas=()), (None, "")),
    ],
)
def test_a_trial_is_let_in_whole_or_not_at_all(result, expected):
    """Another check judges the time after admission; a full queue is not a fault."""
    (finding,) = admitted_findings(result, spec())
    assert (finding.ok, finding.fault) == expected


@table(
    "fault, blame, ok",
    [
        ("launcher.missing", "ERR_INFRA", False),
        ("launcher.runtime-missing", "ERR_INFRA", False),
        ("operator.down", "ERR_INFRA", False),
        ("mpi.wrong-version", "ERR_INFRA", False),
        ("mpi.ssh-failed", "ERR_INFRA", False),
        ("mpi.ssh-failed", "ERR_PROGRAM", None),
        ("mpi.sshd-missing", "ERR_PROGRAM", None),
        ("mpi.mpirun-missing", "ERR_PROGRAM", None),
        ("queue.unmanaged", "ERR_INFRA", False),
        ("gang.unschedulable", "ERR_INFRA", False),
    ],
)
def test_whose_fault_it_is_decides(fault, blame, ok):
    """A cluster fault is a failure; an image fault is an error without a verdict on the cluster."""
    (finding,) = start_findings(trial(analysis=failed(fault, blame)), spec(queue=None))
    assert (finding.ok, finding.fault) == (ok, fault)


# -- the oversized job -------------------------------------------------------------------------------------------------

NODE = SimpleNamespace(name="n", labels={})


@pytest.mark.parametrize(
    ("stack", "phrase"),
    [
        (launch_stack(), ""),
        (launch_stack(cluster=cluster(queueingStrategy="StrictFIFO")), "StrictFIFO"),
        (launch_stack(cluster=cluster(preemption={"withinClusterQueue": "LowerPriority"})), "preempts"),
        (launch_stack(cluster=cluster(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}})), "preempts"),
        (
            launch_stack(
                cluster=cluster(preemption={"withinClusterQueue": "Never", "borrowWithinCohort": {"policy": "Never"}})
            ),
            "",
        ),
        (launch_stack(cluster=cluster(cohortName="all")), "cohort"),
        (launch_stack(cluster=cluster(admissionChecks=["provision"])), "admission checks"),
        (launch_stack(cluster=None), "cannot be read"),
    ],
    ids=["safe", "fifo", "preempts", "borrows", "never", "cohort", "checks", "unseen"],
)
def test_the_negative_test_is_refused_where_it_could_hurt(stack, phrase):
    """The refusal states the reason."""
    refusal = gang_refusal(stack, spec(), [NODE], [], on_demand=False)
    assert phrase in refusal if phrase else not refusal


def test_no_autoscaler_may_buy_nodes_for_it():
    """An autoscaler is detected by its pods, by labels of managed pools, or by the profile; without a queue there is no
    gang scheduling."""
    scaler = SimpleNamespace(name="cluster-autoscaler-x", namespace="kube-system")
    managed = SimpleNamespace(name="n", labels={"karpenter.sh/nodepool": "gpu"})
    assert "autoscaler" in gang_refusal(launch_stack(), spec(), [NODE], [scaler], on_demand=False)
    assert "karpenter" in gang_refusal(launch_stack(), spec(), [managed], [], on_demand=False)
    assert "on demand" in gang_refusal(launch_stack(), spec(), [NODE], [], on_demand=True)
    assert "not gang-scheduled" in gang_refusal(launch_stack(), spec(queue=None), [NODE], [], on_demand=False)


def test_the_job_that_cannot_fit_is_no_larger_than_it_must_be():
    """The job has one pod more than there are nodes or, on a large cluster, than the quota allows."""
    assert too_many(launch_stack(), spec(), [NODE] * 2) == 3
    assert too_many(launch_stack(), spec(), [NODE] * 100) == 3
    scarce = launch_stack(cluster=cluster(dict.fromkeys(QUOTA, "9999Gi") | {"rdma/hca": "4"}))
    assert too_many(scarce, spec(resources={"rdma/hca": 1}), [NODE] * 100) == 5  # one of these for each pod


def test_a_pod_of_the_job_that_cannot_fit_is_a_fault():
    """The check passes if no pod was placed and the queue gives a reason; it fails if one was placed."""
    placed = trial(pods=(PodFacts(index=0, name="p", node="n"), PodFacts(index=1, name="q")))
    for result, expected in (
        (placed, (False, "gang.started")),
        (trial(analysis=failed("queue.quota-short")), (True, "")),
        (trial(), (None, "")),
    ):
        (finding,) = gang_findings(result, spec(nodes=3))
        assert (finding.ok, finding.fault) == expected


H100, A100 = {"nvidia.com/gpu.product": "NVIDIA-H100"}, {"nvidia.com/gpu.product": "NVIDIA-A100"}
TAINT = SimpleNamespace(key="team", value="a", effect="NoSchedule")


def gpu_node(labels, resource="nvidia.com/gpu", taints=()):
    return SimpleNamespace(labels=labels, capacity={resource: 8, "cpu": 1000}, taints=taints)


@table(
    "labels, nodes, selector, ok",
    [
        ({}, [gpu_node(H100), gpu_node(A100)], {}, [False]),
        (H100, [gpu_node(H100), gpu_node(A100)], {}, [True]),
        ({"pool": "x"}, [gpu_node(H100 | {"pool": "x"}), gpu_node(A100 | {"pool": "x"})], {}, [False]),
        ({}, [gpu_node(H100), gpu_node(A100)], H100, [True]),  # the pods' selector decides
        ({}, [gpu_node(H100), gpu_node(A100, taints=(TAINT,))], {}, [True]),  # excluded by the taint
        ({}, [gpu_node(H100), gpu_node({"nvidia.com/gpu.product": "NVIDIA-H100-SHARED"})], {}, [True]),
        ({}, [gpu_node({}), gpu_node({}, "amd.com/gpu")], {}, [False]),  # of two vendors
        ({}, [gpu_node({}), gpu_node({}, "gpu.intel.com/xe")], {}, [True]),  # the flavor does not cover the second
        ({}, [gpu_node({}, "example.com/none")], {}, []),
        ({"pool": "x"}, [gpu_node(H100), gpu_node(A100)], {}, []),
    ],
)
def test_a_flavor_is_of_one_kind_of_gpu_nodes(labels, nodes, selector, ok):
    flavor = Flavor("any", labels, (), ("cpu", "nvidia.com/gpu", "amd.com/gpu"))
    found = list(hardware_findings(launch_stack(flavors=(flavor,)), nodes, spec(node_selector=selector)))
    assert [each.ok for each in found] == ok
    assert [each.fault for each in found] == ["" if each else "queue.unlike-hardware" for each in ok]


def test_a_flavor_opens_its_taints_to_its_pods():
    nodes = [gpu_node(H100), gpu_node(A100, taints=(TAINT,))]
    flavor = Flavor("any", {}, ({"key": "team", "operator": "Exists"},), ("nvidia.com/gpu",))
    (found,) = hardware_findings(launch_stack(flavors=(flavor,)), nodes, spec())
    assert (found.ok, found.observed) == (False, "NVIDIA-A100 (1 node), NVIDIA-H100 (1 node)")


def test_pods_without_gpus_are_too_many_when_the_quota_holds_no_more():
    """Small pods may exceed the nodes' number and still fit the quota, so the job exceeds the quota."""
    cpus, nodes = spec(gpus_per_node=0, cpu="1", memory="1Gi", resources={}), [SimpleNamespace(labels={})] * 3
    roomy, tight = {"cpu": "10", "memory": "64Gi"}, {"cpu": "2", "memory": "64Gi"}
    assert too_many(launch_stack(cluster=cluster(roomy)), cpus, nodes) == 11
    assert too_many(launch_stack(cluster=cluster(tight)), cpus, nodes) == 4
    assert too_many(launch_stack(cluster=None), cpus, nodes) == 4
