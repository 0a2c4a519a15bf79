"""Layer 6, node runtime: in a scheduled pod the GPUs are there, healthy, and NCCL finds the memory it needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from checks.judgement.judging import put
from checks.judgement.node_runtime import gpu_findings, health_findings, limit_findings, skip_if_managed
from checks.judgement.ranks import place

if TYPE_CHECKING:
    from checks.evidence import Evidence
    from checks.profile import Profile
    from jobs.launcher import TrialResult
    from jobs.trial import TrialSpec


@pytest.mark.acceptance
@pytest.mark.check(
    "runtime.gpus", "A pod sees its GPUs with a new enough driver", requires=["job.started"],
    faults=["runtime.nvidia-smi", "runtime.gpu-count", "runtime.driver-old"],
)  # fmt: skip
def test_a_pod_sees_its_gpus(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Inside each pod of the trial nvidia-smi works, shows exactly the GPUs asked for, and the driver is new enough.

    That the scheduler gave a GPU does not mean that the container can use it: the container toolkit may not have put
    the driver in, or the GPU has fallen off the bus since the device plugin counted.
    """
    skip_if_managed(profile, os.environ, evidence)
    evidence.expect(place(trial, rank) for rank in range(spec.nodes))
    put(evidence, gpu_findings(trial, spec, profile))
    if not profile.runtime.driver_min:
        evidence.note("no profile names a minimum driver version: it is shown, not judged")
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "runtime.health", "No GPU reports a hardware fault", requires=["runtime.gpus"],
    faults=["gpu.ecc", "gpu.row-remap", "gpu.fabric", "gpu.throttled"],
)  # fmt: skip
def test_no_gpu_reports_a_fault(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """No GPU has uncorrected memory errors, a pending or failed row remap, an unready NVLink fabric or a slowdown.

    Such a GPU may pass a short benchmark and kill a job hours later. A reset cures what is pending; what comes back or
    has failed means replacement.
    """
    skip_if_managed(profile, os.environ, evidence)
    put(evidence, health_findings(trial, spec))
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "runtime.limits", "A pod has the shared and lockable memory that NCCL needs", requires=["job.started"],
    faults=["runtime.shm-small", "runtime.memlock"],
)  # fmt: skip
def test_a_pod_has_the_memory_nccl_needs(
    trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """Shared memory is as large as the pod asked for, and as much memory may be locked as the profile wants.

    With a /dev/shm of 64 MiB, the default of container runtimes, NCCL fails or hangs between the GPUs of one node. RDMA
    registers memory by locking it; too low a limit shows as a fallback to sockets.
    """
    skip_if_managed(profile, os.environ, evidence)
    evidence.expect(place(trial, rank) for rank in range(spec.nodes))
    put(evidence, limit_findings(trial, spec, profile))
    evidence.verdict()
