"""Image rules: the images of a run, whether their names follow the profile, and the duration of pulls.

Pull secrets are looked up by name only, and only if the user requests it; their content is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from jobs.cluster.client.errors import Forbidden, NotFound
from jobs.cluster.client.kube import Kube, path
from jobs.cluster.unstructured import Unstructured
from jobs.run.result import TrialResult
from reports.record import Finding

from ..profiles.schema import ImagesSection
from .findings import compared, failed, passed, unknown

PARTS = ("initContainers", "containers", "ephemeralContainers")


def images_of(pod: Unstructured) -> dict[str, str]:
    """Name every image of a pod by its container, including initContainers and sidecars that a webhook added."""
    spec = pod.get("spec") or {}
    return {
        str(container.get("name")): str(container.get("image") or "")
        for part in PARTS
        for container in spec.get(part) or []
        if isinstance(container, dict)
    }


def full_name(image: str) -> str:
    """Write an image as the runtime resolves it: 'docker.io/library/busybox:1' for 'busybox:1'.

    https://github.com/distribution/reference: the first part is a registry if it has a dot, a port, or is localhost.
    """
    first, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    return image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"


def allowed(image: str, registries: Iterable[str]) -> bool:
    """Return whether an image is below one of the prefixes, by whole path parts: 'a.io/x' does not cover 'a.io/xy'."""
    name = full_name(image)
    return any(name.startswith(f"{prefix.rstrip('/')}/") for prefix in registries)


def image_findings(images: Mapping[str, str], required: ImagesSection) -> Iterator[Finding]:
    """Judge how each image is named; the registry first: a digest does not make an external image acceptable."""
    for container, image in images.items():
        subject = f"{container}: {image}"
        if required.registries and not allowed(image, required.registries):
            expected = f"below {' or '.join(required.registries)} (profile)"
            yield failed(subject, f"pulled from {full_name(image).partition('/')[0]}", expected, "images.registry")
        elif required.digest and "@sha256:" not in image:
            observed = "named by a mutable tag"
            yield failed(subject, observed, "named by its digest, name@sha256:... (profile)", "images.not-by-digest")
        else:
            yield passed(subject, "named as the profile requires", "the same")


def pull_findings(pulls: Iterable[tuple[str, str, float | None]], limit_s: float) -> Iterator[Finding]:
    """Judge (node, image, seconds) of each pull; pulls without an event are not judged."""
    for node, image, seconds in pulls:
        ok = None if seconds is None else seconds <= limit_s
        yield compared(node, ok, f"{image} {pulled(seconds)}", f"at most {limit_s:g} s (profile)", "images.slow-pull")


def pulled(seconds: float | None) -> str:
    """Describe the duration of a pull."""
    if seconds is None:
        return "pulled, but no event reports the duration"
    return f"was pulled in {seconds:.1f} s" if seconds else "was there already"


def pulls(trial: TrialResult) -> Iterator[tuple[str, str, float | None]]:
    """Yield (node, image, seconds) of each image that a pod of the trial ran; 0: present, None: no event."""
    for pod in trial.pods:
        for image, _ in pod.images.values():
            yield pod.node or pod.name, image, pod.pull_seconds.get(image)


def ran(trial: TrialResult) -> dict[str, str]:
    """List every image that ran, by pod and container."""
    return {f"{pod.name} {container}": image for pod in trial.pods for container, (image, _) in pod.images.items()}


KINDS = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
"""The two types of Secret from which a kubelet reads registry credentials
(https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets)."""


def secret_findings(kube: Kube, names: Iterable[str]) -> Iterator[Finding]:
    """Judge each secret by its existence and its type."""
    expected = "a secret with credentials of a registry"
    for name in names:
        subject = f"secret/{name}"
        try:
            secret = kube.get(path("secrets", name, namespace=kube.namespace))
        except NotFound:
            yield failed(subject, "does not exist", expected, "images.pull-secret-missing")
            continue
        except Forbidden as error:
            yield unknown(subject, f"not seen: {error.message}", expected)
            continue
        kind = str(secret.get("type") or "")
        ok = kind in KINDS
        yield compared(subject, ok, f"a secret of type {kind}", expected, "images.pull-secret-missing")
