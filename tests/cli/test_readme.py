"""README's commands do what it says: each is run, in order, as a new user would."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.S)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.strip() and not line.startswith("#")]
RUN = [c for c in COMMANDS if shlex.split(c, comments=True)[0] in ("seatrial", "pytest")]
NOT_RUN = {"make": "the tests of make are CI's", "git": "needs a network", "pip": "installs", "kubectl": "needs kubectl"}


def test_every_command_is_either_run_here_or_left_for_a_stated_reason():
    """A README that shows a command nobody runs goes stale."""
    for command in COMMANDS:
        first = shlex.split(command, comments=True)[0]
        assert command in RUN or first in NOT_RUN, f"nobody runs: {command}"
    assert len(RUN) >= 6


@pytest.mark.slow
def test_the_commands_of_the_readme_end_as_it_says(tmp_path):
    """A comment '# exit code N' states the exit code; without one it is 0. Commands of a real cluster meet a served one."""
    kubeconfig = tmp_path / "kubeconfig"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig)}
    serve = [sys.executable, "-m", "sim", "healthy", "--write-kubeconfig", str(kubeconfig), "--json",
             "--until-stdin-closes"]
    with subprocess.Popen(serve, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout.readline()
            for command in RUN:
                words = shlex.split(command, comments=True)
                expected = int(m[1]) if (m := re.search(r"# exit code (\d+)", command)) else 0
                module = {"seatrial": "checks", "pytest": "pytest"}[words[0]]
                if words[:2] == ["seatrial", "sim"] and "--list" not in words:
                    continue  # serves until it is stopped: tests/sim
                arguments = [w if not w.startswith("checks") or module == "checks" else str(ROOT / w) for w in words[1:]]
                if module == "pytest":
                    arguments += [f"--rootdir={ROOT}", f"--config-file={ROOT / 'pyproject.toml'}", "-p", "no:cacheprovider"]
                arguments = [str(ROOT / a) if a.startswith("tests/") else a for a in arguments]
                done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=tmp_path, env=env, text=True,
                                      capture_output=True, timeout=120, check=False)
                assert done.returncode == expected, f"$ {command}\n{done.stdout}\n{done.stderr}"
        finally:
            served.stdin.close()
