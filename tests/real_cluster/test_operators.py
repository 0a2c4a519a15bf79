"""Trials through the real operators: Kueue, MPI Operator, Training Operator, Kubeflow Trainer with JobSet.

Each runs with an account with exactly the printed permissions, and is judged like the situations without an operator.
"""

from __future__ import annotations

import pytest
import yaml

from lab.operators.definitions import definitions
from tests.real_cluster import image
from tests.waiting import KUBECTL_LIMIT, until

COVERED = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "16", "rdma/hca_shared_devices_a": "64"}
QUEUE = "trial"
# The labels of all nodes (hardware.py).
KIND = {"node.kubernetes.io/instance-type": "hgx-h100-8"}
# The symptoms of a stopped operator: one has webhooks, which then fail, the other has none.
DOWN = {"mpijob": "operator.down", "pytorchjob": "admission.webhook-down", "trainjob": "admission.webhook-down"}
LAUNCHERS = {"mpijob": "mpi-operator", "pytorchjob": "training-operator", "trainjob": "kubeflow-trainer"}


class Queues:
    """Queues of Kueue for one test: cluster-scoped objects with its namespace's name, and a LocalQueue."""

    def __init__(self, bench):
        self._bench = bench
        self.name = bench.namespace

    def make(self, gpus="16", flavor=None, local=QUEUE, **more):
        """Create flavor, ClusterQueue and LocalQueue."""
        amounts = {**COVERED, "nvidia.com/gpu": gpus}
        resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
        group = {"coveredResources": list(amounts), "flavors": [{"name": self.name, "resources": resources}]}
        spec = {"namespaceSelector": {}, "resourceGroups": [group], **more}
        self.apply("ResourceFlavor", self.name, flavor or {"nodeLabels": KIND})
        self.apply("ClusterQueue", self.name, spec)
        self.apply("LocalQueue", local, {"clusterQueue": self.name}, self._bench.namespace)

    def apply(self, kind, name, spec, namespace=None, **more):
        """Apply one object of Kueue, as soon as its webhook responds."""
        meta = {"name": name} | ({"namespace": namespace} if namespace else {})
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, "spec": spec, **more}
        body = {key: value for key, value in body.items() if value is not None}
        text = yaml.safe_dump(body)
        until(
            lambda: self._bench.cluster.kubectl("apply", "--validate=strict", "-f", "-", given=text, check=False),
            f"{kind}/{name}",
        )

    def remove(self):
        """Remove them; Kueue removes its finalizers when they are not in use."""
        kubectl = self._bench.cluster.kubectl
        kubectl(
            "-n", self._bench.namespace, "delete", "jobs,localqueues,workloads", "--all", KUBECTL_LIMIT, check=False
        )
        for kind in ("clusterqueues", "resourceflavors", "topologies.kueue.x-k8s.io"):
            kubectl("delete", kind, self.name, "--ignore-not-found", KUBECTL_LIMIT, check=False)


@pytest.fixture
def queues(operators, bench):
    operators.install("kueue")
    made = Queues(bench)
    yield made
    made.remove()


def judged(bench, outcome, verdict, *faults):
    """Assert the verdict, exactly these faults, no leftovers, no refused request."""
    assert (outcome.verdict, outcome.faults) == (verdict, set(faults)), outcome.text
    assert bench.left() == []
    assert bench.refused() == []


def through(bench, launcher="indexed", queue="", *more):
    """Run a trial through a launcher and a queue, with their permissions."""
    chosen = [f"--launcher={launcher}"] + ([f"--queue={queue}"] if queue else [])
    return bench.run("accept", *chosen, *more, rights=("--cluster", *chosen))


def state(outcome, check):
    """Return the outcome of a check."""
    return next(each["outcome"] for each in outcome.record["checks"] if each["id"] == check)


# -- Kueue


def test_a_trial_is_admitted_by_its_local_queue(bench, queues):
    queues.make()
    outcome = through(bench, queue="kueue:trial")
    judged(bench, outcome, "go")


def test_the_exercise_without_gpus(bench, queues):
    """A CPU job is admitted, and one that is too large for the quota starts no pod."""
    queues.make()
    bench.profile["extends"] = "cpu-gloo"
    outcome = through(bench, "indexed", "kueue:trial", "--gang")
    judged(bench, outcome, "go")
    assert (state(outcome, "queue.admitted"), state(outcome, "queue.gang")) == ("passed", "passed")
    assert "CPU ONLY" in outcome.text


def test_a_quota_that_can_never_hold_the_trial(bench, queues):
    queues.make(gpus="8")
    judged(bench, through(bench, queue="kueue:trial"), "no-go", "queue.quota-short")


