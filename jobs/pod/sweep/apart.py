"""Faults between groups of nodes, without a node at fault: groups that fail with each other, and slow ones.

Leaves may be unlabelled, or labelled wrongly; healthy nodes and pairs then look faulty.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, FrozenSet, List, Set

from .evidence import Evidence
from .groups import groups_of
from .judgement import FAIL, HARD, how_failed
from .model import Finding, Nodes

TOGETHER = (
    2,
    4,
)  # nodes without a pass that are tested with each other before one is found at fault: without leaves, with them
SLOW_SHARE, SLOW_NODES = 0.2, 4  # of the nodes: from here on equally slow ones are a group, not many bad nodes
NARROW, ODD = 0.05, 0.1  # failing values of a slow group are so near their median, but for a tenth: bad nodes differ
FEW_OF = 8  # one node of so many may be bad with only some partners
SLOW_INSIDE = 0.75  # of the pairs in a leaf: a node that fails only with its leaf is in at most half of them
BAD_PATHS = (0.25, 6)  # share of the pairs, and their number, above which they are not reported one by one


def grouped(state: Evidence) -> Dict[str, int]:
    """Return the groups that fail with each other, if no element at fault explains it; 0: the largest."""
    nodes = [node for node in state.fleet.nodes if not state.at_fault(node)]
    failed = {node: state.against(node) for node in nodes if state.failed.get(node)}
    groups = groups_of(nodes, state.passed, failed)
    return {node: number for number, group in enumerate(groups) for node in group}


def equally_slow(state: Evidence) -> FrozenSet[str]:
    """Return a large part of the fleet that is equally slow, also with each other, and above the floor."""
    slow = {n for n in state.failed if not state.passed[n] and not state.at_fault(n) and len(state.against(n)) > 1}
    if len(slow) < max(SLOW_NODES, SLOW_SHARE * len(state.met)):
        return frozenset()
    pairs = [pair for pair in state.of if len(pair) > 1 and slow.intersection(pair) and not state.explained(pair)]
    failed_within = sum(slow.issuperset(pair) and pair[1] in state.failed[pair[0]] for pair in pairs)
    tests = [each for pair in pairs for each in state.of[pair] if each.grade in (FAIL, HARD)]
    values = sorted(each.value or 0.0 for each in tests)
    middle = values[len(values) // 2] if values else 0.0
    odd = sum(abs(value - middle) > NARROW for value in values)
    below = sum(each.busbw < (state.rules.pair_floor or 0.0) for each in tests)
    return frozenset(slow) if failed_within and middle and max(odd, below) <= ODD * len(values) else frozenset()


def slow_inside(state: Evidence) -> FrozenSet[str]:
    """Return the leaves inside which nearly every pair fails, although their nodes pass with other leaves."""
    slow_pairs: Dict[str, List[Nodes]] = {}
    for pair in state.of:
        leaf = state.fleet.leaf(pair[0])
        if len(pair) > 1 and leaf and not state.fleet.crosses(pair) and not state.explained(pair):
            slow_pairs.setdefault(leaf, []).append(pair)
    leaves = set()
    for leaf, pairs in slow_pairs.items():
        bad = [pair for pair in pairs if pair[1] in state.failed[pair[0]]]
        nodes = {node for pair in bad for node in pair}
        passing = sum(bool(state.passed[node]) for node in nodes)
        enough = len(nodes) >= SLOW_NODES and len(bad) >= SLOW_INSIDE * len(pairs)
        if enough and passing >= SLOW_INSIDE * len(nodes):
            leaves.add(leaf)
    return frozenset(leaves)


def held_back(state: Evidence) -> Dict[str, Set[str]]:
    """Return nodes that may form a group, and partners to test them with: bad nodes fail with each other, too."""
    bad = {n: len(state.against(n)) for n in state.failed if not state.at_fault(n) and n not in state.slow}
    bad = {n: count for n, count in bad.items() if state.can_answer(n)}
    never = {n for n, count in bad.items() if count > 1 and not state.passed[n]}
    often = {n for n, count in bad.items() if count >= state.rules.proofs and state.passed[n]}
    held: Dict[str, Set[str]] = {}
    for candidates, partners in ((never, 1), (often, 3)):
        if len(candidates) >= TOGETHER[bool(state.fleet.leaves)]:
            enough_partners = min(partners, len(candidates) - 1)
            held.update(
                {
                    n: candidates - state.met[n] - {n}
                    for n in candidates
                    if len(state.met[n] & candidates) < enough_partners
                }
            )
    for number in set(state.groups.values()):
        group = {n for n, of in state.groups.items() if of == number and n not in state.fleet.gone}
        enough = min(state.rules.proofs, len(group))
        held.update({n: group - state.met[n] for n in never if len(state.met[n] & group) < enough})
    return held


def group_findings(state: Evidence) -> List[Finding]:
    """Return the findings about groups (kind groups); too many pairs to report are withdrawn."""
    findings = [_between(state, number) for number in sorted(set(state.groups.values()) - {0})]
    if state.slow:
        findings.append(_slow(state))
    known = [pair for pair in state.of if len(pair) == 2 and not state.explained(pair)]
    findings += [_leaf_finding(state, leaf) for leaf in sorted(state.slow_leaves)]
    bad = [pair for pair in known if ("pair", pair) in state.findings]
    counted = Counter(node for pair in bad for node in pair)
    few = {node for node, _ in counted.most_common(max(2, len(state.met) // FEW_OF))}
    spread = sum(few.isdisjoint(pair) for pair in bad)  # pairs that a few nodes explain are attributed to those
    if len(bad) >= BAD_PATHS[1] and len(bad) > BAD_PATHS[0] * len(known) and spread > BAD_PATHS[0] * len(bad):
        for pair in bad:
            del state.findings["pair", pair]
        why = "%d of %d pairs fail (%s) although their nodes pass with others: links between unknown groups"
        how = how_failed(each for pair in bad for each in state.of[pair])
        findings.append(_group_finding({n for pair in bad for n in pair}, why % (len(bad), len(known), how)))
    return findings


def _between(state: Evidence, number: int) -> Finding:
    group = {node for node, of in state.groups.items() if of == number}
    across: List[Nodes] = [p for p in state.of if len(p) == 2 and len(group.intersection(p)) == 1 and state.between(p)]
    bad = [pair for pair in across if pair[1] in state.failed[pair[0]]]
    count = (len(group), len(bad), len(across), len(state.groups) - len(group))
    why = "%d nodes pass with each other, and %d of %d pairs of one of them and one of %d others fail" % count
    why += " (%s)" % how_failed(each for pair in bad for each in state.of[pair])
    return _group_finding(group, why + ": a link between two groups of nodes, probably an uplink that no label names")


def _slow(state: Evidence) -> Finding:
    values = sorted(t.value or 0.0 for p in state.of for t in state.of[p] if t.grade == FAIL and state.slow & {*p})
    count = (len(state.slow), len(state.met), values[len(values) // 2])
    why = "%d of %d nodes reach %.2f of the others' bandwidth, also with each other, and are above the floor" % count
    return _group_finding(state.slow, why + ": another group (NICs, wiring, leaf) rather than so many bad nodes")


def _leaf_finding(state: Evidence, leaf: str) -> Finding:
    pairs = [
        pair for pair in state.of if len(pair) == 2 and state.inside_slow(pair) and state.fleet.leaf(pair[0]) == leaf
    ]
    bad = [pair for pair in pairs if pair[1] in state.failed[pair[0]]]
    how = how_failed(each for pair in bad for each in state.of[pair])
    why = "%d of %d pairs inside leaf %s fail (%s); their nodes pass with others" % (len(bad), len(pairs), leaf, how)
    return _group_finding({n for pair in bad for n in pair}, why + ": the leaf as a whole, or the kind of its nodes")


def _group_finding(nodes: "FrozenSet[str] | Set[str]", why: str) -> Finding:
    return Finding("groups", tuple(sorted(nodes)), (), why)
