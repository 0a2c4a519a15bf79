"""NVIDIA's Xids, the error reports of its driver, as data: the one table of their numbers.

xid.csv holds of each its meaning, the action that NVIDIA's catalogue asks for (none, restart app, reset GPU, reboot,
or workflow: a flow of its own), whether a program usually brings it about itself, and the faults that a check and the
log analyzer name it by. Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html ("Immediate
Action", Ampere to Blackwell; as of November 2026).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Xid(NamedTuple):
    """One Xid; ``check`` and ``log`` name faults, '' where it is none."""

    code: int
    meaning: str
    action: str
    program: bool
    check: str
    log: str


@cache
def xids() -> Mapping[int, Xid]:
    """Return the table by number."""
    with Path(__file__).with_name("xid.csv").open(encoding="utf-8", newline="") as table:
        rows = [
            Xid(int(row["code"]), row["meaning"], row["action"], row["program"] == "yes", row["check"], row["log"])
            for row in csv.DictReader(table)
        ]
    return {row.code: row for row in rows}
