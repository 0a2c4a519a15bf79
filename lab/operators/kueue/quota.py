"""The arithmetic of quotas, on plain numbers.

Messages are those of Kueue's flavor assigner (pkg/scheduler/flavorassigner/flavorassigner.go).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ...apiserver.schema.quantity import render
from ...apiserver.schema.quantity import value as parse
from ...controlplane.scheduler.placement import requests, selects, tolerates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Object = dict[str, Any]
Quotas = dict[tuple[str, str], Fraction]  # (flavor, resource) -> amount
NOTHING = Fraction(0)
BINARY = ("memory", "ephemeral-storage")


def shown(resource: str, amount: Fraction) -> str:
    """Format an amount as Kueue does: memory in binary units."""
    return render(amount, "binary" if resource in BINARY or resource.startswith("hugepages-") else "decimal")


def cohort_of(queue: Object) -> str:
    """Return the cohort of a ClusterQueue."""
    return str(queue["spec"].get("cohort") or queue["spec"].get("cohortName") or "")


@dataclass(slots=True)
class Share:
    """A ClusterQueue's quota and usage for each resource of each flavor."""

    nominal: Quotas = field(default_factory=dict)
    borrowing: Quotas = field(default_factory=dict)  # only if there is a limit
    lending: Quotas = field(default_factory=dict)
    used: Quotas = field(default_factory=dict)

    @classmethod
    def of(cls, queue: Object, used: Quotas) -> Share:
        """Parse a ClusterQueue's quotas."""
        share = cls(used=used)
        for group in queue["spec"].get("resourceGroups") or []:
            for flavor in group.get("flavors") or []:
                for each in flavor.get("resources") or []:
                    place = flavor["name"], each["name"]
                    share.nominal[place] = parse(each["nominalQuota"])
                    for name, into in ("borrowingLimit", share.borrowing), ("lendingLimit", share.lending):
                        if each.get(name) is not None:
                            into[place] = parse(each[name])
        return share

    def guaranteed(self, place: tuple[str, str]) -> Fraction:
        """Return the part that the queue does not lend: its guaranteed quota."""
        nominal = self.nominal.get(place, NOTHING)
        return max(NOTHING, nominal - self.lending[place]) if place in self.lending else NOTHING

    def borrows(self, place: tuple[str, str]) -> bool:
        """Return whether the queue uses more than its nominal quota."""
        return self.used.get(place, NOTHING) > self.nominal.get(place, NOTHING)


def most(share: Share, peers: Iterable[Share], place: tuple[str, str]) -> Fraction:
    """Return the most that the queue could get: its own quota, and what the others of its cohort lend."""
    quota = share.nominal.get(place, NOTHING)
    quota += sum((o.nominal.get(place, NOTHING) - o.guaranteed(place) for o in peers), NOTHING)
    limit = share.borrowing.get(place)
    return quota if limit is None else min(quota, share.nominal.get(place, NOTHING) + limit)


def available(share: Share, peers: Iterable[Share], place: tuple[str, str]) -> Fraction:
    """Return the quota that is available to the queue now."""
    peers = list(peers)
    used = share.used.get(place, NOTHING)
    lent = sum((max(NOTHING, o.used.get(place, NOTHING) - o.guaranteed(place)) for o in peers), NOTHING)
    pool = share.nominal.get(place, NOTHING) - used - lent
    pool += sum((o.nominal.get(place, NOTHING) - o.guaranteed(place) for o in peers), NOTHING)
    limit = share.borrowing.get(place)
    return pool if limit is None else min(pool, share.nominal.get(place, NOTHING) + limit - used)


@dataclass(slots=True)
class Assignment:
    """The assigned flavors for each pod set, or why there are none."""

    flavors: dict[str, dict[str, str]] = field(default_factory=dict)  # pod set -> resource -> flavor
    usage: Quotas = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    preempting: bool = False  # fits into the queue's own quota after preemption

    @property
    def fits(self) -> bool:
        """Whether every pod set has flavors."""
        return not self.messages

    @property
    def message(self) -> str:
        """Return the reason for the workload's condition."""
        return "; ".join(self.messages)


def totals(pod_set: Object) -> dict[str, Fraction]:
    """Return the requests of all pods of a pod set."""
    requested = requests({"spec": pod_set["template"]["spec"]})
    return {name: amount * int(pod_set["count"]) for name, amount in sorted(requested.items()) if amount}


