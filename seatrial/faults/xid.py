"""NVIDIA's Xids, the error reports of its driver, as data: one table of their numbers.

xid.csv holds for each its meaning, the immediate action of NVIDIA's catalogue, whether a program usually causes it, and
the faults that the check and the log analyzer report for it. The actions are none; restart app; reset GPU; reboot, also
of a virtual machine; and workflow: its own flow, an inspection of the board or an update. Its first line names the
source. The check reports those that require a GPU reset or a reboot, and 48 and 74 as the flow asks for repeated ones.
Numbers that the catalogue calls unused are left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .actions import Action, heaviest

_ACTIONS = {
    "none": Action.NONE,
    "restart app": Action.RESTART_APP,
    "reset GPU": Action.RESET_GPU,
    "reboot": Action.REBOOT_NODE,
    "workflow": Action.UNKNOWN,  # its flow asks for more than the number does
}
XID = re.compile(r"\b(?:Xid|XID)\b(?:\s*\([^)]*\))?[:\s]*(\d{1,3})\b")


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


def action_of(number: object) -> Action:
    """Return an Xid's action; UNKNOWN for a number that the table lacks, and for any other value."""
    known = xids().get(number) if isinstance(number, int) else None
    return Action.UNKNOWN if known is None else _ACTIONS[known.action]


def action_of_fault(fault: str, text: str) -> Action | None:
    """Return the heaviest action of the Xids in a log's lines by which a fault is named; None without one."""
    numbers = {int(number) for number in XID.findall(text)}
    return heaviest(action_of(number) for number in numbers if number in xids() and xids()[number].log == fault)


def action_in(text: str) -> Action | None:
    """Return the heaviest action of the Xids in a text; None if it names none."""
    return heaviest(action_of(int(number)) for number in XID.findall(text))
