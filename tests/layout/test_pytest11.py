"""`pytest --pyargs seatrial.checks` with an installed wheel; an installation does not affect any other pytest run."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

from tests.layout.test_wheel import ROOT, built
from tests.waiting import HANG_S


def environment(folder):
    """Make a separate Python that finds the libraries of this one; return it, and its package folder."""
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    libraries = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "libraries.pth").write_text("\n".join(libraries), encoding="utf-8")
    return folder / "bin" / "python", site


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return a Python with the wheels of the suite and of the lab."""
    python, site = environment(tmp_path_factory.mktemp("wheel"))
    for project in (ROOT, ROOT / "lab"):
        with zipfile.ZipFile(built(project, tmp_path_factory.mktemp("dist"))) as archive:
            archive.extractall(site)
    return python


@pytest.fixture(scope="module")
def editable(tmp_path_factory):
    """Return a Python with this clone installed by `pip install -e`."""
    python, _ = environment(tmp_path_factory.mktemp("editable"))
    how = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", *how, "-e", str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return python


def run(python, cwd, *arguments):
    """Run pytest without the settings of the current run."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHON"))}
    command = [str(python), "-P", "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=HANG_S, check=False)


@pytest.mark.parametrize(
    ("named", "also"),
    [
        (("seatrial.checks", "-m", "preflight"), "rights"),
        (("seatrial.checks.test_nodes",), "api"),
        (("seatrial.checks.test_nodes::test_labels_agree_with_the_gpus",), "api"),
    ],
    ids=["package", "module", "node"],
)
def test_a_wheels_checks_run_by_their_package(wheel, tmp_path, named, also):
    """Options of the checks are known and prerequisites run, from a project with its own settings."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers --strict-config\n")
    done = run(wheel, tmp_path, "--pyargs", *named, "--cluster", "sim:healthy", "--out", "report")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERDICT: go (SIMULATED)" in done.stdout
    assert f"PASSED   {also}" in done.stdout
    assert (tmp_path / "report" / "report.json").exists()


def test_a_fault_is_red_by_the_package_too(wheel, tmp_path):
    done = run(wheel, tmp_path, "--pyargs", "seatrial.checks", "-m", "preflight", "--cluster", "sim:gpu-missing")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "gpu.missing" in done.stdout


@pytest.fixture
def project(tmp_path):
    """Create a foreign project: with our options' names, our packages' names, and a test of the loaded modules."""
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "__init__.py").write_text("OURS = False\n")
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    for name in ('--cluster', '--profile', '--out', '--check', '--namespace'):\n"
        "        parser.addoption(name, default='mine')\n"
    )
    (tmp_path / "test_mine.py").write_text(
        "import sys\n"
        "from checks import OURS\n"
        "def test_mine(request):\n"
        "    assert request.config.getoption('--cluster') == 'theirs'\n"
        "    assert not OURS\n"
        "    open('loaded.txt', 'w').write('\\n'.join(sorted(sys.modules)))\n"
    )
    return tmp_path


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_in_a_foreign_project_it_does_nothing(kind, project, request):
    """Other projects get no option, no marker, and no module except the plugin itself."""
    python = request.getfixturevalue(kind)

    def seen(*arguments):
        done = run(python, project, "--cluster", "theirs", "test_mine.py", "-q", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return set((project / "loaded.txt").read_text().split())

    with_it, without = seen(), seen("-p", "no:seatrial")
    assert with_it - without == {"seatrial", "seatrial.pytest11"}
    for what in ("--help", "--markers"):
        texts = [run(python, project, what, *more).stdout for more in ((), ("-p", "no:seatrial"))]
        assert texts[0] == texts[1]
        assert "acceptance of a GPU Kubernetes cluster" not in texts[0]


def test_a_clone_runs_its_checks_by_their_folder(editable):
    done = run(editable, ROOT, "checks/test_nodes.py", "--cluster", "sim:healthy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERDICT: go (SIMULATED)" in done.stdout
