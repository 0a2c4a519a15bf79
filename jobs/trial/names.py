"""Validation of names, labels, numbers and images by Kubernetes' rules.

Values are refused here in one line for the user, before anything is created; Kubernetes would refuse them later and
less clearly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..cluster.redact import safe
from ..cluster.unstructured import Unstructured

# RFC 1123 label; a pod's host name is <job>-<index> and must fit 63 characters
# (https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names).
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
QUALIFIED = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# https://github.com/distribution/reference (grammar of image references), loosely: no spaces, no scheme, no upper-case
# repository, at most one tag and one digest.
IMAGE = re.compile(
    r"(?:(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:\d)|\[[0-9a-f:]+\])(?::\d{1,5})?/)?"
    r"[a-z0-9][a-z0-9._/-]*(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@[a-z0-9+._-]+:[0-9a-f]{32,})?"
)


class SpecError(ValueError):
    """A value of the trial's specification is invalid; the message is one line for the user."""


def label(what: str, text: str, longest: int) -> None:
    """Reject text that cannot be part of a DNS name."""
    if not isinstance(text, str) or len(text) > longest or not _LABEL.fullmatch(text):
        raise SpecError(
            f"{what} {safe(text, 100)!r} is not usable in a DNS name: lower-case letters, digits and '-', "
            f"beginning and ending with a letter or digit, at most {longest} characters"
        )


def whole(what: str, number: int, least: int, most: int) -> None:
    """Reject values that are not a whole number within the limits."""
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise SpecError(f"{what} must be a whole number from {least} to {most}, found {safe(number, 40)!r}")


def pairs(what: str, pairs: Mapping[str, str], values: re.Pattern[str] | None) -> None:
    """Reject labels, annotations or selectors that Kubernetes would reject."""
    for key, value in pairs.items():
        if not isinstance(key, str) or not QUALIFIED.fullmatch(key):
            raise SpecError(f"{what} {safe(key, 100)!r} is not a valid key (prefix/name)")
        if not isinstance(value, str) or (values is not None and not values.fullmatch(value)) or len(value) > 262_144:
            raise SpecError(
                f"{what} {key}: {safe(value, 100)!r} is not a valid value (text; quote numbers and true/false)"
            )


def toleration(item: Unstructured) -> None:
    """Reject a toleration with unknown fields or impossible combinations."""
    unknown = set(item) - {"key", "operator", "value", "effect", "tolerationSeconds"}
    if unknown:
        raise SpecError(f"toleration: unknown field {safe(min(unknown), 60)!r}")
    key, value, effect = (str(item.get(name) or "") for name in ("key", "value", "effect"))
    operator = str(item.get("operator") or "Equal")
    if key and not QUALIFIED.fullmatch(key):
        raise SpecError(f"toleration key {safe(key, 100)!r} is not valid")
    if operator not in {"Exists", "Equal"} or (operator == "Exists" and value):
        raise SpecError(f"toleration {key!r}: operator must be Exists (without a value) or Equal")
    if operator == "Equal" and not key:
        raise SpecError("a toleration without a key needs the operator Exists")
    if effect not in {"", "NoSchedule", "PreferNoSchedule", "NoExecute"}:
        raise SpecError(
            f"toleration {key!r}: effect {safe(effect, 60)!r} is not NoSchedule, PreferNoSchedule or NoExecute"
        )
