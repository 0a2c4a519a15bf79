"""The profile loader: YAML, read strictly into frozen records.

Rule: a word that is not known, a value of the wrong type or a number that cannot be true is refused with its path
and the nearest right word. A threshold that was silently ignored would be a check that passes without looking.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.listing import nearest
from jobs.trial.names import SpecError

from .errors import ProfileError
from .lint import objections
from .profile import Profile
from .schema import Floor
from .trial import spec_of
from .yaml_schema import Document, Size, build, read_yaml

__all__ = ["Floor", "Profile", "ProfileError", "Size", "load_profile", "profile_names"]

SHIPPED = Path(__file__).resolve().parent


def profile_names() -> tuple[str, ...]:
    """Return the names of the shipped profiles, sorted."""
    return tuple(sorted(p.stem for p in SHIPPED.glob("*.yaml") if not p.stem.startswith("_")))


def load_profile(ref: str) -> Profile:
    """Read a shipped profile by name, or a file by path. Raises ProfileError (one line)."""
    path = _locate(ref, Path.cwd())
    document = _inherit(path, ())
    document.setdefault("name", path.stem)
    try:
        profile: Profile = build(Profile, document, "")
        _refuse(profile)
        spec_of(profile, run_id="lint", namespace="lint")  # what Kubernetes would refuse is refused here
    except (ProfileError, SpecError) as error:
        raise ProfileError(f"{path.name}: {error}") from error
    return profile


def _refuse(profile: Profile) -> None:
    """Refuse what no cluster could be judged by; `seatrial profile lint` tells the lesser objections, too."""
    if wrong := next((o for o in objections(profile) if o.fatal), None):
        raise ProfileError(str(wrong))


def _locate(ref: str, folder: Path) -> Path:
    """Find the file of a profile: a path as given (relative to ``folder``), else the name of a shipped one."""
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
    """Read a file and put it over the one it extends: mappings are merged, null takes away, all else is replaced."""
    path = path.resolve()
    if path in trail:
        circle = " -> ".join(p.name for p in (*trail, path))
        raise ProfileError(f"{trail[0].name}: profiles extend each other: {circle}")
    own = read_yaml(path)
    parent = own.pop("extends", None)
    if parent is None:
        return own
    if not isinstance(parent, str):
        raise ProfileError(f"{path.name}: extends must be the name of a profile or a file, not {parent!r}")
    try:
        source = _locate(parent, path.parent)
    except ProfileError as error:
        raise ProfileError(f"{path.name}: extends: {error}") from error
    inherited = _inherit(source, (*trail, path))
    for key in ("name", "title"):
        inherited.pop(key, None)
    merged = _merge(inherited, own)
    if "floors" not in own and _gpus(merged) != _gpus(inherited):
        # Measured with another number of GPUs a node: NVLink SHARP and the NICs that take part are others.
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
