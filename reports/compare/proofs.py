"""The facts of each side of a comparison apart from its rates: installed versions, use of the fabric, proofs.

Each collective's use of rails, GPUDirect and transports is compared with itself: NCCL may use more rails in one than in
another. Fewer proofs are neither the same nor worse: an untested property cannot be compared.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..record import coverage_of, measured
from ..schema import Record, RecordedJob

_VERSION = re.compile(r"\d|/|:")
DEEPEST = 20


def installed(side: Sequence[Record]) -> dict[str, set[str]]:
    """Return every version in a side's records, by its place in the bill of materials."""
    versions: dict[str, set[str]] = {}
    for record in side:
        for key, value in _flat(record["bom"], ""):
            versions.setdefault(key, set()).add(value)
        for job in record["collectives"].values():
            if job and job["nccl_versions"]:
                versions.setdefault("nccl", set()).update(job["nccl_versions"])
    return versions


def _flat(value: object, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the installed versions as (place, version); counted or described versions are keys of a mapping."""
    if depth > DEEPEST:
        yield path, "(nested too deeply)"
    elif isinstance(value, dict):
        named = {str(key): item for key, item in value.items()}
        if any(_VERSION.search(key) for key in named) and not any(isinstance(v, dict | list) for v in named.values()):
            yield from ((path, _described(key, details)) for key, details in named.items())
            return
        for key, item in named.items():
            yield from _flat(item, f"{path}.{key}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _flat(item, path, depth + 1)
    elif value is not None:
        yield path, str(value)


def _described(version: str, details: object) -> str:
    """Return a version with its description (an image with its digest), unless that is a count or part of it."""
    return f"{version} ({details})" if isinstance(details, str) and details and details not in version else version


@dataclass(slots=True)
class Use:
    """The observed use of the fabric by one node over all runs of a side."""

    rails: dict[str, list[frozenset[str]]] = field(default_factory=dict)  # devices of each run, by collective
    gdr: bool | None = None
    transports: frozenset[str] = frozenset()

    def fewest(self, collective: str) -> frozenset[str]:
        """Return the devices of the run that used the fewest."""
        return min(self.rails.get(collective, []), key=len, default=frozenset())

    def usual(self, collective: str) -> float:
        """Return how many devices carried data in the median run: a single bad run must not hide a lasting change."""
        return statistics.median_low([len(devices) for devices in self.rails.get(collective, [])] or [0])


def nodes_of(record: Record) -> dict[str, str]:
    """Map the host names that NCCL printed to node names, as far as the record knows."""
    return dict(record["trial"].get("hosts", {}))


def fabric_use(side: Sequence[Record]) -> dict[str, Use]:
    """Return how each node used the fabric on one side."""
    uses: dict[str, Use] = {}
    for record in side:
        names = nodes_of(record)
        for collective, job in record["collectives"].items():
            if job and (job["nodes"] or 0) >= 2:
                _of_job(uses, collective, job, names)
    return uses


def _of_job(uses: dict[str, Use], collective: str, job: RecordedJob, names: Mapping[str, str]) -> None:
    devices: dict[str, set[str]] = {}
    for host in job["hosts"]:
        node = names.get(str(host["name"]), str(host["name"]))
        devices.setdefault(node, set()).update(device for rail in host["rails"].values() for device in rail)
        _direct(uses.setdefault(node, Use()), host["gdr"])
    for node, used in devices.items():
        if used:  # a log without devices proves nothing
            uses[node].rails.setdefault(collective, []).append(frozenset(used))
    for pair in job["pairs"]:
        for end in (pair["src"], pair["dst"]):
            uses.setdefault(names.get(end, end), Use()).transports |= frozenset(pair["transports"])


def _direct(use: Use, gdr: object) -> None:
    """Record GPUDirect; a node that lacked it once, or on some channels, lacks it."""
    if gdr is True:
        use.gdr = use.gdr is not False
    elif gdr in (False, "mixed"):
        use.gdr = False


SHOWN = 8
"""Maximum number of names in one sentence."""
INSTALLED = "bom."
"""The prefix of checks of installed components: an upgrade changes those, and the table of versions shows it."""


def proven(side: Sequence[Record]) -> frozenset[str]:
    """Return the checks that passed in any run of a side."""
    return frozenset(check["id"] for record in side for check in record["checks"] if check["outcome"] == "passed")


def lost_checks(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """Return the checks that passed before and were skipped or missing in all runs after, in record order.

    A check that failed, was inconclusive or was blocked is reported as such.
    """
    ended: dict[str, set[str]] = {}
    for record in after:
        for check in record["checks"]:
            ended.setdefault(check["id"], set()).add(check["outcome"])
    ids = (check["id"] for record in before for check in record["checks"])
    known = proven(before)
    return [name for name in dict.fromkeys(ids) if name in known and ended.get(name, set()) <= {"skipped"}]


def lost_subjects(before: Sequence[Record], after: Sequence[Record]) -> Iterator[tuple[str, int, int, list[str]]]:
    """Yield each check that passed on both sides, on fewer subjects after: id, counts before and after, lost subjects.

    The run with the most subjects counts: pods have other names in every run, but the same number. Findings of the API
    on untried nodes do not count, since --on restricts a second run to the nodes of the first.
    """
    covered = [coverage_of(record) for record in before]
    untried = {node for run in covered for node in run.untried} - {node for run in covered for node in run.tried}
    old, new = _subjects(before, untried), _subjects(after, untried)
    for name in old:
        if name in new and not name.startswith(INSTALLED) and len(new[name]) < len(old[name]):
            yield name, len(old[name]), len(new[name]), sorted(old[name] - new[name])


def _subjects(side: Sequence[Record], untried: Collection[str]) -> dict[str, frozenset[str]]:
    """Return, by passed check, the subjects of the run that proved most of them, without the nodes ``untried``."""
    by_check: dict[str, frozenset[str]] = {}
    for record in side:
        names = lasting_names(record)
        for check in record["checks"]:
            if check["outcome"] != "passed":
                continue
            name = check["id"]
            subjects = frozenset(lasting(f["subject"], names) for f in check["findings"] if f["ok"] is True)
            judged = frozenset(s for s in subjects if s.partition(" ")[0] not in untried)
            by_check[name] = max(by_check.get(name, frozenset()), judged, key=len)
    return by_check


def lost_nodes(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """Return the nodes of trials before that no trial after ran on."""
    old, new = ({node for record in side for node in coverage_of(record).tried} for side in (before, after))
    return sorted(old - new)


def lost_pool(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """Return the nodes that were in the pool before and are not after; [] if one of the pools is unknown."""
    old, new = ([coverage_of(record).pool for record in side] for side in (before, after))
    if any(pool is None for pool in (*old, *new)):
        return []
    return sorted({node for pool in old for node in pool or ()} - {node for pool in new for node in pool or ()})


def lost_ranks(before: Sequence[Record], after: Sequence[Record]) -> Iterator[tuple[str, int, int]]:
    """Yield each collective that ran with fewer ranks, that is GPUs, on the same nodes: name, before, after."""
    old, new = _ranks(before), _ranks(after)
    for key, count in old.items():
        if new.get(key, count) < count:
            run, nodes = key
            yield f"{' - '.join(nodes[:SHOWN])}: {run}", count, new[key]


def _ranks(side: Sequence[Record]) -> dict[tuple[str, tuple[str, ...]], int]:
    """Return the highest number of ranks, by run of a collective and its nodes."""
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
    """Map names that differ in every run to lasting ones: host names to nodes, the run's id, the server."""
    server = record["cluster"].get("server")
    return {**nodes_of(record), record["run_id"]: "RUN", **({server: "SERVER"} if server else {})}


def lasting(subject: str, names: Mapping[str, str]) -> str:
    """Replace names that differ in every run, so that one subject is the same in two runs."""
    known = "|".join(re.escape(name) for name in sorted(filter(None, names), key=len, reverse=True))
    return re.sub(rf"(?<![\w.])({known})(?![\w.])", lambda hit: names[hit[1]], subject) if known else subject
