"""The extras of the distribution; `lab` is lab/ in a clone, the distribution seatrial-lab in a released wheel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class LabExtra(MetadataHookInterface):
    """Names where `pip install '.[lab]'` finds the simulated cluster."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the optional dependencies; SEATRIAL_RELEASE (`make wheel`) keeps this machine's paths out of them."""
        folder = Path(self.root) / "lab"
        local = folder.is_dir() and not os.environ.get("SEATRIAL_RELEASE")
        where = f" @ {folder.as_uri()}" if local else f"=={metadata['version']}"
        metadata["optional-dependencies"] = {"lab": [f"seatrial-lab{where}"], "completion": ["shtab>=1.7"]}
