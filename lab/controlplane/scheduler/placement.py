"""The scheduler's filters: the nodes that can take a pod, and why the others cannot.

Pure filters in the order of kube-scheduler's plugins: the first one that rejects a node names its reason. A rejection
that evicting other pods could not change is `final` ("Preemption is not helpful for scheduling").
"""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ...apiserver.schema import selectors
from ...apiserver.schema.quantity import value as parse

Object = dict[str, Any]
ENDED = ("Succeeded", "Failed")
NOTHING = Fraction(0)


@dataclass(slots=True)
class Refusal:
    """The reason why a node cannot take a pod; `final`: not even without its other pods."""

    reasons: tuple[str, ...]
    final: bool


def requests(pod: Object) -> dict[str, Fraction]:
    """Return a pod's requests: the sum of its containers and sidecars, or the largest init container, plus overhead."""
    spec = pod["spec"]
    total: dict[str, Fraction] = collections.defaultdict(Fraction)
    for container in spec["containers"]:
        _add(total, container)
    largest: dict[str, Fraction] = {}
    sidecars: dict[str, Fraction] = collections.defaultdict(Fraction)
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            _add(sidecars, container)
            continue
        alone = dict(sidecars)
        _add(alone, container)
        for name, amount in alone.items():
            largest[name] = max(largest.get(name, NOTHING), amount)
    for name, amount in sidecars.items():
        total[name] += amount
    for name, amount in largest.items():
        total[name] = max(total.get(name, NOTHING), amount)
    for name, text in (spec.get("overhead") or {}).items():
        total[name] += parse(text)
    return dict(total)


def _add(total: dict[str, Fraction], container: Object) -> None:
    amounts = container.get("resources") or {}
    for name, text in {**(amounts.get("limits") or {}), **(amounts.get("requests") or {})}.items():
        total[name] = total.get(name, NOTHING) + parse(text)


def tolerates(tolerations: list[Object], taint: Object) -> bool:
    """Return whether one of the tolerations matches a taint."""
    for toleration in tolerations:
        if toleration.get("effect") and toleration["effect"] != taint["effect"]:
            continue
        if toleration.get("key") and toleration["key"] != taint["key"]:
            continue
        if not toleration.get("key") and toleration.get("operator") != "Exists":
            continue
        if toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


@dataclass(slots=True)
class NodeView:
    """A node with its pods."""

    node: Object
    used: dict[str, Fraction] = field(default_factory=lambda: collections.defaultdict(Fraction))
    pods: dict[str, Object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The node's name."""
        return str(self.node["metadata"]["name"])

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        return self.node["metadata"].get("labels") or {}

    def free(self, name: str) -> Fraction:
        """Return the free amount of a resource."""
        return self.allocatable(name) - self.used.get(name, NOTHING)

    def allocatable(self, name: str) -> Fraction:
        """Return the allocatable amount of a resource."""
        offered = (self.node.get("status") or {}).get("allocatable") or {}
        return parse(offered[name]) if name in offered else NOTHING

    def put(self, pod: Object) -> None:
        """Add a pod."""
        self.pods[pod["metadata"]["uid"]] = pod
        for name, amount in requests(pod).items():
            self.used[name] += amount

    def take(self, uid: str) -> None:
        """Remove a pod."""
        pod = self.pods.pop(uid, None)
        for name, amount in requests(pod).items() if pod else ():
            self.used[name] -= amount


def _expression(labels: dict[str, str], expression: Object) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    if operator in ("Gt", "Lt"):
        try:
            left, right = int(labels.get(key, "")), int(values[0])
        except (ValueError, IndexError):
            return False
        return left > right if operator == "Gt" else left < right
    present = key in labels
    return {
        "In": present and labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": present,
        "DoesNotExist": not present,
    }.get(operator, False)


def node_term(node: Object, term: Object) -> bool:
    """Return whether a node matches a node selector term; an empty term matches none."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    expressions, on_fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not on_fields:
        return False
    return all(_expression(labels, e) for e in expressions) and all(_expression(fields, e) for e in on_fields)


def _node_affinity(pod: Object, view: NodeView) -> bool:
    return selects(pod, view.node)


def selects(pod: Object, node: Object) -> bool:
    """Return whether a pod's node selector and required node affinity allow a node."""
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(node_term(node, t) for t in required.get("nodeSelectorTerms") or [])


def _pod_terms(pod: Object, kind: str) -> list[Object]:
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or [])


def _term_matches(term: Object, owner: Object, other: Object) -> bool:
    spaces = term.get("namespaces") or (
        [] if term.get("namespaceSelector") is not None else [owner["metadata"]["namespace"]]
    )
    if spaces and other["metadata"]["namespace"] not in spaces:
        return False
    return bool(selectors.labels(term.get("labelSelector"))(other["metadata"].get("labels") or {}))