def assign(
    pod_sets: list[Object], queue: Object, share: Share, peers: list[Share], flavors: Mapping[str, Object]
) -> Assignment:
    """Assign flavors to a whole workload."""
    assignment = Assignment()
    preempting = True
    for pod_set in pod_sets:
        requested = totals(pod_set)
        groups = queue["spec"].get("resourceGroups") or []
        if any("pods" in group["coveredResources"] for group in groups):
            requested["pods"] = Fraction(int(pod_set["count"]))
        reasons: list[str] = []
        chosen: dict[str, str] = {}
        left = dict(requested)
        for group in groups:
            part = {name: left.pop(name) for name in group["coveredResources"] if name in left}
            if not part:
                continue
            name, against, can = _of_group(pod_set, part, group, share, peers, flavors, assignment.usage)
            reasons += against
            preempting = preempting and (can or not against)
            if name:
                chosen |= dict.fromkeys(part, name)
                for resource, amount in part.items():
                    place = name, resource
                    assignment.usage[place] = assignment.usage.get(place, NOTHING) + amount
        missing = [f"resource {name} unavailable in ClusterQueue" for name in left]
        if reasons or missing:
            why = ", ".join(sorted([*reasons, *missing]))
            assignment.messages.append(f"couldn't assign flavors to pod set {pod_set['name']}: {why}")
            preempting = preempting and not missing
        assignment.flavors[pod_set["name"]] = chosen
    assignment.preempting = bool(assignment.messages) and preempting
    return assignment


def _of_group(
    pod_set: Object,
    requested: dict[str, Fraction],
    group: Object,
    share: Share,
    peers: list[Share],
    flavors: Mapping[str, Object],
    taken: Quotas,
) -> tuple[str, list[str], bool]:
    """Return (the flavor that fits, or could after preemption; reasons against; whether preemption could help)."""
    reasons: list[str] = []
    reclaimable = ""
    for offered in group["flavors"]:
        name = offered["name"]
        why = _mismatch(pod_set["template"]["spec"], name, flavors.get(name))
        if why:
            reasons.append(why)
            continue
        short, within = [], True
        for resource, amount in requested.items():
            place = name, resource
            before = taken.get(place, NOTHING)
            capacity = most(share, peers, place)
            if before + amount > capacity:
                within = False
                short.append(
                    f"insufficient quota for {resource} in flavor {name}, previously considered podsets requests "
                    f"({shown(resource, before)}) + current podset request ({shown(resource, amount)}) > maximum "
                    f"capacity ({shown(resource, capacity)})"
                )
                break
            lacking = before + amount - available(share, peers, place)
            if lacking > 0:
                within = within and before + amount <= share.nominal.get(place, NOTHING)
                short.append(
                    f"insufficient unused quota for {resource} in flavor {name}, {shown(resource, lacking)} more needed"
                )
        if not short:
            return name, [], False
        reasons += short
        if within and not reclaimable:
            reclaimable = name
    return reclaimable, reasons, bool(reclaimable)


def _mismatch(spec: Object, name: str, flavor: Object | None) -> str:
    """Return why pods of a template cannot use a flavor."""
    if flavor is None:
        return f"flavor {name} not found"
    flavor_spec = flavor.get("spec") or {}
    tolerations = [*(spec.get("tolerations") or []), *(flavor_spec.get("tolerations") or [])]
    for taint in flavor_spec.get("nodeTaints") or []:
        if taint["effect"] in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint):
            text = f"{{{taint['key']} {taint.get('value', '')} {taint['effect']} <nil>}}"
            return f"untolerated taint {text} in flavor {name}"
    labels = flavor_spec.get("nodeLabels") or {}
    if not selects({"spec": _relevant(spec, labels)}, {"metadata": {"name": "", "labels": labels}}):
        return f"flavor {name} doesn't match node affinity"
    return ""


def _relevant(spec: Object, labels: Mapping[str, str]) -> Object:
    """Return the parts of a pod spec about labels that the flavor defines; only these decide."""
    relevant: Object = {"nodeSelector": {k: v for k, v in (spec.get("nodeSelector") or {}).items() if k in labels}}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        [e for e in term.get("matchExpressions") or [] if e["key"] in labels]
        for term in required.get("nodeSelectorTerms") or []
    ]
    if terms and all(terms):
        relevant["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": term} for term in terms]
                }
            }
        }
    return relevant
