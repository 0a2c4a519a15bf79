"""Layer 6, node runtime: in a scheduled pod the GPUs are present and healthy, and NCCL has the memory that it needs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules import dcgm, gpu_health
from checks.rules import runtime as node_runtime
from checks.rules.ranks import place
from jobs.cluster.facts.inventory import Inventory
from jobs.cluster.facts.stack import Listing
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from seatrial.faults.dcgm import GPU_FAULT, SETUP_FAULT

of_driver = pytest.mark.usefixtures("skip_managed_nodes")
of_gpus = pytest.mark.usefixtures("skip_unseen_gpus")


@pytest.mark.acceptance
@of_gpus
@pytest.mark.check(
    "runtime.gpus",
    "Pods see their GPUs through a supported driver",
    by_node=True,
    requires=["job.started"],
    faults=[
        "runtime.nvidia-smi",
        "gpu.off-bus",
        "runtime.gpu-count",
        "runtime.extra-gpus",
        "gpu.mig-enabled",
        "runtime.driver-old",
        "nodes.other-kind",
    ],
)
def test_a_pod_sees_its_gpus(
    trial: TrialResult, spec: TrialSpec, profile: Profile, managed: str, evidence: Evidence
) -> None:
    """Inside each pod nvidia-smi (or rocm-smi) works and shows exactly the allocated GPUs, with a supported driver.

    An allocated GPU may be unusable in the container: the container toolkit did not inject the driver, or the GPU has
    fallen off the bus since the device plugin's count. Additional GPUs belong to other pods.
    """
    evidence.expect(place(trial, rank) for rank in range(spec.nodes))
    evidence.put(node_runtime.gpu_findings(trial, spec, node_runtime.without_driver(profile) if managed else profile))
    evidence.note(*node_runtime.gpu_notes(trial, spec))
    if managed:
        evidence.note(f"{managed}: the driver's version is shown, not judged")
    elif not profile.runtime.driver_min:
        evidence.note("no profile names a minimum driver version: shown, not judged")
    evidence.verdict()


@pytest.mark.acceptance
@of_driver
@pytest.mark.check(
    "runtime.toolkit",
    "The container toolkit version is supported",
    by_node=True,
    requires=["runtime.gpus"],
    faults=["runtime.toolkit-old"],
    needs=["pods", "clusterpolicies"],
    tenant=True,
)
def test_the_container_toolkit_is_new_enough(
    trial: TrialResult,
    spec: TrialSpec,
    profile: Profile,
    cluster: Inventory,
    listed: Callable[[str], Listing],
    evidence: Evidence,
) -> None:
    """The NVIDIA container toolkit has at least the profile's version.

    It injects devices and libraries into containers; old versions allow a container escape (CVE-2024-0132,
    CVE-2025-23266). It is a package of the host: visible if an operator installs it, or if its tools are in the pod.
    """
    from jobs.cluster.facts.stack import policies, toolkit_version  # noqa: PLC0415 -- collection stays light

    minimum = profile.runtime.toolkit_min
    if minimum is None or profile.gpu.kind != "nvidia":
        evidence.skip("no profile names a minimum version of the NVIDIA container toolkit (runtime.toolkit_min)")
    installed = toolkit_version(policies(listed("clusterpolicies")), cluster.pods)
    findings = list(node_runtime.toolkit_findings(trial, spec, installed, minimum))
    if all(f.ok is None for f in findings):
        evidence.skip(
            "not seen: no operator's toolkit in the API, and no pod sees the host's package; on the node: "
            "nvidia-ctk --version"
        )
    evidence.judge(findings)


@pytest.mark.acceptance
@of_gpus
@pytest.mark.check(
    "runtime.uniform",
    "All nodes have the same GPUs and drivers",
    by_node=True,
    requires=["runtime.gpus"],
    unless_failed=["nodes.uniform"],
    faults=["runtime.drift"],
)
def test_all_nodes_gpus_are_the_same(trial: TrialResult, spec: TrialSpec, managed: str, evidence: Evidence) -> None:
    """Driver, CUDA and the GPUs' model, memory and VBIOS are the same on every node, as the pods themselves see them.

    Labels may be outdated. A job over different nodes runs at the pace of the slowest, or fails if one driver lacks a
    feature.
    """
    evidence.judge(node_runtime.drift_findings(trial, spec, driver=not managed))


@pytest.mark.acceptance
@of_gpus
@pytest.mark.check(
    "runtime.health",
    "No GPU reports memory errors",
    by_node=True,
    requires=["runtime.gpus"],
    faults=["gpu.ecc", "gpu.row-remap", "gpu.remap-failed", "gpu.recovery-needed", "gpu.xid"],
)
def test_no_gpu_reports_a_fault(trial: TrialResult, spec: TrialSpec, evidence: Evidence) -> None:
    """No GPU has uncorrected memory errors, a pending or failed row remap, or a recovery that the driver requests.

    Such a GPU may pass a short benchmark and fail a job hours later. A reset completes a pending remap; a recurring or
    failed one requires replacement. AMD's driver counts the errors in sysfs.
    """
    judge(trial, spec, gpu_health.memory_ailments, gpu_health.MEMORY, "no memory fault", evidence)
    evidence.judge(gpu_health.xid_findings(trial, spec), gpu_health.notes(trial, spec))


@pytest.mark.acceptance
@of_gpus
@pytest.mark.check(
    "runtime.dcgm",
    "DCGM's diagnostics pass on every GPU",
    by_node=True,
    requires=["runtime.gpus"],
    faults=[GPU_FAULT, SETUP_FAULT],
)
def test_dcgm_finds_nothing_wrong(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Where the image has them, DCGM's diagnostics of the profile's level (runtime.dcgm) pass on every GPU.

    Vendors run them first; here they run before the collectives, on idle GPUs. A skipped test shows nothing. A failure
    because of a setting is not a fault of the GPU; persistence mode is judged by runtime.persistence alone.
    """
    skip_amd(profile, "DCGM is NVIDIA's", evidence)
    if spec.dcgm is None:
        evidence.skip(dcgm.OFF)
    if gone := dcgm.missing(trial):
        evidence.skip(f"no pod has {' and '.join(gone)}: nothing was diagnosed; {dcgm.INSTALL}")
    evidence.judge(dcgm.findings(trial, spec))


