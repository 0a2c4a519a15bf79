"""Progress of long work: every step on a terminal, a line now and then in a log."""

import threading

import pytest

from checks.framework.progress import Progress
from tests.waiting import HANG_S


class Reporter:
    """Keeps what pytest's terminal reporter would print."""

    def __init__(self, isatty):
        self.isatty = isatty
        self.lines = []
        self.enough = threading.Event()

    def write_line(self, text, **_):
        self.lines.append(text)
        if len(self.lines) >= 3:
            self.enough.set()


class Config:
    def __init__(self, isatty, verbosity=-1, prints=False):
        self.reporter, self.verbosity, self.prints = Reporter(isatty), verbosity, prints
        self.pluginmanager = self

    def get_verbosity(self, _kind):
        return self.verbosity

    def getoption(self, name):
        return name == "--print-manifests" and self.prints

    def getplugin(self, name):
        return self.reporter if name == "terminalreporter" else None


@pytest.fixture
def progress():
    made = []

    def make(*, isatty, every_s=0.01, **more):
        config = Config(isatty, **more)
        made.append(Progress(config, every_s))
        return made[-1], config.reporter

    yield make
    for each in made:
        each.close()


def test_a_terminal_shows_each_step(progress):
    """At once, and nothing in between."""
    tell, reporter = progress(isatty=True)
    tell("creating job a")
    tell("rank 0: dns")
    assert reporter.lines == ["  · creating job a", "  · rank 0: dns"]


def test_a_log_is_told_what_is_waited_for(progress):
    """Again and again while nothing changes, also before the first step."""
    tell, reporter = progress(isatty=False)
    assert reporter.enough.wait(HANG_S)
    assert reporter.lines[0].startswith("  · starting (for ")
    reporter.lines.clear()
    reporter.enough.clear()
    tell("2 Pending (gpu-a, gpu-b)")
    assert reporter.enough.wait(HANG_S)
    assert reporter.lines[-1].startswith("  · 2 Pending (gpu-a, gpu-b) (for ")


def test_a_log_names_what_goes_on_in_silence(progress):
    """What is done inside of it, then what was said before: each for as long as it takes."""
    tell, reporter = progress(isatty=False)

    def line():
        reporter.lines.clear()
        reporter.enough.clear()
        assert reporter.enough.wait(HANG_S)
        return reporter.lines[-1].partition(" (for ")[0]

    with tell.doing("judging gpu.free"):
        with tell.doing("reading nodes and pods"):
            assert line() == "  · reading nodes and pods"
        assert line() == "  · judging gpu.free"
    assert line() == "  · starting"


def test_a_terminal_is_not_told_what_goes_on_in_silence(progress):
    """It has a line for each family of checks."""
    tell, reporter = progress(isatty=True)
    with tell.doing("judging gpu.free"):
        tell("creating job a")
    assert reporter.lines == ["  · creating job a"]


def test_a_log_is_not_filled_with_steps(progress):
    """A hundred steps within the interval are no line."""
    tell, reporter = progress(isatty=False, every_s=600)
    for step in range(100):
        tell(f"rank 0: {step}")
    assert reporter.lines == []


def test_nothing_is_said_once_it_is_closed(progress):
    """The verdict is the last word."""
    tell, reporter = progress(isatty=False)
    assert reporter.enough.wait(HANG_S)
    tell.close()
    reporter.lines.clear()
    assert not [thread for thread in threading.enumerate() if thread is tell._reminder]
    assert reporter.lines == []


def test_a_secret_is_not_told(progress):
    """What a cluster says may carry one."""
    tell, reporter = progress(isatty=True)
    tell("pulling with token=ghp_" + "a" * 36)
    assert "ghp_a" not in reporter.lines[0]


@pytest.mark.parametrize("more", [{"verbosity": -2}, {"prints": True}])
def test_one_line_stays_one_line(progress, more):
    """-q prints the verdict and nothing else, --print-manifests YAML and nothing else."""
    tell, _ = progress(isatty=False, **more)
    assert tell._reminder is None
