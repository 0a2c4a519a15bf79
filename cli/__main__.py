"""The command line, a thin layer over pytest: ``seatrial``, or ``python -m checks`` in a clone."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import difflib
import gc
import io
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

USAGE = 4  # pytest's exit code for usage errors, used by every command

INTERNAL = 3  # pytest's exit code for an error of the program itself

FLAGS = ("verbose", "quiet", "exitfirst", "showlocals", "print-manifests", "with-files", "collect-only", "co")
"""Options without a value; the next word is a file or node id to collect."""

HELP = """\
usage: seatrial COMMAND [options]

Acceptance tests for GPU Kubernetes clusters: can a cluster train across nodes
on its RDMA fabric? If not: the fault, its place, and the remedy.

  seatrial preflight       judge the cluster by its API; starts no pod
  seatrial accept          preflight, then a two-node trial job
  seatrial sweep           every free node, alone and in pairs; --plan: its cost
  seatrial explain LOG...  judge NCCL logs: files, folders, '-', job/NAME
  seatrial compare A B     two run records: regressions after an upgrade
  seatrial mark DIR        write results to nodes: condition, label, taint
  seatrial checks [ID]     the checks, or one of them in full
  seatrial faults [ID]     the faults, or one of them in full
  seatrial profile ...     lint, detect or capture a profile
  seatrial rbac [...]      least-privilege RBAC for a run; --tenant: one Role
  seatrial cron            a scheduled run: idle GPUs, one run at a time
  seatrial lint FILE       check a job's manifest, or job/NAME
  seatrial policy          an admission policy from an accepted run
  seatrial serve DIR       metrics of the newest run, for Prometheus
  seatrial job ...         run your own job; status, logs, cancel of any
  seatrial cleanup         delete leftovers of earlier runs
  seatrial sim [SCENARIO]  serve the embedded cluster; --list shows scenarios
  seatrial rehearse [...]  run the trial on scenarios; check their faults
  seatrial completion SH   completion of commands and options for bash or zsh

exit codes: 0 go · 1 no-go · 10 inconclusive · 2 interrupted · 3 internal error
            4 usage error · 5 nothing was selected

seatrial COMMAND --help shows its options, with examples; seatrial --version
shows the version. To start:

  seatrial accept --cluster sim:healthy --out report
