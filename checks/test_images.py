"""Layer 16, images: every image of the run follows the profile, and was pulled on every node in time."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.framework.session import Session
from checks.profiles.loader import Profile
from checks.rules.admission import Admission
from checks.rules.fit import fits
from checks.rules.images import image_findings, images_of, pull_findings, pulled, pulls, ran, secret_findings
from checks.rules.pool import Pool
from jobs.cluster.client.kube import Kube
from jobs.run.result import TrialResult
from jobs.trial.manifests import dry_pod
from jobs.trial.spec import TrialSpec


@pytest.mark.preflight
@pytest.mark.check(
    "images.named",
    "Image names follow the profile's policy",
    requires=["namespace.ready"],
    unless_failed=["admission.pod"],
    faults=["images.not-by-digest", "images.registry", "nodes.other-kind"],
    needs=["dry-run", "quotas"],
)
def test_images_are_named_as_asked(
    spec: TrialSpec, admission: Admission, profile: Profile, pool: Pool, evidence: Evidence
) -> None:
    """Every image of the trial's pods comes from an allowed registry, and is pinned by digest where required.

    The init containers and sidecars that webhooks add are included: they are read from the pod that the server would
    admit. In an air-gapped cluster one external image stops a job. Required by the profile (images).
    """
    images = images_of(admission.pod or dry_pod(spec))
    if not profile.images.digest and not profile.images.registries:
        evidence.skip(
            f"the profile has no requirement for images; the run uses {', '.join(dict.fromkeys(images.values()))}"
        )
    fits(evidence, pool, profile)
    if admission.pod is None:
        evidence.note("the server returned no admitted pod: changes by webhooks are judged once the pods run")
    evidence.judge(image_findings(images, profile.images))


@pytest.mark.preflight
@pytest.mark.check(
    "images.secrets",
    "The image pull secrets exist",
    requires=["namespace.ready"],
    faults=["images.pull-secret-missing"],
)
def test_pull_secrets_exist(kube: Kube, seatrial: Session, spec: TrialSpec, evidence: Evidence) -> None:
    """Every pull secret that the profile names exists in the namespace and is of the kind that kubelets read.

    Only with --check-secrets or images.check_secrets in the profile, and only by name: it needs permission to get that
    Secret, and its content is not read. Otherwise the pull's events report a missing Secret.
    """
    if not spec.pull_secrets:
        evidence.skip("the profile names no pull secret")
    if not seatrial.options.check_secrets and not seatrial.profile.images.check_secrets:
        evidence.skip("Secrets are not read; --check-secrets checks that they exist; pull events report it, too")
    evidence.expect(f"secret/{name}" for name in spec.pull_secrets)
    evidence.judge(secret_findings(kube, spec.pull_secrets))


@pytest.mark.acceptance
@pytest.mark.check(
    "images.pulled",
    "Images are pulled on every node",
    by_node=True,
    requires=["job.started"],
    unless_failed=["images.named"],
    faults=["images.slow-pull", "images.registry", "images.not-by-digest"],
)
def test_images_reached_every_node(trial: TrialResult, profile: Profile, evidence: Evidence) -> None:
    """Every image that ran came from an allowed registry, and was pulled on each node within the profile's time.

    The images are read from the pods, including added containers. A slow pull on one node (a cold mirror, a slow disk)
    delays the whole job. Times are shown; they are judged if the profile has a limit.
    """
    image_pulls = list(pulls(trial))
    limits = profile.images
    for node, image, seconds in image_pulls:
        evidence.note(f"{node}: {image} {pulled(seconds)}")
    if limits.pull_max_s is None and not limits.registries and not limits.digest:
        evidence.skip("the profile has neither a time limit for pulls nor a requirement for images")
    if limits.registries or limits.digest:
        evidence.put(image_findings(ran(trial), limits))
    if limits.pull_max_s is not None:
        evidence.put(pull_findings(image_pulls, limits.pull_max_s))
    evidence.verdict()
