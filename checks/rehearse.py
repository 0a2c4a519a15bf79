"""Does the suite recognise what it claims to? ``seatrial rehearse`` runs the trial on the embedded cluster's scenarios.

Each scenario says which faults must be found and how the run must end; the trial never sees that. Both the cluster's
list of scenarios and every trial are processes of their own, so nothing of one rehearsal reaches the next.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checks.command_line import USAGE, Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

INTERRUPTED = 2  # pytest's exit code, as everywhere
ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 600.0
"""Far above the slowest scenario: a trial that takes longer has hung."""
ENDING_S = 30.0
NOT_MEANT = ("TAO_K8S_NAMESPACE", "TAO_K8S_CONTEXT", "PYTEST_ADDOPTS")


class UsageError(Exception):
    """What was typed cannot be rehearsed; one line."""


@dataclass(slots=True)
class Rehearsal:
    """One scenario: what must be found, and what was."""

    name: str
    where: str  # what stands behind sim:
    expected: list[str]
    outcomes: list[str]
    found: list[str] = field(default_factory=list)
    verdict: str = "no report"
    seconds: float = 0.0
    trouble: str = ""

    @property
    def recognised(self) -> bool:
        """Whether exactly the stated faults were found, and the verdict is one of the stated ones."""
        return not self.trouble and set(self.found) == set(self.expected) and self.verdict in self.outcomes


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="seatrial rehearse", allow_abbrev=False,
        description="Run the trial on scenarios of the embedded cluster and show which faults were recognised.",
        epilog="Exit codes: 0 all were recognised, 1 not all, 2 interrupted, 4 usage error.",
    )  # fmt: skip
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO",
                        help="shipped ones by name, your own by path (default: all shipped); seatrial sim --list")
    parser.add_argument("--weather", metavar="NAME[:SEED]", help="let the API server misbehave meanwhile")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="how many trials at once (default: 1)")
    parser.add_argument("--out", metavar="DIR", type=Path, help="keep the report of each scenario below DIR")
    return parser.parse_args(list(arguments))


def main(arguments: Sequence[str]) -> int:
    """Rehearse; 0 when everything was recognised."""
    try:
        options = parse(arguments)
        asked = list(_wanted(options))
        if options.out:
            _make(options.out)
    except UsageError as error:
        print(f"seatrial rehearse: {error}", file=sys.stderr)
        return USAGE
    with tempfile.TemporaryDirectory(prefix="seatrial-rehearse-") as scratch:
        out: Path = options.out or Path(scratch)
        _rehearse(asked, out, max(1, options.jobs))
        if options.out:
            told = [{**asdict(each), "recognised": each.recognised} for each in asked]
            (out / "rehearsal.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    missed = [each.name for each in asked if not each.recognised]
    those = f"; not: {', '.join(missed)}" if missed else ""
    print(f"\n{len(asked) - len(missed)} of {len(asked)} recognised{those}")
    return 1 if missed else 0


def _wanted(options: argparse.Namespace) -> Iterator[Rehearsal]:
    """What is to be rehearsed, in the order given; a name that is wrong is refused before anything starts."""
    suffix = ""
    if options.weather is not None:
        name, _, seed = options.weather.partition(":")
        suffix = f"?weather={name}" + (f"&seed={seed}" if seed else "")
    shipped, taken = {entry["name"]: entry for entry in _listed()}, set()
    if suffix:
        _listed(f"healthy{suffix}")  # is there such a weather?
    for ref in dict.fromkeys(options.scenarios or shipped):
        entry = shipped.get(ref) or _listed(ref)[0]
        name = entry["name"]
        while name in taken:  # two files may bear one name; their reports may not lie in one folder
            name += "-again"
        taken.add(name)
        yield Rehearsal(name, ref + suffix, list(entry["faults"]), list(entry["outcomes"]))


def _listed(*refs: str) -> list[dict[str, Any]]:
    """What the embedded cluster says of its scenarios."""
    command = [sys.executable, "-P", "-m", "sim", "--list", "--json", *refs]
    done = subprocess.run(command, env=_environment(ROOT), capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it says nothing"]
        raise UsageError(said[-1].removeprefix("seatrial sim: "))
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror}") from error


def _environment(path: Path) -> dict[str, str]:
    """The environment of a process of ours; what the user set for a real cluster is not meant for this one."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_MEANT}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, [str(path), os.environ.get("PYTHONPATH")]))}


