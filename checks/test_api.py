"""Layer 1, the API: it answers us, and it is new enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from checks.judgement.api import at_least, contact, git_version

if TYPE_CHECKING:
    from checks.evidence import Evidence
    from checks.profile import Profile
    from jobs.kube import Kube

MAX_SKEW_S = 30.0
"""Shown above this. Tokens and certificates are refused at minutes; logs are hard to read together from seconds on."""


@pytest.mark.preflight
@pytest.mark.check("api.reachable", "The API server answers", faults=["api.unreachable", "api.unauthorized"])
def test_api_server_answers(kube: Kube, evidence: Evidence) -> None:
    """The API server of the chosen context answers and accepts our credentials.

    Everything else is read through it. When it does not answer, nothing is known about the cluster: the run is
    inconclusive, not failed. Usual causes: a VPN that is down, the wrong context, an expired token.
    """
    found = contact(kube)
    if found.fault:
        evidence.unknown(found.reason, fault=found.fault)
    evidence.note(f"identity: {found.identity or 'not told'}")
    if found.skew_s is not None and abs(found.skew_s) > MAX_SKEW_S:
        evidence.note(f"the server's clock differs from ours by {found.skew_s:+.0f} s")
    evidence.add(kube.server, ok=bool(found.version) or None, expected="a Kubernetes version",
                 observed=found.version or "an answer that is not Kubernetes' own")  # fmt: skip
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "api.version", "Kubernetes is new enough", requires=["api.reachable"], faults=["api.version-too-old"]
)
def test_kubernetes_is_new_enough(kube: Kube, profile: Profile, evidence: Evidence) -> None:
    """The server is at least the version the profile asks for (1.28 where it says nothing).

    From 1.28 on the pods of an Indexed Job carry their index as a label, which the tools of multi-node training build
    on. An older control plane has to be upgraded before the cluster is onboarded.
    """
    version = git_version(kube.version())
    evidence.add(kube.server, ok=at_least(version, profile.kubernetes_min), observed=version,
                 expected=f"{profile.kubernetes_min} or later", fault="api.version-too-old")  # fmt: skip
    evidence.verdict()
