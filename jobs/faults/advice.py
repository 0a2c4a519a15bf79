"""What every report quotes of the fault catalogue: the entry of a fault, its commands filled in for its subject."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from .catalogue import Fault, read_catalogue, read_faults

QUOTED = ("id", "layer", "title", "meaning", "confirm", "remedy", "source", "failure")


def read_own(check: Path) -> Mapping[str, Fault]:
    """Return the faults of a user's check, test_X.py: those of test_X.faults.yaml beside it, where there is one.

    Raises ValueError, one line, for a file that is no catalogue or that redefines a fault of this one.
    """
    beside = check.with_suffix(".faults.yaml")
    if not beside.is_file():
        return {}
    try:
        own = read_faults(beside)
    except Exception as error:  # a user's file: it may hold anything
        raise ValueError(f"{beside}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if known := sorted(own.keys() & FAULTS.keys()):
        raise ValueError(f"{beside}: {', '.join(known)} is in the catalogue already")
    return own


def explain(
    fault_id: str,
    subject: str = "",
    namespace: str = "",
    own: Mapping[str, Fault] | None = None,
    others: Sequence[str] = (),
) -> dict[str, str]:
    """Return the catalogue entry as plain texts, its command filled in for the subject of a finding.

    ``own``: entries that checks of the user brought; ``others``: nodes for a command that needs more than the subject.
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
    entry = {key: str(getattr(fault, key)) for key in QUOTED} | {"look": fault.first_look()}
    entry["confirm"] = _with_nodes(entry["confirm"], others)
    for key in ("confirm", "remedy"):
        entry[key] = fill(entry[key], subject, namespace)
    return entry


def _with_nodes(command: str, names: Sequence[str]) -> str:
    """Put names in the places of NODE; where there are fewer names than places, the list of nodes is shorter."""
    for name in names:
        command = re.sub(r"\bNODE\b", lambda _, name=name: shlex.quote(name), command, count=1)  # type: ignore[misc]
    return re.sub(r"(,NODE)+\b", "", command) if names else command


def fill(text: str, subject: str = "", namespace: str = "") -> str:
    """Put subject, node, right and namespace into a command; what is not known stays as a word in capitals.

    The values come from the cluster and the command goes into somebody's shell: they are quoted for it.
    A finding's subject starts with the node's name where it is about a node, and goes on with 'rail mlx5_3' where it is
    about one of its rails; a pair reads 'NODE - NODE', a right 'create jobs.batch in ns'.
    """
    parts_of_subject = subject.split()
    rail = subject.partition(" rail ")[2].split(", ")[0]
    values = {
        "{subject}": shlex.quote(subject) if subject else "NAME",
        "{node}": shlex.quote(parts_of_subject[0]) if parts_of_subject else "NODE",
        "{pair}": shlex.quote(",".join(subject.split(" - "))) if subject else "NODE,NODE",
        "{rail}": shlex.quote(rail) if rail else "DEVICE",
        "{right}": right_arguments(subject) or "VERB RESOURCE",
        "{namespace}": shlex.quote(namespace) if namespace else "NAMESPACE",
    }
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def right_arguments(subject: str) -> str:
    """Turn 'get pods/log in ns' into the arguments of kubectl auth can-i: 'get pods --subresource=log -n ns'."""
    right, _, namespace = subject.partition(" in ")
    verb, _, resource = right.partition(" ")
    if not resource:
        return ""
    name, _, sub = resource.partition("/")
    parts = [verb, name, f"--subresource={sub}" if sub else "", f"-n {namespace}" if namespace else ""]
    return " ".join(shlex.quote(w) for p in parts for w in p.split())


FAULTS: Mapping[str, Fault] = read_catalogue()
"""The catalogue, read when this module is first imported; nothing that only lists or collects checks imports it."""
