"""Functions on values: copies, times, names, uids.

`clone` copies JSON data about five times faster than `copy.deepcopy`, which matters at 20,000 pods.
"""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

# k8s.io/apimachinery/pkg/util/rand: no vowels and no 0, 1, 3, so that no bad words appear.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
MAX_GENERATED_PREFIX = 63 - 5  # k8s.io/apiserver/pkg/storage/names: maxGeneratedNameLength


def clone(value: Any) -> Any:
    """Copy JSON data deeply."""
    if isinstance(value, dict):
        return {key: clone(item) if isinstance(item, (dict, list)) else item for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) if isinstance(item, (dict, list)) else item for item in value]
    return value


def suffix(length: int = 5) -> str:
    """Return random letters such as the server appends to generateName."""
    return "".join(random.choices(ALPHABET, k=length))  # noqa: S311 - names, not secrets


def generated_name(prefix: str) -> str:
    """Return a name for a generateName prefix; a long prefix is truncated."""
    return prefix[:MAX_GENERATED_PREFIX] + suffix()


def new_uid() -> str:
    """Return a new uid."""
    return str(uuid.uuid4())


def rfc3339(seconds: float) -> str:
    """Format a time with the second precision of `metav1.Time`."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """Format a time with the microseconds of `metav1.MicroTime`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def epoch(text: str) -> float:
    """Parse an RFC 3339 time; raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time without a zone: {text}")
    return moment.timestamp()
