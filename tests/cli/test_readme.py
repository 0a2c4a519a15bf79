"""The commands of README and docs work as documented: each is run in order, like a new user."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.__main__ import main
from tests.installed import installed
from tests.onsim import Sim
from tests.program import own_pytest, rehearse_here, seatrial
from tests.table import table
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]  # tests/layout/test_contributing.py runs the first
NOT_RUN = {"make": "CI runs it", "python3": "installs", "pip": "installs"}
SHELL = ("sh", "ls", "echo", "kubectl")  # run by a shell, like commands with a pipe; kubectl if installed
OWN_PROCESS = {"--faults", "--lint"}  # the reader loads a user's faults once, before any log
SERVES = ("seatrial", "sim")  # until stopped: tests/lab/world/test_sim_process.py


def commands(page):
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip() and not line.startswith("#")]


def split(command):
    return shlex.split(command, comments=True)


def is_run(command):
    first = split(command)
    return first[0] in ("seatrial", "pytest", *SHELL) and not (tuple(first[:2]) == SERVES and "--list" not in first)


@table("page", PAGES, ids=lambda p: p.name)
def test_every_command_is_either_run_or_left_for_a_stated_reason(page):
    """A documented command that is never run becomes outdated."""
    for command in commands(page):
        assert is_run(command) or split(command)[0] in NOT_RUN or tuple(split(command)[:2]) == SERVES, command


@table("page", LINKED, ids=lambda p: p.name)
def test_every_link_leads_somewhere(page):
    """Relative links of a page exist; the docs' index links to every page."""
    links = {
        link.partition("#")[0] for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert not [link for link in links if link and not (page.parent / link).exists()]
    if page.name == "index.md":
        assert links >= {other.name for other in PAGES[1:] if other != page}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serve the cluster for commands without --cluster."""
    cluster = Sim(ROOT, tmp_path_factory.mktemp("served"), "healthy")
    yield cluster.config
    cluster.close()


@pytest.fixture(scope="module")
def program():
    """Return the program that a shell runs as `seatrial`."""
    with installed() as started:
        yield shlex.join(started)


def in_a_shell(command, folder, env, program):
    """Return the command line for a shell that finds seatrial; None if it needs a missing kubectl."""
    if "kubectl" in command and shutil.which("kubectl") is None:
        return None
    file = folder / "bin" / "seatrial"
    if not file.exists():
        file.parent.mkdir()
        file.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        file.chmod(0o755)
        (folder / "deploy").symlink_to(ROOT / "deploy")
    env["PATH"] = f"{file.parent}:{os.environ['PATH']}"
    return ["sh", "-c", command]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_commands_end_as_the_page_says(page, served, program, tmp_path):
    """'# exit code N' after a command gives its exit code; without it, 0. Files shown on a page are created first."""
    for text in re.findall(r"```(?:yaml|python)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        if name := re.match(r"# (\S+\.(?:yaml|py))\n", text):
            (tmp_path / name[1]).write_text(text)
    env = {**os.environ, "KUBECONFIG": str(served)}
    for command in filter(is_run, commands(page)):
        name, *arguments = split(command)
        expected = int(m[1]) if (m := re.search(r"# exit code (\d+)", command)) else 0
        own = bool(OWN_PROCESS & {name, *arguments})
        if own or name in SHELL or "|" in arguments:
            folder, runs = (tmp_path / "own", f"{sys.executable} -m checks") if own else (tmp_path, program)
            folder.mkdir(exist_ok=True)
            its = {**env, "PYTHONPATH": str(ROOT)} if own else env
            if line := in_a_shell(command, folder, its, runs):
                done = subprocess.run(
                    line, cwd=tmp_path, env=its, text=True, capture_output=True, timeout=HANG_S, check=False
                )
                assert done.returncode == expected, f"$ {command}\n{done.stdout}\n{done.stderr}"
            continue
        arguments = [
            str(ROOT / a) if a.startswith("tests/") or (name == "pytest" and a == "checks") else a for a in arguments
        ]
        if name == "pytest":
            arguments += [f"--rootdir={ROOT}", f"--config-file={ROOT / 'pyproject.toml'}", "-p", "no:cacheprovider"]
        if arguments[0] == "rehearse":
            assert rehearse_here(arguments[1:], cwd=tmp_path, env=env) == expected, f"$ {command}"
            continue
        done = seatrial(*arguments, env=env, cwd=tmp_path, main=own_pytest if name == "pytest" else main)
        assert done.returncode == expected, f"$ {command}\n{done.stdout}\n{done.stderr}"


def untimed(text: str) -> str:
    """Remove the seconds after a check's title, since durations depend on the machine."""
    return re.sub(r"  \d+\.\d+s$", "", text, flags=re.MULTILINE)


@pytest.mark.slow
def test_the_excerpt_is_what_the_program_prints(tmp_path):
    """The README shows a real run: its lines are in the output in this order, contiguous without an ellipsis."""
    excerpt = re.search(r"```text\n(.*?)```", PAGES[0].read_text(encoding="utf-8"), re.DOTALL)[1]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = seatrial("accept", "--cluster", "sim:socket-fallback", "--out", "report", env=env, cwd=tmp_path)
    rest = untimed(done.stdout)
    for part in untimed(excerpt).split("…\n"):
        _, matched, rest = rest.partition(part)
        assert matched, f"no longer printed:\n{part}\nprinted:\n{done.stdout}"
    assert len(excerpt.splitlines()) <= 25


def test_the_exit_codes_of_the_readme_are_those_of_the_program():
    """The table and the code have the same codes."""
    from reports.record import EXIT_CODES

    table = dict(re.findall(r"^\| (\d+) \| \*\*(\S+)\*\*", PAGES[0].read_text(encoding="utf-8"), re.MULTILINE))
    assert {int(code): verdict for code, verdict in table.items()} == {c: str(v) for v, c in EXIT_CODES.items()}
