"""What was proven before and is proven no longer: checks, subjects of checks, nodes, GPUs of a collective.

Fewer proofs are never the same. They are not worse either, since nobody looked: they cannot be compared.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..record import coverage_of, measured
from ..schema import Record
from .fabric_use import nodes_of

SHOWN = 8
"""Names in one sentence."""
INSTALLED = "bom."
"""Checks whose subjects are what is installed: an upgrade changes those, and the table of versions tells it."""


def proven(side: Sequence[Record]) -> frozenset[str]:
    """Return the checks that passed in any run of a side."""
    return frozenset(check["id"] for record in side for check in record["checks"] if check["outcome"] == "passed")


def lost_checks(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """Return the checks that passed before and were skipped or not run in all runs after, in the order of the record.

    What failed, could not tell or was blocked is told as that.
    """
    ended: dict[str, set[str]] = {}
    for record in after:
        for check in record["checks"]:
            ended.setdefault(check["id"], set()).add(check["outcome"])
    ids = (check["id"] for record in before for check in record["checks"])
    known = proven(before)
    return [name for name in dict.fromkeys(ids) if name in known and ended.get(name, set()) <= {"skipped"}]


def lost_subjects(before: Sequence[Record], after: Sequence[Record]) -> Iterator[tuple[str, int, int, list[str]]]:
    """Yield each check that passed on both sides on fewer subjects: its id, how many before and after, which are gone.

    Counted in the run that showed the most: pods have other names in every run, and as many of them as before. What the
    API alone said of nodes that were not tried does not count: a second run is kept to the nodes of the first (--on).
    """
    covered = [coverage_of(record) for record in before]
    beside = {node for run in covered for node in run.untried} - {node for run in covered for node in run.tried}
    old, new = _subjects(before, beside), _subjects(after, beside)
    for name in old:
        if name in new and not name.startswith(INSTALLED) and len(new[name]) < len(old[name]):
            yield name, len(old[name]), len(new[name]), sorted(old[name] - new[name])


def _subjects(side: Sequence[Record], beside: Collection[str]) -> dict[str, frozenset[str]]:
    """By check that passed: the subjects of the run that proved the most of them, without the nodes ``beside``."""
    by_check: dict[str, frozenset[str]] = {}
    for record in side:
        names = lasting_names(record)
        for check in record["checks"]:
            if check["outcome"] != "passed":
                continue
            name = check["id"]
            subjects = frozenset(lasting(f["subject"], names) for f in check["findings"] if f["ok"] is True)
            judged = frozenset(s for s in subjects if s.partition(" ")[0] not in beside)
            by_check[name] = max(by_check.get(name, frozenset()), judged, key=len)
    return by_check


def lost_nodes(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """Return the nodes on which a trial ran before and none ran after."""
    old, new = ({node for record in side for node in nodes_of(record).values()} for side in (before, after))
    return sorted(old - new)


def lost_pool(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """Return the nodes that were of the pool before and are not after; [] where one of the pools is not known."""
    old, new = ([coverage_of(record).pool for record in side] for side in (before, after))
    if any(pool is None for pool in (*old, *new)):
        return []
    return sorted({node for pool in old for node in pool or ()} - {node for pool in new for node in pool or ()})


def lost_ranks(before: Sequence[Record], after: Sequence[Record]) -> Iterator[tuple[str, int, int]]:
    """Yield each collective that ran with fewer ranks, that is GPUs, on the same nodes: what, before, after."""
    old, new = _ranks(before), _ranks(after)
    for key, count in old.items():
        if new.get(key, count) < count:
            run, nodes = key
            yield f"{' - '.join(nodes[:SHOWN])}: {run}", count, new[key]


def _ranks(side: Sequence[Record]) -> dict[tuple[str, tuple[str, ...]], int]:
    """By run of a collective and the nodes it ran on: the most ranks that took part."""
    ranks: dict[tuple[str, tuple[str, ...]], int] = {}
    for record in side:
        names = nodes_of(record)
        for run, job in measured(record):
            hosts = {names.get(str(h["name"]), str(h["name"])) for h in job["hosts"]}
            key = run, tuple(sorted(hosts))
            if job["ranks"] is not None:
                ranks[key] = max(ranks.get(key, 0), job["ranks"])
    return ranks


def lasting_names(record: Record) -> dict[str, str]:
    """Map what is called otherwise in every run to what it is: host names to nodes, the run's id, the server."""
    server = record["cluster"].get("server")
    return {**nodes_of(record), record["run_id"]: "RUN", **({server: "SERVER"} if server else {})}


def lasting(subject: str, names: Mapping[str, str]) -> str:
    """Replace what has another name in every run, so that one subject in two runs is the same."""
    known = "|".join(re.escape(name) for name in sorted(filter(None, names), key=len, reverse=True))
    return re.sub(rf"(?<![\w.])({known})(?![\w.])", lambda hit: names[hit[1]], subject) if known else subject
