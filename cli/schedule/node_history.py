"""The history of each node in scheduled runs: it decides the nodes to test and the bad nodes.

A node is bad after two strikes in a row: a single bad run may be transient. A strike needs a finding that names the
node, or a failed pair whose other node is known to be good. Otherwise both are suspects, and the next run pairs a
suspect with a node that has passed. A healthy peer is never named at fault.
"""

from __future__ import annotations

import datetime
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.trial.rooms import IN_USE
from reports.compare.regression import bandwidth_rows
from reports.record import EXIT_CODES, coverage_of, succeeded, verdict_of
from reports.schema import Record, RecordedCheck, RecordedFinding, RecordedSweep, Verdict, elements

from .remembered import MOST_FAULTS, MOST_NODES, MOST_RUNS, NodeHistory, Past, Watched, number

LEAST = 2
"""The fewest nodes of a sweep: one alone proves no link."""
STARVED_S = 28 * 86400.0
"""A node that was not tested for this long is reported, as by the alert SeatrialNodeUntested (deploy/monitoring)."""


OLDEST_SHARE = 0.5
"""The share of a run's places for the nodes not tested longest, so that suspects cannot take all places."""


def next_nodes(state: NodeHistory, idle: Sequence[str], *, most: int, now: float, every_s: float) -> Choice:
    """Choose at most ``most`` idle nodes in test order; none if none is due.

    Suspects come first, each followed by a node that has passed; then the nodes not tested longest, with half of the
    places reserved. Fewer than four places all go to the group that waits longer. The last of an odd number gets a
    partner that has passed. Pairs differ in each run, since its id is the planner's seed.
    """
    known = {name: state.nodes.get(name, Watched()) for name in idle}
    last = {name: node.tested if 0 <= node.tested <= now else 0.0 for name, node in known.items()}  # a wrong clock
    doubted = sorted((n for n in idle if known[n].suspect or known[n].strikes), key=lambda n: (last[n], n))
    due = sorted((n for n in idle if n not in doubted and now - last[n] >= every_s), key=lambda n: (last[n], n))
    good = sorted((n for n in idle if known[n].good and n not in due), key=lambda n: (-known[n].passed, n))
    chosen: list[str] = []
    partners = iter(good)
    for name in doubted:
        partner = next(partners, None)
        chosen += [name] if partner is None else [name, partner]
    places = max(most, LEAST)
    reserved = int(OLDEST_SHARE * places) if places >= 2 * LEAST else 0
    if places < 2 * LEAST and doubted and due and last[due[0]] < last[doubted[0]]:
        reserved = places
    chosen = (chosen[: places - min(reserved, len(due))] + due)[:places]
    if chosen and (len(chosen) < LEAST or len(chosen) % 2) and len(chosen) < max(most, LEAST):
        rest = [*good, *sorted(idle, key=lambda n: (last[n], n))]
        chosen += [name for name in dict.fromkeys(rest) if name not in chosen][:1]
    if not chosen:
        return Choice((), f"all {len(idle)} idle nodes were tested within {spoken(every_s)}")
    if len(chosen) < LEAST:
        return Choice((), "1 idle node; a sweep needs 2: the cluster is busy and is left alone")
    reasons = [f"{len(doubted)} under suspicion"] * bool(doubted) + [f"{len(due)} due"] * bool(due)
    return Choice(tuple(chosen), f"of {len(idle)} idle nodes {' and '.join(reasons)}")


def overdue(state: NodeHistory, *, now: float, limit_s: float) -> tuple[str, ...]:
    """Return the nodes not tested for longer than a limit, longest first: never idle during a run."""
    return tuple(name for name, (since, _, _) in state.series(now).items() if now - since > limit_s)


ANY = "any nodes"
"""A placeholder for the nodes of a trial that are not visible beforehand."""
AWAY = ("nodes.cordoned", "nodes.tainted")
"""Faults with a deliberate cause: they prevent a trial, and prove nothing about the node."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The nodes to test now, or none, and the reason."""

    nodes: tuple[str, ...]
    why: str


