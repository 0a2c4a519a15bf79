"""What the tests of whole clusters share."""

from __future__ import annotations

import pytest

from lab.node import dns


@pytest.fixture
def nothing_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cluster's DNS forget its answers: a pod that asks for a name early is denied it for 5 s otherwise."""
    monkeypatch.setattr(dns, "CACHE_S", 0)
