"""``seatrial checks`` and ``seatrial faults``: list the two catalogues, or show one entry in full."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import yaml
from tabulate import tabulate

from checks.framework import selection
from checks.framework.selection import Declaration, declaration
from cli.requirements import REQUIREMENTS, list_names, show_requirements
from cli.usage import USAGE, Parser
from jobs.cluster.redact import safe
from reports.requirements.forms import FORMATS
from seatrial.faults.catalogue import Fault, OwnFaultsError
from seatrial.faults.variants import fill

FOUND = 1  # the file has errors; pytest's code for failed tests, as for a no-go


class _Collector:
    """A pytest plugin that records the collected and the selected items, in the order of the run."""

    def __init__(self) -> None:
        self.every: list[pytest.Item] = []
        self.selected: list[pytest.Item] = []
        self.failed = ""

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        self.every.append(item)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = report.longreprtext.splitlines()[-1].removeprefix("E").strip()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.selected = session.items


def _collected(options: Sequence[str]) -> _Collector:
    root = Path(__file__).resolve().parents[1]
    collector = _Collector()
    arguments = [
        f"--config-file={root / 'pyproject.toml'}",
        f"--rootdir={root}",
        str(root / "checks"),
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminal",
        "-p",
        "no:hypothesispytest",  # this and the next as in __main__.py: half of the time
        "-p",
        "no:unraisableexception",
        *options,
    ]
    code = pytest.main(arguments, plugins=[collector])
    if code != pytest.ExitCode.OK:
        said = collector.failed or f"pytest exit code {int(code)}"
        raise RuntimeError(f"the checks could not be collected: {said}")
    return collector


def _by_id(items: Iterable[pytest.Item]) -> dict[str, Declaration]:
    return {declared.id: declared for item in items if (declared := declaration(item))}


def declared_checks(options: Sequence[str] = ()) -> dict[str, Declaration]:
    """Return the checks of this installation by id, in run order: all, or those that pytest options select.

    Raises RuntimeError if pytest collects none.
    """
    return _by_id(_collected(options).selected)


def all_checks(files: Sequence[str] = ()) -> dict[str, Declaration]:
    """Return the checks of all commands, and of a user's files. The checks of a sweep, part of no other run, come last.

    Raises RuntimeError if pytest collects none.
    """
    collected = _collected(["--training", *files])
    return _by_id([*collected.selected, *selection.order(collected.every, collected.every)])


def show_checks(arguments: Sequence[str]) -> int:
    """Print the list of checks, or the named checks in full."""
    examples = (
        "seatrial checks nccl",
        "seatrial checks nccl.gdr",
        "seatrial checks test_ours.py",
        "seatrial checks --requirements cncf-ai-1.35",
        "seatrial checks --requirements ours.yaml report --format csv",
    )
    asked = _asked(arguments, "check", *examples)
    queries = list(asked.words)
    files = [word for word in queries if word.endswith(".py")]
    if gone := [word for word in files if not Path(word).is_file()]:
        print(f"seatrial: {gone[0]}: no such file", file=sys.stderr)
        return USAGE
    queries = [word for word in queries if word not in files]
    try:
        checks = all_checks(files)
    except RuntimeError as error:
        if not files:
            raise
        print(f"seatrial: {safe(str(error))}", file=sys.stderr)
        return USAGE
    if asked.requirements:
        return show_requirements(asked.requirements, queries, asked.format, checks)
    if files:
        checks = {name: each for name, each in checks.items() if each.own}
    about = {name: f"{name} {d.title} {d.doc}" for name, d in checks.items()}
    rows = {name: (name, d.stage, d.title) for name, d in checks.items()}
    return _print_entries(
        queries, "check", about, rows, ("check", "stage", "asserts"), lambda name: _check(checks[name])
    )


def show_faults(arguments: Sequence[str]) -> int:
    """Print the list of faults, or the named faults in full."""
    examples = ("seatrial faults gdr", "seatrial faults nccl.gdr-off", "seatrial faults --lint ours.yaml")
    asked = _asked(arguments, "fault", *examples)
    if asked.lint:
        return _lint(Path(asked.lint))
    queries = list(asked.words)
    from seatrial.faults.advice import FAULTS, explain  # noqa: PLC0415 -- the list of checks does not need them

    about = {name: " ".join((name, fault.title, *_texts(fault))) for name, fault in FAULTS.items()}
    rows = {name: (name, explain(name)["title"]) for name in FAULTS}
    headers = ("fault", "means")
    return _print_entries(
        queries,
        "fault",
        about,
        rows,
        headers,
        lambda name: _entry(name, explain(name), FAULTS[name]),
        _synonyms() if queries else {},
    )


def _texts(fault: Fault) -> Iterator[str]:
    yield from (fault.meaning, fault.confirm, fault.remedy)
    for each in fault.alternatives:
        yield from (each.cause, each.confirm)
    yield from (each.cause for each in fault.variants if each.cause)


def _synonyms() -> dict[str, list[str]]:
    """Return synonyms of faults: a lower-case word and its fault ids."""
    return dict(yaml.safe_load(Path(__file__).with_name("synonyms.yaml").read_text(encoding="utf-8")))


def _lint(place: Path) -> int:
    """List the errors of a user's file of faults, one a line; return 0 if there are none."""
    from seatrial.faults.own import use  # noqa: PLC0415 -- the lists do not need it

    try:
        faults, lines = use(place)
    except (OwnFaultsError, OSError) as error:
        print(safe(str(error), 20_000), file=sys.stderr)
        return FOUND
    print(f"{safe(str(place))}: {faults} faults and {lines} kinds of lines, nothing is wrong")
    return 0


