"""The form of a fault catalogue: YAML files with a layer and its faults, here and in checks/faults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INFRASTRUCTURE, PROGRAM, UNKNOWN = "infrastructure", "program", "unknown"
"""Failure classes: what the cluster gives, what the job brings (code, image, environment), and neither or not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One of several causes that a fault may have; ``confirm`` is the command that tells it from the others.

    ``when`` names what must not be known to be otherwise (jobs.nccl.diagnosis.ranking: roce, ib, running, ...).
    """

    cause: str
    confirm: str
    when: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An entry of the catalogue; reports and dashboards key on its id.

    ``confirm`` is a command, with placeholders where a finding fills them (checks.faults.catalogue.explain). ``look``
    says where to look first where that is not the layer in which the fault shows. ``severity`` (fatal, degraded, info)
    is the log analyzer's: a check's finding has a state of its own, its fault none. ``failure`` is its failure class.
    ``alternatives`` are the causes that it may have, in the order in which the field meets them.
    """

    id: str
    layer: str
    title: str
    meaning: str
    confirm: str
    remedy: str
    source: str
    look: str = ""
    severity: str = ""
    failure: str = INFRASTRUCTURE
    alternatives: tuple[Alternative, ...] = ()

    def first_look(self) -> str:
        """Return the layer in which to look first, with its number."""
        return self.look or f"layer {self.layer}"


def read_faults(path: Path) -> dict[str, Fault]:
    """Return the faults of one catalogue file by id, in its order. Raises TypeError for a key that no fault has."""
    return _faults(path.read_text(encoding="utf-8"))


def _faults(text: str) -> dict[str, Fault]:
    import yaml  # noqa: PLC0415 -- a run that finds nothing reads no catalogue

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast; a PyYAML without libyaml lacks it
    document: dict[str, Any] = yaml.load(text, Loader=loader)  # noqa: S506 -- both are safe
    faults = {}
    for fault_id, entry in document["faults"].items():
        alternatives = tuple(Alternative(**each) for each in entry.pop("alternatives", ()))
        faults[fault_id] = Fault(id=fault_id, layer=document["layer"], alternatives=alternatives, **entry)
    return faults


class Catalogue(Mapping[str, Fault]):
    """The faults of a large catalogue file by id, in its order: a run that finds one reads that entry, not all."""

    def __init__(self, path: Path) -> None:
        self._text = path.read_text(encoding="utf-8")
        self._head, *entries = re.split(r"(?m)^(?=  [^\s#:]+:$)", self._text)
        self._texts = {entry.partition(":")[0].strip(): entry for entry in entries}
        self._known: dict[str, Fault] = {}

    def __getitem__(self, fault_id: str) -> Fault:
        if fault_id not in self._known:
            self._known |= _faults(self._head + self._texts[fault_id])
        return self._known[fault_id]

    def read(self) -> dict[str, Fault]:
        """Return all of them, read at once."""
        return _faults(self._text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def failure_class(classes: Iterable[str]) -> str | None:
    """Return the class of a failure of which these are its faults' classes; None where they tell none.

    One cause in the cluster is enough to repair that first: a program is accused only where nothing else is at fault.
    """
    known = set(classes)
    return next((each for each in (INFRASTRUCTURE, PROGRAM) if each in known), None)
