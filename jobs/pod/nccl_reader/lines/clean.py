"""What of a log line may be shown: control sequences and secrets never leave this module.

A log is untrusted input: it can hold terminal escapes, and dumped environments with keys and tokens.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Match, Optional, Union

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

# The end of a secret's name: what stands in front of it, and how long that is, does not matter.
_NAMES_OF_SECRETS = (
    r"(?:SECRET|TOKEN|PASSW(?:OR)?D|PASSPHRASE|API[_-]?KEY|ACCESS[_-]?KEY|CREDENTIAL|PRIVATE[_-]?KEY|KEY[_-]?DATA|AUTH"
    r"|COOKIE|SIGNATURE|_KEY|_PAT|_PWD|WEBHOOK|DSN|CONNECTION_STRING)[A-Za-z0-9_.-]{0,48}"
)
_VALUE = r"[^\s\"',;<&\\]+"
_QUOTE = r"(?:\\*[\"'])?"
# What stands between a secret's name and the secret: a mark of a shell, of JSON, YAML, XML, a URL or a sentence, the
# comma of a Python pair, and the second key of a container's environment ({"name": .., "value": ..}).
_MARK = r"(?:=>|=|:|>|%3D|\bis\b|\\*[\"']\s*,|(?=\bvalue\b)|,\s*" + _QUOTE + r"(?=value\b))\s*"
_SECOND_KEY = r"(?:" + _QUOTE + r"value" + _QUOTE + r"\s*[:=]\s*)?" + _QUOTE
_CHAIN = _VALUE + r"(?:" + _QUOTE + r"\s*[:=]\s*" + _QUOTE + _VALUE + r")*"
# What an error says behind such a name ("failed to authorize: unauthorized: ..", "token is expired", an HTTP status):
# it is no secret, and mostly the word that tells what failed.
_SAID = (
    r"(?!(?:unauthori[sz]ed|unauthenticated|authentication|authorization|access|bad|cannot|could|denied|error|expired"
    r"|failed|failure|forbidden|invalid|missing|no|not|permission|refused|rejected|replayed|required|revoked|rpc|secret"
    r"|timeout|unable|unexpected|unknown|unsupported|wrong|[45]\d\d)[:.]?(?![^\s\"',;<&\\]))"
)
_ASSIGNED = re.compile(
    r"(?i)(" + _NAMES_OF_SECRETS + r")(" + _QUOTE + r"\s*" + _MARK + _SECOND_KEY + r")" + _SAID + r"(" + _CHAIN + r")"
)
# A setting that has a secret's name: all of its value, whatever that is made of.
_SETTING = re.compile(
    r"(?i)(^[A-Z0-9_.-]{0,64}"
    + _NAMES_OF_SECRETS
    + r"=|"
    + _NAMES_OF_SECRETS
    + r"\sset (?:by environment )?to\s)()(.+)"
)
_CAMEL = re.compile(r"\b([A-Za-z]{2,30}(?:Key|Secret|Token|Password|Pwd))(\s*[=:]\s*)([^\s\"',;<&]+)")
_FLAG = re.compile(r"(?i)((?<![A-Za-z0-9_.-])--?[A-Za-z0-9_.-]{0,48}" + _NAMES_OF_SECRETS + r")(\s+)(\S+)")
_LOGIN = re.compile(r"((?:\blogin\b|\bsshpass\b).{0,80}?\s-p\s*|\bcurl\b.{0,200}?\s(?:-u|--user)\s+[^\s:]+:)()(\S+)")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s@\"'<>]+@")
# Shapes that are secrets wherever they stand: Hugging Face, NVIDIA, AWS, GitHub, GitLab, Slack, Weights & Biases, JWT,
# OpenAI.
_SHAPES = re.compile(
    r"(?:hf_|nvapi-)[A-Za-z0-9_-]{20,}"  # also where a torn line is glued to it
    r"|(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|nvapi-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA|AROA)[A-Z0-9]{12,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abposr]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?|sk-[A-Za-z0-9_-]{20,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*"
)
# Base64 as keys have it: an AWS secret has 40 characters of it, a line of a PEM file 64, an NGC key 84.
_RANDOM = re.compile(r"(?<![\w./+-])[A-Za-z0-9+_-][A-Za-z0-9+/_-]{38,}={0,2}(?![\w./])")
HIDDEN = "[redacted]"
_LOOK = 1024
_PIECE = 64 * 1024  # bytes
_SIMPLE = re.compile(
    r"[A-Za-z0-9._+-]{1,15}\Z"
)  # no secret is that short, and nothing here can be one's name and value


def redact(text: str) -> str:
    """Return the text with what looks like a secret replaced by a mark."""
    text = _SHAPES.sub(HIDDEN, text)
    text = _URL.sub(r"\1" + HIDDEN + "@", text)
    text = _BEARER.sub(lambda match: match.group(1) + " " + HIDDEN, text)
    for pattern in (_SETTING, _ASSIGNED, _CAMEL, _FLAG, _LOGIN):
        text = pattern.sub(lambda match: match.group(1) + match.group(2) + HIDDEN, text)
    return _RANDOM.sub(_hidden_if_random, text)


def _hidden_if_random(match: Match[str]) -> str:
    """Hide what mixes capitals, small letters and digits as no word, path or mangled C++ name does."""
    text = match.group(0)
    mixed = any(map(str.isupper, text)) and any(map(str.islower, text)) and any(map(str.isdigit, text))
    return HIDDEN if mixed and not text.startswith("_Z") and text.count("/") <= 4 else text


def plain_lines(data: bytes) -> bytes:
    """Return whole lines without control sequences, each ended by a line feed alone."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if b"\x1b" not in data:
        return data
    out, at = [], 0
    while at < len(data):  # in pieces: a log in colours is cut into many
        end = data.find(b"\n", at + _PIECE) + 1 or len(data)
        out.append(ESCAPES.sub(b"", data[at:end]))
        at = end
    return b"".join(out)


def printable(raw: Union[bytes, str], limit: int = 320) -> str:
    """Return one line of a log as it may be shown.

    No escapes, no control characters, no secrets, at most ``limit`` long.
    """
    look = max(limit * 2, _LOOK)  # a secret is recognised by what stands around it, also where that is not shown
    text = raw[:look].decode("utf-8", "replace") if isinstance(raw, bytes) else raw[:look]
    if len(text) <= limit and _SIMPLE.match(text):
        return text
    if len(raw) > look:
        text = text.rpartition(" ")[0] or text  # half a secret would not be recognised
    text = _CONTROL.sub("", _ANSI.sub("", text.replace("\t", " ").replace("\n", " ").replace("\r", " ")))
    text = redact(text).strip()
    return text if len(text) <= limit else text[: limit - 1] + "\u2026"


@lru_cache(maxsize=16_384)  # the hosts and addresses of a large job
def name(raw: Union[bytes, str, None], limit: int = 64) -> Optional[str]:
    """Return a name out of a log (a host, a device, an interface) without anything unprintable; None stays None."""
    return None if raw is None else printable(raw, limit)
