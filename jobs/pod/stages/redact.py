"""Redaction inside the pod: values that look like credentials, wherever they stand.

Names are judged by whole words, so that NCCL_IB_PKEY (a partition key index, no secret) stays readable.
"""

from __future__ import annotations

import re
from typing import Mapping

HIDDEN = "<redacted>"
MAX_VALUE = 1024

_NAMES = "TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|API_KEY|ACCESS_KEY|SECRET_KEY|PRIVATE_KEY|AUTH"
_NAME = re.compile(r"(?:^|[_-])(?:%s)(?:$|[_-])" % _NAMES, re.IGNORECASE)
_ASSIGNED = re.compile(r"(?i)\b([A-Z0-9_.-]*(?:%s)[A-Z0-9_]*[\"']?\s*[=:]\s*[\"']?)([^\s\"',;]{4,})" % _NAMES)
_SHAPES = re.compile(
    r"\b(?:nvapi-[\w-]{8,}"  # NGC
    r"|hf_[A-Za-z0-9]{8,}"  # Hugging Face
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}"  # AWS key ids
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"  # GitHub
    r"|glpat-[\w-]{12,}"  # GitLab
    r"|xox[abprs]-[\w-]{8,}"  # Slack
    r"|sk-[A-Za-z0-9_-]{16,}"  # OpenAI and alike
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"  # JSON Web Tokens
    r"|(?i:bearer)\s+[\w.~+/=-]{8,})"
)
_USERINFO = re.compile(r"(://)[^\s/@:]*:[^\s/@]+@")


def text(value: str) -> str:
    """Return the text without anything that looks like a credential."""
    value = _USERINFO.sub(r"\1%s@" % HIDDEN, value)
    value = _SHAPES.sub(HIDDEN, value)
    return _ASSIGNED.sub(lambda match: match.group(1) + HIDDEN, value)


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with secret-looking values hidden, sorted by name and bounded."""
    return {name: HIDDEN if _NAME.search(name) else text(env[name][:MAX_VALUE]) for name in sorted(env)}