def choose(state: NodeHistory, idle: Sequence[str], *, need: int, now: float, every_s: float) -> Choice:
    """Choose ``need`` of the idle nodes: a suspect with good ones first, then those not tested longest."""
    if len(idle) < need:
        return Choice((), f"{len(idle)} idle nodes; a trial needs {need}: the cluster is busy and is left alone")
    known = {name: state.nodes.get(name, Watched()) for name in idle}
    good = sorted((n for n in idle if known[n].good), key=lambda n: -known[n].passed)
    doubted = sorted((n for n in idle if known[n].suspect or known[n].strikes), key=lambda n: (known[n].tested, n))
    if doubted and len(good) >= need - 1:
        return Choice((doubted[0], *good[: need - 1]), f"{doubted[0]} is under suspicion; its partners have passed")
    due = sorted(
        (n for n in idle if n in doubted or not 0 <= now - known[n].tested < every_s),
        key=lambda n: (known[n].tested, n),
    )
    if not due:
        return Choice((), f"all {len(idle)} idle nodes were tested within {spoken(every_s)}")
    rest = [n for n in good if n not in due] + sorted(n for n in idle if n not in due and n not in good)
    chosen = (*due, *rest)[:need]
    return Choice(chosen, f"{chosen[0]} is {'under suspicion' if chosen[0] in doubted else 'due'}")


def choose_unseen(state: NodeHistory, *, now: float, every_s: float) -> Choice:
    """Choose by time alone, for a tenant without permission to list nodes; the next run repeats a failed trial."""
    last = _last_trial(state)
    if last.verdict == "go" and 0 <= now - last.ended < every_s:  # a wrong clock wrote a future time
        return Choice((), f"the nodes are not seen, and a trial passed within {spoken(every_s)}")
    return Choice((ANY,), "the nodes are not seen")


def learn(state: NodeHistory, record: Record, *, now: float) -> NodeHistory:
    """Return the history after a run; an inconclusive run changes no node."""
    taken = coverage_of(record).tried
    nodes = dict(state.nodes)
    verdict = record["verdict"]
    faulted = _faults(record)
    if record["sweep"]:
        nodes |= _swept(state, record["sweep"], now)
    elif verdict == "go":
        nodes |= {name: _passed(state.nodes.get(name, Watched()), now) for name in taken}
    elif verdict == "no-go":
        own = [(fault, subject) for fault, subject in faulted if fault not in AWAY]
        blamed = {name: faults for name in {*taken, *nodes} if (faults := faults_naming(name, own))}
        shared = tuple(dict.fromkeys(fault for fault, _ in _faults(record, trial_only=True)))[:MOST_FAULTS]
        nodes |= {name: _judged(name, state, blamed, taken, shared, now) for name in {*taken, *blamed}}
    nodes |= _with_actions(nodes, state, record)
    latest = sorted(nodes.items(), key=lambda item: -max(item[1].tested, item[1].seen))[:MOST_NODES]
    known = state.last_success if state.last_success <= now else 0.0  # a wrong clock wrote a future time
    success = (succeeded(record) if taken else None) or known
    run = Past(
        record["run_id"], now, verdict, tuple(dict.fromkeys(f for f, _ in faulted))[:MOST_FAULTS], _samples(record)
    )
    return NodeHistory(dict(latest), (*state.past, run)[-MOST_RUNS:], success)


def _with_actions(nodes: Mapping[str, Watched], state: NodeHistory, record: Record) -> dict[str, Watched]:
    """Return the nodes that this run has failed, with the actions of its findings.

    Without an action, a node keeps that of its last failure if they share a fault.
    """
    failed = {}
    for name, node in nodes.items():
        before = state.nodes.get(name, Watched())
        if node.strikes > before.strikes:
            same = before.action if set(before.faults) & set(node.faults) else ""
            asked = record["actions"][name]["action"] if name in record["actions"] else same
            failed[name] = replace(node, action=asked)
    return failed


def _passed(before: Watched, now: float) -> Watched:
    weeks = before.counted(now, failed=False)
    return Watched(tested=now, passed=now, seen=before.seen or now, weeks=weeks)


