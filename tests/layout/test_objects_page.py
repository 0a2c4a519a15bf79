"""docs/objects.md names every field that a check receives, and is generated from the types.

Regenerate it with `python -m tests.layout.test_objects_page > docs/objects.md`.
"""

import inspect
import re
import sys
from pathlib import Path
from typing import get_args, get_type_hints, is_typeddict

from checks.framework.evidence import Evidence
from checks.rules.pool import Pool
from jobs.cluster.facts.inventory import Inventory, Node, PodUse, Taint
from jobs.diagnosis.state import FailureAnalysis, PodFacts, Replica
from jobs.run import stages
from jobs.run.evidence import RankEvidence
from jobs.run.result import TrialResult

PAGE = Path(__file__).resolve().parents[2] / "docs" / "objects.md"
GROUPS = (
    ("`cluster` and `pool`", (Inventory, Node, Taint, PodUse, Pool)),
    ("`trial`", (TrialResult, RankEvidence, PodFacts, Replica, FailureAnalysis)),
)
INTRODUCTION = """\
# What a check receives

With this page a check of your own ([checks.md](checks.md)) reads nodes, pods and what the trial's pods said, field by field. It is
written from the types.
"""
FIELD = re.compile(r"    (\w+): ([^=#\n]+?)(?: = [^#\n]+)?(?:  # (.+))?$")
BASE = re.compile(r"class \w+\((\w+)")
METHODS = ("expect", "compare", "add", "note", "skip", "unknown", "verdict")


def page():
    """Return the whole page."""
    parts = [INTRODUCTION, "## `evidence`\n", _paragraph(Evidence)]
    parts.append("| call | what it does |\n|---|---|")
    for name in METHODS:
        method = getattr(Evidence, name)
        call = ", ".join(str(each) for each in list(inspect.signature(method).parameters.values())[1:]).replace("'", "")
        parts.append(f"| `{name}({_cell(call)})` | {_cell(_first(method))} |")
    for title, types in GROUPS:
        parts += [f"\n## {title}\n", *(text for each in types for text in _type(each))]
    parts += ["\n## `trial.evidence[rank].stages`\n", " ".join(inspect.getdoc(stages).split("\n\n")[1].split()), ""]
    records = dict.fromkeys(each for stage in stages.STAGES.values() for each in _records(stage))
    parts += [text for each in records for text in _type(each)]
    text = "\n".join(parts).replace("``", "`") + "\n"
    return re.sub(r"\n{3,}", "\n\n", text)


def _records(hint):
    """Return the TypedDicts that a type consists of, inner ones first."""
    inner = get_type_hints(hint).values() if is_typeddict(hint) else get_args(hint)
    for each in inner:
        yield from _records(each)
    if is_typeddict(hint):
        yield hint


def _type(each):
    yield f"\n### {each.__name__}\n"
    yield _paragraph(each)
    if rows := list(_rows(each)):
        yield "| field | type | |\n|---|---|---|"
        yield from (f"| `{name}` | `{_cell(kind)}` | {_cell(said or '')} |" for name, kind, said in rows)


def _rows(each):
    """Return name, type and comment of each field, starting with those of the extended TypedDict."""
    head, *lines = inspect.getsource(each).splitlines()
    base = BASE.match(head)
    known = vars(sys.modules[each.__module__])
    if base and is_typeddict(known.get(base[1])):  # Python 3.11 loses it otherwise
        yield from _rows(known[base[1]])
    yield from (match.groups() for line in lines if (match := FIELD.match(line)))


def _paragraph(each):
    return " ".join((inspect.getdoc(each) or "").split()) + "\n"


def _first(method):
    return " ".join((inspect.getdoc(method) or "").split("\n\n")[0].split())


def _cell(text):
    return text.replace("|", "\\|")


def test_the_page_is_what_the_types_say():
    assert PAGE.read_text(encoding="utf-8") == page(), f"regenerate it: {' '.join(__doc__.split('`')[1:2])}"


if __name__ == "__main__":
    sys.stdout.write(page())
