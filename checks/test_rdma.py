"""Layer 9, RDMA: nodes offer the NICs, pods get them, their ports work, and no link counts errors under load."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules import perftest
from checks.rules.fit import doubt, fits, undefined
from checks.rules.pool import Pool
from checks.rules.ranks import place, rdma_ports, stages
from checks.rules.rdma import device_findings, firmware_note
from checks.rules.rdma_counters import error_findings, idle_note
from checks.rules.rdma_offer import definition_findings, offer_findings
from checks.rules.visibility import require_seen
from jobs.cluster.facts.claims import Definitions
from jobs.cluster.facts.inventory import Inventory
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec


@pytest.mark.preflight
@pytest.mark.check(
    "rdma.allocatable",
    "Every node's RDMA devices are allocatable",
    by_node=True,
    requires=["nodes.gpu"],
    faults=["rdma.resource-missing", "rdma.resource-short", "rdma.plugin-down", "nodes.other-kind"],
    needs=["nodes", "pods"],
    proven_by=["rdma.devices"],
)
def test_every_node_offers_the_rdma_devices(
    cluster: Inventory, pool: Pool, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """Every GPU node of the pool offers (allocatable) at least as many RDMA devices as one pod requests.

    They are extended resources of a device plugin (rdma/*, nvidia.com/*, vpc.amazonaws.com/efa, ...). Where one is
    missing, pods that request it stay Pending, and pods without the request fall back to TCP. A node with more devices
    than in the profile is a different machine: the profile's floors do not apply to it.
    """
    from checks.rules.stack import operands  # noqa: PLC0415 -- collection stays light

    if not spec.resources:
        evidence.skip("no profile names a resource of RDMA devices (pod.resources)")
    require_seen(evidence, cluster, "nodes")
    fits(evidence, pool, profile)
    evidence.expect(node.name for node in pool.nodes)
    plugins = operands(cluster.pods).get("rdma-plugin", {})
    evidence.judge(offer_findings(pool.nodes, spec.resources, plugins, profile.fabric.device_count))


@pytest.mark.preflight
@pytest.mark.check(
    "rdma.networks",
    "The pods' secondary networks are defined",
    requires=["namespace.ready"],
    faults=["rdma.nad-missing", "rdma.nad-mtu", "nodes.other-kind"],
    needs=["networks", "gke-networks"],
    tenant=True,
)
def test_the_networks_are_defined(
    networks: tuple[Definitions, str],
    spec: TrialSpec,
    profile: Profile,
    pool: Pool,
    cluster: Inventory,
    evidence: Evidence,
) -> None:
    """Every network that the pods' annotation names is defined, and its MTU is large enough.

    For Multus it is a NetworkAttachmentDefinition, on Google's clusters a Network. A pod with a missing network
    never starts. An MTU in the definition overrides that of the virtual function.
    """
    definitions, hidden = networks
    if hidden:
        evidence.skip(f"the definitions are not seen: {hidden}")
    if not definitions:
        evidence.skip("the pods request no further network (pod.annotations)")
    fits(evidence, pool, profile)
    doubt(evidence, undefined(definitions, cluster, profile))
    evidence.expect(f"{space or 'network'}/{name}" for space, name in definitions)
    evidence.judge(definition_findings(spec, definitions, profile))


@pytest.mark.acceptance
@pytest.mark.check(
    "rdma.devices",
    "RDMA devices are present and ports active",
    by_node=True,
    requires=["job.started"],
    unless_failed=["rdma.allocatable", "rdma.networks"],
    faults=[
        "rdma.not-attached",
        "rdma.no-device",
        "rdma.not-mounted",
        "rdma.wrong-link-layer",
        "rdma.no-subnet-manager",
        "rdma.port-down",
        "rdma.rate-low",
        "rdma.gid-missing",
        "rdma.pkey-empty",
        "rdma.pkey-limited",
    ],
)
def test_every_pod_has_its_rdma_devices(
    trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """Each pod sees the profile's number of RDMA devices, can open them, and their ports work.

    Read from sysfs, before NCCL: the port is ACTIVE, at its rate, of the fabric's link layer, has an address (GID) and
    is a full member of the partition that NCCL uses. A fault here appears in NCCL's log as "No device found", a missing
    rail or a hang, without the reason.
    """
    if not profile.known:
        evidence.skip("no profile names RDMA devices")
    if not profile.fabric.verbs:
        evidence.skip(f"the profile's fabric ({profile.fabric.kind or 'not named'}) is not used through RDMA devices")
    evidence.expect(place(trial, rank) for rank in range(spec.nodes) if stages(trial, rank).get("rdma") is None)
    evidence.put(device_findings(trial, spec, profile))
    if note := firmware_note(trial, spec):
        evidence.note(note)
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "rdma.bandwidth",
    "RDMA writes reach the ports' rate",
    requires=["rdma.devices"],
    unless_failed=["runtime.limits", "network.ports"],
    faults=[perftest.SLOW, perftest.ALL_SLOW, perftest.SLOW_GPU, perftest.FAILS],
)
def test_rdma_writes_reach_the_ports_rate(
    trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """Where the image has perftest, ib_write_bw between neighbours reaches 90 % of the ports' rate, both ways.

    Each NIC is measured alone and before NCCL, which separates a slow link from a slow collective over fast links. On
    EFA, fi_pingpong shows whether messages pass on each NIC; if they do, no rate is judged and the check is skipped.
    """
    if not profile.known or not profile.fabric.verbs:
        evidence.skip("no profile names a fabric of RDMA devices")
    if spec.perftest is None:
        evidence.skip("the profile requires none (fabric.perftest_s: 0)")
    if gone := perftest.missing(trial, spec):
        evidence.skip(f"no pod has {gone}: no link was tested; install {perftest.PACKAGES[gone]} in the trial's image")
    found = list(perftest.findings(trial, spec, profile))
    if found and not spec.perftest.layer and all(finding.ok for finding in found):
        evidence.skip(f"{found[0].observed}, and fi_pingpong measures no bandwidth: none is judged")
    if advice := perftest.advice(trial, profile):
        evidence.advise(perftest.FAILS, confirm=advice[0], remedy=advice[1])
    if said := perftest.unjudged(trial, profile):
        if all(finding.ok for finding in found):
            evidence.skip(said)
        evidence.note(said)
    evidence.judge(found, perftest.notes(trial))


@pytest.mark.acceptance
@pytest.mark.check(
    "rdma.counters",
    "No link error counter increases under load",
    by_node=True,
    requires=["rdma.devices"],
    faults=["rdma.errors"],
)
def test_no_link_counts_errors(trial: TrialResult, spec: TrialSpec, evidence: Evidence) -> None:
    """During the collectives no port's error counters grew beyond those of a healthy link.

    Read before and after each collective from sysfs. They replace the switches' counters, which a pod cannot read: a
    bad cable, a dirty connector or a congested leaf appears here first, as lost or corrupt packets.
    """
    devices = [rdma_ports(trial, rank) for rank in range(spec.nodes)]
    if not any(port.get("counters") for ports in devices for port in ports if isinstance(port, dict)):
        evidence.skip("the NICs show no counters in the pods")
    findings = list(error_findings(trial, spec))
    if not any(f.ok is not None for f in findings):
        evidence.skip("no collective sent data over the NICs: there is nothing to count")
    evidence.put(findings)
    if note := idle_note(trial, spec):
        evidence.note(note)
    evidence.verdict()
