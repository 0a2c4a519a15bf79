"""Which rights does a run need, and which does training? The list that is asked for, right by right.

Derived from what the code sends: the launcher (create a suspended Job, then its ConfigMap and Service, resume it, watch
it and its pods, follow the logs, read the events of a failure) and the clean-up (list and delete by label).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobs.kube import Allowed, Kube

AT_ONCE = 8
"""Questions in flight: enough to hide the way to a far cluster, few enough for a small API server."""


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource; ``scope`` is 'namespace' or 'cluster'."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    scope: str = "namespace"

    def subject(self, namespace: str) -> str:
        """Name the right as kubectl would: 'create jobs.batch in ns', 'get pods/log in ns', 'list nodes'."""
        resource = ".".join(p for p in (self.resource, self.group) if p)
        resource = "/".join(p for p in (resource, self.subresource) if p)
        return f"{self.verb} {resource}" + (f" in {namespace}" if self.scope == "namespace" else "")


def rights(verbs: str, resource: str, group: str = "", subresource: str = "", scope: str = "namespace") -> list[Right]:
    """Write several verbs on one resource."""
    return [Right(verb, resource, group, subresource, scope) for verb in verbs.split()]


RUN: tuple[Right, ...] = (
    *rights("create get list watch patch delete", "jobs", "batch"),
    *rights("get list watch", "pods"),
    *rights("get", "pods", subresource="log"),
    *rights("create get list delete", "configmaps"),
    *rights("create get list delete", "services"),
    *rights("list", "events"),
)
"""Without one of these the trial cannot run, or could not be cleaned up."""

TRAINING: tuple[Right, ...] = (
    # What a submitting tool does (NVIDIA TAO on Kubernetes: Indexed Job and headless Service, logs of all pods, failure
    # analysis from pods and events, cancelling by deletion), and what it takes to see and replace a stuck rank.
    *rights("create get list watch delete", "jobs", "batch"),
    *rights("get list watch delete", "pods"),
    *rights("get", "pods", subresource="log"),
    *rights("create get delete", "services"),
    *rights("create get delete", "configmaps"),
    *rights("list", "events"),
)
"""Without one of these the usual tools cannot submit, watch or cancel a training job in this namespace."""

SIGHT: tuple[Right, ...] = (
    Right("list", "nodes", scope="cluster"),
    Right("list", "pods", scope="cluster"),
    Right("create", "pods"),
)
"""What makes more visible: a tenant may lack them, and the checks that need them then say that they cannot tell."""


def ask(kube: Kube, wanted: Iterable[Right]) -> list[tuple[Right, Allowed]]:
    """Ask the API server for each right (SelfSubjectAccessReview), in the order given."""
    wanted = list(wanted)

    def one(right: Right) -> Allowed:
        namespace = kube.namespace if right.scope == "namespace" else ""
        return kube.can(
            right.verb, right.resource, group=right.group, subresource=right.subresource, namespace=namespace
        )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(zip(wanted, pool.map(one, wanted), strict=True))