def _asked(arguments: Sequence[str], kind: str, *examples: str) -> argparse.Namespace:
    said = f"List the {kind}s, those of a family or about a word; or show one in full."
    parser = Parser(prog=f"seatrial {kind}s", description=said, examples=examples)
    parser.add_argument("words", nargs="*", metavar="ID|FAMILY|WORD" + ("|FILE" if kind == "check" else ""))
    if kind == "check":
        parser.epilog = f"{REQUIREMENTS} {parser.epilog}"
        parser.add_argument(
            "--requirements",
            metavar="LIST",
            help=f"the requirements of a list with their checks: {', '.join(list_names())}, or a file",
        )
        parser.add_argument("--format", choices=FORMATS, default="text", help="of their results in a run")
    if kind == "fault":
        parser.add_argument("--lint", metavar="FILE|DIR", help="check a file with your own faults, and exit")
    return parser.parse_args(list(arguments))


def _print_entries(
    arguments: Sequence[str],
    kind: str,
    about: Mapping[str, str],
    rows: Mapping[str, tuple[str, ...]],
    headers: tuple[str, ...],
    text: Callable[[str], str],
    synonyms: Mapping[str, Sequence[str]] | None = None,
) -> int:
    """Print all rows, the entries with the given ids in full, or the rows of a family or about a word."""
    if arguments and all(word in about for word in arguments):
        print("\n\n".join(text(name) for name in arguments))
        return 0
    chosen = dict.fromkeys(about) if not arguments else {}
    for word in arguments:
        named = [word] if word in about else [name for name in about if name.split(".")[0] == word]
        named = named or _about(word, about, synonyms or {})
        if not named:
            print(f"seatrial: {_nothing(word, kind, about)}", file=sys.stderr)
            return USAGE
        chosen |= dict.fromkeys(named)
    print(tabulate([rows[name] for name in chosen], headers=headers, disable_numparse=True))
    return 0


