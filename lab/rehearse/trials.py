"""``seatrial rehearse``: runs the trial on the embedded cluster's scenarios and shows the recognised faults.

Each scenario defines the expected faults, their subjects, and the expected verdict; the trial never reads that. The
list of scenarios and every trial run in separate processes, so that no rehearsal affects the next.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from checks.framework import outfolder, signals
from checks.framework.simulation import lab_package
from cli.usage import Parser, own_program, refuse
from reports.record import write_atomically

if TYPE_CHECKING:
    from reports.schema import Record

    from .matrix import ListedScenario, ScenarioRun

LIMIT_S = 600.0
"""Timeout in seconds, far above the slowest scenario: a trial that takes longer has hung."""
ENDING_S = 30.0
JOBS = min(4, os.cpu_count() or 1) + 1
"""Number of concurrent trials: one more than the cores, since a trial mostly waits."""
NOT_MEANT = ("TAO_K8S_NAMESPACE", "TAO_K8S_CONTEXT", "PYTEST_ADDOPTS")


class UsageError(Exception):
    """Invalid arguments; the message is one line."""


@dataclass(slots=True)
class Rehearsal:
    """One scenario: expected and actual findings."""

    name: str
    where: str  # the scenario as in sim:...
    expected: list[str]
    subjects: dict[str, list[str]]  # fault -> names or patterns of its subjects; a missing fault: any
    outcomes: list[str]
    must_say: dict[str, list[str]] = field(default_factory=dict)  # fault -> texts that its findings must contain
    run: ScenarioRun | None = None  # the trial's profile and options
    faults: list[str] = field(default_factory=list)
    accused: dict[str, list[str]] = field(default_factory=dict)
    observed: dict[str, str] = field(default_factory=dict)  # fault -> texts of its findings
    verdict: str = "no report"
    seconds: float = 0.0
    trouble: str = ""

    @property
    def recognised(self) -> bool:
        """Whether exactly the expected faults were found, on the expected subjects, with an expected verdict."""
        right = set(self.faults) == set(self.expected) and self.verdict in self.outcomes
        return right and not self.trouble and not self.mistaken

    @property
    def mistaken(self) -> str:
        """Describe wrong, missing or incomplete subjects of expected faults; '' if all are right."""
        for fault, patterns in self.subjects.items():
            accused = self.accused.get(fault)
            if not accused:
                continue  # the missing fault itself is reported already
            wrong = [name for name in accused if not any(fnmatch.fnmatchcase(name, each) for each in patterns)]
            spared = [each for each in patterns if not fnmatch.filter(accused, each)]
            if wrong:
                return f"{fault} wrongly names {', '.join(wrong)}"
            if spared:
                return f"{fault} does not name {', '.join(spared)}"
        for fault, texts in self.must_say.items():
            unreported = [word for word in texts if word not in self.observed.get(fault, "")]
            if self.accused.get(fault) and unreported:
                return f"{fault} does not say {', '.join(unreported)}"
        return ""


def parser() -> Parser:
    """The options of ``seatrial rehearse``."""
    made = Parser(
        prog="seatrial rehearse",
        description="Run the trial on scenarios of the embedded cluster and show which faults were recognised.",
        epilog="Exit codes: 0 all were recognised, 1 not all, 2 interrupted, 4 usage error.",
        examples=("seatrial rehearse gpu-missing socket-fallback", "seatrial rehearse --api-faults storm:7 healthy"),
    )
    made.add_argument(
        "scenarios",
        nargs="*",
        metavar="SCENARIO",
        help="shipped ones by name, your own by path (default: all shipped); seatrial sim --list",
    )
    made.add_argument("--api-faults", "--weather", metavar="NAME[:SEED]", help="let the API server misbehave meanwhile")
    made.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        default=JOBS,
        help=f"how many trials at once (default: {JOBS}, by this machine's cores)",
    )
    made.add_argument("--out", metavar="DIR", type=Path, help="keep the report of each scenario below DIR")
    made.add_argument(
        "--matrix",
        action="store_true",
        help="print what is rehearsed and what must be found, as Markdown, and run nothing",
    )
    return made


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    return parser().parse_args(list(arguments))


def main(arguments: Sequence[str]) -> int:
    """Run the rehearsals; return 0 if everything was recognised."""
    try:
        options = parse(arguments)
        if options.matrix:
            from .matrix import page  # noqa: PLC0415 -- the catalogue of faults is read for it alone

            print(page(_listed()), end="")
            return 0
        asked = list(rehearsals(options))
        if options.out:
            _make(options.out)
    except UsageError as error:
        return refuse("rehearse", error)
    with tempfile.TemporaryDirectory(prefix="seatrial-rehearse-") as scratch:
        out: Path = options.out or Path(scratch)
        _rehearse(asked, out, Path(scratch), max(1, options.jobs))
        if options.out:
            results = [{**asdict(each), "recognised": each.recognised} for each in asked]
            try:
                write_atomically(out / "rehearsal.json", json.dumps(results, indent=1) + "\n")
            except OSError as error:
                print(f"seatrial rehearse: rehearsal.json could not be written: {error.strerror}", file=sys.stderr)
    missed = [each.name for each in asked if not each.recognised]
    those = f"; not: {', '.join(missed)}" if missed else ""
    print(f"\n{len(asked) - len(missed)} of {len(asked)} recognised{those}")
    return 1 if missed else 0


def rehearsals(options: argparse.Namespace) -> Iterator[Rehearsal]:
    """Return the scenarios to rehearse, in the given order; an unknown name is rejected before anything starts."""
    suffix = ""
    if options.api_faults is not None:
        name, _, seed = options.api_faults.partition(":")
        suffix = f"?api-faults={name}" + (f"&seed={seed}" if seed else "")
    shipped, taken = {entry["name"]: entry for entry in _listed()}, set()
    if suffix:
        _listed(f"healthy{suffix}")  # raises for unknown API faults
    for ref in dict.fromkeys(options.scenarios or shipped):
        entry = shipped.get(ref) or _listed(ref)[0]
        name = entry["name"]
        while name in taken:  # two files may have the same name, and their reports must not share a folder
            name += "-again"
        taken.add(name)
        yield Rehearsal(
            name,
            ref + suffix,
            list(entry["faults"]),
            dict(entry["subjects"]),
            list(entry["outcomes"]),
            dict(entry["words"]),
            entry["run"],
        )


def _listed(*refs: str) -> list[ListedScenario]:
    """Return the embedded cluster's list of scenarios."""
    try:
        package, folder = lab_package()
    except pytest.UsageError as error:
        raise UsageError(str(error)) from None
    command = [sys.executable, "-P", "-m", package, "--list", "--json", *refs]
    environment = {**_environment(), "PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it says nothing"]
        raise UsageError(said[-1].removeprefix("seatrial sim: "))
    entries: list[ListedScenario] = json.loads(done.stdout)
    return entries


