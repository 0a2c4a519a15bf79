"""The profile's hardware, and the levels of a sweep compared with known figures of such hardware."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reports.record import Finding
from seatrial.logs.bandwidth.hardware import Hardware, Said
from seatrial.logs.bandwidth.physics import GIB
from seatrial.logs.bandwidth.published import family
from seatrial.logs.bandwidth.reference import LOW, refer
from seatrial.logs.job_document import Reference

from ..profiles.loader import Profile
from .findings import proven
from .swept import Swept

ALONE = "alone"


def said_of(profile: Profile) -> Said:
    """Return the profile's hardware."""
    model = next(iter(profile.gpu.product), "").replace("*", "").strip("-")
    fabric = profile.fabric
    return Said(
        gpu=model,
        gpus_per_node=profile.gpu.per_node,
        fabric=family(fabric.kind or ""),
        nics=fabric.rails,
        wires_gbps=fabric.node_gbps,
    )


_OF_ITS_KIND = ("published", "wires")
"""Kinds of reference for the same hardware; a figure for another layout or fabric may be off by more than half."""
HALF = 0.5
"""The least share of the reference: half of the rails, or no GPUDirect, are below. Above it the profile's floor
decides."""


def level_notes(swept: Swept, profile: Profile, models: Iterable[str]) -> Iterator[str]:
    """Compare each level of a sweep's tests with the known figure of such hardware.

    ``models``: the fleet's GPU models by labels. More than one, or none, cannot be compared.
    """
    for kind, reference in _levels(swept, profile, models):
        yield f"level {kind}: {reference['sentence']}"


def level_findings(swept: Swept, profile: Profile, models: Iterable[str]) -> Iterator[Finding]:
    """Judge the level of all pairs, which no comparison between pairs shows: far below the reference is not a pass."""
    judged = swept.section["rules"]["pair_floor"] is not None
    least = HALF if judged else LOW
    expected = f"at least {least:.0%} of the reference"
    known = [each for kind, each in _levels(swept, profile, models) if kind != ALONE and each["kind"] in _OF_ITS_KIND]
    ratios = [(each["ratio"], each["sentence"]) for each in known if each["ratio"] is not None]
    for ratio, sentence in sorted(ratios)[:1]:
        yield proven("level of pairs", ratio >= least, sentence, expected, fault="sweep.level")


def _levels(swept: Swept, profile: Profile, models: Iterable[str]) -> Iterator[tuple[str, Reference]]:
    """Yield each level over all rails: its kind, and the known figure of such hardware."""
    known, names = said_of(profile), sorted({*filter(None, models)})
    for row in swept.section["levels"]:
        alone = row["kind"] == ALONE
        if row["rail"] is not None:
            continue
        floors = profile.floor("all_reduce", *(("default", 1) if alone else ("ring", 2)))
        hardware = Hardware(
            gpu=names[0] if len(names) == 1 else known.gpu if not names else "",
            several_gpus=len(names) > 1,
            gpus_per_node=known.gpus_per_node,
            nodes=1 if alone else 2,
            fabric="none" if alone else known.fabric or "unknown",
            wires_gbps=known.wires_gbps,
            wires_said=known.wires_gbps is not None,
            algorithm="default" if alone else "ring",
            forced=not alone,
        )
        if hardware.gpu:
            size = int(floors[0].size) if floors else GIB
            yield row["kind"], refer(hardware, {size: float(row["busbw_gbps"])})
