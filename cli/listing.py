"""``seatrial checks`` and ``seatrial faults``: the two catalogues, listed or one entry in full."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tabulate import tabulate

from checks.framework import selection
from checks.framework.selection import Declaration, declaration
from cli.usage import USAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class _Collector:
    """A pytest plugin that keeps what was collected."""

    def __init__(self) -> None:
        self.found: dict[str, Declaration] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if declared := declaration(item):
                self.found[declared.id] = declared


def declared_checks(selection: Sequence[str] = ()) -> dict[str, Declaration]:
    """Return the checks of this installation by id, in the order in which they run; all, or what pytest options select.

    Raises RuntimeError where pytest collects none.
    """
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
        *selection,
    ]
    code = pytest.main(arguments, plugins=[collector])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"the checks could not be collected (pytest exit code {int(code)})")
    return collector.found


def show_checks(arguments: Sequence[str]) -> int:
    """Print the list of checks, or the checks named in full."""
    if _asks_help(arguments):
        print("usage: seatrial checks [ID ...]\n\nList the checks, or show the named ones in full.")
        return 0
    found = declared_checks()
    if not arguments:
        rows = [(d.id, d.stage, d.title) for d in found.values()]
        print(tabulate(rows, headers=["check", "stage", "asserts"], disable_numparse=True))
        return 0
    return _each(arguments, found, "check", lambda name: _check(found[name]))


def show_faults(arguments: Sequence[str]) -> int:
    """Print the list of faults, or the faults named in full."""
    if _asks_help(arguments):
        print("usage: seatrial faults [ID ...]\n\nList the faults, or show the named ones in full.")
        return 0
    from checks.faults.catalogue import FAULTS, explain  # noqa: PLC0415 -- the list of checks does not need them

    if not arguments:
        rows = [(name, explain(name)["title"]) for name in FAULTS]
        print(tabulate(rows, headers=["fault", "means"], disable_numparse=True))
        return 0
    return _each(arguments, FAULTS, "fault", lambda name: _entry(name, explain(name)))


def _asks_help(arguments: Sequence[str]) -> bool:
    return bool({"-h", "--help"} & set(arguments))


def _each(names: Sequence[str], entries: Mapping[str, object], kind: str, text: object) -> int:
    assert callable(text)
    try:
        chosen = [selection.one_of(name, entries, kind) for name in names]
    except pytest.UsageError as error:
        print(f"seatrial: {error}", file=sys.stderr)
        return USAGE
    print("\n\n".join(text(name) for name in chosen))
    return 0


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


def _entry(name: str, entry: Mapping[str, str]) -> str:
    parts = [f"{name}: {entry.get('title', '')}"]
    for key in ("meaning", "confirm", "remedy", "source"):
        if entry.get(key):
            body = textwrap.fill(
                entry[key],
                100,
                initial_indent="    ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            parts += [f"  {key}", body]
    return "\n".join(parts)
