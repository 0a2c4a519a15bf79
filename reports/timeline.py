"""The timeline of a trial, pod by pod, as bars and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from .plot import round_up
from .schema import RecordedSpan
from .template import render

MOST_SPANS, MOST_NODES = 4096, 64
"""Untrusted records: phases beyond this are only in report.json."""
KINDS = {"scheduling": 5, "image and start": 1, "collective": 0, "round": 0, "storage": 3}
"""Phase, or the beginning of its name -> its colour (--curve-N of page.css); all others are probes of the pod."""
PROBES = "probes", 2


def timeline(spans: Sequence[RecordedSpan]) -> str:
    """Return the picture and the table of ``trial.timeline`` (docs/record.md); '' without one."""
    known = [span for span in spans[:MOST_SPANS] if span["seconds"] > 0 and span["start_s"] >= 0]
    nodes = list(dict.fromkeys(span["node"] for span in known))[:MOST_NODES]
    if not nodes:
        return ""
    end = max(span["start_s"] + span["seconds"] for span in known)
    step = round_up(end / 4)
    kinds = {_kind(span["phase"]) for span in known}
    phases = list(dict.fromkeys(span["phase"] for span in known))
    took: dict[tuple[str, str], float] = {}
    for span in known:
        place = span["node"], span["phase"]
        took[place] = took.get(place, 0.0) + span["seconds"]
    return render(
        "timeline.html",
        nodes=[(node, [_bar(span, end) for span in known if span["node"] == node]) for node in nodes],
        ticks=[(100 * number * step / end, f"{number * step:g} s") for number in range(int(end / step) + 1)],
        legend=[(kind, colour) for kind, colour in (*KINDS.items(), PROBES) if kind in kinds],
        head=["node", *phases],
        rows=[
            [node, *(f"{took[node, phase]:.3g}" if (node, phase) in took else "" for phase in phases)] for node in nodes
        ],
    )


def _bar(span: RecordedSpan, end: float) -> tuple[float, float, int, str]:
    """Return a phase's start and length in percent of the trial, its colour, and its label."""
    colour = KINDS.get(_kind(span["phase"]), PROBES[1])
    said = f"{span['node']}: {span['phase']} {span['seconds']:.3g} s"
    return 100 * span["start_s"] / end, 100 * span["seconds"] / end, colour, said


def _kind(phase: str) -> str:
    return next((kind for kind in KINDS if phase == kind or phase.startswith((f"{kind}.", f"{kind} "))), PROBES[0])