def _rehearse(asked: Sequence[Rehearsal], out: Path, jobs: int) -> None:
    """Run all, some at once, and print each row of the matrix as soon as all before it are known."""
    columns = ("scenario", "expected", "found", "verdict", "seconds", "recognised")
    faults = max([len(_words(each.expected)) for each in asked] + [len("expected")])
    widths = (max([len(each.name) for each in asked] + [8]), faults, faults, len("inconclusive"), 7, 10)
    print(_row(columns, widths), flush=True)
    trials: list[subprocess.Popen[str]] = []
    for ending in (signal.SIGTERM, signal.SIGHUP):  # nobody else would tell the trials
        signal.signal(ending, signal.default_int_handler)
    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(_run, each, out / each.name, trials) for each in asked]
        try:
            for number, (each, run) in enumerate(zip(asked, runs, strict=True), 1):
                _progress(f"{number} of {len(asked)}: {each.name}")
                run.result()
                _progress("")
                seen = (each.name, _words(each.expected), _words(each.found), each.verdict, f"{each.seconds:.1f}",
                        "yes" if each.recognised else "NO")  # fmt: skip
                print(_row(seen, widths) + (f"  {each.trouble}" if each.trouble else ""), flush=True)
        except BaseException:  # Ctrl-C: trials clean up after themselves, then end
            for run in runs:
                run.cancel()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for trial in trials:
                trial.send_signal(signal.SIGINT)
            raise


def _run(each: Rehearsal, out: Path, trials: list[subprocess.Popen[str]]) -> None:
    """Run one trial and read its report."""
    wheel = (ROOT / "__main__.py").is_file()
    program = [sys.executable, "-P", "-m", "seatrial" if wheel else "checks"]
    command = [*program, "accept", "--cluster", f"sim:{each.where}", "--out", str(out.absolute())]
    began = time.monotonic()
    # A session of its own: Ctrl-C reaches this process alone, which tells it.
    trial = subprocess.Popen(command, env=_environment(ROOT.parent if wheel else ROOT), text=True,
                             start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
    trials.append(trial)
    try:
        _, said = trial.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        trial.terminate()
        try:
            trial.communicate(timeout=ENDING_S)
        except subprocess.TimeoutExpired:
            trial.kill()
            trial.communicate()
        each.trouble, said = f"no end within {LIMIT_S:.0f} s", ""
    each.seconds = time.monotonic() - began
    _read(each, out / "report.json", trial.returncode, said)


def _read(each: Rehearsal, report: Path, code: int, said: str) -> None:
    try:
        record = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        last = (said.strip().splitlines() or [""])[-1]
        each.trouble = each.trouble or f"no report, exit code {code}: {last}"
        return
    each.verdict = record["verdict"]
    named = [check["fault"] for check in record["checks"]]
    named += [finding["fault"] for check in record["checks"] for finding in check["findings"] if not finding["ok"]]
    each.found = list(dict.fromkeys(filter(None, named)))
    if record["leftovers"]:
        each.trouble = each.trouble or f"left behind: {', '.join(record['leftovers'])}"
    elif code != record["exit_code"]:
        each.trouble = each.trouble or f"exit code {code}, and {record['exit_code']} in the report"


def _words(faults: Sequence[str]) -> str:
    return " ".join(faults) or "-"


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _progress(words: str) -> None:
    """Say on a terminal what runs now, on a line that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)
