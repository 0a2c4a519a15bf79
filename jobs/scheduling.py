"""Why does the scheduler find no node, and can that change by waiting?

Reads the scheduler's own line ("0/3 nodes are available: 1 node(s) had untolerated taint {...}, 2 Insufficient
nvidia.com/gpu. preemption: ..."). Each node is excluded by at least one reason; if every node has one that waiting does
not remove, waiting is pointless. Sources: kubernetes pkg/scheduler/framework/types.go (FitError), the plugins' texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .inventory import pod_requests
from .quantity import whole
from .raw import as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

_LINE = re.compile(r"(\d+)/(\d+) nodes are available(?:: ?(.*))?", re.DOTALL)
_TAIL = re.compile(r"\.?\s*(?:no new claims to deallocate,?\s*)?(?:preemption: .*)?$", re.DOTALL)
# Texts of reasons that stay as they are until somebody changes the cluster or the pod.
_PERMANENT = (
    "node affinity/selector", "pod anti-affinity", "pod affinity rules", "volume node affinity conflict",
    "not found", "didn't match the requested node name", "unsupported", "existing pods anti-affinity",
)  # fmt: skip
# Taints that the node lifecycle sets and removes by itself; a cordon (unschedulable) is lifted by people in minutes.
_PASSING_TAINT = re.compile(
    r"node\.kubernetes\.io/(?:not-ready|unreachable|memory-pressure|disk-pressure|pid-pressure|network-unavailable"
    r"|unschedulable)|node\.cloudprovider\.kubernetes\.io/|node\.cilium\.io/|startup"
)
# What promises a node: the cluster autoscaler and Karpenter.
SCALING = ("TriggeredScaleUp", "Nominated")


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The scheduler's line, read: nodes in all, how many each reason excludes, whether waiting is pointless."""

    nodes: int
    reasons: tuple[tuple[int, str], ...]
    hopeless: bool
    volume: bool
    hint: str = ""

    def short(self) -> str:
        """The line without the part on preemption."""
        told = ", ".join(f"{count} {reason}" if count else reason for count, reason in self.reasons)
        return f"0/{self.nodes} nodes are available" + (f": {told}" if told else "")


def read_unschedulable(
    message: str, pod: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]] = (), own: Container[str] = ()
) -> Unschedulable:
    """Read the scheduler's message for `pod`.

    `nodes` that are visible tell what the message does not: whether an amount is offered at all, and whether what is
    missing is held by the job's `own` other pods (names of their nodes), which wait for this one.
    """
    found = _LINE.search(message)
    if not found:
        # "no nodes available to schedule pods": an empty cluster (or shard of the scheduler).
        none = "no nodes available" in message
        return Unschedulable(0, ((0, message),) if message else (), none, volume=False)
    total = int(found[2])
    rest = _TAIL.sub("", found[3] or "").strip().rstrip(".")
    reasons = tuple(_reason(part) for part in re.split(r", (?=\d+ )", rest) if part.strip())
    stuck = sum(count or total for count, reason in reasons if _permanent(reason))
    volume = any("persistentvolumeclaim" in reason.lower() for _, reason in reasons)
    asked = pod_requests(as_map(pod.get("spec")))
    hint = "; ".join(filter(None, (_hint(reason, asked, nodes) for _, reason in reasons)))
    nowhere = bool(nodes) and bool(pod) and not any(_possible(node, pod, asked, own) for node in nodes)
    return Unschedulable(total, reasons, total == 0 or stuck >= total or nowhere, volume, hint)


def _possible(node: Mapping[str, Any], pod: Mapping[str, Any], asked: Mapping[str, int], own: Container[str]) -> bool:
    """Tell whether the node could take the pod once others have left it."""
    offers = as_map(as_map(node.get("status")).get("allocatable"))
    if str(as_map(node.get("metadata")).get("name")) in own:
        return False
    if any(amount > whole(offers.get(name) or 0) for name, amount in asked.items()):
        return False
    tolerations = as_list(as_map(pod.get("spec")).get("tolerations"))
    taints = as_list(as_map(node.get("spec")).get("taints"))
    return all(_passes(taint, tolerations) for taint in taints)


def _passes(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether a taint is tolerated, or may go away by itself."""
    key, value, effect = (str(taint.get(name) or "") for name in ("key", "value", "effect"))
    if effect == "PreferNoSchedule" or _PASSING_TAINT.search(key):
        return True
    for item in tolerations:
        if item.get("effect") and item.get("effect") != effect:
            continue
        if item.get("operator") == "Exists":
            if not item.get("key") or item.get("key") == key:
                return True
        elif item.get("key") == key and str(item.get("value") or "") == value:
            return True
    return False


def _hint(reason: str, asked: Mapping[str, int], nodes: Sequence[Mapping[str, Any]]) -> str:
    """Say what the visible nodes add to the scheduler's words."""
    found = re.match(r"Insufficient (\S+/\S+)", reason)
    if found and nodes:
        name, told = found[1], []
        for node in nodes:
            status = as_map(node.get("status"))
            offers, has = (whole(as_map(status.get(key)).get(name) or 0) for key in ("allocatable", "capacity"))
            if offers < max(has, asked.get(name, 0)):
                told.append(f"{as_map(node.get('metadata')).get('name')} offers {offers} of {has} {name}")
        return ", ".join(told[:4]) or f"others hold {name}"
    if "untolerated taint" in reason:
        taints = {
            f"{taint.get('key')}{'=' + str(taint['value']) if taint.get('value') else ''}:{taint.get('effect')}"
            for node in nodes
            for taint in as_list(as_map(node.get("spec")).get("taints"))
            if taint.get("effect") != "PreferNoSchedule"
        }
        return "taints of the nodes: " + ", ".join(sorted(taints)[:4]) if taints else ""
    return ""


def _reason(part: str) -> tuple[int, str]:
    found = re.match(r"(\d+) (.*)", part.strip(), re.DOTALL)
    return (int(found[1]), found[2].strip()) if found else (0, part.strip())


def _permanent(reason: str) -> bool:
    if "untolerated taint" in reason:
        return not _PASSING_TAINT.search(reason)
    return any(text in reason for text in _PERMANENT)
