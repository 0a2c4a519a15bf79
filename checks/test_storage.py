"""Layer 15, storage: PVCs are bound, and pods can read data and write results that all nodes see."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules import storage as rules
from checks.rules.fit import fits
from checks.rules.pool import Pool
from checks.rules.semantics import between_nodes, lock_advice, lock_findings
from jobs.cluster.facts.claims import Claim, Class
from jobs.run.result import TrialResult
from jobs.trial.spec import TrialSpec

Volumes = tuple[dict[str, Claim], dict[str, Class]]


@pytest.mark.preflight
@pytest.mark.check(
    "storage.claims",
    "PVCs are bound and allow several nodes",
    requires=["namespace.ready"],
    faults=[
        "storage.class-missing",
        "storage.claim-missing",
        "storage.claim-pending",
        "storage.access-mode",
        "nodes.other-kind",
    ],
    needs=["storage"],
    tenant=True,
)
def test_claims_are_bound(volumes: Volumes, profile: Profile, spec: TrialSpec, pool: Pool, evidence: Evidence) -> None:
    """Every PVC of the profile is bound, or waits for its first pod, and allows several nodes; its class exists.

    A pod without its PVC stays Pending, and the rest of the job then holds idle GPUs.
    """
    asked = profile.storage
    if not asked.classes and not any(path.claim for path in asked.paths):
        evidence.skip("the profile names no claim and no StorageClass")
    fits(evidence, pool, profile)
    findings = list(rules.claim_findings(asked, spec.nodes, *volumes))
    if all(f.ok is None for f in findings):
        evidence.skip(f"not seen: {findings[0].observed}; storage.paths shows it from inside the pods")
    evidence.put(f for f in findings if f.ok is not None)
    for f in findings:
        if f.ok is None:
            evidence.note(f"{f.subject}: {f.observed}")
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "storage.paths",
    "Data, results and scratch paths are mounted",
    requires=["job.started"],
    faults=[
        "storage.not-visible",
        "storage.files-missing",
        "storage.read-only",
        "storage.full",
        "storage.corrupt",
        "storage.hang",
    ],
)
def test_paths_are_there(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Every path of the profile is visible in every pod, has space, and can be written, synced, renamed and read back.

    A bound PVC does not prove its content: it may be an empty export, the wrong subfolder, a read-only mount, a path of
    another owner, or a full disk. The profile's files (files) are opened.
    """
    if not profile.storage.paths and not profile.storage.scratch:
        evidence.skip("the profile names no path that training reads or writes (storage.paths)")
    evidence.judge(rules.path_findings(trial, spec, profile.storage))


