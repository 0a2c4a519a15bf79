"""The pytest plugin: the marker, ordering, blocking, the outcome of each check, the exit code.

Rule: a check that observed nothing is never a pass, and a check whose prerequisite did not pass does not run.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checks.framework import attaching, options, outfolder, selection, signals
from checks.framework.blocking import blocks, withheld_in_words
from checks.framework.evidence import Blocked, CannotTell, Evidence
from checks.framework.failures import failure_class_of
from checks.framework.progress import Progress
from checks.framework.selection import CHECKS
from checks.framework.session import SESSION, Session
from checks.framework.streams import begins
from checks.profiles.loader import without_gpus
from checks.rules.rights import NEEDS, beyond_namespace
from jobs.cluster.client.errors import ClusterError
from jobs.cluster.redact import redact, safe
from reports.record import CheckResult, Finding, Run
from reports.schema import Outcome, RecordedSweep, Verdict, elements
from reports.stash import RUN
from seatrial.faults.actions import heaviest
from seatrial.faults.catalogue import Fault

KNOWN = pytest.StashKey[frozenset[str]]()  # the ids of all checks that were collected, selected or not
ELSEWHERE = pytest.StashKey["Mapping[str, str]"]()  # the ids that this command does not run -> the command that does
OWN_FAULTS = pytest.StashKey["Mapping[str, Fault]"]()  # faults of the user's own checks
NAMED = pytest.StashKey[tuple[str, ...]]()  # the parts of this suite that are named on the command line
BY_NODE = pytest.StashKey[frozenset[str]]()  # ids of checks that judge node by node
DROPPED = pytest.StashKey[int]()  # number of collected checks that do not run
MARKERS = (
    "check(id, title, requires=(), unless_failed=(), faults=(), needs=(), tenant=False, by_node=False, by_pair=(), "
    "proven_by=(), last=False): declare a cluster check",
    "preflight: reads the API only",
    "acceptance: judges the evidence of a trial job",
    "sweep: judges a sweep over a fleet, which replaces the trial",
    "training: judges the training steps of a trial (--training)",
    "cpu: judges a trial on CPUs alone (gpu.per_node: 0)",
)
OK = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
ENDED_EARLY = {
    int(pytest.ExitCode.INTERRUPTED): "interrupted",
    int(pytest.ExitCode.INTERNAL_ERROR): "an internal error of this suite; the terminal shows where",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the command-line options."""
    options.add_options(parser.getgroup("seatrial", "acceptance of a GPU Kubernetes cluster").addoption)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; remove the reports of an earlier run, so that they are not mistaken for this run's."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(_Interruption(), "seatrial-interruption")
    if getattr(config.option, "dist", "no") != "no" and any(_is_ours(_place(config, a)) for a in config.args):
        raise pytest.UsageError("-n is refused: the checks share one namespace and compete for the same GPUs")
    out = options.read_options(config).out
    if out is not None and not config.getoption("collectonly") and not config.getoption("--print-manifests"):
        outfolder.clear(out)


# ------------------------------------------------------------------------------------------------ collection


def _place(config: pytest.Config, argument: str) -> Path:
    return (config.invocation_params.dir / argument.partition("::")[0]).resolve()


