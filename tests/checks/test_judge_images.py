"""Images: allowed registries, slow pulls, pull secrets."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from checks import test_images as image_checks
from checks.framework.evidence import CannotTell, CheckFailed
from checks.profiles.schema import ImagesSection
from checks.rules import images
from jobs.diagnosis.state import PodFacts
from tests.checks.operands import Lists


@pytest.mark.parametrize(
    ("image", "registries", "ok"),
    [
        ("nvcr.io/nvidia/pytorch:1", ["nvcr.io"], True),
        ("nvcr.io/nvidia/pytorch:1", ["nvcr.io/nvidia"], True),
        ("nvcr.io/nvidia/pytorch:1", ["nvcr.io/nv"], False),
        ("busybox", ["docker.io"], True),
        ("busybox", ["docker.io/library"], True),
        ("fluent/fluent-bit:4", ["docker.io/library"], False),
        ("mirror:5000/x@sha256:0", ["mirror:5000/"], True),
        ("nvcr.io.evil.example/x:1", ["nvcr.io"], False),
    ],
)
def test_a_registry_is_allowed_by_whole_path_parts(image, registries, ok):
    """Docker Hub's short names are expanded; a prefix matches whole path components only."""
    assert images.allowed(image, registries) is ok


def test_images_are_judged_as_the_profile_asks(bad):
    """The registry precedes the digest, with one fault per image; sidecars and init containers are included."""
    admitted = {
        "spec": {
            "initContainers": [{"name": "mesh", "image": "mesh:1"}],
            "containers": [{"name": "trial", "image": "nvcr.io/x@sha256:1"}],
        }
    }
    image_of = images.images_of(admitted)
    assert set(image_of) == {"mesh", "trial"}
    assert bad(images.image_findings(image_of, ImagesSection(digest=True))) == [
        ("mesh: mesh:1", "images.not-by-digest")
    ]
    assert bad(images.image_findings(image_of, ImagesSection(digest=True, registries=("nvcr.io",)))) == [
        ("mesh: mesh:1", "images.registry")
    ]


def ran(**seconds):
    facts = tuple(
        PodFacts(
            index=n,
            name=f"p{n}",
            node=node,
            images={"trial": ("nvcr.io/x:1", "nvcr.io/x@sha256:9")},
            pull_seconds={"nvcr.io/x:1": took},
        )
        for n, (node, took) in enumerate(seconds.items())
    )
    return SimpleNamespace(pods=facts)


def test_a_slow_pull_is_judged_by_the_profile_only(h100, evidence):
    """Times are shown; with a limit the slow node fails (images.slow-pull), and a cached image passes."""
    trial = ran(a=0.0, b=95.0)
    with pytest.raises(pytest.skip.Exception, match="neither a time limit for pulls"):
        image_checks.test_images_reached_every_node(trial, h100, evidence)
    assert evidence.notes == ["a: nvcr.io/x:1 was there already", "b: nvcr.io/x:1 was pulled in 95.0 s"]
    with pytest.raises(CheckFailed):
        image_checks.test_images_reached_every_node(trial, replace(h100, images=ImagesSection(pull_max_s=60)), evidence)
    assert [(f.subject, f.fault) for f in evidence.findings if not f.ok] == [("b", "images.slow-pull")]


def test_a_pull_that_no_event_reports_is_not_judged(h100, evidence):
    """Events expire, so a missing one does not prove a cached image."""
    trial = ran(a=0.0, b=1.0)
    trial.pods[1].pull_seconds.clear()
    with pytest.raises(CannotTell, match="no event reports"):
        image_checks.test_images_reached_every_node(trial, replace(h100, images=ImagesSection(pull_max_s=60)), evidence)


def test_what_ran_must_come_from_an_allowed_registry(h100, evidence):
    """Images are read from the pods, so that images added by a webhook after the dry run count."""
    with pytest.raises(CheckFailed):
        image_checks.test_images_reached_every_node(
            ran(a=1.0), replace(h100, images=ImagesSection(registries=("mirror",))), evidence
        )
    assert {f.fault for f in evidence.findings} == {"images.registry"}


@pytest.mark.parametrize(
    ("answer", "ok"),
    [({"type": "kubernetes.io/dockerconfigjson"}, True), ({"type": "Opaque"}, False), (404, False), (403, None)],
)
def test_a_pull_secret_is_looked_at_by_name_and_kind_only(answer, ok):
    """A missing secret or a wrong type is a fault (images.pull-secret-missing); a hidden one is not judged; no content
    is shown."""
    (finding,) = images.secret_findings(Lists(secrets=answer), ["regcred"])
    assert (finding.subject, finding.ok) == ("secret/regcred", ok)
    assert finding.fault == ("images.pull-secret-missing" if ok is False else "")


def test_secrets_are_asked_for_only_where_that_is_wanted(h100, spec, evidence):
    """Without the option the check is skipped with instructions, so no permission for secrets is needed."""
    session = SimpleNamespace(options=SimpleNamespace(check_secrets=False), profile=h100)
    for named, why in ((spec, "names no pull secret"), (replace(spec, pull_secrets=("x",)), "--check-secrets")):
        with pytest.raises(pytest.skip.Exception, match=why):
            image_checks.test_pull_secrets_exist(Lists(), session, named, evidence)
