"""The summary of a run: verdict, culprit, proven properties with numbers, and checks that were not judged.

It is read from the record alone, so that the terminal, the page and the ticket agree. Rule: a number appears here only
as the finding of a check that passed; nothing is judged again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seatrial.logs.job_document import NETWORK_NAMES

from .plain import plain, with_unit
from .record import ALONE, Coverage, coverage_of, goes_on, references, run_of
from .schema import Outcome, Record, RecordedCheck, RecordedFinding, Verdict
from .sweep import figures

OBSERVED, EXPECTED, CULPRIT, PROOF, REASON = 180, 60, 320, 400, 300
"""Maximum number of characters; the findings have the full text."""
NODES_NAMED = 4
PATHS, LOCKS = "storage.paths", "storage.locks"
EPHEMERAL = (
    "No storage path was named (profile, storage.paths), so none was tried: results that remain in a pod are ephemeral."
)
CPU_ONLY = "CPU ONLY: no GPU and no fabric was tested"
BANDWIDTH = {
    "nccl.bandwidth-ring": "Ring",
    "nccl.bandwidth-default": "NCCL's choice",
    "nccl.bandwidth-sendrecv": "send/recv",
    "nccl.bandwidth-alltoall": "all_to_all",
    "nccl.bandwidth-node": "inside a node",
}
"""The checks that compare a bus bandwidth with a floor, in the order of the report."""
NOTED = ("nodes.gpu", "stack.upgrade")
"""Checks whose notes are about the number of nodes: omitted ones, and ones that will change."""
COUNTED = (Outcome.PASSED, Outcome.FAILED, Outcome.ERROR, Outcome.BLOCKED, Outcome.SKIPPED)
"""The order in which checks are counted."""
LAYERS = (
    *("api", "rights", "namespace", "admission", "nodes", "gpu", "stack", "runtime", "rendezvous", "network"),
    *("rdma", "topology", "nccl", "sweep", "queue", "job", "training", "storage", "checkpoint", "images", "bom"),
    "observability",
)
"""The families of checks by layer, as README's table lists them; those of a user come last."""
SUMS = {"nccl.correctness": "over all nodes", "nccl.correctness-node": "inside every node"}


@dataclass(frozen=True, slots=True)
class Deciding:
    """The cause of a verdict, in parts that a terminal and a page show separately; empty for a go."""

    name: str = ""  # name of the subject at fault; equal ones are grouped
    fact: str = ""  # its observation, or the cause of the run's early end
    expected: str = ""
    check: str = ""  # the id of the check that found it
    further: Sequence[str] = ()  # the ids of the other checks with this outcome
    subjects: Sequence[str] = ()  # subjects of the named findings


class Measured(NamedTuple):
    """A bus bandwidth next to its floor, as its check reports them; the slowest of several."""

    label: str
    value: str  # as reported, in ``unit``
    unit: str
    subject: str  # collective and message size, or a node
    floor: str
    source: str  # source of the floor; '' without one
    reference: str  # published figures, as text; '' if none is known

    def __str__(self) -> str:
        """Return the bandwidth in one line."""
        source = f": {self.source}" if self.source else ""
        return f"{self.value} {self.unit} ({self.subject}), floor {self.floor}{source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The head of every form of the report."""

    verdict: Verdict
    culprit: str  # decisive subject and observation; '' for go
    deciding: Deciding  # the same in its parts
    attempts: str  # number of this attempt and interruptions of earlier ones; '' for the first
    coverage: Coverage
    counts: Mapping[str, int]  # checks by outcome, passed ones first
    proven: Sequence[tuple[str, str]]  # (name, numbers)
    measured: Sequence[Measured]  # the bandwidths of ``proven``, in their parts
    not_judged: Mapping[str, Mapping[str, int]]  # reason ('blocked by X', 'skipped') -> family of checks -> number
    untried: str  # parts that a trial leaves out; '' if the report names them elsewhere
    exit_code: int
    seconds: float
    simulated: bool
    tenant: bool
    cpu_only: bool

    @property
    def headline(self) -> str:
        """The first line of every form: verdict, culprit, coverage and exit code."""
        return self._joined([self.culprit] if self.culprit else [])

    @property
    def short(self) -> str:
        """The headline without its culprit, for a form with separate lines for it."""
        return self._joined([])

    def _joined(self, culprit: list[str]) -> str:
        head = str(self.verdict) + "".join(f" ({mark})" for mark in self.marks)
        return " · ".join([head, *culprit, str(self.coverage), f"exit code {self.exit_code}"])

    @property
    def marks(self) -> list[str]:
        """Limits of the verdict."""
        limits = {CPU_ONLY: self.cpu_only, "TENANT: one namespace only": self.tenant, "SIMULATED": self.simulated}
        return [mark for mark, holds in limits.items() if holds]

    @property
    def in_words(self) -> Sequence[tuple[str, str]]:
        """The part of ``proven`` without bandwidths."""
        shown = {"by others", *(each.label for each in self.measured)}
        return [(what, text) for what, text in self.proven if what not in shown]

    @property
    def counted(self) -> str:
        """The number of checks by outcome, in words."""
        return ", ".join(f"{number} {outcome}" for outcome, number in self.counts.items()) or "nothing was checked"


