"""What a trial spent its time on, pod by pod, as inline SVG with the same as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from .plot import round_up
from .schema import RecordedSpan

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 1100, 190, 20, 20, 8, 36
LONGEST_NAME = 26
MOST_SPANS, MOST_NODES = 4096, 64
"""Records come from anywhere: what is beyond is in report.json."""
KINDS = {"scheduling": 5, "image and start": 1, "collective": 0, "round": 0, "storage": 3}
"""Phase, or what its name begins with -> its colour (--curve-N of page.css); every other is a probe of the pod."""
PROBES = 2


def timeline(spans: Sequence[RecordedSpan]) -> Iterator[str]:
    """Yield the picture and the table of ``trial.timeline`` (docs/record.md); nothing where there is none."""
    known = [span for span in spans[:MOST_SPANS] if span["seconds"] > 0 and span["start_s"] >= 0]
    nodes = list(dict.fromkeys(span["node"] for span in known))[:MOST_NODES]
    if not nodes:
        return
    yield "<h2>Where the time went</h2>"
    yield f'<div class="wide" tabindex="0" role="region" aria-label="time line of the trial">{_svg(known, nodes)}</div>'
    yield _table(known, nodes)


def _colour(phase: str) -> str:
    return f"var(--curve-{KINDS.get(_kind(phase), PROBES)})"


def _kind(phase: str) -> str:
    return next((kind for kind in KINDS if phase == kind or phase.startswith((f"{kind}.", f"{kind} "))), "probes")


def _svg(spans: Sequence[RecordedSpan], nodes: Sequence[str]) -> str:
    end = max(span["start_s"] + span["seconds"] for span in spans)
    height = TOP + ROW * len(nodes) + BOTTOM
    scale = (WIDTH - LEFT - RIGHT) / end
    parts = [
        f'<svg class="plot phases" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        'aria-label="Phases of each pod over time; the table below has the numbers">'
    ]
    step = round_up(end / 6)
    for number in range(int(end / step) + 1):
        x = LEFT + number * step * scale
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}" class="grid"/>'
            f'<text x="{x:.1f}" y="{height - BOTTOM + 14}" text-anchor="middle">{number * step:g} s</text>'
        )
    for row, node in enumerate(nodes):
        y = TOP + ROW * row
        name = node if len(node) <= LONGEST_NAME else f"…{node[1 - LONGEST_NAME :]}"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts += [
            f'<rect x="{LEFT + span["start_s"] * scale:.1f}" y="{y + 3}" width="{max(1, span["seconds"] * scale):.1f}" '
            f'height="{ROW - 6}" fill="{_colour(span["phase"])}">'
            f"<title>{escape(node)}: {escape(span['phase'])} {span['seconds']:.3g} s</title></rect>"
            for span in spans
            if span["node"] == node
        ]
    x = float(LEFT)
    for kind, index in (*KINDS.items(), ("probes", PROBES)):
        if any(_kind(span["phase"]) == kind for span in spans):
            parts.append(
                f'<rect x="{x}" y="{height - 12}" width="12" height="12" fill="var(--curve-{index})"/>'
                f'<text x="{x + 18}" y="{height - 2}" class="label">{kind}</text>'
            )
            x += 40 + 7.5 * len(kind)
    return "".join(parts) + "</svg>"


def _table(spans: Sequence[RecordedSpan], nodes: Sequence[str]) -> str:
    phases = list(dict.fromkeys(span["phase"] for span in spans))
    took: dict[tuple[str, str], float] = {}
    for span in spans:
        place = span["node"], span["phase"]
        took[place] = took.get(place, 0.0) + span["seconds"]
    head = "".join(f"<th scope=col>{escape(phase)}</th>" for phase in phases)
    rows = [
        f"<tr><th scope=row>{escape(node)}</th>"
        + "".join(f"<td>{f'{took[node, phase]:.3g}' if (node, phase) in took else ''}</td>" for phase in phases)
        for node in nodes
    ]
    table = f"<table><tr><th scope=col>node</th>{head}</tr>{''.join(rows)}</table>"
    return f'<details><summary>Seconds as a table</summary><div class="wide" tabindex="0">{table}</div></details>'
