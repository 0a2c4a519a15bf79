"""``seatrial compare BEFORE AFTER``: compares the records of runs before and after an upgrade."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cli.usage import Parser, refuse
from reports.compare.comparison import compare
from reports.compare.text import page, render
from reports.record import read_json
from reports.schema import Record, RecordError

DESCRIPTION = """\
Compare run records (report.json) from before and after a change: regressions, improvements, new and resolved faults,
and changed components. Each side is a record, a directory that --out wrote, or a directory of several of those: repeats
of the same run make the comparison of bandwidth sharper."""
EXAMPLES = ("seatrial compare before after", "seatrial compare --nodes all --format markdown before after/report.json")
EPILOG = "Exit codes: 0 no regression, 1 a regression, 4 usage error or damaged record, 10 undetermined."
MOST_RECORDS = 1000


def parser() -> Parser:
    """Return the parser of ``seatrial compare``."""
    made = Parser(prog="seatrial compare", description=DESCRIPTION, epilog=EPILOG, examples=EXAMPLES)
    made.add_argument("before", metavar="BEFORE", type=Path, help="report.json, or a directory")
    made.add_argument("after", metavar="AFTER", type=Path, help="report.json, or a directory")
    made.add_argument("--nodes", choices=("all",), help="all: undetermined (10) unless both sides tried every node")
    made.add_argument("--format", choices=("text", "markdown", "html", "json"), default="text")
    return made


def main(arguments: Sequence[str]) -> int:
    """Compare the records; return the comparison's exit code."""
    options = parser().parse_args(list(arguments))
    try:
        before, after = list(records(options.before)), list(records(options.after))
        comparison = compare(before, after, all_nodes=bool(options.nodes))
    except RecordError as error:
        return refuse("compare", error)
    print(page(comparison, before, after) if options.format == "html" else render(comparison, options.format), end="")
    return comparison.exit_code


def records(path: Path) -> Iterator[Record]:
    """Read the records of one side. Raises RecordError for a missing or damaged record."""
    if not path.is_dir() or (path / "report.json").is_file():
        yield read_json(path)
        return
    places = sorted(path.glob("*/report.json")) or sorted(p for p in path.glob("*.json"))
    if not places:
        raise RecordError(f"{path} holds no record: neither report.json nor DIR/report.json")
    if len(places) > MOST_RECORDS:
        raise RecordError(f"{path} holds {len(places)} records, more than {MOST_RECORDS}")
    for place in places:
        yield read_json(place)