def summarize(record: Record) -> Summary:
    """Return the summary of a record (``Run.to_dict`` or ``report.json``)."""
    checks, verdict = record["checks"], record["verdict"]
    ended = Counter(check["outcome"] for check in checks)
    return Summary(
        verdict=verdict,
        culprit="" if verdict is Verdict.GO else plain(_culprit(record, verdict, checks), CULPRIT),
        deciding=Deciding() if verdict is Verdict.GO else deciding(record),
        attempts=plain(_attempts(record["trial"].get("interrupted") or ()), REASON),
        coverage=coverage_of(record),
        counts={str(outcome): ended[outcome] for outcome in COUNTED if ended[outcome]},
        proven=[(what, plain(text, PROOF)) for what, text in _proven(record, checks)],
        measured=list(_measured(record, checks)),
        not_judged=_not_judged(checks),
        untried="" if goes_on(record["trial"]) else " ".join(_untried(checks)),
        exit_code=record["exit_code"],
        seconds=record["seconds"],
        simulated=record["simulated"],
        tenant=record["tenant"],
        cpu_only=record["cpu_only"],
    )


def _untried(checks: Iterable[RecordedCheck]) -> Iterable[str]:
    """Yield the gaps of a go: unnamed storage, failed locks, bandwidths without a floor in the profile."""
    for check in checks:
        if check["outcome"] is Outcome.SKIPPED and check["id"] == PATHS:
            yield EPHEMERAL
        if check["outcome"] is Outcome.SKIPPED and check["id"] == LOCKS and check["notes"] and not check["waived"]:
            yield f"{LOCKS}: {plain(check['reason'], REASON)}."
        if check["outcome"] is Outcome.SKIPPED and check["id"] in BANDWIDTH and check["waived"]:
            yield f"{check['id']}: {plain(check['reason'], REASON)}."


def _attempts(interrupted: Sequence[str]) -> str:
    before = "; ".join(f"attempt {number} was interrupted: {why}" for number, why in enumerate(interrupted, 1))
    return f"Attempt {len(interrupted) + 1} of the trial; {before}" if before else ""


def _culprit(record: Record, verdict: Verdict, checks: Iterable[RecordedCheck]) -> str:
    """Name the decisive cause: the first failed check, the first inconclusive one, or the end of the run."""
    decisive_checks = _decisive(record, checks)
    if record["interrupted"] and verdict is not Verdict.NO_GO:
        return f"ended early: {record['interrupted']}"
    if decisive_checks:
        more = (
            f", and {len(decisive_checks) - 1} more {'check' if len(decisive_checks) == 2 else 'checks'}"
            if len(decisive_checks) > 1
            else ""
        )
        return _deciding(decisive_checks[0], coverage_of(record)) + more
    return _without_check(record)


