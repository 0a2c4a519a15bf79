"""Regressions, improvements, additions and removals of an upgrade: a comparison of two sets of run records.

A side is one record or several of the same cluster; repeats make the judgement of bandwidth more precise. Changes of
the bill of materials are next to changes of behaviour, so that the likely cause is next to its effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from ..record import EXIT_CODES, references
from ..schema import Outcome, Record, RecordedCheck, RecordedFinding, Verdict
from .proofs import (
    Use,
    fabric_use,
    installed,
    lasting,
    lasting_names,
    lost_checks,
    lost_nodes,
    lost_pool,
    lost_ranks,
    lost_subjects,
)
from .red import turned_red
from .regression import (
    LEAST_SIZE_MEDIUM,
    RATES,
    BandwidthRow,
    bandwidth_rows,
    change_of,
    changed,
    compared,
    figure,
    judge,
    judge_small,
    percent,
)
from .sides import about, distinct, listed, notes, partial, short, unfit, verdicts
from .swept import OF_ELEMENTS, sweep_rows, sweeps, turned

WORSE, BETTER, APPEARED, VANISHED, UNCLEAR = "worse", "better", "appeared", "vanished", "unclear"
RANK = list(Outcome)
"""The outcomes from good to bad; the worst outcome of a check over several runs of a side counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference about one subject, in the words of both records."""

    kind: str
    area: str  # check | fault | sweep | training | checkpoint | bandwidth | rails | gdr | transport | version
    subject: str
    before: str
    after: str
    note: str = ""


@dataclass(slots=True)
class Comparison:
    """All differences, uncompared parts, and the rows of bandwidth with their verdicts."""

    changes: list[Change] = field(default_factory=list)
    versions: list[Change] = field(default_factory=list)
    rows: list[BandwidthRow] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)  # the references of each side's bandwidths
    notes: list[str] = field(default_factory=list)  # information for the reader, without effect on the verdict
    verdicts: tuple[str, str] = ("", "")  # the verdicts of the runs themselves, before and after
    sides: tuple[list[dict[str, str]], ...] = ([], [])  # the runs of each: their cluster, server and time
    no_longer_proven: list[str] = field(default_factory=list)  # checks that passed before and were not repeated
    commands: tuple[str, str] = ("trial", "trial")  # kind of runs on each side: trials or sweeps

    @property
    def verdict(self) -> str:
        """``worse`` if anything is; ``unclear`` if something could not be compared; else ``same`` or ``better``."""
        kinds = {change.kind for change in self.changes}
        if WORSE in kinds:
            return WORSE
        if self.unclear or UNCLEAR in kinds:
            return UNCLEAR
        return BETTER if BETTER in kinds else "same"

    def to_dict(self) -> dict[str, object]:
        """Return the comparison as plain JSON types: verdict, changes, versions, every row of bandwidth."""
        return {
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "before": self.verdicts[0],
            "after": self.verdicts[1],
            "sides": {"before": self.sides[0], "after": self.sides[1]},
            "no_longer_proven": list(self.no_longer_proven),
            "changes": [asdict(change) for change in self.changes],
            "versions": [asdict(change) for change in self.versions],
            "bandwidth": [row.to_dict() for row in self.rows],
            "references": list(self.references),
            "unclear": list(self.unclear),
            "notes": list(self.notes),
        }

    @property
    def exit_code(self) -> int:
        """The exit code: 0 nothing is worse, 1 something is, 10 unknown."""
        return EXIT_CODES[{WORSE: Verdict.NO_GO, UNCLEAR: Verdict.INCONCLUSIVE}.get(self.verdict, Verdict.GO)]


def compare(before: Sequence[Record], after: Sequence[Record], *, all_nodes: bool = False) -> Comparison:
    """Compare two sides of at least one record each.

    ``all_nodes``: a side that tried only a part of its pool is inconclusive.
    """
    comparison = Comparison(verdicts=(verdicts(before), verdicts(after)), notes=list(notes(before, after)))
    before, after = distinct(before), distinct(after)
    comparison.sides = about(before), about(after)
    comparison.unclear += unfit(before, after)
    (comparison.unclear if all_nodes else comparison.notes).extend(partial(before, after))
    comparison.no_longer_proven = lost_checks(before, after)
    comparison.commands = (_command(before), _command(after))
    comparison.changes += _outcomes(before, after)
    comparison.changes += _lost(before, after)
    comparison.changes += _faults(before, after)
    comparison.changes += _uses(before, after)
    comparison.changes += _elements(before, after)
    comparison.changes += _rates(before, after)
    sides = ((before, after), (after, before))
    comparison.rows = list(
        judge(*(bandwidth_rows(s, least=LEAST_SIZE_MEDIUM) | sweep_rows(s, other) for s, other in sides))
    )
    named = (("before", before), ("after", after))
    comparison.references = [
        f"{name}, {run}: {text}" for name, side in named for run, text in references(side[-1]).items()
    ]
    everything = [bandwidth_rows(side, least=0) for side in (before, after)]
    comparison.notes += filter(None, [compared(*everything)])
    if all(row.kind == APPEARED for row in comparison.rows if not row.group.alone):
        comparison.unclear.append(
            "no bandwidth was compared over the network: no collective over all nodes has rows of 64 "
            "MiB and more on both sides"
        )
    comparison.rows += judge_small(*everything)
    for row in comparison.rows:
        if row.kind in (WORSE, BETTER, UNCLEAR):
            comparison.changes.append(
                Change(
                    kind=row.kind,
                    area="bandwidth",
                    subject=row.subject,
                    before=row.reported_before,
                    after=row.reported_after,
                    note=row.note,
                )
            )
    comparison.versions = list(_versions(before, after))
    return comparison


def _command(side: Sequence[Record]) -> str:
    return "sweep" if sweeps(side) else "trial"


def _worst(side: Sequence[Record]) -> dict[str, RecordedCheck]:
    """Return the worst result of each check on one side."""
    worst: dict[str, RecordedCheck] = {}
    for record in side:
        for check in record["checks"]:
            known = worst.get(check["id"])
            if known is None or RANK.index(check["outcome"]) > RANK.index(known["outcome"]):
                worst[check["id"]] = check
    return worst


def _outcomes(before: Sequence[Record], after: Sequence[Record]) -> Iterator[Change]:
    old, new = _worst(before), _worst(after)
    lost = set(lost_checks(before, after))
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name), new.get(name)
        if name in lost:
            reason = short(now["reason"]) if now else ""
            yield _check(UNCLEAR, name, was, now, reason or "it passed before and was not checked again")
        elif was is None or now is None:
            known = any(check and check["outcome"] in ("passed", "skipped") for check in (was, now))
            kind = UNCLEAR if not known else VANISHED if now is None else APPEARED
            unknown = f"its outcome {'after' if now is None else 'before'} is not known"
            yield _check(kind, name, was, now, "" if known else unknown)
        elif was["outcome"] != now["outcome"]:
            yield _check(_turned(was, now), name, was, now, short(now["reason"]))


def _turned(was: RecordedCheck, now: RecordedCheck) -> str:
    """Classify a changed outcome of a check; only a failure is attributed to the cluster."""
    if now["outcome"] == "failed":
        return WORSE if was["outcome"] in ("passed", "skipped") else UNCLEAR
    if was["outcome"] == "failed":
        return BETTER if now["outcome"] == "passed" else UNCLEAR
    if now["outcome"] in ("error", "blocked") or was["outcome"] == "passed":
        return UNCLEAR  # this includes a check that one of several runs skipped and another passed
    return APPEARED if now["outcome"] == "passed" else VANISHED


def _lost(before: Sequence[Record], after: Sequence[Record]) -> Iterator[Change]:
    """Yield the proofs that were lost within checks that passed on both sides: nodes, GPUs, subjects."""
    lost: list[tuple[str, str, str, str, str]] = []
    if left := lost_pool(before, after):
        lost.append(("nodes", listed(left), "in the pool", "not in the pool", "the pool is smaller, or was narrowed"))
    if gone := lost_nodes(before, after):
        lost.append(("nodes", listed(gone), "tried", "not tried", "accept --on BEFORE keeps to the same nodes"))
    for what, old, new in lost_ranks(before, after):
        lost.append(("ranks", what, f"{old} ranks", f"{new} ranks", "fewer GPUs took part"))
    for name, old, new, subjects in lost_subjects(before, after):
        note = f"passed before, not shown after: {listed(subjects)}"
        lost.append(("check", name, f"{old} subjects", f"{new} subjects", note))
    for area, subject, was, now, note in lost:
        yield Change(kind=UNCLEAR, area=area, subject=subject, before=was, after=now, note=note)


def _check(kind: str, name: str, was: RecordedCheck | None, now: RecordedCheck | None, note: str) -> Change:
    outcomes = [str(side["outcome"]) if side else "not run" for side in (was, now)]
    return Change(kind=kind, area="check", subject=name, before=outcomes[0], after=outcomes[1], note=note)


def _faults(before: Sequence[Record], after: Sequence[Record]) -> Iterator[Change]:
    """Yield the faults on subjects that only one side shows."""
    old, new = _bad_findings(before), _bad_findings(after)
    worst_of = (_worst(before), _worst(after))  # the result of the check on the side that does not show a fault
    swept = sweeps(before) and sweeps(after)
    for key in dict.fromkeys([*old, *new]):
        if swept and key[0] in OF_ELEMENTS:
            continue
        if key in old and key in new:
            yield from _shown_otherwise(key, old[key][1], new[key][1])
            continue
        fault, subject = key
        check, finding = old.get(key) or new[key]
        kind = BETTER if key in old else WORSE if finding["ok"] is False else UNCLEAR
        looked = ("passed", "failed") if key in old else ("passed", "skipped", "failed")
        other = worst_of[key in old].get(check)
        if other is None or other["outcome"] not in looked:
            kind = UNCLEAR  # the check did not run on the other side
        value = f"{short(finding['observed'])} {finding['unit']}".strip()
        sides = (value, "not found") if key in old else ("not found", value)
        yield Change(kind=kind, area="fault", subject=subject, before=sides[0], after=sides[1], note=fault)


def _shown_otherwise(key: tuple[str, str], was: RecordedFinding, now: RecordedFinding) -> Iterator[Change]:
    """Compare a fault that both sides show: 2 of 8 GPUs after 7 of 8 is worse; another text may be."""
    kind = turned_red(was, now)
    if kind and was["ok"] is False is now["ok"]:
        fault, subject = key
        before, after = (f"{short(side['observed'])} {side['unit']}".strip() for side in (was, now))
        note = f"{fault}: both sides show it, differently" if kind == UNCLEAR else fault
        yield Change(kind=kind, area="fault", subject=subject, before=before, after=after, note=note)


def _elements(before: Sequence[Record], after: Sequence[Record]) -> Iterator[Change]:
    """Compare each node, uplink and pair of two sweeps; one that was not tested again counts as not repaired."""
    if sweeps(before) and sweeps(after):
        for kind, name, was, now, why in turned(before, after):
            yield Change(kind=kind, area="sweep", subject=short(name), before=was, after=now, note=short(why))


def _rates(before: Sequence[Record], after: Sequence[Record]) -> Iterator[Change]:
    """Compare training steps and checkpoints."""
    for rate in RATES:
        for nodes, was, now, worse in changed(rate, before, after):
            kind = UNCLEAR if worse is None else WORSE if worse else BETTER
            values = figure(was), figure(now)
            shown = f"{values[0]} {rate.unit}", f"{values[1]}, {percent(change_of(*values))}"
            note = "repeat it: these runs cannot distinguish this from noise" if worse is None else ""
            yield Change(kind=kind, area=rate.area, subject=listed(nodes), before=shown[0], after=shown[1], note=note)


def _bad_findings(side: Sequence[Record]) -> dict[tuple[str, str], tuple[str, RecordedFinding]]:
    """Return, by fault and subject, the check that found it and the finding."""
    bad: dict[tuple[str, str], tuple[str, RecordedFinding]] = {}
    for record in side:
        names = lasting_names(record)
        for check in record["checks"]:
            if check["outcome"] not in ("failed", "error"):
                continue
            findings = [f for f in check["findings"] if f["ok"] is not True and f["fault"]]
            if check["fault"] and check["fault"] not in {finding["fault"] for finding in findings}:
                findings.append(
                    RecordedFinding(
                        subject=check["id"],
                        ok=False if check["outcome"] == "failed" else None,
                        observed=check["reason"],
                        expected="",
                        unit="",
                        fault=check["fault"],
                        action="",
                    )
                )
            for finding in findings:
                observed = lasting(finding["observed"], names)
                key = finding["fault"], short(lasting(finding["subject"], names))
                bad[key] = check["id"], {**finding, "observed": observed}
    return bad


def _uses(before: Sequence[Record], after: Sequence[Record]) -> Iterator[Change]:
    """Compare each node's use of the fabric (rails, GPUDirect, transport), independently of the profile."""
    old, new = fabric_use(before), fabric_use(after)
    for node in sorted(old.keys() & new.keys()):
        yield from _rails(node, old[node], new[node])
        yield from _use(node, old[node], new[node])


