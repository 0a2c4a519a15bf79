"""The last lines of `make test`: omitted tests are listed once for each reason."""

import pytest

from tests.program import run_pytest

pytest_plugins = ["pytester"]
TESTS = """
import pytest
@pytest.mark.parametrize("number", range(3))
def test_a(number):
    pytest.skip("no kubectl is installed")
@pytest.mark.skipif(True, reason="no GPU is here")
def test_b():
    raise AssertionError
@pytest.mark.xfail
def test_c():
    raise ValueError
"""


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "dealt out"])
def test_reasons_are_counted_whoever_ran_the_tests(pytester, root, monkeypatch, arguments):
    monkeypatch.setenv("PYTHONPATH", str(root))
    pytester.makeconftest("from tests.conftest import pytest_terminal_summary")
    pytester.makepyfile(TESTS)
    done = run_pytest("-q", *arguments, cwd=pytester.path)
    lines = [line for line in done.outlines if line.startswith("Skipped")]
    assert lines == ["Skipped 3: no kubectl is installed", "Skipped 1: no GPU is here"]


def test_nothing_is_said_where_nothing_was_left_out(pytester, root, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(root))
    pytester.makeconftest("from tests.conftest import pytest_terminal_summary")
    pytester.makepyfile("def test_a(): pass")
    assert not [line for line in run_pytest("-q", cwd=pytester.path).outlines if "Skipped" in line]