"""


def suite() -> Path:
    """Return the directory that holds conftest.py and checks/: the clone, or the installed package."""
    here = Path(__file__).resolve().parent
    if (here / "checks").is_dir():  # a wheel has seatrial/__main__.py next to seatrial/checks/
        return here
    spec = find_spec("checks")  # a clone, or an editable install of one
    if spec is None or not spec.submodule_search_locations:
        print("seatrial: its checks/ directory is missing; reinstall it", file=sys.stderr)
        raise SystemExit(INTERNAL)
    return Path(spec.submodule_search_locations[0]).parent


def run_checks(arguments: Sequence[str]) -> int:
    """Run pytest on the checks of this installation, independent of the working directory."""
    _begin(arguments)
    import pytest  # noqa: PLC0415 -- --help does not wait for it

    root = suite()
    fixed = [
        f"--config-file={root / 'pyproject.toml'}",
        f"--rootdir={root}",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",  # once installed, its final messages cost half a second
        "-p",
        "no:unraisableexception",  # it collects all garbage twice: a quarter of a run's own processor time
    ]
    quiet = ["-q", "--no-header", "--tb=no", "-r", "", "-o", "console_output_style=classic"]
    if not {"--co", "--collect-only"} & set(arguments):
        arguments, verbosity = _verbosity(arguments)
        # This suite prints the summary; with one -q pytest would add its own, and "no tests ran".
        quiet += ["-q", "-o", f"verbosity_test_cases={verbosity}"]
    if not {"--co", "--collect-only", "--print-manifests"} & set(arguments):
        _forget_report(arguments)
    said = io.StringIO()
    code = int(pytest.ExitCode.INTERNAL_ERROR)
    try:
        with contextlib.redirect_stderr(said):  # pytest writes usage errors to it, in several lines
            code = int(pytest.main([*fixed, *quiet, str(root / "checks"), *arguments]))
    finally:
        text = said.getvalue()
        if text and sys.stdout.isatty():
            print("\x1b[K", end="", flush=True)
        print(f"seatrial: {_mistake(text)}\n" if code == USAGE else text, end="", file=sys.stderr)
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        print("seatrial: nothing was selected; seatrial checks lists all checks", file=sys.stderr)
    return code


def _begin(arguments: Sequence[str]) -> None:
    """Print a progress line immediately, since imports take seconds on a busy machine. The next output replaces it."""
    if not sys.stdout.isatty():
        return
    from checks.framework.streams import begins  # noqa: PLC0415 -- found only now

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--cluster", nargs="?", default="")
    cluster = parser.parse_known_args(list(arguments))[0].cluster or ""
    alone = {"-q", "--quiet", "-qq", "--co", "--collect-only", "--print-manifests", "--version"}
    if cluster.partition(":")[0] == "sim" and not alone & set(arguments):
        print(f"  · {begins(cluster.partition(':')[2] or 'healthy')} ...", end="\r", flush=True)


def _verbosity(arguments: Sequence[str]) -> tuple[list[str], int]:
    """Remove -v and -q from the arguments; return the rest and the verbosity (reports.plugin)."""
    rest, level = [], -1  # one line for each family of checks
    for word in arguments:
        letters = {"--verbose": "v", "--quiet": "q"}.get(word, word.removeprefix("-"))
        if set(letters) in ({"v"}, {"q"}) and word != letters:  # argparse never takes such a word as a value
            level += len(letters) if letters[0] == "v" else -len(letters)
        else:
            rest.append(word)
    return rest, level


def _mistake(text: str) -> str:
    """Reduce pytest's usage error to one line, with the nearest valid option."""
    from cli.usage import run_parser  # noqa: PLC0415 -- found only now

    lines = [line.strip().removeprefix("ERROR: ") for line in text.splitlines() if line.strip()]
    about = ("usage: ", "inifile: ", "rootdir: ")
    said = re.sub(r"^pytest\S*: error: ", "", " ".join(line for line in lines if not line.startswith(about)))
    wrong = re.match(r"unrecognized arguments: (--[\w-]+)", said)
    known = [text for argument in run_parser("accept").arguments() for text in argument.option_strings]
    near = difflib.get_close_matches(wrong[1], known, n=1) if wrong else []
    return said + (f"; did you mean {near[0]}?" if near else "")


def _forget_report(arguments: Sequence[str]) -> None:
    """Remove an older report first: pytest may refuse the command line before it calls the plugin."""
    import pytest  # noqa: PLC0415 -- as above

    from checks.framework import outfolder  # noqa: PLC0415

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out", nargs="?")
    parser.add_argument("--resume", nargs="?")
    options = parser.parse_known_args(list(arguments))[0]
    same = (
        options.resume and options.out and Path(options.resume).absolute() == Path(options.out).absolute()
    )  # pytest rejects the option
    if (out := options.out) and not same:
        with contextlib.suppress(pytest.UsageError):
            outfolder.clear(Path(out).absolute())


def preflight(arguments: Sequence[str]) -> int:
    """Run the checks that only read the API."""
    narrowed = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    narrowed.add_argument("-m", dest="markers", action="append", default=[])
    chosen, rest = narrowed.parse_known_args(arguments)
    markers = " and ".join(f"({m})" for m in ("preflight", *chosen.markers)) if chosen.markers else "preflight"
    return run_checks(["-m", markers, *rest])


def accept(arguments: Sequence[str]) -> int:
    """Run the whole catalogue; with --partner in two runs."""
    if any(word == "--partner" or word.startswith("--partner=") for word in arguments):
        from checks.framework.signals import interruptible  # noqa: PLC0415
        from cli.canary import main  # noqa: PLC0415

        with interruptible():
            return main(arguments)
    return run_checks(arguments)


def sweep(arguments: Sequence[str]) -> int:
    """Test every node and pair of a fleet; with --plan only print the cost."""
    if plans(arguments):
        from cli.sweep import main  # noqa: PLC0415

        return main(arguments)
    return run_checks(["--sweep", *arguments])


