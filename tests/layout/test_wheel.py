"""The wheel: exactly one top-level package, complete, and usable from anywhere, read-only too."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

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
    """Nothing named checks, cli, jobs, reports or lab may land in anyone's site-packages."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"seatrial"}


def test_the_wheel_holds_every_file_of_the_packages(wheel):
    """A profile, a scenario or a stand-in that stays behind would only be missed by a user."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = {path for top in ("checks", "cli", "jobs", "reports") for path in (ROOT / top).rglob("*") if path.is_file()}
    named = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}
    missing = {f"seatrial/{name}" for name in named - {"checks/__main__.py", "cli/__main__.py"}} - names
    assert not missing
    assert {"seatrial/__main__.py", "seatrial/conftest.py", "seatrial/pyproject.toml"} <= names


def written(site):
    """What lies in the installation, without Python's own cache: root may write there whatever the mode says."""
    return {path for path in site.rglob("*") if "__pycache__" not in path.parts}


def test_the_installed_wheel_works_from_another_directory_and_read_only(installed, tmp_path):
    """--help, the catalogue and a collection; nothing is written beside the code."""
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
    """Importing and reading need nothing on the path but the wheel, and a fault's texts only PyYAML besides."""
    log = "import io; log = [('log', io.BytesIO(b'gpu-1:1:1 [0] NCCL INFO NCCL version 2.27.7+cuda12.8\\n'))]"
    bare = f"import sys; sys.path.insert(0, {str(installed)!r}); import seatrial.jobs.nccl as n; {log}; p = n.read(log)"
    judged = f"{bare}; (job,) = n.conclude(p); assert job['faults'][0]['remedy']"
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
    """Who installs the suite gets no fake API server; who asks for the lab gets one package of its own."""
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


@pytest.mark.parametrize("command", [(), PIP, UV], ids=["hatchling", "pip", "uv"])
def test_a_wheel_names_no_path_of_whoever_built_it(command, tmp_path):
    """Whatever builds it: the lab is a distribution of this version, and a folder of the builder's is in no file."""
    if "uv" in command:
        pytest.importorskip("uv", reason="uv is not installed here")
    source = shutil.copytree(
        ROOT, tmp_path / "of-the-builder", ignore=shutil.ignore_patterns(".git", ".venv", ".real", "tests")
    )
    (source / "tests").mkdir()
    with zipfile.ZipFile(built(source, tmp_path / "dist", *command)) as archive:
        about = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode()
        texts = {name: archive.read(name) for name in archive.namelist()}
    versions = {tomllib.loads((ROOT / at / "pyproject.toml").read_text())["project"]["version"] for at in (".", "lab")}
    assert [f"Requires-Dist: seatrial-lab=={version}; extra == 'lab'" in about for version in versions] == [True]
    assert not [name for name, text in texts.items() if b"of-the-builder" in text]


def test_without_the_lab_a_simulated_run_says_what_it_needs(installed, tmp_path):
    """One line that names the extra, and the exit code of a usage error."""
    for arguments in (["sim", "healthy"], ["rehearse", "healthy"], ["accept", "--cluster", "sim:healthy"]):
        done = seatrial(installed, *arguments, cwd=tmp_path)
        assert done.returncode == 4, done.stdout + done.stderr
        assert "pip install 'seatrial[lab]'" in done.stderr, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