def test_a_local_queue_that_is_missing(bench, queues):
    queues.make(local="research")
    judged(bench, through(bench, queue="kueue:trial"), "no-go", "queue.missing")


def test_a_stopped_cluster_queue(bench, queues):
    queues.make(stopPolicy="Hold")
    judged(bench, through(bench, queue="kueue:trial"), "no-go", "queue.stopped")


def test_a_queue_without_a_namespace_selector(bench, queues):
    queues.make(namespaceSelector=None)
    judged(bench, through(bench, queue="kueue:trial"), "no-go", "queue.namespace")


def test_a_queue_of_other_namespaces(bench, queues):
    queues.make(namespaceSelector={"matchLabels": {"team": "others"}})
    judged(bench, through(bench, queue="kueue:trial"), "no-go", "queue.namespace")


def test_a_flavor_whose_labels_no_node_has(bench, queues):
    queues.make(flavor={"nodeLabels": {"example.com/pool": "b200"}})
    judged(bench, through(bench, queue="kueue:trial"), "no-go", "job.unschedulable")


def test_a_flavor_whose_taint_is_not_tolerated(bench, queues):
    queues.make(flavor={"nodeLabels": KIND, "nodeTaints": [{"key": "reserved", "value": "b", "effect": "NoSchedule"}]})
    judged(bench, through(bench, queue="kueue:trial"), "no-go", "queue.flavor")


def test_a_gang_that_does_not_fit_starts_no_pod(bench, queues):
    queues.make()
    outcome = through(bench, "indexed", "kueue:trial", "--gang")
    judged(bench, outcome, "go")
    assert state(outcome, "queue.gang") == "passed"


def test_a_quota_larger_than_the_nodes_starts_half_a_gang(bench, queues):
    queues.make(gpus="640")
    outcome = through(bench, "indexed", "kueue:trial", "--gang")
    judged(bench, outcome, "no-go", "gang.started")


BLOCK = "cloud.provider.com/topology-block"


def topology(bench, queues, labelled):
    """Create a flavor whose topology has blocks; this many nodes have a block label."""
    levels = [{"nodeLabel": BLOCK}, {"nodeLabel": "kubernetes.io/hostname"}]
    queues.apply("Topology", queues.name, {"levels": levels})
    queues.make(flavor={"nodeLabels": KIND, "topologyName": queues.name})
    for node in bench.cluster.nodes[:labelled]:
        bench.cluster.kubectl("label", "node", node, f"{BLOCK}=b1")


@pytest.fixture
def unlabelled(bench):
    yield
    bench.cluster.kubectl("label", "nodes", "--all", f"{BLOCK}-")


@pytest.mark.usefixtures("unlabelled")
def test_pods_are_placed_by_the_topology_of_a_flavor(bench, queues):
    topology(bench, queues, 3)
    judged(bench, through(bench, queue="kueue:trial"), "go")


@pytest.mark.usefixtures("unlabelled")
def test_nodes_without_the_labels_of_a_topology(bench, queues):
    topology(bench, queues, 1)
    judged(bench, through(bench, queue="kueue:trial"), "no-go", "queue.topology")


