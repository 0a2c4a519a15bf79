"""The pytest hooks that pass the run record to the terminal, JSON, JUnit and HTML."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from . import html, junit, markdown, step_summary, terminal
from .record import CheckResult, Run, write_atomically, write_json
from .schema import Outcome
from .stash import RUN

LOUD = (Outcome.FAILED, Outcome.ERROR)
QUIET, EACH = -2, 0
"""Verbosity of test cases (pytest's own): up to QUIET one line at the end, between them a line for each family."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the renderers, before JUnit and pytest-html choose their files."""
    if not config.getoption("collectonly"):
        for name, option in (("htmlpath", "--html"), ("xmlpath", "--junit-xml")):
            if path := getattr(config.option, name, None):
                _refuse_unwritable(option, path)
    out = config.getoption("--out", None)
    folder = (config.invocation_params.dir / out).absolute() if out and not config.getoption("collectonly") else None
    config.pluginmanager.register(Renderers(config, folder), "seatrial-renderers")


def _refuse_unwritable(option: str, path: str) -> None:
    """Raise pytest.UsageError for a file with an error that the plugins would report only after the run."""
    file = Path(os.path.expandvars(path)).expanduser()
    if file.is_dir():
        raise pytest.UsageError(f"{option} must be a filename, given: {path}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") if file.exists() else tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise pytest.UsageError(f"{option} {path}: cannot be written: {error.strerror}") from error


class Renderers:
    """The hooks of one session; ``folder`` is the reports' folder, or None."""

    def __init__(self, config: pytest.Config, folder: Path | None) -> None:
        self.config = config
        self.folder = folder
        self._drafts: dict[Path, Path] = {}  # file that a pytest plugin writes -> its final place once complete
        self._scratch: Path | None = None
        self._not_collected: list[pytest.CollectReport] = []
        self._header_shown = False
        self._families: dict[str, list[CheckResult]] = {}  # completed checks of each family
        self._planned: Counter[str] = Counter()  # checks by family
        self._layers: list[str] = []  # the families whose line is not yet written, in the order of their layers
        self._others: list[html.UserTest] = []  # other tests of the session
        self.verbosity = config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES)
        config.option.self_contained_html = True
        if folder is not None:
            self._redirect(folder)

    def _redirect(self, folder: Path) -> None:
        """Redirect JUnit and pytest-html, so that a usage error leaves no folder behind."""
        scratch = tempfile.TemporaryDirectory(prefix="seatrial-report-")
        self.config.add_cleanup(scratch.cleanup)
        self._scratch = Path(scratch.name)
        for option, name in (("xmlpath", "junit.xml"), ("htmlpath", "report.html")):
            if getattr(self.config.option, option, None) is None:
                draft = Path(scratch.name) / name
                setattr(self.config.option, option, str(draft))
                self._drafts[draft] = folder / name

    @property
    def run(self) -> Run | None:
        """The record that the checks filled, or None in a session that ran no check."""
        return self.config.stash.get(RUN, None)

    # ------------------------------------------------------------------------------------------------- files

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Remove the folder of pytest-html until there is something to write, so that a killed run leaves none."""
        if self._scratch is not None:
            self._scratch.rmdir()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Write the JSON record, and move all files to their place once JUnit and HTML are complete."""
        if self._scratch is not None:
            self._scratch.mkdir(mode=0o700)
        result = yield
        if self.run is not None:
            try:
                self._write(self.run)
            except OSError as error:
                session.exitstatus = self.run.pytest_exit = int(pytest.ExitCode.INTERNAL_ERROR)
                self.run.interrupted = f"the report could not be written: {error}"
                if self.folder is not None:  # a file from before the clean-up must not show go next to it
                    with contextlib.suppress(OSError):
                        (self.folder / "report.json").unlink(missing_ok=True)
                self.folder = None  # there is no file to name
                if self._terminal is not None:
                    self._terminal.write_line(f"The report could not be written: {error}", red=True)
            self._push(self.run)
            self._tell_github(self.run)
        self._hush()
        return result

    def _write(self, run: Run) -> None:
        if path := getattr(self.config.option, "xmlpath", None):
            junit.stamp(Path(os.path.expandvars(path)).expanduser(), run)
        if path := getattr(self.config.option, "htmlpath", None):
            write_atomically(Path(os.path.expandvars(path)).expanduser(), html.page(run, self._others))
        for draft, final in self._drafts.items():
            if draft.exists():
                write_atomically(final, draft.read_text(encoding="utf-8"))
        if self.folder is not None:
            from . import metrics  # noqa: PLC0415 -- only a run that leaves reports needs the library

            record = run.to_dict()
            write_atomically(self.folder / "metrics.prom", metrics.exposition(record))
            write_atomically(self.folder / "report.md", markdown.markdown(record))
            write_json(run, self.folder / "report.json")  # the record comes last: until then it names the leftovers

    def _tell_github(self, run: Run) -> None:
        """Append the report to the step's summary and print the annotations (docs.github.com, workflow commands)."""
        if not self.config.getoption("--github", default=False):
            return
        record = run.to_dict()
        problem = step_summary.append(markdown.markdown(record))
        if self._terminal is not None:
            self._terminal.ensure_newline()
            if problem:
                self._terminal.write_line(f"{problem[0].upper()}{problem[1:]}", yellow=True)
            for command in markdown.workflow_commands(record):
                self._terminal.write_line(command)

    def _push(self, run: Run) -> None:
        """Push the metrics if requested; an unreachable gateway changes no verdict."""
        url = self.config.getoption("--push", None)
        if not url:
            return
        from .metrics import PushError, push  # noqa: PLC0415 -- only a run that pushes needs the library

        try:
            push(url, run.to_dict())
        except PushError as error:
            if self._terminal is not None:
                self._terminal.write_line(f"The metrics could not be pushed: {error}", red=True)

    def _hush(self) -> None:
        """Remove JUnit's and pytest-html's closing lines, which name the drafts: the summary names the report."""
        drafts = {str(draft): final for draft, final in self._drafts.items()}
        for plugin in self.config.pluginmanager.get_plugins():
            if str(getattr(plugin, "_report_path", "")) in drafts:  # pytest-html 4 has no public attribute for its path
                self.config.pluginmanager.unregister(plugin)
            elif (path := str(getattr(plugin, "logfile", ""))) in drafts:
                plugin.logfile = str(drafts[path])

    # ---------------------------------------------------------------------------------------------- terminal

    @property
    def _terminal(self) -> Any:
        return self.config.pluginmanager.getplugin("terminalreporter")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the checks of each family, whose line is written after its last check."""
        markers = (item.get_closest_marker("check") for item in session.items)
        self._planned = Counter(_family(marker.args[0]) for marker in markers if marker is not None)
        self._layers = terminal.by_layer(self._planned)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Print the subject of the trial once."""
        if self.run is not None and not self._header_shown and self._terminal is not None:
            self._header_shown = True
            self._terminal.showfspath = False  # the names of our files are meaningless to users
            if self.verbosity > QUIET:
                terminal.header(self._terminal, self.run)

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, Any] | None:
        """Return a check's own words for its outcome; one line per check replaces pytest's dots."""
        result: CheckResult | None = getattr(report, "seatrial", None)
        if result is None:
            return None if self.run is None else (("", "", "") if report.passed else None)
        category = {"blocked": "blocked", "error": "error"}.get(str(result.outcome), report.outcome)
        return category, "", (str(result.outcome).upper(), terminal.MARKUP[result.outcome])

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write the line of each finished check, or of each finished family and its failed checks."""
        result: CheckResult | None = getattr(report, "seatrial", None)
        if result is None and (report.when == "call" or not report.passed):
            self._others.append(html.UserTest(report.nodeid, report.outcome, report.longreprtext[-html.LONGEST_TEXT :]))
        if result is None or self._terminal is None or not QUIET < self.verbosity <= EACH:
            return
        if self.verbosity == EACH:
            terminal.line(self._terminal, result)
            return
        family = self._families.setdefault(_family(result.id), [])
        family[:] = [*(r for r in family if r.id != result.id), result]
        if result.outcome in LOUD and result.stage == "preflight":
            terminal.line(self._terminal, result, why=False)  # written immediately: the trial may take minutes
        while self._layers and len(self._families.get(self._layers[0], ())) >= self._planned[self._layers[0]]:
            self._write_family(self._layers.pop(0))

    def _write_family(self, name: str) -> None:
        """Write the line of a family, and of its failed checks without a line."""
        results = self._families.get(name, [])
        if results:
            terminal.family(self._terminal, name, results)
        for result in results:
            if result.outcome in LOUD and result.stage != "preflight":
                terminal.line(self._terminal, result, why=False)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep collection errors, since pytest's tracebacks are off."""
        if report.failed:
            self._not_collected.append(report)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print findings and remedies, then the verdict."""
        if self.config.option.tbstyle == "no":
            for report in self._not_collected:
                terminal.not_collected(terminalreporter, report)
        if self.run is not None:
            if self.verbosity <= QUIET:
                terminal.one_line(terminalreporter, self.run, self.folder)
            else:
                for name in self._layers if self.verbosity < EACH else ():  # families of a run that ended early
                    self._write_family(name)
                self._layers.clear()
                terminal.summary(terminalreporter, self.run, self.folder, detailed=self.verbosity >= EACH)

    @pytest.hookimpl(optionalhook=True)
    def pytest_metadata(self, metadata: dict[str, Any]) -> None:
        """Keep the machine's environment out of printed and shared reports."""
        metadata.clear()


def _family(check_id: str) -> str:
    """Return the first part of a check's id: its family."""
    return check_id.partition(".")[0]
