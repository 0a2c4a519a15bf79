"""A sweep over the fleet: every node alone, every node in pairs, and all that passed in one job (`seatrial sweep`)."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.framework.session import Session
from checks.profiles.loader import Profile
from checks.rules import dcgm, sweep_dcgm, sweep_training
from checks.rules.job import START_FAULTS, UNFIT
from checks.rules.levels import level_findings, level_notes
from checks.rules.pool import product
from checks.rules.sweep import link_findings, node_findings, ran_findings, scale_findings
from checks.rules.sweep_texts import notes, seen_again
from checks.rules.swept import Swept
from checks.rules.training import on_cpus
from checks.rules.visibility import require_seen
from jobs.cluster.facts.inventory import Inventory
from jobs.trial.spec import TrialSpec
from seatrial.faults.dcgm import GPU_FAULT, SETUP_FAULT


@pytest.mark.acceptance
@pytest.mark.sweep
@pytest.mark.check(
    "sweep.ran",
    "Every planned node is tested",
    requires=["rights.run", "namespace.ready"],
    unless_failed=[*UNFIT],
    needs=["run"],
    faults=["sweep.not-tested", "sweep.misplaced", *START_FAULTS],
)
def test_the_sweep_tests_every_node(swept: Swept, cluster: Inventory, profile: Profile, evidence: Evidence) -> None:
    """Every free node gets a pod, each is tested alone and in pairs, and the plan is completed.

    A missing node, a silent agent, an incomplete result and an exhausted budget are each named; a fleet with an
    untested node is not go.
    """
    models = [product(node) for node in cluster.nodes if node.name in swept.tested]
    if swept.failure:
        evidence.advise(swept.failure.fault, confirm=swept.failure.confirm, remedy=swept.failure.remedy)
    evidence.judge(ran_findings(swept), (*notes(swept), *level_notes(swept, profile, models)))


@pytest.mark.acceptance
@pytest.mark.sweep
@pytest.mark.check(
    "sweep.nodes",
    "Every node and rail passes with proven partners",
    unless_failed=["sweep.ran"],
    faults=["sweep.fleet", "sweep.level", "sweep.node", "sweep.rail", "sweep.suspect"],
)
def test_every_node_holds(swept: Swept, cluster: Inventory, profile: Profile, evidence: Evidence) -> None:
    """No node or rail is slow or incorrect, alone or with partners that pass elsewhere.

    A node is at fault after three failures with proven partners and no pass, or if it fails with most of six or more.
    Wrong sums and a wrong transport count at once. A test that fails and then passes is reported, but not a fault. Slow
    or wrong pairs that no proven node can localise are a fault of the fleet. All pairs far below the hardware's
    published bandwidth, or its rails' link rate, do not pass either.
    """
    models = [product(node) for node in cluster.nodes if node.name in swept.tested]
    evidence.judge([*node_findings(swept), *level_findings(swept, profile, models)])


@pytest.mark.acceptance
@pytest.mark.sweep
@pytest.mark.check(
    "sweep.links",
    "Every tested uplink and path passes",
    unless_failed=["sweep.ran"],
    faults=["sweep.uplink", "sweep.pair", "sweep.groups", "sweep.plane", "sweep.noise"],
)
def test_every_link_holds(swept: Swept, evidence: Evidence) -> None:
    """No leaf's uplink is slow for nodes that pass inside the leaf, and no pair fails if its nodes pass elsewhere.

    Neither is a node's fault: only jobs inside the leaf, or without that pair, are fast.
    """
    if len(swept.asked) < 2:
        evidence.unknown("one node: no link to test")
    evidence.judge(link_findings(swept), seen_again(swept))


@pytest.mark.acceptance
@pytest.mark.sweep
@pytest.mark.check(
    "sweep.scale", "One job over all healthy nodes passes", unless_failed=["sweep.ran"], faults=["sweep.scale"]
)
def test_all_nodes_run_one_job(swept: Swept, profile: Profile, seatrial: Session, evidence: Evidence) -> None:
    """One all_reduce over all nodes that passed alone and in pairs ends with correct sums, at the profile's floor.

    If it fails although all pairs pass, the fault is one of scale (routing, SHARP, a bootstrap that times out), not of
    a node.
    """
    if not seatrial.options.scale:
        evidence.skip("--no-scale: nodes that have passed were released before", waived=True)
    if len(swept.blame.proven) < 3:
        evidence.skip(f"{len(swept.blame.proven)} nodes passed: a pair is not a larger job")
    if swept.end is None:
        evidence.unknown(f"the job over all nodes did not run: {swept.problem or 'cause unknown'}")
    evidence.judge(scale_findings(swept, profile))


@pytest.mark.acceptance
@pytest.mark.sweep
@pytest.mark.check(
    "sweep.kept",
    "Nodes are unchanged after the sweep",
    unless_failed=["sweep.ran"],
    faults=["gpu.missing", "gpu.none-allocatable", "nodes.not-ready", "job.disrupted"],
    needs=["nodes"],
)
def test_the_nodes_of_the_sweep_are_as_before(swept: Swept, cluster: Inventory, evidence: Evidence) -> None:
    """After the sweep the nodes that it tested are Ready and offer as many GPUs as before it (`job.nodes`).

    A node with interrupted tests is reported by sweep.ran: it is not proven in any case.
    """
    require_seen(evidence, cluster, "nodes")
    evidence.judge(swept.kept)


@pytest.mark.acceptance
@pytest.mark.sweep
@pytest.mark.check(
    "sweep.dcgm", "DCGM's diagnostics pass on every node", unless_failed=["sweep.ran"], faults=[GPU_FAULT, SETUP_FAULT]
)
def test_dcgm_finds_nothing_wrong_on_any_node(
    swept: Swept, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """Where the image has them, DCGM's diagnostics (`runtime.dcgm`) pass on each node before its other tests alone.

    A node with a failed test is not proven. One on which they could not run is named, and judged by the other tests.
    """
    if profile.gpu.kind != "nvidia":
        evidence.skip(f"the profile's GPUs are {profile.gpu.kind}: DCGM is NVIDIA's")
    if spec.dcgm is None:
        evidence.skip(dcgm.OFF)
    said = list(sweep_dcgm.notes(swept))
    if not any(map(sweep_dcgm.ran, swept.dcgm.values())):
        evidence.skip("; ".join([*said, *([] if swept.dcgm else [dcgm.INSTALL])]))
    evidence.judge(sweep_dcgm.findings(swept, spec.gpus_per_node), said)


@pytest.mark.acceptance
@pytest.mark.sweep
@pytest.mark.training
@pytest.mark.check(
    "sweep.trains",
    "Training steps complete on every node",
    unless_failed=["sweep.ran"],
    faults=[
        "training.no-end",
        "training.failed",
        "training.product-differs",
        "training.loss-not-finite",
        "training.loss-not-falling",
    ],
)
def test_every_node_trains(swept: Swept, spec: TrialSpec, evidence: Evidence) -> None:
    """The training steps of `accept --training`, on the GPUs of each node alone: they end, and the loss decreases.

    Products of the same matrices are bitwise identical in every repeat, and on every GPU of a kind in the fleet.
    """
    evidence.judge(sweep_training.trained_findings(swept, spec))


@pytest.mark.acceptance
@pytest.mark.sweep
@pytest.mark.training
@pytest.mark.check(
    "sweep.pace",
    "No node is slow or below its floor",
    unless_failed=["sweep.ran"],
    faults=["training.slow-gpu", "training.slow-node", "training.low-tflops"],
)
def test_no_node_trains_slowly(swept: Swept, profile: Profile, evidence: Evidence) -> None:
    """No GPU's compute time exceeds that of its kind in the fleet, and each node reaches the floor.

    Nodes that pass every collective can still train slowly: one throttled GPU, a host in power saving.
    """
    if on_cpus(sweep_training.members(swept)):
        evidence.skip("the ranks ran on CPUs: their step times do not apply to GPUs")
    evidence.judge(sweep_training.pace_findings(swept, profile.training), sweep_training.notes(swept, profile.training))
