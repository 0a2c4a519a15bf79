"""The workflows of CI and of a release, and the action for other repositories: valid, pinned, least-privilege."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.installed import installed

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
USED = re.compile(r"uses: (?:&\w+ )?([\w./-]+)@(\S+)(?: # (v[\d.]+))?")
PUSHES = {"id-token", "attestations", "packages", "contents"}


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / "deploy/gates/github-actions.yaml"], ids=lambda p: p.name)
def test_actionlint_finds_nothing(path: Path) -> None:
    """actionlint checks syntax, expressions, inputs of actions, permissions, needs, and the shell scripts."""
    actionlint = shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("needs actionlint: python -m tests.real_cluster.programs actionlint builds it")
    argv = [actionlint, "-no-color", "-ignore", 'label "gpu-cluster" is unknown', str(path)]  # a user's runner label
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda p: p.name)
def test_an_action_is_pinned_by_commit_or_named_as_one_that_is_not(path: Path) -> None:
    """A tag can be moved to code that would then run in the release."""
    text = path.read_text(encoding="utf-8")
    for action, pin, version in USED.findall(text.partition("name: ")[2]):
        if re.fullmatch("[0-9a-f]{40}", pin):
            assert version, f"{action}: the version of the commit is missing"
        else:
            assert f"# {action} is pinned by a tag" in text, action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_a_workflow_may_read_and_a_job_that_pushes_says_what_it_writes(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        written = {scope for scope, may in job.get("permissions", {}).items() if may == "write"}
        assert written <= (PUSHES if path.name == "release.yml" else set()), name
        assert "timeout-minutes" in job or "uses" in job, name
        checkouts = [step for step in job.get("steps", []) if "actions/checkout" in step.get("uses", "")]
        assert all(step["with"] == {"persist-credentials": False} for step in checkouts), name


def test_only_the_last_job_of_a_release_writes_to_the_repository() -> None:
    jobs = read(ROOT / ".github/workflows/release.yml")["jobs"]
    assert [name for name, job in jobs.items() if job.get("permissions", {}).get("contents") == "write"] == ["publish"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish", "ci"}
    assert all(job.get("needs") for name, job in jobs.items() if name != "ci"), "nothing is built before CI passed"


def test_ci_tests_each_python_that_the_classifiers_name() -> None:
    tested = read(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    for project in ROOT, ROOT / "lab":
        about = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        named = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in about["classifiers"]]
        assert [each[1] for each in named if each] == tested
    run = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert all(version in run for version in tested[1:]), "and so does .ci/run"


def test_what_a_workflow_makes_is_a_target() -> None:
    made = {word for path in WORKFLOWS for word in re.findall(r"\bmake ([\w./-]+)", path.read_text(encoding="utf-8"))}
    assert made >= {"lint", "test", "test-slow", "demo", "test-real", "wheel"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(VENV)", ".venv")
    assert [word for word in made if f"\n{word}:" not in makefile] == []


def test_one_version_is_released() -> None:
    """The tag is compared with the three version strings."""
    versions = {
        tomllib.loads((ROOT / at / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
        for at in (".", "lab")
    }
    chart = read(ROOT / "deploy/helm/seatrial/Chart.yaml")
    assert versions == {chart["version"]} == {chart["appVersion"]}


@pytest.fixture
def step(tmp_path: Path):
    """Run a step of action.yml like a runner, with the `seatrial` installed by the first step."""
    steps = {each.get("name"): each for each in read(ROOT / "action.yml")["runs"]["steps"]}
    program = tmp_path / "seatrial" / "bin" / "seatrial"
    program.parent.mkdir(parents=True)

    def run(name: str, runs: list[str], **environment: str) -> tuple[int, dict[str, str], str]:
        program.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in runs) + ' "$@"\n')
        program.chmod(0o755)
        script, output = tmp_path / "script.sh", tmp_path / "output"
        script.write_text(steps[name]["run"])
        output.write_text("")
        files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=tmp_path,
            env={**os.environ, "RUNNER_TEMP": str(tmp_path), **files, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, dict(line.split("=", 1) for line in output.read_text().splitlines()), done.stdout

    return run


@pytest.mark.parametrize(
    ("command", "arguments", "code", "verdict", "kept"),
    [
        ("preflight", "--cluster sim:healthy", 0, "go", "report.json"),
        ("preflight", "--cluster sim:gpus-taken", 10, "inconclusive", "report.json"),
        ("preflight", "--cluster sim:gpu-missing", 1, "no-go", "report.json"),
        ("preflight", "--cluster sim:no-such", 4, "error", "output.txt"),
        ("explain", str(ROOT / "tests/logs/data/recorded/ib-disabled.log"), 1, "no-go", "output.txt"),
    ],
)
def test_the_action_says_what_the_command_concluded(step, tmp_path, command, arguments, code, verdict, kept) -> None:
    """The step continues, so that the report is uploaded; the last step ends with the command's exit code."""
    with installed() as program:
        ended, outputs, _ = step("Run it", program, COMMAND=command, ARGUMENTS=arguments, OUT="out")
    assert (ended, outputs) == (0, {"exit-code": str(code), "verdict": verdict})
    assert (tmp_path / "out" / kept).exists()
    assert step("Verdict", ["true"], CODE=str(code))[0] == code


def test_arguments_of_the_action_are_words_and_no_shell(step, tmp_path) -> None:
    """Quotes keep a space inside a word; a substitution remains text."""
    shows = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
    ended, _, printed = step(
        "Run it", shows, COMMAND="explain", ARGUMENTS="""--profile "our own" '$(touch made)' `touch made`""", OUT="out"
    )
    assert ended == 0
    assert printed == "['explain', '--github', '--profile', 'our own', '$(touch made)', '`touch', 'made`']\n"
    assert not (tmp_path / "made").exists()


def test_the_action_refuses_another_command(step) -> None:
    ended, outputs, printed = step("Run it", ["false"], COMMAND="cleanup", ARGUMENTS="", OUT="out")
    assert (ended, outputs) == (4, {})
    assert "::error::" in printed
