"""Two simultaneous faults on two of eight nodes are never go. ``benchmarks/fault_pairs.py`` tries hundreds."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import fault_pairs
from tests.program import seatrial

if TYPE_CHECKING:
    import subprocess


def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """Fork the process that it would start."""
    return seatrial(*command[command.index("checks") + 1 :])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("preflight", 1), ("mixed", 2), ("trial", 3)])
def test_two_faults_at_once_are_never_go(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run reports both faults, or one that hides the other; the program's exit code is 1 for go and for neither."""
    monkeypatch.setattr(fault_pairs, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr(sys, "argv", ["fault_pairs.py", "--pairs", "2", "--kind", kind, "--seed", str(seed)])
    code, said = fault_pairs.main(), capsys.readouterr().out
    assert code == 0, said
    lines = said.splitlines()[1:-1]
    assert [line.split()[0] in ("both", "one") for line in lines] == [True, True], said
    if kind != "trial":  # a preflight finding hides no fault of another node
        assert all(line.startswith("both") for line in lines), said