class InterPodAffinity:
    """The affinities between a pod and other pods, evaluated for each topology domain of all nodes."""

    def __init__(self, pod: Object, views: list[NodeView]) -> None:
        self._affine = [(t["topologyKey"], *self._domains(t, pod, views)) for t in _pod_terms(pod, "podAffinity")]
        self._matches_itself = [_term_matches(t, pod, pod) for t in _pod_terms(pod, "podAffinity")]
        apart = _pod_terms(pod, "podAntiAffinity")
        self._anti_affine = [(t["topologyKey"], self._domains(t, pod, views)[0]) for t in apart]
        self._refused_by_others = {
            (term["topologyKey"], view.labels.get(term["topologyKey"]))
            for view in views
            for other in view.pods.values()
            for term in _pod_terms(other, "podAntiAffinity")
            if term["topologyKey"] in view.labels and _term_matches(term, other, pod)
        }

    @staticmethod
    def _domains(term: Object, pod: Object, views: list[NodeView]) -> tuple[set[str], bool]:
        """Return the domains with a matching pod, and whether there is any such pod."""
        holding = [v for v in views if any(_term_matches(term, pod, other) for other in v.pods.values())]
        return {v.labels[term["topologyKey"]] for v in holding if term["topologyKey"] in v.labels}, bool(holding)

    def refuse(self, view: NodeView) -> Refusal | None:
        """Return why pod affinity excludes a node; None if it does not."""
        for (key, domains, anybody), itself in zip(self._affine, self._matches_itself, strict=True):
            first_of_its_kind = not anybody and itself and key in view.labels
            if view.labels.get(key) not in domains and not first_of_its_kind:
                return Refusal(("node(s) didn't match pod affinity rules",), final=True)
        if any(view.labels.get(key) in domains for key, domains in self._anti_affine):
            return Refusal(("node(s) didn't match pod anti-affinity rules",), final=False)
        if any(view.labels.get(key) == value for key, value in self._refused_by_others):
            return Refusal(("node(s) didn't satisfy existing pods anti-affinity rules",), final=False)
        return None


def _fit(requested: dict[str, Fraction], view: NodeView) -> Refusal | None:
    reasons, final = [], False
    most = view.allocatable("pods")
    if most and len(view.pods) + 1 > most:
        reasons.append("Too many pods")
    for name, amount in requested.items():
        if amount and amount > view.free(name):
            reasons.append(f"Insufficient {name}")
            final = final or amount > view.allocatable(name)
    return Refusal(tuple(reasons), final) if reasons else None


def _host_ports(pod: Object) -> set[tuple[int, str]]:
    return {
        (p["hostPort"], p.get("protocol", "TCP"))
        for c in pod["spec"]["containers"]
        for p in c.get("ports") or []
        if p.get("hostPort")
    }


def refuse(pod: Object, requested: dict[str, Fraction], view: NodeView, affinity: InterPodAffinity) -> Refusal | None:
    """Return why a node cannot take a pod; None if it can."""
    spec = view.node.get("spec") or {}
    tolerations = pod["spec"].get("tolerations") or []
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if spec.get("unschedulable") and not tolerates(tolerations, cordon):
        return Refusal(("node(s) were unschedulable",), final=True)
    for taint in spec.get("taints") or []:
        if taint["effect"] in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint):
            return Refusal(("node(s) had untolerated taint(s)",), final=True)
    if not _node_affinity(pod, view):
        return Refusal(("node(s) didn't match Pod's node affinity/selector",), final=True)
    ports = _host_ports(pod)
    if ports and any(ports & _host_ports(other) for other in view.pods.values()):
        return Refusal(("node(s) didn't have free ports for the requested pod ports",), final=False)
    return _fit(requested, view) or affinity.refuse(view)


def score(pod: Object, view: NodeView) -> tuple[float, int, float, str]:
    """Return the sort key, best node first: preferred affinity, fewest pods of the same owner, most free."""
    preference = 0.0
    affinity = pod["spec"].get("affinity") or {}
    for term in (affinity.get("nodeAffinity") or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or []:
        preference += term["weight"] if node_term(view.node, term["preference"]) else 0
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for term in (affinity.get(kind) or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or []:
            near = any(_term_matches(term["podAffinityTerm"], pod, other) for other in view.pods.values())
            preference += sign * term["weight"] if near else 0
    for taint in (view.node.get("spec") or {}).get("taints") or []:
        if taint["effect"] == "PreferNoSchedule" and not tolerates(pod["spec"].get("tolerations") or [], taint):
            preference -= 1
    owners = {r["uid"] for r in pod["metadata"].get("ownerReferences") or []}
    kin = sum(1 for p in view.pods.values() if owners & {r["uid"] for r in p["metadata"].get("ownerReferences") or []})
    used = sum(float(view.used[n] / view.allocatable(n)) for n in list(view.used) if view.allocatable(n))
    return -preference, kin, used + len(view.pods) / 1000, view.name


def explain(refusals: list[Refusal], total: int) -> str:
    """Return the first half of the message: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."""
    counts = collections.Counter(reason for refusal in refusals for reason in refusal.reasons)
    reasons = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{total} nodes are available: {', '.join(reasons)}."


def explain_preemption(refusals: list[Refusal], total: int, never: bool) -> str:
    """Return the second half of the message: whether preemption would help."""
    if never:
        return "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
    final = sum(1 for refusal in refusals if refusal.final)
    parts = [
        (total - final, "No preemption victims found for incoming pod"),
        (final, "Preemption is not helpful for scheduling"),
    ]
    text = ", ".join(f"{count} {reason}" for count, reason in parts if count)
    return f"no new claims to deallocate, preemption: 0/{total} nodes are available: {text}."