def _swept(state: NodeHistory, sweep: RecordedSweep, now: float) -> dict[str, Watched]:
    """Apply a sweep to its nodes: it names bad nodes itself, so partners are never suspects.

    If the sweep continues an earlier one, a node that only the earlier one has tested keeps that time, and counts once.
    """
    fresh, then = _rounds_of(sweep, now)
    findings = [each for each in sweep.get("findings", []) if each["names"]]
    why = {each["names"][0]: (each.get("fault") or f"sweep.{each['kind']}") for each in reversed(findings)}
    watched: dict[str, Watched] = {}
    for row in elements(sweep)["nodes"]:
        name, shown = row["name"], row["state"]
        before = state.nodes.get(name, Watched())
        when = now if fresh is None or name in fresh else then
        if when < now and before.tested >= when:
            continue  # already learnt from the run that tested it, or from a later one
        if shown in ("proven", "flaky"):
            watched[name] = _passed(before, when)
        elif shown in ("at fault", "suspect"):
            bad = shown == "at fault"
            watched[name] = replace(
                before,
                tested=when,
                strikes=before.strikes + bad,
                suspect=not bad,
                faults=(why.get(name, "sweep.node"),) if bad else before.faults,
                seen=before.seen or when,
                weeks=before.counted(when, failed=bad),
            )
    return watched


def _rounds_of(sweep: RecordedSweep, now: float) -> tuple[set[str] | None, float]:
    """Return the nodes that a sweep tested itself (None: all), and the end time of the sweep that it continues."""
    earlier = sweep.get("resumed")
    if not isinstance(earlier, dict):
        return None, now
    try:
        ended = datetime.datetime.fromisoformat(str(earlier.get("ended"))).timestamp()
    except (ValueError, OverflowError):
        ended = 0.0  # unknown, so never tested
    rounds = int(number(earlier.get("rounds")))
    tests = [test for test in sweep.get("tests", []) if test.get("round", 0) > rounds]
    return {node for test in tests for node in test.get("nodes", [])}, min(ended, now)


def _judged(
    name: str,
    state: NodeHistory,
    blamed: Mapping[str, tuple[str, ...]],
    taken: Sequence[str],
    shared: tuple[str, ...],
    now: float,
) -> Watched:
    """Apply a failed run to one of its nodes; ``shared``: the faults of the trial itself, which may be a node's."""
    known = state.nodes.get(name, Watched())
    before = replace(known, tested=now, seen=known.seen or now, weeks=known.counted(now, failed=False))
    unproven = [node for node in taken if not state.nodes.get(node, Watched()).good]
    if name in blamed:
        weeks = known.counted(now, failed=True)
        return replace(before, strikes=before.strikes + 1, suspect=False, faults=blamed[name], weeks=weeks)
    if blamed or not shared or (before.good and len(unproven) == 1):
        return before  # the fault is another node's, or no node's
    if unproven == [name]:
        weeks = known.counted(now, failed=True)
        return replace(before, strikes=before.strikes + 1, suspect=False, faults=shared, weeks=weeks)
    return replace(before, suspect=True)


def _faults(record: Record, *, trial_only: bool = False) -> list[tuple[str, str]]:
    """Return the faults that decide the verdict, as (fault, subject); ``trial_only``: without those of the API."""
    return [
        (finding["fault"], finding["subject"])
        for check in _failed(record)
        if not trial_only or check.get("stage") != "preflight"
        for finding in check["findings"]
        if finding["ok"] is False and finding["fault"] and not _at_work(finding)
    ]


def _failed(record: Record) -> list[RecordedCheck]:
    """Return the checks that failed for reasons other than GPUs in use."""
    return [check for check in record["checks"] if check["outcome"] == "failed" and not _is_busy(check)]


def _is_busy(check: RecordedCheck) -> bool:
    """Return whether a check failed only because GPUs are in use, or nodes are otherwise unavailable."""
    bad = [f for f in check["findings"] if f["ok"] is False] or [f for f in check["findings"] if f["fault"]]
    return check["outcome"] in ("failed", "error") and bool(bad) and all(map(_at_work, bad))


