"""Mutated API objects cause no exception and no wrong green; benchmarks/api_fuzz.py tries a hundred thousand."""

import pytest

from checks.profiles.loader import load_profile
from tests.jobs.apifuzz import Tally, campaign, green, lab_objects, preflight, worlds


@pytest.fixture(scope="module")
def objects():
    return lab_objects()


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_objects_end_in_an_answer_or_in_none(objects, seed):
    """The result is green, red, or not a Kubernetes API; it is never an exception, and never good by a value of another
    type."""
    tally = campaign(objects, 150, seed)
    assert tally.trouble == []
    assert any(key.endswith("no answer") for key in tally.ended) and any(key.endswith("red") for key in tally.ended)


def test_the_fuzz_can_find_something(objects):
    """An exception is trouble; the fault in each world is found, and the healthy world is green."""
    tally = Tally()
    tally.note("x", 0, lambda: str(1 // 0))
    assert "ZeroDivisionError" in tally.trouble[0]
    healthy, *broken = (green(preflight(world.objects, load_profile("h100-ib"))) for world in worlds(objects))
    assert healthy and not any(broken) and len(broken) == 5
