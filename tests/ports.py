"""Ports for concurrent tests."""

import secrets
import socket
from pathlib import Path

LOCAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The kernel's range for ports of outgoing connections, and for port 0."""


def free_port() -> int:
    """Return a port without a listener on any address; no other program gets it by chance before it is used."""
    first = int(LOCAL.read_text().split()[0]) if LOCAL.exists() else 0
    while True:
        port = secrets.choice(range(10_000, first if first > 20_000 else 32_768))
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
