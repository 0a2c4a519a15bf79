"""Training steps and checkpoints of a run on its page: figures, each GPU beside the floor, each state with its time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from .schema import RecordedCheckpoint, RecordedTraining

STATES = ("writing", "local", "flushing", "durable", "verified")
"""The states of a checkpoint in their order (docs/checkpoint.md)."""
MOST_RANKS, MOST_STEPS, MOST_ROWS = 256, 240, 64
"""Of GPUs the slowest, of steps the last, of nodes the first; report.json has the rest of the GPUs and nodes."""
WIDTH, HEIGHT = 700, 80


def own_tflops(steps: RecordedTraining, compute_ms: float | None) -> float | None:
    """Return what a GPU does in its own compute, in TFLOP/s (1e12): the job's rate without the wait for others."""
    if not compute_ms or compute_ms <= 0 or "tflops" not in steps:
        return None
    return steps["tflops"] * steps["step_ms"] / compute_ms


def slowest_first(steps: RecordedTraining) -> list[tuple[str, float | None]]:
    """Return every GPU by name with its own TFLOP/s, the slowest first; what told nothing stands before all."""
    ordered = [
        (f"{rank.get('node', '')} GPU {rank.get('gpu', '')}", own_tflops(steps, rank.get("compute_ms")))
        for rank in steps.get("ranks", ())
    ]
    return sorted(ordered, key=lambda each: (each[1] is not None, each[1] or 0.0))


def figures(steps: RecordedTraining) -> Iterator[tuple[str, str]]:
    """Yield the job's figures as (number, what it is)."""
    if "tflops" not in steps:
        return
    floor = steps.get("floor_tflops")
    beside = f"floor {floor:g}: {steps.get('floor_source', '')}" if floor else "the profile has no floor"
    yield f"{steps['tflops']:.1f} TFLOP/s", f"each GPU, in steps with all ranks ({beside})"
    yield f"{steps['step_ms']:.1f} ms", f"a step; the middle 80 % of {steps['steps']} lie within {steps['spread']:.1%}"
    exposed = steps["step_ms"] * steps["exposed_share"]
    yield f"{steps['exposed_share']:.1%}", f"exposed communication: {exposed:.1f} ms of each step"


def training(steps: RecordedTraining | None) -> Iterator[str]:
    """Yield the section of ``training`` of a record (docs/record.md); nothing where there were no steps."""
    if not steps or not steps.get("ranks"):
        return
    yield "<h2>Training steps</h2>"
    yield _tiles(figures(steps))
    yield _series(steps.get("series_ms", ()))
    yield _ranks(steps)


def _tiles(figures: Iterable[tuple[str, str]]) -> str:
    tiles = "".join(f"<div><b>{escape(number)}</b> {escape(what)}</div>" for number, what in figures)
    return f'<div class="tiles">{tiles}</div>' if tiles else ""


def _series(series: Sequence[float]) -> str:
    """The time of each step, as a line from 0: waves and outliers show, noise does not."""
    times = [value for value in series[-MOST_STEPS:] if value >= 0]
    if len(times) < 2 or max(times) <= 0:
        return ""
    dots = [
        f"{number * WIDTH / (len(times) - 1):.1f},{HEIGHT - value * (HEIGHT - 4) / max(times):.1f}"
        for number, value in enumerate(times)
    ]
    said = f"Time of the last {len(times)} steps: {min(times):.1f} to {max(times):.1f} ms; the line begins at 0"
    return (
        f'<svg class="plot steps" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{said}"><polyline fill="none" stroke="var(--curve-0)" stroke-width="2" '
        f'vector-effect="non-scaling-stroke" points="{" ".join(dots)}"/></svg><p class="note">{said}</p>'
    )


def _ranks(steps: RecordedTraining) -> str:
    """Each GPU's own compute as a bar, the slowest first, with the floor as a mark in each."""
    ordered = slowest_first(steps)
    floor, most = steps.get("floor_tflops") or 0.0, max([value or 0.0 for _, value in ordered], default=0.0)
    whole = 1.05 * max(most, floor)
    if whole <= 0:
        return ""
    mark = f'<i style="left:{100 * floor / whole:.2f}%"></i>' if floor else ""
    rows = []
    for name, value in ordered[:MOST_RANKS]:
        low = bool(floor) and value is not None and value < floor
        number = "not told" if value is None else f"{value:.1f}{' below' if low else ''}"
        bar = f'<u style="width:{100 * (value or 0.0) / whole:.2f}%"></u>'
        rows.append(
            f"<li{' class=low' if low else ''}><span>{escape(name)}</span>"
            f'<span class="bar" aria-hidden="true">{bar}{mark}</span><span>{number}</span></li>'
        )
    left = len(ordered) - len(rows)
    more = f'<p class="note">… and {left} faster ones, in report.json</p>' if left else ""
    note = "TFLOP/s of each GPU's own compute, without the wait for others; the slowest first" + (
        f". The mark is the floor of the whole step, {floor:g}." if floor else "."
    )
    return f'<p class="note">{note}</p><ul class="ranks">{"".join(rows)}</ul>{more}'


def rows(recorded: RecordedCheckpoint) -> list[tuple[str, ...]]:
    """Return of each node and step: both names, and when each state was reached, seconds since it began to write."""
    cells = []
    for node in recorded.get("nodes", ())[:MOST_ROWS]:
        for step in dict.fromkeys(each.get("step", 0) for each in node.get("states", ())):
            at = {each.get("state"): each.get("seconds") for each in node["states"] if each.get("step") == step}
            times = [at.get(state) for state in STATES]
            cells.append((node.get("node", ""), str(step), *("" if t is None else f"{t:.2f}" for t in times)))
    return cells


def amounts(recorded: RecordedCheckpoint) -> Iterator[tuple[str, str]]:
    """Yield what was measured as (number, what it is); nothing where not every rank saved."""
    if "mb_s" in recorded:
        yield f"{recorded['bytes'] / 2**30:.2f} GiB", f"saved by {recorded['ranks']} ranks at once"
        yield f"{recorded['pause_s']:.2f} s", "training stood still"
        yield (
            f"{recorded['mb_s']:.0f} MB/s",
            f"all ranks together; the slowest alone {recorded['slowest_mb_s']:.0f} MB/s",
        )
        yield f"{recorded['flush_s']:.2f} s", "flushed behind training" if recorded["flush_s"] else "nothing to flush"


def checkpoint(recorded: RecordedCheckpoint | None) -> Iterator[str]:
    """Yield the section of ``checkpoint`` of a record; nothing where none was saved."""
    if not recorded or not (lines := rows(recorded)):
        return
    yield "<h2>Checkpoints</h2>"
    yield _tiles(amounts(recorded))
    head = "".join(f"<th scope=col>{escape(name)}</th>" for name in ("node", "step", *STATES))
    body = "".join(
        f"<tr><th scope=row>{escape(node)}</th>"
        + "".join(f"<td>{escape(cell) or '-'}</td>" for cell in cells)
        + "</tr>"
        for node, *cells in lines
    )
    yield '<p class="note">Seconds from the moment a node began to write a step until it had the state; - never.</p>'
    yield '<div class="wide" tabindex="0" role="region" aria-label="states of each checkpoint"><table class="states">'
    yield f"<tr>{head}</tr>{body}</table></div>"
