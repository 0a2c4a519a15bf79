"""The profile loader: YAML, read strictly into frozen records.

Rule: an unknown key, a value of the wrong type or an impossible number is rejected with its path and the nearest valid
word. A silently ignored threshold would be a check that passes without observing anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.listing import nearest
from jobs.trial.names import SpecError
from seatrial.faults.catalogue import OwnFaultsError
from seatrial.faults.own import read

from .errors import Problem, ProfileError
from .lint import Objection, objections
from .profile import Profile
from .schema import Floor
from .trial import spec_of
from .yaml_schema import Document, Size, build, lines_of, read_yaml

__all__ = ["Floor", "Profile", "ProfileError", "Size", "load_profile", "problems", "profile_names"]

SHIPPED = Path(__file__).resolve().parent


def profile_names() -> tuple[str, ...]:
    """Return the names of the shipped profiles, sorted."""
    return tuple(sorted(p.stem for p in SHIPPED.glob("*.yaml") if not p.stem.startswith("_")))


def load_profile(ref: str) -> Profile:
    """Read a shipped profile by name, or a file by path. Raises ProfileError (one line)."""
    path = _locate(ref, Path.cwd())
    profile = _read(path)
    for found in _found(profile):
        if found.fatal:  # no cluster could be judged by it; `seatrial profile lint` also reports warnings
            raise ProfileError(str(found), found.path, path.name)
    return profile


def problems(ref: str) -> list[Problem]:
    """Return all errors of a profile, in line order; errors of this file itself omit the file name."""
    try:
        path = _locate(ref, Path.cwd())
    except ProfileError as error:
        return list(error.problems)
    try:
        wrong = [Problem(str(found), found.path, path.name) for found in _found(_read(path))]
    except ProfileError as error:
        wrong = list(error.problems)
    *lines, extends = lines_of(path, [*(each.path for each in wrong), "extends"])
    own = [
        replace(p, text=p.text if line or not (p.path and extends) else f"inherited: {p.text}", file="", line=line)
        for p, line in zip(wrong, lines, strict=True)
        if p.file == path.name
    ]
    own.sort(key=lambda each: each.line or math.inf)
    return [each for each in wrong if each.file != path.name] + own


def without_gpus(ref: str | None) -> bool:
    """Return whether a profile is for CPUs only; other functions report errors of the profile."""
    try:
        return bool(ref) and load_profile(ref or "").gpu.none
    except ProfileError:
        return False


def _read(path: Path) -> Profile:
    """Read a file and its bases. Raises ProfileError with all errors."""
    document = _inherit(path, ())
    document.setdefault("name", path.stem)
    try:
        profile: Profile = build(Profile, document, "")
    except ProfileError as error:
        raise ProfileError.of(error.problems, path.name) from error
    return profile


def _found(profile: Profile) -> Iterator[Objection]:
    """Yield the linter's errors, then errors of the Kubernetes objects, then those of the user's own faults."""
    yield from objections(profile)
    if profile.faults:
        try:
            read(Path(profile.faults))
        except OwnFaultsError as error:
            yield from (Objection(path="faults", text=line, fatal=True) for line in str(error).splitlines())
    try:
        spec_of(profile, run_id="lint", namespace="lint")
    except SpecError as error:
        yield Objection(path="", text=str(error), fatal=True)


def _locate(ref: str, folder: Path) -> Path:
    """Find the file of a profile: a path as given (relative to ``folder``), else the name of a shipped profile."""
    if "/" in ref or ref.endswith((".yaml", ".yml")):
        path = folder / ref
        if path.is_dir():
            raise ProfileError(f"profile {ref!r} is a directory; a YAML file is expected")
        if not path.is_file():
            raise ProfileError(f"profile file {ref!r} does not exist")
        return path
    path = SHIPPED / f"{ref}.yaml"
    if not ref or not path.is_file() or (ref.startswith("_") and folder != SHIPPED):
        raise ProfileError(f"unknown profile {ref!r}{nearest(ref, profile_names())}")
    return path


def _inherit(path: Path, trail: tuple[Path, ...]) -> Document:
    """Read a file and merge it over its base: mappings are merged, null removes, other values replace."""
    path = path.resolve()
    if path in trail:
        circle = " -> ".join(p.name for p in (*trail, path))
        raise ProfileError(f"circular extends: {circle}", "extends", trail[0].name)
    own = read_yaml(path)
    if own.get("faults") and isinstance(own["faults"], str):
        own["faults"] = str(path.parent / own["faults"])
    parent = own.pop("extends", None)
    if parent is None:
        return own
    if not isinstance(parent, str):
        raise ProfileError(f"extends must be the name of a profile or a file, not {parent!r}", "extends", path.name)
    try:
        source = _locate(parent, path.parent)
    except ProfileError as error:
        raise ProfileError(f"extends: {error}", "extends", path.name) from error
    inherited = _inherit(source, (*trail, path))
    for key in ("name", "title"):
        inherited.pop(key, None)
    merged = _merge(inherited, own)
    if "floors" not in own and _gpus(merged) != _gpus(inherited):
        # Floors measured with another number of GPUs per node do not apply: NVLink SHARP and the NICs in use differ.
        merged.pop("floors", None)
    return merged


def _gpus(document: Document) -> Any:
    gpu = document.get("gpu")
    return gpu.get("per_node") if isinstance(gpu, dict) else None


def _merge(below: Document, above: Document) -> Document:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if value is None and key in below:
            del merged[key]
            continue
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
