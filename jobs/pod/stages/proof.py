"""Proof that both ends of a connection know the token of a run, without sending it: HMAC-SHA256 over a nonce."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any


def nonce() -> str:
    """Return a fresh random number as text."""
    return secrets.token_hex(16)


def code(token: str, role: str, challenge: str, about: str) -> str:
    """Return the answer to a challenge that requires the token; `role` keeps answers from being sent back."""
    return hmac.new(token.encode(), ("%s\n%s\n%s" % (role, challenge, about)).encode(), hashlib.sha256).hexdigest()


def same(given: Any, expected: str) -> bool:
    """Compare in constant time."""
    return isinstance(given, str) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
