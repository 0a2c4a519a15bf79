"""Why the scheduler finds no node, and whether waiting can change that.

Parses the scheduler's message ("0/3 nodes are available: 1 node(s) had untolerated taint {...}, 2 Insufficient
nvidia.com/gpu. preemption: ..."). Each node is excluded by at least one reason; if every node has one that waiting does
not remove, waiting is useless. Sources: kubernetes pkg/scheduler/framework/types.go (FitError), the plugins' texts.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ..redact import safe
from ..unstructured import Unstructured, as_list, as_map, name_of, quantity, whole
from .inventory import pod_requests

_LINE = re.compile(r"(\d+)/(\d+) nodes are (?:un)?available(?:: ?(.*))?", re.DOTALL)
_TAIL = re.compile(r"\.?\s*(?:no new claims to deallocate,?\s*)?(?:preemption: .*)?$", re.DOTALL)
# Reasons that persist until the cluster or the pod is changed.
_PERMANENT = (
    "node affinity/selector",
    "pod anti-affinity",
    "pod affinity rules",
    "volume node affinity conflict",
    "not found",
    "didn't match the requested node name",
    "unsupported",
    "existing pods anti-affinity",
)
_VOLUME = re.compile("volume node affinity conflict|persistent volumes to bind")
_UNNAMED_TAINT = re.compile(r"untolerated taint\(s\)$")
# Taints that node lifecycle controllers set and remove; people remove a cordon (unschedulable) within minutes.
_PASSING_TAINT = re.compile(
    r"node\.kubernetes\.io/(?:not-ready|unreachable|memory-pressure|disk-pressure|pid-pressure|network-unavailable"
    r"|unschedulable)|node\.cloudprovider\.kubernetes\.io/|node\.cilium\.io/|startup"
)
# Controllers that announce a new node: the cluster autoscaler and Karpenter.
SCALING = ("TriggeredScaleUp", "Nominated")


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The parsed message: number of nodes, how many each reason excludes, whether waiting is useless."""

    nodes: int
    reasons: tuple[tuple[int, str], ...]
    hopeless: bool
    volume: bool
    hint: str = ""
    in_use: bool = False  # the only possible nodes are apparently full: other workloads use the requested devices


def read_unschedulable(
    message: str, pod: Unstructured, nodes: Sequence[Unstructured] = (), own: Container[str] = ()
) -> Unschedulable:
    """Parse the scheduler's message for `pod`.

    The visible `nodes` show facts that the message lacks: whether an amount is offered at all, and whether the missing
    devices are held by the job's `own` other pods. `own` has the names of their nodes; those pods wait for this one.
    """
    match = _LINE.search(message)
    # A resource that no node counts and the scheduler does not report is provided by other means (DRAExtendedResource,
    # 1.36).
    asked = {
        name: amount
        for name, amount in pod_requests(as_map(pod.get("spec"))).items()
        if f"Insufficient {name}" in message or any(name in _offers(node) for node in nodes)
    }
    nowhere = bool(nodes) and bool(pod) and not any(_possible(node, pod, asked, own) for node in nodes)
    if not match:
        # "no nodes available to schedule pods" means an empty cluster (or shard of the scheduler); other schedulers
        # have other texts.
        none = "no nodes available" in message
        return Unschedulable(0, ((0, message),) if message else (), none or nowhere, volume=False)
    total = int(match[2])
    rest = _TAIL.sub("", match[3] or "").strip().rstrip(".")
    reasons = tuple(_reason(part) for part in re.split(r", (?=\d+ )", rest) if part.strip())
    stuck = sum(count or total for count, reason in reasons if _permanent(reason))
    if nodes and pod:  # Kubernetes 1.35 and later no longer name the taints: read them from the nodes
        unnamed = sum(count for count, reason in reasons if _UNNAMED_TAINT.search(reason))
        stuck -= max(0, unnamed - sum(1 for node in nodes if not _passes_all(node, pod)))
    volume = "persistentvolumeclaim" in rest.lower() or bool(_VOLUME.search(rest) and "Insufficient" not in rest)
    hint = "; ".join(filter(None, (_hint(reason, asked, _plain(pod), nodes) for _, reason in reasons)))
    hopeless = total == 0 or stuck >= total or nowhere
    in_use = not hopeless and _in_use(reasons, total - stuck, seen=bool(nodes))
    return Unschedulable(total, reasons, hopeless, volume, hint, in_use)


