"""Causes of refused creations by the API server: quota, limits, PodSecurity, a webhook, permissions.

The same texts appear in three places, which share this reader: our own requests (403, 422), the dry run of a pod, and a
Job's FailedCreate events for pods. The texts are those of Kubernetes 1.28 to 1.36 (plugin/pkg/admission,
pkg/registry/rbac); the recordings of a real 1.36 cluster contain most of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from seatrial.faults.catalogue import read_text

from ..cluster.redact import safe
from ..cluster.unstructured import quantity


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal: the fault, its subject, and the remedy if its message is more specific than the fault."""

    fault: str
    subject: str
    suggestion: str = ""
    confirm: str = ""
    remedy: str = ""
    in_use: bool = False  # for a quota that is large enough but in use by other pods: not a fault


# Kinds of objects that a trial creates once, in the notation of a quota.
OBJECTS = r"(?:count/)?(?:configmaps|services)|count/(?!pods)[a-z.]+|services\.[a-z]+"
# Errors of an unreachable API server, in the words of Go's net and net/http, which controllers report.
_UNREACHED = re.compile(r"dial tcp|connect: connection refused|connection reset by peer|i/o timeout|\bEOF\b")


def is_policys(message: str) -> bool:
    """Return whether a webhook or a policy refused; they may answer 400, 403 or 422.

    A ValidatingAdmissionPolicy without a reason answers 422 (API reference, Validation.reason).
    """
    return bool(re.search(r"webhook|(?:Validating|Mutating)AdmissionPolicy '", message))


_QUOTA = re.compile(r"exceeded quota: [^,\s]+, requested: (\S+), used: \S+, limited: (\S+)")


def _in_use(message: str, pods: int) -> bool:
    """Return whether a quota that refused one of so many equal pods has room for all of them once it is free."""
    match = _QUOTA.search(message)
    if match is None:
        return False
    asked, limits = (dict(_amounts(part)) for part in match.groups())
    return bool(asked) and all(
        not re.fullmatch(OBJECTS, key) and key in limits and amount * pods <= limits[key]
        for key, amount in asked.items()
    )


def _amounts(text: str) -> Iterator[tuple[str, Decimal]]:
    for part in text.split(","):
        key, _, value = part.partition("=")
        if (amount := quantity(value)) is not None:
            yield key, amount


def read_refusal(message: str, pods: int = 0) -> Refusal:
    """Find the rule that refused; an unknown refusal is admission.denied, with its message.

    ``pods``: how many such pods are wanted together, if known. A quota with room for all of them is only in use.
    """
    said = read_text("api", message)
    if said is not None and said.why is not None and said.variant is not None:
        subject = safe(said.variant.subject or "pod", 200)
        if said.why == "quota.exceeded" and pods and _in_use(message, pods):
            return Refusal("quota.in-use", subject, in_use=True)
        return Refusal(said.why, subject, said.cause or "", said.variant.confirm, said.variant.remedy)
    if not _UNREACHED.search(message) and re.search(r"(?i)forbidden|denied|invalid|not allowed|refused", message):
        return Refusal("admission.denied", "pod")
    return Refusal("job.start-timeout", "pod")  # not a known refusal: the controller retries
