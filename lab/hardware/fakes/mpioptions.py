"""Common options of Open MPI 4, with one dash or two, and the host file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from . import mpitexts

SLOTS, HOSTFILE = "OMPI_MCA_orte_set_default_slots", "OMPI_MCA_orte_default_hostfile"
SWITCHES = {
    "allow-run-as-root": "allow_root",
    "oversubscribe": "oversubscribe",
    "tag-output": "tag",
    "merge-stderr-to-stdout": "merge",
}

# Options that have no effect here: option -> number of its values.
IGNORED = {
    "bind-to": 1,
    "rank-by": 1,
    "prefix": 1,
    "timeout": 1,
    "output-filename": 1,
    "tune": 1,
    "am": 1,
    "path": 1,
    "report-bindings": 0,
    "display-map": 0,
    "display-allocation": 0,
    "timestamp-output": 0,
    "v": 0,
    "q": 0,
    "quiet": 0,
    "verbose": 0,
    "mca-verbose": 0,
    "nooversubscribe": 0,
    "debug-daemons": 0,
    "bynode": 0,
    "disable-recovery": 0,
    "enable-recovery": 0,
    "bind-to-none": 0,
    "bind-to-core": 0,
}

MCA = ("mca", "gmca", "omca", "pmixmca", "prtemca")


class MpiUsageError(Exception):
    """An option that mpirun cannot process; str() is the text between its rules."""


@dataclass(slots=True)
class MpiOptions:
    """The parsed options."""

    command: list[str] = field(default_factory=list)
    count: int = 0
    per_node: int = 0
    hostfile: str = ""
    hosts: list[str] = field(default_factory=list)
    exported: dict[str, str] = field(default_factory=dict)
    mca: list[tuple[str, str]] = field(default_factory=list)
    folder: str = ""
    allow_root: bool = False
    oversubscribe: bool = False
    tag: bool = False
    merge: bool = False


def parse(arguments: list[str]) -> MpiOptions:
    """Parse the options up to the program; MpiUsageError."""
    options = MpiOptions()
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name = rest.pop(0).lstrip("-")
        if not name:
            break
        name, equals, value = name.partition("=")
        if equals:
            rest.insert(0, value)
        _option(options, name, rest)
    if not rest:
        raise MpiUsageError(mpitexts.NOTHING)
    options.command = rest
    return options


def _option(options: MpiOptions, name: str, rest: list[str]) -> None:
    arity = IGNORED.get(name, 0 if name in SWITCHES else 2 if name in MCA else 1)
    if len(rest) < arity:
        raise MpiUsageError(f'Error: option "--{name}" did not have enough parameters')
    values = [rest.pop(0) for _ in range(arity)]
    if name in SWITCHES:
        setattr(options, SWITCHES[name], True)
    elif name in MCA:
        options.mca.append((values[0], values[1]))
    elif name not in IGNORED:
        _valued(options, name, values[0])


def _valued(options: MpiOptions, name: str, value: str) -> None:
    if name in ("np", "n", "c"):
        options.count = _number(name, value)
    elif name in ("N", "npernode"):
        options.per_node = _number(name, value)
    elif name in ("hostfile", "machinefile", "default-hostfile"):
        options.hostfile = value
    elif name in ("H", "host"):
        options.hosts += value.split(",")
    elif name == "x":
        variable, equals, given = value.partition("=")
        if equals or variable in os.environ:
            options.exported[variable] = given if equals else os.environ[variable]
    elif name == "map-by":
        match = re.fullmatch(r"ppr:(\d+):node(?::.*)?", value)
        options.per_node = int(match[1]) if match else options.per_node
    elif name in ("wdir", "wd"):
        options.folder = value
    else:
        raise MpiUsageError(f"mpirun: Error: unknown option \"-{name}\"\nType 'mpirun --help' for usage.")


def _number(name: str, text: str) -> int:
    if not text.isdigit():
        raise MpiUsageError(f'Error: option "{name}" wants a number, not "{text}"')
    return int(text)


def hosts_of(options: MpiOptions) -> list[tuple[str, int]]:
    """Return the hosts with their slots: from --host, else from the host file, else this host; MpiUsageError."""
    default = int(os.environ.get(SLOTS) or 1)
    slots_of: dict[str, int] = {}
    for each in options.hosts:
        name, _, slots = each.partition(":")
        slots_of[name] = slots_of.get(name, 0) + (int(slots) if slots.isdigit() else 1)
    path = options.hostfile or ("" if slots_of else os.environ.get(HOSTFILE, ""))
    if not path:
        return list(slots_of.items()) or [("localhost", len(os.sched_getaffinity(0)))]
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        raise MpiUsageError(
            f"Open RTE was unable to open the hostfile:\n    {path}\nCheck to make sure the path and "
            "filename are correct."
        ) from None
    for row in text.splitlines():
        fields = row.split("#")[0].split()
        if fields:
            slots = next((word.partition("=")[2] for word in fields[1:] if word.startswith("slots=")), "")
            if not options.hosts or fields[0] in slots_of:
                slots_of[fields[0]] = int(slots) if slots.isdigit() else default
    if not slots_of:
        raise MpiUsageError(f"The hostfile {path} names no host.")
    return list(slots_of.items())
