"""Does the API server answer, as whom, and which version? One question, three kinds of answer, no guess."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.kube import ApiError, NotFound, Unauthorized, Unreachable

if TYPE_CHECKING:
    from jobs.kube import Kube


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """What the first request showed. ``fault`` is set where there was no usable answer, and ``reason`` says why."""

    version: str = ""
    identity: str = ""
    fault: str = ""
    reason: str = ""
    skew_s: float | None = None


def contact(kube: Kube) -> Contact:
    """Ask who we are and which version the server has; the two ways not to get an answer are told apart."""
    try:
        identity = _identity(kube)
        return Contact(version=git_version(kube.version()), identity=identity, skew_s=kube.server_time_skew())
    except Unauthorized as error:
        return Contact(fault="api.unauthorized", reason=str(error))
    except Unreachable as error:
        return Contact(fault="api.unreachable", reason=str(error))


def _identity(kube: Kube) -> str:
    """Name the identity, or '' where the server does not tell: an older API or a policy may refuse the question."""
    try:
        return kube.whoami()
    except Unauthorized:
        raise
    except (NotFound, ApiError):
        return ""


def git_version(answer: dict[str, Any]) -> str:
    """Return 'v1.36.2' from the answer of /version, or '' where it is not Kubernetes' own."""
    return str(answer.get("gitVersion") or "")


def at_least(version: str, minimum: str) -> bool | None:
    """Say whether 'v1.36.2-eks-1' is at least '1.28'; None where the text is no version."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None:
        return None
    major, minor = minimum.split(".")
    return (int(found[1]), int(found[2])) >= (int(major), int(minor))