def other_job(bench, queues, name, priority=None, seconds=600):
    """Create a job of another team that uses the queue's whole GPU quota."""
    labels = {"kueue.x-k8s.io/queue-name": QUEUE}
    if priority is not None:
        queues.apply("WorkloadPriorityClass", queues.name, None, value=priority)
        labels["kueue.x-k8s.io/priority-class"] = queues.name
    amounts = {"cpu": "100m", "memory": "64Mi", "nvidia.com/gpu": "8"}
    container = {
        "name": "work",
        "image": image.TRIAL,
        "command": ["sleep", str(seconds)],
        "resources": {"limits": amounts},
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    spec = {"parallelism": 2, "completions": 2, "suspend": True, "template": {"spec": pod}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}
    bench.kubectl("apply", "-f", "-", given=yaml.safe_dump(job))


def admitted(bench, name):
    """Say whether Kueue has started a job."""
    return bench.kubectl("get", "job", name, "-o", "jsonpath={.spec.suspend}") == "false"


def test_a_queue_that_others_fill(bench, queues):
    queues.make()
    other_job(bench, queues, "training")
    until(lambda: admitted(bench, "training"), "the other job is admitted")
    bench.profile["deadlines"]["queue_s"] = 20
    judged(bench, through(bench, queue="kueue:trial"), "inconclusive", "queue.waiting")


def preempted(bench, queues, seconds):
    """Preempt the running trial by a job of higher priority, which runs for some seconds."""
    queues.make(preemption={"withinClusterQueue": "LowerPriority"})
    bench.profile["deadlines"]["queue_s"] = 30
    bench.cluster.behave(hang=True)
    chosen = ("--queue=kueue:trial",)
    run = bench.start("accept", *chosen, rights=("--cluster", *chosen))
    bench.running()
    bench.cluster.behave()
    other_job(bench, queues, "urgent", 1000, seconds)
    until(lambda: admitted(bench, "urgent"), "the job of higher priority is admitted")
    return run.end()


def test_preempted_in_the_middle_and_tried_again(bench, queues):
    judged(bench, preempted(bench, queues, 3), "go")


def test_preempted_in_the_middle_for_good(bench, queues):
    outcome = preempted(bench, queues, 600)
    assert outcome.verdict == "inconclusive", outcome.text
    judged(bench, outcome, "inconclusive", "job.disrupted")


def test_a_queue_whose_operator_does_not_run(bench, operators, queues):
    queues.make()
    active = ("get", "localqueue", QUEUE, "-o", 'jsonpath={.status.conditions[?(@.type=="Active")].status}')
    until(lambda: bench.kubectl(*active) == "True", "the queue is active")
    with operators.stopped("kueue"):
        judged(bench, through(bench, queue="kueue:trial"), "no-go", "admission.webhook-down")


def test_a_trial_of_no_queue_where_kueue_does_not_run(bench, operators):
    """Kueue's webhooks are called for every Job, and do not respond."""
    with operators.stopped("kueue"):
        outcome = through(bench)
        judged(bench, outcome, "no-go", "admission.webhook-down")
    assert "kueue-webhook-service.kueue-system" in outcome.text


# -- launchers


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_trial_through_a_launcher(bench, operators, launcher):
    operators.install(LAUNCHERS[launcher])
    judged(bench, through(bench, launcher), "go")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_trial_through_a_launcher_and_a_local_queue(bench, operators, queues, launcher):
    operators.install(LAUNCHERS[launcher])
    queues.make()
    judged(bench, through(bench, launcher, "kueue:trial"), "go")


def test_an_image_without_sshd(bench, operators):
    operators.install("mpi-operator")
    bench.profile["launch"] = {"mpi": {"sshd": ["/usr/sbin/none", "-De"]}}
    judged(bench, through(bench, "mpijob"), "inconclusive", "mpi.sshd-missing")


def test_an_image_without_mpirun(bench, operators):
    operators.install("mpi-operator")
    bench.profile["launch"] = {"mpi": {"mpirun": ["/usr/bin/none"]}}
    judged(bench, through(bench, "mpijob"), "inconclusive", "mpi.mpirun-missing")


def test_a_runtime_that_is_missing(bench, operators):
    operators.install("kubeflow-trainer")
    bench.profile["launch"] = {"runtime": "torch-of-others"}
    judged(bench, through(bench, "trainjob"), "no-go", "launcher.runtime-missing")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_an_operator_that_does_not_run(bench, operators, launcher):
    with operators.stopped(LAUNCHERS[launcher]):
        judged(bench, through(bench, launcher), "no-go", DOWN[launcher])


# -- created objects


def volcano(bench):
    """Install the lab's definitions of Volcano, whose module is not on the Go module proxy."""
    for each in definitions("volcano"):
        bench.cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump(each))
    until(
        lambda: bench.kubectl("get", "podgroups.scheduling.volcano.sh", check=False) is not None, "PodGroups are served"
    )


TAKEN = [(launcher, queue) for launcher in ("indexed", *LAUNCHERS) for queue in ("", "kueue:trial", "volcano")]
TAKEN.remove(("trainjob", "volcano"))  # a usage error: its runtime decides the scheduler


@pytest.mark.parametrize(("launcher", "queue"), TAKEN)
def test_the_server_takes_what_is_printed(bench, operators, queues, launcher, queue):
    operators.install(*([LAUNCHERS[launcher]] if launcher in LAUNCHERS else []))
    queues.make()
    if queue == "volcano":
        volcano(bench)
    bench.grant()
    chosen = ["--launcher", launcher, *(["--queue", queue] if queue else [])]
    shared = [
        "--kubeconfig",
        str(bench.kubeconfig),
        "--namespace",
        bench.namespace,
        "--profile",
        str(bench.profile_file()),
    ]
    printed = bench.command(["accept", *shared, *chosen, "--print-manifests", "--with-files"])
    assert printed.returncode == 0, printed.stdout + printed.stderr
    done = bench.cluster.asked(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", given=printed.stdout
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
