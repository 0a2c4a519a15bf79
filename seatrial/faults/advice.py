"""The fault catalogue's part of every report: the entry of a fault, with commands filled in for its subject."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from .catalogue import Fault, catalogue, read_faults
from .variants import fill, named, told_of

QUOTED = ("id", "layer", "title", "meaning", "confirm", "remedy", "source", "failure")


def read_own(check: Path) -> Mapping[str, Fault]:
    """Return the faults of a user's check, test_X.py: those of test_X.faults.yaml next to it, if it exists.

    Raises ValueError, one line, for a file that is not a catalogue or redefines a shipped fault.
    """
    own_file = check.with_suffix(".faults.yaml")
    if not own_file.is_file():
        return {}
    try:
        own = read_faults(own_file)
    except Exception as error:  # a user's file may raise any error
        raise ValueError(f"{own_file}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if known := sorted(own.keys() & FAULTS.keys()):
        raise ValueError(f"{own_file}: {', '.join(known)} is in the catalogue already")
    return own


def explain(
    fault_id: str,
    subject: str = "",
    namespace: str = "",
    own: Mapping[str, Fault] | None = None,
    other_nodes: Sequence[str] = (),
    advice: Mapping[str, str] | None = None,
    *,
    names: Mapping[str, str] | None = None,
    trial: bool = True,
) -> dict[str, str]:
    """Return the catalogue entry as plain texts, its command filled in for the subject of a finding.

    ``own``: entries of the user's checks. ``other_nodes``: for a command that needs more than the subject. ``advice``:
    the confirm and remedy of the fault's variant, which precede those of all its causes. ``names``: the values of POD,
    NODE, IMAGE and JOB. ``trial``: whether the text is about a trial or a user's job.
    """
    fault = FAULTS.get(fault_id) or (own or {}).get(fault_id)
    if fault is None:
        return {
            "id": fault_id,
            "title": fault_id,
            "meaning": "This fault has no entry in the catalogue.",
            "confirm": "",
            "remedy": "",
            "source": "",
            "layer": "",
            "failure": "unknown",
        }
    form = None if own and fault_id in own else trial  # a user's text may contain [[ of a shell
    entry = {key: str(getattr(fault, key)) for key in QUOTED} | {"look": fault.first_look()}
    if entry["confirm"].startswith("seatrial "):  # elsewhere NODE is the node that a log names
        entry["confirm"] = _with_nodes(entry["confirm"], other_nodes)
    for key in ("confirm", "remedy"):
        text = (advice or {}).get(key)  # a message contains its names, quoted: otherwise only the namespace is known
        filled = fill(text or entry[key], "" if text else subject, namespace, trial=form)
        entry[key] = named(filled, names or {})
    for key in ("title", "meaning"):
        entry[key] = told_of(entry[key], trial=form)
    return entry


def _with_nodes(command: str, names: Sequence[str]) -> str:
    """Replace each NODE by a name; with fewer names than places, the list of nodes is shorter."""
    for name in names:
        command = re.sub(r"\bNODE\b", lambda _, name=name: shlex.quote(name), command, count=1)  # type: ignore[misc]
    return re.sub(r"(,NODE)+\b", "", command) if names else command


FAULTS: Mapping[str, Fault] = catalogue()
