"""One UDP query per candidate name, to distinguish NXDOMAIN, SERVFAIL and timeouts.

getaddrinfo reports only "not known" or "try again". This queries the resolvers of resolv.conf as the C library would
(search list and ndots) and reads only the header of the response. It only explains a failure and never provides the
address.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from typing import Any, Dict, List, Optional

from .files import content

ANSWERED = "answered"
# RFC 1035 section 4.1.1 and RFC 6895 section 2.3
_CODES = {1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}
_A, _AAAA = 1, 28
# Order of precedence if candidates differ: the result nearest to the cause first.
_ORDER = ("timeout", "unreachable", "SERVFAIL", "REFUSED", "FORMERR", "NOTIMP", "NODATA", "NXDOMAIN")


class Resolver:
    """The relevant settings of resolv.conf(5)."""

    def __init__(self) -> None:
        self.nameservers: List[str] = []
        self.search: List[str] = []
        self.ndots = 1

    def to_dict(self) -> Dict[str, Any]:
        """Return the evidence's fields."""
        return {"nameservers": self.nameservers, "search": self.search, "ndots": self.ndots}


def read_resolver(path: str = "/etc/resolv.conf") -> Resolver:
    """Read resolv.conf; a missing one means the defaults (a resolver on this host), as for the C library."""
    resolver = Resolver()
    for line in content(path).decode("utf-8", "replace").splitlines():
        fields = line.split("#")[0].split(";")[0].split()
        if len(fields) < 2:
            continue
        if fields[0] == "nameserver" and len(resolver.nameservers) < 3:
            resolver.nameservers.append(fields[1])
        elif fields[0] in ("search", "domain"):
            resolver.search = fields[1:33]
        elif fields[0] == "options":
            for option in fields[1:]:
                key, _, value = option.partition(":")
                if key == "ndots" and value.isdigit():
                    resolver.ndots = min(15, int(value))
    resolver.nameservers = resolver.nameservers or ["127.0.0.1"]
    return resolver


def candidates(name: str, resolver: Resolver) -> List[str]:
    """Return the absolute names that the C library would query, in its order."""
    if name.endswith("."):
        return [name]
    extended = ["%s.%s." % (name, domain.strip(".")) if domain.strip(".") else name + "." for domain in resolver.search]
    first = [name + "."] if name.count(".") >= resolver.ndots else []
    last = [] if first else [name + "."]
    return list(dict.fromkeys(first + extended + last))


def explain(name: str, resolver: Resolver, limit: float, timeout_s: float = 2.0, port: int = 53) -> str:
    """Return "answered" or an error: NXDOMAIN, NODATA, SERVFAIL, REFUSED, timeout, ...; stop at `limit` (monotonic)."""
    reasons = []
    for candidate in candidates(name, resolver):
        if time.monotonic() >= limit:
            break
        reason = _ask_servers(candidate, resolver, min(timeout_s, max(0.05, limit - time.monotonic())), port)
        if reason == ANSWERED:
            return ANSWERED
        reasons.append(reason)
        if reason in ("timeout", "unreachable"):  # the server does not answer: other names would time out, too
            break
    return next((reason for reason in _ORDER if reason in reasons), reasons[0] if reasons else "timeout")


def _ask_servers(name: str, resolver: Resolver, timeout_s: float, port: int) -> str:
    reason = "timeout"
    for server in resolver.nameservers:
        reason = _ask(name, server, timeout_s, port)
        if reason not in ("timeout", "unreachable", "SERVFAIL", "REFUSED"):
            return reason  # the C library queries the next server only after a timeout or a refusal
    return reason


def _ask(name: str, server: str, timeout_s: float, port: int) -> str:
    """Query one server for A, and for AAAA if there is no A."""
    reason = _query(name, _A, server, timeout_s, port)
    return _query(name, _AAAA, server, timeout_s, port) if reason == "NODATA" else reason


def _query(name: str, kind: int, server: str, timeout_s: float, port: int) -> str:
    question = _question(name, kind)
    if question is None:
        return "FORMERR"
    number = random.randrange(1 << 16)  # noqa: S311  (matching an answer to its question, not a secret)
    packet = struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + question
    limit = time.monotonic() + timeout_s
    try:
        with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.connect((server, port))
            line.send(packet)
            while True:
                line.settimeout(max(0.01, limit - time.monotonic()))
                reason = _verdict(line.recv(4096), number)
                if reason is not None:
                    return reason
                if time.monotonic() >= limit:
                    return "timeout"
    except socket.timeout:
        return "timeout"
    except (OSError, ValueError):  # rejected by ICMP, no route, or a nameserver line without an address
        return "unreachable"


def _question(name: str, kind: int) -> Optional[bytes]:
    try:
        labels = [label.encode("idna" if not label.isascii() else "ascii") for label in name.rstrip(".").split(".")]
    except UnicodeError:
        return None
    if any(not 0 < len(label) < 64 for label in labels) or sum(len(label) + 1 for label in labels) > 254:
        return None
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0" + struct.pack(">HH", kind, 1)


def _verdict(answer: bytes, number: int) -> Optional[str]:
    """Read the header of a reply to our query; return None for another query's reply."""
    if len(answer) < 12:
        return None
    echoed, flags, _, answers, _, _ = struct.unpack(">HHHHHH", answer[:12])
    if echoed != number or not flags & 0x8000:
        return None
    code = flags & 0x000F
    if code:
        return _CODES.get(code, "rcode %d" % code)
    return ANSWERED if answers else "NODATA"
