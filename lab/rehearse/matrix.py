"""``seatrial rehearse --matrix``: the scenarios of the embedded cluster as a page of Markdown.

docs/rehearsals.md is its output; a test compares them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import NotRequired, TypedDict

from seatrial.faults.advice import FAULTS


class ScenarioRun(TypedDict, total=False):
    """The trial's profile (by name or in full) and options in a scenario."""

    profile: str | dict[str, object]
    options: list[str]


class ListedScenario(TypedDict):
    """The output of ``sim --list --json`` for a scenario; ``subjects`` and ``words`` are by fault."""

    name: str
    title: str
    platform: str
    breaks: str
    api_faults: NotRequired[str]
    faults: list[str]
    subjects: dict[str, list[str]]
    words: dict[str, list[str]]
    outcomes: list[str]
    run: ScenarioRun


HEAD = """\
# Rehearsals

Every scenario of the embedded cluster: the broken part, the fault that the trial must find, the subjects at fault, and
how it must end. `seatrial rehearse NAME` runs one, `seatrial rehearse` all; the tests run them all. This page is the
output of `seatrial rehearse --matrix`.
"""


def page(entries: Sequence[ListedScenario]) -> str:
    """Return the page for scenarios from ``sim --list --json``."""
    faults = {fault for entry in entries for fault in entry["faults"]}
    healthy = [entry for entry in entries if not entry["faults"]]
    lines = [
        HEAD,
        f"{len(entries)} scenarios: {len(healthy)} in which nothing is broken, and "
        f"{len(entries) - len(healthy)} that show {len(faults)} faults.",
    ]
    lines += ["\n## Nothing is broken\n", "| scenario | platform | what is special | run with |", "|---|---|---|---|"]
    lines += [
        f"| `{entry['name']}` | {entry['platform']} | {_cell(_special(entry))} | {_run(entry)} |" for entry in healthy
    ]
    for layer, broken in _layers(entries):
        lines += [
            f"\n## Layer {layer}\n",
            "| scenario | what is broken | must be found | at fault | ends |",
            "|---|---|---|---|---|",
        ]
        lines += [_broken(entry) for entry in broken]
    return "\n".join(lines) + "\n"


def _layers(entries: Sequence[ListedScenario]) -> Iterator[tuple[str, list[ListedScenario]]]:
    by_layer: dict[str, list[ListedScenario]] = {}
    for entry in entries:
        if entry["faults"]:
            fault = FAULTS.get(entry["faults"][0])
            by_layer.setdefault(fault.layer if fault else "unknown", []).append(entry)
    yield from sorted(by_layer.items(), key=lambda pair: int(pair[0].split()[0]) if pair[0][0].isdigit() else 99)


def _broken(entry: ListedScenario) -> str:
    accused = [name for fault in entry["faults"] for name in entry["subjects"].get(fault, [])]
    texts = [word for fault in entry["faults"] for word in entry["words"].get(fault, [])]
    accuses = ", ".join(f"`{name}`" for name in accused) + (f", saying `{', '.join(texts)}`" if texts else "")
    platform = "" if entry["platform"] == "h100-ib" else f" ({entry['platform']})"
    faults, ends = ", ".join(f"`{fault}`" for fault in entry["faults"]), " or ".join(entry["outcomes"])
    return f"| `{entry['name']}` | {_cell(entry['breaks'])}{platform} | {faults} | {_cell(accuses)} | {ends} |"


def _special(entry: ListedScenario) -> str:
    special = entry["breaks"].removeprefix("nothing").lstrip(";, ")
    under = f" (API faults {entry['api_faults']})" if entry.get("api_faults") else ""
    return f"{entry['title']}{': ' + special if special else ''}{under}"


def _run(entry: ListedScenario) -> str:
    run = entry["run"]
    profile, command = run.get("profile"), list(run.get("options", []))
    if isinstance(profile, dict):
        return " ".join(["its own profile", *([f"`{shlex.join(command)}`"] if command else [])])
    command = [*(["--profile", str(profile)] if profile else []), *command]
    return f"`{shlex.join(command)}`" if command else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
