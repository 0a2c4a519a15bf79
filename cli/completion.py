"""The command ``seatrial completion SHELL``: a script that completes commands, options and their values."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pkgutil import resolve_name

from cli.sweep import parser as sweep_parser
from cli.usage import RUNS, Parser, refuse, run_parser
from jobs.trial.job_spec import LAUNCHERS

SHELLS = ("bash", "zsh")
FILES = {"FILE", "DIR", "LOG", "BEFORE", "AFTER"}
"""Metavariables of paths."""
DESCRIPTION = "Print a script that completes commands, options, profiles, checks and faults."
EXAMPLES = ('eval "$(seatrial completion bash)"', "seatrial completion zsh > ~/.zfunc/_seatrial")


def parser() -> Parser:
    """Return the parser of ``seatrial completion``."""
    made = Parser(prog="seatrial completion", description=DESCRIPTION, examples=EXAMPLES)
    made.add_argument("shell", choices=SHELLS)
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the script; return 0, or 4 if the library that writes it is not installed."""
    options = parser().parse_args(list(arguments))
    if find_spec("shtab") is None:
        return refuse("completion", "run pip install 'seatrial[completion]'")
    import shtab  # noqa: PLC0415 -- an extra

    print(shtab.complete(everything(), shell=options.shell))
    return 0


def everything() -> Parser:
    """Return one parser of all commands with the values of their options; for completion only."""
    import shtab  # noqa: PLC0415 -- an extra

    from checks.profiles.loader import profile_names  # noqa: PLC0415
    from cli.__main__ import COMMANDS  # noqa: PLC0415
    from cli.listing import all_checks  # noqa: PLC0415 -- collects them
    from seatrial.faults.advice import FAULTS  # noqa: PLC0415

    names = {"checks": tuple(all_checks()), "faults": tuple(FAULTS)}
    values = {"--profile": tuple(profile_names()), "--check": names["checks"], "--launcher": LAUNCHERS}
    made = Parser(prog="seatrial")
    commands = made.add_subparsers()
    for command, where in COMMANDS.items():
        if command in RUNS:
            whole = run_parser(command)
        elif command in names:
            whole = Parser()
            whole.add_argument("name", nargs="*", choices=names[command])
        elif isinstance(where, str):
            whole = resolve_name(where.replace(":main", ":parser"))()
        else:
            whole = sweep_parser() if command == "sweep" else Parser()
        for argument in whole.arguments():
            known = [values[text] for text in argument.option_strings if text in values]
            argument.choices = known[0] if known else argument.choices
            if set(str(argument.metavar).split("|")) & FILES and not argument.choices:
                argument.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks
        title = (whole.description or command).split(".")[0]  # shtab leaves out options without help
        commands.add_parser(command, parents=[whole], add_help=False, conflict_handler="resolve", help=title)
    return made
