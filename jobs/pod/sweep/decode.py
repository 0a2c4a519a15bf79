"""The blame that a history of rounds supports: who is at fault, proven, flaky, suspect or not tested, and the verdict.

Go is only what every node earned: nothing missing, nothing in doubt, nothing left in the plan, and a floor to judge by.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Sequence, Set

from .judgement import PASS, Facts, judge
from .model import Blame, Done, Fleet, Nodes, Rules
from .plan import planned
from .state import SILENT, State

GO, NO_GO, INCONCLUSIVE = "go", "no-go", "inconclusive"
FLAKY_PAIRS = 3


def decode(fleet: Fleet, rules: Rules, history: Sequence[Done]) -> Blame:
    """Return what a sweep has shown so far; it is no go before its plan has come to its end."""
    facts = judge(fleet, rules, history)
    return blame_of(State(fleet, rules, facts), facts)


def blame_of(state: State, facts: Facts) -> Blame:
    """Return the blame of evidence that is drawn already."""
    fleet, rules = state.fleet, state.rules
    findings = tuple(state.findings[key] for key in sorted(state.findings))
    suspects = _suspects(state)
    named = {f.names[0] for f in findings if f.kind in ("node", "rail")}
    not_tested = _not_tested(fleet, rules, facts, state, named, suspects)
    proven = tuple(n for n in fleet.nodes if n not in named and n not in suspects and n not in not_tested)
    reasons = _reasons(fleet, rules, facts, state)
    reasons += ["%s %s: %s" % (f.kind, " and ".join(f.names), f.why) for f in findings]
    reasons += ["suspect %s: %s" % each for each in suspects.items()]
    reasons += ["not proven %s: %s" % each for each in not_tested.items()]
    verdict = NO_GO if findings else INCONCLUSIVE if reasons else GO
    return Blame(
        verdict, tuple(reasons), findings, tuple(state.flaky), suspects, proven, not_tested, tuple(facts.notes)
    )


def _suspects(state: State) -> Dict[str, str]:
    flaky = Counter(node for pair in state.flaky for node in pair)
    found: Dict[str, str] = {}
    for node in state.fleet.nodes:
        bad, good = len(state.against(node)), len(state.passed[node])
        if state.accused(node):
            continue
        if bad >= state.rules.proofs:
            found[node] = "failed with %d of %d partners" % (bad, bad + good)
        elif bad and (not good or state.open_end(node)):
            found[node] = "failed with %d of %d partners, and no more were tried" % (bad, bad + good)
        elif flaky[node] >= FLAKY_PAIRS:
            found[node] = "%d of its pairs failed once and passed once" % flaky[node]
    return found


def _not_tested(
    fleet: Fleet, rules: Rules, facts: Facts, state: State, named: Set[str], suspects: Dict[str, str]
) -> Dict[str, str]:
    alone = {each.nodes[0] for each in facts.judged if len(each.nodes) == 1 and each.grade == PASS}
    found: Dict[str, str] = {}
    for node in fleet.nodes:
        if node in named or node in suspects:
            continue
        if node in fleet.gone and not state.enough(node):
            found[node] = "%s; %s" % (
                fleet.gone[node],
                "tested %d times" % state.tests[node] if state.tests[node] else "not tested",
            )
        elif state.silent[node] and (state.silent[node] >= SILENT or not state.passed[node]):
            found[node] = "reported nothing in %d of %d tests" % (state.silent[node], state.tests[node])
        elif not state.tests[node]:
            found[node] = "not tested"
        elif rules.alone and node not in alone:
            found[node] = "no pass alone"
        elif not state.enough(node):
            found[node] = "passed with %d of %d partners" % (len(state.passed[node]), len(state.met[node]))
    return found


def _reasons(fleet: Fleet, rules: Rules, facts: Facts, state: State) -> List[str]:
    """Return why a sweep of which nothing failed would still be no go."""
    reasons: List[str] = []
    if len(fleet.nodes) < 2:
        reasons.append("%d node: there is no pair to test" % len(fleet.nodes))
    numbers = [done.round.number for done in facts.history]
    if missing := sorted(set(range(1, 1 + max(numbers, default=0))) - set(numbers)):
        reasons.append("rounds without a record: %s" % ", ".join(map(str, missing)))
    if planned(fleet, rules, facts, state) is not None:
        reasons.append("the plan is not at its end after %d rounds" % len(facts.history))
    if len(fleet.nodes) > 1 and not any(state.passed.values()):
        reasons.append("no pair passed: there is no proven node to test others with")
    if rules.pair_floor is None or (rules.alone and rules.node_floor is None):
        reasons.append("no floor: a fleet that is slow as a whole would not be seen")
    reasons += ["%s failed once and is not decided" % " and ".join(pair) for pair in _undecided(state)]
    return reasons


def _undecided(state: State) -> List[Nodes]:
    pairs = {tuple(sorted((n, p))) for n in state.fleet.nodes for p in state.against(n)}
    return sorted(pair for pair in pairs if ("pair", pair) not in state.findings)