def _in_use(reasons: Sequence[tuple[int, str]], nodes: int, *, seen: bool) -> bool:
    """Return whether devices in use keep the pod from the ``nodes`` that it may run on.

    Nodes that are ``seen`` are known to offer enough of any device. Without them, a missing GPU and one in use cannot
    be distinguished. If none of them has a free device, the pods that hold the devices hold cpu, memory and other
    devices, too.
    """
    left = [(count, reason) for count, reason in reasons if not _permanent(reason)]
    device = re.compile(r"Insufficient \S+/\S+" if seen else r"Insufficient \S+/gpu")
    devices = [(count, reason) for count, reason in left if device.fullmatch(reason)]
    everywhere = any(count >= nodes for count, _ in devices)
    other_reasons = (reason for _, reason in left if not device.fullmatch(reason))
    return bool(devices) and all(everywhere and re.fullmatch(r"Insufficient \S+", reason) for reason in other_reasons)


def possible_nodes(pod: Unstructured, nodes: Iterable[Unstructured]) -> int:
    """Count the nodes that could run such a pod once other pods have ended."""
    asked = pod_requests(as_map(pod.get("spec")))
    return sum(1 for node in nodes if _possible(node, pod, asked, ()))


def rooms(pod: Unstructured, nodes: Iterable[Unstructured], offers: str = "allocatable") -> int | None:
    """Count such pods that fit on the nodes together once other pods have ended; None if unknown.

    Counts what nodes have (`capacity`) or offer. Node affinity is left to the scheduler, and cpu and memory are shared.
    """
    spec = as_map(pod.get("spec"))
    affinity, selector = as_map(spec.get("affinity")), as_map(spec.get("nodeSelector"))
    asked = {name: amount for name, amount in pod_requests(spec).items() if amount}
    if not asked or affinity.get("nodeAffinity") or spec.get("resourceClaims"):
        return None
    most = (
        1 if as_map(affinity.get("podAntiAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution") else 1 << 20
    )
    count = 0
    for node in nodes:
        amounts, labels = (
            as_map(as_map(node.get("status")).get(offers)),
            as_map(as_map(node.get("metadata")).get("labels")),
        )
        if all(labels.get(key) == value for key, value in selector.items()) and _passes_all(node, pod):
            count += min([most, *(whole(amounts.get(name) or 0) // amount for name, amount in asked.items())])
    return count


def unmatched(pod: Unstructured, nodes: Sequence[Unstructured]) -> str:
    """Name the labels of the pod's nodeSelector that no node has, and the existing values; '' if a node has all."""
    selector = as_map(as_map(pod.get("spec")).get("nodeSelector"))
    labels = [as_map(as_map(node.get("metadata")).get("labels")) for node in nodes]
    if not nodes or any(all(own.get(key) == value for key, value in selector.items()) for own in labels):
        return ""
    texts = []
    for key, value in sorted(selector.items()):
        values = sorted({str(own[key]) for own in labels if key in own})
        if value not in values:
            texts.append(
                f"{key}={value} ({'there is ' + ', '.join(values[:3]) if values else 'no node has that label'})"
            )
    return safe("no node has " + (", ".join(texts) or "all of these labels together"), 300)


def lacking(pod: Unstructured, nodes: Sequence[Unstructured]) -> str:
    """List visible nodes that offer less than one such pod requests."""
    texts = []
    for name, amount in pod_requests(as_map(pod.get("spec"))).items():
        for node in nodes:
            offers = whole(as_map(as_map(node.get("status")).get("allocatable")).get(name) or 0)
            if offers < amount:
                texts.append(f"{as_map(node.get('metadata')).get('name')} offers {offers} of {amount} {name}")
    return ", ".join(texts[:4])


def _offers(node: Unstructured) -> Unstructured:
    return as_map(as_map(node.get("status")).get("allocatable"))


def _possible(node: Unstructured, pod: Unstructured, asked: Mapping[str, int], own: Container[str]) -> bool:
    """Return whether the node could run the pod once other pods have ended."""
    offers = _offers(node)
    if name_of(node) in own:
        return False
    if any(amount > whole(offers.get(name) or 0) for name, amount in asked.items()):
        return False
    if any(name in offers and amount > (quantity(offers[name]) or 0) for name, amount in _plain(pod).items()):
        return False
    return _passes_all(node, pod)


def _passes_all(node: Unstructured, pod: Unstructured) -> bool:
    """Return whether the pod tolerates every lasting taint of the node."""
    tolerations = as_list(as_map(pod.get("spec")).get("tolerations"))
    return all(_passes(taint, tolerations) for taint in as_list(as_map(node.get("spec")).get("taints")))


def _plain(pod: Unstructured) -> dict[str, Decimal]:
    """Sum the containers' requests of cpu and memory; a limit without a request is the request."""
    amounts: dict[str, Decimal] = {}
    for container in as_list(as_map(pod.get("spec")).get("containers")):
        resources = as_map(container.get("resources"))
        both = as_map(resources.get("limits")) | as_map(resources.get("requests"))
        for name in ("cpu", "memory"):
            amounts[name] = amounts.get(name, Decimal(0)) + (quantity(both.get(name, "0")) or 0)
    return amounts


def _passes(taint: Unstructured, tolerations: Iterable[Unstructured]) -> bool:
    """Return whether a taint is tolerated, or may be removed without an administrator."""
    key, effect = (str(taint.get(name) or "") for name in ("key", "effect"))
    return effect == "PreferNoSchedule" or bool(_PASSING_TAINT.search(key)) or _is_tolerated(taint, tolerations)


def untolerated(node: Unstructured, pod: Unstructured) -> list[str]:
    """Return the taints of a node that exclude or evict such a pod: their names often show their owner."""
    tolerations = as_list(as_map(pod.get("spec")).get("tolerations"))
    return [
        safe(f"{taint.get('key')}{'=' + str(taint['value']) if taint.get('value') else ''}:{taint.get('effect')}", 200)
        for taint in as_list(as_map(node.get("spec")).get("taints"))
        if taint.get("effect") != "PreferNoSchedule" and not _is_tolerated(taint, tolerations)
    ]


def _is_tolerated(taint: Unstructured, tolerations: Iterable[Unstructured]) -> bool:
    key, value, effect = (str(taint.get(name) or "") for name in ("key", "value", "effect"))
    for item in tolerations:
        if item.get("effect") and item.get("effect") != effect:
            continue
        if item.get("operator") == "Exists":
            if not item.get("key") or item.get("key") == key:
                return True
        elif item.get("key") == key and str(item.get("value") or "") == value:
            return True
    return False


def _hint(reason: str, asked: Mapping[str, int], wants: Mapping[str, Decimal], nodes: Sequence[Unstructured]) -> str:
    """Describe what the visible nodes add to the scheduler's message."""
    if (plain := re.match(r"Insufficient (cpu|memory)$", reason)) and nodes:
        kind = plain[1]
        texts = []
        for node in nodes[:4]:
            offers = as_map(as_map(node.get("status")).get("allocatable")).get(kind)
            texts.append(f"{as_map(node.get('metadata')).get('name')} has {offers} {kind}")
        return f"the pod requests {wants.get(kind, 0):f} {kind}, {', '.join(texts)}, less the amounts in use"
    match = re.match(r"Insufficient (\S+/\S+)", reason)
    if match and nodes:
        name, texts = match[1], []
        for node in nodes:
            status = as_map(node.get("status"))
            offers, has = (whole(as_map(status.get(key)).get(name) or 0) for key in ("allocatable", "capacity"))
            if offers < max(has, asked.get(name, 0)):
                texts.append(f"{as_map(node.get('metadata')).get('name')} offers {offers} of {has} {name}")
        return ", ".join(texts[:4]) or f"{name} is in use by other workloads"
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
    match = re.match(r"(\d+) (.*)", part.strip(), re.DOTALL)
    return (int(match[1]), match[2].strip()) if match else (0, part.strip())


def _permanent(reason: str) -> bool:
    if "untolerated taint" in reason:
        return not _PASSING_TAINT.search(reason)
    return any(text in reason for text in _PERMANENT)
