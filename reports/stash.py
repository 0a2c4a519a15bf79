"""Where a pytest session keeps its record; its own module, since who only reads records does without pytest."""

from __future__ import annotations

import pytest

from .record import Run

RUN = pytest.StashKey[Run]()
"""The record of a session, from the moment the checks begin; the renderers read it there."""
