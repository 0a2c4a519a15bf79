"""Rules of DCGM's diagnostics in a sweep: each node alone, by the rules of a trial (rules/dcgm.py).

A node on which they could not run is judged without them, and named in a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jobs.cluster.redact import safe
from jobs.listing import first_of
from jobs.run.stages.hardware import DcgmStage
from reports.record import Finding

from . import dcgm
from .swept import Swept, with_findings

SHOWN = 4
MOST_TEXT = 200


def ran(data: DcgmStage | None) -> bool:
    """Return whether some DCGM test has a result."""
    return bool(data and data["results"])


def findings(swept: Swept, gpus: int) -> Iterator[Finding]:
    """Judge the GPUs of each node on which the diagnostics ran."""
    for node in swept.tested:
        if ran(data := swept.dcgm.get(node)) and data:
            yield from dcgm.of_node(node, data, gpus)


def notes(swept: Swept) -> Iterator[str]:
    """Name the nodes that were not diagnosed, by reason."""
    why: dict[str, list[str]] = {}
    for node in swept.tested:
        data = swept.dcgm.get(node)
        if not ran(data):
            reason = "no dcgmi and nv-hostengine in their pods, or no test alone in this run"
            why.setdefault(safe((data and data["error"]) or reason, MOST_TEXT), []).append(node)
    for reason, nodes in why.items():
        yield f"not diagnosed by DCGM, {reason}: {first_of(nodes, SHOWN)}"


def left(node: str, data: DcgmStage, gpus: int) -> bool:
    """Return whether the diagnostics find a fault of a node, or are inconclusive."""
    return ran(data) and any(finding.ok is not True for finding in dcgm.of_node(node, data, gpus))


def with_diagnostics(swept: Swept, gpus: int) -> Swept:
    """Return the sweep with its section updated by the diagnostics: nodes that they do not prove are not proven."""
    by_node = {}
    for node, data in swept.dcgm.items():
        if node in swept.tested and left(node, data, gpus):
            by_node[node] = [each for each in dcgm.of_node(node, data, gpus) if each.ok is not True]
    if not by_node:
        return swept
    swept = with_findings(swept, by_node)
    return replace(swept, section={**swept.section, "undiagnosed": sorted(by_node)})
