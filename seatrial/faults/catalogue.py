"""The catalogue of faults: *.yaml holds those of checks, logs/*.yaml those of the log analyzer.

Rule: a test fails if a check can raise a fault that the catalogue lacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from .actions import Action, heaviest, weight
from .variants import Detail, Variant, fill, told_of

FOLDER = Path(__file__).resolve().parent
INFRASTRUCTURE, PROGRAM, UNKNOWN = "infrastructure", "program", "unknown"
"""Failure classes: the cluster's part, the job's part (code, image, environment), and neither or unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One of several possible causes of a fault; ``confirm`` is the command that distinguishes it from the others.

    ``when`` names conditions that the log must not contradict (seatrial.logs.diagnosis.ranking: roce, ib, running,
    ...). ``said`` is a regular expression of a line that the cause requires (seatrial.logs.diagnosis.usual_causes).
    """

    cause: str
    confirm: str
    when: str = ""
    said: str = ""


_UPGRADE = "run once with a later NCCL (LD_PRELOAD=.../libnccl.so.2, or pip install -U nvidia-nccl-cu12)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """A defect of NCCL versions that explains a fault: from ``since`` on, fixed in ``before`` if it was fixed.

    ``says`` is a regular expression that a line of the fault matches, ``gpus`` one of the GPUs that have it.
    """

    since: str
    cause: str
    before: str = ""
    says: str = ""
    gpus: str = ""
    confirm: str = _UPGRADE


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An entry of the catalogue; reports and dashboards key on its id.

    ``confirm`` is a command, with placeholders that a finding fills (seatrial.faults.advice.explain). ``look`` is the
    place to look first, if that is not the layer in which the fault shows. ``failure`` is its failure class.
    ``severity`` is the log analyzer's, since a check's finding has its own state. It is fatal (the job cannot run, or
    its results are wrong), degraded (it runs, but not at the hardware's performance), or info (a limit of the
    judgement). ``alternatives`` are its possible causes, the most common first, and ``variants`` those that a line
    shows.

    The log analyzer weighs a line of a fault by these fields:

    - ``stage``: the phase of the job in which it occurs: start (it prevents a process from starting; if NCCL has
      come up and no program died, the line is another process's), store (printed before NCCL's first line, and
      retried in another way), connect (to a peer) or running.
    - ``blame``: own (a rank fails by itself, not because a peer ended), kernel (the same, reported by the kernel or a
      launcher for a process without a last message), peer (the end of another rank or NIC as seen from elsewhere), last
      (about a peer that is gone, or possibly recovered: any other cause comes first), warning (torch warns of it and
      mostly recovers), suspect (not a fault by itself, but a cause in a failed job).
    - ``scope``: hosts (it mentions another host) or host (it happens inside one).
    - ``deadly``: a process cannot continue after it, even if the log shows nothing further.
    - ``recovers``: a link that broke during a transfer; NCCL may have moved to another port.
    - ``described``: its finding already names the waiting ranks, the missing part or the pair, and its alternatives
      name the rest.
    - ``defects``: those of NCCL versions that explain it.

    A check's fault with ``nothing_after`` may leave the verdict open, but no later check can judge anything. Examples:
    the profile or the chosen nodes are not this cluster's, GPUs are offered twice or in use, the program failed by
    itself. ``aftermath`` marks the leftovers of an interruption in the next attempt.

    A fault of a node or GPU may have an ``action`` (seatrial.faults.actions), with its ``action_source``; ``actions``
    has others, each with the text of an observation that requires it.
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
    stage: str = ""
    blame: str = ""
    scope: str = ""
    deadly: bool = False
    recovers: bool = False
    described: bool = False
    nothing_after: bool = False
    aftermath: bool = False
    action: str = ""
    actions: Mapping[str, str] = field(default_factory=dict)
    action_source: str = ""
    failure: str = INFRASTRUCTURE
    alternatives: tuple[Alternative, ...] = ()
    defects: tuple[Defect, ...] = ()
    variants: tuple[Variant, ...] = ()

    def first_look(self) -> str:
        """Return the layer in which to look first, with its number."""
        return self.look or f"layer {self.layer}"

    def action_for(self, observed: str) -> str:
        """Return the heaviest action for the node with this observation of the fault; '' without any."""
        return str(heaviest(action for text, action in self.actions.items() if text in observed) or self.action)


_LINES = re.compile(r"(?m)^    lines:\n(?:      .*\n)+|^lines:\n(?:  .*\n)+")
"""The part that the reader of logs already has (seatrial.faults.lines), not needed for the meaning of a fault."""


class OwnFaultsError(ValueError):
    """A user's file of faults is invalid: one line for each reason."""


