"""Redaction: no credential leaves a pod or reaches a file, a terminal or a report, wherever and however it is written.

Pods, the reader of logs and the host share these patterns and this mask. The names of settings remain readable, only
values are masked. Over-redaction is the cheaper mistake, except for the words of a refusal or failure: "failed to
authorize: unauthorized" and "token: expired" are needed by the rules of the catalogue, and by people.
"""

from __future__ import annotations

import re
from typing import Dict, Mapping, Match

MASK = "[REDACTED]"

# The end of a name with a secret value; the text before it does not matter. PUBLIC_KEY, TOKENIZER, NCCL_IB_PKEY,
# *_TOKEN_FILE and the like are not meant.
_NAME = (
    r"(?:SECRET|SECRETS(?==)|TOKENS?|PASSWORDS?|(?<!/etc/)PASSWD|PASSPHRASE|CREDENTIALS?|COOKIE"
    r"|(?:AMZ|GOOG)-SIGNATURE|AUTHORIZATION|CONNECTION_STRING"
    r"|(?:API|ACCESS|SECRET|PRIVATE|NGC|ENCRYPTION|AUTH|SIGNING|STORAGE|ACCOUNT)[_-]?KEY|KEY[_-]?DATA"
    r"|(?<![A-Za-z])(?:O?AUTH|DSN)|(?<=[A-Z0-9]{2})_(?:KEY|PAT|PWD|DSN|WEBHOOK))"
    r"(?:[_.-](?:KEY|ID|VALUE|B64|BASE64|DATA|STRING|HASH|SALT|\d+)"
    r"|_(?!(?:FILE|PATH|DIR|NAME|TYPE|TTL|LENGTH|COUNT|SIZE|LIMIT|EXPIRY)S?\b)[A-Z0-9]{1,20}){0,4}"
)
# The same in camel case, for any key; a topologyKey in Kubernetes means a label.
_CAMEL = r"(?-i:\b(?!topologyKey)[A-Za-z]{2,30}(?:Key|Pwd))"
_QUOTE = r"(?:\\{0,3}[\"'])"
# The text between a name and its value: a mark of a shell, of JSON, YAML or a URL, the end of an XML tag, the comma
# of a Python pair, the second key of a container's environment ({"name": .., "value": ..}).
_MARK = (
    rf"(?:{_QUOTE}?\s{{0,3}}(?:=>|=|:|%3D)\s{{0,3}}|>|{_QUOTE}?,?\s{{1,3}}{_QUOTE}?value{_QUOTE}?\s{{0,3}}[:=]\s{{0,3}}"
    rf"|{_QUOTE},\s{{0,3}}(?={_QUOTE})(?!\"[^\"]{{0,200}}\"\s{{0,3}}:)|\sis\s(?=\S{{0,80}}(?-i:[A-Z0-9])))"
)
_VALUE = r"(?:(?<=\\\")(?:[^\"\\])*|(?<=\")(?:[^\"\\]|\\.)*|(?<=')[^']*|(?<![\"'])[^\s,;&<\"'\\}\]]+)"
# Booleans, null and numbers of tokens are settings, not secrets; masked values remain masked.
_SETTING = re.compile(
    rf"((?:{_NAME}|{_CAMEL}){_MARK})"
    rf"(?!(?:true|false|none|null|not|\[REDACTED\])(?![\w.+/=-]))(\\\"|\"|'|)({_VALUE})",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"(?i)(?:tokens?(?:_ids?)?|barrier_key)$")
