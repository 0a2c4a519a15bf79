"""CONTRIBUTING.md, executed in a copy of the repository: its files are written, its commands run, in order."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PYTHON = ".venv/bin/python"
BLOCK = re.compile(r"```(sh|python|yaml)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"# ([\w./-]+)(, at its end)?\n")


@pytest.fixture
def copy(tmp_path):
    """Copy the repository without built or downloaded files."""
    left_out = shutil.ignore_patterns(".git", ".venv*", ".real", "dist", "report", "__pycache__", ".*_cache")
    return Path(shutil.copytree(ROOT, tmp_path / "clone", ignore=left_out, symlinks=True))


def test_every_block_is_a_file_or_commands():
    """Any other block would not be tested; CI runs the `make` targets."""
    for kind, text in BLOCK.findall(PAGE):
        if kind == "sh":
            assert all(line.startswith((f"{PYTHON} -m ", "make ", "printf ")) for line in text.splitlines()), text
        else:
            assert FILE.match(text), text


@pytest.mark.slow
def test_whoever_follows_the_page_adds_a_check_a_fault_a_scenario_and_a_symptom(copy):
    """A command without '# exit code N' after it ends with 0."""
    env = {**os.environ, "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    for kind, text in BLOCK.findall(PAGE):
        if kind != "sh":
            name, appended = FILE.match(text).groups()
            assert (copy / name).exists() == bool(appended), name
            with (copy / name).open("a", encoding="utf-8") as file:
                file.write(text.partition("\n")[2])
            continue
        for command in text.splitlines():
            if command.startswith("make "):
                continue
            expected = int(m[1]) if (m := re.search(r"# exit code (\d+)", command)) else 0
            line = command.replace(PYTHON, shlex.quote(sys.executable))
            done = subprocess.run(
                ["sh", "-c", line], cwd=copy, env=env, capture_output=True, text=True, timeout=HANG_S, check=False
            )
            assert done.returncode == expected, f"$ {command}\n{done.stdout}\n{done.stderr}"
            assert "no tests ran" not in done.stdout, command
