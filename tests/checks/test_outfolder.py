"""The folder of --out has the reports and logs of one run: files of an earlier run are removed, foreign files stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from checks.framework.outfolder import REPORTS, clear
from jobs.trial.spec import PREFIX

if TYPE_CHECKING:
    from pathlib import Path

OURS = (
    "r1-0-clrf8",
    "k7a49xdg5h-2-1-9tf7z",
    "r1-launcher-bcd24",
    "r1-launcher",
    "r1-worker-0",
    "r1-master-0",
    "r1-node-0-1-xk2vq",
)
FOREIGN = (
    "seatrial-notes.log",
    "seatrial-r1-0-clrf8.log.gz",
    "training-0-clrf8.log",
    "seatrial-r1-0-clrf8.txt",
    "seatrial-run-2.log",
    "README",
)


def test_the_logs_of_an_earlier_run_are_removed_and_nothing_else(tmp_path: Path) -> None:
    """Logs are recognised by the pod names that controllers create; a folder, a link and a user's files stay."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in (*(f"{PREFIX}{each}.log" for each in OURS), *FOREIGN):
        (logs / name).write_text("x")
    (logs / f"{PREFIX}r2-0-clrf8.log").mkdir()
    (logs / f"{PREFIX}r3-0-clrf8.log").symlink_to(logs / "README")
    (tmp_path / REPORTS[0]).write_text("{}")
    clear(tmp_path)
    assert sorted(p.name for p in logs.iterdir()) == sorted(
        [*FOREIGN, f"{PREFIX}r2-0-clrf8.log", f"{PREFIX}r3-0-clrf8.log"]
    )
    assert not (tmp_path / REPORTS[0]).exists()


def test_logs_that_are_somewhere_else_stay(tmp_path: Path) -> None:
    """A link named logs leads to foreign files."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{PREFIX}r1-0-clrf8.log").write_text("x")
    out = tmp_path / "out"
    out.mkdir()
    (out / "logs").symlink_to(elsewhere)
    clear(out)
    assert (elsewhere / f"{PREFIX}r1-0-clrf8.log").exists()


def test_no_folder_is_no_trouble_and_a_file_is_reported(tmp_path: Path) -> None:
    """A missing folder is fine; a file at that path is a usage error."""
    clear(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(pytest.UsageError, match="this is a file"):
        clear(tmp_path / "file")