class Catalogue(Mapping[str, Fault]):
    """The faults of catalogue files by id, in order; a run that finds one reads only that entry."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._texts: dict[str, tuple[str, str]] = {}  # the line with the layer, and the entry
        self._known: dict[str, Fault] = {}
        for path in paths:
            text = _LINES.sub("", path.read_text(encoding="utf-8"))
            head, *entries = re.split(r"(?m)^(?=  [^\s#:]+:$)", text)
            self._texts |= {entry.partition(":")[0].strip(): (head, entry) for entry in entries}

    def __getitem__(self, fault_id: str) -> Fault:
        if fault_id not in self._known:
            self._known |= _faults("".join(self._texts[fault_id]))
        return self._known[fault_id]

    def said_by(self, who: str) -> Iterator[tuple[str, Variant]]:
        """Yield the variants of one component's messages, each with its fault; other entries are not read."""
        for name, (_, entry) in self._texts.items():
            if f" who: {who}\n" in entry:
                yield from ((name, each) for each in self[name].variants if each.who == who)

    def is_so(self, fault_id: str, what: str) -> bool:
        """Return whether a fault has the property ``what`` in its entry; False for an unknown fault."""
        return fault_id in self._texts and bool(getattr(self[fault_id], what))

    def add(self, faults: Mapping[str, Fault]) -> None:
        """Add a user's faults at the end."""
        self._known |= faults
        self._texts |= dict.fromkeys(faults, ("", ""))

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def read_faults(path: Path) -> dict[str, Fault]:
    """Return the faults of one catalogue file by id, in file order. Raises TypeError for an unknown key."""
    return _faults(_LINES.sub("", path.read_text(encoding="utf-8")))


@cache
def catalogue() -> Catalogue:
    """Return the whole catalogue as id -> fault, in an operator's order of inspection; the log's faults last."""
    own = sorted((int(path.read_text(encoding="utf-8").split(maxsplit=2)[1]), path) for path in FOLDER.glob("*.yaml"))
    return Catalogue([*(path for _, path in own), *sorted(FOLDER.glob("logs/*.yaml"))])


@cache
def fault_catalogue() -> Catalogue:
    """Return the faults of NCCL's logs by id, each read on first use (needs PyYAML)."""
    return Catalogue(sorted(FOLDER.glob("logs/*.yaml")))


WEIGHTS = ("stage", "blame", "scope", "deadly", "recovers", "described")
WEIGHED = FOLDER / "weights.json"
"""The WEIGHTS of each fault with any, from `python -m seatrial.faults`, so that no log needs the whole catalogue."""


@cache
def having(weight: str, value: str | bool = True) -> frozenset[str]:
    """Return the faults of NCCL's logs with this property in their entry."""
    return frozenset(fault for fault, weights in _weights().items() if weights.get(weight) == value)


@cache
def _weights() -> dict[str, dict[str, str | bool]]:
    weights: dict[str, dict[str, str | bool]] = json.loads(WEIGHED.read_text(encoding="utf-8"))
    return weights


