"""The result of a history of rounds: nodes at fault, proven, flaky, suspect or not tested, and the verdict.

The verdict is go only if every node is proven, no question is open, the plan is complete, and there is a floor to judge
by. A sweep no longer needs a node that has passed and is not a partner in an open question.
"""

from __future__ import annotations

from collections import Counter
from typing import AbstractSet, Dict, List, Sequence, Set, Tuple

from .evidence import SILENT
from .judgement import HARD, NOTHING, PASS, Facts, judge, matchings_of
from .model import Blame, Done, Fleet, Nodes, Round, Rules
from .plan import planned
from .state import State, constant

GO, NO_GO, INCONCLUSIVE = "go", "no-go", "inconclusive"
FLAKY_PAIRS = 3
FEW_PAIRS = 4  # listed one by one if no node is at fault


def decode(fleet: Fleet, rules: Rules, history: Sequence[Done]) -> Blame:
    """Return the result of a sweep so far; it is not a go before its plan has completed."""
    facts = judge(fleet, rules, history)
    return blame_of(State(fleet, rules, facts), facts)


def blame_of(state: State, facts: Facts) -> Blame:
    """Return the result of a computed state."""
    fleet, rules = state.fleet, state.rules
    findings = tuple(state.findings[key] for key in sorted(state.findings))
    suspects = _suspects(state)
    named = {f.names[0] for f in findings if f.kind in ("node", "rail")}
    not_tested = _not_tested(fleet, rules, facts, state, named, suspects)
    proven = tuple(n for n in fleet.nodes if n not in named and n not in suspects and n not in not_tested)
    faults, at_fault = _pairs_at_fault(state)
    apart = (*state.apart, *facts.apart)
    reasons = faults + [each.why for each in apart] + _reasons(fleet, rules, facts, state, at_fault)
    reasons += ["%s %s: %s" % (f.kind, " and ".join(f.names), f.why) for f in findings]
    reasons += ["suspect %s: %s" % each for each in suspects.items()]
    reasons += ["not proven %s: %s" % each for each in not_tested.items()]
    verdict = NO_GO if findings or faults else INCONCLUSIVE if reasons else GO
    return Blame(
        verdict, tuple(reasons), findings, tuple(state.flaky), suspects, proven, not_tested, tuple(facts.notes), apart
    )


def _suspects(state: State) -> Dict[str, str]:
    flaky = Counter(node for pair in state.flaky if len(pair) > 1 for node in pair)
    suspects: Dict[str, str] = {}
    for node in state.fleet.nodes:
        bad, good = len(state.against(node)), len(state.passed[node])
        if state.at_fault(node):
            continue
        if node in state.slow or node in state.held:
            suspects[node] = "failed with %d of %d partners" % (len(state.failed[node]), len(state.measured[node]))
        elif state.groups.get(node) == 0 and len(state.failed[node]) > good:  # of the largest group without a finding
            suspects[node] = "failed with %d of %d partners" % (len(state.failed[node]), len(state.measured[node]))
        elif bad >= state.rules.proofs:
            suspects[node] = "failed with %d of %d partners" % (bad, bad + good)
        elif bad and (not good or state.open_end(node)):
            suspects[node] = "failed with %d of %d partners, and no more were tried" % (bad, bad + good)
        elif flaky[node] >= FLAKY_PAIRS:
            suspects[node] = "%d of its pairs failed once and passed once" % flaky[node]
    return suspects


