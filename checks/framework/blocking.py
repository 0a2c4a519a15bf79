"""The scope of a check: the nodes, and the pairs of nodes, on which its prerequisites hold.

If a check that judges node by node (``by_node`` in its marker) did not pass on some nodes, dependent checks are blocked
on those nodes only. For prerequisites listed in ``by_pair``, a failure between two nodes blocks that pair only. Any
other prerequisite that did not pass, or observed nothing, blocks the whole check. Withheld nodes and pairs are listed
as not judged, so that they are not counted as passed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from jobs.listing import first_of
from reports.record import CheckResult, is_withheld
from reports.schema import Outcome
from seatrial.faults.catalogue import catalogue

if TYPE_CHECKING:
    from checks.framework.selection import Declaration

MET = (Outcome.PASSED, Outcome.SKIPPED)
SHOWN = 4


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blockers of a check: prerequisites that block it as a whole, and those that block single nodes or pairs.

    ``nodes`` maps 'gpu-node-1', or 'gpu-node-0 - gpu-node-1', to the prerequisites that failed there.
    """

    whole: tuple[str, ...] = ()
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def checks(self) -> tuple[str, ...]:
        """The ids of all prerequisites that block something."""
        return tuple(dict.fromkeys([*self.whole, *(name for names in self.nodes.values() for name in names)]))


def named(subject: str, nodes: Collection[str]) -> frozenset[str]:
    """Return the nodes that a finding's subject names: 'gpu-node-1', 'gpu-node-1 GPU 3', 'gpu-node-1 - gpu-node-0'."""
    return _parts(subject) & frozenset(nodes)  # of a frozenset that is not a copy


class Places:
    """An index of places (nodes or pairs) that finds those named by a subject without comparing it with each.

    It is a tree of the node names of each place, in sorted order. A lookup takes as many steps as the subject names
    places and prefixes of places, independent of the total number of places.
    """

    def __init__(self, places: Iterable[str]) -> None:
        self._root = _Branch()
        for place in places:
            branch = self._root
            for node in sorted(_parts(place)):
                branch = branch.after.setdefault(node, _Branch())
            branch.places.append(place)

    def about(self, subject: str) -> Iterator[str]:
        """Yield the places that a subject is about: those of which it names all nodes."""
        return self._root.within(sorted(_parts(subject)))

    def __contains__(self, subject: object) -> bool:
        """Return whether a subject is about any of the places."""
        return isinstance(subject, str) and next(self.about(subject), None) is not None


@dataclass(frozen=True, slots=True)
class _Branch:
    """A step of the index: the places that end at this node, and the nodes that may follow."""

    places: list[str] = field(default_factory=list)
    after: dict[str, _Branch] = field(default_factory=dict)

    def within(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the places whose remaining nodes are among the words, which are sorted."""
        yield from self.places
        if not self.after:
            return
        for number, word in enumerate(words):
            if branch := self.after.get(word):
                yield from branch.within(words[number + 1 :])


def _parts(subject: str) -> frozenset[str]:
    return frozenset(subject.translate(_BETWEEN).split()) - {"", "-", "->"}


_BETWEEN = str.maketrans(",/", "  ")


def blocks(
    declared: Declaration,
    results: Mapping[str, CheckResult],
    by_node: Collection[str],
    nodes: Collection[str],
    among: Collection[str] | None = None,
) -> Blocks:
    """Return the blockers of the declared check.

    ``by_node``: the ids of the checks that judge node by node. ``nodes``: all nodes that a finding may name. ``among``:
    the nodes that this check is about, if known; failures on other nodes do not block it.
    """
    nodes, among = frozenset(nodes), None if among is None else frozenset(among)
    bad = [n for n in declared.requires if n not in results or results[n].outcome not in MET]
    bad += [n for n in declared.unless_failed if at_fault(n, results)]
    whole: list[str] = []
    held: dict[str, list[str]] = {}
    for name in dict.fromkeys(bad):
        failed = frozenset[str]()
        if name in results and name in by_node:
            failed = _nodes(results[name], nodes)
        elif name in results and name in declared.by_pair:
            failed = _pairs(results[name], nodes)
        here = failed if among is None else {place for place in failed if named(place, nodes) <= among}
        starts_trial = declared.stage == "acceptance" and among is None  # on the remaining nodes
        if not failed or (here and not (declared.by_node or declared.by_pair or starts_trial)):
            whole.append(name)
        for place in here:
            held.setdefault(place, []).append(name)
    looked = [_looked(results[n], nodes, pairs=n in declared.by_pair) for n in bad if n in results]
    places = Places(held)
    if not whole and held and all(place in places for place in frozenset.intersection(*looked)):
        whole = list(dict.fromkeys(bad))  # no place is left that every prerequisite judged
    return Blocks(tuple(whole)) if whole else Blocks(nodes=_roots(held, places, results))


def at_fault(check_id: str, results: Mapping[str, CheckResult]) -> bool:
    """Return whether the check failed, made later checks pointless, or was blocked by one that did."""
    result = results.get(check_id)
    if result is None:
        return False
    faulty = result.outcome is Outcome.FAILED or any(catalogue().is_so(each, "nothing_after") for each in result.faults)
    return faulty or any(at_fault(n, results) for n in result.blocked_by)


def _nodes(result: CheckResult, nodes: Collection[str]) -> frozenset[str]:
    """Return the nodes on which a check did not pass; none if a failure names no node or nothing was observed."""
    wrong = _wrong(result, nodes)
    return frozenset().union(*wrong) if all(wrong) else frozenset()


def _pairs(result: CheckResult, nodes: Collection[str]) -> frozenset[str]:
    """Return the pairs, or single nodes, on which a check did not pass; none if a failure names none."""
    wrong = _wrong(result, nodes)
    return frozenset(" - ".join(sorted(place)) for place in wrong) if all(wrong) else frozenset()


def _wrong(result: CheckResult, nodes: Collection[str]) -> list[frozenset[str]]:
    """Return the nodes that each failed or unclear finding names."""
    return [named(f.subject, nodes) for f in result.findings if f.ok is not True]


def _roots(
    held: Mapping[str, list[str]], places: Places, results: Mapping[str, CheckResult]
) -> dict[str, tuple[str, ...]]:
    """Return for each place the prerequisites that judged it; all of them if each was blocked there."""
    judged = {name: _judged(results[name], places) for name in dict.fromkeys(chain.from_iterable(held.values()))}
    return {place: tuple([n for n in held[place] if place in judged[n]] or held[place]) for place in sorted(held)}


def _judged(result: CheckResult, places: Places) -> frozenset[str]:
    """Return the places of a failed check's own findings."""
    if result.outcome is Outcome.BLOCKED:
        return frozenset()
    bad = (f for f in result.findings if f.ok is not True and not is_withheld(f.ok, f.observed))
    return frozenset(chain.from_iterable(places.about(f.subject) for f in bad))


def _looked(result: CheckResult, nodes: Collection[str], *, pairs: bool) -> frozenset[str]:
    """Return the nodes, or pairs, for which a check has a finding, good or bad."""
    about = {named(f.subject, nodes) for f in result.findings} - {frozenset()}
    return frozenset(" - ".join(sorted(place)) for place in about) if pairs else frozenset[str]().union(*about)


def withheld_in_words(held: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """List the withheld nodes or pairs, grouped by blocker."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, names in held.items():
        groups.setdefault(names, []).append(node)
    for names, where in groups.items():
        yield f"{first_of(where, SHOWN)} ({', '.join(names)})"