@pytest.mark.acceptance
@of_gpus
@pytest.mark.check(
    "runtime.fabric",
    "Every GPU is registered with its NVLink fabric",
    by_node=True,
    requires=["runtime.gpus"],
    faults=["gpu.fabric"],
)
def test_every_gpu_is_in_its_fabric(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """On machines with NVSwitch every GPU's fabric state is Completed, its status Success, its health good.

    Without the fabric manager (or IMEX, on NVL72) CUDA does not start on such a machine, or runs without NVSwitch.
    Boards without NVSwitch have no fabric, report N/A, and pass.
    """
    skip_amd(profile, "the NVLink fabric is NVIDIA's", evidence)
    if not gpu_health.tell(trial, gpu_health.FABRIC[:2]):
        evidence.skip("no GPU reports a fabric state, not even N/A: this driver's nvidia-smi does not support it")
    judge(trial, spec, gpu_health.fabric_ailments, gpu_health.FABRIC, "in the fabric", evidence)
    evidence.verdict()


@pytest.mark.acceptance
@of_gpus
@pytest.mark.check(
    "runtime.nvlinks",
    "Every NVLink of every GPU is up",
    by_node=True,
    requires=["runtime.gpus"],
    unless_failed=["runtime.fabric"],
    faults=["gpu.nvlink-down"],
)
def test_every_nvlink_is_up(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Every GPU has the profile's number of active NVLinks.

    A link that is down reduces the bandwidth of every collective on the node, or disables peer access.
    """
    links = profile.runtime.nvlinks
    if links is None:
        evidence.skip("no profile has the number of NVLinks per GPU (runtime.nvlinks)")
    judge(trial, spec, gpu_health.link_ailments(links), ("nvlinks_active",), f"{links} active NVLinks", evidence)
    evidence.verdict()


@pytest.mark.acceptance
@of_gpus
@pytest.mark.check(
    "runtime.clocks", "No GPU is throttled", by_node=True, requires=["runtime.gpus"], faults=["gpu.throttled"]
)
def test_the_hardware_slows_no_gpu_down(
    trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """No GPU is throttled by the hardware: its temperature limit, or the machine's power brake.

    Read before the collectives, so at idle: a GPU throttled then lacks cooling or power. Every collective of a job
    waits for it.
    """
    skip_amd(profile, "rocm-smi reports no throttle reasons", evidence)
    judge(trial, spec, gpu_health.clock_ailments, ("throttle",), "no hardware slowdown", evidence)
    evidence.verdict()


@pytest.mark.acceptance
@of_driver
@pytest.mark.check(
    "runtime.persistence",
    "Persistence mode is enabled on every GPU",
    by_node=True,
    requires=["runtime.gpus"],
    faults=["runtime.persistence-off"],
)
def test_the_driver_stays_loaded(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Persistence mode is on for every GPU, where the profile requests it.

    Without it the driver unloads with the last process: the next job waits seconds for each GPU, and error counters and
    settings are lost in between.
    """
    if not profile.runtime.persistence:
        evidence.skip("the profile does not require persistence mode (runtime.persistence); runtime.health notes it")
    judge(trial, spec, gpu_health.persistence_ailments, ("persistence",), "persistence mode on", evidence)
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "runtime.limits",
    "Shared memory and memlock limits are sufficient",
    by_node=True,
    requires=["job.started"],
    faults=["runtime.shm-small", "runtime.memlock"],
)
def test_a_pod_has_the_memory_nccl_needs(
    trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """Shared memory has the requested size, and the memlock limit meets the profile.

    With a /dev/shm of 64 MiB, the default of container runtimes, NCCL fails or hangs between the GPUs of one node. RDMA
    registers memory by locking it; too low a limit causes a fallback to sockets.
    """
    evidence.expect(place(trial, rank) for rank in range(spec.nodes))
    evidence.judge(node_runtime.limit_findings(trial, spec, profile), node_runtime.limit_notes(trial, spec))


def judge(
    trial: TrialResult,
    spec: TrialSpec,
    ailments: gpu_health.Ailments,
    required_values: tuple[str, ...],
    expected: str,
    evidence: Evidence,
) -> None:
    """Judge every GPU of every node by one kind of fault."""
    evidence.put(gpu_health.each_gpu(trial, spec, ailments, required_values, expected))


def skip_amd(profile: Profile, reason: str, evidence: Evidence) -> None:
    """Skip a check that applies to NVIDIA's GPUs only."""
    if profile.gpu.kind != "nvidia":
        evidence.skip(f"the profile's GPUs are {profile.gpu.kind}: {reason}")
