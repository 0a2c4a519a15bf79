"""Parts of the suite given to pytest: prerequisites run first, as the run button of an IDE needs."""

import pytest

from tests.program import run_pytest, seatrial

PART = "checks/test_nccl.py::test_no_data_goes_through_sockets"


def collected(root, *arguments):
    """Run pytest on parts of the suite without executing checks; return the selected items in order, and the result."""
    done = run_pytest("--collect-only", "-q", "-p", "no:cacheprovider", *arguments, cwd=root)
    return [line for line in done.outlines if line.startswith("checks/")], done


@pytest.mark.parametrize("part", [PART, "checks/test_nccl.py"])
def test_a_part_brings_its_prerequisites_along(root, part):
    names, done = collected(root, part)
    assert done.ret == 0
    assert names[-1].startswith("checks/test_nccl.py::")
    assert "checks/test_namespace.py::test_every_right_of_the_run_is_granted" in names
    everything, _ = collected(root, "checks")
    assert PART in names
    assert 0 < len(names) < len(everything)


def test_two_parts_and_a_file_of_the_users_are_all_run(root, tmp_path):
    own = tmp_path / "test_ours.py"
    own.write_text("import pytest\n@pytest.mark.check('ours.one', 'One')\ndef test_one(): pass\n")
    names, done = collected(root, PART, "checks/test_api.py", str(own))
    assert done.ret == 0
    assert PART in names
    assert any(name.startswith("checks/test_api.py::") for name in names)
    assert any(line.endswith("::test_one") for line in done.outlines)  # pytest drops a path next to the suite


@pytest.mark.parametrize("part", ["checks/test_nccl.py::test_no_data", "checks/test_nccl.py::test_nothing"])
def test_a_name_that_is_no_check_is_a_usage_error(root, part):
    """A prefix of a name is not the name."""
    _, done = collected(root, part)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert f"{part} names no check of this command" in done.stderr.str() + done.stdout.str()


@pytest.mark.parametrize("place", ["checks", "checks/test_gpu.py"])
def test_parallel_checks_are_refused_in_one_line(root, place):
    """Checks share a namespace and its GPUs; the tests of this repository may still run in parallel."""
    done = run_pytest(place, "-n", "2", cwd=root)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "-n is refused" in done.stderr.str() + done.stdout.str()
    assert len([line for line in (*done.errlines, *done.outlines) if line.strip()]) < 4


OWN = """
import pytest

@pytest.mark.preflight
@pytest.mark.check("ours.one", "Ours")
def test_one(evidence):
    {}["of ours"]
"""


def test_a_users_check_with_a_bug_shows_its_file_and_line(tmp_path):
    (tmp_path / "test_ours.py").write_text(OWN)
    done = seatrial("preflight", "test_ours.py", "--check", "ours.one", "--cluster", "sim:healthy", cwd=tmp_path)
    assert done.returncode == 10
    assert "test_ours.py:7: KeyError: 'of ours'" in done.stdout


def test_checks_lists_those_of_a_users_file(tmp_path):
    (tmp_path / "test_ours.py").write_text(OWN)
    done = seatrial("checks", "test_ours.py", cwd=tmp_path)
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["ours.one"]


@pytest.mark.parametrize(("text", "said"), [(None, "no such file"), ("import nope_at_all\n", "No module named")])
def test_a_file_that_cannot_be_read_is_said_in_one_line(tmp_path, text, said):
    if text is not None:
        (tmp_path / "test_ours.py").write_text(text)
    done = seatrial("checks", "test_ours.py", cwd=tmp_path)
    assert done.returncode == 4
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_what_failed_last_runs_again_behind_what_it_requires(root, tmp_path):
    """--lf: only the socket check failed; on a healthy cluster it passes, and the run is marked partial."""
    cache = ("-o", f"cache_dir={tmp_path}")
    first = run_pytest(PART, "--cluster", "sim:socket-fallback", *cache, cwd=root)
    assert first.ret == pytest.ExitCode.TESTS_FAILED
    again = run_pytest("checks", "--lf", "--cluster", "sim:healthy", *cache, cwd=root)
    assert again.ret == 0
    assert "Partial run" in again.stdout.str()
    assert "VERDICT: go (SIMULATED)" in again.stdout.str()
