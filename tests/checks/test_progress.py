"""Progress of long operations: a live line on a terminal, a periodic line in a log."""

import threading

import pytest

from checks.framework import progress as progress_module
from checks.framework.progress import Progress
from jobs.pod.stages.planner import PROGRESS
from tests.waiting import HANG_S


class Reporter:
    """Keeps the output of pytest's terminal reporter."""

    def __init__(self, isatty):
        self.isatty = isatty
        self.lines = []
        self.drawn = []
        self.enough, self.again = threading.Event(), threading.Event()

    def write_line(self, text, **_):
        self.lines.append(text)
        if len(self.lines) >= 3:
            self.enough.set()

    def rewrite(self, text, **_):
        self.drawn.append(text)
        if len(self.drawn) >= 3:
            self.again.set()

    def flush(self):
        """Do nothing: the output is kept."""


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

    def make(*, isatty, every_s=0.01, tick_s=600, **more):
        config = Config(isatty, **more)
        made.append(Progress(config, every_s, tick_s))
        return made[-1], config.reporter

    yield make
    for each in made:
        each.close()


def test_a_terminal_has_one_line_that_lives(progress):
    """Each step replaces the previous one, and nothing remains."""
    tell, reporter = progress(isatty=True)
    tell("creating job a")
    tell("rank 0: dns")
    assert reporter.drawn == ["  · creating job a · 0 s", "  · rank 0: dns · 0 s"]
    assert reporter.lines == []


def test_the_line_goes_on_while_nothing_is_reported(progress):
    """The elapsed time advances even without progress reports."""
    tell, reporter = progress(isatty=True, tick_s=0.01)
    with tell.doing("reading nodes and pods"):
        assert reporter.again.wait(HANG_S)
    assert "  · reading nodes and pods · 0 s" in reporter.drawn


def test_the_line_makes_room_for_what_stays(progress):
    """A check's line is not appended to the live line."""
    tell, reporter = progress(isatty=True)
    tell("creating job a")
    hook = tell.pytest_runtest_logreport()
    next(hook)
    assert reporter.drawn[-2:] == ["", ""]
    tell.close()
    assert len(reporter.drawn) == 3


RING = "rank 0: collective.ring: 8 GiB 383.4 GB/s"


def test_a_collective_is_shown_with_its_bandwidth_and_floor(progress):
    """The line shows the collective's number, the measured bandwidth, and the floor at that size."""
    tell, reporter = progress(isatty=True)
    tell.expect(["node", "ring"], {"ring": {8 << 30: 350.0, 1 << 30: 325.0}})
    tell("rank 0: collective.ring")
    tell(RING)
    tell("rank 0: collective.node: 512 MiB 47.3 GB/s")
    assert [line.partition(" · ")[2] for line in reporter.drawn] == [
        "ring (2 of 2) · 0 s",
        "ring (2 of 2) · 0 s · ring 8 GiB 383 GB/s, floor 350",
        "ring (2 of 2) · 0 s · node 512 MiB 47.3 GB/s",
    ]


def test_what_is_still_to_come_takes_as_long_as_what_was(progress, monkeypatch):
    """No estimate is shown before the first collective has completed."""
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    tell, reporter = progress(isatty=True)
    tell.expect(["node", "ring", "default", "sendrecv"], {})
    for name, seconds in (("node", 10), ("ring", 20), ("default", 0)):
        tell(f"rank 0: collective.{name}")
        now[0] += seconds
    assert [line.partition(" · ")[2] for line in reporter.drawn] == [
        "node (1 of 4) · 0 s",
        "ring (2 of 4) · 10 s · about 30 s still",
        "default (3 of 4) · 30 s · about 30 s still",
    ]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_the_line_is_as_wide_as_the_terminal_and_breaks_no_word(progress, monkeypatch, columns):
    """The time is dropped first, then the measurement; a word is dropped whole."""
    monkeypatch.setenv("COLUMNS", str(columns))
    tell, reporter = progress(isatty=True)
    tell.expect(["sendrecv"], {"sendrecv": {1 << 30: 35.0}})
    words = "seatrial-k3v9x2m7pq Running: 1 ended (gpu-node-0), 1 running (gpu-node-1) and more"
    tell("rank 0: collective.sendrecv: 1 GiB 47.3 GB/s")
    tell(words)
    for line in reporter.drawn:
        assert len(line) < columns
    kept = reporter.drawn[-1].removeprefix("  · ").partition(" ·")[0].removesuffix(" …")
    assert kept
    assert (words + " ").startswith(kept + " ")


def test_the_line_has_room_for_how_long_a_sweep_still_takes(progress, monkeypatch):
    """At 80 columns the line has room for the remaining time; empty parts are omitted."""
    monkeypatch.setenv("COLUMNS", "80")
    tell, reporter = progress(isatty=True)
    figures = {"number": 12, "rounds": 14, "pairs": 512, "of_pairs": 640, "suspects": 0, "left_s": 120, "at_fault": 1}
    tell("rank 0: sweep: " + PROGRESS % figures)
    assert reporter.drawn[-1] == "  · sweep: round 12 of ~14, 512 of ~640 pairs, 1 at fault, about 120 s left"


def test_a_log_has_each_bandwidth_once(progress):
    """A bandwidth appears in the next line only."""
    tell, reporter = progress(isatty=False)
    tell(RING)
    assert reporter.enough.wait(HANG_S)
    said = [line for line in reporter.lines if "383 GB/s" in line]
    assert len(said) == 1


def test_a_log_shows_what_is_waited_for(progress):
    """The line is repeated while nothing changes, also before the first step."""
    tell, reporter = progress(isatty=False)
    assert reporter.enough.wait(HANG_S)
    assert reporter.lines[0].startswith("  · starting (for ")
    reporter.lines.clear()
    reporter.enough.clear()
    tell("2 Pending (gpu-a, gpu-b)")
    assert reporter.enough.wait(HANG_S)
    assert reporter.lines[-1].startswith("  · 2 Pending (gpu-a, gpu-b) (for ")


def test_a_log_names_what_goes_on_in_silence(progress):
    """The inner operation is named, then the last reported one, each with its duration."""
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


def test_a_log_is_not_filled_with_steps(progress):
    """A hundred steps within the interval add no line."""
    tell, reporter = progress(isatty=False, every_s=600)
    for step in range(100):
        tell(f"rank 0: {step}")
    assert reporter.lines == []


def test_nothing_is_said_once_it_is_closed(progress):
    """The verdict is the final line."""
    tell, reporter = progress(isatty=False)
    assert reporter.enough.wait(HANG_S)
    tell.close()
    reporter.lines.clear()
    assert not [thread for thread in threading.enumerate() if thread is tell._reminder]
    assert reporter.lines == []


def test_a_secret_is_not_reported(progress):
    """Cluster texts may contain a secret."""
    tell, reporter = progress(isatty=True)
    tell("pulling with token=ghp_" + "a" * 36)
    tell(f"rank 0: collective.{'ghp_' + 'a' * 36}: 8 GiB 383.4 GB/s")
    assert not [line for line in reporter.drawn if "ghp_a" in line]


@pytest.mark.parametrize("more", [{"verbosity": -2}, {"prints": True}])
def test_one_line_stays_one_line(progress, more):
    """-q prints only the verdict, --print-manifests only YAML."""
    tell, _ = progress(isatty=False, **more)
    assert tell._reminder is None
