"""Layer 15, storage: a sharded checkpoint of all ranks at once, as in training, and the resume from it."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.framework.session import Session
from checks.profiles.loader import Profile
from checks.profiles.schema import parameters
from checks.rules import checkpoint as rules
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec


def _asked(seatrial: Session, evidence: Evidence) -> None:
    if not seatrial.options.checkpoint:
        evidence.skip("off by default: enable it with --checkpoint")


@pytest.mark.acceptance
@pytest.mark.check(
    "checkpoint.saved",
    "Sharded checkpoints are saved and verified across nodes",
    requires=["job.started"],
    unless_failed=["storage.paths"],
    faults=["checkpoint.failed", "checkpoint.corrupt", "checkpoint.slow", "checkpoint.gather-memory", "storage.full"],
)
def test_a_checkpoint_is_saved_and_verified(
    seatrial: Session, trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """All ranks save a sharded state with torch.distributed.checkpoint, and each node reads the next one's part back.

    A step goes through writing, local, flushing and durable; verified means that another node has read it with the
    writer's checksums. With --model-size (or checkpoint.model) the measured rate is projected to a real model.
    """
    _asked(seatrial, evidence)
    asked = profile.checkpoint
    evidence.put(rules.saved_findings(trial, spec, asked))
    saved = rules.measured(trial, spec)
    if saved:
        evidence.note(
            f"{saved.ranks} ranks: training paused for {saved.pause_s:.2f} s, {saved.mb_s:.0f} MB/s together, the "
            f"slowest rank's file {saved.slowest_mb_s:.0f} MB/s, flush lag {saved.flush_s:.2f} s"
        )
    model = seatrial.options.model_size or asked.model
    if saved and parameters(model):
        evidence.put(rules.model_findings(trial, asked, saved, model))
    if asked.source:
        evidence.note(f"the limits are those of profile {profile.name}: {asked.source}")
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "checkpoint.place",
    "Checkpoints outlive the job and its nodes",
    requires=["job.started"],
    unless_failed=["storage.paths"],
    faults=["checkpoint.not-durable", "checkpoint.node-local", "checkpoint.exposed"],
)
def test_checkpoints_outlive_the_job(
    seatrial: Session, trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """The checkpoint's path is neither in the container nor on one node's disk; its access mode is reported.

    Access by other users is a warning, and a failure where the profile forbids it (checkpoint.private).
    """
    _asked(seatrial, evidence)
    evidence.judge(rules.place_findings(trial, spec, profile.checkpoint), rules.warnings(trial, spec))


@pytest.mark.acceptance
@pytest.mark.check(
    "checkpoint.resumed",
    "A crashed job resumes from its last checkpoint",
    requires=["checkpoint.saved", "checkpoint.place"],
    faults=["checkpoint.not-resumed"],
)
def test_the_job_resumes_from_the_last_verified_step(
    seatrial: Session, trial: TrialResult, spec: TrialSpec, evidence: Evidence
) -> None:
    """A rank is killed while all write the next step; the torn step is skipped and every loaded value is correct.

    Complete but unverified steps are skipped, too: the newest file is not the newest checkpoint.
    """
    _asked(seatrial, evidence)
    evidence.judge(rules.resumed_findings(trial, spec))
