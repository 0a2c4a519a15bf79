"""``seatrial checks --requirements LIST [DIR]``: shows a list of requirements, its checks, and a run's results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from checks.profiles.errors import ProfileError
from checks.profiles.yaml_schema import build, read_yaml
from cli.usage import refuse
from jobs.cluster.redact import safe
from jobs.listing import nearest
from reports import requirements
from reports.record import EXIT_CODES, read_json
from reports.requirements.forms import mapped, render
from reports.requirements.judged import RequirementList, judge, verdict_over
from reports.schema import RecordError

SHIPPED = Path(requirements.__file__).resolve().parent
REQUIREMENTS = (
    "With --requirements and the record of a run, its directory or report.json: the result of each; exit code 0 all"
    " met, 1 something not met, 10 something not tested."
)


def list_names() -> tuple[str, ...]:
    """Return the names of the shipped lists, sorted."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


def load_list(ref: str, known: Collection[str]) -> RequirementList:
    """Read a shipped list by name, or a file by path. Raises ProfileError (one line), also for an unknown check."""
    path = SHIPPED / f"{ref}.yaml"
    if "/" in ref or ref.endswith((".yaml", ".yml")):
        path = Path(ref)
    elif ref not in list_names():
        raise ProfileError(f"unknown list of requirements {ref!r}{nearest(ref, list_names())}")
    try:
        made: RequirementList = build(RequirementList, read_yaml(path), "")
    except ProfileError as error:
        raise ProfileError.of(error.problems, path.name) from error
    for each in made.requirements:
        for check in each.checks:
            if check not in known:
                raise ProfileError(f"{each.id}: unknown check {check!r}{nearest(check, known)}", file=path.name)
    return made


def show_requirements(ref: str, words: Sequence[str], style: str, checks: Collection[str]) -> int:
    """Print the map of a list, or a run's results for it; then the exit code is the list's."""
    if len(words) > 1:
        return refuse("checks", f"--requirements takes one record of a run, not {len(words)}")
    try:
        record = read_json(Path(words[0])) if words else None
        own = [check["id"] for check in record["checks"]] if record else []  # a user's checks are not in the catalogue
        wanted = load_list(ref, {*checks, *own})
    except (ProfileError, RecordError) as error:
        return refuse("checks", safe(str(error)))
    if record is None:
        if style != "text":
            return refuse("checks", f"--format {style} needs the record of a run: name it")
        print(mapped(wanted), end="")
        return 0
    judged = judge(record, wanted.requirements)
    print(render(record, wanted, judged, style), end="")
    return EXIT_CODES[verdict_over(judged)]
