"""The two sides of a comparison: their clusters, servers and times, and whether they may be compared.

A record holds the certificate authority of its API server: each cluster has its own, whatever its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from ..record import Coverage, coverage_of, verdict_of
from ..schema import Cluster, Record

_LONGEST = 300


def about(side: Sequence[Record]) -> list[dict[str, str]]:
    """Describe scope, place and time of each run of a side, in words."""
    return [
        {
            "run_id": short(record["run_id"]),
            "server": short(record["cluster"].get("server") or "unknown"),
            "ca": short(record["cluster"].get("ca")),
            "namespace": short(record["cluster"].get("namespace") or "unknown"),
            "simulated": short(record["cluster"].get("scenario") or "yes") if record["simulated"] else "",
            "started": short(record["started"] or "unknown"),
            "profile": short(record["profile"] or "none"),
            "seatrial": short(record["seatrial"]),
            "verdict": short(record["verdict"]),
            "nodes": str(coverage_of(record)),
        }
        for record in side
    ]


def unfit(before: Sequence[Record], after: Sequence[Record]) -> Iterator[str]:
    """Yield the reasons why a comparison of these records is less conclusive than it seems."""
    for name, side in (("before", before), ("after", after)):
        for record in side:
            run = f"{name}: run {short(record.get('run_id'))}"
            if record["scope"] != "full":
                part = short(record["selection"] or "partial")
                yield f"{run} is a partial run ({part}): a gate requires a full one"
            if record["verdict"] == "inconclusive":
                yield f"{run} is inconclusive itself: its undetermined checks cannot be compared"
            if record["interrupted"]:
                yield f"{run} ended early: {short(record['interrupted'])}"
            if (computed := verdict_of(record)) != record["verdict"]:
                yield f"{run} says {short(record['verdict'])}, but its checks give {computed}: it was edited or damaged"
    same = (
        ("profile", "profile"),
        ("simulated", "kind of cluster (simulated)"),
        ("tenant", "view (of a tenant)"),
        ("cpu_only", "kind of trial (CPUs alone)"),
    )
    for key, what in same:
        values = [{str(r.get(key) or False) for r in side} for side in (before, after)]
        if values[0] != values[1]:
            yield f"the {what} differs: {listed(values[0])} before, {listed(values[1])} after"
    yield from _edited(before, after)
    yield from _elsewhere(before, after)


def partial(before: Sequence[Record], after: Sequence[Record]) -> Iterator[str]:
    """Yield the sides that tried only a part of their pool; the runs of a side count together.

    The untried rest is not compared.
    """
    for name, side in (("before", before), ("after", after)):
        each = [coverage_of(record) for record in side]
        pools = [run.pool for run in each if run.pool is not None]
        together = Coverage(
            tried=tuple(sorted({node for run in each for node in run.tried})),
            pool=tuple(sorted({node for pool in pools for node in pool})) if pools else None,
        )
        if not together.whole:
            left = f" (not {together.not_tried()})" if together.untried else ""
            yield f"{name}: {together}{left}: the rest is not compared"


def _edited(before: Sequence[Record], after: Sequence[Record]) -> Iterator[str]:
    """Name profiles with one name but different requests. Records of earlier versions do not show the requests."""
    asked: dict[str, list[set[str]]] = {}
    for number, side in enumerate((before, after)):
        for record in side:
            if record["profile"] and record["profile_digest"]:
                asked.setdefault(record["profile"], [set(), set()])[number].add(record["profile_digest"])
    for name, (old, new) in asked.items():
        if old and new and len(old | new) > 1:
            was, now = (listed(_brief(digest) for digest in digests) for digests in (old, new))
            yield f"the profile {short(name)} has other requirements: it was edited ({was} before, {now} after)"


def _elsewhere(before: Sequence[Record], after: Sequence[Record]) -> Iterator[str]:
    """Report that the records are of more than one cluster."""
    known = [record for record in (*before, *after) if record["cluster"].get("server")]
    foreign = [record for record in known if not _same_cluster(known[0], record)]
    if foreign:
        servers = [f"{r['cluster'].get('server')}{_vouched(r)}" for r in (known[0], foreign[0])]
        yield f"the records are of more than one cluster: {short(servers[0])} and {short(servers[1])}"


def _same_cluster(one: Record, other: Record) -> bool:
    """Return whether two records can be of one cluster."""
    a, b = one["cluster"], other["cluster"]
    if one["simulated"] and other["simulated"] and a.get("platform") and b.get("platform"):
        return a["platform"] == b["platform"]  # created for each run, with another port and another authority
    if a.get("ca") and b.get("ca"):  # a gateway may serve many clusters with one certificate, each below its own path
        return a["ca"] == b["ca"] and _path(a) == _path(b)
    return a.get("server") == b.get("server")


def _path(cluster: Cluster) -> str:
    try:
        return urlsplit(cluster.get("server", "")).path.rstrip("/")
    except ValueError:
        return cluster.get("server", "")


def _vouched(record: Record) -> str:
    ca = record["cluster"].get("ca")
    return f" (CA {_brief(ca)})" if ca else ""


def _brief(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def notes(before: Sequence[Record], after: Sequence[Record]) -> Iterator[str]:
    """Yield hints at a wrong choice of records."""
    for name, side in (("before", before), ("after", after)):
        if copies := len(side) - len(distinct(side)):
            yield f"{name}: {copies} of {len(side)} records are copies of another one and do not count"
    for record in distinct(before):
        if record in after:
            yield f"run {short(record.get('run_id'))} is on both sides: a run is never worse than itself"
    times = [[record["started"] for record in side] for side in (before, after)]
    if all(times[0]) and all(times[1]) and min(times[0]) > max(times[1]):
        yield "'after' began before 'before': are they swapped?"
    old, new = ({r["seatrial"] for r in side if r["seatrial"]} for side in (before, after))
    if old and new and old != new:
        yield f"judged by different versions of seatrial: {listed(old)} before, {listed(new)} after"


def distinct(side: Sequence[Record]) -> list[Record]:
    """Return each run once: a copy is not a repeat, and adds no certainty."""
    unique: list[Record] = []
    for record in side:
        if record not in unique:
            unique.append(record)
    return unique


def verdicts(side: Sequence[Record]) -> str:
    """Return the verdicts of a side's runs."""
    return listed({str(record["verdict"]) for record in side})


def listed(values: Iterable[object]) -> str:
    """Join sorted words to one line of bounded length; 'none' for no words."""
    return short(", ".join(sorted(map(str, values)))) or "none"


def short(value: object) -> str:
    """Return one line of bounded length; text from a record is untrusted."""
    text = " ".join(str(value if value is not None else "").split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
