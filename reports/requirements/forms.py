"""The requirements of a list and their results in a run: as text, Markdown, CSV, or JUnit cases and properties."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from tabulate import tabulate

from ..markdown import code, escaped, table
from ..plain import plain
from ..schema import Record
from .judged import Judged, RequirementList, State, limits

FORMATS = ("text", "markdown", "csv", "junit")
HEAD = ("requirement", "level", "state", "what", "evidence")


def mapped(wanted: RequirementList) -> str:
    """Return the map of a list as text: each requirement with its checks, and its untested parts."""
    rows = [
        tuple(map(plain, (each.id, each.level, ", ".join(each.checks) or "-", each.title, each.not_shown)))
        for each in wanted.requirements
    ]
    head = ("requirement", "level", "checks", "what", "no check shows")
    grid = tabulate(rows, head, maxcolwidths=[None, None, 28, 34, 34], disable_numparse=True)
    return f"{plain(wanted.title)}\n{plain(wanted.source)}\n\n{grid}\n"


def render(record: Record, wanted: RequirementList, judged: Sequence[Judged], style: str) -> str:
    """Render a record's results for a list; ``style`` is one of FORMATS."""
    forms = {"text": _text, "markdown": _markdown, "csv": _csv, "junit": _junit}
    text = forms[style](_facts(record, wanted, judged), judged)
    return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate, which JSON may hold


def _facts(record: Record, wanted: RequirementList, judged: Sequence[Judged]) -> dict[str, str]:
    """Return the common parts of every line: the list, the run, and the limits of its evidence."""
    counts = Counter(each.state for each in judged)
    facts = {
        "list": wanted.title,
        "published": wanted.source,
        "result": ", ".join(f"{counts[state]} {state}" for state in State),
        "run": record["run_id"],
        "started": record["started"],
        "cluster": record["cluster"].get("server", ""),
        "profile": record["profile"] or "none",
        "verdict": record["verdict"],
        "limits": "; ".join(limits(record)),
    }
    return {name: plain(value) for name, value in facts.items() if value}


def _state(facts: Mapping[str, str], each: Judged) -> str:
    """Return a state with its limits, since a line is read without its header."""
    limited = facts.get("limits") and each.state is not State.NOT_TESTED
    return f"{each.state} ({facts['limits']})" if limited else str(each.state)


def _text(facts: Mapping[str, str], judged: Sequence[Judged]) -> str:
    lines = [f"{name + ':':<10} {value}" for name, value in facts.items()]
    for each in judged:
        level = f" [{each.requirement.level}]" if each.requirement.level else ""
        lines += ["", plain(f"{each.requirement.id}{level}: {_state(facts, each)}")]
        lines += [f"  {plain(line)}" for line in (each.requirement.title, *each.evidence)]
    return "\n".join(lines) + "\n"


def _markdown(facts: Mapping[str, str], judged: Sequence[Judged]) -> str:
    rows = [
        (
            code(each.requirement.id),
            escaped(each.requirement.level),
            f"**{escaped(_state(facts, each))}**",
            escaped(each.requirement.title),
            "<br>".join(map(escaped, each.evidence)),
        )
        for each in judged
    ]
    head = table(("", ""), [(name, escaped(value)) for name, value in facts.items()])
    return f"# {escaped(facts['list'])}\n\n{head}\n\n{table(HEAD, rows)}\n"


def _csv(facts: Mapping[str, str], judged: Sequence[Judged]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*HEAD, "limits", "run", "list"))
    run = (facts.get("limits", ""), facts.get("run", ""), facts["list"])
    for each in judged:
        wanted = each.requirement
        row = (wanted.id, wanted.level, each.state, wanted.title, "\n".join(each.evidence), *run)
        writer.writerow([_cell(str(value)) for value in row])
    return out.getvalue()


def _cell(text: str) -> str:
    """Return a cell that a spreadsheet treats as text, even if it begins like a formula."""
    lines = [plain(line) for line in text.split("\n")]
    return ("'" if text.startswith(("=", "+", "-", "@")) else "") + "\n".join(lines)


def _junit(facts: Mapping[str, str], judged: Sequence[Judged]) -> str:
    counts = Counter(each.state for each in judged)
    suite = ElementTree.Element(
        "testsuite",
        name=facts["list"],
        tests=str(len(judged)),
        failures=str(counts[State.NOT_MET]),
        skipped=str(counts[State.NOT_TESTED]),
        errors="0",
    )
    _properties(suite, facts)
    for each in judged:
        case = ElementTree.SubElement(suite, "testcase", classname=facts["list"], name=plain(each.requirement.id))
        wanted = each.requirement
        named = {"requirement": wanted.id, "title": wanted.title, "level": wanted.level, "state": _state(facts, each)}
        _properties(case, named | {"checks": ", ".join(wanted.checks), "evidence": " | ".join(each.evidence)})
        if each.state is not State.MET:
            kind = "failure" if each.state is State.NOT_MET else "skipped"
            ElementTree.SubElement(case, kind, message=plain(" | ".join(each.evidence)))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _properties(parent: ElementTree.Element, named: Mapping[str, str]) -> None:
    inner = ElementTree.SubElement(parent, "properties")
    for name, value in named.items():
        if value:
            ElementTree.SubElement(inner, "property", name=name, value=plain(value))