def _decisive(record: Record, checks: Iterable[RecordedCheck]) -> list[RecordedCheck]:
    decisive = Outcome.FAILED if record["verdict"] is Verdict.NO_GO else Outcome.ERROR
    return [check for check in checks if check["outcome"] == decisive]


def _without_check(record: Record) -> str:
    """Name reasons against a go that no single check shows."""
    run = run_of(record)
    if run.goes_on:
        return run.goes_on
    if run.required_but_unseen:
        return f"required but not judged: {', '.join(run.required_but_unseen)}"
    if run.too_few_tried:
        return run.too_few_tried
    return "no check could be judged"


def _deciding(check: RecordedCheck, covered: Coverage) -> str:
    """Summarise the failed subjects of one check, and their faults."""
    first, alike = _first(check)
    if first is None:
        return f"{check['id']}: {check['reason'] or check['title']}"
    more = f" (and {len(alike) - 1} more)" if len(alike) > 1 else ""
    unit = f" {first['unit']}" if first["unit"] else ""
    said = f"{first['subject']}{more}: {plain(first['observed'], OBSERVED)}{unit}"
    if first["expected"]:
        said += f" (expected {plain(first['expected'], EXPECTED)}{unit})"
    nodes = _took_part(check, covered, said)
    return f"{said}, on {nodes}" if nodes else said


def _first(check: RecordedCheck) -> tuple[RecordedFinding | None, list[str]]:
    """Return the first finding that decides a check, and the subjects of all with the same fault."""
    findings = [f for f in check["findings"] if f["ok"] is not True]
    if not findings:
        return None, []
    first = next((f for f in findings if f["ok"] is False), findings[0])
    return first, list(
        dict.fromkeys(f["subject"] for f in findings if f["ok"] is first["ok"] and f["fault"] == first["fault"])
    )


def _took_part(check: RecordedCheck, covered: Coverage, said: str) -> str:
    """Name the nodes of a collective whose findings name none; '' for any other check."""
    known = {*(covered.pool or ()), *covered.tried}
    together = check["id"].startswith("nccl.")
    if together and 0 < len(covered.tried) <= NODES_NAMED and not known.intersection(re.findall(r"[^\s(),:;]+", said)):
        return ", ".join(covered.tried)
    return ""


def deciding(record: Record) -> Deciding:
    """Return the full cause of a verdict that is not go; a form with less space truncates it."""
    checks = _decisive(record, record["checks"])
    if record["interrupted"] and record["verdict"] is not Verdict.NO_GO:
        return Deciding(fact=f"Ended early: {record['interrupted']}")
    if not checks:
        why = _without_check(record)
        return Deciding(fact=why if run_of(record).goes_on else f"{why[0].upper()}{why[1:]}")  # that begins with a name
    check, further = checks[0], [each["id"] for each in checks[1:]]
    first, alike = _first(check)
    if first is None:
        return Deciding(check["id"], check["reason"] or check["title"], "", check["id"], further)
    fact, expected = (with_unit(text, first["unit"]) for text in (first["observed"], first["expected"]))
    equal = [f["subject"] for f in check["findings"] if row_of(f) == row_of(first)]
    name = grouped(equal) + (f" (and {len(alike) - len(equal)} more)" if len(alike) > len(equal) else "")
    name, fact, expected = figures.of_finding(record["sweep"], first["subject"], first["observed"]) or (
        name,
        fact,
        expected,
    )
    if nodes := _took_part(check, coverage_of(record), f"{name} {fact}"):
        name = f"{nodes} · {name}"
    return Deciding(name, fact, expected, check["id"], further, equal)


def row_of(finding: RecordedFinding) -> tuple[object, ...]:
    """Return all of a finding but its subject: findings with equal keys are one row."""
    return (finding["ok"], finding["observed"], finding["expected"], finding["unit"], finding["fault"])