def _at_work(finding: RecordedFinding) -> bool:
    """Return whether a finding reports GPUs in use; for a tenant, by the scheduler's message."""
    short = re.findall(r"Insufficient ([\w./-]+\w)", finding["observed"])
    waits = finding["fault"] == "job.unschedulable" and bool(short)
    return finding["fault"] in IN_USE or (waits and all(name.endswith("/gpu") for name in short))


def faults_naming(node: str, findings: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the faults of this node or a part of it, but not of a pair with it."""
    alone = re.compile(rf"{re.escape(node)}(?![\w.-])(?!\s*(->|<->|-)\s)")
    return tuple(dict.fromkeys(fault for fault, subject in findings if alone.match(subject)))[:MOST_FAULTS]


def _samples(record: Record) -> dict[str, dict[str, float]]:
    """Return the median of each row, for the trend."""
    return {
        str(group): {str(size): round(statistics.median(run), 2) for size, (run,) in rows.items()}
        for group, rows in bandwidth_rows([record]).items()
    }


def trend(state: NodeHistory, record: Record, *, least: float = 0.93, runs: int = 5) -> list[str]:
    """Describe bandwidths below their own history: below 93 % of the median of at least five accepted runs.

    93 %: see reports/compare/regression.py. History is of the same nodes, collective and size.
    """
    said = []
    for group, rows in _samples(record).items():
        for size, value in rows.items():
            before = [
                run.samples[group][size]
                for run in state.past
                if run.verdict == "go" and size in run.samples.get(group, {})
            ]
            usual = statistics.median(before) if len(before) >= runs else 0.0
            if usual and value < least * usual:
                share = f"{100 * value / usual:.0f} % of its usual {usual:g} over {len(before)} runs"
                said.append(f"{group} at {int(size) >> 30} GiB: {value:g} GB/s, {share}")
    return said


def spoken(seconds: float) -> str:
    """Return a duration as text."""
    return str(datetime.timedelta(seconds=round(seconds)))


def conclude(before: NodeHistory, after: NodeHistory, record: Record) -> tuple[str, int]:
    """Return verdict and exit code of a scheduled run; a trial's first failure is to be repeated.

    These count at once: failures seen through the API, since they do not flap; a node that is now bad; a fault of the
    trial that the previous run also had. GPUs in use by others do not count; nor do the checks of `shown_before`.
    """
    verdict = _concluded(before, after, record)
    return str(verdict), EXIT_CODES[verdict]


def shown_before(before: NodeHistory, record: Record) -> list[str]:
    """Return required checks that a tenant cannot run without a trial, but that the last trial passed."""
    if any(check.get("stage") != "preflight" for check in record["checks"]) or _last_trial(before).verdict != "go":
        return []
    return [check["id"] for check in record["checks"] if check["proven_by"] and check["id"] in record["required"]]


def _last_trial(state: NodeHistory) -> Past:
    return next((run for run in reversed(state.past) if run.samples or run.faults), Past("", 0.0, ""))


def _concluded(before: NodeHistory, after: NodeHistory, record: Record) -> Verdict:
    rest = record.copy()
    rest["checks"] = [check for check in record["checks"] if not _is_busy(check)]
    shown = shown_before(before, record)
    rest["required"] = [each for each in record["required"] if each not in shown]
    same = len(rest["checks"]) == len(record["checks"]) and len(rest["required"]) == len(record["required"])
    verdict = record["verdict"] if same else verdict_of(rest)
    if verdict is not Verdict.NO_GO:
        return verdict
    failed = _failed(record)
    static = any(check.get("stage") == "preflight" for check in failed)
    concluded = (run for run in reversed(before.past) if run.verdict != "inconclusive" and (run.samples or run.faults))
    last = next(concluded, None)  # a preflight in between proves nothing about training
    again = last is not None and set(last.faults) & {fault for fault, _ in _faults(record)}
    if static or again or set(after.bad) & set(coverage_of(record).tried):
        return Verdict.NO_GO
    return Verdict.INCONCLUSIVE
