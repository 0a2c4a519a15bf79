"""A user's own faults: a file gives an organisation's messages a title and a remedy, without Python code.

The file has the catalogue's form: `faults:`, each with title, meaning, confirm and remedy, and `lines:` by which a log
shows it (seatrial.faults.lines), each with an example. The defaults are fatal, infrastructure, layer 11.

`explain --faults` names such files, and a profile (`faults:`); the pods of a trial get the lines with their reader.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from ..logs.reader.own_symptoms import LINES
from .catalogue import (
    INFRASTRUCTURE,
    PROGRAM,
    UNKNOWN,
    Fault,
    OwnFaultsError,
    catalogue,
    fault_catalogue,
    fault_of,
    load,
)
from .lines import Line, in_order

LAYER = "11 NCCL"
ID = re.compile(r"[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+")
SEVERITIES = ("fatal", "degraded", "info")
ROLES = ("cause", "why", "degraded")
MOST_BYTES = 64 * 1024
"""The bound of the lines in pods: a ConfigMap holds 1 MiB, the probe takes 320 KB, a resumed sweep's history 350 KB."""
_MOST_OF_A_FILE = 1_000_000
_NO_OPERATOR = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_POSSESSIVE = re.compile(r"[*+?}]\+")
"""New in Python 3.11, and images have older ones; the reader itself rejects atomic groups."""


def use(*places: Path) -> tuple[int, int]:
    """Add the faults of files, or of the *.yaml of folders, before any log is read.

    If a line of the catalogue matches a text, too, it takes precedence: a user's file hides no fault. Returns the
    number of faults and of lines. Raises OwnFaultsError.
    """
    faults, lines = read(*places)
    place = ", ".join(map(str, places))
    if "seatrial.logs.reader.events.symptoms" in sys.modules:
        raise RuntimeError("the symptoms are loaded already: load your own before any log is read")
    LINES.extend(json.loads(line.compiled()) for line in lines)
    try:
        from ..logs.reader.events.symptoms import classify  # noqa: PLC0415 -- it takes in LINES
    except ValueError as error:
        said = "a pattern needs a constant word of some letters"
        raise OwnFaultsError(f"{place}: {error}; {said}") from error
    fault_catalogue().add(faults)
    catalogue().add(faults)
    wrong = []
    for line in lines:
        shown = [(text, classify(text.encode())) for text in line.example]
        wrong += [f"{line.fault}: no line shows it in its example {text[:80]!r}" for text, found in shown if not found]
        wrong += [
            f"{line.fault}: its example {text[:80]!r} is a line of {found.fault or 'no fault'}"
            for text, found in shown
            if found and found.fault != line.fault
        ]
        missed = ((text, classify(text.encode())) for text in line.near_miss)
        wrong += [
            f"{line.fault}: its near miss {text[:80]!r} is a line of it"
            for text, found in missed
            if found and found.fault == line.fault
        ]
    if wrong:
        raise OwnFaultsError("\n".join(wrong))
    return len(faults), len(lines)


def digest(place: Path) -> str:
    """Return a fingerprint of the files' content, independent of their location."""
    contents = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in _files(place))
    return "sha256:" + hashlib.sha256("\n".join(contents).encode()).hexdigest()


def _files(place: Path) -> list[Path]:
    paths = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
    if not paths:
        raise OwnFaultsError(f"{place}: no *.yaml is in it")
    return paths


def read(*places: Path) -> tuple[dict[str, Fault], list[Line]]:
    """Return the faults, and their lines in the order of matching. Raises OwnFaultsError.

    `use` later verifies with the reader that each example shows its fault.
    """
    paths = list(dict.fromkeys(path.resolve() for place in places for path in _files(place)))
    faults: dict[str, Fault] = {}
    lines: list[Line] = []
    wrong: list[str] = []
    for path in paths:
        try:
            document = load(_text(path))
            entries = dict(document["faults"])
        except Exception as error:  # noqa: BLE001 -- a user's file: it may hold anything
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"
            wrong.append(f"{path}: no catalogue: {said[:300]}")
            continue
        if not entries:
            wrong.append(f"{path}: no fault is in it")
        for name, entry in entries.items():
            try:
                fault, its = _entry(str(name), entry, str(document.get("layer") or LAYER), path)
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                wrong.append(f"{path}: {name}: {' '.join(str(error).split())[:300]}")
                continue
            if name in catalogue() or name in faults:
                wrong.append(f"{path}: {name}: is in the catalogue already")
            faults[str(name)] = fault
            lines += its
    if wrong:
        raise OwnFaultsError("\n".join(wrong))
    size = sum(len(line.compiled()) for line in lines)
    if size > MOST_BYTES:
        raise OwnFaultsError(f"{paths[0]}: its lines are {size} bytes for each pod, more than {MOST_BYTES}")
    try:
        return faults, in_order(lines)
    except ValueError as error:
        raise OwnFaultsError(f"{paths[0]}: {error}") from error


def _text(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(_MOST_OF_A_FILE + 1)
    if len(raw) > _MOST_OF_A_FILE:
        raise ValueError(f"more than {_MOST_OF_A_FILE} bytes")
    return raw.decode()


def _entry(name: str, entry: dict[str, Any], layer: str, path: Path) -> tuple[Fault, list[Line]]:
    if not ID.fullmatch(name):
        raise ValueError("an id is OURS.WHAT, of small letters, digits and hyphens")
    given = dict(entry)
    lines = [Line.of(name, each) for each in given.pop("lines", ())]
    missing = [key for key in ("title", "meaning", "confirm", "remedy") if not given.get(key)]
    if missing or not lines:
        raise ValueError(f"{', '.join(missing or ['lines'])} must be there")
    fault = fault_of(name, layer, {"source": path.name, "severity": "fatal", **given})
    for key, value, known in (
        ("severity", fault.severity, SEVERITIES),
        ("failure", fault.failure, (INFRASTRUCTURE, PROGRAM, UNKNOWN)),
        *(("role", line.role, ROLES) for line in lines),
    ):
        if value not in known:
            raise ValueError(f"{key} is {value!r}, not one of {', '.join(known)}")
    for line in lines:
        if not line.pattern or not line.example:
            raise ValueError("a line needs a pattern and an example")
        for pattern in line.pattern:
            try:
                re.compile(pattern.encode())
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
            if _POSSESSIVE.search(_NO_OPERATOR.sub("x", pattern)):
                raise ValueError(f"{pattern!r}: the Python of an image may know no possessive *+, ++, ?+ or }}+")
    return fault, lines
