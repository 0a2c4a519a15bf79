"""A sweep as lines of text: one for each finding, then proven, flaky, suspect and untested nodes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from ..schema import RecordedAccusation, RecordedSweep, elements
from . import figures

FINDINGS, NAMES = 20, 8
"""Maximum number of lines and names that a terminal shows; the record has all of them."""


def lines(sweep: RecordedSweep, *, findings: bool = True) -> Iterator[str]:
    """Yield the text at the end of a sweep; plain text, escaped or wrapped by the caller.

    Without ``findings``: for a format that shows the findings of the checks.
    """
    at_fault = sweep.get("findings", []) if findings else []
    yield from (finding_line(finding) for finding in at_fault[:FINDINGS])
    if len(at_fault) > FINDINGS:
        yield f"… and {len(at_fault) - FINDINGS} more, in report.json"
    proven, flaky = sweep.get("proven", []), sweep.get("flaky", [])
    suspects, not_tested = sweep.get("suspects", {}), sweep.get("not_tested", {})
    total = len(elements(sweep)["nodes"])
    pairs = {tuple(test["nodes"]) for test in sweep.get("tests", []) if len(test["nodes"]) > 1}
    rounds = _count(len(sweep.get("rounds", [])), "round")
    untested = f"; no round tested {sweep['untested']}" if sweep.get("untested") else ""
    yield f"{len(proven)} of {total} nodes proven, in {_count(len(pairs), 'pair')} and {rounds}{untested}"
    yield from figures.lines(sweep)
    yield from (f"No single element at fault, and no go: {each['why']}" for each in sweep.get("apart", [])[:NAMES])
    if flaky:
        yield f"Flaky, failed once and passed once: {_named([' - '.join(pair) for pair in flaky])}"
    if suspects:
        yield f"Suspect, not proven, not at fault: {_named([f'{name} ({why})' for name, why in suspects.items()], 4)}"
    if not_tested:
        yield f"Not proven: {_named([f'{name} ({why})' for name, why in not_tested.items()], 4)}"
    if bad := cordon(sweep):
        yield f"kubectl cordon {' '.join(map(shlex.quote, bad[:NAMES]))}{' …' if len(bad) > NAMES else ''}"
    yield from (f"Note: {note}" for note in sweep.get("notes", [])[:NAMES])


def finding_line(finding: RecordedAccusation) -> str:
    """Summarise the evidence against one element."""
    rails = ", ".join(map(str, finding.get("devices") or finding["rails"]))
    where = f" {'rail' if len(finding['rails']) == 1 else 'rails'} {rails}" if finding["rails"] else ""
    names = " - ".join(finding["names"])
    what = {"uplink": f"uplink of {names}", "pair": f"path {names}"}.get(finding["kind"], names)
    nics = finding.get("cards") or []
    nics = [card.removeprefix(f"{rails}: ") for card in nics]  # the name of a single rail precedes the finding
    details = f" ({'; '.join(nics)})" if nics else ""
    rest = f"; all others at {finding['rest']:.2f}" if finding.get("rest") else ""
    return f"{what}{where}{details}: {finding['why']}{rest}"


def cordon(sweep: RecordedSweep) -> Sequence[str]:
    """Return the nodes to exclude from work: those at fault as a whole or with a rail."""
    return tuple(
        sorted({finding["names"][0] for finding in sweep.get("findings", []) if finding["kind"] in ("node", "rail")})
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _named(names: Sequence[str], most: int = NAMES) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