def _make(folder: Path) -> None:
    try:
        outfolder.make(folder)
    except pytest.UsageError as error:
        raise UsageError(str(error)) from error


def _environment(compiled: Path | None = None) -> dict[str, str]:
    """Return the environment of a child process, without the user's settings for a real cluster."""
    environment = {name: value for name, value in own_program()[1].items() if name not in NOT_MEANT}
    if compiled is not None and sys.dont_write_bytecode:  # modules are compiled once, and not for every trial
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    return environment


def _rehearse(asked: Sequence[Rehearsal], out: Path, scratch: Path, jobs: int) -> None:
    """Run all, several at once, and print each row of the matrix when all rows before it are known."""
    columns = ("scenario", "expected", "found", "verdict", "seconds", "recognised")
    faults = max([len(_joined(each.expected)) for each in asked] + [len("expected")])
    widths = (max([len(each.name) for each in asked] + [8]), faults, faults, len("inconclusive"), 7, 10)
    print(_row(columns, widths), flush=True)
    trials: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(rehearse, each, out / each.name, scratch, trials) for each in asked]
        try:
            for each, run in zip(asked, runs, strict=True):
                _wait(asked, runs, run)
                cells = (
                    each.name,
                    _joined(each.expected),
                    _joined(each.faults),
                    each.verdict,
                    f"{each.seconds:.1f}",
                    "yes" if each.recognised else "NO",
                )
                why = "; ".join(filter(None, (each.trouble, each.mistaken)))
                print(_row(cells, widths) + (f"  {why}" if why else ""), flush=True)
        except BaseException:  # Ctrl-C: trials clean up after themselves, then end
            for run in runs:
                run.cancel()
            signals.install().over()
            for trial in trials:
                trial.send_signal(signal.SIGINT)
            raise


