"""A healthy cluster is go at the first attempt, repeatedly, without leftovers and within the permissions."""

from __future__ import annotations

import pytest


@pytest.mark.usefixtures("pods")
@pytest.mark.parametrize("again", range(5))
def test_healthy_is_go_at_the_first_attempt(bench, again):
    outcome = bench.run()
    assert outcome.verdict == "go", outcome.text
    assert outcome.code == 0
    assert not outcome.faults
    assert bench.left() == []
    assert bench.refused() == []
