"""The state of every element by the judged tests: passes and failures with each partner, and the nodes at fault.

A failure counts against a node only with a proven partner, in a test that no other element at fault explains.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median_low
from typing import Dict, Iterable, List, Optional, Set, Tuple

from .apart import equally_slow, group_findings, grouped, held_back, slow_inside
from .evidence import Evidence, pair_of
from .judgement import FAIL, HARD, NOTHING, PASS, UNCLEAR, Facts, Judged, fails_alone, how_failed
from .likelihood import DECISIVE, Count, gain
from .model import Finding, Fleet, Nodes, Rules
from .shared_path import contested

REPEATS = 6  # of one pair before it is left as it is
SPREAD = (
    0.06  # three failures that agree so well are not an accident: 4 sigma of what three values of one fault differ by
)
UPLINK_PROOFS = 2  # of three probes with quiet leaves


class State(Evidence):
    """All evidence by element. Elements at fault are determined once, on creation."""

    def __init__(self, fleet: Fleet, rules: Rules, facts: Facts) -> None:
        super().__init__(fleet, rules, facts)
        self._find_alone()
        self._find_at_once()
        self._find_uplinks()
        self.doubted: Set[str] = set()
        self.slow_leaves = slow_inside(self)
        self.groups = grouped(self)
        self.slow = equally_slow(self)
        self.held = held_back(self)
        self._find_nodes()
        self._find_pairs()
        self.apart = group_findings(self)
        if any(each.kind == "groups" for each in facts.apart):
            self._withhold_uplinks()
        self._good_leaves = len({fleet.leaf(node) for node in fleet.nodes} - self.bad_leaves)

    # -- elements at fault

    def _name(self, kind: str, names: Nodes, tests: Iterable[Judged], why: str) -> None:
        rails: Optional[Set[int]] = None
        for each in tests:
            if each.grade == FAIL and each.rails:
                rails = set(each.rails) if rails is None else rails & each.rails
        slow_rails = tuple(sorted(rails or ()))
        shown = "rail" if kind == "node" and slow_rails else kind
        self.findings[(kind, names)] = Finding(shown, names, slow_rails, why)

    def _find_alone(self) -> None:
        for nodes, tests in self.of.items():
            grades = [each.grade for each in tests]
            if len(nodes) != 1 or not (HARD in grades or fails_alone(tests, self.rules.proofs)):
                continue
            hard = [each.outcome for each in tests if each.grade == HARD]
            why, floor = hard[0] if hard else how_failed(tests), self.rules.node_floor or 0.0
            reached = max((each.busbw for each in tests if each.grade == FAIL), default=0.0)
            if 0 < reached < floor:
                why += ", %.4g GB/s below the floor of %g" % (reached, floor)
            self._name("node", nodes, tests, "alone: %s" % why)

    def _find_at_once(self) -> None:
        hard: Dict[str, Set[str]] = defaultdict(set)
        outcomes: Dict[str, str] = {}
        for pair, tests in self.of.items():
            for each in tests:
                if each.grade != HARD or len(pair) != 2:
                    continue
                for node in each.at:
                    self._name("node", (node,), (), "%s, by its own log" % each.outcome)
                for node in pair:
                    hard[node] |= set(pair) - {node}
                    outcomes[node] = each.outcome
        for node in sorted(hard, key=lambda n: (-len(hard[n]), n)):
            partners = {p for p in hard[node] if self.trusted(p)}
            if len(partners) >= 2 and not self.at_fault(node):
                self._name("node", (node,), (), "%s with %d partners" % (outcomes[node], len(partners)))

    def _find_uplinks(self) -> None:
        cross: Dict[str, List[Tuple[Nodes, bool]]] = defaultdict(list)
        for pair in self.of:
            if len(pair) == 2 and self.fleet.crosses(pair):
                bad = pair[1] in self.failed[pair[0]]
                good = pair[1] in self.passed[pair[0]]
                if good or (bad and all(self.passed[n] and not self.at_fault(n) for n in pair)):
                    for node in pair:
                        cross[self.fleet.leaf(node)].append((pair, bad))
        while True:
            open_ = {leaf: [each for each in tests if not self._by_uplink(each[0])] for leaf, tests in cross.items()}
            self.hot = {
                leaf for leaf, tests in open_.items() if leaf not in self.bad_leaves and self._is_hot(leaf, tests)
            }
            worst: Tuple[int, str] = (0, "")
            for leaf in sorted(self.hot):
                probes = [bad for pair, bad in open_[leaf] if not (self._leaves(pair) - {leaf}) & self.hot]
                failed = sum(probes)
                if failed >= UPLINK_PROOFS and 2 * failed > len(probes):
                    worst = max(worst, (failed, leaf))
            leaf_at_fault = worst[1] or self._in_every_failure(open_)
            if not leaf_at_fault:
                break
            self._name_uplink((leaf_at_fault,), open_)
        # A leaf that passes with leaves without suspicion is only the partner of another's uplink.
        for leaf in sorted(self.hot):
            passed = sum(not bad for pair, bad in open_[leaf] if not (self._leaves(pair) - {leaf}) & self.hot)
            if passed >= UPLINK_PROOFS:
                self.hot.discard(leaf)
        if self.hot and not set(cross) - self.hot - self.bad_leaves:
            self._name_uplink(tuple(sorted(self.hot)), open_)  # no leaf without suspicion is left to distinguish them

    def _withhold_uplinks(self) -> None:
        """Leave uplinks in doubt if tests have two levels: pairs that pass inside a leaf may be as slow."""
        self.hot |= self.bad_leaves
        self.bad_leaves = set()
        for key in [key for key in self.findings if key[0] == "uplink"]:
            del self.findings[key]

    def _in_every_failure(self, by_leaf: Dict[str, List[Tuple[Nodes, bool]]]) -> str:
        """Return the only leaf that is in every failing pair and in mostly failing pairs; '' without one.

        The others are proven with each other; a leaf with mostly passing pairs is only the partner in the failures.
        """
        pairs = {pair: bad for leaf in self.hot for pair, bad in by_leaf[leaf]}
        named = [
            leaf
            for leaf in sorted(self.hot)
            if 2 * sum(bad for _, bad in by_leaf[leaf]) > len(by_leaf[leaf])
            and all(leaf in self._leaves(pair) for pair, bad in pairs.items() if bad)
            and sum(leaf not in self._leaves(pair) for pair in pairs) >= UPLINK_PROOFS
        ]
        return named[0] if len(named) == 1 else ""

    def _name_uplink(self, leaves: Nodes, by_leaf: Dict[str, List[Tuple[Nodes, bool]]]) -> None:
        pairs = {pair for leaf in leaves for pair, bad in by_leaf[leaf] if bad}
        tried = {pair for leaf in leaves for pair, _ in by_leaf[leaf]}
        tests = [each for pair in sorted(pairs) for each in self.of[pair]]
        self.bad_leaves |= set(leaves)
        self.hot -= set(leaves)
        either = "; no other leaf distinguishes them" if len(leaves) > 1 else ""
        count = "%d of %d pairs with other leaves" % (len(pairs), len(tried))
        why = "%s fail though their nodes pass otherwise: %s%s" % (count, how_failed(tests), either)
        self._name("uplink", leaves, tests, why)

    def _is_hot(self, leaf: str, tests: List[Tuple[Nodes, bool]]) -> bool:
        """Return whether enough pairs of a leaf fail, with several of its nodes, to suspect its uplink."""
        bad = [pair for pair, failed in tests if failed]
        nodes = {node for pair in bad for node in pair if self.fleet.leaf(node) == leaf}
        shares = [self._share(pair) for pair, _ in tests]
        return (
            2 * len(bad) >= len(tests)
            and len(nodes) > 1
            and gain(shares, len(set(self.fleet.leaves.values()))) >= DECISIVE
        )

    def _leaves(self, pair: Nodes) -> Set[str]:
        return {self.fleet.leaf(node) for node in pair}

    def _by_uplink(self, pair: Nodes) -> bool:
        return bool(self._leaves(pair) & self.bad_leaves)

    def _find_nodes(self) -> None:
        pairs: Set[Nodes] = {pair_of(n, p) for n in self.failed for p in self.against(n)}
        tested: Set[Nodes] = {p for p in self.of if len(p) == 2 and not self.explained(p)} if pairs else set()
        known = sorted(tested)
        named: List[str] = []
        while True:
            likely = []
            for node in {n for pair in pairs for n in pair}:
                bad = sum(self.trusted(p) for p in self.against(node))
                good = sum(not self.at_fault(p) for p in self.passed[node])
                elsewhere = good and self.groups and node not in self.groups
                if bad >= self.rules.proofs and not elsewhere:
                    likely.append((-bad, good, node))
            rest = self._rest(pairs, tested) if likely else {}
            at_fault = [each for each in likely if self._decisive(each[2], -each[0], each[1], rest[each[2]])]
            if not at_fault:
                break
            bad_count, good_count, node = min(at_fault)
            tests = [each for p in self.against(node) for each in self.of[pair_of(node, p)]]
            count = "%d of %d pairs with proven partners" % (-bad_count, good_count - bad_count)
            self._name("node", (node,), tests, "%s: %s%s" % (count, how_failed(tests), self._or_uplink(node)))
            named.append(node)
            pairs = {pair for pair in pairs if node not in pair}
            tested = {pair for pair in tested if node not in pair}
        self._take_back(named, known)

    def _or_uplink(self, node: str) -> str:
        """Add that the leaf's uplink may be at fault as well, if nothing was measured inside the leaf."""
        leaf = self.fleet.leaf(node)
        if not leaf or any(self.fleet.leaf(partner) == leaf for partner in self.measured[node]):
            return ""
        return "; or the uplink of %s: nothing was measured inside the leaf" % leaf

    def _take_back(self, named: List[str], tested: Iterable[Nodes]) -> None:
        """Withdraw findings that a shared path explains equally well.

        The nodes that may share it are tested with more partners.
        """
        if not named:
            return
        shares = {p: self._share(p) for p in tested if p[1] in self.failed[p[0]] or p[1] in self.passed[p[0]]}
        doubtful, shared = contested(named, len(self.fleet.nodes), shares)
        for node in doubtful:
            del self.findings[("node", (node,))]
        self.doubted = {node for node in doubtful | shared if self._can_meet_more(node, self.rules.most_partners)}

    def _share(self, pair: Nodes) -> Optional[float]:
        """Return the median share of the level of a failing pair, 0 if nothing was measured; None for other pairs."""
        if pair[1] in self.failed[pair[0]]:
            return median_low([each.value or 0.0 for each in self.of[pair] if each.grade in (FAIL, HARD)])
        return None

    def _can_meet_more(self, node: str, most: int) -> bool:
        """Return whether a node has met fewer partners than `most`, and another one is available."""
        if node in self.fleet.gone or len(self.measured[node]) >= most:
            return False
        return any(
            n != node and n not in self.met[node] and n not in self.fleet.gone and self.trusted(n)
            for n in self.fleet.nodes
        )

    def _rest(self, pairs: Set[Nodes], tested: Set[Nodes]) -> Dict[str, Count]:
        """Return, for each node, failures and tests of pairs without it, whose nodes mostly pass.

        A pair that failed once and passed when repeated counts as a failure: it shows the rate of accidents.
        """
        sound = {pair for pair in tested if all(len(self.passed[n]) >= len(self.against(n)) for n in pair)}
        failed = sound & (pairs | set(self.flaky))
        tests, failures = (Counter(n for pair in tested_pairs for n in pair) for tested_pairs in (sound, failed))
        nodes = {n for pair in pairs for n in pair}
        return {n: (len(failed) - failures[n], len(sound) - tests[n]) for n in nodes}

    def _decisive(self, node: str, bad: int, good: int, elsewhere: Count) -> bool:
        """Say whether a bad node explains its failures with proven partners decisively better than accidents do.

        A node with passes fails with most partners, of as many as are wanted or can test it; three failures are enough
        where they agree (three accidents of 1 % do happen).
        """
        enough = min(self.rules.partners_for_rate, len(self.fleet.nodes) - 1)
        if good and not (bad > good and len(self.measured[node]) >= enough):
            return False
        partners = [partner for partner in self.against(node) if self.trusted(partner)]
        shares = [*(self._share(pair_of(node, partner)) for partner in partners), *[None] * good]
        return gain(shares, len(self.fleet.nodes), elsewhere) >= DECISIVE

    def _find_pairs(self) -> None:
        if self.groups:  # the group of each is uncertain
            return
        for pair, tests in sorted(self.of.items()):
            grades = [each.grade for each in tests]
            if len(pair) != 2 or self.explained(pair) or not all(self.passed[n] for n in pair):
                continue
            if HARD in grades or (PASS not in grades and constant(tests)):
                failed = sum(each.grade in (FAIL, HARD) for each in tests)
                count = (failed, len(tests), how_failed(tests))
                why = "%d of %d tests fail though both nodes pass with others: %s" % count
                self._name("pair", pair, tests, why)

    # -- open questions ------------------------------------------------------------------------------------------------

    def open_end(self, node: str) -> bool:
        """Return whether a node with passes and failures needs more partners to distinguish pair and node."""
        bad, good = len(self.against(node)), len(self.passed[node])
        if not bad or self.at_fault(node) or bad + good >= self.rules.most_partners or node in self.fleet.gone:
            return False
        if node in self.doubted:
            return True
        if bad > 1:
            return good <= 2 * bad
        return good < (self.rules.proofs if self.matchings > 2 else 2)

    def wants(self, node: str) -> bool:
        """Return whether a node lacks passes: with two partners, one of them in another leaf if a good one exists."""
        if not self.can_answer(node) or self.tests[node] >= self.rules.most_partners:
            return False
        if node in self.slow and self.tests[node] >= 2 * self.rules.proofs:
            return False
        return not self.at_fault(node) and not self.enough(node)

    def enough(self, node: str) -> bool:
        """Return whether the passes of a node suffice to prove it."""
        partners = self.passed[node]
        if len(partners) < min(2, len(self.fleet.nodes) - 1) and not self._none_else(node):
            return False
        leaf = self.fleet.leaf(node)
        if not partners or self._good_leaves < 2 or leaf in self.bad_leaves:
            return bool(partners)
        return any(self.fleet.leaf(partner) != leaf for partner in partners)

    def _none_else(self, node: str) -> bool:
        """Return whether a node was measured with all others that could prove it."""
        return not any(
            n not in self.measured[node] and n != node and self.passed[n] and not self.between((node, n))
            for n in self.fleet.nodes
        )

    # -- pairs at fault without a node at fault ------------------------------------------------------------------------

    def wrong(self) -> List[Nodes]:
        """Return the pairs with wrong sums or a wrong transport that no finding explains."""
        return [pair for pair in self._open_pairs() if any(each.grade == HARD for each in self.of[pair])]

    def below_floor(self) -> List[Nodes]:
        """Return the unexplained pairs that were below their floor in all of their tests."""
        floor = self.rules.pair_floor
        if floor is None:
            return []
        low = []
        for pair in self._open_pairs():
            tests = [each for each in self.of[pair] if each.grade != NOTHING]
            if tests and all(each.grade == FAIL and 0 < each.busbw < floor for each in tests):
                low.append(pair)
        return low

    def stuck(self) -> List[Nodes]:
        """Return the pairs without a completed test in a leaf in which nearly all pairs are slow."""
        tests = {pair: [t for t in self.of[pair] if t.grade != NOTHING] for pair in self._open_pairs()}
        return [p for p, ran in tests.items() if ran and self.inside_slow(p) and not any(t.busbw for t in ran)]

    def unclear(self) -> List[Nodes]:
        """Return the unexplained pairs without a pass or a failure that are as slow as a fault.

        The margin for the noise of few values hides it.
        """
        low = []
        for pair in self._open_pairs():
            tests = [each for each in self.of[pair] if each.grade != NOTHING]
            if tests and all(each.grade == UNCLEAR for each in tests):
                low += [pair] * (median_low([each.value or 0.0 for each in tests]) < self.rules.accuses)
        return low

    def _open_pairs(self) -> List[Nodes]:
        pairs = (p for p in self.of if len(p) == 2 and ("pair", p) not in self.findings)
        return sorted(p for p in pairs if self.inside_slow(p) or not self.explained(p))

    # -- tests without a measurement -----------------------------------------------------------------------------------

    def blank(self, node: str) -> Set[str]:
        """Return the partners of a node's tests that measured nothing."""
        return self.met[node] - self.measured[node]

    def unmeasured(self) -> List[Nodes]:
        """Return the pairs that were tested and never measured."""
        return sorted({pair_of(node, p) for node in self.fleet.nodes for p in self.blank(node)})


def constant(tests: Iterable[Judged]) -> bool:
    """Return whether failures are not an accident: four, or three that match.

    The rates are for 1 % of tests disturbed without a fault, in sweeps with 232 nodes. Three failures of one pair occur
    in one sweep of 4,000. Three within `SPREAD` occur in one of 30,000, if a disturbance takes 15 to 40 %; four in one
    of 400,000. Noise below the threshold is near it and matches, too. So three failures must be twice as far below the
    level as the threshold is; with more that are nearer, no other test may be above it.
    """
    every = list(tests)
    failed = [each for each in every if each.grade == FAIL]
    values = [each.value or 0.0 for each in failed]
    far = all((each.value or 0.0) <= 2 * each.fault_below - 1 for each in failed)
    if len(failed) == 3:
        return far and max(values) - min(values) <= SPREAD
    return len(failed) > 3 and (far or all(each.grade != UNCLEAR for each in every))
