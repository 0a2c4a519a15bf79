"""`seatrial checks --requirements` as a user types it: the map of a list, a run compared with it, and mistakes."""

import json

import pytest

from cli.__main__ import main

LIST = """\
title: Ours
source: annex B
requirements:
  - {id: NET-4, title: All is RDMA, checks: [nccl.transport]}
  - {id: NET-5, title: GPUDirect, checks: [nccl.gdr]}
"""


@pytest.fixture
def ours(tmp_path):
    path = tmp_path / "ours.yaml"
    path.write_text(LIST)
    return path


def run(tmp_path, **outcomes):
    """Write a record of these checks."""
    checks = [{"id": f"nccl.{name}", "outcome": outcome, "findings": []} for name, outcome in outcomes.items()]
    verdict = "no-go" if "failed" in outcomes.values() else "go"
    content = {"schema": 1, "run_id": "r", "verdict": verdict, "scope": "full", "collectives": {}, "checks": checks}
    (tmp_path / "report.json").write_text(json.dumps(content))
    return tmp_path


def test_without_a_record_the_map_is_printed(capsys, ours):
    """Each line has a requirement and its checks; exit code 0."""
    assert main(["checks", "--requirements", str(ours)]) == 0
    assert "nccl.transport" in next(line for line in capsys.readouterr().out.splitlines() if "NET-4" in line)


@pytest.mark.parametrize(
    ("outcomes", "code", "states"),
    [
        ({"transport": "passed", "gdr": "passed"}, 0, ["met", "met"]),
        ({"transport": "passed", "gdr": "skipped"}, 10, ["met", "not tested"]),
        ({"transport": "failed"}, 1, ["not met", "not tested"]),
    ],
)
def test_a_run_is_held_against_the_list(tmp_path, ours, capsys, outcomes, code, states):
    """The exit code is the list's; a run's directory is accepted as its record."""
    assert main(["checks", "--requirements", str(ours), str(run(tmp_path, **outcomes)), "--format", "csv"]) == code
    assert [line.split(",")[2] for line in capsys.readouterr().out.splitlines() if line.startswith("NET")] == states


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LIST.replace("nccl.gdr", "nccl.gdrr"), "did you mean nccl.gdr"),
        (LIST.replace("NET-5", "NET-4"), "NET-4 twice"),
        (LIST.replace("title: GPUDirect", "titel: GPUDirect"), "did you mean title"),
        (LIST.replace("[nccl.gdr]", "[nccl.gdr, nccl.gdr]"), "nccl.gdr twice"),
        ("title: Ours\nsource: x\nrequirements: []\n", "must not be empty"),
        ("- 1\n", "a mapping"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(tmp_path, ours, capsys, text, said):
    """The refusal is one line with exit code 4, because a missing check would never be tested."""
    ours.write_text(text)
    assert main(["checks", "--requirements", str(ours)]) == 4
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_other_mistakes_are_one_line(tmp_path, ours, capsys):
    """An unknown list, no record, two records or an unknown format is refused with exit code 4."""
    for arguments, said in (
        (["cncf-ai-1.36"], "cncf-ai-1.3"),
        ([str(ours), str(tmp_path / "gone")], "gone"),
        ([str(ours), "a", "b"], "one record"),
        ([str(ours), "--format", "csv"], "name it"),
        ([str(tmp_path / "none.yaml")], "none.yaml"),
    ):
        assert main(["checks", "--requirements", *arguments]) == 4
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1, error