def _about(word: str, about: Mapping[str, str], synonyms: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the entries with a word that begins so: first those with it in their ids, then its synonyms."""
    if re.search(r"\w", word) is None:
        return []
    begins = re.compile(rf"(?<![a-z0-9]){re.escape(word.casefold())}")
    meant = {name for other, names in synonyms.items() if _alike(word.casefold(), other) for name in names}
    found = {name: begins.search(name) is None for name in about if begins.search(about[name].casefold())}
    by_id = sorted(found, key=lambda name: found[name])  # the sort is stable: the order of the catalogue within both
    return [*(name for name in about if name in meant), *(name for name in by_id if name not in meant)]


def _alike(word: str, other: str) -> bool:
    """Return whether the words are equal, plural of each other, or one begins with the other (four letters or more)."""
    return word in (other, other + "s") or (len(word) >= SHORTEST and other.startswith(word))


SHORTEST = 4


def _nothing(word: str, kind: str, known: Iterable[str]) -> str:
    """Report an unknown name; suggest the nearest id only within a known family, since letters alone mislead."""
    family, _, rest = word.casefold().partition(".")
    near = _nearest(rest, [name.partition(".")[2] for name in known if name.partition(".")[0] == family])
    nearest = " or ".join(f"{family}.{name}" for name in near)
    said = f"did you mean {nearest}?" if near else f"none found: seatrial {kind}s lists them all"
    return f"unknown {kind} {safe(word, 80)!r}; {said}"


def _nearest(word: str, names: Sequence[str]) -> list[str]:
    """Return at most three names that nearly equal the word, or match each of its parts."""

    def alike(one: str, other: str) -> float:
        return difflib.SequenceMatcher(None, one, other).ratio()

    parts = word.split("-")
    near = {
        name: max(alike(word, name), min(max(alike(part, other) for other in name.split("-")) for part in parts))
        for name in names
    }
    found = (name for name in names if near[name] >= NEARLY)
    return sorted(found, key=lambda name: (-near[name], -alike(parts[0], name.split("-")[0])))[:SUGGESTED]


NEARLY, SUGGESTED = 0.8, 3  # one wrong letter of five, two of ten


def _check(declared: Declaration) -> str:
    parts = [f"{declared.id}: {declared.title}", "", textwrap.indent(declared.doc, "  "), ""]
    for label, values in (
        ("stage", (declared.stage,)),
        ("requires", declared.requires),
        ("not after a fault of", declared.unless_failed),
        ("asks for", declared.needs),
        ("shows a tenant the same", declared.proven_by),
        ("faults", declared.faults),
    ):
        if values:
            parts.append(f"  {label}: {', '.join(values)}")
    return "\n".join(parts)


def _entry(name: str, entry: Mapping[str, str], fault: Fault) -> str:
    parts = [f"{name}: {entry.get('title', '')}"]
    for key in ("meaning", "confirm", "remedy", "source"):
        if entry.get(key):
            parts += [f"  {key}", _wrapped(entry[key], 4)]
    parts += _actions(fault)
    told = [each for each in fault.variants if each.cause and each.remedy]
    parts += ["  causes with a separate message"] if told else []
    for each in told:
        parts.append(_wrapped(f"- {_unnamed(each.cause or '')}", 4))
        parts += [_wrapped(f"{key}: {_unnamed(getattr(each, key))}", 6) for key in ("confirm", "remedy")]
    if like := dict.fromkeys(name for each in fault.variants for name in each.like):
        parts += ["  its messages may also be those of", f"    {', '.join(like)}"]
    return "\n".join(parts)


def _actions(fault: Fault) -> Iterator[str]:
    """Yield the action for the node (the fault's, by observation, of its Xids) and its source."""
    if not fault.action:
        return
    from seatrial.faults.actions import in_words  # noqa: PLC0415 -- the list of checks does not need them
    from seatrial.faults.xid import action_of, xids  # noqa: PLC0415 -- as above

    yield "  action for the node"
    yield _wrapped(f"{fault.action}: {in_words(fault.action)}", 4)
    for observed, action in fault.actions.items():
        yield _wrapped(f"{action} where the finding has: {observed}", 4)
    by_action: dict[str, list[str]] = {}
    for number, xid in xids().items():
        if xid.check == fault.id:
            by_action.setdefault(action_of(number), []).append(str(number))
    for action, numbers in by_action.items():
        yield _wrapped(f"{action} after Xid {', '.join(numbers)}", 4)
    yield _wrapped(f"source: {fault.action_source or fault.source}", 4)


def _unnamed(text: str) -> str:
    """Replace each placeholder that a message would fill by a word."""
    return re.sub(r"\{(?:\d|said)?\}", "NAME", fill(text))


def _wrapped(text: str, indent: int) -> str:
    space = " " * indent
    wrapper = textwrap.TextWrapper(
        100, initial_indent=space, subsequent_indent=space, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.fill(text)
