"""Cost grows with the number of nodes and pods, not with its square, even if all nodes are bad."""

from dataclasses import replace

import pytest

from checks.framework.blocking import Places, blocks
from checks.framework.evidence import Blocked, Evidence
from checks.framework.selection import Declaration
from checks.rules.bom import from_api
from checks.rules.capacity import releases, room_findings, rooms, shortage
from checks.rules.drains import drain_findings
from checks.rules.nodes import node_findings, offers, refusals, report_findings, unlike_nodes
from checks.rules.pool import pool_of
from checks.rules.rdma_offer import offer_findings
from checks.rules.stack import label_findings, operands, stack_findings, upgrade_findings
from jobs.cluster.facts.conditions import Report
from jobs.cluster.facts.drains import Drains
from jobs.cluster.facts.inventory import Inventory, PodUse, Taint
from reports.record import NOT_JUDGED, CheckResult, Finding
from reports.schema import Outcome
from tests.growth import LINEAR, growth

GPU = "nvidia.com/gpu"
PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
WRONG = {
    "healthy": lambda n, _: n,
    "not ready": lambda n, _: replace(n, ready=False),
    "GPUs lost": lambda n, _: replace(n, allocatable={GPU: 7}),
    "without labels": lambda n, _: replace(n, labels={"nvidia.com/gpu.present": "true"}),
    "nothing reported": lambda n, _: replace(n, kernel="", runtime="", kubelet="", os=""),
    "each another driver": lambda n, i: replace(n, labels={"nvidia.com/cuda.driver-version.full": f"580.{i}"}),
    "each another machine": lambda n, i: replace(n, labels={"node.kubernetes.io/instance-type": f"type-{i}"}),
    "each other taints": lambda n, i: replace(n, taints=tuple(Taint(f"t{i}-{t}", "", "NoSchedule") for t in range(9))),
    "each another message": lambda n, i: replace(n, ready=False, ready_reason=f"stopped at {i}"),
    "each another report": lambda n, i: replace(
        n, reports=(Report(n.name, "GpuUnhealthy", f"GpuUnhealthy=True ({i})"),)
    ),
}


def pods_on(number):
    """Return a plugin, a job that holds all GPUs, and a Slurm worker, each with a unique name and owner."""
    at = f"n-{number}"
    yield PodUse(
        "gpu-operator", f"nvidia-device-plugin-{number}", at, {}, "DaemonSet/d", "Running", ready=number % 2 == 0
    )
    yield PodUse(
        "team", f"train-{number}", at, {GPU: 4}, f"Job/train-{number}", "Running", since="2026-01-01T00:00:00Z"
    )
    yield PodUse("slurm", f"worker-{number}", at, {GPU: 4}, f"NodeSet/set-{number}", "Running")


@pytest.fixture
def cluster(node):
    """Return a cluster of so many nodes with a fault on each."""

    def make(size, wrong):
        nodes = tuple(WRONG[wrong](node(f"n-{i}", labels=PRODUCT), i) for i in range(size))
        pods = [pod for i in range(size) for pod in pods_on(i)]
        refused = tuple(replace(pod, phase="Failed", trouble="OutOfgpu", since="") for pod in pods if pod.requests)
        return Inventory(nodes, tuple(pods), refused=refused)

    return make


RULES = {
    "nodes": lambda c, pool, spec, profile: node_findings(c, pool, profile),
    "reports": lambda c, pool, spec, profile: report_findings(pool.nodes, [r for n in c.nodes for r in n.reports]),
    "uniform": lambda c, pool, spec, profile: unlike_nodes(pool.nodes),
    "allocatable": lambda c, pool, spec, profile: offers(pool, profile, spec.nodes),
    "admitted": lambda c, pool, spec, profile: refusals(c, pool.nodes, [GPU]),
    "labels": lambda c, pool, spec, profile: label_findings(pool, GPU),
    "free": lambda c, pool, spec, profile: free(c, pool, spec),
    "stack": lambda c, pool, spec, profile: stack_findings(pool.nodes, c.pods),
    "upgrade": lambda c, pool, spec, profile: upgrade_findings(pool.nodes),
    "rdma": lambda c, pool, spec, profile: offer_findings(pool.nodes, {"rdma/hca": 1}, operands(c.pods).get("x", {})),
    "drains": lambda c, pool, spec, profile: drain_findings(pool.nodes, c, Drains(), GPU),
    "bom": lambda c, pool, spec, profile: from_api("v1.36.2", pool.nodes, c, ()),
}


