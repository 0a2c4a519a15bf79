"""The key of the record in a pytest session; a separate module, since readers of records do not need pytest."""

from __future__ import annotations

import pytest

from .record import Run

RUN = pytest.StashKey[Run]()
"""The record of a session, available to the renderers as soon as the checks begin."""
