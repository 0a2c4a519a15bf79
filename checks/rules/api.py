"""API rules: the server's response, our identity, its version. Yes, no and unknown are distinguished."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.cluster.client.errors import ApiError, NotFound, Unauthorized, Unreachable
from jobs.cluster.client.kube import Kube
from jobs.cluster.unstructured import Unstructured
from reports.record import Finding

from .findings import compared, proven, unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """The result of the first request. Without a usable response, ``fault`` is set, and ``reason`` explains it."""

    version: str = ""
    identity: str = ""
    fault: str = ""
    reason: str = ""


def contact(kube: Kube) -> Contact:
    """Query our identity and the server's version; a rejected request and a missing response are distinguished."""
    try:
        identity = _identity(kube)
        return Contact(version=git_version(kube.version()), identity=identity)
    except Unauthorized as error:
        return Contact(fault="api.unauthorized", reason=str(error))
    except Unreachable as error:
        return Contact(fault="api.unreachable", reason=str(error))


def _identity(kube: Kube) -> str:
    """Return the name of the identity; '' if the server does not report it: an older API or a policy may refuse."""
    try:
        return kube.whoami()
    except Unauthorized:
        raise
    except (NotFound, ApiError):
        return ""


def git_version(answer: Unstructured) -> str:
    """Return 'v1.36.2' from the response of /version, or '' if it is not from Kubernetes."""
    return str(answer.get("gitVersion") or "")


def client_skew(server: str, client: str) -> str:
    """Describe the version skew between this program's Kubernetes client and the server; nothing depends on it.

    The Python client's major version is the minor version of Kubernetes for which it was built.
    """
    theirs, own = major_minor(server), re.match(r"\d+", client)
    if theirs is None or own is None:
        return ""
    apart = int(own[0]) - theirs[1]
    said = f"{apart:+d} minor versions from" if apart else "of the same minor version as"
    return f"the client ({client}) is {said} the server; it sends plain JSON to stable APIs, so that is harmless"


def at_least(version: str, minimum: str) -> bool | None:
    """Return whether 'v1.36.2-eks-1' is at least '1.28'; None if the text is not a version."""
    have, need = major_minor(version), major_minor(minimum)
    return None if have is None or need is None else have >= need


def major_minor(version: str) -> tuple[int, int] | None:
    """Return (1, 36) for 'v1.36.2-eks-1'; None if the text is not a version."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


MAX_SKEW_S = 60.0
"""Allowed clock skew in seconds: go-jose, with which the API server checks the times in a token, tolerates one minute
(jwt.DefaultLeeway). Beyond it tokens are rejected as expired or not yet valid. The Date header has whole seconds, so
smaller differences are not judged."""


def clock(skew_s: float | None, server: str) -> Finding:
    """Compare the server's clock with the local one. It is unknown which of the two is wrong."""
    if skew_s is None:
        return unknown(server, "no Date header in the answer", "a Date header")
    ok = abs(skew_s) <= MAX_SKEW_S
    expected = f"within {MAX_SKEW_S:.0f} s (the leeway of the API server's token check)"
    return proven(server, ok, f"{skew_s:+.0f} s against this machine's clock", expected, fault="api.clock-skew")


def latency(seconds: Sequence[float], limit_s: float, server: str) -> Finding:
    """Compare the median response time so far with the profile's limit."""
    if len(seconds) < FEW_ANSWERS:
        return unknown(server, f"only {len(seconds)} answers", f"{FEW_ANSWERS} or more")
    median = statistics.median(seconds)
    ok = median <= limit_s
    observed = f"{median:.3f} s (median of {len(seconds)} answers)"
    return compared(server, ok, observed, f"at most {limit_s:g} s (profile)", "api.slow")


FEW_ANSWERS = 5
