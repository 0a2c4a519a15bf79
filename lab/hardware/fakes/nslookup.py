"""Fake nslookup of busybox: prints the address of a name, or that it does not exist."""

from __future__ import annotations

import socket
import sys


def main() -> int:
    """Look up one name."""
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    if not names:
        print("Usage: nslookup HOST", file=sys.stderr)
        return 1
    try:
        address = socket.gethostbyname(names[0])
    except OSError:
        print(f"** server can't find {names[0]}: NXDOMAIN")
        return 1
    print(f"Name:\t{names[0]}\nAddress: {address}")
    return 0