def weighed() -> str:
    """Return the content of WEIGHED, a line for each fault."""
    specified = {
        name: {key: value for key in WEIGHTS if (value := getattr(fault, key))}
        for name, fault in sorted(fault_catalogue().items())
    }
    lines = [f"{json.dumps(name)}: {json.dumps(weights)}" for name, weights in specified.items() if weights]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def formed(fault: str, text: str) -> Detail | None:
    """Return the details of a fault's line by the first matching expression; None without one."""
    return _likened(next((said for each in _variants(fault) if (said := each.of_form(text)) is not None), None), text)


def worded(fault: str, text: str) -> Detail | None:
    """Return the details of a fault's line by the first of its words; None without any."""
    return _likened(next((said for each in _variants(fault) if (said := each.of_words(text)) is not None), None), text)


def read_text(who: str, text: str) -> Detail | None:
    """Return the fault (as ``why``) that a text of one component shows, and its details."""
    for fault, each in _said_by(who):
        if (said := each.of_form(text)) is not None and said.variant is not None:
            failure = each.failure or catalogue()[fault].failure
            return Detail(fault, said.cause, replace(said.variant, failure=failure))
    return None


@cache
def _said_by(who: str) -> tuple[tuple[str, Variant], ...]:
    """Return the variants of one component's texts in the order in which they are tried."""
    found = list(catalogue().said_by(who))
    for each in [each for each in found if each[1].before]:
        found.remove(each)
        found.insert(next(n for n, (fault, _) in enumerate(found) if fault == each[1].before), each)
    return tuple(found)


def _likened(said: Detail | None, text: str) -> Detail | None:
    """Return the details of a text that a variant refers to other entries for: the last entry's, if none has more."""
    if said is None or said.variant is None or not said.variant.like:
        return said
    specified = ((name, found) for name in said.variant.like if (found := formed(name, text)) is not None)
    name, found = next(specified, (said.variant.like[-1], Detail()))
    entry, own = catalogue()[name], found.variant or said.variant
    advice = replace(
        own,
        confirm=fill(own.confirm or entry.confirm, trial=False),
        remedy=fill(own.remedy or entry.remedy, trial=False),
        failure=said.variant.failure or own.failure or entry.failure,
    )
    return Detail(found.why, found.cause or told_of(entry.meaning, trial=False).rstrip("."), advice)


def _variants(fault: str) -> tuple[Variant, ...]:
    return catalogue()[fault].variants if fault in catalogue() else ()


def failure_class(classes: Iterable[str]) -> str | None:
    """Return the class of a failure with these classes of faults; None if they show none.

    One cause in the cluster is enough for 'infrastructure': a program is at fault only if nothing else is.
    """
    known = set(classes)
    return next((each for each in (INFRASTRUCTURE, PROGRAM) if each in known), None)


def load(text: str) -> dict[str, Any]:
    """Return a catalogue file as data."""
    import yaml  # noqa: PLC0415 -- a run that finds nothing reads no catalogue

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast; a PyYAML without libyaml lacks it
    document: dict[str, Any] = yaml.load(text, Loader=loader)  # noqa: S506 -- both are safe
    return document


def _faults(text: str) -> dict[str, Fault]:
    document = load(text)
    return {name: fault_of(name, document["layer"], entry) for name, entry in document["faults"].items()}


def fault_of(name: str, layer: str, entry: Mapping[str, Any]) -> Fault:
    """Return the fault of an entry. Raises TypeError for an unknown key, ValueError for an invalid action."""
    causes: dict[str, Any] = {
        "alternatives": tuple(Alternative(**each) for each in entry.get("alternatives", ())),
        "defects": tuple(Defect(**each) for each in entry.get("defects", ())),
        "variants": tuple(Variant.of(each) for each in entry.get("variants", ())),
    }
    fault = Fault(**{"id": name, "layer": layer, **entry, **causes})
    actions = [fault.action, *fault.actions.values()] if fault.action or fault.actions else []
    if wrong := [each for each in actions if weight(each) < 0]:
        raise ValueError(f"action is {wrong[0]!r}, not one of {', '.join(Action)}")
    if actions and fault.failure == PROGRAM:
        raise ValueError("a fault of the program has no action for a node")
    return fault
