"""`seatrial accept --nodes NEW --partner GOOD`: a fault is attributed to the upgraded node only after a pass of two
good nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.canary import pair


@pytest.mark.parametrize(
    ("new", "good", "control", "trial"),
    [
        (["c"], ["a", "b"], ("a", "b"), ("c", "a")),
        (["c"], ["a", "b", "c"], ("a", "b"), ("c", "a")),  # the upgraded node is not its own partner
        (["c"], ["a"], (), ("c", "a")),
        (["c"], [], (), ()),
        (["c"], ["c"], (), ()),
        ([], ["a", "b"], (), ()),
    ],
)
def test_who_is_paired(new: list[str], good: list[str], control: tuple[str, ...], trial: tuple[str, ...]) -> None:
    """A pair of good nodes comes first, then the new one with a good one; impossible pairs are reported."""
    pairing = pair(new, good, 2)
    assert (pairing.control, pairing.trial) == (control, trial)
    assert bool(pairing.why) == (not control)


def scenario(folder: Path, broken: str) -> str:
    """Return three nodes, of which the third is upgraded; one of them has lost GPUDirect."""
    labels = {f"gpu-node-{n}": {"metadata": {"labels": {"driver": "new" if n == 2 else "old"}}} for n in range(3)}
    made = {
        "name": "canary",
        "title": "A canary",
        "breaks": "GPUDirect",
        "faults": [],
        "outcome": "no-go",
        "world": {"nodes": 3, "node": labels, "hardware": {broken: {"rdma": {"gdr": False}}} if broken else {}},
    }
    path = folder / "canary.yaml"
    path.write_text(json.dumps(made))
    return str(path)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize(
    ("broken", "code", "said"), [("", 0, ""), ("gpu-node-2", 1, ""), ("gpu-node-0", 10, "gpu-node-2 was not tried")]
)
def test_only_the_upgraded_node_is_judged(
    broken: str, code: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A broken new node is no-go, a broken known-good node is inconclusive, and healthy nodes are go."""
    out = tmp_path / "out"
    arguments = ["--cluster", f"sim:{scenario(tmp_path, broken)}", "--nodes", "driver=new", "--partner", "driver=old"]
    assert main(["accept", *arguments, "--out", str(out)]) == code
    assert said in capfd.readouterr().out
    control: dict[str, Any] = json.loads((out / "control" / "report.json").read_text())
    assert set(control["trial"]["hosts"].values()) == {"gpu-node-0", "gpu-node-1"}
    if code != 10:
        record = json.loads((out / "report.json").read_text())
        assert set(record["trial"]["hosts"].values()) == {"gpu-node-2", "gpu-node-0"}


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
def test_an_upgraded_node_that_lost_a_gpu_is_worse_and_not_busy(tmp_path: Path) -> None:
    """A broken node without room for the trial is no-go, while the good ones pass."""
    path = Path(scenario(tmp_path, ""))
    made = json.loads(path.read_text())
    made["world"]["node"]["gpu-node-2"]["status"] = {"allocatable": {"nvidia.com/gpu": "7"}}
    path.write_text(json.dumps(made))
    out = tmp_path / "out"
    arguments = ["--cluster", f"sim:{path}", "--nodes", "driver=new", "--partner", "driver=old", "--out", str(out)]
    assert main(["accept", *arguments]) == 1
    assert json.loads((out / "control" / "report.json").read_text())["verdict"] == "go"
    checks = json.loads((out / "report.json").read_text())["checks"]
    bad = [f["subject"] for check in checks if check["outcome"] == "failed" for f in check["findings"] if not f["ok"]]
    assert bad == ["gpu-node-2"]


@pytest.mark.parametrize(
    "message", [["--partner", "a=b"], ["--partner=a=b", "--nodes", "c=d", "--cluster", "sim:nobody"]]
)
def test_a_partner_without_a_node_under_test_is_refused(message: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal is one line with exit code 4."""
    try:
        code = main(["accept", *message])
    except SystemExit as error:
        code = int(error.code or 0)
    assert code == 4
    assert len(capsys.readouterr().err.splitlines()) == 1
