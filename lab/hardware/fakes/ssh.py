"""Fake ssh: it runs one command on another pod, and returns its output and exit code."""

from __future__ import annotations

import argparse
import base64
import os
import re
import sys

from . import remote


def main() -> int:
    """Run a command on another host; 255 for connection errors, with ssh's message."""
    parser = argparse.ArgumentParser(prog="ssh", add_help=False)
    for flag in ("-q", "-n", "-x", "-T", "-t", "-A", "-v", "-4", "-C"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-p", type=int, default=remote.PORT)
    parser.add_argument("-i", default="")
    parser.add_argument("-l", default="")
    parser.add_argument("-o", action="append", default=[])
    parser.add_argument("-F", default="")
    parser.add_argument("host")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    user, _, host = options.host.rpartition("@")
    asked = [re.match(r"ConnectionAttempts[= ](\d+)", each) for each in options.o]
    attempts = next((int(match[1]) for match in asked if match), 1)
    try:
        line = remote.call(
            host,
            [{"id": 0, "shell": " ".join(options.command) or "true"}],
            attempts=attempts,
            port=options.p,
            identity=options.i,
            user=user or options.l or "root",
        )
    except remote.RemoteError as error:
        print(error, file=sys.stderr)
        return 255
    with line:
        for said in remote.lines(line):
            if "refused" in said:
                print(said["refused"], file=sys.stderr)
                return 255
            if "exit" in said:
                return int(said["exit"]) if said["exit"] >= 0 else 128 - int(said["exit"])
            os.write(said["stream"], base64.b64decode(said["data"]))
    print(f"Connection to {host} closed by remote host.", file=sys.stderr)
    return 255