def _not_tested(
    fleet: Fleet, rules: Rules, facts: Facts, state: State, named: Set[str], suspects: Dict[str, str]
) -> Dict[str, str]:
    alone = {each.nodes[0] for each in facts.judged if len(each.nodes) == 1 and each.grade == PASS}
    reasons: Dict[str, str] = {}
    for node in fleet.nodes:
        if node in named or node in suspects:
            continue
        if node in fleet.gone and not state.enough(node):
            reasons[node] = "%s; %s" % (
                fleet.gone[node],
                "tested %s" % _times(state.tests[node]) if state.tests[node] else "not tested",
            )
        elif state.silent[node] and (state.silent[node] >= SILENT or not state.passed[node]):
            reasons[node] = "reported nothing in %d of %d tests" % (state.silent[node], state.tests[node])
        elif _measures_nothing(state, node):
            reasons[node] = "measured nothing in %d of %d tests" % (state.empty[node], state.tests[node])
        elif not state.tests[node]:
            reasons[node] = "not tested"
        elif rules.alone and node not in alone:
            reasons[node] = "no pass alone"
        elif not state.enough(node):
            count = (len(state.passed[node]), len(state.met[node]))
            reasons[node] = "passed with %d of %d partners" % count if state.met[node] else "not tested with a partner"
            if state.empty[node]:
                reasons[node] += "; measured nothing in %d of %d tests" % (state.empty[node], state.tests[node])
    return reasons


def _times(count: int) -> str:
    return "once" if count == 1 else "%d times" % count


def _measures_nothing(state: State, node: str) -> bool:
    """Return whether nothing was measured with several partners that lack no more results than the node."""
    blank = state.blank(node)
    return sum(len(state.blank(p)) <= len(blank) and state.silent[p] < SILENT for p in blank) >= SILENT


def _pairs_at_fault(state: State) -> Tuple[List[str], Set[Nodes]]:
    """Describe pairs that fail beyond doubt without a node at fault, and return those pairs.

    Pairs below the floor are beyond doubt once one of them was repeated as often as the plan repeats.
    """
    measured = [p for p in state.of if len(p) == 2 and any(each.grade != NOTHING for each in state.of[p])]
    reasons: List[str] = []
    wrong = state.wrong()
    if wrong:
        outcomes = sorted({each.outcome for pair in wrong for each in state.of[pair] if each.grade == HARD})
        why = "no proven partner shows which node it is"
        reasons.append("%s: %s; %s" % (" and ".join(outcomes), _count(wrong, measured), why))
    stuck = [pair for pair in state.stuck() if pair not in wrong]
    if constant([each for pair in stuck for each in state.of[pair]]):
        reasons.append("no test ended: %s" % _count(stuck, measured))
    low = state.below_floor()
    tests = [state.of[pair] for pair in low]
    for leaf in state.slow_leaves:
        tests.append([t for pair in low if state.fleet.leaf(pair[0]) == leaf for t in state.of[pair]])
    if not any(map(constant, tests)):
        return reasons, {*wrong, *stuck}
    values = [each.busbw for pair in low for each in state.of[pair] if each.busbw]
    spread = " to ".join(dict.fromkeys(("%.4g" % min(values), "%.4g" % max(values))))
    floor = state.rules.pair_floor or 0.0
    reasons.append("%s below the floor of %g GB/s: %s GB/s" % (_count(low, measured), floor, spread))
    return reasons, {*wrong, *stuck, *low}


def _count(pairs: Sequence[Nodes], of: Sequence[Nodes]) -> str:
    """Return the number of pairs out of all, with their names if they are few."""
    names = " (%s)" % ", ".join(" and ".join(pair) for pair in pairs) if len(pairs) <= FEW_PAIRS else ""
    return "%d of %d pairs%s" % (len(pairs), len(of), names)


def _missing(numbers: Sequence[int]) -> List[str]:
    """Return the missing round numbers from 1 on, as ranges; the input may contain any number."""
    ranges: List[str] = []
    last = 0
    for number in sorted(each for each in set(numbers) if each > 0):
        if number > last + 1:
            ranges.append("%d" % (last + 1) if number == last + 2 else "%d to %d" % (last + 1, number - 1))
        last = number
    return ranges


