"""Pull secret rules: asked by name only, and only where the user wants it; their content is not looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobs.cluster.client.errors import Forbidden, NotFound
from jobs.cluster.client.kube import Kube, path
from reports.record import Finding

from .findings import compared, failed, unknown

KINDS = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
"""The two kinds of secret that a kubelet reads credentials of registries from
(https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets)."""


def secret_findings(kube: Kube, names: Iterable[str]) -> Iterator[Finding]:
    """Judge each secret by whether it is there, and of which kind it is."""
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
