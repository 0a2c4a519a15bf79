"""Trials through the real operators: Kueue, MPI Operator, Training Operator.

Each is run by an account with exactly the printed rights, and judged like the situations without an operator.
"""

from __future__ import annotations

import pytest
import yaml

from lab.operators.definitions import definitions
from tests.waiting import KUBECTL_LIMIT, until

COVERED = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "16", "rdma/hca_shared_devices_a": "64"}
QUEUE = "trial"
#: What all nodes carry (hardware.py).
KIND = {"node.kubernetes.io/instance-type": "hgx-h100-8"}
LAUNCHERS = {"mpijob": "mpi-operator", "pytorchjob": "training-operator"}


class Queues:
    """Queues of Kueue for one test: cluster-scoped objects of its namespace's name, and a LocalQueue."""

    def __init__(self, bench):
        self._bench = bench
        self.name = bench.namespace

    def make(self, gpus="16", flavor=None, local=QUEUE, **more):
        """Make flavor, ClusterQueue and LocalQueue, and wait until they are active."""
        amounts = {**COVERED, "nvidia.com/gpu": gpus}
        resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
        group = {"coveredResources": list(amounts), "flavors": [{"name": self.name, "resources": resources}]}
        spec = {"namespaceSelector": {}, "resourceGroups": [group], **more}
        self.apply("ResourceFlavor", self.name, flavor or {"nodeLabels": KIND})
        self.apply("ClusterQueue", self.name, spec)
        self.apply("LocalQueue", local, {"clusterQueue": self.name}, self._bench.namespace)

    def apply(self, kind, name, spec, namespace=None, **more):
        """Apply one object of Kueue, as soon as its webhook answers."""
        meta = {"name": name} | ({"namespace": namespace} if namespace else {})
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, "spec": spec, **more}
        body = {key: value for key, value in body.items() if value is not None}
        text = yaml.safe_dump(body)
        until(
            lambda: self._bench.cluster.kubectl("apply", "--validate=strict", "-f", "-", given=text, check=False),
            f"{kind}/{name}",
        )

    def remove(self):
        """Remove them; Kueue takes its finalizers off when nothing uses them."""
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
    """The verdict, exactly these faults, nothing left, nothing refused."""
    assert (outcome.verdict, outcome.faults) == (verdict, set(faults)), outcome.text
    assert bench.left() == []
    assert bench.refused() == []


def through(bench, launcher="indexed", queue=""):
    """Run a trial through a launcher and a queue, with the rights for them."""
    chosen = [f"--launcher={launcher}"] + ([f"--queue={queue}"] if queue else [])
    return bench.run("accept", *chosen, rights=("--cluster", *chosen))


# -- Kueue


def test_a_trial_is_admitted_by_its_local_queue(bench, queues):
    queues.make()
    outcome = through(bench, queue="kueue:trial")
    judged(bench, outcome, "go")


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


def test_a_flavor_whose_taint_is_not_tolerated(bench, queues):
    queues.make(flavor={"nodeLabels": KIND, "nodeTaints": [{"key": "reserved", "value": "b", "effect": "NoSchedule"}]})
    judged(bench, through(bench, queue="kueue:trial"), "no-go", "queue.flavor")


BLOCK = "cloud.provider.com/topology-block"


def topology(bench, queues, labelled):
    """A flavor whose topology has blocks; so many nodes have the label of one."""
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
def test_nodes_without_the_labels_of_a_topology(bench, queues):
    topology(bench, queues, 1)
    judged(bench, through(bench, queue="kueue:trial"), "no-go", "queue.topology")


# -- launchers


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_trial_through_a_launcher(bench, operators, launcher):
    operators.install(LAUNCHERS[launcher])
    judged(bench, through(bench, launcher), "go")


# -- what is created


def volcano(bench):
    """Volcano's definitions of the lab: its module cannot be had from the Go module proxy."""
    for each in definitions("volcano"):
        bench.cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump(each))
    until(
        lambda: bench.kubectl("get", "podgroups.scheduling.volcano.sh", check=False) is not None, "PodGroups are served"
    )


@pytest.mark.parametrize("queue", ["", "kueue:trial", "volcano"])
@pytest.mark.parametrize("launcher", ["indexed", *LAUNCHERS])
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