def plans(arguments: Sequence[str]) -> bool:
    """Return whether only the plan or the help of `seatrial sweep` is requested."""
    return bool({"--plan", "-h", "--help"} & set(arguments))


def sim(arguments: Sequence[str]) -> int:
    """Serve the embedded cluster."""
    return _of_lab("sim", "__main__", arguments)


def rehearse(arguments: Sequence[str]) -> int:
    """Run the trial on scenarios of the embedded cluster."""
    return _of_lab("rehearse", "rehearse.trials", arguments)


def _of_lab(command: str, module: str, arguments: Sequence[str]) -> int:
    """Run a command of the embedded cluster's distribution."""
    import pytest  # noqa: PLC0415

    from checks.framework.simulation import lab_package  # noqa: PLC0415
    from cli.usage import refuse  # noqa: PLC0415

    try:
        program = import_module(f"{lab_package()[0]}.{module}")
    except pytest.UsageError as error:
        return refuse(command, error)
    return int(program.main(list(arguments)))


COMMANDS: dict[str, str | Callable[[Sequence[str]], int]] = {
    "preflight": preflight,
    "accept": accept,
    "sweep": sweep,
    "explain": "cli.explain:main",
    "checks": "cli.listing:show_checks",
    "faults": "cli.listing:show_faults",
    "job": "cli.job:main",
    "cleanup": "cli.cleanup:main",
    "compare": "cli.compare:main",
    "mark": "cli.mark:main",
    "cron": "cli.schedule.cron:main",
    "lint": "cli.lint:main",
    "policy": "cli.policy:main",
    "serve": "cli.serve:main",
    "profile": "cli.profile:main",
    "rbac": "cli.rbac:main",
    "sim": sim,
    "rehearse": rehearse,
    "completion": "cli.completion:main",
}
"""Each command's function, or its module: no command waits for the imports of another."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    atexit.register(gc.freeze)  # an exit with a search for cycles takes a tenth of the time of a command
    root = str(suite())
    if root not in sys.path:
        sys.path.insert(0, root)
    from checks.framework import streams  # noqa: PLC0415 -- found only now

    command, *arguments = (sys.argv[1:] if argv is None else argv) or [""]
    with streams.tolerant() as output:
        code = _dispatch(command, arguments)
        reported = command in ("preflight", "accept", "sweep", "cron") and any(
            word.startswith("--out") for word in arguments
        )
        return output.code(code, reported=reported)


def _dispatch(command: str, arguments: Sequence[str]) -> int:
    """Run a command, or list the commands."""
    if command in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if command in ("preflight", "accept") and {"-h", "--help", "--help-all"} & set(arguments):
        from cli.usage import run_parser  # noqa: PLC0415 -- found only now

        run_parser(command, whole="--help-all" in arguments).print_help()
        return 0
    if not command:
        from cli.start import main as start  # noqa: PLC0415

        return start()
    if command in ("-V", "--version"):
        from checks.framework.version import version  # noqa: PLC0415

        print(f"seatrial {version()}")
        return 0
    if command not in COMMANDS:
        from jobs.listing import nearest  # noqa: PLC0415

        print(f"seatrial: unknown command {command!r}{nearest(command, COMMANDS)}", file=sys.stderr)
        return USAGE
    return _run(COMMANDS[command], arguments)


def _run(command: str | Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    from checks.framework import signals  # noqa: PLC0415 -- found only now

    try:
        function: Callable[[Sequence[str]], int] = resolve_name(command) if isinstance(command, str) else command
        if function in (accept, preflight) or (function is sweep and not plans(arguments)):
            signals.install()  # a run itself reports its interruption
            return function(arguments)
        with signals.interruptible():
            return function(arguments)
    except KeyboardInterrupt as interrupt:
        print(f"seatrial: {interrupt or 'received SIGINT'}: ended early", file=sys.stderr)
        return signals.INTERRUPTED
    except SystemExit as end:  # only argparse's exit; other texts are not a verdict
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return INTERNAL
    except Exception:  # noqa: BLE001 -- Python's own exit code for it is 1, which says that the cluster is at fault
        traceback.print_exc()
        return INTERNAL


if __name__ == "__main__":
    raise SystemExit(main())
