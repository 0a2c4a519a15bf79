"""Layer 14 with `--training`: a few dozen training steps over all ranks judge GPUs and nodes."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules import gpu_health, training_evidence, training_pace
from checks.rules import training as rules
from checks.rules.ranks import place
from checks.rules.training import Member
from checks.rules.training_pace import Pace
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec
from seatrial.logs.bandwidth.hardware import of_other_kind

CPUS = "the ranks ran on CPUs: step times are shown and do not apply to GPUs"


@pytest.mark.acceptance
@pytest.mark.training
@pytest.mark.check(
    "training.completed",
    "The training steps complete",
    by_node=True,
    requires=["nccl.completed"],
    faults=["training.no-end", "training.failed"],
)
def test_the_steps_complete(
    trial: TrialResult, spec: TrialSpec, training_ranks: list[Member], evidence: Evidence
) -> None:
    """A small transformer trains on all ranks at once, replicated (DDP) and sharded (FSDP2), and ends in time.

    Collectives do not test torch, its kernels, the GPUs' memory and their power together. Weights and tokens are drawn
    from a seed; nothing is downloaded.
    """
    evidence.expect(place(trial, rank) for rank in range(spec.nodes))
    evidence.judge(
        rules.completed(trial, spec), training_pace.notes(training_ranks, training_pace.pace(training_ranks))
    )


@pytest.mark.acceptance
@pytest.mark.training
@pytest.mark.check(
    "training.products",
    "Matrix products are bitwise identical on all GPUs",
    requires=["training.completed"],
    faults=["training.product-differs"],
)
def test_products_repeat_bitwise(training_ranks: list[Member], evidence: Evidence) -> None:
    """A product of the same matrices is bitwise identical in every repeat, and on every GPU of a kind.

    It is tested in bf16, fp16 and fp8. The library promises it for GPUs of one architecture
    (docs.nvidia.com/cuda/cublas, "Results Reproducibility"). A GPU that breaks it computes wrongly without any
    error: no counter shows it, and a run is worthless weeks later.
    """
    if amd(training_ranks):
        evidence.skip("hipBLAS does not guarantee bitwise identical results: the products are recorded, not judged")
    evidence.judge(rules.products(training_ranks))


@pytest.mark.acceptance
@pytest.mark.training
@pytest.mark.check(
    "training.loss",
    "The loss is finite and falls",
    requires=["training.completed"],
    faults=["training.loss-not-finite", "training.loss-not-falling"],
)
def test_the_loss_falls(training_ranks: list[Member], evidence: Evidence) -> None:
    """Every rank's loss is finite at every step, and decreases while the same batch is repeated.

    This holds for joint steps, and for a rank's steps alone, which use no other rank's data. Gradients corrupted by a
    GPU or the network appear as NaN on all ranks a step later, or as a loss that does not decrease.
    """
    evidence.judge(rules.losses(training_ranks))


@pytest.mark.acceptance
@pytest.mark.training
@pytest.mark.check(
    "training.ranks",
    "No GPU and no node is a straggler",
    requires=["training.completed"],
    faults=["training.slow-gpu", "training.slow-node"],
)
def test_no_rank_is_slow(training_ranks: list[Member], evidence: Evidence) -> None:
    """No rank's compute time in its own steps, without any other rank, exceeds that of its kind.

    All ranks wait for the slowest at every step, so the job's step time is uniform: one GPU at a lower clock slows the
    whole cluster.
    """
    evidence.judge(rules.slow_members(training_ranks))


@pytest.mark.acceptance
@pytest.mark.training
@pytest.mark.check(
    "training.rate",
    "Training throughput meets its floor",
    requires=["training.completed"],
    unless_failed=["training.ranks"],
    faults=["training.low-tflops"],
)
def test_training_reaches_its_floor(training_ranks: list[Member], profile: Profile, evidence: Evidence) -> None:
    """TFLOP/s of each GPU, in steps with all ranks, reach the profile's floor (training.tflops).

    If all GPUs are uniformly slow (a power cap, an image without the right kernels), a comparison between them does not
    show it.
    """
    pace = paced(training_ranks, evidence)
    if profile.training.tflops is None:
        evidence.skip(
            f"profile {profile.name or '(none)'} has no floor (training.tflops): {pace.tflops:.1f} TFLOP/s a GPU are "
            "shown, not judged"
        )
    other = of_other_kind({str(m.reported["name"]) for m in training_ranks}, profile.gpu.product)
    evidence.judge(
        [training_pace.rate(pace, profile.training, rules.JOB, other)],
        [f"the floor is that of profile {profile.name}: {profile.training.source}"],
    )


@pytest.mark.acceptance
@pytest.mark.training
@pytest.mark.check(
    "training.overlap",
    "Communication overlaps with compute",
    requires=["training.completed"],
    faults=["training.exposed-communication"],
)
def test_communication_hides_behind_compute(training_ranks: list[Member], profile: Profile, evidence: Evidence) -> None:
    """A step with all ranks takes little longer than the slowest rank's own compute.

    The difference is compared with the time of the same gradients without compute. More than that means that compute
    and communication interfere: too few CPUs for NCCL's threads, a NIC that shares the GPUs' PCIe lanes, or waits that
    no bandwidth test has.
    """
    pace = paced(training_ranks, evidence)
    if rules.on_cpus(training_ranks):
        evidence.skip(CPUS)
    evidence.judge([training_pace.exposed(pace, profile.training, rules.JOB)])


@pytest.mark.acceptance
@pytest.mark.training
@pytest.mark.check(
    "training.steady",
    "Step times are uniform",
    requires=["training.completed"],
    unless_failed=["training.ranks"],
    faults=["training.step-waves"],
)
def test_steps_take_the_same_time(training_ranks: list[Member], evidence: Evidence) -> None:
    """Few steps take much longer than the median, and none periodically.

    Periodic slow steps come from a varying clock, a noisy neighbour on the host or a retrained link; the average hides
    them.
    """
    pace = paced(training_ranks, evidence)
    if rules.on_cpus(training_ranks):
        evidence.skip(CPUS)
    evidence.judge([training_pace.waves(training_ranks, pace, rules.JOB)])


@pytest.mark.acceptance
@pytest.mark.training
@pytest.mark.check(
    "training.health",
    "No GPU is throttled or fails during training",
    by_node=True,
    requires=["training.completed"],
    unless_failed=["runtime.health", "runtime.clocks"],
    faults=["gpu.ecc", "gpu.row-remap", "gpu.remap-failed", "gpu.recovery-needed", "gpu.xid", "gpu.throttled"],
)
def test_no_gpu_fails_while_it_trains(
    trial: TrialResult, spec: TrialSpec, training_ranks: list[Member], evidence: Evidence
) -> None:
    """While the steps run, and after them, no GPU has new memory errors or Xids, and none is throttled by the hardware.

    An idle GPU is cool. --soak 20m keeps them busy long enough to test heat, power and memory.
    """
    if rules.on_cpus(training_ranks):
        evidence.skip(CPUS)
    if amd(training_ranks):
        evidence.skip("the GPUs are AMD's: they are not monitored during training")
    healthy = gpu_health.each_gpu
    evidence.put(healthy(trial, spec, gpu_health.memory_ailments, gpu_health.MEMORY, "no memory fault", "training"))
    evidence.put(healthy(trial, spec, gpu_health.clock_ailments, ("throttle",), "no hardware slowdown", "training"))
    evidence.put(gpu_health.xid_findings(trial, spec, "training"))
    if spec.training and spec.training.soak_s:
        evidence.put(training_evidence.watched({m.name: m.sample for m in training_ranks}, spec.training.soak_s))
    evidence.note(*training_pace.heat(training_ranks))
    evidence.verdict()


def amd(ranks: list[Member]) -> bool:
    """Return whether torch was built for AMD's GPUs."""
    return any(str(each.reported["library"]).startswith("hip") for each in ranks)


def paced(ranks: list[Member], evidence: Evidence) -> Pace:
    """Return the job's pace; end the check as unknown if no rank reported a step."""
    pace = training_pace.pace(ranks)
    if pace is None:
        evidence.unknown("no rank reported its steps")
    return pace
