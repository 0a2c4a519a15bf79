"""The wheel: exactly one top-level package, complete, and usable from any folder, also read-only."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[2]


def built(project, folder, *command):
    """Build a project's wheel into a folder, by hatchling or by another command, and return its path."""
    pytest.importorskip("hatchling", reason="the build backend is not installed here")
    command = command or ("-m", "hatchling", "build", "-t", "wheel", "-d")
    done = subprocess.run(
        [sys.executable, *command, str(folder)], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def lab_wheel(tmp_path_factory):
    return built(ROOT / "lab", tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for path in [*site.rglob("*"), site]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield site
    for path in [site, *site.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)


def seatrial(site, *arguments, cwd):
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); from seatrial.__main__ import main; raise SystemExit(main())"
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_the_wheel_has_exactly_one_top_level_package(wheel):
    """Names such as checks, cli, jobs, reports or lab must not be installed into a user's site-packages."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"seatrial"}


def files(*tops):
    """Return the files of the packages, by path from the root."""
    paths = {path for top in tops for path in (ROOT / top).rglob("*") if path.is_file()}
    return {str(path.relative_to(ROOT)) for path in paths if "__pycache__" not in path.parts}


def contents(wheel):
    """Return the files of a wheel without its metadata, and its METADATA and entry points."""
    with zipfile.ZipFile(wheel) as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    about = {name: text for name, text in texts.items() if ".dist-info/" in name}
    text = b"".join(each for name, each in about.items() if name.endswith(("METADATA", "entry_points.txt"))).decode()
    return {name: each for name, each in texts.items() if name not in about}, text


def written(site):
    """Return the installed files without Python's cache: root may write there whatever the mode."""
    return {path for path in site.rglob("*") if "__pycache__" not in path.parts}


def test_the_installed_wheel_works_from_another_directory_and_read_only(installed, tmp_path):
    """--help, the catalogue and a collection; no file is written next to the code."""
    before = written(installed)
    for arguments, expected in (["--help"], "seatrial accept"), (["checks"], "gpu.allocatable"):
        done = seatrial(installed, *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert expected in done.stdout
    assert written(installed) == before


@pytest.mark.slow
def test_the_installed_wheels_run_the_trial(wheel, lab_wheel, tmp_path):
    """The whole run, with the extra `lab`, in an empty directory."""
    installed = tmp_path / "site"
    for each in (wheel, lab_wheel):
        with zipfile.ZipFile(each) as archive:
            archive.extractall(installed)
    done = seatrial(installed, "accept", "--cluster", "sim:healthy", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out" / "report.json").exists()


def test_the_analyzer_is_a_library_of_the_wheel(installed, tmp_path):
    """Importing and reading need only the wheel on the path; a fault's texts also need PyYAML."""
    log = "import io; log = [('log', io.BytesIO(b'gpu-1:1:1 [0] NCCL INFO NCCL version 2.27.7+cuda12.8\\n'))]"
    bare = f"import sys; sys.path.insert(0, {str(installed)!r}); import seatrial.logs as n; {log}; p = n.read(log)"
    judged = f"{bare}; (job,) = n.explain('gpu-1:1:1 [0] NCCL INFO Init START'); assert job['faults'][0]['remedy']"
    yaml = Path(pytest.importorskip("yaml").__file__).parent
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "yaml").symlink_to(yaml)
    for code, path in (bare, ""), (judged, str(tmp_path / "only")):
        done = subprocess.run(
            [sys.executable, "-P", "-S", "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_launcher_is_a_library_of_the_wheel(installed, tmp_path):
    """The names of docs/launcher.md, under the package's own name."""
    code = (
        f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        "from seatrial import jobs\n"
        "assert all(getattr(jobs, name).__module__.startswith('seatrial.jobs.') for name in jobs.__all__)\n"
        "from seatrial.jobs import Launcher\n"
        "assert Launcher.create_job.__doc__\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_wheel_has_nothing_of_the_lab(wheel, lab_wheel):
    """The suite contains no fake API server; the lab is a separate package."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    assert not [n for n in names if "lab/" in n]
    assert not re.search(r"Requires-Dist: (cryptography|dnslib|jsonpatch)", about)
    with zipfile.ZipFile(lab_wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"seatrial_lab"}


PIP = ("-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", ".", "-w")
UV = (
    "-m",
    "uv",
    "build",
    "--quiet",
    "--offline",
    "--no-build-isolation",
    ".",
    "-o",
)  # of the sdist that it builds first


BUILDERS = [
    pytest.param((), id="hatchling"),
    pytest.param(PIP, id="pip", marks=pytest.mark.slow),
    pytest.param(UV, id="uv", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("command", BUILDERS)
def test_a_wheel_is_complete_and_names_no_path_of_whoever_built_it(command, tmp_path):
    """A wheel of any build tool is complete: only a user would notice a missing profile or scenario."""
    if "uv" in command:
        pytest.importorskip("uv", reason="uv is not installed here")
    source = shutil.copytree(
        ROOT, tmp_path / "of-the-builder", ignore=shutil.ignore_patterns(".git", ".venv*", ".real", "tests")
    )
    (source / "tests").mkdir()
    suite, about = contents(built(source, tmp_path / "dist", *command))
    lab, about_lab = contents(built(source / "lab", tmp_path / "lab", *command))
    assert not [name for name, text in {**suite, **lab}.items() if b"of-the-builder" in text]
    assert "of-the-builder" not in about + about_lab
    moved = {"checks/__main__.py", "cli/__main__.py"}
    ours = {f"seatrial/{name}" for name in files("checks", "cli", "jobs", "reports") - moved}
    assert set(suite) == ours | files("seatrial") | {
        "seatrial/__main__.py",
        "seatrial/conftest.py",
        "seatrial/pyproject.toml",
    }
    assert set(lab) == {f"seatrial_{name}" for name in files("lab") - {"lab/pyproject.toml"}}
    versions = {tomllib.loads((ROOT / at / "pyproject.toml").read_text())["project"]["version"] for at in (".", "lab")}
    assert [f"Requires-Dist: seatrial-lab=={version}; extra == 'lab'" in about for version in versions] == [True]
    assert {"seatrial", "kubectl-seatrial"} == set(
        re.findall("^([a-z-]+) = seatrial.__main__:main$", about, re.MULTILINE)
    )


def test_the_plugin_for_krew_runs_the_wheel_that_it_carries(wheel, tmp_path):
    """The manifest has the archive's digest; krew's link runs the wheel by uv, by pipx, or prints the requirement."""
    dist = tmp_path / "dist"
    dist.mkdir()
    shutil.copy(wheel, dist)
    subprocess.run([ROOT / "deploy/krew/pack.sh", dist, "https://example.com/v1"], check=True)
    manifest = yaml.safe_load((dist / "seatrial-krew.yaml").read_text())
    archive = dist / "seatrial-krew.tar.gz"
    (platform,) = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"] == f"https://example.com/v1/{archive.name}"
    assert f"seatrial-{manifest['spec']['version'].removeprefix('v')}-py3-none-any.whl" == wheel.name
    (tmp_path / "store").mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path / "store"], check=True)
    programs, plugin = tmp_path / "programs", tmp_path / "krew" / platform["bin"]
    plugin.parent.mkdir()
    plugin.symlink_to(tmp_path / "store" / platform["bin"])
    programs.mkdir()
    for name in ("sh", "dirname", "readlink", "ls"):
        (programs / name).symlink_to(shutil.which(name))

    def run():
        argv, env = [plugin, "faults", "a b"], {"PATH": str(programs)}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    assert (run().returncode, run().stdout) == (4, "")
    assert "install uv" in run().stderr
    carried = str(tmp_path / "store" / wheel.name)
    for name, words in ("pipx", ["run", "--quiet", "--spec", carried]), ("uvx", ["--quiet", "--from", carried]):
        (programs / name).write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        (programs / name).chmod(0o755)
        assert run().stdout.splitlines() == [str(programs / name), *words, "seatrial", "faults", "a b"]


def test_without_the_lab_a_simulated_run_says_what_it_needs(installed, tmp_path):
    """The refusal is one line that names the extra, with the exit code of a usage error."""
    for arguments in (["sim", "healthy"], ["rehearse", "healthy"], ["accept", "--cluster", "sim:healthy"]):
        done = seatrial(installed, *arguments, cwd=tmp_path)
        assert done.returncode == 4, done.stdout + done.stderr
        assert "pip install 'seatrial[lab]'" in done.stderr, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