def _rails(node: str, was: Use, now: Use) -> Iterator[Change]:
    """Compare the rails of each collective with the same one; the worst change is reported."""
    changes: dict[str, Change] = {}
    for run in sorted(was.rails):
        old, new = was.fewest(run), now.fewest(run)
        lost = ", ".join(sorted(old - new)) if old - new else ""
        usual = was.usual(run), now.usual(run)
        if not new:
            kind, note = UNCLEAR, f"{run}: not shown after"
        elif len(new) < len(old) or usual[1] < usual[0]:
            kind, note = WORSE, f"{run}: " + (f"no longer used: {lost}" if lost else "fewer in most runs")
        elif len(new) > len(old):
            kind, note = BETTER, run
        else:
            continue
        counts = [f"{count:g} rails" for count in ((len(old), len(new)) if len(old) != len(new) else usual)]
        changes.setdefault(
            kind, Change(kind=kind, area="rails", subject=node, before=counts[0], after=counts[1], note=note)
        )
    yield from (changes[kind] for kind in (WORSE, UNCLEAR, BETTER) if kind in changes)


def _use(node: str, was: Use, now: Use) -> Iterator[Change]:
    if was.gdr is not None and was.gdr != now.gdr:
        kind = UNCLEAR if now.gdr is None else BETTER if now.gdr else WORSE
        yield Change(kind=kind, area="gdr", subject=node, before=_direct(was), after=_direct(now))
    if was.transports and was.transports != now.transports:
        kind = WORSE if "socket" in now.transports - was.transports else UNCLEAR
        kind = BETTER if now.transports and "socket" in was.transports - now.transports else kind
        yield Change(
            kind=kind,
            area="transport",
            subject=node,
            before=listed(was.transports),
            after=listed(now.transports) if now.transports else "not shown",
        )


def _direct(use: Use) -> str:
    return "GPUDirect RDMA" if use.gdr else "no GPUDirect RDMA" if use.gdr is False else "not shown"


def _versions(before: Sequence[Record], after: Sequence[Record]) -> Iterator[Change]:
    """Compare installed versions: the likely causes."""
    old, new = [installed(side) for side in (before, after)]
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key, set()), new.get(key, set())
        if was != now:
            kind = APPEARED if not was else VANISHED if not now else "changed"
            yield Change(kind=kind, area="version", subject=key, before=listed(was), after=listed(now))