def _reasons(fleet: Fleet, rules: Rules, facts: Facts, state: State, at_fault: Set[Nodes]) -> List[str]:
    """Return why a sweep without failures would still not be a go."""
    reasons: List[str] = list(facts.undecided)
    if len(fleet.nodes) < 2:
        reasons.append("%d node: no pair to test" % len(fleet.nodes))
    if missing := _missing([done.round.number for done in facts.history]):
        reasons.append("rounds without a record: %s" % ", ".join(missing))
    if planned(fleet, rules, facts, state) is not None:
        reasons.append("the plan is not complete: rounds that ran: %d" % len(facts.history))
    if len(fleet.nodes) > 1 and not any(state.passed.values()):
        reasons.append("no pair passed: no proven node to test others with")
    if rules.pair_floor is None or (rules.alone and rules.bus and rules.node_floor is None):
        reasons.append("no floor: a fleet that is slow as a whole would not be detected")
    lost = {
        n for n in fleet.nodes if (n in fleet.gone and not state.enough(n)) or _measures_nothing(state, n)
    }  # reported
    reasons += [
        "nothing was measured between %s" % " and ".join(pair) for pair in state.unmeasured() if lost.isdisjoint(pair)
    ]
    reasons += [
        "the pair %s failed once: undecided" % " - ".join(pair) for pair in _undecided(state) if pair not in at_fault
    ]
    reasons += [
        "the pair %s is slow, and too few tests exclude noise: undecided" % " - ".join(pair) for pair in state.unclear()
    ]
    return reasons


def untested(state: State, nodes: Dict[str, str]) -> str:
    """Name the elements that no round has tested; '' for none. `nodes` are not proven yet."""
    fleet, pairs = state.fleet, {pair for pair in state.of if len(pair) > 1}
    measured = {pair for pair in pairs if any(each.grade != NOTHING for each in state.of[pair])}
    leaves = {fleet.leaf(node) for node in fleet.nodes} - {""}
    crossed = {fleet.leaf(node) for pair in measured if fleet.crosses(pair) for node in pair}
    every = len(fleet.nodes) * (len(fleet.nodes) - 1) // 2
    with_rails = sum(any(len(each.shares) > 1 for each in state.of[pair]) for pair in measured)
    counts = (
        (len([node for node in nodes if not state.tests[node]]), len(fleet.nodes), "nodes"),
        (every - len(measured), every, "pairs"),
        (len(leaves - crossed) * (len(leaves) > 1), len(leaves), "uplinks"),
    )
    parts = ["%d of %d %s" % (count, of, what) for count, of, what in counts if count]
    parts += ["uplinks (no leaf is known)"] * (len(leaves) < 2 < len(fleet.nodes))
    parts += ["single rails of %d of %d pairs" % (len(measured) - with_rails, len(measured))] * (
        with_rails < len(measured)
    )
    return ", ".join(parts)


def _undecided(state: State) -> List[Nodes]:
    pairs = {tuple(sorted((n, p))) for n in state.fleet.nodes for p in state.against(n)}
    return sorted(pair for pair in pairs if ("pair", pair) not in state.findings)


OF_A_LEAF = 3  # proven nodes kept of each other leaf: as many as a suspected uplink is probed with


def spare(fleet: Fleet, rules: Rules, history: Sequence[Done], each: Round, kept: AbstractSet[str]) -> List[str]:
    """Return the proven nodes that neither the next round nor any later one needs, without those in `kept`.

    None is released before every node was paired, and no node at fault, which would receive the next job. Possible
    partners stay: all nodes of the leaves in doubt, some of each other leaf, and as many as suspects may need.
    """
    if each.stage <= matchings_of(fleet, rules):
        return []
    proven = decode(fleet, rules, history).proven
    busy = {node for nodes in each.tests for node in nodes}
    doubted = set(fleet.nodes) - set(fleet.gone) - set(proven)
    near = {fleet.leaf(node) for node in doubted | busy if fleet.leaf(node)}
    unneeded: List[str] = []
    of_leaf: Counter = Counter()  # type: ignore[type-arg]
    for node in proven:
        if node in busy or node in fleet.gone or node in kept:
            continue
        leaf = fleet.leaf(node)
        of_leaf[leaf] += 1
        if not (leaf and (leaf in near or of_leaf[leaf] <= OF_A_LEAF)):
            unneeded.append(node)
    partners = rules.most_partners * max(1, len(doubted))
    return unneeded[max(0, partners - (len(proven) - len(unneeded))) :]
