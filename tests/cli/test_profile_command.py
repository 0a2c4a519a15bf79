"""`seatrial profile` as a user types it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from checks.__main__ import main
from checks.profile import load_profile

if TYPE_CHECKING:
    from pathlib import Path


def test_lint_objects_to_a_blind_floor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sound profile is 0; one that would notice nothing is 1 and says why; one that is not YAML is told in a line."""
    floor = {"collective": "all_reduce", "algorithm": "ring", "nodes": 2, "size": "8G", "busbw_gbps": 100,
             "topology": "t", "source": "s"}  # fmt: skip
    blind = tmp_path / "blind.yaml"
    blind.write_text(yaml.safe_dump({"extends": "h100-ib", "floors": [floor]}))
    broken = tmp_path / "broken.yaml"
    broken.write_text("{")
    assert main(["profile", "lint"]) == 0
    capsys.readouterr()
    assert main(["profile", "lint", "h100-ib", str(blind), str(broken)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "h100-ib: sound"
    assert "is blind" in said[1]
    assert "broken.yaml" in said[2]
    assert len(said) == 3


def test_detect_proposes_a_profile_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What detect prints is a profile that can be used as it stands."""
    assert main(["profile", "detect", "--cluster", "sim:healthy"]) == 0
    file = tmp_path / "mine.yaml"
    file.write_text(capsys.readouterr().out)
    assert load_profile(str(file)).gpu.per_node == 8


def test_detect_says_why_it_cannot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without a GPU node there is nothing to propose; a wrong word is a usage error in one line."""
    assert main(["profile", "detect", "--cluster", "sim:cpu-only"]) == 10
    assert "has a GPU" in capsys.readouterr().err
    for wrong in (["--cluster", "kind"], ["--cluster", "sim:helthy"], ["--kubeconfig", str(tmp_path / "none")]):
        assert main(["profile", "detect", *wrong]) == 4
        assert len(capsys.readouterr().err.splitlines()) == 1


def record(**changes: Any) -> dict[str, Any]:
    """A record as --out writes it, as far as capture reads it."""
    side = {"busbw_gbps": 380.0}
    table = {"collective": "all_reduce", "rows": [{"size_bytes": 8 << 30, "out_of_place": side, "in_place": side}]}
    jobs = {"ring": {"nodes": 2, "ranks": 16, "inter_node_transport": "ib", "tables": [table]}}
    return {"schema": 1, "verdict": "go", "scope": "full", "run_id": "abc", "started": "2026-01-02T03:04:05+00:00", "checks": [],
            "profile": "h100-ib", "simulated": False, "collectives": jobs, **changes}  # fmt: skip


def test_capture_makes_a_profile_of_an_accepted_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The baseline extends the run's profile and replaces its floors by what was measured."""
    (tmp_path / "report.json").write_text(json.dumps(record()))
    assert main(["profile", "capture", str(tmp_path), "--slack", "5"]) == 0
    file = tmp_path / "baseline.yaml"
    file.write_text(capsys.readouterr().out)
    (floor,) = load_profile(str(file)).floors
    assert floor.busbw_gbps == 361.0


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (json.dumps(record(simulated=True)), []),
        (json.dumps(record(verdict="no-go")), []),
        (json.dumps(record(profile=None)), []),
        (json.dumps(record()), ["--slack", "100"]),
        (json.dumps(record()), ["--extends", "nobody"]),
        ("[1]", []),
        ("{}", []),
        ("[" * 100_000, []),
        ("", []),
        (None, []),
    ],
)
def test_capture_refuses_what_is_no_accepted_run(
    text: str | None, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 4: a baseline must not come from anything else."""
    if text is not None:
        (tmp_path / "report.json").write_text(text)
    assert main(["profile", "capture", str(tmp_path / "report.json"), *arguments]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1