def grouped(names: Sequence[str], most: int = 3) -> str:
    """Write equal subjects in a few words: ``rdma-0 ... rdma-7 (8)``, or the first of them and the number of others."""
    if len(names) <= most:
        return ", ".join(names)
    numbered = [re.fullmatch(r"(.*?)(\d+)(\D*)", name) for name in names]
    parts = [(each[1], int(each[2]), each[3]) for each in numbered if each]
    numbers = sorted(number for _, number, _ in parts)
    same = len({(before, after) for before, _, after in parts}) == 1 and len(parts) == len(names)
    if same and numbers == list(range(numbers[0], numbers[0] + len(names))):
        inorder = sorted(parts)
        first, last = ("".join(map(str, part)) for part in (inorder[0], inorder[-1]))
        return f"{first} ... {last} ({len(names)})"
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def _proven(record: Record, checks: Sequence[RecordedCheck]) -> Iterable[tuple[str, str]]:
    """Yield the proven properties of passed checks, by the texts and numbers of their findings."""
    passed = {check["id"]: check["findings"] for check in checks if check["outcome"] == Outcome.PASSED}
    outcomes = {check["id"]: check["outcome"] for check in checks}
    covered = coverage_of(record)
    if covered.tried and {"job.started", "sweep.ran"} & passed.keys():
        named = ", ".join(covered.tried[:NODES_NAMED])
        rest = len(covered.tried) - NODES_NAMED
        yield "nodes", f"{covered}: {named}{f' and {rest} more' if rest > 0 else ''}"
    elif nodes := passed.get("nodes.gpu"):
        yield "nodes", f"{len(nodes)} GPU nodes are Ready"
    yield from _cpus(passed)
    if noted := [note for c in checks if c["outcome"] == Outcome.PASSED and c["id"] in NOTED for note in c["notes"]]:
        yield "noted", "; ".join(noted)
    if gpus := _gpus(record, passed):
        yield "GPUs", gpus
    if fabric := _fabric(passed):
        yield "fabric", fabric
    for measured in _measured(record, checks):
        yield measured.label, str(measured)
        yield from (("by others", said) for said in [measured.reference] if said)
    right = {where: len(passed.get(name, ())) for name, where in SUMS.items() if name in passed}
    if right and not any(outcomes.get(name) == Outcome.FAILED for name in SUMS):
        yield "sums", "right " + " and ".join(f"{where} ({number} tables)" for where, number in right.items())
    steps = record["training"]
    if steps and "tflops" in steps and "training.completed" in passed:
        alike = "; no GPU slower than the others" if "training.ranks" in passed else ""
        pace = f"{steps['tflops']:.0f} TFLOP/s a GPU, {steps['step_ms']:.1f} ms a step"
        yield "training", f"{pace}, {steps['exposed_share']:.0%} of it exposed communication{alike}"
    saved = record["checkpoint"]
    if saved and "mb_s" in saved and "checkpoint.saved" in passed:
        ends = "; resumed after a crash" if "checkpoint.resumed" in passed else ""
        yield "checkpoint", f"{saved['mb_s']:.0f} MB/s of {saved['ranks']} ranks, read back elsewhere{ends}"


def _cpus(passed: Mapping[str, Sequence[RecordedFinding]]) -> Iterable[tuple[str, str]]:
    """Yield the proven properties of a trial on CPUs."""
    if (nodes := passed.get("cpu.nodes")) and "job.started" not in passed:
        yield "nodes", f"{len(nodes)} nodes are Ready"
    if {"cpu.all-reduce", "cpu.sums"} <= passed.keys():
        yield "CPUs", f"all_reduce by gloo {passed['cpu.all-reduce'][0]['observed']}, the sums are right"


def _gpus(record: Record, passed: Mapping[str, Sequence[RecordedFinding]]) -> str:
    """Return the number of GPUs that took part, their model, driver and NCCL."""
    if ranks := passed.get("nccl.ranks"):
        bom = record["bom"].get("trial")
        parts = bom if isinstance(bom, dict) else {}
        known = [
            before + " and ".join(map(str, parts[part]))
            for part, before in (("gpu", ""), ("driver", "driver "), ("nccl", "NCCL "))
            if isinstance(parts.get(part), dict) and parts[part]
        ]
        return ", ".join([ranks[0]["observed"], *known])
    if offered := passed.get("gpu.allocatable"):
        offers = Counter(f["observed"] for f in offered)
        return ", ".join(f"{text} on each of {number} nodes" for text, number in offers.most_common(3))
    return ""


