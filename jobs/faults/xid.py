"""NVIDIA's Xids, the error reports of its driver, as data: the one table of their numbers.

xid.csv holds of each its meaning, the action that NVIDIA's catalogue asks for at once (none; restart app; reset GPU;
reboot, of a virtual machine, too; or workflow: a flow, a look at the board or an update of its own), whether a program
usually brings it about itself, and the faults that a check and the log analyzer name it by. Its first line names the
source. The check names those after which a GPU is reset or a node rebooted, and 48 and 74, as the flow says
where they come again. The numbers that the catalogue calls unused are left out.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Xid(NamedTuple):
    """One Xid; ``check`` and ``log`` name faults, '' without one."""

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
            for row in csv.DictReader(line for line in table if not line.startswith("#"))
        ]
    return {row.code: row for row in rows}
