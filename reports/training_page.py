"""Training steps and checkpoints of a run on its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .schema import RecordedCheckpoint, RecordedTraining
from .template import render

STATES = ("writing", "local", "flushing", "durable", "verified")
"""The states of a checkpoint in their order (docs/checkpoint.md)."""
FEW_RANKS = 24
"""Maximum number of GPUs that are shown at once; the others are collapsed."""
MOST_RANKS, MOST_STEPS, MOST_ROWS = 256, 240, 64
"""The slowest GPUs, the last steps, the first nodes; report.json has the other GPUs and nodes."""
WIDTH, HEIGHT = 700, 80


def own_tflops(steps: RecordedTraining, compute_ms: float | None) -> float | None:
    """Return a GPU's own compute rate in TFLOP/s (1e12): the job's rate without waits for other ranks."""
    if not compute_ms or compute_ms <= 0 or "tflops" not in steps:
        return None
    return steps["tflops"] * steps["step_ms"] / compute_ms


def slowest_first(steps: RecordedTraining) -> list[tuple[str, float | None]]:
    """Return every GPU by name with its own TFLOP/s, the slowest first, after those without data."""
    ordered = [
        (f"{rank.get('node', '')} GPU {rank.get('gpu', '')}", own_tflops(steps, rank.get("compute_ms")))
        for rank in steps.get("ranks", ())
    ]
    return sorted(ordered, key=lambda each: (each[1] is not None, each[1] or 0.0))


def figures(steps: RecordedTraining) -> Iterator[tuple[str, str]]:
    """Yield the job's figures as (number, label)."""
    if "tflops" not in steps:
        return
    floor = steps.get("floor_tflops")
    reference = f"floor {floor:g}: {steps.get('floor_source', '')}" if floor else "the profile has no floor"
    yield f"{steps['tflops']:.1f} TFLOP/s", f"each GPU, in steps with all ranks ({reference})"
    yield f"{steps['step_ms']:.1f} ms", f"a step; the middle 80 % of {steps['steps']} lie within {steps['spread']:.1%}"
    exposed = steps["step_ms"] * steps["exposed_share"]
    yield f"{steps['exposed_share']:.1%}", f"exposed communication: {exposed:.1f} ms of each step"


def training(steps: RecordedTraining | None) -> str:
    """Return the section of ``training`` of a record (docs/record.md); '' if there were no steps."""
    if not steps or not steps.get("ranks"):
        return ""
    ranks, floor = slowest_first(steps), steps.get("floor_tflops") or 0.0
    whole = 1.05 * max([floor, *(value or 0.0 for _, value in ranks)])
    times = [value for value in steps.get("series_ms", ())[-MOST_STEPS:] if value >= 0]
    shown = ranks[:MOST_RANKS] if whole > 0 else []
    return render(
        "training.html",
        figures=list(figures(steps)),
        times=times,
        line=_line(times),
        width=WIDTH,
        height=HEIGHT,
        floor=floor,
        mark=100 * floor / whole if floor else None,
        ranks=[(name, value, 100 * (value or 0.0) / whole) for name, value in shown],
        few=FEW_RANKS,
        left=len(ranks) - len(shown) if shown else 0,
    )


def _line(times: Sequence[float]) -> str:
    """Return the times of all steps as points of a line from 0, which shows waves and outliers but no noise."""
    if len(times) < 2 or max(times) <= 0:
        return ""
    return " ".join(
        f"{number * WIDTH / (len(times) - 1):.1f},{HEIGHT - value * (HEIGHT - 4) / max(times):.1f}"
        for number, value in enumerate(times)
    )


def rows(recorded: RecordedCheckpoint) -> list[tuple[str, ...]]:
    """Return both names of each node and step, and the time of each state, in seconds since it began to write."""
    cells = []
    for node in recorded.get("nodes", ())[:MOST_ROWS]:
        for step in dict.fromkeys(each.get("step", 0) for each in node.get("states", ())):
            at = {each.get("state"): each.get("seconds") for each in node["states"] if each.get("step") == step}
            times = [at.get(state) for state in STATES]
            cells.append((node.get("node", ""), str(step), *("" if t is None else f"{t:.2f}" for t in times)))
    return cells


def amounts(recorded: RecordedCheckpoint) -> Iterator[tuple[str, str]]:
    """Yield the measurements as (number, label); none if not every rank saved."""
    if "mb_s" in recorded:
        yield f"{recorded['bytes'] / 2**30:.2f} GiB", f"saved by {recorded['ranks']} ranks at once"
        yield f"{recorded['pause_s']:.2f} s", "training was stopped"
        yield (
            f"{recorded['mb_s']:.0f} MB/s",
            f"all ranks together; the slowest alone {recorded['slowest_mb_s']:.0f} MB/s",
        )
        yield f"{recorded['flush_s']:.2f} s", "flushed behind training" if recorded["flush_s"] else "nothing to flush"


def checkpoint(recorded: RecordedCheckpoint | None) -> str:
    """Return the section of ``checkpoint`` of a record; '' if none was saved."""
    if not recorded or not (lines := rows(recorded)):
        return ""
    cells = [[cell or "-" for cell in line] for line in lines]
    return render("checkpoint.html", figures=list(amounts(recorded)), head=["node", "step", *STATES], rows=cells)