def free(cluster, pool, spec):
    found = rooms(cluster, pool.nodes, replace(spec, nodes=len(pool.nodes)))
    return [
        *shortage(found, pool, spec),
        *room_findings(found, spec),
        *releases(cluster, found, replace(spec, nodes=9)),
    ]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_takes_twice_the_steps_for_twice_the_nodes(rule, wrong, cluster, spec, h100):
    """Five thousand nodes with twenty thousand pods are a hundred million pairs."""

    def make(size):
        made = cluster(size, wrong)
        return lambda: list(RULES[rule](made, pool_of(made, h100), spec, h100))

    assert growth(make, 30) <= LINEAR


def result(check_id, size, *, requires=(), withheld=()):
    """Return a check that failed on every second node or pair, or did not judge it."""
    findings = [Finding(subject=f"n-{i}", ok=i % 2 == 1, observed="7", fault="gpu.missing") for i in range(size)]
    findings += [Finding(subject=f"n-{i}", ok=None, observed=f"{NOT_JUDGED}nodes.gpu") for i in withheld]
    return CheckResult(id=check_id, title="", outcome=Outcome.FAILED, findings=tuple(findings), requires=requires)


def test_what_withholds_a_check_is_found_in_steps_that_grow_with_the_nodes():
    """Each finding and each place is visited once, independent of the other's number."""
    declared = Declaration(
        id="gpu.free",
        title="",
        stage="preflight",
        requires=("nodes.gpu", "stack.upgrade"),
        unless_failed=("gpu.allocatable",),
        faults=(),
        doc="",
        by_node=True,
    )
    by_node = {"nodes.gpu", "gpu.allocatable", "stack.upgrade"}

    def make(size):
        results = {name: result(name, size, withheld=range(0, size, 3)) for name in by_node}
        return lambda: blocks(declared, results, by_node, {f"n-{i}" for i in range(size)})

    assert growth(make, 60) <= LINEAR
    assert len(make(60)().nodes) == 40


@pytest.mark.parametrize("between", ["n-{}", "n-{} - n-0", "n-0 - n-{}"])
def test_what_is_withheld_is_known_without_a_look_at_each_place(between):
    """A withheld place is found directly among nodes, and among pairs that all share one node."""

    def make(size):
        def judge():
            evidence = Evidence()
            evidence.withhold({between.format(i): ("nodes.gpu",) for i in range(1, size)})
            evidence.expect(between.format(i) for i in range(size))
            for i in range(size):
                evidence.add(between.format(i), ok=True, observed="8")
            with pytest.raises(Blocked):
                evidence.verdict()

        return judge

    assert growth(make, 60) <= LINEAR


def test_an_index_of_places_finds_what_a_look_at_each_would():
    """Nodes, pairs in any order, and triples; a subject that names only a part of a place does not match it."""
    places = ["n-0", "n-1 - n-2", "n-2 - n-3 - n-4"]
    about = {
        "n-0 GPU 3": ["n-0"],
        "n-2 -> n-1": ["n-1 - n-2"],
        "n-4, n-2, n-3, n-1": ["n-1 - n-2", "n-2 - n-3 - n-4"],
        "n-1": [],
        "n-2 - n-4": [],
        "cluster": [],
        "": [],
    }
    assert {subject: sorted(Places(places).about(subject)) for subject in about} == about
