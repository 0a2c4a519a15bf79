"""The digest of a profile: its requirements, without its name or path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from checks.profiles.loader import Profile, load_profile, profile_names

if TYPE_CHECKING:
    from pathlib import Path


def digest(folder: Path, text: str, name: str = "mine.yaml") -> str:
    """Return the digest of a profile file."""
    (folder / name).write_text(text)
    return load_profile(str(folder / name)).digest


@pytest.mark.parametrize(
    "edit",
    [
        "gpu: {per_node: 4}",
        "required: [rights.run]",
        "bench: {iters: 3}",
        "nodes: 4",
        "tenant: true",
        "floors: []",
        "fabric: {gdr: false}",
    ],
)
def test_every_demand_changes_it(edit: str, tmp_path: Path) -> None:
    """An edited profile with the same name has a different digest."""
    assert digest(tmp_path, f"extends: h100-ib\n{edit}\n") != load_profile("h100-ib").digest


@pytest.mark.parametrize("edit", ["name: other", "title: Ours", "nodes: 2", "# a comment", "kubernetes_min: '1.28'"])
def test_names_comments_and_what_is_the_default_do_not(edit: str, tmp_path: Path) -> None:
    """The requirements are the same in a different notation."""
    assert digest(tmp_path, f"extends: h100-ib\n{edit}\n") == load_profile("h100-ib").digest


def test_shipped_profiles_differ_and_none_has_none() -> None:
    """Each profile has a digest, and a run without a profile has none."""
    digests = {load_profile(name).digest for name in profile_names()}
    assert len(digests) == len(profile_names())
    assert all(each.startswith("sha256:") for each in digests)
    assert Profile().digest == ""
