"""The paths between the GPUs of a node: the number of channels of each, and unexpected ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .job_document import IntraNode

_GOOD = {"p2p": ("p2p", "mnnvl"), "shm": ("p2p", "mnnvl", "shm")}
"""The accepted paths for a profile's path: a faster path than expected is not a fault."""


def channels_by_path(paths: IntraNode) -> dict[str, int]:
    """Return how many channels use each path; unused paths are left out."""
    counts = {"p2p": paths["p2p"], "shm": paths["shm"], "mnnvl": paths["mnnvl"], "net": paths["net"]}
    return {path: count for path, count in counts.items() if count > 0}


def wrong_paths(used: Collection[str], expected: str) -> list[str]:
    """Return the paths in use that are slower than the profile's expected one (p2p, shm)."""
    return [path for path in used if path not in _GOOD[expected]]
