"""Redaction of text that leaves the cluster: no secrets, no control characters, not too long.

Logs, annotations, environment and API messages are written by others. Everything that reaches a file, a terminal or a
report goes through `safe` (one line of prose), `redact` (a line of a log) or `redact_value` (decoded JSON).
Over-redaction is the cheaper mistake; the names of settings stay readable, only values go.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

MASK = "[REDACTED]"
LINE_LIMIT = 16_384
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_KEY_END = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY-----")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")

# A name that says that its value is secret; PUBLIC_KEY, *_KEY_FILE, TOKENIZER and the like are not meant.
_REVEALING = (
    r"[_.-]*(?:[A-Za-z0-9]+[_.-]+)*"
    r"(?:[A-Za-z0-9]*(?:SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|TOKENS?)|ACCESS[_-]?KEY(?:[_-]?ID)?"
    r"|(?:API|PRIVATE|NGC|ENCRYPTION|AUTH|SIGNING|STORAGE|ACCOUNT)[_-]?KEY|AUTHORIZATION|COOKIE)"
    r"(?:[_.-](?:KEY|ID|VALUE|B64|BASE64|DATA|ACCESS_KEY|STRING|HASH|SALT|\d+))*"
)
_COUNTED = re.compile(r"(?i)tokens?(?:_ids?)?$")
_SECRETIVE = re.compile(_REVEALING, re.IGNORECASE)
# NAME=value, NAME: value, "NAME": "value", and the same inside a JSON string (\"). Booleans, null and
# numbers of tokens are settings, not secrets.
_SETTING = re.compile(
    rf"(?<![\w.-])({_REVEALING}(?:\\?[\"'])?\s{{0,3}}[=:]\s{{0,3}})"
    r"(?!(?:true|false|none|null|not|\[REDACTED\])(?![\w.+/=-]))"
    r"(\\\"|\"|'|)(?:(?<=\\\")(?:[^\"\\])*|(?<=\")(?:[^\"\\]|\\.)*|(?<=')[^']*|(?<![\"'])[^\s,;&\"'\\}\]]+)",
    re.IGNORECASE,
)
# Objects are named as kubectl does; what follows the colon is said of them.
_OF_A_KIND = re.compile(
    r"(?<![\w./-])(?:secret|configmap|pod|job|service|serviceaccount|node|namespace|resourcequota|persistentvolumeclaim"
    r"|webhook|policy|localqueue|clusterqueue|podgroup|lease)s?(?:\.[a-z.]{1,30})?/$"
)
_GOES_ON = re.compile(r" +[a-z(]")
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        MASK,
    ),
    # scheme://user:password@host and scheme://token@host
    (re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,30}://)[^\s/@\"'<>]{1,500}@"), rf"\1{MASK}@"),
    # signed URLs (AWS, GCS, Azure SAS)
    (
        re.compile(
            r"([?&](?:X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)|AWSAccessKeyId|Signature|sig|sv?t?oken"
            r"|access_token|api[-_]?key|auth|key)=)[^&\s\"'<>]+",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\b((?:Proxy-)?Authorization\s*[:=]\s*)[^\r\n\"']+", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9+/_.~=-]{12,}", re.IGNORECASE), rf"\1 {MASK}"),
    # a docker config: {"auths":{"host":{"auth":"..."}}}
    (re.compile(r"(\\?[\"']auth\\?[\"']\s*:\s*\\?[\"'])[A-Za-z0-9+/=]{8,}"), rf"\1{MASK}"),
    (
        re.compile(
            r"((?<![\w-])--?(?:[a-z0-9]+-){0,6}(?:password|passwd|token|secret|api-?key)[ \t]+)(?!-)[^\s\"']+",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # Well-known shapes of keys: AWS ids, GitHub, GitLab, Slack, Hugging Face, NVIDIA NGC, Google, OpenAI-like, Stripe,
    # npm, PyPI, JSON web tokens.
    (
        re.compile(
            r"(?<![A-Za-z0-9_-])(?:(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
            r"|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|hf_[A-Za-z0-9]{16,}|nvapi-[\w-]{16,}|AIza[\w-]{30,}"
            r"|ya29\.[\w-]{20,}|(?:sk|pk|rk)[-_](?:[a-z]{1,12}[-_]){0,3}[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}"
            r"|wandb_[\w]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)"
        ),
        MASK,
    ),
)
# A cheap necessary condition of the patterns above: ordinary lines cost a look for each of these words.
_HINTS = (
    "secret|passw|passphrase|credential|token|key|auth|cookie|bearer|basic |://|akia|asia|abia|acca|ghp_|gho_|ghu_|ghs_|ghr_"
    "|_pat_|glpat|xox|hf_|nvapi|aiza|ya29|sk-|sk_|npm_|pypi-|wandb_|eyj|sig"
)
_WORDS = _HINTS.split("|")
_HINT = re.compile(_HINTS, re.IGNORECASE)


def _may_hold_one(text: str) -> bool:
    """Tell whether a pattern may find something; other alphabets have letters that match without regard to case."""
    if not text.isascii():
        return _HINT.search(text) is not None
    lowered = text.lower()
    return any(map(lowered.__contains__, _WORDS))


def redact(text: str) -> str:
    """Mask everything in `text` that looks like a credential; length and line breaks are otherwise kept."""
    if not _may_hold_one(text):
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return _SETTING.sub(_masked, text)


def _masked(match: re.Match[str]) -> str:
    """Mask a value, but for what is no value of that name.

    max_tokens=512 is a setting, PASSWORD=512 is not; "the registry wants credentials: create a ..." and
    "secret/ngc-token: does not exist" are sentences.
    """
    name, quote = match[1].rstrip("=: \t\"'\\"), match[2]
    value = match[0][len(match[1]) + len(quote) :]
    if value.isdigit() and len(value) < 7 and _COUNTED.search(name):
        return match[0]
    before, after = match.string[max(0, match.start() - 40) : match.start()], match.string[match.end() :][:20]
    prose = match[1].endswith(": ") and not quote and value.isalpha() and value.islower() and _GOES_ON.match(after)
    if prose and (name == "credentials" or _OF_A_KIND.search(before)):
        return match[0]
    return f"{match[1]}{quote}{MASK}"


class LineRedactor:
    """Redacts a log line by line; a private key that spans lines is masked as a whole."""

    _MOST_KEY_LINES = 200

    def __init__(self) -> None:
        self._key_lines_left = 0

    def line(self, text: str) -> str:
        """Make one line of a log fit to be kept."""
        if self._key_lines_left:
            self._key_lines_left = 0 if _KEY_END.search(text) else self._key_lines_left - 1
            return MASK
        if _KEY_BEGIN.search(text) and not _KEY_END.search(text):
            self._key_lines_left = self._MOST_KEY_LINES
        return redact(clean(text))


def clean(text: str, limit: int = LINE_LIMIT) -> str:
    """Drop terminal escapes, control, bidirectional and invisible characters; cut at `limit` characters and say so."""
    cut = len(text) > limit
    text = _CONTROL.sub("", _ANSI.sub("", text[: limit * 2])).replace("\t", " ")
    if len(text) > limit or cut:
        text = text[: max(0, limit - 15)] + "... [truncated]"[: min(limit, 15)]
    return text


def safe(text: object, limit: int = 1000) -> str:
    """Make one bounded, printable, redacted line of any foreign text."""
    whole = str(text)[: max(limit * 4, 65_536)]
    return _known_line(whole, limit) if len(whole) <= _KNOWN_LENGTH else _line(whole, limit)


def _line(text: str, limit: int) -> str:
    # Redact before cutting: half a secret is still a secret, and its name may stand before the cut.
    return clean(redact(clean(" ".join(text.split()), max(limit * 4, 65_536))), limit)


# A watcher reads the same events and conditions at every look; together at most some MB.
_KNOWN_LENGTH = 2000
_known_line = lru_cache(maxsize=1000)(_line)


def redact_value(value: Any, *, limit: int = 262_144) -> Any:
    """Return decoded JSON with every string redacted; values under a secret-looking key are masked whole."""
    if isinstance(value, str):
        return redact(value[:limit])
    if isinstance(value, list):
        return [redact_value(item, limit=limit) for item in value]
    if isinstance(value, dict):
        return {
            str(key): MASK
            if secret_name(str(key)) and isinstance(item, str) and item
            else redact_value(item, limit=limit)
            for key, item in value.items()
        }
    return value


def secret_name(name: str) -> bool:
    """Tell whether an environment variable or JSON key of this name holds a credential."""
    return _SECRETIVE.fullmatch(name) is not None
