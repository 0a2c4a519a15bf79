"""What of a log line may be shown? Control sequences and secrets never leave this module.

A log is untrusted input: it can hold terminal escapes, and dumped environments with keys and tokens.
"""

from __future__ import annotations

import re
from typing import Dict, Optional, Tuple, Union

# CSI and OSC sequences of ECMA-48, and the literal "[0m" that is left where a copy lost the escape byte.
_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|\[(?:\d{1,2}(?:;\d{1,3})*)?m(?=\s|$|\S)"
)
ANSI_BYTES = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|\[(?:\d{1,2}(?:;\d{1,3})*)m"
)
ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# Everything of Unicode that moves the cursor, reorders text or is no character at all.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

_NAMES_OF_SECRETS = (
    r"[A-Za-z0-9_.-]*(?:SECRET|TOKEN|PASSW(?:OR)?D|PASSPHRASE|API[_-]?KEY|ACCESS[_-]?KEY|CREDENTIAL|PRIVATE[_-]?KEY"
    r"|AUTH|COOKIE|SIGNATURE|_KEY|_PAT|_PWD|WEBHOOK|DSN|CONNECTION_STRING)[A-Za-z0-9_.-]*"
)
_ASSIGNED = re.compile(
    r"(?i)(\b" + _NAMES_OF_SECRETS + r")([\"']?\s*(?:=|:|set by environment to|set to)\s*)([\"']?)([^\s\"',;]+)"
)
_FLAG = re.compile(r"(?i)(--?" + _NAMES_OF_SECRETS + r")(\s+)(\S+)")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s:@]+:[^/\s@]+@")
# Shapes that are secrets wherever they stand: Hugging Face, NVIDIA, AWS, GitHub, GitLab, Slack, Weights & Biases, JWT,
# OpenAI.
_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bnvapi-[A-Za-z0-9_-]{16,}|\b(?:AKIA|ASIA|AROA)[A-Z0-9]{12,}|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}|\bxox[abposr]-[A-Za-z0-9-]{10,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?|\bsk-[A-Za-z0-9_-]{20,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*"
)
HIDDEN = "[redacted]"
_SIMPLE = re.compile(
    r"[A-Za-z0-9._+-]{1,15}\Z"
)  # no secret is that short, and nothing here can be one's name and value


def redact(text: str) -> str:
    """Return the text with what looks like a secret replaced by a mark."""
    text = _SHAPES.sub(HIDDEN, text)
    text = _URL.sub(r"\1" + HIDDEN + "@", text)
    text = _BEARER.sub(lambda match: match.group(1) + " " + HIDDEN, text)
    text = _ASSIGNED.sub(lambda match: match.group(1) + match.group(2) + match.group(3) + HIDDEN, text)
    return _FLAG.sub(lambda match: match.group(1) + match.group(2) + HIDDEN, text)


def printable(raw: Union[bytes, str], limit: int = 320) -> str:
    """Return one line of a log as it may be shown.

    No escapes, no control characters, no secrets, at most ``limit`` long.
    """
    text = raw[: limit * 2].decode("utf-8", "replace") if isinstance(raw, bytes) else raw[: limit * 2]
    if len(text) <= limit and _SIMPLE.match(text):
        return text
    if len(raw) > limit * 2:
        text = text.rpartition(" ")[0] or text  # half a secret would not be recognised
    text = _CONTROL.sub("", _ANSI.sub("", text.replace("\t", " ").replace("\n", " ").replace("\r", " ")))
    text = redact(text).strip()
    return text if len(text) <= limit else text[: limit - 1] + "\u2026"


_NAMES: Dict[Tuple[Union[bytes, str], int], str] = {}


def name(raw: Union[bytes, str, None], limit: int = 64) -> Optional[str]:
    """Return a name out of a log (a host, a device, an interface) without anything unprintable; None stays None."""
    if raw is None:
        return None
    shown = _NAMES.get((raw, limit))
    if shown is None:
        if len(_NAMES) >= 20_000:
            _NAMES.clear()
        shown = _NAMES[(raw, limit)] = printable(raw, limit)
    return shown
