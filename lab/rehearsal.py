"""The part of a scenario for rehearsals: the expected faults, their subjects, and the trial's options.

It does not change the world, and the cluster does not expose it: only `--list --json` shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .format import ScenarioError, check

if TYPE_CHECKING:
    from pathlib import Path

# An expected fault and its subjects: a name, a pattern with *, or a list of them. `tells`: texts that its findings must
# contain: a node's name, the id of the cause, ... or a list.
FAULT = {"fault": str, "subject": (str, list), "tells": (str, list)}
RUN: dict[str, Any] = {
    "profile": (str, dict),  # a shipped profile's name, a file next to the scenario, or the profile itself
    "options": list,  # of the trial's command line
}


def read_faults(given: list[Any], where: str) -> dict[str, tuple[str, ...]]:
    """Return the faults in order, each with its subjects; no subjects if none are given."""
    faults: dict[str, tuple[str, ...]] = {}
    for entry in given:
        if isinstance(entry, str):
            faults.setdefault(entry, ())
            continue
        if not isinstance(entry, dict):
            raise ScenarioError(f"{where}: faults must be a list of fault ids, or of maps with fault and subject")
        check(entry, FAULT, f"{where}: faults")
        if "fault" not in entry:
            raise ScenarioError(f"{where}: faults: 'fault' is missing in {entry!r}")
        named = entry.get("subject") or []
        subjects = (named,) if isinstance(named, str) else tuple(map(str, named))
        faults[entry["fault"]] = (*faults.get(entry["fault"], ()), *subjects)
    return faults


def read_words(given: list[Any]) -> dict[str, tuple[str, ...]]:
    """Return the texts that the findings must contain, by fault."""
    by_fault = {}
    for each in given:
        if isinstance(each, dict) and each.get("tells"):
            texts = each["tells"]
            by_fault[each["fault"]] = (texts,) if isinstance(texts, str) else tuple(map(str, texts))
    return by_fault


def read_run(given: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """Return the trial's profile and options; the path of a profile becomes absolute."""
    check(given, RUN, f"{where}: run")
    run = dict(given)
    profile = run.get("profile")
    if isinstance(profile, str) and profile.endswith((".yaml", ".yml")):
        path = (folder / profile).resolve()
        if not path.is_file():
            raise ScenarioError(f"{where}: run: no profile file {profile!r} next to the scenario")
        run["profile"] = str(path)
    for option in run.get("options") or []:
        if not isinstance(option, str) or not option:
            raise ScenarioError(f"{where}: run: options are words of a command line, not {option!r}")
    return run
