"""Reports usage errors in one line, with pytest's exit code for them."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from reports.record import EXIT_CODES
from reports.schema import Verdict

if TYPE_CHECKING:
    from jobs.cluster.client.kube import Kube

USAGE = 4
INCONCLUSIVE = EXIT_CODES[Verdict.INCONCLUSIVE]


class _Screen(argparse.HelpFormatter):
    """A help text that keeps the examples' layout."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        intro, *examples = text.split("\n\n  ")
        return "\n\n  ".join([super()._fill_text(intro, width, indent), *examples])


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors; argparse's own exit code, 2, means 'interrupted' here.

    No option may be abbreviated: a new one must not change the meaning of an existing command line. ``examples``,
    complete command lines, end its help.
    """

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), epilog: str = "", **options: Any) -> None:
        if examples:
            epilog = "\n\n  ".join([f"{epilog} Examples:".strip(), "\n  ".join(examples)])
        width = min(80, shutil.get_terminal_size().columns)
        screen = partial(_Screen, max_help_position=26, width=width)
        options |= {"formatter_class": screen, "epilog": epilog or None, "allow_abbrev": False}
        super().__init__(*arguments, **options)

    def arguments(self) -> list[argparse.Action]:
        """Return its options and positional arguments."""
        return list(self._actions)

    def add_cluster_options(self, what_for: str = "") -> None:
        """Add the options that select the cluster and its namespace."""
        default = f"{what_for}, like the next two" if what_for else "default: $KUBECONFIG, then ~/.kube/config"
        self.add_argument("--kubeconfig", metavar="FILE", help=default)
        self.add_argument(
            "--context",
            metavar="NAME",
            default=os.environ.get("TAO_K8S_CONTEXT"),
            help=None if what_for else "default: $TAO_K8S_CONTEXT, then the current one",
        )
        self.add_argument(
            *("-n", "--namespace"),
            metavar="NAME",
            default=os.environ.get("TAO_K8S_NAMESPACE"),
            help=None if what_for else "default: $TAO_K8S_NAMESPACE, then the context's, then default",
        )

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        self.exit(USAGE, f"{self.prog}: {message}\n")


def refuse(command: str, why: object, code: int = USAGE) -> int:
    """Print a one-line reason why a command does not continue on standard error, and return its exit code."""
    print(f"seatrial {command}: {why}", file=sys.stderr)
    return code


def connect(options: argparse.Namespace) -> Kube:
    """Return a client for the cluster that the options name. Raises ConfigError for invalid settings."""
    from jobs.cluster.client.kube import Kube  # noqa: PLC0415 -- --help does not load the client

    return Kube.connect(kubeconfig=options.kubeconfig, context=options.context, namespace=options.namespace)


def own_program() -> tuple[list[str], dict[str, str]]:
    """Return the start of a command line that runs this program in a separate process, and its environment."""
    root = Path(__file__).resolve().parent.parent
    wheel = (root / "__main__.py").is_file()
    paths = [str(root.parent if wheel else root), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return [sys.executable, "-P", "-m", "seatrial" if wheel else "checks"], environment


RUNS = {
    "preflight": (
        "Judge the cluster by its API; starts no pod, takes seconds.",
        (
            "seatrial preflight --profile h100-ib",
            "seatrial preflight --tenant --namespace team-a -v",
            "seatrial preflight --nodes pool=h100 --check gpu.free --github",
        ),
    ),
    "accept": (
        "Preflight, then a trial job on two nodes, or on those of --on; takes minutes, deletes its objects.",
        (
            "seatrial accept --cluster sim:healthy --out report",
            "seatrial accept --profile h100-ib --out report",
            "seatrial accept --profile my.yaml --on gpu-3,gpu-7 --check nccl.gdr",
            "seatrial accept --queue kueue:trials --launcher mpijob --checkpoint",
        ),
    ),
}
"""The purpose of the commands that pytest executes, with examples."""


FIRST = (*("--cluster", "--profile", "--nodes", "--on", "--check", "--training", "--out", "--verbose", "--quiet"),)
"""The options that fit a screen; --help-all shows all."""


def run_parser(command: str, *, whole: bool = True) -> Parser:
    """Return the parser of ``preflight`` or ``accept`` for its help, ``whole`` or on one screen; pytest parses them."""
    from checks.framework.options import OF_TRIAL, add_options  # noqa: PLC0415 -- loads pytest

    said, examples = RUNS[command]
    more = "" if whole else "--help-all shows all options. "
    made = Parser(
        prog=f"seatrial {command}",
        usage=f"seatrial {command} [options]",
        description=said,
        epilog=f"{more}Those of pytest work, too (-k, -m, -x).",
        examples=examples,
    )
    made.add_argument("--help-all", action="store_true", help="show all options")

    def option(name: str, **settings: Any) -> object:
        return None if command == "preflight" and name in OF_TRIAL else made.add_argument(name, **settings)

    add_options(option)
    if command == "accept":
        made.add_argument("--partner", metavar="SELECTOR", help="known-good nodes to try those of --nodes with")
    made.add_argument("-v", "--verbose", action="store_true", help="a line for each check, and why it was skipped")
    made.add_argument("-q", "--quiet", action="store_true", help="one line")
    for each in made.arguments() if not whole else ():
        if not set(FIRST).intersection(each.option_strings):
            each.help = argparse.SUPPRESS
    return made
