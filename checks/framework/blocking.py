"""What a check may judge: the nodes, and the pairs of nodes, on which its prerequisites hold.

A check that judges node by node (``by_node`` in its marker) and did not pass on some nodes blocks what comes after it
on those nodes only. A check may say of single prerequisites (``by_pair``) that what fails between two nodes says
nothing about other pairs. Anything else that did not pass, or did not look, blocks the whole check. What is withheld
is listed as not judged, so that nothing passes for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.listing import first_of
from reports.schema import Outcome

if TYPE_CHECKING:
    from checks.framework.selection import Declaration
    from reports.record import CheckResult

MET = (Outcome.PASSED, Outcome.SKIPPED)
SHOWN = 4
NOTHING_AFTER = frozenset(
    {
        "nodes.other-kind",
        "nodes.no-gpu",
        "nodes.too-few",
        "gpu.oversubscribed",
        "gpu.taken",
        "gpu.held-by-slurm",
        "quota.in-use",
        "nccl.program",
        "stack.driver-upgrade",
    }
)
"""Faults that may leave the verdict open, and still leave nothing to judge after them: the profile or the chosen nodes
are not this cluster's, GPUs are offered more than once, GPUs or a quota are in use, drivers are being replaced, or
the program failed by itself."""
NOT_JUDGED = "not judged: blocked by "
"""How the finding begins that stands for a node on which a check did not judge."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """What keeps a check from judging: prerequisites that block it whole, and those that block single nodes or pairs.

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
    return _parts(subject) & frozenset(nodes)


def covered(subject: str, places: Iterable[str]) -> bool:
    """Tell whether a subject is about one of the places, each a node or a pair: it names all nodes of it."""
    subject_words = _parts(subject)
    return any(_parts(place) <= subject_words for place in places)


def _parts(subject: str) -> frozenset[str]:
    return frozenset(re.split(r"[\s,/]+", subject)) - {"", "-", "->"}


def blocks(
    declared: Declaration,
    results: Mapping[str, CheckResult],
    by_node: Collection[str],
    nodes: Collection[str],
    among: Collection[str] | None = None,
) -> Blocks:
    """Return what keeps the declared check from judging.

    ``by_node``: the ids of the checks that judge node by node. ``nodes``: all nodes that a finding may name.
    ``among``: those that this check is about, where that is known: what is wrong elsewhere is nothing to it.
    """
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
        here = failed if among is None else {place for place in failed if named(place, nodes) <= frozenset(among)}
        starts_trial = declared.stage == "acceptance" and among is None  # on the nodes that are left
        if not failed or (here and not (declared.by_node or declared.by_pair or starts_trial)):
            whole.append(name)
        for place in here:
            held.setdefault(place, []).append(name)
    looked = [_looked(results[n], nodes, pairs=n in declared.by_pair) for n in bad if n in results]
    if not whole and held and all(covered(place, held) for place in frozenset.intersection(*looked)):
        whole = list(dict.fromkeys(bad))  # nowhere is left that every prerequisite looked at
    return Blocks(tuple(whole), {node: _roots(node, held[node], results) for node in sorted(held)} if not whole else {})


def at_fault(check_id: str, results: Mapping[str, CheckResult]) -> bool:
    """Whether the check failed, found what leaves nothing to judge after it, or was blocked by one that did."""
    result = results.get(check_id)
    if result is None:
        return False
    faulty = result.outcome is Outcome.FAILED or not NOTHING_AFTER.isdisjoint(result.faults)
    return faulty or any(at_fault(n, results) for n in result.blocked_by)


def _nodes(result: CheckResult, nodes: Collection[str]) -> frozenset[str]:
    """Return the nodes on which a check did not hold; none where something else did not, or it did not look."""
    wrong = _wrong(result, nodes)
    return frozenset().union(*wrong) if all(wrong) else frozenset()


def _pairs(result: CheckResult, nodes: Collection[str]) -> frozenset[str]:
    """Return the pairs, or single nodes, on which a check did not hold; none where something else did not."""
    wrong = _wrong(result, nodes)
    return frozenset(" - ".join(sorted(place)) for place in wrong) if all(wrong) else frozenset()


def _wrong(result: CheckResult, nodes: Collection[str]) -> list[frozenset[str]]:
    """Return which nodes each finding names that is not good."""
    return [named(f.subject, nodes) for f in result.findings if f.ok is not True]


def _roots(node: str, names: list[str], results: Mapping[str, CheckResult]) -> tuple[str, ...]:
    """Return those of the prerequisites that judged this node; all where each was blocked there."""
    own = [name for name in names if results[name].outcome is not Outcome.BLOCKED and _judged(results[name], node)]
    return tuple(own or names)


def _judged(result: CheckResult, node: str) -> bool:
    """Whether a check that failed, perhaps on other nodes, found something on this one itself."""
    here = (f for f in result.findings if f.ok is not True and covered(f.subject, [node]))
    return any(not f.observed.startswith(NOT_JUDGED) for f in here)


def _looked(result: CheckResult, nodes: Collection[str], *, pairs: bool) -> frozenset[str]:
    """Return the nodes, or pairs, that a check found something about, good or bad."""
    about = {named(f.subject, nodes) for f in result.findings} - {frozenset()}
    return frozenset(" - ".join(sorted(place)) for place in about) if pairs else frozenset[str]().union(*about)


def withheld_in_words(held: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Say which nodes or pairs are withheld, grouped by what blocks them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, names in held.items():
        groups.setdefault(names, []).append(node)
    for names, where in groups.items():
        yield f"{first_of(where, SHOWN)} ({', '.join(names)})"