@pytest.mark.acceptance
@pytest.mark.check(
    "storage.shared",
    "Files are visible on all nodes once written",
    requires=["storage.paths"],
    faults=[
        "storage.not-shared",
        "storage.stale-rename",
        "storage.rename-torn",
        "storage.stale-metadata",
        "storage.corrupt",
    ],
)
def test_shared_paths_are_shared(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """The next node reads all data that a node writes under a shared path, and sees its changes.

    A replaced file is visible within ten seconds, and never in part. A closed file has its size and time when it is
    opened, and a new directory lists all of its files. A local disk under the same path on every node is not noticed
    until a rank reads another's checkpoint. If a cache serves replaced files, a restart reads an old checkpoint.
    """
    _between_nodes(profile, spec, evidence)
    evidence.judge(rules.shared_findings(trial, spec, profile.storage))


@pytest.mark.acceptance
@pytest.mark.check(
    "storage.locks",
    "File locks exclude other nodes",
    requires=["storage.shared"],
    faults=["storage.locks-local", "storage.locks-failed", "storage.locks-stuck"],
)
def test_locks_exclude_other_nodes(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """A lock (flock, fcntl) that one node holds is refused to another node, and granted after its release.

    Caches of datasets and models, HDF5 and SQLite lock their files. Several file systems lock on one node only, or not
    at all, as documented. So failing locks are a fault only if the profile requires locks (locks: true of the path).
    Otherwise the check is skipped and reports the result: it never passes.
    """
    _between_nodes(profile, spec, evidence)
    findings, notes = lock_findings(trial, spec, profile.storage)
    evidence.note(*notes)
    if not findings:
        waived = all(path.locks is False for path in between_nodes(profile.storage))
        more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
        evidence.skip(
            f"not judged, since the profile requires no locks (storage.paths.locks): {notes[0]}{more}", waived=waived
        )
    for fault, advised in lock_advice(findings):
        evidence.advise(fault, confirm=advised.confirm, remedy=advised.remedy)
    evidence.judge(findings)


def _between_nodes(profile: Profile, spec: TrialSpec, evidence: Evidence) -> None:
    """Skip a check of one node's view of another if no path, or no second node, allows it."""
    if not between_nodes(profile.storage):
        evidence.skip("the profile names no path that all nodes share and write")
    if spec.nodes < 2:
        evidence.skip("the trial has one node: sharing cannot be tested")


@pytest.mark.acceptance
@pytest.mark.check(
    "storage.rate",
    "Storage throughput meets its floor",
    requires=["storage.paths"],
    faults=["storage.slow", "storage.small-files-slow"],
)
def test_paths_are_fast_enough(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Each node writes (fsync included) and reads the path at the profile's rate, and small files, too.

    GPUs that wait for data or for a checkpoint have periodic drops of utilisation.
    """
    asked = profile.storage
    if not any(path.write_mb_s or path.read_mb_s or path.files_s for path in asked.paths):
        evidence.skip("the profile states no rate for its paths")
    evidence.judge(
        rules.rate_findings(trial, spec, asked), [f"the rates are those of profile {profile.name}: {asked.source}"]
    )


@pytest.mark.acceptance
@pytest.mark.check(
    "storage.checkpoint",
    "Concurrent checkpoint writes of all ranks complete",
    requires=["storage.paths"],
    unless_failed=["storage.rate"],
    faults=["storage.burst-slow", "storage.full", "storage.read-only"],
)
def test_a_checkpoint_burst_is_written(
    trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence
) -> None:
    """All ranks of all nodes write at the same moment, as at a checkpoint, and each node reaches the profile's rate.

    A single writer proves little: metadata servers, locks and the storage network slow down under concurrent writes,
    and training pauses until the slowest rank has finished. A quota that is not visible as free space is found here,
    too.
    """
    asked = profile.storage
    if not asked.burst:
        evidence.skip("the profile requires no checkpoint burst (storage.burst)")
    evidence.put(rules.burst_findings(trial, spec, asked))
    if asked.burst_mb_s:
        evidence.note(f"the rate is that of profile {profile.name}: {asked.source}")
    evidence.verdict()


@pytest.mark.acceptance
@pytest.mark.check(
    "storage.s3",
    "Buckets are reachable with credentials from every pod",
    requires=["job.started"],
    faults=["storage.s3-unreachable", "storage.s3-bucket-missing", "storage.s3-no-credentials"],
)
def test_buckets_are_reached(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Every bucket of the profile answers from every pod, and credentials for it are in the environment.

    Only their presence is checked. A missing proxy, egress rule or Secret would otherwise appear hours later, at the
    first upload of a checkpoint.
    """
    if not profile.storage.s3:
        evidence.skip("the profile names no bucket (storage.s3)")
    evidence.judge(rules.bucket_findings(trial, spec, profile.storage))


@pytest.mark.acceptance
@pytest.mark.check(
    "storage.credentials",
    "Credentials for models, data and registries are mounted",
    requires=["job.started"],
    faults=["storage.credential-missing"],
)
def test_credentials_are_there(trial: TrialResult, spec: TrialSpec, profile: Profile, evidence: Evidence) -> None:
    """Every key of a Secret that the profile names (HF_TOKEN, NGC_API_KEY, WANDB_API_KEY) is set in every pod.

    The API returns a Secret only with its content, so it is not read there: the kubelet sets the key in the pod, and
    the pod reports its presence. No value is read, and no service is contacted.
    """
    if not profile.storage.credentials:
        evidence.skip("the profile names no credential (storage.credentials)")
    evidence.judge(rules.credential_findings(trial, spec, profile.storage))