def _wait(asked: Sequence[Rehearsal], runs: Sequence[Future[None]], future: Future[None]) -> None:
    """Wait for one trial; on a terminal, show the number of completed trials and the running ones."""
    while not future.done():
        running = [each.name for each, run in zip(asked, runs, strict=True) if run.running()]
        _progress(f"{sum(run.done() for run in runs)} of {len(runs)} done; now: {', '.join(running)}")
        wait([run for run in runs if not run.done()], timeout=LIMIT_S, return_when=FIRST_COMPLETED)
    _progress("")
    future.result()


def command_of(each: Rehearsal, out: Path, scratch: Path) -> list[str]:
    """Return the command line of one trial; a profile in the scenario is written to a file first."""
    run = each.run or {}
    profile, options = run.get("profile"), run.get("options") or []
    if isinstance(profile, dict):
        file = scratch / f"{each.name}.yaml"
        file.write_text(yaml.safe_dump(profile, sort_keys=False), encoding="utf-8")
        profile = str(file)
    given = ["--profile", str(profile)] if profile else []
    command = [*own_program()[0], "accept", "--cluster", f"sim:{each.where}"]
    return [*command, *given, *options, "--out", str(out.absolute())]


def rehearse(each: Rehearsal, out: Path, scratch: Path, trials: list[subprocess.Popen[str]]) -> None:
    """Run one trial and read its report."""
    began = time.monotonic()
    # A separate session: Ctrl-C reaches this process alone, which passes it on.
    trial = subprocess.Popen(
        command_of(each, out, scratch),
        env=_environment(scratch / "pycache"),
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    trials.append(trial)
    try:
        printed, said = trial.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        trial.terminate()
        try:
            trial.communicate(timeout=ENDING_S)
        except subprocess.TimeoutExpired:
            trial.kill()
            trial.communicate()
        each.trouble, printed, said = f"no end within {LIMIT_S:.0f} s", "", ""
    each.seconds = time.monotonic() - began
    _read(each, out / "report.json", trial.returncode, said.strip() or printed)


def _read(each: Rehearsal, report: Path, code: int, output: str) -> None:
    from jobs.run.creation import HELD  # noqa: PLC0415 -- the list of scenarios needs none of it

    try:
        record = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        last = (output.strip().splitlines() or [""])[-1]
        each.trouble = each.trouble or f"no report, exit code {code}: {last}"
        return
    each.verdict = record["verdict"]
    each.accused = accused(record)
    each.faults = list(each.accused)
    each.observed = said_of(record)
    if left := [text for text in record["leftovers"] if HELD not in text]:
        each.trouble = each.trouble or f"left behind: {', '.join(left)}"
    elif code != record["exit_code"]:
        each.trouble = each.trouble or f"exit code {code}, and {record['exit_code']} in the report"


def accused(record: Record) -> dict[str, list[str]]:
    """Return the findings of a report: fault -> its subjects. A fault without a subject has the check's id."""
    faults: dict[str, dict[str, None]] = {}
    for check in record["checks"]:
        for finding in check["findings"]:
            if not finding["ok"] and finding["fault"]:
                faults.setdefault(finding["fault"], {})[finding["subject"]] = None
        if check["fault"] and check["fault"] not in faults:
            faults[check["fault"]] = {check["id"]: None}
    return {fault: list(subjects) for fault, subjects in faults.items()}


def said_of(record: Record) -> dict[str, str]:
    """Return the texts of each fault's findings."""
    lines: dict[str, list[str]] = {}
    for check in record["checks"]:
        for finding in check["findings"]:
            if not finding["ok"] and finding["fault"]:
                lines.setdefault(finding["fault"], []).append(f"{finding['subject']}: {finding['observed']}")
    return {fault: "\n".join(texts) for fault, texts in lines.items()}


def _joined(faults: Sequence[str]) -> str:
    return " ".join(faults) or "-"


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _progress(text: str) -> None:
    """Show the current action on a terminal, on a line that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