def _fabric(passed: Mapping[str, Sequence[RecordedFinding]]) -> str:
    """Name the fabric that carried the data, its rails and GPUDirect, as far as their checks passed."""
    said = []
    if kinds := {f["observed"] for f in passed.get("nccl.fabric", ())}:
        said.append(" and ".join(NETWORK_NAMES.get(kind, kind) for kind in sorted(kinds)))
    elif passed.get("nccl.transport"):
        said.append("no data between nodes through sockets")
    if rails := {f["observed"].partition(":")[0] for f in passed.get("nccl.rails", ())}:
        said.append(" and ".join(sorted(rails)) + " per node")
    if gdr := {f["observed"] for f in passed.get("nccl.gdr", ())}:
        said.append(" and ".join(sorted(gdr)))
    return ", ".join(said)


def _measured(record: Record, checks: Sequence[RecordedCheck]) -> Iterable[Measured]:
    """Yield each bus bandwidth that passed, at the largest size that has a floor, and the floor with its source."""
    outcomes = {check["id"]: check["outcome"] for check in checks}
    passed = {check["id"]: check["findings"] for check in checks if check["outcome"] == Outcome.PASSED}
    known = references(record)
    for check_id, label in BANDWIDTH.items():
        alone = check_id.endswith("-node")
        if outcomes.get("nccl.correctness-node" if alone else "nccl.correctness") == Outcome.FAILED:
            continue  # the speed of wrong sums proves nothing
        findings = [f for f in passed.get(check_id, ()) if f["unit"]]
        if not findings:
            continue
        last = min(findings, key=lambda f: _number(f["observed"])) if alone else findings[-1]
        floors = record["floors"].get(check_id.removeprefix("nccl.bandwidth-"))
        yield Measured(
            label=label,
            value=last["observed"].partition(" ")[0],
            unit=last["unit"],
            subject=last["subject"],
            floor=last["expected"].removeprefix("at least "),
            source=floors[-1]["source"] if floors else "",
            reference=known.get(ALONE if alone else check_id.removeprefix("nccl.bandwidth-"), ""),
        )


def _number(text: str) -> float:
    try:
        return float(text.partition(" ")[0])
    except ValueError:
        return float("inf")


def _not_judged(checks: Sequence[RecordedCheck]) -> dict[str, dict[str, int]]:
    """Count the checks that were not judged, by the reason and by family: ``{'skipped': {'storage': 5}}``."""
    roots = blocked_roots((check["id"], check["outcome"], check["blocked_by"]) for check in checks)
    reasons: dict[str, Counter[str]] = {}
    for check in checks:
        family = check["id"].partition(".")[0]
        if check["outcome"] == Outcome.BLOCKED:
            named = ", ".join(roots[check["id"]])
            why = f"blocked by {named}" if named else plain(check["reason"], REASON) or "blocked by its prerequisites"
            reasons.setdefault(why, Counter())[family] += 1
        elif check["outcome"] == Outcome.SKIPPED:
            reasons.setdefault("skipped", Counter())[family] += 1
    return {why: dict(families.most_common()) for why, families in reasons.items()}


def blocked_roots(checks: Iterable[tuple[str, Outcome, Sequence[str]]]) -> dict[str, tuple[str, ...]]:
    """Return for each blocked check its root causes: checks that did not pass and were not blocked.

    ``checks``: id, outcome and blocking checks of each.
    """
    roots: dict[str, tuple[str, ...]] = {}
    judged: set[str] = set()
    for check_id, outcome, blocked_by in checks:  # a required check precedes it
        judged.add(check_id)
        if outcome == Outcome.BLOCKED:
            causes = [root for name in blocked_by for root in roots.get(name, (name,))]
            roots[check_id] = tuple(dict.fromkeys([name for name in causes if name in judged] or causes))
    return roots
