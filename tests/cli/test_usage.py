"""What the user typed wrong is one clear line and exit code 4, with nothing half done."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def seatrial(*arguments, cwd=ROOT, stdin="", env=None):
    return subprocess.run([sys.executable, "-m", "checks", *map(str, arguments)], cwd=ROOT if cwd is None else cwd,
                          capture_output=True, text=True, input=stdin, timeout=120, check=False, env=env)


def said(done):
    """The error lines, without pytest's own closing ones."""
    return [line for line in (done.stderr + done.stdout).splitlines()
            if line.strip() and "no tests ran" not in line and "deselected" not in line]


@pytest.fixture
def kubeconfig(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "prod",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
    }))
    return path


CASES = {
    "an unknown command": (["acept"], "did you mean accept"),
    "an unknown check": (["preflight", "--check", "gpu.alocatable", "--cluster", "sim:healthy"], "gpu.allocatable"),
    "an unknown scenario": (["accept", "--cluster", "sim:helthy"], "healthy"),
    "an unknown profile": (["accept", "--cluster", "sim:healthy", "--profile", "h100-bi"], "h100-ib"),
    "an unknown kind of cluster": (["accept", "--cluster", "simm:healthy"], "sim"),
    "a missing kubeconfig": (["preflight", "--kubeconfig", "no-such-file"], "no-such-file"),
    "an unknown option": (["accept", "--clutser", "sim:healthy"], "--clutser"),
    "an unknown check to show": (["checks", "gpu.alocatable"], "did you mean gpu.allocatable"),
    "an unknown fault to show": (["faults", "gpu.mising"], "did you mean gpu.missing"),
    "a log that does not exist": (["explain", "no-such.log"], "no-such.log"),
    "explain without a log": (["explain"], "LOG"),
    "a replay of nothing": (["accept", "--cluster", "sim:replay=no-such.log"], "no-such.log"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_one_clear_line_and_exit_code_4(name, tmp_path):
    """The line says what is wrong and suggests the nearest right word; no report is left."""
    arguments, expected = CASES[name]
    out = tmp_path / "out"
    extra = ["--out", out] if arguments[0] in ("accept", "preflight") else []
    done = seatrial(*arguments, *extra)
    assert done.returncode == 4, done.stdout + done.stderr
    assert expected in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (out / "report.json").exists()
    assert not list(out.glob(".*")) if out.exists() else True


def test_a_profile_with_a_wrong_key_names_the_nearest(tmp_path):
    """A threshold that was silently ignored would be a check that passes without looking."""
    profile = tmp_path / "mine.yaml"
    profile.write_text("extends: h100-ib\nfabric: {rials: 8}\n")
    done = seatrial("accept", "--cluster", "sim:healthy", "--profile", profile)
    assert done.returncode == 4
    assert "rials" in done.stdout + done.stderr
    assert "rails" in done.stdout + done.stderr
    assert len(said(done)) == 1, said(done)


def test_broken_yaml_is_one_line(tmp_path):
    """The line names the file and where it broke."""
    profile = tmp_path / "broken.yaml"
    profile.write_text("gpu: {per_node: [\n")
    done = seatrial("accept", "--cluster", "sim:healthy", "--profile", profile)
    assert done.returncode == 4
    assert "broken.yaml" in done.stdout + done.stderr
    assert len(said(done)) == 1, said(done)


def test_an_unknown_context_names_the_nearest(kubeconfig):
    """The kubeconfig exists, the context does not."""
    done = seatrial("preflight", "--kubeconfig", kubeconfig, "--context", "prdo")
    assert done.returncode == 4
    assert "prod" in done.stdout + done.stderr
    assert len(said(done)) == 1, said(done)


def test_a_broken_kubeconfig_is_one_line(tmp_path):
    """Not YAML, or YAML that is no kubeconfig."""
    path = tmp_path / "kubeconfig"
    path.write_text("{")
    done = seatrial("preflight", "--kubeconfig", path)
    assert done.returncode == 4
    assert len(said(done)) == 1, said(done)


def test_an_empty_log_and_a_folder_without_logs_are_usage_errors(tmp_path):
    """Nothing to judge is not a verdict."""
    empty = tmp_path / "empty.log"
    empty.touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (empty, folder):
        done = seatrial("explain", path)
        assert done.returncode == 4, path
        assert len(said(done)) == 1, said(done)
    assert seatrial("explain", "-").returncode == 4


def test_help_and_the_catalogues_work_from_any_directory(tmp_path):
    """Nothing depends on the working directory."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); from checks.__main__ import main;"
               "raise SystemExit(main(sys.argv[1:]))"]
    for arguments, expected in (["--help"], "seatrial accept"), (["checks"], "gpu.allocatable"), (["faults"], "gpu.missing"):
        done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


def test_an_unreachable_cluster_is_inconclusive_and_reported(kubeconfig, tmp_path):
    """Nothing listens: exit code 10, a report that says why, no traceback."""
    done = seatrial("preflight", "--kubeconfig", kubeconfig, "--out", tmp_path / "out")
    assert done.returncode == 10, done.stdout + done.stderr
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    assert record["verdict"] == "inconclusive"
    assert record["checks"][0]["fault"] == "api.unreachable"
    assert "Traceback" not in done.stdout


def test_a_real_cluster_without_a_profile_is_not_judged_on_what_only_a_profile_knows(kubeconfig):
    """The header says so, and nothing is guessed."""
    done = seatrial("preflight", "--kubeconfig", kubeconfig)
    assert "profile none" in done.stdout
