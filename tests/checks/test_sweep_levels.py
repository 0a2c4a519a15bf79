"""A sweep compares its measured levels with published ones."""

from dataclasses import replace

import pytest

from checks.profiles.loader import Profile, load_profile
from checks.rules.levels import level_findings, level_notes
from tests.checks.sweeps import printed, swept

pytestmark = pytest.mark.usefixtures("few_references")


def levels(profile, models, speed=380.0, alone=480.0):
    sweep = swept(*printed(4, lambda _: speed, alone=lambda _: alone))
    return dict(text.split(": ", 1) for text in level_notes(sweep, profile, models))


def test_each_level_is_shown_with_what_is_published():
    """In a uniformly slow fleet every node reaches the fleet's level."""
    profile = load_profile("h100-ib")
    said = levels(profile, ["NVIDIA-H100-80GB-HBM3"] * 4)
    assert "480 GB/s at 8G is 100% of the 479.7 GB/s that are published for 1 x 8 H100" in said["level alone"]
    assert "published" in said["level in a leaf"]
    assert "48 GB/s at 8G is 10% of" in levels(profile, ["NVIDIA-H100-80GB-HBM3"] * 4, alone=48.0)["level alone"]
    slow = levels(profile, ["NVIDIA-H100-80GB-HBM3"] * 4, speed=100.0)
    assert "100 GB/s at 1G is 39% of" in slow["level in a leaf"]


def test_gpus_of_several_models_or_none_are_no_hardware_to_compare_with():
    assert levels(load_profile("h100-ib"), ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"]) == {}
    assert levels(Profile(), ["", ""]) == {}
    assert "H100" in levels(load_profile("h100-ib"), [])["level alone"]


@pytest.mark.parametrize(("speed", "ok"), [(380.0, True), (140.0, True), (60.0, None)])
def test_pairs_that_agree_with_each_other_may_all_be_slow(speed, ok):
    """sweep.level: below half of the reference the verdict is never go, whatever the profile's floor; a healthy level
    has no finding."""
    sweep = swept(*printed(4, lambda _: speed))
    (level,) = level_findings(sweep, load_profile("h100-ib"), ["NVIDIA-H100-80GB-HBM3"] * 4)
    assert (level.ok, level.fault) == (ok, "" if ok else "sweep.level")
    assert "GB/s" in level.observed
    assert not list(level_findings(sweep, Profile(), [""]))


def test_without_a_floor_the_limit_is_that_of_a_log():
    sweep = swept(*printed(4, lambda _: 140.0))
    sweep = replace(sweep, section={**sweep.section, "rules": {**sweep.section["rules"], "pair_floor": None}})
    (level,) = level_findings(sweep, load_profile("h100-ib"), ["NVIDIA-H100-80GB-HBM3"] * 4)
    assert (level.ok, level.fault) == (None, "sweep.level")