_BEFORE = re.compile(r"[\w.-]*\Z")
# Names of objects as kubectl writes them; the text after the colon is about the object.
_OF_A_KIND = re.compile(
    r"(?<![\w./-])(?:secret|configmap|pod|job|service|serviceaccount|node|namespace|resourcequota|persistentvolumeclaim"
    r"|webhook|policy|localqueue|clusterqueue|podgroup|lease)s?(?:\.[a-z.]{1,30})?/$"
)
_GOES_ON = re.compile(r" +[a-z(]")
# The continuation of an error after such a name and a colon: mostly the word that names the failure.
_SAID = re.compile(
    r"(?i)(?:unauthori[sz]ed|unauthenticated|authentication|authorization|access|bad|cannot|could|denied|error|expired"
    r"|failed|failure|forbidden|invalid|missing|munge|no|not|permission|refused|rejected|replayed|required|revoked|rpc|server"
    r"|signature|timeout|unable|unexpected|unknown|unsupported|wrong|[45]\d\d)[:.]?"
)
_SAYS = rf"(?!(?:{_SAID.pattern[4:]})(?![\w.+/=-]))"
_PATTERNS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", MASK),
        # scheme://user:password@host and scheme://token@host
        (r"\b([A-Za-z][A-Za-z0-9+.-]{1,30}://)[^\s@\"'<>]{1,500}@(?!sha\d+:)", rf"\1{MASK}@"),
        # signed URLs (AWS, GCS, Azure SAS)
        (
            r"(?i)([?&](?:X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)|AWSAccessKeyId|Signature|sig|sv?t?oken"
            r"|access_token|api[-_]?key|auth|key)=)[^&\s\"'<>]+",
            rf"\1{MASK}",
        ),
        (rf"(?i)\b((?:Proxy-)?Authorization\s*[:=]\s*){_SAYS}[^\s\"'][^\r\n\"']*", rf"\1{MASK}"),
        (
            r"(?i)\b(Bearer|Basic)\s+(?!(?:auth\w*|tokens?|credentials?)\b(?![.~+/=-]))[A-Za-z0-9+/_.~=-]{8,}",
            rf"\1 {MASK}",
        ),
        # a docker config: {"auths":{"host":{"auth":"..."}}}
        (r"(\\?[\"']auth\\?[\"']\s*:\s*\\?[\"'])[A-Za-z0-9+/=]{8,}", rf"\1{MASK}"),
        # all of a variable's value, whatever it consists of, if nothing else is in the line or NCCL reports it
        (
            rf"(?i)(^[A-Z0-9_.-]{{0,64}}{_NAME}=|{_NAME}\sset (?:by environment )?to\s)"
            r"(?!\d{1,6}\s*$|\[REDACTED\])[^\r\n]+",
            rf"\1{MASK}",
        ),
        (rf"(?i)((?<![\w.-])--?[A-Z0-9_.-]{{0,48}}{_NAME}[ \t]+)(?!-)[^\s\"']+", rf"\1{MASK}"),
        (r"((?:\blogin\b|\bsshpass\b).{0,80}?\s-p\s*|\bcurl\b.{0,200}?\s(?:-u|--user)\s+[^\s:]+:)\S+", rf"\1{MASK}"),
        # Well-known shapes of keys: AWS ids, GitHub, GitLab, Slack, Hugging Face, NVIDIA NGC, Google, OpenAI-like,
        # Stripe, npm, PyPI, Weights & Biases, JSON web tokens.
        (r"(?:hf_|nvapi-)[A-Za-z0-9_-]{20,}", MASK),  # the pattern also matches after the glued end of a torn line
        (
            r"(?<![A-Za-z0-9_-])(?:(?:AKIA|ASIA|ABIA|ACCA|AROA)[A-Z0-9]{12,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
            r"|glpat-[\w-]{12,}|xox[abeoprs]-[\w-]{8,}|hf_[A-Za-z0-9]{12,}|nvapi-[\w-]{8,}|AIza[\w-]{30,}|ya29\.[\w-]{20,}"
            r"|sk-[\w-]{16,}|(?:sk|pk|rk)[-_](?:[a-z]{1,12}[-_]){0,3}[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}"
            r"|wandb_[\w]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)",
            MASK,
        ),
    )
)
# Base64 of keys: an AWS secret has 40 characters of it, a line of a PEM file 64, an NGC key 84.
_RANDOM = re.compile(r"(?<![\w./+-])[A-Za-z0-9+_-][A-Za-z0-9+/_-]{38,}={0,2}(?![\w./])")
_CAPITAL_INSIDE = re.compile("[a-z][A-Z]")
# A cheap necessary condition of all other patterns: ordinary lines cost one search for each of these words.
_HINTS = (
    "secret|passw|passphrase|credential|token|key|auth|cookie|signature|connection_string|_pat|_pwd|_dsn|_webhook|bearer"
    "|basic |://|login|curl|akia|asia|abia|acca|aroa|ghp_|gho_|ghu_|ghs_|ghr_|glpat|xox|hf_|nvapi|aiza|ya29|sk-|sk_|pk_|rk_"
    "|pk-|rk-|npm_|pypi-|wandb_|eyj|sig=|pwd"
)
_WORDS = _HINTS.split("|")
_HINT = re.compile(_HINTS, re.IGNORECASE)
_SECRETIVE = re.compile(rf"(?:{_NAME}|{_CAMEL})\Z", re.IGNORECASE)


def redact(text: str) -> str:
    """Mask everything in `text` that looks like a credential; the rest, including line breaks, is unchanged."""
    lowered = text.lower()  # other alphabets have letters that match without regard to case
    if any(map(lowered.__contains__, _WORDS)) if text.isascii() else _HINT.search(text):
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        text = _SETTING.sub(_masked, text)
    return _RANDOM.sub(_masked_if_random, text)


def secret_name(name: str) -> bool:
    """Return whether an environment variable or JSON key of this name holds a credential."""
    return _SECRETIVE.search(name) is not None


def environment(env: Mapping[str, str], longest: int = 1024) -> Dict[str, str]:
    """Return the variables with secret-looking values hidden, sorted by name and bounded."""
    return {name: MASK if secret_name(name) else redact(env[name][:longest]) for name in sorted(env)}


def _masked(match: Match[str]) -> str:
    """Mask a value, unless it cannot be a secret of that name.

    max_tokens=512 is a setting, PASSWORD=512 is not; "the registry wants credentials: create a ...", "secret/ngc-token:
    does not exist" and 'volume "ngc-token" : secret not found' are sentences.
    """
    named, quote, value = match.groups()
    said = named.endswith(": ") and not quote
    ahead = _BEFORE.search(match.string, max(0, match.start() - 64), match.start())
    name = (ahead.group() if ahead else "") + named.rstrip("=: \t\"'\\")
    if value.isdigit() and len(value) < 7 and _COUNTED.search(name):
        return match[0]
    if said and (_SAID.fullmatch(value) or named.endswith('" : ')):
        return match[0]
    start = match.start() - len(name) + len(named.rstrip("=: \t\"'\\"))
    before, after = match.string[max(0, start - 40) : start], match.string[match.end() :][:20]
    prose = said and value.isalpha() and value.islower() and _GOES_ON.match(after)
    if prose and (name == "credentials" or _OF_A_KIND.search(before)):
        return match[0]
    return named + quote + MASK


def _masked_if_random(match: Match[str]) -> str:
    """Mask a text with a mix of capitals, lower case and digits unlike a word, path or mangled C++ name.

    A GPU's UUID (GPU-1bc4..) and its product (NVIDIA-RTX-PRO-6000-Blackwell-..) have no capital after a lower-case
    letter.
    """
    text = match.group(0)
    mixed = _CAPITAL_INSIDE.search(text) and any(map(str.isdigit, text))
    return MASK if mixed and not text.startswith("_Z") and text.count("/") <= 4 else text
