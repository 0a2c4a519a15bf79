"""Layer 1, the API: it answers, and its version is supported."""

from __future__ import annotations

import pytest

from checks.framework.evidence import Evidence
from checks.profiles.loader import Profile
from checks.rules.api import at_least, client_skew, clock, contact, git_version, latency
from jobs.cluster.client.kube import Kube, client_version


@pytest.mark.preflight
@pytest.mark.check("api.reachable", "The API server is reachable", faults=["api.unreachable", "api.unauthorized"])
def test_api_server_answers(kube: Kube, evidence: Evidence) -> None:
    """The API server of the chosen context answers and accepts our credentials.

    All facts are read through it. If it does not answer, nothing is known about the cluster: the run is
    inconclusive, not failed. Usual causes: a VPN that is down, the wrong context, an expired token.
    """
    answer = contact(kube)
    if answer.fault:
        evidence.unknown(answer.reason, fault=answer.fault)
    evidence.note(f"identity: {answer.identity or 'not reported'}")
    evidence.add(
        kube.server,
        ok=bool(answer.version) or None,
        expected="a Kubernetes version",
        observed=answer.version or "an answer that is not from Kubernetes",
    )
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "api.version", "The Kubernetes version is supported", requires=["api.reachable"], faults=["api.version-too-old"]
)
def test_kubernetes_is_new_enough(kube: Kube, profile: Profile, evidence: Evidence) -> None:
    """The server is at least the profile's version (default 1.28).

    From 1.28 on the pods of an Indexed Job carry their index as a label, which tools for multi-node training need. An
    older control plane must be upgraded before the cluster is onboarded.
    """
    version = git_version(kube.version())
    evidence.note(*filter(None, [client_skew(version, client_version())]))
    evidence.add(
        kube.server,
        ok=at_least(version, profile.kubernetes_min),
        observed=version,
        expected=f"{profile.kubernetes_min} or later",
        fault="api.version-too-old",
    )
    evidence.verdict()


@pytest.mark.preflight
@pytest.mark.check(
    "api.clock", "The API server's clock is in sync", requires=["api.reachable"], faults=["api.clock-skew"]
)
def test_clocks_agree(kube: Kube, evidence: Evidence) -> None:
    """The Date header of the API server is within a minute of the clock of this machine.

    Tokens contain times: with clocks further apart they are rejected as expired or not yet valid, and logs of several
    machines cannot be compared. It is unknown which of the two clocks is wrong, so this is never a fault of the
    cluster; fix NTP on both ends and run it again.
    """
    evidence.judge([clock(kube.server_time_skew(), kube.server)])


@pytest.mark.preflight
@pytest.mark.check(
    "api.latency",
    "The API server responds within its limit",
    requires=["api.reachable"],
    unless_failed=["rights.training"],
    faults=["api.slow"],
)
def test_api_server_answers_soon_enough(kube: Kube, profile: Profile, evidence: Evidence) -> None:
    """The median answer of the preflight's requests takes no longer than the profile allows.

    A slow control plane delays every start and every watch; its etcd, its webhooks or the network to it are overloaded.
    Without a limit in the profile (api.latency_max_s) the figure is shown and not judged.
    """
    limit = profile.api.latency_max_s
    seconds = sorted(kube.seconds)
    if limit is None:
        median = f"{1000 * seconds[len(seconds) // 2]:.0f} ms" if seconds else "not known"
        evidence.skip(f"the profile states no limit; the median of {len(seconds)} answers is {median}")
    evidence.judge([latency(seconds, limit, kube.server)])
