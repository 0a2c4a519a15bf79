"""The form of a fault catalogue: YAML files with a layer and its faults, here and in checks/faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An entry of the catalogue; reports and dashboards key on its id.

    ``confirm`` is a command, with placeholders where a finding fills them (checks.faults.catalogue.explain). ``look``
    says where to look first where that is not the layer in which the fault shows. ``severity`` (fatal, degraded, info)
    is the log doctor's: a check's finding has a state of its own, and its fault none.
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

    def first_look(self) -> str:
        """Return the layer in which to look first, with its number."""
        return self.look or f"layer {self.layer}"


def read_faults(path: Path) -> dict[str, Fault]:
    """Return the faults of one catalogue file by id, in its order. Raises TypeError for a key that no fault has."""
    import yaml  # noqa: PLC0415 -- a run that finds nothing reads no catalogue

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast; a PyYAML without libyaml lacks it
    document: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 -- both are safe
    return {
        fault_id: Fault(id=fault_id, layer=document["layer"], **entry) for fault_id, entry in document["faults"].items()
    }
