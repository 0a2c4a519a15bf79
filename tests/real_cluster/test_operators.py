"""Trials through the real operators: Kueue, MPI Operator, Training Operator, Kubeflow Trainer with JobSet.

Each is run by an account with exactly the printed rights, and judged like the situations without an operator.
"""

from __future__ import annotations

import json

import pytest
import yaml

from lab.operators.definitions import definitions
from tests.real_cluster.cluster import wait

COVERED = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "16", "rdma/hca_shared_devices_a": "64"}
QUEUE = "trial"
LAUNCHERS = {"mpijob": "mpi-operator", "pytorchjob": "training-operator", "trainjob": "kubeflow-trainer"}


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
        self.apply("ResourceFlavor", self.name, flavor or {"nodeLabels": {"nvidia.com/gpu.present": "true"}})
        self.apply("ClusterQueue", self.name, spec)
        self.apply("LocalQueue", local, {"clusterQueue": self.name}, self._bench.namespace)

    def apply(self, kind, name, spec, namespace=None, **more):
        """Apply one object of Kueue, as soon as its webhook answers."""
        meta = {"name": name} | ({"namespace": namespace} if namespace else {})
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, "spec": spec, **more}
        body = {key: value for key, value in body.items() if value is not None}
        text = yaml.safe_dump(body)
        wait(lambda: self._bench.cluster.kubectl("apply", "--validate=strict", "-f", "-", given=text, check=False), f"{kind}/{name}", 60.0)

    def remove(self):
        """Remove them; Kueue takes its finalizers off when nothing uses them."""
        kubectl = self._bench.cluster.kubectl
        kubectl("-n", self._bench.namespace, "delete", "jobs,localqueues,workloads", "--all", "--timeout=60s", check=False)
        for kind in ("clusterqueues", "resourceflavors", "topologies.kueue.x-k8s.io"):
            kubectl("delete", kind, self.name, "--ignore-not-found", "--timeout=60s", check=False)


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


def through(bench, launcher="indexed", queue="", *more):
    """Run a trial through a launcher and a queue, with the rights for them."""
    chosen = [f"--launcher={launcher}"] + ([f"--queue={queue}"] if queue else [])
    return bench.run("accept", *chosen, *more, rights=("--cluster", *chosen))


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


def test_a_gang_that_does_not_fit_starts_no_pod(bench, queues):
    queues.make()
    outcome = through(bench, "indexed", "kueue:trial", "--gang")
    judged(bench, outcome, "go")
    assert state(outcome, "queue.gang") == "passed"


def test_a_quota_larger_than_the_nodes_starts_half_a_gang(bench, queues):
    queues.make(gpus="640")
    outcome = through(bench, "indexed", "kueue:trial", "--gang")
    judged(bench, outcome, "no-go", "gang.started")


def state(outcome, check):
    """How a check ended."""
    return next(each["status"] for each in outcome.record["checks"] if each["id"] == check)