def _is_ours(place: Path) -> bool:
    return place.is_relative_to(CHECKS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Collect the whole suite if a part of it, or --lf, is requested: prerequisites run first."""
    config = session.config
    config.pluginmanager.register(_Choice(), "seatrial-choice")
    ours = [a for a in config.args if _is_ours(_place(config, a))]
    config.stash[NAMED] = tuple(a for a in ours if _place(config, a) != CHECKS)
    if ours:
        config.args = [*(a for a in config.args if a not in ours), str(CHECKS)]
        config.pluginmanager.unregister(name="lfplugin-collwrapper")  # --lf leaves out files without failures


def _named(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the items named on the command line, and those of the user's own files. Raises pytest.UsageError."""
    chosen = [item for item in items if not _is_ours(item.path)]
    for argument in config.stash[NAMED]:
        place, part = _place(config, argument), argument.partition("::")[2]
        found = [
            item
            for item in items
            if item.path.is_relative_to(place)
            and re.match(f"{re.escape(part)}(::|\\[|$)" if part else "", item.nodeid.partition("::")[2])
        ]
        if not found:
            raise pytest.UsageError(f"{argument} names no check of this command")
        chosen += found
    return chosen


class _Choice:
    """The collection hook, registered last so that it wraps the hooks of other plugins, such as that of --lf."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, Any, Any]:
        """Apply names, -k, -m, --lf and --check, then add prerequisites, and sort."""
        return (yield from _choose(config, items))


def _choose(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, Any, Any]:
    everything = list(items)
    get = config.getoption
    items[:] = selection.of_command(
        items, sweeps=get("--sweep"), trains=get("--training"), cpus=without_gpus(get("--profile"))
    )
    collected = list(items)
    for item in collected:
        if declared_check := selection.declaration(item):
            item.extra_keyword_matches.add(declared_check.id)
    declared = [d for i in collected if (d := selection.declaration(i))]
    config.stash[KNOWN] = frozenset(d.id for d in declared)
    config.stash[BY_NODE] = frozenset(d.id for d in declared if d.by_node)
    config.stash[ELSEWHERE] = selection.elsewhere(everything, config.stash[KNOWN])
    if not config.stash[KNOWN]:
        return (yield)
    config.stash[OWN_FAULTS] = _own_faults(item.path for item in collected if selection.declaration(item))
    if config.stash[NAMED]:
        items[:] = _named(config, items)
    if ids := config.getoption("--check"):
        items[:] = selection.pick(ids, collected, config.stash[ELSEWHERE])
    yield
    items[:] = selection.order(items, collected)
    config.stash[DROPPED] = len(config.stash[KNOWN]) - sum(selection.declaration(i) is not None for i in items)
    return None


def _own_faults(paths: Iterable[Path]) -> Mapping[str, Fault]:
    """Return the faults of the user's own checks. Raises pytest.UsageError."""
    theirs = {path for path in set(paths) if not path.is_relative_to(CHECKS)}
    if not theirs:
        return {}
    from seatrial.faults.advice import read_own  # noqa: PLC0415 -- a healthy run reads no catalogue

    try:
        return {name: fault for path in sorted(theirs) for name, fault in read_own(path).items()}
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


def _selection(config: pytest.Config) -> str:
    """Return the selection of the run as the user typed it; empty for a full run."""
    get = config.getoption
    chosen = [f"-k {k}" for k in [get("keyword")] if k]
    chosen += [f"-m {m}" for m in [get("markexpr")] if m]
    chosen += [f"--check {c}" for c in get("--check")]
    for name in ("deselect", "ignore", "ignore_glob"):
        chosen += [f"--{name.replace('_', '-')} {value}" for value in get(name) or ()]
    # A user's own program proves less than the acceptance's collectives.
    chosen += [f"--command {shlex.quote(safe(c, 300))}" for c in [get("--command")] if c]
    chosen += [f"-o {o}" for o in get("override_ini") or () if o.startswith("python_")]
    chosen += [a for a in (*config.stash[NAMED], *config.args) if "::" in a or a.endswith(".py")]
    if not chosen and (dropped := config.stash[DROPPED]):
        chosen = [f"{dropped} checks left out by a pytest plugin"]
    return " ".join(chosen)


# --------------------------------------------------------------------------------------------------- the run


class _Interruption:
    """The effect of a signal on a run: the test loop ends, the clean-up completes, the record reports the signal."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Let signals interrupt checks only."""
        if session.config.getoption("collectonly") or not any(map(selection.declaration, session.items)):
            return (yield)
        ending = session.config.stash[ENDING] = signals.install()
        try:
            with ending.interruptible():
                return (yield)
        except KeyboardInterrupt:  # pytest would print the interrupted line of code, which does not help an operator
            if not ending.received:
                raise
            return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Start no check after a signal, even if a library swallowed the exception."""
        if (ending := item.config.stash.get(ENDING, None)) is not None:
            ending.check()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """Open the session before the first check: usage errors are reported before the cluster is accessed."""
    config = session.config
    if config.getoption("collectonly"):
        return None
    if not any(selection.declaration(i) for i in session.items):
        if session.items and selection.asks_for_trial(config):
            raise pytest.UsageError(f"no check is among the {len(session.items)} tests that were collected")
        return None
    config.stash[ENDING].check()
    if session.testsfailed and not config.option.continue_on_collection_errors:
        return None  # pytest stops after a collection error, so nothing is started
    progress = Progress(config)
    config.add_cleanup(progress.close)
    config.pluginmanager.register(progress, "seatrial-progress")
    opened = Session(options.read_options(config), progress)
    config.stash[SESSION] = opened
    config.stash[RUN] = opened.run
    try:
        scenario = opened.options.scenario
        with progress.doing(begins(scenario) if scenario else "asking the API server"):
            opened.open(config.invocation_params.dir)
        if opened.simulation and (lacks := opened.simulation.lacks(config.invocation_params.args)):
            progress.note(lacks)
        _narrow(opened.run, config)
        if opened.options.attach:
            session.items[:] = attaching.take_up(opened, session.items)
        declared = [d for i in session.items if (d := selection.declaration(i))]
        opened.selected = tuple(d.id for d in declared)
        opened.creates = any(d.stage == "acceptance" for d in declared)
        judged = [d for d in declared if not (d.of_gpus and opened.profile.gpu.none)]
        opened.needs = frozenset(selection.one_of(n, NEEDS, "need of a check") for d in judged for n in d.needs)
        if opened.options.out is not None and not opened.options.print_manifests:
            outfolder.make(opened.options.out)
    except pytest.UsageError:
        del config.stash[RUN]  # nothing was judged: nothing is reported
        raise
    except (OSError, RuntimeError, ValueError) as error:
        opened.run.interrupted = redact(f"set-up failed: {error}")
        pytest.exit(opened.run.interrupted, returncode=opened.run.exit_code)
    if opened.options.print_manifests:
        del config.stash[RUN]
        print(opened.manifests())
        return True
    return None


def _narrow(run: Run, config: pytest.Config) -> None:
    """Record the selection; reject a profile that requires an unknown check.

    A check named by --check is also required: passes of other checks do not replace it.
    """
    run.selection = _selection(config)
    run.scope = "partial" if run.selection else "full"
    known = config.stash[KNOWN]
    for check_id in run.required if run.scope == "full" else ():
        selection.one_of(check_id, known, "check in the profile's required", config.stash[ELSEWHERE])
    run.required = tuple(dict.fromkeys((*run.required, *config.getoption("--check"))))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Write the name of the current check to the log."""
    declared, opened = selection.declaration(item), item.config.stash.get(SESSION, None)
    if declared is None or opened is None:
        return (yield)
    with opened.progress.doing(f"judging {declared.id}"):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Block a check if a prerequisite did not pass, and name the prerequisite."""
    declared = selection.declaration(item)
    if declared is None:
        return
    item.stash[EVIDENCE] = Evidence()
    if item.config.stash[RUN].goes_on:
        pytest.skip(attaching.LEFT)
    opened = item.config.stash[SESSION]
    if declared.of_gpus and opened.profile.gpu.none:
        pytest.skip(f"not tested: the trial of profile {opened.profile.name} runs on CPUs alone (gpu.per_node: 0)")
    results = {r.id: r for r in item.config.stash[RUN].results}
    among = (opened.trial_nodes or None) if declared.stage == "acceptance" else None
    by_node = item.config.stash[BY_NODE]
    met = blocks(declared, results, by_node, opened.nodes, among)
    item.stash[BLOCKED] = met.checks
    if met.whole:
        said = [f"{n} ({results[n].outcome if n in results else 'was not run'})" for n in met.whole]
        raise Blocked("blocked by " + ", ".join(said))
    if met.nodes and declared.stage == "acceptance" and among is None:
        opened.unfit = met.nodes  # the trial that this check starts avoids these nodes
        item.stash[EVIDENCE].note(f"the trial excludes {'; '.join(withheld_in_words(met.nodes))}")
    elif met.nodes:
        item.stash[EVIDENCE].withhold(met.nodes)
    if item.config.stash[RUN].tenant and not declared.tenant and (hidden := beyond_namespace(declared.needs)):
        shown = f"; shown instead by {', '.join(declared.proven_by)}" if declared.proven_by else ""
        item.config.stash[RUN].not_seen.append(f"{declared.id} needs {hidden}{shown}")
        item.stash[HIDDEN] = declared.proven_by
        pytest.skip(f"tenant: it needs {hidden}, which a tenant cannot read{shown}")


ENDING = pytest.StashKey[signals.Ending]()
EVIDENCE = pytest.StashKey[Evidence]()
BLOCKED = pytest.StashKey[tuple[str, ...]]()
HIDDEN = pytest.StashKey[tuple[str, ...]]()  # the substitutes of a check that a tenant cannot run
SECONDS = pytest.StashKey[float]()


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Evidence:
    """Return the check's evidence, which is kept for every outcome."""
    collected = request.node.stash.get(EVIDENCE, None)
    return Evidence() if collected is None else collected


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Convert the item's outcome into the result of the check, and keep it in the record."""
    report = yield
    declared = selection.declaration(item)
    if declared is None:
        return report
    item.stash[SECONDS] = item.stash.get(SECONDS, 0.0) + call.duration
    if report.when != "call" and report.passed:
        return report
    gathered = item.stash.get(EVIDENCE, Evidence())
    error = call.excinfo.value if call.excinfo else None
    if report.passed and not gathered.judged:
        error = CannotTell("the check ended without a verdict")
        report.outcome, report.longrepr = "failed", str(error)
    outcome = _outcome(report, error)
    if outcome is Outcome.ERROR:
        report.when = "setup"  # pytest, JUnit and pytest-html report 'error' for a failure before the assertion
    reason = (
        report.longrepr[2] if report.skipped and not isinstance(error, Blocked) else _where(item, call) + _reason(error)
    )
    result = CheckResult(
        id=declared.id,
        title=declared.title,
        stage=declared.stage,
        doc=declared.doc,
        requires=declared.requires,
        outcome=outcome,
        reason=redact(reason.removeprefix("Skipped: ")),
        seconds=item.stash[SECONDS],
        blocked_by=item.stash.get(BLOCKED, ()) if outcome is Outcome.BLOCKED else (),
        fault=gathered.fault,
        waived=gathered.waived,
        findings=tuple(gathered.findings),
        notes=tuple(gathered.notes),
        proven_by=item.stash.get(HIDDEN, ()),
    )
    run = item.config.stash[RUN]
    if not run.goes_on:  # checks left to `job attach` are not results of this run
        run.results[:] = [r for r in run.results if r.id != result.id]  # an error in teardown changes the verdict
        own = item.config.stash.get(OWN_FAULTS, {})
        run.results.append(_with_actions(result, own))
        _explain(run, result, own, gathered.advice, str(item.config.getoption("--command") or ""))
    for name, value in (("check", declared.id), ("outcome", str(outcome)), ("faults", json.dumps(result.faults))):
        item.user_properties.append((name, value))
    report.user_properties = list(item.user_properties)
    report.seatrial = result
    return report


def _where(item: pytest.Item, call: pytest.CallInfo[None]) -> str:
    """Return 'FILE:LINE: ' for a bug in a user's check; '' for shipped checks."""
    known = (Blocked, CannotTell, AssertionError, ClusterError, pytest.skip.Exception)
    if call.excinfo is None or isinstance(call.excinfo.value, known) or _is_ours(item.path):
        return ""
    lines = [entry.lineno + 1 for entry in call.excinfo.traceback if entry.path == item.path]
    return f"{item.path.name}:{lines[-1]}: " if lines else f"{item.path.name}: "


def _reason(error: BaseException | None) -> str:
    """Describe the error that ended the check; errors of other packages are shown with their type."""
    if error is None or isinstance(error, (Blocked, CannotTell, AssertionError, ClusterError)):
        return str(error or "")
    return f"{type(error).__name__}: {error}"


def _with_actions(result: CheckResult, own: Mapping[str, Fault]) -> CheckResult:
    """Set the node action of each failed finding: the more severe one of its fault's action and its own."""
    if not any(finding.ok is False and finding.fault for finding in result.findings):
        return result
    from seatrial.faults.advice import FAULTS  # noqa: PLC0415 -- a healthy run reads no catalogue

    def acted(finding: Finding) -> Finding:
        fault = FAULTS.get(finding.fault) or own.get(finding.fault)
        if finding.ok is not False or fault is None:
            return finding
        return replace(finding, action=str(heaviest((finding.action, fault.action_for(finding.observed))) or ""))

    return replace(result, findings=tuple(map(acted, result.findings)))


def _explain(
    run: Run, result: CheckResult, own: Mapping[str, Fault], advice: Mapping[str, Mapping[str, str]], command: str
) -> None:
    """Add the catalogue entries of the faults to the record, their commands filled in for the first subject.

    ``advice``: by fault, a more specific text than the entry's own; ``command``: the user's own program. If a command
    needs further nodes, nodes without a bad finding are used.
    """
    if not result.faults:
        return
    from seatrial.faults.advice import explain  # noqa: PLC0415 -- a healthy run reads no catalogue

    for fault in result.faults:
        subject = next((f.subject for f in result.findings if f.fault == fault), "")
        nodes, namespace = further_nodes(run, result, subject), run.cluster.get("namespace", "")
        # A finding about images has several, of sidecars, too.
        image = "" if fault.startswith("image") else run.trial.get("image", "")
        names = {"IMAGE": safe(image, 300), "COMMAND": safe(command, 300)}
        run.faults.setdefault(fault, explain(fault, subject, namespace, own, nodes, advice.get(fault), names=names))


def further_nodes(run: Run, result: CheckResult, subject: str) -> list[str]:
    """Return further nodes for a command about a finding's subject.

    For a leaf's uplink these are two nodes behind it and two others.
    """
    named = {finding.subject.partition(" ")[0] for finding in result.findings if finding.ok is not True}
    swept: RecordedSweep = run.sweep or {}
    good = [node for node in swept.get("proven") or run.coverage.tried if node not in named]
    rows = elements(swept)["nodes"]
    leaf = subject.removeprefix("uplink of ").partition(" and ")[0] if subject.startswith("uplink of ") else ""
    behind = {row["name"] for row in rows if leaf and row["leaf"] == leaf}
    if not behind:
        return good
    return [*[node for node in good if node in behind][:2], *[node for node in good if node not in behind][:2]]


def _outcome(report: pytest.TestReport, error: BaseException | None) -> Outcome:
    if report.passed:
        return Outcome.PASSED
    if report.skipped:
        return Outcome.BLOCKED if isinstance(error, Blocked) else Outcome.SKIPPED
    if isinstance(error, AssertionError) and report.when == "call":
        return Outcome.FAILED
    return Outcome.ERROR


# ------------------------------------------------------------------------------------------------------ the end


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None, Any, Any]:
    """Decide and record the verdict, then clean up: an interruption in between does not lose it."""
    opened = session.config.stash.get(SESSION, None)
    ending = session.config.stash.get(ENDING, None)
    if ending is not None:
        ending.over()  # later signals are ignored: record, exit code and terminal must agree
    run = session.config.stash.get(RUN, None)
    interrupted = ending.received if ending is not None else ""
    if run is None and interrupted:
        print(f"seatrial: received {interrupted} before the first check: nothing was judged", file=sys.stderr)
        session.exitstatus = signals.INTERRUPTED
    if run is not None:
        if interrupted and opened is not None and opened.options.sweep and opened.options.out:
            from checks.framework.sweep_spec import how_on  # noqa: PLC0415 -- few runs are sweeps

            run.interrupted = run.interrupted or f"received {interrupted}{how_on(opened.options.out)}"
        _decide(run, interrupted, exitstatus)
        session.exitstatus = run.exit_code
    if opened is not None:
        with opened.progress.doing("cleaning up"):
            opened.keep()
            opened.close()
        opened.progress.close()
    result = yield
    for problem in opened.write_recordings() if opened is not None else ():
        print(problem, file=sys.stderr)
    return result


def _decide(run: Run, interrupted: str, exitstatus: int) -> None:
    """Record further facts that decide verdict and exit code."""
    if interrupted:
        run.interrupted, run.pytest_exit = run.interrupted or f"received {interrupted}", signals.INTERRUPTED
    if exitstatus in ENDED_EARLY and not run.interrupted:
        run.interrupted = ENDED_EARLY[exitstatus]
    if exitstatus == pytest.ExitCode.TESTS_FAILED and run.verdict is Verdict.GO:
        run.interrupted = "a test that is not a check failed"
    if not interrupted and exitstatus not in (*OK, run.exit_code):
        run.pytest_exit = int(exitstatus)
    run.failure_class = failure_class_of(run)
