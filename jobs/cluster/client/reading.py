"""Bounded reading of an HTTP response, and the delay before a retry.

Limits: the size of a body, the length of a line, the time for the whole response, and the pause that a Retry-After may
request. A per-read timeout alone never ends with a server that sends a byte now and then.
"""

from __future__ import annotations

import contextlib
import ipaddress
import random
import re
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlencode, urlsplit

from ..redact import safe
from .errors import Unreachable

# 5,000 nodes in one page are 87 MB, a page of 500 is 9 MB: a larger response is an attack or a mistake.
LARGEST_ANSWER = 256 << 20
# etcd refuses objects above 1.5 MiB by default; a watch line holds one object.
LONGEST_LINE = 16 << 20
LONGEST_PAUSE_S = 20.0
JITTER = random.Random()  # noqa: S311 -- no secret; its own, so that a thread draws no numbers from its program's
_CHUNK = 256 << 10


class CancelToken:
    """A token to end an exchange from another thread: a blocked read cannot be notified otherwise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._raw: Any = None
        self._over = False

    @property
    def is_cut(self) -> bool:
        """Whether our process ended the exchange."""
        return self._over

    def attach(self, raw: Any) -> None:
        """Attach the response that is being read. Raises OSError after `cut`."""
        with self._lock:
            self._raw = raw
            if self._over:
                raise OSError("ended by ourselves")

    def cut(self) -> None:
        """End the exchange in progress and all later ones."""
        with self._lock:
            self._over = True
            raw = self._raw
        # A response that is closed, or not yet open, has no blocked reader. urllib3 has shutdown() since 2.3.
        with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
            if raw is not None:
                raw.shutdown()


def read_all(raw: Any, end: float, where: str) -> bytes:
    """Read a body to its end, within LARGEST_ANSWER bytes and before `end` (monotonic)."""
    parts: list[bytes] = []
    size = 0
    for chunk in chunks(raw, end, where):
        parts.append(chunk)
        size += len(chunk)
        if size > LARGEST_ANSWER:
            raise Unreachable(f"{where}: the answer is larger than {LARGEST_ANSWER >> 20} MiB")
    return b"".join(parts)


def chunks(raw: Any, end: float, where: str) -> Iterator[bytes]:
    """Yield chunks as they arrive, until the end of the body or the deadline."""
    begin = time.monotonic()
    while True:
        # read1 returns after one read from the socket; read(n) would wait for n bytes past the deadline.
        data = raw.read1(_CHUNK)
        if not data:
            return
        yield data
        if time.monotonic() > end:
            raise Unreachable(f"{where}: the answer was not complete after {time.monotonic() - begin:.0f} s")


def lines(raw: Any, end: float, where: str) -> Iterator[bytes]:
    """Yield complete non-empty lines, and an unterminated last one (the caller may fail to parse it)."""
    rest = b""
    for data in chunks(raw, end, where):
        *whole, rest = (rest + data).split(b"\n")
        yield from (line for line in whole if line.strip())
        if len(rest) > LONGEST_LINE:
            raise Unreachable(f"{where}: a line is longer than {LONGEST_LINE >> 20} MiB")
    if rest.strip():
        yield rest


Params: TypeAlias = "Mapping[str, str | int | bool | None]"


def query(params: Params | None) -> str:
    """Encode parameters; booleans as Kubernetes spells them, None and empty text omitted."""
    if not params:
        return ""
    parameters = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in params.items()
        if value is not None and value != ""
    }
    return "?" + urlencode(parameters) if parameters else ""


def pause(attempt: int, retry_after: str) -> float:
    """Return the seconds before the next attempt: the server's value, bounded, or 0.1, 0.2, 0.4 s with jitter."""
    backoff: float = 0.1 * 2 ** (attempt - 1) * JITTER.uniform(0.8, 1.2)
    try:
        asked = float(retry_after)
    except ValueError:
        asked = 0.0
    return min(max(asked, backoff), LONGEST_PAUSE_S) if asked == asked else backoff  # noqa: PLR0124  ("nan" is a float)


def transport(error: BaseException) -> str:
    """Describe an error below HTTP in a few words."""
    kind = type(error).__name__
    text = str(error)
    for shape, meaning in (
        (r"CERTIFICATE_VERIFY_FAILED.*?: ([^\"')(]+)", r"TLS: the server's certificate is not accepted: \1"),
        (r"WRONG_VERSION_NUMBER|HTTP_REQUEST|RECORD_LAYER", "TLS: the server does not support it (http, not https?)"),
        (r"Connection refused", "connection refused: nothing listens there"),
        (
            r"Name or service not known|nodename nor servname|Temporary failure in name resolution|getaddrinfo",
            "the host name cannot be resolved",
        ),
        (r"No route to host", "no route to host"),
        (r"Network is unreachable", "network is unreachable"),
        (r"Connection reset", "connection reset by the server"),
        (r"(?i)connect(?:ion)? .*timed out|ConnectTimeout", "no connection in time"),
        (r"(?i)timed out", "no answer in time"),
        (r"IncompleteRead", "the answer ended early"),
        (r"(?i)remote end closed|Connection aborted|closed connection without", "the server closed the connection"),
    ):
        if match := re.search(shape, text):
            return safe(match.expand(meaning), 300)
    return safe(f"{kind}: {text}", 300)


def warning(header: str) -> str:
    """Extract the text of a `Warning: 299 - "text"` header (RFC 7234, as API servers send it)."""
    match = re.match(r'\s*\d{3} \S+ "(.*)"', header)
    return safe(match.group(1).replace('\\"', '"') if match else header, 500)


def is_loopback(server: str) -> bool:
    """Return whether the server runs on this machine."""
    host = (urlsplit(server).hostname or "").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
