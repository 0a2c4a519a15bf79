"""A sweep in GB/s: the level of each leaf, the worst and the median pair, and each element at fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ..schema import RecordedAccusation, RecordedSweep, elements

PAIR = 2
SHARE = " of the median"
"""The reason of a fault that a rate shows; a hang or a wrong sum has no GB/s (jobs/pod/sweep/judgement)."""
REST = "all others at "
"""A finding's text for the level of the others, as a share (checks/rules/sweep_texts.py); here it is in GB/s."""
LEAVES = 8
"""Maximum number of leaves that a terminal lists; the heatmap has all."""
ALONE, INSIDE, ACROSS = "alone", "in a leaf", "across leaves"  # kinds of levels (jobs/pod/sweep/judgement.py)


def lines(sweep: RecordedSweep) -> Iterator[str]:
    """Yield the levels in GB/s and the worst and median pair; nothing for a sweep without measurements."""
    pairs, leaves = _pairs(sweep), _leaves(sweep)
    alone = {nodes[0]: rate for nodes, rate in _measured(sweep) if len(nodes) == 1}
    if alone:
        rate = median(alone.values())
        yield f"alone: {rate:.1f} GB/s, the median of {_count(len(alone), 'node')}{_floor(sweep, 'node_floor')}"
    inside: dict[str, list[float]] = {}
    for nodes, rate in pairs:
        ways = {leaves.get(node, "") for node in nodes}
        inside.setdefault(ways.pop() if len(ways) == 1 else ACROSS, []).append(rate)
    across = inside.pop(ACROSS, [])
    named = [f"{leaf} {median(rates):.1f}" for leaf, rates in sorted(inside.items()) if leaf]
    if named:
        more = f" and {len(named) - LEAVES} more" if len(named) > LEAVES else ""
        yield f"pairs in a leaf: {', '.join(named[:LEAVES])}{more} GB/s (medians)"
    if across:
        yield f"pairs across leaves: {median(across):.1f} GB/s, the median of {_count(len(across), 'test')}"
    if pairs:
        worst, slowest = min(pairs, key=lambda pair: pair[1])
        middle = median(rate for _, rate in pairs)
        floor = _floor(sweep, "pair_floor")
        yield f"worst pair: {slowest:.1f} GB/s ({' - '.join(worst)}); median pair: {middle:.1f} GB/s{floor}"


def of_finding(sweep: RecordedSweep | None, subject: str, observed: str) -> tuple[str, str, str] | None:
    """Return an element at fault, its GB/s and those expected; None if its fault is not a rate.

    ``subject`` and ``observed`` are the check's finding: the name and the description of the element.
    """
    for finding in (sweep or {}).get("findings", []):
        if sweep is not None and element(finding) == subject and SHARE in finding["why"]:
            return _in_figures(sweep, finding, observed)
    return None


def element(finding: RecordedAccusation) -> str:
    """Name the element of a fault as the finding of its check does."""
    if finding["kind"] == "uplink":
        return " and ".join(f"uplink of {name}" for name in finding["names"])
    rails = finding.get("devices") or [str(rail) for rail in finding["rails"]]
    return " - ".join(finding["names"]) + (f" rail {', '.join(rails)}" if rails else "")


def level(sweep: RecordedSweep, kind: str, rail: int | None = None) -> float | None:
    """Return the reference of tests of a kind, in GB/s; None without such a level."""
    rows = (row["busbw_gbps"] for row in sweep.get("levels", []) if (row["kind"], row["rail"]) == (kind, rail))
    return next(rows, None)


def _in_figures(sweep: RecordedSweep, finding: RecordedAccusation, observed: str) -> tuple[str, str, str] | None:
    leaves = _leaves(sweep)
    rail = finding["rails"][0] if len(finding["rails"]) == 1 else None
    names = set(finding["names"])
    size = 1 if finding["why"].startswith(f"{ALONE}:") else PAIR
    rates: list[float] = []
    kinds: set[str] = set()
    for test in sweep.get("tests", []):
        ways = {leaves.get(node, "") for node in test["nodes"]}
        touched = names <= set(test["nodes"]) if finding["kind"] != "uplink" else len(ways) > 1 and bool(names & ways)
        rate = _rate(test.get("rails_gbps") or [], rail) if rail is not None else test.get("busbw_gbps")
        if len(test["nodes"]) == size and touched and rate:
            rates.append(rate)
            kinds.add(ALONE if size == 1 else ACROSS if len(ways) > 1 else INSIDE)
    if not rates:
        return None
    name = element(finding)
    cards = [card.removeprefix(f"{device}: ") for card in finding.get("cards") or [] for device in _devices(finding)]
    if cards:
        name += f" ({'; '.join(dict.fromkeys(cards))})"
    kind = next(each for each in (ALONE, INSIDE, ACROSS) if each in kinds)
    fleet = level(sweep, kind, rail)
    expected = f"{fleet:.1f} GB/s, the median of the fleet" if fleet else ""
    floor = _floor(sweep, "node_floor" if size == 1 else "pair_floor").removeprefix(", ") if rail is None else ""
    spread = (
        f"{min(rates):.1f} to {max(rates):.1f}" if f"{min(rates):.1f}" != f"{max(rates):.1f}" else f"{rates[0]:.1f}"
    )
    told = [
        part for part in observed.split("; ") if not part.startswith(REST) and part not in (finding.get("cards") or ())
    ]
    return name, f"{spread} GB/s: {'; '.join(told)}", "; ".join(filter(None, (expected, floor)))


def _devices(finding: RecordedAccusation) -> Sequence[str]:
    return finding.get("devices") or [""]


def _rate(rails: Sequence[float | None], rail: int) -> float | None:
    return rails[rail] if rail < len(rails) else None


def _pairs(sweep: RecordedSweep) -> list[tuple[list[str], float]]:
    return [(nodes, rate) for nodes, rate in _measured(sweep) if len(nodes) == PAIR]


def _measured(sweep: RecordedSweep) -> Iterator[tuple[list[str], float]]:
    for test in sweep.get("tests", []):
        if rate := test.get("busbw_gbps"):
            yield test["nodes"], rate


def _leaves(sweep: RecordedSweep) -> dict[str, str]:
    return {row["name"]: row["leaf"] for row in elements(sweep)["nodes"]}


def _floor(sweep: RecordedSweep, name: str) -> str:
    rules = sweep.get("rules")
    floor = rules.get(name) if rules else None
    return f", floor {floor:g}" if isinstance(floor, int | float) else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
